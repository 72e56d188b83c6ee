//! The event of the next packet of a card: it is requested by the threads that wait and by the
//! handler, comes once, and is taken by whichever of them is first.
//!
//! # Who sleeps, and for what
//!
//! Packets complete in one queue, whose events one descriptor shows. A *waiter* is a thread that
//! sleeps in a wait: every packet may be what it waits for. The *handler* moves long messages while
//! all threads compute: only [solicited](crate::Transport::poll_send) packets are worth
//! its wake-up, and none is while a thread polls or waits, because that thread moves all messages of
//! the rank, or while the rank expects none (*disarmed*: [`EventInterest`](crate::EventInterest)).
//!
//! A card knows one request a queue: the next completion has an event (of the kind that was
//! requested), and the ones after it have none until there is another request. What a request for
//! solicited packets does to one for all that is still open is said by no manual for all cards: the
//! wider one stays, or the later one counts. So the handler requests only if none is open.
//!
//! | who | does |
//! |---|---|
//! | waiter | requests *all*; looks; sleeps (both its bell and the descriptor end the sleep); takes the events; if there were some: forgets the request, wakes the handler if that is armed, rings the other waiters |
//! | handler | if it is armed: requests *solicited* unless one is open; looks until nothing is left; sleeps (its bell and the descriptor); takes the events; if there were some: forgets the request, rings the waiters |
//! | thread that begins to poll; handler that expects nothing, before it sleeps | disarms |
//! | thread that polls no more, or begins to expect something | arms; requests *solicited* unless one is open; looks; wakes the handler if something is under way |
//!
//! A *bell* is a descriptor that stays readable until its owner wakes. A request is *open* from the
//! request to the forgetting, so also while its event is there and not taken. Each line of this state
//! is changed under one lock, with the request inside.
//!
//! # No packet is lost
//!
//! *A solicited packet, armed handler.* Is a request open at the card when it arrives? If so there is
//! an event, and whoever takes it is the handler, which looks afterwards, or a waiter, which wakes
//! it, unless it is disarmed (next case). If not, then either nobody has requested since the last
//! event: that event was taken, and not yet forgotten or not yet acted on, and the handler is on its
//! way to a look or is woken to one, before which it requests; or the packet came before the request
//! of the handler or of the thread that armed, each of which looks after its request.
//!
//! *The thread that arms finds a request open* whose event was taken, but not forgotten: it requests
//! nothing. Whoever took the event then forgets it, finds the handler armed, and the handler requests
//! and looks.
//!
//! *A solicited packet, disarmed handler.* A thread polls, which looks before it ends, or nothing is
//! expected. Whoever arms looks again afterwards. The handler may be woken by a request that is still
//! open; it requests no more.
//!
//! *Any packet, waiter.* Its request is for all. An event of it that another one takes ends its sleep
//! all the same: the taker rings after it took. A request that was made after the taking and is
//! forgotten with the one before it, so that the handler may replace it by a narrower one, is one
//! whose waiter has armed its bell before, and is rung.
//!
//! *What the handler begins has an event of its own*: the completion of a read. It requests that
//! event before a look at which a read was already under way, and does not sleep before such a look.
//!
//! *Packets in the queue of all else* are taken out by whoever drains it, and looked for
//! afterwards: a look waits for that thread, so it finds what came before the request that it
//! follows.
//!
//! The price: the descriptor shows the events of waiters to the handler too, so that what ends the
//! sleep of a waiter wakes both. A request of a waiter that has gone stays open, so the first packet
//! after a sleep may wake the handler though it is not solicited. Not while all threads compute.
//!
//! Explored by loom in `shm::explored::card`, with a card for which the later request counts.

use std::sync::PoisonError;

use crate::util::sync::{Mutex, MutexGuard};

/// Who wants the event of the next packet.
#[derive(Debug, Default)]
pub(crate) struct EventRequests(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_armed: bool,
    is_open: bool,
}

impl State {
    fn request(&mut self, request: impl FnOnce()) {
        request();
        self.is_open = true;
    }

    fn request_solicited(&mut self, request: impl FnOnce()) {
        if self.is_armed && !self.is_open {
            self.request(request);
        }
    }
}

impl EventRequests {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of a waiter: requests an event of any packet.
    pub(crate) fn request_all(&self, request: impl FnOnce()) {
        self.lock().request(request);
    }

    /// Of the handler: requests an event of a solicited packet, if it is armed and none is open.
    pub(crate) fn request_solicited(&self, request: impl FnOnce()) {
        self.lock().request_solicited(request);
    }

    /// Arms the handler, and requests its event.
    pub(crate) fn arm(&self, request: impl FnOnce()) {
        let mut state = self.lock();
        state.is_armed = true;
        state.request_solicited(request);
    }

    /// The handler's events are of no interest, because a thread polls, or nothing is expected.
    pub(crate) fn disarm(&self) {
        self.lock().is_armed = false;
    }

    pub(crate) fn is_armed(&self) -> bool {
        self.lock().is_armed
    }

    /// Events were taken: `of_packets`, or others. Whether the handler is armed, so that they may have
    /// been its own.
    pub(crate) fn taken(&self, of_packets: bool) -> bool {
        let mut state = self.lock();
        state.is_open &= !of_packets;
        state.is_armed
    }
}
