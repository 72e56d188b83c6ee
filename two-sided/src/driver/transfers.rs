//! Announced messages on their way over the fabric: reads, exposed memory and writes, begun and ended
//! by whatever task waits.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};
use onesided_fabric::{Fabric, Landing, Launch, Missing, NOBODY, SegmentKey, Transport};

use crate::Protocol;
use crate::driver::offered;
use crate::driver::pieces::Pieces;
use crate::driver::progress::{Progress, Registered};
use crate::engine::elements::{Allocate, Elements};
use crate::engine::{Engine, Here, ToExpose, ToMove, ToRead, is_refused};

/// What moves of an announced message.
pub(crate) enum Transfer<F: Fabric> {
    Moves(Moves<F>),
    /// The datagrams of a send leave.
    Leaves(usize, Launch),
    Lands(Lands<F>),
}

/// The landing of a message that ends, before its memory.
pub(crate) struct Lands<F: Fabric> {
    landing: Box<dyn Landing>,
    message: usize,
    memory: Registered<F>,
}

/// A transfer of an announced message whose receive is not waited for now, or which its sender
/// writes.
pub(crate) struct Moves<F: Fabric> {
    what: What<F>,
    transfer: F::Transfer,
    /// The others, where it goes to or comes from several pieces of memory.
    others: Vec<F::Transfer>,
    outcome: Result<(), Fault>,
}

impl<F: Fabric> Moves<F> {
    /// What was begun, and why the rest was not.
    fn of(what: What<F>, (mut begun, outcome): (Vec<F::Transfer>, Result<(), Fault>)) -> Option<Self> {
        let transfer = begun.pop()?;
        Some(Self { what, transfer, others: begun, outcome })
    }

    /// Whether it is over, or some of it has failed already: was not posted.
    fn poll_all(&mut self) -> Poll<Result<(), Fault>> {
        let cx = &mut Context::from_waker(NOBODY);
        let outcome = &mut self.outcome;
        self.others.retain_mut(|other| match Pin::new(other).poll(cx) {
            Poll::Ready(ended) => {
                *outcome = ended.and(*outcome);
                false
            }
            Poll::Pending => true,
        });
        self.poll(cx)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        loop {
            let outcome = ready!(Pin::new(&mut self.transfer).poll(cx));
            self.outcome = outcome.and(self.outcome);
            match self.others.pop() {
                Some(other) => self.transfer = other,
                None => return Poll::Ready(self.outcome),
            }
        }
    }
}

enum What<F: Fabric> {
    Read { message: usize, into: Registered<F> },
    Write { send: usize, to: Rank },
}

/// An announced message that [`begin`](Progress::begin) has begun to move.
pub(crate) enum Begun<F: Fabric> {
    Read {
        message: usize,
        here: Result<Here<Registered<F>>, Fault>,
    },
    Exposed {
        message: usize,
        at: u64,
        exposed: Result<(Registered<F>, Result<SegmentKey, Fault>), Fault>,
    },
    /// It is to come in packets.
    Elements {
        message: usize,
        elements: Box<dyn Elements>,
    },
    Written {
        send: usize,
        outcome: Result<(), Fault>,
    },
    /// These bytes are to go in packets.
    Copied {
        send: usize,
        to: Rank,
        from: Registered<F>,
        ranges: Vec<(u64, u64)>,
    },
    Landing {
        message: usize,
        memory: Registered<F>,
        landing: (SegmentKey, Box<dyn Landing>),
    },
    /// There is none now.
    NoLanding {
        message: usize,
        memory: Registered<F>,
    },
    /// What was missing of it is in its memory, but for these.
    Filled {
        message: usize,
        memory: Registered<F>,
        later: Result<Missing, Fault>,
    },
    Moves(Transfer<F>),
    /// Its sender moves it just now.
    Later {
        message: usize,
    },
}

impl<F: Fabric> Begun<F> {
    /// Tells the engine. `false`: the message is to be read later.
    pub(crate) fn tell(
        self,
        on: &Progress<F>,
        engine: &mut Engine<Registered<F>>,
        transfers: &mut Vec<Transfer<F>>,
        transport: &impl Transport,
    ) -> bool {
        match self {
            Self::Read { message, here } => engine.read(message, here),
            Self::Exposed { message, at, exposed } => engine.expose(message, at, exposed),
            Self::Elements { message, elements } => engine.expose_elements(message, elements),
            Self::Landing { message, memory, landing } => engine.expose_landing(message, memory, landing),
            Self::NoLanding { message, memory } => engine.no_landing(message, memory),
            Self::Filled { message, memory, later } => engine.lifted(message, memory, later),
            Self::Copied { send, to, from, ranges } => {
                let packet_max = transport.channels(to)[0].packet_max;
                engine.send_data(send, &ranges, packet_max, |at, into| from.read(on, at, into));
            }
            Self::Written { send, outcome } => {
                engine.posted(send, false);
                engine.written(send, outcome);
            }
            Self::Moves(transfer) => {
                match &transfer {
                    Transfer::Moves(Moves { what: What::Write { send, to }, outcome, .. }) => {
                        engine.posted(*send, transport.channels(*to)[0].follows_writes && outcome.is_ok());
                    }
                    Transfer::Leaves(send, _) => engine.posted(*send, false),
                    Transfer::Moves(_) | Transfer::Lands(_) => {}
                }
                transfers.push(transfer);
            }
            Self::Later { message } => {
                engine.read_later(message);
                return false;
            }
        }
        true
    }
}

/// Ends the transfers that are over: whether there were some.
pub(crate) fn end<F: Fabric>(
    transfers: &mut Vec<Transfer<F>>,
    engine: &mut Engine<Registered<F>>,
    cx: &mut Context<'_>,
) -> bool {
    let (begun, mut at) = (transfers.len(), 0);
    while let Some(next) = transfers.get_mut(at) {
        let outcome = match next {
            Transfer::Moves(moves) => moves.poll(cx).map_ok(|()| Missing::default()),
            Transfer::Leaves(_, launch) => launch.as_mut().poll(cx).map_ok(|()| Missing::default()),
            Transfer::Lands(lands) => lands.landing.poll_over(cx),
        };
        let Poll::Ready(outcome) = outcome else {
            at += 1;
            continue;
        };
        match transfers.swap_remove(at) {
            Transfer::Moves(Moves { what: What::Read { message, into }, .. }) => {
                engine.read(message, outcome.map(|_| Here::Memory(into)));
            }
            Transfer::Moves(Moves { what: What::Write { send, .. }, .. }) | Transfer::Leaves(send, _) => {
                engine.written(send, outcome.map(drop));
            }
            Transfer::Lands(Lands { landing, message, memory }) => {
                drop(landing);
                engine.lifted(message, memory, outcome);
            }
        }
    }
    transfers.len() < begun
}

impl<F: Fabric> Progress<F> {
    /// Starts to move an announced message.
    pub(crate) fn begin(&self, next: ToMove<Registered<F>>) -> Begun<F> {
        match next {
            ToMove::Read(read) => self.begin_read(read),
            ToMove::Expose(expose) => self.begin_expose(expose),
            ToMove::Write { send, from, to, by: Protocol::UdZcopy, .. } => {
                match from.segment().and_then(|from| self.fabric.launch((from, 0), &to)) {
                    Ok(launch) => Begun::Moves(Transfer::Leaves(send, launch)),
                    Err(fault) => Begun::Written { send, outcome: Err(fault) },
                }
            }
            ToMove::Lift { message, memory, landing } => {
                Begun::Moves(Transfer::Lands(Lands { landing, message, memory }))
            }
            ToMove::Fill { message, memory, came, later } => {
                let filled = came.iter().try_for_each(|(at, bytes)| memory.write(self, *at, bytes));
                Begun::Filled { message, memory, later: filled.map(|()| later) }
            }
            ToMove::Write { send, from, at, len, to, .. } => {
                let begun = self.begin_write((&from, len), at, &to);
                let outcome = begun.1;
                let Some(mut transfer) = Moves::of(What::Write { send, to: to.rank }, begun) else {
                    return Begun::Written { send, outcome };
                };
                match transfer.poll_all() {
                    Poll::Ready(outcome) => Begun::Written { send, outcome },
                    Poll::Pending => Begun::Moves(Transfer::Moves(transfer)),
                }
            }
            ToMove::Copy { send, to, from, ranges } => Begun::Copied { send, to, from, ranges },
        }
    }

    /// Registers what is exposed next. What cannot be registered comes in packets.
    fn begin_expose(&self, expose: ToExpose<Registered<F>>) -> Begun<F> {
        let ToExpose { message, len, by, at, memory, allocate } = expose;
        if by == Protocol::UdZcopy {
            let memory = memory.filter(|memory| memory.has_room(len)).map_or_else(|| self.memory(len), Ok);
            if let Ok(memory) = memory {
                match memory.segment().and_then(|segment| self.fabric.land(segment, len)) {
                    Ok(landing) => return Begun::Landing { message, memory, landing },
                    Err(fault) if fault.kind() == FaultKind::Full => return Begun::NoLanding { message, memory },
                    Err(_) => {}
                }
            }
        } else if by != Protocol::Copy {
            let memory = match memory.filter(|memory| at > 0 || memory.has_room(len)) {
                None if by == Protocol::Pipeline && len > 0 => Ok(self.pieces(len)),
                None => self.memory(len),
                Some(memory) => Ok(memory),
            };
            let exposed = memory.map(|memory| {
                let key = memory.key(self, at..len);
                (memory, key)
            });
            let fault = exposed.as_ref().map_or_else(|fault| Some(*fault), |(_, key)| key.err());
            if at > 0 || !fault.is_some_and(is_refused) {
                return Begun::Exposed { message, at, exposed };
            }
        }
        match self.elements(len, allocate) {
            Ok(elements) => Begun::Elements { message, elements },
            Err(fault) => Begun::Exposed { message, at, exposed: Err(fault) },
        }
    }

    /// Writes a part of a message, and registers what is written next while it moves.
    fn begin_write(
        &self,
        (from, len): (&Pieces<F>, u64),
        at: u64,
        to: &SegmentKey,
    ) -> (Vec<F::Transfer>, Result<(), Fault>) {
        let (fabric, end) = (&self.fabric, at + to.len);
        if to.len == 0 {
            return (Vec::new(), Ok(()));
        }
        let into = match self.open(to) {
            Ok(into) => into,
            Err(fault) => return (Vec::new(), Err(fault)),
        };
        let begun = from.transfers(self, at..end, |from, offset, there, len| {
            fabric.rdma_write((from, offset), (&into, there), len)
        });
        if end < len {
            from.prepare(self, end);
        }
        begun
    }

    fn begin_read(&self, read: ToRead<Registered<F>>) -> Begun<F> {
        let ToRead { message, key, is_offered, allocate, into } = read;
        let over = |here| Begun::Read { message, here };
        if is_offered {
            let mut elements = match self.elements(key.len, allocate) {
                Ok(elements) => elements,
                Err(fault) => return over(Err(fault)),
            };
            return match offered::read_now(self, &key, elements.bytes_mut()) {
                Some(read) => over(read.map(|()| Here::Elements(elements))),
                None => Begun::Later { message },
            };
        }
        if key.len == 0 {
            return over(self.memory(0).map(Here::Memory));
        }
        let into = into.filter(|into| into.has_room(key.len));
        let begun = || {
            let (from, into) = (self.open(&key)?, into.map_or_else(|| self.memory(key.len), Ok)?);
            let transfer = self.fabric.rdma_read((&from, 0), (into.segment()?, 0), key.len);
            Ok(Moves { what: What::Read { message, into }, transfer, others: Vec::new(), outcome: Ok(()) })
        };
        begun().map_or_else(|fault| over(Err(fault)), |moves| Begun::Moves(Transfer::Moves(moves)))
    }

    /// The elements of a message, as many bytes as it has.
    fn elements(&self, len: u64, allocate: Option<Allocate>) -> Result<Box<dyn Elements>, Fault> {
        let elements = allocate.and_then(|allocate| allocate(len));
        let elements = elements.filter(|elements| elements.bytes().len() as u64 == len);
        let bytes = || Some(Box::new(self.bytes(len)?) as Box<dyn Elements>);
        elements.or_else(bytes).ok_or(Fault::new(FaultKind::NoMemory))
    }
}
