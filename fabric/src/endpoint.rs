//! What the endpoints of all real fabrics have: who waits, and what was adopted.
//!
//! A thread that blocks drives the fabric itself. Everybody else (a task of an async runtime, work whose caller walked
//! away) is served by the endpoint's helper thread: started when first needed, asleep while there is nothing to do.
//!
//! No task misses what it waits for, because each looks again after the helper has armed the doorbell on which it
//! sleeps: those that wait already are woken by the helper between its arming and its sleep, and a task that comes while
//! the helper sleeps is polled once more at once. A task that waits is polled for nothing else than an event of its rank
//! or a time that is due.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::sleep;
use std::time::{Duration, Instant};

use onesided_remote_memory::{Fault, FaultKind};
use rustix::io::Errno;

use crate::drive::{self, Blocking};
use crate::sync::{Condvar, Mutex, MutexGuard, thread};
use crate::{Task, Ticket};

/// How long an application that leaves waits for what it walked away from.
const SETTLE: Duration = Duration::from_secs(2);

/// What the helper thread holds of a fabric: enough to sleep and to be woken, and nothing that keeps the rank in its
/// job. The last handle of a rank may be dropped at any time, and the process may end right after it.
pub(crate) trait Driver: Send + Sync + 'static {
    /// See [`RemoteMemory::now`](onesided_remote_memory::RemoteMemory::now).
    fn now(&self) -> u64;
    /// See [`Drive::progress`](crate::Drive::progress).
    fn progress(&self);
    /// See [`Drive::arm`](crate::Drive::arm).
    fn arm(&self) -> Ticket;
    /// See [`Drive::sleep`](crate::Drive::sleep).
    fn sleep(&self, ticket: Ticket, until: u64);
    /// Ends the sleep of every thread of this rank that has armed.
    fn wake(&self);
    /// The same for all but the caller, which has armed. Gives the ticket to sleep on in place of its own.
    fn wake_others(&self, armed: Ticket) -> Ticket;
}

/// The part of an endpoint that knows no fabric.
#[derive(Debug)]
pub(crate) struct Endpoint<D: Driver> {
    shared: Arc<Shared<D>>,
}

struct Shared<D> {
    driver: D,
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<Waiting>,
    adopted: Vec<Adopted>,
    /// How many tasks that somebody waits for the helper has taken out to poll them.
    running: usize,
    started: bool,
    /// Until when the helper sleeps, or is about to.
    asleep: Option<u64>,
    closed: bool,
}

/// A task that the helper runs.
struct Adopted {
    task: Task,
    /// Whether it serves others for as long as there is something to serve: nobody waits for its end.
    serves: bool,
}

impl State {
    /// How many tasks are not finished that somebody waits for.
    fn unfinished(&self) -> usize {
        self.adopted.iter().filter(|adopted| !adopted.serves).count() + self.running
    }
}

/// A task that some async runtime polls.
struct Waiting {
    waker: Waker,
    /// When to wake it at the latest.
    until: u64,
    /// Whether it waits again since it was last woken. One that does not has perhaps finished: it is forgotten.
    again: bool,
}

impl<D> fmt::Debug for Shared<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        write!(f, "{} waiting, {} adopted", state.waiting.len(), state.unfinished())
    }
}

impl<D: Driver> Endpoint<D> {
    pub(crate) fn new(driver: D) -> Self {
        let (state, work) = (Mutex::new(State::default()), Condvar::new());
        Self { shared: Arc::new(Shared { driver, state, work }) }
    }

    pub(crate) fn driver(&self) -> &D {
        &self.shared.driver
    }

    /// What a future that cannot go on calls before it returns `Pending`: it is polled again at `until` at the latest,
    /// or when something happens.
    pub(crate) fn pend(&self, cx: &Context<'_>, until: u64) {
        let Shared { driver, .. } = &*self.shared;
        let again = drive::look_again(until) // The thread polls again, and a collection of futures those woken.
            || cx.waker().will_wake(drive::NOBODY) // Whoever polls with it polls again by itself.
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
        // It looked before it was known here, perhaps before the helper armed: it looks once more.
        let unseen = new && asleep.is_some();
        if !self.call_helper() || unseen {
            cx.waker().wake_by_ref();
        }
        if asleep.is_some_and(|end| until < end) {
            driver.wake();
        }
    }

    /// See [`Fabric::spawn`](crate::Fabric::spawn).
    pub(crate) fn spawn(&self, task: Task) {
        // Without a helper it stays until one can be started.
        self.take_on(Adopted { task, serves: false });
    }

    /// See [`Fabric::serve`](crate::Fabric::serve).
    pub(crate) fn serve(&self, task: Task) -> Result<(), Fault> {
        if !self.call_helper() {
            return Err(Fault::new(FaultKind::Refused).with_detail(Errno::AGAIN.raw_os_error() as u32));
        }
        self.take_on(Adopted { task, serves: true });
        Ok(())
    }

    fn take_on(&self, adopted: Adopted) {
        self.shared.lock().adopted.push(adopted);
        self.call_helper();
        self.shared.driver.wake();
    }

    /// Waits until the adopted tasks are finished, but not for long: the application is leaving.
    pub(crate) fn settle(&self) {
        let deadline = Instant::now() + SETTLE;
        while self.adopted() > 0 && Instant::now() < deadline {
            sleep(Duration::from_micros(100)); // the helper thread is at it
        }
    }

    /// How many adopted tasks are not finished.
    pub(crate) fn adopted(&self) -> usize {
        self.shared.lock().unfinished()
    }

    /// Tells the helper that there is work, or starts it. `false` if no thread is to be had: the next caller tries again.
    fn call_helper(&self) -> bool {
        if std::mem::replace(&mut self.shared.lock().started, true) {
            self.shared.work.notify_one();
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

impl<D: Driver> Drop for Endpoint<D> {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_one();
        self.shared.driver.wake();
    }
}

impl<D> Shared<D> {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Driver> Shared<D> {
    /// The helper thread.
    fn help(&self) {
        while self.has_work() {
            let blocking = Blocking::begin();
            let ticket = self.driver.arm();
            self.driver.progress();
            self.run_adopted();
            // From here on who comes and may not wait that long wakes us.
            let (woken, until) = self.fall_asleep(blocking.earliest());
            let any = !woken.is_empty();
            woken.into_iter().for_each(Waker::wake);
            // A thread that blocks may be the one to poll what was woken now, and sleeps by the doorbell.
            let ticket = if any { self.driver.wake_others(ticket) } else { ticket };
            self.driver.sleep(ticket, until);
            drop(blocking);
        }
    }

    /// Waits until there is something to do; `false` once the endpoint is closed.
    fn has_work(&self) -> bool {
        let mut state = self.lock();
        state.asleep = None;
        state.waiting.retain(|waiting| waiting.again);
        while state.waiting.is_empty() && state.adopted.is_empty() && !state.closed {
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.closed
    }

    fn run_adopted(&self) {
        let mut tasks = {
            let mut state = self.lock();
            state.running = state.unfinished();
            std::mem::take(&mut state.adopted)
        };
        let mut cx = Context::from_waker(Waker::noop());
        tasks.retain_mut(|Adopted { task, .. }| {
            // One that panics is over; the others are not.
            let polled = catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(&mut cx)));
            matches!(polled, Ok(Poll::Pending))
        });
        let mut state = self.lock();
        state.running = 0;
        state.adopted.append(&mut tasks);
    }

    /// Whom to wake now, because all have to look after the arming, and until when to sleep: until `earliest`, or until
    /// the first time that somebody named; not at all if the endpoint was closed before the arming.
    fn fall_asleep(&self, earliest: u64) -> (Vec<Waker>, u64) {
        let now = self.driver.now();
        let mut state = self.lock();
        // Who is due has been woken by now, and names another time when it waits again.
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
