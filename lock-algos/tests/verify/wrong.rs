//! Locks that are wrong on purpose: test-and-set with one flaw each.

use onesided_lock_algos::{
    Held, Intent, IntentFn, LockAlgorithm, LockContext, LockUse, Mode, Op, Owner, Rest, TestAndSet, WaitPolicy, Words,
};
use onesided_remote_memory::{Fault, FaultKind, Liveness, Notify, RemoteMemory};

use crate::right::right;

/// A flaw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Takes the lock by a read and a write.
    ReadThenWrite,
    /// Counts a reader into a word that names an owner.
    ReaderIgnoresOwner,
    /// Its exclusive release does nothing.
    ForgetsRelease,
    /// Its exclusive release is a write, even if writes are not atomic with the atomics.
    WritesRelease,
    /// Its shared release frees the word, even if others read.
    ReaderFreesAll,
    /// Waits for dead owners.
    WaitsForTheDead,
    /// Takes the lock from readers as soon as any rank is dead.
    TakesFromDeadReadersAtOnce,
    /// Gives a dead owner's lock to an acquire that did not ask to recover it.
    RecoversUnasked,
    /// Reads the word anew before it waits for a change of it, and so misses a change between its
    /// operation and that read (Sandia OpenSHMEM, pull request 97).
    ReadsAnewToWait,
    /// Its poisoned release is a plain one.
    ForgetsToPoison,
    /// Names itself as the dead owner that it recovers from.
    NamesItself,
    /// Recovers, and does not tell.
    TellsNobody,
}

const EXCLUSIVE: u64 = 1 << 63;

/// Test-and-set with a flaw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wrong {
    flaw: Flaw,
    right: TestAndSet,
}

impl Wrong {
    /// Test-and-set with this flaw.
    pub(crate) fn new(flaw: Flaw) -> Self {
        Self { flaw, right: right() }
    }

    /// Retries until the lock is free. A pause ends when the word differs from what the last
    /// operation found.
    async fn wait<'m>(&'m self, lock: LockUse<'m, impl LockContext<'m>>, mut found: u64) -> Result<Held, Fault> {
        while found != 0 {
            if self.flaw == Flaw::ReadsAnewToWait {
                lock.memory.read(lock.home).await?;
            }
            lock.memory.pause(lock.home, 1000).await;
            found = self.right.start(lock)?.await?;
        }
        Ok(Held::cleanly(lock.mode))
    }
}

/// Takes the exclusive lock in two steps.
async fn read_then_write<'m, M: RemoteMemory>(
    memory: &'m M,
    word: M::Word<'m>,
    owner: u64,
    mut found: u64,
) -> Result<Held, Fault> {
    while found != 0 {
        memory.pause(word, 1000).await;
        found = memory.read(word).await?;
    }
    memory.write(word, owner, Notify::No).await.map(|_| Held::cleanly(Mode::Exclusive))
}

/// Joins any word.
async fn join<'m, M: RemoteMemory>(memory: &'m M, word: M::Word<'m>, mut found: u64) -> Result<Held, Fault> {
    loop {
        match memory.compare_swap(word, found, found.wrapping_add(1)).await? {
            now if now == found => return Ok(Held::cleanly(Mode::Shared)),
            now => found = now,
        }
    }
}

/// Takes the lock from readers as soon as any rank is dead.
async fn take_from_readers<'m, M: RemoteMemory>(
    memory: &'m M,
    word: M::Word<'m>,
    owner: u64,
    mut found: u64,
) -> Result<Held, Fault> {
    loop {
        let alive = |owner: Owner| memory.liveness(owner.rank) == Liveness::Alive;
        let waits = found == 0 || found & EXCLUSIVE != 0 && alive(Owner::from_bits(found));
        let dead = memory.failure(0).filter(|_| !waits);
        let expected = if dead.is_some() { found } else { 0 };
        match memory.compare_swap(word, expected, owner).await? {
            now if now == expected => {
                let died = dead.filter(|_| found & EXCLUSIVE != 0).map(|rank| Fault::of(FaultKind::OwnerDied, rank));
                return Ok(Held { mode: Mode::Exclusive, recovered: died });
            }
            now => found = now,
        }
        memory.pause(word, 1000).await;
    }
}

impl LockAlgorithm for Wrong {
    const NAME: &'static str = "wrong";
    const HOME_WORDS: usize = TestAndSet::HOME_WORDS;
    const NODE_WORDS: usize = TestAndSet::NODE_WORDS;

    fn uses_node(&self, mode: Mode) -> bool {
        self.right.uses_node(mode)
    }

    fn words<'m, P: LockContext<'m>>(&self, context: P, intent: Intent) -> Result<Words<'m, P::Memory>, Fault> {
        self.right.words(context, intent)
    }

    fn start<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>) -> Result<Op<P>, Fault> {
        match (self.flaw, lock.mode) {
            (Flaw::ReadThenWrite, Mode::Exclusive) => Ok(lock.memory.read(lock.home)),
            _ => self.right.start(lock),
        }
    }

    fn holds(&self, owner: u64, mode: Mode, first: u64) -> bool {
        let only_read = self.flaw == Flaw::ReadThenWrite && mode == Mode::Exclusive;
        !only_read && self.right.holds(owner, mode, first)
    }

    async fn contend<'m, P: LockContext<'m>>(
        &'m self,
        lock: LockUse<'m, P>,
        first: Result<u64, Fault>,
        intent: IntentFn<'_>,
    ) -> Result<Held, Fault> {
        let LockUse { memory, home, owner, .. } = lock;
        let held = match (self.flaw, lock.mode) {
            // A try that waits would be another flaw.
            _ if intent().wanted == WaitPolicy::Try => self.right.contend(lock, first, intent).await,
            (Flaw::ReadThenWrite, Mode::Exclusive) => read_then_write(memory, home, owner, first?).await,
            (Flaw::ReaderIgnoresOwner, Mode::Shared) => join(memory, home, first?).await,
            (Flaw::WaitsForTheDead | Flaw::ReadsAnewToWait, _) => self.wait(lock, first?).await,
            (Flaw::TakesFromDeadReadersAtOnce, Mode::Exclusive) => take_from_readers(memory, home, owner, first?).await,
            (Flaw::RecoversUnasked, _) => {
                let recovering: IntentFn<'_> = &|| intent().recovering();
                self.right.contend(lock, first, recovering).await
            }
            _ => self.right.contend(lock, first, intent).await,
        }?;
        let itself = |died: Fault| Fault::of(died.kind(), Owner::from_bits(owner).rank);
        Ok(match self.flaw {
            Flaw::NamesItself => Held { recovered: held.recovered.map(itself), ..held },
            Flaw::TellsNobody => Held { recovered: None, ..held },
            _ => held,
        })
    }

    fn released<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>, found: Option<u64>) -> Result<Rest, Fault> {
        match found {
            None => self.right.released(lock, None),
            Some(_) => Ok(Rest::Unknown),
        }
    }

    fn start_release<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>) -> Result<Op<P>, Fault> {
        match (self.flaw, lock.mode) {
            (Flaw::ForgetsRelease, Mode::Exclusive) => Ok(lock.memory.read(lock.home)),
            (Flaw::WritesRelease, Mode::Exclusive) => Ok(lock.memory.write(lock.home, 0, Notify::No)),
            (Flaw::ReaderFreesAll, Mode::Shared) => Ok(lock.memory.write(lock.home, 0, Notify::No)),
            _ => self.right.start_release(lock),
        }
    }

    async fn finish_release<'m, P: LockContext<'m>>(
        &'m self,
        lock: LockUse<'m, P>,
        found: Result<u64, Fault>,
    ) -> Result<(), Fault> {
        match self.right.finish_release(lock, found).await {
            Err(fault) if fault.kind() != FaultKind::NotHeld => Err(fault),
            _ => Ok(()),
        }
    }

    async fn release_poisoned<'m, P: LockContext<'m>>(&'m self, lock: LockUse<'m, P>, why: Fault) -> Result<(), Fault> {
        match self.flaw {
            Flaw::ForgetsToPoison => self.start_release(lock)?.await.map(drop),
            _ => self.right.release_poisoned(lock, why).await,
        }
    }
}
