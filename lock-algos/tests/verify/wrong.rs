//! Locks that are wrong on purpose: test-and-set with one flaw each.

use std::time::Duration;

use lock_algos::{Backoff, LockAlgorithm, Mode, Owner, Place, TestAndSet};
use remote_memory::{Fault, FaultKind, Liveness, Notify, RemoteMemory};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Takes the lock by a read and a write.
    ReadThenWrite,
    /// Counts a reader into a word that names an owner.
    ReaderIgnoresOwner,
    /// Its exclusive release does nothing.
    ForgetsRelease,
    /// Its exclusive release is a write, whatever the atomics are atomic with.
    WritesRelease,
    /// Its shared release frees the word, whoever else reads.
    ReaderFreesAll,
    /// Waits for dead owners.
    WaitsForTheDead,
    /// Believes that a lock is lost without looking whether its owner released it before it died.
    AccusesTheDead,
}

const EXCLUSIVE: u64 = 1 << 63;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Wrong {
    flaw: Flaw,
    right: TestAndSet,
}

impl Wrong {
    pub(crate) fn new(flaw: Flaw) -> Self {
        Self { flaw, right: right() }
    }

    /// Takes the exclusive lock in two steps.
    async fn read_then_write<'m, M: RemoteMemory>(
        &self,
        memory: &'m M,
        (word, owner): (M::Word<'m>, u64),
        mut found: u64,
    ) -> Result<(), Fault> {
        while found != 0 {
            memory.pause(word, 1000).await;
            found = memory.read(word).await?;
        }
        memory.write(word, owner, Notify::No).await.map(|_| ())
    }

    /// Joins whatever it finds.
    async fn join<'m, M: RemoteMemory>(&self, memory: &'m M, word: M::Word<'m>, mut found: u64) -> Result<(), Fault> {
        loop {
            match memory.compare_swap(word, found, found.wrapping_add(1)).await? {
                now if now == found => return Ok(()),
                now => found = now,
            }
        }
    }

    /// Tries until the lock is free or, unless it ignores that, somebody is dead.
    async fn wait<'m, M: RemoteMemory>(
        &'m self,
        memory: &'m M,
        words: (M::Word<'m>, u64),
        mode: Mode,
        mut found: u64,
    ) -> Result<(), Fault> {
        while self.flaw == Flaw::WaitsForTheDead || memory.casualty().is_none() {
            memory.pause(words.0, 1000).await;
            found = self.right.start(memory, words, mode).await?;
            if found == 0 {
                return Ok(());
            }
        }
        let holder = Owner::from_bits(found).rank;
        if found & EXCLUSIVE != 0 && memory.liveness(holder) != Liveness::Alive {
            return Err(Fault::of(FaultKind::OwnerDied, holder));
        }
        self.right.finish(memory, words, mode, self.right.start(memory, words, mode), || true).await
    }
}

/// The lock that is right, with pauses so long that a few of them try its patience.
pub(crate) fn right() -> TestAndSet {
    TestAndSet::new(Backoff::new([1_000, 1_000_000, 400_000_000].map(Duration::from_nanos)))
}

impl LockAlgorithm for Wrong {
    const NAME: &'static str = "wrong";
    const HOME_WORDS: usize = TestAndSet::HOME_WORDS;
    const NODE_WORDS: usize = TestAndSet::NODE_WORDS;
    const ONE_STEP_RELEASE: bool = TestAndSet::ONE_STEP_RELEASE;

    type Words<'m, M: RemoteMemory> = <TestAndSet as LockAlgorithm>::Words<'m, M>;

    fn words<'m, M: RemoteMemory>(&self, place: &impl Place<'m, M>) -> Result<Self::Words<'m, M>, Fault> {
        self.right.words(place)
    }

    fn start<M: RemoteMemory>(&self, memory: &M, words: Self::Words<'_, M>, mode: Mode) -> M::Op {
        match (self.flaw, mode) {
            (Flaw::ReadThenWrite, Mode::Exclusive) => memory.read(words.0),
            _ => self.right.start(memory, words, mode),
        }
    }

    fn holds<M: RemoteMemory>(&self, words: Self::Words<'_, M>, mode: Mode, first: u64) -> bool {
        let only_read = self.flaw == Flaw::ReadThenWrite && mode == Mode::Exclusive;
        !only_read && self.right.holds::<M>(words, mode, first)
    }

    async fn contend<'m, M: RemoteMemory>(
        &'m self,
        memory: &'m M,
        words: Self::Words<'m, M>,
        mode: Mode,
        first: u64,
        wanted: impl Fn() -> bool + Send + 'm,
    ) -> Result<(), Fault> {
        match (self.flaw, mode) {
            (Flaw::ReadThenWrite, Mode::Exclusive) => self.read_then_write(memory, words, first).await,
            (Flaw::ReaderIgnoresOwner, Mode::Shared) => self.join(memory, words.0, first).await,
            (Flaw::WaitsForTheDead | Flaw::AccusesTheDead, _) => self.wait(memory, words, mode, first).await,
            _ => self.right.contend(memory, words, mode, first, wanted).await,
        }
    }

    fn start_release<M: RemoteMemory>(&self, memory: &M, words: Self::Words<'_, M>, mode: Mode) -> M::Op {
        match (self.flaw, mode) {
            (Flaw::ForgetsRelease, Mode::Exclusive) => memory.read(words.0),
            (Flaw::WritesRelease, Mode::Exclusive) => memory.write(words.0, 0, Notify::No),
            (Flaw::ReaderFreesAll, Mode::Shared) => memory.write(words.0, 0, Notify::No),
            _ => self.right.start_release(memory, words, mode),
        }
    }

    async fn finish_release<'m, M: RemoteMemory>(
        &'m self,
        _memory: &'m M,
        _words: Self::Words<'m, M>,
        _mode: Mode,
        started: M::Op,
    ) -> Result<(), Fault> {
        started.await.map(|_| ())
    }
}
