//! Dynamic windows: attach and detach (`MPI_Win_create_dynamic`, MPI-4.1, 12.2.4).

use std::sync::Arc;

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Fabric, Segment, World};

use crate::datatype::element::elements_in;
use crate::error::Lack;
use crate::helper::is_wordless;
use crate::memory::attached::AttachedMemory;
use crate::memory::remote_ptr::Entry;
use crate::operation::request::Awaited;
use crate::window::exchange::Flavor;
use crate::window::inner::Inner;
use crate::window::target::Target;
use crate::{Access, Builder, Element, Error, RemotePtr, Request, Window};

impl<F: Fabric> Inner<F> {
    /// Publishes a segment, and starts its agent if it needs one.
    fn attach(self: &Arc<Self>, segment: F::Segment, len: u64, is_user_memory: bool) -> Result<RemotePtr, Fault> {
        if self.memory.flavor != Flavor::Dynamic {
            return Err(Lack::AttachedMemory.of(self.fabric().rank()));
        }
        self.check_open()?;
        let wordless = self.fabric().word_in(&segment, 0).is_err_and(is_wordless);
        let mut own = self.memory.attached.own();
        let (slot, generation) = own.free.pop_front().ok_or(Fault::of(FaultKind::Full, self.fabric().rank()))?;
        let ptr = RemotePtr::new(slot, generation);
        let entry = Entry::encode(ptr, len, &segment.key());
        own.attached_here.push(AttachedMemory { ptr, segment, len, is_user_memory });
        let serve = wordless && !std::mem::replace(&mut own.serving, true);
        drop(own);
        let served = if serve { crate::helper::serve(self) } else { Ok(()) };
        if let Err(fault) = served.and_then(|()| self.write_entry(ptr, &entry)) {
            self.memory.attached.own().serving &= !serve;
            drop(self.withdraw(ptr)?);
            return Err(fault);
        }
        Ok(ptr)
    }

    /// Writes an entry: clears its seal first and writes it last, since peers may read at any time.
    fn write_entry(&self, ptr: RemotePtr, entry: &[u8; Entry::BYTES]) -> Result<(), Fault> {
        let at = Entry::offset(self.request_layout(), ptr.slot());
        let write = |offset: u64, bytes: &[u8]| self.fabric().write_direct(&self.memory.hidden, at + offset, bytes);
        write(56, &[0; 8])?;
        write(0, &entry[..56])?;
        write(56, &entry[56..])
    }

    /// Withdraws an entry from the table and returns its region.
    fn withdraw(&self, ptr: RemotePtr) -> Result<AttachedMemory<F>, Fault> {
        let mut own = self.memory.attached.own();
        let at = own.attached_here.iter().position(|memory| memory.ptr == ptr.start());
        let at = at.ok_or(Fault::of(FaultKind::NoSuchRegion, self.fabric().rank()))?;
        // Before the slot is freed: its next user writes there.
        self.write_entry(ptr, &[0; Entry::BYTES])?;
        let generation = ptr.generation();
        own.free.push_back((ptr.slot() as u32, generation.checked_add(1).unwrap_or(1)));
        Ok(own.attached_here.swap_remove(at))
    }

    /// Takes back all attached memory.
    pub(crate) async fn detach_all(&self) -> Result<(), Fault> {
        let attached_here = std::mem::take(&mut self.memory.attached.own().attached_here);
        let mut outcome = Ok(());
        for memory in attached_here.iter().filter(|memory| memory.is_user_memory) {
            outcome = outcome.and(self.take_back(&memory.segment).await.map(drop));
        }
        outcome
    }

    /// Finds a rank's attached memory: cached, or by its table.
    async fn find<'w>(&'w self, target: &'w Target<F>, ptr: RemotePtr) -> Result<&'w Target<F>, Fault> {
        let (rank, start) = (target.rank, ptr.start());
        let gone = Fault::of(FaultKind::NoSuchRegion, target.fabric_rank());
        if self.memory.flavor != Flavor::Dynamic || ptr.is_null() {
            return Err(gone);
        }
        if let Some(cached) = self.memory.attached.cached(rank, start) {
            return Ok(cached);
        }
        let mut bytes = [0; Entry::BYTES];
        self.fabric().get(&target.locks, Entry::offset(self.request_layout(), ptr.slot()), &mut bytes).await?;
        let (len, key) = Entry::decode(&bytes, start).ok_or(gone)?;
        if key.rank != target.fabric_rank() || len > key.len {
            return Err(Fault::of(FaultKind::Protocol, target.fabric_rank()));
        }
        let data = self.fabric().open(&key).map_err(|error| error.fault())?;
        let locks = target.locks.clone();
        let cached = self.new_target(rank, (data, locks), len, start.0);
        Ok(self.memory.attached.cache((rank, self.world.size()), start, cached))
    }
}

impl<T: Element, F: Fabric> Access<'_, T, F> {
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
    pub fn attached(&self, ptr: RemotePtr) -> Request<'_, Access<'_, T, F>, F> {
        let Access { inner, target, .. } = *self;
        Request::new(Awaited::Target(inner, target.rank), "attached", async move {
            let found = inner.find(target, ptr).await;
            found.map(|found| Access::new(inner, found)).map_err(|fault| inner.failed("attached", target.rank, fault))
        })
    }
}

impl<T: Element, F: Fabric> Window<T, F> {
    /// Makes a dynamic window: without memory, each rank attaches some later
    /// (`MPI_Win_create_dynamic`). Collective.
    ///
    /// # Errors
    /// See [`Builder::dynamic`].
    pub fn dynamic(world: &World<F>) -> Request<'_, Self, F> {
        Builder::default().dynamic(world)
    }

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
    /// [`Error::Attach`]: there is no memory or descriptor for its
    /// registration; [`Error::Operation`] with `Full` where 256 regions are attached, with
    /// `Unsupported` if the window is not dynamic. The vector is freed then.
    pub fn attach(&self, memory: Vec<T>) -> Result<RemotePtr, Error> {
        if memory.is_empty() {
            return self.attach_zeroed(0);
        }
        let len = size_of_val(&*memory) as u64;
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
        let len = (len as u64).saturating_mul(size_of::<T>() as u64);
        let segment = self.inner().fabric().allocate(len.checked_next_multiple_of(8).unwrap_or(u64::MAX).max(8));
        self.attach_segment(segment, len, false)
    }

    fn attach_segment(
        &self,
        segment: Result<F::Segment, onesided_fabric::Error>,
        len: u64,
        is_user_memory: bool,
    ) -> Result<RemotePtr, Error> {
        let inner = self.inner();
        let segment = segment.map_err(|source| Error::Attach { window: inner.name.clone(), source })?;
        inner.attach(segment, len, is_user_memory).map_err(|fault| inner.failed("attach", inner.world.rank(), fault))
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
    pub fn detach(&self, ptr: RemotePtr) -> Request<'_, Vec<T>, F> {
        let own = Awaited::Target(self.inner(), self.inner().world.rank());
        Request::new(own, "detach", self.run_detach(ptr))
    }

    async fn run_detach(&self, ptr: RemotePtr) -> Result<Vec<T>, Error> {
        let inner = self.inner();
        let failed = |fault| inner.failed("detach", inner.world.rank(), fault);
        let memory = inner.withdraw(ptr).map_err(failed)?;
        if memory.is_user_memory {
            let memory = inner.take_back(&memory.segment).await.map_err(failed)?;
            return memory.into_vec().map_err(|_| failed(Lack::GivenMemory.of(inner.fabric().rank())));
        }
        let mut elements = vec![T::zeroed(); elements_in::<T>(memory.len)];
        let bytes = bytemuck::cast_slice_mut(&mut elements);
        inner.fabric().read_direct(&memory.segment, 0, bytes).map_err(failed)?;
        Ok(elements)
    }
}
