//! Locks whose mistake is in their flow, not in one operation.

use onesided_lock_kit::lock_algos::{Owner, SimpleLock, SimpleUse};
use onesided_lock_kit::remote_memory::{Fault, FaultKind, Notify, RemoteMemory};

/// A lock of three words with this mistake: test-and-set of one or of two, numbers in two words or in
/// one, or Peterson's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words(pub(super) &'static str);

impl Words {
    /// Takes a number of the first word, and waits until the second has it.
    async fn number<M: RemoteMemory>(&self, mut lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
        let (memory, [next, served, slot]) = (lock.memory, [0, 1, 2].map(|word| lock.word(word)));
        let number = memory.fetch_add(next, 1).await?;
        while memory.read(served).await? != number {
            if self.0 == "numbers: two wait at one slot" {
                while memory.read(slot).await? == 0 {
                    memory.pause(slot, 1_000).await;
                }
                return memory.write(slot, 0, Notify::No).await.map(drop);
            }
            let Err(given_up) = lock.pause(1).await else { continue };
            match self.0 {
                "numbers: a cancelled one returns its own" => memory.fetch_add(next, u64::MAX).await?,
                "numbers: a cancelled one serves the next" => memory.fetch_add(served, 1).await?,
                _ => 0,
            };
            return Err(given_up);
        }
        Ok(())
    }

    /// Takes two words.
    async fn two<M: RemoteMemory>(&self, mut lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
        let (memory, me, rank) = (lock.memory, lock.owner.to_bits() + 1, lock.owner.rank.index());
        let first = if self.0 == "two words: a try keeps the first" { 0 } else { rank % 2 };
        let words = [first, 1 - first].map(|word| lock.word(word));
        loop {
            while memory.compare_swap(words[0], 0, me).await? != 0 {
                lock.pause(first).await?;
            }
            let mut waited = Ok(());
            while waited.is_ok() {
                if memory.compare_swap(words[1], 0, me).await? == 0 {
                    return Ok(());
                }
                match self.0 {
                    "two words: each yields to the other" => break,
                    _ => waited = lock.pause(1 - first).await,
                }
            }
            if self.0 != "two words: a try keeps the first" {
                memory.compare_swap(words[0], me, 0).await?;
            }
            waited?;
        }
    }

    /// As Peterson's lock.
    async fn turn<M: RemoteMemory>(&self, mut lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
        let (memory, me) = (lock.memory, lock.owner.rank.index() % 2);
        let [mine, other, turn] = [me, 1 - me, 2].map(|word| lock.word(word));
        let writes = [memory.write(mine, 1, Notify::No), memory.write(turn, me as u64, Notify::No)];
        if self.0 != "turn: its writes are not awaited" {
            for write in writes {
                write.await?;
            }
        }
        while memory.read(other).await? == 1 && memory.read(turn).await? == me as u64 {
            if let Err(given_up) = lock.pause(2).await {
                memory.write(mine, 0, Notify::No).await?;
                return Err(given_up);
            }
        }
        Ok(())
    }

    /// Takes a number of the low byte, and waits until the next byte has it.
    async fn byte<M: RemoteMemory>(&self, lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
        lock.may_wait()?;
        let number = lock.memory.fetch_add(lock.word(0), 1).await? % 256;
        while lock.memory.read(lock.word(0)).await? >> 8 & 0xff != number {
            lock.memory.pause(lock.word(0), 1_000).await;
        }
        Ok(())
    }
}

impl SimpleLock for Words {
    const NAME: &'static str = "words";
    const WORDS: usize = 3;

    fn is_free(home: &[u64]) -> bool {
        home[0] == home[1] || home[0] > 256 && home[0] % 256 == home[0] >> 8 & 0xff
    }

    async fn acquire<M: RemoteMemory>(&self, mut lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
        let (memory, me, word, mut waits) = (lock.memory, lock.owner.to_bits() + 1, lock.word(0), 0);
        match self.0.split(':').next() {
            Some("numbers") => return self.number(lock).await,
            Some("two words") => return self.two(lock).await,
            Some("turn") => return self.turn(lock).await,
            Some("byte") => return self.byte(lock).await,
            _ => {}
        }
        loop {
            let found = match memory.compare_swap(word, 0, me).await {
                Err(_) if self.0 == "an error counts as success" => 0,
                found => found?,
            };
            waits += 1;
            match self.0 {
                _ if found == 0 => return Ok(()),
                "a rank enters its own lock" if Owner::from_bits(found - 1).rank == lock.owner.rank => return Ok(()),
                "it enters if it may not wait" if lock.may_wait().is_err() => return Ok(()),
                "it gives up in time" if waits > 2 => return Err(Fault::new(FaultKind::TimedOut)),
                "it waits once at most" => assert!(waits < 2, "waits again"),
                "it looks anew before it waits" => drop(memory.read(word).await?),
                "whoever gives up frees the word" if lock.may_wait().is_err() => {
                    memory.write(word, 0, Notify::No).await?;
                }
                _ => {}
            }
            match self.0 {
                "it spins" => {}
                "a try waits" => memory.pause(word, 1_000).await,
                "it waits for another word" => lock.pause(1).await?,
                _ => lock.pause(0).await?,
            }
        }
    }

    async fn release<M: RemoteMemory>(&self, lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
        let (memory, me, rank) = (lock.memory, lock.owner.to_bits() + 1, lock.owner.rank.index());
        let not_held = Fault::new(FaultKind::NotHeld);
        let done = match self.0 {
            "numbers: two wait at one slot" => {
                let served = memory.fetch_add(lock.word(1), 1).await? + 1;
                let waits = memory.read(lock.word(0)).await? > served;
                memory.write(lock.word(2), u64::from(waits), Notify::No).await
            }
            numbers if numbers.starts_with("numbers") => memory.fetch_add(lock.word(1), 1).await,
            turn if turn.starts_with("turn") => memory.write(lock.word(rank % 2), 0, Notify::No).await,
            "byte: the number carries" => memory.fetch_add(lock.word(0), 1 << 8).await,
            "an error of its release counts as success" => memory.compare_swap(lock.word(0), me, 0).await.or(Ok(me)),
            _ if memory.compare_swap(lock.word(0), me, 0).await? != me => Err(not_held),
            "it is released twice" => memory.write(lock.word(0), 0, Notify::No).await,
            "its release fails" => Err(not_held),
            "its release panics" => unreachable!("released"),
            _ => memory.compare_swap(lock.word(1), me, 0).await,
        };
        done.map(drop)
    }
}

/// MCS with this mistake.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue(pub(super) &'static str);

impl SimpleLock for Queue {
    const NAME: &'static str = "queue";
    const WORDS: usize = 1;
    const NODE_WORDS: usize = 2;

    async fn acquire<M: RemoteMemory>(&self, mut lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
        let (memory, me, mut before) = (lock.memory, lock.owner.to_bits() + 1, 0);
        memory.store(lock.node(0), 0)?;
        memory.store(lock.node(1), 0)?;
        loop {
            lock.arrives();
            match memory.compare_swap(lock.word(0), before, me).await? {
                found if found == before => break,
                found => before = found,
            }
            if before != 0 && self.0 != "a waiter leaves while it queues" {
                lock.may_wait()?;
            }
        }
        if self.0 == "the link is reset after the swap" {
            memory.store(lock.node(1), 0)?;
        }
        if before != 0 {
            let mut previous = Owner::from_bits(before - 1);
            if self.0 == "links to the first slot" {
                previous.slot = 0;
            }
            memory.write(lock.node_of(previous, 1)?, me, Notify::Yes).await?;
            if self.0 == "the grant is reset after the link" {
                memory.store(lock.node(0), 0)?;
            }
            lock.wait_until(0, |granted| granted != 0).await?;
        }
        Ok(())
    }

    async fn release<M: RemoteMemory>(&self, mut lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
        let (memory, me) = (lock.memory, lock.owner.to_bits() + 1);
        let next = memory.load(lock.node(1))?;
        if next == 0 && memory.compare_swap(lock.word(0), me, 0).await? == me {
            return Ok(());
        }
        if next == 0 && self.0 == "the release waits for no link" {
            return Ok(());
        }
        let next = lock.wait_until(1, |next| next != 0).await?;
        memory.write(lock.node_of(Owner::from_bits(next - 1), 0)?, 1, Notify::Yes).await?;
        if self.0 == "the tail is freed as well" {
            memory.write(lock.word(0), 0, Notify::No).await?;
        }
        Ok(())
    }
}
