//! A segment that is registered with the card and, at a rank of this host, mapped.

use onesided_remote_memory::{Fault, FaultKind, Rank};

use crate::mixed::Mixed;
use crate::shm::{ShmSegment, ShmWord};
use crate::verbs::{VerbsSegment, VerbsWord};
use crate::{Error, Segment, SegmentKey};

/// Memory of a rank, one's own or a peer's: reached by the card, and where its owner is on this host by the CPU as well.
#[derive(Clone, Debug)]
pub struct MixedSegment {
    pub(super) card: VerbsSegment,
    pub(super) near: Option<ShmSegment>,
}

/// A word that was resolved.
#[derive(Clone, Copy, Debug)]
pub struct MixedWord<'f>(pub(super) AgentWord<'f>);

/// Who carries out operations on a word.
#[derive(Clone, Copy, Debug)]
pub(super) enum AgentWord<'f> {
    Card(VerbsWord<'f>),
    /// Of a word that only ranks of the owner's host reach: see [`same_host_word`](crate::Fabric::same_host_word).
    Cpu(ShmWord<'f>),
}

impl<'f> MixedWord<'f> {
    /// As the card reaches it, if it is the one that does.
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
    /// One's own segment, so that the ranks of this host can map it.
    pub(super) fn publish(&self, card: VerbsSegment) -> Result<MixedSegment, Error> {
        let SegmentKey { rank, region, len, .. } = card.key();
        let near = if self.near(rank).is_some() {
            let failed = |fault: Fault| Error::operation("publish a segment")(fault);
            let mapping = card.mapping().map_err(failed)?;
            let exchange = self.ways.exchange.clone();
            exchange.publish(region, mapping)?;
            Some(ShmSegment::new(mapping.clone(), (0, len), (rank, region), Some(exchange)).map_err(failed)?)
        } else {
            None
        };
        Ok(MixedSegment { card, near })
    }

    /// A peer's segment that the card can reach, mapped if its owner is on this host.
    pub(super) fn map(&self, card: VerbsSegment) -> Result<MixedSegment, Error> {
        let SegmentKey { rank, region, len, .. } = card.key();
        let near = if self.near(rank).is_some() {
            match self.ways.exchange.fetch(rank, region) {
                Ok(memory) => {
                    let segment = ShmSegment::new(memory, (0, len), (rank, region), None);
                    Some(segment.map_err(Error::operation("map a peer's segment"))?)
                }
                // The card has just found it, so it is memory that its user has lent, which nobody else can map.
                Err(error) if error.fault().kind() == FaultKind::NoSuchRegion => None,
                Err(error) => return Err(error),
            }
        } else {
            None
        };
        Ok(MixedSegment { card, near })
    }
}
