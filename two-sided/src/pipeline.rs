//! The pipeline of a long message on shared memory: its sender announces it, and copies it into
//! registered memory by chunks; its receiver copies each chunk out while the next one comes in. So
//! two copies take little longer than one.
//!
//! Behind the message lies a word that tells how many bytes are there.

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Fabric, SegmentKey};

/// The chunks of a message: a quarter of it within these bounds.
const CHUNK: std::ops::RangeInclusive<usize> = (16 << 10)..=(256 << 10);

/// What stands for a count if the sender cannot go on.
const FAILED: u64 = u64::MAX;

const LINE: u64 = 64;

/// The memory that a message takes with its word, in bytes.
pub(crate) const fn room(len: u64) -> u64 {
    len.next_multiple_of(LINE) + LINE
}

const fn count_at(key: &SegmentKey) -> u64 {
    key.len.next_multiple_of(LINE)
}

/// Whether a message to another rank goes by a pipeline.
pub(crate) fn fits<F: Fabric>(fabric: &F, len: usize) -> bool {
    fabric.capabilities().completes_at_post && len >= 2 * CHUNK.start()
}

/// Resets the count, before the message is announced.
pub(crate) fn reset<F: Fabric>(fabric: &F, memory: &F::Segment, key: &SegmentKey) -> Result<(), Fault> {
    fabric.store(fabric.word_in(memory, count_at(key))?, 0)
}

/// Copies a message in.
pub(crate) fn write<F: Fabric>(fabric: &F, memory: &F::Segment, key: &SegmentKey, bytes: &[u8]) -> Result<(), Fault> {
    let count = fabric.word_in(memory, count_at(key))?;
    let chunk = (bytes.len() / 4).clamp(*CHUNK.start(), *CHUNK.end());
    let mut at = 0;
    for chunk in bytes.chunks(chunk) {
        if let Err(fault) = fabric.write_own(memory, at, chunk) {
            fabric.store(count, FAILED)?;
            return Err(fault);
        }
        at += chunk.len() as u64;
        fabric.store(count, at)?;
    }
    Ok(())
}

/// The key of a message's memory with its count.
pub(crate) const fn with_count(key: &SegmentKey) -> SegmentKey {
    SegmentKey { len: room(key.len), ..*key }
}

/// How many bytes of a message are there, or why no more will be.
async fn there<F: Fabric>(fabric: &F, memory: &F::Segment, key: &SegmentKey) -> Result<u64, Fault> {
    let ended = fabric.liveness(key.rank).needed(key.rank);
    // The liveness was read before the count.
    match fabric.read(fabric.word_in(memory, count_at(key))?).await? {
        count if count > key.len => Err(Fault::of(FaultKind::Protocol, key.rank)),
        count if count == key.len => Ok(count),
        count => ended.map(|()| count),
    }
}

/// Whether a read of the whole message would not wait.
pub(crate) async fn is_whole<F: Fabric>(fabric: &F, memory: &F::Segment, key: &SegmentKey) -> Result<bool, Fault> {
    Ok(there(fabric, memory, key).await? == key.len)
}

/// Reads a message, or its beginning, behind its sender.
pub(crate) async fn read<F: Fabric>(
    fabric: &F,
    memory: &F::Segment,
    key: &SegmentKey,
    into: &mut [u8],
) -> Result<(), Fault> {
    let mut done = 0;
    while done < into.len() {
        let end = usize::try_from(there(fabric, memory, key).await?).unwrap_or(usize::MAX).min(into.len());
        if end > done {
            fabric.get(memory, done as u64, &mut into[done..end]).await?;
            done = end;
        } else {
            fabric.pause(fabric.word_in(memory, count_at(key))?, 1_000).await;
        }
    }
    Ok(())
}
