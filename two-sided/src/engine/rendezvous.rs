//! Announced messages that move: the receiver reads them (RGET), exposes memory that the sender
//! [writes](super::pipeline), or has room for [packets](super::copy).

use onesided_fabric::SegmentKey;
use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};

use super::Engine;
use super::copy::is_refused;
use super::pipeline::{Part, To, ToExpose};
use super::receives::{Body, Matched, Receive, ReceiveState};
use crate::elements::{Allocate, Elements};
use crate::matching::Pattern;
use crate::wire::By;

/// An announced message that is to be read for a receive.
#[derive(Debug)]
pub(crate) struct ToRead<S> {
    pub(crate) receive: usize,
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
    },
    /// So many bytes of it [go in packets](Engine::send_data).
    Copy {
        send: usize,
        to: Rank,
        from: S,
        at: u64,
        len: u64,
    },
}

/// An announced message that was read.
#[derive(Debug)]
pub(crate) enum Here<S> {
    Memory(S),
    Elements(Box<dyn Elements>),
}

/// What gets a message that moves for a receive.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    Itself,
    /// The receive was dropped: the message is unexpected, here unless its communicator is gone,
    Place(u32),
    /// or another receive has got it.
    Receive(u32),
}

impl<S> Engine<S> {
    /// A receive has got a message, which is announced if it moves by something.
    #[inline]
    pub(super) fn is_to_move(&mut self, receive: usize, by: Option<By>) {
        match by {
            Some(by) if by.is_written() => self.to_expose.push_back(receive),
            Some(_) => self.announced.push_back(receive),
            None => {}
        }
    }

    /// A matched message becomes that of a receive, because it [is to come](Body::is_to_come).
    pub(crate) fn receive_matched(&mut self, matched: Box<Matched<S>>) -> usize {
        match matched.body {
            Body::Moving { receive, .. } => receive,
            _ => self.has_matched(matched.envelope.into(), matched),
        }
    }

    /// Adds a receive of a message that moves, though its receive was dropped.
    pub(super) fn await_moving(&mut self, pattern: Pattern, moving: usize) -> usize {
        let receive = self.matcher.receives.add(pattern, Receive::new(ReceiveState::Awaits(moving)));
        self.set_target(moving, Target::Receive(receive as u32));
        receive
    }

    /// Adds a receive that has its message.
    pub(super) fn has_matched(&mut self, pattern: Pattern, matched: Box<Matched<S>>) -> usize {
        if let Body::Moving { receive, .. } = matched.body {
            return self.await_moving(pattern, receive);
        }
        let by = matched.body.by();
        let receive = self.matcher.receives.add(pattern, Receive::new(ReceiveState::Matched(matched)));
        self.is_to_move(receive, by);
        receive
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
                    let len = self.sends[send].writes.map_or(0, |writes| writes.len);
                    ToMove::Write { send, from, at, len, to }
                }
                To::Packets(len) => ToMove::Copy { send, to: self.sends[send].to, from, at, len },
            });
        }
        self.next_to_read(still).map(ToMove::Read)
    }

    /// Whether [`next_to_move`](Self::next_to_move) may have something.
    #[inline]
    pub(crate) fn has_to_move(&self) -> bool {
        !self.to_expose.is_empty() || self.tokens > 0 && !(self.announced.is_empty() && self.to_write.is_empty())
    }

    /// The announced message of a receive that has it, and that nobody moves yet.
    pub(super) fn announced(&self, receive: usize) -> Option<(SegmentKey, By)> {
        match &self.matcher.receives.get(receive)?.state {
            ReceiveState::Matched(matched) => match matched.body {
                Body::Announced { key, by, .. } => Some((key, by)),
                Body::Eager(_) | Body::Here(_) | Body::Read { .. } | Body::Moving { .. } => None,
            },
            _ => None,
        }
    }

    pub(super) fn begin_move(&mut self, receive: usize) {
        let state = &mut self.matcher.receives[receive].state;
        if let ReceiveState::Matched(matched) =
            std::mem::replace(state, ReceiveState::Failed(Fault::new(FaultKind::Closed)))
        {
            *state = ReceiveState::Moving { matched, target: Target::Itself, exposed: None, is_refused: false };
        }
    }

    /// The next announced message whose receive is not waited for now: another task reads it and
    /// [says so](Self::read). Otherwise a rank that waits for a send, before it waits for a receive,
    /// would hold up its own sender.
    fn next_to_read(&mut self, still: impl Fn(&SegmentKey) -> bool) -> Option<ToRead<S>> {
        let mut index = 0;
        while self.tokens > 0 && index < self.announced.len() {
            let receive = self.announced[index];
            let (key, is_offered) = match self.announced(receive) {
                Some((key, by @ (By::Read | By::Offered))) => (key, by == By::Offered),
                _ => {
                    self.announced.remove(index);
                    continue;
                }
            };
            if is_offered && !still(&key) {
                index += 1;
                continue;
            }
            self.begin_move(receive);
            self.announced.remove(index);
            self.tokens -= 1;
            let Receive { allocate, into, .. } = &mut self.matcher.receives[receive];
            return Some(ToRead { receive, key, is_offered, allocate: *allocate, into: into.take() });
        }
        None
    }

    /// An announced message was read, or could not be.
    pub(crate) fn read(&mut self, receive: usize, here: Result<Here<S>, Fault>) {
        self.tokens += 1;
        match here {
            Err(fault) if is_refused(fault) && self.is_read(receive) => self.copy_instead(receive),
            here => self.end_move(receive, here),
        }
    }

    fn is_read(&self, receive: usize) -> bool {
        let state = &self.matcher.receives[receive].state;
        matches!(state, ReceiveState::Moving { matched, .. } if matched.body.by() == Some(By::Read))
    }

    pub(super) fn end_move(&mut self, receive: usize, here: Result<Here<S>, Fault>) {
        let (matched, target) = self.take_moving(receive);
        let here = self.check_connection(&matched).and(here);
        self.deliver(&matched, here.as_ref().map(|_| ()).map_err(|fault| *fault));
        self.become_read(receive, (matched, target), here);
    }

    /// What moved has come to an end, and its sender knows.
    pub(super) fn become_read(
        &mut self,
        receive: usize,
        (mut matched, target): (Box<Matched<S>>, Target),
        here: Result<Here<S>, Fault>,
    ) {
        matched.body = match here {
            Ok(Here::Elements(elements)) => Body::Here(elements),
            Ok(Here::Memory(memory)) => Body::Read { memory: Ok(memory), len: matched.body.len() },
            Err(fault) => Body::Read { memory: Err(fault), len: matched.body.len() },
        };
        self.has_moved(receive, (matched, target));
    }

    /// An announced message cannot be read now.
    pub(crate) fn read_later(&mut self, receive: usize) {
        self.tokens += 1;
        let moved = self.take_moving(receive);
        self.has_moved(receive, moved);
    }

    /// A message does not move any more: its target gets it.
    fn has_moved(&mut self, receive: usize, (matched, target): (Box<Matched<S>>, Target)) {
        match target {
            Target::Itself => return self.place_at(Some(receive), *matched),
            Target::Receive(other) => self.place_at(Some(other as usize), *matched),
            Target::Place(place) => {
                if self.matcher.take_from(place, matched.arrival).is_some() {
                    self.count_early(matched.envelope, u32::MAX);
                }
                self.give_back(*matched);
            }
        }
        self.matcher.receives.remove(receive);
    }

    /// [Gives back](Self::give_back) a message that moves on.
    pub(super) fn give_back_moving(&mut self, moving: usize) {
        let ReceiveState::Moving { matched, .. } = &self.matcher.receives[moving].state else {
            unreachable!("what moves for a receive is its own")
        };
        let Matched { envelope, arrival, ref body, .. } = **matched;
        let len = body.len();
        let target = match self.matcher.take_posted(envelope) {
            _ if !self.is_open(envelope.context) => Target::Place(u32::MAX),
            Some(receive) => {
                self.matcher.receives[receive].state = ReceiveState::Awaits(moving);
                Target::Receive(receive as u32)
            }
            None => {
                let (place, kept) = self.keep(envelope, arrival);
                *kept = (Body::Moving { receive: moving, len }, true);
                Target::Place(place)
            }
        };
        self.set_target(moving, target);
        self.wake_own();
    }

    fn set_target(&mut self, moving: usize, now: Target) {
        if let ReceiveState::Moving { target, .. } = &mut self.matcher.receives[moving].state {
            *target = now;
        }
    }

    pub(super) fn take_moving(&mut self, receive: usize) -> (Box<Matched<S>>, Target) {
        let Receive { state, waker, .. } = &mut self.matcher.receives[receive];
        self.woken.extend(waker.take());
        match std::mem::replace(state, ReceiveState::Failed(Fault::new(FaultKind::Closed))) {
            ReceiveState::Moving { matched, target, .. } => (matched, target),
            _ => unreachable!("only what moves comes to an end"),
        }
    }
}
