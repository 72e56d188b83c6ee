//! Queue pairs of reliable connections, and their work requests.
#![allow(unsafe_code)] // calls of a C library, and the pointers it gives

use std::io;
use std::ptr::null_mut;
use std::sync::Arc;

use ibverbs_sys as ibv;

use super::{CompletionQueue, Gid, Owned, ProtectionDomain, SharedReceiveQueue, done, made};
use crate::Error;

/// The minimum useful inline size: a message.
pub(in crate::verbs) const INLINE: u32 = 64;

/// The maximum payload of a packet, in the library's encoding.
pub(in crate::verbs) type Mtu = ibv::ibv_mtu;

/// The route from one queue pair to another.
#[derive(Clone, Copy, Debug)]
pub(in crate::verbs) struct Route {
    /// The local port and its GID table entry for outgoing packets.
    pub(in crate::verbs) port: u8,
    pub(in crate::verbs) gid_index: u8,
    pub(in crate::verbs) mtu: Mtu,
    /// The peer's address: its GID on RoCE, its LID on InfiniBand.
    pub(in crate::verbs) global: bool,
    pub(in crate::verbs) gid: Gid,
    pub(in crate::verbs) lid: u16,
    pub(in crate::verbs) queue_pair: u32,
    /// The numbers of the first packets in each direction.
    pub(in crate::verbs) their_first: u32,
    pub(in crate::verbs) our_first: u32,
    /// How many reads and atomics may be in flight: this side's, limited by the peer, and the
    /// peer's.
    pub(in crate::verbs) reads_of_ours: u8,
    pub(in crate::verbs) reads_of_theirs: u8,
}

impl Route {
    /// The way to the peer's port, in the library's form.
    pub(super) fn address(&self) -> ibv::ibv_ah_attr {
        let mut address = ibv::ibv_ah_attr { dlid: self.lid, port_num: self.port, ..Default::default() };
        if self.global {
            address.is_global = 1;
            address.grh.dgid.raw = self.gid.0;
            address.grh.sgid_index = self.gid_index;
            address.grh.hop_limit = 64;
        }
        address
    }
}

/// A queue pair of the library. Dropping it destroys it.
#[derive(Debug)]
pub(super) struct RawQueuePair(Owned<ibv::ibv_qp>);

impl RawQueuePair {
    /// A queue pair in the reset state.
    ///
    /// # Safety
    /// Domain and queues are open, and are destroyed after it.
    pub(super) unsafe fn new(domain: &ProtectionDomain, attributes: &mut ibv::ibv_qp_init_attr) -> Result<Self, Error> {
        // SAFETY: the caller vouches for domain and queues.
        made("ibv_create_qp", || unsafe { ibv::ibv_create_qp(domain.raw.as_ptr(), attributes) }).map(Self)
    }

    pub(super) const fn as_ptr(&self) -> *mut ibv::ibv_qp {
        self.0.as_ptr()
    }

    pub(super) fn number(&self) -> u32 {
        // SAFETY: the queue pair lives as long as `self`.
        unsafe { (*self.as_ptr()).qp_num }
    }

    pub(super) fn modify(&self, attributes: &mut ibv::ibv_qp_attr, mask: ibv::ibv_qp_attr_mask) -> Result<(), Error> {
        // SAFETY: the queue pair is open, the attributes that the mask names are set.
        done("ibv_modify_qp", || unsafe { ibv::ibv_modify_qp(self.as_ptr(), attributes, mask.0 as i32) })
    }
}

/// One side of a reliable connection. Fields are dropped in this order: the queue pair first.
#[derive(Debug)]
pub(in crate::verbs) struct QueuePair {
    raw: RawQueuePair,
    inline: u32,
    _receives: Arc<SharedReceiveQueue>,
    _completions: [Arc<CompletionQueue>; 2],
    domain: Arc<ProtectionDomain>,
}

// How long a peer may be silent: seven timeouts of 4.096 us * 2^16 = 268 ms. Cards may take up to
// four times as long. 6 retries, because Soft-RoCE takes 7 as unlimited.
const TIMEOUT: u8 = 16;
const RETRIES: u8 = 6;
/// A receiver without a receive asks for a retry after 0.64 ms, without limit: 7 means unlimited.
const NO_RECEIVE_WAIT: u8 = 12;
const NO_RECEIVE_RETRIES: u8 = 7;

impl QueuePair {
    /// A queue pair in the reset state, for `depth` outstanding sends. Receives are taken from a queue
    /// and completed in another one. Inline sends are used if the device creates a queue pair with
    /// them; its attributes are not trusted.
    pub(in crate::verbs) fn new(
        domain: &Arc<ProtectionDomain>,
        completions: &Arc<CompletionQueue>,
        (receives, arrivals): (&Arc<SharedReceiveQueue>, &Arc<CompletionQueue>),
        depth: u32,
    ) -> Result<Self, Error> {
        let create = |inline| {
            let mut attributes = ibv::ibv_qp_init_attr {
                send_cq: completions.raw.as_ptr(),
                recv_cq: arrivals.raw.as_ptr(),
                srq: receives.raw.as_ptr(),
                qp_type: ibv::ibv_qp_type::IBV_QPT_RC,
                ..Default::default()
            };
            attributes.cap.max_send_wr = depth;
            attributes.cap.max_send_sge = 1;
            attributes.cap.max_inline_data = inline;
            // SAFETY: domain and queues are open, and are kept below.
            unsafe { RawQueuePair::new(domain, &mut attributes) }
        };
        let (raw, inline) = match create(INLINE) {
            Ok(raw) => (raw, INLINE),
            Err(_) => (create(0)?, 0),
        };
        Ok(Self {
            raw,
            inline,
            _receives: Arc::clone(receives),
            _completions: [completions, arrivals].map(Arc::clone),
            domain: Arc::clone(domain),
        })
    }

    pub(in crate::verbs) fn number(&self) -> u32 {
        self.raw.number()
    }

    /// How many bytes fit inside a request.
    pub(in crate::verbs) const fn inline(&self) -> u32 {
        self.inline
    }

    /// Connects it: init, ready to receive, ready to send. The peer may send to it from then on.
    pub(in crate::verbs) fn connect(&self, route: &Route) -> Result<(), Error> {
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
        self.raw.modify(
            &mut init,
            mask::IBV_QP_STATE | mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_ACCESS_FLAGS,
        )?;

        let mut receive = ibv::ibv_qp_attr {
            qp_state: ibv::ibv_qp_state::IBV_QPS_RTR,
            path_mtu: route.mtu,
            dest_qp_num: route.queue_pair,
            rq_psn: route.their_first,
            max_dest_rd_atomic: route.reads_of_theirs,
            min_rnr_timer: NO_RECEIVE_WAIT,
            ah_attr: route.address(),
            ..Default::default()
        };
        self.raw.modify(
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
            max_rd_atomic: route.reads_of_ours,
            ..Default::default()
        };
        self.raw.modify(
            &mut send,
            mask::IBV_QP_STATE
                | mask::IBV_QP_TIMEOUT
                | mask::IBV_QP_RETRY_CNT
                | mask::IBV_QP_RNR_RETRY
                | mask::IBV_QP_SQ_PSN
                | mask::IBV_QP_MAX_QP_RD_ATOMIC,
        )
    }

    /// Gives up the connection: requests in flight end in an error.
    pub(in crate::verbs) fn fail(&self) -> Result<(), Error> {
        let mut error = ibv::ibv_qp_attr { qp_state: ibv::ibv_qp_state::IBV_QPS_ERR, ..Default::default() };
        self.raw.modify(&mut error, ibv::ibv_qp_attr_mask::IBV_QP_STATE)
    }

    /// Resets it: when this returns, the card has forgotten the peer and does nothing more for it.
    /// No request may be in flight.
    pub(in crate::verbs) fn reset(&self) -> Result<(), Error> {
        let mut reset = ibv::ibv_qp_attr { qp_state: ibv::ibv_qp_state::IBV_QPS_RESET, ..Default::default() };
        self.raw.modify(&mut reset, ibv::ibv_qp_attr_mask::IBV_QP_STATE)
    }

    /// Posts the first `count` requests as one list, with one doorbell. An error contains how many of
    /// them were posted.
    ///
    /// # Safety
    /// `count` is 1 to `N`. The local memory of each stays mapped and registered until the request has
    /// completed, and all its bytes are accessed by atomics or racy copies only; that of an inline one is
    /// readable until this returns.
    #[inline]
    pub(in crate::verbs) unsafe fn post<const N: usize>(
        &self,
        requests: &mut RawWorkRequests<N>,
        count: usize,
    ) -> Result<(), (usize, io::Error)> {
        let RawWorkRequests { list, pieces } = requests;
        for (raw, piece) in list.iter_mut().zip(pieces).take(count) {
            raw.num_sge = i32::from(piece.length > 0);
            raw.sg_list = piece;
        }
        let first = list.as_mut_ptr();
        for at in 1..count {
            let (before, behind) = (first.wrapping_add(at - 1), first.wrapping_add(at));
            // SAFETY: both are in the list, and no references to them exist.
            unsafe { (*before).next = behind };
        }
        let mut bad = null_mut();
        let post = self.domain.context.ops().and_then(|ops| ops.post_send);
        // SAFETY: the list and its entries live through the call, which copies them; the caller
        // vouches for the memory.
        let number = post.map_or(38, |post| unsafe { post(self.raw.as_ptr(), first, &mut bad) });
        if number == 0 {
            return Ok(());
        }
        // The first one that was not posted; those before it were.
        let posted = list.iter().position(|request| std::ptr::eq(request, bad)).unwrap_or(0);
        Err((posted, io::Error::from_raw_os_error(number.abs())))
    }
}

/// Registered local memory.
#[derive(Clone, Copy, Debug)]
pub(in crate::verbs) struct Local {
    pub(in crate::verbs) address: u64,
    pub(in crate::verbs) len: u32,
    pub(in crate::verbs) key: u32,
}

/// An address in a peer's registered memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(in crate::verbs) struct Remote {
    pub(in crate::verbs) address: u64,
    pub(in crate::verbs) key: u32,
}

impl Remote {
    /// The address this many bytes later.
    pub(in crate::verbs) const fn after(self, bytes: u64) -> Self {
        Self { address: self.address.wrapping_add(bytes), key: self.key }
    }
}

/// The operation of a request.
#[derive(Clone, Copy, Debug)]
pub(in crate::verbs) enum Verb {
    Write {
        to: Remote,
    },
    /// A write with immediate, solicited: it takes a receive at the target and wakes its sleepers.
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
        solicited: bool,
    },
    /// A packet that is written into the target's ring.
    Place {
        to: Remote,
    },
}

impl Verb {
    /// Whether it has a response: a later request may overtake it unless that one is fenced.
    pub(in crate::verbs) const fn returns(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }

    /// Whether it is an atomic.
    pub(in crate::verbs) const fn is_atomic(&self) -> bool {
        matches!(self, Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }

    /// Whether it takes a receive at the peer, and waits for one without bound.
    pub(in crate::verbs) const fn takes_receive(&self) -> bool {
        matches!(self, Self::WriteAndRing { .. } | Self::Send { .. })
    }

    /// Whether it is a write, whose placement only a later read proves.
    pub(in crate::verbs) const fn writes(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::WriteAndRing { .. } | Self::Place { .. })
    }
}

/// A work request.
#[derive(Clone, Copy, Debug)]
pub(in crate::verbs) struct RawWorkRequest {
    pub(in crate::verbs) id: u64,
    pub(in crate::verbs) verb: Verb,
    pub(in crate::verbs) local: Local,
    pub(in crate::verbs) signalled: bool,
    pub(in crate::verbs) fenced: bool,
    pub(in crate::verbs) inline: bool,
}

/// Work requests to be posted as lists, in the library's form.
pub(in crate::verbs) struct RawWorkRequests<const N: usize> {
    list: [ibv::ibv_send_wr; N],
    pieces: [ibv::ibv_sge; N],
}

impl<const N: usize> RawWorkRequests<N> {
    /// Empty: each entry that is posted has to be set.
    #[inline]
    pub(in crate::verbs) fn new() -> Self {
        Self { list: [ibv::ibv_send_wr::default(); N], pieces: [ibv::ibv_sge::default(); N] }
    }

    #[inline]
    pub(in crate::verbs) fn set(&mut self, at: usize, request: RawWorkRequest) {
        use ibv::{ibv_send_flags as flags, ibv_wr_opcode as code};
        let RawWorkRequest { id, verb, local: Local { address, len, key }, signalled, fenced, inline } = request;
        self.pieces[at] = ibv::ibv_sge { addr: address, length: len, lkey: key };
        let raw = &mut self.list[at];
        raw.wr_id = id;
        let set = |on, flag: flags| if on { flag.0 } else { 0 };
        raw.send_flags = set(signalled, flags::IBV_SEND_SIGNALED)
            | set(fenced, flags::IBV_SEND_FENCE)
            | set(inline, flags::IBV_SEND_INLINE);
        let rdma = |at: Remote| ibv::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr: at.address, rkey: at.key };
        let atomic = |at: Remote, compare_add, swap| ibv::ibv_send_wr__bindgen_ty_2__bindgen_ty_2 {
            remote_addr: at.address,
            compare_add,
            swap,
            rkey: at.key,
        };
        match verb {
            Verb::Write { to } | Verb::Place { to } => {
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
            Verb::Send { solicited } => {
                raw.opcode = code::IBV_WR_SEND;
                raw.send_flags |= set(solicited, flags::IBV_SEND_SOLICITED);
            }
        }
    }
}
