//! Barrier and all-gather, over words and puts alone: what works on one fabric works on all.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;

use onesided_remote_memory::{Fault, FaultKind, Notify, Rank};

use crate::members::Members;
use crate::{Fabric, Segment, WORLD_BYTES};

/// Rounds of the dissemination barrier: enough for [`Rank::LIMIT`].
const ROUNDS: u64 = 24;
/// Where the two gather buffers begin in the world segment: they are used in turn.
const GATHER: [u64; 2] = [1024, 1024 + 8 + GATHER_BYTES];
/// The most that one rank contributes to a [`Collective::all_gather`], in bytes: the first word is the length.
pub(crate) const GATHER_BYTES: u64 = 1024;

/// For how long after a failed write the news of a death may come, in nanoseconds.
const NEWS: u64 = 1_000_000_000;

const _: () = assert!(ROUNDS * 8 <= GATHER[0] && GATHER[1] + 8 + GATHER_BYTES <= WORLD_BYTES);

/// The state of a rank's collectives. Every rank calls the same collectives in the same order.
#[derive(Debug)]
pub(crate) struct Collective<F: Fabric> {
    pub(crate) members: Members<F>,
    barriers: AtomicU64,
    gathers: AtomicU64,
    broken: AtomicBool,
}

impl<F: Fabric> Collective<F> {
    pub(crate) const fn new(members: Members<F>) -> Self {
        let (barriers, gathers) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { members, barriers, gathers, broken: AtomicBool::new(false) }
    }

    /// The dissemination barrier (Hensgen, Finkel, Manber 1988): in round r each rank signals the one 2^r after it and
    /// waits for the one 2^r before it. A slot holds the number of the last barrier its one writer came to, so a peer
    /// that is already in the next barrier harms nothing.
    pub(crate) async fn barrier(&self, fabric: &F) -> Result<(), Fault> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(Fault::new(FaultKind::Closed));
        }
        let epoch = self.barriers.fetch_add(1, Ordering::Relaxed) + 1;
        let result = self.rounds(fabric, epoch).await;
        // A rank that left in the middle has not signalled the others, and its numbers are out of step.
        self.broken.fetch_or(result.is_err(), Ordering::Relaxed);
        result
    }

    /// Lets no later collective of this rank succeed: it walked away from one.
    pub(crate) fn give_up(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }

    /// Everybody's contribution, by rank.
    ///
    /// One barrier, between what all write and what all read. Whoever writes its buffer again has passed the barrier of the
    /// gather between, which everybody entered after having read. A second barrier, where memory goes with its rank:
    /// whoever returns may leave.
    pub(crate) async fn all_gather(&self, fabric: &F, mine: &[u8]) -> Result<Vec<Vec<u8>>, Fault> {
        if mine.len() as u64 > GATHER_BYTES {
            return Err(Fault::new(FaultKind::TooLong).with_detail(mine.len() as u32));
        }
        let members = &self.members;
        let own = members.segment(fabric, members.me(fabric))?;
        let mut buffer = vec![0; 8 + mine.len()];
        buffer[..8].copy_from_slice(&(mine.len() as u64).to_le_bytes());
        buffer[8..].copy_from_slice(mine);
        let place = GATHER[(self.gathers.fetch_add(1, Ordering::Relaxed) % 2) as usize];
        fabric.write_own(&own, place, &buffer)?;
        let survives = fabric.capabilities().memory_survives;
        // Held from before the barrier on, memory that survives can be read whatever its owner does after it.
        let held = if survives { self.all_segments(fabric) } else { Ok(Vec::new()) };
        self.barrier(fabric).await?;
        if survives {
            return self.read_all(fabric, held?, place).await;
        }
        // Whatever this rank could not read, the others wait for it at the end.
        let all = match self.all_segments(fabric) {
            Ok(segments) => self.read_all(fabric, segments, place).await,
            Err(fault) => Err(fault),
        };
        self.barrier(fabric).await?;
        all
    }

    fn all_segments(&self, fabric: &F) -> Result<Vec<F::Segment>, Fault> {
        (0..self.members.size(fabric)).map(|rank| self.members.segment(fabric, rank)).collect()
    }

    async fn read_all(&self, fabric: &F, segments: Vec<F::Segment>, place: u64) -> Result<Vec<Vec<u8>>, Fault> {
        let mut all = Vec::with_capacity(segments.len());
        for from in segments {
            let mut buffer = [0; 8 + GATHER_BYTES as usize];
            fabric.get(&from, place, &mut buffer).await?;
            let len = buffer[..8].iter().rev().fold(0, |len, byte| len << 8 | u64::from(*byte));
            if len > GATHER_BYTES {
                return Err(Fault::of(FaultKind::Protocol, from.rank()));
            }
            all.push(buffer[8..8 + len as usize].to_vec());
        }
        Ok(all)
    }

    /// Reaches whom this rank signals in a barrier, so that no barrier fails for want of that.
    pub(crate) fn reach_neighbours(&self, fabric: &F) -> Result<(), Fault> {
        let (me, size) = (self.members.me(fabric), self.members.size(fabric));
        let mut distances =
            std::iter::successors(Some(1), |distance| Some(distance * 2)).take_while(|distance| *distance < size);
        distances.try_for_each(|distance| self.members.segment(fabric, (me + distance) % size).map(drop))
    }

    async fn rounds(&self, fabric: &F, epoch: u64) -> Result<(), Fault> {
        let members = &self.members;
        let (me, size) = (members.me(fabric), members.size(fabric));
        let own = members.segment(fabric, me)?;
        let mut distance = 1;
        let mut slot = 0;
        while distance < size {
            let to = members.segment(fabric, (me + distance) % size)?;
            let mut told = Some(fabric.write(fabric.word_in(&to, slot)?, epoch, Notify::Yes));
            let from = (me + size - distance) % size;
            let from = members.named_by_fabric(fabric, from).ok_or(Fault::new(FaultKind::NoSuchRank))?;
            let own = fabric.word_in(&own, slot)?;
            let mut wait = pin!(members.wait_until(fabric, own, move |seen| seen >= epoch, (from, u64::MAX)));
            let mut untold = None;
            let waited = poll_fn(|cx| {
                // Whoever cannot be told, over a broken connection, waits for ever, and so do those who wait for it.
                match told.as_mut().map(|told| Pin::new(told).poll(cx)) {
                    Some(Poll::Ready(Err(fault))) => {
                        untold = Some(fault);
                        return Poll::Ready(Err(fault));
                    }
                    Some(Poll::Ready(Ok(_))) => told = None,
                    Some(Poll::Pending) | None => {}
                }
                wait.as_mut().poll(cx)
            })
            .await;
            if let Some(fault) = untold {
                return Err(self.cause(fabric, own, (from, fault)).await);
            }
            waited?;
            distance *= 2;
            slot += 8;
        }
        Ok(())
    }

    /// What made a write fail, if a death did: the card of a rank that dies refuses before its death is known.
    async fn cause<'f>(&'f self, fabric: &'f F, own: F::Word<'f>, (from, fault): (Rank, Fault)) -> Fault {
        let until = fabric.now().saturating_add(NEWS);
        match self.members.wait_until(fabric, own, |_| false, (from, until)).await {
            Err(death) if death.kind() == FaultKind::PeerDied => death,
            _ => fault,
        }
    }
}
