//! Operations to be waited for that give no value.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use fabric::remote_memory::Fault;
use fabric::{Drive, Fabric, wait_for};

use crate::window::Inner;
use crate::{Access, Element, Error};

/// A get, to be waited for: `.wait()` blocks, `.await` does not. See [`Access::get`](crate::Access::get).
#[must_use = "the slice has the elements only after the get was waited for"]
pub struct Get<'w, 'b, T, F: Fabric> {
    access: Access<'w, T, F>,
    /// The first element and how many.
    place: (usize, usize),
    get: Result<F::Get<'b>, Fault>,
}

impl<'w, 'b, T: Element, F: Fabric> Get<'w, 'b, T, F> {
    #[inline]
    pub(crate) const fn new(access: Access<'w, T, F>, place: (usize, usize), get: Result<F::Get<'b>, Fault>) -> Self {
        Self { access, place, get }
    }
}

impl<T: Element, F: Drive> Get<'_, '_, T, F> {
    /// Blocks until the slice has the elements.
    ///
    /// # Errors
    /// See [`Access::get`](crate::Access::get).
    #[inline(always)] // a handle that passes through memory costs more than a small get
    pub fn wait(self) -> Result<(), Error> {
        let Self { access, place, get } = self;
        let got = get.and_then(|get| wait_for(access.inner.fabric(), get));
        got.map_err(|fault| access.failed("get", place, fault))
    }
}

impl<T: Element, F: Fabric> Future for Get<'_, '_, T, F> {
    type Output = Result<(), Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = match &mut self.get {
            Ok(get) => ready!(Pin::new(get).poll(cx)),
            Err(fault) => Err(*fault),
        };
        Poll::Ready(outcome.map_err(|fault| self.access.copy().failed("get", self.place, fault)))
    }
}

impl<T, F: Fabric> fmt::Debug for Get<'_, '_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "get of {} elements at {} from {:?}", self.place.1, self.place.0, self.access)
    }
}

/// A flush, to be waited for: `.wait()` blocks, `.await` does not. See [`Access::flush`](crate::Access::flush).
#[must_use = "a flush promises something only after it was waited for"]
pub struct Flush<'w, F: Fabric> {
    inner: &'w Inner<F>,
    operation: &'static str,
    target: u32,
    flush: F::Flush<'w>,
}

impl<'w, F: Fabric> Flush<'w, F> {
    #[inline]
    pub(crate) const fn new(inner: &'w Inner<F>, operation: &'static str, target: u32, flush: F::Flush<'w>) -> Self {
        Self { inner, operation, target, flush }
    }
}

impl<F: Drive> Flush<'_, F> {
    /// Blocks until the flush is done.
    ///
    /// # Errors
    /// [`Error::Operation`] with the first failure of what was posted to the target and not waited for.
    #[inline(always)] // see `Get::wait`
    pub fn wait(self) -> Result<(), Error> {
        wait_for(self.inner.fabric(), self.flush).map_err(|fault| self.inner.failed(self.operation, self.target, fault))
    }
}

impl<'w, F: Fabric> IntoFuture for Flush<'w, F> {
    type Output = Result<(), Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'w>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.flush.await.map_err(|fault| self.inner.failed(self.operation, self.target, fault)) })
    }
}

impl<F: Fabric> fmt::Debug for Flush<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of rank {} of window \"{}\"", self.operation, self.target, self.inner.name)
    }
}
