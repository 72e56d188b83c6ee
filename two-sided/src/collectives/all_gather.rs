//! Recursive doubling among a power of two of ranks, the algorithm of Bruck et al. (IEEE TPDS 8,
//! 1997) among others; long blocks around a ring (Thakur, Rabenseifner and Gropp, IJHPCA 19, 2005).

use onesided_fabric::Fabric;

use super::blocks::{Blocks, disjoint};
use super::direct;
use super::link::{Link, Outcome};
use super::published;

/// From so many bytes of all ranks on, the blocks go around a ring.
const LONG: usize = 64 << 10;

/// `blocks` are those of all ranks if they are not equal.
pub(super) async fn run<F: Fabric>(
    link: &mut Link<'_, F>,
    (mine, all): (Option<&[u8]>, &mut [u8]),
    blocks: Option<Blocks>,
) -> Outcome {
    let size = link.size;
    let blocks = Blocks::of_all(blocks, mine, all, size);
    link.has_length(all.len(), blocks.ranges(0..size).end)?;
    if let Some(mine) = mine {
        link.has_length(mine.len(), blocks.range(link.me).len())?;
    }
    if let Some(buffers) = direct::buffers(link, blocks.longest(size))
        && Box::pin(direct::all_gather(link, buffers, (mine, &mut *all), &blocks)).await?
    {
        return Ok(());
    }
    match all.len() {
        _ if link.has_buffers(blocks.longest(size)) => published::all_gather(link, (mine, all), &blocks).await,
        long if long >= LONG => Box::pin(ring(link, (mine, all), &blocks)).await,
        _ if size.is_power_of_two() => doubled(link, (mine, all), &blocks).await,
        _ => {
            if let Some(mine) = mine {
                all[blocks.range(link.me)].copy_from_slice(mine);
            }
            Box::pin(bruck(link, all, &blocks)).await
        }
    }
}

/// The own block is sent from where it is, and copied to its place after that: the receiver's caches
/// take it faster from memory that was not written just now.
async fn doubled<F: Fabric>(
    link: &mut Link<'_, F>,
    (mut mine, all): (Option<&[u8]>, &mut [u8]),
    blocks: &Blocks,
) -> Outcome {
    let mut distance = 1;
    while distance < link.size {
        let partner = link.me ^ distance;
        let of = |rank: u32| blocks.ranges(rank & !(distance - 1)..(rank | (distance - 1)) + 1);
        let (send, recv) = disjoint(all, of(link.me), of(partner));
        link.exchange((partner, mine.unwrap_or(send)), (partner, recv)).await?;
        if let Some(mine) = mine.take() {
            all[blocks.range(link.me)].copy_from_slice(mine);
        }
        distance *= 2;
    }
    if let Some(mine) = mine {
        all.copy_from_slice(mine); // this rank is alone
    }
    Ok(())
}

async fn bruck<F: Fabric>(link: &mut Link<'_, F>, all: &mut [u8], blocks: &Blocks) -> Outcome {
    let (me, size) = (link.me, link.size);
    // Turned around, so that this rank's block is the first one.
    let start = blocks.range(me).start;
    let end_of = |count: u32| match me + count {
        last if last <= size => blocks.ranges(me..last).len(),
        last => all.len() - start + blocks.ranges(0..last - size).len(),
    };
    let ends: Vec<_> = (0..=size).map(end_of).collect();
    let end_of = |count: u32| ends[count as usize];
    let mut scratch = link.scratch(all.len())?;
    let turned = scratch.bytes();
    turned[..end_of(1)].copy_from_slice(&all[blocks.range(me)]);
    let mut distance = 1;
    while distance < size {
        let count = distance.min(size - distance);
        let (have, new) = turned.split_at_mut(end_of(distance));
        // The receiver's blocks begin with its own, so that it gets those that follow.
        let new = &mut new[..end_of(distance + count) - end_of(distance)];
        let (to, from) = ((me + size - distance) % size, (me + distance) % size);
        link.exchange((to, &have[..end_of(count)]), (from, new)).await?;
        distance *= 2;
    }
    let (high, low) = turned.split_at(all.len() - start);
    all[start..].copy_from_slice(high);
    all[..start].copy_from_slice(low);
    Ok(())
}

/// The own block is sent from where it is, as in [`doubled`].
async fn ring<F: Fabric>(link: &mut Link<'_, F>, (mine, all): (Option<&[u8]>, &mut [u8]), blocks: &Blocks) -> Outcome {
    let (me, size) = (link.me, link.size);
    for step in 0..size - 1 {
        let of = |behind: u32| blocks.range((me + 2 * size - behind) % size);
        let (send, recv) = disjoint(all, of(step), of(step + 1));
        let send = mine.filter(|_| step == 0).unwrap_or(send);
        link.exchange(((me + 1) % size, send), ((me + size - 1) % size, recv)).await?;
    }
    if let Some(mine) = mine {
        all[blocks.range(me)].copy_from_slice(mine);
    }
    Ok(())
}
