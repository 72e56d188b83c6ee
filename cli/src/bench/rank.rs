//! What every worker has: its world, bare shared memory beside it, a way to report.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use fabric::bootstrap::{self, environment};
use fabric::remote_memory::{Rank, RegionId};
use fabric::shm::Mapping;
use fabric::{Any, Fabric, World};
use rustix::thread::CpuSet;

use crate::bench::report::{Against, Line, Measured, Metric, Reporter};
use crate::bench::spread::Spread;
use crate::failure::Failure;

/// The largest transfer, what all transfers before one flush have room in, and the words before it.
pub(crate) const LARGEST: usize = 4 << 20;
pub(crate) const ROOM: usize = 4 * LARGEST;
const WORDS: u64 = 4096;
/// Far from the numbers that the fabric gives its own regions.
const BARE: RegionId = RegionId(u32::MAX - 1);

#[derive(Debug)]
pub(crate) struct RankOfBench {
    pub(crate) world: World<Any>,
    /// Memory of the last rank's that no window knows: what the limits are measured on. Made like a window's part.
    bare: Arc<Mapping>,
    reporter: Reporter,
}

impl RankOfBench {
    /// With a file that rank 0 reports to.
    pub(crate) fn join(report: Option<&Path>) -> Result<Self, Failure> {
        pin()?;
        let job = bootstrap::join()?
            .ok_or("a worker of `bench` is started by `bench locks`, `bench rma` and `bench peers`")?;
        let exchange = Arc::clone(&job.exchange);
        let (rank, size) = (job.rank, job.board.size());
        let name = std::env::var(environment::FABRIC)?;
        let world = World::new(fabric::endpoint(&name, job)?);
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
        Ok(Self { world, bare, reporter: Reporter::open(report, rank.0)? })
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
        self.world.fabric().capabilities().immediate
    }

    /// A bare word two cache lines away from the next: processors fetch them in pairs.
    pub(crate) fn word(&self, number: u64) -> &AtomicU64 {
        self.bare.word(number * 128 % WORDS).expect("a word of the first page")
    }

    /// The bare memory for transfers, [`ROOM`] bytes; it is a multiple of 8.
    pub(crate) fn bytes(&self) -> *mut u8 {
        self.bare.bytes(WORDS, ROOM as u64).expect("the part after the words").as_ptr()
    }

    pub(crate) fn step(&self) -> Result<(), Failure> {
        Ok(self.reporter.step()?)
    }

    pub(crate) fn limit(&self, what: &str, metric: Metric, values: &[f64]) -> Result<(), Failure> {
        self.measured((what, None), metric, values, None)
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
        // Fairness stands for itself: that of a bare lock is no limit.
        let compared = self.has_limits() && !matches!(metric, Metric::Share | Metric::Jain);
        let against = match limit {
            None => Against::IsLimit,
            Some(limit) if compared => Against::Limit(limit.to_owned()),
            Some(_) => Against::Nothing,
        };
        let (what, ranks, value) = (what.to_owned(), self.world.size(), Spread::of(values));
        Ok(self.reporter.say(&Line::Measured(Measured {
            what,
            size,
            metric,
            ranks,
            value,
            against,
            lock: String::new(),
        }))?)
    }
}

/// Keeps this process on one core, the ranks in turn over those that it may use: a migration costs more than anything
/// that is measured here.
fn pin() -> Result<(), Failure> {
    let Some(job) = environment::Environment::read()? else { return Ok(()) };
    let allowed = rustix::thread::sched_getaffinity(None)?;
    let cores: Vec<_> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
    let mut mine = CpuSet::new();
    mine.set(cores[job.rank.index() % cores.len()]);
    Ok(rustix::thread::sched_setaffinity(None, &mine)?)
}
