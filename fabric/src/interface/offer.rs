//! A slice that a peer of this host copies out of this process, once.
//!
//! The owner publishes the slice's address in shared memory and keeps the slice. The peer copies it,
//! a long one together with an owner that waits: the peer takes chunks from below, the owner from
//! above.
//!
//! | phase | who sets it | what it says |
//! |---|---|---|
//! | offered | the owner | where the slice is |
//! | shared | the peer | where its own memory is: both copy |
//! | taken | the peer | it needs the slice no more |
//! | moving | the owner | it needs its slice, and copies it to other memory |
//! | moved | the owner | where the copy is |
//! | gone | the owner | there was no memory for a copy |
//!
//! An owner that wants to know how long the peer's copy takes [asks](Offer::ask_time) for that; it may
//! move the slice before the peer knows of it, to compare.
//!
//! The owner never waits: it may move a slice that is being copied. The peer sees at its end that
//! the phase has changed, and copies again, from where the slice went.

use crate::remote_memory::{Fault, FaultKind, Rank};
use crate::util::sync::atomic::{AtomicU64, Ordering};
use crate::util::sync::thread;
use crate::{SegmentKey, WORLD_BYTES};

/// Where a world segment says how its rank's process is read.
pub(crate) const PROCESSES_AT: u64 = WORLD_BYTES - 32;

/// The memory of this host's other processes, by the kernel's copies.
pub trait PeerProcesses: Sync {
    /// Reads memory of a peer's process.
    ///
    /// # Errors
    /// `PeerDied`, `PeerLeft`; `NoSuchRegion`: it has no memory there; `Refused` with the system's error.
    fn read(&self, peer: Rank, address: u64, into: &mut [u8]) -> Result<(), Fault>;

    /// Writes memory of a peer's process.
    ///
    /// # Errors
    /// As [`read`](Self::read). Some bytes may have been written.
    ///
    /// # Safety
    /// The peer has published the range to be written by this rank now.
    #[allow(unsafe_code)] // a peer that published nothing could be written to
    unsafe fn write(&self, peer: Rank, from: &[u8], address: u64) -> Result<(), Fault>;

    /// Whether a peer's process has ended, so that none of its threads copies any more.
    fn has_ended(&self, peer: Rank) -> bool;
}

/// The words of an offer, in memory of its owner.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'w>(&'w [AtomicU64; Offer::WORDS]);

/// What came of an offer that was [taken](Offer::take).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The bytes are here.
    Whole,
    /// Its owner copies them to other memory now: take it again.
    Moving,
    /// They lie in other memory.
    Moved(SegmentKey),
}

/// The phase in the low byte; in the shared phase the chunks taken from below and from above.
const STATE: usize = 0;
const ADDRESS: usize = 1;
/// Where the slice went: [`SegmentKey::to_bytes`], in 4 words.
const KEY: usize = 2;
/// [`ASKED`]: the owner wants to know how long the peer copies; behind that, by the peer: how long.
const TIME: usize = 6;
const ASKED: u64 = u64::MAX;
/// The peer's memory and its length, and the chunks that the owner has copied there. In a cache
/// line of the peer's.
const INTO: usize = 8;
const ROOM: usize = 9;
const DONE: usize = 10;

const OFFERED: u64 = 0;
const SHARED: u64 = 1;
const TAKEN: u64 = 2;
const MOVING: u64 = 3;
const MOVED: u64 = 4;
const GONE: u64 = 5;

const PHASE: u64 = 0xff;
const BELOW: u32 = 8;
const ABOVE: u32 = 36;
const COUNT: u64 = (1 << (ABOVE - BELOW)) - 1;

/// The chunks of a copy that both sides make.
#[derive(Clone, Copy)]
struct Chunks {
    len: usize,
    chunk: usize,
}

impl Chunks {
    /// A quarter of the whole within bounds; more where the count would not fit its bits.
    fn of(len: usize) -> Self {
        let chunk = (len / 4).clamp(32 << 10, 256 << 10);
        Self { len, chunk: chunk.max(len.div_ceil(COUNT as usize)) }
    }

    /// Whether both would have something to copy.
    const fn are_several(self) -> bool {
        self.len > self.chunk
    }

    const fn count(self) -> u64 {
        self.len.div_ceil(self.chunk) as u64
    }

    fn range(self, index: u64) -> std::ops::Range<usize> {
        let start = index as usize * self.chunk;
        start..(start + self.chunk).min(self.len)
    }

    /// The state with one more chunk taken, and its index; `None` if all are taken or the phase is
    /// another.
    fn next(self, state: u64, from: u32) -> Option<(u64, u64)> {
        let (below, above) = (state >> BELOW & COUNT, state >> ABOVE & COUNT);
        if state & PHASE != SHARED || below + above >= self.count() {
            return None;
        }
        let index = if from == BELOW { below } else { self.count() - 1 - above };
        Some((state + (1 << from), index))
    }
}

impl<'w> Offer<'w> {
    const WORDS: usize = 16;

    /// The memory that an offer takes.
    pub const BYTES: u64 = 8 * Self::WORDS as u64;

    /// The offer in mapped memory; `None` if it is too short.
    #[must_use]
    pub fn of(words: &'w [AtomicU64]) -> Option<Self> {
        words.first_chunk().map(Self)
    }

    fn change(self, from: u64, to: u64) -> Result<u64, u64> {
        // Releases what was written for the phase; acquires what the other side wrote for its own.
        self.0[STATE].compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
    }

    /// Takes a chunk from below or from above.
    fn next(self, chunks: Chunks, from: u32) -> Option<u64> {
        let mut state = self.0[STATE].load(Ordering::Acquire);
        loop {
            let (next, index) = chunks.next(state, from)?;
            match self.change(state, next) {
                Ok(_) => return Some(index),
                Err(now) => state = now,
            }
        }
    }

    /// Offers a slice, before a peer knows of it. The owner keeps it in place until the offer is
    /// taken or [withdrawn](Self::withdraw); a peer copies wrong bytes otherwise.
    pub fn publish(self, bytes: &[u8]) {
        self.0[DONE].store(0, Ordering::Relaxed);
        self.0[TIME].store(0, Ordering::Relaxed);
        self.0[ADDRESS].store(bytes.as_ptr().expose_provenance() as u64, Ordering::Relaxed);
        self.0[STATE].store(OFFERED, Ordering::Release);
    }

    /// Asks the peer how long it copies, before it knows of the offer.
    pub fn ask_time(self) {
        self.0[TIME].store(ASKED, Ordering::Relaxed);
    }

    /// Whether the owner [asks](Self::ask_time) for the time.
    #[must_use]
    pub fn is_timed(self) -> bool {
        self.0[TIME].load(Ordering::Relaxed) == ASKED
    }

    /// Says how many nanoseconds the peer has copied, before it says that it has the message.
    pub fn tell_time(self, nanos: u64) {
        self.0[TIME].store(nanos.min(ASKED - 1), Ordering::Relaxed);
    }

    /// The answer to [`ask_time`](Self::ask_time), once the peer has the message.
    #[must_use]
    pub fn time(self) -> Option<u64> {
        Some(self.0[TIME].load(Ordering::Relaxed)).filter(|time| *time != ASKED)
    }

    /// Copies chunks of the slice for the peer while it copies others.
    ///
    /// # Errors
    /// This rank cannot copy to the peer: the offer is to be withdrawn.
    pub fn help(self, bytes: &[u8], processes: &dyn PeerProcesses, peer: Rank) -> Result<(), Fault> {
        if self.0[STATE].load(Ordering::Acquire) & PHASE != SHARED {
            return Ok(());
        }
        let room = usize::try_from(self.0[ROOM].load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        let (into, chunks) = (self.0[INTO].load(Ordering::Relaxed), Chunks::of(bytes.len().min(room)));
        while let Some(index) = self.next(chunks, ABOVE) {
            let range = chunks.range(index);
            let at = into.wrapping_add(range.start as u64);
            // SAFETY: the peer published `room` bytes there, of which this chunk is this rank's
            // alone, and keeps them for it until DONE counts the chunk.
            #[allow(unsafe_code)]
            unsafe { processes.write(peer, &bytes[range], at) }?;
            self.0[DONE].fetch_add(1, Ordering::Release);
        }
        Ok(())
    }

    /// The owner needs its slice. `true`: it says [where it went](Self::moved); `false`: the peer
    /// has it all.
    #[must_use]
    pub fn withdraw(self) -> bool {
        let mut state = self.0[STATE].load(Ordering::Acquire);
        while matches!(state & PHASE, OFFERED | SHARED) {
            match self.change(state, MOVING) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        false
    }

    /// Where a withdrawn slice went; `None`: nowhere, there was no memory.
    pub fn moved(self, to: Option<&SegmentKey>) {
        let mut bytes = [0; 32];
        if let Some(to) = to {
            bytes[..SegmentKey::BYTES].copy_from_slice(&to.to_bytes());
        }
        for (word, bytes) in self.0[KEY..TIME].iter().zip(bytes.as_chunks().0) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        self.0[STATE].store(if to.is_some() { MOVED } else { GONE }, Ordering::Release);
    }

    /// Whether the slice can be had now: it is not [moving](Taken::Moving).
    #[must_use]
    pub fn is_still(self) -> bool {
        self.0[STATE].load(Ordering::Acquire) & PHASE != MOVING
    }

    /// Copies the slice, or its beginning; a long one together with its owner. It then waits for
    /// the chunk that the owner is copying, and for as long as the owner's process is stopped in
    /// that.
    ///
    /// # Errors
    /// The owner died, left or had no memory; or `Refused`: it cannot be read, for example because
    /// it was freed.
    pub fn take(self, processes: &dyn PeerProcesses, owner: Rank, into: &mut [u8]) -> Result<Taken, Fault> {
        let address = self.0[ADDRESS].load(Ordering::Relaxed);
        let chunks = Chunks::of(into.len());
        let (state, read) = match chunks.are_several() {
            _ if self.0[STATE].load(Ordering::Acquire) == MOVED => (MOVED, Ok(())),
            true => self.take_shared(processes, owner, (address, into), chunks),
            false => (OFFERED, processes.read(owner, address, into)),
        };
        // What was read is certain once the slice cannot be withdrawn any more.
        let end = if matches!(state & PHASE, OFFERED | SHARED) { self.change(state, TAKEN) } else { Err(state) };
        match end {
            Ok(_) => read.map(|()| Taken::Whole),
            Err(MOVING) => Ok(Taken::Moving),
            Err(MOVED) => self.key(owner).map(Taken::Moved),
            Err(GONE) => Err(Fault::of(FaultKind::NoMemory, owner)),
            Err(_) => Err(Fault::of(FaultKind::Protocol, owner)),
        }
    }

    /// Copies all chunks that the owner does not. Returns the state that says so, once the owner
    /// writes no more.
    fn take_shared(
        self,
        processes: &dyn PeerProcesses,
        owner: Rank,
        (address, into): (u64, &mut [u8]),
        chunks: Chunks,
    ) -> (u64, Result<(), Fault>) {
        // The owner's writes come by this address, and so by this reference.
        self.0[INTO].store(into.as_mut_ptr().expose_provenance() as u64, Ordering::Relaxed);
        self.0[ROOM].store(into.len() as u64, Ordering::Relaxed);
        self.0[DONE].store(0, Ordering::Relaxed);
        let mut read = Ok(());
        if self.change(OFFERED, SHARED).is_ok() {
            while let Some(index) = self.next(chunks, BELOW) {
                let range = chunks.range(index);
                let at = address.wrapping_add(range.start as u64);
                // After a failure it takes the others only to keep the owner from them.
                read = read.and_then(|()| processes.read(owner, at, &mut into[range]));
            }
        }
        for turn in 1_u64.. {
            let state = self.0[STATE].load(Ordering::Acquire);
            let is_done = self.0[DONE].load(Ordering::Acquire) == state >> ABOVE & COUNT;
            if state & PHASE != SHARED || is_done {
                return (state, read);
            }
            if turn.is_multiple_of(1 << 12) && processes.has_ended(owner) {
                return (state, Err(Fault::of(FaultKind::PeerDied, owner)));
            }
            pause(turn);
        }
        unreachable!("the turns do not end")
    }

    fn key(self, owner: Rank) -> Result<SegmentKey, Fault> {
        let mut bytes = [0; 32];
        for (word, bytes) in self.0[KEY..TIME].iter().zip(bytes.as_chunks_mut().0) {
            *bytes = word.load(Ordering::Relaxed).to_le_bytes();
        }
        let key = SegmentKey::from_bytes(&bytes[..SegmentKey::BYTES]).filter(|key| key.rank == owner);
        key.ok_or(Fault::of(FaultKind::Protocol, owner))
    }
}

/// Waits a little for the other side, which copies.
fn pause(turn: u64) {
    if cfg!(onesided_loom) || turn > 256 {
        thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}
