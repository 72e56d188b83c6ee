//! The handle of a collective.

use bytemuck::{cast_slice, cast_slice_mut};
use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Call, Drive, Fabric, Limit, block_on, debug, limited};

use super::blocks::{Block, Blocks};
use super::kind::{Collective, Combines};
use super::link::{Core, Link, Outcome};
use super::operation::Operation;
use super::{
    all_gather, all_reduce, all_to_all, barrier, broadcast, gather, reduce, reduce_scatter, scan, scatter, started,
};
use crate::engine::Reason;
use crate::engine::source::has_size;
use crate::{Error, Messages, Payload};

/// A collective that is under way: `.wait()` blocks, `.await` suspends, `.test()` polls once.
///
/// All ranks of the communicator call the same collectives in the same order, with the same roots,
/// operations and numbers of elements (MPI-4.1, chapter 6). Several may be under way at once, and
/// end in any order. They never match messages.
///
/// The call takes its place in that order; the first poll begins the collective, as of those of a
/// [`World`](onesided_fabric::World). It moves while it is waited for or polled; one that is
/// [started](Self::start) also while this rank waits for something else. Wait for several with
/// [`wait_all`](onesided_fabric::World::wait_all), or `.await` them together.
///
/// # Errors
/// [`Error::Collective`], which says by a [`CollectiveFault`](crate::CollectiveFault) what happened
/// and at which rank: a rank died or left, two ranks are in different collectives, or in
/// one with different roots, operations, types or numbers of elements (not compared: the type in
/// `reduce`, and all types but by an [`Op`](crate::Op)), a rank dropped its request or was late, or its arguments do not fit. A call
/// that fails at a rank fails at all ranks that wait for it, with the same reason; at others it may
/// be complete. All later collectives of the communicator fail too. Its messages and other
/// communicators go on. After an error the slices hold anything.
///
/// # Cancel safety
/// Not cancel safe: a request that is dropped before it is complete, or whose deadline passes, fails
/// at the ranks that wait for it. One that is [started](Self::start) may be dropped.
#[must_use = "the other ranks wait for a collective that this one does not wait for"]
pub struct CollectiveRequest<'m, F: Fabric> {
    core: Core<'m, F>,
    limit: Limit<'m, F>,
    call: Call<'m, Arguments<'m, F>, Result<(), Error>>,
}

/// A call that has not begun, and what it is to do.
pub(super) type Arguments<'m, F> = (Link<'m, F>, Work, Slices<'m>);

impl<F: Drive> CollectiveRequest<'_, F> {
    /// Blocks until the collective is complete at this rank.
    ///
    /// # Errors
    /// As of the call that made it.
    pub fn wait(mut self) -> Result<(), Error> {
        match &mut self.call {
            Call::NotStarted(arguments) if !self.limit.is_set() => {
                arguments.0.blocks();
                block_on(self.core.messages.world().fabric(), run(arguments))
            }
            _ => self.block(),
        }
    }
}

/// What a call does.
pub(super) enum Work {
    Barrier,
    Broadcast {
        root: u32,
    },
    Reduce {
        operation: Operation,
        root: u32,
    },
    AllReduce {
        operation: Operation,
    },
    Scan {
        operation: Operation,
        is_exclusive: bool,
    },
    Gather {
        blocks: Option<Blocks>,
        root: u32,
    },
    Scatter {
        blocks: Option<Blocks>,
        root: u32,
    },
    AllGather {
        blocks: Option<Blocks>,
    },
    AllToAll {
        blocks: Option<[Blocks; 2]>,
    },
    ReduceScatter {
        operation: Operation,
        blocks: Option<Blocks>,
    },
    /// The arguments are wrong.
    Refused(Reason, [u64; 2]),
}

impl Work {
    fn combines(&self) -> Combines {
        match self {
            Self::Reduce { operation, .. }
            | Self::AllReduce { operation }
            | Self::Scan { operation, .. }
            | Self::ReduceScatter { operation, .. } => operation.combines,
            _ => Combines::default(),
        }
    }
}

/// The bytes of a call: what it only reads, and what it writes.
pub(super) type Slices<'m> = (Option<&'m [u8]>, Option<&'m mut [u8]>);

impl<'m, F: Fabric> CollectiveRequest<'m, F> {
    pub(super) fn new<T: Payload>(
        messages: &'m Messages<F>,
        call: (Collective, u32),
        work: Work,
        (read, write): (Block<&'m [T]>, Block<&'m mut [T]>),
    ) -> Self {
        const { has_size::<T>() }
        let slices = (read.slice().map(cast_slice), write.slice().map(cast_slice_mut));
        Self::of_bytes(
            messages,
            call,
            work,
            (slices, const { if size_of::<T>() > u16::MAX as usize { 0 } else { size_of::<T>() as u16 } }),
        )
    }

    fn of_bytes(
        messages: &'m Messages<F>,
        (collective, root): (Collective, u32),
        work: Work,
        (slices, element): (Slices<'m>, u16),
    ) -> Self {
        let link = Link::new(messages, (collective, element), (root, work.combines()));
        let core = link.core();
        let work = if root < link.size { work } else { Work::Refused(Reason::Root, [root.into(), 0]) };
        Self { core, limit: Limit::NONE, call: Call::NotStarted((link, work, slices)) }
    }

    /// The error of the deadline, which the others get too.
    #[cold]
    fn late(&self) -> Error {
        let Core { messages, collective, number, .. } = self.core;
        let me = messages.world().fabric().rank();
        let failure = self.core.failure(Reason::Late, Fault::of(FaultKind::TimedOut, me), [0; 2]);
        self.core.fail(&failure);
        messages.progress().tasks.end(|call| *call == self.core.call());
        super::failure::error(messages, (collective, number), &failure)
    }
}

/// The call and its arguments stay where they are: to move them takes as long as a message.
pub(super) async fn run<F: Fabric>((link, work, slices): &mut Arguments<'_, F>) -> Result<(), Error> {
    let outcome = match link.core().failed_before() {
        Some(failure) => Err(failure),
        None => run_work(link, work, slices).await,
    };
    link.end(outcome).await
}

/// Each of most is boxed, to keep the future of the others small.
async fn run_work<F: Fabric>(link: &mut Link<'_, F>, work: &mut Work, (read, write): &mut Slices<'_>) -> Outcome {
    let read = *read;
    // Of a scatter alone a block that is written may be in its place.
    let all = |write| Option::as_deref_mut(write).unwrap_or_default();
    match work {
        Work::Barrier => barrier::run(link).await,
        Work::Broadcast { root } => broadcast::run(link, all(write), *root).await,
        Work::AllReduce { operation } => all_reduce::run(link, all(write), operation).await,
        Work::AllGather { blocks } => all_gather::run(link, (read, all(write)), blocks.take()).await,
        Work::AllToAll { blocks } => all_to_all::run(link, (read, all(write)), blocks.take()).await,
        Work::Reduce { operation, root } => Box::pin(reduce::run(link, all(write), operation, *root)).await,
        Work::Scan { operation, is_exclusive } => Box::pin(scan::run(link, all(write), operation, *is_exclusive)).await,
        Work::Gather { blocks, root } => Box::pin(gather::run(link, (read, all(write)), blocks.take(), *root)).await,
        Work::Scatter { blocks, root } => {
            let slices = (read.unwrap_or_default(), write.as_deref_mut());
            Box::pin(scatter::run(link, slices, blocks.take(), *root)).await
        }
        Work::ReduceScatter { operation, blocks } => {
            Box::pin(reduce_scatter::run(link, all(write), operation, blocks.take())).await
        }
        Work::Refused(reason, words) => Err(link.refused(*reason, *words)),
    }
}

impl<F: Fabric> CollectiveRequest<'_, F> {
    /// Starts the call now, and lets it move in every wait of this rank: for a lock, a message, a
    /// barrier, in whichever thread, and in the thread of a [progress mode](crate::ProgressMode)
    /// (`MPI_Iallreduce` and its like: MPI-4.1, sections 6.12 and 3.7.4). It works on copies of the
    /// slices, and the wait copies the result back. Of a request that was polled before only what
    /// follows a poll moves: this has no effect then.
    ///
    /// ```
    /// use onesided_two_sided::{Messages, Op, Tag};
    ///
    /// onesided_fabric::threads(4, |world| {
    ///     let messages = Messages::new(&world).wait()?;
    ///     let mut sum = [world.rank()];
    ///     let reduction = messages.all_reduce(&mut sum, Op::Sum).start();
    ///     if world.rank() == 0 {
    ///         messages.recv::<u8>(1, Tag(0)).wait()?; // rank 1 sends it after the reduction
    ///     }
    ///     reduction.wait()?;
    ///     if world.rank() == 1 {
    ///         messages.send(&[1_u8], 0, Tag(0)).wait()?;
    ///     }
    ///     assert_eq!(sum, [6]);
    ///     Ok(())
    /// })
    /// .unwrap()
    /// .into_iter()
    /// .collect::<Result<(), onesided_two_sided::Error>>()
    /// .unwrap();
    /// ```
    ///
    /// A [function](crate::Reduction) runs in any wait of the rank, and must not block. One that panics
    /// fails its call alone, as if the request had been dropped before the call was started.
    ///
    /// # Cancel safety
    /// A call that was started goes on when its request is dropped, or leaked: at the other ranks
    /// it completes, and the slices stay as they are. It ends with its communicator: the drop of
    /// the last handle of that fails it at the ranks that wait for it.
    pub fn start(mut self) -> Self {
        self.call = match std::mem::replace(&mut self.call, Call::Over) {
            Call::NotStarted((link, work, slices)) => Call::Running(started::start(link, work, slices)),
            polled => polled,
        };
        self
    }
}

limited! {
    ['m, F], CollectiveRequest<'m, F>, (), Error, |request| request.core.messages.world().fabric(),
    |mut arguments| async move { run(&mut arguments).await }, late request.late();
    /// Sets a deadline, counted from the next wait or poll. When it passes, the call fails at every
    /// rank, as when the request is dropped.
    deadline
}

debug!(
    [F: Fabric] CollectiveRequest<'_, F>,
    |this| "{} (call {}), {:?}", this.core.collective, this.core.number, this.call
);
