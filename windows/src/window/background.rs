//! Work that no caller waits for: the background of a window.

use std::future::Future;
use std::sync::Arc;

use onesided_fabric::bootstrap::fork::is_child;
use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Fabric, Task};

use crate::window::inner::Inner;
use crate::window::retry::{poll_once, poll_until};

/// Something under way that only the window's end waits for.
struct Background<F: Fabric>(Arc<Inner<F>>);

impl<F: Fabric> Drop for Background<F> {
    fn drop(&mut self) {
        self.0.lifecycle.end_background();
    }
}

impl<F: Fabric> Inner<F> {
    /// Spawns a release, or the rest of a cancelled request, on the endpoint; closing the window
    /// waits for it.
    pub(crate) fn spawn(self: &Arc<Self>, task: Task) {
        self.lifecycle.begin_background();
        let background = Background(Arc::clone(self));
        self.fabric().endpoint().spawn(Box::pin(async move {
            let _background = background;
            task.await;
        }));
    }

    /// Polls a task once, and [spawns](Self::spawn) the rest. Where operations complete at post,
    /// most tasks end at the first poll.
    pub(crate) fn run_or_spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        if is_child() {
            return std::mem::forget(task); // what it would change is its parent's
        }
        let mut task = Box::pin(task);
        if poll_once(&mut task).is_pending() {
            self.spawn(task);
        }
    }

    /// Waits until this window's background operations have ended: after the close, peers free the
    /// memory that these access. None of them waits for another rank.
    pub(crate) async fn drain_background(&self) -> Result<(), Fault> {
        let is_drained = || self.lifecycle.is_drained();
        if is_drained() {
            return Ok(());
        }
        let fabric = self.fabric();
        let own = fabric.world_segment(fabric.rank()).map_err(|error| error.fault())?;
        poll_until(fabric, fabric.word_in(&own, 0)?, Fault::new(FaultKind::TimedOut), is_drained).await
    }
}
