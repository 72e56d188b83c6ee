//! The recovery of a queue: it is given up, and all owners in it leave.

use onesided_remote_memory::{Fault, Rank, RemoteMemory};

use super::Queue;
use super::home::{Home, Why};
use super::node::clean;
use crate::recovery::{Boxed, POLL_INTERVAL, RecoverableWord, nonce, retract};
use crate::{LockContext, LockUse, Owner};

impl RecoverableWord for Home {
    const NODE_IS_SHARED: bool = true;

    fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    fn to_bits(self) -> u64 {
        self.0
    }

    fn is_recovering(self) -> bool {
        self.is(Self::RECOVERING)
    }

    fn recovering(self, nonce: u64) -> Self {
        Self::recovering(self, Why::Readers, nonce)
    }

    fn may_be_poisoned(self) -> bool {
        self.is(Self::LOST) || self.is_given_up()
    }

    fn explained(self) -> Option<u64> {
        if self.is_given_up() { Some(self.readers()) } else { None }
    }

    fn suspected(self) -> Option<Rank> {
        self.lost()
    }

    fn reset_node<'m, P: LockContext<'m>>(memory: &P::Memory, context: P) -> Result<(), Fault> {
        clean(memory, context)
    }
}

impl<'m, P: LockContext<'m>> Queue<'m, P> {
    pub(super) fn has_ended(&self, rank: Rank) -> bool {
        self.0.participants().has_ended(rank)
    }

    /// Puts the word under recovery, which rejects arrivals. Returns the new word.
    pub(super) fn start_recovery(&self, mut found: Home, why: Why) -> Boxed<'_, Result<Home, Fault>> {
        Box::pin(async move {
            while !found.is(Home::RECOVERING) {
                found = self.start_recovery_if(found, why).await?;
            }
            Ok(found)
        })
    }

    /// The same only if the word is still `found`. Returns the current word.
    pub(super) fn start_recovery_if(&self, found: Home, why: Why) -> Boxed<'_, Result<Home, Fault>> {
        Box::pin(self.0.change(found, found.recovering(why, nonce(self.0.memory, self.0.me()))))
    }

    /// Gives the queue up, as if this owner, which is its head, had died there.
    pub(super) async fn give_up_queue(&self) -> Result<(), Fault> {
        let mut found = self.0.look::<Home>().await?;
        // Another recovery may have begun for readers alone.
        while !found.is(Home::LOST) {
            found = self.start_recovery_if(found, Why::Lost(self.0.me().rank)).await?;
        }
        self.all_left(found, true).await
    }

    /// Waits until all owners have left that waited when the word was put under recovery, and none
    /// has yet to link itself. An owner that ends is retracted meanwhile: others may wait for it in
    /// the same way.
    pub(super) fn all_left(&self, recovering: Home, ends: bool) -> Boxed<'_, Result<(), Fault>> {
        let LockUse { memory, context, .. } = self.0;
        Box::pin(async move {
            if ends {
                retract(memory, context)?;
            }
            while !self.0.participants().none_announced().await? {
                memory.pause(self.0.home, POLL_INTERVAL).await;
                if ends && !self.0.look::<Home>().await?.is_same_recovery(recovering) {
                    break; // the owner that took it has scanned the participants
                }
            }
            Ok(())
        })
    }

    /// The grant to the successor could not be delivered. If it died, its own successor handles
    /// that; otherwise all waiters leave and start over.
    pub(super) fn not_handed(&self, next: Owner) -> Boxed<'_, Result<(), Fault>> {
        Box::pin(async move {
            if !self.has_ended(next.rank) {
                let mut home = self.0.look::<Home>().await?;
                while home.is(Home::QUEUED) {
                    home = self.start_recovery_if(home, Why::Lost(next.rank)).await?;
                }
            }
            Ok(())
        })
    }

    /// Whether the tail is dead: then a try has to put the word under recovery.
    pub(super) fn ends_dead(&self, found: Home) -> bool {
        found.is(Home::QUEUED) && self.has_ended(found.rank())
    }
}
