//! Copies between this process's memory and another's, by the kernel (process_vm_readv(2)).
#![allow(unsafe_code)] // two calls of the C library

use std::ffi::{c_int, c_ulong};
use std::io::{self, IoSlice, IoSliceMut};
use std::process::Command;
use std::time::Duration;

use onesided_remote_memory::{Fault, FaultKind, Rank};
use rustix::io::Errno;

use self::bare::{Range, process_vm_readv, process_vm_writev};

/// After how many milliseconds at most the job knows that a process has ended.
const NOTICED: u32 = 1_000;

/// The raw calls, which rustix lacks. Public for a benchmark that compares them with the fabric.
pub mod bare {
    use std::ffi::{c_int, c_ulong, c_void};

    /// An address range, as `struct iovec` of <sys/uio.h>.
    #[derive(Debug)]
    #[repr(C)]
    pub struct Range {
        /// Its start.
        pub base: *mut c_void,
        /// Its length in bytes.
        pub len: usize,
    }

    impl Range {
        /// A range of the other process.
        pub(crate) const fn new(start: u64, len: usize) -> Self {
            Self { base: std::ptr::without_provenance_mut(start as usize), len }
        }
    }

    unsafe extern "C" {
        /// Copies from another process; see process_vm_readv(2).
        pub fn process_vm_readv(
            pid: c_int,
            local: *const Range,
            locals: c_ulong,
            remote: *const Range,
            remotes: c_ulong,
            flags: c_ulong,
        ) -> isize;
        /// Copies to another process.
        pub fn process_vm_writev(
            pid: c_int,
            local: *const Range,
            locals: c_ulong,
            remote: *const Range,
            remotes: c_ulong,
            flags: c_ulong,
        ) -> isize;
    }
}

/// Reads ranges of another process's memory; returns the number of bytes read.
///
/// # Errors
/// The system's: `ESRCH` (no such process), `EPERM` (access denied), `EFAULT` (no memory there),
/// `ENOSYS`.
pub(crate) fn read(pid: u32, into: &mut [IoSliceMut<'_>], from: &[Range]) -> io::Result<usize> {
    let (locals, remotes) = (into.len() as c_ulong, from.len() as c_ulong);
    // SAFETY: `locals` ranges that are borrowed exclusively, each of the form of a `Range` (std
    // guarantees that of `IoSliceMut`), and `remotes` ranges, which the kernel checks.
    copied(unsafe { process_vm_readv(number(pid)?, into.as_mut_ptr().cast(), locals, from.as_ptr(), remotes, 0) })
}

/// Writes ranges of another process's memory; returns the number of bytes written.
///
/// # Errors
/// As [`read`].
///
/// # Safety
/// The other process has published the memory at `to` to be written by this one.
pub(crate) unsafe fn write(pid: u32, from: &[IoSlice<'_>], to: &[Range]) -> io::Result<usize> {
    let (locals, remotes) = (from.len() as c_ulong, to.len() as c_ulong);
    // SAFETY: `locals` ranges that are borrowed, each of the form of a `Range` (std guarantees that
    // of `IoSlice`), which the kernel only reads; the caller vouches for the remote ones.
    copied(unsafe { process_vm_writev(number(pid)?, from.as_ptr().cast(), locals, to.as_ptr(), remotes, 0) })
}

fn number(pid: u32) -> io::Result<c_int> {
    c_int::try_from(pid).map_err(|_| Errno::SRCH.into())
}

fn copied(count: isize) -> io::Result<usize> {
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// The system's error.
pub(crate) fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// The fault of a copy between this process and a rank's that failed. Of a process that is gone it waits
/// until the job knows, a moment later: whoever asks then for the rank gets the same answer.
pub(crate) fn fault(peer: Rank, errno: Errno, alive: impl Fn() -> Result<(), Fault>) -> Fault {
    match errno {
        Errno::SRCH => {
            let ended = (0..NOTICED).find_map(|_| {
                alive().err().or_else(|| {
                    std::thread::sleep(Duration::from_millis(1));
                    None
                })
            });
            ended.unwrap_or(Fault::of(FaultKind::PeerDied, peer))
        }
        Errno::FAULT => Fault::of(FaultKind::NoSuchRegion, peer),
        Errno::NOMEM => Fault::new(FaultKind::NoMemory), // here, not at the peer
        other => Fault::of(FaultKind::Refused, peer).with_detail(other.raw_os_error().unsigned_abs()),
    }
}

/// Whether the system lets one process of this user access another's memory, tested on a child.
/// Ranks with user memory allow one another what is allowed there (`PR_SET_PTRACER`), also where
/// Yama restricts it to ancestors.
///
/// # Errors
/// The system's, if it is forbidden.
pub fn process_vm_works() -> io::Result<()> {
    let word = 0_u64;
    let address = std::ptr::from_ref(&word) as u64;
    let mut child = Command::new("sleep").arg("10").spawn()?;
    let mut seen = [0; 8];
    let there = [Range::new(address, seen.len())];
    let outcome = read(child.id(), &mut [IoSliceMut::new(&mut seen)], &there);
    let _ = child.kill();
    let _ = child.wait();
    match outcome {
        // The address is invalid in the child; `EFAULT` proves that the kernel tried.
        Err(error) if error.raw_os_error() == Some(Errno::FAULT.raw_os_error()) => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ones_own_process_and_none() {
        let (theirs, mut mine) = ([1_u8, 2, 3], [0; 3]);
        let address = theirs.as_ptr() as u64;
        let read = |pid, mine: &mut [u8; 3]| read(pid, &mut [IoSliceMut::new(mine)], &[Range::new(address, 3)]);
        match read(std::process::id(), &mut mine) {
            Ok(count) => assert_eq!((count, mine), (3, theirs)),
            Err(error) => eprintln_skipped(&error),
        }
        let nobody = read(u32::MAX, &mut mine).unwrap_err();
        assert_eq!(nobody.raw_os_error(), Some(Errno::SRCH.raw_os_error()));
    }

    #[test]
    fn a_process_that_is_gone_has_ended_as_the_job_says() {
        for kind in [FaultKind::PeerLeft, FaultKind::PeerDied] {
            let (asked, ended) = (std::cell::Cell::new(0), Fault::of(kind, Rank(1)));
            let alive = || if asked.replace(asked.get() + 1) < 5 { Ok(()) } else { Err(ended) };
            assert_eq!((fault(Rank(1), Errno::SRCH, alive), asked.get()), (ended, 6));
        }
        let kinds =
            [Errno::FAULT, Errno::INVAL].map(|errno| fault(Rank(1), errno, || unreachable!("it is there")).kind());
        assert_eq!(kinds, [FaultKind::NoSuchRegion, FaultKind::Refused]);
        assert_eq!(fault(Rank(1), Errno::NOMEM, || unreachable!()), Fault::new(FaultKind::NoMemory));
    }

    #[allow(clippy::print_stderr)]
    fn eprintln_skipped(error: &io::Error) {
        eprintln!("process_vm_readv does not work here ({error}): nothing was tested");
    }
}
