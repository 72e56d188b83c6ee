//! The events of a card's packets: a handler, and a thread that waits.

use std::sync::Arc;
use std::task::Poll;

use crate::shm::explored::interest::{self, Packets};
use crate::shm::explored::{LOST, caught_within, holds, together};
use crate::util::sync::{Condvar, Mutex, MutexGuard};
use crate::waiting::event_requests::EventRequests;
use crate::{SolicitedEvents, Ticket};

/// A flaw of the protocol.
#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    /// The handler requests also while a request is open: it may narrow a waiter's.
    RequestWhileOpen,
    /// The handler takes events and rings no waiter.
    TakeWithoutRing,
    /// A waiter takes events and does not wake an armed handler.
    TakeWithoutTelling,
    /// A thread that polls no more looks before it arms.
    ArmAfterLook,
    /// The handler looks at one packet for each event.
    CountInsteadOfDrain,
    /// A look passes by a thread that drains a shared queue.
    LookWithoutWait,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Solicited,
    All,
}

#[derive(Clone, Copy)]
enum Packet {
    Short,
    Start,
}
use Packet::{Short, Start};

#[derive(Clone, Copy)]
enum Sleeper {
    Waiter,
    Handler,
}
use Sleeper::{Handler, Waiter};

/// The card, the kernel, and what the threads of the rank have taken in: by packet, by sleeper.
#[derive(Default)]
struct Machine {
    request: Option<Kind>,
    has_event: bool,
    bells: [bool; 2],
    /// In the queue of all else.
    completed: [u32; 2],
    arrived: [u32; 2],
    taken_in: [u32; 2],
}

struct Rank {
    flaw: Flaw,
    packets: &'static [Packet],
    requests: EventRequests,
    /// Whether packets complete in the queue of all else.
    has_one_queue: bool,
    reaping: Mutex<()>,
    machine: Mutex<Machine>,
    changed: Condvar,
}

impl Rank {
    fn unarmed(flaw: Flaw, packets: &'static [Packet]) -> Self {
        let (requests, machine, changed) = (EventRequests::default(), Mutex::default(), Condvar::new());
        Self { flaw, packets, requests, has_one_queue: false, reaping: Mutex::new(()), machine, changed }
    }

    fn new(flaw: Flaw, packets: &'static [Packet]) -> Arc<Self> {
        let rank = Self::unarmed(flaw, packets);
        rank.requests.arm(|| {}); // nothing is open at the card
        rank.requests.taken(true);
        Arc::new(rank)
    }

    fn change<R>(&self, change: impl FnOnce(&mut Machine) -> R) -> R {
        change(&mut self.machine.lock().unwrap())
    }

    fn send(&self) {
        for packet in self.packets {
            self.change(|machine| {
                let place = if self.has_one_queue { &mut machine.completed } else { &mut machine.arrived };
                place[*packet as usize] += 1;
                let is_wanted = match packet {
                    Short => machine.request == Some(Kind::All),
                    Start => machine.request.is_some(),
                };
                if is_wanted {
                    machine.request = None;
                    machine.has_event = true;
                    self.changed.notify_all();
                }
            });
        }
    }

    /// Of two open requests the later counts.
    fn request(&self, kind: Kind) {
        self.change(|machine| machine.request = Some(kind));
    }

    fn ring(&self, who: Sleeper) {
        self.change(|machine| {
            machine.bells[who as usize] = true;
            self.changed.notify_all();
        });
    }

    fn sleep(&self, who: Sleeper) {
        let mut machine = self.machine.lock().unwrap();
        while !machine.has_event && !machine.bells[who as usize] {
            machine = self.changed.wait(machine).unwrap();
        }
        drop(machine);
        self.change(|machine| machine.bells[who as usize] = false);
        if !self.change(|machine| std::mem::take(&mut machine.has_event)) {
            return;
        }
        let is_armed = self.requests.taken(true);
        match who {
            Waiter if is_armed && self.flaw != Flaw::TakeWithoutTelling => self.ring(Handler),
            Handler if self.flaw != Flaw::TakeWithoutRing => self.ring(Waiter),
            _ => {}
        }
    }

    /// Drains the queue of all else.
    fn reap(&self, reaping: MutexGuard<'_, ()>) {
        let completed = self.change(|machine| std::mem::take(&mut machine.completed));
        if completed != [0; 2] {
            self.change(|machine| (0..2).for_each(|kind| machine.arrived[kind] += completed[kind]));
        }
        drop(reaping);
    }

    fn progress(&self) {
        if let Ok(reaping) = self.reaping.try_lock() {
            self.reap(reaping);
        }
    }

    /// Takes in at most so many packets of a kind. How many were taken in so far.
    fn look(&self, packet: Packet, most: u32) -> u32 {
        match self.flaw {
            _ if !self.has_one_queue => {}
            Flaw::LookWithoutWait => self.progress(),
            _ => self.reap(self.reaping.lock().unwrap()),
        }
        self.change(|machine| {
            let (arrived, taken_in) = (machine.arrived[packet as usize], &mut machine.taken_in[packet as usize]);
            *taken_in = arrived.min(taken_in.saturating_add(most));
            *taken_in
        })
    }

    fn starts(&self) -> u32 {
        self.packets.iter().filter(|packet| matches!(packet, Start)).count() as u32
    }

    /// The handler, until all messages have started.
    fn handle(&self) {
        let most = if self.flaw == Flaw::CountInsteadOfDrain { 1 } else { u32::MAX };
        loop {
            match self.flaw {
                Flaw::RequestWhileOpen => self.request(Kind::Solicited),
                _ => self.requests.request_solicited(|| self.request(Kind::Solicited)),
            }
            self.look(Short, most);
            if self.look(Start, most) == self.starts() {
                return;
            }
            self.sleep(Handler);
        }
    }

    /// A wait for the short message, which sees no other.
    fn wait(&self) {
        loop {
            self.requests.request_all(|| self.request(Kind::All));
            if self.look(Short, 1) == 1 {
                return;
            }
            self.sleep(Waiter);
        }
    }

    fn arm_and_look(&self) {
        let look = || self.look(Start, u32::MAX) == self.starts();
        if self.flaw == Flaw::ArmAfterLook {
            look();
        }
        self.requests.arm(|| self.request(Kind::Solicited));
        if self.flaw != Flaw::ArmAfterLook && look() {
            self.ring(Handler); // only for the model's end
        }
    }
}

impl SolicitedEvents for Rank {
    fn arm(&self) {
        self.requests.arm(|| self.request(Kind::Solicited));
    }

    fn disarm(&self) {
        self.requests.disarm();
    }

    fn ticket(&self) -> Ticket {
        self.requests.request_solicited(|| self.request(Kind::Solicited));
        Ticket(0)
    }

    fn poll_sleep(&self, _ticket: Ticket, _until: u64) -> Poll<()> {
        Self::sleep(self, Handler);
        Poll::Ready(())
    }

    fn wake(&self) {
        self.ring(Handler);
    }
}

impl Packets for Rank {
    fn new() -> Self {
        Self::unarmed(Flaw::None, &[Start])
    }

    fn send(&self) {
        Self::send(self);
    }

    fn has_arrived(&self) -> bool {
        self.look(Start, 1) == 1
    }
}

/// A task of an executor waits, and the handler is armed.
fn armed(flaw: Flaw, packets: &'static [Packet]) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rank = Rank::new(flaw, packets);
        let (sender, waiter) = (Arc::clone(&rank), Arc::clone(&rank));
        together([Box::new(move || sender.send()), Box::new(move || waiter.wait()), Box::new(move || rank.handle())]);
    }
}

/// A thread of the rank waits, polling or asleep.
fn disarmed(flaw: Flaw, packets: &'static [Packet]) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rank = Rank::new(flaw, packets);
        let (sender, thread) = (Arc::clone(&rank), Arc::clone(&rank));
        let wait = move || {
            thread.requests.disarm();
            if thread.packets.len() > 1 {
                thread.wait();
            }
            thread.arm_and_look();
        };
        together([Box::new(move || sender.send()), Box::new(wait), Box::new(move || rank.handle())]);
    }
}

/// A thread drains the queue that packets share, and looks at none. `is_armed`: the handler from
/// before, or by another thread, which looks.
fn one_queue(flaw: Flaw, is_armed: bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        let mut rank = Rank::unarmed(flaw, &[Start]);
        rank.has_one_queue = true;
        if is_armed {
            rank.requests.arm(|| {});
            rank.requests.taken(true);
        }
        let rank = Arc::new(rank);
        let (sender, program) = (Arc::clone(&rank), Arc::clone(&rank));
        let send = move || {
            sender.send();
            sender.progress();
        };
        let drain = move || match is_armed {
            true => program.progress(),
            false => program.arm_and_look(),
        };
        together([Box::new(send), Box::new(drain), Box::new(move || rank.handle())]);
    }
}

/// Nobody waits.
fn alone(flaw: Flaw) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rank = Rank::new(flaw, &[Start, Start]);
        let sender = Arc::clone(&rank);
        together([Box::new(move || sender.send()), Box::new(move || rank.handle())]);
    }
}

#[test]
fn a_handler_and_a_waiter_share_the_events() {
    holds(Some(2), 920, armed(Flaw::None, &[Short, Start]));
    holds(Some(2), 1_007, armed(Flaw::None, &[Start, Short]));
}

#[test]
fn a_start_is_seen_by_the_handler_or_by_who_waited() {
    holds(Some(3), 2_501, disarmed(Flaw::None, &[Start]));
    holds(Some(2), 1_095, disarmed(Flaw::None, &[Short, Start]));
    holds(Some(2), 1_223, disarmed(Flaw::None, &[Start, Short]));
}

#[test]
fn a_start_is_seen_though_another_thread_drains_its_queue() {
    holds(Some(3), 4_279, one_queue(Flaw::None, true));
    holds(Some(3), 5_553, one_queue(Flaw::None, false));
}

#[test]
fn the_handler_drains_to_empty() {
    holds(None, 306, alone(Flaw::None));
}

#[test]
fn every_flaw_of_a_card_s_events_is_caught() {
    caught_within(Some(2), LOST, armed(Flaw::RequestWhileOpen, &[Start, Short]));
    caught_within(Some(2), LOST, armed(Flaw::TakeWithoutRing, &[Start, Short]));
    caught_within(Some(2), LOST, armed(Flaw::TakeWithoutTelling, &[Short, Start]));
    caught_within(Some(2), LOST, disarmed(Flaw::ArmAfterLook, &[Start]));
    caught_within(Some(2), LOST, alone(Flaw::CountInsteadOfDrain));
    caught_within(Some(2), LOST, one_queue(Flaw::LookWithoutWait, true));
    caught_within(Some(2), LOST, one_queue(Flaw::LookWithoutWait, false));
}

#[test]
fn a_receive_asks_for_events_or_finds_them_asked_for() {
    interest::is_explored::<Rank>([254, 559]);
}
