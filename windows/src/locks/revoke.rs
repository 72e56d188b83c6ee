//! Revoking an expired owner's access to the target whose lock it holds:
//! [`LeasePolicy::Revoke`](crate::LeasePolicy::Revoke).
//!
//! A waiter cannot do that itself: only the target's card controls access to the target's memory.
//! So the waiter writes the lock word of the expired owner, which is unique to that acquire, into
//! its own request word in the target's hidden region, with a notification. The target's helper
//! thread has the fabric [revoke](Fabric::revoke) the owner's access and, when no operation of the
//! owner can take effect any more, writes the same word into a reply word in the waiter's hidden
//! region. Only then does the waiter swap the lock's word for its own. No rank gets the lock in
//! between: the word still names the expired owner, so every other compare-and-swap fails.
//!
//! Two threads of a rank that request two revocations from one target overwrite each other's words;
//! a request without a reply is therefore repeated after a while, with a different word, because
//! the reply may have been lost. A target that is stopped replies when it continues, and until then
//! its lock is waited for.

use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::Poll;

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::{Fault, FaultKind, Notify, Patience};
use onesided_lock_algos::Owner;

use crate::window::inner::Inner;
use crate::window::retry::POLL_INTERVAL;
use crate::window::target::Target;

/// Marks a negative reply, and every other request about the same owner: a bit that no owner's word
/// has.
const FAILED: u64 = 1 << 62;
const _: () = assert!(Owner::BITS <= 62);
/// How long to wait for a reply before repeating the request, in nanoseconds.
const AGAIN: u64 = 250_000_000;

/// Starts to serve peers' revocation requests, until the window is closed or dropped.
pub(crate) fn serve<F: Fabric>(inner: &Arc<Inner<F>>) -> Result<(), Fault> {
    let (theirs, mut answered) = (Arc::downgrade(inner), vec![0; inner.world.size() as usize]);
    inner
        .fabric()
        .endpoint()
        .serve(
            Box::pin(async move {
                while let Some((asker, owner)) = next_request(&theirs, &mut answered).await {
                    let Some(inner) = open(&theirs) else { return };
                    // Only the requesting rank needs the result, and it may have left.
                    let _ = inner.answer(asker, owner).await;
                }
            }),
            None,
        )
        .map(drop)
}

fn open<F: Fabric>(inner: &Weak<Inner<F>>) -> Option<Arc<Inner<F>>> {
    inner.upgrade().filter(|inner| !inner.lifecycle.is_closed())
}

/// Waits for the next request: the requesting rank and the owner's word. `None` once the window has
/// ended.
async fn next_request<F: Fabric>(inner: &Weak<Inner<F>>, answered: &mut [u64]) -> Option<(u32, u64)> {
    poll_fn(|_| {
        let Some(inner) = open(inner) else { return Poll::Ready(None) };
        for (asker, answered) in (0..).zip(&mut *answered) {
            let word = inner.fabric().word_in(&inner.memory.hidden, inner.locks.layout.revoke_request(asker));
            match word.and_then(|word| inner.fabric().load(word)) {
                Ok(owner) if owner != *answered => {
                    *answered = owner;
                    return Poll::Ready(Some((asker, owner & !FAILED)));
                }
                _ => {}
            }
        }
        Poll::Pending
    })
    .await
}

impl<F: Fabric> Inner<F> {
    async fn answer(&self, asker: u32, owner: u64) -> Result<(), Fault> {
        let done = self.revoke_here(owner).await.map_or(owner | FAILED, |()| owner);
        let reply =
            self.fabric().word_in(&self.target(asker)?.locks, self.locks.layout.revoke_reply(self.world.rank()))?;
        drop(self.fabric().write(reply, done, Notify::Yes));
        Ok(())
    }

    /// Revokes an owner's access to this rank's memory.
    async fn revoke_here(&self, owner: u64) -> Result<(), Fault> {
        let (fabric, late) = (self.fabric(), Owner::from_bits(owner).rank);
        let fencing = fabric.fencing().ok_or(Fault::of(FaultKind::Unsupported, late))?;
        while !fencing.fence(late)? {
            fabric.pause(fabric.word_in(&self.memory.hidden, 0)?, POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Revokes an owner's access to a target's memory: `true` when no operation of the owner can
    /// take effect there any more, `false` if `wanted` turned false before.
    pub(crate) async fn revoke(
        &self,
        target: &Target<F>,
        owner: u64,
        wanted: impl Fn() -> bool,
    ) -> Result<bool, Fault> {
        let (fabric, rank) = (self.fabric(), target.fabric_rank());
        if rank == fabric.rank() {
            return self.revoke_here(owner).await.map(|()| true);
        }
        let request = fabric.word_in(&target.locks, self.locks.layout.revoke_request(self.world.rank()))?;
        let reply = fabric.word_in(&self.memory.hidden, self.locks.layout.revoke_reply(target.rank))?;
        let is_answer = move |word: u64| word & !FAILED == owner;
        if fabric.load(reply)? == owner | FAILED {
            fabric.write(reply, 0, Notify::No).await?; // of an earlier request
        }
        let mut again = 0;
        while wanted() {
            let found = fabric.load(reply)?;
            if is_answer(found) {
                return if found == owner { Ok(true) } else { Err(Fault::of(FaultKind::Refused, rank)) };
            }
            drop(fabric.write(request, owner ^ again, Notify::Yes));
            again ^= FAILED;
            let patience = Patience::on(rank).and_until(fabric.now().saturating_add(AGAIN));
            match fabric.wait_until(reply, is_answer, patience).await {
                Err(fault) if fault.kind() != FaultKind::TimedOut => return Err(fault),
                _ => {}
            }
        }
        Ok(false)
    }
}
