//! A wait for the first of several signals.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use onesided_fabric::Fabric;

use crate::{AtomicElement, Element, Error, Local, Request};

impl<'w, T: Element, F: Fabric> Local<'w, T, F> {
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
    ///     let from = |rank| own.wait_until_from(rank, rank as usize, |value| value > 0);
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
    ///
    /// Does nothing unless waited on or polled.
    ///
    /// # Errors
    /// [`Error::Lengths`] without any wait. If no element satisfies its predicate, the error of the
    /// first wait that failed; a deadline of one of them ends all.
    pub fn wait_until_any(&self, waits: impl IntoIterator<Item = Request<'w, T, F>>) -> Request<'w, (usize, T), F>
    where
        T: AtomicElement,
    {
        let (operation, inner) = ("wait_until_any", self.inner());
        let mut waits: Vec<_> = waits.into_iter().collect();
        self.request(
            operation,
            poll_fn(move |cx| {
                let mut failed = None;
                if waits.is_empty() {
                    let (target, window) = (inner.world.rank(), inner.name.clone());
                    failed = Some(Error::Lengths { operation, wanted: 1, given: 0, target, window });
                }
                for (index, wait) in waits.iter_mut().enumerate() {
                    match Pin::new(wait).poll(cx) {
                        Poll::Ready(Ok(element)) => return Poll::Ready(Ok((index, element))),
                        Poll::Ready(Err(error)) => {
                            failed.get_or_insert(error);
                        }
                        Poll::Pending => {}
                    }
                }
                failed.map_or(Poll::Pending, |error| Poll::Ready(Err(error)))
            }),
        )
    }
}
