//! Access to a target under a `lock_all`.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Poll, ready};
use std::time::Duration;

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Fabric, Limit};

use crate::operation::request::Awaited;
use crate::passive::lock_all::OPERATION;
use crate::passive::lock_all::reader::read_lock;
use crate::{Access, Element, LockAll, Request};

/// How often a waiter checks whether another task has locked the target.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

impl<'w, T: Element, F: Fabric> LockAll<'w, T, F> {
    /// For a target that is not locked yet.
    #[cold]
    #[inline(never)]
    pub(crate) fn lock_target(&self, target: u32) -> Request<'_, &Access<'w, T, F>, F> {
        let inner = self.window.inner();
        let failed = |fault| inner.failed("at", target, fault);
        let request = match self.locked_ranks.resolve(target) {
            Some(Ok(access)) => return Request::ready(Awaited::Lock(inner, target), OPERATION, access),
            Some(Err(fault)) => Err(failed(fault)),
            None if target >= inner.world.size() => Err(failed(Fault::new(FaultKind::NoSuchRank))),
            None => Ok(read_lock(self.window.lock_shared(target), None)),
        };
        Request::new(Awaited::Lock(inner, target), OPERATION, async move {
            let (mut lock, mut interval) = (pin!(request?), Limit::NONE);
            interval.said = Some(POLL_INTERVAL);
            let held = poll_fn(|cx| {
                loop {
                    // Of two requests, the later may queue behind a writer that waits for the lock
                    // of the earlier.
                    if let Some(access) = self.locked_ranks.at(target) {
                        return Poll::Ready(Ok(access));
                    }
                    if let Poll::Ready(held) = lock.as_mut().poll(cx) {
                        return Poll::Ready(held.map(|epoch| self.locked_ranks.insert(epoch)));
                    }
                    ready!(interval.poll(cx, inner.fabric()));
                    interval.said = Some(POLL_INTERVAL);
                }
            });
            held.await.map_err(|error| error.of_call(OPERATION))
        })
    }
}
