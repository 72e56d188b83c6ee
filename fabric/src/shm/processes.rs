//! The memory of this host's processes, copied by the kernel.

use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Once, OnceLock};
use std::time::Duration;

use onesided_job::fork;
use onesided_job::{Process, timespec};
use onesided_remote_memory::{Fault, FaultKind, Liveness, Rank};
use rustix::event::{PollFd, PollFlags, poll};

use crate::interface::offer::PROCESSES_AT;
use crate::shm::control::nonce;
use crate::shm::process_vm::{self, bare::Range};
use crate::shm::{JobSegment, Shm};
use crate::{Fabric, PeerProcesses, Segment};

/// `off` disables copies by the kernel.
const PROCESS_VM: &str = "ONESIDED_PROCESS_VM";

/// Whether copies by the kernel are not disabled.
pub(super) fn is_enabled() -> bool {
    std::env::var_os(PROCESS_VM).is_none_or(|word| word != "off")
}

/// Lets peers access this process's memory also where Yama admits ancestors only. Without Yama the
/// call does not exist.
pub(super) fn admit_peers() {
    static ADMITTED: Once = Once::new();
    ADMITTED.call_once(|| {
        let _ = rustix::process::set_ptracer(rustix::process::PTracer::Any);
    });
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

/// Runs on the words that introduce a rank's process: the address of its cookie, its value; and, of rank
/// 0, whether a test has failed. `None`: this fabric does not copy between processes.
fn introduction<F: Fabric, R>(fabric: &F, rank: Rank, run: impl FnOnce(&[AtomicU64; 3]) -> R) -> Option<R> {
    fabric.processes()?;
    let world = fabric.world_segment(rank).ok()?;
    world.mapped()?.get((PROCESSES_AT / 8) as usize..)?.first_chunk().map(run)
}

/// Lets peers [test](test_process) whether they can read this process.
pub fn introduce_process(fabric: &impl Fabric) {
    static COOKIE: OnceLock<u64> = OnceLock::new();
    let cookie = COOKIE.get_or_init(nonce);
    introduction(fabric, fabric.rank(), |[address, value, _]| {
        value.store(*cookie, Ordering::Relaxed);
        address.store(std::ptr::from_ref(cookie).expose_provenance() as u64, Ordering::Release);
    });
}

/// Whether this rank can read the process of a peer, which has introduced itself. If not, no rank of the
/// job reads another's any more.
pub fn test_process(fabric: &impl Fabric, peer: Rank) {
    let can_read = introduction(fabric, peer, |[address, value, _]| {
        let (address, mut found) = (address.load(Ordering::Acquire), [0; 8]);
        let read = |processes: &dyn PeerProcesses| processes.read(peer, address, &mut found).is_ok();
        let has_read = address != 0 && fabric.processes().is_some_and(read);
        has_read && u64::from_le_bytes(found) == value.load(Ordering::Relaxed)
    });
    if can_read == Some(false) {
        introduction(fabric, Rank(0), |[_, _, has_failed]| has_failed.store(1, Ordering::Relaxed));
    }
}

/// Whether ranks can read one another's processes: no test has failed.
pub fn are_processes_open(fabric: &impl Fabric) -> bool {
    let has_failed = introduction(fabric, Rank(0), |[_, _, has_failed]| has_failed.load(Ordering::Relaxed) != 0);
    has_failed == Some(false)
}
