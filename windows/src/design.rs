//! The locks that a window can have.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use backoff::ExponentialBackoffBuilder;
use backoff::backoff::Backoff as _;
use fabric::Capabilities;
use lock_algos::{Backoff, Chosen, FetchAddQueue, LockAlgorithm, Mcs, TestAndSet, Ticket};

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
}

impl LockDesign {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::TestAndSet, Self::Mcs, Self::Ticket, Self::FetchAddQueue];

    /// The names that [`FromStr`] knows.
    pub const NAMES: &'static str = "test-and-set, mcs, ticket, fetch-add-queue";

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TestAndSet => TestAndSet::NAME,
            Self::Mcs => Mcs::NAME,
            Self::Ticket => <Ticket>::NAME,
            Self::FetchAddQueue => <FetchAddQueue>::NAME,
        }
    }

    /// Whether a reader may wait behind a writer who waits.
    pub(crate) const fn queues(self) -> bool {
        match self {
            Self::TestAndSet => false,
            Self::Mcs | Self::Ticket | Self::FetchAddQueue => true,
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
