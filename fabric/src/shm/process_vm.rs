//! Copies between this process's memory and another's, by the kernel (process_vm_readv(2)).
#![allow(unsafe_code)] // two calls of the C library

use std::ffi::{c_int, c_ulong, c_void};
use std::io;
use std::process::Command;

use self::bare::{Range, process_vm_readv, process_vm_writev};

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

/// Reads another process's memory; returns the number of bytes read.
///
/// # Errors
/// The system's: `ESRCH` (no such process), `EPERM` (access denied), `EFAULT` (no memory there),
/// `ENOSYS`.
///
/// # Safety
/// `into` is valid for writes of `len` bytes, which others access by atomics or racy copies only.
pub(crate) unsafe fn read(pid: u32, from: u64, into: *mut u8, len: usize) -> io::Result<usize> {
    let (local, remote) = (Range { base: into.cast(), len }, Range { base: from as *mut c_void, len });
    // SAFETY: one range each. The kernel checks the other process's; this one's is the caller's to
    // vouch for.
    copied(unsafe { process_vm_readv(number(pid)?, &local, 1, &remote, 1, 0) })
}

/// Writes another process's memory; returns the number of bytes written.
///
/// # Errors
/// As [`read`].
///
/// # Safety
/// `from` is valid for reads of `len` bytes. The other process has published the memory at `to` to
/// this one.
pub(crate) unsafe fn write(pid: u32, to: u64, from: *const u8, len: usize) -> io::Result<usize> {
    let (local, remote) = (Range { base: from.cast_mut().cast(), len }, Range { base: to as *mut c_void, len });
    // SAFETY: one range each; the kernel reads the local one only.
    copied(unsafe { process_vm_writev(number(pid)?, &local, 1, &remote, 1, 0) })
}

/// Reads ranges of another process's memory into ranges of this one's; returns the number of bytes
/// read.
///
/// # Errors
/// As [`read`].
///
/// # Safety
/// As [`read`], for each range of `into`.
pub(crate) unsafe fn read_ranges(pid: u32, into: &[Range], from: &[Range]) -> io::Result<usize> {
    let (locals, remotes) = (into.len() as c_ulong, from.len() as c_ulong);
    // SAFETY: `locals` and `remotes` ranges. The kernel checks the other process's; the caller
    // vouches for this one's.
    copied(unsafe { process_vm_readv(number(pid)?, into.as_ptr(), locals, from.as_ptr(), remotes, 0) })
}

/// Writes ranges of this process's memory to ranges of another's; returns the number of bytes
/// written.
///
/// # Errors
/// As [`read`].
///
/// # Safety
/// As [`write`], for each range.
pub(crate) unsafe fn write_ranges(pid: u32, from: &[Range], to: &[Range]) -> io::Result<usize> {
    let (locals, remotes) = (from.len() as c_ulong, to.len() as c_ulong);
    // SAFETY: `locals` and `remotes` ranges; the kernel only reads the local ones.
    copied(unsafe { process_vm_writev(number(pid)?, from.as_ptr(), locals, to.as_ptr(), remotes, 0) })
}

fn number(pid: u32) -> io::Result<c_int> {
    c_int::try_from(pid).map_err(|_| rustix::io::Errno::SRCH.into())
}

fn copied(count: isize) -> io::Result<usize> {
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
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
    // SAFETY: the local range is `seen`.
    let outcome = unsafe { read(child.id(), address, seen.as_mut_ptr(), seen.len()) };
    let _ = child.kill();
    let _ = child.wait();
    match outcome {
        // The address is invalid in the child; `EFAULT` proves that the kernel tried.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::FAULT.raw_os_error()) => Ok(()),
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
        // SAFETY: the local range is `mine`.
        let read = |pid, mine: &mut [u8; 3]| unsafe { read(pid, address, mine.as_mut_ptr(), 3) };
        match read(std::process::id(), &mut mine) {
            Ok(count) => assert_eq!((count, mine), (3, theirs)),
            Err(error) => eprintln_skipped(&error),
        }
        let nobody = read(u32::MAX, &mut mine).unwrap_err();
        assert_eq!(nobody.raw_os_error(), Some(rustix::io::Errno::SRCH.raw_os_error()));
    }

    #[allow(clippy::print_stderr)]
    fn eprintln_skipped(error: &io::Error) {
        eprintln!("process_vm_readv does not work here ({error}): nothing was tested");
    }
}
