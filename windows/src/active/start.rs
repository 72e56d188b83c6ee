//! The origin's side of post-start-complete-wait: start and complete.

use std::sync::Arc;

use onesided_fabric::remote_memory::Fault;
use onesided_fabric::{Any, Fabric, debug};

use crate::active::notify::group;
use crate::active::signals::Signal;
use crate::operation::request::{Awaited, Begin};
use crate::window::inner::Inner;
use crate::{Access, Element, Error, Request, Window};

impl<T: Element, F: Fabric> Window<T, F> {
    /// Starts an access epoch on some targets (`MPI_Win_start`). Does nothing unless waited on or
    /// polled; it completes when each target has [exposed](Self::post) its window memory to this
    /// rank.
    ///
    /// # Errors
    /// [`Error::Operation`] if a target died or left before that, or the deadline passed, then with
    /// the first target that has not exposed its window memory; [`Error::Rank`].
    ///
    /// # Cancel safety
    /// A dropped start has not begun an epoch.
    pub fn start<'w>(
        &'w self,
        targets: &[u32],
    ) -> Request<'w, AccessEpoch<'w, T, F>, F, Error, impl Begin<AccessEpoch<'w, T, F>> + use<'w, T, F>> {
        let targets = group(targets);
        let exposed = targets.iter().map(|rank| (*rank, self.inner().counts.next_access(*rank))).collect();
        Request::unboxed(Awaited::Signals(self.inner(), Signal::Exposed, exposed), "start", move || async move {
            let inner = self.inner();
            loop {
                let starting = self.starting(&targets)?;
                for (access, number) in &starting {
                    let failed = |fault| inner.failed("start", access.target(), fault);
                    let exposed = inner.signalled(access.target(), Signal::Exposed, *number).map_err(failed)?;
                    exposed.await.map_err(failed)?;
                }
                if let Some(epoch) = self.started(starting) {
                    return Ok(epoch);
                }
            }
        })
    }

    /// The same without a check that the targets have exposed their window memory, which the
    /// program guarantees (`MPI_MODE_NOCHECK`): it does not wait.
    ///
    /// # Errors
    /// [`Error::Operation`] if a target cannot be reached; [`Error::Rank`].
    pub fn start_no_check(&self, targets: &[u32]) -> Result<AccessEpoch<'_, T, F>, Error> {
        let targets = group(targets);
        loop {
            if let Some(epoch) = self.started(self.starting(&targets)?) {
                return Ok(epoch);
            }
        }
    }

    /// The targets, with the number of the next access epoch on each.
    fn starting(&self, targets: &[u32]) -> Result<Targets<'_, T, F>, Error> {
        let inner = self.inner();
        let each = targets.iter().map(|rank| {
            let target = inner.begin(*rank).map_err(|fault| inner.failed("start", *rank, fault))?;
            Ok((Access::new(inner, target), inner.counts.next_access(*rank)))
        });
        each.collect()
    }

    /// Counts the epoch only now, because a failed start may be repeated; `None` if a concurrent
    /// start was faster.
    fn started<'w>(&'w self, started: Targets<'w, T, F>) -> Option<AccessEpoch<'w, T, F>> {
        let numbers = started.iter().map(|(access, number)| (access.target(), *number));
        if self.inner().counts.access(numbers) { Some(AccessEpoch { window: self, started }) } else { None }
    }
}

/// An access epoch: targets that have exposed their window memory to this rank, and the operations
/// on them.
///
/// [`complete`](Self::complete) ends the epoch and reports errors; a drop ends it too, but its
/// errors are deferred to [`Window::close`](crate::Window::close). A leaked epoch keeps its targets
/// waiting.
#[must_use = "if unused the epoch ends immediately"]
pub struct AccessEpoch<'w, T: Element, F: Fabric = Any> {
    window: &'w Window<T, F>,
    started: Targets<'w, T, F>,
}

/// By target, with the number of the access epoch.
type Targets<'w, T, F> = Vec<(Access<'w, T, F>, u64)>;

impl<'w, T: Element, F: Fabric> AccessEpoch<'w, T, F> {
    /// The operations on a target of this epoch.
    ///
    /// # Errors
    /// [`Error::NotStarted`].
    pub fn at(&self, target: u32) -> Result<&Access<'w, T, F>, Error> {
        match self.started.binary_search_by_key(&target, |(access, _)| access.target()) {
            Ok(at) => Ok(&self.started[at].0),
            Err(_) => Err(Error::NotStarted { target, window: self.window.inner().name.clone() }),
        }
    }

    /// Ends the epoch (`MPI_Win_complete`). Completes when all its operations are complete at the
    /// targets and the words that notify them are posted. Does nothing unless waited on or polled;
    /// a drop then does the same.
    ///
    /// # Errors
    /// [`Error::Operation`] with the first failure of an operation. The targets are notified all
    /// the same.
    ///
    /// # Cancel safety
    /// If dropped before it completes, the endpoint finishes the rest.
    pub fn complete(self) -> Request<'w, (), F, Error, impl Begin<()> + use<'w, T, F>> {
        let first = self.started.first().map_or(0, |(access, _)| access.target());
        Request::unboxed(Awaited::Target(self.window.inner(), first), "complete", || self.run())
    }

    async fn run(mut self) -> Result<(), Error> {
        let inner = self.window.inner();
        let mut outcome = Ok(());
        for (access, _) in &self.started {
            drop(inner.fabric().flush_before_release(access.target.fabric_rank())); // starts all flushes
        }
        while let Some((access, number)) = self.started.last() {
            let (rank, number) = (access.target(), *number);
            let completed = complete(inner, rank, number).await;
            self.started.pop();
            outcome = outcome.and(completed.map_err(|fault| inner.failed("complete", rank, fault)));
        }
        outcome
    }
}

/// Completes what was posted to a target and notifies it, even after a failure.
async fn complete<F: Fabric>(inner: &Inner<F>, rank: u32, number: u64) -> Result<(), Fault> {
    let target = inner.target(rank)?;
    let flushed = inner.fabric().flush_before_release(target.fabric_rank()).await;
    inner.signal_completed(target, number)?;
    flushed.map(drop)
}

impl<T: Element, F: Fabric> Drop for AccessEpoch<'_, T, F> {
    fn drop(&mut self) {
        if self.started.is_empty() {
            return;
        }
        let inner = Arc::clone(self.window.inner());
        let rest: Vec<_> = self.started.drain(..).map(|(access, number)| (access.target(), number)).collect();
        self.window.inner().run_or_spawn(async move {
            for (rank, number) in rest {
                if let Err(fault) = complete(&inner, rank, number).await {
                    inner.lifecycle.defer(inner.failed("complete", rank, fault));
                }
            }
        });
    }
}

debug!([T: Element, F: Fabric] AccessEpoch<'_, T, F>, |this| "{:?}", this.started.iter().map(|(access, _)| access).collect::<Vec<_>>());
