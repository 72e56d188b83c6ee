//! The origin's side of post-start-complete-wait: start and complete.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Call, Drive, Fabric, Limit, limited};

use crate::active::notify::group;
use crate::active::signals::Signal;
use crate::window::inner::Inner;
use crate::{Access, Element, Error, Request, Window};

impl<T: Element, F: Fabric> Window<T, F> {
    /// Starts an access epoch on some targets (`MPI_Win_start`). Does nothing unless waited on or
    /// polled; it completes when each target has [exposed](Self::post) its window memory to this
    /// rank.
    pub fn start(&self, targets: &[u32]) -> StartRequest<'_, T, F> {
        StartRequest::new(self, targets)
    }
}

/// A wait for targets to expose their window memory (`MPI_Win_start`): `.wait()` blocks, `.await`
/// does not, `.test()` polls. Does nothing before that.
///
/// # Cancel safety
/// A dropped start has not begun an epoch.
#[must_use = "does nothing unless waited on or polled"]
pub struct StartRequest<'w, T: Element, F: Fabric> {
    window: &'w Window<T, F>,
    check: bool,
    limit: Limit<'w, F>,
    targets: Arc<[u32]>,
    call: Call<'w, (), Result<AccessEpoch<'w, T, F>, Error>>,
}

impl<'w, T: Element, F: Fabric> StartRequest<'w, T, F> {
    pub(crate) fn new(window: &'w Window<T, F>, targets: &[u32]) -> Self {
        Self { window, check: true, limit: Limit::NONE, targets: group(targets).into(), call: Call::NotStarted(()) }
    }

    /// Skips the check that the targets have exposed their window memory, because the program
    /// guarantees it (`MPI_MODE_NOCHECK`).
    pub const fn no_check(mut self) -> Self {
        self.check = false;
        self
    }

    /// Sets a deadline, counted from the next wait or poll: the error is then
    /// [`TimedOut`](Error::is_timed_out), and no epoch begins.
    pub const fn deadline(mut self, after: Duration) -> Self {
        self.limit.said = Some(after);
        self
    }

    /// The error after the deadline: names the first target that has not posted.
    fn late(&self) -> Error {
        let inner = self.window.inner();
        let exposed = |rank: &u32| inner.has_signalled(*rank, Signal::Exposed, inner.counts.next_access(*rank));
        let missing = self.targets.iter().find(|rank| !exposed(rank)).or(self.targets.first());
        inner.failed("start", missing.copied().unwrap_or(0), Fault::new(FaultKind::TimedOut))
    }

    async fn begin(window: &'w Window<T, F>, targets: Arc<[u32]>, check: bool) -> Result<AccessEpoch<'w, T, F>, Error> {
        let inner = window.inner();
        loop {
            let mut started = Vec::with_capacity(targets.len());
            for rank in targets.iter().copied() {
                let failed = |fault| inner.failed("start", rank, fault);
                let access = Access::new(inner, inner.begin(rank).map_err(failed)?);
                let number = inner.counts.next_access(rank);
                if check {
                    inner.signalled(rank, Signal::Exposed, number).map_err(failed)?.await.map_err(failed)?;
                }
                started.push((access, number));
            }
            // Only now, because a failed start may be repeated. A concurrent start may have been
            // faster.
            if inner.counts.access(started.iter().map(|(access, number)| (access.target(), *number))) {
                return Ok(AccessEpoch { window, started });
            }
        }
    }
}

impl<'w, T: Element, F: Drive> StartRequest<'w, T, F> {
    /// Blocks until every target has exposed its window memory.
    ///
    /// # Errors
    /// [`Error::Operation`] if a target died or left before that, or the deadline passed;
    /// [`Error::Rank`].
    pub fn wait(self) -> Result<AccessEpoch<'w, T, F>, Error> {
        self.block()
    }
}

limited! {
    ['w, T: Element, F], StartRequest<'w, T, F>, AccessEpoch<'w, T, F>, Error, |start| start.window.inner().fabric(),
    |()| Self::begin(start.window, Arc::clone(&start.targets), start.check), late start.late()
}

impl<T: Element, F: Fabric> fmt::Debug for StartRequest<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "start of an access epoch of {:?}", self.window)
    }
}

/// An access epoch: targets that have exposed their window memory to this rank, and the operations
/// on them.
///
/// [`complete`](Self::complete) ends the epoch and reports errors; a drop ends it too, but its
/// errors are deferred to [`Window::close`](crate::Window::close). A leaked epoch keeps its targets
/// waiting.
#[must_use = "if unused the epoch ends immediately"]
pub struct AccessEpoch<'w, T: Element, F: Fabric> {
    window: &'w Window<T, F>,
    /// By target, with the number of the access epoch.
    started: Vec<(Access<'w, T, F>, u64)>,
}

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
    pub fn complete(self) -> Request<'w, (), F> {
        Request::new(self.window.inner().fabric().clone(), "complete", self.run())
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

impl<T: Element, F: Fabric> fmt::Debug for AccessEpoch<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.started.iter().map(|(access, _)| access)).finish()
    }
}
