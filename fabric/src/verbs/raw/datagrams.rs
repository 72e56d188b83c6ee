//! Datagrams: an unreliable queue pair, which needs no connection.
#![allow(unsafe_code)] // calls of a C library, and the pointers it gives

use std::ptr::null_mut;
use std::sync::{Arc, Mutex};

use ibverbs_sys as ibv;
use onesided_job::lock;

use super::pair::RawQueuePair;
use super::{CompletionQueue, MemoryRegion, Owned, ProtectionDomain, Route, SIGNALLED, done, made};
use crate::{ChannelMemory, Error};

/// What the card writes before each received one: the global route header, or nothing in its space.
pub(super) const HEADER: u64 = 40;
/// Datagrams are checked by their content, so that one key is enough for all jobs.
const KEY: u32 = 0x1051_DED0;
/// A change of state that takes nothing besides.
const NO_MORE: ibv::ibv_qp_attr_mask = ibv::ibv_qp_attr_mask(0);

/// How many datagrams a queue has room for, and the longest one in bytes.
#[derive(Clone, Copy, Debug)]
pub(in crate::verbs) struct DatagramRoom {
    pub(in crate::verbs) receives: u32,
    pub(in crate::verbs) sends: u32,
    pub(in crate::verbs) longest: u32,
}

impl DatagramRoom {
    /// How many completions there may be at a time.
    pub(in crate::verbs) const fn completions(self) -> u32 {
        self.receives + self.sends
    }

    /// The slots of receives come before those of sends.
    const fn at(self, slot: u32) -> u64 {
        slot as u64 * self.slot()
    }

    const fn slot(self) -> u64 {
        HEADER + self.longest as u64
    }
}

/// A queue pair for datagrams, which may be lost, doubled and reordered; one that finds no room here
/// is lost as well. Fields are dropped in this order: the queue pair first.
#[derive(Debug)]
pub(in crate::verbs) struct DatagramQueue {
    raw: RawQueuePair,
    memory: MemoryRegion,
    room: DatagramRoom,
    /// Marks the ids of its requests; the rest is the slot.
    mark: u64,
    sends: Mutex<Sends>,
    completions: Arc<CompletionQueue>,
    domain: Arc<ProtectionDomain>,
}

/// The most datagrams that are posted together.
pub(in crate::verbs) const LIST: usize = 16;

/// A datagram in its slot of the sends.
#[derive(Clone, Copy, Debug)]
pub(in crate::verbs) struct Written {
    pub(in crate::verbs) slot: u32,
    pub(in crate::verbs) len: u64,
    /// Whether its completion is reported.
    pub(in crate::verbs) is_signalled: bool,
    pub(in crate::verbs) is_solicited: bool,
}

impl RawQueuePair {
    /// A queue pair for datagrams, in the reset state, with one queue for its completions. `pieces`: the most that a receive
    /// has.
    ///
    /// # Safety
    /// Domain and queue are open, and are destroyed after it.
    pub(super) unsafe fn for_datagrams(
        domain: &ProtectionDomain,
        completions: &CompletionQueue,
        sends: u32,
        (receives, pieces): (u32, u32),
    ) -> Result<Self, Error> {
        let mut attributes = ibv::ibv_qp_init_attr {
            send_cq: completions.raw.as_ptr(),
            recv_cq: completions.raw.as_ptr(),
            qp_type: ibv::ibv_qp_type::IBV_QPT_UD,
            ..Default::default()
        };
        attributes.cap = ibv::ibv_qp_cap {
            max_send_wr: sends,
            max_recv_wr: receives,
            max_send_sge: 1,
            max_recv_sge: pieces,
            max_inline_data: 0,
        };
        // SAFETY: the caller vouches for domain and queue.
        unsafe { Self::new(domain, &mut attributes) }
    }

    /// From the reset state to one in which receives may be posted, for datagrams with this key.
    pub(super) fn initialise(&self, port: u8, key: u32) -> Result<(), Error> {
        use ibv::ibv_qp_attr_mask as mask;
        let attributes = ibv::ibv_qp_attr { port_num: port, qkey: key, ..Default::default() };
        self.enter(
            ibv::ibv_qp_state::IBV_QPS_INIT,
            attributes,
            mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_QKEY,
        )
    }

    pub(super) fn begin_receiving(&self) -> Result<(), Error> {
        self.enter(ibv::ibv_qp_state::IBV_QPS_RTR, ibv::ibv_qp_attr::default(), NO_MORE)
    }

    /// Once it receives.
    pub(super) fn begin_sending(&self) -> Result<(), Error> {
        let first = ibv::ibv_qp_attr_mask::IBV_QP_SQ_PSN;
        self.enter(ibv::ibv_qp_state::IBV_QPS_RTS, ibv::ibv_qp_attr::default(), first)
    }

    /// From any state.
    pub(super) fn reset(&self) -> Result<(), Error> {
        self.enter(ibv::ibv_qp_state::IBV_QPS_RESET, ibv::ibv_qp_attr::default(), NO_MORE)
    }

    fn enter(
        &self,
        state: ibv::ibv_qp_state::Type,
        attributes: ibv::ibv_qp_attr,
        with: ibv::ibv_qp_attr_mask,
    ) -> Result<(), Error> {
        let mut attributes = ibv::ibv_qp_attr { qp_state: state, ..attributes };
        self.modify(&mut attributes, ibv::ibv_qp_attr_mask::IBV_QP_STATE | with)
    }
}

/// A datagram that has arrived: in this receive, until it is posted again.
#[derive(Clone, Copy, Debug)]
pub(in crate::verbs) struct Received {
    slot: u32,
    len: u32,
}

/// A datagram and where it goes: to this queue pair.
pub(in crate::verbs) type Addressed<'h> = (Written, &'h AddressHandle, u32);

/// How many datagrams were written, and how many of them are known to have left. They have their
/// slots in turn.
#[derive(Debug, Default)]
struct Sends {
    posted: u64,
    left: u64,
}

impl DatagramQueue {
    /// Ready to send and to receive, on a port. The completions whose ids have the `mark` are to be
    /// [completed](Self::complete).
    pub(in crate::verbs) fn new(
        domain: &Arc<ProtectionDomain>,
        completions: &Arc<CompletionQueue>,
        port: u8,
        room: DatagramRoom,
        mark: u64,
    ) -> Result<Self, Error> {
        let DatagramRoom { receives, sends, .. } = room;
        let memory = MemoryRegion::new(domain, room.at(receives + sends))?;
        // SAFETY: domain and queue are open, and are kept below.
        let raw = unsafe { RawQueuePair::for_datagrams(domain, completions, sends, (receives, 1)) }?;
        assert!(u64::from(sends) >= SIGNALLED, "a full queue has a signalled send");
        let (completions, domain) = (Arc::clone(completions), Arc::clone(domain));
        let queue = Self { raw, memory, room, mark, sends: Mutex::default(), completions, domain };
        queue.raw.initialise(port, KEY)?;
        (0..receives).try_for_each(|slot| queue.post_receive(slot))?;
        queue.raw.begin_receiving()?;
        queue.raw.begin_sending()?;
        Ok(queue)
    }

    pub(in crate::verbs) fn number(&self) -> u32 {
        self.raw.number()
    }

    /// What it takes of this rank's memory.
    pub(in crate::verbs) fn memory(&self) -> u64 {
        self.memory.len() + u64::from(self.room.completions()) * ChannelMemory::REQUEST
    }

    /// The longest datagram in bytes.
    pub(in crate::verbs) const fn longest(&self) -> u32 {
        self.room.longest
    }

    /// Where its requests complete.
    pub(in crate::verbs) fn completions(&self) -> &CompletionQueue {
        &self.completions
    }

    fn piece(&self, slot: u32, len: u64) -> ibv::ibv_sge {
        let addr = self.memory.address() + self.room.at(slot);
        ibv::ibv_sge { addr, length: len as u32, lkey: self.memory.local_key() }
    }

    /// Posts a receive into a slot that no other receive uses.
    pub(in crate::verbs) fn post_receive(&self, slot: u32) -> Result<(), Error> {
        let mut sge = self.piece(slot, self.room.slot());
        let wr_id = self.mark | u64::from(slot);
        let mut request = ibv::ibv_recv_wr { wr_id, next: null_mut(), sg_list: &mut sge, num_sge: 1 };
        let mut bad = null_mut();
        let post = self.domain.context.ops().and_then(|ops| ops.post_recv);
        // SAFETY: the queue pair is open, the call copies the request, and the memory stays mapped
        // and registered for as long as the queue pair.
        done("ibv_post_recv", || post.map_or(38, |post| unsafe { post(self.raw.as_ptr(), &mut request, &mut bad) }))
    }

    /// Takes in the completion of one of its requests. Returns the datagram, if one has arrived; it is to
    /// be [taken](Self::take).
    pub(in crate::verbs) fn complete(&self, completion: &ibv::ibv_wc) -> Option<Received> {
        let slot = completion.wr_id() as u32;
        if slot >= self.room.receives {
            let (mut sends, room) = (lock(&self.sends), u64::from(self.room.sends));
            let ahead = u64::from(slot - self.room.receives) + room - sends.left % room;
            sends.left += ahead % room + 1;
            return None;
        }
        if completion.error().is_some() {
            let _ = self.post_receive(slot); // as in `take`
            return None;
        }
        let len = (completion.len() as u64).saturating_sub(HEADER).min(self.room.longest.into());
        Some(Received { slot, len: len as u32 })
    }

    /// Copies a datagram to the start of memory with room for the [longest](Self::longest), and posts its
    /// receive again. Its bytes.
    pub(in crate::verbs) fn take<'b>(&self, Received { slot, len }: Received, into: &'b mut [u8]) -> &'b [u8] {
        let into = &mut into[..len as usize];
        self.memory.memory().read(self.room.at(slot) + HEADER, into);
        // It fails only on a queue pair that is broken, on which nothing arrives.
        let _ = self.post_receive(slot);
        into
    }

    /// Sends one datagram, if there is room now.
    pub(in crate::verbs) fn send(&self, to: &AddressHandle, number: u32, bytes: &[u8]) {
        let mut sends = lock(&self.sends);
        if let Some(written) = self.write_to(&mut sends, bytes, &[], false)
            && self.post([(written, to, number)].into_iter()) == 0
        {
            sends.posted -= 1;
        }
    }

    /// Writes `header` and `packet`, together at most [`longest`](Self::longest) bytes, to the next
    /// slot, before anything else is sent. `None`: there is no room now.
    pub(in crate::verbs) fn write(&self, header: &[u8], packet: &[u8], is_solicited: bool) -> Option<Written> {
        self.write_to(&mut lock(&self.sends), header, packet, is_solicited)
    }

    fn write_to(&self, sends: &mut Sends, header: &[u8], packet: &[u8], is_solicited: bool) -> Option<Written> {
        let len = (header.len() + packet.len()) as u64;
        assert!(len <= self.room.longest.into(), "a datagram fits its slot");
        let room = u64::from(self.room.sends);
        if sends.posted - sends.left == room {
            return None;
        }
        let slot = (sends.posted % room) as u32;
        sends.posted += 1;
        let at = self.room.at(self.room.receives + slot);
        self.memory.memory().write(at, header);
        self.memory.memory().write(at + header.len() as u64, packet);
        Some(Written { slot, len, is_signalled: sends.posted.is_multiple_of(SIGNALLED), is_solicited })
    }

    /// Posts all that was [written](Self::write), in that order, at most [`LIST`] datagrams. What the
    /// card refuses is lost.
    pub(in crate::verbs) fn post_written<'h>(&self, list: impl ExactSizeIterator<Item = Addressed<'h>>) {
        let len = list.len();
        let lost = (len - self.post(list)) as u64;
        if lost > 0 {
            lock(&self.sends).posted -= lost;
        }
    }

    /// Posts slots of sends that have left, at most [`LIST`]. How many.
    pub(in crate::verbs) fn post<'h>(&self, list: impl ExactSizeIterator<Item = Addressed<'h>>) -> usize {
        match list.len() {
            1 => self.post_list::<1>(list),
            _ => self.post_list::<LIST>(list),
        }
    }

    fn post_list<'h, const N: usize>(&self, list: impl ExactSizeIterator<Item = Addressed<'h>>) -> usize {
        let mut sges = [ibv::ibv_sge::default(); N];
        let mut requests = [ibv::ibv_send_wr::default(); N];
        let (first, len) = (requests.as_mut_ptr(), list.len());
        for (at, (written, to, number)) in list.enumerate() {
            let slot = self.room.receives + written.slot;
            let signals = if written.is_signalled { ibv::ibv_send_flags::IBV_SEND_SIGNALED.0 } else { 0 };
            let solicits = if written.is_solicited { ibv::ibv_send_flags::IBV_SEND_SOLICITED.0 } else { 0 };
            sges[at] = self.piece(slot, written.len);
            requests[at] = ibv::ibv_send_wr {
                wr_id: self.mark | u64::from(slot),
                next: if at + 1 < len { first.wrapping_add(at + 1) } else { null_mut() },
                sg_list: &mut sges[at],
                num_sge: 1,
                opcode: ibv::ibv_wr_opcode::IBV_WR_SEND,
                send_flags: signals | solicits,
                ..Default::default()
            };
            requests[at].wr.ud = ibv::ibv_send_wr__bindgen_ty_2__bindgen_ty_3 {
                ah: to.raw.as_ptr(),
                remote_qpn: number,
                remote_qkey: KEY,
            };
        }
        let mut bad = null_mut();
        let post = self.domain.context.ops().and_then(|ops| ops.post_send);
        // SAFETY: the queue pair and the address handles are open, the call copies the requests, each
        // of which but the last names the next one of the array, and the slots, in memory that stays
        // mapped and registered for as long as the queue pair, are accessed by racy copies only.
        let result = post.map_or(38, |post| unsafe { post(self.raw.as_ptr(), first, &mut bad) });
        match result {
            0 => len,
            _ => requests.iter().position(|request| std::ptr::eq(request, bad)).unwrap_or(0),
        }
    }
}

/// Where datagrams to a rank go.
#[derive(Debug)]
pub(in crate::verbs) struct AddressHandle {
    raw: Owned<ibv::ibv_ah>,
    _domain: Arc<ProtectionDomain>,
}

impl AddressHandle {
    pub(in crate::verbs) fn new(domain: &Arc<ProtectionDomain>, route: &Route) -> Result<Self, Error> {
        // SAFETY: the domain is open, the attributes are set.
        let raw = made("ibv_create_ah", || unsafe { ibv::ibv_create_ah(domain.raw.as_ptr(), &mut route.address()) })?;
        Ok(Self { raw, _domain: Arc::clone(domain) })
    }

    pub(super) const fn as_ptr(&self) -> *mut ibv::ibv_ah {
        self.raw.as_ptr()
    }
}
