//! What the endpoints of all real fabrics share: registered wakers and spawned tasks.
//!
//! A thread that blocks drives the fabric itself. Everything else (tasks of an async runtime,
//! spawned background work) is served by the endpoint's progress thread, which starts when first
//! needed and sleeps while there is nothing to do.
//!
//! No task misses its event, because each polls again after the progress thread has armed the
//! doorbell on which it sleeps. The progress thread wakes the tasks registered before its arming
//! between the arming and its sleep, and it polls a task that arrives while it sleeps once more at
//! once. A waiting task is polled only after an event of its rank or at its deadline.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::sleep;
use std::time::{Duration, Instant};

use onesided_job::fork::is_child;
use onesided_remote_memory::{Fault, FaultKind, Rank};
use rustix::io::Errno;

use crate::interface::background::BackgroundSlot;
use crate::util::sync::{Condvar, Mutex, MutexGuard, thread};
use crate::waiting::drive::{self, Blocking};
use crate::waiting::waits::{self, Waiter};
use crate::{Task, Ticket};

/// How long a leaving application waits for its background work.
const GRACE_PERIOD: Duration = Duration::from_secs(2);

/// The part of a fabric that the progress thread holds: enough to sleep and to be woken, and
/// nothing that keeps the rank in its job. The last handle of a rank may be dropped at any time,
/// and the process may end right after.
///
/// To sleep without losing a wake-up: [`arm`](Self::arm), poll again, then [`sleep`](Self::sleep)
/// with the ticket. An event in between ends the sleep at once.
pub trait Driver: Send + Sync + 'static {
    /// See [`RemoteMemory::now`](onesided_remote_memory::RemoteMemory::now).
    fn now(&self) -> u64 {
        drive::now()
    }
    /// See [`Drive::progress`](crate::Drive::progress).
    fn progress(&self) {}
    /// Announces that this thread is about to sleep.
    fn arm(&self) -> Ticket;
    /// Sleeps until an event that came after [`arm`](Self::arm), or until `until`, not at all if that is
    /// 0. May return early for no reason. Takes the announcement back.
    fn sleep(&self, ticket: Ticket, until: u64);
    /// Ends the sleep of all threads of this rank that have armed.
    fn wake(&self);
    /// The same for all but the caller, which has armed. Returns the ticket to sleep on instead of
    /// its own.
    fn wake_others(&self, armed: Ticket) -> Ticket;
}

/// What a rank's endpoint does beside operations: its threads sleep by it, and its tasks run in the
/// background.
#[derive(Debug)]
pub struct Tasks {
    shared: Arc<Shared>,
}

struct Shared {
    driver: Box<dyn Driver>,
    state: Mutex<State>,
    work: Condvar,
    background: BackgroundSlot,
}

#[derive(Default)]
struct State {
    waiting: Vec<Waiting>,
    spawned: Vec<Spawned>,
    /// How many tasks that count as unfinished the progress thread is polling.
    running: usize,
    started: bool,
    /// Until when the progress thread sleeps, or is about to.
    asleep: Option<u64>,
    closed: bool,
}

/// A task that the progress thread runs.
struct Spawned {
    task: Task,
    /// Whether it serves peers and has no awaited end.
    serves: bool,
}

impl State {
    /// The number of unfinished tasks with an awaited end.
    fn unfinished(&self) -> usize {
        self.spawned.iter().filter(|spawned| !spawned.serves).count() + self.running
    }
}

/// A registered waker of a task in an async runtime.
struct Waiting {
    waker: Waker,
    /// The deadline of its wake-up.
    until: u64,
    /// Whether it registered again since its last wake-up. If not, it may have finished and is
    /// forgotten.
    again: bool,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        write!(f, "{} waiting, {} adopted", state.waiting.len(), state.unfinished())
    }
}

impl Tasks {
    /// Of a rank whose threads sleep by this driver.
    pub fn new(driver: impl Driver) -> Self {
        let driver = Box::new(driver);
        let (state, work) = (Mutex::new(State::default()), Condvar::new());
        Self { shared: Arc::new(Shared { driver, state, work, background: BackgroundSlot::default() }) }
    }

    /// Whoever asks what this process waits for asks this rank too, from now on.
    pub fn is_of(&self, rank: Rank) {
        let shared = Arc::downgrade(&self.shared);
        waits::register(rank, shared);
    }

    pub(crate) fn arm(&self) -> Ticket {
        self.shared.driver.arm()
    }

    pub(crate) fn sleep(&self, ticket: Ticket, until: u64) {
        self.shared.driver.sleep(ticket, until);
    }

    /// Registers the waker of a pending future: it is polled again at `until` at the latest, or
    /// after an event.
    pub fn register_waker(&self, cx: &Context<'_>, until: u64) {
        let Shared { driver, .. } = &*self.shared;
        let again = drive::look_again(until) // The thread polls again; a collection of futures polls the woken ones.
            || cx.waker().will_wake(drive::NOBODY) // The polling thread polls again by itself.
            || until <= driver.now();
        if again {
            return cx.waker().wake_by_ref();
        }
        let mut state = self.shared.lock();
        let known = state.waiting.iter_mut().find(|waiting| waiting.waker.will_wake(cx.waker()));
        let new = known.is_none();
        match known {
            Some(known) => {
                known.until = if known.again { until.min(known.until) } else { until };
                known.again = true;
            }
            None => state.waiting.push(Waiting { waker: cx.waker().clone(), until, again: true }),
        }
        let asleep = state.asleep;
        drop(state);
        // It polled before it was registered, perhaps before the progress thread armed: it polls
        // once more.
        let unseen = new && asleep.is_some();
        if !self.wake_or_start() || unseen {
            cx.waker().wake_by_ref();
        }
        if asleep.is_some_and(|end| until < end) {
            driver.wake();
        }
    }

    /// See [`Endpoint::background`](crate::Endpoint::background).
    pub fn background(&self) -> &BackgroundSlot {
        &self.shared.background
    }

    /// See [`Endpoint::spawn`](crate::Endpoint::spawn).
    pub fn spawn(&self, task: Task) {
        if is_child() {
            return std::mem::forget(task); // a copy of its parent's
        }
        // If no thread can be started, the task stays until one can.
        self.push_task(Spawned { task, serves: false });
    }

    /// See [`Endpoint::serve`](crate::Endpoint::serve).
    ///
    /// # Errors
    /// As there.
    pub fn serve(&self, mut task: Task) -> Result<(), Fault> {
        if !self.start() {
            return Err(Fault::new(FaultKind::Refused).with_detail(Errno::AGAIN.raw_os_error() as u32));
        }
        // What is over at once needs the thread to be there, and not to wake.
        if task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            self.push_task(Spawned { task, serves: true });
        }
        Ok(())
    }

    fn push_task(&self, spawned: Spawned) {
        self.shared.lock().spawned.push(spawned);
        self.wake_or_start();
        self.shared.driver.wake();
    }

    /// Waits briefly until the spawned tasks are finished: the application is leaving. Then drops
    /// them, because the others count this rank as gone from here on.
    pub fn finish_spawned(&self) {
        self.shared.driver.wake();
        let deadline = Instant::now() + GRACE_PERIOD;
        while self.unfinished() > 0 && Instant::now() < deadline + GRACE_PERIOD {
            sleep(Duration::from_micros(100)); // the progress thread works on them
            if Instant::now() >= deadline {
                let late: Vec<_> = self.shared.lock().spawned.extract_if(.., |spawned| !spawned.serves).collect();
                drop(late); // after the state's lock was released
            }
        }
    }

    /// The number of unfinished spawned tasks.
    pub fn unfinished(&self) -> usize {
        self.shared.lock().unfinished()
    }

    /// Notifies the progress thread of work, or starts it, as [`start`](Self::start).
    fn wake_or_start(&self) -> bool {
        self.shared.work.notify_one();
        self.start()
    }

    /// Starts the progress thread, if it is not there. `false` if it cannot be started: the next caller
    /// tries again.
    fn start(&self) -> bool {
        if std::mem::replace(&mut self.shared.lock().started, true) {
            return true;
        }
        let shared = Arc::clone(&self.shared);
        let started = thread::Builder::new().name("onesided".into()).spawn(move || shared.help()).is_ok();
        if !started {
            self.shared.lock().started = false;
        }
        started
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_one();
        self.shared.driver.wake();
    }
}

impl Waiter for Shared {
    fn wake(&self) {
        self.driver.wake();
    }

    fn describe(&self) -> Vec<String> {
        self.background.get().map_or_else(Vec::new, |background| background.describe())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The progress thread.
    fn help(&self) {
        while self.has_work() {
            let blocking = Blocking::begin();
            let ticket = self.driver.arm();
            self.driver.progress();
            self.background.advance();
            self.run_spawned();
            // From here on, a registration with an earlier deadline wakes this thread.
            let (woken, until) = self.fall_asleep(blocking.earliest());
            let any = !woken.is_empty();
            woken.into_iter().for_each(Waker::wake);
            // A blocking thread that polls a future woken now may sleep by the doorbell.
            let ticket = if any { self.driver.wake_others(ticket) } else { ticket };
            self.driver.sleep(ticket, until);
            drop(blocking);
        }
    }

    /// Waits until there is work; `false` once the endpoint is closed.
    fn has_work(&self) -> bool {
        let mut state = self.lock();
        state.asleep = None;
        state.waiting.retain(|waiting| waiting.again);
        while state.waiting.is_empty() && state.spawned.is_empty() && !state.closed {
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.closed
    }

    fn run_spawned(&self) {
        let mut tasks = {
            let mut state = self.lock();
            state.running = state.unfinished();
            std::mem::take(&mut state.spawned)
        };
        let mut cx = Context::from_waker(Waker::noop());
        tasks.retain_mut(|Spawned { task, .. }| {
            // A panic ends one task and leaves the others running.
            let polled = catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(&mut cx)));
            matches!(polled, Ok(Poll::Pending))
        });
        let mut state = self.lock();
        state.running = 0;
        state.spawned.append(&mut tasks);
    }

    /// Returns the wakers to wake now, because every task polls after the arming, and the end of
    /// the sleep: `earliest` or the first registered deadline; no sleep if the endpoint was closed
    /// before the arming.
    fn fall_asleep(&self, earliest: u64) -> (Vec<Waker>, u64) {
        let now = self.driver.now();
        let mut state = self.lock();
        // Due tasks have been woken by now, and register a new deadline if they wait again.
        let times = state.waiting.iter().map(|waiting| waiting.until).filter(|until| *until > now);
        let until = if state.closed { 0 } else { times.fold(earliest, u64::min) };
        state.asleep = Some(until);
        let wake = |waiting: &mut Waiting| {
            waiting.again = false;
            waiting.waker.clone()
        };
        (state.waiting.iter_mut().map(wake).collect(), until)
    }
}

/// The [endpoint](crate::Endpoint) of a fabric whose tasks are in a field `endpoint`. Arguments: the fabric, its job segment
/// and its job.
macro_rules! endpoint {
    ($fabric:ty, |$this:ident| $job_segment:expr, $job:expr) => {
        impl $crate::Endpoint for $fabric {
            fn spawn(&self, task: $crate::Task) {
                self.0.endpoint.spawn(task);
            }

            fn serve(
                &self,
                task: $crate::Task,
                thread: Option<$crate::ServerThread>,
            ) -> Result<Option<std::thread::JoinHandle<()>>, Fault> {
                match thread {
                    Some(kind) => $crate::waiting::server_threads::spawn(self, task, kind).map(Some),
                    None => self.0.endpoint.serve(task).map(|()| None),
                }
            }

            fn background(&self) -> Option<&$crate::BackgroundSlot> {
                Some(self.0.endpoint.background())
            }

            fn departed(&self, since: u32) -> (u32, Vec<Rank>) {
                let $this = self;
                $job_segment.departed(since)
            }

            fn leave(&self) {
                self.0.endpoint.finish_spawned();
                self.0.leave();
            }

            fn abort(&self, status: u8) -> ! {
                let $this = self;
                $job.abort(status)
            }
        }
    };
}

pub(crate) use endpoint;
