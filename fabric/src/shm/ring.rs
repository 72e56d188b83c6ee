//! A ring of small messages from one rank to another. It has one writer and one reader, so a writer
//! that dies between claiming and publishing a slot blocks no other rank.
//!
//! A slot is one cache line: a header word, then the message. Storing the header publishes the
//! slot. The header contains the message's number, so slots are never cleared.

use onesided_remote_memory::{Fault, FaultKind, MAX_MESSAGE, Message, Port, Rank};

use crate::sync::atomic::{AtomicU64, Ordering};

/// Words of a slot: the header, then the bytes.
pub(crate) const SLOT_WORDS: usize = 1 + MAX_MESSAGE / 8;

/// The memory of a ring.
pub(crate) trait RingMemory {
    /// The number of slots.
    fn slots(&self) -> u32;
    /// The number of messages that the reader has taken out.
    fn taken(&self) -> &AtomicU64;
    /// Word `word` of slot `slot`.
    fn word(&self, slot: u32, word: usize) -> &AtomicU64;
}

/// The writer's end, which counts the messages put in.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    put: u64,
    /// The last known number of messages taken out.
    taken: u64,
}

impl Writer {
    /// Puts a message in; `false` if the ring is full.
    pub(crate) fn push(&mut self, ring: &impl RingMemory, port: Port, message: &Message) -> bool {
        let slots = u64::from(ring.slots());
        if self.put.wrapping_sub(self.taken) >= slots {
            // Acquire: the reader's loads come before the next write to the slot.
            self.taken = ring.taken().load(Ordering::Acquire);
            // A reader that claims more than was put is broken; the ring then counts as full.
            if self.put.wrapping_sub(self.taken) >= slots {
                return false;
            }
        }
        let slot = (self.put % slots) as u32;
        let bytes = message.bytes();
        for (index, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            ring.word(slot, 1 + index).store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
        self.put += 1;
        let header = self.put << 16 | u64::from(port.0) << 8 | bytes.len() as u64;
        ring.word(slot, 0).store(header, Ordering::Release);
        true
    }
}

/// The reader's end.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    taken: u64,
}

impl Reader {
    /// The port of the next message, if there is one.
    pub(crate) fn peek(&self, ring: &impl RingMemory) -> Option<Port> {
        let slot = (self.taken % u64::from(ring.slots())) as u32;
        let header = ring.word(slot, 0).load(Ordering::Acquire);
        (header >> 16 == (self.taken + 1) & (u64::MAX >> 16)).then_some(Port((header >> 8) as u8))
    }

    /// Takes out the message that [`peek`](Self::peek) has just seen.
    pub(crate) fn take(&mut self, ring: &impl RingMemory, from: Rank) -> Result<Message, Fault> {
        let slot = (self.taken % u64::from(ring.slots())) as u32;
        // Relaxed: `peek` acquired this header, and the writer does not overwrite it before it is
        // counted as taken.
        let len = usize::from(ring.word(slot, 0).load(Ordering::Relaxed) as u8);
        let mut bytes = [0; MAX_MESSAGE];
        for (index, chunk) in bytes.chunks_mut(8).enumerate().take(len.div_ceil(8)) {
            chunk.copy_from_slice(&ring.word(slot, 1 + index).load(Ordering::Relaxed).to_le_bytes());
        }
        self.taken += 1;
        // Release: the loads of the words come before the writer's next stores to them.
        ring.taken().store(self.taken, Ordering::Release);
        let bytes = bytes.get(..len).ok_or(Fault::of(FaultKind::Protocol, from).with_detail(len as u32))?;
        Message::new(from, bytes)
    }
}
