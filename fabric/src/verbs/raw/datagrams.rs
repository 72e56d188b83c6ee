//! Datagrams: an unreliable queue pair, which needs no connection.
#![allow(unsafe_code)] // calls of a C library, and the pointers it gives

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use ibverbs_sys as ibv;

use super::pair::RawQueuePair;
use super::{BATCH, CompletionQueue, MemoryRegion, ProtectionDomain, Route, done, made};
use crate::Error;

/// The longest datagram, in bytes.
pub(in crate::verbs) const DATAGRAM: usize = 64;
/// What the card writes before each received one: the global route header, or nothing in its space.
const HEADER: usize = 40;
const RECEIVES: u32 = 256;
const SENDS: u32 = 64;
/// Datagrams are checked by their content, so that one key is enough for all jobs.
const KEY: u32 = 0x1051_DED0;

/// A queue pair for datagrams, with a completion queue of its own. They may be lost, doubled and
/// reordered; one that finds no room here is lost as well. Fields are dropped in this order: the
/// queue pair first.
#[derive(Debug)]
pub(in crate::verbs) struct DatagramQueue {
    raw: RawQueuePair,
    completions: Arc<CompletionQueue>,
    /// The receives, then the sends.
    room: MemoryRegion,
    /// How many sends are under way, and how many were posted so far.
    sending: u32,
    sent: u32,
    domain: Arc<ProtectionDomain>,
}

// SAFETY: as for Context.
unsafe impl Send for DatagramQueue {}

impl DatagramQueue {
    /// Ready to send and to receive, on a port.
    pub(in crate::verbs) fn new(domain: &Arc<ProtectionDomain>, port: u8) -> Result<Self, Error> {
        use ibv::ibv_qp_attr_mask as mask;
        let completions = CompletionQueue::new(&domain.context, RECEIVES + SENDS)?;
        let slots = RECEIVES as usize * (HEADER + DATAGRAM) + SENDS as usize * DATAGRAM;
        let room = MemoryRegion::new(domain, slots as u64)?;
        let mut attributes = ibv::ibv_qp_init_attr {
            send_cq: completions.raw.as_ptr(),
            recv_cq: completions.raw.as_ptr(),
            qp_type: ibv::ibv_qp_type::IBV_QPT_UD,
            sq_sig_all: 1,
            ..Default::default()
        };
        attributes.cap = ibv::ibv_qp_cap {
            max_send_wr: SENDS,
            max_recv_wr: RECEIVES,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        // SAFETY: domain and queue are open, and are kept below.
        let raw = unsafe { RawQueuePair::new(domain, &mut attributes) }?;
        let queue = Self { raw, completions, room, sending: 0, sent: 0, domain: Arc::clone(domain) };

        let modify = |mut attributes, set| queue.raw.modify(&mut attributes, set);
        let to = |state| ibv::ibv_qp_attr { qp_state: state, ..Default::default() };
        let init = ibv::ibv_qp_attr { port_num: port, qkey: KEY, ..to(ibv::ibv_qp_state::IBV_QPS_INIT) };
        let port = mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_QKEY;
        modify(init, mask::IBV_QP_STATE | port)?;
        (0..RECEIVES).try_for_each(|slot| queue.post_receive(slot))?;
        modify(to(ibv::ibv_qp_state::IBV_QPS_RTR), mask::IBV_QP_STATE)?;
        modify(to(ibv::ibv_qp_state::IBV_QPS_RTS), mask::IBV_QP_STATE | mask::IBV_QP_SQ_PSN)?;
        Ok(queue)
    }

    pub(in crate::verbs) fn number(&self) -> u32 {
        self.raw.number()
    }

    const fn receive_at(slot: u32) -> u64 {
        slot as u64 * (HEADER + DATAGRAM) as u64
    }

    fn post_receive(&self, slot: u32) -> Result<(), Error> {
        let mut sge = ibv::ibv_sge {
            addr: self.room.address() + Self::receive_at(slot),
            length: (HEADER + DATAGRAM) as u32,
            lkey: self.room.local_key(),
        };
        let mut request = ibv::ibv_recv_wr { wr_id: u64::from(slot), next: null_mut(), sg_list: &mut sge, num_sge: 1 };
        let mut bad = null_mut();
        // SAFETY: the context is open.
        let post = unsafe { (*self.domain.context.0.as_ptr()).ops.post_recv };
        // SAFETY: the queue pair is open, the call copies the request, and the room stays mapped and
        // registered for as long as the queue pair.
        let number = post.map_or(38, |post| unsafe { post(self.raw.as_ptr(), &mut request, &mut bad) });
        done("ibv_post_recv", number)
    }

    /// Asks for an event at the next completion: [`AsFd`] is readable then.
    pub(in crate::verbs) fn request_event(&self) {
        self.completions.take_events();
        self.completions.request_event(false);
    }

    /// Takes in what has arrived.
    pub(in crate::verbs) fn receive(&mut self, mut take: impl FnMut(&[u8])) {
        let mut batch = [const { MaybeUninit::uninit() }; BATCH];
        loop {
            let completions = self.completions.poll(&mut batch);
            for completion in completions {
                let slot = completion.wr_id() as u32;
                if slot >= RECEIVES {
                    self.sending -= 1;
                    continue;
                }
                let len = completion.len().saturating_sub(HEADER).min(DATAGRAM);
                if completion.error().is_none() {
                    let mut bytes = [0; DATAGRAM];
                    self.room.memory().read(Self::receive_at(slot) + HEADER as u64, &mut bytes[..len]);
                    take(&bytes[..len]);
                }
                // It fails only on a queue pair that is broken, on which nothing arrives.
                let _ = self.post_receive(slot);
            }
            if completions.len() < BATCH {
                return;
            }
        }
    }

    /// Sends a datagram, or loses it.
    pub(in crate::verbs) fn send(&mut self, to: &AddressHandle, number: u32, bytes: &[u8]) {
        if self.sending == SENDS {
            return;
        }
        let slot = self.sent % SENDS;
        let at = Self::receive_at(RECEIVES) + u64::from(slot) * DATAGRAM as u64;
        self.room.memory().write(at, bytes);
        let mut sge =
            ibv::ibv_sge { addr: self.room.address() + at, length: bytes.len() as u32, lkey: self.room.local_key() };
        let mut request = ibv::ibv_send_wr {
            wr_id: u64::from(RECEIVES + slot),
            sg_list: &mut sge,
            num_sge: 1,
            opcode: ibv::ibv_wr_opcode::IBV_WR_SEND,
            ..Default::default()
        };
        request.wr.ud =
            ibv::ibv_send_wr__bindgen_ty_2__bindgen_ty_3 { ah: to.raw.as_ptr(), remote_qpn: number, remote_qkey: KEY };
        let mut bad = null_mut();
        // SAFETY: the context is open.
        let post = unsafe { (*self.domain.context.0.as_ptr()).ops.post_send };
        // SAFETY: the queue pair and the address handle are open, the call copies the request, and
        // the slot is not written before the send has completed: they complete in order, and at most
        // as many as there are slots are under way.
        let number = post.map_or(38, |post| unsafe { post(self.raw.as_ptr(), &mut request, &mut bad) });
        if number == 0 {
            self.sending += 1;
            self.sent = self.sent.wrapping_add(1);
        }
    }
}

impl AsFd for DatagramQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.completions.events()
    }
}

/// Where datagrams to a rank go.
#[derive(Debug)]
pub(in crate::verbs) struct AddressHandle {
    raw: NonNull<ibv::ibv_ah>,
    _domain: Arc<ProtectionDomain>,
}

// SAFETY: as for Context.
unsafe impl Send for AddressHandle {}

impl AddressHandle {
    pub(in crate::verbs) fn new(domain: &Arc<ProtectionDomain>, route: &Route) -> Result<Self, Error> {
        // SAFETY: the domain is open, the attributes are set.
        let raw = made("ibv_create_ah", unsafe { ibv::ibv_create_ah(domain.raw.as_ptr(), &mut route.address()) })?;
        Ok(Self { raw, _domain: Arc::clone(domain) })
    }
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        // SAFETY: made by ibv_create_ah.
        unsafe { ibv::ibv_destroy_ah(self.raw.as_ptr()) };
    }
}
