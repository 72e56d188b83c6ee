//! Splitting a world.

use onesided_remote_memory::{Collective, Fault, FaultKind, Rank, debug};

use crate::{Call, Error, Fabric, Limit, Segment, SegmentKey, WORLD_BYTES, World};

/// A pending split of a world: `.wait()` blocks, `.await` suspends, `.test()` polls once. Does
/// nothing unless waited on or polled. See [`World::split`].
///
/// # Cancel safety
/// Not cancel safe: collective, as a [barrier](World::barrier).
#[must_use = "a world is divided only when that is waited for"]
pub struct Split<'w, F: Fabric> {
    world: &'w World<F>,
    color: u32,
    key: u32,
    limit: Limit<'w, F>,
    call: Call<'w, (), Result<World<F>, Error>>,
}

/// A rank's contribution: color and key, and the segment of its new world's collectives. On the
/// wire, little endian: version 1 (1 byte), color (4), key (4), fault (8), and the segment's key if
/// the fault is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Contribution {
    color: u32,
    key: u32,
    segment: Result<SegmentKey, Fault>,
}

impl Contribution {
    fn to_bytes(self) -> Vec<u8> {
        let mut bytes = vec![1];
        bytes.extend(self.color.to_le_bytes());
        bytes.extend(self.key.to_le_bytes());
        bytes.extend(self.segment.err().map_or(0, Fault::to_bits).to_le_bytes());
        bytes.extend(self.segment.ok().iter().flat_map(SegmentKey::to_bytes));
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first()?;
        let (color, rest) = rest.split_first_chunk()?;
        let (key, rest) = rest.split_first_chunk()?;
        let (fault, rest) = rest.split_first_chunk()?;
        let segment = match u64::from_le_bytes(*fault) {
            0 => Ok(SegmentKey::from_bytes(rest)?),
            fault => Err(Fault::from_bits(fault).filter(|_| rest.is_empty())?),
        };
        let (color, key) = (u32::from_le_bytes(*color), u32::from_le_bytes(*key));
        (*version == 1).then_some(Self { color, key, segment })
    }
}

impl<'w, F: Fabric> Split<'w, F> {
    pub(crate) const fn new(world: &'w World<F>, color: u32, key: u32) -> Self {
        Self { world, color, key, limit: Limit::NONE, call: Call::NotStarted(()) }
    }

    async fn run(world: &World<F>, color: u32, key: u32) -> Result<World<F>, Error> {
        let failed = |fault| Error::operation("split a world")(fault);
        let gather = async |mine: Vec<u8>| world.gather(Collective::Split, &mine).await;
        let own = world.fabric().allocate(WORLD_BYTES);
        // A failure here is sent to the others before it is returned: they wait for this rank.
        let segment = own.as_ref().map(Segment::key).map_err(Error::fault);
        let all = gather(Contribution { color, key, segment }.to_bytes()).await.map_err(failed)?;
        // Until all have told: a rank that does not find it would not name the one that failed.
        let _kept = own.as_ref().ok().cloned();
        let part = own.and_then(|own| Self::part(world, color, own, &all).map_err(failed));
        let told = gather(part.as_ref().err().map(Error::fault).map_or(0, Fault::to_bits).to_le_bytes().into())
            .await
            .map_err(failed)?;
        let part = part.map_err(|error| match error {
            Error::Operation { fault, .. } => failed(world.translate(fault)),
            other => other,
        })?;
        for rank in 0..part.size() {
            let here = part.fabric_rank(rank).and_then(|rank| world.rank_of(rank));
            let word =
                here.and_then(|here| told.get(here as usize)).and_then(|word| <[u8; 8]>::try_from(&word[..]).ok());
            match word.map(u64::from_le_bytes) {
                Some(0) => {}
                word => {
                    let fault = word.and_then(Fault::from_bits).unwrap_or(Fault::new(FaultKind::Protocol));
                    let of = fault.rank().or_else(|| part.fabric_rank(rank)); // what names no rank is its own
                    let fault = of.map_or(fault, |rank| Fault::of(fault.kind(), rank).with_detail(fault.detail()));
                    return Err(failed(world.translate(fault)));
                }
            }
        }
        Ok(part)
    }

    /// This rank's new world, from all contributions. Faults contain the fabric's ranks.
    fn part(world: &World<F>, color: u32, own: F::Segment, all: &[Vec<u8>]) -> Result<World<F>, Fault> {
        let mut chosen = Vec::new();
        for (rank, bytes) in (0..).map(Rank).zip(all) {
            let choice = Contribution::from_bytes(bytes).ok_or(Fault::of(FaultKind::Protocol, rank))?;
            if choice.color == color {
                chosen.push((choice.key, choice.segment));
            }
        }
        // A stable sort: ranks with equal keys keep their order.
        chosen.sort_by_key(|(key, _)| *key);
        let keys = chosen.into_iter().map(|(_, segment)| segment).collect::<Result<_, _>>()?;
        world.of_members(own, keys)
    }
}

limited! {
    ['w, F], Split<'w, F>, World<F>, Error, |split| split.world.fabric(),
    |()| Self::run(split.world, split.color, split.key),
    late Error::operation("split a world")(split.world.give_up_collectives());
    /// Gives up after this time, counted from the next poll; see [`World::barrier`] for the
    /// consequences.
    deadline;
    /// Blocks until every rank has arrived; returns this rank's new world.
    ///
    /// # Errors
    /// - [`Error::Allocate`]: this rank has no memory or descriptors.
    /// - [`Error::Operation`]: another rank of the new world has none, died, or left; the fault
    ///   names it.
    wait
}

debug!(
    [F: Fabric] Split<'_, F>,
    |this| "split, color {}, key {}, of {} ranks", this.color, this.key, this.world.size()
);

#[cfg(test)]
mod tests {
    use onesided_remote_memory::RegionId;

    use super::*;

    #[test]
    fn choices_travel_and_nothing_else_does() {
        let segment = SegmentKey { rank: Rank(1), region: RegionId(2), len: 3, address: 4, rkey: 5 };
        for segment in [Ok(segment), Err(Fault::of(FaultKind::NoMemory, Rank(3)))] {
            let choice = Contribution { color: 7, key: u32::MAX, segment };
            let bytes = choice.to_bytes();
            assert_eq!(Contribution::from_bytes(&bytes), Some(choice));
            for len in 0..bytes.len() {
                assert_eq!(Contribution::from_bytes(&bytes[..len]), None);
            }
            assert_eq!(Contribution::from_bytes(&[&bytes[..], &[0]].concat()), None);
        }
    }
}
