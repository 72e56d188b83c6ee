//! Synchronisation of all ranks at once.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Call, Drive, Fabric, Limit, limited};

use crate::{Access, Element, Error, Request, Window};

impl<T: Element, F: Fabric> Window<T, F> {
    /// The first fence (`MPI_Win_fence`): when it was waited for, every rank may operate on every part, until the next.
    /// Collective.
    ///
    /// ```
    /// # use onesided_windows::{Op, Window};
    /// # onesided_fabric::threads(3, |world| {
    /// let sums = Window::<f64>::allocate(&world, 2).wait()?;
    /// let epoch = sums.fence().wait()?;
    /// epoch.at((world.rank() + 1) % 3)?.put(0, &[1.5])?;
    /// let epoch = epoch.fence().wait()?; // everybody sees what everybody has put
    /// assert_eq!(sums.local().read(0..1), [1.5]);
    /// epoch.at(0)?.accumulate(1, &[0.5], Op::Sum).wait()?;
    /// epoch.end().wait()?;
    /// assert_eq!(sums.local().read(1..2), [if world.rank() == 0 { 1.5 } else { 0.0 }]);
    /// sums.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
    /// ```
    ///
    /// MPI's assertions are what the types say: the first fence has nothing before it (`MPI_MODE_NOPRECEDE`), and
    /// [`FenceEpoch::end`](crate::FenceEpoch::end) nothing behind it (`MPI_MODE_NOSUCCEED`). With `MPI_MODE_NOSTORE` and
    /// `MPI_MODE_NOPUT` no fabric of this library could save anything: a fence flushes the targets that this rank operated
    /// on, and is a barrier.
    pub const fn fence(&self) -> FenceRequest<'_, T, F> {
        FenceRequest::new(self)
    }
}

/// A fence to be waited for (`MPI_Win_fence`): `.wait()` blocks, `.await` does not, `.test()` looks. Nothing happens before.
/// Collective.
///
/// # Cancel safety
/// Not cancel safe: collective.
#[must_use = "a fence that nobody waits for is not entered"]
pub struct FenceRequest<'w, T: Element, F: Fabric> {
    window: &'w Window<T, F>,
    limit: Limit<'w, F>,
    /// What the fence ends.
    call: Call<'w, Option<FenceEpoch<'w, T, F>>, Passed<'w, T, F>>,
}

type Passed<'w, T, F> = Result<FenceEpoch<'w, T, F>, Error>;

impl<'w, T: Element, F: Fabric> FenceRequest<'w, T, F> {
    pub(crate) const fn new(window: &'w Window<T, F>) -> Self {
        Self { window, limit: Limit::NONE, call: Call::Asked(None) }
    }

    /// Gives up after this time, counted from the next look at it, with what that means for a
    /// [barrier](onesided_fabric::World::barrier): no later collective of this rank succeeds.
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
            inner.check_open().map_err(closed)?; // nobody else comes to it
        }
        if let Some(before) = &before {
            inner.begin_flushes(before.accesses.iter().filter_map(OnceLock::get).map(|access| access.target));
            for access in before.accesses.iter().filter_map(OnceLock::get) {
                let failed = |fault| inner.failed("fence", access.target(), fault);
                flushed = flushed.and(inner.fabric().flush(access.target.fabric_rank()).await.map_err(failed));
            }
        }
        // Others wait for this rank even if something of its own failed.
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
    /// Blocks until every rank has come to the fence, and what each did before it is complete.
    ///
    /// # Errors
    /// [`Error::Operation`] with the first failure of what was done before; [`Error::Collective`] if a rank died or left,
    /// or the deadline passed, or this rank had closed the window before the first fence.
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

/// The time between two fences, and the operations on every rank's part in it.
///
/// One that is dropped ends without a fence: what was posted in it is complete after a flush, or when the window is
/// closed.
#[must_use = "only the next fence completes what is done before it"]
pub struct FenceEpoch<'w, T: Element, F: Fabric> {
    window: &'w Window<T, F>,
    /// By rank, made when it is first asked for.
    accesses: Box<[OnceLock<Access<'w, T, F>>]>,
}

impl<'w, T: Element, F: Fabric> FenceEpoch<'w, T, F> {
    /// The operations on one rank's part.
    ///
    /// # Errors
    /// [`Error::Rank`]; [`Error::Operation`] if the part cannot be reached.
    pub fn at(&self, target: u32) -> Result<&Access<'w, T, F>, Error> {
        let inner = self.window.inner();
        let reached = inner.target(target).map_err(|fault| inner.failed("access", target, fault))?;
        Ok(self.accesses[target as usize].get_or_init(|| Access::new(inner, reached)))
    }

    /// The next fence: what every rank did since the last one is complete when it was waited for, and seen by all.
    pub const fn fence(self) -> FenceRequest<'w, T, F> {
        FenceRequest { window: self.window, limit: Limit::NONE, call: Call::Asked(Some(self)) }
    }

    /// The last fence (`MPI_MODE_NOSUCCEED`), when it is waited for. Collective.
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
