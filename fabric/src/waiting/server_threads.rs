//! Server threads: they run tasks that serve peers, one thread per task or one for all tasks of a
//! rank.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};

use onesided_job::lock;
use onesided_remote_memory::{Fault, FaultKind, debug};
use rustix::io::Errno;

use crate::waiting::drive::{self, Blocking};
use crate::{Core, Drive, Fabric, Task};

/// How a server thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerThread {
    /// Polls without pause and occupies a core.
    Polls,
    /// Sleeps until an event of its rank.
    Sleeps,
}

impl ServerThread {
    /// The thread's name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Polls => "onesided-poll",
            Self::Sleeps => "onesided-event",
        }
    }
}

/// A polling thread yields its core after this many polls, perhaps to the thread that it waits for.
const POLLS: u32 = 256;
/// The same if the host has more threads than cores.
const POLLS_OVERSUBSCRIBED: u32 = 16;

/// The number of server threads in this process.
static SERVER_THREADS: AtomicU32 = AtomicU32::new(0);

/// Whether this process has server threads.
pub(crate) fn has_server_threads() -> bool {
    SERVER_THREADS.load(Ordering::Relaxed) > 0
}

/// Counts one server thread while it runs.
pub(crate) struct RunningThread;

impl RunningThread {
    pub(crate) fn begin() -> Self {
        SERVER_THREADS.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for RunningThread {
    fn drop(&mut self) {
        SERVER_THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs a task to completion on its own thread, which drives the fabric.
pub(crate) fn spawn<D: Drive>(drive: &D, task: Task, kind: ServerThread) -> Result<JoinHandle<()>, Fault> {
    let drive = drive.clone();
    let running = RunningThread::begin();
    let run = move || {
        let _running = running;
        match kind {
            ServerThread::Polls => poll(&drive, task),
            ServerThread::Sleeps => drive::block_on(&drive, task),
        }
    };
    let refused = |_| Fault::new(FaultKind::Refused).with_detail(Errno::AGAIN.raw_os_error() as u32);
    thread::Builder::new().name(kind.name().into()).spawn(run).map_err(refused)
}

fn poll<D: Drive>(drive: &D, mut task: Task) {
    let _blocking = Blocking::begin();
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    // A rank with a polling server thread needs two cores.
    let how = drive.polls();
    let polls = if how.core != Core::Own || cores < 2 * drive.size() as usize { POLLS_OVERSUBSCRIBED } else { POLLS };
    let mut cx = Context::from_waker(drive::NOBODY);
    let mut turn = 0_u32;
    while task.as_mut().poll(&mut cx).is_pending() {
        drive.progress();
        turn = turn.wrapping_add(1);
        if turn.is_multiple_of(polls) { thread::yield_now() } else { how.pause() }
    }
}

/// The server threads that all windows of a rank share, one of each kind. Each exists while it has
/// tasks.
#[derive(Default)]
pub(crate) struct ServerThreads([Mutex<Weak<Pool>>; 2]);

impl ServerThreads {
    /// Runs a task on the rank's thread of this kind. The caller wakes the thread, which may be
    /// asleep.
    pub(crate) fn run<F: Fabric>(&self, fabric: &F, task: Task, kind: ServerThread) -> Result<(), Fault> {
        let mut current = lock(&self.0[kind as usize]);
        let left = match current.upgrade() {
            Some(pool) => pool.take(task),
            None => Some(task),
        };
        let Some(task) = left else { return Ok(()) };
        let pool = Arc::new(Pool(Mutex::new(Some(vec![task]))));
        fabric.endpoint().serve(Arc::clone(&pool).task(), Some(kind))?;
        *current = Arc::downgrade(&pool);
        Ok(())
    }
}

debug!([] ServerThreads, |this| "{:?}", this.0.each_ref().map(|pool| lock(pool).strong_count() > 0));

/// New tasks that were not polled yet; `None` once the thread has ended.
struct Pool(Mutex<Option<Vec<Task>>>);

impl Pool {
    /// Takes a task; returns it if the thread has ended.
    fn take(&self, task: Task) -> Option<Task> {
        match &mut *lock(&self.0) {
            Some(tasks) => {
                tasks.push(task);
                None
            }
            None => Some(task),
        }
    }

    /// One future that runs all tasks and completes when none is left.
    fn task(self: Arc<Self>) -> Task {
        let mut mine: Vec<Task> = Vec::new();
        Box::pin(poll_fn(move |cx| {
            mine.append(lock(&self.0).get_or_insert_default());
            // A panic ends one task and leaves the others running.
            mine.retain_mut(|task| {
                matches!(catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(cx))), Ok(Poll::Pending))
            });
            let mut new = lock(&self.0);
            if !mine.is_empty() || new.as_ref().is_some_and(|new| !new.is_empty()) {
                return Poll::Pending;
            }
            *new = None;
            Poll::Ready(())
        }))
    }
}

#[cfg(all(test, not(onesided_loom)))]
mod tests {
    use std::future::{pending, ready};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    use super::*;

    /// Waits for another thread's action, with a time limit.
    fn comes(what: impl Fn() -> bool) -> bool {
        let end = Instant::now() + Duration::from_secs(20);
        while !what() && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
        what()
    }

    fn threads_named(name: &str) -> usize {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        tasks
            .filter(|task| std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name))
            .count()
    }

    #[test]
    fn a_pool_ends_with_its_last_task_and_begins_anew() {
        for kind in [ServerThread::Polls, ServerThread::Sleeps] {
            crate::shm::threads(1, |shm| {
                let (pools, ran) = (ServerThreads::default(), Arc::new(AtomicU32::new(0)));
                for round in 1..4 {
                    let ran = Arc::clone(&ran);
                    let task = async move {
                        ran.fetch_add(1, Ordering::Relaxed);
                    };
                    pools.run(&shm, Box::pin(task), kind).unwrap();
                    assert!(comes(|| pools.0[kind as usize].lock().unwrap().strong_count() == 0), "{round}");
                }
                assert_eq!(ran.load(Ordering::Relaxed), 3);
                assert!(comes(|| threads_named(kind.name()) == 0));
            })
            .unwrap();
        }
    }

    #[test]
    fn one_that_panics_does_not_end_the_others() {
        let pool = Arc::new(Pool(Mutex::new(Some(vec![
            Box::pin(async { panic!("on purpose") }),
            Box::pin(pending()),
            Box::pin(ready(())),
        ]))));
        let mut task = Arc::clone(&pool).task();
        assert!(task.as_mut().poll(&mut Context::from_waker(drive::NOBODY)).is_pending());
        assert!(pool.take(Box::pin(ready(()))).is_none());
        assert!(task.as_mut().poll(&mut Context::from_waker(drive::NOBODY)).is_pending());
    }
}
