//! The attached memory of a dynamic window: this rank's, and what it has resolved of others.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, OnceLock};

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Fabric, lock};

use crate::RemotePtr;
use crate::memory::remote_ptr::SLOTS;
use crate::memory::window_memory::Backing;
use crate::window::paths::Paths;
use crate::window::target::Target;

/// The memory that this rank has attached, and what it has resolved at other ranks.
#[derive(Debug)]
pub(crate) struct Attached<F: Fabric> {
    own: Mutex<OwnMemory<F>>,
    caches: OnceLock<Box<[CachedSlots<F>]>>,
    /// The memory of a window that was created over a [`WindowMemory`](crate::WindowMemory), or
    /// over no elements.
    backing: Mutex<Option<Backing<F>>>,
}

#[derive(Debug)]
pub(super) struct OwnMemory<F: Fabric> {
    /// Slots and their next generations, longest free first.
    pub(super) free: VecDeque<(u32, u16)>,
    pub(super) attached_here: Vec<AttachedMemory<F>>,
    pub(super) serving: bool,
}

/// Memory that this rank has attached.
#[derive(Debug)]
pub(super) struct AttachedMemory<F: Fabric> {
    pub(super) ptr: RemotePtr,
    pub(super) segment: F::Segment,
    /// In bytes.
    pub(super) len: u64,
    /// Whether it is user memory.
    pub(super) is_user_memory: bool,
}

/// A rank's attached memory that was resolved, by slot. Resolved targets are kept until the window
/// ends, so that an `Access` may borrow them. On shm each is a mapping, without a descriptor.
type CachedSlots<F> = OnceLock<Box<[SlotCache<F>]>>;

/// The regions that were in a slot, one after another.
#[derive(Debug)]
struct SlotCache<F: Fabric>(OnceLock<Box<CachedMemory<F>>>);

/// A region, and the next of its slot.
type CachedMemory<F> = (RemotePtr, Target<F>, SlotCache<F>);

impl<F: Fabric> SlotCache<F> {
    fn entry(&self) -> Option<&CachedMemory<F>> {
        self.0.get().map(|cached| &**cached)
    }
}

impl<F: Fabric> Default for Attached<F> {
    fn default() -> Self {
        let own =
            OwnMemory { free: (0..SLOTS).map(|slot| (slot, 1)).collect(), attached_here: Vec::new(), serving: false };
        Self { own: Mutex::new(own), caches: OnceLock::new(), backing: Mutex::new(None) }
    }
}

impl<F: Fabric> Attached<F> {
    pub(super) fn own(&self) -> MutexGuard<'_, OwnMemory<F>> {
        lock(&self.own)
    }

    /// The segment of a region that this rank has attached.
    pub(crate) fn segment(&self, ptr: u64) -> Result<F::Segment, Fault> {
        let own = self.own();
        let memory = own.attached_here.iter().find(|memory| memory.ptr.0 == ptr);
        memory.map(|memory| memory.segment.clone()).ok_or(Fault::new(FaultKind::NoSuchRegion))
    }

    /// Keeps memory that the window's end does not take back from the fabric.
    pub(crate) fn set_backing(&self, backing: Backing<F>) {
        *lock(&self.backing) = Some(backing);
    }

    pub(crate) fn take_backing(&self) -> Option<Backing<F>> {
        lock(&self.backing).take()
    }

    /// The region at a remote pointer, if it was resolved before.
    pub(super) fn cached(&self, rank: u32, ptr: RemotePtr) -> Option<&Target<F>> {
        let mut cached = self.caches.get()?.get(rank as usize)?.get()?.get(ptr.slot())?;
        loop {
            let (this, target, next) = cached.entry()?;
            if *this == ptr {
                return Some(target);
            }
            cached = next;
        }
    }

    /// The path counts of a rank's resolved regions.
    pub(crate) fn paths(&self, rank: u32) -> impl Iterator<Item = Paths> {
        let slots = self.caches.get().and_then(|ranks| ranks.get(rank as usize)?.get());
        slots.into_iter().flatten().flat_map(|cached| {
            std::iter::successors(cached.entry(), |(_, _, next)| next.entry())
                .filter_map(|(_, target, _)| target.paths.as_ref().map(|paths| paths.read()))
        })
    }

    /// Caches a resolved region.
    pub(super) fn cache(&self, (rank, size): (u32, u32), ptr: RemotePtr, target: Target<F>) -> &Target<F> {
        let ranks = self.caches.get_or_init(|| (0..size).map(|_| OnceLock::new()).collect());
        let slots = || (0..SLOTS).map(|_| SlotCache(OnceLock::new())).collect();
        let mut cached = &ranks[rank as usize].get_or_init(slots)[ptr.slot()];
        let mut mine = Some(target);
        loop {
            let make = |target| Box::new((ptr, target, SlotCache(OnceLock::new())));
            if cached.0.get().is_none()
                && let Some(target) = mine.take()
                && let Err(taken) = cached.0.set(make(target))
            {
                mine = Some(taken.1); // another thread was faster
            }
            let Some((this, target, next)) = cached.entry() else { continue };
            if *this == ptr {
                return target;
            }
            cached = next;
        }
    }
}
