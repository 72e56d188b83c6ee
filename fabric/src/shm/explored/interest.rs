//! Events that are asked for only while a receive is posted.

use std::sync::Arc;

use crate::shm::explored::{LOST, caught, holds, together};
use crate::util::sync::Mutex;
use crate::{EventInterest, SolicitedEvents};

/// A flaw of the protocol.
#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    /// The handler disarms by what it found expected before.
    DisarmByOldLook,
    /// Who posts the receive arms after its look.
    ArmAfterLook,
    /// Nobody looks after the arming.
    ArmWithoutLook,
}

/// A solicited packet, and its events.
pub(super) trait Packets: SolicitedEvents + Sized + 'static {
    /// Nobody is armed.
    fn new() -> Self;
    fn send(&self);
    fn has_arrived(&self) -> bool;
}

#[derive(Default)]
struct Engine {
    interest: EventInterest,
    is_posted: bool,
    is_taken: bool,
}

struct Rank<P> {
    flaw: Flaw,
    packets: P,
    engine: Mutex<Engine>,
}

impl<P: Packets> Rank<P> {
    /// What has arrived is taken in. Whether the message can be moved.
    fn look(&self) -> bool {
        let mut engine = self.engine.lock().unwrap();
        engine.is_taken |= self.packets.has_arrived();
        engine.is_taken && engine.is_posted
    }

    fn update(&self, expects: impl FnOnce(bool) -> bool) -> bool {
        let Engine { interest, is_posted, .. } = &mut *self.engine.lock().unwrap();
        interest.update(&self.packets, || expects(*is_posted))
    }

    /// The program posts its receive, and computes.
    fn post(&self) {
        let (is_here, asks) = {
            let mut engine = self.engine.lock().unwrap();
            engine.is_posted = true;
            (engine.is_taken, engine.interest.is_unarmed())
        };
        let is_early = asks && self.flaw == Flaw::ArmAfterLook && self.look();
        let looks = asks && self.update(|is_posted| is_posted) && self.flaw == Flaw::None;
        if is_here || is_early || looks && self.look() {
            self.packets.wake();
        }
    }

    /// The handler, until it can move the message.
    fn handle(&self) {
        loop {
            let ticket = self.packets.ticket();
            if self.look() {
                return;
            }
            let is_armed = match self.flaw {
                Flaw::DisarmByOldLook => {
                    let was_posted = self.engine.lock().unwrap().is_posted;
                    self.update(|_| was_posted)
                }
                _ => self.update(|is_posted| is_posted),
            };
            if !is_armed {
                let _ = self.packets.poll_sleep(ticket, u64::MAX);
            }
        }
    }
}

/// A packet comes, and a receive is posted. `is_left`: the handler is armed from before.
fn one_packet<P: Packets>(flaw: Flaw, is_left: bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rank = Arc::new(Rank { flaw, packets: P::new(), engine: Mutex::new(Engine::default()) });
        rank.engine.lock().unwrap().interest.has_handler = true;
        rank.update(|_| is_left);
        let (sender, program) = (Arc::clone(&rank), Arc::clone(&rank));
        together([
            Box::new(move || sender.packets.send()),
            Box::new(move || program.post()),
            Box::new(move || rank.handle()),
        ]);
    }
}

/// Explores it, in so many executions: unarmed at first, and armed.
pub(super) fn is_explored<P: Packets>(counted: [usize; 2]) {
    for (is_left, counted) in [false, true].into_iter().zip(counted) {
        holds(Some(2), counted, one_packet::<P>(Flaw::None, is_left));
    }
    caught(LOST, one_packet::<P>(Flaw::ArmAfterLook, false));
    caught(LOST, one_packet::<P>(Flaw::ArmWithoutLook, false));
}

/// Not of a card: what it was asked for once, it tells.
pub(super) fn disarming_is_explored<P: Packets>() {
    caught(LOST, one_packet::<P>(Flaw::DisarmByOldLook, true));
}
