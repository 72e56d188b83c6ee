//! Short messages of a list, which go in one packet.
//!
//! On a card a packet costs more than the bytes of many short messages, and on shared memory a cache
//! line moves from core to core for each packet. The receiver takes the messages of a packet in one by
//! one, each as an EAGER of its own.

use onesided_fabric::remote_memory::Rank;

use super::bytes::{NONE, SHORT};
use super::peer::{Class, units};
use super::receives::Direct;
use super::{Engine, PostOutcome};
use crate::Tag;
use crate::engine::matching::Envelope;
use crate::engine::wire::{BATCH_HEAD, Packet};

/// The longest message that goes with others, in bytes.
const LONGEST: usize = 128;

/// The words behind the head, at most. With it, they fill eight cache lines of a lane of shared memory:
/// the receiver of a longer one would begin later.
const WORDS: usize = 61;
const ROOM: usize = 8 * WORDS;

/// A message of a list: its bytes, its receiver in the communicator, and its tag.
pub(crate) type Listed<'b> = (&'b [u8], u32, Tag);

/// Messages that are put together: a word with tag and length, then the bytes, filled up to a word.
struct Packing {
    words: [u64; WORDS],
    used: usize,
    /// How many a packet has room for.
    room: usize,
}

impl Packing {
    fn new(packet_max: usize) -> Self {
        Self { words: [0; WORDS], used: 0, room: WORDS.min(packet_max.saturating_sub(BATCH_HEAD) / 8) }
    }

    /// `false`: there is no room.
    #[inline]
    fn push(&mut self, tag: u32, bytes: &[u8]) -> bool {
        let end = self.used + 1 + bytes.len().div_ceil(8);
        let Some([head, words @ ..]) = self.words[..self.room].get_mut(self.used..end) else { return false };
        *head = (u64::from(tag) | (bytes.len() as u64) << 32).to_le();
        let (whole, last) = bytes.as_chunks();
        for (word, bytes) in words.iter_mut().zip(whole) {
            *word = u64::from_ne_bytes(*bytes);
        }
        if !last.is_empty() {
            bytemuck::bytes_of_mut(&mut words[whole.len()])[..last.len()].copy_from_slice(last);
        }
        self.used = end;
        true
    }
}

/// What is not taken in yet of a packet with several messages.
#[derive(Debug)]
pub(super) struct Batch {
    from: Rank,
    context: u32,
    grant: u32,
    at: usize,
    end: usize,
    /// Longer than a packet, as an EAGER comes with its first bytes.
    bytes: [u8; ROOM + SHORT],
}

impl Batch {
    /// The tag, the place and the length of the next message; `None`: there is none that makes sense.
    #[inline]
    fn next(&mut self) -> Option<(u32, usize, usize)> {
        let head = u64::from_le_bytes(*self.bytes[self.at..self.end].first_chunk()?);
        let (start, len) = (self.at + 8, (head >> 32) as usize);
        self.at = start + len.next_multiple_of(8);
        (self.at <= self.end).then_some((head as u32, start, len))
    }
}

impl<S> Engine<S> {
    /// Sends the first messages of a list in one packet, if there are several that are short and for the
    /// rank of the first: how many. The others, and those that cannot be sent now, are
    /// [sent by themselves](Self::send_eager).
    pub(crate) fn send_batch(
        &mut self,
        to: Rank,
        (context, list): (u32, &[Listed<'_>]),
        packet_max: usize,
        post: impl FnOnce(Rank, &[u8], &[u8]) -> PostOutcome,
    ) -> usize {
        let goes_along = |(bytes, rank, _): &Listed<'_>| bytes.len() <= LONGEST && *rank == list[0].1;
        if list.len() < 2 || !list[..2].iter().all(goes_along) {
            return 0;
        }
        let (class, peer) = (Class::of(context), self.peer(to));
        let Some(grant) = peer.may_pass(class, 0) else { return 0 };
        let mut packing = Packing::new(packet_max);
        let (mut count, mut cost) = (0, 0);
        for (bytes, _, tag) in list.iter().take_while(|one| goes_along(one)) {
            let more = cost + units(bytes.len());
            if !peer.can_spend(class, more) || !packing.push(tag.0, bytes) {
                break;
            }
            (count, cost) = (count + 1, more);
        }
        let (head, body) =
            (Packet::Batch { context }.encode(grant), bytemuck::cast_slice(&packing.words[..packing.used]));
        if count < 2 {
            return 0;
        }
        let PostOutcome::Sent(channel) = post(to, head.bytes(), body) else { return 0 };
        peer.spend(cost);
        for (bytes, ..) in &list[..count] {
            peer.sent_by(channel).add(bytes.len() as u64);
        }
        list[..count].iter().for_each(|(bytes, ..)| self.sent.eager(channel, bytes.len()));
        count
    }

    /// A packet with several messages has come, with so many bytes of them.
    pub(super) fn batch_arrived(
        &mut self,
        from: Rank,
        (context, grant): (u32, u32),
        len: usize,
        read: impl FnOnce(&mut [u8]),
        direct: &mut Direct<'_>,
    ) {
        debug_assert!(!self.has_batch(), "the rest comes first");
        if !len.is_multiple_of(8) || !(8..=ROOM).contains(&len) {
            return self.violated(from);
        }
        let new = || Box::new(Batch { from, context, grant, at: 0, end: 0, bytes: [0; ROOM + SHORT] });
        let batch = self.batch.get_or_insert_with(new);
        (batch.from, batch.context, batch.grant, batch.at, batch.end) = (from, context, grant, 0, len);
        read(&mut batch.bytes[..len]);
        self.next_of_batch(direct);
    }

    /// Whether a packet with several messages is not taken in whole. Its
    /// [next message](Self::next_of_batch) comes before any other packet.
    #[inline]
    pub(crate) fn has_batch(&self) -> bool {
        self.batch.as_ref().is_some_and(|batch| batch.at < batch.end)
    }

    /// Takes in the next message of the packet.
    pub(crate) fn next_of_batch(&mut self, direct: &mut Direct<'_>) {
        let Some(mut batch) = self.batch.take() else { return };
        match batch.next() {
            Some((tag, start, len)) => {
                let Batch { from, context, grant, bytes, .. } = &*batch;
                let envelope = Envelope { context: *context, source: from.0, tag };
                let message = &bytes[start..];
                let first = message.first_chunk().unwrap_or(&NONE);
                let read = |into: &mut [u8]| into.copy_from_slice(&message[..into.len()]);
                self.eager(envelope, *grant, (first, len), read, direct);
            }
            None => {
                batch.end = 0;
                self.violated(batch.from);
            }
        }
        self.batch = Some(batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_packed_and_taken_apart() {
        for lens in [&[8_usize; 30][..], &[0, 1, 7, 9, 128, 64, 0, 3], &[128, 128, 128], &[0; 61]] {
            let messages: Vec<Vec<u8>> = (0..).zip(lens).map(|(at, len)| vec![at; *len]).collect();
            let mut packing = Packing::new(usize::MAX);
            for (tag, message) in (7..).zip(&messages) {
                assert!(packing.push(tag, message), "{lens:?}");
            }
            let packed: &[u8] = bytemuck::cast_slice(&packing.words[..packing.used]);
            let mut bytes = [0xee; ROOM + SHORT];
            bytes[..packed.len()].copy_from_slice(packed);
            let mut batch = Batch { from: Rank(0), context: 0, grant: 0, at: 0, end: packed.len(), bytes };
            for (tag, message) in (7..).zip(&messages) {
                let (found, start, len) = batch.next().unwrap();
                assert_eq!((found, &batch.bytes[start..][..len]), (tag, &**message));
            }
            assert_eq!(batch.at, batch.end);
            assert!(packing.used < WORDS || !packing.push(0, &[]));
        }
        let mut short = Packing::new(BATCH_HEAD + 32 + 7);
        assert_eq!([8, 8, 0].map(|len| short.push(0, &[1; 8][..len])), [true, true, false]);
    }
}
