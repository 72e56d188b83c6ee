//! Announced messages that move: the receiver reads them (RGET), exposes memory that the sender
//! [writes](super::pipeline), or has room for [packets](super::copy).

use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};
use onesided_fabric::{Landing, Missing, SegmentKey};

use super::Engine;
use super::copy::is_refused;
use super::pipeline::{Part, To, ToExpose};
use super::receives::{Announced, Arrived, Body, Moving, Receive};
use crate::Protocol;
use crate::engine::elements::{Allocate, Elements};

/// An announced message that is to be read for a receive.
#[derive(Debug)]
pub(crate) struct ToRead<S> {
    pub(crate) message: usize,
    pub(crate) key: SegmentKey,
    pub(crate) is_offered: bool,
    pub(crate) allocate: Option<Allocate>,
    /// The memory of the receive, if that has some.
    pub(crate) into: Option<S>,
}

/// What is to be done for a message that was announced, by whatever task waits.
#[derive(Debug)]
pub(crate) enum ToMove<S> {
    Read(ToRead<S>),
    /// Memory is to be [exposed](Engine::expose).
    Expose(ToExpose<S>),
    /// The memory of a send, from an offset on, is [to be written](Engine::written) to that of its
    /// receiver.
    Write {
        send: usize,
        from: S,
        at: u64,
        /// The message's length.
        len: u64,
        to: SegmentKey,
        /// Whether they are [datagrams](super::zcopy).
        by: Protocol,
    },
    /// The landing of a message [is to end](Engine::lifted): its datagrams have left.
    Lift {
        message: usize,
        memory: S,
        landing: Box<dyn Landing>,
    },
    /// These bytes of it, at their offsets, [are to be written](Engine::lifted) to its memory.
    Fill {
        message: usize,
        memory: S,
        came: Vec<(u64, Box<[u8]>)>,
        later: Missing,
    },
    /// Its bytes at these offsets, as many each, [go in packets](Engine::send_data).
    Copy {
        send: usize,
        to: Rank,
        from: S,
        ranges: Vec<(u64, u64)>,
    },
}

/// A message that was moved.
#[derive(Debug)]
pub(crate) enum Here<S> {
    Memory(S),
    Elements(Box<dyn Elements>),
}

impl<S> Engine<S> {
    /// A receive has a message. One that was announced is to be moved for it.
    #[inline]
    pub(super) fn is_to_move(&mut self, message: usize) {
        match &self.matcher.message(message).body {
            Body::Announced(announced) if announced.by.is_written() => self.to_expose.push_back(message),
            Body::Announced(_) => self.announced.push_back(message),
            Body::Eager(_) | Body::Moving(_) | Body::Moved { .. } => {}
        }
    }

    /// No receive has it any more, and it does not move yet.
    pub(super) fn is_not_to_move(&mut self, message: usize) {
        if let Body::Announced(_) = self.matcher.message(message).body {
            self.announced.retain(|other| *other != message);
            self.to_expose.retain(|other| *other != message);
        }
    }

    /// What is to be done next for an announced message. Reads and writes have a token each. An
    /// offered message has to be `still`.
    pub(crate) fn next_to_move(&mut self, still: impl Fn(&SegmentKey) -> bool) -> Option<ToMove<S>>
    where
        S: Clone,
    {
        if let Some(expose) = self.next_to_expose() {
            return Some(expose);
        }
        if self.tokens > 0
            && let Some(Part { send, at, to }) = self.to_write.pop_front()
            && let Some(from) = self.sends[send].memory[0].clone()
        {
            self.tokens -= 1;
            return Some(match to {
                To::Memory(to) => {
                    let (len, by) =
                        self.sends[send].writes.map_or((0, Protocol::Rput), |writes| (writes.len, writes.by));
                    ToMove::Write { send, from, at, len, to, by }
                }
                To::Packets(len) => ToMove::Copy { send, to: self.sends[send].to, from, ranges: vec![(at, len)] },
                To::Ranges(ranges) => ToMove::Copy { send, to: self.sends[send].to, from, ranges },
            });
        }
        self.next_to_read(still).map(ToMove::Read)
    }

    /// Whether [`next_to_move`](Self::next_to_move) may have something.
    #[inline]
    pub(crate) fn has_to_move(&self) -> bool {
        !self.to_expose.is_empty() || self.tokens > 0 && !(self.announced.is_empty() && self.to_write.is_empty())
    }

    /// A message that a receive has and that nobody moves yet.
    pub(super) fn announced(&self, message: usize) -> Option<Announced> {
        match self.matcher.get(message)? {
            Arrived { body: Body::Announced(announced), receive: Some(_), .. } => Some(*announced),
            _ => None,
        }
    }

    pub(super) fn begin_move(&mut self, message: usize, announced: Announced) {
        let moving = Moving { announced, exposed: None, is_refused: false, awaits: None };
        self.matcher.message_mut(message).body = Body::Moving(Box::new(moving));
    }

    pub(super) fn moving(&mut self, message: usize) -> Option<&mut Moving<S>> {
        match &mut self.matcher.get_mut(message)?.body {
            Body::Moving(moving) => Some(moving),
            Body::Eager(_) | Body::Announced(_) | Body::Moved { .. } => None,
        }
    }

    /// The memory of the receive that has a message.
    pub(super) fn memory_of(&mut self, message: usize) -> (Option<Allocate>, Option<S>) {
        let receive = self.matcher.message(message).receive;
        let Some(receive) = receive else { return (None, None) };
        let Receive { allocate, into, .. } = &mut self.matcher.receives[receive as usize];
        (*allocate, into.take())
    }

    /// The next announced message whose receive is not waited for now: another task reads it and
    /// [says so](Self::read). Otherwise a rank that waits for a send, before it waits for a receive,
    /// would hold up its own sender.
    fn next_to_read(&mut self, still: impl Fn(&SegmentKey) -> bool) -> Option<ToRead<S>> {
        let mut index = 0;
        while self.tokens > 0 && index < self.announced.len() {
            let message = self.announced[index];
            let Some(announced) = self.announced(message).filter(|announced| !announced.by.is_written()) else {
                self.announced.remove(index);
                continue;
            };
            let (key, is_offered) = (announced.key, announced.by == Protocol::Offered);
            if is_offered && !still(&key) {
                index += 1;
                continue;
            }
            self.begin_move(message, announced);
            self.announced.remove(index);
            self.tokens -= 1;
            let (allocate, into) = self.memory_of(message);
            return Some(ToRead { message, key, is_offered, allocate, into });
        }
        None
    }

    /// An announced message was read, or could not be.
    pub(crate) fn read(&mut self, message: usize, here: Result<Here<S>, Fault>) {
        self.tokens += 1;
        let is_read = self.moving(message).is_some_and(|moving| moving.announced.by == Protocol::Rget);
        match here {
            Err(fault) if is_refused(fault) && is_read => self.copy_instead(message),
            here => self.end_move(message, here),
        }
    }

    /// What moved is here, or is lost: its sender is told.
    pub(super) fn end_move(&mut self, message: usize, here: Result<Here<S>, Fault>) {
        let Some(Moving { announced, .. }) = self.moving(message) else { return };
        let announced = *announced;
        let here = match self.check_connection(message) {
            Ok(()) => {
                let from = Rank(self.matcher.envelope(message).source);
                self.send_fin(from, announced, here.as_ref().map(|_| ()).map_err(|fault| *fault));
                here
            }
            Err(fault) => Err(fault),
        };
        self.has_moved(message, Body::Moved { here, len: announced.key.len });
    }

    /// An announced message cannot be read now.
    pub(crate) fn read_later(&mut self, message: usize) {
        self.tokens += 1;
        let Some(Moving { announced, .. }) = self.moving(message) else { return };
        let announced = *announced;
        let lost = |fault| Body::Moved { here: Err(fault), len: announced.key.len };
        let body = self.check_connection(message).map_or_else(lost, |()| Body::Announced(announced));
        self.has_moved(message, body);
        if self.matcher.get(message).is_some_and(|message| message.receive.is_some()) {
            self.is_to_move(message);
        }
    }

    /// A message does not move any more.
    pub(super) fn has_moved(&mut self, message: usize, body: Body<S>) {
        self.matcher.message_mut(message).body = body;
        match self.is_open(self.matcher.envelope(message).context) {
            true => self.wake_receive(message),
            false => drop(self.deliver(message as u32, Err(Fault::new(FaultKind::Closed)))),
        }
    }
}
