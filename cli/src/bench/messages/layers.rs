//! `bench messages --layers`: half a round trip at each layer (Yu et al., 2004, section 6.3).
//!
//! The packets of a rank are the bare layer's first, then those of its messages. Each layer is measured interleaved with the
//! bare loop.

use std::cell::RefCell;
use std::future::poll_fn;
use std::hint::black_box;

use onesided_fabric::remote_memory::{Patience, Rank};
use onesided_fabric::{Any, Error, Fabric, Packet, Transport, block_on};
use onesided_two_sided::Messages;

use super::DATA;
use super::card::Card;
use crate::bench::baselines::ends::BareEnd;
use crate::bench::output::json::Sections;
use crate::bench::prelude::*;

/// Both are eager on every fabric.
const SIZES: [usize; 2] = [8, 512];

const HALF: &str = "half a round trip: ";
const PACKETS: &str = "half a round trip: packets";
const MESSAGES: &str = "half a round trip: messages";
/// What each of them takes beyond the layer below.
const ADDS: [&str; 2] = ["packets add", "messages add"];

pub(crate) static SUITE: Suite =
    Suite { steps: |effort| (2 * SIZES.len() * effort.runs()) as u64, ..Suite::new("layers", Program::Plain(run)) };

pub(super) fn sections() -> Sections {
    vec![("layers".to_owned(), DESCRIPTIONS.iter().collect())]
}

const DESCRIPTIONS: &[Description] = &[
    Description::of(PACKETS, &[]).saying("By the fabric's packets (poll_send, poll_recv, read)."),
    Description::of(MESSAGES, &[]).saying("By send and recv_into of a communicator."),
    Description::of(ADDS[0], &[]).saying("What packets take beyond the bare loop."),
    Description::of(ADDS[1], &[]).saying(
        "What messages take beyond packets: matching, credit, the eager protocol, handles, and what they check.",
    ),
];

/// What sends short messages to the other rank, and receives them.
pub(crate) trait Layer {
    fn send(&mut self, bytes: &[u8]) -> Result<(), Failure>;
    /// Returns the length.
    fn receive(&mut self, into: &mut [u8]) -> Result<usize, Failure>;
}

pub(crate) struct Packets<'r>(&'r Any, <Any as Fabric>::Transport, Rank);

impl<'r> Packets<'r> {
    /// Takes the packets of this rank, for those to and from the other one.
    pub(crate) fn new(fabric: &'r Any, other: u32) -> Result<Self, Failure> {
        Ok(Self(fabric, fabric.transport().map_err(Error::operation("get the packets"))?, Rank(other)))
    }

    /// The bytes of the longest.
    pub(crate) fn longest(&self) -> usize {
        self.1.channels(self.2)[0].packet_max
    }
}

impl Layer for Packets<'_> {
    #[inline]
    fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let Self(fabric, packets, other) = self;
        let channel = packets.channels(*other)[0].channel;
        let sent = poll_fn(|cx| packets.poll_send(cx, *other, Packet::new(channel, bytes)));
        Ok(block_on(*fabric, sent).map_err(Error::operation("send a packet"))?)
    }

    #[inline]
    fn receive(&mut self, into: &mut [u8]) -> Result<usize, Failure> {
        let Self(fabric, packets, other) = self;
        let arrived = poll_fn(|cx| packets.poll_recv(cx, Patience::on(*other)));
        let len = block_on(*fabric, arrived).map_err(Error::operation("receive a packet"))?.len;
        packets.read(0, &mut into[..len]);
        Ok(len)
    }
}

struct OfMessages<'m>(&'m Messages, u32);

impl Layer for OfMessages<'_> {
    #[inline]
    fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        Ok(self.0.send(bytes, self.1, DATA).wait()?)
    }

    #[inline]
    fn receive(&mut self, into: &mut [u8]) -> Result<usize, Failure> {
        Ok(self.0.recv_into(into, self.1, DATA).wait()?.bytes as usize)
    }
}

/// The packets of a stream before its receiver answers.
pub(crate) const WINDOW: usize = 64;

/// One of two ranks, which run the same loops.
pub(crate) struct End<'r, L> {
    layer: RefCell<L>,
    is_first: bool,
    bare: BareEnd<'r>,
    card: Option<Card>,
    out: Vec<u8>,
    into: RefCell<Vec<u8>>,
}

fn run(rank: &BenchRank, effort: Effort) -> Result<(), Failure> {
    let other = rank.peer() - rank.world.rank();
    let packets = measure(rank, effort, PACKETS, Packets::new(rank.world.fabric(), other)?)?;
    let messages = &Messages::new(&rank.world).wait()?;
    let messages = measure(rank, effort, MESSAGES, OfMessages(messages, other))?;
    for (at, size) in SIZES.into_iter().enumerate().filter(|_| rank.world.rank() == 0) {
        let bare = packets[at].get(1);
        let layers = [bare, packets[at].first(), messages[at].first()];
        for (adds, pair) in ADDS.iter().zip(layers.windows(2)) {
            if let [Some(below), Some(above)] = pair {
                let values: Vec<_> = above.iter().zip(below.iter()).map(|(above, below)| above - below).collect();
                rank.report(Point::of(*adds, Quantity::Latency).of_size(size), &values)?;
            }
        }
    }
    Ok(())
}

/// The nanoseconds of the layer and of the bare loop, if there is one, by size and run.
fn measure(rank: &BenchRank, effort: Effort, name: &str, mut layer: impl Layer) -> Result<Vec<Vec<Vec<f64>>>, Failure> {
    let card = Card::new(rank, |own| {
        let mut others = [0; 256];
        layer.send(own)?;
        let len = layer.receive(&mut others)?;
        Ok(others[..len].to_vec())
    })?;
    let end = End { card, ..End::new(rank, layer, SIZES[1]) };
    let measure = |size| probes::run_together((rank, &rank.world), effort, half_a_round_trip(&end, rank, name, size));
    let all = SIZES.into_iter().map(measure).collect::<Result<_, _>>()?;
    drop(end); // gives the packets back
    rank.world.barrier().wait()?;
    Ok(all)
}

fn half_a_round_trip<'e, L: Layer>(end: &'e End<'_, L>, rank: &BenchRank, name: &str, size: usize) -> Vec<Probe<'e>> {
    let bare = match &end.card {
        Some(card) => card.sends().map(|_| "sends"),
        None if rank.has_limits() => Some(if size <= 8 { "stores" } else { "memcpy" }),
        None => None,
    };
    let bare = bare.map(|bare| format!("{bare} beside {}", name.trim_start_matches(HALF)));
    let mut probes = vec![Probe::ours(name, bare.as_deref().unwrap_or(""), move |n| end.ping_pong(size, n))];
    probes.extend(bare.map(|bare| Probe::limit_of_two(&bare, move |n| end.bare_ping_pong(size, n))));
    probes.into_iter().map(|probe| probe.each_time(2).of_size(size)).collect()
}

impl<'r, L: Layer> End<'r, L> {
    /// With memory for packets of so many bytes.
    pub(crate) fn new(rank: &'r BenchRank, layer: L, longest: usize) -> Self {
        let is_first = rank.world.rank() == 0;
        let (bare, into) = (BareEnd::new(rank, (0, 1), is_first), vec![0; WINDOW * longest]);
        Self { layer: RefCell::new(layer), is_first, bare, card: None, out: vec![1; longest], into: RefCell::new(into) }
    }

    pub(crate) fn ping_pong(&self, size: usize, n: u64) -> Result<(), Failure> {
        let (layer, into) = (&mut *self.layer.borrow_mut(), &mut self.into.borrow_mut()[..size]);
        let mut turn = |sends: bool| match sends {
            true => layer.send(black_box(&self.out[..size])),
            false => layer.receive(black_box(&mut *into)).map(drop),
        };
        (0..n).try_for_each(|_| turn(self.is_first).and_then(|()| turn(!self.is_first)))
    }

    /// A stream one way, and an answer.
    pub(crate) fn stream(&self, size: usize, n: u64) -> Result<(), Failure> {
        let (layer, into) = (&mut *self.layer.borrow_mut(), &mut self.into.borrow_mut()[..size]);
        (0..n).try_for_each(|_| {
            if self.is_first {
                (0..WINDOW).try_for_each(|_| layer.send(black_box(&self.out[..size])))?;
                return layer.receive(black_box(&mut [0; 8])).map(drop);
            }
            (0..WINDOW).try_for_each(|_| layer.receive(black_box(&mut *into)).map(drop))?;
            layer.send(black_box(&[0; 8]))
        })
    }

    pub(crate) fn bare_ping_pong(&self, size: usize, n: u64) -> Result<(), Failure> {
        let bytes = (&self.out[..size], &mut self.into.borrow_mut()[..size]);
        match self.card.as_ref().and_then(Card::sends) {
            Some(sends) => sends(self.is_first, size, n),
            None => {
                self.bare.ping_pong(bytes, n);
                Ok(())
            }
        }
    }

    pub(crate) fn bare_stream(&self, size: usize, n: u64) -> Result<(), Failure> {
        self.bare.stream((&self.out[..size], &mut self.into.borrow_mut()), WINDOW, n);
        Ok(())
    }
}
