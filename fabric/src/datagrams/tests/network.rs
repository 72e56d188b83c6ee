//! Machines on a network.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::task::Poll;

use onesided_remote_memory::{Fault, Rank};

use crate::Channel;
use crate::datagrams::{DatagramChannel, Identity, Posted};

pub(super) const JOB: u32 = 0xface;
const LATENCY: u64 = 10_000;
/// Of a fast path.
const SLOTS: u32 = 4;

/// Percentages, and nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weather {
    pub(super) loss: u64,
    pub(super) doubles: u64,
    pub(super) jitter: u64,
    pub(super) breaks: Breaks,
}

/// When a connection breaks, for which packets over connections are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Breaks {
    /// They are not kept.
    NotKept,
    /// At the step of this number.
    At(u64),
    /// In one of so many steps.
    OneIn(u64),
}

/// The time of arrival, the order of posting, the receiver, the bytes.
type OnWire = (u64, u64, u32, Vec<u8>);

/// The time of arrival, the bytes of the machine, those of the packet.
type OnConnection = (u64, [u8; DatagramChannel::APART], Box<[u8]>);

pub(super) struct Network {
    pub(super) channels: Vec<DatagramChannel>,
    pub(super) now: u64,
    /// Ranks that no datagram reaches.
    pub(super) unreachable: Vec<bool>,
    /// Whether it is known of them that they are within reach.
    pub(super) computes: bool,
    /// The packets of the solicited datagrams of each rank.
    pub(super) solicited: Vec<Vec<Vec<u8>>>,
    weather: Weather,
    first: u32,
    random: u64,
    lose_next: u32,
    wires: BinaryHeap<Reverse<OnWire>>,
    /// By sender and receiver.
    connections: BTreeMap<(u32, u32), VecDeque<OnConnection>>,
    /// What lies in the slots of fast paths.
    rings: BTreeMap<(u32, u32), VecDeque<OnConnection>>,
    /// When each end of a connection that broke notices it, by that and the other one.
    broken: BTreeMap<(u32, u32), u64>,
    /// By rank: packets that it has taken as they came.
    taken: Vec<VecDeque<(Rank, Box<[u8]>)>>,
    posted: u64,
    steps: u64,
}

impl Network {
    pub(super) fn new(ranks: u32, first: u32, weather: Weather, seed: u64) -> Self {
        let channel = |rank| {
            let own = Identity { job: JOB, rank: Rank(rank), incarnation: 1 };
            let keeps = weather.breaks != Breaks::NotKept;
            DatagramChannel::numbered(own, vec![1; ranks as usize], first).keeping(keeps)
        };
        Self {
            channels: (0..ranks).map(channel).collect(),
            now: 0,
            unreachable: vec![false; ranks as usize],
            computes: false,
            solicited: vec![Vec::new(); ranks as usize],
            weather,
            first,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            lose_next: 0,
            wires: BinaryHeap::new(),
            connections: BTreeMap::new(),
            rings: BTreeMap::new(),
            broken: BTreeMap::new(),
            taken: vec![VecDeque::new(); ranks as usize],
            posted: 0,
            steps: 0,
        }
    }

    /// xorshift64*.
    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % below
    }

    pub(super) fn send(&mut self, from: u32, to: u32, packet: &[u8]) -> Poll<Result<(), Fault>> {
        self.channels[from as usize].send(self.now, Rank(to), packet.split_at(packet.len() / 3), false)
    }

    /// Sends over datagrams or over the connection, by chance.
    pub(super) fn send_by_either(&mut self, from: u32, to: u32, packet: &[u8]) -> Poll<Result<(), Fault>> {
        if self.random(2) == 0 || self.is_absent(from, to) {
            return self.send(from, to, packet);
        }
        let within = 2 * LATENCY + self.weather.jitter;
        self.send_apart([from, to], (Channel::Connection, within), packet)
    }

    /// The other end has not noticed that the last connection broke.
    fn is_absent(&self, from: u32, to: u32) -> bool {
        self.broken.contains_key(&(to, from)) && !self.broken.contains_key(&(from, to))
    }

    /// The same, or by a fast path, if a slot is free.
    pub(super) fn send_by_any(&mut self, from: u32, to: u32, packet: &[u8]) -> Poll<Result<(), Fault>> {
        let has_slot = self.channels[from as usize].has_slot(self.now, Rank(to), SLOTS);
        if !has_slot || self.random(3) == 0 || self.is_absent(from, to) {
            return self.send_by_either(from, to, packet);
        }
        let within = 4 * LATENCY + self.weather.jitter;
        self.send_apart([from, to], (Channel::FastPath, within), packet)
    }

    /// Sends over the connection or by the fast path, whose packets come in order.
    fn send_apart(&mut self, [from, to]: [u32; 2], by: (Channel, u64), packet: &[u8]) -> Poll<Result<(), Fault>> {
        let (by, within) = by;
        let arrives_at = self.now + 1 + self.random(within);
        let channel = &mut self.channels[from as usize];
        channel.begin_apart(self.now, Rank(to)).map_ok(|before| {
            channel.left_apart(self.now, (Rank(to), by), packet.split_at(packet.len() / 2), false);
            let in_slot = by == Channel::FastPath;
            let apart = if in_slot { &mut self.rings } else { &mut self.connections };
            let packets = apart.entry((from, to)).or_default();
            assert!(!in_slot || packets.len() < SLOTS as usize, "a slot is filled that the receiver has not read");
            let arrives_at = arrives_at.max(packets.back().map_or(0, |(earlier, ..)| *earlier));
            if !self.broken.contains_key(&(from, to)) {
                packets.push_back((arrives_at, before, packet.into()));
            }
        })
    }

    /// What has arrived at a card is taken in later, and the rest is lost, until each end has noticed.
    fn break_connection(&mut self, one: u32, other: u32) {
        for ends in [(one, other), (other, one)] {
            let (left, notices_at) = (self.random(4) as usize, self.now + self.random(20 * LATENCY));
            self.connections.entry(ends).or_default().truncate(left);
            self.rings.entry(ends).or_default().truncate(left);
            self.broken.entry(ends).or_insert(notices_at);
        }
    }

    pub(super) fn send_solicited(&mut self, from: u32, to: u32, packet: &[u8]) -> Poll<Result<(), Fault>> {
        self.channels[from as usize].send(self.now, Rank(to), packet.split_at(packet.len() / 3), true)
    }

    pub(super) fn take(&mut self, rank: u32) -> Option<(Rank, Box<[u8]>)> {
        let taken = self.taken[rank as usize].pop_front();
        taken.or_else(|| self.channels[rank as usize].take().map(|(from, _, packet)| (from, packet)))
    }

    /// A packet comes over the connection or by the fast path.
    pub(super) fn come_apart(
        &mut self,
        [from, to]: [Rank; 2],
        before: [u8; DatagramChannel::APART],
        (channel, packet): (Channel, Box<[u8]>),
    ) {
        let receiver = &mut self.channels[to.index()];
        match receiver.takes_apart(self.now, from, before, channel).unwrap() {
            true => self.taken[to.index()].push_back((from, packet)),
            false => receiver.arrived_apart(self.now, from, before, (channel, packet)).unwrap(),
        }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.wires.len()
    }

    /// Loses the next datagrams.
    pub(super) fn lose_next(&mut self, count: u32) {
        self.lose_next = count;
    }

    /// A new process takes a rank.
    pub(super) fn restart(&mut self, rank: u32) {
        let incarnations = vec![1; self.channels.len()];
        let own = Identity { job: JOB, rank: Rank(rank), incarnation: 2 };
        self.channels[rank as usize] = DatagramChannel::numbered(own, incarnations, self.first);
    }

    /// The next event; `false` if none is left.
    pub(super) fn step(&mut self) -> bool {
        let timers = self.channels.iter().map(DatagramChannel::due).min().unwrap_or(u64::MAX);
        let arrival = self.wires.peek().map_or(u64::MAX, |Reverse((time, ..))| *time);
        let apart = self.connections.values().chain(self.rings.values());
        let by_connection = apart.filter_map(|packets| Some(packets.front()?.0)).min();
        let noticed = self.broken.values().copied().min();
        let next = timers.min(arrival).min(by_connection.unwrap_or(u64::MAX)).min(noticed.unwrap_or(u64::MAX));
        if next == u64::MAX {
            return false;
        }
        self.now = self.now.max(next);
        self.steps += 1;
        let breaks = match self.weather.breaks {
            Breaks::NotKept => false,
            Breaks::At(step) => step == self.steps,
            Breaks::OneIn(steps) => self.random(steps) == 0,
        };
        if breaks {
            let one = self.random(self.channels.len() as u64) as u32;
            self.break_connection(one, (one + 1) % self.channels.len() as u32);
        }
        let mut come = Vec::new();
        for (channel, apart) in [(Channel::Connection, &mut self.connections), (Channel::FastPath, &mut self.rings)] {
            for ((from, to), packets) in apart {
                while let Some((_, before, packet)) = packets.pop_front_if(|(arrives_at, ..)| *arrives_at <= self.now) {
                    come.push(([Rank(*from), Rank(*to)], before, (channel, packet)));
                }
            }
        }
        come.into_iter().for_each(|(ends, before, packet)| self.come_apart(ends, before, packet));
        self.broken.retain(|(end, other), notices_at| {
            let is_noticed = *notices_at <= self.now;
            if is_noticed {
                let ring = self.rings.entry((*other, *end)).or_default(); // it ends with the connection
                for (_, before, packet) in ring.drain(..) {
                    self.channels[*end as usize]
                        .arrived_apart(self.now, Rank(*other), before, (Channel::FastPath, packet))
                        .unwrap();
                }
                self.channels[*end as usize].lose_apart(Rank(*other));
            }
            !is_noticed
        });
        while self.wires.peek().is_some_and(|Reverse((time, ..))| *time <= self.now) {
            let Reverse((_, _, to, datagram)) = self.wires.pop().unwrap();
            if !self.unreachable[to as usize] {
                self.channels[to as usize].arrived(self.now, &datagram);
            }
        }
        for rank in 0..self.channels.len() {
            let mut posted = Vec::new();
            let solicited = &mut self.solicited[rank];
            let post = |to, header: &[u8], packet: &[u8], is_solicited: bool| {
                solicited.extend(is_solicited.then(|| packet.to_vec()));
                posted.push((to, [header, packet].concat()));
                Posted::Sent
            };
            self.channels[rank].transmit(self.now, post, |_| self.computes);
            for (to, datagram) in posted {
                self.post(to, datagram);
            }
        }
        true
    }

    fn post(&mut self, to: Rank, datagram: Vec<u8>) {
        let Weather { loss, doubles, jitter, .. } = self.weather;
        let is_lost = self.random(100) < loss || self.lose_next > 0;
        self.lose_next = self.lose_next.saturating_sub(1);
        let copies = if is_lost { 0 } else { 1 + u32::from(self.random(100) < doubles) };
        for _ in 0..copies {
            self.posted += 1;
            let arrives_at = self.now + LATENCY + self.random(jitter + 1);
            self.wires.push(Reverse((arrives_at, self.posted, to.0, datagram.clone())));
        }
    }
}
