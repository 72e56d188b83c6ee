//! A peer: what is to be sent to it, and the credit of both directions.

use std::collections::VecDeque;

use onesided_fabric::remote_memory::Fault;

use crate::matching::Arrival;
use crate::wire::{Encoded, Packet};

/// The bytes of an eager message that cost one unit of credit more.
const UNIT: usize = 64;

/// What a message costs: its record, and the bytes that its receiver keeps of it.
pub(super) const fn units(kept: usize) -> u32 {
    1 + kept.div_ceil(UNIT) as u32
}

/// The units that a rank gives all its peers together, where that is enough for each: 16 MiB.
const ALL: u32 = (16 << 20) / UNIT as u32;
/// The units of a peer, at most: 256 KiB.
const MOST: u32 = 4096;
/// At least, which is more than a packet that may wait costs.
const LEAST: u32 = 128;

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

/// A packet to be sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    packet: Encoded,
    /// The message of an EAGER.
    body: Box<[u8]>,
    /// Whether it is a message, which costs credit.
    is_message: bool,
    /// The send whose message or FIN it is.
    send: Option<usize>,
}

impl Outgoing {
    pub(super) fn message(send: usize, packet: Encoded, body: &[u8]) -> Self {
        Self { packet, body: body.into(), is_message: true, send: Some(send) }
    }

    pub(super) fn control(packet: Encoded) -> Self {
        Self { packet, body: Box::default(), is_message: false, send: None }
    }

    /// The FIN of a send that is over when it is on its way.
    pub(super) fn fin(send: usize, packet: Encoded) -> Self {
        Self { send: Some(send), ..Self::control(packet) }
    }
}

/// The counters are cumulative and wrap.
#[derive(Debug)]
pub(super) struct Peer {
    /// Packets without messages go first: they cost no credit, and may bring some.
    controls: VecDeque<Outgoing>,
    messages: VecDeque<Outgoing>,
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
}

impl Peer {
    pub(super) fn new(window: u32) -> Self {
        Self {
            controls: VecDeque::new(),
            messages: VecDeque::new(),
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
        }
    }

    /// Its connection is another one, with the credit of a first one.
    pub(super) fn renew(&mut self, before: (Arrival, u64), fault: Fault, is_untold: bool) {
        let untold = if is_untold { Some(fault) } else { self.untold };
        *self = Self { is_busy: self.is_busy, untold, before, ..Self::new(self.window) };
    }

    pub(super) fn queue(&mut self, outgoing: Outgoing) {
        match outgoing.is_message {
            true => self.messages.push_back(outgoing),
            false => self.controls.push_back(outgoing),
        }
    }

    /// Whether [`next`](Self::next) has a packet.
    pub(super) fn has_next(&self) -> bool {
        self.can_send() || !self.messages.is_empty() && !self.has_asked
    }

    /// Whether packets wait to be sent.
    #[inline]
    pub(super) fn has_queued(&self) -> bool {
        !(self.controls.is_empty() && self.messages.is_empty())
    }

    fn can_send(&self) -> bool {
        !self.controls.is_empty() || self.messages.front().is_some_and(|first| self.can_pay(first.body.len()))
    }

    /// A number that changes with each message that comes.
    pub(super) const fn came(&self) -> u32 {
        self.came
    }

    /// The number of messages that wait for credit, if any do.
    pub(super) fn without_credit(&self) -> Option<usize> {
        let first = self.messages.front()?;
        (!self.can_pay(first.body.len())).then_some(self.messages.len())
    }

    fn can_pay(&self, kept: usize) -> bool {
        self.allowed.wrapping_sub(self.spent) >= units(kept)
    }

    /// Whether a message may be sent now, before it is queued. If so, the grant that goes with it.
    #[inline]
    pub(super) fn may_pass(&self, kept: usize) -> Option<u32> {
        let may = self.messages.is_empty() && self.can_pay(kept);
        may.then_some(self.grant())
    }

    /// A message that [may pass](Self::may_pass) was sent.
    #[inline]
    pub(super) const fn passed(&mut self, kept: usize) {
        self.spent = self.spent.wrapping_add(units(kept));
        self.told = self.grant();
    }

    /// What the peer is told with a packet that is sent now.
    const fn grant(&self) -> u32 {
        self.consumed.wrapping_add(self.window)
    }

    /// The next packet that may be sent, with the grant of now, and the message of an EAGER.
    pub(super) fn next(&mut self) -> Option<(Encoded, &[u8])> {
        if !self.can_send() {
            if self.messages.is_empty() || std::mem::replace(&mut self.has_asked, true) {
                return None;
            }
            self.controls.push_back(Outgoing::control(Packet::Ask.encode(0)));
        }
        let grant = self.grant();
        let next = self.controls.front().or(self.messages.front())?;
        Some((next.packet.with_grant(grant), &next.body))
    }

    /// The packet of [`next`](Self::next) was sent; the send whose message or FIN it was.
    pub(super) fn posted(&mut self) -> Option<usize> {
        if let Some(Outgoing { send, .. }) = self.controls.pop_front() {
            self.told = self.grant();
            return send;
        }
        let Outgoing { body, send, .. } = self.messages.pop_front()?;
        self.passed(body.len());
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
        let owes = owed >= at_least && self.controls.is_empty();
        self.wants_credit &= owed < at_least; // any packet that waits brings the credit
        owes
    }

    pub(super) fn has_controls(&self) -> bool {
        !self.controls.is_empty()
    }

    #[cfg(test)]
    pub(super) const fn counters(&self) -> Counters {
        let Self { spent, allowed, came, consumed, told, .. } = *self;
        Counters { spent, allowed, came, consumed, told }
    }

    /// Nothing that is queued will be sent; the sends among it.
    pub(super) fn drop_queue(&mut self) -> Vec<usize> {
        self.controls.drain(..).chain(self.messages.drain(..)).filter_map(|outgoing| outgoing.send).collect()
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
