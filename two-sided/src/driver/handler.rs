//! Progress modes: who moves messages while the program computes.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread::{self, JoinHandle};

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Events, Fabric, ServerThread, Ticket, entries, lock};

use crate::driver::progress::Progress;
use crate::engine::{Direct, Engine};

entries! {
    /// Who moves the messages of a rank, and how its threads wait. See
    /// [`Messages::set_progress`](crate::Messages::set_progress).
    ///
    /// | mode | a message moves | a blocked thread |
    /// |---|---|---|
    /// | `Polling` | while a thread of the rank is in a call | polls, then sleeps |
    /// | `Interrupt` | the same | sleeps at once, until an event |
    /// | `Thread` | always: a thread of its own sleeps until an event | polls, then sleeps |
    /// | `TwoThreads` | the same with two threads, one for packets and one for completions | polls, then sleeps |
    /// | `Hybrid` | a long one always, whose receive is posted: a handler sleeps until a solicited event | polls, then sleeps |
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum ProgressMode {
        /// The threads of the rank move messages while they are in a call (the default).
        #[default]
        Polling => "polling",
        /// The same, and a blocked thread sleeps until an event without polling before: for ranks that
        /// share their cores.
        Interrupt => "interrupt",
        /// A thread moves messages. Every packet is an event that wakes it, also while another thread
        /// polls.
        Thread => "thread",
        /// The same with a second thread for the completions of reads and writes (yu-2004, section
        /// 4.3). On fabrics without such events of their own (shared memory, cards with one completion
        /// queue, the simulator) this is `Thread`.
        TwoThreads => "two threads",
        /// A handler moves long messages (RGET with interrupt: sur-2006, section 4). Only solicited
        /// packets wake it: those that start or carry a transfer (RTS, RTR, the data of a copy) or say
        /// that it failed, those for which the receiver has to make room or credit, on cards at least
        /// one in 32, and over datagrams those that ask for an acknowledgement. None does while a
        /// thread of the rank polls, or while no receive and no send is pending. In a simulation of
        /// datagrams, or of hosts without cores, this is `Thread`.
        Hybrid => "hybrid",
    }
    pub(crate) const ALL;
    fn name;
}

/// How often a handler looks whether what is under way has room or has failed, which may have no
/// event, in nanoseconds.
const AGAIN: u64 = 1_000_000;

/// The mode of a rank, and its thread.
#[derive(Debug, Default)]
pub(crate) struct Handler {
    state: Mutex<State>,
    /// Whether a thread moves messages.
    has_thread: AtomicBool,
    /// Whether solicited events wake it.
    is_solicited: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    mode: ProgressMode,
    /// Ends the thread.
    stop: Option<Arc<AtomicBool>>,
    /// The last handler. The next one begins once it has ended.
    handler: Option<JoinHandle<()>>,
}

impl Handler {
    pub(crate) fn mode(&self) -> ProgressMode {
        lock(&self.state).mode
    }

    /// Whether solicited events wake a handler.
    pub(crate) fn is_solicited(&self) -> bool {
        self.is_solicited.load(Ordering::Relaxed)
    }
}

impl<F: Fabric> Progress<F> {
    /// Changes the mode, and ends the thread of the one before.
    pub(crate) fn set_mode(self: &Arc<Self>, mode: ProgressMode) -> Result<(), Fault> {
        let state = &mut *lock(&self.handler().state);
        if state.mode == mode {
            return Ok(());
        }
        self.end(state);
        if let Some(slot) = self.fabric.endpoint().background() {
            slot.sleep_at_once(mode == ProgressMode::Interrupt);
        }
        let events = self.fabric.events(Events::Packets).filter(|_| mode == ProgressMode::Hybrid);
        // Before its first look: what comes after that look wakes it.
        let has_thread = !matches!(mode, ProgressMode::Polling | ProgressMode::Interrupt);
        self.handler().has_thread.store(has_thread, Ordering::Relaxed);
        self.handler().is_solicited.store(events.is_some(), Ordering::Relaxed);
        let stop = Arc::new(AtomicBool::new(false));
        state.stop = Some(Arc::clone(&stop));
        let started = match events {
            Some(events) => self.start_handler(stop, state, Events::Packets).map(|()| {
                self.change_interest(|interest| interest.has_handler = true);
                events.wake(); // it looks for what came before
            }),
            None if has_thread => self.start_thread(Arc::clone(&stop)).and_then(|()| {
                let completions = self.fabric.events(Events::Completions).filter(|_| mode == ProgressMode::TwoThreads);
                let Some(completions) = completions else { return Ok(()) };
                completions.arm();
                self.start_handler(stop, state, Events::Completions)
            }),
            None => Ok(()),
        };
        match started {
            Ok(()) => state.mode = mode,
            Err(_) => self.end(state),
        }
        started
    }

    /// Starts a handler: it drains to empty after each event, and asks for no more if nothing is
    /// expected.
    fn start_handler(self: &Arc<Self>, stop: Arc<AtomicBool>, state: &mut State, of: Events) -> Result<(), Fault> {
        let this = Arc::downgrade(self);
        if !self.has_threads() {
            let task = poll_fn(move |_| {
                loop {
                    // The fabric is not kept: a handler keeps no rank in the world.
                    let Some(progress) = this.upgrade().filter(|_| !stop.load(Ordering::Acquire)) else { break };
                    let Some(events) = progress.fabric.events(of) else { break };
                    let slept = progress.turn(events.ticket()).map(|(ticket, until)| events.poll_sleep(ticket, until));
                    if slept.is_some_and(|slept| slept.is_pending()) {
                        return Poll::Pending;
                    }
                }
                Poll::Ready(())
            });
            return self.fabric.endpoint().serve(Box::pin(task), Some(ServerThread::Sleeps)).map(drop);
        }
        let (fabric, last) = (self.fabric.clone(), state.handler.take());
        let handle = move || {
            last.map(JoinHandle::join); // two would take each other's events
            let Some(events) = fabric.events(of) else { return };
            loop {
                let ticket = events.ticket();
                let Some(progress) = this.upgrade().filter(|_| !stop.load(Ordering::Acquire)) else { return };
                let sleeps = progress.turn(ticket);
                drop(progress);
                if let Some((ticket, until)) = sleeps {
                    let _ = events.poll_sleep(ticket, until); // this thread sleeps
                }
            }
        };
        let refused = |_| Fault::new(FaultKind::Refused);
        state.handler = Some(thread::Builder::new().name("onesided-handler".into()).spawn(handle).map_err(refused)?);
        Ok(())
    }

    /// One turn of a handler, which took this ticket before: with which one it sleeps, and until
    /// when.
    fn turn(&self, ticket: Ticket) -> Option<(Ticket, u64)> {
        let is_under_way = self.drain();
        let looks = self.change_interest(|_| {});
        let until = if is_under_way { self.fabric.now().saturating_add(AGAIN) } else { u64::MAX };
        (!looks).then_some((ticket, until))
    }

    /// Starts the thread that moves messages at every event.
    fn start_thread(self: &Arc<Self>, stop: Arc<AtomicBool>) -> Result<(), Fault> {
        let this = Arc::downgrade(self);
        let task = poll_fn(move |cx| match this.upgrade().filter(|_| !stop.load(Ordering::Acquire)) {
            Some(progress) => {
                let me = progress.fabric.rank();
                let moves = pin!(progress.until(me, Direct::none(), |_, _, _| None::<()>, |_| None, || None));
                moves.poll(cx)
            }
            None => Poll::Ready(()),
        });
        self.fabric.endpoint().serve(Box::pin(task), Some(ServerThread::Sleeps)).map(drop)
    }

    /// An announced message has got its receive: the packet's event is over.
    #[inline]
    pub(crate) fn wake_handler(&self) {
        if self.handler().has_thread.load(Ordering::Relaxed) {
            self.wake_thread();
        }
    }

    #[cold]
    fn wake_thread(&self) {
        match self.fabric.events(Events::Packets) {
            Some(events) if self.handler().is_solicited() => events.wake(),
            _ => self.with(Engine::wake_own), // it sleeps until a packet
        }
    }

    fn end(&self, state: &mut State) {
        state.mode = ProgressMode::Polling;
        let Some(stop) = state.stop.take() else { return };
        stop.store(true, Ordering::Release);
        self.wake_handler();
        if let Some(completions) = self.fabric.events(Events::Completions) {
            completions.disarm();
            completions.wake();
        }
        self.handler().has_thread.store(false, Ordering::Relaxed);
        self.handler().is_solicited.store(false, Ordering::Relaxed);
        self.change_interest(|interest| interest.has_handler = false);
    }

    /// Ends the thread, before the rank leaves.
    pub(crate) fn end_handler(&self) {
        let mut state = lock(&self.handler().state);
        self.end(&mut state);
        let handler = state.handler.take();
        drop(state);
        // The one of the rank's next messages begins once it has ended. It may be this thread itself.
        if let Some(handler) = handler.filter(|handler| handler.thread().id() != thread::current().id()) {
            let _ = handler.join();
        }
    }
}
