//! A short vector by recursive doubling of the whole; a long one by pairwise exchange, in rank order
//! if that matters (Thakur, Rabenseifner and Gropp, IJHPCA 19, 2005).

use onesided_fabric::Fabric;

use super::all_reduce;
use super::blocks::Blocks;
use super::link::{Link, Outcome};
use super::operation::{Operation, Side};

/// From so many bytes on.
const LONG: usize = 8 << 10;

/// `blocks` are those of all ranks if they are not equal.
pub(super) async fn run<F: Fabric>(
    link: &mut Link<'_, F>,
    data: &mut [u8],
    operation: &Operation,
    blocks: Option<Blocks>,
) -> Outcome {
    let size = link.size;
    let equal = data.len() / operation.element / size as usize * operation.element;
    let blocks = blocks.unwrap_or(Blocks::Equal(equal));
    link.has_length(data.len(), blocks.ranges(0..size).end)?;
    if data.len() < LONG {
        return all_reduce::run(link, data, operation).await;
    }
    let mut scratch = link.scratch(2 * blocks.range(link.me).len().next_multiple_of(16))?;
    match operation.is_commutative {
        true => pairwise(link, data, (operation, scratch.bytes()), &blocks).await,
        false => in_order(link, data, (operation, scratch.bytes()), &blocks).await,
    }
}

async fn pairwise<F: Fabric>(
    link: &mut Link<'_, F>,
    data: &mut [u8],
    (operation, scratch): (&Operation, &mut [u8]),
    blocks: &Blocks,
) -> Outcome {
    let (me, size) = (link.me, link.size);
    let others = &mut scratch[..blocks.range(me).len()];
    for step in 1..size {
        let (to, from) = ((me + step) % size, (me + size - step) % size);
        link.exchange((to, &data[blocks.range(to)]), (from, others)).await?;
        operation.apply(&mut data[blocks.range(me)], (Side::Right, others));
    }
    Ok(())
}

async fn in_order<F: Fabric>(
    link: &mut Link<'_, F>,
    data: &mut [u8],
    (operation, scratch): (&Operation, &mut [u8]),
    blocks: &Blocks,
) -> Outcome {
    let (me, size) = (link.me, link.size);
    let half = scratch.len() / 2;
    let (reduced, others) = scratch.split_at_mut(half);
    let (reduced, others) = (&mut reduced[..blocks.range(me).len()], &mut others[..blocks.range(me).len()]);
    let sends = link.post_all((1..size).map(|step| (me + step) % size).map(|to| (to, &data[blocks.range(to)])))?;
    for from in 0..size {
        match (from == me, from) {
            (true, 0) => reduced.copy_from_slice(&data[blocks.range(me)]),
            (true, _) => operation.apply(reduced, (Side::Right, &data[blocks.range(me)])),
            (false, 0) => link.recv(from, reduced).await?,
            (false, _) => {
                link.recv(from, others).await?;
                operation.apply(reduced, (Side::Right, others));
            }
        }
    }
    link.all_sent(sends).await?;
    data[blocks.range(me)].copy_from_slice(reduced);
    Ok(())
}
