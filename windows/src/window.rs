//! The window.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use onesided_fabric::bootstrap::Maker;
use onesided_fabric::remote_memory::{Fault, FaultKind, Liveness, Rank};
use onesided_fabric::{AtomicAgent, Fabric, Path, Segment, SegmentKey, Task, UserMemory, World};
use onesided_lock_algos::{AnyLock, Intent, Mode};

use crate::agent::{Layout, Lines, is_wordless};
use crate::attach::Attached;
use crate::home::{Home, Sought};
use crate::homes::{Homes, Table, Which};
use crate::info::{agent_name, lock_all_note};
use crate::lease::{Choice, Late};
use crate::local::Local;
use crate::lock::LockRequest;
use crate::lock_all::LockAllRequest;
use crate::nodes::Nodes;
use crate::part::{Keys, Made};
use crate::paths::{PathCounts, Paths};
use crate::served::{LinesInUse, LockServer};
use crate::signals::Counts;
use crate::window_memory;
use crate::{
    Builder, Element, Epochs, Error, ExposureEpoch, FenceRequest, LeasePolicy, LockAllDesign, LockDesign, Request,
    StartRequest, TryLock, WindowMemory,
};

/// How long closing a window waits for background operations, in nanoseconds.
pub(crate) const SETTLE: u64 = 5_000_000_000;
pub(crate) const TURN: u64 = 50_000;

/// Size of the lock words in the hidden region beside each rank's window memory: one cache line.
pub(crate) const LOCK_BYTES: u64 = 64;

/// Memory of type `[T]` on every rank of a world, which every rank may read, write and lock without
/// the help of its owner.
///
/// ```
/// # use onesided_windows::Window;
/// onesided_fabric::threads(2, |world| {
///     let scores = Window::<u64>::allocate(&world, 1024).wait()?;
///     let next = (world.rank() + 1) % world.size();
///     let epoch = scores.lock_exclusive(next).wait()?;
///     let old = epoch.fetch_add(0, 1).wait()?;
///     epoch.put(8, &[old, 42])?;
///     epoch.unlock().wait()?;
///     scores.close().wait()
/// })
/// .unwrap()
/// .into_iter()
/// .collect::<Result<(), onesided_windows::Error>>()
/// .unwrap();
/// ```
///
/// Cheap to clone; all clones are the same window. Threads may share it. Offsets and lengths are in
/// elements.
///
/// Dropping a window without [`close`](Self::close) ends it for this rank alone. On shared memory
/// this rank's mapping is freed, and peers that have mapped the memory keep it. Memory that is
/// registered with a network card stays until this rank leaves the world, because a peer that
/// accessed a freed region would lose its connection; a program that creates many windows should
/// close them. Memory that a window was [created](Self::create) over is freed and peers get errors,
/// unless a peer is in the middle of an operation on it: then it is leaked.
pub struct Window<T, F: Fabric = onesided_fabric::Any> {
    pub(crate) inner: Arc<Inner<F>>,
    /// Keeps this rank in the world. `inner` does not: background tasks hold it.
    world: World<F>,
    element: PhantomData<fn() -> T>,
}

/// The state of a window, independent of its element type.
pub(crate) struct Inner<F: Fabric> {
    pub(crate) world: World<F>,
    pub(crate) name: Arc<str>,
    pub(crate) design: LockDesign,
    pub(crate) all: LockAllDesign,
    pub(crate) algorithm: AnyLock,
    pub(crate) nodes: Nodes,
    pub(crate) homes: Homes,
    /// What happens when a lease expires.
    pub(crate) late: Option<Late>,
    /// How the locks of a table are laid out in window memory.
    pub(crate) table: Table,
    pub(crate) own: F::Segment,
    pub(crate) own_locks: F::Segment,
    keys: Vec<Keys>,
    pub(crate) targets: Box<[OnceLock<Target<F>>]>,
    /// How this rank's memory was made; part of what it announces to its peers.
    pub(crate) made: Made,
    /// Requests to the agents of window memory that has no words here.
    pub(crate) lines: Lines,
    /// What this rank has attached to a dynamic window.
    pub(crate) attached: Attached<F>,
    closed: AtomicBool,
    /// Whether paths are counted even where that costs time.
    counted: bool,
    pub(crate) counts: Counts,
    /// Whether an operation is complete when it is posted.
    pub(crate) completes_at_post: bool,
    /// Whether operations complete at post and a thread may own the biased slot 0.
    pub(crate) leads: bool,
    /// The first deferred error: of a release or other background operation whose caller is gone.
    stuck: Mutex<Option<Error>>,
    /// How many background operations are under way: they still access peers' memory.
    background: AtomicUsize,
    /// Whether a handle of this rank is closing the window, or has closed it.
    pub(crate) ending: AtomicBool,
    /// Whether all ranks have closed the window: no peer accesses this rank's window memory any
    /// more.
    pub(crate) ended: AtomicBool,
    /// The fabric's ranks that share this one's host, in order, for locks with same-host words.
    pub(crate) neighbours: Box<[Rank]>,
    /// Serves this rank's lock, if its lock has a server.
    server: OnceLock<Arc<LockServer<F>>>,
    maker: Maker,
}

/// The ranks that share this one's host, if the lock uses same-host words.
fn neighbours<F: Fabric>(world: &World<F>, lock: &AnyLock) -> Box<[Rank]> {
    if lock.near_words() == 0 {
        return Box::default();
    }
    let fabric = world.fabric();
    let here = |rank: &Rank| fabric.host_of(*rank) == fabric.host_of(fabric.rank());
    let mut ranks: Vec<_> = (0..world.size()).filter_map(|rank| world.fabric_rank(rank)).filter(here).collect();
    ranks.sort_unstable();
    ranks.into()
}

impl<F: Fabric> Drop for Inner<F> {
    fn drop(&mut self) {
        if !self.maker.is_here() {
            return; // a forked child drops a copy: the window is its parent's
        }
        self.close_agent();
        if let Some(server) = self.server.get() {
            server.close();
        }
        // Shared memory stays while a peer has it mapped. A card would end the connection of a peer
        // that accesses a freed region.
        if !*self.ended.get_mut() && self.fabric().capabilities().agent == AtomicAgent::Card {
            if self.made == Made::Allocated {
                self.world.keep(self.own.clone());
            }
            self.world.keep(self.own_locks.clone());
        }
    }
}

/// A background operation that only the window's close waits for.
struct Background<F: Fabric>(Arc<Inner<F>>);

impl<F: Fabric> Drop for Background<F> {
    fn drop(&mut self) {
        self.0.background.fetch_sub(1, Ordering::Release);
    }
}

/// A rank's window memory, as accessed from here.
pub(crate) struct Target<F: Fabric> {
    /// The rank in the window's world.
    pub(crate) rank: u32,
    pub(crate) data: F::Segment,
    pub(crate) locks: F::Segment,
    /// In elements.
    pub(crate) len: usize,
    /// `len` where paths are not counted, otherwise 0: the range check on the fast path then fails,
    /// and the slow path counts. A separate test on the path of an operation costs up to half of
    /// the operation.
    pub(crate) uncounted: usize,
    /// Which attached memory this is; 0 where the rank has a single region.
    pub(crate) place: u64,
    /// Whether the fabric has no words of this memory, so that atomics go through its agent.
    pub(crate) wordless: bool,
    /// How often each path was taken; `None` where counting costs time and was not requested.
    pub(crate) paths: Option<Box<PathCounts>>,
    /// Request slots in use here, of a lock with a server thread.
    pub(crate) lines_in_use: LinesInUse,
}

/// What a window is made from.
pub(crate) struct Parts<F: Fabric> {
    pub(crate) segments: (F::Segment, F::Segment),
    pub(crate) keys: Vec<Keys>,
    pub(crate) made: Made,
    pub(crate) counted: bool,
    pub(crate) table: Table,
    pub(crate) late: Choice,
}

impl<F: Fabric> Inner<F> {
    /// `lock` is available on this fabric.
    pub(crate) fn new(
        world: World<F>,
        name: Arc<str>,
        (design, all, algorithm): (LockDesign, LockAllDesign, AnyLock),
        parts: Parts<F>,
    ) -> Self {
        let Parts { segments: (own, own_locks), keys, made, counted, table, late } = parts;
        let targets = keys.iter().map(|_| OnceLock::new()).collect();
        let lines = Lines::new(keys.len() as u32);
        let (counts, stuck) = (Counts::default(), Mutex::new(None));
        let capabilities = world.fabric().capabilities();
        let immediate = capabilities.completes_at_post;
        let led = late.policy == LeasePolicy::None;
        let nodes = Nodes::new(world.size(), led, all == LockAllDesign::Global);
        let homes = Homes::new(world.size(), &algorithm, late.policy == LeasePolicy::Revoke);
        let late = late.kept(nodes.slots);
        Self {
            nodes,
            late,
            neighbours: neighbours(&world, &algorithm),
            homes,
            table,
            world,
            name,
            design,
            all,
            algorithm,
            own,
            own_locks,
            keys,
            targets,
            made,
            lines,
            attached: Attached::default(),
            closed: AtomicBool::new(false),
            counted,
            counts,
            completes_at_post: immediate,
            leads: immediate && led,
            stuck,
            background: AtomicUsize::new(0),
            ending: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            server: OnceLock::new(),
            maker: Maker::this(),
        }
    }

    pub(crate) const fn fabric(&self) -> &F {
        self.world.fabric()
    }

    /// A target, resolved when it is first needed.
    #[inline]
    pub(crate) fn target(&self, rank: u32) -> Result<&Target<F>, Fault> {
        match self.targets.get(rank as usize).and_then(OnceLock::get) {
            Some(target) => Ok(target),
            None => self.reach(rank),
        }
    }

    /// A target for an operation that starts now: fails if this rank has closed the window.
    #[inline]
    pub(crate) fn begin(&self, rank: u32) -> Result<&Target<F>, Fault> {
        match self.targets.get(rank as usize).and_then(OnceLock::get) {
            Some(target) if !self.closed.load(Ordering::Relaxed) => Ok(target),
            _ => self.reach(rank), // which reports the close
        }
    }

    #[cold]
    #[inline(never)]
    fn reach(&self, rank: u32) -> Result<&Target<F>, Fault> {
        let keys = self.keys.get(rank as usize).ok_or(Fault::of(FaultKind::NoSuchRank, Rank(rank)))?;
        self.check_open()?;
        let open =
            |key: &SegmentKey| self.fabric().open(key).map_err(|error| self.why_unreachable(key.rank, error.fault()));
        // Window memory beyond the address space of this process is out of its range anyway.
        let len = usize::try_from(keys.len).unwrap_or(usize::MAX);
        let target = self.target_of(rank, (open(&keys.data)?, open(&keys.locks)?), len, 0);
        Ok(self.targets[rank as usize].get_or_init(|| target))
    }

    /// A rank that closed the window took its regions with it: then that is the error to report.
    fn why_unreachable(&self, rank: Rank, fault: Fault) -> Fault {
        match self.fabric().liveness(rank) {
            Liveness::Left if fault.kind() == FaultKind::NoSuchRegion => Fault::of(FaultKind::PeerLeft, rank),
            Liveness::Dead if fault.kind() == FaultKind::NoSuchRegion => Fault::of(FaultKind::PeerDied, rank),
            _ if fault.kind() == FaultKind::NoSuchRegion => Fault::of(FaultKind::NoSuchRegion, rank),
            _ => fault,
        }
    }

    /// The target for a rank's resolved memory.
    pub(crate) fn target_of(
        &self,
        rank: u32,
        (data, locks): (F::Segment, F::Segment),
        len: usize,
        place: u64,
    ) -> Target<F> {
        let wordless = self.fabric().word_in(&data, 0).is_err_and(is_wordless);
        // Where an operation is an instruction, nothing is counted unless requested.
        let paths: Option<Box<_>> = (self.counted || !self.completes_at_post || wordless).then(Box::default);
        let uncounted = if paths.is_some() { 0 } else { len };
        let lines_in_use = LinesInUse::default();
        Target { rank, data, locks, len, uncounted, place, wordless, paths, lines_in_use }
    }

    /// Starts the flushes of several targets together; the caller then awaits them one after
    /// another.
    pub(crate) fn begin_flushes<'t>(&self, targets: impl Iterator<Item = &'t Target<F>>)
    where
        F: 't,
    {
        if !self.completes_at_post {
            targets.for_each(|target| drop(self.fabric().flush(target.fabric_rank())));
        }
    }

    /// Where the request slots of the agents lie in a rank's hidden region.
    pub(crate) fn layout(&self) -> Layout {
        Layout::new(self.world.size(), self.homes.end())
    }

    /// Starts the server of this rank's lock, if the lock needs one.
    pub(crate) fn attend(&self) -> Result<(), Fault> {
        if let Some(how) = self.design.attendant() {
            let keys = self.keys.iter().map(|keys| keys.locks).collect();
            let server = LockServer::start(self, keys, how)?;
            self.server.get_or_init(|| server);
        }
        Ok(())
    }

    /// Stops the server, when no rank requests the lock any more.
    pub(crate) async fn dismiss(&self) -> Result<(), Fault> {
        let Some(server) = self.server.get() else { return Ok(()) };
        server.close();
        server.ended().await
    }

    /// The memory in which the agent of this rank's window memory serves peers' requests.
    pub(crate) fn agent_segment(&self, place: u64) -> Result<F::Segment, Fault> {
        match self.made {
            Made::Attached => self.attached.segment(place),
            _ => Ok(self.own.clone()),
        }
    }

    /// Stops serving peers' requests.
    pub(crate) fn close_agent(&self) {
        self.closed.store(true, Ordering::Release);
        let layout = self.layout();
        if self.own_locks.len() >= layout.end() {
            let closed = layout.closed();
            // Our own region exists.
            let _ = self.fabric().write_own(&self.own_locks, closed, &1_u64.to_le_bytes());
        }
    }

    /// `Closed` once the window was closed here.
    pub(crate) fn check_open(&self) -> Result<(), Fault> {
        if self.is_closed() { Err(Fault::of(FaultKind::Closed, self.fabric().rank())) } else { Ok(()) }
    }

    /// Whether the window was closed here.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Takes user memory back, or gives it up if a peer stays in the middle of an operation on it.
    pub(crate) async fn take_back(&self, own: &F::Segment) -> Result<UserMemory, Fault> {
        window_memory::take_back(self.fabric(), own, self.fabric().word_in(&self.own_locks, 0)?).await
    }

    /// Turns a fault into the error of a named operation. Cold: the only place where the path of an
    /// operation builds an `Error`.
    #[cold]
    #[inline(never)]
    pub(crate) fn failed(&self, operation: &'static str, target: u32, fault: Fault) -> Error {
        let (window, fault) = (self.name.clone(), self.world.translate(fault));
        match fault.kind() {
            FaultKind::NoSuchRank => Error::Rank { operation, target, size: self.world.size(), window },
            _ => Error::Operation { operation, target, window, fault },
        }
    }

    /// Spawns a release, or the rest of a cancelled request, on the endpoint; closing the window
    /// waits for it.
    pub(crate) fn spawn(self: &Arc<Self>, task: Task) {
        self.background.fetch_add(1, Ordering::Relaxed);
        let background = Background(Arc::clone(self));
        self.fabric().spawn(Box::pin(async move {
            let _background = background;
            task.await;
        }));
    }

    /// Waits until this window's background operations have ended: after the close, peers free the
    /// memory that these access. None of them waits for another rank.
    pub(crate) async fn settle(&self) -> Result<(), Fault> {
        let fabric = self.fabric();
        let until = fabric.now().saturating_add(SETTLE);
        while self.background.load(Ordering::Acquire) > 0 {
            if fabric.now() >= until {
                return Err(Fault::new(FaultKind::TimedOut));
            }
            let own = fabric.world_segment(fabric.rank()).map_err(|error| error.fault())?;
            fabric.pause(fabric.word_in(&own, 0)?, TURN).await;
        }
        Ok(())
    }

    /// Keeps a deferred error.
    pub(crate) fn keep(&self, error: Error) {
        self.stuck.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    /// Takes the deferred error: it is reported once.
    pub(crate) fn kept(&self) -> Result<(), Error> {
        match self.stuck.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// The number of elements of a rank's window memory; 0 for a rank out of range.
    pub(crate) fn len(&self, rank: u32) -> usize {
        self.keys.get(rank as usize).map_or(0, |keys| usize::try_from(keys.len).unwrap_or(usize::MAX))
    }

    /// The lock context of a target, for an owner.
    #[inline]
    pub(crate) const fn home<'w>(&'w self, target: &'w Target<F>, which: Which, owner: u64) -> Home<'w, F> {
        Home { inner: self, target, which, owner, node: Sought }
    }
}

// On the default fabric, so that a caller need not name one: the builder allocates on any.
impl<T: Element> Window<T> {
    /// Starts to configure a window: its name, its lock and more. Works with any fabric.
    #[must_use]
    pub fn builder() -> Builder<T> {
        Builder::default()
    }
}

impl<T: Element, F: Fabric> Window<T, F> {
    pub(crate) fn from_inner(world: &World<F>, inner: Inner<F>) -> Self {
        Self { inner: Arc::new(inner), world: world.clone(), element: PhantomData }
    }

    pub(crate) const fn inner(&self) -> &Arc<Inner<F>> {
        &self.inner
    }

    /// The number of elements of a rank's window memory; 0 for a rank out of range.
    pub fn len(&self, rank: u32) -> usize {
        self.inner.len(rank)
    }

    /// The window's name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The world that the window belongs to.
    pub const fn world(&self) -> &World<F> {
        &self.world
    }

    /// This rank's own window memory, for direct loads and stores. The caller orders them against
    /// peers' accesses: under a lock, or before a barrier.
    pub fn local(&self) -> Local<'_, T, F> {
        Local::new(&self.inner)
    }

    /// Locks a rank's window memory exclusively (`MPI_Win_lock`). The first operation is posted
    /// when the call returns; then wait on the request or await it.
    #[inline]
    pub fn lock_exclusive(&self, target: u32) -> LockRequest<'_, T, F> {
        LockRequest::start(self, target, Mode::Exclusive, Intent::LOCK)
    }

    /// Locks a rank's window memory together with other shared holders (`MPI_Win_lock`, shared).
    #[inline]
    pub fn lock_shared(&self, target: u32) -> LockRequest<'_, T, F> {
        LockRequest::start(self, target, Mode::Shared, Intent::LOCK)
    }

    /// Locks a rank's window memory exclusively if the lock is free.
    ///
    /// ```
    /// # use onesided_windows::Window;
    /// # onesided_fabric::threads(2, |world| {
    /// # let window = Window::<u64>::allocate(&world, 1).wait()?;
    /// match window.try_lock_exclusive(1).wait()? {
    ///     Some(epoch) => {
    ///         epoch.put(0, &[7])?;
    ///         epoch.unlock().wait()?;
    ///     }
    ///     None => { /* another rank holds it: do something else meanwhile */ }
    /// }
    /// # window.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
    /// ```
    #[inline]
    pub fn try_lock_exclusive(&self, target: u32) -> TryLock<'_, T, F> {
        TryLock::start(self, target, Mode::Exclusive)
    }

    /// Locks a rank's window memory shared if no exclusive holder or waiter is in the way.
    #[inline]
    pub fn try_lock_shared(&self, target: u32) -> TryLock<'_, T, F> {
        TryLock::start(self, target, Mode::Shared)
    }

    /// Locks every rank's window memory shared (`MPI_Win_lock_all`), as the window's
    /// [`LockAllDesign`] says.
    ///
    /// By default that is [on demand](LockAllDesign::OnDemand): this call posts nothing, and a
    /// target is locked at the first [`LockAll::at`](crate::LockAll::at) for it. Until then others
    /// may lock it exclusively, and an origin that holds several exclusive locks may deadlock with
    /// a holder of `lock_all`. With [`LockAllDesign::EachTarget`] or [`LockAllDesign::Global`]
    /// neither can happen, and the first operation is posted when the call returns: to every rank,
    /// or to the rank with the lock-all word.
    pub fn lock_all(&self) -> LockAllRequest<'_, T, F> {
        LockAllRequest::start(self)
    }

    /// The first fence (`MPI_Win_fence`): when it completes, every rank may operate on every target
    /// until the next fence. Collective.
    ///
    /// ```
    /// # use onesided_windows::{Op, Window};
    /// # onesided_fabric::threads(3, |world| {
    /// let sums = Window::<f64>::allocate(&world, 2).wait()?;
    /// let epoch = sums.fence().wait()?;
    /// epoch.at((world.rank() + 1) % 3)?.put(0, &[1.5])?;
    /// let epoch = epoch.fence().wait()?; // every rank sees every put
    /// assert_eq!(sums.local().read(0..1), [1.5]);
    /// epoch.at(0)?.accumulate(1, &[0.5], Op::Sum).wait()?;
    /// epoch.end().wait()?;
    /// assert_eq!(sums.local().read(1..2), [if world.rank() == 0 { 1.5 } else { 0.0 }]);
    /// sums.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
    /// ```
    ///
    /// The types state MPI's assertions: nothing precedes the first fence (`MPI_MODE_NOPRECEDE`),
    /// and nothing follows [`FenceEpoch::end`](crate::FenceEpoch::end) (`MPI_MODE_NOSUCCEED`).
    /// `MPI_MODE_NOSTORE` and `MPI_MODE_NOPUT` would save nothing on any fabric of this library: a
    /// fence flushes the targets that this rank operated on, and is a barrier.
    pub const fn fence(&self) -> FenceRequest<'_, T, F> {
        FenceRequest::new(self)
    }

    /// Exposes this rank's window memory to some origins (`MPI_Win_post`): they may operate on it
    /// once they have [started](Self::start). Does not block; posts one word to each origin.
    ///
    /// ```
    /// # use onesided_windows::Window;
    /// # onesided_fabric::threads(3, |world| {
    /// let window = Window::<u64>::allocate(&world, 3).wait()?;
    /// if world.rank() == 0 {
    ///     let exposure = window.post(&[1, 2])?;
    ///     exposure.wait()?; // both have completed
    ///     assert_eq!(window.local().read(0..3), [0, 1, 2]);
    /// } else {
    ///     let epoch = window.start(&[0]).wait()?; // it has posted
    ///     epoch.at(0)?.put(world.rank() as usize, &[world.rank().into()])?;
    ///     epoch.complete().wait()?;
    /// }
    /// window.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
    /// ```
    ///
    /// Naming a rank twice counts once; this rank may be among the origins. Only one thread of a
    /// rank may post at a time, and only one may start. MPI's assertion `MPI_MODE_NOCHECK` is
    /// [`StartRequest::no_check`](crate::StartRequest::no_check); the others would save nothing.
    ///
    /// # Errors
    /// [`Error::Rank`], [`Error::Operation`] if an origin cannot be reached; then no origin was
    /// notified.
    pub fn post(&self, origins: &[u32]) -> Result<ExposureEpoch<'_, T, F>, Error> {
        ExposureEpoch::post(self, origins)
    }

    /// Starts an access epoch on some targets (`MPI_Win_start`). Does nothing unless waited on or
    /// polled; it completes when each target has [exposed](Self::post) its window memory to this
    /// rank.
    pub fn start(&self, targets: &[u32]) -> StartRequest<'_, T, F> {
        StartRequest::new(self, targets)
    }

    /// Locks and unlocks as MPI does, by calls instead of guards, checked at run time.
    pub fn epochs(&self) -> Epochs<'_, T, F> {
        Epochs::new(self)
    }

    /// How often this rank's operations on a target took each [path](onesided_fabric::Path). An
    /// operation on many elements, or on a shape, counts as one; where the agent of memory without
    /// words executes it, each request to the agent counts.
    ///
    /// Operations that are an instruction of the calling thread are counted only in windows made
    /// with [`count_paths`](Builder::count_paths) or under `ONESIDED_COUNT=1`; all others always.
    /// Locks are not counted. The counts of [attached](crate::Access::attached) memory are summed
    /// over all of it. On `mixed`, a put or get that takes the card because atomics are under way
    /// counts as the CPU's.
    pub fn paths(&self, target: u32) -> Paths {
        let part = self.inner.targets.get(target as usize).and_then(OnceLock::get);
        let part = part.and_then(|target| target.paths.as_ref()).map_or_else(Paths::default, |paths| paths.read());
        self.inner.attached.paths(target).fold(part, Paths::plus)
    }

    /// Describes, for a human reader, which path operations on a target take and why.
    pub fn explain(&self, target: u32) -> String {
        let fabric = self.inner.fabric();
        let capabilities = fabric.capabilities();
        let reached = self.inner.target(target);
        let path = reached.as_ref().map_or(Path::Helper, |target| fabric.path(&target.data));
        let way = match path {
            _ if reached.is_err() => "it cannot be reached",
            Path::Cpu if self.inner.made == Made::Created => {
                "puts and gets by the CPU, because it is user memory in this process"
            }
            Path::Cpu if capabilities.agent != AtomicAgent::Cpu => {
                "puts and gets by the CPU, because it is mapped here"
            }
            Path::Cpu => "operations are done when the call returns, by the CPU, because it is mapped here",
            Path::ProcessVm => {
                "puts and gets by process_vm, because it is user memory in another process, done when the call \
                 returns"
            }
            Path::Helper => {
                "puts and gets by the owner's helper thread, because it is user memory in another process and \
                 process_vm does not work here or is switched off; done when the call returns"
            }
            _ => "operations are posted, completed by the fabric",
        };
        let agent = match reached {
            Ok(Target { wordless: true, .. }) => "CPU of the owner's process",
            _ => agent_name(capabilities.agent),
        };
        format!(
            "window \"{}\", rank {target}: {} elements of {} bytes over {}; {way}; atomics by the {agent}; lock {}{}",
            self.name(),
            self.len(target),
            size_of::<T>(),
            capabilities.name,
            self.inner.design,
            lock_all_note(self.inner.design, self.inner.all),
        )
    }
}

impl<T: Element, F: Fabric> Window<T, F> {
    /// Allocates `len` zeroed elements on every rank (`MPI_Win_allocate`). Collective.
    ///
    /// # Errors
    /// See [`Builder::allocate`].
    pub fn allocate(world: &World<F>, len: usize) -> Request<'_, Self, F> {
        Builder::default().allocate(world, len)
    }

    /// Makes a dynamic window: without memory, each rank attaches some later
    /// (`MPI_Win_create_dynamic`). Collective.
    ///
    /// # Errors
    /// See [`Builder::dynamic`].
    pub fn dynamic(world: &World<F>) -> Request<'_, Self, F> {
        Builder::default().dynamic(world)
    }

    /// Makes a window over a vector of this rank and over those of the other ranks
    /// (`MPI_Win_create`). Collective.
    ///
    /// # Errors
    /// See [`Builder::create`].
    pub fn create(world: &World<F>, memory: Vec<T>) -> Request<'_, Self, F> {
        Builder::default().create(world, memory)
    }

    /// Makes a window over elements of memory that other windows may overlap. Collective.
    ///
    /// # Errors
    /// See [`Builder::create_over`].
    pub fn create_over<'w>(
        world: &'w World<F>,
        memory: &'w WindowMemory<F>,
        range: Range<usize>,
    ) -> Request<'w, Self, F> {
        Builder::default().create_over(world, memory, range)
    }
}

impl<T, F: Fabric> Clone for Window<T, F> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), world: self.world.clone(), element: PhantomData }
    }
}

impl<T, F: Fabric> fmt::Debug for Window<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window")
            .field("name", &self.inner.name)
            .field("element", &std::any::type_name::<T>())
            .field("lengths", &self.inner.keys.iter().map(|keys| keys.len).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl<F: Fabric> fmt::Debug for Target<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}, {} elements", self.rank, self.len)
    }
}

impl<F: Fabric> Target<F> {
    /// The rank as the fabric numbers it.
    pub(crate) fn fabric_rank(&self) -> Rank {
        self.data.rank()
    }
}
