//! A lock that is chosen when the program runs.

use remote_memory::{Fault, Link, RemoteMemory};

use crate::test_and_set::EXCLUSIVE;
use crate::{FetchAddQueue, Held, LockAlgorithm, Mcs, Mode, Owner, Place, TestAndSet, Ticket, Wish};

macro_rules! chosen {
    ($chosen:expr, $lock:ident => $run:expr) => {
        match $chosen {
            Chosen::TestAndSet($lock) | Chosen::CheckedTestAndSet($lock) => $run,
            Chosen::Mcs($lock) => $run,
            Chosen::Ticket($lock) => $run,
            Chosen::FetchAddQueue($lock) => $run,
        }
    };
}

/// One of the locks of this crate. What it keeps of a held lock is the same for all of them, two registers.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Chosen {
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
}

impl Chosen {
    /// The lock, if an owner in this mode needs its word alone: no node, and no second step to release it. Asked first, so
    /// that the shortest way has one branch.
    #[inline]
    #[must_use]
    pub const fn only_word(&self, mode: Mode) -> Option<&TestAndSet> {
        match (self, mode) {
            (Self::TestAndSet(lock), Mode::Exclusive) => Some(lock),
            _ => None,
        }
    }

    /// How many words the lock has at its home.
    #[must_use]
    pub fn home_words(&self) -> usize {
        const fn of<A: LockAlgorithm>(_: &A) -> usize {
            A::HOME_WORDS
        }
        chosen!(self, lock => of(lock))
    }

    /// Whether the lock has a word at every rank as well.
    #[must_use]
    pub fn is_spread(&self) -> bool {
        const fn of<A: LockAlgorithm>(_: &A) -> bool {
            A::SPREAD
        }
        chosen!(self, lock => of(lock))
    }
}

/// Whether an owner, of whom no more is known than these bits and its mode, needs to do no more than
/// [`TestAndSet::release_word`] to release. No other lock marks its owners so.
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

impl LockAlgorithm for Chosen {
    const NAME: &'static str = "chosen";
    const HOME_WORDS: usize =
        largest([TestAndSet::HOME_WORDS, Mcs::HOME_WORDS, <Ticket>::HOME_WORDS, <FetchAddQueue>::HOME_WORDS]);
    const NODE_WORDS: usize =
        largest([TestAndSet::NODE_WORDS, Mcs::NODE_WORDS, <Ticket>::NODE_WORDS, <FetchAddQueue>::NODE_WORDS]);

    /// The home's first word, and the owner's bits. The two bits above those are the algorithm's: words that are kept may be
    /// made again of the same word and bits.
    type Words<'m, M: RemoteMemory> = (M::Word<'m>, u64);

    #[inline]
    fn uses_node(&self, mode: Mode) -> bool {
        chosen!(self, lock => lock.uses_node(mode))
    }

    #[inline]
    fn words<'m, M: RemoteMemory>(&self, place: impl Place<'m, M>) -> Result<Self::Words<'m, M>, Fault> {
        chosen!(self, lock => lock.words(place))
    }

    #[inline]
    fn words_to_try<'m, M: RemoteMemory>(&self, place: impl Place<'m, M>) -> Result<Self::Words<'m, M>, Fault> {
        chosen!(self, lock => lock.words_to_try(place))
    }

    #[inline]
    fn start<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        place: impl Place<'m, M>,
        words: Self::Words<'m, M>,
        mode: Mode,
    ) -> Result<M::Op, Fault> {
        chosen!(self, lock => lock.start(memory, place, words, mode))
    }

    #[inline]
    fn holds<M: RemoteMemory>(&self, words: Self::Words<'_, M>, mode: Mode, first: u64) -> bool {
        chosen!(self, lock => lock.holds::<M>(words, mode, first))
    }

    async fn contend<'m, M: RemoteMemory, P: Place<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        place: P,
        words: Self::Words<'m, M>,
        mode: Mode,
        first: u64,
        wish: impl Fn() -> Wish + Send + Sync + 'm,
    ) -> Result<Held, Fault> {
        chosen!(self, lock => lock.contend(memory, place, words, mode, first, wish).await)
    }

    #[inline]
    fn releases_in_one_step<'m, M: RemoteMemory>(&self, place: impl Place<'m, M>, mode: Mode) -> bool {
        chosen!(self, lock => lock.releases_in_one_step(place, mode))
    }

    #[inline]
    fn start_release<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        place: impl Place<'m, M>,
        words: Self::Words<'m, M>,
        mode: Mode,
    ) -> Result<M::Op, Fault> {
        chosen!(self, lock => lock.start_release(memory, place, words, mode))
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
        place: impl Place<'m, M>,
        words: Self::Words<'m, M>,
        mode: Mode,
        found: u64,
    ) -> Result<bool, Fault> {
        chosen!(self, lock => lock.released(memory, place, words, mode, found))
    }

    async fn finish_release<'m, M: RemoteMemory, P: Place<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        place: P,
        words: Self::Words<'m, M>,
        mode: Mode,
        started: impl Future<Output = Result<u64, Fault>> + Send + 'm,
    ) -> Result<(), Fault> {
        chosen!(self, lock => lock.finish_release(memory, place, words, mode, started).await)
    }
}
