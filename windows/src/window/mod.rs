//! The window.

pub(crate) mod background;
pub(crate) mod close;
pub(crate) mod create;
pub(crate) mod exchange;
pub(crate) mod info;
pub(crate) mod inner;
pub(crate) mod lifecycle;
pub(crate) mod paths;
pub(crate) mod target;

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use onesided_fabric::{AtomicAgent, Fabric, Path, World};
use onesided_lock_algos::{Intent, Mode};

use crate::memory::local::Local;
use crate::passive::lock::LockRequest;
use crate::passive::lock_all::LockAllRequest;
use crate::window::exchange::Flavor;
use crate::window::info::{agent_name, lock_all_note};
use crate::window::inner::Inner;
use crate::window::paths::Paths;
use crate::window::target::Target;
use crate::{
    Builder, Element, Epochs, Error, ExposureEpoch, FenceRequest, Request, StartRequest, TryLock, WindowMemory,
};

/// Memory of type `[T]` on every rank of a world, which every rank may read, write and lock without its owner's help.
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
/// Cheap to clone; all clones are the same window. Threads may share it. Offsets and lengths are in elements.
///
/// A window that is dropped without [`close`](Self::close) has ended for this rank alone. On shared memory this rank's hold of
/// the memory is freed, and peers that have reached it keep it. Where memory is registered with a card it stays until this
/// rank leaves the world, because a peer that met a freed part would lose its connection: whoever makes many windows closes
/// them. Memory that a window was [created](Self::create) over is freed, and peers get errors, unless one of them is in the
/// middle of an operation on it: then it is leaked.
pub struct Window<T, F: Fabric = onesided_fabric::Any> {
    pub(crate) inner: Arc<Inner<F>>,
    /// Keeps this rank in the world, which `inner` does not: work in the background holds on to that.
    world: World<F>,
    element: PhantomData<fn() -> T>,
}

// Of one fabric, so that nobody need name one: the builder allocates on any.
impl<T: Element> Window<T> {
    /// Chooses a name, a lock and more before the window is allocated, on whatever fabric.
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

    /// How many elements a rank's part has; 0 for a rank that there is not.
    pub fn len(&self, rank: u32) -> usize {
        self.inner.memory.len(rank)
    }

    /// The name that it was given.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The world that it belongs to.
    pub const fn world(&self) -> &World<F> {
        &self.world
    }

    /// This rank's own part, to be read and written at once. What peers do at the same time is theirs to order: under a
    /// lock, or before a barrier.
    pub fn local(&self) -> Local<'_, T, F> {
        Local::new(&self.inner)
    }

    /// Locks a rank's part for this origin alone (`MPI_Win_lock`, exclusive). The first operation has left when the call
    /// returns; the request is then waited for or awaited.
    #[inline]
    pub fn lock_exclusive(&self, target: u32) -> LockRequest<'_, T, F> {
        LockRequest::start(self, target, Mode::Exclusive, Intent::LOCK)
    }

    /// Locks a rank's part together with other shared holders (`MPI_Win_lock`, shared).
    #[inline]
    pub fn lock_shared(&self, target: u32) -> LockRequest<'_, T, F> {
        LockRequest::start(self, target, Mode::Shared, Intent::LOCK)
    }

    /// Locks a rank's part for this origin alone, if that can be had at once.
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
    ///     None => { /* somebody holds it: do something else meanwhile */ }
    /// }
    /// # window.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
    /// ```
    #[inline]
    pub fn try_lock_exclusive(&self, target: u32) -> TryLock<'_, T, F> {
        TryLock::start(self, target, Mode::Exclusive)
    }

    /// Locks a rank's part together with other shared holders, if that can be had at once.
    #[inline]
    pub fn try_lock_shared(&self, target: u32) -> TryLock<'_, T, F> {
        TryLock::start(self, target, Mode::Shared)
    }

    /// Locks every rank's part shared (`MPI_Win_lock_all`), as the window's [`LockAllDesign`](crate::LockAllDesign) says.
    ///
    /// Usually that is [on demand](crate::LockAllDesign::OnDemand): this call posts nothing, and a part is locked when
    /// [`LockAll::at`](crate::LockAll::at) first asks for it. Until then others may lock it exclusively; and who holds several
    /// exclusive locks at a time may wait for ever for somebody who locks all and waits for him. In windows made with
    /// [`LockAllDesign::EachTarget`](crate::LockAllDesign::EachTarget) or [`LockAllDesign::Global`](crate::LockAllDesign::Global) neither can be, and the first operation has left when the call
    /// returns: to every rank, or the only one there is.
    pub fn lock_all(&self) -> LockAllRequest<'_, T, F> {
        LockAllRequest::start(self)
    }

    /// The first fence (`MPI_Win_fence`): when it was waited for, every rank may operate on every part, until the next.
    /// Collective.
    ///
    /// ```
    /// # use onesided_windows::{Op, Window};
    /// # onesided_fabric::threads(3, |world| {
    /// let sums = Window::<f64>::allocate(&world, 2).wait()?;
    /// let epoch = sums.fence().wait()?;
    /// epoch.at((world.rank() + 1) % 3)?.put(0, &[1.5])?;
    /// let epoch = epoch.fence().wait()?; // everybody sees what everybody has put
    /// assert_eq!(sums.local().read(0..1), [1.5]);
    /// epoch.at(0)?.accumulate(1, &[0.5], Op::Sum).wait()?;
    /// epoch.end().wait()?;
    /// assert_eq!(sums.local().read(1..2), [if world.rank() == 0 { 1.5 } else { 0.0 }]);
    /// sums.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
    /// ```
    ///
    /// MPI's assertions are what the types say: the first fence has nothing before it (`MPI_MODE_NOPRECEDE`), and
    /// [`FenceEpoch::end`](crate::FenceEpoch::end) nothing behind it (`MPI_MODE_NOSUCCEED`). With `MPI_MODE_NOSTORE` and
    /// `MPI_MODE_NOPUT` no fabric of this library could save anything: a fence flushes the targets that this rank operated
    /// on, and is a barrier.
    pub const fn fence(&self) -> FenceRequest<'_, T, F> {
        FenceRequest::new(self)
    }

    /// Exposes this rank's part to some origins (`MPI_Win_post`): they may operate on it once they have
    /// [started](Self::start). Blocks nobody; one word is posted to each origin.
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
    /// A rank that is named twice counts once; this rank may be among them. One thread of a rank at a time posts, and one
    /// starts. Of MPI's assertions `MPI_MODE_NOCHECK` is
    /// [`StartRequest::no_check`](crate::StartRequest::no_check), and with the others nothing could be saved.
    ///
    /// # Errors
    /// [`Error::Rank`], [`Error::Operation`] if an origin cannot be reached; then none has been told.
    pub fn post(&self, origins: &[u32]) -> Result<ExposureEpoch<'_, T, F>, Error> {
        ExposureEpoch::post(self, origins)
    }

    /// Begins an access of some targets' parts (`MPI_Win_start`), when it is waited for: then each of them has
    /// [exposed](Self::post) its part to this rank.
    pub fn start(&self, targets: &[u32]) -> StartRequest<'_, T, F> {
        StartRequest::new(self, targets)
    }

    /// Locks and unlocks in MPI's manner, by calls instead of guards, checked at run time.
    pub fn epochs(&self) -> Epochs<'_, T, F> {
        Epochs::new(self)
    }

    /// How often this rank's operations on a rank's part took each [path](onesided_fabric::Path): an operation on many
    /// elements, or on a shape, counts as one, but where the agent of memory without words does it, each request to it.
    ///
    /// Counted always, but for operations that are an instruction of this thread: of those only where the window was made
    /// with [`count_paths`](Builder::count_paths) or under `ONESIDED_COUNT=1`. Locks are not counted, and of
    /// [attached](crate::Access::attached) memory what was done to it, all together. On `mixed` a put or get that takes the card
    /// because atomics are under way counts as the CPU's.
    pub fn paths(&self, target: u32) -> Paths {
        self.inner.memory.paths(target)
    }

    /// Which way operations on a rank's part take, and why; for people.
    pub fn explain(&self, target: u32) -> String {
        let fabric = self.inner.fabric();
        let capabilities = fabric.capabilities();
        let reached = self.inner.target(target);
        let path = reached.as_ref().map_or(Path::Helper, |target| fabric.path(&target.data));
        let way = match path {
            _ if reached.is_err() => "it cannot be reached",
            Path::Cpu if self.inner.memory.flavor == Flavor::Created => {
                "puts and gets by the CPU, because it is the user's memory in this process"
            }
            Path::Cpu if capabilities.agent != AtomicAgent::Cpu => {
                "puts and gets by the CPU, because it is mapped here"
            }
            Path::Cpu => "operations are done when the call returns, by the CPU, because it is mapped here",
            Path::ProcessVm => {
                "puts and gets by process_vm, because it is the user's memory in another process, done when the call \
                 returns"
            }
            Path::Helper => {
                "puts and gets by the owner's helper thread, because it is the user's memory in another process and \
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
            self.inner.locks.design,
            lock_all_note(self.inner.locks.design, self.inner.locks.lock_all),
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
            .field("lengths", &self.inner.memory.keys.iter().map(|keys| keys.len).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
