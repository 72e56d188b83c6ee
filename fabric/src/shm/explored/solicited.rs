//! The solicited events of a handler, and a thread that polls meanwhile.

use std::sync::Arc;
use std::task::Poll;

use onesided_job::segment::doorbell::SolicitedBell;

use crate::shm::explored::doorbell::Futex;
use crate::shm::explored::interest::{self, Packets};
use crate::shm::explored::{LOST, caught, holds, together};
use crate::util::sync::atomic::AtomicU32;
use crate::util::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use crate::{SolicitedEvents, Ticket};

/// A flaw of the protocol.
#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    /// The thread looks before it arms.
    ArmAfterLook,
    /// Nobody looks after the arming.
    ArmWithoutLook,
    /// The handler looks before it takes its ticket.
    TicketAfterLook,
    /// A packet's event is given to a handler that is not armed as well, and taken for its packet:
    /// the handler counts events and does not drain.
    CountInsteadOfDrain,
}

struct Rank {
    flaw: Flaw,
    rings: AtomicU32,
    armed: AtomicU32,
    futex: Futex,
    /// Packets that have arrived, and those that were taken in.
    arrived: AtomicU32,
    taken: AtomicU32,
}

impl Rank {
    fn armed(flaw: Flaw) -> Self {
        let zero = || AtomicU32::new(0);
        let armed = AtomicU32::new(1);
        Self { flaw, rings: zero(), armed, futex: Futex::default(), arrived: zero(), taken: zero() }
    }

    fn new(flaw: Flaw) -> Arc<Self> {
        Arc::new(Self::armed(flaw))
    }

    fn bell(&self) -> SolicitedBell<'_> {
        SolicitedBell { rings: &self.rings, armed: &self.armed }
    }

    fn send(&self) {
        self.arrived.fetch_add(1, Release);
        self.bell().ring(|_| self.futex.wake());
    }

    /// Takes in what has arrived, at most so many packets.
    fn look(&self, most: u32) {
        let arrived = self.arrived.load(Relaxed);
        let taken = self.taken.load(Relaxed);
        // Under the engine's lock in the shipped code; here whoever is first.
        if taken < arrived {
            let _ = self.taken.compare_exchange(taken, arrived.min(taken + most), AcqRel, Relaxed);
        }
    }

    /// A blocked thread polls once, and ends. It wakes the handler, which then sees what it left.
    fn poll(&self) {
        self.bell().disarm();
        self.look(1);
        if self.flaw == Flaw::ArmAfterLook {
            self.look(2);
        }
        self.bell().arm();
        if !matches!(self.flaw, Flaw::ArmAfterLook | Flaw::ArmWithoutLook) {
            self.look(2);
        }
        if self.taken.load(Relaxed) == self.arrived.load(Relaxed) {
            // Only for the model's end: the handler may leave.
            self.rings.fetch_add(1, Relaxed);
            self.futex.wake();
        }
    }

    /// The handler, until all `packets` are taken in.
    fn handle(&self, packets: u32) {
        let most = if self.flaw == Flaw::CountInsteadOfDrain { 1 } else { packets };
        loop {
            let early = self.flaw == Flaw::TicketAfterLook;
            if early {
                self.look(most);
            }
            let ticket = self.bell().ticket();
            if !early {
                self.look(most);
            }
            if self.taken.load(Relaxed) == packets {
                return;
            }
            self.futex.wait(&self.rings, ticket.0);
        }
    }
}

impl SolicitedEvents for Rank {
    fn arm(&self) {
        self.bell().arm();
    }

    fn disarm(&self) {
        self.bell().disarm();
    }

    fn ticket(&self) -> Ticket {
        self.bell().ticket()
    }

    fn poll_sleep(&self, ticket: Ticket, _until: u64) -> Poll<()> {
        self.futex.wait(&self.rings, ticket.0);
        Poll::Ready(())
    }

    fn wake(&self) {
        self.rings.fetch_add(1, AcqRel);
        self.futex.wake();
    }
}

impl Packets for Rank {
    fn new() -> Self {
        let rank = Self::armed(Flaw::None);
        rank.bell().disarm();
        rank
    }

    fn send(&self) {
        Self::send(self);
    }

    fn has_arrived(&self) -> bool {
        self.arrived.load(Relaxed) == 1
    }
}

/// One packet comes while a thread polls.
fn one_packet(flaw: Flaw) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rank = Rank::new(flaw);
        let (sender, thread) = (Arc::clone(&rank), Arc::clone(&rank));
        together([Box::new(move || sender.send()), Box::new(move || thread.poll()), Box::new(move || rank.handle(1))]);
    }
}

/// Two packets come.
fn two_packets(flaw: Flaw) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rank = Rank::new(flaw);
        let sender = Arc::clone(&rank);
        let send = move || {
            sender.send();
            sender.send();
        };
        together([Box::new(send), Box::new(move || rank.handle(2))]);
    }
}

#[test]
fn a_packet_is_taken_in_by_the_handler_or_by_who_polls() {
    holds(Some(3), 18_274, one_packet(Flaw::None));
}

#[test]
fn the_handler_drains_to_empty() {
    holds(None, 12_854, two_packets(Flaw::None));
}

#[test]
fn every_flaw_of_the_handler_is_caught() {
    for flaw in [Flaw::ArmAfterLook, Flaw::ArmWithoutLook] {
        caught(LOST, one_packet(flaw));
    }
    for flaw in [Flaw::TicketAfterLook, Flaw::CountInsteadOfDrain] {
        caught(LOST, two_packets(flaw));
    }
}

#[test]
fn a_receive_asks_for_events_or_finds_them_asked_for() {
    interest::is_explored::<Rank>([441, 1_106]);
    interest::disarming_is_explored::<Rank>();
}
