//! Announced messages that move: the receiver reads them (RGET), or exposes memory that the sender
//! writes (RPUT: sur-2006, section 3).
//!
//! Exposed memory is the message's from the RTR on. It comes back by the FIN of its sender, or is
//! given up when that is lost, whatever becomes of the receive.

use onesided_fabric::SegmentKey;
use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};

use super::arrivals::not_moved;
use super::peer::Outgoing;
use super::receives::{Body, Matched, Receive, ReceiveState};
use super::{Engine, Send, SendState};
use crate::elements::{Allocate, Elements};
use crate::matching::{Envelope, Pattern};
use crate::wire::{By, Packet, RequestId};

/// An announced message that is to be read for a receive.
#[derive(Debug)]
pub(crate) struct ToRead {
    pub(crate) receive: usize,
    pub(crate) key: SegmentKey,
    pub(crate) is_offered: bool,
    pub(crate) allocate: Option<Allocate>,
}

/// What is to be done for a message that was announced, by whatever task waits.
#[derive(Debug)]
pub(crate) enum ToMove<S> {
    Read(ToRead),
    /// Memory of so many bytes is to be [exposed](Engine::expose).
    Expose {
        receive: usize,
        len: u64,
    },
    /// The memory of a send is [to be written](Engine::written) to that of its receiver.
    Write {
        send: usize,
        from: S,
        to: SegmentKey,
    },
}

/// An announced message that was read.
#[derive(Debug)]
pub(crate) enum Here<S> {
    Memory(S),
    Elements(Box<dyn Elements>),
}

impl<S> Engine<S> {
    /// A receive has got a message, which is announced if it moves by something.
    #[inline]
    pub(super) fn is_to_move(&mut self, receive: usize, by: Option<By>) {
        match by {
            Some(By::Write) => self.to_expose.push_back(receive),
            Some(By::Read | By::Offered) => self.announced.push_back(receive),
            None => {}
        }
    }

    /// A matched message becomes that of a receive, because its sender writes it.
    pub(crate) fn receive_matched(&mut self, matched: Box<Matched<S>>) -> usize {
        let Envelope { context, source, tag } = matched.envelope;
        self.has_matched(Pattern { context, source: Some(source), tag: Some(tag) }, matched)
    }

    /// Adds a receive that has its message.
    pub(super) fn has_matched(&mut self, pattern: Pattern, matched: Box<Matched<S>>) -> usize {
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
            && let Some((send, to)) = self.to_write.pop_front()
            && let Some(from) = self.sends[send].memory[0].clone()
        {
            self.tokens -= 1;
            return Some(ToMove::Write { send, from, to });
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
                Body::Eager(_) | Body::Here(_) | Body::Read { .. } => None,
            },
            _ => None,
        }
    }

    fn begin_move(&mut self, receive: usize) {
        let state = &mut self.matcher.receives[receive].state;
        if let ReceiveState::Matched(matched) =
            std::mem::replace(state, ReceiveState::Failed(Fault::new(FaultKind::Closed)))
        {
            *state = ReceiveState::Moving { matched, is_cancelled: false };
        }
    }

    fn next_to_expose(&mut self) -> Option<ToMove<S>> {
        loop {
            let receive = self.to_expose.pop_front()?;
            if let Some((SegmentKey { len, .. }, By::Write)) = self.announced(receive) {
                self.begin_move(receive);
                return Some(ToMove::Expose { receive, len });
            }
        }
    }

    /// The next announced message whose receive is not waited for now: another task reads it and
    /// [says so](Self::read). Otherwise a rank that waits for a send, before it waits for a receive,
    /// would hold up its own sender.
    fn next_to_read(&mut self, still: impl Fn(&SegmentKey) -> bool) -> Option<ToRead> {
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
            return Some(ToRead { receive, key, is_offered, allocate: self.matcher.receives[receive].allocate });
        }
        None
    }

    /// An announced message was read, or could not be.
    pub(crate) fn read(&mut self, receive: usize, here: Result<Here<S>, Fault>) {
        self.tokens += 1;
        self.end_move(receive, here);
    }

    pub(super) fn end_move(&mut self, receive: usize, here: Result<Here<S>, Fault>) {
        let (mut matched, is_cancelled) = self.take_moving(receive);
        self.deliver(&matched, here.as_ref().map(|_| ()).map_err(|fault| *fault));
        matched.body = match here {
            Ok(Here::Elements(elements)) => Body::Here(elements),
            Ok(Here::Memory(memory)) => Body::Read { memory: Ok(memory), len: matched.body.len() },
            Err(fault) => Body::Read { memory: Err(fault), len: matched.body.len() },
        };
        if is_cancelled {
            self.matcher.receives.remove(receive);
            self.give_back(*matched);
        } else {
            self.matcher.receives[receive].state = ReceiveState::Matched(matched);
        }
    }

    /// An announced message cannot be read now. It was looked at under one lock.
    pub(crate) fn read_later(&mut self, receive: usize) {
        self.tokens += 1;
        self.matcher.receives[receive].state = ReceiveState::Matched(self.take_moving(receive).0);
        self.announced.push_back(receive);
    }

    fn take_moving(&mut self, receive: usize) -> (Box<Matched<S>>, bool) {
        let Receive { state, waker, .. } = &mut self.matcher.receives[receive];
        self.woken.extend(waker.take());
        match std::mem::replace(state, ReceiveState::Failed(Fault::new(FaultKind::Closed))) {
            ReceiveState::Moving { matched, is_cancelled } => (matched, is_cancelled),
            _ => unreachable!("only what moves comes to an end"),
        }
    }

    /// There is memory for a message that its sender writes, or none.
    pub(crate) fn expose(&mut self, receive: usize, memory: Result<(S, SegmentKey), Fault>) {
        let ReceiveState::Moving { matched, .. } = &self.matcher.receives[receive].state else {
            unreachable!("its memory was asked for")
        };
        let (from, len) = (Rank(matched.envelope.source), matched.body.len());
        let Body::Announced { request, .. } = matched.body else { unreachable!("it was announced") };
        match self.lost(from).map_or(memory, Err) {
            Err(fault) => self.end_move(receive, Err(fault)),
            Ok((memory, key)) => {
                if let ReceiveState::Moving { matched, .. } = &mut self.matcher.receives[receive].state {
                    matched.body = Body::Read { memory: Ok(memory), len };
                }
                let rtr = Packet::Rtr { request, receive: RequestId(receive as u32), key };
                self.queue(from, Outgoing::control(rtr.encode(0)));
            }
        }
    }

    /// The exposed memory of a message, if that is from this rank.
    pub(super) fn exposed(&mut self, receive: usize, from: Rank) -> Option<S> {
        let ReceiveState::Moving { matched, .. } = &mut self.matcher.receives.get_mut(receive)?.state else {
            return None;
        };
        match &mut matched.body {
            Body::Read { memory, .. } if matched.envelope.source == from.0 => {
                std::mem::replace(memory, Err(Fault::of(FaultKind::Closed, from))).ok()
            }
            _ => None,
        }
    }

    /// The FIN of a sender that has written, or could not.
    pub(super) fn written_here(&mut self, from: Rank, RequestId(receive): RequestId, status: u8) {
        match self.exposed(receive as usize, from) {
            // After a failure bytes may still come: the memory is not used again.
            Some(_) if status != 0 => self.end_move(receive as usize, Err(not_moved(from, status))),
            Some(memory) => self.end_move(receive as usize, Ok(Here::Memory(memory))),
            None => self.violated(from),
        }
    }

    /// The messages of a lost rank that were being written here are lost.
    pub(super) fn lose_exposed(&mut self, from: Rank, fault: Fault) {
        let moving: Vec<_> = self.matcher.receives.iter().map(|(receive, _)| receive).collect();
        for receive in moving {
            if self.exposed(receive, from).is_some() {
                self.end_move(receive, Err(fault));
            }
        }
    }

    /// The receiver of a message has memory for it.
    pub(super) fn ready_to_receive(&mut self, from: Rank, request: RequestId, receive: RequestId, key: SegmentKey) {
        let send = request.0 as usize;
        match self.sends.get_mut(send) {
            Some(Send { to, state: state @ SendState::Announced, to_write: Some(len), waker, .. })
                if *to == from && key.rank == from && key.len == *len =>
            {
                *state = SendState::Writing(receive);
                self.woken.extend(waker.take()); // its task may write it
                self.to_write.push_back((send, key));
            }
            _ => self.violated(from),
        }
    }

    /// A message was written, or could not be. Its receiver gets its FIN.
    pub(crate) fn written(&mut self, send: usize, outcome: Result<(), Fault>) {
        self.tokens += 1;
        let Send { to, state: SendState::Writing(receive), .. } = self.sends[send] else {
            unreachable!("it was to be written")
        };
        let outcome = self.lost(to).map_or(outcome, Err);
        if self.lost(to).is_none() {
            let status = outcome.map_or_else(|fault| fault.kind() as u8, |()| 0);
            self.queue(to, Outgoing::control(Packet::Written { receive, status }.encode(0)));
        }
        self.complete(send, outcome);
    }
}
