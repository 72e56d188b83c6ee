//! A rank of a benchmark: its world, bare shared memory beside it, and a report.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use onesided_fabric::bootstrap::{self, environment};
use onesided_fabric::remote_memory::{Rank, RegionId};
use onesided_fabric::shm::Mapping;
use onesided_fabric::{Any, Drive, Fabric, World};
use rustix::thread::CpuSet;

use crate::bench::results::report::{Line, Measured, Point, Reporter, Samples};
use crate::bench::results::summary::Summary;
use crate::failure::Failure;

/// The largest transfer, in bytes.
pub(crate) const LARGEST: usize = 4 << 20;
/// The bytes of all transfers before one flush.
pub(crate) const TRANSFER_AREA: usize = 4 * LARGEST;
/// The bytes of the bare words, which lie before the transfer area.
const WORDS: u64 = 4096;
/// Far from the numbers that the fabric gives its own regions.
const BARE: RegionId = RegionId(u32::MAX - 1);

#[derive(Debug)]
pub(crate) struct BenchRank<F: Fabric = Any> {
    pub(crate) world: World<F>,
    /// Memory of the last rank, outside any window and made like a window's: the limits are
    /// measured on it.
    bare: Arc<Mapping>,
    reporter: Reporter,
    /// The number of cores that the ranks share.
    pub(crate) cores: usize,
}

impl BenchRank {
    /// Rank 0 reports to the file.
    pub(crate) fn join(report: Option<&Path>) -> Result<Self, Failure> {
        Self::join_over(report, |fabric| fabric)
    }

    /// A world of the first and the last so many ranks; `None` at the ranks between. Collective.
    pub(crate) fn ends(&self, pairs: u32) -> Result<Option<World>, Failure> {
        let me = self.world.rank();
        let is_end = me.min(self.peer() - me) < pairs;
        Ok(Some(self.world.split(is_end.into(), me).wait()?).filter(|_| is_end))
    }
}

impl<F: Drive> BenchRank<F> {
    /// [`join`](BenchRank::join) with a wrapper around the fabric.
    pub(crate) fn join_over(report: Option<&Path>, wrap: impl FnOnce(Any) -> F) -> Result<Self, Failure> {
        let cores = pin()?;
        let job = bootstrap::join()?
            .ok_or("a worker of `bench` is started by `bench locks`, `bench rma` and `bench peers`")?;
        let exchange = Arc::clone(&job.exchange);
        let (rank, size) = (job.rank, job.job_segment.size());
        let name = std::env::var(environment::FABRIC)?;
        let world = World::new(wrap(onesided_fabric::endpoint(&name, job)?));
        let owner = Rank(size - 1);
        let bytes = WORDS as usize + TRANSFER_AREA;
        let own = (rank == owner).then(|| Mapping::create(bytes).map(Arc::new)).transpose()?;
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

    /// The target of the operations: the last rank, which is this rank if there is no other.
    pub(crate) fn peer(&self) -> u32 {
        self.world.size() - 1
    }

    /// Whether this rank is the target of the operations.
    pub(crate) fn is_target(&self) -> bool {
        self.world.rank() == self.peer()
    }

    /// Whether bare instructions can do what the fabric does.
    pub(crate) fn has_limits(&self) -> bool {
        self.world.fabric().capabilities().completes_at_post
    }

    /// A bare word, two cache lines from the next: processors fetch lines in pairs.
    pub(crate) fn word(&self, number: u64) -> &AtomicU64 {
        self.bare.word(number * 128 % WORDS).expect("a word of the first page")
    }

    /// The bare memory for transfers, [`TRANSFER_AREA`] bytes, page-aligned.
    pub(crate) fn transfer_area(&self) -> *mut u8 {
        self.bare.bytes(WORDS, TRANSFER_AREA as u64).expect("the area after the words").as_ptr()
    }

    /// A word of the transfer area, as an array of words that lie next to one another.
    pub(crate) fn scratch_word(&self, number: usize) -> &AtomicU64 {
        self.bare.word(WORDS + 8 * (number as u64 % (TRANSFER_AREA as u64 / 8))).expect("a word of the transfer area")
    }

    /// Sends the target's values to all ranks.
    pub(crate) fn values_of_target(&self, values: &[f64]) -> Result<Vec<f64>, Failure> {
        if self.is_target() {
            for (i, value) in values.iter().enumerate() {
                self.scratch_word(i).store(value.to_bits(), Ordering::Release);
            }
        }
        self.world.barrier().wait()?;
        let values = (0..values.len()).map(|i| f64::from_bits(self.scratch_word(i).load(Ordering::Acquire))).collect();
        self.world.barrier().wait()?;
        Ok(values)
    }

    /// What each rank counted. Collective.
    pub(crate) fn counts_of_all(&self, count: u64) -> Result<Vec<f64>, Failure> {
        let all = self.world.all_gather(&count.to_le_bytes()).wait()?;
        let number = |bytes: &Vec<u8>| bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)) as f64;
        Ok(all.iter().map(number).collect())
    }

    /// Reports that a step is done.
    pub(crate) fn step(&self) -> Result<(), Failure> {
        Ok(self.reporter.step()?)
    }

    /// Reports the runs' values. Only those of rank 0 count.
    pub(crate) fn report(&self, point: Point, values: &[f64]) -> Result<(), Failure> {
        let (ranks, value) = (self.world.size(), Summary::of(values));
        Ok(self.reporter.write(&Line::Measured(Measured { point, ranks, value, lock: String::new() }))?)
    }

    /// The same of several points.
    pub(crate) fn report_all(&self, samples: Samples) -> Result<(), Failure> {
        samples.points().try_for_each(|(point, values)| self.report(point, &values))
    }
}

/// Keeps this process on one core, because a migration costs more than anything that is measured
/// here. The ranks are distributed over the cores that the job may use. Returns the number of these
/// cores.
fn pin() -> Result<usize, Failure> {
    let Some(job) = environment::Environment::read()? else { return Ok(1) };
    let cores = cores()?;
    let mut mine = CpuSet::new();
    mine.set(cores[job.rank.index() % cores.len()]);
    rustix::thread::sched_setaffinity(None, &mine)?;
    Ok(cores.len())
}

/// The cores that this process may use.
pub(crate) fn cores() -> std::io::Result<Vec<usize>> {
    let allowed = rustix::thread::sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect())
}
