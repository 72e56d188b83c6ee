//! A peer: what is to be sent to it, and the credit of both directions.

use std::collections::VecDeque;

use onesided_fabric::remote_memory::Fault;
use onesided_fabric::{Channel, entries};

use super::Tally;
use super::eager::QUEUED_MAX;
use crate::engine::matching::{Arrival, COLLECTIVE, LOCK};
use crate::engine::wire::{Encoded, Packet};

/// The bytes of an eager message that cost one unit of credit more.
const UNIT: usize = 64;

/// What a message costs: its record, and the bytes that its receiver keeps of it.
#[inline]
pub(super) const fn units(kept: usize) -> u32 {
    1 + kept.div_ceil(UNIT) as u32
}

/// The units that a rank gives all its peers together, where that is enough for each: 16 MiB.
const ALL: u32 = (16 << 20) / UNIT as u32;
/// The units of a peer, at most: 256 KiB.
const MOST: u32 = 4096;
/// At least, which is more than a packet that may wait costs.
const LEAST: u32 = 128;
/// Those of them that only words of served locks may spend: a lock is released although the peer receives
/// nothing that was sent before. And those that only collectives may spend besides.
const OF_LOCKS: u32 = 4 * units(8);
const OF_COLLECTIVES: u32 = units(QUEUED_MAX);
const _: () =
    assert!(LEAST - OF_LOCKS - OF_COLLECTIVES >= units(QUEUED_MAX), "a message that waits could never be sent");

/// The units that each of so many ranks gives each other one.
pub(crate) const fn window(ranks: u32) -> u32 {
    let each = ALL / if ranks == 0 { 1 } else { ranks };
    if each < LEAST {
        LEAST
    } else if each > MOST {
        MOST
    } else {
        each
    }
}

entries! {
    /// What packets wait for one another, in the order in which they are sent.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Class {
        /// No message: it costs no credit, and may bring some.
        Control,
        Lock,
        Collective,
        Message,
        /// Of a long message that goes in packets, for which its receiver has room.
        Data,
    }
    const ALL;
}

impl Class {
    /// The queue of such packets: the DATA are behind the controls.
    #[inline]
    const fn queue(self) -> usize {
        match self {
            Self::Control | Self::Data => 0,
            Self::Lock => 1,
            Self::Collective => 2,
            Self::Message => 3,
        }
    }

    /// Of a message in a context.
    #[inline]
    pub(super) const fn of(context: u32) -> Self {
        match (context & COLLECTIVE != 0, context & LOCK != 0) {
            (true, _) => Self::Collective,
            (false, true) => Self::Lock,
            (false, false) => Self::Message,
        }
    }

    /// The units that it leaves to others.
    #[inline]
    const fn leaves(self) -> u32 {
        match self {
            Self::Control | Self::Data | Self::Lock => 0,
            Self::Collective => OF_LOCKS,
            Self::Message => OF_LOCKS + OF_COLLECTIVES,
        }
    }
}

/// A packet to be sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    packet: Encoded,
    /// The message of an EAGER, or the bytes of a DATA.
    body: Box<[u8]>,
    class: Class,
    /// The send whose message or FIN it is.
    send: Option<usize>,
}

impl Outgoing {
    pub(super) fn message(send: usize, class: Class, packet: Encoded, body: &[u8]) -> Self {
        Self { packet, body: body.into(), class, send: Some(send) }
    }

    pub(super) fn control(packet: Encoded) -> Self {
        Self { packet, body: Box::default(), class: Class::Control, send: None }
    }

    /// A message without bytes that no send waits for.
    pub(super) fn notice(class: Class, packet: Encoded) -> Self {
        Self { class, ..Self::control(packet) }
    }

    pub(super) fn data(packet: Encoded, body: Box<[u8]>) -> Self {
        Self { packet, body, class: Class::Data, send: None }
    }

    /// The FIN of a send that is over when it is on its way. One of a message in packets is behind
    /// them.
    pub(super) fn fin(send: usize, is_copied: bool, packet: Encoded) -> Self {
        let class = if is_copied { Class::Data } else { Class::Control };
        Self { send: Some(send), class, ..Self::control(packet) }
    }
}

/// The counters are cumulative and wrap.
#[derive(Debug)]
pub(super) struct Peer {
    /// What waits, by [class](Class::queue), once something has waited.
    queues: Option<Box<[VecDeque<Outgoing>; 4]>>,
    /// Whether the engine's list of busy peers has it.
    pub(super) is_busy: bool,
    /// Why it is reached no more.
    pub(super) lost: Option<Fault>,
    /// What the next call is to be told of its last connection.
    pub(super) untold: Option<Fault>,
    /// The last message that came before its connection was made, and the last send before.
    pub(super) before: (Arrival, u64),
    /// Whether it has asked for credit, and whether this rank has.
    pub(super) wants_credit: bool,
    has_asked: bool,
    window: u32,
    /// The units spent on messages to it, and how many it allows.
    spent: u32,
    allowed: u32,
    /// The units of messages that came from it, and of those of them that are not unexpected any
    /// more; what it was last told that it may spend.
    came: u32,
    pub(super) consumed: u32,
    told: u32,
    /// The messages to it, by channel.
    sent: [Tally; Channel::ALL.len()],
}

impl Peer {
    pub(super) fn new(window: u32) -> Self {
        Self {
            queues: None,
            is_busy: false,
            lost: None,
            untold: None,
            before: (Arrival::default(), 0),
            wants_credit: false,
            has_asked: false,
            spent: 0,
            allowed: window,
            came: 0,
            consumed: 0,
            told: window,
            window,
            sent: [Tally::default(); Channel::ALL.len()],
        }
    }

    /// Its connection is another one, with the credit of a first one.
    pub(super) fn renew(&mut self, before: (Arrival, u64), fault: Fault, is_untold: bool) {
        let untold = if is_untold { Some(fault) } else { self.untold };
        *self = Self { is_busy: self.is_busy, sent: self.sent, untold, before, ..Self::new(self.window) };
    }

    pub(super) fn queue(&mut self, outgoing: Outgoing) {
        let queue = &mut self.queues.get_or_insert_default()[outgoing.class.queue()];
        let at = match outgoing.class {
            Class::Control => queue.partition_point(|other| other.class == Class::Control),
            Class::Lock | Class::Collective | Class::Message | Class::Data => queue.len(),
        };
        queue.insert(at, outgoing);
    }

    /// Whether [`next`](Self::next) has a packet.
    pub(super) fn has_next(&self) -> bool {
        self.next_class().is_some() || self.has_queued() && !self.has_asked
    }

    /// What is first in the queue of a class.
    #[inline]
    fn first(&self, class: Class) -> Option<&Outgoing> {
        self.queues.as_ref()?[class.queue()].front()
    }

    /// Whether packets wait to be sent.
    #[inline]
    pub(super) fn has_queued(&self) -> bool {
        self.queues.as_ref().is_some_and(|queues| !queues.iter().all(VecDeque::is_empty))
    }

    /// The class of the next packet that may be sent.
    fn next_class(&self) -> Option<Class> {
        Class::ALL.into_iter().find(|class| {
            let first = self.first(*class).filter(|first| first.class == *class);
            first.is_some_and(|first| self.can_pay(*class, first.body.len()))
        })
    }

    /// A number that changes with each message that comes.
    pub(super) const fn came(&self) -> u32 {
        self.came
    }

    /// The number of messages that wait for credit, if any do.
    pub(super) fn without_credit(&self) -> Option<usize> {
        let waits = |first: &Outgoing| !self.can_pay(first.class, first.body.len());
        let waiting = self.queues.iter().flat_map(|queues| &**queues).filter(|queue| queue.front().is_some_and(waits));
        Some(waiting.map(VecDeque::len).sum()).filter(|count| *count > 0)
    }

    #[inline]
    fn can_pay(&self, class: Class, kept: usize) -> bool {
        matches!(class, Class::Control | Class::Data) || self.can_spend(class, units(kept))
    }

    /// Whether there is credit of so many units for messages of a class.
    #[inline]
    pub(super) const fn can_spend(&self, class: Class, units: u32) -> bool {
        let leaves = if self.window < LEAST { 0 } else { class.leaves() }; // a smaller window is a test's
        self.allowed.wrapping_sub(self.spent) >= units + leaves
    }

    /// Whether a message may be sent now, before it is queued. If so, the grant that goes with it.
    #[inline]
    pub(super) fn may_pass(&self, class: Class, kept: usize) -> Option<u32> {
        let is_told = self.lost.is_none() && self.untold.is_none();
        let may = is_told && self.first(class).is_none() && self.can_pay(class, kept);
        may.then_some(self.grant())
    }

    /// A message that [may pass](Self::may_pass) was sent.
    #[inline]
    pub(super) const fn passed(&mut self, kept: usize) {
        self.spend(units(kept));
    }

    /// Messages of so many units were sent, with the grant.
    #[inline]
    pub(super) const fn spend(&mut self, units: u32) {
        self.spent = self.spent.wrapping_add(units);
        self.told = self.grant();
    }

    /// What the peer is told with a packet that is sent now.
    #[inline]
    const fn grant(&self) -> u32 {
        self.consumed.wrapping_add(self.window)
    }

    /// The next packet that may be sent, with the grant of now, and what follows its head.
    pub(super) fn next(&mut self) -> Option<(Encoded, &[u8])> {
        if self.next_class().is_none() {
            if !self.has_queued() || std::mem::replace(&mut self.has_asked, true) {
                return None;
            }
            self.queue(Outgoing::control(Packet::Ask.encode(0)));
        }
        let grant = self.grant();
        let next = self.first(self.next_class()?)?;
        Some((next.packet.with_grant(grant), &next.body))
    }

    /// The packet of [`next`](Self::next) was sent; the send whose message or FIN it was.
    pub(super) fn posted(&mut self) -> Option<usize> {
        let next = self.next_class()?.queue();
        let Outgoing { class, body, send, .. } = self.queues.as_mut()?[next].pop_front()?;
        match class {
            Class::Control | Class::Data => self.told = self.grant(),
            Class::Lock | Class::Collective | Class::Message => self.passed(body.len()),
        }
        send
    }

    /// Takes a grant. It never falls, as packets arrive in order.
    #[inline]
    pub(super) fn granted(&mut self, grant: u32) {
        if grant.wrapping_sub(self.spent) <= self.window {
            self.has_asked &= grant == self.allowed;
            self.allowed = grant;
        }
    }

    /// Counts a message that comes; `false` if the peer had no credit for it.
    #[inline]
    pub(super) const fn takes_message(&mut self, kept: usize) -> bool {
        let has_credit = self.told.wrapping_sub(self.came) >= units(kept);
        self.came = self.came.wrapping_add(units(kept));
        has_credit
    }

    /// Whether the peer should get a packet with its credit alone.
    #[inline]
    pub(super) fn owes_credit(&mut self) -> bool {
        let owed = self.grant().wrapping_sub(self.told);
        let at_least = if self.wants_credit { 1 } else { self.window / 2 };
        let owes = owed >= at_least && !self.has_controls();
        self.wants_credit &= owed < at_least; // any packet that waits brings the credit
        owes
    }

    pub(super) fn has_controls(&self) -> bool {
        self.first(Class::Control).is_some_and(|first| first.class == Class::Control)
    }

    /// The messages that it was sent by a channel.
    #[inline]
    pub(super) const fn sent_by(&mut self, channel: Channel) -> &mut Tally {
        &mut self.sent[channel as usize]
    }

    /// The messages that it was sent, by channel.
    pub(super) const fn sent(&self) -> [Tally; Channel::ALL.len()] {
        self.sent
    }

    #[cfg(test)]
    pub(super) const fn counters(&self) -> Counters {
        let Self { spent, allowed, came, consumed, told, .. } = *self;
        Counters { spent, allowed, came, consumed, told }
    }

    /// Nothing that is queued will be sent; the sends among it.
    pub(super) fn drop_queue(&mut self) -> Vec<usize> {
        self.queues
            .take()
            .into_iter()
            .flat_map(|queues| *queues)
            .flatten()
            .filter_map(|outgoing| outgoing.send)
            .collect()
    }
}

/// The counters of a [`Peer`].
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Counters {
    pub(super) spent: u32,
    pub(super) allowed: u32,
    pub(super) came: u32,
    pub(super) consumed: u32,
    pub(super) told: u32,
}
