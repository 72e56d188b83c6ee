//! What every worker has: its world, bare shared memory beside it, a way to report.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use onesided_fabric::bootstrap::{self, environment};
use onesided_fabric::remote_memory::{Rank, RegionId};
use onesided_fabric::shm::Mapping;
use onesided_fabric::{Any, Drive, Fabric, World};
use rustix::thread::CpuSet;

use crate::bench::report::{Against, Line, Measured, Metric, Parameter, Reporter};
use crate::bench::spread::Spread;
use crate::failure::Failure;

/// The largest transfer, what all transfers before one flush have room in, and the words before it.
pub(crate) const LARGEST: usize = 4 << 20;
pub(crate) const ROOM: usize = 4 * LARGEST;
const WORDS: u64 = 4096;
/// Far from the numbers that the fabric gives its own regions.
const BARE: RegionId = RegionId(u32::MAX - 1);

#[derive(Debug)]
pub(crate) struct RankOfBench<F: Fabric = Any> {
    pub(crate) world: World<F>,
    /// Memory of the last rank's that no window knows: what the limits are measured on. Made like a window's part.
    bare: Arc<Mapping>,
    reporter: Reporter,
    /// That the ranks are dealt out to.
    pub(crate) cores: usize,
}

impl RankOfBench {
    /// With a file that rank 0 reports to.
    pub(crate) fn join(report: Option<&Path>) -> Result<Self, Failure> {
        Self::join_over(report, |fabric| fabric)
    }
}

impl<F: Drive> RankOfBench<F> {
    /// [`join`](RankOfBench::join) over what is made of the fabric.
    pub(crate) fn join_over(report: Option<&Path>, made: impl FnOnce(Any) -> F) -> Result<Self, Failure> {
        let cores = pin()?;
        let job = bootstrap::join()?
            .ok_or("a worker of `bench` is started by `bench locks`, `bench rma` and `bench peers`")?;
        let exchange = Arc::clone(&job.exchange);
        let (rank, size) = (job.rank, job.board.size());
        let name = std::env::var(environment::FABRIC)?;
        let world = World::new(made(onesided_fabric::endpoint(&name, job)?));
        let owner = Rank(size - 1);
        let own = (rank == owner).then(|| Mapping::create(WORDS as usize + ROOM).map(Arc::new)).transpose()?;
        if let Some(own) = &own {
            exchange.publish(BARE, own)?;
        }
        world.barrier().wait()?;
        let bare = match own {
            Some(own) => own,
            None => exchange.fetch(owner, BARE)?,
        };
        Ok(Self { world, bare, reporter: Reporter::open(report, rank.0)?, cores })
    }

    /// Whose part the operations go to: the next rank's, one's own if there is no other.
    pub(crate) fn peer(&self) -> u32 {
        self.world.size() - 1
    }

    /// Whether the operations go to this rank's part.
    pub(crate) fn is_target(&self) -> bool {
        self.world.rank() == self.peer()
    }

    /// Whether a bare instruction can do what the fabric does.
    pub(crate) fn has_limits(&self) -> bool {
        self.world.fabric().capabilities().completes_at_post
    }

    /// A bare word two cache lines away from the next: processors fetch them in pairs.
    pub(crate) fn word(&self, number: u64) -> &AtomicU64 {
        self.bare.word(number * 128 % WORDS).expect("a word of the first page")
    }

    /// The bare memory for transfers, [`ROOM`] bytes; it is a multiple of 8.
    pub(crate) fn bytes(&self) -> *mut u8 {
        self.bare.bytes(WORDS, ROOM as u64).expect("the part after the words").as_ptr()
    }

    /// One of the words that lie in the bare memory for transfers, as an array.
    pub(crate) fn noted(&self, number: usize) -> &AtomicU64 {
        self.bare.word(WORDS + 8 * (number as u64 % (ROOM as u64 / 8))).expect("a word of the second part")
    }

    pub(crate) fn step(&self) -> Result<(), Failure> {
        Ok(self.reporter.step()?)
    }

    pub(crate) fn limit(&self, what: &str, metric: Metric, values: &[f64]) -> Result<(), Failure> {
        self.measured((what, None), metric, values, None)
    }

    /// A result, or a limit if it has none, of one point of a sweep.
    pub(crate) fn at(
        &self,
        (what, parameter): (&str, Option<Parameter>),
        metric: Metric,
        values: &[f64],
        limit: Option<&str>,
    ) -> Result<(), Failure> {
        self.say((what, None, parameter), metric, values, limit)
    }

    /// What stands for itself.
    pub(crate) fn alone(
        &self,
        (what, parameter): (&str, Option<Parameter>),
        metric: Metric,
        values: &[f64],
    ) -> Result<(), Failure> {
        self.say((what, None, parameter), metric, values, Some(""))
    }

    /// A result, beside the limit of that name.
    pub(crate) fn result(&self, what: &str, metric: Metric, values: &[f64], limit: &str) -> Result<(), Failure> {
        self.measured((what, None), metric, values, Some(limit))
    }

    /// What was done, with how many bytes; a result has the name of its limit, a limit none.
    pub(crate) fn measured(
        &self,
        (what, size): (&str, Option<usize>),
        metric: Metric,
        values: &[f64],
        limit: Option<&str>,
    ) -> Result<(), Failure> {
        self.say((what, size, None), metric, values, limit)
    }

    fn say(
        &self,
        (what, size, parameter): (&str, Option<usize>, Option<Parameter>),
        metric: Metric,
        values: &[f64],
        limit: Option<&str>,
    ) -> Result<(), Failure> {
        // Fairness stands for itself: that of a bare lock is no limit.
        let compared = self.has_limits() && !matches!(metric, Metric::Share | Metric::Jain);
        let against = match limit {
            None => Against::IsLimit,
            Some("") => Against::Nothing,
            Some(limit) if compared => Against::Limit(limit.to_owned()),
            Some(_) => Against::Nothing,
        };
        let (what, ranks, value) = (what.to_owned(), self.world.size(), Spread::of(values));
        Ok(self.reporter.say(&Line::Measured(Measured {
            what,
            size,
            parameter,
            metric,
            ranks,
            value,
            against,
            lock: String::new(),
        }))?)
    }
}

/// Keeps this process on one core, the ranks in turn over those that it may use: a migration costs more than anything
/// that is measured here. Gives the number of those.
fn pin() -> Result<usize, Failure> {
    let Some(job) = environment::Environment::read()? else { return Ok(1) };
    let allowed = rustix::thread::sched_getaffinity(None)?;
    let cores: Vec<_> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
    let mut mine = CpuSet::new();
    mine.set(cores[job.rank.index() % cores.len()]);
    rustix::thread::sched_setaffinity(None, &mine)?;
    Ok(cores.len())
}
