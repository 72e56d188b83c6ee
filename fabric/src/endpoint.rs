//! What the endpoints of all real fabrics have: who waits, what was adopted, mail by port.
//!
//! A thread that blocks drives the fabric itself. Everybody else (a task of an async runtime, work whose caller walked
//! away) is served by the endpoint's helper thread: started when first needed, asleep while there is nothing to do.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use remote_memory::{Fault, FaultKind, Liveness, Message, Patience, Port, Watch};

use crate::drive::{self, Blocking};
use crate::fabric::check_rank;
use crate::{Drive, Task, Ticket};

/// The most messages that wait at one port; a sender then waits as for a full ring.
const PORT_LIMIT: usize = 1 << 16;

/// How long an application that leaves waits for what it walked away from.
const SETTLE: Duration = Duration::from_secs(2);

/// The part of an endpoint that knows no fabric.
#[derive(Debug, Default)]
pub(crate) struct Endpoint {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    /// Wakers of tasks that some async runtime polls, and when to wake each at the latest.
    waiting: Vec<(Waker, u64)>,
    adopted: Vec<Task>,
    /// Tasks that the helper has taken out to poll them.
    running: usize,
    /// Whether a task was adopted that the helper has not polled.
    fresh: bool,
    helper: Helper,
    started: bool,
    closed: bool,
}

/// What the helper is at, as far as those who have work for it must know.
#[derive(Clone, Copy, Default)]
enum Helper {
    /// It will look at the state before it sleeps. No doorbell rings for it.
    #[default]
    Idle,
    /// So it is, but somebody has armed the doorbell on its behalf.
    Armed(Ticket),
    /// It is armed, and looks at what is there before it sleeps.
    Looking,
    /// It sleeps until then at the latest.
    Asleep(u64),
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        write!(f, "{} waiting, {} adopted", state.waiting.len(), state.adopted.len() + state.running)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A fabric whose endpoint is an [`Endpoint`].
pub(crate) trait Driven: Drive {
    /// Its endpoint.
    fn endpoint(&self) -> &Endpoint;

    /// A way to the fabric that does not keep it alive.
    fn downgrade(&self) -> impl Fn() -> Option<Self> + Send + 'static;

    /// What a future that cannot go on calls before it returns `Pending`: the thread that blocks on it will look again
    /// at `until` at the latest; a task of an async runtime is woken by then, or when something happens.
    fn pend(&self, cx: &Context<'_>, until: u64) {
        // A thread that blocks polls once before it says so, with the waker of nobody.
        if drive::look_again(until) || cx.waker().will_wake(drive::NOBODY) {
            return;
        }
        let mut state = self.endpoint().shared.lock();
        let known = state.waiting.iter_mut().find(|(waker, _)| waker.will_wake(cx.waker()));
        let is_new = known.is_none();
        match known {
            Some((_, earliest)) => *earliest = until.min(*earliest),
            None => state.waiting.push((cx.waker().clone(), until)),
        }
        if matches!(state.helper, Helper::Idle) {
            state.helper = Helper::Armed(self.arm());
        }
        let too_late = matches!(state.helper, Helper::Asleep(due) if until < due);
        call_helper(self, state, too_late);
        if is_new {
            // What happened after its look and before the doorbell was armed rang for nobody: it has to look once more.
            cx.waker().wake_by_ref();
        }
    }

    /// The fault of a wait that somebody's end ended, if it did.
    fn ended(&self, patience: Patience) -> Result<(), Fault> {
        let (rank, any) = match patience.watch {
            Watch::Nobody => return Ok(()),
            Watch::Rank(rank) => (rank, None),
            Watch::All(rank) => (rank, self.casualty()),
        };
        check_rank(self, rank)?;
        match (self.liveness(rank), any) {
            (_, Some(dead)) => Err(Fault::of(FaultKind::PeerDied, dead)),
            (Liveness::Dead, None) => Err(Fault::of(FaultKind::PeerDied, rank)),
            (Liveness::Left, None) => Err(Fault::of(FaultKind::PeerLeft, rank)),
            (Liveness::Alive, None) => Ok(()),
        }
    }

    /// What a wait reports that is not satisfied: the deadline, somebody's end, or nothing yet.
    fn out_of_patience(&self, patience: Patience) -> Result<(), Fault> {
        self.ended(patience)?;
        if patience.deadline != u64::MAX && self.now() >= patience.deadline {
            return Err(Fault::new(FaultKind::TimedOut));
        }
        Ok(())
    }

    /// See [`Fabric::adopt`](crate::Fabric::adopt).
    fn take_over(&self, task: Task) {
        let mut state = self.endpoint().shared.lock();
        state.adopted.push(task);
        state.fresh = true;
        let too_late = matches!(state.helper, Helper::Asleep(_));
        call_helper(self, state, too_late);
    }

    /// Ends the sleep of every thread of this rank.
    fn nudge(&self);
}

impl Endpoint {
    /// Waits until the adopted tasks are finished, but not for long: the application is leaving.
    pub(crate) fn settle(&self) {
        let deadline = Instant::now() + SETTLE;
        while self.adopted() > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(100)); // the helper thread is at it
        }
    }

    /// How many adopted tasks are not finished.
    pub(crate) fn adopted(&self) -> usize {
        let state = self.shared.lock();
        state.adopted.len() + state.running
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_all();
    }
}

/// Lets the helper know of work; starts it if there is none yet. `too_late`: it sleeps past what is due.
fn call_helper<D: Driven>(driven: &D, mut state: MutexGuard<'_, State>, too_late: bool) {
    let shared = &driven.endpoint().shared;
    if !state.started {
        let (theirs, upgrade) = (Arc::clone(shared), driven.downgrade());
        let started = std::thread::Builder::new().name("onesided".into()).spawn(move || help(&theirs, upgrade));
        state.started = started.is_ok(); // no thread to be had: the next caller tries again
    }
    drop(state);
    shared.work.notify_one();
    if too_late {
        driven.nudge();
    }
}

/// The helper thread.
fn help<D: Driven>(shared: &Shared, upgrade: impl Fn() -> Option<D>) {
    loop {
        let mut state = shared.lock();
        while state.waiting.is_empty() && state.adopted.is_empty() && !state.closed {
            state = shared.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let Some(fabric) = upgrade().filter(|_| !state.closed) else { return };
        // Armed before anything is looked at.
        let ticket = match state.helper {
            Helper::Armed(ticket) => ticket,
            _ => fabric.arm(),
        };
        state.helper = Helper::Looking;
        drop(state);
        let blocking = Blocking::begin();
        fabric.progress();
        run_adopted(shared);
        let mut state = shared.lock();
        if state.fresh || state.closed {
            drop(state);
            fabric.disarm(ticket);
        } else {
            let earliest = state.waiting.iter().fold(blocking.earliest(), |earliest, (_, until)| earliest.min(*until));
            state.helper = Helper::Asleep(earliest);
            drop(state);
            fabric.sleep(ticket, earliest);
        }
        drop(blocking);
        let mut state = shared.lock();
        state.helper = Helper::Idle;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(|(waker, _)| waker.wake());
    }
}

fn run_adopted(shared: &Shared) {
    let mut tasks = {
        let mut state = shared.lock();
        state.running = state.adopted.len();
        state.fresh = false;
        std::mem::take(&mut state.adopted)
    };
    let mut cx = Context::from_waker(drive::NOBODY);
    tasks.retain_mut(|task| task.as_mut().poll(&mut cx) == Poll::Pending);
    let mut state = shared.lock();
    state.running = 0;
    state.adopted.append(&mut tasks);
}

/// The messages that have arrived, by port.
#[derive(Debug, Default)]
pub(crate) struct Ports([PortQueue; Port::COUNT]);

#[derive(Debug, Default)]
struct PortQueue {
    len: AtomicUsize,
    queue: Mutex<VecDeque<Message>>,
}

impl Ports {
    fn port(&self, port: Port) -> Result<&PortQueue, Fault> {
        self.0.get(usize::from(port.0)).ok_or(Fault::new(FaultKind::Protocol).with_detail(u32::from(port.0)))
    }

    /// Whether a message for this port could be taken in.
    pub(crate) fn has_room(&self, port: Port) -> bool {
        self.port(port).is_ok_and(|queue| queue.len.load(Ordering::Relaxed) < PORT_LIMIT)
    }

    /// Takes a message in.
    pub(crate) fn push(&self, port: Port, message: Message) -> Result<(), Fault> {
        let port = self.port(port)?;
        let mut queue = port.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push_back(message);
        port.len.store(queue.len(), Ordering::Relaxed);
        Ok(())
    }

    /// The oldest message of a port.
    pub(crate) fn pop(&self, port: Port) -> Result<Option<Message>, Fault> {
        let port = self.port(port)?;
        if port.len.load(Ordering::Relaxed) == 0 {
            return Ok(None);
        }
        let mut queue = port.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let message = queue.pop_front();
        port.len.store(queue.len(), Ordering::Relaxed);
        Ok(message)
    }
}
