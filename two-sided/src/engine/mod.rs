//! The message engine of a rank: matching, the eager and the rendezvous protocol, credits. No I/O,
//! no clock, no threads: packets come in by [`arrived`](Engine::arrived) and go out by
//! [`flush`](Engine::flush).
//!
//! ```text
//! eager        sender    EAGER, done
//!              receiver  copies the packet to the receive, or keeps it until there is one
//!
//! rendezvous   sender    RTS with the key of the message's memory, done at FIN
//! (RGET)       receiver  on a match: reads the memory by RDMA, FIN
//! ```
//!
//! An announced message is read by the task that waits for its receive, into the user's memory; if
//! that task waits for nothing or for something else, by any other that waits, into memory of the
//! library.
//!
//! RGET is that of sur-2006, section 3: one control message before the data and one after it, and
//! the sender does nothing in between.
//!
//! # Credits
//!
//! An EAGER or an RTS costs one unit. A peer starts with [`WINDOW`] units, and the receiver gives a
//! unit back when a receive gets the message. So a peer has at most that many unexpected messages
//! here. A send without credit stays at its sender, in order. Credit goes back with other packets,
//! in a packet of its own when half of the window is owed, and at once to a sender that asks
//! because it has none left.

mod peer;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::task::Waker;

use onesided_fabric::SegmentKey;
use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};
use slab::Slab;

use self::peer::{Outgoing, Peer};
use crate::matching::{Arrival, Envelope, Handle, Matcher, Pattern};
use crate::wire::{EAGER_MAX, Packet, RequestId};

#[cfg(test)]
pub(crate) use self::peer::WINDOW;

/// What became of a packet that was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posted {
    Sent,
    /// Nothing was sent: try again later.
    Busy,
    Failed(Fault),
}

/// A message that has arrived.
#[derive(Debug)]
pub(crate) enum Body<S> {
    /// The whole of it.
    Eager(Bytes),
    /// Where it lies. Its sender waits for a FIN.
    Announced { request: RequestId, key: SegmentKey },
    /// What was read of it into memory of this rank, or why it could not be; and its length. Its
    /// sender has its FIN.
    Read { memory: Result<S, Fault>, len: u64 },
}

impl<S> Body<S> {
    /// The message's length in bytes.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Eager(bytes) => bytes.len.into(),
            Self::Announced { key, .. } => key.len,
            Self::Read { len, .. } => *len,
        }
    }
}

/// The bytes of an eager message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes {
    bytes: [u8; EAGER_MAX],
    len: u8,
}

impl Bytes {
    fn new(from: &[u8]) -> Self {
        let mut bytes = [0; EAGER_MAX];
        bytes[..from.len()].copy_from_slice(from);
        Self { bytes, len: from.len() as u8 }
    }
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// A message that was matched.
#[derive(Debug)]
pub(crate) struct Matched<S> {
    pub(crate) envelope: Envelope,
    arrival: Arrival,
    /// Whether its credit has gone back: it was matched before, and given back.
    is_consumed: bool,
    pub(crate) body: Body<S>,
}

#[derive(Debug)]
struct Receive<S> {
    pattern: Pattern,
    state: ReceiveState<S>,
    waker: Option<Waker>,
}

#[derive(Debug)]
enum ReceiveState<S> {
    Posted(Handle),
    Matched(Matched<S>),
    /// Another task reads the message, because this one waits for something else or for nothing.
    Reading {
        matched: Matched<S>,
        is_cancelled: bool,
    },
    Failed(Fault),
}

/// A send, and the memory `S` that a rendezvous reads.
#[derive(Debug)]
struct Send<S> {
    to: Rank,
    state: SendState<S>,
    /// Whether its handle was dropped.
    is_detached: bool,
    waker: Option<Waker>,
}

#[derive(Debug)]
enum SendState<S> {
    /// In the peer's queue.
    Queued(Option<S>),
    /// The receiver may read the memory.
    Announced(S),
    Done(Result<(), Fault>),
}

/// The messages of a rank. `S` is registered memory.
#[derive(Debug)]
pub(crate) struct Engine<S> {
    me: Rank,
    matcher: Matcher<usize, (Body<S>, bool)>,
    receives: Slab<Receive<S>>,
    /// Receives that an announced message was matched to.
    announced: Vec<usize>,
    sends: Slab<Send<S>>,
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
    /// The contexts of communicators that are gone.
    closed: HashSet<u32>,
}

/// Keeps a waker in place of an earlier one.
fn keep(kept: &mut Option<Waker>, waker: &Waker, retired: &mut Vec<Waker>) {
    if !kept.as_ref().is_some_and(|kept| kept.will_wake(waker)) {
        retired.extend(kept.replace(waker.clone()));
    }
}

impl<S> Engine<S> {
    pub(crate) fn new(me: Rank) -> Self {
        Self {
            me,
            matcher: Matcher::new(),
            receives: Slab::new(),
            announced: Vec::new(),
            sends: Slab::new(),
            peers: Vec::new(),
            peer_of: Vec::new(),
            busy: Vec::new(),
            unreachable: Vec::new(),
            idle: Vec::new(),
            woken: Vec::new(),
            probes: Vec::new(),
            retired: Vec::new(),
            closed: HashSet::new(),
        }
    }

    #[inline]
    fn peer(&mut self, rank: Rank) -> &mut Peer {
        if rank.index() >= self.peer_of.len() {
            self.peer_of.resize(rank.index() + 1, 0);
        }
        if self.peer_of[rank.index()] == 0 {
            self.peers.push(Peer::default());
            self.peer_of[rank.index()] = self.peers.len() as u32;
        }
        &mut self.peers[self.peer_of[rank.index()] as usize - 1]
    }

    fn queue(&mut self, to: Rank, outgoing: Outgoing) {
        let peer = self.peer(to);
        peer.queue(outgoing);
        if !std::mem::replace(&mut peer.is_busy, true) {
            self.busy.push(to);
        }
    }

    /// Why a peer is reached no more.
    pub(crate) fn lost(&self, rank: Rank) -> Option<Fault> {
        let peer = self.peer_of.get(rank.index())?.checked_sub(1)?;
        self.peers[peer as usize].lost
    }

    /// Starts an eager send of at most [`EAGER_MAX`] bytes.
    pub(crate) fn send_eager(&mut self, to: Rank, context: u32, tag: u32, bytes: &[u8]) -> usize {
        let packet = Packet::Eager { context, tag, bytes };
        self.send(to, None, |_| packet.encode(0))
    }

    /// Starts a rendezvous send from registered memory.
    pub(crate) fn send_rendezvous(&mut self, to: Rank, context: u32, tag: u32, key: SegmentKey, memory: S) -> usize {
        self.send(to, Some(memory), |request| Packet::Rts { context, tag, request, key }.encode(0))
    }

    fn send(&mut self, to: Rank, memory: Option<S>, packet: impl FnOnce(RequestId) -> crate::wire::Encoded) -> usize {
        let lost = self.lost(to);
        let state = match lost {
            Some(fault) => {
                self.idle.extend(memory);
                SendState::Done(Err(fault))
            }
            None => SendState::Queued(memory),
        };
        let send = self.sends.insert(Send { to, state, is_detached: false, waker: None });
        if lost.is_none() {
            self.queue(to, Outgoing::message(send, packet(RequestId(send as u32))));
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

    /// The handle of a send was dropped. The send goes on if it is under way.
    pub(crate) fn detach(&mut self, send: usize) {
        self.sends[send].is_detached = true;
        if let SendState::Done(_) = self.sends[send].state {
            self.sends.remove(send);
        }
    }

    fn complete(&mut self, send: usize, outcome: Result<(), Fault>) {
        let Some(ended) = self.sends.get_mut(send) else { return };
        self.woken.extend(ended.waker.take());
        let memory = match std::mem::replace(&mut ended.state, SendState::Done(outcome)) {
            SendState::Queued(memory) => memory,
            SendState::Announced(memory) => Some(memory),
            SendState::Done(_) => None,
        };
        if ended.is_detached {
            self.sends.remove(send);
        }
        self.idle.extend(memory);
    }

    /// Memory that no peer reads any more, to be used again.
    pub(crate) fn take_idle(&mut self) -> Vec<S> {
        std::mem::take(&mut self.idle)
    }

    /// Posts a receive.
    pub(crate) fn receive(&mut self, pattern: Pattern) -> usize {
        let next = self.receives.vacant_key();
        let state = match self.take_unexpected(pattern) {
            Some(matched) => {
                if let Body::Announced { .. } = matched.body {
                    self.announced.push(next);
                }
                ReceiveState::Matched(matched)
            }
            None => match pattern.source.and_then(|source| self.lost(Rank(source))) {
                Some(fault) => ReceiveState::Failed(fault),
                None => ReceiveState::Posted(self.matcher.post(pattern, next)),
            },
        };
        self.receives.insert(Receive { pattern, state, waker: None })
    }

    /// Takes the message of a receive, once there is one; until then `waker` is woken when there
    /// is. The receive is over afterwards; the message is to be [delivered](Self::deliver) or
    /// [given back](Self::give_back).
    pub(crate) fn received(&mut self, receive: usize, waker: &Waker) -> Option<Result<Matched<S>, Fault>> {
        let pending = &mut self.receives[receive];
        if let ReceiveState::Posted(_) | ReceiveState::Reading { .. } = pending.state {
            keep(&mut pending.waker, waker, &mut self.retired);
            return None;
        }
        match self.receives.remove(receive).state {
            ReceiveState::Matched(matched) => Some(Ok(matched)),
            ReceiveState::Failed(fault) => Some(Err(fault)),
            ReceiveState::Posted(_) | ReceiveState::Reading { .. } => unreachable!("it was over a moment ago"),
        }
    }

    /// The next announced message whose receive is not waited for now: to be read by another task
    /// of the rank, which then [says so](Self::read). Otherwise a rank that waits for a send,
    /// before it waits for a receive, would hold up its own sender.
    pub(crate) fn next_to_read(&mut self) -> Option<(usize, SegmentKey)> {
        while let Some(at) = self.announced.pop() {
            let Some(receive) = self.receives.get_mut(at) else { continue };
            match std::mem::replace(&mut receive.state, ReceiveState::Failed(Fault::new(FaultKind::Closed))) {
                ReceiveState::Matched(matched @ Matched { body: Body::Announced { key, .. }, .. }) => {
                    receive.state = ReceiveState::Reading { matched, is_cancelled: false };
                    return Some((at, key));
                }
                other => receive.state = other,
            }
        }
        None
    }

    /// An announced message was read, or could not be.
    pub(crate) fn read(&mut self, receive: usize, memory: Result<S, Fault>) {
        let Receive { state, waker, .. } = &mut self.receives[receive];
        let ReceiveState::Reading { mut matched, is_cancelled } =
            std::mem::replace(state, ReceiveState::Failed(Fault::new(FaultKind::Closed)))
        else {
            unreachable!("only what is being read is read")
        };
        self.woken.extend(waker.take());
        let outcome = memory.as_ref().map(|_| ()).map_err(|fault| *fault);
        self.deliver(&matched, outcome);
        matched.body = Body::Read { memory, len: matched.body.len() };
        if is_cancelled {
            self.receives.remove(receive);
            self.give_back(matched);
        } else {
            self.receives[receive].state = ReceiveState::Matched(matched);
        }
    }

    /// Ends a receive that [`received`](Self::received) has not ended. A message that it had
    /// matched is unexpected again.
    pub(crate) fn cancel(&mut self, receive: usize) {
        if let ReceiveState::Reading { is_cancelled, .. } = &mut self.receives[receive].state {
            *is_cancelled = true;
            return;
        }
        let Receive { state, waker, .. } = self.receives.remove(receive);
        self.retired.extend(waker);
        match state {
            ReceiveState::Posted(handle) => {
                self.matcher.cancel(handle);
            }
            ReceiveState::Matched(matched) => self.give_back(matched),
            ReceiveState::Failed(_) | ReceiveState::Reading { .. } => {}
        }
    }

    /// Puts a message back in its place, or gives it to a receive that was posted since.
    pub(crate) fn give_back(&mut self, matched: Matched<S>) {
        self.place(matched);
        // A thread of this rank may sleep, and only a packet wakes it.
        self.queue(self.me, Outgoing::control(Packet::Credit.encode(0)));
    }

    /// Matches a message or keeps it.
    fn place(&mut self, mut message: Matched<S>) {
        let Some(at) = self.matcher.take_posted(message.envelope) else {
            let Matched { envelope, arrival, is_consumed, body } = message;
            self.matcher.keep(envelope, arrival, (body, is_consumed));
            self.woken.append(&mut self.probes);
            return;
        };
        self.consume(&mut message);
        if let Body::Announced { .. } = message.body {
            self.announced.push(at);
        }
        let receive = &mut self.receives[at];
        receive.state = ReceiveState::Matched(message);
        self.woken.extend(receive.waker.take());
    }

    fn take_unexpected(&mut self, pattern: Pattern) -> Option<Matched<S>> {
        let found = self.matcher.find(pattern)?;
        let (envelope, arrival, (body, is_consumed)) = self.matcher.take(found)?;
        let mut matched = Matched { envelope, arrival, is_consumed, body };
        self.consume(&mut matched);
        Some(matched)
    }

    /// Gives the credit of a message back, once.
    fn consume(&mut self, message: &mut Matched<S>) {
        let from = Rank(message.envelope.source);
        if !std::mem::replace(&mut message.is_consumed, true) && self.lost(from).is_none() {
            let peer = self.peer(from);
            peer.consumed = peer.consumed.wrapping_add(1);
            if peer.owes_credit() {
                self.queue(from, Outgoing::control(Packet::Credit.encode(0)));
            }
        }
    }

    /// A communicator is gone, with the messages that it has not received.
    pub(crate) fn close(&mut self, context: u32) {
        self.closed.insert(context);
        while let Some(matched) = self.take_unexpected(Pattern { context, source: None, tag: None }) {
            self.deliver(&matched, Err(Fault::new(FaultKind::Closed)));
        }
    }

    /// The first unexpected message that a pattern fits: its envelope and length in bytes. If there
    /// is none, `waker` is woken when a message comes that no receive fits.
    pub(crate) fn probe(&mut self, pattern: Pattern, waker: &Waker) -> Option<(Envelope, u64)> {
        let found = self.matcher.find(pattern).and_then(|found| self.matcher.unexpected(found));
        let found = found.map(|(envelope, (body, _))| (envelope, body.len()));
        if found.is_none() {
            self.wake_at_unexpected(waker);
        }
        found
    }

    /// Takes the first unexpected message that a pattern fits; as [`probe`](Self::probe).
    pub(crate) fn match_probe(&mut self, pattern: Pattern, waker: &Waker) -> Option<Matched<S>> {
        let taken = self.take_unexpected(pattern);
        if taken.is_none() {
            self.wake_at_unexpected(waker);
        }
        taken
    }

    fn wake_at_unexpected(&mut self, waker: &Waker) {
        if !self.probes.iter().any(|other| other.will_wake(waker)) {
            self.probes.push(waker.clone());
        }
    }

    /// This rank has a message, or could not read it for this reason: the sender of an announced
    /// one gets its FIN.
    pub(crate) fn deliver(&mut self, matched: &Matched<S>, outcome: Result<(), Fault>) {
        let from = Rank(matched.envelope.source);
        if let Body::Announced { request, .. } = matched.body
            && self.lost(from).is_none()
        {
            let status = outcome.map_or_else(|fault| fault.kind() as u8, |()| 0);
            self.queue(from, Outgoing::control(Packet::Fin { request, status }.encode(0)));
        }
    }

    /// Whether packets without messages wait for room at a peer: it may wait for them.
    pub(crate) fn owes_packets(&mut self, to: Rank) -> bool {
        self.lost(to).is_none() && self.peer(to).has_controls()
    }

    /// Takes in a packet.
    pub(crate) fn arrived(&mut self, from: Rank, bytes: &[u8]) {
        if self.lost(from).is_some() {
            return;
        }
        let Some((packet, grant)) = Packet::decode(bytes) else { return self.violated(from) };
        self.granted(from, grant);
        match packet {
            Packet::Eager { context, tag, bytes } => self.message(from, context, tag, Body::Eager(Bytes::new(bytes))),
            Packet::Rts { context, tag, request, key } if key.rank == from => {
                let body = match self.take_own(from, request) {
                    Some(memory) => Body::Read { memory: Ok(memory), len: key.len },
                    None => Body::Announced { request, key },
                };
                self.message(from, context, tag, body);
            }
            Packet::Rts { .. } => self.violated(from),
            Packet::Fin { request, status } => {
                let send = request.0 as usize;
                match self.sends.get(send) {
                    Some(Send { to, state: SendState::Announced(_), .. }) if *to == from => {
                        let outcome = match status {
                            0 => Ok(()),
                            status => Err(read_failed(from, status)),
                        };
                        self.complete(send, outcome);
                    }
                    _ => self.violated(from),
                }
            }
            Packet::Credit => {}
            Packet::Ask => {
                let peer = self.peer(from);
                peer.wants_credit = true;
                if peer.owes_credit() {
                    self.queue(from, Outgoing::control(Packet::Credit.encode(0)));
                }
            }
        }
    }

    /// The memory of a message to this rank itself, whose send is then over.
    fn take_own(&mut self, from: Rank, request: RequestId) -> Option<S> {
        let send = self.sends.get_mut(request.0 as usize).filter(|_| from == self.me)?;
        match std::mem::replace(&mut send.state, SendState::Done(Ok(()))) {
            SendState::Announced(memory) => {
                self.complete(request.0 as usize, Ok(()));
                Some(memory)
            }
            other => {
                send.state = other;
                None
            }
        }
    }

    fn message(&mut self, from: Rank, context: u32, tag: u32, body: Body<S>) {
        if !self.peer(from).takes_message() {
            return self.violated(from);
        }
        let arrival = self.matcher.number();
        let envelope = Envelope { context, source: from.0, tag };
        let mut message = Matched { envelope, arrival, is_consumed: false, body };
        if self.closed.contains(&context) {
            self.consume(&mut message);
            return self.deliver(&message, Err(Fault::new(FaultKind::Closed)));
        }
        self.place(message);
    }

    fn granted(&mut self, from: Rank, grant: u32) {
        let peer = self.peer(from);
        peer.granted(grant);
        if peer.can_send() && !std::mem::replace(&mut peer.is_busy, true) {
            self.busy.push(from);
        }
    }

    fn violated(&mut self, from: Rank) {
        self.lose(from, Fault::of(FaultKind::Protocol, from));
    }

    /// A peer died or left, and everything that it sent has been taken in; or it broke the
    /// protocol. The sends to it and the receives from it end. Its unexpected messages stay.
    pub(crate) fn lose(&mut self, rank: Rank, fault: Fault) {
        let peer = self.peer(rank);
        if peer.lost.is_some() {
            return;
        }
        peer.lost = Some(fault);
        peer.drop_queue();
        let of_peer = |send: &Send<S>| send.to == rank && !matches!(send.state, SendState::Done(_));
        let ended: Vec<_> = self.sends.iter().filter(|(_, send)| of_peer(send)).map(|(send, _)| send).collect();
        ended.into_iter().for_each(|send| self.complete(send, Err(fault)));
        for (_, receive) in &mut self.receives {
            if let ReceiveState::Posted(handle) = receive.state
                && receive.pattern.source == Some(rank.0)
            {
                self.matcher.cancel(handle);
                receive.state = ReceiveState::Failed(fault);
                self.woken.extend(receive.waker.take());
            }
        }
    }

    /// Sends what there is to send and may be sent. `post` is given the receiver and a packet.
    pub(crate) fn flush(&mut self, mut post: impl FnMut(Rank, &[u8]) -> Posted) {
        let mut later = Vec::new();
        while let Some(rank) = self.busy.pop() {
            match self.flush_to(rank, &mut post) {
                Posted::Sent => self.peer(rank).is_busy = false,
                Posted::Busy => later.push(rank),
                Posted::Failed(fault) => {
                    self.peer(rank).is_busy = false;
                    let unsent = self.peer(rank).drop_queue();
                    unsent.into_iter().for_each(|send| self.complete(send, Err(fault)));
                    self.unreachable.push((rank, fault));
                }
            }
        }
        self.busy = later;
    }

    /// `Sent`: nothing is left that may be sent now.
    fn flush_to(&mut self, rank: Rank, post: &mut impl FnMut(Rank, &[u8]) -> Posted) -> Posted {
        while let Some(packet) = self.peer(rank).next() {
            match post(rank, packet.bytes()) {
                Posted::Sent => {}
                other => return other,
            }
            let Some(send) = self.peer(rank).posted() else { continue };
            match std::mem::replace(&mut self.sends[send].state, SendState::Queued(None)) {
                SendState::Queued(Some(memory)) => self.sends[send].state = SendState::Announced(memory),
                _ => self.complete(send, Ok(())),
            }
        }
        Posted::Sent
    }

    /// [Loses](Self::lose) the peers that a packet could not be sent to. Called when everything
    /// that has arrived is taken in.
    pub(crate) fn lose_unreachable(&mut self) {
        for (peer, fault) in std::mem::take(&mut self.unreachable) {
            self.lose(peer, fault);
        }
    }

    /// Notes that a peer cannot be reached.
    pub(crate) fn note_unreachable(&mut self, rank: Rank, fault: Fault) {
        self.unreachable.push((rank, fault));
    }

    /// Whether there is a peer to be [lost](Self::lose_unreachable).
    pub(crate) fn has_unreachable(&self) -> bool {
        !self.unreachable.is_empty()
    }

    /// Wakes all tasks that wait: the one that moved the messages ends, and left something to do.
    pub(crate) fn wake_all(&mut self) {
        self.woken.append(&mut self.probes);
        self.woken.extend(self.receives.iter_mut().filter_map(|(_, receive)| receive.waker.take()));
        self.woken.extend(self.sends.iter_mut().filter_map(|(_, send)| send.waker.take()));
    }

    /// The tasks to be woken, and wakers to be dropped, once the engine is not locked any more.
    pub(crate) fn take_wakers(&mut self) -> [Vec<Waker>; 2] {
        [std::mem::take(&mut self.woken), std::mem::take(&mut self.retired)]
    }

    /// Whether a flush may send something.
    pub(crate) fn is_busy(&self) -> bool {
        !self.busy.is_empty()
    }
}

/// Whether a message of this length goes eagerly.
pub(crate) const fn is_eager(len: usize) -> bool {
    len <= EAGER_MAX
}

/// The receiver could not read the message.
fn read_failed(receiver: Rank, status: u8) -> Fault {
    let kind = Fault::from_bits(u64::from(status) << 56).map_or(FaultKind::Protocol, Fault::kind);
    Fault::of(kind, receiver)
}
