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
//! RGET is that of sur-2006, section 3: one control message before the data and one after it, and
//! the sender does nothing in between.
//!
//! # Credits
//!
//! An EAGER or an RTS costs one unit. A peer starts with [`WINDOW`] units, and the receiver gives a
//! unit back when the message is delivered. So a peer has at most that many unexpected messages
//! here. A send without credit stays at its sender, in order.

mod peer;
#[cfg(test)]
mod tests;

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
pub(crate) enum Body {
    /// The whole of it.
    Eager(Bytes),
    /// Where it lies. Its sender waits for a FIN.
    Announced { request: RequestId, key: SegmentKey },
}

impl Body {
    /// The message's length in bytes.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Eager(bytes) => bytes.len.into(),
            Self::Announced { key, .. } => key.len,
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
pub(crate) struct Matched {
    pub(crate) envelope: Envelope,
    arrival: Arrival,
    pub(crate) body: Body,
}

#[derive(Debug)]
struct Receive {
    pattern: Pattern,
    state: ReceiveState,
    waker: Option<Waker>,
}

#[derive(Debug)]
enum ReceiveState {
    Posted(Handle),
    Matched(Matched),
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
    matcher: Matcher<usize, Body>,
    receives: Slab<Receive>,
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
}

impl<S> Engine<S> {
    pub(crate) fn new(me: Rank) -> Self {
        Self {
            me,
            matcher: Matcher::new(),
            receives: Slab::new(),
            sends: Slab::new(),
            peers: Vec::new(),
            peer_of: Vec::new(),
            busy: Vec::new(),
            unreachable: Vec::new(),
            idle: Vec::new(),
            woken: Vec::new(),
            probes: Vec::new(),
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
                pending.waker = Some(waker.clone());
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
            Some(matched) => ReceiveState::Matched(matched),
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
    pub(crate) fn received(&mut self, receive: usize, waker: &Waker) -> Option<Result<Matched, Fault>> {
        if let pending @ Receive { state: ReceiveState::Posted(_), .. } = &mut self.receives[receive] {
            pending.waker = Some(waker.clone());
            return None;
        }
        match self.receives.remove(receive).state {
            ReceiveState::Matched(matched) => Some(Ok(matched)),
            ReceiveState::Failed(fault) => Some(Err(fault)),
            ReceiveState::Posted(_) => unreachable!("it was not posted a moment ago"),
        }
    }

    /// Ends a receive that [`received`](Self::received) has not ended. A message that it had
    /// matched is unexpected again.
    pub(crate) fn cancel(&mut self, receive: usize) {
        match self.receives.remove(receive).state {
            ReceiveState::Posted(handle) => {
                self.matcher.cancel(handle);
            }
            ReceiveState::Matched(matched) => self.give_back(matched),
            ReceiveState::Failed(_) => {}
        }
    }

    /// Puts a message back in its place, or gives it to a receive that was posted since.
    pub(crate) fn give_back(&mut self, matched: Matched) {
        self.place(matched);
        // A thread of this rank may sleep, and only a packet wakes it.
        self.queue(self.me, Outgoing::control(Packet::Credit.encode(0)));
    }

    /// Matches a message or keeps it.
    fn place(&mut self, message: Matched) {
        let Matched { envelope, arrival, body } = message;
        let Some(receive) = self.matcher.take_posted(envelope) else {
            self.matcher.keep(envelope, arrival, body);
            self.woken.append(&mut self.probes);
            return;
        };
        let receive = &mut self.receives[receive];
        receive.state = ReceiveState::Matched(Matched { envelope, arrival, body });
        self.woken.extend(receive.waker.take());
    }

    fn take_unexpected(&mut self, pattern: Pattern) -> Option<Matched> {
        let found = self.matcher.find(pattern)?;
        let (envelope, arrival, body) = self.matcher.take(found)?;
        Some(Matched { envelope, arrival, body })
    }

    /// The first unexpected message that a pattern fits: its envelope and length in bytes. If there
    /// is none, `waker` is woken when a message comes that no receive fits.
    pub(crate) fn probe(&mut self, pattern: Pattern, waker: &Waker) -> Option<(Envelope, u64)> {
        let found = self.matcher.find(pattern).and_then(|found| self.matcher.unexpected(found));
        let found = found.map(|(envelope, body)| (envelope, body.len()));
        if found.is_none() {
            self.wake_at_unexpected(waker);
        }
        found
    }

    /// Takes the first unexpected message that a pattern fits; as [`probe`](Self::probe).
    pub(crate) fn match_probe(&mut self, pattern: Pattern, waker: &Waker) -> Option<Matched> {
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

    /// The user has a message, or could not read it for this reason: its credit goes back, and the
    /// sender of an announced one gets its FIN.
    pub(crate) fn deliver(&mut self, matched: &Matched, outcome: Result<(), Fault>) {
        let from = Rank(matched.envelope.source);
        if self.lost(from).is_some() {
            return;
        }
        let peer = self.peer(from);
        peer.consumed = peer.consumed.wrapping_add(1);
        let packet = match matched.body {
            Body::Announced { request, .. } => {
                let status = outcome.map_or_else(|fault| fault.kind() as u8, |()| 0);
                Packet::Fin { request, status }
            }
            Body::Eager(_) if peer.owes_credit() => Packet::Credit,
            Body::Eager(_) => return,
        };
        self.queue(from, Outgoing::control(packet.encode(0)));
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
                self.message(from, context, tag, Body::Announced { request, key });
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
        }
    }

    fn message(&mut self, from: Rank, context: u32, tag: u32, body: Body) {
        if !self.peer(from).takes_message() {
            return self.violated(from);
        }
        let arrival = self.matcher.number();
        self.place(Matched { envelope: Envelope { context, source: from.0, tag }, arrival, body });
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

    /// [Loses](Self::lose) the peers that a packet could not be sent to. Called when everything that
    /// has arrived is taken in.
    pub(crate) fn lose_unreachable(&mut self) {
        for (peer, fault) in std::mem::take(&mut self.unreachable) {
            self.lose(peer, fault);
        }
    }

    /// The tasks to be woken, once the engine is not locked any more.
    pub(crate) fn take_woken(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.woken)
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
