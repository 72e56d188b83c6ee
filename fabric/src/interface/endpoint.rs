//! What a rank's endpoint does beside its operations: work in the background, and the end.

use std::future::Future;
use std::pin::Pin;
use std::thread::JoinHandle;

use onesided_remote_memory::{Fault, Rank};

use crate::{BackgroundSlot, ServerThread};

/// Background work that the endpoint finishes.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send + 'static>>;

/// A rank's endpoint: it runs tasks, and leaves the world.
pub trait Endpoint: Sync {
    /// Runs a background task to completion, even while the application computes: the rest of a
    /// cancelled acquire or release. The task owns what it needs, including a clone of the fabric.
    fn spawn(&self, task: Task);

    /// Runs a task that serves peers. Unlike for [`spawn`](Self::spawn), neither
    /// [`leave`](Self::leave) nor [`close`](crate::World::close) waits for its end.
    ///
    /// On a `thread` of its own, which waits in this way, ends with the task, and can be joined.
    /// Without one, or where time is virtual, it runs like a spawned task, and there is nothing to
    /// join.
    ///
    /// # Errors
    /// `Refused` if no thread can run it: the task is dropped, and peers are not served.
    fn serve(&self, task: Task, thread: Option<ServerThread>) -> Result<Option<JoinHandle<()>>, Fault>;

    /// What moves while a thread of this rank waits; nothing in the simulator, where none waits.
    fn background(&self) -> Option<&BackgroundSlot> {
        None
    }

    /// The ranks that have left, or ended without joining, if there may be some that had not at the
    /// call that returned the number `since` (0: ever); and the number now. As cheap as
    /// [`liveness`](crate::remote_memory::RemoteMemory::liveness) while the number is the same. A [wait
    /// with failures](crate::remote_memory::Watch::RankAndFailures) is polled after each.
    fn departed(&self, since: u32) -> (u32, Vec<Rank>);

    /// Leaves the world after the application has dropped its last handle. Gives background work
    /// some time to finish. The endpoint's own resources may be dropped later, or never if the
    /// process ends.
    fn leave(&self);

    /// Ends the whole job, see [`World::abort`](crate::World::abort).
    fn abort(&self, status: u8) -> !;
}
