//! The costs and failures of the simulated cards and wires.

use std::collections::BTreeMap;
use std::time::Duration;

use onesided_fabric::{Channel, ChannelCounts, ChannelMemory};
use onesided_remote_memory::Rank;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{RngCore, SeedableRng};

use crate::agenda::NEVER;
use crate::contexts::Contexts;
use crate::testbed::{Card, Host};

/// The parameters of a simulated network: every rank has a card of its own (with
/// [cores](Host::cores): every host), every pair of ranks a reliable connection.
///
/// An uncontended operation without bulk data takes `send + latency + receive + latency`; it takes
/// effect at the target after `send + latency`. `n` bytes of bulk data (puts, gets, transfers,
/// messages) add `n / bandwidth` in their direction. A card sends one message after another, and
/// receives one after another. A rank's operations on its own memory go through its card, without
/// the latency.
///
/// ```
/// use std::time::Duration;
/// let slow = onesided_sim::Network { latency: Duration::from_micros(20), loss: 0.01, ..onesided_sim::Network::default() };
/// assert!(slow.jitter.is_zero());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// The latency from card to card, one way. Default: 1 us.
    pub latency: Duration,
    /// The duration of an operation on a [same-host word](onesided_fabric::Fabric::same_host_word),
    /// which bypasses the card; at least a nanosecond. Default: 100 ns.
    pub same_host: Duration,
    /// Bytes a second, each way. Default: 12.5 GB/s.
    pub bandwidth: u64,
    /// How long a card is busy sending one message, excluding its bytes. Default: 100 ns.
    pub send: Duration,
    /// How long a card is busy receiving one message, excluding its bytes; at least a nanosecond.
    /// Default: 100 ns.
    pub receive: Duration,
    /// The maximum random delay of a message: messages of different connections overtake each
    /// other. Default: 0.
    pub jitter: Duration,
    /// The probability, from 0 to 1, that a message or its answer is lost; it is resent after
    /// [`timeout`](Self::timeout). Default: 0.
    pub loss: f64,
    /// The time after which an unanswered message is resent. Default: 100 us.
    pub timeout: Duration,
    /// The number of resends. An operation that is then still unanswered ends in
    /// [`Unknown`](onesided_remote_memory::FaultKind::Unknown). If its target lives, the connection
    /// of the two ranks is lost with it, for good. Default: 7.
    pub retries: u32,
    /// How long after a rank's death, or the loss of a connection, the other ranks learn of it.
    /// Default: 1 ms.
    pub detection: Duration,
    /// The maximum random delay after that. Each rank has its own: some act on a failure before
    /// others have learned of it. Default: 0.
    pub detection_jitter: Duration,
    /// How long a waiting rank polls, seeing any write, before it sleeps until a write with
    /// [`Notify::Yes`](onesided_remote_memory::Notify::Yes). Default: 50 us.
    pub polling: Duration,
    /// How long it takes to wake a sleeper. Default: 5 us.
    pub wake: Duration,
    /// Whether packets travel as datagrams, which are lost with the probability of
    /// [`loss`](Self::loss) and overtake one another by [`jitter`](Self::jitter), and ranks make
    /// them reliable (koop-2008, UD-SR). Long messages may be received into their place (UD-ZCopy). Default: no,
    /// the cards do.
    pub datagrams: bool,
    /// The bytes that a datagram has at most, at least 256: the MTU. Default: 4,096.
    pub mtu: u32,
    /// With datagrams: after so many messages to a rank that would take a connection there is one, which is
    /// reliable, and all packets of the two arrive in one order. Default: never.
    pub connects_after: Option<u32>,
    /// How many of those connections a rank has, at most. At the limit the one that carried the fewest packets
    /// for a tenth of a millisecond gives way, if they were fewer than the [messages](Self::connects_after) that
    /// count for a new one. Default: 16.
    pub connections: u32,
    /// How many ranks have a fast path to a rank at most, beside their connection (RC-FP: koop-2008, section 2.1.1): one
    /// that sends it enough short packets writes them into slots, which it polls. Default: 0.
    pub fast_paths: u32,
    /// The probability, from 0 to 1, that a datagram arrives twice. Default: 0.
    pub duplication: f64,
    /// How many packets may be in flight or not received between two ranks; a further send waits
    /// until the receiver has taken some. Default: 64.
    pub room: u32,
    /// Further costs of the cards. Default: none.
    pub card: Card,
    /// The costs of the hosts. Default: none.
    pub host: Host,
}

impl Default for Network {
    /// A present-day network without faults: 1 us, 12.5 GB/s, 10 million messages a second.
    fn default() -> Self {
        Self {
            latency: Duration::from_micros(1),
            same_host: Duration::from_nanos(100),
            bandwidth: 12_500_000_000,
            send: Duration::from_nanos(100),
            receive: Duration::from_nanos(100),
            jitter: Duration::ZERO,
            loss: 0.0,
            timeout: Duration::from_micros(100),
            retries: 7,
            detection: Duration::from_millis(1),
            detection_jitter: Duration::ZERO,
            polling: Duration::from_micros(50),
            wake: Duration::from_micros(5),
            datagrams: false,
            mtu: 4096,
            connects_after: None,
            connections: 16,
            fast_paths: 0,
            duplication: 0.0,
            room: 64,
            card: Card::default(),
            host: Host::default(),
        }
    }
}

/// A network in nanoseconds, with its random numbers.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) latency: u64,
    pub(crate) same_host: u64,
    pub(crate) send: u64,
    pub(crate) receive: u64,
    pub(crate) detection: u64,
    detection_jitter: u64,
    pub(crate) polling: u64,
    pub(crate) wake: u64,
    pub(crate) room: u32,
    pub(crate) doorbell: u64,
    pub(crate) deliver: u64,
    pub(crate) fetch_receive: u64,
    pub(crate) read: u64,
    pub(crate) atomic: u64,
    /// Reads and atomics in flight on a connection, at most.
    pub(crate) outstanding: u32,
    bandwidth: u64,
    jitter: u64,
    pub(crate) datagrams: bool,
    pub(crate) mtu: u32,
    pub(crate) connects_after: Option<u32>,
    pub(crate) contexts: Contexts,
    connections: u32,
    /// That of a connection, of datagrams, and of a fast path.
    memory: [u32; 3],
    pub(crate) fast_paths: u32,
    connected: BTreeMap<Rank, Connected>,
    /// A message is lost when a random number falls below this.
    loss: u64,
    /// The same for a datagram that arrives twice.
    duplication: u64,
    timeout: u64,
    retries: u32,
    rng: Pcg64Mcg,
}

/// The connections of a rank beside its datagrams.
#[derive(Debug, Default)]
struct Connected {
    /// Those that it has asked for one, or that have asked it: if they have one, what it has carried since this rank
    /// looked.
    asked: BTreeMap<Rank, Option<u32>>,
    counts: ChannelCounts,
    count: u32,
    /// When it last looked for one that is to give way.
    scanned_at: u64,
    /// By rank how many short packets came over its connection. `None`: it has a ring.
    short: BTreeMap<Rank, Option<u32>>,
    /// When the last packet came.
    came_at: u64,
}

impl Connected {
    fn rings(&self) -> u32 {
        self.short.values().filter(|short| short.is_none()).count() as u32
    }
}

/// How often a rank without room looks for one that carries little, in nanoseconds.
const SCAN: u64 = 100_000;
/// A rank has a ring for another one after so many times the packets that count for a connection.
const TIMES: u32 = 16;
/// For so long after a packet a rank polls its rings, in nanoseconds: longer than they are written to.
const POLLED: u64 = 2_000_000;

impl Wire {
    pub(crate) fn new(network: &Network, seed: u64) -> Self {
        Self {
            latency: nanos(network.latency),
            same_host: nanos(network.same_host).max(1),
            send: nanos(network.send),
            // Two messages never take effect at a card at the same time, so their order is that of
            // arrival.
            receive: nanos(network.receive).max(1),
            detection: nanos(network.detection),
            detection_jitter: nanos(network.detection_jitter),
            polling: nanos(network.polling),
            wake: nanos(network.wake),
            room: network.room.max(1),
            doorbell: nanos(network.card.doorbell),
            deliver: nanos(network.card.deliver),
            fetch_receive: nanos(network.card.fetch_receive),
            read: nanos(network.card.read),
            atomic: nanos(network.card.atomic),
            outstanding: network.card.outstanding,
            bandwidth: network.bandwidth.max(1),
            jitter: nanos(network.jitter),
            datagrams: network.datagrams,
            mtu: network.mtu.clamp(256, 1 << 16),
            connects_after: network.connects_after,
            contexts: Contexts::new(network.card.contexts, nanos(network.card.fetch)),
            connections: network.connections,
            memory: [network.card.connection_memory, network.card.datagram_memory, network.card.fast_path_memory],
            fast_paths: network.fast_paths,
            connected: BTreeMap::new(),
            loss: (network.loss.clamp(0.0, 1.0) * u64::MAX as f64) as u64,
            duplication: (network.duplication.clamp(0.0, 1.0) * u64::MAX as f64) as u64,
            timeout: nanos(network.timeout),
            retries: network.retries,
            rng: Pcg64Mcg::seed_from_u64(seed),
        }
    }

    /// Whether two ranks have a connection beside their datagrams. `None`: neither has asked for it.
    pub(crate) fn connection(&self, one: Rank, other: Rank) -> Option<bool> {
        self.connected.get(&one)?.asked.get(&other).map(Option::is_some)
    }

    /// A packet takes the connection.
    pub(crate) fn use_connection(&mut self, one: Rank, other: Rank) {
        for (end, to) in [(one, other), (other, one)] {
            if let Some(Some(used)) = self.connected.get_mut(&end).and_then(|own| own.asked.get_mut(&to)) {
                *used += 1;
            }
        }
    }

    /// The least used connection of a rank that has no room, if it carried little for a while.
    fn least_used(&mut self, rank: Rank, now: u64) -> Option<[Rank; 2]> {
        let own = self.connected.entry(rank).or_default();
        if now < own.scanned_at + SCAN {
            return None;
        }
        own.scanned_at = now;
        let others = own.asked.iter_mut().filter(|(other, _)| **other != rank);
        let used = others.filter_map(|(other, used)| Some((std::mem::take(used.as_mut()?), [rank, *other])));
        let (used, ends) = used.min()?;
        (used < self.connects_after?).then_some(ends)
    }

    fn has_room(&self, rank: Rank) -> bool {
        self.connected.get(&rank).map_or(0, |own| own.count) < self.connections
    }

    /// One of them asks for it: they have it, unless one of them has too many, of which none gives way. That of
    /// a rank to itself does not count.
    pub(crate) fn connect(&mut self, one: Rank, other: Rank, now: u64) {
        let ends = if one == other { Vec::new() } else { vec![one, other] };
        let full: Vec<_> = ends.iter().filter(|rank| !self.has_room(**rank)).collect();
        let gives_way: Option<Vec<_>> = full.into_iter().map(|rank| self.least_used(*rank, now)).collect();
        for &[one, other] in gives_way.iter().flatten() {
            for (end, to) in [(one, other), (other, one)] {
                let own = self.connected.entry(end).or_default();
                own.asked.remove(&to);
                own.short.remove(&to);
                (own.counts.given_back, own.count) = (own.counts.given_back + 1, own.count - 1);
            }
        }
        let may = gives_way.is_some();
        for (end, to) in [(one, other), (other, one)] {
            // What has just been made is not the first to give way.
            self.connected.entry(end).or_default().asked.insert(to, self.connects_after.filter(|_| may));
        }
        for rank in ends {
            let own = self.connected.entry(rank).or_default();
            own.count += u32::from(may);
            *(if may { &mut own.counts.made } else { &mut own.counts.refused }) += 1;
        }
    }

    /// What became of the connections of a rank.
    pub(crate) fn connection_counts(&self, rank: Rank) -> ChannelCounts {
        let own = self.connected.get(&rank);
        let counts = own.map_or_else(ChannelCounts::default, |own| own.counts);
        self.with_memory(counts, own.map_or([0, 1, 0], |own| [own.count, 1, own.rings()]))
    }

    /// With what so many connections, queues of datagrams and fast paths take.
    pub(crate) fn with_memory(&self, mut counts: ChannelCounts, held: [u32; 3]) -> ChannelCounts {
        const KINDS: [Channel; 3] = [Channel::Connection, Channel::Datagrams, Channel::FastPath];
        for ((channel, count), bytes) in KINDS.into_iter().zip(held).zip(self.memory) {
            counts.memory[channel as usize] = ChannelMemory { count, bytes: u64::from(count) * u64::from(bytes) };
        }
        counts
    }

    /// A packet of a rank came over its connection, or by a ring. One that counts makes a ring, if it is the last of enough.
    pub(crate) fn came_apart(&mut self, rank: Rank, (from, counts): (Rank, bool), now: u64) {
        let most = self.connects_after.unwrap_or(0).max(1).saturating_mul(TIMES);
        let own = self.connected.entry(rank).or_default();
        own.came_at = now;
        if !counts || from == rank || own.rings() == self.fast_paths || !matches!(own.asked.get(&from), Some(Some(_))) {
            return;
        }
        let count = own.short.entry(from).or_insert(Some(0));
        if let Some(short) = count {
            *short += 1;
            if *short >= most {
                *count = None;
                own.counts.rings += 1;
            }
        }
    }

    /// Whether a rank has a ring for another one.
    pub(crate) fn has_ring(&self, rank: Rank, from: Rank) -> bool {
        self.connected.get(&rank).is_some_and(|own| own.short.get(&from) == Some(&None))
    }

    /// How many rings a rank has.
    pub(crate) fn rings(&self, rank: Rank) -> u32 {
        self.connected.get(&rank).map_or(0, Connected::rings)
    }

    /// When a rank that waits polls its rings next: what is written there has no event.
    pub(crate) fn polls_at(&self, rank: Rank, now: u64) -> Option<u64> {
        let own = self.connected.get(&rank)?;
        (own.rings() > 0 && now <= own.came_at + POLLED).then_some(now + POLLED / 8)
    }

    /// What became of the datagrams of a message that landed.
    pub(crate) fn count_landed(&mut self, rank: Rank, ChannelCounts { landed, moved, missing, .. }: ChannelCounts) {
        let counts = &mut self.connected.entry(rank).or_default().counts;
        counts.landed += landed;
        counts.moved += moved;
        counts.missing += missing;
    }

    /// How long a link is busy with a number of bytes.
    pub(crate) fn occupied(&self, bytes: u64) -> u64 {
        if bytes == 0 {
            return 0;
        }
        let nanos = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(self.bandwidth));
        u64::try_from(nanos).unwrap_or(NEVER).min(NEVER)
    }

    /// How long a message travels from card to card, resends included; `Err` is the time after
    /// which the sender gives up.
    pub(crate) fn travel(&mut self) -> Result<u64, u64> {
        let mut travel = self.latency;
        if self.loss > 0 {
            let mut lost = 0;
            while self.rng.next_u64() < self.loss {
                lost += 1;
                if lost > self.retries {
                    return Err(self.patience());
                }
            }
            travel = travel.saturating_add(self.timeout.saturating_mul(lost.into()));
        }
        travel = travel.saturating_add(self.at_most(self.jitter));
        Ok(travel.min(NEVER))
    }

    /// The same if no message gets through until `heals`, a time after `now`: resends alone do,
    /// after that.
    pub(crate) fn travel_after(&mut self, now: u64, heals: u64) -> Result<u64, u64> {
        let travel = self.travel()?;
        let resends = (heals - now).div_ceil(self.timeout.max(1));
        if resends > self.retries.into() {
            return Err(self.patience());
        }
        Ok(travel.saturating_add(self.timeout.saturating_mul(resends)).min(NEVER))
    }

    /// How long each copy of a datagram travels from card to card that arrives.
    pub(crate) fn travels(&mut self) -> impl Iterator<Item = u64> + use<> {
        let mut draws = |limit| limit > 0 && self.rng.next_u64() < limit;
        let (is_lost, is_doubled) = (draws(self.loss), draws(self.duplication));
        let copies = if is_lost { 0 } else { 1 + usize::from(is_doubled) };
        let travels = [(); 2].map(|()| self.latency.saturating_add(self.at_most(self.jitter)).min(NEVER));
        travels.into_iter().take(copies)
    }

    /// How long after its detection one rank learns of a failure.
    pub(crate) fn learning(&mut self) -> u64 {
        self.at_most(self.detection_jitter)
    }

    /// How long after a death every other rank has learned of it.
    pub(crate) fn all_know_after(&self) -> u64 {
        self.detection.saturating_add(self.detection_jitter).saturating_add(1)
    }

    /// A random delay.
    fn at_most(&mut self, limit: u64) -> u64 {
        if limit == 0 { 0 } else { self.rng.next_u64() % (limit + 1) }
    }

    /// The time after which an unanswered sender gives up.
    pub(crate) fn patience(&self) -> u64 {
        self.timeout.saturating_mul(u64::from(self.retries) + 1).min(NEVER)
    }
}

/// A span of simulated time in nanoseconds, cut at the end of time, beyond which nothing happens.
pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(NEVER).min(NEVER)
}
