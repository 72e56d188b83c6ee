//! Creation of windows: every rank makes its memory, then all ranks compare.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use onesided_fabric::remote_memory::{Collective, Fault, FaultKind, Rank};
use onesided_fabric::{Fabric, Segment, UserMemory, World};
use onesided_lock_algos::TestAndSet;

use crate::active::signals::Counts;
use crate::error::Lack;
use crate::helper::{HelperRequests, RequestLayout, has_packed, is_wordless};
use crate::locks::layout::{HiddenLayout, Table};
use crate::locks::lease::LeaseChoice;
use crate::locks::slots::{self, default_slots};
use crate::locks::state::Locks;
use crate::locks::window_lock::{LockWords, OtherLock};
use crate::memory::regions::Regions;
use crate::memory::remote_ptr;
use crate::memory::window_memory::{Backing, user_segment};
use crate::operation::request::Awaited;
use crate::window::exchange::{CreateMessage, ElementType, Flavor, Keys, keys_of_all};
use crate::window::info::lock_all_note;
use crate::window::inner::Inner;
use crate::window::lifecycle::Lifecycle;
use crate::{Element, Error, LeasePolicy, LockAllDesign, LockDesign, Request, Window, WindowMemory};

// On the default fabric, so that a caller need not name one: the builder allocates on any.
impl<T> Window<T> {
    /// Starts to configure a window: its name, its lock and more. Works with any fabric.
    #[must_use]
    pub fn builder() -> Builder<T>
    where
        T: Element, // here, so that a compiler error says what an element is
    {
        Builder::default()
    }
}

impl<T, F: Fabric> Window<T, F> {
    /// Allocates `len` zeroed elements on every rank (`MPI_Win_allocate`). Collective.
    ///
    /// # Errors
    /// See [`Builder::allocate`].
    pub fn allocate(world: &World<F>, len: usize) -> Request<'_, Self, F>
    where
        T: Element, // here, so that a compiler error says what an element is
    {
        Builder::default().allocate(world, len)
    }
}

impl<T: Element, F: Fabric> Window<T, F> {
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

/// Configures a window: `Window::<u64>::builder().name("scores").allocate(&world, 1024).wait()`.
#[derive(Clone, Debug)]
pub struct Builder<T> {
    pub(crate) name: Arc<str>,
    design: Option<LockDesign>,
    all: Option<LockAllDesign>,
    uneven: bool,
    populated: bool,
    counted: Option<bool>,
    packed: bool,
    table: Table,
    pub(super) lease: LeaseChoice,
    slots: Option<u16>,
    element: PhantomData<T>,
}

impl<T: Element> Default for Builder<T> {
    fn default() -> Self {
        Self {
            name: format!("unnamed, of {}", std::any::type_name::<T>()).into(),
            design: None,
            all: None,
            uneven: false,
            populated: false,
            counted: None,
            packed: false,
            table: Table::default(),
            lease: LeaseChoice::default(),
            slots: None,
            element: PhantomData,
        }
    }
}

impl<T: Element> Builder<T> {
    /// The window's name in errors and reports; ranks compare its first 60 characters. Default:
    /// "unnamed", and the type of its elements.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// The lock of the window. Default: the one that `ONESIDED_LOCK` names, or test-and-set if that
    /// is not set.
    #[must_use]
    pub const fn lock(mut self, design: LockDesign) -> Self {
        self.design = Some(design);
        self
    }

    /// How [`lock_all`](Window::lock_all) locks. Default: as `ONESIDED_LOCK_ALL` names it; if that
    /// is not set, on demand, or, with a fair lock, each target's: see [`LockAllDesign`].
    ///
    /// ```
    /// # use onesided_windows::{LockAllDesign, Window};
    /// # onesided_fabric::threads(3, |world| {
    /// let window = Window::<u64>::builder().lock_all(LockAllDesign::Global).allocate(&world, 1).wait()?;
    /// let all = window.lock_all().wait()?; // one operation, whatever the number of ranks
    /// all.at(2).wait()?.fetch_add(0, 1).wait()?;
    /// all.unlock_all().wait()?;
    /// # window.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
    /// ```
    #[must_use]
    pub const fn lock_all(mut self, design: LockAllDesign) -> Self {
        self.all = Some(design);
        self
    }

    /// What happens to an exclusive owner that holds a lock for longer than this lease. Default:
    /// nothing. With test-and-set locks only; an acquire then takes a slot, and a release is a
    /// compare-and-swap. A lease of zero is an error when the window is made
    /// ([`Error::LeasePolicy`]).
    #[must_use]
    pub const fn lease_policy(mut self, policy: LeasePolicy, lease: Duration) -> Self {
        self.lease.lease = Some((policy, lease));
        self
    }

    /// The most locks of the window that a rank may hold or wait for at a time, all its threads
    /// together; further requests get
    /// [`NoSlot`](onesided_fabric::remote_memory::FaultKind::NoSlot). At most 4094, and 64 bytes
    /// each at every rank: more count as 4094, fewer than 2 as 2. Default: 1024, or as many as there are
    /// ranks and 31 more. Exclusive
    /// requests for test-and-set locks without a lease policy do not count.
    ///
    /// With a lock that a thread of the target serves, a rank has 64 requests at one target at a
    /// time, in worlds of more than 32 ranks fewer, down to 8; further ones wait for one of these.
    #[must_use]
    pub const fn lock_slots(mut self, slots: u16) -> Self {
        self.slots = Some(slots);
        self
    }

    /// Names what has no name.
    pub(crate) fn named(self, what: impl FnOnce() -> String) -> Self {
        if self.name == Self::default().name { self.name(&what()) } else { self }
    }

    /// For a request that creates the window.
    pub(crate) fn awaited<F: Fabric>(&self, world: &World<F>) -> Awaited<'static, F> {
        Awaited::AllRanks(world.background(), self.name.clone())
    }

    /// For a lock without a commit protocol.
    pub(crate) const fn plain(mut self) -> Self {
        self.lease.plain = true;
        self
    }

    /// The lock that the window will use.
    pub(crate) fn design(&self) -> Result<LockDesign, Error> {
        self.design.map_or_else(LockDesign::from_environment, Ok)
    }

    /// How `lock_all` will lock; not consulted for windows without one.
    pub(super) fn all(&self, lock: LockDesign) -> Result<LockAllDesign, Error> {
        match self.all {
            _ if self.lease.plain || self.table != Table::default() => Ok(LockAllDesign::usual(lock)),
            Some(design) => Ok(design),
            None => LockAllDesign::from_environment(lock),
        }
    }

    /// For window memory that holds the locks of a table.
    pub(crate) const fn table(mut self, table: Table) -> Self {
        self.table = table;
        self
    }

    /// What the lock protects, appended to the lock's description; empty for window memory. So
    /// ranks that lay out their locks differently get a mismatch.
    const fn purpose(&self) -> &'static str {
        match self.table {
            Table { stride: 0, .. } if self.lease.plain => ", of a value",
            Table { stride: 0, .. } => "",
            Table { token: None, .. } => ", of a table",
            Table { token: Some(_), .. } => ", of a table with tokens",
        }
    }

    /// Lets the ranks ask for different lengths; without it that is an error.
    #[must_use]
    pub const fn uneven(mut self) -> Self {
        self.uneven = true;
        self
    }

    /// Populates all pages of an allocated window at creation, on the NUMA node of the calling
    /// thread. Creation takes longer; no later access faults on a missing page, and a lack of
    /// memory is an error of [`allocate`](Self::allocate).
    #[must_use]
    pub const fn populate(mut self) -> Self {
        self.populated = true;
        self
    }

    /// Counts which [path](Window::paths) each operation takes even where that adds to its cost:
    /// where an operation is an instruction. Default: as `ONESIDED_COUNT=1` says.
    #[must_use]
    pub const fn count_paths(mut self, count: bool) -> Self {
        self.counted = Some(count);
        self
    }

    /// Lets helper threads execute puts and gets of [shapes](crate::Shape) and
    /// [fields](crate::Access::fields) of at least 64 pieces of at most 256 bytes on average: one
    /// message of up to 16 KiB to the target's owner, whose helper thread does the rest, instead of
    /// one request to the card for each piece (jiang-2004, section 4). Such an operation is
    /// complete at the target when its wait returns; it progresses while the owner computes, but
    /// not while its process is stopped.
    ///
    /// Default: off, because each rank then has a helper thread that wakes for every message, and
    /// up to 1 MiB of registered memory beside its window memory. No effect on mapped memory, on
    /// user memory (shapes of which use messages on shm where they must), or for targets without
    /// this option.
    #[must_use]
    pub const fn pack_shapes(mut self, pack: bool) -> Self {
        self.packed = pack;
        self
    }

    /// Allocates `len` zeroed elements on this rank, and as many as the others ask for on theirs.
    /// Collective.
    ///
    /// On shared memory, window memory of more than 64 KiB gets its pages at first touch, on the
    /// NUMA node of the CPU that touches them: a rank that initializes its own window memory has it
    /// local. As with memory from `malloc`, only what clearly exceeds the limits is refused here
    /// (those of the host or of the control group). Where memory has run out when a page is
    /// touched, the kernel's out-of-memory killer ends a process; there is never a `SIGBUS`. With
    /// [`populate`](Self::populate), without overcommit, and on verbs all pages are present when
    /// this returns.
    ///
    /// A rank keeps up to 32 MiB of the memory of closed windows and zeroes it for later ones; such
    /// an allocation needs no system call.
    ///
    /// # Errors
    /// [`Error::Create`] here and [`Error::CreateElsewhere`] on every other rank where one has no
    /// memory or descriptors; [`Error::Mismatch`] on all where the ranks do not agree;
    /// [`Error::Design`] where `ONESIDED_LOCK` names no lock; [`Error::Collective`] where a rank
    /// died.
    ///
    /// # Cancel safety
    /// Not cancel safe: collective, as a [barrier](World::barrier).
    pub fn allocate<F: Fabric>(self, world: &World<F>, len: usize) -> Request<'_, Window<T, F>, F> {
        Request::new(self.awaited(world), "create", self.make(None, world, (Flavor::Allocated, None), len))
    }

    /// Makes a window over a vector of this rank and over those of the other ranks
    /// (`MPI_Win_create`). The window owns the vector until [`close_into`](Window::close_into)
    /// returns it. The vector's spare capacity pads it to a multiple of 8 bytes; a vector without
    /// enough capacity is grown, which may move it.
    ///
    /// On shm, peers in other processes access it by `process_vm_readv` and `process_vm_writev`, or
    /// through this rank's helper thread where the system forbids these or
    /// `ONESIDED_PROCESS_VM=off` is set; atomics go through the helper thread. An
    /// [allocated](Self::allocate) window is faster and gives stronger guarantees: see the manual
    /// on the memory model.
    ///
    /// To make and close such a window takes longer than an allocated one, because a thread of this rank wakes
    /// to serve it. A program that makes many over the same memory registers that once, as [`WindowMemory`].
    ///
    /// Two windows cannot own one vector; to overlap windows, use [`WindowMemory`] and
    /// [`create_over`](Self::create_over).
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate); the vector is freed then.
    ///
    /// # Cancel safety
    /// Not cancel safe: collective, as a [barrier](World::barrier).
    pub fn create<F: Fabric>(self, world: &World<F>, memory: Vec<T>) -> Request<'_, Window<T, F>, F> {
        let len = memory.len();
        Request::new(self.awaited(world), "create", self.over(world, memory.into(), len))
    }

    /// Makes a window over [memory that something else owns](UserMemory::from_raw_parts), such as a
    /// mapping, as [`create`](Self::create) does over a vector, with as many elements as fit. The
    /// window keeps the memory until [`close_into_memory`](Window::close_into_memory) returns it.
    /// Collective; the other ranks may pass whatever `create` takes.
    ///
    /// # Errors
    /// As [`create`](Self::create); the memory is freed then.
    ///
    /// # Cancel safety
    /// Not cancel safe: collective, as a [barrier](World::barrier).
    pub fn create_from<F: Fabric>(self, world: &World<F>, memory: UserMemory) -> Request<'_, Window<T, F>, F> {
        let len = memory.len().checked_div(size_of::<T>()).unwrap_or(0);
        Request::new(self.awaited(world), "create", self.over(world, memory, len))
    }

    async fn over<F: Fabric>(self, world: &World<F>, memory: UserMemory, len: usize) -> Result<Window<T, F>, Error> {
        if len == 0 {
            let window = self.make(None, world, (Flavor::Created, None), 0).await?;
            window.inner().memory.attached.set_backing(Backing::Empty(memory));
            return Ok(window);
        }
        // The agent's thread must run before the other ranks learn that creation succeeded.
        let user_memory = user_segment(world.fabric(), memory);
        self.make(None, world, (Flavor::Created, Some(user_memory)), len).await?.served()
    }

    /// Makes a window over some elements of a [`WindowMemory`], which other windows may overlap,
    /// and over the memory of the other ranks (`MPI_Win_create` with overlapping memory). The range
    /// counts elements of `T` from the start of the memory and starts at a multiple of 8 bytes.
    /// Collective; the other ranks may call whatever creates a window over memory of theirs.
    ///
    /// [`close`](Window::close) ends the window; [`WindowMemory::take_back`] returns the memory.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate). [`Error::Create`] with `OutOfRange` if the range exceeds
    /// the memory, with `Misaligned`, and with `Closed` if the memory was taken back.
    ///
    /// # Cancel safety
    /// Not cancel safe: collective, as a [barrier](World::barrier).
    pub fn create_over<'w, F: Fabric>(
        self,
        world: &'w World<F>,
        memory: &'w WindowMemory<F>,
        range: Range<usize>,
    ) -> Request<'w, Window<T, F>, F> {
        Request::new(self.awaited(world), "create", self.over_part(world, memory, range))
    }

    async fn over_part<F: Fabric>(
        self,
        world: &World<F>,
        memory: &WindowMemory<F>,
        range: Range<usize>,
    ) -> Result<Window<T, F>, Error> {
        // What overflows exceeds the memory.
        let [start, end] = [range.start, range.end].map(|at| (at as u64).saturating_mul(size_of::<T>() as u64));
        let (user_memory, window_ref) = match memory.part(start..end) {
            Ok((part, window_ref)) => (part.map(Ok), Some(window_ref)),
            Err(error) => (Some(Err(error)), None),
        };
        let window = self.make(None, world, (Flavor::Created, user_memory), range.len()).await?;
        if let Some(window_ref) = window_ref {
            window.inner().memory.attached.set_backing(Backing::Part(window_ref));
        }
        window.served()
    }

    /// Makes a dynamic window: it has no memory, and each rank [attaches](Window::attach) up to 256
    /// regions to it later (`MPI_Win_create_dynamic`). Collective.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    ///
    /// # Cancel safety
    /// Not cancel safe: collective, as a [barrier](World::barrier).
    pub fn dynamic<F: Fabric>(self, world: &World<F>) -> Request<'_, Window<T, F>, F> {
        Request::new(self.awaited(world), "create", self.make(None, world, (Flavor::Dynamic, None), 0))
    }

    /// Makes a window over user memory, or over memory that the fabric allocates, perhaps with a lock of the
    /// program's own; tells the other ranks if it fails.
    pub(super) async fn make<F: Fabric>(
        self,
        own: Option<Arc<dyn OtherLock<F>>>,
        world: &World<F>,
        (flavor, user_memory): (Flavor, Option<Result<F::Segment, onesided_fabric::Error>>),
        len: usize,
    ) -> Result<Window<T, F>, Error> {
        let fabric = world.fabric();
        let collective = |fault| Error::Collective { operation: "create", window: self.name.clone(), fault };
        const { assert!(size_of::<T>() > 0, "zero-sized elements cannot be in a window") };
        // Every failure here is announced to the others before it is returned: they wait for this
        // rank.
        let packed = self.packed && has_packed(fabric.capabilities().agent, fabric.capabilities().completes_at_post);
        let own_name = own.as_ref().map(|own| own.name());
        let design = self.lock_of(world, own);
        let usual = LockWords::of(&TestAndSet::default());
        let lock_words = design.as_ref().map_or(usual, |(_, _, lock)| lock.lock_words());
        let revokes = self.lease.policy() == Some(LeasePolicy::Revoke);
        let slots = self.slots.map_or(default_slots(world.size()), |slots| slots.clamp(2, slots::MOST));
        let locks = HiddenLayout::new((world.size(), slots), lock_words, revokes).end();
        let layout = RequestLayout::new(world.size(), locks);
        let hidden = match flavor {
            Flavor::Allocated if packed => layout.end(),
            Flavor::Allocated => locks,
            Flavor::Created => layout.end(),
            Flavor::Dynamic => remote_ptr::hidden_bytes(layout),
        };
        let helped = flavor == Flavor::Allocated && packed || revokes;
        let parts = match user_memory {
            Some(user_memory) => user_memory.and_then(|user_memory| Ok((user_memory, fabric.allocate(hidden)?))),
            None => bytes_of::<T>(fabric.rank(), len).and_then(|bytes| fabric.allocate_two([bytes, hidden])),
        };
        let parts = parts.and_then(|(data, locks)| {
            if self.populated && flavor == Flavor::Allocated {
                data.populate()?;
            }
            if helped {
                // The helper thread must run before the other ranks learn that creation succeeded.
                let ready = Box::pin(std::future::ready(()));
                fabric
                    .endpoint()
                    .serve(ready, None)
                    .map_err(onesided_fabric::Error::operation("start its helper thread"))?;
            }
            Ok((data, locks))
        });
        let mine = CreateMessage {
            outcome: match (&parts, &design) {
                // The product does not overflow: so many bytes are in the memory.
                (Ok((data, locks)), Ok(_)) => {
                    Ok(Keys { data: data.key(), locks: locks.key(), len: (len * size_of::<T>()) as u64 })
                }
                (Err(error), _) => Err(error.fault()),
                (_, Err(_)) => Err(Lack::Lock.of(fabric.rank())),
            },
            flavor,
            element: ElementType::of::<T>(),
            design: design.as_ref().map_or_else(
                |_| String::new(),
                |(design, all, _)| {
                    let slots = self.slots.map_or(String::new(), |_| format!(", {slots} slots"));
                    let own = own_name.map_or(String::new(), |name| format!(": {name}"));
                    self.lease.describe(*design) + &own + &lock_all_note(*design, *all) + self.purpose() + &slots
                },
            ),
            name: self.name.chars().take(60).collect(),
        };
        // Behind it the lane that is free here; the window has it if it is free everywhere.
        let lane = world.take_lane();
        let mine = [&mine.to_bytes()[..], &[lane.unwrap_or(u8::MAX)]].concat();
        let mut all = world.gather(Collective::CreateWindow, &mine).await.map_err(collective)?;
        let is_free = all.iter().all(|bytes| bytes.last().copied() == lane);
        all.iter_mut().for_each(|bytes| bytes.truncate(bytes.len().saturating_sub(1)));
        lane.filter(|_| !is_free).into_iter().for_each(|lane| world.free_lane(lane));
        let lane = lane.filter(|_| is_free);
        let segments = parts.map_err(|source| Error::Create { window: self.name.clone(), source })?;
        let design = design?;
        let keys = keys_of_all(world, &self.name, &all, (locks, self.uneven))?;
        let counted =
            self.counted.unwrap_or_else(|| std::env::var_os("ONESIDED_COUNT").is_some_and(|count| count == "1"));
        let inner = Inner {
            completes_at_post: fabric.capabilities().completes_at_post,
            helper_requests: HelperRequests::new(world.size()),
            locks: Locks::new((world, &segments.1), design, (self.lease, slots), self.table),
            memory: Regions::new(segments, keys, flavor, counted),
            lifecycle: Lifecycle::default(),
            sequence: Arc::default(),
            lane,
            counts: Counts::default(),
            world: world.background(),
            name: self.name,
        };
        let window = Window { inner: Arc::new(inner), world: world.clone(), element: PhantomData };
        let inner = window.inner();
        inner.note_memory();
        inner
            .locks
            .start_server(&inner.world, &inner.memory.hidden, inner.memory.keys.iter().map(|keys| keys.locks))
            .map_err(|fault| inner.failed("create", world.rank(), fault))?;
        if revokes {
            crate::locks::revoke::serve(inner).map_err(|fault| inner.failed("create", world.rank(), fault))?;
        }
        if flavor == Flavor::Allocated && packed {
            crate::helper::serve(inner).map_err(|fault| inner.failed("create", world.rank(), fault))?;
        }
        Ok(window)
    }
}

impl<T: Element, F: Fabric> Window<T, F> {
    /// Starts to serve peers' requests, where the memory has no words.
    fn served(self) -> Result<Self, Error> {
        let inner = self.inner();
        if inner.fabric().word_in(&inner.memory.own, 0).is_err_and(is_wordless) {
            crate::helper::serve(inner).map_err(|fault| inner.failed("create", inner.world.rank(), fault))?;
        }
        Ok(self)
    }
}

/// The size of `len` elements in bytes. Even empty window memory has a word, so that it has a key.
fn bytes_of<T>(rank: Rank, len: usize) -> Result<u64, onesided_fabric::Error> {
    let bytes = (len as u64).checked_mul(size_of::<T>() as u64).and_then(|bytes| bytes.checked_next_multiple_of(8));
    let bytes = bytes.ok_or_else(|| onesided_fabric::Error::Allocate {
        len: u64::MAX,
        what: format!("{len} elements of {} bytes are not addressable", size_of::<T>()),
        fault: Fault::of(FaultKind::OutOfRange, rank),
        source: None,
    })?;
    Ok(bytes.max(8))
}
