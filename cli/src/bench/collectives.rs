//! `bench collectives`: all ranks in a row of the same collectives.
//!
//! Rank 0 is timed. `bench peers` runs the same loops.

use std::cell::RefCell;
use std::hint::black_box;
use std::process::ExitCode;

use onesided_fabric::{Any, World};
use onesided_two_sided::{Messages, Op};

use crate::bench::prelude::*;
use crate::bench::runner::{self, Job, Options};
use onesided_windows::LockDesign;

/// Measures collectives of messages among 2 and 4 processes of this host.
///
/// All ranks call the same collective again and again; rank 0 is timed. A barrier; all_reduce of 8 B
/// and 1 MiB, sums of floats of 8 B; broadcast of 8 B and 1 MiB, from each rank in turn; all_gather
/// and all_to_all of blocks of 8 B and 64 KiB. Each rank is kept on one core; they share the cores if
/// there are fewer than ranks. There are no limits to compare with: `bench peers --suite collectives`
/// compares with MPICH and Open MPI. Every figure is the median of 7 runs (--quick: 3). The benchmark
/// assumes an otherwise idle machine.
#[derive(Debug, clap::Args)]
#[command(after_help = runner::help())]
pub(crate) struct Args {
    /// How many ranks; several with commas between them
    #[arg(short = 'n', long = "ranks", visible_alias = "np", value_name = "N", value_delimiter = ',', default_value = "2,4", value_parser = clap::value_parser!(u32).range(1..=MOST_RANKS as i64))]
    ranks: Vec<u32>,

    #[command(flatten)]
    options: Options,
}

pub(crate) fn start(args: &Args) -> Result<ExitCode, Failure> {
    args.options.without_picture()?;
    let jobs: Vec<Job> = args.ranks.iter().map(|ranks| (&SUITE, *ranks, LockDesign::default())).collect();
    runner::run("onesided bench collectives", &args.options, &jobs, Vec::new())
}

/// The most bytes of a rank, and of its blocks of all ranks together.
const LARGEST: usize = 1 << 20;

/// A collective that all ranks call again and again.
pub(crate) struct Loop {
    pub(crate) name: &'static str,
    /// The bytes of a rank's data, or of a block; none: there are no data.
    pub(crate) sizes: &'static [usize],
    /// Calls it so many times with so many bytes.
    pub(crate) run: fn(&Group<'_>, usize, u64) -> Result<(), Failure>,
}

pub(crate) static LOOPS: [Loop; 5] = [
    Loop { name: "barrier", sizes: &[], run: barrier },
    Loop { name: "all_reduce", sizes: &[8, 1 << 20], run: all_reduce },
    Loop { name: "broadcast", sizes: &[8, 1 << 20], run: broadcast },
    Loop { name: "all_gather", sizes: &[8, 64 << 10], run: all_gather },
    Loop { name: "all_to_all", sizes: &[8, 64 << 10], run: all_to_all },
];

pub(crate) static SUITE: Suite = Suite {
    steps: |effort| (points().count() * effort.runs()) as u64,
    ..Suite::new("collectives", Program::Plain(run))
};

/// The loops with their sizes; 0: there are no data.
fn points() -> impl Iterator<Item = (&'static Loop, usize)> {
    let sizes = |one: &'static Loop| if one.sizes.is_empty() { &[0][..] } else { one.sizes };
    LOOPS.iter().flat_map(move |one| sizes(one).iter().map(move |size| (one, *size)))
}

fn run(rank: &BenchRank, effort: Effort) -> Result<(), Failure> {
    let group = &Group::new(&rank.world)?;
    points().try_for_each(|(one, size)| {
        let probe = Probe::ours(one.name, "", move |n| (one.run)(group, size, n));
        let probe = if size > 0 { probe.of_size(size) } else { probe };
        probes::run_together((rank, &rank.world), effort, vec![probe]).map(drop)
    })
}

/// A rank of the loops.
pub(crate) struct Group<'r> {
    world: &'r World<Any>,
    messages: Messages,
    data: RefCell<Vec<f64>>,
    /// As many again, for what is received.
    all: RefCell<Vec<f64>>,
}

impl<'r> Group<'r> {
    /// Collective.
    pub(crate) fn new(world: &'r World<Any>) -> Result<Self, Failure> {
        let [data, all] = [(); 2].map(|()| RefCell::new(vec![0.0; LARGEST / 8]));
        Ok(Self { world, messages: Messages::new(world).wait()?, data, all })
    }

    pub(crate) const fn world(&self) -> &World<Any> {
        self.world
    }
}

fn barrier(group: &Group<'_>, _: usize, n: u64) -> Result<(), Failure> {
    (0..n).try_for_each(|_| Ok(group.messages.barrier().wait()?))
}

fn all_reduce(group: &Group<'_>, size: usize, n: u64) -> Result<(), Failure> {
    let data = &mut group.data.borrow_mut()[..size / 8];
    (0..n).try_for_each(|_| Ok(group.messages.all_reduce(black_box(&mut *data), Op::Sum).wait()?))
}

/// From each rank in turn, so that no root runs ahead of the others.
fn broadcast(group: &Group<'_>, size: usize, n: u64) -> Result<(), Failure> {
    let (data, ranks) = (&mut group.data.borrow_mut()[..size / 8], u64::from(group.world.size()));
    (0..n).try_for_each(|i| Ok(group.messages.broadcast(black_box(&mut *data), (i % ranks) as u32).wait()?))
}

fn all_gather(group: &Group<'_>, size: usize, n: u64) -> Result<(), Failure> {
    let all = &mut group.all.borrow_mut()[..size / 8 * group.world.size() as usize];
    let mine = &group.data.borrow()[..size / 8];
    (0..n).try_for_each(|_| Ok(group.messages.all_gather(black_box(mine), black_box(&mut *all)).wait()?))
}

fn all_to_all(group: &Group<'_>, size: usize, n: u64) -> Result<(), Failure> {
    let (send, mut recv) = (group.data.borrow(), group.all.borrow_mut());
    let blocks = ..size / 8 * group.world.size() as usize;
    let (send, recv) = (&send[blocks], &mut recv[blocks]);
    (0..n).try_for_each(|_| Ok(group.messages.all_to_all(black_box(send), black_box(&mut *recv)).wait()?))
}

/// The most ranks whose blocks have room.
const MOST_RANKS: usize = LARGEST / (64 << 10);
