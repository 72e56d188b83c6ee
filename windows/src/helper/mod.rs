//! Atomic operations by a region's one agent, where no fabric has words of it: memory that its owner has lent and may take
//! back.
//!
//! The CPUs of the owner's process are the agent. A rank that lives in it (the owner itself, or another thread-rank) changes
//! the words at once; any other asks the owner's helper thread, which runs the same code on them (jiang-2004, section 4, has
//! the idea: a thread at the target). So all of them are atomic against one another, and they go on while the owner computes.
//!
//! The same thread moves bytes of many small pieces, in windows that were made so (`moves`).
//!
//! Requests and answers lie in the hidden regions beside the parts, a place for each pair of ranks. A message to the owner
//! would have done as well, but a place never is full, needs nobody to sort what is whose, and ends with its window.

mod in_flight;
mod moves;
mod origin;
mod request;
mod server;
mod signal;

pub(crate) use self::in_flight::HelperRequests;
pub(crate) use self::moves::has_packed;
pub(crate) use self::origin::{HelperAccumulate, HelperCall, by_helper};
pub(crate) use self::request::{HelperRequest, is_wordless};
pub(crate) use self::server::serve;

/// What the requests and answers between this rank and its peers take of its hidden region: a line whose first word is 1
/// once this rank answers no more, then for each peer a line each that begins with a number which counts the requests of that peer, then two rooms:
///
/// | at | written by | what |
/// |---|---|---|
/// | 0 | the peer | number, what to do, how many elements, the place (of a window of attached memory), how many bytes |
/// | 40 | this rank | number of the peer's request that it can give no answer to where the peer looks for it, fault |
/// | 64 | the peer | number of the answer, fault: to what this rank has asked |
/// | 80 | the peer | how many [signals](crate::Access::signal) it has begun, and done; a word that it writes to wake this rank; where the last one goes |
/// | 128 | the peer | runs and operands of its request |
/// | 128 + room | the peer | results of what this rank has asked |
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestLayout {
    start: u64,
    capacity: u64,
    size: u32,
}

impl RequestLayout {
    const LINES: u64 = 128;
    /// What all rooms of a region take together, more or less, and the bounds of one.
    const ROOMS: u64 = 1 << 20;

    /// Behind what else lies there.
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

    /// Where all of it ends.
    pub(crate) const fn end(self) -> u64 {
        self.start + 64 + self.size as u64 * (Self::LINES + 2 * self.capacity)
    }

    /// How long a request's runs and operands, and its results, may be.
    pub(crate) const fn capacity(self) -> usize {
        self.capacity as usize
    }

    /// The word that tells that the owner answers no more.
    pub(crate) const fn closed(self) -> u64 {
        self.start
    }

    const fn of(self, peer: u32) -> u64 {
        self.start + 64 + peer as u64 * (Self::LINES + 2 * self.capacity)
    }

    const fn request(self, by: u32) -> u64 {
        self.of(by)
    }

    /// Where the owner says that it cannot answer, and behind it why.
    const fn refusal(self, by: u32) -> u64 {
        self.of(by) + 40
    }

    const fn answer(self, by: u32) -> u64 {
        self.of(by) + 64
    }

    /// How many signals a peer has begun.
    const fn begun(self, by: u32) -> u64 {
        self.of(by) + 80
    }

    /// How many of them are there.
    const fn done(self, by: u32) -> u64 {
        self.of(by) + 88
    }

    /// What it writes to wake this rank.
    const fn doorbell(self, by: u32) -> u64 {
        self.of(by) + 96
    }

    /// Where its last signal goes.
    const fn signalled(self, by: u32) -> u64 {
        self.of(by) + 104
    }

    const fn operands(self, by: u32) -> u64 {
        self.of(by) + Self::LINES
    }

    const fn results(self, by: u32) -> u64 {
        self.of(by) + Self::LINES + self.capacity
    }
}
