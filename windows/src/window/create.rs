//! How a window comes to be: every rank makes its part, then all compare.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};
use onesided_fabric::{Fabric, Segment, UserMemory, World};
use onesided_lock_algos::AnyLock;

use crate::helper::{RequestLayout, has_packed, is_wordless};
use crate::locks::layout::{HiddenLayout, Table};
use crate::locks::lease::LeaseChoice;
use crate::memory::remote_ptr;
use crate::memory::window_memory::{Backing, user_segment};
use crate::window::exchange::{CreateMessage, ElementType, Flavor, Keys};
use crate::window::info::lock_all_note;
use crate::window::inner::Creation;
use crate::window::inner::Inner;
use crate::{Element, Error, LeasePolicy, LockAllDesign, LockDesign, Request, Window, WindowMemory};

// Of one fabric, so that nobody need name one: the builder allocates on any.
impl<T: Element> Window<T> {
    /// Chooses a name, a lock and more before the window is allocated, on whatever fabric.
    #[must_use]
    pub fn builder() -> Builder<T> {
        Builder::default()
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

    /// Makes a window without memory, to which each rank attaches some (`MPI_Win_create_dynamic`). Collective.
    ///
    /// # Errors
    /// See [`Builder::dynamic`].
    pub fn dynamic(world: &World<F>) -> Request<'_, Self, F> {
        Builder::default().dynamic(world)
    }

    /// Makes a window over a vector of this rank's, and over those that the others give (`MPI_Win_create`). Collective.
    ///
    /// # Errors
    /// See [`Builder::create`].
    pub fn create(world: &World<F>, memory: Vec<T>) -> Request<'_, Self, F> {
        Builder::default().create(world, memory)
    }

    /// Makes a window over elements of memory that others may lie over as well. Collective.
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

/// Chooses what a window is before it is allocated: `Window::<u64>::builder().name("scores").allocate(&world, 1024).wait()`.
#[derive(Clone, Debug)]
pub struct Builder<T> {
    name: Arc<str>,
    design: Option<LockDesign>,
    all: Option<LockAllDesign>,
    uneven: bool,
    populated: bool,
    counted: Option<bool>,
    packed: bool,
    table: Table,
    lease: LeaseChoice,
    element: std::marker::PhantomData<T>,
}

impl<T: Element> Default for Builder<T> {
    fn default() -> Self {
        Self {
            name: "".into(),
            design: None,
            all: None,
            uneven: false,
            populated: false,
            counted: None,
            packed: false,
            table: Table::default(),
            lease: LeaseChoice::default(),
            element: std::marker::PhantomData,
        }
    }
}

impl<T: Element> Builder<T> {
    /// What errors and reports call the window; its first 60 characters are compared between ranks.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// Which lock it uses. Otherwise the one that `ONESIDED_LOCK` names, test-and-set if it is not set.
    #[must_use]
    pub const fn lock(mut self, design: LockDesign) -> Self {
        self.design = Some(design);
        self
    }

    /// Chooses how [`lock_all`](Window::lock_all) locks. Otherwise as `ONESIDED_LOCK_ALL` names it; if that is not set on demand, or,
    /// with a lock that is fair, each target's: see [`LockAllDesign`].
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

    /// Chooses what happens to an exclusive owner that keeps a lock for longer than this lease. Nothing otherwise. With
    /// test-and-set locks only; an acquire then takes a slot, and a release is a compare-swap. A lease of zero is an error when
    /// the window is made ([`Error::LeasePolicy`]).
    #[must_use]
    pub const fn lease_policy(mut self, policy: LeasePolicy, lease: Duration) -> Self {
        (self.lease.policy, self.lease.lease) = (policy, lease);
        self
    }

    /// Of something that commits nothing.
    pub(crate) const fn plain(mut self) -> Self {
        self.lease.plain = true;
        self
    }

    /// The lock that it will use.
    pub(crate) fn design(&self) -> Result<LockDesign, Error> {
        self.design.map_or_else(LockDesign::from_environment, Ok)
    }

    /// How its `lock_all` will lock: what has none is not asked.
    fn all(&self, lock: LockDesign) -> Result<LockAllDesign, Error> {
        match self.all {
            _ if self.lease.plain || self.table != Table::default() => Ok(LockAllDesign::usual(lock)),
            Some(design) => Ok(design),
            None => LockAllDesign::from_environment(lock),
        }
    }

    /// Of words in which a table's locks lie.
    pub(crate) const fn table(mut self, table: Table) -> Self {
        self.table = table;
        self
    }

    /// What it locks, behind the lock: nothing where that is parts. So ranks that lay their locks out differently are told.
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

    /// Has all pages of an allocated window there when it is made: each rank's part near the CPU that runs it then. It takes
    /// longer, nobody meets a page that is not there later, and that there is not so much memory is an error of
    /// [`allocate`](Self::allocate).
    #[must_use]
    pub const fn populate(mut self) -> Self {
        self.populated = true;
        self
    }

    /// Counts which [path](Window::paths) each operation takes, also where that costs something beside the operation: where
    /// it is an instruction. Otherwise as `ONESIDED_COUNT=1` says.
    #[must_use]
    pub const fn count_paths(mut self, count: bool) -> Self {
        self.counted = Some(count);
        self
    }

    /// Lets helper threads carry what is put to, or got from, [shapes](crate::Shape) and [fields](crate::Access::fields) of
    /// at least 64 pieces with at most 256 bytes each on average: one message of up to 16 KiB to the target's owner, whose
    /// thread does the rest, in the place of a request to the card for each piece (jiang-2004, section 4). Such an operation
    /// is at the target when it was waited for; it goes on while the owner computes, and not while its process is stopped.
    ///
    /// Off otherwise: each rank then has a helper thread that wakes for every message, and up to 1 MiB of registered memory
    /// beside its part. Of no effect where memory is mapped, for memory that is the user's (on shm shapes of that go so
    /// anyway where they must), and for targets that did not ask for it.
    #[must_use]
    pub const fn pack_shapes(mut self, pack: bool) -> Self {
        self.packed = pack;
        self
    }

    /// Allocates `len` zeroed elements on this rank, and as many as the others ask for on theirs. Collective.
    ///
    /// On shared memory a part of more than 64 KiB gets its pages when they are first touched, near the CPU that does: whoever
    /// initializes its own part has it near itself. As with memory from `malloc`, only what is clearly too much is refused
    /// here (more than the host, or the control group, has left; limits): where memory has run out when a page is
    /// touched, the kernel's out-of-memory killer ends a process, never a `SIGBUS`. With [`populate`](Self::populate),
    /// where the system overcommits nothing, and on verbs all pages are there when this returns.
    ///
    /// What a closed window leaves free a later one gets, zeroed: a rank keeps up to 32 MiB of memory for that, and then an
    /// allocation is no system call.
    ///
    /// # Errors
    /// [`Error::Create`] here and [`Error::CreateElsewhere`] on every other rank where one has no memory or descriptors;
    /// [`Error::Mismatch`] on all where the ranks do not agree; [`Error::Design`] where `ONESIDED_LOCK` names no lock;
    /// [`Error::Collective`] where a rank died.
    ///
    /// # Cancel safety
    /// Not cancel safe: collective.
    pub fn allocate<F: Fabric>(self, world: &World<F>, len: usize) -> Request<'_, Window<T, F>, F> {
        Request::new(world.fabric().clone(), "allocate", self.make(world, (Flavor::Allocated, None), len))
    }

    /// Makes a window over a vector of this rank's, and over those that the others give (`MPI_Win_create`): it is lent to
    /// the window until [`close_into`](Window::close_into) gives it back. Its spare capacity fills the last 8 bytes up; a
    /// vector that has none where it is needed is given some, which may move it.
    ///
    /// Peers in other processes reach it on shm by copies of the kernel (process_vm_readv), or by this rank's helper thread
    /// where the system forbids them or `ONESIDED_PROCESS_VM=off` is set; atomics go by the helper thread. So an
    /// [allocated](Self::allocate) window is faster, and more is promised of it: see the manual on the memory model.
    ///
    /// Two windows cannot own one vector: several lie over [`WindowMemory`], by [`create_over`](Self::create_over).
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate); the vector is freed then.
    ///
    /// # Cancel safety
    /// Not cancel safe: collective.
    pub fn create<F: Fabric>(self, world: &World<F>, memory: Vec<T>) -> Request<'_, Window<T, F>, F> {
        let len = memory.len();
        Request::new(world.fabric().clone(), "create", self.over(world, memory.into(), len))
    }

    /// Makes a window over [memory that something else owns](UserMemory::from_raw_parts), a mapping say, as
    /// [`create`](Self::create) does over a vector: as many elements as fit into it. It is lent to the window until
    /// [`close_into_memory`](Window::close_into_memory) gives it back. Collective; the others may give whatever
    /// `create` takes.
    ///
    /// # Errors
    /// As [`create`](Self::create); the memory is freed then.
    ///
    /// # Cancel safety
    /// Not cancel safe: collective.
    pub fn create_from<F: Fabric>(self, world: &World<F>, memory: UserMemory) -> Request<'_, Window<T, F>, F> {
        let len = memory.len().checked_div(size_of::<T>()).unwrap_or(0);
        Request::new(world.fabric().clone(), "create_from", self.over(world, memory, len))
    }

    async fn over<F: Fabric>(self, world: &World<F>, memory: UserMemory, len: usize) -> Result<Window<T, F>, Error> {
        if len == 0 {
            let window = self.make(world, (Flavor::Created, None), 0).await?;
            window.inner().memory.attached.set_backing(Backing::Empty(memory));
            return Ok(window);
        }
        // The agent's thread has to be there before the others are told that all is well.
        let user_memory = user_segment(world.fabric(), memory);
        self.make(world, (Flavor::Created, Some(user_memory)), len).await?.served()
    }

    /// Makes a window over some elements of memory that this rank has lent, over which others may lie at the same time,
    /// and over what the other ranks give (`MPI_Win_create` with overlapping memory). The range counts elements of `T` from the
    /// beginning of the memory; it begins at a multiple of 8 bytes. Collective; the others may call whatever creates a window
    /// over memory of theirs.
    ///
    /// The window is ended by [`close`](Window::close); [`WindowMemory::take_back`] gives the memory back.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate). [`Error::Create`] with `OutOfRange` if the range does not lie in the memory, with
    /// `Misaligned`, and with `Closed` if it was given back.
    ///
    /// # Cancel safety
    /// Not cancel safe: collective.
    pub fn create_over<'w, F: Fabric>(
        self,
        world: &'w World<F>,
        memory: &'w WindowMemory<F>,
        range: Range<usize>,
    ) -> Request<'w, Window<T, F>, F> {
        Request::new(world.fabric().clone(), "create_over", self.over_part(world, memory, range))
    }

    async fn over_part<F: Fabric>(
        self,
        world: &World<F>,
        memory: &WindowMemory<F>,
        range: Range<usize>,
    ) -> Result<Window<T, F>, Error> {
        let (user_memory, window_ref) = match memory.part::<T>(&range) {
            Ok((part, window_ref)) => (part.map(Ok), Some(window_ref)),
            Err(error) => (Some(Err(error)), None),
        };
        let window = self.make(world, (Flavor::Created, user_memory), range.len()).await?;
        if let Some(window_ref) = window_ref {
            window.inner().memory.attached.set_backing(Backing::Part(window_ref));
        }
        window.served()
    }

    /// Makes a window without memory, to which each rank [attaches](Window::attach) some while it is there
    /// (`MPI_Win_create_dynamic`): up to 256 pieces at the same time. Collective.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    ///
    /// # Cancel safety
    /// Not cancel safe: collective.
    pub fn dynamic<F: Fabric>(self, world: &World<F>) -> Request<'_, Window<T, F>, F> {
        Request::new(world.fabric().clone(), "dynamic", self.make(world, (Flavor::Dynamic, None), 0))
    }

    /// The lock that it will use, and all of it.
    fn lock_of<F: Fabric>(&self, world: &World<F>) -> Result<(LockDesign, LockAllDesign, AnyLock), Error> {
        let (design, capabilities) = (self.design()?, world.fabric().capabilities());
        let all = self.all(design)?;
        self.lease.check(design, world, &self.name)?;
        let algorithm = all.of(self.lease.algorithm(design, &capabilities), &capabilities);
        let why = "who waits for a global lock_all cannot tell who is late";
        let refused = || Error::LeasePolicy { window: self.name.clone(), policy: self.lease.policy, design, why };
        Ok((design, all, algorithm.ok_or_else(refused)?))
    }

    /// Makes a window over memory that this rank has lent, or otherwise that the fabric allocates, or tells the others why
    /// there is none.
    async fn make<F: Fabric>(
        self,
        world: &World<F>,
        (flavor, user_memory): (Flavor, Option<Result<F::Segment, onesided_fabric::Error>>),
        len: usize,
    ) -> Result<Window<T, F>, Error> {
        let fabric = world.fabric();
        let collective = |fault| Error::Collective { operation: "create", window: self.name.clone(), fault };
        const { assert!(size_of::<T>() > 0, "elements of no size have no place in a window") };
        // Whatever fails here, the others are told before it is returned: they wait for this rank.
        let packed = self.packed && has_packed(fabric.capabilities().agent, fabric.capabilities().completes_at_post);
        let design = self.lock_of(world);
        let usual = || LockDesign::default().algorithm(&fabric.capabilities());
        let algorithm = design.as_ref().map_or_else(|_| usual(), |(_, _, algorithm)| *algorithm);
        let revokes = self.lease.policy == LeasePolicy::Revoke;
        let locks = HiddenLayout::new(world.size(), &algorithm, revokes).end();
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
                fabric.populate(&data)?;
            }
            if helped {
                // Its helper thread has to be there before the others are told that all is well.
                let ready = Box::pin(std::future::ready(()));
                fabric.serve(ready).map_err(onesided_fabric::Error::operation("start its helper thread"))?;
            }
            Ok((data, locks))
        });
        let mine = CreateMessage {
            outcome: match (&parts, &design) {
                (Ok((data, locks)), Ok(_)) => Ok(Keys { data: data.key(), locks: locks.key(), len: len as u64 }),
                (Err(error), _) => Err(error.fault()),
                (_, Err(_)) => Err(Fault::of(FaultKind::Unsupported, fabric.rank())),
            },
            flavor,
            element: ElementType::of::<T>(),
            design: design.as_ref().map_or_else(
                |_| String::new(),
                |(design, all, _)| self.lease.describe(*design) + lock_all_note(*design, *all) + self.purpose(),
            ),
            name: self.name.chars().take(60).collect(),
        };
        let all = world.all_gather(&mine.to_bytes()).await.map_err(collective)?;
        let segments = parts.map_err(|source| Error::Create { window: self.name.clone(), source })?;
        let design = design?;
        let mut keys = Vec::with_capacity(all.len());
        let parts = all.iter().map(|bytes| CreateMessage::from_bytes(bytes).ok_or(Fault::new(FaultKind::Protocol)));
        let parts = parts.collect::<Result<Vec<_>, _>>().map_err(collective)?;
        for (rank, part) in (0..).zip(&parts) {
            let window = || self.name.clone();
            let elsewhere = |fault| {
                let fault = world.translate(fault);
                Error::CreateElsewhere { window: window(), rank, fault }
            };
            let theirs = part.outcome.map_err(elsewhere)?;
            if let Some(what) = part.differs_from(&parts[0], self.uneven) {
                return Err(Error::Mismatch { window: window(), rank, what });
            }
            keys.push(match world.fabric_rank(rank) {
                Some(owner) if theirs.are_valid(part.element.size, owner, locks) => theirs,
                owner => return Err(elsewhere(Fault::of(FaultKind::Protocol, owner.unwrap_or(fabric.rank())))),
            });
        }
        let counted =
            self.counted.unwrap_or_else(|| std::env::var_os("ONESIDED_COUNT").is_some_and(|count| count == "1"));
        let parts = Creation { segments, keys, flavor, counted, table: self.table, lease: self.lease };
        let window = Window::from_inner(world, Inner::new(world.background(), self.name, design, parts));
        let inner = window.inner();
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
    /// Starts to do what peers ask, where the memory has no words.
    fn served(self) -> Result<Self, Error> {
        let inner = self.inner();
        if inner.fabric().word_in(&inner.memory.own, 0).is_err_and(is_wordless) {
            crate::helper::serve(inner).map_err(|fault| inner.failed("create", inner.world.rank(), fault))?;
        }
        Ok(self)
    }
}

/// How many bytes so many elements take. Even an empty part has a word, so that every part has a key.
fn bytes_of<T>(rank: Rank, len: usize) -> Result<u64, onesided_fabric::Error> {
    let bytes = (len as u64).checked_mul(size_of::<T>() as u64).and_then(|bytes| bytes.checked_next_multiple_of(8));
    let bytes = bytes.ok_or_else(|| onesided_fabric::Error::Allocate {
        len: u64::MAX,
        what: "the length is not addressable".into(),
        fault: Fault::of(FaultKind::OutOfRange, rank),
        source: None,
    })?;
    Ok(bytes.max(8))
}
