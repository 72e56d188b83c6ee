//! Ranks with all that may happen to them, and what must hold.

use std::sync::atomic::Ordering;

use onesided_fabric::remote_memory::Rank;

use super::host::Host;
use super::net::{Budget, Choices, Net, Plant, messages_of};
use super::request::{Op, Request};
use crate::engine::matching::Pattern;
use crate::engine::peer::{Counters, units};
use crate::engine::wire::EAGER_HEAD;

#[derive(Clone, Copy, Debug, Hash)]
pub(super) enum Action {
    /// The next operation of the program.
    Start,
    Poll(usize),
    Finish(usize),
    /// The next packet of a peer arrives, taken in by the task of a receive or by any.
    Arrive(u32, Option<usize>),
    /// What is to be done next for an announced message.
    Begin,
    EndExpose(usize),
    EndRead(usize),
    EndPost(usize),
    EndWrite(usize),
    EndCopy(usize),
    EndLift(usize),
    Flush,
    Lose(u32),
    Renew(u32),
    Break(u32),
    Drop(usize),
    Close,
    Die,
}

/// What is explored: each rank's program, the units of credit of a peer, and what may go wrong.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) programs: Vec<Vec<Op>>,
    pub(super) window: u32,
    /// How many messages, or pieces, may be read or written at once.
    pub(super) tokens: u32,
    pub(super) budget: Budget,
    pub(super) plant: Plant,
    /// Whether packets follow writes.
    pub(super) follows: bool,
}

pub(super) struct World {
    hosts: Vec<Host>,
    pub(super) net: Net,
    pub(super) story: Vec<(u32, Action)>,
}

const ANY: Pattern = Pattern { context: 0, source: None, tag: None };

impl World {
    pub(super) fn new(setup: &Setup, choices: Choices) -> Self {
        let Setup { programs, window, tokens, budget, plant, follows } = setup;
        let hosts = (0..).zip(programs).map(|(rank, program)| Host::new(rank, (*window, *tokens), program)).collect();
        Self { hosts, net: Net::new(programs.len(), *budget, (*plant, *follows), choices), story: vec![] }
    }

    fn alive(&self) -> impl Iterator<Item = u32> + use<> {
        let dead = self.net.dead;
        (0..self.hosts.len() as u32).filter(move |rank| Some(*rank) != dead)
    }

    /// What can happen, and what may besides.
    fn actions(&self) -> [Vec<(u32, Action)>; 2] {
        let [mut all, mut besides] = [vec![], vec![]];
        let Budget { drops, deaths, breaks, closes, .. } = self.net.budget;
        for at in self.alive() {
            let host = &self.hosts[at as usize];
            let mut slices = vec![None];
            let mut can = |action| all.push((at, action));
            for (index, (request, woken)) in host.requests.iter().enumerate() {
                match request {
                    Request::Over => continue,
                    Request::Held(..) | Request::Landed(..) => can(Action::Finish(index)),
                    _ if woken.0.load(Ordering::Relaxed) => can(Action::Poll(index)),
                    _ => {}
                }
                if matches!(request, Request::Posted { has_slice: true, .. }) && !host.seen.gets.contains_key(&index) {
                    slices.push(Some(index));
                }
                if drops > 0 {
                    besides.push((at, Action::Drop(index)));
                }
            }
            for from in self.net.incoming(at) {
                slices.iter().for_each(|by| can(Action::Arrive(from, *by)));
            }
            if !host.program.is_empty() {
                can(Action::Start);
            }
            if host.has_to_move() {
                can(Action::Begin);
            }
            (0..host.exposing.len()).for_each(|exposing| can(Action::EndExpose(exposing)));
            (0..host.reads.len()).for_each(|read| can(Action::EndRead(read)));
            (0..host.posts.len()).for_each(|post| can(Action::EndPost(post)));
            (0..host.writes.len()).for_each(|write| can(Action::EndWrite(write)));
            (0..host.copies.len()).for_each(|copy| can(Action::EndCopy(copy)));
            (0..host.lifts.len()).for_each(|lift| can(Action::EndLift(lift)));
            // On a broken connection there is no room.
            if host.engine.is_busy() && self.net.unaware.is_empty() {
                can(Action::Flush);
            }
            if let Some(dead) = self.net.dead
                && !self.net.has_incoming(at, dead)
                && host.engine.lost(Rank(dead)).is_none()
            {
                can(Action::Lose(dead));
            }
            if let Some((one, other)) = self.net.broken
                && self.net.unaware.contains(&at)
            {
                let peer = if at == one { other } else { one };
                if !self.net.has_incoming(at, peer) {
                    can(Action::Renew(peer));
                }
            }
            let others = at + 1..self.hosts.len() as u32;
            besides.extend(others.filter(|_| breaks > 0).map(|other| (at, Action::Break(other))));
            besides.extend((closes > 0 && !self.net.closed.contains(&at)).then_some((at, Action::Close)));
            besides.extend((deaths > 0).then_some((at, Action::Die)));
        }
        [all, besides]
    }

    fn act(&mut self, at: u32, action: Action) {
        self.story.push((at, action));
        let Self { hosts, net, .. } = self;
        net.note(at, action);
        let host = &mut hosts[at as usize];
        match action {
            Action::Start => {
                let op = host.program.pop_front().unwrap();
                host.start(net, op);
            }
            Action::Poll(request) => host.poll(net, request),
            Action::Finish(request) => host.finish(net, request),
            Action::Arrive(from, by) => host.arrive(net, from, by),
            Action::Begin => host.begin(net),
            Action::EndExpose(exposing) => host.finish_exposing(net, exposing),
            Action::EndRead(read) => host.finish_read(net, read),
            Action::EndPost(post) => host.finish_post(net, post),
            Action::EndWrite(write) => host.finish_write(net, write),
            Action::EndCopy(copy) => host.finish_copy(net, copy),
            Action::EndLift(lift) => host.finish_lift(net, lift),
            Action::Flush => {}
            Action::Lose(peer) => host.lose(net, peer),
            Action::Renew(peer) => host.renew(net, peer),
            Action::Break(other) => {
                net.budget.breaks -= 1;
                net.break_connection(at, other);
            }
            Action::Drop(request) => {
                net.budget.drops -= 1;
                host.drop_handle(net, request);
            }
            Action::Close => {
                net.budget.closes -= 1;
                host.close(net);
            }
            Action::Die => {
                net.budget.deaths -= 1;
                net.dead = Some(at);
                net.wires.retain(|(_, to), _| *to != at);
                for message in net.messages.values_mut() {
                    message.is_being_read &= message.to != at;
                    message.writes *= u32::from(message.from != at);
                }
                return;
            }
        }
        host.unlock(net);
        if !self.is_again() {
            self.check();
        }
    }

    /// `false`: nothing more happens.
    pub(super) fn step(&mut self) -> bool {
        let [mut all, besides] = self.actions();
        if all.is_empty() {
            self.check_pending();
            let chosen = self.net.choose(besides.len() + 1);
            let Some((at, action)) = chosen.checked_sub(1).map(|chosen| besides[chosen]) else { return false };
            self.act(at, action);
            return true;
        }
        all.extend(besides);
        let (at, action) = all[self.net.choose(all.len())];
        self.act(at, action);
        true
    }

    /// What holds at all times.
    fn check(&mut self) {
        for from in self.alive() {
            let host = &self.hosts[from as usize];
            let Host { engine, seen, .. } = host;
            host.check_exposed();
            let lists = (seen.oracle.posted.len(), seen.oracle.unexpected.len());
            let (posted, unexpected, _) = engine.matcher.lens();
            assert_eq!((posted, unexpected), lists, "rank {from}: posted and unexpected");
            for to in self.alive() {
                self.check_credit(from, to);
            }
        }
    }

    /// The credit of the messages from one rank to another is there once.
    fn check_credit(&mut self, from: u32, to: u32) {
        if self.net.has_broken(from, to) && !self.net.unaware.is_empty() {
            return;
        }
        let wire = |from, to| self.net.wires.get(&(from, to)).into_iter().flatten();
        let in_flight: u32 = wire(from, to).flat_map(|packet| messages_of(packet)).map(|one| units(one.kept)).sum();
        let head = |packet: &Vec<u8>| packet[..packet.len().min(EAGER_HEAD)].to_vec();
        let grant = wire(to, from).last().map(head).map(|head| u32::from_le_bytes(head[4..8].try_into().unwrap()));
        let [sender, receiver] = [(from, to), (to, from)].map(|(at, peer)| {
            let engine = &mut self.hosts[at as usize].engine;
            assert_eq!(engine.lost(Rank(peer)), None, "rank {at} has lost {peer}");
            engine.peer(Rank(peer)).counters()
        });
        let (Counters { spent, allowed, .. }, Counters { came, consumed, told, .. }) = (sender, receiver);
        let unexpected: u32 = self.hosts[to as usize]
            .engine
            .matcher
            .all_unexpected()
            .filter(|(_, envelope, message)| envelope.source == from && !message.is_consumed)
            .map(|(.., message)| units(message.body.kept()))
            .sum();
        let window = self.hosts[to as usize].engine.window;
        assert_eq!(spent.wrapping_sub(came), in_flight, "{from} to {to}: credit in flight");
        assert_eq!(came.wrapping_sub(consumed), unexpected, "{from} to {to}: credit of unexpected messages");
        assert_eq!(grant.unwrap_or(allowed), told, "{from} to {to}: credit given back");
        assert!(
            told <= consumed + window && allowed <= told && spent <= allowed,
            "{from} to {to}: {sender:?}, {receiver:?}"
        );
    }

    /// Nothing can move any more: what is pending waits for what a program has not done.
    fn check_pending(&self) {
        for at in self.alive() {
            let host = &self.hosts[at as usize];
            for (index, (request, _)) in host.requests.iter().enumerate() {
                match request {
                    Request::Send { number, .. } => {
                        let to = self.net.messages[number].to;
                        let is_unexpected = !self.hosts[to as usize].seen.oracle.unexpected.is_empty();
                        assert!(is_unexpected, "the send of {number} does not end");
                    }
                    Request::Posted { receive, .. } => {
                        assert!(host.engine.is_posted(*receive), "receive {index} of rank {at} does not end");
                    }
                    Request::Probe { pattern, .. } => {
                        assert!(host.seen.oracle.find(*pattern).is_none(), "probe {index} of rank {at} does not end");
                    }
                    Request::Held(..) | Request::Landed(..) => unreachable!("it can be finished"),
                    Request::Over => {}
                }
            }
        }
    }

    fn run_on(&mut self) {
        self.net.choices.is_over = true;
        self.net.budget = Budget::default();
        while self.step() {}
    }

    /// Receives what no receive has fitted. Then everything is over, and nothing is left.
    pub(super) fn finish(&mut self) {
        self.run_on();
        while let Some(at) = self.alive().find(|at| self.hosts[*at as usize].engine.matcher.lens().1 > 0) {
            assert!(!self.net.closed.contains(&at), "messages of a closed communicator are kept");
            self.hosts[at as usize].program.push_back(Op::Receive { pattern: ANY, has_slice: false });
            self.run_on();
        }
        for (number, message) in &self.net.messages {
            let [is_from_dead, is_to_dead] = [message.from, message.to].map(|rank| self.net.dead == Some(rank));
            let may_be_lost = message.is_old || is_from_dead || is_to_dead || self.net.closed.contains(&message.to);
            assert!(message.is_received || may_be_lost, "{number} is not received");
            if message.is_rendezvous && message.from != message.to && !is_from_dead {
                assert!(message.is_freed, "the memory of {number} is not given back");
            }
        }
        for at in self.alive() {
            self.hosts[at as usize].close(&mut self.net);
            self.hosts[at as usize].unlock(&mut self.net);
        }
        self.run_on();
        for at in self.alive() {
            let engine = &self.hosts[at as usize].engine;
            let left = (engine.matcher.receives.len(), engine.sends.len(), engine.matcher.lens(), engine.busy.len());
            assert_eq!(left, (0, 0, (0, 0, 0), 0), "something is left");
        }
    }

    /// Whether this step has been taken by an earlier order, which checked what holds after it.
    fn is_again(&self) -> bool {
        let Choices { path, at, .. } = &self.net.choices;
        path.get(*at).is_some_and(|(_, of)| *of > 0)
    }

    pub(super) fn is_new(&self) -> bool {
        self.net.choices.at == self.net.choices.path.len()
    }
}
