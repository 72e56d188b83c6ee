//! The memory of this host's processes, copied by the kernel.

use std::io::{IoSlice, IoSliceMut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onesided_job::fork;
use onesided_job::{Process, timespec};
use onesided_remote_memory::{Fault, FaultKind, Liveness, Rank};
use rustix::event::{PollFd, PollFlags, poll};

use crate::PeerProcesses;
use crate::offer::PROCESSES_AT;
use crate::shm::control::nonce;
use crate::shm::process_vm::{self, bare::Range};
use crate::shm::{JobSegment, Shm};

/// `off` disables copies by the kernel.
const PROCESS_VM: &str = "ONESIDED_PROCESS_VM";

/// Whether copies by the kernel are not disabled.
pub(super) fn is_enabled() -> bool {
    std::env::var_os(PROCESS_VM).is_none_or(|word| word != "off")
}

/// Lets peers access this process's memory also where Yama admits ancestors only. Without Yama the
/// call does not exist.
pub(super) fn admit_peers() {
    let _ = rustix::process::set_ptracer(rustix::process::PTracer::Any);
}

/// Whether a rank's process has ended: then none of its threads is in the kernel either. Its status
/// in the job segment is not sufficient: a rank that panicked may have other threads.
pub(super) fn has_ended(job_segment: &JobSegment, rank: Rank) -> bool {
    if job_segment.liveness(rank) == Liveness::Alive {
        return false;
    }
    let Some(process) = job_segment.process(rank).filter(|process| *process != Process::own()) else {
        return false;
    };
    let ended = |watch| poll(&mut [PollFd::new(&watch, PollFlags::IN)], Some(&timespec(Duration::ZERO))) == Ok(1);
    process.watch().is_ok_and(|watch| watch.is_none_or(ended))
}

impl Shm {
    pub(super) fn may_copy_by_kernel(&self) -> bool {
        static ENABLED: OnceLock<bool> = OnceLock::new();
        *ENABLED.get_or_init(|| {
            let is_enabled = is_enabled();
            if is_enabled {
                admit_peers();
            }
            is_enabled
        })
    }

    /// The cookie of a rank, its address and its value; and, of rank 0, whether a test has failed.
    fn introduction(&self, rank: Rank) -> [&AtomicU64; 3] {
        let words = self.0.worlds[rank.index()].words().unwrap_or_default();
        let at = (PROCESSES_AT / 8) as usize;
        words
            .get(at..)
            .and_then(<[_]>::first_chunk::<3>)
            .map_or_else(|| unreachable!("it is mapped whole"), <[_; 3]>::each_ref)
    }

    /// Copies `len` bytes of a peer's memory by `copy`, which gets the process's number.
    fn copied(&self, peer: Rank, len: usize, copy: impl FnOnce(u32) -> std::io::Result<usize>) -> Result<(), Fault> {
        // The number of a process that has ended may be another's, at the start and at the end.
        let alive = || self.job_segment().liveness(peer).needed(peer);
        fork::check()?;
        alive()?;
        let process = self.job_segment().process(peer).ok_or(Fault::of(FaultKind::NoSuchRank, peer))?;
        let copied = copy(process.pid);
        alive()?;
        match copied {
            Ok(count) if count == len => Ok(()),
            Ok(_) => Err(process_vm::fault(peer, rustix::io::Errno::FAULT, alive)),
            Err(error) => Err(process_vm::fault(peer, process_vm::errno(&error), alive)),
        }
    }
}

impl PeerProcesses for Shm {
    fn introduce(&self) {
        static COOKIE: OnceLock<u64> = OnceLock::new();
        let cookie = COOKIE.get_or_init(nonce);
        let [address, value, _] = self.introduction(self.me());
        value.store(*cookie, Ordering::Relaxed);
        address.store(std::ptr::from_ref(cookie).expose_provenance() as u64, Ordering::Release);
    }

    fn test(&self, peer: Rank) {
        let [address, value, _] = self.introduction(peer);
        let (address, mut found) = (address.load(Ordering::Acquire), [0; 8]);
        let can_read = address != 0 && self.read(peer, address, &mut found).is_ok();
        if !can_read || u64::from_le_bytes(found) != value.load(Ordering::Relaxed) {
            self.introduction(Rank(0))[2].store(1, Ordering::Relaxed);
        }
    }

    fn are_open(&self) -> bool {
        self.introduction(Rank(0))[2].load(Ordering::Relaxed) == 0
    }

    fn read(&self, peer: Rank, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        let there = [Range::new(address, into.len())];
        self.copied(peer, into.len(), |pid| process_vm::read(pid, &mut [IoSliceMut::new(into)], &there))
    }

    #[allow(unsafe_code)] // as its declaration
    unsafe fn write(&self, peer: Rank, from: &[u8], address: u64) -> Result<(), Fault> {
        let there = [Range::new(address, from.len())];
        self.copied(peer, from.len(), |pid| {
            // SAFETY: the caller vouches that the peer has published the range.
            unsafe { process_vm::write(pid, &[IoSlice::new(from)], &there) }
        })
    }

    fn has_ended(&self, peer: Rank) -> bool {
        has_ended(self.job_segment(), peer)
    }
}
