//! An owner's use of a lock in the kit's memory, operation by operation.

use std::pin::Pin;

use onesided_lock_algos::{Held, Intent, LockAlgorithm, LockUse, Mode, Owner};
use onesided_lock_kit::{Layout, ModelMemory, Slots};
use onesided_remote_memory::{Fault, Rank};

pub(crate) type Acquire<'a> = Pin<Box<dyn Future<Output = Result<Held, Fault>> + 'a>>;
pub(crate) type Release<'a> = Pin<Box<dyn Future<Output = Result<(), Fault>> + 'a>>;

/// A rank's owner, with a slot.
pub(crate) const fn slotted(rank: u32) -> Owner {
    Owner { rank: Rank(rank), slot: 0, generation: 0 }
}

#[derive(Clone, Copy)]
pub(crate) struct User<'a, A> {
    pub(crate) lock: &'a A,
    pub(crate) memory: &'a ModelMemory,
    pub(crate) owner: Owner,
    pub(crate) slots: Slots,
}

impl<'a, A: LockAlgorithm> User<'a, A> {
    fn context(&self) -> Layout<'a, ModelMemory> {
        Layout::new::<A>(self.memory, self.owner, self.slots)
    }

    pub(crate) fn asks(self, mode: Mode, intent: Intent) -> Acquire<'a> {
        self.asks_as(mode, intent, move || intent)
    }

    /// With an intent that changes.
    pub(crate) fn asks_as(
        self,
        mode: Mode,
        first: Intent,
        then: impl Fn() -> Intent + Send + Sync + 'a,
    ) -> Acquire<'a> {
        let (lock, context) = (self.lock, self.context());
        Box::pin(async move {
            let used = LockUse::new(self.memory, context, lock.words(context, first)?, mode);
            lock.finish(used, lock.start(used)?, then).await
        })
    }

    pub(crate) fn releases(self, mode: Mode) -> Release<'a> {
        let (lock, context) = (self.lock, self.context());
        Box::pin(async move {
            let used = LockUse::new(self.memory, context, lock.words(context, Intent::LOCK)?, mode);
            lock.finish_release(used, lock.start_release(used)?.await).await
        })
    }

    #[allow(dead_code)] // by those of `quick` alone
    pub(crate) fn releases_poisoned(self, why: Fault) -> Release<'a> {
        let (lock, context) = (self.lock, self.context());
        Box::pin(async move {
            let used = LockUse::new(self.memory, context, lock.words(context, Intent::LOCK)?, Mode::Exclusive);
            lock.release_poisoned(used, why).await
        })
    }
}
