//! The locks that a window can have.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use backoff::ExponentialBackoffBuilder;
use backoff::backoff::Backoff as _;
use fabric::{Assistant, Capabilities};
use lock_algos::{
    Backoff, Chosen, DedicatedThread, DistributedCounters, EventThread, FetchAddQueue, LockAlgorithm, Mcs, TestAndSet,
    Ticket,
};

use crate::Error;

/// Which lock a window uses: [`Builder::lock`](crate::Builder::lock) chooses, or `ONESIDED_LOCK` by name.
///
/// ```
/// # use windows::LockDesign;
/// assert_eq!("mcs".parse::<LockDesign>()?, LockDesign::Mcs);
/// assert_eq!(LockDesign::default().to_string(), "test-and-set");
/// # Ok::<(), windows::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockDesign {
    /// Compare-swap with exponential backoff (jiang-2004, section 5.1): the fastest while few ask at once. It is not fair.
    #[default]
    TestAndSet,
    /// A queue (Mellor-Crummey and Scott 1991; jiang-2004, section 5.2): owners follow one another in the order of coming,
    /// and who waits asks nobody. For locks that many want.
    ///
    /// A reader waits behind a writer who came before it. So whoever holds one target's lock and asks for another one's,
    /// shared or not, asks in the order of the ranks, or may wait for ever, as with any fair reader-writer lock;
    /// [`lock_all`](crate::Window::lock_all) does. And who gives up while it queues keeps its place until its turn: behind a
    /// guard that was leaked, [`close`](crate::Window::close) ends with an error for it, after 5 s.
    Mcs,
    /// Tickets by fetch-add (after DSLR, SIGMOD 2018): owners follow one another in the order of coming, and who waits reads
    /// one word, paced by how many are before it. An acquire is one operation however many come. For locks that many want and
    /// hold shortly.
    ///
    /// What is said of the order of locks for [`Mcs`](Self::Mcs) holds here too. Who gives up while it waits takes its ticket
    /// back if nobody came since; else it keeps its place until its turn, behind readers too. Owners
    /// without a slot, and in worlds of more than 113 ranks some of those with one, take their tickets by compare-swap when
    /// less than half of the lock's 32,767 tickets are out.
    Ticket,
    /// The same tickets with a queue beside them (after DecLock, arXiv 2505.17641): who waits is told by one write, and asks
    /// nobody. In the order of coming, by one operation however many come. For locks that many want and hold for long. It
    /// takes 33 words at each target.
    ///
    /// What is said of [`Ticket`](Self::Ticket) holds here too. More than 16 who wait to have a lock alone, or to read, wait in
    /// their order as with that one.
    FetchAddQueue,
    /// A counter of readers at every rank (after RMA-RW, HPDC 2016): to read takes two operations on one's own rank's memory,
    /// wherever the lock is, and no reader meets another rank's. To have the lock alone takes as many operations as there are
    /// ranks. For locks that are mostly read. It takes 2 words at each target and one at each rank for each target.
    ///
    /// Whoever finds the lock taken, reader or not, has a ticket: what is said of [`Ticket`](Self::Ticket) holds then.
    DistributedCounters,
    /// A thread at each target serves its lock, and polls for requests (jiang-2004, section 4.1): two writes ask, one answers.
    /// Owners follow one another in the order in which they are heard, and who gives up is out of the queue at once. A core of
    /// each rank's host is spent on it.
    ///
    /// What is said of the order of locks for [`Mcs`](Self::Mcs) holds here too. A rank holds or waits for at most 8 to 64
    /// locks of one target at a time (2048 by the size of the world); more wait for one of these.
    DedicatedThread(Threads),
    /// The same, but the thread sleeps until somebody asks (jiang-2004, section 4.2): idle it costs nothing, and each request
    /// that finds it asleep has to wake it up. For locks that are asked for seldom.
    EventThread(Threads),
}

/// How many threads serve the locks of a rank's windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Threads {
    /// One for all windows whose design is the same: `dedicated-thread`, `event-thread`.
    #[default]
    Shared,
    /// One for each window: `dedicated-thread-per-window`, `event-thread-per-window`.
    PerWindow,
}

impl LockDesign {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::TestAndSet,
        Self::Mcs,
        Self::Ticket,
        Self::FetchAddQueue,
        Self::DistributedCounters,
        Self::DedicatedThread(Threads::Shared),
        Self::DedicatedThread(Threads::PerWindow),
        Self::EventThread(Threads::Shared),
        Self::EventThread(Threads::PerWindow),
    ];

    /// The names that [`FromStr`] knows.
    pub const NAMES: &'static str = "test-and-set, mcs, ticket, fetch-add-queue, distributed-counters, dedicated-thread, \
                                     dedicated-thread-per-window, event-thread, event-thread-per-window";

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TestAndSet => TestAndSet::NAME,
            Self::Mcs => Mcs::NAME,
            Self::Ticket => <Ticket>::NAME,
            Self::FetchAddQueue => <FetchAddQueue>::NAME,
            Self::DistributedCounters => <DistributedCounters>::NAME,
            Self::DedicatedThread(Threads::Shared) => DedicatedThread::NAME,
            Self::DedicatedThread(Threads::PerWindow) => "dedicated-thread-per-window",
            Self::EventThread(Threads::Shared) => EventThread::NAME,
            Self::EventThread(Threads::PerWindow) => "event-thread-per-window",
        }
    }

    /// Whether a thread at each target serves the lock: only the lock of a rank's part can be so.
    #[must_use]
    pub const fn is_served(self) -> bool {
        matches!(self, Self::DedicatedThread(_) | Self::EventThread(_))
    }

    /// Who serves the lock, if somebody has to.
    pub(crate) const fn assistant(self) -> Option<(Threads, Assistant)> {
        match self {
            Self::DedicatedThread(threads) => Some((threads, Assistant::Polls)),
            Self::EventThread(threads) => Some((threads, Assistant::Sleeps)),
            Self::TestAndSet | Self::Mcs | Self::Ticket | Self::FetchAddQueue | Self::DistributedCounters => None,
        }
    }

    /// The design that `ONESIDED_LOCK` names.
    pub(crate) fn from_environment() -> Result<Self, Error> {
        // What is no text is no lock's name either.
        std::env::var_os("ONESIDED_LOCK").map_or_else(|| Ok(Self::default()), |name| name.to_string_lossy().parse())
    }

    /// The lock as windows on such a fabric have it: for contests that need no window.
    #[must_use]
    pub fn algorithm(self, capabilities: &Capabilities) -> Chosen {
        // Where an attempt is an instruction the default table fits; elsewhere an attempt costs a round trip.
        let backoff = if capabilities.immediate {
            Backoff::default()
        } else {
            exponential(Duration::from_micros(4), Duration::from_millis(1))
        };
        match self {
            Self::TestAndSet => Chosen::TestAndSet(TestAndSet::new(backoff)),
            Self::Mcs => Chosen::Mcs(Mcs::new(backoff)),
            Self::Ticket => Chosen::Ticket(Ticket::new(backoff)),
            Self::FetchAddQueue => Chosen::FetchAddQueue(FetchAddQueue::new(backoff)),
            Self::DistributedCounters => Chosen::DistributedCounters(DistributedCounters::new(backoff)),
            Self::DedicatedThread(_) => Chosen::DedicatedThread(DedicatedThread::new(backoff)),
            Self::EventThread(_) => Chosen::EventThread(EventThread::new(backoff)),
        }
    }
}

impl fmt::Display for LockDesign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for LockDesign {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let name = if name == "tas" { TestAndSet::NAME } else { name };
        let known = Self::ALL.iter().find(|design| design.name() == name);
        known.copied().ok_or_else(|| Error::Design { name: name.into(), known: Self::NAMES })
    }
}

/// The table of pauses of an exponential backoff. The `backoff` crate reads a clock at every step, so it is asked once,
/// here; randomness is the algorithm's own.
fn exponential(first: Duration, longest: Duration) -> Backoff {
    let mut intervals = ExponentialBackoffBuilder::new()
        .with_initial_interval(first)
        .with_multiplier(2.0)
        .with_max_interval(longest)
        .with_randomization_factor(0.0)
        .with_max_elapsed_time(None)
        .build();
    Backoff::new(std::iter::from_fn(|| intervals.next_backoff()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_design_has_a_name_that_is_known() {
        for design in LockDesign::ALL {
            assert_eq!(design.to_string().parse::<LockDesign>().unwrap(), *design);
        }
        assert_eq!(
            LockDesign::ALL.iter().map(|design| design.name()).collect::<Vec<_>>().join(", "),
            LockDesign::NAMES
        );
        assert_eq!("tas".parse::<LockDesign>().unwrap(), LockDesign::TestAndSet);
        let error = "peterson".parse::<LockDesign>().unwrap_err().to_string();
        assert_eq!(error, format!("no lock design is called \"peterson\"; there is: {}", LockDesign::NAMES));
    }
}
