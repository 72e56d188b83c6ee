//! Short blocks by the algorithm of Bruck et al. (IEEE TPDS 8, 1997), in log steps, among few ranks
//! all at once; others pair by pair (Thakur, Rabenseifner and Gropp, IJHPCA 19, 2005).

use onesided_fabric::Fabric;

use super::blocks::Blocks;
use super::direct;
use super::link::{Link, Outcome};
use super::published;

/// Blocks of at most so many bytes among at least [`MANY`] ranks are sent together.
const SHORT: usize = 256;
const MANY: u32 = 8;
/// Equal blocks of at most so many bytes together are sent before the first is received: no rank then
/// waits for another more than once. All ranks have to do so, or none: the pairwise exchange waits for
/// its sends in another order, which would be a deadlock.
const AT_ONCE: usize = 8 << 10;

/// `blocks` are those that are sent and those that are received, if they are not equal.
pub(super) async fn run<F: Fabric>(
    link: &mut Link<'_, F>,
    (send, recv): (Option<&[u8]>, &mut [u8]),
    blocks: Option<[Blocks; 2]>,
) -> Outcome {
    let size = link.size;
    let is_equal = blocks.is_none();
    let equal = recv.len() / size as usize;
    let [of_send, of_recv] = blocks.unwrap_or([Blocks::Equal(equal), Blocks::Equal(equal)]);
    link.has_length(recv.len(), of_recv.ranges(0..size).end)?;
    let mut copy = link.scratch(if send.is_none() { recv.len() } else { 0 })?;
    let send = match send {
        Some(send) => send,
        None => {
            copy.bytes().copy_from_slice(recv);
            copy.bytes()
        }
    };
    link.has_length(send.len(), of_send.ranges(0..size).end)?;
    if is_equal && link.has_buffers(send.len()) {
        return published::all_to_all(link, (send, recv), equal).await;
    }
    if is_equal
        && let Some(buffers) = direct::buffers(link, equal)
        && Box::pin(direct::all_to_all(link, buffers, (send, &mut *recv), equal)).await?
    {
        return Ok(());
    }
    if is_equal && equal <= SHORT && size >= MANY {
        return Box::pin(bruck(link, (send, recv), equal)).await;
    }
    let me = link.me;
    let (own, into) = (&send[of_send.range(me)], &mut recv[of_recv.range(me)]);
    link.has_length(own.len(), into.len())?;
    into.copy_from_slice(own);
    if is_equal && send.len() <= AT_ONCE && size > 2 {
        let after = |step: u32| (me + step) % size;
        let sends = link.post_all((1..size).map(after).map(|to| (to, &send[of_send.range(to)])))?;
        for from in (1..size).map(|step| after(size - step)) {
            link.recv(from, &mut recv[of_recv.range(from)]).await?;
        }
        return link.all_sent(sends).await;
    }
    for step in 1..size {
        let (to, from) = match size.is_power_of_two() {
            true => (me ^ step, me ^ step),
            false => ((me + step) % size, (me + size - step) % size),
        };
        link.exchange((to, &send[of_send.range(to)]), (from, &mut recv[of_recv.range(from)])).await?;
    }
    Ok(())
}

async fn bruck<F: Fabric>(link: &mut Link<'_, F>, (send, recv): (&[u8], &mut [u8]), len: usize) -> Outcome {
    let (me, size) = (link.me, link.size);
    let mut scratch = link.scratch(3 * recv.len())?;
    let (turned, packets) = scratch.bytes().split_at_mut(recv.len());
    let (out, into) = packets.split_at_mut(recv.len());
    let block = |number: u32| number as usize * len..(number as usize + 1) * len;
    // Block i is for the rank i after this one.
    for number in 0..size {
        turned[block(number)].copy_from_slice(&send[block((me + number) % size)]);
    }
    let mut distance = 1;
    while distance < size {
        // Those that have a part of their way over this distance still to go.
        let moved = || (0..size).filter(|number| number & distance != 0);
        for (at, number) in (0..).zip(moved()) {
            out[block(at)].copy_from_slice(&turned[block(number)]);
        }
        let bytes = moved().count() * len;
        let (to, from) = ((me + distance) % size, (me + size - distance) % size);
        link.exchange((to, &out[..bytes]), (from, &mut into[..bytes])).await?;
        for (at, number) in (0..).zip(moved()) {
            turned[block(number)].copy_from_slice(&into[block(at)]);
        }
        distance *= 2;
    }
    // Block i is now of the rank i before this one.
    for number in 0..size {
        recv[block((me + size - number) % size)].copy_from_slice(&turned[block(number)]);
    }
    Ok(())
}
