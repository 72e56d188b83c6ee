//! Collectives: known algorithms over messages, chosen by size.
//!
//! `link` is a call at a rank, with its messages and what ends it early; `request` the handle;
//! `started` a call that goes on by itself; the other files are the algorithms, a family each, on
//! bytes.

mod all_gather;
mod all_reduce;
mod all_to_all;
mod barrier;
mod blocks;
mod broadcast;
mod direct;
mod failure;
mod gather;
mod kind;
mod link;
mod operation;
mod published;
mod reduce;
mod reduce_scatter;
mod request;
mod scan;
mod scatter;
mod started;
mod state;

use onesided_fabric::Fabric;

use self::blocks::Blocks;
use self::operation::Operation;
use self::request::Work;
use crate::engine::Reason;
use crate::{Messages, Payload};

pub use self::blocks::{Block, InPlace};
pub use self::failure::CollectiveFault;
pub use self::kind::{Collective, CollectiveCall};
pub(crate) use self::link::{on_fabric, tell_all};
pub use self::operation::{Commutative, Reduction};
pub use self::request::CollectiveRequest;
pub(crate) use self::state::State;

/// The blocks of so many ranks, or why there are none.
fn counted<T>(counts: &[usize], size: u32) -> Result<Blocks, Work> {
    let blocks = if counts.len() == size as usize { Blocks::of(counts, size_of::<T>()) } else { None };
    blocks.ok_or(Work::Refused(Reason::Counts, [counts.len() as u64, size.into()]))
}

/// The work, or that there is none.
fn work(work: Result<Work, Work>) -> Work {
    work.unwrap_or_else(|refused| refused)
}

/// The operation, if it applies to the elements.
fn checked<T>(operation: impl Reduction<T>) -> Result<Operation, Work> {
    let operation = operation.erase();
    match operation.refused {
        None => Ok(operation),
        Some(op) => Err(Work::Refused(Reason::Op, [op as u64, 0])),
    }
}

/// Collectives: see [`CollectiveRequest`].
impl<F: Fabric> Messages<F> {
    /// Waits until every rank has called it (`MPI_Barrier`, `MPI_Ibarrier`).
    ///
    /// ```
    /// use onesided_two_sided::{Messages, Op};
    ///
    /// onesided_fabric::threads(4, |world| {
    ///     let messages = Messages::new(&world).wait()?;
    ///     let mut sum = [world.rank() + 1];
    ///     let reduction = messages.all_reduce(&mut sum, Op::Sum);
    ///     let barrier = messages.barrier();
    ///     barrier.wait()?; // in any order
    ///     reduction.wait()?;
    ///     assert_eq!(sum, [1 + 2 + 3 + 4]);
    ///     Ok(())
    /// })
    /// .unwrap()
    /// .into_iter()
    /// .collect::<Result<(), onesided_two_sided::Error>>()
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// From the request: as [of all collectives](CollectiveRequest#errors).
    ///
    /// # Cancel safety
    /// [Not cancel safe](CollectiveRequest#cancel-safety).
    pub fn barrier(&self) -> CollectiveRequest<'_, F> {
        CollectiveRequest::new(self, (Collective::Barrier, 0), Work::Barrier, (Block::InPlace::<&[u8]>, Block::InPlace))
    }

    /// Copies the root's elements to all ranks (`MPI_Bcast`). Ranks that name different roots may learn
    /// of it in their next collective only: a root waits for nobody.
    pub fn broadcast<'m, T: Payload>(&'m self, data: &'m mut [T], root: u32) -> CollectiveRequest<'m, F> {
        CollectiveRequest::new(
            self,
            (Collective::Broadcast, root),
            Work::Broadcast { root },
            (Block::InPlace, data.into()),
        )
    }

    /// Combines the elements of all ranks, place by place, at the root (`MPI_Reduce`). At the other
    /// ranks the slice holds anything afterwards.
    pub fn reduce<'m, T: Payload>(
        &'m self,
        data: &'m mut [T],
        operation: impl Reduction<T>,
        root: u32,
    ) -> CollectiveRequest<'m, F> {
        self.reducing((Collective::Reduce, root), data, operation, |operation| Work::Reduce { operation, root })
    }

    /// Combines the elements of all ranks, place by place, at all ranks (`MPI_Allreduce`). All get
    /// the same bits.
    pub fn all_reduce<'m, T: Payload>(
        &'m self,
        data: &'m mut [T],
        operation: impl Reduction<T>,
    ) -> CollectiveRequest<'m, F> {
        self.reducing((Collective::AllReduce, 0), data, operation, |operation| Work::AllReduce { operation })
    }

    /// Combines the elements of this rank and of those before it (`MPI_Scan`).
    pub fn scan<'m, T: Payload>(&'m self, data: &'m mut [T], operation: impl Reduction<T>) -> CollectiveRequest<'m, F> {
        self.reducing((Collective::Scan, 0), data, operation, |operation| Work::Scan { operation, is_exclusive: false })
    }

    /// Combines the elements of the ranks before this one (`MPI_Exscan`). The slice of rank 0 stays
    /// as it is.
    pub fn exclusive_scan<'m, T: Payload>(
        &'m self,
        data: &'m mut [T],
        operation: impl Reduction<T>,
    ) -> CollectiveRequest<'m, F> {
        self.reducing((Collective::ExclusiveScan, 0), data, operation, |operation| Work::Scan {
            operation,
            is_exclusive: true,
        })
    }

    /// Combines the elements of all ranks, place by place, and leaves each rank its block of the
    /// result, in its place (`MPI_Reduce_scatter_block`): of as many blocks of one length as there
    /// are ranks. The other blocks hold anything afterwards.
    pub fn reduce_scatter<'m, T: Payload>(
        &'m self,
        data: &'m mut [T],
        operation: impl Reduction<T>,
    ) -> CollectiveRequest<'m, F> {
        let work = |operation| Work::ReduceScatter { operation, blocks: None };
        self.reducing((Collective::ReduceScatter, 0), data, operation, work)
    }

    /// A call that combines the elements of a slice, if the operation applies to them.
    fn reducing<'m, T: Payload>(
        &'m self,
        call: (Collective, u32),
        data: &'m mut [T],
        operation: impl Reduction<T>,
        of: impl FnOnce(Operation) -> Work,
    ) -> CollectiveRequest<'m, F> {
        CollectiveRequest::new(self, call, work(checked(operation).map(of)), (Block::InPlace, data.into()))
    }

    /// The same with blocks of these numbers of elements, by rank (`MPI_Reduce_scatter`).
    pub fn reduce_scatter_v<'m, T: Payload>(
        &'m self,
        data: &'m mut [T],
        counts: &[usize],
        operation: impl Reduction<T>,
    ) -> CollectiveRequest<'m, F> {
        let blocks = counted::<T>(counts, self.world().size());
        let of = |operation| {
            blocks.map_or_else(|refused| refused, |blocks| Work::ReduceScatter { operation, blocks: Some(blocks) })
        };
        self.reducing((Collective::ReduceScatterV, 0), data, operation, of)
    }

    /// Gathers blocks of one length at the root, by rank (`MPI_Gather`). `all` is the root's alone:
    /// the others give an empty slice. The root's own block may be [`InPlace`].
    pub fn gather<'m, T: Payload>(
        &'m self,
        mine: impl Into<Block<&'m [T]>>,
        all: &'m mut [T],
        root: u32,
    ) -> CollectiveRequest<'m, F> {
        let slices = (mine.into(), all.into());
        CollectiveRequest::new(self, (Collective::Gather, root), Work::Gather { blocks: None, root }, slices)
    }

    /// The same with blocks of different lengths (`MPI_Gatherv`). `counts` are the numbers of
    /// elements, by rank, and the root's alone: the others may give an empty slice.
    pub fn gather_v<'m, T: Payload>(
        &'m self,
        mine: impl Into<Block<&'m [T]>>,
        all: &'m mut [T],
        counts: &[usize],
        root: u32,
    ) -> CollectiveRequest<'m, F> {
        let slices = (mine.into(), all.into());
        let gather = self.of_root::<T>(counts, root).map(|blocks| Work::Gather { blocks, root });
        CollectiveRequest::new(self, (Collective::GatherV, root), work(gather), slices)
    }

    /// Scatters blocks of one length from the root, by rank (`MPI_Scatter`). `all` is the root's
    /// alone: the others give an empty slice. The root's own block may stay [`InPlace`].
    pub fn scatter<'m, T: Payload>(
        &'m self,
        all: &'m [T],
        mine: impl Into<Block<&'m mut [T]>>,
        root: u32,
    ) -> CollectiveRequest<'m, F> {
        let slices = (all.into(), mine.into());
        CollectiveRequest::new(self, (Collective::Scatter, root), Work::Scatter { blocks: None, root }, slices)
    }

    /// The same with blocks of different lengths (`MPI_Scatterv`). `counts` are the numbers of
    /// elements, by rank, and the root's alone: the others may give an empty slice.
    pub fn scatter_v<'m, T: Payload>(
        &'m self,
        all: &'m [T],
        counts: &[usize],
        mine: impl Into<Block<&'m mut [T]>>,
        root: u32,
    ) -> CollectiveRequest<'m, F> {
        let slices = (all.into(), mine.into());
        let scatter = self.of_root::<T>(counts, root).map(|blocks| Work::Scatter { blocks, root });
        CollectiveRequest::new(self, (Collective::ScatterV, root), work(scatter), slices)
    }

    /// The blocks of counts that are the root's alone.
    fn of_root<T>(&self, counts: &[usize], root: u32) -> Result<Option<Blocks>, Work> {
        match self.world().rank() == root {
            true => counted::<T>(counts, self.world().size()).map(Some),
            false => Ok(Some(Blocks::Equal(0))),
        }
    }

    /// Gathers blocks of one length at all ranks, by rank (`MPI_Allgather`). The own block may be
    /// [`InPlace`].
    pub fn all_gather<'m, T: Payload>(
        &'m self,
        mine: impl Into<Block<&'m [T]>>,
        all: &'m mut [T],
    ) -> CollectiveRequest<'m, F> {
        let slices = (mine.into(), all.into());
        CollectiveRequest::new(self, (Collective::AllGather, 0), Work::AllGather { blocks: None }, slices)
    }

    /// The same with blocks of these numbers of elements, by rank (`MPI_Allgatherv`).
    pub fn all_gather_v<'m, T: Payload>(
        &'m self,
        mine: impl Into<Block<&'m [T]>>,
        all: &'m mut [T],
        counts: &[usize],
    ) -> CollectiveRequest<'m, F> {
        let slices = (mine.into(), all.into());
        let blocks = counted::<T>(counts, self.world().size());
        let gather = blocks.map(|blocks| Work::AllGather { blocks: Some(blocks) });
        CollectiveRequest::new(self, (Collective::AllGatherV, 0), work(gather), slices)
    }

    /// Sends a block to each rank and receives one from each, by rank and all of one length
    /// (`MPI_Alltoall`). With [`InPlace`] the blocks in `recv` are sent and replaced.
    pub fn all_to_all<'m, T: Payload>(
        &'m self,
        send: impl Into<Block<&'m [T]>>,
        recv: &'m mut [T],
    ) -> CollectiveRequest<'m, F> {
        let slices = (send.into(), recv.into());
        CollectiveRequest::new(self, (Collective::AllToAll, 0), Work::AllToAll { blocks: None }, slices)
    }

    /// The same with blocks of these numbers of elements, by rank: those that are sent, and those
    /// that are received (`MPI_Alltoallv`). With [`InPlace`] both are the same.
    pub fn all_to_all_v<'m, T: Payload>(
        &'m self,
        send: impl Into<Block<&'m [T]>>,
        send_counts: &[usize],
        recv: &'m mut [T],
        recv_counts: &[usize],
    ) -> CollectiveRequest<'m, F> {
        let (slices, size) = ((send.into(), recv.into()), self.world().size());
        let blocks = counted::<T>(send_counts, size).and_then(|of| Ok([of, counted::<T>(recv_counts, size)?]));
        let exchange = blocks.map(|blocks| Work::AllToAll { blocks: Some(blocks) });
        CollectiveRequest::new(self, (Collective::AllToAllV, 0), work(exchange), slices)
    }
}
