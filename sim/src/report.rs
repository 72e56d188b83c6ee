//! The report of a simulation.

use std::fmt;
use std::time::Duration;

use onesided_fabric::{NotedLock, NotedMemory};
use onesided_remote_memory::Rank;

/// The result of a simulation.
#[derive(Clone, Debug)]
pub struct Report<T> {
    /// Why it ended.
    pub end: End,
    /// Virtual time at its end.
    pub virtual_time: Duration,
    /// Operations that arrived at their target, and timers.
    pub events: u64,
    /// Operations by kind.
    pub counts: Counts,
    /// A hash of every completion, timer, death and lost connection with its time and value: equal
    /// for equal seeds.
    pub trace: u64,
    /// What each rank's program returned; `None` if it did not finish.
    pub results: Vec<Option<T>>,
}

/// Why a simulation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// Every program finished, or its rank was killed.
    Finished,
    /// The time set by [`Simulation::until`](crate::Simulation::until) was reached.
    TimeOver,
    /// The number set by [`Simulation::events`](crate::Simulation::events) was reached.
    EventsOver,
    /// A deadlock: no event was left, and these ranks still waited.
    Deadlock(Vec<Stuck>),
    /// A deadlock of waiters that pause and try again: see
    /// [`Simulation::stalled_after`](crate::Simulation::stalled_after).
    Stalled(Vec<Stuck>),
}

/// A rank of a deadlock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The rank.
    pub rank: Rank,
    /// What it waits for; empty if that is outside of the simulation.
    pub waits_for: Vec<WaitsFor>,
    /// The locks of windows that it waits for.
    pub locks: Vec<LockWait>,
    /// What the memory of the words that it waits for holds, by rank and region, where windows have
    /// it.
    pub memory: Vec<((Rank, u32), NotedMemory)>,
    /// The rank that it waits for: the first holder of the lock. Otherwise as far as the last
    /// changes of memory tell: the one that last changed the word; where no window has the memory,
    /// or another word of its region at the word's owner; of a waiter in a queue, the one whose
    /// memory it changed last.
    pub behind: Option<Rank>,
}

/// A lock of a window that a rank waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockWait {
    /// The lock.
    pub lock: NotedLock,
    /// The ranks whose guards keep it waiting, by number, and the virtual times at which they got
    /// them.
    pub holders: Vec<(Rank, Duration)>,
}

/// What a rank waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitsFor {
    /// A word of its own memory to change.
    Word {
        /// The region.
        region: u32,
        /// Bytes from the region's start.
        offset: u64,
    },
    /// A packet.
    Packet,
    /// Room on the connection to a receiver.
    Room(Rank),
    /// Its posted operations to a target to complete.
    Flush(Rank),
    /// A word to change that it tries again and again: of its last operation.
    Retried {
        /// The word's owner.
        rank: Rank,
        /// The region.
        region: u32,
        /// Bytes from the region's start.
        offset: u64,
        /// The value that was found: of most locks, it names the owner.
        found: u64,
    },
}

/// Operations and messages by kind, as posted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads of a word.
    pub reads: u64,
    /// Writes of a word.
    pub writes: u64,
    /// Compare-and-swaps.
    pub compare_swaps: u64,
    /// Fetch-adds.
    pub fetch_adds: u64,
    /// Puts and RDMA writes.
    pub puts: u64,
    /// Gets and RDMA reads.
    pub gets: u64,
    /// Operations on same-host words, which take no card.
    pub same_host: u64,
    /// Messages.
    pub messages: u64,
    /// Bulk bytes of puts, gets, transfers and messages.
    pub bytes: u64,
    /// Pauses and deadlines that ended.
    pub timers: u64,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finished => f.write_str("finished"),
            Self::TimeOver => f.write_str("the time was over"),
            Self::EventsOver => f.write_str("all events were used"),
            Self::Deadlock(stuck) | Self::Stalled(stuck) => {
                const SHOWN: usize = 8;
                match stuck.len() {
                    1 => f.write_str("deadlock: 1 rank waits for ever")?,
                    count => write!(f, "deadlock: {count} ranks wait for ever")?,
                }
                for rank in stuck.iter().take(SHOWN) {
                    write!(f, "; {rank}")?;
                }
                if stuck.len() > SHOWN { f.write_str("; ...") } else { Ok(()) }
            }
        }
    }
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for ", self.rank)?;
        let memory = |what: &WaitsFor| {
            let at = what.region(self.rank)?;
            self.memory.iter().find(|(region, _)| *region == at).map(|(_, memory)| memory)
        };
        // Beside what is named, such words say nothing more: they are those of the named lock, or of
        // a server thread.
        let is_of_locks = |what: &&WaitsFor| memory(what).is_some_and(|memory| memory.has_locks);
        let (of_locks, others): (Vec<_>, Vec<_>) = self.waits_for.iter().partition(is_of_locks);
        let text = |what: &WaitsFor| what.text(memory(what));
        let locks = self.locks.iter().map(ToString::to_string);
        let mut all: Vec<_> = locks.chain(others.into_iter().map(text)).collect();
        if all.is_empty() {
            all.extend(of_locks.into_iter().map(text));
        }
        match &*all {
            [] => f.write_str("something outside of the simulation"),
            all => f.write_str(&all.join(" and ")),
        }?;
        let behind = self.behind.filter(|_| self.locks.is_empty());
        behind.map_or(Ok(()), |other| write!(f, ", behind {other}"))
    }
}

impl fmt::Display for LockWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 3;
        write!(f, "{}, ", self.lock)?;
        if self.holders.is_empty() {
            return f.write_str("which no rank holds");
        }
        let holder = |(rank, since): &(Rank, Duration)| format!("{rank} since {since:?}");
        let holders: Vec<_> = self.holders.iter().take(SHOWN).map(holder).collect();
        write!(f, "held by {}", holders.join(" and by "))?;
        match self.holders.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

impl WaitsFor {
    /// The rank and region of the word that `rank` waits for.
    pub(crate) fn region(&self, rank: Rank) -> Option<(Rank, u32)> {
        match *self {
            Self::Word { region, .. } => Some((rank, region)),
            Self::Retried { rank, region, .. } => Some((rank, region)),
            _ => None,
        }
    }

    /// Its text, with what the memory holds.
    fn text(&self, memory: Option<&NotedMemory>) -> String {
        match (self, memory) {
            (Self::Word { offset, .. }, Some(memory)) => format!("the word at {offset} of {memory}"),
            (Self::Retried { rank, offset, found, .. }, Some(memory)) => {
                format!("the word at {offset} of {memory} of {rank}, which is {found:#x}")
            }
            _ => self.to_string(),
        }
    }
}

impl fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word { region, offset } => write!(f, "the word at {offset} of region {region}"),
            Self::Packet => f.write_str("a packet"),
            Self::Room(rank) => write!(f, "room on the way to {rank}"),
            Self::Flush(rank) => write!(f, "a flush of {rank}"),
            Self::Retried { rank, region, offset, found } => {
                write!(f, "the word at {offset} of region {region} of {rank}, which is {found:#x}")
            }
        }
    }
}
