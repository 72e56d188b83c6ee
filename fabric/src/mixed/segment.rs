//! A segment registered with the card and, at a rank of this host, mapped.

use onesided_remote_memory::{Fault, FaultKind, Rank};

use crate::mixed::Mixed;
use crate::shm::{ShmSegment, ShmWord};
use crate::verbs::{VerbsSegment, VerbsWord};
use crate::{Error, Segment, SegmentKey};

/// Memory of a rank: accessed by the card and, if its owner is on this host, by the CPU.
#[derive(Clone, Debug)]
pub struct MixedSegment {
    pub(super) card: VerbsSegment,
    pub(super) mapped: Option<ShmSegment>,
}

/// A resolved word.
#[derive(Clone, Copy, Debug)]
pub struct MixedWord<'f>(pub(super) AgentWord<'f>);

/// Which agent executes operations on a word.
#[derive(Clone, Copy, Debug)]
pub(super) enum AgentWord<'f> {
    Card(VerbsWord<'f>),
    /// A word that only ranks of the owner's host access: see
    /// [`same_host_word`](crate::Fabric::same_host_word).
    Cpu(ShmWord<'f>),
}

impl<'f> MixedWord<'f> {
    /// The card's word, if the card is the agent.
    pub(super) const fn card(self) -> Option<VerbsWord<'f>> {
        match self.0 {
            AgentWord::Card(word) => Some(word),
            AgentWord::Cpu(_) => None,
        }
    }
}

impl Segment for MixedSegment {
    fn rank(&self) -> Rank {
        self.card.rank()
    }

    fn len(&self) -> u64 {
        self.card.len()
    }

    fn key(&self) -> SegmentKey {
        self.card.key()
    }
}

impl Mixed {
    /// Publishes an own segment so that the ranks of this host can map it.
    pub(super) fn publish(&self, card: VerbsSegment) -> Result<MixedSegment, Error> {
        let SegmentKey { rank, region, len, .. } = card.key();
        let mapped = if self.host_peer(rank).is_some() {
            let failed = |fault: Fault| Error::operation("publish a segment")(fault);
            let mapping = card.mapping().map_err(failed)?;
            let exchange = self.paths.exchange.clone();
            exchange.publish(region, mapping)?;
            Some(ShmSegment::new(mapping.clone(), (0, len), (rank, region), Some(exchange)).map_err(failed)?)
        } else {
            None
        };
        Ok(MixedSegment { card, mapped })
    }

    /// A peer's segment that the card has opened; mapped if its owner is on this host.
    pub(super) fn map(&self, card: VerbsSegment) -> Result<MixedSegment, Error> {
        let SegmentKey { rank, region, len, .. } = card.key();
        let mapped = if self.host_peer(rank).is_some() {
            match self.paths.exchange.fetch(rank, region) {
                Ok(memory) => {
                    let segment = ShmSegment::new(memory, (0, len), (rank, region), None);
                    Some(segment.map_err(Error::operation("map a peer's segment"))?)
                }
                // The card has just found it, so it is user memory, which only its owner can map.
                Err(error) if error.fault().kind() == FaultKind::NoSuchRegion => None,
                Err(error) => return Err(error.into()),
            }
        } else {
            None
        };
        Ok(MixedSegment { card, mapped })
    }
}
