//! Messages of a rank that move: reads, exposed memory and writes.

use std::task::{Context, Poll};

use onesided_fabric::remote_memory::{Fault, FaultKind, Rank, RegionId};
use onesided_fabric::{Landing, Missing, SegmentKey};

use super::host::Host;
use super::net::{Net, Plant, number};
use crate::Protocol;
use crate::engine::pipeline::{Exposed, Fin};
use crate::engine::receives::{Body, Moving as MovingHere};
use crate::engine::wire::DATA_HEAD;
use crate::engine::{Engine, Here, ToExpose, ToMove, ToRead};

/// The length of a piece of a message.
pub(super) const PIECE: u64 = 8;
/// How much of a message may be on its way in packets, which have half of it each.
pub(super) const FLIGHT: u64 = PIECE;

/// A read of an announced message by another task, or memory that is exposed for one.
#[derive(Debug)]
pub(super) struct Moving {
    pub(super) message: usize,
    pub(super) number: u64,
}

/// A landing that ends, before its memory.
#[derive(Debug)]
pub(super) struct Lifting {
    _landing: Box<dyn Landing>,
    message: usize,
    memory: u64,
}

/// What lands is chosen at its end.
#[derive(Debug)]
struct AnyLanding;

impl Landing for AnyLanding {
    fn poll_over(&mut self, _: &mut Context<'_>) -> Poll<Result<Missing, Fault>> {
        unreachable!("what is missing is chosen")
    }
}

impl Host {
    /// Whether there is something to be done for an announced message.
    pub(super) fn has_to_move(&self) -> bool {
        let Engine { tokens, to_write, announced, to_expose, .. } = &self.engine;
        let is_by =
            |at: &usize, written| self.engine.announced(*at).is_some_and(|message| message.by.is_written() == written);
        *tokens > 0 && (!to_write.is_empty() || announced.iter().any(|at| is_by(at, false)))
            || to_expose.iter().any(|at| {
                is_by(at, true) || self.has_more_to_expose(*at) || is_refused(&self.engine, *at) || self.has_landed(*at)
            })
    }

    fn has_landed(&self, message: usize) -> bool {
        let exposed = moving(&self.engine, message).and_then(|moving| moving.exposed.as_ref());
        exposed.is_some_and(Exposed::has_landed)
    }

    fn has_more_to_expose(&self, message: usize) -> bool {
        let moving = moving(&self.engine, message);
        moving.is_some_and(|MovingHere { announced, exposed, .. }| {
            exposed.as_ref().is_some_and(|exposed| exposed.has_more(announced.key.len))
        })
    }

    /// Exposed memory is its message's until the FIN.
    pub(super) fn check_exposed(&self) {
        for Moving { message, number, .. } in &self.exposed {
            let exposed = moving(&self.engine, *message).and_then(|moving| moving.exposed.as_ref());
            let is_held =
                exposed.is_some_and(|exposed| !matches!(exposed.memory, Here::Memory(memory) if memory != *number));
            assert!(
                is_held || Self::is_growing((&self.exposing, &self.engine), *message),
                "the exposed memory of {number} came back before the FIN"
            );
        }
    }

    pub(super) fn end_read(&self, net: &mut Net, number: u64) -> Result<(), Fault> {
        let from = net.message(number).from;
        let failed = net.fails(self.rank, from);
        let mut fails = failed.is_some();
        let is_unaware = net.unaware.contains(&self.rank);
        let message = net.message(number);
        fails |= message.is_old && (message.is_freed || !is_unaware);
        assert!(!message.is_freed || fails && message.is_old, "the memory of {number} was given back under a read");
        message.is_being_read = false;
        (message.is_lost, message.is_read) = (fails && failed != Some(FaultKind::NoMemory), !fails);
        match failed {
            Some(kind) => Err(Fault::of(kind, Rank(from))),
            None if fails => Err(Fault::of(FaultKind::ConnectionLost, Rank(from))),
            None => Ok(()),
        }
    }

    /// A task does what is to be done next for an announced message.
    pub(super) fn begin(&mut self, net: &mut Net) {
        match self.engine.next_to_move(|_| true) {
            Some(ToMove::Write { send, from: number, at, to, .. }) => {
                let message = net.message(number);
                message.writes += 1;
                assert!(at == message.begun, "{at} of {number} is written after {}", message.begun);
                message.begun += to.len;
                match net.plant {
                    Plant::FinBeforeWrite => {
                        self.engine.posted(send, false);
                        self.engine.written(send, Ok(()));
                    }
                    _ => self.posts.push((send, number, to.len)),
                }
                match net.plant {
                    Plant::FinBeforePost => self.engine.posted(send, true),
                    // Where packets follow writes, another thread may do something meanwhile.
                    _ if net.follows => {}
                    Plant::FinBeforeWrite => {}
                    _ => self.finish_post(net, self.posts.len() - 1),
                }
            }
            Some(ToMove::Copy { send, from: number, ranges, .. }) => {
                self.copies.push((send, number, ranges));
                // Another thread may do something meanwhile.
                if !net.follows {
                    self.finish_copy(net, self.copies.len() - 1);
                }
            }
            Some(ToMove::Lift { message, memory, landing }) => {
                self.exposed.retain(|exposed| exposed.message != message);
                self.lifts.push(Lifting { _landing: landing, message, memory });
            }
            Some(ToMove::Fill { message, memory: number, came, later }) => {
                let bytes = came.iter().flat_map(|(at, bytes)| (*at..).zip(&**bytes));
                for (at, byte) in bytes {
                    assert_eq!(*byte, number.to_le_bytes()[at as usize % 8], "torn: {came:?}");
                }
                self.exposed.retain(|exposed| exposed.message != message);
                self.lift(net, (message, number), later.datagrams);
            }
            Some(ToMove::Read(ToRead { message, .. })) => {
                let moving = self.moving(message);
                net.begin_read(moving.number);
                self.reads.push(moving);
            }
            Some(ToMove::Expose(expose)) => {
                if !self.exposed.iter().any(|exposed| exposed.message == expose.message) {
                    self.exposed.push(self.moving(expose.message));
                }
                let by = expose.by;
                self.exposing.push(expose);
                if matches!(by, Protocol::Rput | Protocol::UdZcopy) {
                    self.finish_exposing(net, self.exposing.len() - 1);
                }
            }
            None => {}
        }
    }

    fn moving(&self, message: usize) -> Moving {
        Moving { message, number: number(&self.engine, message as u32).unwrap() }
    }

    fn is_growing_here(&self, message: usize) -> bool {
        Self::is_growing((&self.exposing, &self.engine), message)
    }

    /// Whether a message is to have memory or room.
    pub(super) fn is_growing((exposing, engine): (&[ToExpose<u64>], &Engine<u64>), message: usize) -> bool {
        exposing.iter().any(|exposing| exposing.message == message) || is_refused(engine, message)
    }

    /// Memory was registered, or could not be.
    pub(super) fn finish_exposing(&mut self, net: &mut Net, at: usize) {
        let ToExpose { message, len, by, at, memory, .. } = self.exposing.remove(at);
        let exposed = self.exposed.iter().position(|exposed| exposed.message == message).unwrap();
        let number = self.exposed[exposed].number;
        let (rank, from) = (self.rank, net.message(number).from);
        assert!(at == 0 || memory == Some(number));
        let failed = net.fails(rank, from).filter(|kind| by != Protocol::Copy || *kind == FaultKind::Unknown);
        let fails = match failed {
            Some(FaultKind::NoMemory) if at == 0 => false,
            Some(kind) => {
                net.message(number).is_lost |= kind != FaultKind::NoMemory;
                let fault = Fault::new(kind);
                self.engine.expose(message, at, memory.map_or(Err(fault), |memory| Ok((memory, Err(fault)))));
                true
            }
            None => false,
        };
        if !fails && (by == Protocol::Copy || failed.is_some()) {
            self.engine.expose_elements(message, Box::new(vec![0_u8; len as usize]));
        } else if !fails {
            let len = if by == Protocol::Pipeline { PIECE } else { len };
            let key = SegmentKey { rank: Rank(rank), region: RegionId(1), len, address: number, rkey: 0 };
            // There is one at a time.
            let is_full =
                self.exposed.iter().any(|other| other.message != message && !self.is_growing_here(other.message));
            match by {
                Protocol::UdZcopy if is_full => self.engine.no_landing(message, number),
                Protocol::UdZcopy => self.engine.expose_landing(message, number, (key, Box::new(AnyLanding))),
                _ => self.engine.expose(message, at, Ok((number, Ok(key)))),
            }
        }
        let is_over = net.message(number).is_old && !net.unaware.contains(&rank);
        if fails && at == 0 || is_over || self.engine.lost(Rank(from)).is_some() {
            self.exposed.remove(exposed);
        }
    }

    pub(super) fn finish_read(&mut self, net: &mut Net, at: usize) {
        let read = self.reads.remove(at);
        let outcome = self.end_read(net, read.number);
        self.engine.read(read.message, outcome.map(|()| Here::Memory(read.number)));
        if is_refused(&self.engine, read.message) {
            self.exposed.push(read);
        }
    }

    /// A write is on its connection.
    pub(super) fn finish_post(&mut self, net: &mut Net, at: usize) {
        let post @ (send, number, len) = self.posts.remove(at);
        net.message(number).posted += len;
        if net.plant != Plant::FinBeforePost {
            let follows = net.follows && !net.message(number).is_in_datagrams;
            self.engine.posted(send, follows);
        }
        self.writes.push(post);
    }

    pub(super) fn finish_write(&mut self, net: &mut Net, at: usize) {
        let (send, number, len) = self.writes.remove(at);
        let to = net.message(number).to;
        // A FIN behind a write that fails does not arrive: its connection is lost.
        let has_fin = self.engine.sends[send].writes.is_some_and(|writes| writes.fin != Fin::NotYet);
        let may_fail = !has_fin || net.dead == Some(to) || net.message(number).is_old;
        let failed = if may_fail { net.fails(self.rank, to) } else { None };
        let fails = failed.is_some();
        let message = net.message(number);
        message.writes -= 1;
        message.is_lost |= fails && failed != Some(FaultKind::NoMemory) && !message.has_fin; // it may have come
        message.written += if fails { 0 } else { len };
        message.is_read |= !message.is_in_datagrams && message.written == message.len;
        self.engine.written(send, failed.map_or(Ok(()), |kind| Err(Fault::of(kind, Rank(to)))));
    }

    /// A landing is over, and its memory lacks some datagrams.
    pub(super) fn finish_lift(&mut self, net: &mut Net, at: usize) {
        let Lifting { message, memory: number, .. } = self.lifts.remove(at);
        let all = [vec![], vec![1]];
        let chosen = net.choose(all.len());
        net.note(self.rank, chosen);
        if net.plant == Plant::HoleForgotten {
            return self.engine.lifted(message, number, Ok(Missing::default()));
        }
        self.lift(net, (message, number), all[chosen].clone());
    }

    fn lift(&mut self, net: &mut Net, (message, number): (usize, u64), datagrams: Vec<u32>) {
        net.message(number).is_read |= datagrams.is_empty();
        self.engine.lifted(message, number, Ok(Missing { unit: PIECE as u32, datagrams }));
        if moving(&self.engine, message).is_some_and(|moving| moving.exposed.is_some()) {
            self.exposed.push(Moving { message, number });
        }
    }

    /// Bytes of a message are in packets.
    pub(super) fn finish_copy(&mut self, net: &mut Net, at: usize) {
        let (send, number, mut ranges) = self.copies.remove(at);
        if net.plant == Plant::NoRoom {
            ranges[0].1 = net.message(number).len - ranges[0].0;
        }
        ranges[0].0 += u64::from(net.plant == Plant::WrongOffset);
        self.engine.send_data(send, &ranges, DATA_HEAD + FLIGHT as usize / 2, |at, into| {
            (at..).zip(into).for_each(|(at, byte)| *byte = number.to_le_bytes()[at as usize % 8]);
            Ok(())
        });
    }
}

/// Whether a message is to come in packets, which it was not to at first.
fn is_refused(engine: &Engine<u64>, message: usize) -> bool {
    moving(engine, message).is_some_and(|moving| moving.is_refused || moving.awaits.is_some())
}

fn moving(engine: &Engine<u64>, message: usize) -> Option<&MovingHere<u64>> {
    match &engine.matcher.get(message)?.body {
        Body::Moving(moving) => Some(moving),
        _ => None,
    }
}
