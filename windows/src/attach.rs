//! Dynamic windows: attach and detach (`MPI_Win_create_dynamic`, MPI-4.1, 12.2.4).

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Call, Drive, Fabric, Segment, call};

use crate::agent::is_wordless;
use crate::part::Made;
use crate::paths::Paths;
use crate::remote_ptr::{Entry, SLOTS};
use crate::window::{Inner, Target};
use crate::window_memory::Spare;
use crate::{Access, Element, Error, RemotePtr, Request, Window};

/// The memory that this rank has attached, and what it has resolved at other ranks.
#[derive(Debug)]
pub(crate) struct Attached<F: Fabric> {
    own: Mutex<Own<F>>,
    reached: OnceLock<Box<[Reached<F>]>>,
    /// The memory of a window that was created over a [`WindowMemory`](crate::WindowMemory), or
    /// over no elements.
    spare: Mutex<Option<Spare<F>>>,
}

#[derive(Debug)]
struct Own<F: Fabric> {
    /// Slots and their next generations, longest free first.
    free: VecDeque<(u32, u16)>,
    taken: Vec<Piece<F>>,
    serving: bool,
}

/// Memory that this rank has attached.
#[derive(Debug)]
struct Piece<F: Fabric> {
    place: RemotePtr,
    segment: F::Segment,
    len: usize,
    /// Whether it is user memory.
    lent: bool,
}

/// A rank's attached memory that was resolved, by slot. Resolved targets are kept until the window
/// ends, so that an `Access` may borrow them. On shm each is a mapping, without a descriptor.
type Reached<F> = OnceLock<Box<[Met<F>]>>;

/// The regions that were in a slot, one after another.
#[derive(Debug)]
struct Met<F: Fabric>(OnceLock<Box<Link<F>>>);

/// A region, and the next of its slot.
type Link<F> = (RemotePtr, Target<F>, Met<F>);

impl<F: Fabric> Met<F> {
    fn link(&self) -> Option<&Link<F>> {
        self.0.get().map(|met| &**met)
    }
}

impl<F: Fabric> Default for Attached<F> {
    fn default() -> Self {
        let own = Own { free: (0..SLOTS).map(|slot| (slot, 1)).collect(), taken: Vec::new(), serving: false };
        Self { own: Mutex::new(own), reached: OnceLock::new(), spare: Mutex::new(None) }
    }
}

impl<F: Fabric> Attached<F> {
    fn own(&self) -> MutexGuard<'_, Own<F>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The segment of a region that this rank has attached.
    pub(crate) fn segment(&self, place: u64) -> Result<F::Segment, Fault> {
        let own = self.own();
        let piece = own.taken.iter().find(|piece| piece.place.0 == place);
        piece.map(|piece| piece.segment.clone()).ok_or(Fault::new(FaultKind::NoSuchRegion))
    }

    /// Keeps memory that the window's end does not take back from the fabric.
    pub(crate) fn keep(&self, spare: Spare<F>) {
        *self.spare.lock().unwrap_or_else(PoisonError::into_inner) = Some(spare);
    }

    pub(crate) fn kept(&self) -> Option<Spare<F>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The region at a remote pointer, if it was resolved before.
    fn met(&self, rank: u32, place: RemotePtr) -> Option<&Target<F>> {
        let mut met = self.reached.get()?.get(rank as usize)?.get()?.get(place.slot())?;
        loop {
            let (this, target, next) = met.link()?;
            if *this == place {
                return Some(target);
            }
            met = next;
        }
    }

    /// The path counts of a rank's resolved regions.
    pub(crate) fn paths(&self, rank: u32) -> impl Iterator<Item = Paths> {
        let slots = self.reached.get().and_then(|ranks| ranks.get(rank as usize)?.get());
        slots.into_iter().flatten().flat_map(|met| {
            std::iter::successors(met.link(), |(_, _, next)| next.link())
                .filter_map(|(_, target, _)| target.paths.as_ref().map(|paths| paths.read()))
        })
    }

    /// Caches a resolved region.
    fn meet(&self, (rank, size): (u32, u32), place: RemotePtr, target: Target<F>) -> &Target<F> {
        let ranks = self.reached.get_or_init(|| (0..size).map(|_| OnceLock::new()).collect());
        let slots = || (0..SLOTS).map(|_| Met(OnceLock::new())).collect();
        let mut met = &ranks[rank as usize].get_or_init(slots)[place.slot()];
        let mut mine = Some(target);
        loop {
            let make = |target| Box::new((place, target, Met(OnceLock::new())));
            if met.0.get().is_none()
                && let Some(target) = mine.take()
                && let Err(taken) = met.0.set(make(target))
            {
                mine = Some(taken.1); // another thread was faster
            }
            let Some((this, target, next)) = met.link() else { continue };
            if *this == place {
                return target;
            }
            met = next;
        }
    }
}

impl<F: Fabric> Inner<F> {
    /// Publishes a segment, and starts its agent if it needs one.
    fn attach(self: &Arc<Self>, segment: F::Segment, len: usize, lent: bool) -> Result<RemotePtr, Fault> {
        if self.made != Made::Attached {
            return Err(Fault::new(FaultKind::Unsupported).with_detail(1));
        }
        self.check_open()?;
        let wordless = self.fabric().word_in(&segment, 0).is_err_and(is_wordless);
        let mut own = self.attached.own();
        let (slot, generation) = own.free.pop_front().ok_or(Fault::of(FaultKind::Full, self.fabric().rank()))?;
        let place = RemotePtr::new(slot, generation);
        let entry = Entry::encode(place, len, &segment.key());
        own.taken.push(Piece { place, segment, len, lent });
        let serve = wordless && !std::mem::replace(&mut own.serving, true);
        drop(own);
        let served = if serve { crate::agent::serve(self) } else { Ok(()) };
        if let Err(fault) = served.and_then(|()| self.enter(place, &entry)) {
            self.attached.own().serving &= !serve;
            drop(self.withdraw(place)?);
            return Err(fault);
        }
        Ok(place)
    }

    /// Writes an entry: clears its seal first and writes it last, since peers may read at any time.
    fn enter(&self, place: RemotePtr, entry: &[u8; Entry::BYTES]) -> Result<(), Fault> {
        let at = Entry::offset(self.layout(), place.slot());
        let write = |offset: u64, bytes: &[u8]| self.fabric().write_own(&self.own_locks, at + offset, bytes);
        write(56, &[0; 8])?;
        write(0, &entry[..56])?;
        write(56, &entry[56..])
    }

    /// Withdraws an entry from the table and returns its region.
    fn withdraw(&self, place: RemotePtr) -> Result<Piece<F>, Fault> {
        let mut own = self.attached.own();
        let at = own.taken.iter().position(|piece| piece.place == place.start());
        let at = at.ok_or(Fault::of(FaultKind::NoSuchRegion, self.fabric().rank()))?;
        // Before the slot is freed: its next user writes there.
        self.enter(place, &[0; Entry::BYTES])?;
        let generation = place.generation();
        own.free.push_back((place.slot() as u32, generation.checked_add(1).unwrap_or(1)));
        Ok(own.taken.swap_remove(at))
    }

    /// Takes back all attached memory.
    pub(crate) async fn detach_all(&self) -> Result<(), Fault> {
        let taken = std::mem::take(&mut self.attached.own().taken);
        let mut outcome = Ok(());
        for piece in taken.iter().filter(|piece| piece.lent) {
            outcome = outcome.and(self.take_back(&piece.segment).await.map(drop));
        }
        outcome
    }

    /// Finds a rank's attached memory: cached, or by its table.
    async fn find<'w>(
        &'w self,
        target: &'w Target<F>,
        place: RemotePtr,
        element: usize,
    ) -> Result<&'w Target<F>, Fault> {
        let (rank, start) = (target.rank, place.start());
        let gone = Fault::of(FaultKind::NoSuchRegion, target.fabric_rank());
        if self.made != Made::Attached || place.is_null() {
            return Err(gone);
        }
        if let Some(met) = self.attached.met(rank, start) {
            return Ok(met);
        }
        let mut bytes = [0; Entry::BYTES];
        self.fabric().get(&target.locks, Entry::offset(self.layout(), place.slot()), &mut bytes).await?;
        let (len, key) = Entry::decode(&bytes, start).ok_or(gone)?;
        let there = len.checked_mul(element).is_some_and(|bytes| bytes as u64 <= key.len);
        if key.rank != target.fabric_rank() || !there {
            return Err(Fault::of(FaultKind::Protocol, target.fabric_rank()));
        }
        let data = self.fabric().open(&key).map_err(|error| error.fault())?;
        let locks = target.locks.clone();
        let met = self.target_of(rank, (data, locks), len, start.0);
        Ok(self.attached.meet((rank, self.world.size()), start, met))
    }
}

impl<'w, T: Element, F: Fabric> Access<'w, T, F> {
    /// The operations on memory that the target has [attached](Window::attach). Does nothing unless
    /// waited on or polled. Elements count from the start of that memory: the element of a remote
    /// pointer is at [`index()`](RemotePtr::index). A cached resolution does not read the target's
    /// table again.
    ///
    /// # Errors
    /// When waited on: [`Error::Operation`] with `NoSuchRegion` if nothing is attached there (any
    /// more). If the memory is detached later, operations on it fail on shm if it is user memory,
    /// and on verbs, where the failure costs the connection to the target. Memory that was attached
    /// by length stays mapped on shm until this rank's window ends.
    ///
    /// Every resolved region is cached until this rank's window ends, on shm with a mapping each,
    /// of which a process has some 65,000: a program that attaches and detaches continuously should
    /// attach large regions.
    pub fn attached(&self, place: RemotePtr) -> Resolve<'_, 'w, T, F> {
        Resolve { access: self, place, call: Call::Asked(()) }
    }
}

/// A pending resolution of attached memory: `.wait()` blocks, `.await` does not, `.test()` polls.
/// See [`Access::attached`].
#[must_use = "does nothing unless waited on or polled"]
pub struct Resolve<'a, 'w, T: Element, F: Fabric> {
    access: &'a Access<'w, T, F>,
    place: RemotePtr,
    call: Call<'a, (), Result<Access<'a, T, F>, Error>>,
}

impl<'a, 'w: 'a, T: Element, F: Fabric> Resolve<'a, 'w, T, F> {
    async fn reach(access: &'a Access<'w, T, F>, place: RemotePtr) -> Result<Access<'a, T, F>, Error> {
        let Access { inner, target, .. } = *access;
        let found = inner.find(target, place, size_of::<T>()).await;
        found.map(|found| Access::new(inner, found)).map_err(|fault| inner.failed("attached", target.rank, fault))
    }
}

impl<'a, T: Element, F: Drive> Resolve<'a, '_, T, F> {
    /// Blocks until the memory is resolved.
    ///
    /// # Errors
    /// See [`Access::attached`].
    pub fn wait(self) -> Result<Access<'a, T, F>, Error> {
        self.block()
    }
}

call! {
    ['a, 'w: 'a, T: Element, F], Resolve<'a, 'w, T, F>, Access<'a, T, F>, Error, |reach| reach.access.inner.fabric(),
    |()| Self::reach(reach.access, reach.place)
}

impl<T: Element, F: Fabric> fmt::Debug for Resolve<'_, '_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {:?}", self.place, self.access)
    }
}

impl<T: Element, F: Fabric> Window<T, F> {
    /// Attaches a vector to a [dynamic](Window::dynamic) window of this rank (`MPI_Win_attach`) and
    /// returns a remote pointer to its first element, for peers. Not collective.
    ///
    /// ```
    /// # use onesided_windows::{RemotePtr, Window};
    /// # onesided_fabric::threads(2, |world| {
    /// let lists = Window::<u64>::dynamic(&world).wait()?;
    /// let heads = Window::<u64>::allocate(&world, 1).wait()?;
    /// let mine = lists.attach(vec![10, 20, 30])?;
    /// heads.local().write(0, &[mine.to_word()])?;
    /// world.barrier().wait().unwrap();
    /// let next = (world.rank() + 1) % 2;
    /// let mut head = [0];
    /// heads.lock_shared(next).wait()?.get(0, &mut head).wait()?;
    /// let epoch = lists.lock_shared(next).wait()?;
    /// let list = epoch.attached(RemotePtr::from_word(head[0])).wait()?;
    /// assert_eq!(list.fetch_add(1, 5).wait()?, 20);
    /// epoch.unlock().wait()?;
    /// world.barrier().wait().unwrap();
    /// assert_eq!(lists.detach(mine).wait()?, [10, 25, 30]);
    /// # heads.close().wait()?;
    /// # lists.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Error::Attach`]: the vector is empty, or there is no memory or descriptor for its
    /// registration; [`Error::Operation`] with `Full` where 256 regions are attached, with
    /// `Unsupported` if the window is not dynamic. The vector is freed then.
    pub fn attach(&self, memory: Vec<T>) -> Result<RemotePtr, Error> {
        let len = memory.len();
        let segment = self.inner().fabric().register(memory.into());
        self.attach_segment(segment, len, true)
    }

    /// Attaches `len` zeroed elements that the fabric allocates: peers access them as they access
    /// an allocated window, on shm by loads and stores. A peer on shm that has resolved this memory
    /// therefore does not notice that it was [detached](Self::detach): its later puts are lost.
    ///
    /// # Errors
    /// As [`attach`](Self::attach).
    pub fn attach_zeroed(&self, len: usize) -> Result<RemotePtr, Error> {
        let bytes = (len as u64).saturating_mul(size_of::<T>() as u64).checked_next_multiple_of(8).unwrap_or(u64::MAX);
        let segment = self.inner().fabric().allocate(bytes);
        self.attach_segment(segment, len, false)
    }

    fn attach_segment(
        &self,
        segment: Result<F::Segment, onesided_fabric::Error>,
        len: usize,
        lent: bool,
    ) -> Result<RemotePtr, Error> {
        let inner = self.inner();
        let segment = segment.map_err(|source| Error::Attach { window: inner.name.clone(), source })?;
        inner.attach(segment, len, lent).map_err(|fault| inner.failed("attach", inner.world.rank(), fault))
    }

    /// Detaches memory of this rank (`MPI_Win_detach`) and returns it: the vector, or a vector of
    /// what was allocated. Not collective. Does nothing unless waited on or polled. A peer that
    /// resolves the remote pointer for the first time from now on gets an error. A peer that has
    /// resolved it keeps its cached target: its operations fail if a vector was attached, and on
    /// verbs; on shm, if the memory was [attached by length](Self::attach_zeroed), the peer goes on
    /// to read and write pages that this rank no longer uses, without an error.
    ///
    /// # Errors
    /// [`Error::Operation`]: `NoSuchRegion` if this rank has attached nothing there; `TimedOut` if
    /// a peer stays in the middle of an operation on it for 5 s (it is stopped): then the memory is
    /// never freed.
    ///
    /// # Cancel safety
    /// If dropped before it completes, the memory is detached and leaked.
    pub fn detach(&self, place: RemotePtr) -> Request<'_, Vec<T>, F> {
        Request::new(self.inner().fabric().clone(), "detach", self.run_detach(place))
    }

    async fn run_detach(&self, place: RemotePtr) -> Result<Vec<T>, Error> {
        let inner = self.inner();
        let failed = |fault| inner.failed("detach", inner.world.rank(), fault);
        let piece = inner.withdraw(place).map_err(failed)?;
        if piece.lent {
            let memory = inner.take_back(&piece.segment).await.map_err(failed)?;
            return memory.into_vec().map_err(|_| failed(Fault::new(FaultKind::Unsupported).with_detail(2)));
        }
        let mut elements = vec![T::zeroed(); piece.len];
        let bytes = bytemuck::cast_slice_mut(&mut elements);
        inner.fabric().read_own(&piece.segment, 0, bytes).map_err(failed)?;
        Ok(elements)
    }
}
