//! The ticket lock.

use crate::right::ticket;
use onesided_lock_algos::{
    Held, InMemory, Intent, LockAlgorithm, LockContext, LockUse, Mode, Owner, Owners, Ticket, Word,
};
use onesided_lock_kit::program::region_words;
use onesided_lock_kit::random::drive;
use onesided_lock_kit::{Layout, ModelMemory, Slots};
use onesided_remote_memory::{Fault, FaultKind, Rank};

#[test]
fn searched() {
    super::search(&ticket::<15>());
    super::search(&ticket::<2>());
    super::search(&ticket::<1>()); // fewer tickets than owners
}

#[test]
fn checked() {
    super::check(&ticket::<15>(), 2);
    super::check(&ticket::<2>(), 2);
}

/// A rank's owners of a lock of which only that of slot 0 is counted.
#[derive(Clone, Copy)]
struct CountedOwners<'m>(Layout<'m, ModelMemory>);

impl InMemory for CountedOwners<'_> {
    type Memory = ModelMemory;
}

impl<'m> LockContext<'m> for CountedOwners<'m> {
    fn home(&self, index: usize) -> Result<Word<'m, Self>, Fault> {
        self.0.home(index)
    }

    fn node_of(&self, rank: Rank, slot: u16, index: usize) -> Result<Word<'m, Self>, Fault> {
        self.0.node_of(rank, slot, index)
    }

    fn home_rank(&self) -> Rank {
        self.0.home_rank()
    }

    fn owners(&self) -> Owners {
        Owners { counted: 1, is_counted: self.owner().slot == 0, ..self.0.owners() }
    }

    fn lock(&self) -> u64 {
        self.0.lock()
    }

    fn owner(&self) -> Owner {
        self.0.owner()
    }
}

/// Three tickets, one of them reserved for the counted owner.
#[test]
fn an_uncounted_owner_leaves_room() {
    let slots = Slots::new(4);
    let memory = ModelMemory::new(1, region_words::<Ticket<2>>(slots));
    let lock = ticket::<2>();
    let context =
        |slot| CountedOwners(Layout::new::<Ticket<2>>(&memory, Owner { rank: Rank(0), slot, generation: 0 }, slots));
    let acquire = |slot, intent| {
        let (lock, memory, context) = (&lock, &memory, context(slot));
        async move {
            let words = lock.words(context, Intent::LOCK)?;
            let started = lock.start(LockUse::new(memory, context, words, Mode::Shared))?;
            lock.finish(LockUse::new(memory, context, words, Mode::Shared), started, move || intent).await
        }
    };
    let outcomes = async {
        let first = [acquire(1, Intent::LOCK).await, acquire(2, Intent::LOCK).await];
        let none_left = acquire(3, Intent::TRY).await;
        let counted = acquire(0, Intent::LOCK).await;
        for slot in [2, 1, 0] {
            let (context, mode) = (context(slot), Mode::Shared);
            let words = lock.words(context, Intent::LOCK).unwrap();
            let started = lock.start_release(LockUse::new(&memory, context, words, mode)).unwrap();
            lock.finish_release(LockUse::new(&memory, context, words, mode), started.await).await.unwrap();
        }
        (first, none_left, counted, acquire(3, Intent::TRY).await)
    };
    let held = Ok(Held::cleanly(Mode::Shared));
    let seen = drive(&memory, outcomes);
    assert_eq!(seen, ([held, held], Err(Fault::new(FaultKind::TimedOut)), held, held));
}
