//! The handle of a collective.

use std::fmt;
use std::time::Duration;

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Call, Drive, Fabric, Limit, limited};

use super::blocks::Blocks;
use super::kind::Collective;
use super::link::{Core, Link, Outcome};
use super::operation::Operation;
use super::{all_gather, all_reduce, all_to_all, barrier, broadcast, gather, reduce, reduce_scatter, scan, scatter};
use crate::engine::Reason;
use crate::{Error, Messages};

/// A collective that is under way: `.wait()` blocks, `.await` suspends, `.test()` polls once.
///
/// All ranks of the communicator call the same collectives in the same order, with the same roots,
/// operations and numbers of elements (MPI-4.1, chapter 6). Several may be under way at once, and
/// end in any order. They never match messages.
///
/// The call takes its place in that order; the first poll begins the collective, as of those of a
/// [`World`](onesided_fabric::World). It moves while it is waited for or polled, and not while this
/// rank waits for something else alone: wait for several with
/// [`wait_all`](onesided_fabric::World::wait_all), or `.await` them together.
///
/// # Errors
/// [`Error::Collective`], which says by a [`CollectiveFault`](crate::CollectiveFault) what happened
/// and at which rank: a rank died or left, two ranks are in different collectives or have different
/// numbers of elements, a rank dropped its request or was late, or its arguments do not fit. A call
/// that fails at a rank fails at all ranks that wait for it, with the same reason; at others it may
/// be complete. All later collectives of the communicator fail too. Its messages and other
/// communicators go on. After an error the slices hold anything.
///
/// # Cancel safety
/// Not cancel safe: a request that is dropped before it is complete, or whose deadline passes, fails
/// at the ranks that wait for it.
#[must_use = "the other ranks wait for a collective that this one does not wait for"]
pub struct CollectiveRequest<'m, F: Fabric> {
    core: Core<'m, F>,
    limit: Limit<'m, F>,
    call: Call<'m, (Link<'m, F>, Work<'m>), Result<(), Error>>,
}

/// What a call does, in bytes.
pub(super) enum Work<'m> {
    Barrier,
    Broadcast {
        data: &'m mut [u8],
        root: u32,
    },
    Reduce {
        data: &'m mut [u8],
        operation: Operation<'m>,
        root: u32,
    },
    AllReduce {
        data: &'m mut [u8],
        operation: Operation<'m>,
    },
    Scan {
        data: &'m mut [u8],
        operation: Operation<'m>,
        is_exclusive: bool,
    },
    Gather {
        mine: Option<&'m [u8]>,
        all: &'m mut [u8],
        blocks: Option<Blocks>,
        root: u32,
    },
    Scatter {
        all: &'m [u8],
        mine: Option<&'m mut [u8]>,
        blocks: Option<Blocks>,
        root: u32,
    },
    AllGather {
        mine: Option<&'m [u8]>,
        all: &'m mut [u8],
        blocks: Option<Blocks>,
    },
    AllToAll {
        send: Option<&'m [u8]>,
        recv: &'m mut [u8],
        blocks: Option<[Blocks; 2]>,
    },
    ReduceScatter {
        data: &'m mut [u8],
        operation: Operation<'m>,
        blocks: Option<Blocks>,
    },
    /// The arguments are wrong.
    Refused(Reason, [u64; 2]),
}

impl<'m, F: Fabric> CollectiveRequest<'m, F> {
    pub(super) fn new(messages: &'m Messages<F>, collective: Collective, root: u32, work: Work<'m>) -> Self {
        let link = Link::new(messages, collective, root);
        let core = link.core();
        let work = if root < link.size { work } else { Work::Refused(Reason::Root, [root.into(), 0]) };
        Self { core, limit: Limit::NONE, call: Call::NotStarted((link, work)) }
    }

    /// Sets a deadline, counted from the next wait or poll. When it passes, the call fails at every
    /// rank, as when the request is dropped.
    pub const fn deadline(mut self, after: Duration) -> Self {
        self.limit.said = Some(after);
        self
    }

    async fn run(mut link: Link<'m, F>, work: Work<'m>) -> Result<(), Error> {
        let outcome = match link.core().failed_before() {
            Some(failure) => Err(failure),
            None => Self::work(&mut link, work).await,
        };
        link.end(outcome).await
    }

    async fn work(link: &mut Link<'m, F>, work: Work<'m>) -> Outcome {
        match work {
            Work::Barrier => barrier::run(link).await,
            Work::Broadcast { data, root } => broadcast::run(link, data, root).await,
            Work::AllReduce { data, operation } => all_reduce::run(link, data, &operation).await,
            // Boxed, to keep the future of those above small.
            other => Box::pin(Self::other_work(link, other)).await,
        }
    }

    async fn other_work(link: &mut Link<'m, F>, work: Work<'m>) -> Outcome {
        match work {
            Work::Barrier | Work::Broadcast { .. } | Work::AllReduce { .. } => unreachable!("it was done"),
            Work::Reduce { data, operation, root } => reduce::run(link, data, &operation, root).await,
            Work::Scan { data, operation, is_exclusive } => scan::run(link, data, &operation, is_exclusive).await,
            Work::Gather { mine, all, blocks, root } => gather::run(link, (mine, all), blocks, root).await,
            Work::Scatter { all, mine, blocks, root } => scatter::run(link, (all, mine), blocks, root).await,
            Work::AllGather { mine, all, blocks } => all_gather::run(link, (mine, all), blocks).await,
            Work::AllToAll { send, recv, blocks } => all_to_all::run(link, (send, recv), blocks).await,
            Work::ReduceScatter { data, operation, blocks } => {
                reduce_scatter::run(link, data, &operation, blocks).await
            }
            Work::Refused(reason, words) => Err(link.refused(reason, words)),
        }
    }

    /// The error of the deadline, which the others get too.
    #[cold]
    fn late(&self) -> Error {
        let Core { messages, collective, number, .. } = self.core;
        let me = messages.world().fabric().rank();
        let failure = self.core.failure(Reason::Late, Fault::of(FaultKind::TimedOut, me), [0; 2]);
        self.core.fail(failure);
        super::failure::error(messages, (collective, number), &failure)
    }
}

impl<F: Fabric> CollectiveRequest<'_, F> {
    /// Blocks until the collective is complete at this rank.
    ///
    /// # Errors
    /// As of the call that made it.
    pub fn wait(self) -> Result<(), Error>
    where
        F: Drive,
    {
        self.block()
    }
}

limited! {
    ['m, F], CollectiveRequest<'m, F>, (), Error, |request| request.core.messages.world().fabric(),
    |(link, work)| Self::run(link, work), late request.late()
}

impl<F: Fabric> fmt::Debug for CollectiveRequest<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (call {}), {:?}", self.core.collective, self.core.number, self.call)
    }
}
