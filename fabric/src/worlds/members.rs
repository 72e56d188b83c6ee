//! The ranks of a world, and their collective segments.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::Poll;

use onesided_remote_memory::{Fault, FaultKind, Patience, Rank};

use crate::{Fabric, Segment, SegmentKey};

/// The ranks of a world, in the world's order, and the segment of each for collectives. `None`: all ranks of
/// the fabric, with their world segments.
pub(crate) struct Members<F: Fabric>(Option<Subset<F>>);

struct Subset<F: Fabric> {
    /// This rank's number in the world.
    me: u32,
    /// Kept allocated for as long as the world.
    own: F::Segment,
    /// By world rank; a key contains the fabric's rank.
    keys: Box<[SegmentKey]>,
    reached: Box<[OnceLock<F::Segment>]>,
}

impl<F: Fabric> Members<F> {
    pub(crate) const fn all() -> Self {
        Self(None)
    }

    /// Some ranks: their segments, in rank order. `None`: this rank is not among them.
    pub(crate) fn chosen(own: F::Segment, keys: Vec<SegmentKey>) -> Option<Self> {
        let me = keys.iter().position(|key| key.rank == own.rank())? as u32;
        let reached = keys.iter().map(|_| OnceLock::new()).collect();
        Some(Self(Some(Subset { me, own, keys: keys.into(), reached })))
    }

    pub(crate) fn me(&self, fabric: &F) -> u32 {
        self.0.as_ref().map_or_else(|| fabric.rank().0, |subset| subset.me)
    }

    pub(crate) fn size(&self, fabric: &F) -> u32 {
        self.0.as_ref().map_or_else(|| fabric.size(), |subset| subset.keys.len() as u32)
    }

    /// Whether it is the world of all ranks in the fabric's order, not a part of another.
    pub(crate) const fn are_all(&self) -> bool {
        self.0.is_none()
    }

    /// The fabric's rank of a world rank.
    pub(crate) fn named_by_fabric(&self, fabric: &F, rank: u32) -> Option<Rank> {
        let Some(subset) = &self.0 else { return (rank < fabric.size()).then_some(Rank(rank)) };
        subset.keys.get(rank as usize).map(|key| key.rank)
    }

    /// The world's rank of a fabric rank.
    pub(crate) fn named_by_world(&self, rank: Rank) -> Option<u32> {
        let Some(subset) = &self.0 else { return Some(rank.0) };
        subset.keys.iter().position(|key| key.rank == rank).map(|at| at as u32)
    }

    /// Translates the rank of a fault to the world's; a rank outside the world is omitted.
    pub(crate) fn translate(&self, fault: Fault) -> Fault {
        let Some(rank) = fault.rank().filter(|_| !self.are_all()) else { return fault };
        let translated = match self.named_by_world(rank) {
            Some(rank) => Fault::of(fault.kind(), Rank(rank)),
            None => Fault::new(fault.kind()),
        };
        translated.with_detail(fault.detail())
    }

    /// A rank's segment for collectives, opened when first needed.
    pub(crate) fn segment(&self, fabric: &F, rank: u32) -> Result<F::Segment, Fault> {
        let Some(subset) = &self.0 else { return fabric.world_segment(Rank(rank)).map_err(|error| error.fault()) };
        if rank == subset.me {
            return Ok(subset.own.clone());
        }
        let reached = subset.reached.get(rank as usize).ok_or(Fault::new(FaultKind::NoSuchRank))?;
        if let Some(segment) = reached.get() {
            return Ok(segment.clone());
        }
        let segment = fabric.open(&subset.keys[rank as usize]).map_err(|error| error.fault())?;
        Ok(reached.get_or_init(|| segment).clone())
    }

    /// The first rank of this world that failed, as a fabric rank.
    pub(crate) fn failed_rank(&self, fabric: &F) -> Option<Rank> {
        let mut failed = (0..).map_while(|index| fabric.failure(index));
        failed.find(|rank| self.named_by_world(*rank).is_some())
    }

    /// Waits until the own word satisfies the predicate, a rank of this world dies, or `from`
    /// leaves.
    pub(crate) async fn wait_until<'f, P>(
        &'f self,
        fabric: &'f F,
        own: F::Word<'f>,
        predicate: P,
        (from, deadline): (Rank, u64),
    ) -> Result<u64, Fault>
    where
        P: Fn(u64) -> bool + Unpin + Send + 'f,
    {
        let mut wait = fabric.wait_until(own, predicate, Patience::with_failures(from).and_until(deadline));
        poll_fn(|cx| {
            // Checked before the word, which then contains everything that the dead rank wrote: a
            // write before the death counts.
            let dead = self.failed_rank(fabric);
            match (Pin::new(&mut wait).poll(cx), dead) {
                (Poll::Pending | Poll::Ready(Err(_)), Some(dead)) => {
                    Poll::Ready(Err(Fault::of(FaultKind::PeerDied, dead)))
                }
                (polled, _) => polled,
            }
        })
        .await
    }
}

impl<F: Fabric> std::fmt::Debug for Members<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            None => f.write_str("all ranks"),
            Some(subset) => f.debug_list().entries(subset.keys.iter().map(|key| key.rank)).finish(),
        }
    }
}
