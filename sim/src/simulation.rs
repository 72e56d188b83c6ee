//! Runs programs in virtual time.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use onesided_fabric::{Task, World};
use onesided_remote_memory::Rank;

use crate::agenda::NEVER;
use crate::endpoint::{Rouser, Shared, SimFabric};
use crate::network::{Network, Wire, nanos};
use crate::processors::Processors;
use crate::report::{End, Report};
use crate::state::{Partition, State, Step};

/// A simulation of a number of ranks on a network, in virtual time, in one thread.
///
/// The run depends on the program, the parameters and the seed alone.
///
/// ```
/// use onesided_sim::{End, Network, Simulation};
///
/// let report = Simulation::new(Network::default()).ranks(16).seed(7).run(|world| async move {
///     world.barrier().await?;
///     Ok::<u32, onesided_fabric::Error>(world.rank())
/// });
/// assert_eq!(report.end, End::Finished);
/// assert!(report.results.into_iter().flatten().all(|rank| rank.is_ok()));
/// ```
#[derive(Clone, Debug)]
pub struct Simulation {
    network: Network,
    ranks: u32,
    per_host: u32,
    seed: u64,
    until: u64,
    events: u64,
    planned: Vec<Planned>,
    disconnections: Vec<(Rank, Rank, u64)>,
    computing: Vec<(u32, u32)>,
    stalled_after: u64,
    late: Vec<(u32, u64)>,
    partitions: Vec<Partition>,
}

impl Simulation {
    /// Two ranks on a network, without an end time.
    #[must_use]
    pub const fn new(network: Network) -> Self {
        Self {
            network,
            ranks: 2,
            per_host: u32::MAX,
            seed: 0,
            until: NEVER,
            events: u64::MAX,
            planned: Vec::new(),
            disconnections: Vec::new(),
            computing: Vec::new(),
            stalled_after: STALLED_AFTER,
            late: Vec::new(),
            partitions: Vec::new(),
        }
    }

    /// Sets the number of ranks, clamped to 1 to [`Rank::LIMIT`].
    #[must_use]
    pub fn ranks(mut self, ranks: u32) -> Self {
        self.ranks = ranks.clamp(1, Rank::LIMIT);
        self
    }

    /// Sets how many ranks share a host, at least one: the ranks with the lowest numbers share the
    /// first host. By default all ranks share one. Each rank has a card of its own all the same,
    /// which carries every operation except those on [same-host
    /// words](onesided_fabric::Fabric::same_host_word).
    #[must_use]
    pub fn per_host(mut self, ranks: u32) -> Self {
        self.per_host = ranks.max(1);
        self
    }

    /// Sets the seed of the random numbers, which decide on what the [network](Network) leaves open: `loss`,
    /// `jitter`, `detection_jitter` and `duplication`. Where all of them are zero, as by default and in the
    /// profiles of testbeds, every seed gives the same run.
    #[must_use]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Ends the simulation at this virtual time.
    #[must_use]
    pub fn until(mut self, time: Duration) -> Self {
        self.until = nanos(time);
        self
    }

    /// Ends the simulation after so many [events](Report::events).
    #[must_use]
    pub const fn events(mut self, most: u64) -> Self {
        self.events = most;
        self
    }

    /// Lets a rank allocate and register at most so many bytes at a time, as `ulimit -l` does: more is
    /// refused. A rank that does not exist is ignored.
    #[must_use]
    pub fn limit_memory(self, rank: u32, bytes: u64) -> Self {
        self.plan(rank, bytes, |state, rank, bytes| state.ranks[rank.index()].memory.limit(bytes))
    }

    /// Kills a rank at a virtual time: its program stops at its current wait, what it posted still
    /// takes effect, its memory answers no more. A rank that does not exist is ignored.
    #[must_use]
    pub fn kill(self, rank: u32, time: Duration) -> Self {
        self.plan(rank, nanos(time), State::kill_at)
    }

    /// Runs a rank's program anew, as another process would that takes the rank: at this virtual
    /// time, or as soon as all others have learned of its death. If it lives at this time, it is
    /// killed. Its memory and its connections are new, the numbers of its regions too. What its dead
    /// process has posted, and what was posted to that, takes no effect any more. The others see the
    /// rank as [alive](onesided_remote_memory::Liveness::Alive) from then on, but windows, locks and
    /// messages that they have from before do not expect it back. A rank that does not exist, or has
    /// left, is ignored.
    #[must_use]
    pub fn restart(self, rank: u32, time: Duration) -> Self {
        self.plan(rank, nanos(time), State::restart_at)
    }

    /// Has the other ranks believe from a virtual time on that a rank is dead, though it runs on.
    /// They learn of it as of a death, and each cuts it then: its operations take effect at the
    /// ranks that have not learned of it yet, and end as
    /// [`Revoked`](onesided_remote_memory::FaultKind::Revoked) at the others. A rank that does not
    /// exist is ignored.
    #[must_use]
    pub fn suspect(self, rank: u32, time: Duration) -> Self {
        self.plan(rank, nanos(time), State::suspect_at)
    }

    /// Breaks the connection of two living ranks at a virtual time, as an operation of `rank` on
    /// the memory of `peer` does that ends as
    /// [`Unknown`](onesided_remote_memory::FaultKind::Unknown): `rank` cuts `peer` at that time,
    /// and `peer` cuts `rank` when an operation of its own fails, or when it learns of the lost
    /// connection as the other ranks do. Operations in flight, in either direction, end as
    /// `Unknown`; those that arrive before their target has cut their origin take effect. A
    /// connection of a rank with itself, or with one that does not exist, is ignored.
    #[must_use]
    pub fn disconnect(mut self, rank: u32, peer: u32, time: Duration) -> Self {
        self.disconnections.push((Rank(rank), Rank(peer), nanos(time)));
        self
    }

    /// Starts a rank's program at a virtual time instead of at once. Its memory is there before. A
    /// rank that does not exist is ignored.
    #[must_use]
    pub fn start_at(mut self, rank: u32, time: Duration) -> Self {
        self.late.push((rank, nanos(time)));
        self
    }

    /// Cuts the wires between some ranks and all others from one virtual time to another. A message
    /// that is sent meanwhile is resent until it gets through, and lost if the
    /// [retries](Network::retries) do not last: then its two ranks lose their connection.
    #[must_use]
    pub fn partition(mut self, ranks: Range<u32>, from: Duration, until: Duration) -> Self {
        self.partitions.push(Partition { ranks, time: nanos(from)..nanos(until) });
        self
    }

    /// Ends the simulation as [stalled](End::Stalled) if no operation changes any memory, and no
    /// message arrives, for this stretch of virtual time, 10 s by default, while all ranks only
    /// try again. The second half of it begins when everything that was to come has happened:
    /// pauses, deadlines, deaths. So only a lease must be shorter than this, because a waiter for
    /// its end tries again, too. [`Duration::MAX`] turns this off.
    #[must_use]
    pub fn stalled_after(mut self, time: Duration) -> Self {
        self.stalled_after = nanos(time);
        self
    }

    /// Starts threads at a rank that compute without end, where hosts have
    /// [cores](crate::Host::cores). A rank that does not exist is ignored.
    #[must_use]
    pub fn computing(mut self, rank: u32, threads: u32) -> Self {
        self.computing.push((rank, threads));
        self
    }

    fn plan(mut self, rank: u32, number: u64, what: fn(&mut State, Rank, u64)) -> Self {
        self.planned.push((Rank(rank), number, what));
        self
    }

    /// Runs a program on every rank.
    ///
    /// # Panics
    /// When a program does.
    pub fn run<T, R>(self, mut program: impl FnMut(World<SimFabric>) -> R) -> Report<T>
    where
        R: Future<Output = T>,
    {
        self.run_direct(|fabric| program(World::new(fabric)))
    }

    /// Runs a program on every rank that uses the fabric directly: no collectives, and a few
    /// hundred bytes less per rank.
    ///
    /// # Panics
    /// When a program does.
    pub fn run_direct<T, R>(self, mut program: impl FnMut(SimFabric) -> R) -> Report<T>
    where
        R: Future<Output = T>,
    {
        let results = RefCell::new((0..self.ranks).map(|_| None).collect::<Vec<_>>());
        let report = self.run_programs(Box::new(|fabric| {
            let (rank, results) = (fabric.rank, &results);
            let mut program = Box::pin(program(fabric));
            Box::pin(poll_fn(move |cx| {
                program.as_mut().poll(cx).map(|result| results.borrow_mut()[rank.index()] = Some(result))
            }))
        }));
        let Report { end, virtual_time, events, counts, trace, .. } = report;
        Report { end, virtual_time, events, counts, trace, results: results.into_inner() }
    }

    /// The same for programs that tell their results otherwise: compiled once, where [`run`](Self::run) is for
    /// each program.
    fn run_programs<'p>(self, mut program: Box<dyn FnMut(SimFabric) -> Program<'p> + 'p>) -> Report<()> {
        let wire = Wire::new(&self.network, self.seed);
        let computing = self.computing.iter().filter(|(rank, _)| *rank < self.ranks).copied().collect::<Vec<_>>();
        let ranks = (self.ranks, self.per_host.min(self.ranks));
        let processors = Processors::new(&self.network.host, (wire.polling, wire.wake), ranks, &computing);
        let has_threads = processors.is_some();
        let writes_are_atomic = !self.network.card.atomics_exclude_writes;
        let mut state = State::new(self.ranks, wire, processors, self.stalled_after);
        state.partitions = self.partitions;
        state.most_events = self.events;
        for (rank, number, what) in self.planned.into_iter().filter(|(rank, ..)| rank.0 < self.ranks) {
            what(&mut state, rank, number);
        }
        for (rank, peer, time) in self.disconnections {
            if rank != peer && rank.0.max(peer.0) < self.ranks {
                state.disconnect_at(rank, peer, time);
            }
        }
        let shared = Arc::new(Shared::new(state, self.per_host, writes_are_atomic));
        let ranks = (0..self.ranks).map(Rank);
        let programs =
            ranks.map(|rank| Some(program(SimFabric::new(Arc::clone(&shared), rank, self.ranks)))).collect::<Vec<_>>();
        Executor {
            unfinished: programs.len(),
            programs,
            program,
            spawned: HashMap::new(),
            serving: HashMap::new(),
            rousers: has_threads.then(HashMap::new),
            shared,
        }
        .run(self.until, &self.late)
    }
}

/// What befalls a rank, and the time or the bytes.
type Planned = (Rank, u64, fn(&mut State, Rank, u64));

/// In nanoseconds; see [`Simulation::stalled_after`].
const STALLED_AFTER: u64 = 10_000_000_000;

/// The program of a rank.
type Program<'p> = Pin<Box<dyn Future<Output = ()> + 'p>>;

struct Executor<'p> {
    shared: Arc<Shared>,
    programs: Vec<Option<Program<'p>>>,
    program: Box<dyn FnMut(SimFabric) -> Program<'p> + 'p>,
    spawned: HashMap<u32, Vec<Task>>,
    /// Tasks that serve peers; the simulation does not wait for their end.
    serving: HashMap<u32, Vec<Task>>,
    /// Wakes threads, by thread. `None`: each rank is one thread, which sees all of its events.
    rousers: Option<HashMap<u32, Waker>>,
    /// Programs and spawned tasks.
    unfinished: usize,
}

impl Executor<'_> {
    fn run(mut self, until: u64, late: &[(u32, u64)]) -> Report<()> {
        let polled_at_once = self.shared.start(late);
        let early = |rank: &u32| polled_at_once && late.iter().all(|(late, _)| late != rank);
        for rank in (0..self.programs.len() as u32).filter(early) {
            self.shared.lock().current = rank;
            self.poll(rank);
        }
        let end = loop {
            if self.unfinished == 0 {
                self.spawn();
                if self.unfinished == 0 {
                    break End::Finished;
                }
            }
            let step = self.shared.step(until);
            match step {
                Step::Poll(thread) => self.poll(thread),
                Step::Adopt => self.spawn(),
                Step::Kill(rank) => self.kill(rank),
                Step::Restart(rank) => self.restart(rank),
                Step::TimeOver => break End::TimeOver,
                Step::EventsOver => break End::EventsOver,
                Step::Idle => break End::Deadlock(self.shared.lock().stuck(&self.unfinished_ranks())),
                Step::Stalled => {
                    if let Some(stuck) = self.shared.lock().stalled(&self.unfinished_ranks()) {
                        break End::Stalled(stuck);
                    }
                }
            }
        };
        let mut state = self.shared.lock();
        state.over = true;
        let now = if end == End::TimeOver { until } else { state.now };
        Report {
            end,
            virtual_time: Duration::from_nanos(now),
            events: state.events(),
            counts: state.counts,
            trace: state.trace.0,
            results: Vec::new(),
        }
    }

    /// Polls the tasks of a thread; the first threads are the ranks' programs.
    fn poll(&mut self, rank: u32) {
        let waker = self.rousers.as_mut().map(|rousers| {
            let new = || Rouser { shared: Arc::downgrade(&self.shared), thread: rank };
            rousers.entry(rank).or_insert_with(|| Waker::from(Arc::new(new()))).clone()
        });
        let mut cx = Context::from_waker(waker.as_ref().unwrap_or(Waker::noop()));
        if let Some(program) = self.programs.get_mut(rank as usize)
            && let Some(running) = program
            && running.as_mut().poll(&mut cx).is_ready()
        {
            *program = None;
            self.unfinished -= 1;
            self.shared.lock().finish_program(rank);
        }
        if let Some(tasks) = self.spawned.get_mut(&rank) {
            let before = tasks.len();
            tasks.retain_mut(|task| task.as_mut().poll(&mut cx).is_pending());
            self.unfinished -= before - tasks.len();
            if tasks.is_empty() {
                self.spawned.remove(&rank);
            }
        }
        if let Some(tasks) = self.serving.get_mut(&rank) {
            tasks.retain_mut(|task| task.as_mut().poll(&mut cx).is_pending());
        }
    }

    fn spawn(&mut self) {
        let spawned = self.shared.lock().take_spawned();
        for (thread, task, serves) in spawned {
            let tasks = if serves { &mut self.serving } else { &mut self.spawned };
            tasks.entry(thread).or_default().push(task);
            self.unfinished += usize::from(!serves);
        }
    }

    fn kill(&mut self, rank: u32) {
        let state = self.shared.lock();
        let removed = self.serving.extract_if(|thread, _| state.rank_of(*thread) == rank).collect::<Vec<_>>();
        drop(state);
        drop(removed); // with the state unlocked: a task owns endpoints
        let tasks = self.spawned.remove(&rank).unwrap_or_default();
        self.unfinished -= tasks.len() + usize::from(self.programs[rank as usize].take().is_some());
    }

    fn restart(&mut self, rank: u32) {
        let fabric = SimFabric::new(Arc::clone(&self.shared), Rank(rank), self.programs.len() as u32);
        self.programs[rank as usize] = Some((self.program)(fabric));
        self.unfinished += 1;
    }

    fn unfinished_ranks(&self) -> Vec<Rank> {
        let programs = self.programs.iter().enumerate();
        let unfinished =
            programs.filter(|(rank, program)| program.is_some() || self.spawned.contains_key(&(*rank as u32)));
        unfinished.map(|(rank, _)| Rank(rank as u32)).collect()
    }
}
