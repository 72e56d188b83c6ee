//! A slice that is offered: its receiver, and its owner, which helps and withdraws it.

use std::sync::Arc;

use crate::remote_memory::{Fault, Rank, RegionId};
use crate::shm::explored::{caught, holds, together};
use crate::util::sync::atomic::AtomicU64;
use crate::util::sync::atomic::Ordering::Relaxed;
use crate::{Offer, PeerProcesses, SegmentKey, Taken};

/// Three chunks.
const CHUNK: usize = 32 << 10;
const CHUNKS: usize = 3;
const WRONG: u64 = 99;

#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    /// The owner changes its slice without withdrawing it.
    NotWithdrawn,
    /// The owner writes a chunk after it has counted it.
    WrittenLate,
    /// The receiver copies without a word to the owner.
    Unchecked,
}

/// Both processes: of each chunk one value.
struct Both {
    words: [AtomicU64; 16],
    slice: [AtomicU64; CHUNKS],
    /// What the owner wrote to the receiver.
    written: [AtomicU64; CHUNKS],
    flaw: Flaw,
}

/// Where the slice lies, which nobody accesses.
static BYTES: &[u8] = &[0; CHUNKS * CHUNK];

fn chunk(start: u64, address: u64) -> usize {
    (address - start) as usize / CHUNK
}

/// The receiver's memory is known by the offer's word.
const INTO: usize = 8;

impl PeerProcesses for Both {
    fn read(&self, _: Rank, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        let first = chunk(BYTES.as_ptr() as u64, address);
        for (at, bytes) in into.chunks_mut(CHUNK).enumerate() {
            bytes[0] = self.slice[first + at].load(Relaxed) as u8;
        }
        Ok(())
    }

    #[allow(unsafe_code)] // its declaration is
    unsafe fn write(&self, _: Rank, from: &[u8], address: u64) -> Result<(), Fault> {
        let at = chunk(self.words[INTO].load(Relaxed), address);
        assert_eq!(from.len(), CHUNK);
        if self.flaw != Flaw::WrittenLate {
            self.written[at].store(self.slice[at].load(Relaxed), Relaxed);
        }
        Ok(())
    }

    fn has_ended(&self, _: Rank) -> bool {
        false
    }
}

impl Both {
    fn new(flaw: Flaw) -> Arc<Self> {
        let (words, written) = (std::array::from_fn(|_| AtomicU64::new(0)), std::array::from_fn(|_| AtomicU64::new(0)));
        Arc::new(Self { words, slice: std::array::from_fn(|at| AtomicU64::new(1 + at as u64)), written, flaw })
    }

    fn offer(&self) -> Offer<'_> {
        Offer::of(&self.words).unwrap()
    }

    fn key() -> SegmentKey {
        SegmentKey { rank: Rank(0), region: RegionId(7), len: 5, address: 3, rkey: 1 }
    }

    /// The owner helps, then needs its slice.
    fn own(&self, helps: bool) {
        if helps {
            self.offer().help(BYTES, self, Rank(1)).unwrap();
        }
        if self.flaw == Flaw::NotWithdrawn || self.offer().withdraw() {
            self.slice.iter().for_each(|chunk| chunk.store(WRONG, Relaxed));
            self.offer().moved(Some(&Self::key()));
        }
    }

    fn receive(&self, chunks: usize) {
        let mut into = vec![0; chunks * CHUNK];
        let taken = match self.flaw {
            Flaw::Unchecked => self.read(Rank(0), BYTES.as_ptr() as u64, &mut into).map(|()| Taken::Whole),
            _ => self.offer().take(self, Rank(0), &mut into),
        };
        match taken.unwrap() {
            Taken::Whole => {
                for (at, bytes) in into.chunks(CHUNK).enumerate() {
                    let found = if bytes[0] == 0 { self.written[at].load(Relaxed) } else { bytes[0].into() };
                    assert_eq!(found, 1 + at as u64, "wrong bytes");
                }
            }
            Taken::Moved(to) => assert_eq!(to, Self::key()),
            Taken::Moving => {}
        }
    }
}

fn both(flaw: Flaw, chunks: usize, helps: bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        let both = Both::new(flaw);
        both.offer().publish(BYTES);
        let other = Arc::clone(&both);
        together([Box::new(move || other.own(helps)), Box::new(move || both.receive(chunks))]);
    }
}

#[test]
fn a_receiver_has_all_bytes_or_is_told_where_they_are() {
    holds(None, 32, both(Flaw::None, 1, false));
    holds(Some(4), 28_308, both(Flaw::None, CHUNKS, true));
}

#[test]
fn flaws_are_caught() {
    for (flaw, chunks) in [(Flaw::NotWithdrawn, 1), (Flaw::WrittenLate, CHUNKS), (Flaw::Unchecked, CHUNKS)] {
        caught("wrong bytes", both(flaw, chunks, true));
    }
}
