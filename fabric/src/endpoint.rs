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
use crate::{Drive, Task};

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
    started: bool,
    closed: bool,
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
        match state.waiting.iter_mut().find(|(waker, _)| waker.will_wake(cx.waker())) {
            Some((_, earliest)) => *earliest = until.min(*earliest),
            None => state.waiting.push((cx.waker().clone(), until)),
        }
        drop(state);
        self.call_helper();
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
        self.endpoint().shared.lock().adopted.push(task);
        self.call_helper();
    }

    /// Wakes the helper, or starts it.
    fn call_helper(&self) {
        let shared = &self.endpoint().shared;
        if std::mem::replace(&mut shared.lock().started, true) {
            shared.work.notify_one();
        } else {
            let (theirs, upgrade) = (Arc::clone(shared), self.downgrade());
            let started = std::thread::Builder::new().name("onesided".into()).spawn(move || help(&theirs, upgrade));
            // No thread to be had: the next caller tries again.
            shared.lock().started = started.is_ok();
        }
        // It may sleep on the fabric rather than on the condition.
        self.nudge();
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

/// The helper thread.
fn help<D: Driven>(shared: &Shared, upgrade: impl Fn() -> Option<D>) {
    loop {
        {
            let mut state = shared.lock();
            while state.waiting.is_empty() && state.adopted.is_empty() && !state.closed {
                state = shared.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        let Some(fabric) = upgrade() else { return };
        let blocking = Blocking::begin();
        let ticket = fabric.arm();
        fabric.progress();
        run_adopted(shared);
        let earliest = {
            let state = shared.lock();
            state.waiting.iter().fold(blocking.earliest(), |earliest, (_, until)| earliest.min(*until))
        };
        fabric.sleep(ticket, earliest);
        drop(blocking);
        let waiting = std::mem::take(&mut shared.lock().waiting);
        waiting.into_iter().for_each(|(waker, _)| waker.wake());
    }
}

fn run_adopted(shared: &Shared) {
    let mut tasks = {
        let mut state = shared.lock();
        state.running = state.adopted.len();
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
