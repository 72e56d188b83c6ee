//! A lock that is requested when a call that takes it is waited on or polled.

use onesided_fabric::{Fabric, copied, keeps_order};
use onesided_lock_algos::{Intent, Mode};

use crate::handles::LockRequest;
use crate::operation::request::Awaited;
use crate::{Access, Element, Epoch, Error, Window};

/// A lock that is requested when an operation is waited on or polled.
pub(crate) struct DeferredLock<'w, T: Element, F: Fabric> {
    pub(crate) window: &'w Window<T, F>,
    pub(crate) target: u32,
    pub(crate) mode: Mode,
    pub(crate) intent: Intent,
    /// The call's name in errors.
    pub(crate) name: &'static str,
}

impl<'w, T: Element, F: Fabric> DeferredLock<'w, T, F> {
    pub(crate) fn awaited(self) -> Awaited<'w, F> {
        Awaited::Lock(self.window.inner(), self.target)
    }

    pub(crate) async fn held(self) -> Result<(Epoch<'w, T, F>, bool), Error> {
        self.request().held().await.map_err(|error| error.of_call(self.name))
    }

    fn request(self) -> LockRequest<'w, T, F> {
        LockRequest::start(self.window, self.target, self.mode, self.intent)
    }

    /// The lock, which is not [claimed](Epoch::claim) yet, and the elements as they are under it.
    pub(crate) async fn held_with(self, offset: usize, into: &mut [T]) -> Result<Epoch<'w, T, F>, Error> {
        let inner = self.window.inner();
        let request = self.request();
        // Not under the lock yet: the read counts only if the compare-and-swap before it took the
        // lock and executed first.
        let target = inner.begin(self.target).ok();
        let ordered =
            target.filter(|target| inner.locks.starts_at_target() && keeps_order(inner.fabric(), target.fabric_rank()));
        let early = ordered.map(|target| Access::new(inner, target));
        let epoch = {
            let get = early.as_ref().map(|access| access.get(offset, into));
            let (epoch, by_first) = request.held().await.map_err(|error| error.of_call(self.name))?;
            match get {
                Some(get) if by_first => {
                    get.await?;
                    return Ok(epoch);
                }
                _ => epoch,
            }
        };
        epoch.get(offset, into).await?;
        Ok(epoch)
    }
}

copied!([T: Element, F: Fabric] DeferredLock<'_, T, F>);
