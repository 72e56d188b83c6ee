//! A fabric with its collectives.

use std::any::Any;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Poll;
use std::time::Duration;

#[cfg(not(onesided_loom))]
use onesided_job::fork::is_child;
use onesided_job::lock;
use onesided_remote_memory::{Collective, Fault, FaultKind, Liveness, Rank};

use crate::waiting::server_threads::ServerThreads;
use crate::worlds::collective::{Collectives, GATHER_BYTES, neighbours};
use crate::worlds::members::Members;
use crate::{Call, Drive, Error, Fabric, Limit, SegmentKey, ServerThread, Split, Task};

/// The ranks that run together, or [some of them](Self::split), as one of them sees them: an MPI
/// communicator.
///
/// Cheap to clone; all clones are the same rank. Threads may share it. Every rank makes the
/// **collective** calls of a world ([`barrier`](Self::barrier), [`all_gather`](Self::all_gather), the
/// creation of windows and communicators) in the same order, by one thread at a time. A
/// [split](Self::split), a window and a communicator each have an order of their own: their collective
/// calls may be under way at the same time as those of others, also in other threads.
///
/// The rank leaves the world when its last handle is dropped, its windows' included. Background
/// work, such as a release that was not waited for, then gets two seconds to finish, which the drop
/// blocks for; [`close`](Self::close) waits longer and reports. A lock request that was cancelled
/// and waits still gives up its place at once.
#[derive(Debug, Clone)]
pub struct World<
    #[cfg(not(onesided_loom))] F: Fabric = crate::Any, // which is not compiled under loom
    #[cfg(onesided_loom)] F: Fabric,
> {
    fabric: F,
    pub(super) collective: Arc<Collectives<F>>,
    /// Held by the application's handles alone, so that the last drop is detected.
    _presence: Option<Arc<Presence<F>>>,
    /// Memory that peers may still access, kept while this rank is in the world.
    kept: Arc<Mutex<Vec<F::Segment>>>,
    /// The shared server threads.
    server_threads: Arc<ServerThreads>,
    /// What a layer above keeps once for all worlds of this endpoint.
    layer: Arc<OnceLock<Arc<dyn Any + Send + Sync>>>,
    /// Whether the last drop has begun.
    leaving: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Presence<F: Fabric> {
    fabric: F,
    leaving: Arc<AtomicBool>,
    kept: Arc<Mutex<Vec<F::Segment>>>,
}

impl<F: Fabric> Drop for Presence<F> {
    fn drop(&mut self) {
        #[cfg(not(onesided_loom))]
        if is_child() {
            // A forked child drops a copy: its parent still uses the files, threads and memory.
            std::mem::forget((self.fabric.clone(), std::mem::take(&mut *lock(&self.kept))));
            return;
        }
        self.leaving.store(true, Ordering::Release);
        self.fabric.endpoint().leave();
        lock(&self.kept).clear();
    }
}

impl<F: Fabric> World<F> {
    /// A world over an endpoint. Make only one per endpoint: the collectives are numbered.
    pub fn new(fabric: F) -> Self {
        let (kept, leaving) = (Arc::default(), Arc::default());
        let presence = Presence { fabric: fabric.clone(), leaving: Arc::clone(&leaving), kept: Arc::clone(&kept) };
        let collective = Arc::new(Collectives::new(Members::all()));
        Self {
            fabric,
            collective,
            _presence: Some(Arc::new(presence)),
            kept,
            server_threads: Arc::default(),
            layer: Arc::default(),
            leaving,
        }
    }

    /// A world of some of this one's ranks, from the keys of their segments for collectives, in its
    /// order. Faults have the fabric's ranks.
    #[doc(hidden)]
    pub fn of_members(&self, own: F::Segment, keys: Vec<SegmentKey>) -> Result<Self, Fault> {
        let members = Members::chosen(own, keys).ok_or(Fault::new(FaultKind::Protocol))?;
        let world = Self { collective: Arc::new(Collectives::new(members)), ..self.clone() };
        // Connected to those that it signals in a barrier: none fails for lack of a connection.
        neighbours(world.rank(), world.size())
            .try_for_each(|rank| world.collective.members.segment(&self.fabric, rank).map(drop))?;
        Ok(world)
    }

    /// A handle for background work: it does not keep this rank in the world.
    pub fn background(&self) -> Self {
        Self { _presence: None, ..self.clone() }
    }

    /// Whether this rank leaves the world: background work that waits for others is to end.
    pub fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Acquire)
    }

    /// Runs a task that serves peers on a server thread of this kind, which all such tasks of this
    /// rank share and which exists while there are any. The thread may sleep: a requester then
    /// writes to its own word with [`Notify::Yes`](onesided_remote_memory::Notify::Yes).
    ///
    /// # Errors
    /// As [`Endpoint::serve`](crate::Endpoint::serve).
    pub fn assist(&self, task: Task, kind: ServerThread) -> Result<(), Fault> {
        self.server_threads.run(&self.fabric, task, kind)
    }

    /// What the messages of this rank share, whichever [split](Self::split) they are of: made once.
    ///
    /// # Panics
    /// If another type was made before.
    #[doc(hidden)]
    pub fn layer<L: Any + Send + Sync>(&self, make: impl FnOnce() -> L) -> Arc<L> {
        let layer = self.layer.get_or_init(|| Arc::new(make()));
        Arc::clone(layer).downcast().unwrap_or_else(|_| panic!("one layer a world"))
    }

    /// Keeps own memory until this rank leaves the world, for memory that peers may still access
    /// after its last local handle is gone. A card ends the connection of a peer that accesses
    /// freed memory.
    pub fn keep(&self, segment: F::Segment) {
        lock(&self.kept).push(segment);
    }

    /// This rank, from 0 to [`size`](Self::size) - 1.
    pub fn rank(&self) -> u32 {
        self.collective.members.me(&self.fabric)
    }

    /// The number of ranks.
    pub fn size(&self) -> u32 {
        self.collective.members.size(&self.fabric)
    }

    /// The underlying fabric, for operations that windows and locks do not offer. It uses the ranks
    /// of the whole job: see [`fabric_rank`](Self::fabric_rank).
    pub const fn fabric(&self) -> &F {
        &self.fabric
    }

    /// Waits until every rank has entered the barrier. Each rank then sees what the others flushed
    /// before it.
    ///
    /// # Errors
    /// `PeerDied`, `PeerLeft`: a rank has died, or has left without entering it; all others that are in it
    /// get that at once. `ConnectionLost` at all ranks that wait for one of two that lost theirs,
    /// which it names; `TimedOut` with a rank that has not come (on a network, one that this
    /// rank waits for); `OutOfStep` at every rank if one is in another collective. A failed barrier
    /// cannot be resumed: every later collective of this rank fails with `OutOfStep`.
    ///
    /// # Cancel safety
    /// Before the first poll a drop has no effect. After it, not cancel safe: the dropped barrier may
    /// or may not have let the others pass, and every later collective of this rank fails with
    /// `OutOfStep`. Those that passed wait for this rank in their next collective until it leaves.
    pub fn barrier(&self) -> Barrier<'_, F> {
        Barrier { world: self, limit: Limit::NONE, call: Call::NotStarted(()) }
    }

    /// All ranks' bytes, by rank; at most 1024 bytes each. Collective; completes when all ranks have
    /// arrived.
    ///
    /// # Errors
    /// `TooLong` for more than 1024 bytes, before this rank enters it; those of
    /// [`barrier`](Self::barrier).
    ///
    /// # Cancel safety
    /// As [`barrier`](Self::barrier).
    ///
    /// ```
    /// # onesided_fabric::threads(3, |world| {
    /// let all = world.all_gather(&[world.rank() as u8; 2]).wait()?;
    /// assert_eq!(all, [[0, 0], [1, 1], [2, 2]]);
    /// # Ok(())
    /// # }).unwrap().into_iter().collect::<Result<(), onesided_fabric::Error>>().unwrap();
    /// ```
    pub const fn all_gather<'w>(&'w self, mine: &'w [u8]) -> AllGather<'w, F> {
        AllGather { world: self, limit: Limit::NONE, call: Call::NotStarted(mine) }
    }

    /// A world of all ranks with connections anew, after some between ranks that live were
    /// [lost](FaultKind::ConnectionLost) (`verbs`, `mixed`). Every rank gets an endpoint beside the one
    /// that it has. Collective among all ranks; blocks as joining the job does, and needs no connection
    /// of the cards.
    ///
    /// This world and its windows keep their losses, so a lock that was recovered from a rank stays
    /// that way, and what was unknown of an operation stays unknown. What is lost in the new world is
    /// lost in this one as well. A rank reads from its windows what windows of the new world are to begin
    /// with. It leaves the job with the last world that it drops, and counts as alive until then.
    ///
    /// On shared memory no connection is lost. The call is a barrier that gives up after the time for
    /// joining, and returns this world.
    ///
    /// # Errors
    /// `PeerDied`, `PeerLeft`: not all ranks are there any more. `TimedOut`: one has not made the call
    /// within the time for joining. `Unsupported` in a simulation, and for a [split](Self::split). Those
    /// of joining the job; the 15th time. Where one rank fails, all do, and may call it again.
    #[cfg(not(onesided_loom))] // a job has its time for joining
    pub fn reconnect(&self) -> Result<Self, Error>
    where
        F: Drive,
    {
        let failed = |kind, rank| Error::operation("reconnect")(Fault::of(kind, rank));
        let all = (0..self.fabric.size()).map(Rank);
        if !self.collective.members.are_all() {
            return Err(failed(FaultKind::Unsupported, self.fabric.rank()));
        }
        for rank in all {
            match self.fabric.liveness(rank) {
                Liveness::Alive => {}
                Liveness::Dead => return Err(failed(FaultKind::PeerDied, rank)),
                Liveness::Left | Liveness::NeverJoined => return Err(failed(FaultKind::PeerLeft, rank)),
            }
        }
        match self.fabric.again() {
            Some(fabric) => Ok(Self::new(fabric?)),
            None => self.barrier().deadline(onesided_job::patience()?).wait().map(|()| self.clone()),
        }
    }

    /// Ends the whole job at once (`MPI_Abort`): all its processes, on all hosts, however they were
    /// started. This one exits with `status`, 1 instead of 0, which is also the launcher's status
    /// under `onesided run`; the others are killed. No destructors run. Ranks that have left the
    /// job go on. Ranks that are [threads](crate::threads) end with their process.
    ///
    /// # Panics
    /// Always, in a simulation: it ends with this panic.
    pub fn abort(&self, status: u8) -> ! {
        self.fabric.endpoint().abort(status)
    }

    /// Whether a rank counts as alive: `false` once it died or left.
    pub fn is_alive(&self, rank: u32) -> bool {
        let alive = |rank| self.fabric.liveness(rank) == Liveness::Alive;
        self.fabric_rank(rank).is_some_and(alive)
    }

    /// Splits this world: the ranks with the same `color` form a new one, ordered by their `key`s
    /// and then by their ranks here (`MPI_Comm_split`). Collective, once it is waited on.
    ///
    /// The result is a world like any other, with its own barriers and windows and with ranks from
    /// 0; errors contain its ranks. Only deaths of its own ranks end its collectives. Its
    /// membership never changes: a dead rank stays a dead member.
    ///
    /// ```
    /// # use onesided_fabric::Fabric;
    /// onesided_fabric::threads(6, |world| {
    ///     let row = world.split(world.rank() / 3, 0).wait()?;
    ///     assert_eq!((row.rank(), row.size()), (world.rank() % 3, 3));
    ///     row.barrier().wait() // of three
    /// })
    /// .unwrap()
    /// .into_iter()
    /// .collect::<Result<(), onesided_fabric::Error>>()
    /// .unwrap();
    /// ```
    pub const fn split(&self, color: u32, key: u32) -> Split<'_, F> {
        Split::new(self, color, key)
    }

    /// Splits this world by hosts: the ranks of each, in their order here (`MPI_Comm_split_type` by
    /// shared memory). Collective, once it is waited on.
    pub fn split_by_host(&self) -> Split<'_, F> {
        self.split(self.fabric.host_of(self.fabric.rank()), 0)
    }

    /// Translates a rank of this world to the [fabric](Self::fabric)'s.
    pub fn fabric_rank(&self, rank: u32) -> Option<Rank> {
        self.collective.members.named_by_fabric(&self.fabric, rank)
    }

    /// Translates a rank of the [fabric](Self::fabric) to this world's; `None` if it is not in this
    /// world.
    pub fn rank_of(&self, rank: Rank) -> Option<u32> {
        self.collective.members.named_by_world(rank)
    }

    /// Translates the rank of the fabric's fault to this world's; a rank outside this world is
    /// omitted.
    pub fn translate(&self, fault: Fault) -> Fault {
        self.collective.members.translate(fault)
    }

    /// As [`RemoteMemory::wait_until`](onesided_remote_memory::RemoteMemory::wait_until) for an own
    /// word, until any rank of this world dies, or all others have left.
    ///
    /// # Errors
    /// `PeerDied`; `PeerLeft` without a rank; `NotOwn`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wait_until<'f, P>(&'f self, own: F::Word<'f>, predicate: P) -> Result<u64, Fault>
    where
        P: Fn(u64) -> bool + Unpin + Send + 'f,
    {
        let (fabric, members) = (&self.fabric, &self.collective.members);
        let mut wait = pin!(members.wait_until(fabric, own, predicate, (fabric.rank(), u64::MAX)));
        let (me, size) = (self.rank(), self.size());
        let mut other = (me + 1) % size;
        poll_fn(|cx| {
            // Before the word: a write before the leave counts.
            while other != me && !self.is_alive(other) {
                other = (other + 1) % size;
            }
            let is_alone = other == me && size > 1;
            match wait.as_mut().poll(cx) {
                Poll::Pending if is_alone => Poll::Ready(Err(Fault::new(FaultKind::PeerLeft))),
                polled => polled,
            }
        })
        .await
    }
}

impl<F: Drive> World<F> {
    /// Waits at most `patience` until background work is finished, then drops this handle.
    ///
    /// # Errors
    /// `TimedOut` with the number of unfinished tasks.
    pub fn close(self, patience: Duration) -> Result<(), Error> {
        // None: a patience beyond the clock's range is unlimited.
        let until = std::time::Instant::now().checked_add(patience);
        while self.fabric.tasks().unfinished() > 0 {
            if until.is_some_and(|until| std::time::Instant::now() >= until) {
                let fault = Fault::new(FaultKind::TimedOut).with_detail(self.fabric.tasks().unfinished() as u32);
                return Err(Error::Operation { operation: "close the world", fault });
            }
            std::thread::sleep(Duration::from_micros(100)); // the progress thread works on them
        }
        Ok(())
    }
}

/// A pending barrier: `.wait()` blocks, `.await` suspends, `.test()` polls once. Does nothing
/// unless waited on or polled.
///
/// The first poll enters it, and the caller must then wait for it: a rank that stops here blocks
/// the others.
#[derive(Debug)]
#[must_use = "a barrier that nobody waits for is not entered"]
pub struct Barrier<'w, F: Fabric> {
    world: &'w World<F>,
    limit: Limit<'w, F>,
    call: Call<'w, (), Result<(), Error>>,
}

impl<F: Fabric> Barrier<'_, F> {
    async fn run(world: &World<F>) -> Result<(), Error> {
        world.meet(Collective::Barrier).await.map_err(Error::operation("barrier"))
    }
}

limited! {
    ['w, F], Barrier<'w, F>, (), Error, |barrier| barrier.world.fabric(), |()| Self::run(barrier.world),
    late Error::operation("barrier")(barrier.world.give_up_collectives());
    /// Gives up after this time, counted from the next poll; see [`World::barrier`] for the
    /// consequences.
    deadline;
    /// Blocks until every rank has arrived.
    ///
    /// # Errors
    /// See [`World::barrier`].
    wait
}

/// The operation in the error of a contribution that is too long.
const GATHER_AT_MOST: &str = "all_gather of at most 1024 bytes";
const _: () = assert!(GATHER_BYTES == 1024);

/// A pending [`World::all_gather`]: `.wait()` blocks, `.await` suspends, `.test()` polls once. Does
/// nothing unless waited on or polled.
#[derive(Debug)]
#[must_use = "an all_gather that nobody waits for is not entered"]
pub struct AllGather<'w, F: Fabric> {
    world: &'w World<F>,
    limit: Limit<'w, F>,
    call: Call<'w, &'w [u8], Result<Vec<Vec<u8>>, Error>>,
}

impl<F: Fabric> AllGather<'_, F> {
    async fn run(world: &World<F>, mine: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let gathered = world.gather(Collective::AllGather, mine).await;
        gathered.map_err(|fault| match fault.kind() {
            FaultKind::TooLong => Error::operation(GATHER_AT_MOST)(fault),
            _ => Error::operation("all_gather")(fault),
        })
    }
}

limited! {
    ['w, F], AllGather<'w, F>, Vec<Vec<u8>>, Error, |gather| gather.world.fabric(), |mine| Self::run(gather.world, mine),
    late Error::operation("all_gather")(gather.world.give_up_collectives());
    /// Gives up after this time, counted from the next poll; see [`World::barrier`] for the
    /// consequences.
    deadline;
    /// Blocks until every rank has arrived; returns the bytes of each, by rank.
    ///
    /// # Errors
    /// See [`World::all_gather`].
    wait
}
