//! Messages that have arrived, and receives and probes, which get them.
//!
//! A message is one entry of the [matcher](Matcher), at its place by arrival until a receive has ended
//! with it:
//!
//! | [`Body`] | | then |
//! |---|---|---|
//! | Eager | it came in a packet | |
//! | Announced | it lies at its sender | Moving, or it is read by the task of its receive |
//! | Moving | another task reads it, or its sender writes it or sends it in packets | Moved; Announced, if it cannot be moved now |
//! | Moved | it is in memory of this rank, or could not be moved | |
//!
//! A receive, or a task, that has a message has claimed it. To give it back is to let others find it
//! again, or to give it to the oldest receive that was posted since: what moves goes on.
//!
//! [Matcher]: crate::engine::matching::Matcher

use std::num::NonZeroU32;
use std::task::Waker;

use onesided_fabric::SegmentKey;
use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};

use super::bytes::{Bytes, SHORT};
use super::peer::{Outgoing, units};
use super::pipeline::Exposed;
use super::rendezvous::Here;
use super::{Engine, keep};
use crate::Protocol;
use crate::engine::elements::Allocate;
use crate::engine::matching::{Arrival, COLLECTIVE, Envelope, GROUPS, Pattern, communicator};
use crate::engine::wire::{Packet, RequestId};

/// A message that has arrived.
#[derive(Debug)]
pub(crate) struct Arrived<S> {
    pub(crate) body: Body<S>,
    /// Whether its credit has gone back: it was claimed before.
    pub(super) is_consumed: bool,
    /// The receive that has it.
    pub(super) receive: Option<u32>,
}

impl<S> Default for Arrived<S> {
    fn default() -> Self {
        Self { body: Body::Eager(Bytes::default()), is_consumed: false, receive: None }
    }
}

/// What there is of a message.
#[derive(Debug)]
pub(crate) enum Body<S> {
    /// The whole of it.
    Eager(Bytes),
    /// Its sender waits for a FIN, or for memory to write to.
    Announced(Announced),
    Moving(Box<Moving<S>>),
    /// The whole of it, or why it could not be moved; and its length. Its sender waits for nothing.
    Moved {
        here: Result<Here<S>, Fault>,
        len: u64,
    },
}

/// Where a message lies, or where its slice is [offered](crate::driver::offered); of one that its sender
/// writes, its length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announced {
    pub(crate) request: RequestId,
    pub(crate) key: SegmentKey,
    pub(crate) by: Protocol,
}

/// A message that moves, whatever becomes of its receive.
#[derive(Debug)]
pub(crate) struct Moving<S> {
    pub(super) announced: Announced,
    /// The memory that its sender writes to, or the elements that packets are for.
    pub(super) exposed: Option<Exposed<S>>,
    /// Whether it could not be moved, and is to come in packets.
    pub(super) is_refused: bool,
    /// The memory of one that waits for a landing.
    pub(super) awaits: Option<S>,
}

impl<S> Body<S> {
    /// The message's length in bytes.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Eager(bytes) => bytes.len() as u64,
            Self::Announced(announced) => announced.key.len,
            Self::Moving(moving) => moving.announced.key.len,
            Self::Moved { len, .. } => *len,
        }
    }

    /// Whether it is not here, and its receive can only wait for it.
    const fn is_to_come(&self) -> bool {
        match self {
            Self::Announced(announced) => announced.by.is_written(),
            Self::Moving(_) => true,
            Self::Eager(_) | Self::Moved { .. } => false,
        }
    }

    /// How much of it this rank keeps since it arrived.
    pub(super) fn kept(&self) -> usize {
        if let Self::Eager(bytes) = self { bytes.len() } else { 0 }
    }
}

/// A message that a task has claimed: to be [taken](Engine::take) and [delivered](Engine::deliver), or
/// [given back](Engine::give_back).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) message: u32,
    pub(crate) envelope: Envelope,
    pub(crate) len: u64,
}

/// What a task finds of a message that it holds.
#[derive(Debug)]
pub(crate) enum Holding<S> {
    /// It is here, or could not be moved. It is removed: the receive is over.
    Eager(Bytes),
    Moved(Result<Here<S>, Fault>),
    /// The task is to read it, and to [deliver](Engine::deliver) it.
    ToRead(Announced),
    /// A receive was added that has it, and is to be waited for.
    ToCome(usize),
}

/// How many packets a receive takes in at most before it is posted.
const AT_ONCE: u32 = 16;

/// A receive whose task looks on: an eager message that it matches goes to its memory at once.
#[derive(Debug)]
pub(crate) struct Direct<'b> {
    receive: Looking,
    pub(crate) into: &'b mut [u8],
    /// The message that has come. The receive is over.
    pub(crate) landed: Option<Landed>,
}

/// An eager message in the memory of its receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Landed {
    pub(crate) envelope: Envelope,
    /// Its length in bytes. The memory may be shorter if the receive was posted.
    pub(crate) len: u32,
    pub(super) arrival: Arrival,
}

#[derive(Debug)]
enum Looking {
    Nobody,
    Posted(usize),
    /// It is posted if its message has not come yet.
    Unposted(Pattern),
}

impl<'b> Direct<'b> {
    /// A posted receive, if it has memory.
    #[inline]
    pub(crate) fn posted(receive: usize, into: Option<&'b mut [u8]>) -> Self {
        into.map_or(Self::none(), |into| Self { receive: Looking::Posted(receive), into, landed: None })
    }

    /// The memory of a receive, for [`receive_into`](Engine::receive_into).
    pub(crate) const fn into(into: &'b mut [u8]) -> Self {
        Self { receive: Looking::Nobody, into, landed: None }
    }

    /// No receive.
    pub(crate) const fn none() -> Self {
        Self::into(&mut [])
    }

    /// Whether a message of `len` bytes is its own, that the posted receive `oldest` fits. One that
    /// is not posted gets none that it has no room for, as it may give it back.
    #[inline]
    pub(super) fn gets(&self, oldest: Option<usize>, envelope: Envelope, len: usize) -> bool {
        match self.receive {
            Looking::Nobody => false,
            Looking::Posted(receive) => oldest == Some(receive),
            Looking::Unposted(pattern) => pattern.fits(envelope) && len <= self.into.len(),
        }
    }
}

/// A receive that was posted, or had its message at once.
#[derive(Debug)]
pub(crate) enum Posting {
    Posted(usize),
    Held(Held),
    /// It is in the memory of the receive, whole.
    Landed(Landed),
}

/// The memory of a message that another task moves: what makes its elements, or where it goes if it fits.
pub(crate) type MovedTo<S> = (Option<Allocate>, Option<S>);

/// The default is a receive that is posted.
#[derive(Debug)]
pub(super) struct Receive<S> {
    pub(super) state: ReceiveState,
    /// The memory of a message that another task reads; `None`: any bytes.
    pub(super) allocate: Option<Allocate>,
    /// Memory that its message is moved to, if it fits.
    pub(super) into: Option<S>,
    pub(super) waker: Option<Waker>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum ReceiveState {
    Posted,
    /// It has this message.
    Has(u32),
    Failed(Fault),
}

impl<S> Receive<S> {
    const fn new(state: ReceiveState) -> Self {
        Self { state, allocate: None, into: None, waker: None }
    }
}

impl<S> Default for Receive<S> {
    fn default() -> Self {
        Self::new(ReceiveState::Posted)
    }
}

impl<S> Engine<S> {
    /// Posts a receive. One that gets a message which is not here stays, for another task may read it.
    pub(crate) fn receive(&mut self, pattern: Pattern) -> Posting {
        match self.claim(pattern) {
            Some(Held { message, .. }) if self.is_elsewhere(message) => Posting::Posted(self.receive_held(message)),
            Some(held) => Posting::Held(held),
            None => self.post(pattern),
        }
    }

    fn is_elsewhere(&self, message: u32) -> bool {
        matches!(self.matcher.message(message as usize).body, Body::Announced(_) | Body::Moving(_))
    }

    /// Adds a receive that has a message.
    fn receive_held(&mut self, message: u32) -> usize {
        let pattern = self.matcher.envelope(message as usize).into();
        let receive = self.matcher.receives.add(pattern, Receive::new(ReceiveState::Has(message)));
        self.matcher.message_mut(message as usize).receive = Some(receive as u32);
        self.is_to_move(message as usize);
        receive
    }

    /// Posts a receive that no unexpected message fits.
    #[inline]
    fn post(&mut self, pattern: Pattern) -> Posting {
        let lost = pattern.source.and_then(|source| self.take_lost(Rank(source)));
        let receives = &mut self.matcher.receives;
        Posting::Posted(match lost {
            Some(fault) => receives.add(pattern, Receive::new(ReceiveState::Failed(fault))),
            None => receives.post(pattern),
        })
    }

    /// A message that is announced for this receive is moved to such memory by another task.
    pub(crate) fn move_to(&mut self, receive: usize, (allocate, into): MovedTo<S>) {
        let receive = &mut self.matcher.receives[receive];
        (receive.allocate, receive.into) = (allocate, into);
    }

    /// The same with a slice for an eager message that has arrived: `arrive` takes in a packet, if
    /// there is one.
    #[inline]
    pub(crate) fn receive_into(
        &mut self,
        pattern: Pattern,
        direct: &mut Direct<'_>,
        mut arrive: impl FnMut(&mut Self, &mut Direct<'_>) -> bool,
    ) -> Posting {
        direct.receive = Looking::Unposted(pattern);
        for _ in 0..AT_ONCE {
            if let Some(found) = self.matcher.find(pattern) {
                return self.land_unexpected(found, direct).map_or_else(|| self.receive(pattern), Posting::Landed);
            }
            // Of several receives that are posted at once, the first looks for what has arrived.
            if self.matcher.receives.has_posted() || !arrive(self, direct) {
                return self.post(pattern);
            }
            if let Some(landed) = direct.landed {
                return Posting::Landed(landed);
            }
        }
        self.receive(pattern)
    }

    /// Copies an unexpected message to the memory of its receive, if it is an eager one that fits.
    fn land_unexpected(&mut self, found: usize, direct: &mut Direct<'_>) -> Option<Landed> {
        let Arrived { body: Body::Eager(bytes), is_consumed, .. } = self.matcher.message(found) else { return None };
        let (len, is_consumed) = (bytes.len(), *is_consumed);
        direct.into.get_mut(..len)?.copy_from_slice(bytes);
        let (envelope, arrival) = (self.matcher.envelope(found), self.matcher.arrival(found));
        self.matcher.discard(found);
        self.count_early(envelope, u32::MAX);
        if !is_consumed {
            self.credit(Rank(envelope.source), len);
        }
        Some(Landed { envelope, arrival, len: len as u32 })
    }

    /// Gives back a message that is in the memory of a receive, whole.
    pub(crate) fn give_back_landed(&mut self, Landed { envelope, arrival, len }: Landed, memory: &[u8]) {
        let (bytes, mut first) = (&memory[..len as usize], [0; SHORT]);
        let short = bytes.len().min(SHORT);
        first[..short].copy_from_slice(&bytes[..short]);
        let body = Body::Eager(Bytes::new(bytes.len(), &first, |into| into.copy_from_slice(bytes)));
        let message = self.matcher.add(envelope, arrival, false);
        *self.matcher.message_mut(message) = Arrived { body, is_consumed: true, receive: None };
        self.give_back(message as u32);
    }

    /// Takes in packets until a posted receive has its message. It is an eager one in the slice of the
    /// receive, which is over then: `direct` is [its slice](Direct::posted), if it has one;
    /// `arrive` as of [`receive_into`](Self::receive_into).
    #[inline]
    pub(crate) fn land(
        &mut self,
        receive: usize,
        direct: &mut Direct<'_>,
        mut arrive: impl FnMut(&mut Self, &mut Direct<'_>) -> bool,
    ) -> Option<Landed> {
        while self.is_posted(receive) && arrive(self, direct) {
            if direct.landed.is_some() {
                break;
            }
        }
        direct.landed
    }

    /// Whether a receive has no message yet.
    #[inline]
    pub(crate) fn is_posted(&self, receive: usize) -> bool {
        matches!(self.matcher.receives[receive].state, ReceiveState::Posted)
    }

    /// Whether a receive has no message, or none that is here or that its task can read.
    pub(super) fn is_pending(&self, receive: &Receive<S>) -> bool {
        match receive.state {
            ReceiveState::Posted => true,
            ReceiveState::Has(message) => self.matcher.message(message as usize).body.is_to_come(),
            ReceiveState::Failed(_) => false,
        }
    }

    /// The message of a receive, once it is here or can be read; until then `waker` is woken when it
    /// is. The receive is over afterwards.
    pub(crate) fn received(&mut self, receive: usize, waker: &Waker) -> Option<Result<Held, Fault>> {
        let pending = &self.matcher.receives[receive];
        let outcome = match pending.state {
            ReceiveState::Has(message) if !self.is_pending(pending) => {
                self.matcher.message_mut(message as usize).receive = None;
                Ok(self.held(message as usize))
            }
            ReceiveState::Failed(fault) => Err(fault),
            ReceiveState::Posted | ReceiveState::Has(_) => {
                keep(&mut self.matcher.receives[receive].waker, waker, &mut self.retired);
                return None;
            }
        };
        self.matcher.receives.remove(receive);
        Some(outcome)
    }

    /// Ends a receive that [`received`](Self::received) has not ended. The message that it has is
    /// unexpected again, also while it moves.
    pub(crate) fn cancel(&mut self, receive: usize) {
        let Receive { state, waker, .. } = self.matcher.receives.remove(receive);
        self.retired.extend(waker);
        if let ReceiveState::Has(message) = state {
            self.give_back(message);
        }
    }

    /// A receive or a task has a message no more: it goes to a receive that was posted since, or is
    /// unexpected again.
    pub(crate) fn give_back(&mut self, message: u32) {
        self.matcher.message_mut(message as usize).receive = None;
        self.is_not_to_move(message as usize);
        self.place(message as usize);
        self.wake_own();
    }

    /// Wakes the threads of this rank that sleep: only a packet does.
    pub(crate) fn wake_own(&mut self) {
        self.queue(self.me, Outgoing::control(Packet::Credit.encode(0)));
    }

    /// Gives a claimed message to the oldest posted receive that fits it, or lets others find it.
    pub(super) fn place(&mut self, message: usize) {
        let envelope = self.matcher.envelope(message);
        if !self.is_open(envelope.context) {
            return self.refuse(message);
        }
        match self.matcher.take_posted(envelope) {
            Some(receive) => self.give(message, receive),
            None => {
                self.is_early(envelope);
                self.matcher.release(message);
            }
        }
    }

    /// A receive that was posted gets a message.
    pub(super) fn give(&mut self, message: usize, receive: usize) {
        self.consume(message);
        self.matcher.message_mut(message).receive = Some(receive as u32);
        self.matcher.receives[receive].state = ReceiveState::Has(message as u32);
        self.wake_receive(message);
        self.is_to_move(message);
    }

    /// Wakes the task that waits for a message.
    pub(super) fn wake_receive(&mut self, message: usize) {
        if let Some(receive) = self.matcher.message(message).receive {
            self.woken.extend(self.matcher.receives[receive as usize].waker.take());
        }
    }

    /// A message is unexpected.
    #[inline]
    pub(super) fn is_early(&mut self, envelope: Envelope) {
        self.count_early(envelope, 1);
        self.woken.append(&mut self.probes);
    }

    fn claim(&mut self, pattern: Pattern) -> Option<Held> {
        let message = self.matcher.find(pattern)?;
        self.matcher.claim(message);
        self.consume(message);
        let held = self.held(message);
        self.count_early(held.envelope, u32::MAX);
        Some(held)
    }

    fn held(&self, message: usize) -> Held {
        let len = self.matcher.message(message).body.len();
        Held { message: message as u32, envelope: self.matcher.envelope(message), len }
    }

    /// Gives the credit of a message back, once.
    fn consume(&mut self, message: usize) {
        let Arrived { body, is_consumed, .. } = self.matcher.message_mut(message);
        if !std::mem::replace(is_consumed, true) {
            let kept = body.kept();
            self.credit(Rank(self.matcher.envelope(message).source), kept);
        }
    }

    /// Gives the credit of a message back, of which this rank kept so many bytes.
    #[inline]
    pub(super) fn credit(&mut self, from: Rank, kept: usize) {
        let at = self.peer_at(from);
        if self.peers[at].lost.is_none() {
            self.credit_peer(at, from, kept);
        }
    }

    /// The same of a peer that is not lost, by its index.
    #[inline]
    pub(super) fn credit_peer(&mut self, at: usize, from: Rank, kept: usize) {
        let peer = &mut self.peers[at];
        peer.consumed = peer.consumed.wrapping_add(units(kept));
        if peer.owes_credit() {
            self.queue_credit(from);
        }
    }

    #[cold]
    fn queue_credit(&mut self, to: Rank) {
        self.queue(to, Outgoing::control(Packet::Credit.encode(0)));
    }

    /// The unexpected messages of a communicator that a pattern does not fit: their number, and one
    /// of them, of the pattern's source or else with its tag if there is one.
    pub(crate) fn unmatched(&self, wanted: Pattern) -> Option<(NonZeroU32, Envelope)> {
        let of_communicator = Pattern { source: None, tag: None, ..wanted };
        let others = || {
            let all = self.matcher.all_unexpected().map(|(_, envelope, _)| envelope);
            all.filter(|envelope| of_communicator.fits(*envelope) && !wanted.fits(*envelope))
        };
        let is_other = |envelope: &Envelope| {
            let (source, tag) = (Some(envelope.source), Some(envelope.tag));
            (wanted.source.is_some() && wanted.source != source, wanted.tag.is_some() && wanted.tag != tag)
        };
        Some((NonZeroU32::new(others().count() as u32)?, others().min_by_key(is_other)?))
    }

    /// A communicator may get messages, in all its contexts.
    pub(crate) fn open(&mut self, context: u32) {
        let context = communicator(context);
        if let Err(at) = self.open.binary_search(&context) {
            self.open.insert(at, context);
        }
    }

    #[inline]
    pub(super) fn is_open(&self, context: u32) -> bool {
        self.open.binary_search(&communicator(context)).is_ok()
    }

    /// A communicator is gone, with the messages that it has not received.
    pub(crate) fn close(&mut self, context: u32) {
        let context = communicator(context);
        self.open.retain(|open| *open != context);
        for context in [0, COLLECTIVE, GROUPS].map(|bit| context | bit) {
            self.collectives.close(context);
            while let Some(held) = self.claim(Pattern { context, source: None, tag: None }) {
                self.refuse(held.message as usize);
            }
        }
    }

    /// Removes a claimed message of a communicator that is gone; one that moves at the end of that.
    fn refuse(&mut self, message: usize) {
        self.consume(message);
        if !matches!(self.matcher.message(message).body, Body::Moving(_)) {
            let _ = self.deliver(message as u32, Err(Fault::new(FaultKind::Closed)));
        }
    }

    /// The first unexpected message that a pattern fits: its envelope and length in bytes. If there
    /// is none, `waker` is woken when a message comes that no receive fits.
    pub(crate) fn probe(&mut self, pattern: Pattern, waker: &Waker) -> Option<(Envelope, u64)> {
        let found = self.matcher.find(pattern).map(|found| self.held(found));
        if found.is_none() {
            self.wake_at_unexpected(waker);
        }
        found.map(|Held { envelope, len, .. }| (envelope, len))
    }

    /// Claims the first unexpected message that a pattern fits; as [`probe`](Self::probe).
    pub(crate) fn match_probe(&mut self, pattern: Pattern, waker: &Waker) -> Option<Held> {
        let claimed = self.claim(pattern);
        if claimed.is_none() {
            self.wake_at_unexpected(waker);
        }
        claimed
    }

    pub(crate) fn wake_at_unexpected(&mut self, waker: &Waker) {
        if !self.probes.iter().any(|other| other.will_wake(waker)) {
            self.probes.push(waker.clone());
        }
    }

    /// Takes a message that a task holds, or says what the task is to do.
    pub(crate) fn take(&mut self, message: u32) -> Holding<S> {
        let found = match &mut self.matcher.message_mut(message as usize).body {
            Body::Eager(bytes) => Holding::Eager(std::mem::take(bytes)),
            Body::Moved { here, .. } => Holding::Moved(std::mem::replace(here, Err(Fault::new(FaultKind::Closed)))),
            Body::Announced(announced) if !announced.by.is_written() => return Holding::ToRead(*announced),
            Body::Announced(_) | Body::Moving(_) => return Holding::ToCome(self.receive_held(message)),
        };
        self.matcher.discard(message as usize);
        found
    }

    /// A receive for a message that a task holds, if that moves.
    pub(crate) fn await_moving(&mut self, message: u32) -> Option<usize> {
        let is_moving = matches!(self.matcher.message(message as usize).body, Body::Moving(_));
        is_moving.then(|| self.receive_held(message))
    }

    /// A task could not read a message that it holds, for lack of memory or a connection: it is to come
    /// in packets.
    pub(crate) fn copy_held(&mut self, message: u32) {
        if let Body::Announced(announced) = &mut self.matcher.message_mut(message as usize).body {
            announced.by = Protocol::Copy;
        }
    }

    /// A task has read a message that it holds, or could not, or needs nothing of it: the message is
    /// removed, and the sender of an announced one gets its FIN.
    ///
    /// # Errors
    /// The message is lost.
    pub(crate) fn deliver(&mut self, message: u32, outcome: Result<(), Fault>) -> Result<(), Fault> {
        let from = Rank(self.matcher.envelope(message as usize).source);
        match self.matcher.remove(message as usize).body {
            Body::Announced(announced) => {
                self.send_fin(from, announced, outcome);
                outcome
            }
            Body::Moved { here: Err(fault), .. } => Err(fault),
            Body::Eager(_) | Body::Moving(_) | Body::Moved { .. } => outcome,
        }
    }

    /// This rank has a message, or could not read it for this reason.
    pub(super) fn send_fin(&mut self, from: Rank, Announced { request, .. }: Announced, outcome: Result<(), Fault>) {
        if self.lost(from).is_none() {
            let status = outcome.map_or_else(|fault| fault.kind() as u8, |()| 0);
            self.queue(from, Outgoing::control(Packet::Fin { request, status }.encode(0)));
        }
    }

    /// Whether packets without messages wait for room at a peer: it may wait for them.
    pub(crate) fn owes_packets(&self, to: Rank) -> bool {
        self.known_peer(to).is_some_and(|peer| peer.lost.is_none() && peer.has_controls())
    }
}
