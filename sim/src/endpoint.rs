//! The endpoint of a simulated rank.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::Wake;

use onesided_fabric::{UserMemory, debug, lock};
use onesided_remote_memory::{At, Fault, FaultKind, Rank, RegionId, RemoteMemory};

use crate::datagrams::Machines;
use crate::futures::Pause;
use crate::state::{State, Step};

/// What all ranks of a simulation share. One thread runs it, so the lock is never contended; it
/// exists because threads may share an endpoint.
#[derive(Debug)]
pub(crate) struct Shared {
    /// A copy of the state's time, which futures read most often.
    now: AtomicU64,
    /// How many ranks share a host.
    per_host: u32,
    pub(crate) writes_are_atomic: bool,
    state: Mutex<State>,
    /// User memory by rank and region, returned when it is reclaimed.
    user_memory: Mutex<BTreeMap<(Rank, u32), UserMemory>>,
    /// What makes datagrams reliable.
    machines: Mutex<Machines>,
}

impl Shared {
    pub(crate) const fn new(state: State, per_host: u32, writes_are_atomic: bool) -> Self {
        Self {
            now: AtomicU64::new(state.now),
            per_host,
            writes_are_atomic,
            state: Mutex::new(state),
            user_memory: Mutex::new(BTreeMap::new()),
            machines: Mutex::new(Machines::new()),
        }
    }

    pub(crate) fn user_memory(&self) -> MutexGuard<'_, BTreeMap<(Rank, u32), UserMemory>> {
        lock(&self.user_memory)
    }

    pub(crate) fn machines(&self) -> MutexGuard<'_, Machines> {
        lock(&self.machines)
    }

    pub(crate) const fn host_of(&self, rank: Rank) -> u32 {
        rank.0 / self.per_host
    }

    /// Virtual time.
    pub(crate) fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Advances time until an event concerns a task.
    pub(crate) fn step(&self, until: u64) -> Step {
        let mut state = self.lock();
        let step = state.step(until);
        self.now.store(state.clock(), Ordering::Relaxed);
        step
    }

    /// Starts the threads. Whether every program is polled now; otherwise events poll them.
    pub(crate) fn start(&self, late: &[(u32, u64)]) -> bool {
        self.lock().start(late)
    }

    /// A thread has posted: that took it time.
    pub(crate) fn advance_clock(&self, state: &State) {
        self.now.store(state.clock(), Ordering::Relaxed);
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A rank's panic unwinds the whole simulation, whose state is not used afterwards.
        lock(&self.state)
    }
}

/// Wakes a thread of a rank from another one, where hosts have [cores](crate::Host::cores).
pub(crate) struct Rouser {
    pub(crate) shared: Weak<Shared>,
    pub(crate) thread: u32,
}

impl Wake for Rouser {
    fn wake(self: Arc<Self>) {
        if let Some(shared) = self.shared.upgrade() {
            shared.lock().rouse(self.thread);
        }
    }
}

/// The endpoint of one rank on the simulated fabric.
///
/// Time passes only while every rank waits; computation takes none. A task is polled when one of
/// its thread's events occurs, or another thread of its rank wakes it.
pub struct SimFabric {
    pub(crate) shared: Arc<Shared>,
    pub(crate) rank: Rank,
    pub(crate) size: u32,
}

impl Clone for SimFabric {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.shared), self.rank, self.size)
    }
}

impl Drop for SimFabric {
    fn drop(&mut self) {
        self.state().close(self.rank);
    }
}

debug!([] SimFabric, |this| "SimFabric({} of {})", this.rank, this.size);

/// A checked word of a simulated rank. The futures of a lock have many copies of it: small.
#[derive(Clone, Copy, Debug)]
pub struct Word {
    /// With [`SAME_HOST`].
    rank: u32,
    region: RegionId,
    /// In words.
    place: u32,
}

/// Marks a word that bypasses the card.
const SAME_HOST: u32 = 1 << 31;
const _: () = assert!(Rank::LIMIT < SAME_HOST);

impl SimFabric {
    pub(crate) fn new(shared: Arc<Shared>, rank: Rank, size: u32) -> Self {
        shared.lock().open(rank);
        Self { shared, rank, size }
    }

    /// Sleeps for `nanos` nanoseconds. Unlike a [pause](RemoteMemory::pause) it leaves its core to
    /// other threads, where hosts have [cores](crate::Host::cores).
    ///
    /// # Cancel safety
    /// Dropping the future stops the wait and has no other effect.
    pub const fn sleep(&self, nanos: u64) -> Pause<'_> {
        Pause::asleep(self, nanos)
    }

    /// How many operations and messages this rank has posted to another one so far, or to itself;
    /// wraps.
    #[must_use]
    pub fn posted(&self, target: Rank) -> u32 {
        self.state().ranks[self.rank.index()].posted(target.0)
    }

    /// Kills this rank now, as [`kill`](crate::Simulation::kill) does at a time: its program stops
    /// at its next wait.
    pub fn die(&self) {
        let mut state = self.state();
        let now = state.now;
        state.kill_at(self.rank, now);
    }

    /// Ends the simulation, as [`events`](crate::Simulation::events) does after a number of them.
    pub fn end(&self) {
        self.state().most_events = 0;
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }

    pub(crate) fn own(&self, rank: Rank) -> Result<(), Fault> {
        if rank == self.rank() { Ok(()) } else { Err(Fault::of(FaultKind::NotOwn, rank)) }
    }

    pub(crate) fn load_word(&self, word: Word) -> Result<u64, Fault> {
        let at = word.at();
        self.own(at.rank)?;
        Ok(self.state().ranks[at.rank.index()].memory.load(at.region.0, at.offset))
    }
}

impl Word {
    /// # Errors
    /// `OutOfRange` if it is 32 GiB or more from the region's start.
    pub(crate) fn of(at: At) -> Result<Self, Fault> {
        let place = u32::try_from(at.offset / 8).map_err(|_| Fault::of(FaultKind::OutOfRange, at.rank))?;
        Ok(Self { rank: at.rank.0, region: at.region, place })
    }

    /// The first word of a rank's first region.
    pub(crate) const fn first(rank: Rank) -> Self {
        Self { rank: rank.0, region: RegionId(0), place: 0 }
    }

    /// The same word, accessed without the card.
    pub(crate) const fn on_same_host(self) -> Self {
        Self { rank: self.rank | SAME_HOST, ..self }
    }

    pub(crate) const fn is_on_same_host(self) -> bool {
        self.rank & SAME_HOST != 0
    }

    /// The location of the word.
    #[must_use]
    pub const fn at(self) -> At {
        At { rank: Rank(self.rank & !SAME_HOST), region: self.region, offset: self.place as u64 * 8 }
    }
}
