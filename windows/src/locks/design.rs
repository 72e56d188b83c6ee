//! The locks that a window can have.

use std::fmt;
use std::time::Duration;

use backoff::ExponentialBackoffBuilder;
use backoff::backoff::Backoff as _;
use onesided_fabric::{Capabilities, ServerThread};
use onesided_lock_algos::{
    AnyLock, Backoff, DedicatedThread, DistributedCounters, EventThread, FetchAddQueue, LockAlgorithm, Mcs, TestAndSet,
    Ticket, TwoLevel,
};

/// Which lock a window uses: [`Builder::lock`](crate::Builder::lock) chooses, or `ONESIDED_LOCK` by name.
///
/// ```
/// # use onesided_windows::LockDesign;
/// assert_eq!("mcs".parse::<LockDesign>()?, LockDesign::Mcs);
/// assert_eq!(LockDesign::default().to_string(), "test-and-set");
/// # Ok::<(), onesided_windows::Error>(())
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
    /// [`lock_all`](crate::Window::lock_all) does, but [on demand](LockAllDesign::OnDemand). And who gives up while it queues keeps its place until its turn: behind a
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
    /// The ranks of a host hand the lock over among themselves, at most eight times in a row, without an operation at the target
    /// (after HOCL, SIGMOD 2022, and ALock, SPAA 2024): in the order of their coming, by the CPU, whatever the fabric. Between
    /// hosts as [`TestAndSet`](Self::TestAndSet). For locks that several ranks of a host want at once, with a card between the
    /// hosts. It takes a word at each target and two at a rank of each host for each target.
    ///
    /// Where the ranks of a host do not reach one another by the CPU (`verbs`) it is [`TestAndSet`](Self::TestAndSet), and so it
    /// is for readers.
    TwoLevel,
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
        Self::TwoLevel,
        Self::DedicatedThread(Threads::Shared),
        Self::DedicatedThread(Threads::PerWindow),
        Self::EventThread(Threads::Shared),
        Self::EventThread(Threads::PerWindow),
    ];

    /// The names that [`FromStr`](std::str::FromStr) knows.
    pub const NAMES: &'static str = "test-and-set, mcs, ticket, fetch-add-queue, distributed-counters, two-level, dedicated-thread, \
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
            Self::TwoLevel => TwoLevel::NAME,
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

    /// Whether a [`LockTable`](crate::LockTable) may have such locks: not if they take more than words at the target.
    #[must_use]
    pub const fn fits_tables(self) -> bool {
        !self.is_served() && !matches!(self, Self::DistributedCounters | Self::TwoLevel)
    }

    /// Who serves the lock, if somebody has to.
    pub(crate) const fn server_thread(self) -> Option<(Threads, ServerThread)> {
        match self {
            Self::DedicatedThread(threads) => Some((threads, ServerThread::Polls)),
            Self::EventThread(threads) => Some((threads, ServerThread::Sleeps)),
            Self::TestAndSet
            | Self::Mcs
            | Self::Ticket
            | Self::FetchAddQueue
            | Self::DistributedCounters
            | Self::TwoLevel => None,
        }
    }

    /// Whether a reader may have to wait behind a writer who waits.
    const fn is_fair_to_writers(self) -> bool {
        !matches!(self, Self::TestAndSet | Self::TwoLevel)
    }

    /// The lock as windows on such a fabric have it: for contests that need no window.
    #[must_use]
    pub fn algorithm(self, capabilities: &Capabilities) -> AnyLock {
        let backoff = backoff(capabilities);
        match self {
            Self::TestAndSet => AnyLock::TestAndSet(TestAndSet::new(backoff)),
            Self::Mcs => AnyLock::Mcs(Mcs::new(backoff)),
            Self::Ticket => AnyLock::Ticket(Ticket::new(in_turn(capabilities))),
            Self::FetchAddQueue => AnyLock::FetchAddQueue(FetchAddQueue::new(in_turn(capabilities))),
            Self::DistributedCounters => AnyLock::DistributedCounters(DistributedCounters::new(backoff)),
            Self::TwoLevel => AnyLock::TwoLevel(TwoLevel::new(Backoff::default(), backoff)),
            Self::DedicatedThread(_) => AnyLock::DedicatedThread(DedicatedThread::new(backoff)),
            Self::EventThread(_) => AnyLock::EventThread(EventThread::new(backoff)),
        }
    }
}

/// How a window's [`lock_all`](crate::Window::lock_all) locks: [`Builder::lock_all`](crate::Builder::lock_all) chooses, or
/// `ONESIDED_LOCK_ALL` by name. Otherwise it is on demand where the window's lock lets readers join readers
/// ([`TestAndSet`](LockDesign::TestAndSet), which is the default, and [`TwoLevel`](LockDesign::TwoLevel)), and each target's with the
/// other locks, for the reason that [`OnDemand`](Self::OnDemand) gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockAllDesign {
    /// Each target's lock, shared, when [`LockAll::at`](crate::LockAll::at) first asks for the target; to unlock is to unlock those. As
    /// many operations as there are targets that are reached, and `lock_all` itself posts none and waits for nobody.
    ///
    /// **What was reached is what is locked.** Others may have any other part exclusively meanwhile. A program in which `lock_all` keeps
    /// writers out of parts that it does not touch, or is to be held by everybody before something goes on, takes one of the
    /// other designs.
    ///
    /// **Order.** Targets are locked in the order in which the program reaches them. Somebody who holds one target's lock exclusively, or
    /// reached it under another `lock_all`, and waits for another target's may so wait for who waits for him, and both for
    /// ever:
    ///
    /// - with any lock, if that one holds several exclusive locks at a time, or an exclusive one beside a `lock_all`, even if it takes them in
    ///   the order of the ranks;
    /// - with a lock that lets readers wait behind a writer who waits (a queue, tickets, counters, threads), also if every
    ///   writer has one lock alone: two who lock all and reach two targets in different orders may each wait behind a
    ///   writer who waits for the other one.
    ///
    /// Who cannot rule that out takes [`EachTarget`](Self::EachTarget), which locks in the order of the ranks, or
    /// [`Global`](Self::Global), which waits once; or reaches targets in the order of the ranks.
    #[default]
    OnDemand,
    /// Each target's lock, shared, in the order of the ranks: as many operations as there are ranks.
    EachTarget,
    /// All of them by one fetch-add at rank 0, however many ranks there are, and by another one back (after foMPI, SC 2013).
    /// In return each exclusive lock of any target takes one operation more at rank 0 to come and one to go. Shared locks of
    /// a target cost what they do without. For windows that are mostly locked as a whole, or shared.
    ///
    /// Those who lock all and those who lock one exclusively go in by turns, so neither starves: while one of a group waits
    /// none of the other one comes in. But who has a lock of the window, in the same thread, or finds that nobody of its own
    /// group leaves for 100 ms, does come in past those who wait: somebody may wait for what it holds. So `lock_all` may
    /// wait for long if exclusive locks are held for longer than that, one over the other.
    ///
    /// A request for an exclusive lock has announced itself when the call returns; it asks for the part's own lock once it is waited for,
    /// or looked at.
    ///
    /// Each lock takes a slot, and who finds none gets `Full`: a rank may have as many locks as there are ranks and 31 more,
    /// at most 1024, at a time, one of them only the thread that came first. With a lock whose owners are told by others (a
    /// queue, two levels, threads), one whose target dies while it is waited for, or released, takes its slot with it. If rank 0 dies there
    /// are no exclusive locks any more. Not with a policy for [late owners](crate::LeasePolicy); lock tables,
    /// [`Mutex`](crate::Mutex) and [`RwLock`](crate::RwLock) have no `lock_all`.
    Global,
}

impl LockAllDesign {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::OnDemand, Self::EachTarget, Self::Global];

    /// The names that [`FromStr`](std::str::FromStr) knows.
    pub const NAMES: &'static str = "on-demand, each-target, global";

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OnDemand => "on-demand",
            Self::EachTarget => "each-target",
            Self::Global => "global",
        }
    }

    /// The one that windows with such a lock have if nobody chooses: where readers may wait behind writers, what locks on demand
    /// could let programs hang whose writers have one lock at a time.
    pub(crate) const fn usual(lock: LockDesign) -> Self {
        if lock.is_fair_to_writers() { Self::EachTarget } else { Self::OnDemand }
    }

    /// A target's lock, and all of them. `None` where that cannot be had.
    pub(crate) fn of(self, lock: AnyLock, capabilities: &Capabilities) -> Option<AnyLock> {
        match self {
            Self::OnDemand | Self::EachTarget => Some(lock),
            Self::Global => lock.with_global(backoff(capabilities)),
        }
    }
}

impl fmt::Display for LockAllDesign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for LockDesign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The pauses of who waits on such a fabric.
fn backoff(capabilities: &Capabilities) -> Backoff {
    // Where an attempt is an instruction the default table fits; elsewhere an attempt costs a round trip.
    match capabilities.completes_at_post {
        true => Backoff::default(),
        false => exponential(Duration::from_micros(4), Duration::from_millis(1)),
    }
}

/// The same for who waits for his turn, and takes nothing from the others when he looks: who is next may be so at any time.
fn in_turn(capabilities: &Capabilities) -> Backoff {
    match capabilities.completes_at_post {
        true => Backoff::new((2..15).map(|power| Duration::from_nanos(1 << power))),
        false => backoff(capabilities),
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
