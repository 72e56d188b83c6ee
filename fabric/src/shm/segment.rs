//! Segments on one host: a range of a mapping, or user memory.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use onesided_job::Exchange;
use onesided_job::fork::is_child;
use onesided_remote_memory::{Fault, FaultKind, Rank, RegionId, debug};

use crate::shm::arena::Block;
use crate::shm::system_error::explain;
use crate::shm::user_region::UserRegion;
use crate::shm::words::WordOwner;
use crate::shm::{Mapping, ShmWord};
use crate::{Error, Path, Segment, SegmentKey};

/// A segment of shared memory: a range mapped here, or user memory of its owner.
#[derive(Clone)]
pub struct ShmSegment {
    start: NonNull<u8>,
    /// The mapped length. 0 for user memory, so that accesses fall through to the region.
    len: u64,
    region: Arc<Region>,
}

/// Keeps the memory mapped, and published while its owner holds it.
struct Region {
    memory: Memory,
    owner: WordOwner,
    id: RegionId,
    /// The owner's means to retract the region.
    published: Option<Arc<dyn Exchange>>,
}

enum Memory {
    Mapped(Arc<Mapping>),
    /// A range of an arena, whose mapping it keeps.
    Block(Block),
    User(UserRange),
}

/// User memory, or a part of it.
#[derive(Clone)]
pub(crate) struct UserRange {
    pub(crate) memory: Arc<UserRegion>,
    at: u64,
    len: u64,
    /// For a part: keeps the whole published.
    whole: Option<ShmSegment>,
}

impl UserRange {
    /// Translates a range to the whole's offset.
    pub(crate) fn place(&self, offset: u64, len: usize) -> Result<u64, Fault> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.len => Ok(self.at + offset),
            _ => Err(Fault::of(FaultKind::OutOfRange, self.memory.owner)),
        }
    }

    /// Whether it is the registered whole, and not a part.
    pub(crate) const fn is_whole(&self) -> bool {
        self.whole.is_none()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Some(exchange) = self.published.as_ref().filter(|_| !is_child()) {
            exchange.retract(self.id);
        }
    }
}

#[allow(unsafe_code)] // stores a pointer next to its owner
mod send {
    use super::ShmSegment;

    // SAFETY: `start` points into a `Mapping`, which is Send and Sync and is kept by `region`, or
    // is dangling and unused.
    unsafe impl Send for ShmSegment {}
    // SAFETY: as above.
    unsafe impl Sync for ShmSegment {}
}

impl ShmSegment {
    /// `len` bytes at `offset` of a mapping, of a rank's, for `me`. `published`: for an own segment,
    /// retracted with the last clone.
    pub(crate) fn new(
        memory: Arc<Mapping>,
        (offset, len): (u64, u64),
        (rank, id): (Rank, RegionId),
        me: Rank,
        published: Option<Arc<dyn Exchange>>,
    ) -> Result<Self, Fault> {
        let start = memory.bytes(offset, len).ok_or(Fault::of(FaultKind::OutOfRange, rank))?;
        let memory = Memory::Mapped(memory);
        let owner = WordOwner::new(rank, me);
        Ok(Self { start, len, region: Arc::new(Region { memory, owner, id, published }) })
    }

    /// A block of an arena: `len` bytes at `offset` of its mapping.
    pub(crate) fn of_block(
        block: Block,
        (offset, len): (u64, u64),
        (rank, id): (Rank, RegionId),
        me: Rank,
    ) -> Result<Self, Fault> {
        let start = block.memory().bytes(offset, len).ok_or(Fault::of(FaultKind::OutOfRange, rank))?;
        let (memory, owner, published) = (Memory::Block(block), WordOwner::new(rank, me), None);
        Ok(Self { start, len, region: Arc::new(Region { memory, owner, id, published }) })
    }

    /// User memory of its owner.
    pub(crate) fn of_user(memory: Arc<UserRegion>, place: (Rank, RegionId)) -> Self {
        Self::of_range(UserRange { at: 0, len: memory.len(), memory, whole: None }, place)
    }

    fn of_range(range: UserRange, (rank, id): (Rank, RegionId)) -> Self {
        let owner = WordOwner::new(rank, range.memory.me); // it has no words
        let region = Region { memory: Memory::User(range), owner, id, published: None };
        Self { start: NonNull::dangling(), len: 0, region: Arc::new(region) }
    }

    /// A part of user memory.
    pub(crate) fn part(&self, offset: u64, len: u64) -> Result<Self, Fault> {
        let refused = |kind| Fault::of(kind, self.region.owner.rank());
        let range = self.user_memory().ok_or(refused(FaultKind::Unsupported))?;
        if !offset.is_multiple_of(8) {
            return Err(refused(FaultKind::Misaligned));
        }
        let bytes = usize::try_from(len).ok().filter(|len| *len > 0).ok_or(refused(FaultKind::OutOfRange))?;
        let at = range.place(offset, bytes)?;
        let part = UserRange { memory: Arc::clone(&range.memory), at, len, whole: Some(self.clone()) };
        Ok(Self::of_range(part, (self.region.owner.rank(), self.region.id)))
    }

    pub(crate) fn user_memory(&self) -> Option<&UserRange> {
        match &self.region.memory {
            Memory::User(user) => Some(user),
            Memory::Mapped(_) | Memory::Block(_) => None,
        }
    }

    /// Its mapping and its start there; `None` for user memory.
    pub(crate) fn mapping(&self) -> Option<(&Arc<Mapping>, u64)> {
        let memory = match &self.region.memory {
            Memory::Mapped(memory) => memory,
            Memory::Block(block) => block.memory(),
            Memory::User(_) => return None,
        };
        Some((memory, (self.start.addr().get() - memory.bytes(0, 0)?.addr().get()) as u64))
    }

    #[inline]
    pub(crate) fn check(&self, offset: u64, len: usize) -> Result<(), Fault> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(Fault::of(FaultKind::OutOfRange, self.region.owner.rank())),
        }
    }
}

pub use self::access::OwnWords;

#[allow(unsafe_code)] // checked access to a segment's bytes
mod access {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use onesided_job::segment::copy;
    use onesided_remote_memory::{Fault, FaultKind, debug};

    use super::{ShmSegment, ShmWord};

    use crate::Segment as _;

    /// `N` consecutive words of this rank's own memory, found once: nothing is checked when they are used.
    #[derive(Clone)]
    pub struct OwnWords<const N: usize>(ShmSegment);

    debug!([const N: usize] OwnWords<N>, |this| "{N} words of {:?}", this.0);

    impl<const N: usize> OwnWords<N> {
        /// The words.
        #[inline]
        pub fn get(&self) -> [ShmWord<'_>; N] {
            // SAFETY: `own_words` made this segment, of N words that `words_at` had found at its start, in a
            // mapping that it keeps; all ranks access them by atomics or racy copies.
            let words = unsafe { self.0.start.cast::<[AtomicU64; N]>().as_ref() };
            let owner = self.0.region.owner.own();
            words.each_ref().map(|word| ShmWord { word, owner })
        }
    }

    impl ShmSegment {
        /// `N` consecutive words, if they fit, and this is the rank's own memory.
        pub fn own_words<const N: usize>(&self, offset: u64) -> Option<OwnWords<N>> {
            const { assert!(N > 0, "user memory, which is not mapped, has no words") };
            self.words_at::<N>(offset).filter(|_| self.region.owner.is_own())?;
            // SAFETY: `words_at` has found N words there.
            let start = unsafe { self.start.add(offset as usize) };
            Some(OwnWords(Self { start, len: 8 * N as u64, region: Arc::clone(&self.region) }))
        }

        #[inline]
        pub(crate) fn word(&self, offset: u64) -> Result<ShmWord<'_>, Fault> {
            match self.words_at(offset) {
                Some([word]) => Ok(word),
                None => Err(self.no_word(offset)),
            }
        }

        /// `N` consecutive words, if they fit.
        #[inline]
        pub(crate) fn words_at<const N: usize>(&self, offset: u64) -> Option<[ShmWord<'_>; N]> {
            if !offset.is_multiple_of(8) || self.check(offset, 8 * N).is_err() {
                return None;
            }
            // SAFETY: offset + 8 * N <= len was just checked, and start is valid for len bytes.
            let first = unsafe { self.start.add(offset as usize) };
            // SAFETY: N words of a mapping that `self` keeps; segments begin at multiples of 8
            // (pages, or 64-byte lines of the job segment), and all ranks access them by atomics or
            // racy copies.
            let words = unsafe { first.cast::<[AtomicU64; N]>().as_ref() };
            Some(words.each_ref().map(|word| ShmWord { word, owner: self.region.owner }))
        }

        /// The error if one does not fit.
        #[cold]
        #[inline(never)]
        fn no_word(&self, offset: u64) -> Fault {
            const BYTES: usize = 8;
            if !offset.is_multiple_of(8) {
                return Fault::of(FaultKind::Misaligned, self.region.owner.rank());
            }
            let outside =
                self.check(offset, BYTES).err().unwrap_or(Fault::of(FaultKind::OutOfRange, self.region.owner.rank()));
            self.user_memory().map_or(outside, |user| match user.place(offset, BYTES) {
                Ok(_) => user.memory.wordless(),
                Err(fault) => fault,
            })
        }

        #[inline]
        pub(crate) fn write(&self, offset: u64, from: &[u8]) -> Result<(), Fault> {
            if let Err(fault) = self.check(offset, from.len()) {
                return self.write_user(offset, from, fault);
            }
            // SAFETY: offset <= len was just checked.
            let to = unsafe { self.start.add(offset as usize) };
            // SAFETY: from.len() bytes from there lie inside the mapping, which `self` keeps;
            // others access them by atomics or racy copies.
            unsafe { copy::into_shared(to.as_ptr(), from) };
            Ok(())
        }

        #[inline(always)]
        pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Fault> {
            if let Err(fault) = self.check(offset, into.len()) {
                return self.read_user(offset, into, fault);
            }
            // SAFETY: offset <= len was just checked.
            let from = unsafe { self.start.add(offset as usize) };
            // SAFETY: into.len() bytes from there lie inside the mapping, which `self` keeps;
            // others access them by atomics or racy copies.
            unsafe { copy::out_of_shared(into, from.as_ptr()) };
            Ok(())
        }

        #[cold]
        #[inline(never)]
        fn write_user(&self, offset: u64, from: &[u8], fault: Fault) -> Result<(), Fault> {
            let user = self.user_memory().ok_or(fault)?;
            user.memory.write(user.place(offset, from.len())?, from)
        }

        #[cold]
        #[inline(never)]
        fn read_user(&self, offset: u64, into: &mut [u8], fault: Fault) -> Result<(), Fault> {
            let user = self.user_memory().ok_or(fault)?;
            user.memory.read(user.place(offset, into.len())?, into)
        }

        /// All of it as words; `None` if it is not mapped.
        pub(crate) fn words(&self) -> Option<&[AtomicU64]> {
            if self.user_memory().is_some() {
                return None;
            }
            let words = (self.len / 8) as usize;
            // SAFETY: `words` words of a mapping that `self` keeps, at a multiple of 8 (see
            // `word`); all ranks access them by atomics or racy copies.
            Some(unsafe { std::slice::from_raw_parts(self.start.cast().as_ptr(), words) })
        }

        /// Copies between two segments. Where the ranges overlap, a byte arrives that was in the
        /// source before the copy, or one that the copy has written.
        pub(crate) fn transfer(&self, offset: u64, into: (&Self, u64), len: u64) -> Result<(), Fault> {
            let bytes = usize::try_from(len).map_err(|_| Fault::of(FaultKind::OutOfRange, self.region.owner.rank()))?;
            if self.user_memory().is_some() || into.0.user_memory().is_some() {
                return self.transfer_user(offset, into, bytes);
            }
            self.check(offset, bytes)?;
            into.0.check(into.1, bytes)?;
            // SAFETY: offset <= len of this segment.
            let from = unsafe { self.start.add(offset as usize) };
            // SAFETY: the offset is at most the length of that segment.
            let to = unsafe { into.0.start.add(into.1 as usize) };
            // SAFETY: both ranges were just checked, both mappings are kept and consist of whole
            // words, which others access by atomics or racy copies. They may overlap.
            unsafe { copy::copy(to.as_ptr(), from.as_ptr(), bytes) };
            Ok(())
        }

        /// The same through a buffer.
        fn transfer_user(&self, offset: u64, into: (&Self, u64), len: usize) -> Result<(), Fault> {
            // Checked first: a range that does not fit is not copied in part.
            for (segment, offset) in [(self, offset), into] {
                let end = offset.checked_add(len as u64).filter(|end| *end <= segment.len());
                end.ok_or(Fault::of(FaultKind::OutOfRange, segment.region.owner.rank()))?;
            }
            let mut buffer = vec![0; len.min(256 << 10)];
            let mut done = 0;
            while done < len {
                let piece = buffer.len().min(len - done);
                let buffer = &mut buffer[..piece];
                self.read(offset + done as u64, buffer)?;
                into.0.write(into.1 + done as u64, buffer)?;
                done += piece;
            }
            Ok(())
        }
    }
}

impl Segment for ShmSegment {
    fn rank(&self) -> Rank {
        self.region.owner.rank()
    }

    fn len(&self) -> u64 {
        self.user_memory().map_or(self.len, |user| user.len)
    }

    fn key(&self) -> SegmentKey {
        let at = self.user_memory().map_or(0, |user| user.at);
        SegmentKey { rank: self.region.owner.rank(), region: self.region.id, len: self.len(), address: at, rkey: 0 }
    }

    fn path(&self) -> Path {
        self.user_memory().map_or(Path::Cpu, |user| user.memory.path())
    }

    fn mapped(&self) -> Option<&[AtomicU64]> {
        self.words()
    }

    #[inline(always)] // nothing is left of it
    fn as_shm(&self) -> Option<&Self> {
        Some(self)
    }

    fn populate(&self) -> Result<(), Error> {
        let Some((memory, start)) = self.mapping() else { return Ok(()) };
        memory.populate(start, self.len()).map_err(|source| {
            let (what, kind) = explain(&source);
            let fault = Fault::of(kind, self.rank());
            Error::Allocate { len: self.len(), what: what.into(), fault, source: Some(source) }
        })
    }

    fn change(&self, offset: u64, words: usize, change: &mut dyn FnMut(usize, u64) -> u64) -> Result<(), Fault> {
        let user = self.user_memory().ok_or(Fault::of(FaultKind::Unsupported, self.rank()))?;
        let bytes = words.checked_mul(8).ok_or(Fault::of(FaultKind::OutOfRange, self.rank()))?;
        user.memory.change(user.place(offset, bytes)?, words, change)
    }
}

debug!([] ShmSegment, |this| "{} bytes of {}, region {}", this.len(), this.region.owner.rank(), this.region.id.0);
