//! A lock that is selected at run time.

use onesided_remote_memory::{Fault, Link, Rank, RemoteMemory};

use crate::global::LOCK_ALL_WORDS;
use crate::recovery::announces;
use crate::test_and_set::EXCLUSIVE;
use crate::{
    Backoff, DedicatedThread, DistributedCounters, EventThread, FetchAddQueue, Global, Held, IntentFn, LockAlgorithm,
    LockContext, LockUse, Mcs, Mode, Owner, TestAndSet, Ticket, TwoLevel, Words,
};

/// The table of designs: each with its variants of [`AnyLock`], and the variant with a lock of all
/// targets. What depends on the design is derived from it, so that no design is forgotten.
macro_rules! with_designs {
    ($then:ident $($more:tt)*) => {
        $then! {
            {
                TestAndSet [TestAndSet CheckedTestAndSet] GlobalTestAndSet,
                Mcs [Mcs] GlobalMcs,
                Ticket [Ticket] GlobalTicket,
                FetchAddQueue [FetchAddQueue] GlobalFetchAddQueue,
                DistributedCounters [DistributedCounters] GlobalDistributedCounters,
                TwoLevel [TwoLevel] GlobalTwoLevel,
                DedicatedThread [DedicatedThread] GlobalDedicatedThread,
                EventThread [EventThread] GlobalEventThread,
            }
            $($more)*
        }
    };
}

macro_rules! chosen_of {
    ({ $($design:ident [$($variant:ident)+] $global:ident,)+ } $chosen:expr, $lock:ident => $run:expr) => {
        match $chosen {
            $($(AnyLock::$variant($lock))|+ => $run, AnyLock::$global($lock) => $run,)+
        }
    };
}

/// Runs an expression with the lock that was chosen, of its own type.
macro_rules! chosen {
    ($chosen:expr, $lock:ident => $run:expr) => {
        with_designs! { chosen_of $chosen, $lock => $run }
    };
}

macro_rules! any_lock {
    ({ $($design:ident [$($variant:ident)+] $global:ident,)+ } $(#[$attribute:meta])*) => {
        $(#[$attribute])*
        pub enum AnyLock {
            $($(
                #[doc = concat!("See [`", stringify!($design), "`].")]
                $variant($design),
            )+)+
            $(
                #[doc = concat!("See [`Global`] and [`", stringify!($design), "`].")]
                $global(Global<$design>),
            )+
        }

        const HOMES: &[usize] = &[$(<$design>::HOME_WORDS),+];
        const NODES: &[usize] = &[$(<$design>::NODE_WORDS),+];

        impl AnyLock {
            /// The same lock at each target, and a lock of all targets that takes one operation;
            /// its waiters pause by this table. `None` for a checked lock: a waiter for all targets
            /// cannot tell whose lease has expired.
            #[must_use]
            pub const fn with_global(self, backoff: Backoff) -> Option<Self> {
                Some(match self {
                    Self::CheckedTestAndSet(_) => return None,
                    $(Self::$design(lock) => Self::$global(Global::new(lock, backoff)),)+
                    other => other,
                })
            }
        }
    };
}

with_designs! {
    any_lock
    /// One of the locks of this crate. The state that it keeps for a held lock has the same type
    /// for all of them, and fits in two registers.
    #[derive(Clone, Copy, Debug)]
    #[non_exhaustive]
}

impl Default for AnyLock {
    fn default() -> Self {
        Self::TestAndSet(TestAndSet::default())
    }
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

    /// The rank that had the lock exclusively, or the last place of its queue, by the word that the
    /// first operation of a failed acquire returned; where it tells.
    #[must_use]
    pub fn rank_found(&self, first: u64) -> Option<Rank> {
        match self {
            Self::TestAndSet(_) => self.owner_in(first).map(|owner| owner.rank),
            Self::Mcs(_) => Mcs::last_in(first),
            _ => None,
        }
    }

    /// The exclusive owner that the lock's first word at its home names, where it does.
    #[must_use]
    pub fn owner_in(&self, home: u64) -> Option<Owner> {
        let names = match self {
            Self::TestAndSet(_) => home & EXCLUSIVE != 0,
            Self::TwoLevel(_) => TwoLevel::names_owner(home),
            _ => false,
        };
        names.then(|| Owner::from_bits(home))
    }

    /// Whether the first words of a node say that its owner is announced for the lock with this
    /// [number](LockContext::lock).
    #[must_use]
    pub fn announces(&self, node: [u64; 2], lock: u64) -> bool {
        // That of a two-level lock is announced in its host's queue, too.
        let places = if matches!(self, Self::TwoLevel(_) | Self::GlobalTwoLevel(_)) { 2 } else { 1 };
        node.iter().take(places).any(|word| announces(*word, lock))
    }

    /// Apart, so that there is no jump by a table on the shortest way.
    #[inline(never)]
    fn another_holds(&self, owner: u64, mode: Mode, first: u64) -> bool {
        chosen!(self, lock => lock.holds(owner, mode, first))
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
    pub fn has_per_rank_word(&self) -> bool {
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

/// Whether an owner with these bits and in this mode releases by [`TestAndSet::release_word`]
/// alone. No other lock marks its owners so.
#[inline]
#[must_use]
pub const fn held_by_word(owner: u64, mode: Mode) -> bool {
    const MARK: u64 = EXCLUSIVE | (Owner::NO_SLOT as u64) << 26;
    matches!(mode, Mode::Exclusive) && owner & MARK == MARK
}

const fn largest(all: &[usize]) -> usize {
    let (mut largest, mut at) = (0, 0);
    while at < all.len() {
        if all[at] > largest {
            largest = all[at];
        }
        at += 1;
    }
    largest
}

impl LockAlgorithm for AnyLock {
    const NAME: &'static str = "chosen";
    const HOME_WORDS: usize = largest(HOMES) + LOCK_ALL_WORDS;
    const NODE_WORDS: usize = largest(NODES) + 1;
    const HOST_WORDS: usize = TwoLevel::HOST_WORDS;

    #[inline]
    fn uses_node(&self, mode: Mode) -> bool {
        chosen!(self, lock => lock.uses_node(mode))
    }

    #[inline]
    fn words<'m, M: RemoteMemory>(&self, context: impl LockContext<'m, M>) -> Result<Words<'m, M>, Fault> {
        chosen!(self, lock => lock.words(context))
    }

    #[inline]
    fn words_to_try<'m, M: RemoteMemory>(&self, context: impl LockContext<'m, M>) -> Result<Words<'m, M>, Fault> {
        chosen!(self, lock => lock.words_to_try(context))
    }

    #[inline]
    fn start<'m, M: RemoteMemory>(&self, used: LockUse<'m, M, impl LockContext<'m, M>>) -> Result<M::Op, Fault> {
        chosen!(self, lock => lock.start(used))
    }

    #[inline]
    fn holds(&self, owner: u64, mode: Mode, first: u64) -> bool {
        match self {
            Self::TestAndSet(lock) => lock.holds(owner, mode, first),
            Self::Mcs(lock) => lock.holds(owner, mode, first),
            other => other.another_holds(owner, mode, first),
        }
    }

    async fn contend<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        used: LockUse<'m, M, P>,
        first: Result<u64, Fault>,
        intent: IntentFn<'_>,
    ) -> Result<Held, Fault> {
        chosen!(self, lock => lock.contend(used, first, intent).await)
    }

    #[inline]
    fn releases_in_one_step(&self, mode: Mode) -> bool {
        chosen!(self, lock => lock.releases_in_one_step(mode))
    }

    #[inline]
    fn start_release<'m, M: RemoteMemory>(
        &self,
        used: LockUse<'m, M, impl LockContext<'m, M>>,
    ) -> Result<M::Op, Fault> {
        chosen!(self, lock => lock.start_release(used))
    }

    fn release_link<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        words: Words<'m, M>,
        mode: Mode,
    ) -> Option<Link<M::Word<'m>>> {
        chosen!(self, lock => lock.release_link(memory, words, mode))
    }

    #[inline]
    fn released<'m, M: RemoteMemory>(
        &self,
        used: LockUse<'m, M, impl LockContext<'m, M>>,
        found: u64,
    ) -> Result<bool, Fault> {
        chosen!(self, lock => lock.released(used, found))
    }

    async fn finish_release<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        used: LockUse<'m, M, P>,
        found: Result<u64, Fault>,
    ) -> Result<(), Fault> {
        chosen!(self, lock => lock.finish_release(used, found).await)
    }

    fn release_waits<'m, M: RemoteMemory>(&self, used: LockUse<'m, M, impl LockContext<'m, M>>) -> Option<bool> {
        chosen!(self, lock => lock.release_waits(used))
    }

    async fn release_poisoned<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        used: LockUse<'m, M, P>,
        why: Fault,
    ) -> Result<(), Fault> {
        chosen!(self, lock => lock.release_poisoned(used, why).await)
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
