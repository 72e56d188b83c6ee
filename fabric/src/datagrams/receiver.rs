//! The receiving half of a peer: packets in order, and their acknowledgement.

use std::collections::VecDeque;

use super::header::Acknowledgement;
use super::sender::NEVER;
use super::window::LARGEST;
use crate::Channel;

#[derive(Debug)]
pub(super) struct Receiver {
    /// The number of the next packet in order.
    next: u32,
    /// Packets from `next` on that came early. The first is missing.
    early: VecDeque<Option<Came>>,
    /// Packets in order that were not taken.
    unread: u32,
    /// The limit that the sender was told.
    told: u32,
    /// Before which number all packets were last acknowledged.
    acknowledged: u32,
    /// When an acknowledgement is due.
    due: u64,
}

/// The way of a packet, and its bytes.
pub(super) type Came = (Channel, Box<[u8]>);

/// What became of a packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrived {
    InOrder,
    /// One that was sent before it is missing.
    Ahead,
    Duplicate,
    /// There is no room for it.
    Beyond,
}

impl Receiver {
    pub(super) const fn new(first: u32) -> Self {
        let told = first.wrapping_add(LARGEST);
        Self { next: first, early: VecDeque::new(), unread: 0, told, acknowledged: first, due: NEVER }
    }

    pub(super) const fn due(&self) -> u64 {
        self.due
    }

    /// The number of the first packet that it lacks.
    pub(super) const fn next(&self) -> u32 {
        self.next
    }

    /// An acknowledgement is due at once.
    pub(super) const fn hurry(&mut self) {
        self.due = 0;
    }

    const fn room(&self) -> u32 {
        LARGEST.saturating_sub(self.unread) // what came by another channel needs none
    }

    /// What is acknowledged now; none is due then.
    pub(super) fn acknowledge(&mut self) -> Acknowledgement {
        self.due = NEVER;
        self.acknowledged = self.next;
        self.told = self.next.wrapping_add(self.room());
        let bits = self.early.iter().skip(1).take(64).zip(0..);
        let selective = bits.fold(0, |bits, (early, bit)| bits | u64::from(early.is_some()) << bit);
        Acknowledgement { next: self.next, room: self.room() as u16, selective }
    }

    /// Takes in a packet, of another channel whatever is unread: its sender sees to that. Those that are in
    /// order now are delivered.
    pub(super) fn arrived(
        &mut self,
        number: u32,
        (channel, packet): (Channel, impl Into<Box<[u8]>>),
        deliver: &mut impl FnMut(Came),
    ) -> Arrived {
        let ahead = number.wrapping_sub(self.next);
        let room = if channel == Channel::Datagrams { self.room() } else { LARGEST };
        if (ahead as i32) < 0 || self.early.get(ahead as usize).is_some_and(Option::is_some) {
            return Arrived::Duplicate;
        }
        if ahead >= room {
            return Arrived::Beyond;
        }
        self.keep(ahead as usize, (channel, packet.into()), deliver);
        if ahead > 0 { Arrived::Ahead } else { Arrived::InOrder }
    }

    /// Whether a packet of another channel is the next in order. It is taken then.
    #[inline]
    pub(super) fn takes(&mut self, number: u32) -> bool {
        let is_next = number == self.next && self.early.is_empty();
        if is_next {
            self.next = number.wrapping_add(1);
            self.tell_of_room();
        }
        is_next
    }

    /// An acknowledgement waits until then at most.
    pub(super) fn acknowledge_by(&mut self, time: u64) {
        self.due = self.due.min(time);
    }

    /// The same after a packet of another channel, and at once if so many were not acknowledged: its sender cannot ask
    /// with it.
    pub(super) fn acknowledge_apart(&mut self, every: u32, time: u64) {
        self.acknowledge_by(if self.next.wrapping_sub(self.acknowledged) >= every { 0 } else { time });
    }

    /// A packet of another channel tells the sender what has come, and that alone: what is due at once is more.
    pub(super) const fn acknowledged_apart(&mut self) {
        self.acknowledged = self.next;
        if self.due > 0 {
            self.due = NEVER;
        }
    }

    /// Keeps a packet until those before it have come, and delivers what is in order.
    fn keep(&mut self, place: usize, packet: Came, deliver: &mut impl FnMut(Came)) {
        if place > 0 || !self.early.is_empty() {
            self.hurry(); // a hole is there, or filled
            if self.early.len() <= place {
                self.early.resize_with(place + 1, || None);
            }
            self.early[place] = Some(packet);
        } else {
            self.deliver(packet, deliver);
        }
        while let Some(Some(packet)) = self.early.front_mut().map(Option::take) {
            self.early.pop_front();
            self.deliver(packet, deliver);
        }
    }

    fn deliver(&mut self, packet: Came, deliver: &mut impl FnMut(Came)) {
        self.next = self.next.wrapping_add(1);
        self.unread += 1;
        deliver(packet);
    }

    /// A packet was taken.
    pub(super) const fn taken(&mut self) {
        self.unread -= 1;
        self.tell_of_room();
    }

    /// An acknowledgement tells the sender of the room if half of it is new.
    const fn tell_of_room(&mut self) {
        let limit = self.next.wrapping_add(self.room());
        if limit.wrapping_sub(self.told) >= LARGEST / 2 {
            self.hurry();
        }
    }
}
