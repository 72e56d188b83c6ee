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
const ENGINE: &str = "half a round trip: engine";
const MESSAGES: &str = "half a round trip: messages";
/// What each of them takes beyond the layer below.
const ADDS: [&str; 3] = ["packets add", "the engine adds", "the interface adds"];

pub(crate) static SUITE: Suite =
    Suite { steps: |effort| (3 * SIZES.len() * effort.runs()) as u64, ..Suite::new("layers", Program::Plain(run)) };

pub(crate) fn sections() -> Sections {
    vec![("layers".to_owned(), DESCRIPTIONS.iter().collect())]
}

const DESCRIPTIONS: &[Description] = &[
    Description { sentence: "By the fabric's packets (poll_send, poll_recv, read).", ..Description::of(PACKETS, &[]) },
    Description {
        sentence: "By the engine over them and its lock: matching, credit, eager protocol. No handles.",
        ..Description::of(ENGINE, &[])
    },
    Description { sentence: "By send and recv_into of a communicator.", ..Description::of(MESSAGES, &[]) },
    Description { sentence: "What packets take beyond the bare loop.", ..Description::of(ADDS[0], &[]) },
    Description { sentence: "What the engine takes beyond packets.", ..Description::of(ADDS[1], &[]) },
    Description {
        sentence: "What the interface takes beyond the engine: handles, and what they check.",
        ..Description::of(ADDS[2], &[])
    },
];

/// What sends short messages to the other rank, and receives them.
pub(crate) trait Layer {
    fn send(&mut self, bytes: &[u8]) -> Result<(), Failure>;
    /// Returns the length.
    fn receive(&mut self, into: &mut [u8]) -> Result<usize, Failure>;
}

pub(crate) struct Packets<'r>(&'r Any, pub(crate) <Any as Fabric>::Transport, pub(crate) Rank);

impl<'r> Packets<'r> {
    /// Takes the packets of this rank, for those to and from the other one.
    pub(crate) fn new(fabric: &'r Any, other: u32) -> Result<Self, Failure> {
        Ok(Self(fabric, fabric.transport().map_err(Error::operation("get the packets"))?, Rank(other)))
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

struct OfEngine<'m>(&'m Messages, Rank);

impl Layer for OfEngine<'_> {
    #[inline]
    fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        Ok(self.0.send_by_engine(self.1, bytes).map_err(Error::operation("send by the engine"))?)
    }

    #[inline]
    fn receive(&mut self, into: &mut [u8]) -> Result<usize, Failure> {
        let Self(messages, other) = self;
        let received = block_on(messages.world().fabric(), messages.receive_by_engine(*other, into));
        Ok(received.map_err(Error::operation("receive by the engine"))?)
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

/// One of two ranks, which run the same loops.
struct End<'r, L> {
    layer: RefCell<L>,
    is_first: bool,
    bare: BareEnd<'r>,
    card: Option<Card>,
}

/// What the other rank is asked to do.
const END: u64 = 0;
const OURS: u64 = 1;
const BARE: u64 = 2;

fn run(rank: &BenchRank, effort: Effort) -> Result<(), Failure> {
    let other = rank.peer() - rank.world.rank();
    let packets = measure(rank, effort, PACKETS, Packets::new(rank.world.fabric(), other)?)?;
    let messages = &Messages::new(&rank.world).wait()?;
    let engine = measure(rank, effort, ENGINE, OfEngine(messages, Rank(other)))?;
    let messages = measure(rank, effort, MESSAGES, OfMessages(messages, other))?;
    for (at, size) in SIZES.into_iter().enumerate().filter(|_| rank.world.rank() == 0) {
        let bare = packets[at].get(1);
        let layers = [bare, packets[at].first(), engine[at].first(), messages[at].first()];
        for (adds, pair) in ADDS.iter().zip(layers.windows(2)) {
            if let [Some(below), Some(above)] = pair {
                let values: Vec<_> = above.iter().zip(below.iter()).map(|(above, below)| above - below).collect();
                rank.measured((adds, Some(size)), Quantity::Latency, &values, Some(""))?;
            }
        }
    }
    Ok(())
}

/// The nanoseconds of the layer and of the bare loop, if there is one, by size and run.
fn measure(rank: &BenchRank, effort: Effort, name: &str, mut layer: impl Layer) -> Result<Vec<Vec<Vec<f64>>>, Failure> {
    let is_first = rank.world.rank() == 0;
    let card = Card::new(rank, |own| {
        let mut others = [0; 256];
        layer.send(own)?;
        let len = layer.receive(&mut others)?;
        Ok(others[..len].to_vec())
    })?;
    let end = End { layer: RefCell::new(layer), is_first, bare: BareEnd::new(rank, (0, 1), is_first), card };
    let mut all = Vec::new();
    if is_first {
        for size in SIZES {
            all.push(probes::measure(rank, effort, end.probes(rank, name, size))?);
        }
        end.ask(END, 0, 0)?;
    } else {
        end.answer()?;
    }
    drop(end); // gives the packets back
    rank.world.barrier().wait()?;
    Ok(all)
}

impl<L: Layer> End<'_, L> {
    fn probes(&self, rank: &BenchRank, name: &str, size: usize) -> Vec<Probe<'_>> {
        let bare = match &self.card {
            Some(card) => card.sends().map(|_| "sends"),
            None if rank.has_limits() => Some(if size <= 8 { "stores" } else { "memcpy" }),
            None => None,
        };
        let bare = bare.map(|bare| format!("{bare} beside {}", name.trim_start_matches(HALF)));
        let asked = |what| {
            move |n| {
                self.ask(what, size, n)?;
                self.run(what, size, n)
            }
        };
        let mut probes = vec![Probe::ours(name, bare.as_deref().unwrap_or(""), asked(OURS))];
        probes.extend(bare.map(|bare| Probe::limit_of_two(&bare, asked(BARE))));
        probes.into_iter().map(|probe| probe.each_time(2).of_size(size)).collect()
    }

    fn ask(&self, what: u64, size: usize, n: u64) -> Result<(), Failure> {
        let asked = [what, size as u64, n].map(u64::to_le_bytes);
        self.layer.borrow_mut().send(asked.as_flattened())
    }

    /// Does what rank 0 asks for.
    fn answer(&self) -> Result<(), Failure> {
        loop {
            let mut asked = [[0; 8]; 3];
            self.layer.borrow_mut().receive(asked.as_flattened_mut())?;
            let [what, size, n] = asked.map(u64::from_le_bytes);
            if what == END {
                return Ok(());
            }
            self.run(what, size as usize, n)?;
        }
    }

    fn run(&self, what: u64, size: usize, n: u64) -> Result<(), Failure> {
        let (out, into) = (&[1; SIZES[1]][..size], &mut [0; SIZES[1]][..size]);
        if what == BARE {
            if let Some(sends) = self.card.as_ref().and_then(Card::sends) {
                return sends(self.is_first, size, n);
            }
            self.bare.ping_pong((out, into), n);
            return Ok(());
        }
        let layer = &mut *self.layer.borrow_mut();
        (0..n).try_for_each(|_| {
            if self.is_first {
                layer.send(black_box(out))?;
                return layer.receive(black_box(&mut *into)).map(drop);
            }
            layer.receive(black_box(&mut *into))?;
            layer.send(black_box(out))
        })
    }
}
