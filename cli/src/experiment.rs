//! The experiments of jiang-2004, section 6, with windows and locks as shipped, in virtual time: for
//! `reproduce` on the paper's testbed, for `bench scale` on a modelled network.

use std::cell::Cell;
use std::future::Future;
use std::time::Duration;

use onesided_fabric::Fabric as _;
use onesided_fabric::remote_memory::{Rank, RemoteMemory};
use onesided_fabric::{ServerThread, World};
use onesided_lock_kit::bench::Counted;
use onesided_lock_kit::lock_algos::{Backoff, LockAlgorithm, TestAndSet};
use onesided_sim::{Network, SimFabric, Simulation};
use onesided_two_sided::ServedLock;
use onesided_windows::{LockDesign, Window};

use crate::failure::Failure;

type Simulated = Counted<SimFabric>;
type SimulatedWindow = Window<u64, Simulated>;

/// The lock of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    Shipped(LockDesign),
    /// The shipped test-and-set without backoff.
    WithoutBackoff,
    /// The same thread over messages; whether each lock has one of its own.
    OverMessages(ServerThread, bool),
}

impl Lock {
    pub(crate) fn name(self) -> String {
        match self {
            Self::Shipped(design) => design.to_string(),
            Self::WithoutBackoff => format!("{} without backoff", TestAndSet::NAME),
            Self::OverMessages(ServerThread::Polls, _) => format!("{} over messages", LockDesign::DedicatedThread),
            Self::OverMessages(ServerThread::Sleeps, _) => format!("{} over messages", LockDesign::EventThread),
        }
    }

    /// Whether an unlock of the paper's waits until the release is complete (section 6.1: all but
    /// test-and-set's). A release that is a message is on its way.
    const fn waits_for_release(self) -> bool {
        !matches!(self, Self::WithoutBackoff | Self::OverMessages(..) | Self::Shipped(LockDesign::TestAndSet))
    }
}

/// When an unlock returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unlock {
    /// As the paper's: all but test-and-set wait until the release is complete.
    AsPaper,
    /// As shipped: once the release is posted.
    AsShipped,
}

/// A testbed with a lock: the experiments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Experiment<'p> {
    pub(crate) network: &'p Network,
    /// Whether all ranks share a host, whatever the experiment says.
    pub(crate) is_one_host: bool,
    pub(crate) lock: Lock,
    pub(crate) unlock: Unlock,
    pub(crate) seed: u64,
    /// Lock and unlock this often.
    pub(crate) times: u64,
}

/// Nanoseconds of a lock and of an unlock, on average.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overhead {
    pub(crate) acquire: f64,
    pub(crate) release: f64,
}

impl Overhead {
    pub(crate) const fn total(self) -> f64 {
        self.acquire + self.release
    }
}

/// A window whose lock is measured, or a lock without one.
enum AtTarget {
    Window(SimulatedWindow),
    Served(ServedLock<Simulated>),
}

impl AtTarget {
    async fn close(self, world: &World<Simulated>) -> Result<(), Failure> {
        match self {
            Self::Window(window) => Ok(window.close().await?),
            Self::Served(_) => Ok(world.barrier().await?), // the home goes last
        }
    }
}

/// What a rank of an experiment works with.
struct Member {
    world: World<Simulated>,
    sim: SimFabric,
}

impl Member {
    fn now(&self) -> u64 {
        self.sim.now()
    }

    /// How many operations this rank, if it is an origin, has posted on the memory of the target,
    /// which is the last rank; if it is the target, on that of the origins. And how many on words.
    fn posted(&self, target: u32) -> [u64; 2] {
        let peers = if self.sim.rank() == Rank(target) { 0..target } else { target..target + 1 };
        let messages = peers.map(|peer| u64::from(self.sim.posted(Rank(peer)))).sum();
        [messages, self.world.fabric().operations().total()]
    }

    async fn until(&self, time: u64) -> Result<(), Failure> {
        let own = self.sim.world_segment(self.sim.rank())?;
        while self.now() < time {
            let word = self.sim.word_in(&own, 0)?;
            self.sim.pause(word, time - self.now()).await;
        }
        Ok(())
    }
}

impl Experiment<'_> {
    /// Runs a program at all ranks of hosts with `per_host` ranks each; returns each rank's result.
    fn run<T, R: Future<Output = Result<T, Failure>>>(
        &self,
        (ranks, per_host): (u32, u32),
        (computes, threads): (u32, u32),
        program: impl Fn(Member) -> R,
    ) -> Result<Vec<T>, Failure> {
        let simulation = Simulation::new(self.network.clone())
            .ranks(ranks)
            .per_host(if self.is_one_host { ranks } else { per_host })
            .computing(computes, threads)
            .seed(self.seed)
            .until(Duration::from_secs(60));
        let report = simulation.run_direct(|sim| {
            let world = World::new(Counted::new(sim.clone()));
            program(Member { world, sim })
        });
        let ended = format!("{}, simulated: {}", self.lock.name(), report.end);
        let all = report.results.into_iter().map(|result| match result {
            Some(result) => result,
            None => Err(Failure::from(ended.clone())),
        });
        all.collect()
    }

    async fn window(&self, world: &World<Simulated>) -> Result<SimulatedWindow, Failure> {
        match self.lock {
            Lock::Shipped(design) => Ok(Window::<u64>::builder().lock(design).allocate(world, 8).await?),
            Lock::WithoutBackoff => {
                let lock = TestAndSet::new(Backoff::disabled());
                Ok(Window::<u64>::builder().allocate_with_lock(lock, world, 8).await?)
            }
            Lock::OverMessages(..) => Err("it has no window".into()),
        }
    }

    /// The lock of one target.
    async fn at(&self, world: &World<Simulated>, target: u32) -> Result<AtTarget, Failure> {
        let Lock::OverMessages(thread, is_apart) = self.lock else {
            return Ok(AtTarget::Window(self.window(world).await?));
        };
        let create = ServedLock::new(world, target, thread);
        Ok(AtTarget::Served(if is_apart { create.with_own_thread() } else { create }.await?))
    }

    /// Locks and unlocks once; returns the nanoseconds of both.
    async fn once(&self, member: &Member, lock: &AtTarget, target: u32) -> Result<(u64, u64), Failure> {
        let begin = member.now();
        let acquired;
        match lock {
            AtTarget::Window(window) => {
                let epoch = window.lock_exclusive(target).await?;
                acquired = member.now();
                epoch.unlock().await?;
                if self.unlock == Unlock::AsPaper && self.lock.waits_for_release() {
                    member.sim.flush(Rank(target)).await?;
                }
            }
            AtTarget::Served(lock) => {
                let guard = lock.lock().await?;
                acquired = member.now();
                drop(guard);
            }
        }
        Ok((acquired - begin, member.now() - acquired))
    }

    /// As often as the experiment says; returns the means.
    async fn repeat(&self, member: &Member, lock: &AtTarget, target: u32) -> Result<Overhead, Failure> {
        self.once(member, lock, target).await?; // resolves the target
        let mut sums = (0, 0);
        for _ in 0..self.times {
            let (acquire, release) = self.once(member, lock, target).await?;
            sums = (sums.0 + acquire, sums.1 + release);
        }
        let mean = |sum: u64| sum as f64 / self.times as f64;
        Ok(Overhead { acquire: mean(sums.0), release: mean(sums.1) })
    }

    /// Figures 1 and 6: each of `pairs` origins locks and unlocks at a target of its own; with
    /// several, the origins share one host and the targets another. Of the first origin.
    pub(crate) fn overhead(&self, pairs: u32) -> Result<Overhead, Failure> {
        let all = self.run((2 * pairs, pairs), (0, 0), async |member| {
            let lock = self.at(&member.world, pairs).await?;
            let rank = member.world.rank();
            let overhead = if rank < pairs { Some(self.repeat(&member, &lock, rank + pairs).await?) } else { None };
            lock.close(&member.world).await?;
            Ok(overhead)
        })?;
        all[0].ok_or_else(|| "the first rank is an origin".into())
    }

    /// Figure 5: nanoseconds of lock + unlock at a target with computing threads, whose main thread
    /// waits for them, asleep. Runs for a virtual time, because the threads take turns.
    pub(crate) fn computing(&self, threads: u32, long: u64) -> Result<f64, Failure> {
        /// Repetitions of `times`, where the testbed is fast and a time slice long.
        const MOST: u64 = 300;
        let finished = Cell::new(false);
        let finished = &finished;
        let all = self.run((2, 1), (1, threads), async |member| {
            let lock = self.at(&member.world, 1).await?;
            let mut mean = 0.0;
            if member.world.rank() == 0 {
                self.once(&member, &lock, 1).await?;
                let (begin, mut times) = (member.now(), 0_u64);
                while member.now() < begin + long && times < MOST * self.times {
                    self.once(&member, &lock, 1).await?;
                    times += 1;
                }
                mean = (member.now() - begin) as f64 / times as f64;
                finished.set(true);
            }
            while !finished.get() {
                member.sim.sleep(10_000_000).await;
            }
            lock.close(&member.world).await?;
            Ok(mean)
        })?;
        Ok(all[0])
    }

    /// Figure 2: nanoseconds from the unlock of one origin until another has the lock. The two
    /// alternate in acquiring first; the first one holds the lock until the other has waited.
    pub(crate) fn delay(&self, handovers: Handovers) -> Result<f64, Failure> {
        let Handovers { later, held_for, period, shift } = handovers;
        let all = self.run((3, 1), (0, 0), async |member| {
            let window = self.window(&member.world).await?;
            let begin = member.now().next_multiple_of(period) + period;
            let mut at = Vec::new();
            let rank = member.world.rank();
            for handover in 0..if rank < 2 { self.times } else { 0 } {
                let start = begin + handover * period + handover * shift % 50_000;
                let first = u64::from(rank) == handover % 2;
                member.until(start + if first { 0 } else { later }).await?;
                let epoch = window.lock_exclusive(2).await?;
                if first {
                    member.until(start + held_for).await?;
                }
                at.push(member.now());
                epoch.unlock().await?;
            }
            window.close().await?;
            Ok(at)
        })?;
        let delays = all[0].iter().zip(&all[1]).map(|(one, other)| one.abs_diff(*other) as f64);
        Ok(delays.sum::<f64>() / self.times as f64)
    }

    /// Figures 3 and 4: origins at one target, each with a window of its own or all with the same.
    pub(crate) fn contend(&self, origins: u32, apart: bool, turns: Turns) -> Result<Contention, Failure> {
        let wanted = self.times * u64::from(origins);
        let (done, running) = (&Cell::new(0), &Cell::new(origins));
        let all = self.run((origins + 1, 1), (0, 0), async |member| {
            let mut locks = Vec::new();
            for _ in 0..if apart { origins } else { 1 } {
                locks.push(self.at(&member.world, origins).await?);
            }
            let rank = member.world.rank();
            let lock = &locks[rank as usize % locks.len()];
            let is_average = turns == Turns::OnAverage;
            if is_average {
                if rank < origins {
                    self.once(&member, lock, origins).await?; // resolves the target
                }
                member.world.barrier().await?;
            }
            let (begin, before) = (member.now(), member.posted(origins));
            if rank < origins {
                let mut own = 0;
                while if is_average { done.get() < wanted } else { own < self.times } {
                    self.once(&member, lock, origins).await?;
                    done.set(done.get() + 1);
                    own += 1;
                }
                running.set(running.get() - 1);
            }
            let took = member.now() - begin;
            // Operations of a server thread count, too.
            while running.get() > 0 && (is_average || rank == origins) {
                match is_average {
                    true => member.sim.sleep(100_000).await,
                    false => member.until(member.now() + 1_000).await?,
                }
            }
            let [messages, operations] = member.posted(origins);
            for lock in locks {
                lock.close(&member.world).await?;
            }
            Ok((took, messages - before[0], operations - before[1]))
        })?;
        let each = |sum: u64| sum as f64 / done.get() as f64;
        Ok(Contention {
            nanos: each(all.iter().take(origins as usize).map(|(took, ..)| *took).sum()),
            messages: each(all.iter().map(|(_, messages, _)| *messages).sum()),
            operations: each(all.iter().map(|(.., operations)| *operations).sum()),
        })
    }
}

/// What contending origins did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contention {
    /// Of a lock and unlock, on average.
    pub(crate) nanos: f64,
    /// Operations of an origin on the target's memory, or of the target on an origin's, for a lock
    /// and unlock, on average.
    pub(crate) messages: f64,
    /// Operations of all ranks on words, for a lock and unlock, on average.
    pub(crate) operations: f64,
}

/// How often contending origins lock and unlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turns {
    /// All throughout, until they have done so `times` times each on average.
    OnAverage,
    /// Each `times` times, the first one included, which resolves the target.
    Each,
}

/// When two origins hand a lock over, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handovers {
    /// From the first acquire to the second, to the release, to the next.
    pub(crate) later: u64,
    pub(crate) held_for: u64,
    pub(crate) period: u64,
    /// By so much more each time, so that they are not at the same phase of the other's pauses.
    pub(crate) shift: u64,
}
