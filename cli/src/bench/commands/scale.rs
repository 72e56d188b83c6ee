//! `onesided bench scale`.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use onesided_fabric::{AtomicAgent, Capabilities};
use onesided_lock_kit::lock_algos::AnyLock;
use onesided_windows::LockDesign;

use crate::bench::lock_choice::{self, Locks};
use crate::bench::output::json::{Document, Machine};
use crate::bench::runner::{self, Files, finish, progress};
use crate::bench::simulated;
use crate::bench::simulated::contention::Load;
use crate::failure::Failure;

/// Measures locks with 10, 100, ... simulated origins in virtual time, by the production code.
///
/// First, windows on the simulated network: acquire and release apart, the delay from a release to
/// the next acquisition, 1 to 7 origins with a window each, and the operations of as many at one
/// lock. Then all origins contend for one lock. Every rank has a card of its own, a microsecond
/// away from the others; one more rank is the lock's home. Only the two-level lock knows hosts:
/// ranks of one host access each other's words in 0.1 us. Each origin acquires the lock, holds it
/// for --section, releases it, and is idle for --rest. The figures are exact and reproducible.
/// Where a curve of acquisitions turns down, the lock stops scaling; its home serves 10 million
/// operations a second. The p99.9 is left out for fewer than 1,000 waits, Jain's index for fewer
/// than 5 acquisitions by an origin on average. Locks that a thread at the target serves are not
/// simulated, and `all` is without them.
#[derive(Debug, clap::Args)]
#[command(after_help = runner::help())]
pub(crate) struct Args {
    /// Which locks, by name, or all; several with commas between them
    #[arg(long = "lock", value_name = "NAME", value_delimiter = ',', default_value = "all", value_parser = lock_choice::parse)]
    locks: Vec<Locks>,

    /// How many origins; several with commas between them
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "10,100,1000,10000", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    origins: Vec<u32>,

    /// How many of a hundred acquisitions are to read; several with commas between them
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = "0", value_parser = clap::value_parser!(u32).range(0..=100))]
    readers: Vec<u32>,

    /// How many origins share a host
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    per_host: u32,

    /// How often in a row the two-level lock may be handed over on a host; several with commas
    /// between them. Measured with the largest number of origins, in addition to the 8 hand-overs
    /// that windows allow
    #[arg(long, value_name = "N", value_delimiter = ',')]
    handovers: Vec<u16>,

    /// How long the lock is held, in nanoseconds
    #[arg(long, value_name = "NANOSECONDS", default_value_t = 1000)]
    section: u64,

    /// How long an origin is idle between a release and its next acquire, in nanoseconds
    #[arg(long, value_name = "NANOSECONDS", default_value_t = 1000)]
    rest: u64,

    /// For how long, in virtual milliseconds [default: time for 20 acquisitions by each origin, but
    /// from 10 to 500]
    #[arg(long, value_name = "MILLISECONDS")]
    lasting: Option<u64>,

    /// The seed of the random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,

    #[command(flatten)]
    files: Files,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    const TITLE: &str = "onesided bench scale";
    if let Some(from) = &args.files.from {
        return args.files.show(from, TITLE, simulated::sections());
    }
    let begun = SystemTime::now();
    let mut designs = lock_choice::unique(&args.locks);
    designs.retain(|design| !design.is_served()); // the simulation has no server threads
    if designs.is_empty() {
        return Err("locks that a thread at the target serves are not simulated".into());
    }
    let files = args.files.create()?;
    let bar = progress((designs.len() * args.origins.len() * args.readers.len()) as u64);
    let mut measured = Vec::new();
    for design in &designs {
        measured.extend(simulated::windows(*design, args.seed)?);
    }
    let load = Load {
        section: args.section,
        idle: args.rest,
        per_host: args.per_host,
        duration: args.lasting.map(Duration::from_millis),
        seed: args.seed,
    };
    let capabilities = Capabilities::new("sim", AtomicAgent::Simulated);
    for origins in &args.origins {
        for readers in &args.readers {
            for design in &designs {
                bar.set_message(format!("{design}, {origins} origins, {readers} % readers"));
                let lock = design.algorithm(&capabilities).unwrap_or_default();
                measured.extend(load.measure(&lock, design.name(), (*origins, *readers), None));
                bar.inc(1);
            }
        }
    }
    if let Some(origins) = args.origins.iter().max().filter(|_| designs.contains(&LockDesign::TwoLevel)) {
        for handovers in &args.handovers {
            bar.set_message(format!("at most {handovers} hand-overs on a host"));
            let lock = match LockDesign::TwoLevel.algorithm(&capabilities) {
                Some(AnyLock::TwoLevel(lock)) => lock.handovers(*handovers),
                other => return Err(format!("{other:?} hands nothing over on a host").into()),
            };
            measured.extend(load.measure(&lock, LockDesign::TwoLevel.name(), (*origins, 0), Some(*handovers)));
        }
    }
    bar.finish_and_clear();
    let document =
        Document::new(Machine::collect(), "sim", (begun, runner::command()), &measured, simulated::sections());
    finish(&document, files, TITLE)
}
