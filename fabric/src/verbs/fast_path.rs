//! The fast path of packets (RC-FP: koop-2008, section 2.1.1): a ring of slots, which a peer fills by writes over
//! the connection of the two, and which this rank polls. No receive is taken, and nothing completes here.
//!
//! The receiver makes a ring, registers it, and tells the peer by a [hello](super::connector), when enough short packets
//! of that peer have come over the connection. A hello that is lost is said again after as many more. The sender writes
//! into one slot after the other; the machine of the datagrams knows which are free: their packets have been
//! acknowledged. The ring is the queue pair's, and ends with it, at both ranks.
//!
//! A free slot is zero. A packet in it has the same word before and behind it, with its length, and is all there when
//! both are: the card places what one wire packet carries in the order of its addresses, or in the opposite one, as
//! Soft-RoCE may, by whole words if they are a multiple of 32 bytes. The receiver copies the packet out, zeroes the
//! slot, and acknowledges then: no stale bytes can be taken for a word.
//!
//! A write wakes nobody. So the sender sends [a packet in a millisecond](crate::DatagramChannel::has_slot) over the
//! queue, whose event does, before it writes any; and a receiver does not [sleep long](super::arrivals) soon after one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use onesided_remote_memory::Rank;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::shm::Mapping;
use crate::verbs::raw::{MemoryRegion, ProtectionDomain, Remote};

/// How many ranks have a fast path to this one at most. Beyond, the least used one gives way.
pub const FAST_PATHS: &str = "ONESIDED_MESSAGES_FAST_PATHS";

/// How many that are without a setting (koop-2008, section 5.4), and how many slots each has.
pub(super) const MOST: u32 = 8;
pub(super) const SLOTS: u8 = 32;
/// A ring is made for so many times the packets that are counted for a connection.
pub(super) const TIMES: u32 = 16;

/// The bytes of a slot.
const SLOT: u64 = 2048;
/// What is written is a multiple of it.
const BLOCK: usize = 32;
/// The two words.
const WORDS: usize = 16;
/// A word is this one with the length of its packet.
const WORD: u64 = 0x3153_4650 << 32;

/// The longest packet for a slot, if one wire packet has so many bytes.
pub(super) const fn room(wire: u32) -> usize {
    let most = if (wire as u64) < SLOT { wire as usize } else { SLOT as usize };
    most / BLOCK * BLOCK - WORDS
}

/// What is written of a slot for a packet of so many bytes.
pub(super) const fn written(len: usize) -> usize {
    (len + WORDS).next_multiple_of(BLOCK)
}

/// Gives what is written of a slot with the packet of these bytes, each part with its place. What is between them does not
/// matter.
pub(super) fn fill([head, body]: [&[u8]; 2], mut put: impl FnMut(usize, &[u8])) {
    let len = head.len() + body.len();
    let word = (WORD | len as u64).to_ne_bytes();
    put(0, &word);
    put(8, head);
    put(8 + head.len(), body);
    put(written(len) - word.len(), &word);
}

/// Where a ring is, as peers reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RingAddress {
    pub(super) start: Remote,
    pub(super) slots: u8,
}

/// The ring of a peer.
#[derive(Debug)]
pub(super) struct PeerRing {
    pub(super) address: RingAddress,
    next: u8,
}

impl PeerRing {
    pub(super) const fn new(address: RingAddress) -> Self {
        Self { address, next: 0 }
    }

    /// The slot for the next packet.
    pub(super) fn next(&mut self) -> Remote {
        let slot = self.address.start.after(u64::from(self.next) * SLOT);
        self.next = (self.next + 1) % self.address.slots.max(1);
        slot
    }
}

/// A ring of this rank.
#[derive(Debug)]
pub(super) struct Ring {
    memory: MemoryRegion,
    pub(super) slots: u8,
    /// The slot of the next packet.
    next: u8,
    pub(super) from: Rank,
    /// The queue pair over which it is filled.
    pub(super) queue_pair: u32,
    /// How many packets came by it since [that was asked](super::arrivals::Arrivals::uses_of_rings).
    pub(super) used: u64,
}

impl Ring {
    pub(super) fn new(
        domain: &Arc<ProtectionDomain>,
        slots: u8,
        (from, queue_pair): (Rank, u32),
    ) -> Result<Self, Error> {
        let memory = MemoryRegion::new(domain, u64::from(slots) * SLOT)?;
        Ok(Self { memory, slots, next: 0, from, queue_pair, used: 0 })
    }

    pub(super) fn len(&self) -> u64 {
        self.memory.len()
    }

    pub(super) fn address(&self) -> RingAddress {
        RingAddress { start: self.memory.remote(), slots: self.slots }
    }

    /// Takes out the next packet, if all of it is there.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Box<[u8]>> {
        let packet = take(self.memory.memory(), u64::from(self.next) * SLOT)?;
        self.next = (self.next + 1) % self.slots;
        self.used += 1;
        Some(packet)
    }
}

/// Takes out the packet of a slot. What the peer writes otherwise is a packet of some length, or none.
#[inline]
fn take(memory: &Mapping, slot: u64) -> Option<Box<[u8]>> {
    let word = memory.word(slot)?.load(Ordering::Acquire);
    if word == 0 {
        return None;
    }
    let len = (word as u32 as usize).min(room(SLOT as u32));
    let written = written(len) as u64;
    if memory.word(slot + written - 8)?.load(Ordering::Acquire) != word {
        return None;
    }
    let mut packet = vec![0; len].into_boxed_slice();
    memory.read(slot + 8, &mut packet)?;
    memory.zero(slot, written);
    Some(packet)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(len: usize) -> Vec<u8> {
        (0..len).map(|at| at as u8).collect()
    }

    /// The bytes of a packet are placed from the first to the last, or from the last to the first, and it is not taken
    /// before all are; stale bytes of the last one are none of it.
    #[test]
    fn a_packet_is_taken_when_all_of_it_is_placed() {
        let memory = Mapping::create(2 * SLOT as usize).unwrap();
        let longest = room(u32::MAX);
        for len in (0..200).chain(longest - 40..=longest) {
            let packet = packet(len);
            let mut slot = vec![0; written(len)];
            let put = |at: usize, from: &[u8]| slot[at..][..from.len()].copy_from_slice(from);
            fill([&packet[..len / 3], &packet[len / 3..]], put);
            for rising in [true, false] {
                let places: Vec<_> = (0..slot.len()).step_by(8).collect();
                for place in 0..places.len() {
                    assert_eq!(take(&memory, SLOT), None, "{len} bytes at the {place}th word");
                    let at = places[if rising { place } else { places.len() - 1 - place }];
                    memory.write(SLOT + at as u64, &slot[at..at + 8]).unwrap();
                }
                assert_eq!(take(&memory, SLOT).as_deref(), Some(&packet[..]));
                assert!(memory.is_zero(0, 2 * SLOT));
            }
        }
    }

    /// Whatever a peer writes, what is taken lies in the slot.
    #[test]
    fn any_words_are_a_packet_of_the_slot_or_none() {
        let memory = Mapping::create(SLOT as usize).unwrap();
        for len in (0..=u64::from(u16::MAX)).chain([u64::from(u32::MAX), u64::MAX, 1 << 63, WORD - 1]) {
            (0..SLOT).step_by(8).for_each(|at| memory.write(at, &len.to_ne_bytes()).unwrap());
            let packet = take(&memory, 0);
            assert!(packet.is_none_or(|packet| packet.len() <= room(u32::MAX)));
        }
        assert!([256, 512, 1024, 2048, 4096].iter().all(|wire| written(room(*wire)) <= *wire as usize));
    }
}
