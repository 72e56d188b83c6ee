//! The message engine of a rank: matching, the eager and the rendezvous protocol, credits. No I/O,
//! no clock, no threads: packets come in by [`arrived`](Engine::arrived) and go out by
//! [`flush`](Engine::flush).
//!
//! ```text
//! eager        sender    EAGER, done; of a list several in a packet
//!              receiver  copies the packet to the receive, or keeps it until there is one
//!
//! rendezvous   sender    RTS with the key of the message's memory, done at FIN
//! (RGET)       receiver  on a match: reads the memory by RDMA, FIN
//!
//! rendezvous   sender    RTS; at RTR: writes the memory by RDMA, FIN, done when both are over
//! (RPUT)       receiver  on a match: exposes memory, RTR with its key; has the message at FIN
//!
//! pipeline     sender    RTS; at each RTR: writes a piece by RDMA; FIN after the last one, done
//!              receiver  on a match: for each piece: exposes memory, RTR with its key; as RPUT
//!
//! UD-ZCopy     sender    RTS; at RTR: sends datagrams to the landing, SENT; DATA for missing ones, done at FIN
//!              receiver  on a match: receives datagrams into memory, RTR with the key of the landing; at
//!                        SENT: RTR for missing ones, FIN
//!
//! copy         sender    RTS; at each RTR: DATA, as many as there is room for; FIN behind them, done
//!              receiver  on a match, and when half of the room is used: RTR with new room
//! ```
//!
//! An announced message is read by the task that waits for its receive, into the user's memory; if
//! that task waits for nothing or for something else, by any other that waits, into memory of the
//! library. One for a buffer's receive goes to the buffer.
//!
//! RGET is that of sur-2006, section 4: one control message before the data and one after it, and
//! the sender does nothing in between. RPUT is that of its section 3: both sides do something twice.
//! The pipeline is that of woodall-2006: RPUT in pieces, which each side registers while others move.
//! The sender chooses. A message whose memory cannot be registered, at either side, or for which there
//! is no connection to read or write over, goes in packets instead ([`copy`]). A receiver that has no
//! memory at all answers the RTS with a FIN.
//!
//! A message of more than [`QUEUED_MAX`] bytes is eager only if its packet can leave at once.
//!
//! # Credits
//!
//! An RTS costs one unit, an EAGER another one for each 64 bytes. A peer starts with
//! [`window`](peer::window) units, and the receiver gives them back when a receive gets the message.
//! So what a peer's unexpected messages take here is bounded. A send without credit stays at its
//! sender, in order. Credit goes back with other packets, in a packet of its own when half of the
//! window is owed, and at once to a sender that asks because it has none left.

mod arrivals;
mod batch;
mod bytes;
mod collectives;
mod copy;
mod describe;
mod eager;
pub(crate) mod elements;
#[cfg(test)]
mod explored;
mod flush;
#[cfg(test)]
mod hostile;
pub(crate) mod matching;
mod peer;
mod pipeline;
pub(crate) mod protocol;
mod receives;
mod rendezvous;
mod renewal;
mod sent;
pub(crate) mod source;
#[cfg(test)]
mod tests;
pub(crate) mod wire;
mod zcopy;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::task::Waker;

use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};
use onesided_fabric::{Channel, NOBODY, SegmentKey};
use slab::Slab;

use self::batch::Batch;
use self::collectives::Collectives;
use self::copy::FLIGHT;
use self::describe::Seen;
use self::peer::{Class, Outgoing, Peer};
use self::pipeline::{Part, Writes};
use self::receives::{Arrived, Receive, ReceiveState};
use self::sent::Sent;
use crate::Protocol;
use crate::engine::matching::Matcher;
use crate::engine::wire::{Encoded, Packet, RequestId};

pub(crate) use self::batch::Listed;
pub(crate) use self::collectives::{CONTROL, CallFailure, Found, Reason, TOLD, Trouble};
pub(crate) use self::copy::is_refused;
pub(crate) use self::eager::{QUEUED_MAX, TooLong};
pub(crate) use self::peer::window;
pub(crate) use self::pipeline::{SHORTEST, ToExpose};
pub(crate) use self::receives::{Announced, Direct, Held, Holding, Landed, MovedTo, Posting};
pub(crate) use self::rendezvous::{Here, ToMove, ToRead};
pub(crate) use self::sent::{CLASSES, Tally};

/// What became of a packet that was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PostOutcome {
    Sent(Channel),
    /// Nothing was sent: try again later.
    Busy,
    Failed(Fault),
}

#[cfg(test)]
impl PostOutcome {
    const SENT: Self = Self::Sent(Channel::Lane);
}

/// A send.
#[derive(Debug)]
struct Send<S> {
    to: Rank,
    state: SendState,
    /// What a rendezvous reads; and the copy of a slice that was withdrawn.
    memory: [Option<S>; 2],
    /// Of a message that this rank may write, or send in packets.
    writes: Option<Writes>,
    /// Whether its handle was dropped.
    is_detached: bool,
    /// Whether it ends when a receive has got it, at this rank too.
    is_synchronous: bool,
    waker: Option<Waker>,
    /// Unlike its place among the sends, no other's.
    number: u64,
}

#[derive(Debug)]
enum SendState {
    /// In the peer's queue.
    Queued,
    /// The receiver may read the memory, or say where to write it.
    Announced,
    /// This rank writes it to the memory of this receive.
    Writing(RequestId),
    Done(Result<(), Fault>),
}

/// The messages of a rank. `S` is registered memory.
#[derive(Debug)]
pub(crate) struct Engine<S> {
    me: Rank,
    matcher: Matcher<Receive<S>, Arrived<S>>,
    /// Announced messages that a receive has, in the order in which they are read.
    announced: VecDeque<usize>,
    /// Messages that their senders write, once memory is exposed for them.
    to_expose: VecDeque<usize>,
    /// Those of them that wait for a landing.
    awaiting: Vec<usize>,
    /// Parts of messages that their receivers have memory for.
    to_write: VecDeque<Part>,
    /// How many more announced messages may be read or written at the same time.
    tokens: u32,
    /// How much of a message may be on its way in packets.
    flight: u64,
    sends: Slab<Send<S>>,
    /// The number of sends so far that were not over at once.
    started: u64,
    /// The units of credit of each peer.
    window: u32,
    /// Those that a message was sent to or came from.
    peers: Vec<Peer>,
    /// The index of each rank's peer plus one; 0 if there is none yet.
    peer_of: Vec<u32>,
    /// Peers with packets to be sent.
    busy: Vec<Rank>,
    /// Peers that a packet could not be sent to, whose own packets may be still to come.
    unreachable: Vec<(Rank, Fault)>,
    /// Memory that no peer reads any more.
    idle: Vec<S>,
    /// Tasks whose requests have got on.
    woken: Vec<Waker>,
    probes: Vec<Waker>,
    /// Wakers that are not needed any more. Their drop may run code of users.
    retired: Vec<Waker>,
    /// A packet with several messages, which are taken in one by one.
    batch: Option<Box<Batch>>,
    /// The [communicators](communicator) of this rank, in order: messages of others are of one that is
    /// gone.
    open: Vec<u32>,
    collectives: Collectives,
    /// The number of unexpected messages of collectives, which calls look at.
    early: Arc<AtomicU32>,
    /// What an earlier dump has seen.
    seen: Seen,
    sent: Sent,
}

/// Keeps a waker in place of an earlier one; of a thread that polls again by itself none.
fn keep(kept: &mut Option<Waker>, waker: &Waker, retired: &mut Vec<Waker>) {
    if waker.will_wake(NOBODY) {
        retired.extend(kept.take());
    } else if !kept.as_ref().is_some_and(|kept| kept.will_wake(waker)) {
        retired.extend(kept.replace(waker.clone()));
    }
}

impl<S> Send<S> {
    const fn new(to: Rank, state: SendState, memory: Option<S>) -> Self {
        Self {
            to,
            state,
            memory: [memory, None],
            writes: None,
            is_detached: false,
            is_synchronous: false,
            waker: None,
            number: 0,
        }
    }

    const fn is_done(&self) -> bool {
        matches!(self.state, SendState::Done(_))
    }
}

impl<S> Engine<S> {
    /// The engine of a rank, with the units of credit that each peer gets, and the number of reads
    /// and writes that may be outstanding.
    pub(crate) fn new(me: Rank, window: u32, tokens: u32) -> Self {
        Self {
            me,
            window,
            matcher: Matcher::new(),
            announced: VecDeque::new(),
            to_expose: VecDeque::new(),
            awaiting: Vec::new(),
            to_write: VecDeque::new(),
            tokens,
            flight: FLIGHT,
            sends: Slab::new(),
            started: 0,
            peers: Vec::new(),
            peer_of: Vec::new(),
            busy: Vec::new(),
            unreachable: Vec::new(),
            idle: Vec::new(),
            woken: Vec::new(),
            probes: Vec::new(),
            retired: Vec::new(),
            batch: None,
            open: Vec::new(),
            collectives: Collectives::default(),
            early: Arc::default(),
            seen: Seen::default(),
            sent: Sent::default(),
        }
    }

    pub(crate) const fn me(&self) -> Rank {
        self.me
    }

    #[inline]
    fn peer(&mut self, rank: Rank) -> &mut Peer {
        let at = self.peer_at(rank);
        &mut self.peers[at]
    }

    #[inline]
    fn peer_at(&mut self, rank: Rank) -> usize {
        let at = match self.peer_of.get(rank.index()) {
            Some(&at) if at != 0 => at,
            _ => self.new_peer(rank),
        };
        at as usize - 1
    }

    #[cold]
    fn new_peer(&mut self, rank: Rank) -> u32 {
        if rank.index() >= self.peer_of.len() {
            self.peer_of.resize(rank.index() + 1, 0);
        }
        self.peers.push(Peer::new(self.window));
        let at = self.peers.len() as u32;
        self.peer_of[rank.index()] = at;
        at
    }

    /// Why a peer is reached no more.
    pub(crate) fn lost(&self, rank: Rank) -> Option<Fault> {
        self.known_peer(rank)?.lost
    }

    /// A peer that this rank has sent to or heard of.
    #[inline]
    fn known_peer(&self, rank: Rank) -> Option<&Peer> {
        let peer = self.peer_of.get(rank.index())?.checked_sub(1)?;
        Some(&self.peers[peer as usize])
    }

    /// Starts a rendezvous send from registered memory, or of a slice that is [offered](crate::driver::offered).
    /// A message to this rank itself is not written.
    pub(crate) fn send_rendezvous(
        &mut self,
        to: Rank,
        (context, tag): (u32, u32),
        (key, by): (SegmentKey, Protocol),
        memory: S,
    ) -> usize {
        let rts = |request| Packet::Rts { context, tag, request, key, by }.encode(0);
        let send = self.send((to, Class::of(context)), Some(memory), rts, &[]);
        self.sends[send].writes = (by != Protocol::Offered).then(|| Writes::of(key.len, by));
        send
    }

    /// A rendezvous send ends when a receive has got it: to another rank all do.
    pub(crate) fn make_synchronous(&mut self, send: usize) {
        self.sends[send].is_synchronous = true;
    }

    fn send(
        &mut self,
        (to, class): (Rank, Class),
        memory: Option<S>,
        packet: impl FnOnce(RequestId) -> Encoded,
        body: &[u8],
    ) -> usize {
        let lost = self.take_lost(to);
        let state = lost.map_or(SendState::Queued, |fault| SendState::Done(Err(fault)));
        self.started += 1;
        let send = self.sends.insert(Send { number: self.started, ..Send::new(to, state, memory) });
        if lost.is_none() {
            self.queue(to, Outgoing::message(send, class, packet(RequestId(send as u32)), body));
        }
        send
    }

    /// The end of a send; `None` while it is under way, and `waker` is woken then.
    pub(crate) fn sent(&mut self, send: usize, waker: &Waker) -> Option<Result<(), Fault>> {
        match &mut self.sends[send] {
            Send { state: SendState::Done(outcome), .. } => Some(*outcome),
            pending => {
                keep(&mut pending.waker, waker, &mut self.retired);
                None
            }
        }
    }

    /// Whether the receiver has heard of a rendezvous send.
    pub(crate) fn has_left(&self, send: usize) -> bool {
        matches!(self.sends[send].state, SendState::Announced | SendState::Writing(_))
    }

    /// The slice of a send was withdrawn: the receiver reads a copy, if there is one. A packet wakes
    /// it.
    pub(crate) fn moved(&mut self, send: usize, copy: Option<S>) {
        let Send { to, memory, .. } = &mut self.sends[send];
        let to = *to;
        memory[1] = copy;
        if self.lost(to).is_none() {
            self.queue(to, Outgoing::control(Packet::Credit.encode(0)));
        }
    }

    /// The handle of a send was dropped. The send goes on if it is under way.
    pub(crate) fn detach(&mut self, send: usize) {
        self.sends[send].is_detached = true;
        if let SendState::Done(_) = self.sends[send].state {
            self.remove(send);
        }
    }

    fn remove(&mut self, send: usize) {
        let Send { memory, waker, .. } = self.sends.remove(send);
        self.idle.extend(memory.into_iter().flatten());
        self.retired.extend(waker);
    }

    fn complete(&mut self, send: usize, outcome: Result<(), Fault>) {
        let Some(ended) = self.sends.get_mut(send) else { return };
        self.woken.extend(ended.waker.take());
        ended.state = SendState::Done(outcome);
        if ended.is_detached {
            self.remove(send);
        }
    }

    fn fail(&mut self, send: usize, fault: Fault) {
        // A write ends by itself: until then it has its memory.
        if !self.give_up_writes(send, fault) {
            self.complete(send, Err(fault));
        }
    }

    /// Memory that no peer reads any more, to be used again.
    pub(crate) fn take_idle(&mut self) -> Vec<S> {
        std::mem::take(&mut self.idle)
    }

    /// A peer may be sent what is queued, if its grant is enough.
    #[cold]
    fn send_queued(&mut self, to: Rank) {
        let peer = self.peer(to);
        if peer.has_next() && !std::mem::replace(&mut peer.is_busy, true) {
            self.busy.push(to);
        }
    }

    fn violated(&mut self, from: Rank) {
        self.lose(from, Fault::of(FaultKind::Protocol, from));
    }

    /// A peer died or left, and everything that it sent has been taken in; or it broke the
    /// protocol. The sends to it and the receives from it end. Its unexpected messages stay. Whether
    /// there is somebody who is told.
    pub(crate) fn lose(&mut self, rank: Rank, fault: Fault) -> bool {
        let peer = self.peer(rank);
        if peer.lost.is_some() {
            return true;
        }
        peer.lost = Some(fault);
        peer.drop_queue();
        let of_peer = self.sends.iter().filter(|(_, send)| send.to == rank && !send.is_done());
        let ended: Vec<_> = of_peer.map(|(send, _)| send).collect();
        let mut is_told = ended.iter().any(|send| !self.sends[*send].is_detached);
        ended.into_iter().for_each(|send| self.fail(send, fault));
        let receives = &mut self.matcher.receives;
        let is_of_peer = |(at, receive): &(usize, &Receive<S>)| {
            matches!(receive.state, ReceiveState::Posted) && receives.pattern(*at).source == Some(rank.0)
        };
        let posted: Vec<_> = receives.iter().filter(is_of_peer).map(|(at, _)| at).collect();
        is_told |= !posted.is_empty();
        for at in posted {
            receives.withdraw(at);
            receives[at].state = ReceiveState::Failed(fault);
            self.woken.extend(receives[at].waker.take());
        }
        self.lose_exposed(rank, fault);
        is_told
    }

    /// Wakes all tasks that wait: the one that moved the messages ends, and left something to do.
    pub(crate) fn wake_all(&mut self) {
        self.woken.append(&mut self.probes);
        self.woken.extend(self.matcher.receives.iter_mut().filter_map(|receive| receive.waker.take()));
        self.woken.extend(self.sends.iter_mut().filter_map(|(_, send)| send.waker.take()));
    }

    /// The tasks to be woken, and wakers to be dropped, once the engine is not locked any more.
    pub(crate) fn take_wakers(&mut self) -> [Vec<Waker>; 2] {
        [std::mem::take(&mut self.woken), std::mem::take(&mut self.retired)]
    }

    /// Whether there is something to be [taken](Self::take_wakers) when the engine is not locked.
    #[inline]
    pub(crate) const fn has_left_over(&self) -> bool {
        !self.woken.is_empty() || !self.retired.is_empty() || !self.idle.is_empty()
    }

    /// Whether a peer is to be lost, a message to be moved, or packets to be sent.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !self.busy.is_empty()
            || !self.unreachable.is_empty()
            || !self.announced.is_empty()
            || !self.to_expose.is_empty()
            || !self.to_write.is_empty()
    }

    /// Whether no request and no packet waits for anything.
    pub(crate) fn is_idle(&self) -> bool {
        self.matcher.receives.is_empty() && self.sends.is_empty() && !self.has_work()
    }

    /// Whether a packet may come that this rank has to do something for: a receive or a send is not
    /// over, or something is to be done anyway.
    pub(crate) fn expects(&self) -> bool {
        let receives = &self.matcher.receives;
        self.has_work()
            || receives.has_posted()
            || receives.iter().any(|(_, receive)| self.is_pending(receive))
            || self.sends.iter().any(|(_, send)| !send.is_done())
    }

    /// The number of sends so far that were not over at once.
    pub(crate) const fn started(&self) -> u64 {
        self.started
    }

    /// Whether it may expect something that it did not expect when so many sends were started; without
    /// a look at all of them.
    pub(crate) fn may_expect(&self, started: u64) -> bool {
        self.has_work() || self.matcher.receives.has_posted() || self.started != started
    }

    /// Whether a flush may send something.
    pub(crate) fn is_busy(&self) -> bool {
        !self.busy.is_empty()
    }
}
