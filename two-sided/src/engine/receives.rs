//! Messages that have arrived, and receives and probes, which get them.

use std::num::NonZeroU32;
use std::task::Waker;

use onesided_fabric::SegmentKey;
use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};

use super::bytes::{Bytes, SHORT};
use super::peer::{Outgoing, units};
use super::pipeline::Exposed;
use super::rendezvous::Target;
use super::{Engine, keep};
use crate::elements::{Allocate, Elements};
use crate::matching::{Arrival, COLLECTIVE, Envelope, GROUPS, Handle, Pattern, communicator};
use crate::wire::{By, Packet, RequestId};

/// A message that has arrived.
#[derive(Debug)]
pub(crate) enum Body<S> {
    /// The whole of it.
    Eager(Bytes),
    /// The whole of it, which was read. Its sender has its FIN.
    Here(Box<dyn Elements>),
    /// Where it lies, or where its slice is [offered](crate::offered); of one that its sender
    /// writes, its length. Its sender waits for a FIN, or for memory to write to.
    Announced { request: RequestId, key: SegmentKey, by: By },
    /// What was moved of it into memory of this rank, or why it could not be; and its length. Its
    /// sender waits for nothing.
    Read { memory: Result<S, Fault>, len: u64 },
    /// It moves, though its receive was dropped: for this one, which the next receive that gets it
    /// [awaits](ReceiveState::Awaits); of a matched message, for the one that awaits it.
    Moving { receive: usize, len: u64 },
}

/// An empty message.
impl<S> Default for Body<S> {
    fn default() -> Self {
        Self::Eager(Bytes::default())
    }
}

impl<S> Body<S> {
    /// The message's length in bytes.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Eager(bytes) => bytes.len() as u64,
            Self::Here(elements) => elements.bytes().len() as u64,
            Self::Announced { key, .. } => key.len,
            Self::Read { len, .. } | Self::Moving { len, .. } => *len,
        }
    }

    /// How it moves, if it was announced.
    pub(super) const fn by(&self) -> Option<By> {
        match self {
            Self::Announced { by, .. } => Some(*by),
            Self::Eager(_) | Self::Here(_) | Self::Read { .. } | Self::Moving { .. } => None,
        }
    }

    /// Whether it is not here, and its receive can only wait for it.
    pub(crate) const fn is_to_come(&self) -> bool {
        match self {
            Self::Announced { by, .. } => by.is_written(),
            Self::Moving { .. } => true,
            Self::Eager(_) | Self::Here(_) | Self::Read { .. } => false,
        }
    }
}

/// How many packets a receive takes in at most before it is posted.
const AT_ONCE: u32 = 16;

/// A message that was matched.
#[derive(Debug)]
pub(crate) struct Matched<S> {
    pub(crate) envelope: Envelope,
    pub(super) arrival: Arrival,
    /// Whether its credit has gone back: it was matched before, and given back.
    pub(super) is_consumed: bool,
    pub(crate) body: Body<S>,
}

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
    pub(crate) const fn posted(receive: usize, into: &'b mut [u8]) -> Self {
        Self { receive: Looking::Posted(receive), into, landed: None }
    }

    /// The memory of a receive, for [`receive_into`](Engine::receive_into).
    pub(crate) const fn into(into: &'b mut [u8]) -> Self {
        Self { receive: Looking::Nobody, into, landed: None }
    }

    /// No receive.
    pub(crate) const fn none() -> Self {
        Self::into(&mut [])
    }

    /// What has come, where something has.
    #[inline]
    pub(crate) fn landed(&self) -> &Landed {
        self.landed.as_ref().unwrap_or_else(|| unreachable!("nothing has come"))
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
pub(crate) enum Posting<S> {
    Posted(usize),
    /// Boxed, as most receives move this about and few have it.
    Taken(Box<Matched<S>>),
    /// It is in the memory of the receive, whole: what came is in its [`Direct`].
    Landed,
}

/// The default is a receive that is posted.
#[derive(Debug)]
pub(super) struct Receive<S> {
    pub(super) state: ReceiveState<S>,
    /// The memory of a message that another task reads; `None`: any bytes.
    pub(super) allocate: Option<Allocate>,
    /// Memory that its message is moved to, if it fits.
    pub(super) into: Option<S>,
    pub(super) waker: Option<Waker>,
}

#[derive(Debug)]
pub(super) enum ReceiveState<S> {
    Posted,
    Matched(Box<Matched<S>>),
    /// Another task reads the message, because this one waits for something else or for nothing; or
    /// its sender writes it.
    Moving {
        matched: Box<Matched<S>>,
        target: Target,
        /// The memory that its sender writes to, or the elements that packets are for.
        exposed: Option<Box<Exposed<S>>>,
        /// Whether it could not be moved, and is to come in packets.
        is_refused: bool,
    },
    /// Its message moves for this receive, which was dropped.
    Awaits(usize),
    Failed(Fault),
}

impl<S> ReceiveState<S> {
    /// Whether its message is not here, and not where its task reads it.
    pub(super) const fn is_pending(&self) -> bool {
        match self {
            Self::Posted | Self::Moving { .. } | Self::Awaits(_) => true,
            Self::Matched(matched) => matched.body.is_to_come(),
            Self::Failed(_) => false,
        }
    }
}

impl<S> Receive<S> {
    pub(super) const fn new(state: ReceiveState<S>) -> Self {
        Self { state, allocate: None, into: None, waker: None }
    }
}

impl<S> Default for Receive<S> {
    fn default() -> Self {
        Self::new(ReceiveState::Posted)
    }
}

impl<S> Engine<S> {
    /// Posts a receive. One that gets an announced message stays, for another task may read it.
    pub(crate) fn receive(&mut self, pattern: Pattern) -> Posting<S> {
        match self.take_unexpected(pattern) {
            Some(matched @ Matched { body: Body::Announced { .. } | Body::Moving { .. }, .. }) => {
                Posting::Posted(self.has_matched(pattern, Box::new(matched)))
            }
            Some(matched) => Posting::Taken(Box::new(matched)),
            None => self.post(pattern),
        }
    }

    /// Posts a receive that no unexpected message fits.
    #[inline]
    fn post(&mut self, pattern: Pattern) -> Posting<S> {
        let lost = pattern.source.and_then(|source| self.take_lost(Rank(source)));
        let receives = &mut self.matcher.receives;
        Posting::Posted(match lost {
            Some(fault) => receives.add(pattern, Receive::new(ReceiveState::Failed(fault))),
            None => receives.post(pattern),
        })
    }

    /// A message that another task reads for this receive goes to such memory.
    pub(crate) fn allocate_by(&mut self, receive: usize, allocate: Allocate) {
        self.matcher.receives[receive].allocate = Some(allocate);
    }

    /// A message that is announced for this receive is moved to such memory, whoever moves it.
    pub(crate) fn move_to(&mut self, receive: usize, memory: S) {
        self.matcher.receives[receive].into = Some(memory);
    }

    /// The same with a slice for an eager message that has arrived: `arrive` takes in a packet, if
    /// there is one.
    #[inline]
    pub(crate) fn receive_into(
        &mut self,
        pattern: Pattern,
        direct: &mut Direct<'_>,
        mut arrive: impl FnMut(&mut Self, &mut Direct<'_>) -> bool,
    ) -> Posting<S> {
        direct.receive = Looking::Unposted(pattern);
        for _ in 0..AT_ONCE {
            if let Some(found) = self.matcher.find(pattern) {
                return match self.land_unexpected(found, direct) {
                    true => Posting::Landed,
                    false => self.receive(pattern),
                };
            }
            // Of several receives that are posted at once, the first looks for what has arrived.
            if self.matcher.receives.has_posted() || !arrive(self, direct) {
                return self.post(pattern);
            }
            if direct.landed.is_some() {
                return Posting::Landed;
            }
        }
        self.receive(pattern)
    }

    /// Copies an unexpected message to the memory of its receive, if it is an eager one that fits.
    fn land_unexpected(&mut self, found: Handle, direct: &mut Direct<'_>) -> bool {
        let Some((envelope, (Body::Eager(bytes), is_consumed))) = self.matcher.unexpected(found) else { return false };
        let (len, is_consumed) = (bytes.len(), *is_consumed);
        let Some(into) = direct.into.get_mut(..len) else { return false };
        into.copy_from_slice(bytes);
        let arrival = self.matcher.drop_unexpected(found);
        self.count_early(envelope, u32::MAX);
        if !is_consumed {
            self.credit(Rank(envelope.source), len);
        }
        direct.landed = Some(Landed { envelope, arrival, len: len as u32 });
        true
    }

    /// [Gives back](Self::give_back) a message that is in the memory of a receive, whole.
    pub(crate) fn give_back_landed(&mut self, Landed { envelope, arrival, len }: Landed, memory: &[u8]) {
        let (bytes, mut first) = (&memory[..len as usize], [0; SHORT]);
        let short = bytes.len().min(SHORT);
        first[..short].copy_from_slice(&bytes[..short]);
        let body = Body::Eager(Bytes::new(bytes.len(), &first, |into| into.copy_from_slice(bytes)));
        self.give_back(Matched { envelope, arrival, is_consumed: true, body });
    }

    /// Takes in packets until a posted receive has its message. Whether it is an eager one in the slice
    /// of the receive, which is over then: `direct` is [its slice](Direct::posted), if it has one;
    /// `arrive` as of [`receive_into`](Self::receive_into).
    #[inline]
    pub(crate) fn land(
        &mut self,
        receive: usize,
        direct: &mut Direct<'_>,
        mut arrive: impl FnMut(&mut Self, &mut Direct<'_>) -> bool,
    ) -> bool {
        while self.is_posted(receive) && arrive(self, direct) {
            if direct.landed.is_some() {
                return true;
            }
        }
        false
    }

    /// Whether a receive has no message yet.
    #[inline]
    pub(crate) fn is_posted(&self, receive: usize) -> bool {
        matches!(self.matcher.receives[receive].state, ReceiveState::Posted)
    }

    /// Takes the message of a receive, once there is one; until then `waker` is woken when there
    /// is. The receive is over afterwards; the message is to be [delivered](Self::deliver) or
    /// [given back](Self::give_back).
    pub(crate) fn received(&mut self, receive: usize, waker: &Waker) -> Option<Result<Matched<S>, Fault>> {
        let pending = &mut self.matcher.receives[receive];
        if pending.state.is_pending() {
            keep(&mut pending.waker, waker, &mut self.retired);
            return None;
        }
        match self.matcher.receives.remove(receive).state {
            ReceiveState::Matched(matched) => Some(Ok(*matched)),
            ReceiveState::Failed(fault) => Some(Err(fault)),
            ReceiveState::Posted | ReceiveState::Moving { .. } | ReceiveState::Awaits(_) => {
                unreachable!("it was over a moment ago")
            }
        }
    }

    /// Ends a receive that [`received`](Self::received) has not ended. A message that it had
    /// matched is unexpected again, also while it moves.
    pub(crate) fn cancel(&mut self, receive: usize) {
        let pending = &mut self.matcher.receives[receive];
        self.retired.extend(pending.waker.take());
        if let ReceiveState::Moving { .. } = pending.state {
            return self.give_back_moving(receive);
        }
        match self.matcher.receives.remove(receive).state {
            ReceiveState::Matched(matched) => self.give_back(*matched),
            ReceiveState::Awaits(moving) => self.give_back_moving(moving),
            ReceiveState::Posted | ReceiveState::Moving { .. } | ReceiveState::Failed(_) => {}
        }
    }

    /// Puts a message back in its place, or gives it to a receive that was posted since.
    pub(crate) fn give_back(&mut self, matched: Matched<S>) {
        if let Body::Moving { receive, .. } = matched.body {
            return self.cancel(receive);
        }
        self.place(matched);
        self.wake_own();
    }

    /// Wakes the threads of this rank that sleep: only a packet does.
    pub(crate) fn wake_own(&mut self) {
        self.queue(self.me, Outgoing::control(Packet::Credit.encode(0)));
    }

    /// Matches a message or keeps it, but for one of a communicator that is gone: its read may end
    /// after that.
    pub(super) fn place(&mut self, mut message: Matched<S>) {
        if let Err(fault) = self.check_connection(&message) {
            message.body.give_up(fault);
        }
        if !self.is_open(message.envelope.context) {
            self.consume(&mut message);
            return self.deliver(&message, Err(Fault::new(FaultKind::Closed)));
        }
        let receive = self.matcher.take_posted(message.envelope);
        self.place_at(receive, message);
    }

    /// Gives a message to the receive that it was matched to, or keeps it if that is none.
    pub(super) fn place_at(&mut self, receive: Option<usize>, mut message: Matched<S>) {
        let Some(at) = receive else {
            let Matched { envelope, arrival, is_consumed, body } = message;
            *self.keep(envelope, arrival).1 = (body, is_consumed);
            return;
        };
        self.consume(&mut message);
        self.is_to_move(at, message.body.by());
        let receive = &mut self.matcher.receives[at];
        receive.state = ReceiveState::Matched(Box::new(message));
        self.woken.extend(receive.waker.take());
    }

    /// The place of an unexpected message.
    #[inline]
    pub(super) fn keep(&mut self, envelope: Envelope, arrival: Arrival) -> (u32, &mut (Body<S>, bool)) {
        self.count_early(envelope, 1);
        self.woken.append(&mut self.probes);
        self.matcher.keep(envelope, arrival)
    }

    fn take_unexpected(&mut self, pattern: Pattern) -> Option<Matched<S>> {
        let found = self.matcher.find(pattern)?;
        let (envelope, arrival, (body, is_consumed)) = self.matcher.take(found)?;
        self.count_early(envelope, u32::MAX);
        let mut matched = Matched { envelope, arrival, is_consumed, body };
        self.consume(&mut matched);
        Some(matched)
    }

    /// Gives the credit of a message back, once.
    pub(super) fn consume(&mut self, message: &mut Matched<S>) {
        if std::mem::replace(&mut message.is_consumed, true) {
            return;
        }
        let kept = match &message.body {
            Body::Eager(bytes) => bytes.len(),
            Body::Announced { .. } | Body::Here(_) | Body::Read { .. } | Body::Moving { .. } => 0,
        };
        self.credit(Rank(message.envelope.source), kept);
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
            let all = self.matcher.all_unexpected().map(|(envelope, _)| *envelope);
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
            while let Some(matched) = self.take_unexpected(Pattern { context, source: None, tag: None }) {
                self.deliver(&matched, Err(Fault::new(FaultKind::Closed)));
            }
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
        let mut taken = self.take_unexpected(pattern);
        match taken.as_mut().map(|matched| (matched.envelope, &mut matched.body)) {
            None => self.wake_at_unexpected(waker),
            Some((envelope, Body::Moving { receive, .. })) => *receive = self.await_moving(envelope.into(), *receive),
            Some(_) => {}
        }
        taken
    }

    pub(crate) fn wake_at_unexpected(&mut self, waker: &Waker) {
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
            && self.check_connection(matched).is_ok()
        {
            let status = outcome.map_or_else(|fault| fault.kind() as u8, |()| 0);
            self.queue(from, Outgoing::control(Packet::Fin { request, status }.encode(0)));
        }
    }

    /// Whether packets without messages wait for room at a peer: it may wait for them.
    pub(crate) fn owes_packets(&self, to: Rank) -> bool {
        self.known_peer(to).is_some_and(|peer| peer.lost.is_none() && peer.has_controls())
    }
}
