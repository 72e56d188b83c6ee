//! The control page of user memory: peers find the memory by it, and its owner reclaims it by it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use onesided_job::Process;
use onesided_remote_memory::Rank;

use crate::Segment as _;
use crate::shm::ShmSegment;
use crate::shm::access_guard::{AccessGuard, Announced};

/// `LENTMEM` and the layout's version.
const MAGIC: u64 = u64::from_le_bytes(*b"LENTMEM\x03");

// The layout, in bytes: a header line, a line a rank, then at a page's start a buffer a rank.
const HEADER: u64 = 64;
const LINE: u64 = 64;
const PAGE: u64 = 4096;

// The header's fields, after the magic number: the process's number with the world's size above it.
const PID_AND_SIZE_AT: u64 = 8;
const STARTED_AT: u64 = 16;
const NONCE_AT: u64 = 24;
const ADDRESS_AT: u64 = 32;
const LEN_AT: u64 = 40;
const SHUT_AT: u64 = 48;
const REQUESTS_AT: u64 = 56;

// A rank's line: whether a thread of it has access, and how many others; and its request to the
// owner's progress thread.
const INSIDE_AT: u64 = 0;
const STATE_AT: u64 = 8;
const COUNT_AT: u64 = 16;
const BYTES_AT: u64 = 24;
const FAULT_AT: u64 = 32;
const OTHERS_AT: u64 = 40;

/// The length of all buffers together.
const BUFFERS: u64 = 1 << 20;

/// The descriptor by which peers find the owner's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemoteDescriptor {
    pub(crate) process: Process,
    /// The same for all threads of a process, and unique to it: process numbers are ambiguous
    /// across namespaces.
    pub(crate) nonce: u64,
    pub(crate) address: u64,
    pub(crate) len: u64,
}

/// The page, an own or a peer's.
#[derive(Debug)]
pub(crate) struct Control {
    memory: ShmSegment,
    size: u32,
}

/// A rank's request to the owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HelperRequest<'c> {
    /// 0: none. Otherwise as defined in `user_region` and `serving`.
    pub(crate) state: &'c AtomicU64,
    /// The number of pieces, and how many bytes of the buffer they take.
    pub(crate) count: &'c AtomicU64,
    pub(crate) bytes: &'c AtomicU64,
    /// The outcome: a fault's bits, or 0.
    pub(crate) fault: &'c AtomicU64,
}

impl Control {
    /// In zeroed memory of this [length](Self::length).
    pub(crate) fn create(memory: ShmSegment, size: u32, descriptor: &RemoteDescriptor) -> Self {
        let control = Self { memory, size };
        for (at, value) in [
            (PID_AND_SIZE_AT, u64::from(size) << 32 | u64::from(descriptor.process.pid)),
            (STARTED_AT, descriptor.process.started),
            (NONCE_AT, descriptor.nonce),
            (ADDRESS_AT, descriptor.address),
            (LEN_AT, descriptor.len),
        ] {
            control.word(at).store(value, Ordering::Relaxed);
        }
        control.word(0).store(MAGIC, Ordering::Release);
        control
    }

    /// `None` if it is not a control page of this version for a world of this size.
    pub(crate) fn open(memory: ShmSegment, size: u32) -> Option<(Self, RemoteDescriptor)> {
        let control = Self { memory, size };
        if control.memory.len() != Self::length(size) || control.word(0).load(Ordering::Acquire) != MAGIC {
            return None;
        }
        let word = |at| control.word(at).load(Ordering::Relaxed);
        let process = Process { pid: word(PID_AND_SIZE_AT) as u32, started: word(STARTED_AT) };
        let (nonce, address, len) = (word(NONCE_AT), word(ADDRESS_AT), word(LEN_AT));
        let sound = word(PID_AND_SIZE_AT) >> 32 == u64::from(size)
            && address % 8 == 0
            && address.checked_add(len).is_some_and(|end| end <= isize::MAX as u64);
        sound.then_some((control, RemoteDescriptor { process, nonce, address, len }))
    }

    /// Its length in bytes, in a world of this size.
    pub(crate) fn length(size: u32) -> u64 {
        Self::buffers_at(size) + u64::from(size) * Self::buffer_bytes(size)
    }

    const fn buffers_at(size: u32) -> u64 {
        (HEADER + size as u64 * LINE).next_multiple_of(PAGE)
    }

    /// The length of a rank's buffer in a world of this size.
    fn buffer_bytes(size: u32) -> u64 {
        (BUFFERS / u64::from(size.max(1)) / PAGE * PAGE).clamp(PAGE, 16 * PAGE)
    }

    pub(crate) const fn memory(&self) -> &ShmSegment {
        &self.memory
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        // Every caller's offset follows from `size`, which the length was checked against.
        &self.memory.words().expect("it is mapped")[(at / 8) as usize]
    }

    fn line(&self, rank: Rank) -> u64 {
        assert!(rank.0 < self.size, "{rank} has no line among {}", self.size);
        HEADER + u64::from(rank.0) * LINE
    }

    /// The access guard, as a rank uses it.
    pub(crate) fn gate(&self, rank: Rank) -> AccessGuard<'_> {
        let line = self.line(rank);
        let announced = Announced { single: self.word(line + INSIDE_AT), count: self.word(line + OTHERS_AT) };
        AccessGuard { shut: self.word(SHUT_AT), announced }
    }

    /// The number of requests so far.
    pub(crate) fn requests(&self) -> &AtomicU64 {
        self.word(REQUESTS_AT)
    }

    pub(crate) fn request(&self, rank: Rank) -> HelperRequest<'_> {
        let word = |at| self.word(self.line(rank) + at);
        HelperRequest { state: word(STATE_AT), count: word(COUNT_AT), bytes: word(BYTES_AT), fault: word(FAULT_AT) }
    }

    /// A rank's buffer: its offset in the page's memory, and its length.
    pub(crate) fn buffer(&self, rank: Rank) -> (u64, u64) {
        let bytes = Self::buffer_bytes(self.size);
        (Self::buffers_at(self.size) + u64::from(rank.0) * bytes, bytes)
    }
}

/// A number unique to this process.
pub(crate) fn nonce() -> u64 {
    static NONCE: OnceLock<(u32, u64)> = OnceLock::new();
    let pid = std::process::id();
    let (of, nonce) = *NONCE.get_or_init(|| {
        let mut bytes = [0; 8];
        let random = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        // The clock replaces missing random numbers.
        let nonce = if random == Ok(8) { u64::from_le_bytes(bytes) } else { crate::waiting::drive::now() };
        (pid, nonce | 1)
    });
    if of == pid { nonce } else { 0 } // a forked child has different memory at the same addresses
}

#[cfg(test)]
mod tests {
    use onesided_remote_memory::RegionId;

    use super::*;
    use crate::shm::Mapping;

    impl Control {
        /// Memory for one of rank 0, in a world of this size.
        pub(crate) fn page(size: u32) -> ShmSegment {
            let len = Self::length(size);
            let memory = Mapping::create(len as usize).unwrap();
            ShmSegment::new(memory.into(), (0, len), (Rank(0), RegionId(1)), Rank(0), None).unwrap()
        }
    }

    #[test]
    fn layout_is_disjoint_and_checked() {
        let process = Process { pid: 7, started: 11 };
        let descriptor = RemoteDescriptor { process, nonce: 3, address: 4096, len: 64 };
        for size in [1, 2, 3, 64, 300] {
            let control = Control::create(Control::page(size), size, &descriptor);
            let last = Rank(size - 1);
            assert!(control.line(last) + LINE <= Control::buffers_at(size));
            let (at, bytes) = control.buffer(last);
            assert_eq!(at + bytes, control.memory.len());
            let again = || Control::open(control.memory.clone(), size);
            assert_eq!(again().unwrap().1, descriptor);
            assert!(Control::open(control.memory.clone(), size + 1).is_none());
            control.word(ADDRESS_AT).store(4097, Ordering::Relaxed);
            assert!(again().is_none());
            control.word(ADDRESS_AT).store(isize::MAX as u64 - 7, Ordering::Relaxed);
            assert!(again().is_none());
        }
    }
}
