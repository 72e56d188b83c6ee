//! Owners of libibverbs' objects. Each keeps what it was made from, so that everything is destroyed in order.
#![allow(unsafe_code)] // calls of a C library, and the pointers it gives

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::{io, slice};

use ibverbs_sys as ibv;
use remote_memory::{Fault, FaultKind};

use crate::Error;
use crate::shm::Mapping;

/// How many completions one look takes in.
pub(super) const BATCH: usize = 16;
/// What an inline send must hold to be of use: a message.
const INLINE: u32 = 64;

/// The largest payload of a packet, as the library numbers it.
pub(super) type Mtu = ibv::ibv_mtu;

fn failed(call: &'static str, source: io::Error) -> Error {
    let hint = match source.raw_os_error() {
        Some(12) => "; registered memory and queues are locked memory: raise `ulimit -l`",
        Some(1 | 13) => "; the devices in /dev/infiniband must be readable and writable",
        _ => "",
    };
    Error::Verbs { call, source, hint }
}

/// What calls that give a pointer report.
fn made<T>(call: &'static str, pointer: *mut T) -> Result<NonNull<T>, Error> {
    NonNull::new(pointer).ok_or_else(|| failed(call, io::Error::last_os_error()))
}

/// What calls that give an error number report.
fn done(call: &'static str, number: i32) -> Result<(), Error> {
    if number == 0 { Ok(()) } else { Err(failed(call, io::Error::from_raw_os_error(number.abs()))) }
}

/// An open device.
#[derive(Debug)]
pub(super) struct Context(NonNull<ibv::ibv_context>);

// SAFETY: libibverbs' contexts may be used by any thread, and by several at once.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Opens every device of the host. Those that cannot be opened are left out, unless none can.
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
            .map(|device| made("ibv_open_device", unsafe { ibv::ibv_open_device(*device) }).map(Self))
            .collect();
        // SAFETY: from ibv_get_device_list; contexts outlive the list.
        unsafe { ibv::ibv_free_device_list(list.as_ptr()) };
        if opened.iter().any(Result::is_ok) {
            Ok(opened.into_iter().flatten().map(Arc::new).collect())
        } else {
            opened.into_iter().map(|context| context.map(Arc::new)).collect()
        }
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
        done("ibv_query_device", unsafe { ibv::ibv_query_device(self.0.as_ptr(), &mut attributes) })?;
        Ok(attributes)
    }

    pub(super) fn port(&self, port: u8) -> Result<ibv::ibv_port_attr, Error> {
        let mut attributes = ibv::ibv_port_attr::default();
        // SAFETY: the context is open. The library's `_compat_ibv_port_attr` is a prefix of `ibv_port_attr`, and it
        // writes that prefix only.
        let number = unsafe { ibv::ibv_query_port(self.0.as_ptr(), port, (&raw mut attributes).cast()) };
        done("ibv_query_port", number)?;
        Ok(attributes)
    }

    /// An entry of a port's table of GIDs; `None` where there is none.
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

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: whatever was made from it kept it, so nothing is left.
        unsafe { ibv::ibv_close_device(self.0.as_ptr()) };
    }
}

/// A port's address on RoCE and on routed InfiniBand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Gid(pub(super) [u8; 16]);

/// What memory and queue pairs must share to reach one another.
#[derive(Debug)]
pub(super) struct ProtectionDomain {
    raw: NonNull<ibv::ibv_pd>,
    context: Arc<Context>,
}

// SAFETY: as for Context.
unsafe impl Send for ProtectionDomain {}
// SAFETY: as for Context.
unsafe impl Sync for ProtectionDomain {}

impl ProtectionDomain {
    pub(super) fn new(context: &Arc<Context>) -> Result<Arc<Self>, Error> {
        // SAFETY: the context is open.
        let raw = made("ibv_alloc_pd", unsafe { ibv::ibv_alloc_pd(context.0.as_ptr()) })?;
        Ok(Arc::new(Self { raw, context: Arc::clone(context) }))
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: whatever was made in it kept it, so nothing is left.
        unsafe { ibv::ibv_dealloc_pd(self.raw.as_ptr()) };
    }
}

/// Memory that the card may reach: the mapping and its registration.
#[derive(Debug)]
pub(super) struct MemoryRegion {
    raw: NonNull<ibv::ibv_mr>,
    memory: Mapping,
    _domain: Arc<ProtectionDomain>,
}

// SAFETY: as for Context.
unsafe impl Send for MemoryRegion {}
// SAFETY: as for Context.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    /// Makes `len` zeroed bytes, with all their pages, and registers them for everything. Relaxed ordering is not asked
    /// for: a flag that is written behind data must not overtake it.
    pub(super) fn new(domain: &Arc<ProtectionDomain>, len: u64) -> Result<Self, Error> {
        let error = |what: &str, kind, source: io::Error| {
            let fault = Fault::new(kind).with_detail(source.raw_os_error().unwrap_or(0) as u32);
            Error::Allocate { len, what: what.into(), fault, source: Some(source) }
        };
        let too_long = |_| error("no such length", FaultKind::NoMemory, io::ErrorKind::InvalidInput.into());
        let memory = Mapping::create(usize::try_from(len).map_err(too_long)?).map_err(|source| {
            let kind = match source.raw_os_error() {
                Some(23 | 24) => FaultKind::NoDescriptors,
                _ => FaultKind::NoMemory,
            };
            error("map it", kind, source)
        })?;
        let access = ibv::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE
            | ibv::ibv_access_flags::IBV_ACCESS_REMOTE_READ
            | ibv::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE
            | ibv::ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC;
        let start = memory.bytes(0, len).unwrap_or(NonNull::dangling());
        // SAFETY: the mapping has `len` bytes and is kept for as long as the registration.
        let raw = unsafe { ibv::ibv_reg_mr(domain.raw.as_ptr(), start.as_ptr().cast(), memory.len(), access.0 as i32) };
        let Some(raw) = NonNull::new(raw) else {
            let what = "register it with the card (locked memory: raise `ulimit -l`)";
            return Err(error(what, FaultKind::NoMemory, io::Error::last_os_error()));
        };
        Ok(Self { raw, memory, _domain: Arc::clone(domain) })
    }

    pub(super) const fn memory(&self) -> &Mapping {
        &self.memory
    }

    /// Where it begins, as the card counts.
    pub(super) fn address(&self) -> u64 {
        // SAFETY: the registration lives as long as `self`.
        unsafe { (*self.raw.as_ptr()).addr as u64 }
    }

    pub(super) fn local_key(&self) -> u32 {
        // SAFETY: the registration lives as long as `self`.
        unsafe { (*self.raw.as_ptr()).lkey }
    }

    pub(super) fn remote_key(&self) -> u32 {
        // SAFETY: the registration lives as long as `self`.
        unsafe { (*self.raw.as_ptr()).rkey }
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // SAFETY: made by ibv_reg_mr; the mapping goes after it.
        unsafe { ibv::ibv_dereg_mr(self.raw.as_ptr()) };
    }
}

/// A completion queue and the channel that tells of its completions.
#[derive(Debug)]
pub(super) struct CompletionQueue {
    raw: NonNull<ibv::ibv_cq>,
    channel: NonNull<ibv::ibv_comp_channel>,
    context: Arc<Context>,
}

// SAFETY: as for Context.
unsafe impl Send for CompletionQueue {}
// SAFETY: as for Context.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    pub(super) fn new(context: &Arc<Context>, entries: u32) -> Result<Arc<Self>, Error> {
        // SAFETY: the context is open.
        let channel = unsafe { ibv::ibv_create_comp_channel(context.0.as_ptr()) };
        let channel = made("ibv_create_comp_channel", channel)?;
        // SAFETY: context and channel are open; no user pointer is given.
        let raw = unsafe { ibv::ibv_create_cq(context.0.as_ptr(), entries as i32, null_mut(), channel.as_ptr(), 0) };
        match made("ibv_create_cq", raw) {
            Ok(raw) => {
                let queue = Self { raw, channel, context: Arc::clone(context) };
                rustix::io::ioctl_fionbio(queue.events(), true)
                    .map_err(|error| failed("make the completion channel nonblocking", error.into()))?;
                Ok(Arc::new(queue))
            }
            Err(error) => {
                // SAFETY: made above, and no queue uses it.
                unsafe { ibv::ibv_destroy_comp_channel(channel.as_ptr()) };
                Err(error)
            }
        }
    }

    /// What becomes readable when a completion came that was [asked for](Self::request_event).
    pub(super) fn events(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is open.
        let fd = unsafe { (*self.channel.as_ptr()).fd };
        // SAFETY: the channel keeps it open for as long as `self`.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    /// Asks for one event at the next completion, or at the next solicited one (or one in error).
    pub(super) fn request_event(&self, solicited: bool) {
        // SAFETY: the context is open.
        let request = unsafe { (*self.context.0.as_ptr()).ops.req_notify_cq };
        if let Some(request) = request {
            // SAFETY: as above.
            unsafe { request(self.raw.as_ptr(), i32::from(solicited)) };
        }
    }

    /// Takes the events away that have come.
    pub(super) fn take_events(&self) {
        let (mut queue, mut user) = (null_mut(), null_mut());
        let mut count = 0;
        // SAFETY: the channel is open and nonblocking; both pointers are written.
        while unsafe { ibv::ibv_get_cq_event(self.channel.as_ptr(), &mut queue, &mut user) } == 0 {
            count += 1;
        }
        if count > 0 {
            // SAFETY: that many events of this queue were taken and not acknowledged.
            unsafe { ibv::ibv_ack_cq_events(self.raw.as_ptr(), count) };
        }
    }

    /// Takes the completions that are there, up to [`BATCH`].
    pub(super) fn poll<'b>(&self, batch: &'b mut [MaybeUninit<ibv::ibv_wc>; BATCH]) -> &'b [ibv::ibv_wc] {
        // SAFETY: the context is open.
        let poll = unsafe { (*self.context.0.as_ptr()).ops.poll_cq };
        // SAFETY: the batch has room for that many completions.
        let count = poll.map_or(0, |poll| unsafe { poll(self.raw.as_ptr(), BATCH as i32, batch.as_mut_ptr().cast()) });
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: the library wrote the first `count` of them.
        unsafe { slice::from_raw_parts(batch.as_ptr().cast(), count) }
    }
}

impl AsFd for CompletionQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events()
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: the queue pairs that used it kept it, so none is left; all events are acknowledged.
        unsafe { ibv::ibv_destroy_cq(self.raw.as_ptr()) };
        // SAFETY: its only queue was just destroyed.
        unsafe { ibv::ibv_destroy_comp_channel(self.channel.as_ptr()) };
    }
}

/// Where all queue pairs of an endpoint take the room for what arrives.
#[derive(Debug)]
pub(super) struct SharedReceiveQueue {
    raw: NonNull<ibv::ibv_srq>,
    domain: Arc<ProtectionDomain>,
    /// Where messages land: not to be unmapped while a receive may use it.
    room: MemoryRegion,
}

// SAFETY: as for Context.
unsafe impl Send for SharedReceiveQueue {}
// SAFETY: as for Context.
unsafe impl Sync for SharedReceiveQueue {}

impl SharedReceiveQueue {
    /// The size of a slot in bytes.
    pub(super) const SLOT: u64 = 64;

    /// A queue of `slots` receives, none of them posted.
    pub(super) fn new(domain: &Arc<ProtectionDomain>, slots: u32) -> Result<Arc<Self>, Error> {
        let room = MemoryRegion::new(domain, u64::from(slots) * Self::SLOT)?;
        let mut attributes = ibv::ibv_srq_init_attr {
            attr: ibv::ibv_srq_attr { max_wr: slots, max_sge: 1, srq_limit: 0 },
            ..Default::default()
        };
        // SAFETY: the domain is open.
        let raw = unsafe { ibv::ibv_create_srq(domain.raw.as_ptr(), &mut attributes) };
        let raw = made("ibv_create_srq", raw)?;
        Ok(Arc::new(Self { raw, domain: Arc::clone(domain), room }))
    }

    pub(super) const fn room(&self) -> &Mapping {
        self.room.memory()
    }

    /// Posts a receive into a slot that no other receive uses now.
    pub(super) fn post(&self, slot: u32, id: u64) -> Result<(), Error> {
        let mut sge = ibv::ibv_sge {
            addr: self.room.address() + u64::from(slot) * Self::SLOT,
            length: Self::SLOT as u32,
            lkey: self.room.local_key(),
        };
        let mut request = ibv::ibv_recv_wr { wr_id: id, next: null_mut(), sg_list: &mut sge, num_sge: 1 };
        let mut bad = null_mut();
        // SAFETY: the context is open.
        let post = unsafe { (*self.domain.context.0.as_ptr()).ops.post_srq_recv };
        // SAFETY: the queue is open, the request is copied by the call, and the room stays mapped and registered.
        let number = post.map_or(38, |post| unsafe { post(self.raw.as_ptr(), &mut request, &mut bad) });
        done("ibv_post_srq_recv", number)
    }
}

impl Drop for SharedReceiveQueue {
    fn drop(&mut self) {
        // SAFETY: the queue pairs that used it kept it, so none is left.
        unsafe { ibv::ibv_destroy_srq(self.raw.as_ptr()) };
    }
}

/// The way from one queue pair to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    /// The local port and the entry of its GID table that packets leave with.
    pub(super) port: u8,
    pub(super) gid_index: u8,
    pub(super) mtu: Mtu,
    /// Where the peer is. Its GID counts on RoCE, its LID on InfiniBand.
    pub(super) global: bool,
    pub(super) gid: Gid,
    pub(super) lid: u16,
    pub(super) queue_pair: u32,
    /// The numbers that the first packets bear, its own and ours.
    pub(super) their_first: u32,
    pub(super) our_first: u32,
    /// How many reads and atomics may be under way, each way.
    pub(super) reads: u8,
}

/// One side of a reliable connection.
#[derive(Debug)]
pub(super) struct QueuePair {
    raw: NonNull<ibv::ibv_qp>,
    inline: u32,
    _receives: Arc<SharedReceiveQueue>,
    _completions: Arc<CompletionQueue>,
    domain: Arc<ProtectionDomain>,
}

// SAFETY: as for Context.
unsafe impl Send for QueuePair {}
// SAFETY: as for Context.
unsafe impl Sync for QueuePair {}

// How long a peer may stay silent: an acknowledgement is waited for 4.096 us * 2^15 = 134 ms, eight times.
const TIMEOUT: u8 = 15;
const RETRIES: u8 = 7;
/// A receiver without a receive asks to be tried again after 0.64 ms, for as long as it lives: 7 is without end.
const NO_RECEIVE_WAIT: u8 = 12;
const NO_RECEIVE_RETRIES: u8 = 7;

impl QueuePair {
    /// A queue pair in its first state, for `depth` outstanding sends. Inline sends are had where the device makes a
    /// queue pair that has them; what it says of itself is not asked.
    pub(super) fn new(
        domain: &Arc<ProtectionDomain>,
        completions: &Arc<CompletionQueue>,
        receives: &Arc<SharedReceiveQueue>,
        depth: u32,
    ) -> Result<Self, Error> {
        let create = |inline| {
            let mut attributes = ibv::ibv_qp_init_attr {
                send_cq: completions.raw.as_ptr(),
                recv_cq: completions.raw.as_ptr(),
                srq: receives.raw.as_ptr(),
                qp_type: ibv::ibv_qp_type::IBV_QPT_RC,
                ..Default::default()
            };
            attributes.cap.max_send_wr = depth;
            attributes.cap.max_send_sge = 1;
            attributes.cap.max_inline_data = inline;
            // SAFETY: domain and queues are open, and are kept below.
            made("ibv_create_qp", unsafe { ibv::ibv_create_qp(domain.raw.as_ptr(), &mut attributes) })
        };
        let (raw, inline) = match create(INLINE) {
            Ok(raw) => (raw, INLINE),
            Err(_) => (create(0)?, 0),
        };
        Ok(Self {
            raw,
            inline,
            _receives: Arc::clone(receives),
            _completions: Arc::clone(completions),
            domain: Arc::clone(domain),
        })
    }

    pub(super) fn number(&self) -> u32 {
        // SAFETY: the queue pair lives as long as `self`.
        unsafe { (*self.raw.as_ptr()).qp_num }
    }

    /// How many bytes travel inside a request.
    pub(super) const fn inline(&self) -> u32 {
        self.inline
    }

    /// Connects it: init, ready to receive, ready to send. The peer may send to it from then on.
    pub(super) fn connect(&self, route: &Route) -> Result<(), Error> {
        use ibv::ibv_qp_attr_mask as mask;
        let access = ibv::ibv_access_flags::IBV_ACCESS_REMOTE_READ
            | ibv::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE
            | ibv::ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC;
        let mut init = ibv::ibv_qp_attr {
            qp_state: ibv::ibv_qp_state::IBV_QPS_INIT,
            pkey_index: 0,
            port_num: route.port,
            qp_access_flags: access.0,
            ..Default::default()
        };
        self.modify(
            &mut init,
            mask::IBV_QP_STATE | mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_ACCESS_FLAGS,
        )?;

        let mut way = ibv::ibv_ah_attr { dlid: route.lid, port_num: route.port, ..Default::default() };
        if route.global {
            way.is_global = 1;
            way.grh.dgid.raw = route.gid.0;
            way.grh.sgid_index = route.gid_index;
            way.grh.hop_limit = 64;
        }
        let mut receive = ibv::ibv_qp_attr {
            qp_state: ibv::ibv_qp_state::IBV_QPS_RTR,
            path_mtu: route.mtu,
            dest_qp_num: route.queue_pair,
            rq_psn: route.their_first,
            max_dest_rd_atomic: route.reads,
            min_rnr_timer: NO_RECEIVE_WAIT,
            ah_attr: way,
            ..Default::default()
        };
        self.modify(
            &mut receive,
            mask::IBV_QP_STATE
                | mask::IBV_QP_AV
                | mask::IBV_QP_PATH_MTU
                | mask::IBV_QP_DEST_QPN
                | mask::IBV_QP_RQ_PSN
                | mask::IBV_QP_MAX_DEST_RD_ATOMIC
                | mask::IBV_QP_MIN_RNR_TIMER,
        )?;

        let mut send = ibv::ibv_qp_attr {
            qp_state: ibv::ibv_qp_state::IBV_QPS_RTS,
            sq_psn: route.our_first,
            timeout: TIMEOUT,
            retry_cnt: RETRIES,
            rnr_retry: NO_RECEIVE_RETRIES,
            max_rd_atomic: route.reads,
            ..Default::default()
        };
        self.modify(
            &mut send,
            mask::IBV_QP_STATE
                | mask::IBV_QP_TIMEOUT
                | mask::IBV_QP_RETRY_CNT
                | mask::IBV_QP_RNR_RETRY
                | mask::IBV_QP_SQ_PSN
                | mask::IBV_QP_MAX_QP_RD_ATOMIC,
        )
    }

    /// Gives the connection up: whatever is under way ends in an error.
    pub(super) fn fail(&self) -> Result<(), Error> {
        let mut error = ibv::ibv_qp_attr { qp_state: ibv::ibv_qp_state::IBV_QPS_ERR, ..Default::default() };
        self.modify(&mut error, ibv::ibv_qp_attr_mask::IBV_QP_STATE)
    }

    fn modify(&self, attributes: &mut ibv::ibv_qp_attr, mask: ibv::ibv_qp_attr_mask) -> Result<(), Error> {
        // SAFETY: the queue pair is open, the attributes that the mask names are set.
        done("ibv_modify_qp", unsafe { ibv::ibv_modify_qp(self.raw.as_ptr(), attributes, mask.0 as i32) })
    }

    /// Posts requests as one list, with one doorbell. On an error, how many of them were posted comes with it.
    ///
    /// # Safety
    /// The local memory of each stays mapped and registered until the request has completed, and all its bytes are
    /// reached by atomics or racy copies only.
    pub(super) unsafe fn post<const N: usize>(&self, requests: &[Request; N]) -> Result<(), (usize, io::Error)> {
        let mut pieces = requests.map(|request| ibv::ibv_sge {
            addr: request.local.address,
            length: request.local.len,
            lkey: request.local.key,
        });
        let mut list = requests.map(|request| request.to_raw());
        for at in (0..N).rev() {
            list[at].sg_list = &mut pieces[at];
            list[at].num_sge = i32::from(pieces[at].length > 0);
            list[at].next = match list.get_mut(at + 1) {
                Some(next) => next,
                None => null_mut(),
            };
        }
        let mut bad = null_mut();
        // SAFETY: the context is open.
        let post = unsafe { (*self.domain.context.0.as_ptr()).ops.post_send };
        // SAFETY: the list and its pieces live through the call, which copies them; the caller vouches for the memory.
        let number = post.map_or(38, |post| unsafe { post(self.raw.as_ptr(), list.as_mut_ptr(), &mut bad) });
        if number == 0 {
            return Ok(());
        }
        // The first that was not posted; the ones before it were.
        let posted = list.iter().position(|request| std::ptr::eq(request, bad)).unwrap_or(0);
        Err((posted, io::Error::from_raw_os_error(number.abs())))
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: made by ibv_create_qp; its queues and its domain go after it.
        unsafe { ibv::ibv_destroy_qp(self.raw.as_ptr()) };
    }
}

/// Registered local memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Local {
    pub(super) address: u64,
    pub(super) len: u32,
    pub(super) key: u32,
}

/// A place in a peer's registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Remote {
    pub(super) address: u64,
    pub(super) key: u32,
}

impl Remote {
    /// The place that many bytes later.
    pub(super) const fn after(self, bytes: u64) -> Self {
        Self { address: self.address.wrapping_add(bytes), key: self.key }
    }
}

/// What a request does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verb {
    Write {
        to: Remote,
    },
    /// A write with immediate, solicited: it takes a receive at the target and wakes who sleeps there.
    WriteAndRing {
        to: Remote,
    },
    Read {
        from: Remote,
    },
    CompareSwap {
        at: Remote,
        expected: u64,
        new: u64,
    },
    FetchAdd {
        at: Remote,
        add: u64,
    },
    Send {
        immediate: u32,
        solicited: bool,
    },
}

impl Verb {
    /// Whether it brings something back: a later request may overtake it unless it is fenced.
    pub(super) const fn returns(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }

    /// Whether it is a write, which only a later read proves to be placed.
    pub(super) const fn writes(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::WriteAndRing { .. })
    }
}

/// A work request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) id: u64,
    pub(super) verb: Verb,
    pub(super) local: Local,
    pub(super) signalled: bool,
    pub(super) fenced: bool,
    pub(super) inline: bool,
}

impl Request {
    fn to_raw(self) -> ibv::ibv_send_wr {
        use ibv::{ibv_send_flags as flags, ibv_wr_opcode as code};
        let mut raw = ibv::ibv_send_wr { wr_id: self.id, ..Default::default() };
        let set = |on, flag: flags| if on { flag.0 } else { 0 };
        raw.send_flags = set(self.signalled, flags::IBV_SEND_SIGNALED)
            | set(self.fenced, flags::IBV_SEND_FENCE)
            | set(self.inline, flags::IBV_SEND_INLINE);
        let rdma = |at: Remote| ibv::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr: at.address, rkey: at.key };
        let atomic = |at: Remote, compare_add, swap| ibv::ibv_send_wr__bindgen_ty_2__bindgen_ty_2 {
            remote_addr: at.address,
            compare_add,
            swap,
            rkey: at.key,
        };
        match self.verb {
            Verb::Write { to } => {
                raw.opcode = code::IBV_WR_RDMA_WRITE;
                raw.wr.rdma = rdma(to);
            }
            Verb::WriteAndRing { to } => {
                raw.opcode = code::IBV_WR_RDMA_WRITE_WITH_IMM;
                raw.send_flags |= flags::IBV_SEND_SOLICITED.0;
                raw.wr.rdma = rdma(to);
            }
            Verb::Read { from } => {
                raw.opcode = code::IBV_WR_RDMA_READ;
                raw.wr.rdma = rdma(from);
            }
            Verb::CompareSwap { at, expected, new } => {
                raw.opcode = code::IBV_WR_ATOMIC_CMP_AND_SWP;
                raw.wr.atomic = atomic(at, expected, new);
            }
            Verb::FetchAdd { at, add } => {
                raw.opcode = code::IBV_WR_ATOMIC_FETCH_AND_ADD;
                raw.wr.atomic = atomic(at, add, 0);
            }
            Verb::Send { immediate, solicited } => {
                raw.opcode = code::IBV_WR_SEND_WITH_IMM;
                raw.send_flags |= set(solicited, flags::IBV_SEND_SOLICITED);
                raw.__bindgen_anon_1.imm_data = immediate.to_be();
            }
        }
        raw
    }
}
