//! The lock designs of windows.

use std::time::Duration;

use backoff::ExponentialBackoffBuilder;
use backoff::backoff::Backoff as _;
use onesided_fabric::{Capabilities, ServerThread, entries};
use onesided_lock_algos::{
    AnyLock, Backoff, DedicatedThread, DistributedCounters, EventThread, FetchAddQueue, LockAlgorithm, Mcs, TestAndSet,
    Ticket, TwoLevel,
};

entries! {
    /// The lock that a window uses: set by [`Builder::lock`](crate::Builder::lock), or by name with
    /// `ONESIDED_LOCK`.
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
        /// Compare-and-swap with exponential backoff (jiang-2004, section 5.1): the fastest at low
        /// contention. Not fair.
        #[default]
        TestAndSet => TestAndSet::NAME,
        /// A queue (Mellor-Crummey and Scott 1991; jiang-2004, section 5.2): first in, first out, and
        /// waiters poll only local memory. For contended locks.
        ///
        /// A reader waits behind an earlier writer. As with any fair reader-writer lock, an origin that
        /// holds one target's lock and requests another's, shared or not, must lock in the order of the
        /// ranks or may deadlock; [`lock_all`](crate::Window::lock_all) does so, except [on
        /// demand](LockAllDesign::OnDemand). A cancelled waiter keeps its queue position until its
        /// turn: behind a leaked guard, [`close`](crate::Window::close) fails for it after 5 s.
        Mcs => Mcs::NAME,
        /// Tickets by fetch-add (after DSLR, SIGMOD 2018): first in, first out; waiters read one word,
        /// paced by the number of owners before them. An acquire is one operation at any contention.
        /// For contended locks that are held for a short time.
        ///
        /// The order of locks of [`Mcs`](Self::Mcs) applies here too. A cancelled waiter takes its
        /// ticket back if no other came since; otherwise it keeps its position until its turn, behind
        /// readers too. If the ranks together have more than 16,384 slots (in worlds of more than 16
        /// ranks), those with the higher ones take their tickets by compare-and-swap when less than
        /// half of the lock's 32,767 tickets are in use.
        Ticket => <Ticket>::NAME,
        /// The same tickets with a queue beside them (after DecLock, arXiv 2505.17641): the previous
        /// owner notifies the next by one write, and waiters do not poll the target. First in, first
        /// out; an acquire is one operation at any contention. For contended locks that are held for a
        /// long time. It takes 34 words at each target.
        ///
        /// What [`Ticket`](Self::Ticket) says applies here too. Beyond 16 waiting writers, or 16
        /// waiting readers, waiters poll in ticket order as with that design.
        FetchAddQueue => <FetchAddQueue>::NAME,
        /// A reader counter at every rank (after RMA-RW, HPDC 2016): a read lock takes two operations
        /// on the reader's own memory, wherever the lock is, and readers of different ranks do not
        /// contend. An exclusive lock takes as many operations as there are ranks. For read-mostly
        /// locks. It takes 3 words at each target and one at each rank for each target.
        ///
        /// A request that finds the lock taken draws a ticket: what [`Ticket`](Self::Ticket) says
        /// applies then.
        DistributedCounters => <DistributedCounters>::NAME,
        /// A cohort lock: the ranks of a host hand the lock over among themselves, at most eight times
        /// in a row, without an operation at the target (after HOCL, SIGMOD 2022, and ALock, SPAA
        /// 2024): first in, first out, by the CPU, on any fabric. Between hosts as
        /// [`TestAndSet`](Self::TestAndSet). For locks that several ranks of one host contend for, with
        /// a network card between hosts. It takes a word at each target and three at a rank of each
        /// host for each target.
        ///
        /// It is [`TestAndSet`](Self::TestAndSet) for readers, and where the ranks of a host do not
        /// share memory (`verbs`).
        TwoLevel => TwoLevel::NAME,
        /// A thread at each target serves its lock and polls for requests (jiang-2004, section 4.1): a
        /// request is two writes, a reply one. First in, first out in order of arrival at the server; a
        /// cancelled waiter leaves the queue immediately. It occupies a core of each rank's host.
        ///
        /// The order of locks of [`Mcs`](Self::Mcs) applies here too. A rank holds or waits for at most
        /// 8 to 64 locks of one target at a time (2048 divided by the size of the world); further
        /// requests wait for one of these.
        ///
        /// One thread serves all windows of this design.
        DedicatedThread => DedicatedThread::NAME,
        /// The same with a thread for each window.
        DedicatedThreadPerWindow => "dedicated-thread-per-window",
        /// As [`DedicatedThread`](Self::DedicatedThread), but the thread sleeps between requests
        /// (jiang-2004, section 4.2): idle it costs nothing, and a request that finds it asleep wakes
        /// it. For rarely used locks.
        EventThread => EventThread::NAME,
        /// The same with a thread for each window.
        EventThreadPerWindow => "event-thread-per-window",
        /// A lock of the program's own, of a window made by
        /// [`Builder::allocate_with_lock`](crate::Builder::allocate_with_lock); it has no name in
        /// `ONESIDED_LOCK`.
        Own => "own",
    }
    const WITH_OWN;
    /// The design's name.
    #[must_use]
    pub fn name;
}

impl LockDesign {
    /// All designs of the library.
    pub const ALL: &'static [Self] = Self::WITH_OWN.split_last().unwrap().1;

    /// The names that [`FromStr`](std::str::FromStr) knows.
    pub const NAMES: &'static str = "test-and-set, mcs, ticket, fetch-add-queue, distributed-counters, two-level, dedicated-thread, \
                                     dedicated-thread-per-window, event-thread, event-thread-per-window";

    /// Whether a thread at each target serves the lock: only the locks of window memory can be
    /// served.
    #[must_use]
    pub const fn is_served(self) -> bool {
        self.server_thread().is_some()
    }

    /// Whether a [`LockTable`](crate::LockTable) may have such locks: only if their words are all
    /// at the target.
    #[must_use]
    pub const fn fits_tables(self) -> bool {
        !self.is_served() && !matches!(self, Self::DistributedCounters | Self::TwoLevel | Self::Own)
    }

    /// The server thread of the lock, if it has one, and whether it serves one window only.
    pub const fn server_thread(self) -> Option<(ServerThread, bool)> {
        match self {
            Self::DedicatedThread => Some((ServerThread::Polls, false)),
            Self::DedicatedThreadPerWindow => Some((ServerThread::Polls, true)),
            Self::EventThread => Some((ServerThread::Sleeps, false)),
            Self::EventThreadPerWindow => Some((ServerThread::Sleeps, true)),
            Self::TestAndSet
            | Self::Mcs
            | Self::Ticket
            | Self::FetchAddQueue
            | Self::DistributedCounters
            | Self::TwoLevel
            | Self::Own => None,
        }
    }

    /// The lock algorithm as windows on such a fabric use it, for use without a window. `None` for
    /// [`Own`](Self::Own).
    #[must_use]
    pub fn algorithm(self, capabilities: &Capabilities) -> Option<AnyLock> {
        let backoff = backoff(capabilities);
        Some(match self {
            Self::Own => return None,
            Self::TestAndSet => AnyLock::TestAndSet(TestAndSet::new(backoff)),
            Self::Mcs => AnyLock::Mcs(Mcs::new(backoff)),
            Self::Ticket => AnyLock::Ticket(Ticket::new(in_turn(capabilities))),
            Self::FetchAddQueue => AnyLock::FetchAddQueue(FetchAddQueue::new(in_turn(capabilities))),
            Self::DistributedCounters => AnyLock::DistributedCounters(DistributedCounters::new(backoff)),
            Self::TwoLevel => AnyLock::TwoLevel(TwoLevel::new(in_turn_here(), backoff)),
            Self::DedicatedThread | Self::DedicatedThreadPerWindow => {
                AnyLock::DedicatedThread(DedicatedThread::new(backoff))
            }
            Self::EventThread | Self::EventThreadPerWindow => AnyLock::EventThread(EventThread::new(backoff)),
        })
    }
}

entries! {
    /// How a window's [`lock_all`](crate::Window::lock_all) locks: set by
    /// [`Builder::lock_all`](crate::Builder::lock_all), or by name with `ONESIDED_LOCK_ALL`. Default:
    /// on demand where readers of the window's lock never wait behind waiting writers
    /// ([`TestAndSet`](LockDesign::TestAndSet), the default, and [`TwoLevel`](LockDesign::TwoLevel));
    /// each target's with the other locks, for the reason given at [`OnDemand`](Self::OnDemand).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum LockAllDesign {
        /// Locks each target, shared, at the first [`LockAll::at`](crate::LockAll::at) for it;
        /// `unlock_all` unlocks those. As many operations as there are accessed targets; `lock_all`
        /// itself posts none and never waits.
        ///
        /// **Only accessed targets are locked.** Others may lock any other target exclusively
        /// meanwhile. A program in which `lock_all` has to exclude writers from targets that it does
        /// not access, or has to be held by every rank before something proceeds, needs one of the
        /// other designs.
        ///
        /// **Order.** Targets are locked in the order in which the program accesses them. An origin
        /// that holds one target's lock exclusively, or accessed the target under another `lock_all`,
        /// and waits for another target's may therefore deadlock:
        ///
        /// - with any lock, if an origin holds several exclusive locks at a time, or an exclusive one
        ///   beside a `lock_all`, even if it takes them in the order of the ranks;
        /// - with a lock whose readers wait behind waiting writers (a queue, tickets, counters,
        ///   threads), even if every writer holds one lock only: two origins under `lock_all` that
        ///   access two targets in different orders may each wait behind a writer that waits for the
        ///   other.
        ///
        /// To rule that out, choose [`EachTarget`](Self::EachTarget), which locks in the order of the
        /// ranks, or [`Global`](Self::Global), which waits once; or access targets in the order of the
        /// ranks.
        #[default]
        OnDemand => "on-demand",
        /// Locks each target, shared, in the order of the ranks: as many operations as there are ranks.
        EachTarget => "each-target",
        /// Locks all targets by one fetch-add at rank 0, whatever the number of ranks, and unlocks by
        /// another (after foMPI, SC 2013). In return, each exclusive lock of any target takes one more
        /// operation at rank 0 to acquire and one to release. Shared locks of a target cost the same as
        /// without. For windows that are mostly locked as a whole, or shared.
        ///
        /// Owners of `lock_all` and exclusive owners alternate as groups, so neither starves: while one
        /// group waits, no further member of the other enters. A request bypasses the waiting group if
        /// its thread holds a lock of the window, or if no member of its own group leaves for 100 ms,
        /// because what its group holds may be waited for. So `lock_all` may wait long if exclusive
        /// locks with overlapping holders are held for longer than that.
        ///
        /// A request for an exclusive lock is announced when the call returns; it requests the target's
        /// own lock once it is waited on or polled.
        ///
        /// Each lock takes a [slot](crate::Builder::lock_slots). With a lock whose waiters are notified by others (a queue, two
        /// levels, threads), the slot of a lock is lost if its target dies while the lock is waited for
        /// or released. If rank 0 dies there are no exclusive locks any more.
        ///
        /// A rank that dies under `lock_all` poisons nothing. One that dies or panics under an
        /// exclusive lock poisons that and, separately, the word that all targets share: every
        /// exclusive lock of the window and every `lock_all` fails until an exclusive request
        /// [recovers](crate::handles::LockRequest::recover). After a death that begins when a
        /// `lock_all` finds it.
        ///
        /// Not available with a [lease policy](crate::LeasePolicy); lock tables,
        /// [`Mutex`](crate::Mutex) and [`RwLock`](crate::RwLock) have no `lock_all`.
        Global => "global",
    }
    const EACH;
    /// The design's name.
    #[must_use]
    pub fn name;
}

impl LockAllDesign {
    /// All designs.
    pub const ALL: &'static [Self] = &Self::EACH;

    /// The names that [`FromStr`](std::str::FromStr) knows.
    pub const NAMES: &'static str = "on-demand, each-target, global";

    /// The default with such a lock: where readers may wait behind writers, locking on demand could
    /// deadlock programs whose writers hold one lock at a time.
    pub(crate) const fn usual(lock: LockDesign) -> Self {
        // The two let no reader wait behind a waiting writer.
        if matches!(lock, LockDesign::TestAndSet | LockDesign::TwoLevel) { Self::OnDemand } else { Self::EachTarget }
    }
}

/// The backoff of waiters on such a fabric.
pub(crate) fn backoff(capabilities: &Capabilities) -> Backoff {
    // Where an attempt is an instruction the default table fits; elsewhere an attempt costs a round
    // trip.
    match capabilities.completes_at_post {
        true => Backoff::default(),
        false => exponential(Duration::from_micros(4), Duration::from_millis(1)),
    }
}

/// The backoff of queued waiters, whose polls do not disturb the others: the turn may come at any
/// time.
fn in_turn(capabilities: &Capabilities) -> Backoff {
    match capabilities.completes_at_post {
        true => in_turn_here(),
        false => backoff(capabilities),
    }
}

/// The same in memory that the ranks share.
fn in_turn_here() -> Backoff {
    Backoff::new((2..15).map(|power| Duration::from_nanos(1 << power)))
}

/// The table of an exponential backoff. The `backoff` crate reads a clock at every step, so it is
/// used once, here; the algorithm randomizes by itself.
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
