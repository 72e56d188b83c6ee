//! Short collectives of ranks of one host: each rank publishes its contribution once, and takes those of the
//! others out of their buffers. A rank that finds no room in its own one sends messages in place of that, of
//! the same bytes.

use onesided_fabric::Fabric;

use super::blocks::Blocks;
use super::link::{Link, Outcome};
use super::operation::{Operation, Side};

pub(super) async fn barrier<F: Fabric>(link: &mut Link<'_, F>) -> Outcome {
    let sends = link.contribute(&[])?;
    for from in link.others() {
        link.take(from, (0, 0), &mut []).await?;
    }
    link.contributed_to_all(sends).await
}

pub(super) async fn broadcast<F: Fabric>(link: &mut Link<'_, F>, data: &mut [u8], root: u32) -> Outcome {
    if link.me != root {
        return link.take(root, (data.len(), 0), data).await;
    }
    let sends = link.contribute(data)?;
    link.contributed_to_all(sends).await
}

/// All ranks combine all elements in the same order: they get the same bits.
pub(super) async fn all_reduce<F: Fabric>(link: &mut Link<'_, F>, data: &mut [u8], operation: &Operation) -> Outcome {
    let len = data.len();
    let mut scratch = link.scratch(2 * len.next_multiple_of(size_of::<u128>()))?;
    let (result, others) = scratch.bytes().split_at_mut(len.next_multiple_of(size_of::<u128>()));
    let (result, others) = (&mut result[..len], &mut others[..len]);
    let sends = link.contribute(data)?;
    for from in 0..link.size {
        let into = if from == 0 { &mut *result } else { &mut *others };
        if from == link.me {
            into.copy_from_slice(data);
        } else {
            link.take(from, (len, 0), into).await?;
        }
        if from > 0 {
            operation.apply(result, (Side::Right, others));
        }
    }
    link.contributed_to_all(sends).await?;
    data.copy_from_slice(result);
    Ok(())
}

pub(super) async fn all_gather<F: Fabric>(
    link: &mut Link<'_, F>,
    (mine, all): (Option<&[u8]>, &mut [u8]),
    blocks: &Blocks,
) -> Outcome {
    let own = blocks.range(link.me);
    let mut scratch = link.scratch(if mine.is_none() { own.len() } else { 0 })?;
    let mine = match mine {
        Some(mine) => {
            all[own].copy_from_slice(mine);
            mine
        }
        None => {
            scratch.bytes().copy_from_slice(&all[own]);
            scratch.bytes()
        }
    };
    let sends = link.contribute(mine)?;
    for from in link.others() {
        let block = &mut all[blocks.range(from)];
        link.take(from, (block.len(), 0), block).await?;
    }
    link.contributed_to_all(sends).await
}

/// A contribution is the blocks for all ranks; a message, that for its receiver.
pub(super) async fn all_to_all<F: Fabric>(
    link: &mut Link<'_, F>,
    (send, recv): (&[u8], &mut [u8]),
    len: usize,
) -> Outcome {
    let block = |rank: u32| rank as usize * len..(rank as usize + 1) * len;
    let sends = match link.publish(send) {
        true => None,
        false => Some(link.post_all(link.others().map(|to| (to, &send[block(to)])))?),
    };
    let own = block(link.me);
    recv[own.clone()].copy_from_slice(&send[own.clone()]);
    for from in link.others() {
        link.take(from, (send.len(), own.start), &mut recv[block(from)]).await?;
    }
    link.contributed_to_all(sends).await
}
