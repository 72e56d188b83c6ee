//! The sending half of a peer: packets until they are acknowledged.

use std::collections::VecDeque;

use super::header::Acknowledgement;
use super::window::{LARGEST, RoundTrip, Window};

/// A packet is sent again when this many that were sent after it have arrived.
const PASSES: u8 = 3;
/// A timer that does not run.
pub(super) const NEVER: u64 = u64::MAX;

#[derive(Debug)]
pub(super) struct Sender {
    /// Packets from the first one that the receiver lacks.
    packets: VecDeque<Packet>,
    /// The number of the first of them.
    first: u32,
    /// How many of them were sent at least once.
    sent: usize,
    in_flight: u32,
    /// Sent, and not in flight any more: they are sent again.
    lost: u32,
    /// The receiver takes packets before this number.
    limit: u32,
    window: Window,
    round_trip: RoundTrip,
    /// How many transmissions there were.
    transmissions: u64,
    /// A loss among earlier transmissions does not reduce the window once more.
    reduced_at: u64,
    /// When the timer ends.
    timer: u64,
    /// How often it has ended without an answer that brought anything.
    unanswered: u32,
    /// Whether the receiver is to be asked for an acknowledgement.
    asks: bool,
    /// How many transmissions there were when the timer last had it asked.
    asked_at: u64,
    /// Packets since the last one that asked.
    unasked: u32,
    /// Whether a packet found no room at the receiver.
    wants_room: bool,
    /// How many of the packets lie in slots of the receiver.
    in_slots: u32,
}

#[derive(Debug)]
struct Packet {
    bytes: Box<[u8]>,
    is_solicited: bool,
    state: State,
    sent_at: u64,
    /// Which transmission it was.
    transmission: u64,
    /// How many later transmissions have arrived.
    passed: u8,
    is_repeated: bool,
    /// It lies in a slot of the receiver until it is acknowledged.
    in_slot: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    New,
    InFlight,
    Lost,
    /// It took another channel, and is sent again if that fails.
    Apart,
    /// By the receiver, or it took another channel and is not kept.
    Received,
}

impl Packet {
    fn new(bytes: [&[u8]; 2], is_solicited: bool) -> Self {
        Self {
            bytes: bytes.concat().into(),
            is_solicited,
            state: State::New,
            sent_at: 0,
            transmission: 0,
            passed: 0,
            is_repeated: false,
            in_slot: false,
        }
    }
}

/// An acknowledgement of what was not sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Invalid;

impl Sender {
    pub(super) const fn new(first: u32) -> Self {
        Self {
            packets: VecDeque::new(),
            first,
            sent: 0,
            in_flight: 0,
            lost: 0,
            limit: first.wrapping_add(LARGEST),
            window: Window::new(),
            round_trip: RoundTrip::new(),
            transmissions: 0,
            reduced_at: 0,
            timer: NEVER,
            unanswered: 0,
            asks: false,
            asked_at: 0,
            unasked: 0,
            wants_room: false,
            in_slots: 0,
        }
    }

    /// The number of the next new packet.
    pub(super) fn next(&self) -> u32 {
        self.first.wrapping_add(self.packets.len() as u32)
    }

    /// Whether every packet was acknowledged.
    pub(super) fn is_idle(&self) -> bool {
        self.packets.is_empty()
    }

    /// Whether it waits for an answer.
    fn waits(&self) -> bool {
        !self.is_idle() || self.wants_room
    }

    pub(super) const fn unanswered(&self) -> u32 {
        self.unanswered
    }

    /// When it has something to do.
    pub(super) const fn due(&self) -> u64 {
        self.timer
    }

    /// Takes a packet, if the window and the receiver have room.
    pub(super) fn push(&mut self, now: u64, (head, body): (&[u8], &[u8]), is_solicited: bool) -> bool {
        let has_room = (self.limit.wrapping_sub(self.next()) as i32) > 0;
        self.wants_room = !has_room;
        let waits = (self.packets.len() - self.sent) as u32;
        if !has_room || self.in_flight + self.lost + waits >= self.window.size() {
            if self.timer == NEVER {
                self.start_timer(now);
            }
            return false;
        }
        self.packets.push_back(Packet::new([head, body], is_solicited));
        true
    }

    /// The number of a packet that takes another channel now, if the receiver has room to keep it until
    /// those before it have come: all of them have left.
    pub(super) fn number_apart(&self) -> Option<u32> {
        let has_room = self.sent == self.packets.len() && self.packets.len() < LARGEST as usize;
        has_room.then(|| self.next())
    }

    pub(super) const fn in_slots(&self) -> u32 {
        self.in_slots
    }

    /// That packet has left. It is not sent again unless it is to be `kept`; behind others, and in a slot, it keeps its
    /// place.
    pub(super) fn left_apart(&mut self, now: u64, kept: Option<([&[u8]; 2], bool)>, in_slot: bool) {
        let (packet, state) = match kept {
            Some((bytes, is_solicited)) => (Packet::new(bytes, is_solicited), State::Apart),
            None if self.packets.is_empty() && !in_slot => {
                self.first = self.next().wrapping_add(1);
                return;
            }
            None => (Packet::new([&[], &[]], false), State::Received),
        };
        self.packets.push_back(Packet { state, in_slot, ..packet });
        self.sent += 1;
        self.in_slots += u32::from(in_slot);
        if (state == State::Apart || in_slot) && self.timer == NEVER {
            self.start_timer(now);
        }
    }

    /// The other channel has failed: what was kept is sent again.
    pub(super) fn lose_apart(&mut self) {
        for packet in &mut self.packets {
            packet.in_slot = false; // the slots are gone, too
            if packet.state == State::Apart {
                packet.state = State::Lost;
                self.lost += 1;
            }
        }
        self.in_slots = 0;
    }

    fn start_timer(&mut self, now: u64) {
        self.timer = now + self.round_trip.timeout(self.unanswered);
    }

    /// The timer has ended: the receiver is asked first, then what it lacks is sent again.
    pub(super) fn end_timer(&mut self, now: u64) {
        if now < self.timer {
            return;
        }
        self.unanswered += 1;
        if !self.waits() {
            (self.timer, self.unanswered) = (NEVER, 0);
            return;
        }
        self.start_timer(now);
        if self.unanswered % 2 == 1 || self.sent == 0 {
            (self.asks, self.asked_at) = (true, self.transmissions);
            return;
        }
        self.mark_lost(|_, _| true);
        self.window.restart();
        self.reduced_at = self.transmissions;
    }

    /// How long an acknowledgement waits for a packet to ride on.
    pub(super) fn delay(&self) -> u64 {
        self.round_trip.delay()
    }

    /// Whether the receiver is to be asked, without a packet.
    pub(super) fn take_asks(&mut self) -> bool {
        std::mem::take(&mut self.asks)
    }

    /// What is to be sent now, a lost packet before a new one: its place, for [`sent`](Self::sent).
    pub(super) fn next_to_send(&self) -> Option<usize> {
        if self.lost > 0 {
            let has_room = self.in_flight < self.window.size();
            return self.packets.iter().position(|packet| packet.state == State::Lost).filter(|_| has_room);
        }
        (self.sent < self.packets.len()).then_some(self.sent)
    }

    /// A packet, and whether it is solicited.
    pub(super) fn packet(&self, place: usize) -> (&[u8], bool) {
        let Packet { bytes, is_solicited, .. } = &self.packets[place];
        (bytes, *is_solicited)
    }

    /// The number of a packet, and whether it is to ask for an acknowledgement: a quarter of the
    /// window, or a packet that is repeated.
    pub(super) fn number(&self, place: usize) -> (u32, bool) {
        let asks = self.packets[place].state == State::Lost || self.unasked + 1 >= self.window.size().div_ceil(4);
        (self.first.wrapping_add(place as u32), asks)
    }

    /// A packet has left; returns whether it is repeated.
    pub(super) fn sent(&mut self, now: u64, place: usize, asked: bool) -> bool {
        let packet = &mut self.packets[place];
        packet.is_repeated = packet.state == State::Lost;
        let is_repeated = packet.is_repeated;
        self.transmissions += 1;
        (packet.state, packet.sent_at, packet.transmission) = (State::InFlight, now, self.transmissions);
        packet.passed = 0;
        match is_repeated {
            true => self.lost -= 1,
            false => self.sent += 1,
        }
        self.in_flight += 1;
        self.unasked = if asked { 0 } else { self.unasked + 1 };
        if self.timer == NEVER {
            self.start_timer(now);
        }
        is_repeated
    }

    /// Takes in an acknowledgement.
    pub(super) fn acknowledge(&mut self, now: u64, acknowledgement: Acknowledgement) -> Result<(), Invalid> {
        let Acknowledgement { next, room, selective } = acknowledgement;
        let advance = next.wrapping_sub(self.first) as i32;
        let ahead = advance as i64 + if selective == 0 { 0 } else { 65 - i64::from(selective.leading_zeros()) };
        if u32::from(room) > LARGEST || ahead > self.sent as i64 {
            return Err(Invalid);
        }
        let is_answer = self.unanswered % 2 == 1;
        let limit = next.wrapping_add(room.into());
        if (limit.wrapping_sub(self.limit) as i32) > 0 {
            self.limit = limit;
            (self.wants_room, self.unanswered) = (false, 0);
        }
        if advance < 0 {
            return Ok(()); // a later one overtook it, or packets that took another channel are on their way
        }
        // Without a hole and a repeated packet, no packet was overtaken.
        let in_order = selective == 0 && self.packets.iter().take(self.sent).all(|packet| !packet.is_repeated);
        let (mut arrived, mut transmissions) = (0, Vec::new());
        let mut receive = |sender: &mut Self, place| {
            if let Some(transmission) = sender.receive(now, place) {
                arrived += 1;
                transmissions.extend((!in_order).then_some(transmission));
            }
        };
        for _ in 0..advance {
            receive(self, 0);
            self.in_slots -= u32::from(self.packets.pop_front().is_some_and(|packet| packet.in_slot));
        }
        self.first = next;
        self.sent -= advance as usize;
        let mut behind_holes = selective;
        while behind_holes != 0 {
            receive(self, behind_holes.trailing_zeros() as usize + 1);
            behind_holes &= behind_holes - 1;
        }
        self.window.grow(arrived);
        if !in_order {
            self.pass(&transmissions);
        }
        let lost = self.lost;
        if is_answer {
            // The receiver was asked behind it, and its answer tells of no packet further on.
            let (asked_at, told) = (self.asked_at, 1 + u64::BITS as usize);
            self.lose(|place, packet| place < told && packet.transmission <= asked_at);
        }
        match (arrived == 0 && advance == 0, self.lost == lost) {
            (true, true) => return Ok(()),
            (true, false) => {} // what is repeated may be lost as well
            (false, _) => self.unanswered = 0,
        }
        self.timer = NEVER;
        if self.waits() {
            self.start_timer(now);
        }
        Ok(())
    }

    /// The receiver has a packet: which transmission it was, if that is new.
    fn receive(&mut self, now: u64, place: usize) -> Option<u64> {
        let packet = &mut self.packets[place];
        packet.bytes = Box::default();
        match std::mem::replace(&mut packet.state, State::Received) {
            State::InFlight => self.in_flight -= 1,
            State::Lost => self.lost -= 1,
            State::Apart | State::Received | State::New => return None,
        }
        if !packet.is_repeated {
            self.round_trip.measure(now.saturating_sub(packet.sent_at)); // Karn's algorithm
        }
        Some(packet.transmission)
    }

    /// Later transmissions have arrived: what they passed too often is lost.
    fn pass(&mut self, arrived: &[u64]) {
        self.lose(|_, packet| {
            let passed = arrived.iter().filter(|transmission| **transmission > packet.transmission).count();
            packet.passed = packet.passed.saturating_add(passed.min(PASSES.into()) as u8);
            packet.passed >= PASSES
        });
    }

    /// Some of the packets in flight are lost: by their place.
    fn lose(&mut self, is_lost: impl FnMut(usize, &mut Packet) -> bool) {
        if self.mark_lost(is_lost) {
            self.reduced_at = self.transmissions;
            self.window.reduce();
        }
    }

    /// Whether one of those that are lost was sent since the window was reduced.
    fn mark_lost(&mut self, mut is_lost: impl FnMut(usize, &mut Packet) -> bool) -> bool {
        let mut reduces = false;
        for (place, packet) in self.packets.iter_mut().take(self.sent).enumerate() {
            if packet.state == State::InFlight && is_lost(place, packet) {
                packet.state = State::Lost;
                self.in_flight -= 1;
                self.lost += 1;
                self.window.lose();
                reduces |= packet.transmission > self.reduced_at;
            }
        }
        reduces
    }
}
