//! A lock that is selected at run time.

use onesided_remote_memory::{Fault, Link, RemoteMemory};

use crate::test_and_set::EXCLUSIVE;
use crate::{
    Backoff, DedicatedThread, DistributedCounters, EventThread, FetchAddQueue, Global, Held, IntentFn, LockAlgorithm,
    LockContext, Mcs, Mode, Owner, TestAndSet, Ticket, TwoLevel,
};

macro_rules! chosen {
    ($chosen:expr, $lock:ident => $run:expr) => {
        match $chosen {
            AnyLock::TestAndSet($lock) | AnyLock::CheckedTestAndSet($lock) => $run,
            AnyLock::Mcs($lock) => $run,
            AnyLock::Ticket($lock) => $run,
            AnyLock::FetchAddQueue($lock) => $run,
            AnyLock::DistributedCounters($lock) => $run,
            AnyLock::TwoLevel($lock) => $run,
            AnyLock::DedicatedThread($lock) => $run,
            AnyLock::EventThread($lock) => $run,
            AnyLock::GlobalTestAndSet($lock) => $run,
            AnyLock::GlobalMcs($lock) => $run,
            AnyLock::GlobalTicket($lock) => $run,
            AnyLock::GlobalFetchAddQueue($lock) => $run,
            AnyLock::GlobalDistributedCounters($lock) => $run,
            AnyLock::GlobalTwoLevel($lock) => $run,
            AnyLock::GlobalDedicatedThread($lock) => $run,
            AnyLock::GlobalEventThread($lock) => $run,
        }
    };
}

/// One of the locks of this crate. The state that it keeps for a held lock has the same type for
/// all of them, and fits in two registers.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum AnyLock {
    /// See [`TestAndSet`].
    TestAndSet(TestAndSet),
    /// See [`TestAndSet::checked`].
    CheckedTestAndSet(TestAndSet),
    /// See [`Mcs`].
    Mcs(Mcs),
    /// See [`Ticket`].
    Ticket(Ticket),
    /// See [`FetchAddQueue`].
    FetchAddQueue(FetchAddQueue),
    /// See [`DistributedCounters`].
    DistributedCounters(DistributedCounters),
    /// See [`TwoLevel`].
    TwoLevel(TwoLevel),
    /// See [`DedicatedThread`].
    DedicatedThread(DedicatedThread),
    /// See [`EventThread`].
    EventThread(EventThread),
    /// See [`Global`].
    GlobalTestAndSet(Global<TestAndSet>),
    /// See [`Global`].
    GlobalMcs(Global<Mcs>),
    /// See [`Global`].
    GlobalTicket(Global<Ticket>),
    /// See [`Global`].
    GlobalFetchAddQueue(Global<FetchAddQueue>),
    /// See [`Global`].
    GlobalDistributedCounters(Global<DistributedCounters>),
    /// See [`Global`].
    GlobalTwoLevel(Global<TwoLevel>),
    /// See [`Global`].
    GlobalDedicatedThread(Global<DedicatedThread>),
    /// See [`Global`].
    GlobalEventThread(Global<EventThread>),
}

impl AnyLock {
    /// The lock, if an owner in this mode needs its word alone: no node, and no second step to
    /// release it. Checked first, so that the fast path has one branch.
    #[inline]
    #[must_use]
    pub const fn only_word(&self, mode: Mode) -> Option<&TestAndSet> {
        match (self, mode) {
            (Self::TestAndSet(lock), Mode::Exclusive) => Some(lock),
            _ => None,
        }
    }

    /// The same lock at each target, with a lock-all operation ([`Global`]); lock-all waiters pause
    /// by this table. `None` for a checked lock, whose leases may expire: the lock-all word does
    /// not name the owners that a waiter waits for.
    #[must_use]
    pub const fn with_global(self, backoff: Backoff) -> Option<Self> {
        Some(match self {
            Self::CheckedTestAndSet(_) => return None,
            Self::TestAndSet(lock) => Self::GlobalTestAndSet(Global::new(lock, backoff)),
            Self::Mcs(lock) => Self::GlobalMcs(Global::new(lock, backoff)),
            Self::Ticket(lock) => Self::GlobalTicket(Global::new(lock, backoff)),
            Self::FetchAddQueue(lock) => Self::GlobalFetchAddQueue(Global::new(lock, backoff)),
            Self::DistributedCounters(lock) => Self::GlobalDistributedCounters(Global::new(lock, backoff)),
            Self::TwoLevel(lock) => Self::GlobalTwoLevel(Global::new(lock, backoff)),
            Self::DedicatedThread(lock) => Self::GlobalDedicatedThread(Global::new(lock, backoff)),
            Self::EventThread(lock) => Self::GlobalEventThread(Global::new(lock, backoff)),
            other => other,
        })
    }

    /// Out of line, so that the fast path has no jump table.
    #[inline(never)]
    fn another_holds<M: RemoteMemory>(&self, words: (M::Word<'_>, u64), mode: Mode, first: u64) -> bool {
        chosen!(self, lock => lock.holds::<M>(words, mode, first))
    }

    /// The number of words of the lock at its home.
    #[must_use]
    pub fn home_words(&self) -> usize {
        const fn of<A: LockAlgorithm>(_: &A) -> usize {
            A::HOME_WORDS
        }
        chosen!(self, lock => of(lock))
    }

    /// Whether the home has to [serve](LockAlgorithm::serve) the lock.
    #[must_use]
    pub fn is_served(&self) -> bool {
        const fn of<A: LockAlgorithm>(_: &A) -> bool {
            A::SERVED
        }
        chosen!(self, lock => of(lock))
    }

    /// Whether only its own rank writes to an owner's node: other ranks read there whether the
    /// owner is announced. The node is then free once its owner has ended, in whatever way.
    #[must_use]
    pub const fn nodes_are_own(&self) -> bool {
        matches!(
            self,
            Self::TestAndSet(_)
                | Self::CheckedTestAndSet(_)
                | Self::Ticket(_)
                | Self::DistributedCounters(_)
                | Self::GlobalTestAndSet(_)
                | Self::GlobalTicket(_)
                | Self::GlobalDistributedCounters(_)
        )
    }

    /// Whether the lock also has a word at every rank.
    #[must_use]
    pub fn is_spread(&self) -> bool {
        const fn of<A: LockAlgorithm>(_: &A) -> bool {
            A::PER_RANK_WORD
        }
        chosen!(self, lock => of(lock))
    }

    /// The number of words of the lock on each host.
    #[must_use]
    pub fn host_words(&self) -> usize {
        const fn of<A: LockAlgorithm>(_: &A) -> usize {
            A::HOST_WORDS
        }
        chosen!(self, lock => of(lock))
    }
}

const HOMES: [usize; 8] = [
    TwoLevel::HOME_WORDS,
    <DistributedCounters>::HOME_WORDS,
    <FetchAddQueue>::HOME_WORDS,
    TestAndSet::HOME_WORDS,
    Mcs::HOME_WORDS,
    <Ticket>::HOME_WORDS,
    DedicatedThread::HOME_WORDS,
    EventThread::HOME_WORDS,
];
const NODES: [usize; 8] = [
    TwoLevel::NODE_WORDS,
    <DistributedCounters>::NODE_WORDS,
    <FetchAddQueue>::NODE_WORDS,
    TestAndSet::NODE_WORDS,
    Mcs::NODE_WORDS,
    <Ticket>::NODE_WORDS,
    DedicatedThread::NODE_WORDS,
    EventThread::NODE_WORDS,
];

/// Whether an owner with these bits and in this mode releases by [`TestAndSet::release_word`]
/// alone. No other lock marks its owners so.
#[inline]
#[must_use]
pub const fn held_by_word(owner: u64, mode: Mode) -> bool {
    const MARK: u64 = EXCLUSIVE | (Owner::NO_SLOT as u64) << 26;
    matches!(mode, Mode::Exclusive) && owner & MARK == MARK
}

const fn largest<const N: usize>(all: [usize; N]) -> usize {
    let (mut largest, mut at) = (0, 0);
    while at < N {
        if all[at] > largest {
            largest = all[at];
        }
        at += 1;
    }
    largest
}

impl LockAlgorithm for AnyLock {
    const NAME: &'static str = "chosen";
    const HOME_WORDS: usize = largest(HOMES) + 1; // and the lock-all word
    const NODE_WORDS: usize = largest(NODES) + 1;
    const HOST_WORDS: usize = TwoLevel::HOST_WORDS;

    /// The first word at the home, and the owner's bits. The two bits above those belong to the
    /// algorithm: kept words may be rebuilt from the same word and bits.
    type Words<'m, M: RemoteMemory> = (M::Word<'m>, u64);

    #[inline]
    fn uses_node(&self, mode: Mode) -> bool {
        chosen!(self, lock => lock.uses_node(mode))
    }

    #[inline]
    fn words<'m, M: RemoteMemory>(&self, context: impl LockContext<'m, M>) -> Result<Self::Words<'m, M>, Fault> {
        chosen!(self, lock => lock.words(context))
    }

    #[inline]
    fn words_to_try<'m, M: RemoteMemory>(&self, context: impl LockContext<'m, M>) -> Result<Self::Words<'m, M>, Fault> {
        chosen!(self, lock => lock.words_to_try(context))
    }

    #[inline]
    fn start<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        context: impl LockContext<'m, M>,
        words: Self::Words<'m, M>,
        mode: Mode,
    ) -> Result<M::Op, Fault> {
        chosen!(self, lock => lock.start(memory, context, words, mode))
    }

    #[inline]
    fn holds<M: RemoteMemory>(&self, words: Self::Words<'_, M>, mode: Mode, first: u64) -> bool {
        match self {
            Self::TestAndSet(lock) => lock.holds::<M>(words, mode, first),
            Self::Mcs(lock) => lock.holds::<M>(words, mode, first),
            other => other.another_holds::<M>(words, mode, first),
        }
    }

    async fn contend<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        context: P,
        words: Self::Words<'m, M>,
        mode: Mode,
        first: Result<u64, Fault>,
        intent: IntentFn<'_>,
    ) -> Result<Held, Fault> {
        chosen!(self, lock => lock.contend(memory, context, words, mode, first, intent).await)
    }

    #[inline]
    fn releases_in_one_step<'m, M: RemoteMemory>(&self, context: impl LockContext<'m, M>, mode: Mode) -> bool {
        chosen!(self, lock => lock.releases_in_one_step(context, mode))
    }

    #[inline]
    fn start_release<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        context: impl LockContext<'m, M>,
        words: Self::Words<'m, M>,
        mode: Mode,
    ) -> Result<M::Op, Fault> {
        chosen!(self, lock => lock.start_release(memory, context, words, mode))
    }

    fn release_link<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        words: Self::Words<'m, M>,
        mode: Mode,
    ) -> Option<Link<M::Word<'m>>> {
        chosen!(self, lock => lock.release_link(memory, words, mode))
    }

    #[inline]
    fn released<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        context: impl LockContext<'m, M>,
        words: Self::Words<'m, M>,
        mode: Mode,
        found: u64,
    ) -> Result<bool, Fault> {
        chosen!(self, lock => lock.released(memory, context, words, mode, found))
    }

    async fn finish_release<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        context: P,
        words: Self::Words<'m, M>,
        mode: Mode,
        started: impl Future<Output = Result<u64, Fault>> + Send + 'm,
    ) -> Result<(), Fault> {
        // One type, so that the rest is compiled once for each lock.
        let found = std::future::ready(started.await);
        chosen!(self, lock => lock.finish_release(memory, context, words, mode, found).await)
    }

    fn release_waits<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        context: impl LockContext<'m, M>,
        mode: Mode,
    ) -> Option<bool> {
        chosen!(self, lock => lock.release_waits(memory, context, mode))
    }

    async fn release_poisoned<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        context: P,
        words: Self::Words<'m, M>,
        held: Held,
    ) -> Result<(), Fault> {
        chosen!(self, lock => lock.release_poisoned(memory, context, words, held).await)
    }

    async fn serve<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        context: P,
        is_open: impl Fn() -> bool + Send + Sync + 'm,
    ) -> Result<(), Fault> {
        chosen!(self, lock => lock.serve(memory, context, is_open).await)
    }

    async fn wake_server<'m, M: RemoteMemory>(
        &self,
        memory: &'m M,
        context: impl LockContext<'m, M>,
    ) -> Result<(), Fault> {
        chosen!(self, lock => lock.wake_server(memory, context).await)
    }
}
