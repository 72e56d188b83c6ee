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
    /// When an acknowledgement is due.
    due: u64,
}

/// The way of a packet, and its bytes.
pub(super) type Came = (Channel, Box<[u8]>);

/// What became of a packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrived {
    New,
    Duplicate,
    /// There is no room for it.
    Beyond,
}

impl Receiver {
    pub(super) const fn new(first: u32) -> Self {
        Self { next: first, early: VecDeque::new(), unread: 0, told: first.wrapping_add(LARGEST), due: NEVER }
    }

    pub(super) const fn due(&self) -> u64 {
        self.due
    }

    /// An acknowledgement is due at once.
    pub(super) const fn hurry(&mut self) {
        self.due = 0;
    }

    const fn room(&self) -> u32 {
        LARGEST.saturating_sub(self.unread) // what came by another channel needs none
    }

    /// Whether one that was sent before this packet is missing.
    pub(super) const fn is_ahead(&self, number: u32) -> bool {
        number.wrapping_sub(self.next) as i32 > 0
    }

    /// What is acknowledged now; none is due then.
    pub(super) fn acknowledge(&mut self) -> Acknowledgement {
        self.due = NEVER;
        self.told = self.next.wrapping_add(self.room());
        let bits = self.early.iter().skip(1).take(64).zip(0..);
        let selective = bits.fold(0, |bits, (early, bit)| bits | u64::from(early.is_some()) << bit);
        Acknowledgement { next: self.next, room: self.room() as u16, selective }
    }

    /// Takes in a packet; those that are in order now are delivered. Its acknowledgement waits
    /// until `acknowledged_at` at most.
    pub(super) fn arrived(
        &mut self,
        acknowledged_at: u64,
        number: u32,
        packet: &[u8],
        mut deliver: impl FnMut(Came),
    ) -> Arrived {
        let ahead = number.wrapping_sub(self.next);
        if ahead >= self.room() {
            self.hurry(); // the sender does not know
            return if (ahead as i32) < 0 { Arrived::Duplicate } else { Arrived::Beyond };
        }
        let place = ahead as usize;
        if self.early.get(place).is_some_and(Option::is_some) {
            self.hurry();
            return Arrived::Duplicate;
        }
        self.keep(place, (Channel::Datagrams, packet.into()), &mut deliver);
        self.due = self.due.min(acknowledged_at);
        Arrived::New
    }

    /// Takes in a packet that came once and in the order of another channel. `false`: it has come before,
    /// or is further ahead than its sender may send.
    pub(super) fn arrived_apart(&mut self, number: u32, packet: Came, mut deliver: impl FnMut(Came)) -> bool {
        let place = number.wrapping_sub(self.next) as usize;
        let is_new = place < LARGEST as usize && self.early.get(place).is_none_or(Option::is_none);
        if is_new {
            self.keep(place, packet, &mut deliver);
        }
        is_new
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

    /// A packet was taken: an acknowledgement tells the sender of the room if half of it is new.
    pub(super) const fn taken(&mut self) {
        self.unread -= 1;
        let limit = self.next.wrapping_add(self.room());
        if limit.wrapping_sub(self.told) >= LARGEST / 2 {
            self.hurry();
        }
    }
}
