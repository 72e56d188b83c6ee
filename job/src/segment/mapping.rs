//! Anonymous shared memory.
#![allow(unsafe_code)] // mmap, and pointers into the mapping

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, SeekFrom};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::fork;
use crate::segment::{copy, headroom};

/// Mappings up to this size are populated when they are made, if the file has its pages, which
/// avoids minor faults later.
const POPULATE: usize = 64 << 20;

const PAGE: u64 = 4096;

/// Seals against changes of size: a peer that shrank the file would kill this process by SIGBUS.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// A memory file and its mapping. It is in no file system, so a killed process leaves nothing
/// behind.
///
/// Other processes may write its bytes at any time. They are accessed by atomics and by this
/// crate's copies (`copy.rs`) only, never by a reference to plain data.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    /// To be passed on; `None` for a peer's, which needs no descriptor once mapped.
    file: Option<OwnedFd>,
}

// SAFETY: the mapping is plain memory of the process; all access is by atomics or by copies that
// allow for races.
unsafe impl Send for Mapping {}
// SAFETY: as above; no method hands out a reference to plain data.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Creates `len` zeroed bytes with all their pages, sealed against changes of size.
    ///
    /// # Errors
    /// The system's: `ENOMEM` and `ENOSPC` (no memory), `EMFILE` and `ENFILE` (no descriptors),
    /// `EFBIG` (the file size limit), `EINVAL` (length 0).
    pub fn create(len: usize) -> io::Result<Self> {
        headroom::admit(len as u64)?;
        let file = Self::file_for(len)?;
        // Allocated now: a missing page is an error here, not a SIGBUS later.
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, len as u64)?;
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        Self::whole(file, len, len <= POPULATE)
    }

    /// Creates `len` zeroed bytes whose pages are allocated at the first touch. As for private
    /// memory, the kernel ends a process if none is left then. The available memory is checked now,
    /// and where the kernel would raise SIGBUS all pages are allocated now.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn reserve(len: usize) -> io::Result<Self> {
        if !Self::reserves() {
            return Self::create(len);
        }
        headroom::admit(len as u64)?;
        Self::sparse(len)
    }

    /// Creates `len` bytes of which only a part is used, where [pages may come
    /// later](Self::reserves).
    ///
    /// # Errors
    /// As [`create`](Self::create), but not for excessive lengths.
    pub fn sparse(len: usize) -> io::Result<Self> {
        let file = Self::file_for(len)?;
        rustix::fs::ftruncate(&file, len as u64)?;
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        Self::whole(file, len, false)
    }

    /// Whether pages may be allocated later. If the system does not overcommit
    /// (`vm.overcommit_memory` is 2), a page beyond the limit raises SIGBUS.
    pub fn reserves() -> bool {
        static MAY: OnceLock<bool> = OnceLock::new();
        *MAY.get_or_init(|| {
            // Unknown: assume the worst.
            std::fs::read_to_string("/proc/sys/vm/overcommit_memory").is_ok_and(|mode| matches!(mode.trim(), "0" | "1"))
        })
    }

    /// An empty file that may have `len` bytes.
    fn file_for(len: usize) -> io::Result<OwnedFd> {
        if len == 0 {
            return Err(Errno::INVAL.into());
        }
        let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        if limit.is_some_and(|limit| len as u64 > limit) {
            return Err(Errno::FBIG.into()); // the kernel would send SIGXFSZ, which is fatal
        }
        Ok(rustix::fs::memfd_create("onesided", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?)
    }

    /// Maps a file that another process made by [`create`](Self::create).
    ///
    /// # Errors
    /// The system's; `InvalidData` if the file is empty or not sealed.
    pub fn open(file: OwnedFd) -> io::Result<Self> {
        let (len, full) = Self::check(&file)?;
        Self::whole(file, len, full && len <= POPULATE)
    }

    /// The same, and closes the file: a process may map more memory files than it may have
    /// descriptors.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn reach(file: OwnedFd) -> io::Result<Self> {
        let mut mapping = Self::open(file)?;
        fork::set_file(mapping.base.addr().get(), None)?;
        mapping.file = None;
        Ok(mapping)
    }

    /// Maps a page-aligned part of such a file.
    ///
    /// # Errors
    /// As [`open`](Self::open); `InvalidData` if the file has no such part.
    pub fn part(file: &OwnedFd, offset: u64, len: u64) -> io::Result<Self> {
        let (there, _) = Self::check(file)?;
        if len == 0 || offset.checked_add(len).is_none_or(|end| end > there as u64) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Self::map(file, (offset, len as usize), false)
    }

    /// The length of such a file.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn length(file: &OwnedFd) -> io::Result<u64> {
        Self::check(file).map(|(len, _)| len as u64)
    }

    /// Its length, and whether it has all its pages.
    fn check(file: &OwnedFd) -> io::Result<(usize, bool)> {
        let stat = rustix::fs::fstat(file)?;
        let len = usize::try_from(stat.st_size)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a memory file of impossible size"))?;
        let seals = rustix::fs::fcntl_get_seals(file)?;
        if len == 0 || !seals.contains(SEALS) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a sealed memory file"));
        }
        Ok((len, u64::try_from(stat.st_blocks).is_ok_and(|blocks| blocks * 512 >= len as u64)))
    }

    fn whole(file: OwnedFd, len: usize, populate: bool) -> io::Result<Self> {
        let mut mapping = Self::map(&file, (0, len), populate)?;
        fork::set_file(mapping.base.addr().get(), Some(file.as_fd()))?;
        mapping.file = Some(file);
        Ok(mapping)
    }

    /// Maps without keeping the file.
    fn map(file: &OwnedFd, (offset, len): (u64, usize), populate: bool) -> io::Result<Self> {
        fork::refuse()?;
        let mut flags = MapFlags::SHARED;
        if populate {
            flags |= MapFlags::POPULATE;
        }
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags, file, offset)?
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Self { base, len, file: None };
        fork::add(base.as_ptr().expose_provenance(), len)?;
        Ok(mapping)
    }

    /// Its length in bytes.
    #[must_use]
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Always `false`.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The file, to be passed to a peer; `None` for a peer's memory.
    #[must_use]
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// The address of `len` bytes at `offset`; `None` if they do not fit.
    #[must_use]
    #[inline]
    pub fn bytes(&self, offset: u64, len: u64) -> Option<NonNull<u8>> {
        let end = offset.checked_add(len)?;
        if end > self.len as u64 {
            return None;
        }
        // SAFETY: offset <= end <= len of the mapping, so the address is inside it or one past its
        // end.
        Some(unsafe { self.base.add(offset as usize) })
    }

    /// The word at `offset`; `None` if it does not fit.
    #[must_use]
    #[inline]
    pub fn word(&self, offset: u64) -> Option<&AtomicU64> {
        let word = self.bytes(offset, 8).filter(|_| offset.is_multiple_of(8))?;
        // SAFETY: 8 bytes inside the mapping, which is page aligned and lives as long as `self`;
        // all other accesses to them are atomics or copies that allow for races.
        Some(unsafe { AtomicU64::from_ptr(word.cast().as_ptr()) })
    }

    /// Consecutive words; `None` if they do not fit.
    #[must_use]
    #[inline]
    pub fn words(&self, offset: u64, count: usize) -> Option<&[AtomicU64]> {
        if !offset.is_multiple_of(8) {
            return None;
        }
        let words = self.bytes(offset, (count as u64).checked_mul(8)?)?;
        // SAFETY: as in `word`, `count` times.
        Some(unsafe { std::slice::from_raw_parts(words.cast::<AtomicU64>().as_ptr(), count) })
    }

    /// Copies bytes in; `None` if they do not fit.
    pub fn write(&self, offset: u64, from: &[u8]) -> Option<()> {
        let to = self.bytes(offset, from.len() as u64)?;
        // SAFETY: that many bytes of the mapping, which consists of whole pages, so of whole words,
        // and lives as long as `self`; all other accesses to them are atomics or copies that allow
        // for races.
        unsafe { copy::into_shared(to.as_ptr(), from) };
        Some(())
    }

    /// Copies bytes out; `None` if they do not fit.
    #[inline]
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Option<()> {
        let from = self.bytes(offset, into.len() as u64)?;
        // SAFETY: as in `write`.
        unsafe { copy::out_of_shared(into, from.as_ptr()) };
        Some(())
    }

    /// Zeroes bytes; does nothing if they do not fit.
    pub fn zero(&self, offset: u64, len: u64) {
        if let Some(bytes) = self.bytes(offset, len) {
            // SAFETY: `len` bytes of the mapping; all other accesses to them are atomics or copies
            // that allow for races.
            unsafe { copy::zero(bytes.as_ptr(), len as usize) };
        }
    }

    /// Whether all words of a range are zero. Both ends are multiples of 8 within the mapping.
    pub fn is_zero(&self, offset: u64, len: u64) -> bool {
        (offset..offset + len).step_by(PAGE as usize).all(|at| {
            let Some(words) = self.words(at, (PAGE.min(offset + len - at) / 8) as usize) else { return false };
            words.iter().all(|word| word.load(Ordering::Relaxed) == 0)
        })
    }

    /// The parts of a range that have pages: their starts and lengths.
    ///
    /// # Errors
    /// `Unsupported` for a peer's; the system's.
    pub fn present(&self, offset: u64, len: u64) -> io::Result<Vec<(u64, u64)>> {
        let file = self.file.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let (mut at, end, mut ranges) = (offset, offset.saturating_add(len), Vec::new());
        while at < end {
            let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
                Ok(start) if start < end => start,
                Ok(_) | Err(Errno::NXIO) => break, // no more pages up to the end of the file
                Err(error) => return Err(error.into()),
            };
            at = rustix::fs::seek(file, SeekFrom::Hole(start))?.min(end);
            if at <= start {
                return Err(io::ErrorKind::InvalidData.into());
            }
            ranges.push((start, at - start));
        }
        Ok(ranges)
    }

    /// Returns the pages of a range to the system, which zeroes its bytes. Both ends are
    /// page-aligned.
    ///
    /// # Errors
    /// `Unsupported` for a peer's; the system's.
    pub fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        fork::refuse()?;
        let file = self.file.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(file, flags, offset, len)?)
    }

    /// Allocates all pages of a range, in the file and in this mapping.
    ///
    /// # Errors
    /// As [`create`](Self::create); `Unsupported` for a peer's.
    pub fn populate(&self, offset: u64, len: u64) -> io::Result<()> {
        fork::refuse()?;
        headroom::admit(len)?;
        let file = self.file.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, offset, len)?;
        let start = offset / PAGE * PAGE;
        let bytes = self.bytes(start, offset + len - start).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: a range of the mapping, of which no byte is changed.
        let advised = unsafe {
            rustix::mm::madvise(bytes.as_ptr().cast(), (offset + len - start) as usize, Advice::LinuxPopulateWrite)
        };
        match advised {
            Ok(()) | Err(Errno::INVAL) => Ok(()), // an older kernel: the file has its pages, so later faults cannot fail
            Err(error) => Err(error.into()),
        }
    }

    /// The half word at `offset`; `None` if it does not fit.
    #[inline]
    pub fn half(&self, offset: u64) -> Option<&AtomicU32> {
        let half = self.bytes(offset, 4).filter(|_| offset.is_multiple_of(4))?;
        // SAFETY: as in `word`, 4 bytes.
        Some(unsafe { AtomicU32::from_ptr(half.cast().as_ptr()) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        fork::remove(self.base.addr().get());
        // SAFETY: the mapping was made by `map` and nothing borrowed from `self` outlives it.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap: {unmapped:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_refuses() {
        let mine = Mapping::create(8192).unwrap();
        let theirs = Mapping::open(mine.file().unwrap().try_clone_to_owned().unwrap()).unwrap();
        mine.word(4096).unwrap().store(7, Ordering::Relaxed);
        assert_eq!(theirs.word(4096).unwrap().load(Ordering::Relaxed), 7);
        assert!(mine.word(8192).is_none() && mine.word(4).is_none() && mine.bytes(u64::MAX, 2).is_none());
        assert!(mine.bytes(8192, 0).is_some() && mine.bytes(8185, 8).is_none());
        for make in [Mapping::create, Mapping::reserve] {
            assert!(make(0).is_err());
            let endless = make(1 << 45).unwrap_err();
            assert_eq!(endless.raw_os_error(), Some(Errno::NOMEM.raw_os_error()));
        }
        let unsealed = rustix::fs::memfd_create("x", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&unsealed, 4096).unwrap();
        assert!(Mapping::open(unsealed).is_err());
    }

    #[test]
    fn pages_come_and_go() {
        const LEN: u64 = 1 << 20;
        let blocks = |memory: &Mapping| rustix::fs::fstat(memory.file().unwrap()).unwrap().st_blocks as u64 * 512;
        assert_eq!(blocks(&Mapping::create(LEN as usize).unwrap()), LEN);
        let memory = Mapping::reserve(LEN as usize).unwrap();
        if !Mapping::reserves() {
            return assert_eq!(blocks(&memory), LEN);
        }
        assert_eq!((blocks(&memory), memory.present(0, LEN).unwrap()), (0, vec![]));
        let peer = Mapping::open(memory.file().unwrap().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(blocks(&memory), 0, "a peer that maps it makes no pages");
        for at in [3 * PAGE, 4 * PAGE, 100 * PAGE] {
            peer.word(at).unwrap().store(7, Ordering::Relaxed);
        }
        assert_eq!(memory.present(0, LEN).unwrap(), [(3 * PAGE, 2 * PAGE), (100 * PAGE, PAGE)]);
        assert_eq!(memory.present(4 * PAGE, 10 * PAGE).unwrap(), [(4 * PAGE, PAGE)]);
        memory.zero(3 * PAGE, PAGE);
        memory.discard(4 * PAGE, PAGE).unwrap();
        assert_eq!(memory.present(0, LEN).unwrap(), [(3 * PAGE, PAGE), (100 * PAGE, PAGE)]);
        let words = [3, 4, 100].map(|page| peer.word(page * PAGE).unwrap().load(Ordering::Relaxed));
        assert_eq!(words, [0, 0, 7]);
        memory.populate(10 * PAGE + 8, 2 * PAGE).unwrap();
        assert_eq!(memory.present(5 * PAGE, 20 * PAGE).unwrap(), [(10 * PAGE, 3 * PAGE)]);
        assert!(memory.populate(LEN - 8, 16).is_err());
        assert!(memory.is_zero(5 * PAGE, 95 * PAGE) && !memory.is_zero(5 * PAGE, 96 * PAGE));
        memory.word(PAGE - 8).unwrap().store(1, Ordering::Relaxed);
        assert!(memory.is_zero(0, PAGE - 8) && !memory.is_zero(0, PAGE) && !memory.is_zero(0, 2 * LEN));
    }
}
