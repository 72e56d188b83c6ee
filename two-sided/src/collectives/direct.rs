//! Long collectives of ranks of one host: each rank publishes where its slice is, and reads those of the others there,
//! by the kernel's copies. No rank gives its slice up before all others have said that they have read it; one that
//! fails says so, and what others have read of it counts for nothing.

use bytemuck::{bytes_of, bytes_of_mut};
use onesided_fabric::Fabric;
use onesided_fabric::shm::CollectiveBuffers;

use super::blocks::Blocks;
use super::link::{Core, Link, Outcome};
use super::operation::{Operation, Side};
use crate::driver::offered::processes;

/// From so many bytes on, of a block or of a vector.
const LONG: usize = 16 << 10;
/// So much of a vector is read before it is combined, so that it is in a cache then.
const PIECE: usize = 64 << 10;

/// The address that says that a rank cannot be read, or has no room to say where its slice is.
const NOWHERE: u64 = 0;

/// The buffers by which the ranks say where their slices are, if those are long: the same at all.
pub(super) fn buffers<'m, F: Fabric>(link: &Link<'m, F>, bytes: usize) -> Option<&'m CollectiveBuffers> {
    link.core().state().buffers().filter(|_| bytes >= LONG)
}

/// The slices of all ranks. The others read this rank's until they have all said that they have, or until this is
/// dropped.
struct Slices<'m, F: Fabric> {
    core: Core<'m, F>,
    buffers: &'m CollectiveBuffers,
    addresses: Vec<u64>,
    is_read: bool,
}

impl<F: Fabric> Drop for Slices<'_, F> {
    fn drop(&mut self) {
        if !self.is_read {
            self.buffers.withdraw(self.core.number);
        }
    }
}

impl<'m, F: Fabric> Slices<'m, F> {
    /// Exchanges where the slices are. `expected` is the length of another rank's. `None`: not all can be read, so
    /// that messages go.
    async fn meet(
        link: &mut Link<'m, F>,
        buffers: &'m CollectiveBuffers,
        mine: &[u8],
        expected: impl Fn(u32) -> usize,
    ) -> Outcome<Option<Self>> {
        let (core, len) = (link.core(), mine.len() as u64);
        let is_open = core.messages.may_offer();
        let address = if is_open { mine.as_ptr().expose_provenance() as u64 } else { NOWHERE };
        // It is not withdrawn from a slot that has another call.
        let is_published = link.publish(bytes_of(&[address, len]));
        let mut slices = Self { core, buffers, addresses: vec![address; link.size as usize], is_read: !is_published };
        let instead = [NOWHERE, len];
        let sends = match is_published {
            true => Vec::new(),
            false => link.post_all(link.others().map(|to| (to, bytes_of(&instead))))?,
        };
        for from in link.others() {
            let mut place = [0; 2];
            link.take(from, (size_of_val(&place), 0), bytes_of_mut(&mut place)).await?;
            core.check((core.rank(from)?.0, core.tag), place[1], expected(from))?;
            slices.addresses[from as usize] = place[0];
        }
        link.all_sent(sends).await?;
        let are_open = is_published && !slices.addresses.contains(&NOWHERE);
        slices.is_read |= !are_open; // by nobody
        Ok(are_open.then_some(slices))
    }

    /// Reads what another rank has at an offset of its slice. It is certain once the rank has [reached](Link::reached)
    /// the next phase.
    async fn read(&self, link: &mut Link<'m, F>, (from, at): (u32, usize), into: &mut [u8]) -> Outcome {
        let Self { core, buffers, addresses, .. } = self;
        let (fabric, rank) = (core.messages.world().fabric(), core.rank(from)?);
        let address = addresses[from as usize].wrapping_add(at as u64);
        let read = match into.is_empty() {
            true => Ok(()),
            false => processes(fabric).and_then(|processes| processes.read(rank, address, into)),
        };
        match read {
            Ok(()) => Ok(()),
            Err(fault) if buffers.has_reached(from, core.number, 0) => Err(core.failed(fault)),
            Err(_) => link.reached(from, 0).await, // it has withdrawn, so the slice may be freed: it says why
        }
    }

    /// This rank has reached a phase.
    fn reach(&self, phase: u64) {
        self.buffers.reach(self.core.number, phase);
    }

    /// Waits until all others have reached the last phase.
    async fn end(mut self, link: &mut Link<'m, F>, phase: u64) -> Outcome {
        for from in link.others() {
            link.reached(from, phase).await?;
        }
        self.is_read = true;
        Ok(())
    }
}

/// `false`: messages are to go, as of the others.
pub(super) async fn all_gather<'m, F: Fabric>(
    link: &mut Link<'m, F>,
    buffers: &'m CollectiveBuffers,
    (mine, all): (Option<&[u8]>, &mut [u8]),
    blocks: &Blocks,
) -> Outcome<bool> {
    let own = blocks.range(link.me);
    let met = Slices::meet(link, buffers, mine.unwrap_or(&all[own.clone()]), |from| blocks.range(from).len()).await?;
    let Some(slices) = met else { return Ok(false) };
    for from in link.others() {
        slices.read(link, (from, 0), &mut all[blocks.range(from)]).await?;
    }
    slices.reach(1);
    if let Some(mine) = mine {
        all[own].copy_from_slice(mine); // while others still read
    }
    slices.end(link, 1).await.map(|()| true)
}

pub(super) async fn all_to_all<'m, F: Fabric>(
    link: &mut Link<'m, F>,
    buffers: &'m CollectiveBuffers,
    (send, recv): (&[u8], &mut [u8]),
    len: usize,
) -> Outcome<bool> {
    let block = |rank: u32| rank as usize * len..(rank as usize + 1) * len;
    let Some(slices) = Slices::meet(link, buffers, send, |_| send.len()).await? else { return Ok(false) };
    let own = block(link.me);
    for from in link.others() {
        slices.read(link, (from, own.start), &mut recv[block(from)]).await?;
    }
    slices.reach(1);
    recv[own.clone()].copy_from_slice(&send[own]);
    slices.end(link, 1).await.map(|()| true)
}

/// Each rank combines a block of all vectors, in the order of the ranks, and then reads those of the others.
pub(super) async fn all_reduce<'m, F: Fabric>(
    link: &mut Link<'m, F>,
    buffers: &'m CollectiveBuffers,
    data: &mut [u8],
    operation: &Operation,
) -> Outcome<bool> {
    let (me, size, element, len) = (link.me, link.size, operation.element, data.len());
    let Some(slices) = Slices::meet(link, buffers, data, |_| len).await? else { return Ok(false) };
    let start = |rank: u32| (len / element * rank as usize / size as usize) * element;
    let block = |rank: u32| start(rank)..start(rank + 1);
    let piece = (PIECE / element * element).max(element).min(block(me).len());
    let mut scratch = link.scratch(piece)?;
    for at in block(me).step_by(piece.max(1)) {
        let own = at..(at + piece).min(block(me).end);
        let others = &mut scratch.bytes()[..own.len()];
        let lower = (0..me).rev().map(|from| (from, Side::Left));
        for (from, side) in lower.chain((me + 1..size).map(|from| (from, Side::Right))) {
            slices.read(link, (from, at), others).await?;
            operation.apply(&mut data[own.clone()], (side, others));
        }
    }
    slices.reach(1);
    for from in link.others() {
        link.reached(from, 1).await?; // it reads no more of that block here
        slices.read(link, (from, start(from)), &mut data[block(from)]).await?;
    }
    slices.reach(2);
    slices.end(link, 2).await.map(|()| true)
}
