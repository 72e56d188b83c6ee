//! Memory that datagrams are received into.

use std::collections::BTreeMap;
use std::task::Poll;

use onesided_fabric::{Placement, Places};
use onesided_remote_memory::{At, Rank};

use super::State;
use crate::agenda::Due;

/// How many messages a rank receives so at a time.
const QUEUES: usize = 4;
/// When a thread that waits looks again, in nanoseconds: these completions wake nobody.
const SOON: u64 = 50_000;

/// By rank and key; a key is never used again.
#[derive(Debug, Default)]
pub(crate) struct Landings {
    open: BTreeMap<(Rank, u32), Landing>,
    last: u32,
}

#[derive(Debug)]
struct Landing {
    at: At,
    placement: Placement,
    /// The thread that waits for the last one.
    waits: Option<u32>,
}

impl State {
    /// Has datagrams received into memory. `None`: that is done for too many messages now.
    pub(crate) fn land(&mut self, at: At, places: Places) -> Option<u32> {
        let Landings { open, last } = &mut self.landings;
        if open.range((at.rank, 0)..=(at.rank, u32::MAX)).count() == QUEUES {
            return None;
        }
        *last += 1;
        open.insert((at.rank, *last), Landing { at, placement: Placement::new(places), waits: None });
        Some(*last)
    }

    pub(crate) fn end_landing(&mut self, rank: Rank, key: u32) {
        self.landings.open.remove(&(rank, key));
    }

    /// What came, once nothing more is waited for. `None`: it has ended, or its memory is gone.
    pub(crate) fn poll_landing(&mut self, rank: Rank, key: u32) -> Poll<Option<Placement>> {
        let thread = self.thread_of(rank.0);
        let Some(landing) = self.landings.open.get_mut(&(rank, key)) else { return Poll::Ready(None) };
        let taken = landing.placement.used_since();
        let until = landing.placement.waits(self.now);
        landing.waits = until.map(|_| thread);
        if let Some(processors) = &mut self.processors {
            processors.charge_polls(self.current, taken);
        }
        if let Some(until) = until {
            self.alarm_at_latest(rank, until.min(self.now + SOON));
            return Poll::Pending;
        }
        let landing = self.landings.open.remove(&(rank, key)).filter(|landing| self.is_registered(landing.at));
        Poll::Ready(landing.map(|landing| landing.placement))
    }

    fn is_registered(&self, at: At) -> bool {
        self.ranks[at.rank.index()].memory.len(at.region.0).is_some()
    }

    /// A datagram arrives: it takes the next receive. A card drops one whose message is over.
    pub(super) fn land_datagram(&mut self, rank: Rank, (key, number): (u32, u32), bytes: &[u8]) {
        let Some(landing) = self.landings.open.get_mut(&(rank, key)) else { return };
        let (at, slot) = (landing.at, landing.placement.used());
        let Some((offset, room)) = landing.placement.places().of(slot) else { return };
        let fits = bytes.len() <= room as usize;
        landing.placement.arrived(slot, Some(number).filter(|_| fits), bytes.len() as u32);
        let waits = landing.waits.take_if(|_| landing.placement.is_full());
        self.note_change();
        if fits && self.is_registered(at) {
            self.ranks[rank.index()].memory.write(at.region.0, at.offset + offset, bytes);
        }
        if let Some(thread) = waits {
            match &mut self.processors {
                Some(processors) => {
                    processors.event(self.now + self.wire.deliver, thread, false, &mut self.agenda);
                }
                None => self.agenda.enter(self.now, Due::Wake(thread)),
            }
        }
    }
}
