//! Test-and-set.

use remote_memory::{Fault, FaultKind, Link, Liveness, Notify, RemoteMemory};

use crate::{Backoff, LockAlgorithm, Mode, Owner, Place};

/// The lock of jiang-2004, section 5.1: compare-swap until the word was free, with exponential backoff. The shared mode
/// is ours.
///
/// One word: 0 is free; with bit 63 set, its other bits but one name the exclusive [`Owner`]; else it counts readers.
/// Uncontended, an acquire is one compare-swap and a release one write (shared: one fetch-add) that nobody waits for.
/// It is not fair: the next owner is whoever tries first after the release.
///
/// The release of the exclusive mode is the paper's plain write where that is atomic against compare-swaps: while the word
/// names an owner, every compare-swap on it fails, a reader's as well, so there is nothing to lose. Where it is not
/// ([`RemoteMemory::write_is_atomic`]: on cards), a failing compare-swap may undo it, and the release is a fetch-add that
/// takes the owner out. A lock that is taken from dead owners would need a compare-swap there.
#[derive(Clone, Copy, Debug, Default)]
pub struct TestAndSet {
    backoff: Backoff,
}

const FREE: u64 = 0;
const EXCLUSIVE: u64 = 1 << 63;

/// How often a reader that only lost against other readers tries again at once.
const READER_RACES: u32 = 8;

/// For how long a waiter believes that readers will release, in nanoseconds from when it saw that some rank had died.
const READERS_PATIENCE: u64 = 1_000_000_000;

// Every reader is an owner, so the count cannot reach the bit above them.
const _: () = assert!(Owner::BITS < 63);

impl TestAndSet {
    /// A lock whose waiters pause by this table.
    #[must_use]
    pub const fn new(backoff: Backoff) -> Self {
        Self { backoff }
    }
}

/// The word after `owner` took it.
#[inline]
const fn taken(word: u64, mode: Mode, owner: u64) -> u64 {
    match mode {
        Mode::Exclusive => owner,
        Mode::Shared => word + 1,
    }
}

/// The one operation of a release.
#[inline]
fn release<'m, M: RemoteMemory>(memory: &M, (word, owner): (M::Word<'m>, u64), mode: Mode) -> Link<M::Word<'m>> {
    let waited = false;
    match mode {
        Mode::Exclusive if memory.write_is_atomic() => Link::Write { word, value: FREE, notify: Notify::No, waited },
        Mode::Exclusive => Link::FetchAdd { word, add: owner.wrapping_neg(), waited },
        Mode::Shared => Link::FetchAdd { word, add: 1_u64.wrapping_neg(), waited },
    }
}

/// Why those who hold `word` will not release it, if that is known. `doubted` is since when readers were doubted.
fn lost_holder<M: RemoteMemory>(memory: &M, word: u64, doubted: &mut Option<u64>) -> Option<Fault> {
    if word & EXCLUSIVE != 0 {
        *doubted = None;
        let rank = Owner::from_bits(word).rank;
        return (memory.liveness(rank) != Liveness::Alive).then(|| Fault::of(FaultKind::OwnerDied, rank));
    }
    let dead = memory.casualty()?; // a count names nobody: it may be among them or not
    let now = memory.now();
    let since = *doubted.get_or_insert(now);
    (now.saturating_sub(since) >= READERS_PATIENCE).then(|| Fault::of(FaultKind::MemberDied, dead))
}

impl LockAlgorithm for TestAndSet {
    const NAME: &'static str = "test-and-set";
    const HOME_WORDS: usize = 1;
    const NODE_WORDS: usize = 0;
    const ONE_STEP_RELEASE: bool = true;

    /// The word, and what it becomes when this owner has it alone.
    type Words<'m, M: RemoteMemory> = (M::Word<'m>, u64);

    #[inline]
    fn words<'m, M: RemoteMemory>(&self, place: &impl Place<'m, M>) -> Result<Self::Words<'m, M>, Fault> {
        Ok((place.home(0)?, EXCLUSIVE | place.owner().to_bits()))
    }

    #[inline]
    fn start<M: RemoteMemory>(&self, memory: &M, (word, owner): Self::Words<'_, M>, mode: Mode) -> M::Op {
        memory.compare_swap(word, FREE, taken(FREE, mode, owner))
    }

    #[inline]
    fn holds<M: RemoteMemory>(&self, _words: Self::Words<'_, M>, _mode: Mode, first: u64) -> bool {
        first == FREE
    }

    async fn contend<'m, M: RemoteMemory>(
        &'m self,
        memory: &'m M,
        (word, owner): Self::Words<'m, M>,
        mode: Mode,
        first: u64,
        wanted: impl Fn() -> bool + Send + 'm,
    ) -> Result<(), Fault> {
        let mut found = first;
        let mut pauses = self.backoff.pauses(Owner::from_bits(owner));
        let mut races = 0;
        let mut doubted = None;
        loop {
            // Asked before the next attempt, which sees all that a holder did before it was gone.
            let lost = lost_holder(memory, found, &mut doubted);
            let joins_readers = mode == Mode::Shared && found & EXCLUSIVE == 0;
            if joins_readers && races < READER_RACES {
                races += 1;
            } else {
                races = 0;
                memory.pause(word, pauses.next_nanos()).await;
            }
            if !wanted() {
                return Err(Fault::new(FaultKind::Closed)); // between two attempts it holds nothing
            }
            let expected = if joins_readers { found } else { FREE };
            let now = memory.compare_swap(word, expected, taken(expected, mode, owner)).await?;
            match lost {
                _ if now == expected => return Ok(()),
                Some(fault) if now == found => return Err(fault),
                _ => found = now,
            }
        }
    }

    #[inline]
    fn start_release<M: RemoteMemory>(&self, memory: &M, words: Self::Words<'_, M>, mode: Mode) -> M::Op {
        memory.post_link(release(memory, words, mode))
    }

    fn release_link<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        words: Self::Words<'m, M>,
        mode: Mode,
    ) -> Option<Link<M::Word<'m>>> {
        Some(release(memory, words, mode))
    }

    #[inline]
    async fn finish_release<'m, M: RemoteMemory>(
        &'m self,
        _memory: &'m M,
        _words: Self::Words<'m, M>,
        mode: Mode,
        started: M::Op,
    ) -> Result<(), Fault> {
        let found = started.await?;
        let held = mode == Mode::Exclusive || (found != FREE && found & EXCLUSIVE == 0);
        if held { Ok(()) } else { Err(Fault::new(FaultKind::NotHeld)) }
    }
}
