//! Shared memory without a name.
#![allow(unsafe_code)] // mmap, and pointers into the mapping

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::shm::headroom;

/// Mappings up to this size are populated when they are made, so that not even a minor fault comes later.
const POPULATE: usize = 64 << 20;

/// Up to this size nobody asks how much memory there is left.
const SMALL: usize = 1 << 20;

/// A memory file and its mapping. Nothing of it is in any file system, so nothing is left behind by a kill.
///
/// Its bytes are written by other processes at any time: they are reached by atomics and by the
/// copies of this crate (`copy.rs`) only, never by a reference to plain data.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    /// To be handed on; `None` for a peer's, which needs no descriptor once it is mapped.
    file: Option<OwnedFd>,
}

// SAFETY: the mapping is plain memory of the process; all access is by atomics or by copies that allow for races.
unsafe impl Send for Mapping {}
// SAFETY: as above; no method hands out a reference to plain data.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Makes `len` zeroed bytes, with all their pages, sealed against changes of size.
    ///
    /// # Errors
    /// The system's: `ENOMEM` and `ENOSPC` (no memory), `EMFILE` and `ENFILE` (no descriptors), `EFBIG` (the limit on the
    /// size of files), `EINVAL` (length 0).
    pub fn create(len: usize) -> io::Result<Self> {
        if len > SMALL && headroom::bytes().is_some_and(|bytes| len as u64 > bytes) {
            return Err(rustix::io::Errno::NOMEM.into());
        }
        let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        if limit.is_some_and(|limit| len as u64 > limit) {
            return Err(rustix::io::Errno::FBIG.into()); // the kernel would send SIGXFSZ, which kills
        }
        let file = rustix::fs::memfd_create("onesided", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        // Allocated now: a page that cannot be had is an error here, not a SIGBUS later.
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, len as u64)?;
        // A peer that shrank the file would kill us by SIGBUS.
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Self::map(file, len)
    }

    /// Maps a file that another process made by [`create`](Self::create).
    ///
    /// # Errors
    /// The system's; `InvalidData` if the file is empty or not sealed.
    pub fn open(file: OwnedFd) -> io::Result<Self> {
        Self::check(&file).and_then(|len| Self::map(file, len))
    }

    /// The same, and closes the file: a process may reach more memory than it may have descriptors.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) fn reach(file: OwnedFd) -> io::Result<Self> {
        let mut mapping = Self::open(file)?;
        mapping.file = None;
        Ok(mapping)
    }

    fn check(file: &OwnedFd) -> io::Result<usize> {
        let len = usize::try_from(rustix::fs::fstat(file)?.st_size)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a memory file of impossible size"))?;
        let seals = rustix::fs::fcntl_get_seals(file)?;
        if len == 0 || !seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a sealed memory file"));
        }
        Ok(len)
    }

    fn map(file: OwnedFd, len: usize) -> io::Result<Self> {
        let mut flags = MapFlags::SHARED;
        if len <= POPULATE {
            flags |= MapFlags::POPULATE;
        }
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags, &file, 0)?
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len, file: Some(file) })
    }

    /// Its length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes; never so.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The file, to be handed to a peer; `None` for memory that a peer publishes, and that was fetched.
    #[must_use]
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// The address of `len` bytes at `offset`; `None` where they do not fit.
    #[must_use]
    pub fn bytes(&self, offset: u64, len: u64) -> Option<NonNull<u8>> {
        let end = offset.checked_add(len)?;
        if end > self.len as u64 {
            return None;
        }
        // SAFETY: offset <= end <= len of the mapping, so the address is inside it or one past its end.
        Some(unsafe { self.base.add(offset as usize) })
    }

    /// The word at `offset`; `None` where there is none.
    #[must_use]
    pub fn word(&self, offset: u64) -> Option<&AtomicU64> {
        let word = self.bytes(offset, 8).filter(|_| offset % 8 == 0)?;
        // SAFETY: 8 bytes inside the mapping, which is page aligned and lives as long as `self`; whoever else reaches
        // them does so by atomics or by copies that allow for races.
        Some(unsafe { AtomicU64::from_ptr(word.cast().as_ptr()) })
    }

    /// The half word at `offset`; `None` where there is none.
    pub(crate) fn half(&self, offset: u64) -> Option<&AtomicU32> {
        let half = self.bytes(offset, 4).filter(|_| offset % 4 == 0)?;
        // SAFETY: as in `word`, 4 bytes.
        Some(unsafe { AtomicU32::from_ptr(half.cast().as_ptr()) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` and nothing borrowed from `self` outlives it.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap: {unmapped:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn shares_and_refuses() {
        let mine = Mapping::create(8192).unwrap();
        let theirs = Mapping::open(mine.file().unwrap().try_clone_to_owned().unwrap()).unwrap();
        mine.word(4096).unwrap().store(7, Ordering::Relaxed);
        assert_eq!(theirs.word(4096).unwrap().load(Ordering::Relaxed), 7);
        assert!(mine.word(8192).is_none() && mine.word(4).is_none() && mine.bytes(u64::MAX, 2).is_none());
        assert!(mine.bytes(8192, 0).is_some() && mine.bytes(8185, 8).is_none());
        assert!(Mapping::create(0).is_err());
        let endless = Mapping::create(1 << 45).unwrap_err();
        assert_eq!(endless.raw_os_error(), Some(rustix::io::Errno::NOMEM.raw_os_error()));
        let unsealed = rustix::fs::memfd_create("x", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&unsealed, 4096).unwrap();
        assert!(Mapping::open(unsealed).is_err());
    }
}
