//! Machines on a network.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::task::Poll;

use onesided_remote_memory::{Fault, Rank};

use crate::Channel;
use crate::datagrams::{DatagramChannel, Identity, Posted};

pub(super) const JOB: u32 = 0xface;
const LATENCY: u64 = 10_000;

/// Percentages, and nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weather {
    pub(super) loss: u64,
    pub(super) doubles: u64,
    pub(super) jitter: u64,
}

/// The time of arrival, the order of posting, the receiver, the bytes.
type OnWire = (u64, u64, u32, Vec<u8>);

/// The time of arrival, the number, the bytes.
type OnConnection = (u64, u32, Box<[u8]>);

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
    posted: u64,
}

impl Network {
    pub(super) fn new(ranks: u32, first: u32, weather: Weather, seed: u64) -> Self {
        let channel = |rank| {
            let own = Identity { job: JOB, rank: Rank(rank), incarnation: 1 };
            DatagramChannel::numbered(own, vec![1; ranks as usize], first)
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
            posted: 0,
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
        if self.random(2) == 0 {
            return self.send(from, to, packet);
        }
        let arrives_at = self.now + 1 + self.random(2 * LATENCY + self.weather.jitter);
        let channel = &mut self.channels[from as usize];
        channel.number_apart(self.now, Rank(to)).map_ok(|number| {
            channel.left_apart(Rank(to));
            let connection = self.connections.entry((from, to)).or_default();
            let arrives_at = arrives_at.max(connection.back().map_or(0, |(before, ..)| *before));
            connection.push_back((arrives_at, number, packet.into()));
        })
    }

    pub(super) fn send_solicited(&mut self, from: u32, to: u32, packet: &[u8]) -> Poll<Result<(), Fault>> {
        self.channels[from as usize].send(self.now, Rank(to), packet.split_at(packet.len() / 3), true)
    }

    pub(super) fn take(&mut self, rank: u32) -> Option<(Rank, Box<[u8]>)> {
        self.channels[rank as usize].take().map(|(from, _, packet)| (from, packet))
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
        let by_connection = self.connections.values().filter_map(|packets| Some(packets.front()?.0)).min();
        let next = timers.min(arrival).min(by_connection.unwrap_or(u64::MAX));
        if next == u64::MAX {
            return false;
        }
        self.now = self.now.max(next);
        for ((from, to), packets) in &mut self.connections {
            while let Some((_, number, packet)) = packets.pop_front_if(|(arrives_at, ..)| *arrives_at <= self.now) {
                self.channels[*to as usize]
                    .arrived_apart(self.now, Rank(*from), number, (Channel::Connection, packet))
                    .unwrap();
            }
        }
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
        let Weather { loss, doubles, jitter } = self.weather;
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
