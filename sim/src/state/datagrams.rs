//! Unreliable datagrams.

use onesided_remote_memory::{Notify, Rank};

use super::State;
use crate::agenda::Due;
use crate::rank::What;

/// A datagram in flight.
#[derive(Debug)]
pub(super) struct Datagram {
    from: Rank,
    to: Rank,
    /// The key of the message that it is received for, and its number.
    lands: Option<(u32, u32)>,
    bytes: Box<[u8]>,
}

impl State {
    /// Sends a datagram, of a message that [lands](Self::land) with its key and number. `false`: its receiver
    /// has died or left, or cut this rank, or the destructors of a dead rank send it.
    pub(crate) fn post_datagram(
        &mut self,
        (from, to): (Rank, Rank),
        lands: Option<(u32, u32)>,
        bytes: Vec<u8>,
    ) -> bool {
        let absent = || self.absent(from, to).or_else(|| self.denied(from, to));
        if self.is_killed(from) || absent().is_some() {
            return false;
        }
        self.counts.messages += 1;
        self.counts.bytes += bytes.len() as u64;
        self.charge_post(self.thread_of(from.0));
        let (ready_at, occupied) = (self.clock() + self.wire.doorbell, self.wire.occupied(bytes.len() as u64));
        let card = self.card_of(from.0);
        let card = &mut self.ranks[card as usize];
        let leaves_at = card.sends_at.max(ready_at) + self.wire.send;
        card.sends_at = leaves_at + occupied;
        let fetches = self.fetches(leaves_at, (from.0, None), (to.0, None));
        if self.partitioned_until(from.0, to.0).is_some() {
            return true;
        }
        for travels in self.wire.travels() {
            let datagram = Datagram { from, to, lands, bytes: bytes.as_slice().into() };
            let slot = match self.free_datagrams.pop() {
                Some(slot) => {
                    self.datagrams[slot as usize] = datagram;
                    slot
                }
                None => {
                    self.datagrams.push(datagram);
                    self.datagrams.len() as u32 - 1
                }
            };
            let received = self.wire.receive + self.wire.fetch_receive;
            self.agenda.enter(leaves_at + occupied + fetches + travels + received, Due::Datagram(slot));
        }
        true
    }

    /// For how long the card of a rank sends what it has.
    pub(crate) fn sends_for(&self, rank: Rank) -> u64 {
        self.ranks[self.card_of(rank.0) as usize].sends_at.saturating_sub(self.clock())
    }

    pub(super) fn receive_datagram(&mut self, slot: u32) {
        self.free_datagrams.push(slot);
        let Datagram { from, to, lands, ref mut bytes } = self.datagrams[slot as usize];
        let bytes = std::mem::take(bytes);
        self.arrivals += 1;
        let value = bytes.len() as u64;
        self.trace.note([self.now, u64::from(from.0) << 32 | u64::from(to.0), 3, value]);
        if self.lives[to.index()].is_over() || self.has_cut(to, from) {
            return;
        }
        if let Some(lands) = lands {
            return self.land_datagram(to, lands, &bytes);
        }
        // A bare acknowledgement brings nothing that a program could wait for.
        if value > onesided_fabric::DatagramChannel::HEADER as u64 {
            self.note_change();
        }
        self.ranks[to.index()].more().rare().datagrams.push_back(bytes);
        self.look(to, Notify::Yes, |what| matches!(what, What::Packet | What::Room(_)));
    }

    pub(crate) fn take_datagram(&mut self, rank: Rank) -> Option<Box<[u8]>> {
        self.ranks[rank.index()].more().rare().datagrams.pop_front()
    }
}
