//! The handle of calls that request their lock when they are waited on or polled.

use std::future::Future;
use std::mem;
use std::time::Duration;

use onesided_fabric::{Any, Call, Drive, Fabric, Limit, copied, debug, keeps_order, limited};
use onesided_lock_algos::{Intent, Mode};

use crate::handles::LockRequest;
use crate::operation::request::Awaited;
use crate::passive::cancelled::{Unclaimed, cancel};
use crate::{Access, Element, Epoch, Error, Window};

/// A pending call that takes a lock: `.wait()` blocks, `.await` does not, `.test()` polls. Does
/// nothing before that. The method that returns it documents its effect, its errors and its cancel
/// safety.
///
/// # Panics
/// If it is polled again after it has yielded its result.
#[must_use = "does nothing unless waited on or polled"]
pub struct LockedRequest<'a, T: Element, R, O, F: Fabric = Any> {
    pub(crate) lock: DeferredLock<'a, T, F>,
    limit: Limit<'a, F>,
    pub(crate) call: Call<'a, O, Result<R, Error>>,
}

/// What is done under the lock. No bound of the request: a future that holds one would not be
/// [`Send`].
pub trait Operation<'a, T: Element, F: Fabric, R>: Send + Sized + 'a {
    /// Where operations complete at post: the separate calls, which have no future.
    #[doc(hidden)]
    fn run_now(self, lock: DeferredLock<'a, T, F>) -> Result<R, Error>
    where
        F: Drive;
    #[doc(hidden)]
    fn run(self, lock: DeferredLock<'a, T, F>) -> impl Future<Output = Result<R, Error>> + Send + 'a;
}

impl<'a, T: Element, R, O, F: Fabric> LockedRequest<'a, T, R, O, F> {
    #[inline(always)] // see `LockRequest::wait`
    pub(crate) const fn new(lock: DeferredLock<'a, T, F>, operation: O) -> Self {
        Self { lock, limit: Limit::NONE, call: Call::NotStarted(operation) }
    }

    /// Sets a deadline, counted from the first wait or poll. When it passes, the call fails with
    /// [`TimedOut`](Error::is_timed_out) and leaves nothing locked.
    pub const fn deadline(mut self, after: Duration) -> Self {
        self.limit.said = Some(after);
        self
    }
}

impl<'a, T: Element, R: 'a, O: Operation<'a, T, F, R>, F: Fabric> LockedRequest<'a, T, R, O, F> {
    /// Cancels the call at its deadline.
    fn late(&mut self) -> Error {
        let cancelled = cancel(mem::replace(&mut self.call, Call::Over));
        let DeferredLock { window, target, name, .. } = self.lock;
        Awaited::Lock(window.inner(), target).timed_out(name, cancelled)
    }

    /// Blocks until the call completes.
    ///
    /// # Errors
    /// Those of the method that returned it.
    #[inline(always)] // see `LockRequest::wait`
    pub fn wait(self) -> Result<R, Error>
    where
        F: Drive,
    {
        match self.call {
            Call::NotStarted(operation) if self.lock.completes_at_post() && !self.limit.is_set() => {
                operation.run_now(self.lock)
            }
            call => Self { call, ..self }.wait_slowly(),
        }
    }

    #[cold]
    #[inline(never)]
    fn wait_slowly(self) -> Result<R, Error>
    where
        F: Drive,
    {
        self.block()
    }
}

limited! {
    ['a, T: Element, R: 'a, O: Operation<'a, T, F, R>, F], LockedRequest<'a, T, R, O, F>, R, Error,
    |request| request.lock.window.inner().fabric(), |operation| operation.run(request.lock),
    late request.late()
}

debug!([T: Element, R, O, F: Fabric] LockedRequest<'_, T, R, O, F>, |this| "{:?}, {:?}", this.lock, this.call);

/// A lock that is requested when an operation is waited on or polled.
pub struct DeferredLock<'w, T: Element, F: Fabric> {
    pub(crate) window: &'w Window<T, F>,
    pub(crate) target: u32,
    pub(crate) mode: Mode,
    pub(crate) intent: Intent,
    /// The call's name in errors.
    pub(crate) name: &'static str,
}

impl<'w, T: Element, F: Fabric> DeferredLock<'w, T, F> {
    /// Whether separate lock, operation and unlock are as fast.
    #[inline(always)] // see `LockRequest::wait`
    fn completes_at_post(&self) -> bool {
        self.window.inner().completes_at_post
    }

    #[inline(always)] // see `LockRequest::wait`
    pub(crate) fn request(self) -> LockRequest<'w, T, F> {
        LockRequest::start(self.window, self.target, self.mode, self.intent)
    }

    /// The lock, and the elements as they are under it.
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
            let epoch = Unclaimed::new(epoch);
            match get {
                Some(get) if by_first => {
                    get.await?;
                    return Ok(epoch.claim());
                }
                _ => epoch,
            }
        };
        epoch.get(offset, into).await?;
        Ok(epoch.claim())
    }
}

copied!([T: Element, F: Fabric] DeferredLock<'_, T, F>);

debug!(
    [T: Element, F: Fabric] DeferredLock<'_, T, F>,
    |this| "{} on rank {} of {:?}", this.name, this.target, this.window
);
