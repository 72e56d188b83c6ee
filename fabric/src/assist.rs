//! Threads that assist: tasks that serve peers, on a thread of their own or one for all of a rank.

use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};

use onesided_remote_memory::{Fault, FaultKind};
use rustix::io::Errno;

use crate::drive::{self, Blocking};
use crate::{Drive, Fabric, Task};

/// How a thread that assists waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerThread {
    /// It looks, again and again: a core is spent on it.
    Polls,
    /// It sleeps until something happens to its rank.
    Sleeps,
}

impl ServerThread {
    /// The name of the thread.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Polls => "onesided-poll",
            Self::Sleeps => "onesided-event",
        }
    }
}

/// Every so many looks a thread that polls gives its core away, if somebody else wants it: whoever it waits for may.
const LOOKS: u32 = 256;
/// The same where there are more threads than cores.
const LOOKS_CROWDED: u32 = 16;

/// How many such threads this process has.
static ATTENDING: AtomicU32 = AtomicU32::new(0);

/// Whether this process has any.
pub(crate) fn attends() -> bool {
    ATTENDING.load(Ordering::Relaxed) > 0
}

/// One of them, while it runs.
pub(crate) struct Attending;

impl Attending {
    pub(crate) fn begin() -> Self {
        ATTENDING.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for Attending {
    fn drop(&mut self) {
        ATTENDING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs a task to its end on a thread of its own, which drives the fabric.
pub(crate) fn spawn<D: Drive>(drive: &D, task: Task, attendant: ServerThread) -> Result<JoinHandle<()>, Fault> {
    let drive = drive.clone();
    let attending = Attending::begin();
    let run = move || {
        let _attending = attending;
        match attendant {
            ServerThread::Polls => poll(&drive, task),
            ServerThread::Sleeps => drive::block_on(&drive, task),
        }
    };
    let refused = |_| Fault::new(FaultKind::Refused).with_detail(Errno::AGAIN.raw_os_error() as u32);
    thread::Builder::new().name(attendant.name().into()).spawn(run).map_err(refused)
}

fn poll<D: Drive>(drive: &D, mut task: Task) {
    let _blocking = Blocking::begin();
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    // A rank with such a thread has two that look.
    let looks = if drive.oversubscribed() || drive.shares_its_core() || cores < 2 * drive.size() as usize {
        LOOKS_CROWDED
    } else {
        LOOKS
    };
    let mut cx = Context::from_waker(drive::NOBODY);
    let mut turn = 0_u32;
    while task.as_mut().poll(&mut cx).is_pending() {
        drive.progress();
        turn = turn.wrapping_add(1);
        if turn.is_multiple_of(looks) { thread::yield_now() } else { drive.relax() }
    }
}

/// The threads that all windows of a rank share, one of a kind; there while they have something to do.
#[derive(Default)]
pub(crate) struct Attendants([Mutex<Weak<Pool>>; 2]);

impl Attendants {
    /// Has a task run by the rank's thread of this kind. Whoever asks has to wake it: it may sleep.
    pub(crate) fn run<F: Fabric>(&self, fabric: &F, task: Task, attendant: ServerThread) -> Result<(), Fault> {
        let mut current = lock(&self.0[attendant as usize]);
        let left = match current.upgrade() {
            Some(pool) => pool.take(task),
            None => Some(task),
        };
        let Some(task) = left else { return Ok(()) };
        let pool = Arc::new(Pool(Mutex::new(Some(vec![task]))));
        fabric.serve_apart(Arc::clone(&pool).task(), attendant)?;
        *current = Arc::downgrade(&pool);
        Ok(())
    }
}

impl fmt::Debug for Attendants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|pool| lock(pool).strong_count() > 0)).finish()
    }
}

/// Tasks that came and were not polled yet; `None` once the thread has ended.
struct Pool(Mutex<Option<Vec<Task>>>);

impl Pool {
    /// Takes a task, or gives it back if the thread has ended.
    fn take(&self, task: Task) -> Option<Task> {
        match &mut *lock(&self.0) {
            Some(tasks) => {
                tasks.push(task);
                None
            }
            None => Some(task),
        }
    }

    /// All of them as one, until there is none.
    fn task(self: Arc<Self>) -> Task {
        let mut mine: Vec<Task> = Vec::new();
        Box::pin(poll_fn(move |cx| {
            mine.append(lock(&self.0).get_or_insert_default());
            // One that panics is over; the others are not.
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, not(onesided_loom)))]
mod tests {
    use std::future::{pending, ready};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    use super::*;

    /// Waits for what another thread does, but not for ever.
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
        for attendant in [ServerThread::Polls, ServerThread::Sleeps] {
            crate::shm::threads(1, |shm| {
                let (pools, ran) = (Attendants::default(), Arc::new(AtomicU32::new(0)));
                for round in 1..4 {
                    let ran = Arc::clone(&ran);
                    let task = async move {
                        ran.fetch_add(1, Ordering::Relaxed);
                    };
                    pools.run(&shm, Box::pin(task), attendant).unwrap();
                    assert!(comes(|| pools.0[attendant as usize].lock().unwrap().strong_count() == 0), "{round}");
                }
                assert_eq!(ran.load(Ordering::Relaxed), 3);
                assert!(comes(|| threads_named(attendant.name()) == 0));
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
