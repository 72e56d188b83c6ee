//! Operations in flight.

use onesided_remote_memory::{Fault, Notify, Rank};

/// The effect of an operation at its target.
#[derive(Debug)]
pub(crate) enum Action {
    Read,
    Write {
        value: u64,
        notify: Notify,
    },
    CompareSwap {
        expected: u64,
        new: u64,
    },
    FetchAdd(u64),
    Put(Box<[u8]>),
    Get {
        len: u64,
        into: Option<Box<GetBuffer>>,
    },
    /// A packet.
    Send(Box<[u8]>, SentBy),
    /// Whether the target has cut this rank.
    HasCut(Rank),
    /// What a get returns. Boxed: every rank has an operation in flight, and few of them get.
    Got(Box<Got>),
}

/// How a packet goes over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SentBy {
    Plain,
    Solicited,
    /// Into a slot of the fast path: it wakes nobody, and takes no room.
    Slot,
}

/// The bytes that a get returns.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) bytes: Box<[u8]>,
    pub(crate) into: Option<Box<GetBuffer>>,
}

/// Where in the origin's memory an RDMA read puts its bytes. The region is held until it completes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GetBuffer {
    pub(crate) region: u32,
    pub(crate) offset: u64,
}

impl Action {
    /// Whether the target's card reads its memory for it.
    pub(crate) const fn is_read(&self) -> bool {
        matches!(self, Self::Read | Self::Get { .. } | Self::Got(_) | Self::HasCut(_))
    }

    pub(crate) const fn is_atomic(&self) -> bool {
        matches!(self, Self::CompareSwap { .. } | Self::FetchAdd(_))
    }

    /// Whether it takes room of its receiver until that has it.
    pub(crate) const fn takes_room(&self) -> bool {
        matches!(self, Self::Send(_, SentBy::Plain | SentBy::Solicited))
    }

    /// Bulk bytes that travel with it: to the target, or back to the origin.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Put(bytes) | Self::Send(bytes, _) => bytes.len() as u64,
            Self::Got(got) => got.bytes.len() as u64,
            _ => 0,
        }
    }
}

/// The stage of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Its slot is free.
    Free,
    /// In flight to the target's card, or waiting there.
    Outward,
    /// Its answer, with bulk data, is in flight to the origin's card, or waiting there.
    Homeward,
    /// It completes at its next event.
    Completing,
    /// Its origin died, and another process has its rank: it has no effect.
    Stale,
    /// It was not posted: its fault is its outcome from its next event on.
    Refused,
    /// Complete; the outcome was not taken yet.
    Complete,
}

/// An operation, in one cache line.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) origin: u32,
    /// The thread that posted it.
    pub(crate) thread: u32,
    pub(crate) target: u32,
    pub(crate) region: u32,
    pub(crate) stage: Stage,
    /// Whether a future will take the outcome.
    pub(crate) awaited: bool,
    /// Whether it bypasses the cards.
    pub(crate) same_host: bool,
    pub(crate) offset: u64,
    pub(crate) action: Action,
    /// Whether its outcome is a fault.
    fails: bool,
    /// The outcome, or the bits of a fault.
    found: u64,
}

const _: () = assert!(size_of::<Operation>() == 64);

impl Operation {
    pub(crate) fn new(origin: Rank, target: Rank, region: u32, offset: u64, action: Action) -> Self {
        Self {
            origin: origin.0,
            thread: origin.0,
            target: target.0,
            region,
            stage: Stage::Outward,
            awaited: true,
            same_host: false,
            offset,
            action,
            fails: false,
            found: 0,
        }
    }

    pub(crate) fn outcome(&self) -> Result<u64, Fault> {
        match Fault::from_bits(self.found).filter(|_| self.fails) {
            Some(fault) => Err(fault),
            None => Ok(self.found),
        }
    }

    pub(crate) fn set_outcome(&mut self, outcome: Result<u64, Fault>) {
        (self.fails, self.found) = (outcome.is_err(), outcome.unwrap_or_else(Fault::to_bits));
    }
}

/// How many slots are allocated at once.
const CHUNK: usize = 512;

/// All operations in flight. A free slot is reused first, while it is in the cache.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    /// In chunks, which are never moved: a long vector that grows has its slots twice meanwhile.
    chunks: Vec<Box<[Operation; CHUNK]>>,
    /// The first free slot, plus one; 0: none. The origin of a free slot is the next one, in the
    /// same form.
    free: u32,
}

impl Operations {
    pub(crate) fn insert(&mut self, operation: Operation) -> u32 {
        if self.free == 0 {
            self.grow();
        }
        let slot = self.free - 1;
        self.free = self[slot].origin;
        self[slot] = operation;
        slot
    }

    #[cold]
    fn grow(&mut self) {
        let first = (self.chunks.len() * CHUNK) as u32 + 1;
        let last = first + CHUNK as u32 - 1;
        let free = |slot| {
            let next = if slot == last { 0 } else { slot + 1 };
            Operation { stage: Stage::Free, ..Operation::new(Rank(next), Rank(0), 0, 0, Action::Read) }
        };
        let chunk: Box<[_]> = (first..=last).map(free).collect();
        self.chunks.push(chunk.try_into().expect("its length"));
        self.free = first;
    }

    /// Those that are not complete.
    pub(crate) fn in_flight(&mut self) -> impl Iterator<Item = &mut Operation> {
        self.chunks
            .iter_mut()
            .flat_map(|chunk| chunk.iter_mut())
            .filter(|operation| !matches!(operation.stage, Stage::Free | Stage::Complete))
    }

    pub(crate) fn remove(&mut self, slot: u32) -> (Action, Result<u64, Fault>) {
        let next = self.free;
        let operation = &mut self[slot];
        debug_assert_ne!(operation.stage, Stage::Free);
        operation.stage = Stage::Free;
        operation.origin = next;
        let action = std::mem::replace(&mut operation.action, Action::Read);
        let outcome = operation.outcome();
        self.free = slot + 1;
        (action, outcome)
    }
}

impl std::ops::Index<u32> for Operations {
    type Output = Operation;

    fn index(&self, slot: u32) -> &Operation {
        &self.chunks[slot as usize / CHUNK][slot as usize % CHUNK]
    }
}

impl std::ops::IndexMut<u32> for Operations {
    fn index_mut(&mut self, slot: u32) -> &mut Operation {
        &mut self.chunks[slot as usize / CHUNK][slot as usize % CHUNK]
    }
}
