//! Recursive doubling; a long vector by Rabenseifner's reduce-scatter and all-gather (R.
//! Rabenseifner, "Optimization of collective reduction operations", ICCS 2004; Thakur, Rabenseifner
//! and Gropp, IJHPCA 19, 2005).
//!
//! Distances double and parts of the vector are halved, so that what is combined is always of
//! adjacent ranks: the order of the ranks is kept.

use std::ops::Range;

use onesided_fabric::Fabric;

use super::blocks::disjoint;
use super::direct;
use super::link::{Link, Outcome};
use super::operation::{Operation, Side};
use super::published;

/// From so many bytes on, if each rank has an element.
const LONG: usize = 16 << 10;

pub(super) async fn run<F: Fabric>(link: &mut Link<'_, F>, data: &mut [u8], operation: &Operation) -> Outcome {
    if link.size == 1 {
        return Ok(());
    }
    if link.has_buffers(data.len()) {
        return published::all_reduce(link, data, operation).await;
    }
    if let Some(buffers) = direct::buffers(link, data.len())
        && Box::pin(direct::all_reduce(link, buffers, data, operation)).await?
    {
        return Ok(());
    }
    let halving = Halving::new(link, data.len() / operation.element, operation.element);
    match data.len() < LONG || halving.count < halving.groups as usize {
        true => doubled(link, data, operation, &halving).await,
        false => Box::pin(halved(link, data, operation, &halving)).await,
    }
}

async fn halved<F: Fabric>(
    link: &mut Link<'_, F>,
    data: &mut [u8],
    operation: &Operation,
    halving: &Halving,
) -> Outcome {
    reduce_scatter(link, data, operation, halving).await?;
    let mut distance = halving.groups / 2;
    while distance > 0 {
        if let Some(me) = halving.me {
            let (mine, theirs) = (halving.range(me, distance), halving.range(me ^ distance, distance));
            let (send, recv) = disjoint(data, mine, theirs);
            let partner = halving.rank(me ^ distance);
            link.exchange((partner, send), (partner, recv)).await?;
        }
        distance /= 2;
    }
    unfold(link, data, halving).await
}

async fn doubled<F: Fabric>(
    link: &mut Link<'_, F>,
    data: &mut [u8],
    operation: &Operation,
    halving: &Halving,
) -> Outcome {
    let mut scratch = link.scratch(data.len())?;
    let others = scratch.bytes();
    fold(link, data, (operation, others), halving).await?;
    if let Some(me) = halving.me {
        let mut distance = 1;
        while distance < halving.groups {
            let partner = halving.rank(me ^ distance);
            link.exchange((partner, data), (partner, others)).await?;
            operation.apply(data, (halving.side(distance), others));
            distance *= 2;
        }
    }
    unfold(link, data, halving).await
}

/// Reduces each block to one rank: it is at [`Halving::mine`] then.
pub(super) async fn reduce_scatter<F: Fabric>(
    link: &mut Link<'_, F>,
    data: &mut [u8],
    operation: &Operation,
    halving: &Halving,
) -> Outcome {
    let is_folded = halving.groups != link.size;
    let first = halving.me.map_or(0, |me| halving.range(me, 1).len());
    let mut scratch = link.scratch(if is_folded { data.len() } else { first })?;
    let others = scratch.bytes();
    if is_folded {
        fold(link, data, (operation, others), halving).await?;
    }
    let Some(me) = halving.me else { return Ok(()) };
    let mut distance = 1;
    while distance < halving.groups {
        let partner = halving.rank(me ^ distance);
        let (mine, theirs) = (halving.range(me, distance), halving.range(me ^ distance, distance));
        let others = &mut others[..mine.len()];
        link.exchange((partner, &data[theirs]), (partner, others)).await?;
        operation.apply(&mut data[mine], (halving.side(distance), others));
        distance *= 2;
    }
    Ok(())
}

/// Before, if the number of ranks is no power of two: of the first ranks each even one gives its
/// vector to the next one.
async fn fold<F: Fabric>(
    link: &mut Link<'_, F>,
    data: &mut [u8],
    (operation, others): (&Operation, &mut [u8]),
    halving: &Halving,
) -> Outcome {
    match halving.folded(link.me) {
        Some(other) if halving.me.is_none() => link.send(other, data).await,
        Some(other) => {
            link.recv(other, others).await?;
            operation.apply(data, (Side::Left, others));
            Ok(())
        }
        None => Ok(()),
    }
}

/// And gets the result from it.
async fn unfold<F: Fabric>(link: &mut Link<'_, F>, data: &mut [u8], halving: &Halving) -> Outcome {
    match halving.folded(link.me) {
        Some(other) if halving.me.is_none() => link.recv(other, data).await,
        Some(other) => link.send(other, data).await,
        None => Ok(()),
    }
}

/// A power of two of groups, each of one rank or of two, and the blocks of a vector for them.
pub(super) struct Halving {
    /// The largest power of two that is no more than the number of ranks.
    groups: u32,
    /// The number of groups with two ranks, which are the first ones.
    pairs: u32,
    /// This rank's group, unless it is the first of two.
    me: Option<u32>,
    /// The number of elements of the vector, and their size.
    count: usize,
    element: usize,
}

impl Halving {
    pub(super) fn new<F: Fabric>(link: &Link<'_, F>, count: usize, element: usize) -> Self {
        Self::of(link.me, link.size, count, element)
    }

    const fn of(me: u32, size: u32, count: usize, element: usize) -> Self {
        let groups = 1 << size.ilog2();
        let pairs = size - groups;
        let me = match me < 2 * pairs {
            true if me.is_multiple_of(2) => None,
            true => Some(me / 2),
            false => Some(me - pairs),
        };
        Self { groups, pairs, me, count, element }
    }

    /// The rank of a group.
    const fn rank(&self, group: u32) -> u32 {
        if group < self.pairs { 2 * group + 1 } else { group + self.pairs }
    }

    /// The other rank of a rank's group.
    fn folded(&self, rank: u32) -> Option<u32> {
        (rank < 2 * self.pairs).then_some(rank ^ 1)
    }

    /// On which side of this rank's elements those of its partner are.
    fn side(&self, distance: u32) -> Side {
        if self.me.is_some_and(|me| me & distance != 0) { Side::Left } else { Side::Right }
    }

    /// What a group has, in bytes, after the exchange over a distance.
    fn range(&self, group: u32, distance: u32) -> Range<usize> {
        let (mut from, mut count, mut bit) = (0, self.groups, 1);
        while bit <= distance {
            count /= 2;
            from += if group & bit == 0 { 0 } else { count };
            bit *= 2;
        }
        self.bound(from)..self.bound(from + count)
    }

    /// The beginning of a block: the first ones have an element more.
    fn bound(&self, block: u32) -> usize {
        let (groups, block) = (self.groups as usize, block as usize);
        (block * (self.count / groups) + block.min(self.count % groups)) * self.element
    }

    /// The bytes that this rank has after [`reduce_scatter`], if any.
    pub(super) fn mine(&self) -> Option<Range<usize>> {
        self.me.map(|me| self.range(me, self.groups / 2))
    }

    /// The ranks that have some, and which.
    pub(super) fn all(&self) -> impl Iterator<Item = (u32, Range<usize>)> {
        (0..self.groups).map(|group| (self.rank(group), self.range(group, self.groups / 2)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_blocks_of_the_groups_are_the_vector() {
        for size in 1..20 {
            for count in [0, 1, 7, 100] {
                let halving = Halving::of(0, size, count, 8);
                let mut blocks: Vec<_> = halving.all().map(|(_, block)| block).collect();
                blocks.sort_by_key(|block| (block.start, block.end));
                assert_eq!(blocks.len(), halving.groups as usize);
                let end = blocks.iter().fold(0, |end, block| {
                    assert_eq!(block.start, end, "{size} {count}");
                    block.end
                });
                assert_eq!(end, 8 * count);
            }
            let of = |me| Halving::of(me, size, 9, 1);
            let groups: Vec<_> = (0..size).filter_map(|me| Some((of(me).me?, me))).collect();
            assert!(groups.iter().zip(0..).all(|((group, me), at)| *group == at && of(*me).rank(at) == *me));
        }
    }
}
