//! Fences: synchronization of all ranks.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Call, Drive, Fabric, Limit, limited};

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
    pub const fn fence(&self) -> FenceRequest<'_, T, F> {
        FenceRequest::new(self)
    }
}

/// A pending fence (`MPI_Win_fence`): `.wait()` blocks, `.await` does not, `.test()` polls. Does
/// nothing before that. Collective.
///
/// # Cancel safety
/// Not cancel safe: collective.
#[must_use = "does nothing unless waited on or polled"]
pub struct FenceRequest<'w, T: Element, F: Fabric> {
    window: &'w Window<T, F>,
    limit: Limit<'w, F>,
    /// The epoch that the fence ends.
    call: Call<'w, Option<FenceEpoch<'w, T, F>>, Passed<'w, T, F>>,
}

type Passed<'w, T, F> = Result<FenceEpoch<'w, T, F>, Error>;

impl<'w, T: Element, F: Fabric> FenceRequest<'w, T, F> {
    pub(crate) const fn new(window: &'w Window<T, F>) -> Self {
        Self { window, limit: Limit::NONE, call: Call::NotStarted(None) }
    }

    /// Sets a deadline, counted from the next wait or poll. When it passes, no later collective of
    /// this rank succeeds, as for a [barrier](onesided_fabric::World::barrier).
    pub const fn deadline(mut self, after: Duration) -> Self {
        self.limit.said = Some(after);
        self
    }

    fn late(window: &Window<T, F>) -> Error {
        let inner = window.inner();
        inner.world.give_up_collectives();
        Error::Collective { operation: "fence", window: inner.name.clone(), fault: Fault::new(FaultKind::TimedOut) }
    }

    async fn pass(window: &'w Window<T, F>, before: Option<FenceEpoch<'w, T, F>>) -> Passed<'w, T, F> {
        let inner = window.inner();
        let mut flushed = Ok(());
        if before.is_none() {
            let window = || inner.name.clone();
            let closed = |fault| Error::Collective { operation: "fence", window: window(), fault };
            inner.check_open().map_err(closed)?; // no other rank will arrive
        }
        if let Some(before) = &before {
            inner.begin_flushes(before.accesses.iter().filter_map(OnceLock::get).map(|access| access.target));
            for access in before.accesses.iter().filter_map(OnceLock::get) {
                let failed = |fault| inner.failed("fence", access.target(), fault);
                flushed = flushed.and(inner.fabric().flush(access.target.fabric_rank()).await.map_err(failed));
            }
        }
        // The others wait for this rank even if its own operations failed.
        let passed = inner.world.barrier().await.map_err(|error| Error::Collective {
            operation: "fence",
            window: inner.name.clone(),
            fault: error.fault(),
        });
        flushed.and(passed)?;
        let accesses = match before {
            Some(before) => before.accesses,
            None => (0..inner.world.size()).map(|_| OnceLock::new()).collect(),
        };
        Ok(FenceEpoch { window, accesses })
    }
}

impl<'w, T: Element, F: Drive> FenceRequest<'w, T, F> {
    /// Blocks until every rank has reached the fence and its earlier operations are complete.
    ///
    /// # Errors
    /// [`Error::Operation`] with the first failure of an earlier operation; [`Error::Collective`]
    /// if a rank died or left, the deadline passed, or this rank had closed the window before the
    /// first fence.
    pub fn wait(self) -> Result<FenceEpoch<'w, T, F>, Error> {
        self.block()
    }
}

limited! {
    ['w, T: Element, F], FenceRequest<'w, T, F>, FenceEpoch<'w, T, F>, Error, |fence| fence.window.inner().fabric(),
    |before| Self::pass(fence.window, before), late Self::late(fence.window)
}

impl<T: Element, F: Fabric> fmt::Debug for FenceRequest<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fence of {:?}", self.window)
    }
}

/// The epoch between two fences, and the operations on every rank's window memory in it.
///
/// A drop ends it without a fence: its operations are complete after a flush, or when the window is
/// closed.
#[must_use = "only the next fence completes the operations of this epoch"]
pub struct FenceEpoch<'w, T: Element, F: Fabric> {
    window: &'w Window<T, F>,
    /// By rank, made at the first access.
    accesses: Box<[OnceLock<Access<'w, T, F>>]>,
}

impl<'w, T: Element, F: Fabric> FenceEpoch<'w, T, F> {
    /// The operations on one target.
    ///
    /// # Errors
    /// [`Error::Rank`]; [`Error::Operation`] if the target cannot be reached.
    pub fn at(&self, target: u32) -> Result<&Access<'w, T, F>, Error> {
        let inner = self.window.inner();
        let reached = inner.target(target).map_err(|fault| inner.failed("access", target, fault))?;
        Ok(self.accesses[target as usize].get_or_init(|| Access::new(inner, reached)))
    }

    /// The next fence: when it completes, what every rank did since the last fence is complete and
    /// visible to all.
    pub const fn fence(self) -> FenceRequest<'w, T, F> {
        FenceRequest { window: self.window, limit: Limit::NONE, call: Call::NotStarted(Some(self)) }
    }

    /// The last fence (`MPI_MODE_NOSUCCEED`). Does nothing unless waited on or polled. Collective.
    ///
    /// # Errors
    /// As [`FenceRequest::wait`].
    ///
    /// # Cancel safety
    /// Not cancel safe: collective.
    pub fn end(self) -> Request<'w, (), F> {
        let fabric = self.window.inner().fabric().clone();
        Request::new(fabric, "fence", async { FenceRequest::pass(self.window, Some(self)).await.map(drop) })
    }
}

impl<T: Element, F: Fabric> fmt::Debug for FenceEpoch<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "between fences of {:?}", self.window)
    }
}
