//! Owners of libibverbs' objects. Each keeps its parent, so that they are destroyed in order.
#![allow(unsafe_code)] // calls of a C library, and the pointers it gives

mod completion_queue;
mod datagrams;
mod landing;
mod pair;

use std::ffi::CStr;
use std::mem::ManuallyDrop;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::{io, slice};

use ibverbs_sys as ibv;
use onesided_job::fork::{self, is_child};
use onesided_remote_memory::{Fault, FaultKind, debug};

use crate::shm::{self, Mapping};
use crate::{Error, UserMemory};

pub(super) use self::completion_queue::{BATCH, CompletionQueue};
pub(super) use self::datagrams::{AddressHandle, DatagramQueue, DatagramRoom, LIST, Received, Written};
pub(super) use self::landing::{LandingQueue, LaunchQueue};
pub(super) use self::pair::{INLINE, Local, Mtu, QueuePair, RawWorkRequest, RawWorkRequests, Remote, Route, Verb};

/// Of sends that are under way one of so many is signalled. When it has completed, those before it
/// have, too.
pub(super) const SIGNALLED: u64 = 32;

pub(super) fn failed(call: &'static str, source: io::Error) -> Error {
    let hint = match source.raw_os_error() {
        Some(12) => "; registered memory and queues are locked memory: raise `ulimit -l`",
        Some(23 | 24) => "; no file descriptors left (raise `ulimit -n`)",
        Some(1 | 13) => "; the devices in /dev/infiniband must be readable and writable",
        _ => "",
    };
    Error::Verbs { call, source, hint }
}

// A forked child shares the device's file and the mapped queues with its parent: it would take its
// parent's completions, and end its objects. So it calls nothing that opens, changes or ends an object.

/// The result of a call that returns a pointer.
fn made<T: Object>(name: &'static str, call: impl FnOnce() -> *mut T) -> Result<Owned<T>, Error> {
    made_by(call).map(Owned).map_err(|error| failed(name, error))
}

fn made_by<T>(call: impl FnOnce() -> *mut T) -> io::Result<NonNull<T>> {
    fork::refuse()?;
    NonNull::new(call()).ok_or_else(io::Error::last_os_error)
}

/// The result of a call that returns an error number.
fn done(name: &'static str, call: impl FnOnce() -> i32) -> Result<(), Error> {
    let done = || match call() {
        0 => Ok(()),
        number => Err(io::Error::from_raw_os_error(number.abs())),
    };
    fork::refuse().and_then(|()| done()).map_err(|error| failed(name, error))
}

/// Ends an object: whether it has ended here.
fn end(call: impl FnOnce() -> i32) -> bool {
    is_child() || call() == 0
}

/// An object of the library, and the call that ends it.
trait Object {
    const END: unsafe extern "C" fn(*mut Self) -> i32;
}

macro_rules! objects {
    ($($object:ident: $end:ident,)*) => {
        $(impl Object for ibv::$object {
            const END: unsafe extern "C" fn(*mut Self) -> i32 = ibv::$end;
        })*
    };
}

objects! {
    ibv_context: ibv_close_device,
    ibv_pd: ibv_dealloc_pd,
    ibv_comp_channel: ibv_destroy_comp_channel,
    ibv_cq: ibv_destroy_cq,
    ibv_srq: ibv_destroy_srq,
    ibv_qp: ibv_destroy_qp,
    ibv_ah: ibv_destroy_ah,
}

/// The owner of an object that was [made]. Whatever is made from the object keeps the owner, in a field after that of its
/// own object.
struct Owned<T: Object>(NonNull<T>);

debug!([T: Object] Owned<T>, |this| "{:?}", this.0);

// SAFETY: libibverbs' objects may be used by any thread, and by several at once.
unsafe impl<T: Object> Send for Owned<T> {}
// SAFETY: as above.
unsafe impl<T: Object> Sync for Owned<T> {}

impl<T: Object> Owned<T> {
    const fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }
}

impl<T: Object> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: made by the library, and ended only here; all objects made from it keep it, so none is left.
        end(|| unsafe { T::END(self.as_ptr()) });
    }
}

/// An open device.
#[derive(Debug)]
pub(super) struct Context(Owned<ibv::ibv_context>);

impl Context {
    /// Opens every device of the host. Devices that cannot be opened are omitted, unless none can.
    pub(super) fn open_all() -> Result<Vec<Arc<Self>>, Error> {
        let mut count = 0;
        // SAFETY: the count is written, and the list is ours until it is freed below.
        let list = unsafe { ibv::ibv_get_device_list(&mut count) };
        let Some(list) = NonNull::new(list) else { return Ok(Vec::new()) };
        // SAFETY: the library gave `count` devices.
        let devices = unsafe { slice::from_raw_parts(list.as_ptr(), count as usize) };
        let opened: Vec<_> = devices
            .iter()
            // SAFETY: a device of the list, which is not freed yet.
            .map(|device| made("ibv_open_device", || unsafe { ibv::ibv_open_device(*device) }).map(Self))
            .collect();
        // SAFETY: from ibv_get_device_list; contexts outlive the list.
        unsafe { ibv::ibv_free_device_list(list.as_ptr()) };
        if opened.iter().any(Result::is_ok) {
            Ok(opened.into_iter().flatten().map(Arc::new).collect())
        } else {
            opened.into_iter().map(|context| context.map(Arc::new)).collect()
        }
    }

    /// Its operations on queues.
    #[inline(always)] // the path of every operation
    fn ops(&self) -> Option<&ibv::ibv_context_ops> {
        // SAFETY: the context is open.
        (!is_child()).then(|| unsafe { &(*self.0.as_ptr()).ops })
    }

    pub(super) fn name(&self) -> String {
        // SAFETY: the context is open, and its device lives as long.
        let device = unsafe { (*self.0.as_ptr()).device };
        // SAFETY: a device of the library.
        let name = unsafe { ibv::ibv_get_device_name(device) };
        // SAFETY: the library's name of a device ends in a zero.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }

    pub(super) fn attributes(&self) -> Result<ibv::ibv_device_attr, Error> {
        let mut attributes = ibv::ibv_device_attr::default();
        // SAFETY: the context is open, the attributes are written.
        done("ibv_query_device", || unsafe { ibv::ibv_query_device(self.0.as_ptr(), &mut attributes) })?;
        Ok(attributes)
    }

    pub(super) fn port(&self, port: u8) -> Result<ibv::ibv_port_attr, Error> {
        let mut attributes = ibv::ibv_port_attr::default();
        // SAFETY: the context is open. The library's `_compat_ibv_port_attr` is a prefix of
        // `ibv_port_attr`, and it writes that prefix only.
        let query = || unsafe { ibv::ibv_query_port(self.0.as_ptr(), port, (&raw mut attributes).cast()) };
        done("ibv_query_port", query)?;
        Ok(attributes)
    }

    /// An entry of a port's GID table; `None` if there is none.
    pub(super) fn gid(&self, port: u8, index: u32) -> Option<(Gid, ibv::ibv_gid_type)> {
        let mut entry = ibv::ibv_gid_entry::default();
        let size = size_of_val(&entry);
        // SAFETY: the context is open, and the entry of the given size is written.
        let number = unsafe { ibv::_ibv_query_gid_ex(self.0.as_ptr(), u32::from(port), index, &mut entry, 0, size) };
        // SAFETY: every byte of the union is plain data that was written.
        let gid = Gid(unsafe { entry.gid.raw });
        (number == 0).then_some((gid, entry.gid_type))
    }
}

/// A port's address on RoCE and on routed InfiniBand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Gid(pub(super) [u8; 16]);

/// What memory and queue pairs must share to access one another.
#[derive(Debug)]
pub(super) struct ProtectionDomain {
    raw: Owned<ibv::ibv_pd>,
    context: Arc<Context>,
}

impl ProtectionDomain {
    pub(super) fn new(context: &Arc<Context>) -> Result<Arc<Self>, Error> {
        // SAFETY: the context is open.
        let raw = made("ibv_alloc_pd", || unsafe { ibv::ibv_alloc_pd(context.0.as_ptr()) })?;
        Ok(Arc::new(Self { raw, context: Arc::clone(context) }))
    }

    pub(super) const fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

/// What a card knows registered memory by, for itself and for peers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys {
    pub(super) local: u32,
    pub(super) remote: u32,
}

/// What one card knows of registered memory.
#[derive(Debug)]
struct AtCard {
    raw: NonNull<ibv::ibv_mr>,
    domain: ManuallyDrop<Arc<ProtectionDomain>>,
}

impl AtCard {
    /// Registers bytes with full access. Relaxed ordering is not requested: a flag that is written
    /// after data must not overtake it.
    ///
    /// # Safety
    /// The bytes are valid for reads and writes until it has [ended](Self::end), and accessed by
    /// atomics and racy copies only.
    unsafe fn new(domain: &Arc<ProtectionDomain>, (start, len): (NonNull<u8>, usize)) -> Result<Self, Error> {
        let access = ibv::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE
            | ibv::ibv_access_flags::IBV_ACCESS_REMOTE_READ
            | ibv::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE
            | ibv::ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC;
        // SAFETY: the caller vouches for the memory.
        let register = || unsafe { ibv::ibv_reg_mr(domain.raw.as_ptr(), start.as_ptr().cast(), len, access.0 as i32) };
        let raw = made_by(register).map_err(|error| {
            let what = "register it with the card (locked memory: raise `ulimit -l`)";
            unallocated(len as u64, what, FaultKind::NoMemory, error)
        })?;
        Ok(Self { raw, domain: ManuallyDrop::new(Arc::clone(domain)) })
    }

    fn keys(&self) -> Keys {
        // SAFETY: the registration lives as long as `self`.
        let raw = unsafe { self.raw.as_ref() };
        Keys { local: raw.lkey, remote: raw.rkey }
    }

    /// Whether the card accesses the memory no more. Called once, at the end.
    fn end(&mut self) -> bool {
        // SAFETY: made by ibv_reg_mr, and deregistered only here, which is called once.
        let ended = end(|| unsafe { ibv::ibv_dereg_mr(self.raw.as_ptr()) });
        if ended {
            // SAFETY: dropped once, after the last use. Else it is kept: the registration is in it.
            unsafe { ManuallyDrop::drop(&mut self.domain) };
        }
        ended
    }
}

/// Memory that is registered with a card, or several. It is freed after the registrations have ended.
/// If a card refuses to end one, the memory is leaked, because the card may still write it.
#[derive(Debug)]
pub(super) struct Registration<M> {
    first: AtCard,
    further: Vec<AtCard>,
    memory: ManuallyDrop<M>,
}

// SAFETY: as for [`Owned`].
unsafe impl<M: Send> Send for Registration<M> {}
// SAFETY: as above.
unsafe impl<M: Sync> Sync for Registration<M> {}

impl<M> Registration<M> {
    /// Registers bytes of the memory.
    ///
    /// # Safety
    /// The bytes are valid for reads and writes until `memory` is dropped, and accessed by atomics
    /// and racy copies only.
    unsafe fn of(domain: &Arc<ProtectionDomain>, bytes: (NonNull<u8>, usize), memory: M) -> Result<Self, Error> {
        // SAFETY: the caller vouches for the memory, which is kept until the registration has ended.
        let first = unsafe { AtCard::new(domain, bytes)? };
        Ok(Self { first, further: Vec::new(), memory: ManuallyDrop::new(memory) })
    }

    /// Registers the same bytes with one more card.
    pub(super) fn also_at(&mut self, domain: &Arc<ProtectionDomain>) -> Result<Keys, Error> {
        // SAFETY: the registration lives as long as `self`.
        let ibv::ibv_mr { addr, length, .. } = unsafe { *self.first.raw.as_ptr() };
        let start = NonNull::new(addr.cast()).unwrap_or(NonNull::dangling());
        // SAFETY: the bytes of the first registration, of which the maker has vouched for the same; the
        // memory is kept until this one has ended as well.
        let card = unsafe { AtCard::new(domain, (start, length))? };
        let keys = card.keys();
        self.further.push(card);
        Ok(keys)
    }

    pub(super) fn memory(&self) -> &M {
        &self.memory
    }

    /// Its start in the card's address space.
    pub(super) fn address(&self) -> u64 {
        // SAFETY: the registration lives as long as `self`.
        unsafe { (*self.first.raw.as_ptr()).addr as u64 }
    }

    /// Its length in bytes.
    pub(super) fn len(&self) -> u64 {
        // SAFETY: as above.
        unsafe { (*self.first.raw.as_ptr()).length as u64 }
    }

    pub(super) fn local_key(&self) -> u32 {
        self.first.keys().local
    }

    /// Its start, as peers reach it.
    pub(super) fn remote(&self) -> Remote {
        Remote { address: self.address(), key: self.first.keys().remote }
    }

    /// Deregisters and returns the memory; `None` if a card still accesses it: it is leaked.
    pub(super) fn end(self) -> Option<M> {
        let mut ending = ManuallyDrop::new(self);
        let memory = ending.take();
        drop(std::mem::take(&mut ending.further));
        memory
    }

    /// The memory, unless a card still accesses it. Called once, at the end.
    fn take(&mut self) -> Option<M> {
        let ended = self.further.iter_mut().fold(self.first.end(), |ended, card| card.end() && ended);
        // SAFETY: taken once, after the last use.
        ended.then(|| unsafe { ManuallyDrop::take(&mut self.memory) })
    }
}

impl<M> Drop for Registration<M> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// Memory that this rank allocated, registered.
pub(super) type MemoryRegion = Registration<Arc<Mapping>>;

impl MemoryRegion {
    /// Creates `len` zeroed bytes with all their pages, and registers them.
    pub(super) fn new(domain: &Arc<ProtectionDomain>, len: u64) -> Result<Self, Error> {
        let too_long = |_| unallocated(len, "no such length", FaultKind::NoMemory, io::ErrorKind::InvalidInput.into());
        let memory = Mapping::create(usize::try_from(len).map_err(too_long)?).map_err(|source| {
            let (what, kind) = shm::explain(&source);
            unallocated(len, what, kind, source)
        })?;
        let start = memory.bytes(0, len).unwrap_or(NonNull::dangling());
        let bytes = (start, memory.len());
        // SAFETY: the mapping has `len` bytes, and consists of whole words that nothing refers to.
        unsafe { Self::of(domain, bytes, Arc::new(memory)) }
    }
}

/// User memory, registered until it is reclaimed.
pub(super) type UserRegion = Registration<UserMemory>;

impl UserRegion {
    pub(super) fn new(domain: &Arc<ProtectionDomain>, memory: UserMemory) -> Result<Self, Error> {
        let bytes = (memory.start(), memory.len());
        // SAFETY: the memory is owned; no references to it are made until it is returned.
        unsafe { Self::of(domain, bytes, memory) }
    }
}

fn unallocated(len: u64, what: &str, kind: FaultKind, source: io::Error) -> Error {
    let fault = Fault::new(kind).with_detail(source.raw_os_error().unwrap_or(0) as u32);
    Error::Allocate { len, what: what.into(), fault, source: Some(source) }
}

/// A receive queue that queue pairs of an endpoint share.
#[derive(Debug)]
pub(super) struct SharedReceiveQueue {
    raw: Owned<ibv::ibv_srq>,
    domain: Arc<ProtectionDomain>,
    /// The bytes of a slot.
    slot: u64,
    /// The slots, if they have bytes: not unmapped while a receive may use them.
    room: Option<MemoryRegion>,
    /// Marks the ids of its receives; the rest is the slot.
    mark: u64,
}

impl SharedReceiveQueue {
    /// A queue of `slots` receives of `slot` bytes, all of them posted.
    pub(super) fn new(domain: &Arc<ProtectionDomain>, slots: u32, slot: u64, mark: u64) -> Result<Arc<Self>, Error> {
        let room = (slot > 0).then(|| MemoryRegion::new(domain, u64::from(slots) * slot)).transpose()?;
        let mut attributes = ibv::ibv_srq_init_attr {
            attr: ibv::ibv_srq_attr { max_wr: slots, max_sge: 1, srq_limit: 0 },
            ..Default::default()
        };
        // SAFETY: the domain is open.
        let raw = made("ibv_create_srq", || unsafe { ibv::ibv_create_srq(domain.raw.as_ptr(), &mut attributes) })?;
        let queue = Self { raw, domain: Arc::clone(domain), slot, room, mark };
        (0..slots).try_for_each(|slot| queue.post(slot))?;
        Ok(Arc::new(queue))
    }

    /// The bytes of its slots.
    pub(super) fn len(&self) -> u64 {
        self.room.as_ref().map_or(0, MemoryRegion::len)
    }

    /// Copies bytes of a slot that no receive uses, from an offset on.
    #[inline]
    pub(super) fn read(&self, slot: u32, offset: u64, into: &mut [u8]) -> Option<()> {
        self.room.as_ref()?.memory().read(u64::from(slot) * self.slot + offset, into)
    }

    /// Posts a receive into a slot that no other receive uses.
    pub(super) fn post(&self, slot: u32) -> Result<(), Error> {
        let piece = |room: &MemoryRegion| ibv::ibv_sge {
            addr: room.address() + u64::from(slot) * self.slot,
            length: self.slot as u32,
            lkey: room.local_key(),
        };
        let mut sge = self.room.as_ref().map(piece);
        let (wr_id, num_sge) = (self.mark | u64::from(slot), i32::from(sge.is_some()));
        let sg_list = sge.as_mut().map_or_else(null_mut, std::ptr::from_mut);
        let mut request = ibv::ibv_recv_wr { wr_id, next: null_mut(), sg_list, num_sge };
        let mut bad = null_mut();
        let post = self.domain.context.ops().and_then(|ops| ops.post_srq_recv);
        // SAFETY: the queue is open, the call copies the request, and the buffers stay mapped and
        // registered.
        done("ibv_post_srq_recv", || post.map_or(38, |post| unsafe { post(self.raw.as_ptr(), &mut request, &mut bad) }))
    }
}
