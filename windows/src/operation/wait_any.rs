//! A wait for the first of several signals.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use onesided_fabric::{Drive, Fabric, block_on, handle};

use crate::window::inner::Inner;
use crate::{AtomicElement, Error, Local, WaitUntil};

impl<'w, T: AtomicElement, F: Fabric> Local<'w, T, F> {
    /// Waits until one of several [waits](Self::wait_until) has its element, and returns its index
    /// and the element; of several, the first (`shmem_wait_until_any`; OpenSHMEM 1.5, 9.10.4). The
    /// waits may be for elements of other windows.
    ///
    /// ```
    /// # use onesided_windows::Window;
    /// # onesided_fabric::threads(3, |world| {
    /// # let window = Window::<u64>::allocate(&world, 3).wait()?;
    /// let own = window.local();
    /// if world.rank() == 0 {
    ///     let from = |rank| own.wait_until(rank as usize, |value| value > 0).from_rank(rank);
    ///     let (first, value) = own.wait_until_any([from(1), from(2)]).wait()?;
    ///     assert_eq!(value, 10 + first as u64);
    /// } else {
    ///     let rank = world.rank();
    ///     window.lock_shared(0).wait()?.signal(rank as usize, 9 + u64::from(rank))?;
    /// }
    /// # world.barrier().wait().unwrap();
    /// # window.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
    /// ```
    pub fn wait_until_any(&self, waits: impl IntoIterator<Item = WaitUntil<'w, T, F>>) -> WaitUntilAny<'w, T, F> {
        WaitUntilAny { inner: self.inner(), waits: waits.into_iter().collect() }
    }
}

/// A wait for the first of several elements: `.wait()` blocks, `.await` does not, `.test()` polls.
/// Does nothing before that. See [`Local::wait_until_any`].
#[must_use = "does nothing unless waited on or polled"]
pub struct WaitUntilAny<'w, T: AtomicElement, F: Fabric> {
    inner: &'w Inner<F>,
    waits: Vec<WaitUntil<'w, T, F>>,
}

impl<T: AtomicElement, F: Drive> WaitUntilAny<'_, T, F> {
    /// Blocks until one of the elements satisfies its predicate.
    ///
    /// # Errors
    /// [`Error::Lengths`] without any wait. If no element satisfies its predicate, the error of the
    /// first wait that failed; a deadline of one of them ends all.
    pub fn wait(self) -> Result<(usize, T), Error> {
        block_on(self.inner.fabric(), self)
    }
}

handle!(['w, T: AtomicElement, F], WaitUntilAny<'w, T, F>, (usize, T), Error, |any| any.inner.fabric());

impl<T: AtomicElement, F: Fabric> Future for WaitUntilAny<'_, T, F> {
    type Output = Result<(usize, T), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut failed = None;
        if self.waits.is_empty() {
            let window = self.inner.name.clone();
            failed = Some(Error::Lengths { operation: "wait_until_any", wanted: 1, given: 0, window });
        }
        for (index, wait) in self.waits.iter_mut().enumerate() {
            match Pin::new(wait).poll(cx) {
                Poll::Ready(Ok(element)) => return Poll::Ready(Ok((index, element))),
                Poll::Ready(Err(error)) => {
                    failed.get_or_insert(error);
                }
                Poll::Pending => {}
            }
        }
        failed.map_or(Poll::Pending, |error| Poll::Ready(Err(error)))
    }
}

impl<T: AtomicElement, F: Fabric> fmt::Debug for WaitUntilAny<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("any of").field(&self.waits).finish()
    }
}
