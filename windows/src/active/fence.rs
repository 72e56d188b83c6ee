//! Fences: synchronization of all ranks.

use onesided_fabric::remote_memory::Collective;
use onesided_fabric::{Any, Fabric, debug};

use crate::operation::access::Accesses;
use crate::operation::request::{Awaited, Begin};
use crate::{Access, Element, Error, Request, Window};

impl<T: Element, F: Fabric> Window<T, F> {
    /// The first fence (`MPI_Win_fence`): when it completes, every rank may operate on every target
    /// until the next fence. Collective.
    ///
    /// ```
    /// # use onesided_windows::{Op, Window};
    /// # onesided_fabric::threads(3, |world| {
    /// let sums = Window::<f64>::allocate(&world, 2).wait()?;
    /// let epoch = sums.fence().wait()?;
    /// epoch.at((world.rank() + 1) % 3)?.put(0, &[1.5])?;
    /// let epoch = epoch.fence().wait()?; // every rank sees every put
    /// assert_eq!(sums.local().read(0..1), [1.5]);
    /// epoch.at(0)?.accumulate(1, &[0.5], Op::Sum).wait()?;
    /// epoch.end().wait()?;
    /// assert_eq!(sums.local().read(1..2), [if world.rank() == 0 { 1.5 } else { 0.0 }]);
    /// sums.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
    /// ```
    ///
    /// The types state MPI's assertions: nothing precedes the first fence (`MPI_MODE_NOPRECEDE`),
    /// and nothing follows [`FenceEpoch::end`](crate::FenceEpoch::end) (`MPI_MODE_NOSUCCEED`).
    /// `MPI_MODE_NOSTORE` and `MPI_MODE_NOPUT` would save nothing on any fabric of this library: a
    /// fence flushes the targets that this rank operated on, and is a barrier.
    ///
    /// Does nothing unless waited on or polled.
    ///
    /// # Errors
    /// [`Error::Collective`] if a rank died or left, the deadline passed, or this rank had closed
    /// the window.
    ///
    /// # Cancel safety
    /// Not cancel safe: collective, as a [barrier](onesided_fabric::World::barrier) of the window: later
    /// fences of this rank and its close fail with `OutOfStep`, other windows and the world go on.
    pub fn fence(&self) -> Request<'_, FenceEpoch<'_, T, F>, F, Error, impl Begin<FenceEpoch<'_, T, F>>> {
        Request::unboxed(Awaited::Fence(self.inner()), "fence", move || async {
            let inner = self.inner();
            let closed = |fault| Error::Collective { operation: "fence", window: inner.name.clone(), fault };
            inner.check_open().map_err(closed)?; // no other rank will arrive
            inner.barrier(Collective::Fence, "fence").await?;
            Ok(FenceEpoch(Accesses::new(self)))
        })
    }
}

/// The epoch between two fences, and the operations on every rank's window memory in it.
///
/// A drop ends it without a fence: its operations are complete after a flush, or when the window is
/// closed.
#[must_use = "only the next fence completes the operations of this epoch"]
pub struct FenceEpoch<'w, T: Element, F: Fabric = Any>(Accesses<'w, T, F>);

impl<'w, T: Element, F: Fabric> FenceEpoch<'w, T, F> {
    /// The operations on one target.
    ///
    /// # Errors
    /// [`Error::Rank`]; [`Error::Operation`] if the target cannot be reached.
    pub fn at(&self, target: u32) -> Result<&Access<'w, T, F>, Error> {
        self.0.at(target)
    }

    /// The next fence: when it completes, what every rank did since the last fence is complete and
    /// visible to all. Does nothing unless waited on or polled. Collective.
    ///
    /// # Errors
    /// [`Error::Operation`] with the first failure of an earlier operation; [`Error::Collective`]
    /// if a rank died or left, or the deadline passed.
    ///
    /// # Cancel safety
    /// As [`Window::fence`]. Dropped before this rank's operations are complete, it is a drop of the
    /// epoch.
    pub fn fence(self) -> Request<'w, Self, F, Error, impl Begin<Self> + use<'w, T, F>> {
        Request::unboxed(Awaited::Fence(self.0.window.inner()), "fence", || async move {
            self.pass().await?;
            Ok(self)
        })
    }

    /// The last fence (`MPI_MODE_NOSUCCEED`). Does nothing unless waited on or polled. Collective.
    ///
    /// # Errors
    /// As [`fence`](Self::fence).
    ///
    /// # Cancel safety
    /// As [`fence`](Self::fence).
    pub fn end(self) -> Request<'w, (), F, Error, impl Begin<()> + use<'w, T, F>> {
        Request::unboxed(Awaited::Fence(self.0.window.inner()), "fence", || async move { self.pass().await })
    }

    async fn pass(&self) -> Result<(), Error> {
        let inner = self.0.window.inner();
        let flushed = inner.flush_each("fence", self.0.targets(), F::flush).await;
        // The others wait for this rank even if its own operations failed.
        flushed.and(inner.barrier(Collective::Fence, "fence").await)
    }
}

debug!([T: Element, F: Fabric] FenceEpoch<'_, T, F>, |this| "between fences of {:?}", this.0.window);
