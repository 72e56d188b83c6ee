//! Atomic operations by a region's agent, for memory in which no fabric has words: user memory,
//! which its owner may take back.
//!
//! The CPUs of the owner's process are the agent. A rank in that process (the owner itself, or
//! another thread-rank) changes the words directly; any other rank sends a request to the owner's
//! helper thread, which runs the same code on them (a thread at the target, as in jiang-2004,
//! section 4). So all operations are atomic with respect to each other, and they progress while the
//! owner computes.
//!
//! The same thread moves the bytes of many small pieces, in windows that were made with that option
//! (`moves`).
//!
//! Requests and replies lie in the hidden regions beside window memory, in a slot for each pair of
//! ranks. A slot is never full, needs no dispatch, and ends with its window, unlike a message to
//! the owner.

mod in_flight;
mod moves;
mod origin;
mod request;
mod server;
mod signal;

pub(crate) use self::in_flight::HelperRequests;
pub(crate) use self::moves::has_packed;
pub(crate) use self::origin::accumulate_by_helper;
pub(crate) use self::request::{HelperRequest, is_wordless};
pub(crate) use self::server::serve;

const REQUEST: u64 = 0;
/// Where the owner says that it cannot reply, followed by the fault.
const REFUSAL: u64 = 40;
const REPLY: u64 = 64;
/// How many signals a peer has started, and finished.
const BEGUN: u64 = 80;
const DONE: u64 = 88;
/// The word that a peer writes to wake this rank, and the offset of its last signal.
const DOORBELL: u64 = 96;
const SIGNALLED: u64 = 104;
const OPERANDS: u64 = RequestLayout::LINES;

/// The layout of requests and replies between this rank and its peers in its hidden region: a line
/// whose first word is 1 once this rank stops replying, then for each peer a slot, which begins
/// with the number of that peer's latest request, then its two payload areas:
///
/// | at | written by | what |
/// |---|---|---|
/// | 0 | the peer | number, operation, number of bytes in its runs, the remote pointer (of a dynamic window), number of bytes sent |
/// | 40 | this rank | number of the peer's request that it cannot reply to where the peer expects it, fault |
/// | 64 | the peer | number of the reply, fault: to this rank's request |
/// | 80 | the peer | how many [signals](crate::Access::signal) it has started, and finished; a word that it writes to wake this rank; the offset of the last one |
/// | 128 | the peer | runs and operands of its request |
/// | 128 + room | the peer | results of this rank's request |
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestLayout {
    start: u64,
    capacity: u64,
    size: u32,
}

impl RequestLayout {
    const LINES: u64 = 128;
    /// The approximate size of all payload areas of a region, and the bounds of one.
    const ROOMS: u64 = 1 << 20;

    /// Starts behind the other contents of the region.
    pub(crate) const fn new(size: u32, start: u64) -> Self {
        let share = Self::ROOMS / 2 / size as u64 / 64 * 64;
        let capacity = if share < 512 {
            512
        } else if share > 16_384 {
            16_384
        } else {
            share
        };
        Self { start, capacity, size }
    }

    /// The end of the layout.
    pub(crate) const fn end(self) -> u64 {
        self.start + 64 + self.size as u64 * (Self::LINES + 2 * self.capacity)
    }

    /// The maximum length of a request's runs and operands, and of its results.
    pub(crate) const fn capacity(self) -> usize {
        self.capacity as usize
    }

    /// The word that says that the owner replies no more.
    pub(crate) const fn closed(self) -> u64 {
        self.start
    }

    /// A place in a peer's slot: one of the above.
    const fn at(self, peer: u32, place: u64) -> u64 {
        self.start + 64 + peer as u64 * (Self::LINES + 2 * self.capacity) + place
    }

    const fn results(self, by: u32) -> u64 {
        self.at(by, OPERANDS + self.capacity)
    }
}
