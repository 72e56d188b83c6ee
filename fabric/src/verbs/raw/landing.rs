//! Queue pairs that receive datagrams into memory of users, and one that sends them from there.
#![allow(unsafe_code)] // calls of a C library, and the pointers it gives

use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::Arc;

use ibverbs_sys as ibv;

use super::datagrams::HEADER;
use super::pair::RawQueuePair;
use super::{AddressHandle, BATCH, CompletionQueue, LIST, Local, MemoryRegion, ProtectionDomain, SIGNALLED, done};
use crate::Error;

/// A queue pair for datagrams with completions of its own. Fields are dropped in this order: the queue pair first.
#[derive(Debug)]
struct Pair {
    raw: RawQueuePair,
    completions: Arc<CompletionQueue>,
    domain: Arc<ProtectionDomain>,
    port: u8,
}

impl Pair {
    /// In the reset state, for so many sends and receives.
    fn new(domain: &Arc<ProtectionDomain>, port: u8, sends: u32, receives: u32) -> Result<Self, Error> {
        let completions = CompletionQueue::new(&domain.context, sends + receives)?;
        // SAFETY: domain and queue are open, and are kept below.
        let raw = unsafe { RawQueuePair::for_datagrams(domain, &completions, sends, (receives, 2)) }?;
        Ok(Self { raw, completions, domain: Arc::clone(domain), port })
    }

    fn poll(&self, mut completed: impl FnMut(&ibv::ibv_wc)) -> usize {
        let (mut batch, mut total) = ([const { MaybeUninit::uninit() }; BATCH], 0);
        loop {
            let completions = self.completions.poll(&mut batch);
            completions.iter().for_each(&mut completed);
            total += completions.len();
            if completions.len() < BATCH {
                return total;
            }
        }
    }
}

/// A queue pair that receives the datagrams of one message after the other, each into its place.
#[derive(Debug)]
pub(in crate::verbs) struct LandingQueue {
    pair: Pair,
    /// What the card writes before each datagram, of all alike.
    header: MemoryRegion,
}

/// A datagram in its receive: its number, as it says, and its bytes.
pub(in crate::verbs) type Landed = (u32, Option<u32>, u32);

impl LandingQueue {
    pub(in crate::verbs) fn new(domain: &Arc<ProtectionDomain>, port: u8, receives: u32) -> Result<Self, Error> {
        Ok(Self { pair: Pair::new(domain, port, 1, receives)?, header: MemoryRegion::new(domain, HEADER)? })
    }

    pub(in crate::verbs) fn number(&self) -> u32 {
        self.pair.raw.number()
    }

    /// Receives datagrams with this key into these places, and none with another key. It is new, or was [closed](Self::close).
    pub(in crate::verbs) fn open(&self, key: u32, places: impl Iterator<Item = Local>) -> Result<(), Error> {
        self.pair.raw.initialise(self.pair.port, key)?;
        for (slot, place) in (0..).zip(places) {
            self.post_receive(slot, place)?;
        }
        self.pair.raw.begin_receiving()
    }

    /// From now on nothing is received.
    pub(in crate::verbs) fn close(&self) -> Result<(), Error> {
        self.pair.raw.reset()?;
        self.pair.poll(|_| {});
        Ok(())
    }

    fn post_receive(&self, slot: u64, place: Local) -> Result<(), Error> {
        let header = Local { address: self.header.address(), len: HEADER as u32, key: self.header.local_key() };
        let mut pieces =
            [header, place].map(|Local { address: addr, len: length, key: lkey }| ibv::ibv_sge { addr, length, lkey });
        let sg_list = pieces.as_mut_ptr();
        let mut request = ibv::ibv_recv_wr { wr_id: slot, next: null_mut(), sg_list, num_sge: 2 };
        let mut bad = null_mut();
        let (raw, post) = (self.pair.raw.as_ptr(), self.pair.domain.context.ops().and_then(|ops| ops.post_recv));
        // SAFETY: the queue pair is open, and the call copies the request. The header stays registered for as long as the
        // queue pair. The card writes the place only while it is registered, and registered memory is accessed by racy
        // copies alone.
        done("ibv_post_recv", || post.map_or(38, |post| unsafe { post(raw, &mut request, &mut bad) }))
    }

    /// Takes what has arrived.
    pub(in crate::verbs) fn poll(&self, mut landed: impl FnMut(Landed)) {
        self.pair.poll(|completion| {
            let slot = completion.wr_id() as u32;
            // Of one with an error nothing else is set.
            let (number, len) = match completion.error() {
                None => (completion.imm_data().map(u32::from_be), completion.len() as u64),
                Some(_) => (None, 0),
            };
            landed((slot, number, len.saturating_sub(HEADER) as u32));
        });
    }
}

/// A queue pair that sends datagrams out of memory of users.
#[derive(Debug)]
pub(in crate::verbs) struct LaunchQueue {
    pair: Pair,
    sends: u64,
    /// How many were posted, and how many of them are known to have left.
    posted: u64,
    left: u64,
    pub(in crate::verbs) is_broken: bool,
}

impl LaunchQueue {
    pub(in crate::verbs) fn new(domain: &Arc<ProtectionDomain>, port: u8, sends: u32) -> Result<Self, Error> {
        let pair = Pair::new(domain, port, sends, 1)?;
        pair.raw.initialise(port, 0)?;
        pair.raw.begin_receiving()?;
        pair.raw.begin_sending()?;
        Ok(Self { pair, sends: sends.into(), posted: 0, left: 0, is_broken: false })
    }

    /// Takes completions.
    pub(in crate::verbs) fn poll(&mut self) {
        let Self { pair, left, is_broken, .. } = self;
        pair.poll(|completion| {
            *left = completion.wr_id();
            *is_broken |= completion.error().is_some();
        });
    }

    /// Posts datagrams with their numbers to a queue pair and its key, as far as there is room and at most [`LIST`]: how
    /// many, and what [has left](Self::has_left) when all of them have. The last one of a message `is_last`.
    pub(in crate::verbs) fn post(
        &mut self,
        (handle, number, key): (&AddressHandle, u32, u32),
        pieces: impl Iterator<Item = (u32, Local)>,
        is_last: impl Fn(u32) -> bool,
    ) -> (usize, u64) {
        let room = (self.sends - (self.posted - self.left)).min(LIST as u64) as usize;
        let mut sges = [ibv::ibv_sge::default(); LIST];
        let mut requests = [ibv::ibv_send_wr::default(); LIST];
        let (first, mut len) = (requests.as_mut_ptr(), 0_usize);
        for (index, Local { address: addr, len: length, key: lkey }) in pieces.take(room) {
            if let Some(before) = len.checked_sub(1) {
                requests[before].next = first.wrapping_add(len);
            }
            let wr_id = self.posted + len as u64 + 1;
            let is_signalled = is_last(index) || wr_id.is_multiple_of(SIGNALLED);
            sges[len] = ibv::ibv_sge { addr, length, lkey };
            requests[len] = ibv::ibv_send_wr {
                wr_id,
                sg_list: &mut sges[len],
                num_sge: 1,
                opcode: ibv::ibv_wr_opcode::IBV_WR_SEND_WITH_IMM,
                send_flags: if is_signalled { ibv::ibv_send_flags::IBV_SEND_SIGNALED.0 } else { 0 },
                ..Default::default()
            };
            requests[len].__bindgen_anon_1.imm_data = index.to_be();
            requests[len].wr.ud = ibv::ibv_send_wr__bindgen_ty_2__bindgen_ty_3 {
                ah: handle.as_ptr(),
                remote_qpn: number,
                remote_qkey: key,
            };
            len += 1;
        }
        if len == 0 {
            return (0, self.posted);
        }
        let mut bad = null_mut();
        let post = self.pair.domain.context.ops().and_then(|ops| ops.post_send);
        // SAFETY: the queue pair and the address handle are open, and the call copies the requests, each of which but the
        // last names the next one of the array. The card reads a piece only while it is registered, and registered memory
        // is accessed by racy copies alone.
        let result = post.map_or(38, |post| unsafe { post(self.pair.raw.as_ptr(), first, &mut bad) });
        if result != 0 {
            // Some may have been posted: none of them is waited for.
            self.is_broken = true;
            return (0, self.posted);
        }
        self.posted += len as u64;
        (len, self.posted)
    }

    pub(in crate::verbs) const fn has_left(&self, posted: u64) -> bool {
        self.left >= posted
    }
}
