//! The all-gather of Bruck et al. (IEEE TPDS 8(11), 1997), in the rounds of the dissemination
//! barrier.
//!
//! Before the round of distance `d` a rank has the blocks of the `d` ranks up to itself, its own
//! first. It publishes those that the rank `d` after it lacks, and signals it; then it reads those of
//! the rank `d` before it. So each rank speaks to two ranks a round, and to no others.

use onesided_remote_memory::{Fault, FaultKind};

use super::{GATHER_BYTES, PUBLISHED_AT, slot};
use crate::{Fabric, Segment, SegmentKey};

/// The length of a block: that of its contribution, before it.
const HEADER: usize = 2;
/// What a rank publishes in a round: a fault or 0, the number of bytes, and the key of the segment
/// that they are in if they do not fit [`BYTES_AT`].
const ENTRY: u64 = 48;
/// The offset of short bytes in the segment for collectives: each round publishes a prefix of them.
const BYTES_AT: u64 = PUBLISHED_AT + super::ROUNDS * ENTRY;
/// The most of them: a block.
const SHORT: usize = HEADER + GATHER_BYTES as usize;

pub(super) const END: u64 = BYTES_AT + SHORT as u64;

/// What a rank has gathered so far.
pub(super) struct Gathering {
    /// The blocks, or the fault that keeps this rank from more of them.
    blocks: Result<Vec<u8>, Fault>,
    /// Where each block ends.
    ends: Vec<usize>,
    /// How many bytes are at [`BYTES_AT`].
    short: usize,
}

impl Gathering {
    /// Before the first round.
    pub(super) fn new(mine: &[u8]) -> Self {
        let block = [&(mine.len() as u16).to_le_bytes(), mine].concat();
        Self { ends: vec![block.len()], blocks: Ok(block), short: 0 }
    }

    /// Publishes the first `count` blocks for the round of this distance, or why not. Others may read
    /// the segment that it returns until all ranks have met again.
    pub(super) fn publish<F: Fabric>(
        &mut self,
        fabric: &F,
        own: &F::Segment,
        distance: u32,
        count: u32,
    ) -> Result<Option<F::Segment>, Fault> {
        let mut entry = [0; ENTRY as usize];
        let mut apart = None;
        match self.published(fabric, own, count) {
            Ok((len, segment)) => {
                entry[8..16].copy_from_slice(&(len as u64).to_le_bytes());
                if let Some(segment) = segment {
                    entry[16..16 + SegmentKey::BYTES].copy_from_slice(&segment.key().to_bytes());
                    apart = Some(segment);
                }
            }
            Err(fault) => {
                entry[..8].copy_from_slice(&fault.to_bits().to_le_bytes());
                self.blocks = Err(fault);
            }
        }
        fabric.write_direct(own, entry_at(distance), &entry)?;
        Ok(apart)
    }

    /// Puts the first `count` blocks where others can read them: their length, and their segment if
    /// they are too long for this rank's own.
    fn published<F: Fabric>(
        &mut self,
        fabric: &F,
        own: &F::Segment,
        count: u32,
    ) -> Result<(usize, Option<F::Segment>), Fault> {
        let blocks = self.blocks.as_deref().map_err(|fault| *fault)?;
        let len = self.ends[count as usize - 1];
        if len > SHORT {
            let segment = fabric.allocate(len as u64).map_err(|error| error.fault())?;
            fabric.write_direct(&segment, 0, &blocks[..len])?;
            return Ok((len, Some(segment)));
        }
        if len > self.short {
            fabric.write_direct(own, BYTES_AT + self.short as u64, &blocks[self.short..len])?;
            self.short = len;
        }
        Ok((len, None))
    }

    /// Adds the first `count` blocks of a rank that has published them, given its segment for
    /// collectives.
    pub(super) async fn read<F: Fabric>(
        &mut self,
        fabric: &F,
        from: Result<F::Segment, Fault>,
        distance: u32,
        count: u32,
    ) {
        let Ok(blocks) = &mut self.blocks else { return };
        let read = async {
            let from = from?;
            let bytes = read(fabric, &from, distance, count).await?;
            let known = blocks.len();
            blocks.extend(&bytes);
            let mut at = 0;
            for _ in 0..count {
                at = end_of_block(&bytes, at).ok_or(Fault::of(FaultKind::Protocol, from.rank()))?;
                self.ends.push(known + at);
            }
            if at < bytes.len() { Err(Fault::of(FaultKind::Protocol, from.rank())) } else { Ok(()) }
        };
        if let Err(fault) = read.await {
            self.blocks = Err(fault);
        }
    }

    /// The contributions by rank.
    pub(super) fn all(self, me: u32, size: u32) -> Result<Vec<Vec<u8>>, Fault> {
        let blocks = self.blocks?;
        let mut all = vec![Vec::new(); size as usize];
        let mut begin = 0;
        for (distance, end) in (0..size).zip(self.ends) {
            all[((me + size - distance) % size) as usize] = blocks[begin + HEADER..end].to_vec();
            begin = end;
        }
        Ok(all)
    }
}

async fn read<F: Fabric>(fabric: &F, from: &F::Segment, distance: u32, count: u32) -> Result<Vec<u8>, Fault> {
    let wrong = Fault::of(FaultKind::Protocol, from.rank());
    let mut entry = [0; ENTRY as usize];
    fabric.get(from, entry_at(distance), &mut entry).await?;
    let word = |at: usize| entry[at..at + 8].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    if word(0) != 0 {
        return Err(Fault::from_bits(word(0)).unwrap_or(wrong));
    }
    if word(8) > SHORT as u64 * u64::from(count) {
        return Err(wrong);
    }
    let no_memory = |_| Fault::of(FaultKind::NoMemory, fabric.rank());
    let mut bytes = onesided_job::zeroed(word(8) as usize).map_err(no_memory)?;
    if bytes.len() <= SHORT {
        fabric.get(from, BYTES_AT, &mut bytes).await?;
    } else {
        let key = SegmentKey::from_bytes(&entry[16..16 + SegmentKey::BYTES]).ok_or(wrong)?;
        let segment = fabric.open(&key).map_err(|error| error.fault())?;
        fabric.get(&segment, 0, &mut bytes).await?;
    }
    Ok(bytes)
}

/// Where the block at an offset ends, if it is whole.
fn end_of_block(bytes: &[u8], at: usize) -> Option<usize> {
    let header = bytes.get(at..)?.first_chunk::<HEADER>()?;
    let end = at + HEADER + usize::from(u16::from_le_bytes(*header));
    (end <= bytes.len()).then_some(end)
}

/// The offset of what a rank publishes in the round of a distance.
const fn entry_at(distance: u32) -> u64 {
    PUBLISHED_AT + slot(distance) / 8 * ENTRY
}
