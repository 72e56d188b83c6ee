//! A peer: what is to be sent to it, and the credit of both directions.

use std::collections::VecDeque;

use onesided_fabric::remote_memory::Fault;

use crate::wire::{Encoded, Packet};

/// The unexpected messages that a rank keeps of each peer, at most.
pub(crate) const WINDOW: u32 = 1024;

/// A packet to be sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    packet: Encoded,
    /// The send whose message it is; a message costs credit.
    send: Option<usize>,
}

impl Outgoing {
    pub(super) const fn message(send: usize, packet: Encoded) -> Self {
        Self { packet, send: Some(send) }
    }

    pub(super) const fn control(packet: Encoded) -> Self {
        Self { packet, send: None }
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
    /// Whether it has asked for credit, and whether this rank has.
    pub(super) wants_credit: bool,
    has_asked: bool,
    /// Messages sent to it, and how many it allows.
    spent: u32,
    allowed: u32,
    /// Messages that came from it, and those of them that are not unexpected any more; what it was
    /// last told that it may send.
    came: u32,
    pub(super) consumed: u32,
    told: u32,
}

impl Default for Peer {
    fn default() -> Self {
        Self {
            controls: VecDeque::new(),
            messages: VecDeque::new(),
            is_busy: false,
            lost: None,
            wants_credit: false,
            has_asked: false,
            spent: 0,
            allowed: WINDOW,
            came: 0,
            consumed: 0,
            told: WINDOW,
        }
    }
}

impl Peer {
    pub(super) fn queue(&mut self, outgoing: Outgoing) {
        match outgoing.send {
            Some(_) => self.messages.push_back(outgoing),
            None => self.controls.push_back(outgoing),
        }
    }

    pub(super) fn can_send(&self) -> bool {
        !self.controls.is_empty() || !self.messages.is_empty() && self.spent != self.allowed
    }

    /// The next packet that may be sent, with the grant of now.
    pub(super) fn next(&mut self) -> Option<Encoded> {
        if !self.can_send() {
            if self.messages.is_empty() || std::mem::replace(&mut self.has_asked, true) {
                return None;
            }
            self.controls.push_back(Outgoing::control(Packet::Ask.encode(0)));
        }
        self.told = self.consumed.wrapping_add(WINDOW);
        let next = self.controls.front().or(self.messages.front())?;
        Some(next.packet.with_grant(self.told))
    }

    /// The packet of [`next`](Self::next) was sent; the send whose message it was.
    pub(super) fn posted(&mut self) -> Option<usize> {
        if self.controls.pop_front().is_some() {
            return None;
        }
        self.spent = self.spent.wrapping_add(1);
        self.messages.pop_front()?.send
    }

    /// Takes a grant. It never falls, as packets arrive in order.
    pub(super) fn granted(&mut self, grant: u32) {
        if grant.wrapping_sub(self.spent) <= WINDOW {
            self.has_asked &= grant == self.allowed;
            self.allowed = grant;
        }
    }

    /// Counts a message that comes; `false` if the peer had no credit for it.
    pub(super) fn takes_message(&mut self) -> bool {
        let has_credit = self.came != self.told;
        self.came = self.came.wrapping_add(1);
        has_credit
    }

    /// Whether the peer should get a packet with its credit alone.
    pub(super) fn owes_credit(&mut self) -> bool {
        let owed = self.consumed.wrapping_add(WINDOW).wrapping_sub(self.told);
        let at_least = if self.wants_credit { 1 } else { WINDOW / 2 };
        let owes = owed >= at_least && self.controls.is_empty();
        self.wants_credit &= owed < at_least; // any packet that waits brings the credit
        owes
    }

    pub(super) fn has_controls(&self) -> bool {
        !self.controls.is_empty()
    }

    /// Nothing that is queued will be sent; the sends among it.
    pub(super) fn drop_queue(&mut self) -> Vec<usize> {
        self.controls.clear();
        self.messages.drain(..).filter_map(|outgoing| outgoing.send).collect()
    }
}
