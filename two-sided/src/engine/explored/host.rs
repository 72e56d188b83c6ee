//! A rank: an engine, a program, and the lists that say which receive gets which message.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use onesided_fabric::SegmentKey;
use onesided_fabric::remote_memory::{Fault, FaultKind, Rank, RegionId};

use super::moving::{FLIGHT, Lifting, Moving, PIECE};
use super::net::{Message, Net, Plant, number, number_of};
use super::request::{Mode, Op, Request, Woken};
use super::seen::Seen;
use crate::Protocol;
use crate::Tag;
use crate::engine::matching::oracle::Oracle;
use crate::engine::receives::ReceiveState;
use crate::engine::wire::head_of;
use crate::engine::{Direct, Engine, Held, Holding, Posting, Send, SendState, ToExpose, is_refused};

type Ranges = Vec<(u64, u64)>;

pub(super) struct Host {
    pub(super) rank: u32,
    pub(super) engine: Engine<u64>,
    pub(super) program: VecDeque<Op>,
    pub(super) requests: Vec<(Request, Arc<Woken>)>,
    pub(super) reads: Vec<Moving>,
    pub(super) exposed: Vec<Moving>,
    /// What memory is being registered for.
    pub(super) exposing: Vec<ToExpose<u64>>,
    /// The sends that this rank writes, their messages, and how much of them: to be posted, and
    /// under way.
    pub(super) posts: Vec<(usize, u64, u64)>,
    pub(super) writes: Vec<(usize, u64, u64)>,
    /// What is being copied to packets: a send, its message, offsets and lengths.
    pub(super) copies: Vec<(usize, u64, Ranges)>,
    /// The landings that end.
    pub(super) lifts: Vec<Lifting>,
    pub(super) seen: Seen,
    sends: u64,
}

fn take_in(
    (net, engine, seen, exposed): (&mut Net, &mut Engine<u64>, &mut Seen, &mut Vec<Moving>),
    (from, to): (u32, u32),
    direct: &mut Direct<'_>,
) {
    let (packet, whole) = net.take(from, to);
    let Some(whole) = whole else {
        seen.arrive(from, &packet);
        return engine.next_of_batch(direct);
    };
    let is_repeated = net.plant == Plant::RepeatedCredit && packet[0] == 4;
    for _ in 0..=u32::from(is_repeated) {
        seen.arrive(from, &packet);
        let read = |offset: usize, into: &mut [u8]| into.copy_from_slice(&whole[offset..][..into.len()]);
        engine.arrived(Rank(from), (&head_of(&whole), whole.len()), read, direct);
    }
    if let Some(message) = net.ends(to, &packet)
        && let Some(at) = exposed.iter().position(|exposed| exposed.message == message as usize)
    {
        exposed.remove(at);
    }
}

impl Host {
    pub(super) fn new(rank: u32, (window, tokens): (u32, u32), program: &[Op]) -> Self {
        let mut engine = Engine::new(Rank(rank), window, tokens);
        engine.open(0);
        engine.flight = FLIGHT;
        Self {
            rank,
            engine,
            program: program.iter().copied().collect(),
            requests: vec![],
            reads: vec![],
            exposed: vec![],
            exposing: vec![],
            posts: vec![],
            writes: vec![],
            copies: vec![],
            lifts: vec![],
            seen: Seen::default(),
            sends: 0,
        }
    }

    pub(super) fn start(&mut self, net: &mut Net, op: Op) {
        let (rank, next) = (self.rank, self.requests.len());
        let request = match op {
            Op::Send { to, tag, mode } => {
                let number = u64::from(rank) * 1000 + self.sends;
                self.sends += 1;
                net.unsent.entry((rank, to)).or_default().push_back(number);
                let is_rendezvous = !matches!(mode, Mode::Eager(_));
                net.messages.insert(number, Message::new(rank, to, is_rendezvous));
                let send = match mode {
                    Mode::Eager(len) => {
                        let bytes = number.to_le_bytes().repeat(len);
                        self.engine
                            .send_eager(Rank(to), (0, tag), &bytes, |to, head, body| net.post(rank, to, head, body))
                            .unwrap_or_default()
                    }
                    Mode::Rendezvous | Mode::Synchronous | Mode::Write | Mode::Pipeline | Mode::Copy | Mode::ZCopy => {
                        let len =
                            if matches!(mode, Mode::Pipeline | Mode::Copy | Mode::ZCopy) { 2 * PIECE } else { PIECE };
                        let key = SegmentKey { rank: Rank(rank), region: RegionId(1), len, address: number, rkey: 0 };
                        let by = match mode {
                            Mode::Write if to != rank => Protocol::Rput,
                            Mode::Pipeline if to != rank => Protocol::Pipeline,
                            Mode::Copy if to != rank => Protocol::Copy,
                            Mode::ZCopy if to != rank => Protocol::UdZcopy,
                            _ => Protocol::Rget,
                        };
                        (net.message(number).len, net.message(number).is_in_datagrams) = (len, by == Protocol::UdZcopy);
                        let send = self.engine.send_rendezvous(Rank(to), (0, tag), (key, by), number);
                        if let Mode::Synchronous = mode {
                            self.engine.make_synchronous(send);
                        }
                        if net.plant == Plant::EarlyReturn {
                            self.flush(net);
                            self.engine.detach(send);
                            self.engine.complete(send, Ok(()));
                        }
                        (net.plant != Plant::EarlyReturn).then_some(send)
                    }
                };
                if let Some(send) = send
                    && net.broken.is_some()
                    && self.engine.sends[send].is_done()
                {
                    net.unsent.get_mut(&(rank, to)).unwrap().pop_back(); // it tells of an earlier one
                    net.message(number).is_old = true;
                }
                send.map_or(Request::Over, |send| Request::Send { send, number })
            }
            Op::Sends { to, count } => {
                let numbers: Vec<_> = (0..count).map(|at| u64::from(rank) * 1000 + self.sends + at).collect();
                let bytes: Vec<_> = numbers.iter().map(|number| number.to_le_bytes()).collect();
                let list: Vec<_> = (0..).zip(&bytes).map(|(at, bytes)| (&bytes[..], to, Tag(at % 2))).collect();
                net.unsent.entry((rank, to)).or_default().extend(&numbers);
                net.messages.extend(numbers.iter().map(|number| (*number, Message::new(rank, to, false))));
                let sent = self
                    .engine
                    .send_batch(Rank(to), (0, &list), usize::MAX, |to, head, body| net.post(rank, to, head, body));
                self.sends += sent as u64;
                for (number, (_, _, tag)) in numbers.iter().zip(&list).skip(sent).rev() {
                    net.messages.remove(number);
                    net.unsent.get_mut(&(rank, to)).unwrap().pop_back();
                    self.program.push_front(Op::Send { to, tag: tag.0, mode: Mode::Eager(1) });
                }
                Request::Over
            }
            Op::Receive { pattern, has_slice } => {
                let mut slice = vec![0; 800];
                let Self { engine, seen, exposed, .. } = self;
                let mut direct = Direct::into(&mut slice);
                let posting = if has_slice {
                    engine.receive_into(pattern, &mut direct, |engine, direct| {
                        let wires = net.incoming(rank);
                        let chosen = net.choose(wires.len() + 1);
                        net.note(rank, chosen);
                        match chosen.checked_sub(1) {
                            Some(wire) => take_in((net, engine, seen, exposed), (wires[wire], rank), direct),
                            None => return false,
                        }
                        true
                    })
                } else {
                    engine.receive(pattern)
                };
                let is_lost = matches!(posting, Posting::Posted(at) if matches!(engine.matcher.receives[at].state, ReceiveState::Failed(_)));
                seen.receive(pattern, next, is_lost);
                match posting {
                    Posting::Posted(receive) => Request::Posted { receive, source: pattern.source, has_slice },
                    Posting::Held(held) => Request::Held(held, None),
                    Posting::Landed(landed) => Request::Landed(landed, slice),
                }
            }
            Op::Probe { pattern, takes } => Request::Probe { pattern, takes },
        };
        self.requests.push((request, Arc::new(Woken(AtomicBool::new(true)))));
        // A task waits at once. What is over already it may poll later.
        if let Request::Posted { receive, .. } = self.requests[next].0
            && self.engine.is_posted(receive)
        {
            self.poll(net, next);
        }
    }

    /// A receive has a message, or was told that it is lost.
    fn got(&mut self, net: &mut Net, request: usize, number: Option<u64>) {
        let Some(arrival) = self.seen.gets.remove(&request) else { panic!("a message for another receive") };
        let (_, expected) = self.seen.arrivals[arrival as usize];
        assert!(number.is_none_or(|number| number == expected), "{number:?} instead of {expected}");
        let message = net.message(expected);
        assert!(!std::mem::replace(&mut message.is_received, true), "{expected} was received twice");
        if number.is_some() {
            assert!(!message.is_lost, "{expected} is lost");
            message.is_read = true;
        }
    }

    /// A task polls a request.
    pub(super) fn poll(&mut self, net: &mut Net, at: usize) {
        let (request, woken) = &mut self.requests[at];
        woken.0.store(false, Ordering::Relaxed);
        let waker = Arc::clone(woken).into();
        let next = match *request {
            Request::Send { send, number } => {
                let Some(outcome) = self.engine.sent(send, &waker) else { return };
                self.engine.detach(send);
                let closed = net.closed.clone();
                let is_told = net.broken.is_some();
                let (dead, message) = (net.dead, net.message(number));
                match outcome {
                    Ok(()) => assert!(
                        !message.is_rendezvous
                            || message.is_read
                            || message.to == self.rank
                            || message.is_copied && dead == Some(message.to),
                        "the send of {number} ended before its receive"
                    ),
                    Err(_) => assert!(
                        message.is_old
                            || is_told
                            || dead == Some(message.to)
                            || message.is_lost
                            || closed.contains(&message.to),
                        "the send of {number} failed without a cause"
                    ),
                }
                Request::Over
            }
            Request::Posted { receive, source, .. } => match self.engine.received(receive, &waker) {
                None => return,
                Some(Ok(held)) => return self.held(net, at, held),
                Some(Err(_)) => {
                    let is_of_broken = source.is_some_and(|source| net.has_broken(self.rank, source));
                    assert!(is_of_broken || source == net.dead && source.is_some(), "a receive failed without a cause");
                    Request::Over
                }
            },
            Request::Probe { pattern, takes: false } => {
                let expected = self.seen.oracle.find(pattern).map(|found| self.seen.oracle.unexpected[found].0);
                let found = self.engine.probe(pattern, &waker);
                assert_eq!(found.map(|(envelope, _)| envelope), expected, "a probe found another message");
                if found.is_none() {
                    return;
                }
                Request::Over
            }
            Request::Probe { pattern, takes: true } => {
                let is_expected = self.seen.take(pattern, at);
                let Some(held) = self.engine.match_probe(pattern, &waker) else {
                    return assert!(!is_expected, "a matched probe found nothing");
                };
                Request::Held(held, None) // a user has it before it is received
            }
            Request::Held(..) | Request::Landed(..) | Request::Over => return,
        };
        self.requests[at].0 = next;
    }

    /// A task has a message. It takes it, or begins to read it, or waits for it.
    fn held(&mut self, net: &mut Net, at: usize, held: Held) {
        let number = number(&self.engine, held.message);
        match self.engine.take(held.message) {
            Holding::ToCome(receive) => {
                self.requests[at].0 = Request::Posted { receive, source: None, has_slice: false };
                self.poll(net, at);
            }
            Holding::ToRead(announced) => {
                net.begin_read(announced.key.address);
                if net.plant == Plant::FinBeforeRead {
                    self.engine.send_fin(Rank(held.envelope.source), announced, Ok(()));
                }
                self.requests[at].0 = Request::Held(held, number);
            }
            Holding::Eager(_) | Holding::Moved(_) => self.ends(net, at, (held, number)),
        }
    }

    fn ends(&mut self, net: &mut Net, at: usize, (held, number): (Held, Option<u64>)) {
        self.requests[at].0 = Request::Over;
        if net.plant == Plant::CreditTwice {
            self.engine.credit(Rank(held.envelope.source), 0);
        }
        self.got(net, at, number);
    }

    /// A task ends its receive.
    pub(super) fn finish(&mut self, net: &mut Net, at: usize) {
        match std::mem::replace(&mut self.requests[at].0, Request::Over) {
            Request::Held(held, None) => self.held(net, at, held),
            Request::Held(held, Some(number)) => {
                let outcome = self.end_read(net, number);
                if outcome.is_err_and(is_refused) {
                    self.engine.copy_held(held.message);
                    return self.held(net, at, held);
                }
                if net.plant == Plant::TwoFins
                    && let Holding::ToRead(announced) = self.engine.take(held.message)
                {
                    self.engine.send_fin(Rank(held.envelope.source), announced, outcome);
                }
                let delivered = self.engine.deliver(held.message, outcome);
                self.ends(net, at, (held, Some(number).filter(|_| delivered.is_ok())));
            }
            Request::Landed(landed, slice) => self.got(net, at, Some(number_of(&slice[..landed.len as usize]))),
            _ => unreachable!("there is no message"),
        }
    }

    /// The next packet arrives, taken in by any task or by that of a receive.
    pub(super) fn arrive(&mut self, net: &mut Net, from: u32, by: Option<usize>) {
        let Self { engine, seen, exposed, requests, rank, .. } = self;
        let mut slice = vec![0; 800];
        let mut direct = match by.map(|by| &requests[by].0) {
            Some(Request::Posted { receive, .. }) => Direct::posted(*receive, Some(&mut slice)),
            _ => Direct::none(),
        };
        take_in((net, engine, seen, exposed), (from, *rank), &mut direct);
        if let (Some(landed), Some(by)) = (direct.landed, by) {
            self.requests[by].0 = Request::Over;
            self.got(net, by, Some(number_of(&slice[..landed.len as usize])));
        }
    }

    /// Drops a handle.
    pub(super) fn drop_handle(&mut self, net: &mut Net, at: usize) {
        match std::mem::replace(&mut self.requests[at].0, Request::Over) {
            Request::Send { send, .. } => self.engine.detach(send),
            Request::Posted { receive, .. } => {
                self.engine.cancel(receive);
                self.seen.oracle.posted.retain(|(_, posted)| *posted as usize != at);
                self.seen.give_back(at);
                if net.plant == Plant::EarlyReuse
                    && let Some(Moving { message, number }) = self.exposed.first()
                    && let Some(found) = self.engine.exposed(*message, Rank(net.message(*number).from))
                {
                    self.engine.end_written(*message, Ok(found.memory));
                }
            }
            Request::Held(held, read) => {
                read.into_iter().for_each(|number| net.message(number).is_being_read = false);
                self.engine.give_back(held.message);
                self.seen.give_back(at);
            }
            Request::Landed(landed, slice) => {
                self.engine.give_back_landed(landed, &slice);
                self.seen.give_back(at);
            }
            Request::Probe { .. } | Request::Over => {}
        }
    }

    /// Drops all handles, and the communicator.
    pub(super) fn close(&mut self, net: &mut Net) {
        self.program.clear();
        (0..self.requests.len()).for_each(|at| self.drop_handle(net, at));
        self.engine.close(0);
        self.seen.oracle = Oracle::default();
        self.seen.gets.clear();
        self.seen.is_closed = true;
        net.closed.insert(self.rank);
    }

    pub(super) fn lose(&mut self, net: &mut Net, peer: u32) {
        self.seen.oracle.posted.retain(|(pattern, _)| pattern.source != Some(peer));
        match self.engine.has_unreachable() {
            true => self.engine.lose_unreachable(),
            false => drop(self.engine.lose(Rank(peer), Fault::of(FaultKind::PeerDied, Rank(peer)))),
        }
        self.end_exposed(net, peer);
    }

    /// The connection to a peer is made anew.
    pub(super) fn renew(&mut self, net: &mut Net, peer: u32) {
        net.unaware.remove(&self.rank);
        self.seen.oracle.posted.retain(|(pattern, _)| pattern.source != Some(peer));
        net.unsent.remove(&(self.rank, peer));
        for message in net.messages.values_mut() {
            message.is_old |= message.from == self.rank && message.to == peer;
        }
        let fault = Fault::of(FaultKind::ConnectionLost, Rank(peer));
        let is_missing = net.missing.contains(&self.rank) && net.plant != Plant::Untold;
        let at = self.engine.matcher.last();
        self.engine.renew(Rank(peer), fault, is_missing);
        // A write ends later.
        let fails = |send: &Send<u64>| send.to == Rank(peer) && !matches!(send.state, SendState::Queued);
        let is_told = self.engine.sends.iter().any(|(_, send)| fails(send))
            || self.engine.matcher.receives.iter().any(|(_, receive)| matches!(receive.state, ReceiveState::Failed(_)))
            || self.engine.peer(Rank(peer)).untold.is_some();
        assert!(is_told || !net.missing.contains(&self.rank), "nobody is told of a message that is missing");
        if net.plant == Plant::OldCredit {
            let all: Vec<_> = self.engine.matcher.all_unexpected().map(|(message, ..)| message).collect();
            all.into_iter().for_each(|message| self.engine.matcher.message_mut(message).is_consumed = false);
        }
        match net.plant {
            Plant::OldMessage => self.engine.peer(Rank(peer)).before = Default::default(),
            _ => assert_eq!(self.engine.peer(Rank(peer)).before.0, at),
        }
        self.end_exposed(net, peer);
    }

    /// A peer writes to memory that is exposed for it no more.
    fn end_exposed(&mut self, net: &mut Net, peer: u32) {
        self.exposed.sort_by_key(|exposed| exposed.message);
        let (exposing, engine) = (&self.exposing, &self.engine);
        let is_over = |exposed: &mut Moving| {
            let Moving { message, number, .. } = *exposed;
            net.message(number).from == peer && !Self::is_growing((exposing, engine), message)
        };
        drop(self.exposed.extract_if(.., is_over).collect::<Vec<_>>());
    }

    fn flush(&mut self, net: &mut Net) {
        let rank = self.rank;
        self.engine.flush(|to, head, body| net.post(rank, to, head, body));
    }

    /// What follows each step.
    pub(super) fn unlock(&mut self, net: &mut Net) {
        if self.engine.is_busy() {
            self.flush(net);
        }
        let [woken, _] = self.engine.take_wakers();
        if net.plant != Plant::LostWake {
            woken.into_iter().for_each(Waker::wake);
        }
        // Nothing depends on when a task sees the end of its send.
        for at in 0..self.requests.len() {
            if let (Request::Send { .. }, woken) = &self.requests[at]
                && woken.0.load(Ordering::Relaxed)
            {
                self.poll(net, at);
            }
        }
        for number in self.engine.take_idle() {
            let message = net.message(number);
            assert!(!std::mem::replace(&mut message.is_freed, true), "the memory of {number} was given back twice");
            // A broken connection reads nothing.
            let is_being_moved = message.is_being_read && !message.is_old || message.writes > 0;
            assert!(!is_being_moved, "the memory of {number} was given back under a read or write");
        }
    }
}
