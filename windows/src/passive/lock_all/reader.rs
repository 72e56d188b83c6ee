//! A target's shared lock for a `lock_all`.

use std::task::{Context, Poll, ready};

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::FaultKind;
use onesided_lock_algos::Mode;

use crate::handles::{LockRequest, Unlock};
use crate::passive::previous_owner::Holding;
use crate::{Element, Epoch, Error};

/// A shared lock request. A reader that finds an expired lease gets the lock exclusively and with a
/// lease of its own, so it releases it immediately and requests it again. Commits of the expired
/// owner fail all the same.
pub(crate) struct Reader<'w, T: Element, F: Fabric> {
    request: LockRequest<'w, T, F>,
    /// The release of a lock that was taken over.
    unlock: Option<Unlock<'w, T, F>>,
    recovered: Option<Holding>,
}

impl<'w, T: Element, F: Fabric> Reader<'w, T, F> {
    pub(crate) const fn new(request: LockRequest<'w, T, F>) -> Self {
        Self { request, unlock: None, recovered: None }
    }

    pub(crate) fn poll_held(&mut self, cx: &mut Context<'_>) -> Poll<Result<Epoch<'w, T, F>, Error>> {
        loop {
            if let Some(unlock) = &mut self.unlock {
                let unlocked = ready!(unlock.poll_released(cx));
                self.unlock = None;
                match unlocked {
                    // Nothing was done under the lock, so it does not matter whether its lease
                    // expired as well.
                    Err(fault) if fault.kind() != FaultKind::NotHeld => {
                        return Poll::Ready(Err(self.request.failed(fault)));
                    }
                    _ => self.request = self.request.again(),
                }
            }
            let held = ready!(self.request.poll_held(cx));
            let (mut epoch, _) = held.map_err(|fault| self.request.failed(fault))?;
            // A lock of the program's own may have no shared mode.
            if epoch.mode() == Mode::Shared || epoch.previous_owner().is_none() {
                if let Some(inherited) = self.recovered.filter(|_| epoch.mode() == Mode::Shared) {
                    epoch.set_previous(inherited);
                }
                return Poll::Ready(Ok(epoch));
            }
            self.recovered = Some(epoch.holding());
            self.unlock = Some(epoch.unlock());
        }
    }
}
