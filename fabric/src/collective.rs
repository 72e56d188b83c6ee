//! Barrier and all-gather, over words and puts alone: what works on one fabric works on all.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;

use remote_memory::{Fault, FaultKind, Notify, Patience, Rank};

use crate::{Fabric, WORLD_BYTES};

/// Rounds of the dissemination barrier: enough for [`Rank::LIMIT`].
const ROUNDS: u64 = 24;
/// Where the gather buffer begins in the world segment.
const GATHER: u64 = 1024;
/// The most that one rank contributes to an [`Collective::all_gather`], in bytes: the first word is the length.
pub(crate) const GATHER_BYTES: u64 = 1024;

const _: () = assert!(ROUNDS * 8 <= GATHER && GATHER + 8 + GATHER_BYTES <= WORLD_BYTES);

/// The state of a rank's collectives. Every rank calls the same collectives in the same order.
#[derive(Debug, Default)]
pub(crate) struct Collective {
    barriers: AtomicU64,
    broken: AtomicBool,
}

impl Collective {
    /// The dissemination barrier (Hensgen, Finkel, Manber 1988): in round r each rank signals the one 2^r after it and
    /// waits for the one 2^r before it. A slot holds the number of the last barrier its one writer came to, so a peer
    /// that is already in the next barrier harms nothing.
    pub(crate) async fn barrier<F: Fabric>(&self, fabric: &F, deadline: u64) -> Result<(), Fault> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(Fault::new(FaultKind::Closed));
        }
        let epoch = self.barriers.fetch_add(1, Ordering::Relaxed) + 1;
        let result = rounds(fabric, epoch, deadline).await;
        // A rank that left in the middle has not signalled the others, and its numbers are out of step.
        self.broken.fetch_or(result.is_err(), Ordering::Relaxed);
        result
    }

    /// Everybody's contribution, by rank. Behind a second barrier, because whoever returns may write its buffer again, or
    /// leave and take its memory along.
    pub(crate) async fn all_gather<F: Fabric>(&self, fabric: &F, mine: &[u8]) -> Result<Vec<Vec<u8>>, Fault> {
        if mine.len() as u64 > GATHER_BYTES {
            return Err(Fault::new(FaultKind::TooLong).with_detail(mine.len() as u32));
        }
        let own = segment(fabric, fabric.rank())?;
        let mut buffer = vec![0; 8 + mine.len()];
        buffer[..8].copy_from_slice(&(mine.len() as u64).to_le_bytes());
        buffer[8..].copy_from_slice(mine);
        fabric.write_own(&own, GATHER, &buffer)?;
        self.barrier(fabric, u64::MAX).await?;
        let mut all = Vec::with_capacity(fabric.size() as usize);
        for rank in (0..fabric.size()).map(Rank) {
            let from = segment(fabric, rank)?;
            let mut buffer = vec![0; 8 + GATHER_BYTES as usize];
            fabric.get(&from, GATHER, &mut buffer).await?;
            let len = buffer[..8].iter().rev().fold(0, |len, byte| len << 8 | u64::from(*byte));
            if len > GATHER_BYTES {
                return Err(Fault::of(FaultKind::Protocol, rank));
            }
            all.push(buffer[8..8 + len as usize].to_vec());
        }
        self.barrier(fabric, u64::MAX).await?;
        Ok(all)
    }
}

async fn rounds<F: Fabric>(fabric: &F, epoch: u64, deadline: u64) -> Result<(), Fault> {
    let (me, size) = (fabric.rank().0, fabric.size());
    let own = segment(fabric, Rank(me))?;
    let mut distance = 1;
    let mut slot = 0;
    while distance < size {
        let to = segment(fabric, Rank((me + distance) % size))?;
        let mut told = Some(fabric.write(fabric.word_in(&to, slot)?, epoch, Notify::Yes));
        let from = Rank((me + size - distance) % size);
        let patience = Patience::on_all(from).and_until(deadline);
        let mut wait = fabric.wait_until(fabric.word_in(&own, slot)?, move |seen| seen >= epoch, patience);
        poll_fn(|cx| {
            // Whoever cannot be told, over a broken connection, waits for ever, and so do those who wait for it.
            match told.as_mut().map(|told| Pin::new(told).poll(cx)) {
                Some(Poll::Ready(Err(fault))) => return Poll::Ready(Err(fault)),
                Some(Poll::Ready(Ok(_))) => told = None,
                Some(Poll::Pending) | None => {}
            }
            Pin::new(&mut wait).poll(cx)
        })
        .await?;
        distance *= 2;
        slot += 8;
    }
    Ok(())
}

fn segment<F: Fabric>(fabric: &F, rank: Rank) -> Result<F::Segment, Fault> {
    fabric.world_segment(rank).map_err(|error| error.fault())
}
