//! `onesided bench scale`: locks with 10 to 100,000 simulated origins.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use onesided_fabric::{AtomicAgent, Capabilities};
use onesided_lock_kit::bench::{Outcome, ThroughputRun};
use onesided_lock_kit::lock_algos::{AnyLock, LockAlgorithm, TwoLevel};
use onesided_windows::LockDesign;

use crate::bench::json::{Document, Machine};
use crate::bench::locks::{Locks, locks, unique};
use crate::bench::measure::{Files, finish, progress};
use crate::bench::report::{Against, Measured, Metric, Parameter};
use crate::bench::simulated;
use crate::bench::spread::Spread;
use crate::failure::Failure;

/// Has 10, 100, ... simulated origins contend for one lock, in virtual time, by the very code that ships.
///
/// First, of windows on the simulated network: acquire and release apart, the delay from a release to the next one's having the
/// lock, 1 to 7 origins at a window of their own each, and the operations of as many at one lock. Then the contests.
/// Every rank has a card of its own, a microsecond away from the others; one more rank is the lock's home. Only the two-level
/// lock has to do with hosts: its ranks of one host reach each other's words in 0.1 us. Each origin acquires
/// the lock, holds it for --section, releases it, and rests for --rest. The figures are exact and the same each time. Where a
/// curve of acquisitions turns down, the lock stops scaling; its home serves 10 million operations a second. The p99.9 is left out
/// where there are fewer than 1,000 waits, Jain's index where an origin had fewer than 5 turns on the average. Locks
/// that a thread at the target serves are not simulated, and `all` is without them.
#[derive(Debug, clap::Args)]
#[command(after_help = crate::bench::measure::HELP)]
pub(crate) struct Args {
    /// Which locks, by name, or all; several with commas between them
    #[arg(long = "lock", value_name = "NAME", value_delimiter = ',', default_value = "all", value_parser = locks)]
    locks: Vec<Locks>,

    /// How many origins; several with commas between them
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "10,100,1000,10000", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    origins: Vec<u32>,

    /// How many of a hundred acquire to read; several with commas between them
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = "0", value_parser = clap::value_parser!(u32).range(0..=100))]
    readers: Vec<u32>,

    /// How many origins share a host
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    per_host: u32,

    /// How often in a row the two-level lock may be handed over on a host; several with commas between them: beside the figures for
    /// the 8 that windows have, with the largest number of origins
    #[arg(long, value_name = "N", value_delimiter = ',')]
    handovers: Vec<u16>,

    /// How long the lock is held, in nanoseconds
    #[arg(long, value_name = "NANOSECONDS", default_value_t = 1000)]
    section: u64,

    /// How long an origin rests between a release and its next acquire, in nanoseconds
    #[arg(long, value_name = "NANOSECONDS", default_value_t = 1000)]
    rest: u64,

    /// For how long, in virtual milliseconds [default: so long that each origin could have 20 turns, but from 10 to 500]
    #[arg(long, value_name = "MILLISECONDS")]
    lasting: Option<u64>,

    /// The seed of the random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,

    #[command(flatten)]
    files: Files,
}

const WHAT: &str = "simulated contended lock";

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let begun = SystemTime::now();
    let mut designs = unique(&args.locks);
    designs.retain(|design| !design.is_served()); // nobody serves in simulation
    if designs.is_empty() {
        return Err("locks that a thread at the target serves are not simulated".into());
    }
    let files = args.files.create()?;
    let bar = progress((designs.len() * args.origins.len() * args.readers.len()) as u64);
    let mut measured = Vec::new();
    for design in &designs {
        measured.extend(simulated::paper(*design, args.seed)?);
    }
    for origins in &args.origins {
        for readers in &args.readers {
            for design in &designs {
                bar.set_message(format!("{design}, {origins} origins, {readers} % readers"));
                let lock = design.algorithm(&Capabilities::new("sim", AtomicAgent::Simulated));
                measured.extend(results(args, &lock, design.name(), (*origins, *readers), None));
                bar.inc(1);
            }
        }
    }
    if let Some(origins) = args.origins.iter().max().filter(|_| designs.contains(&LockDesign::TwoLevel)) {
        for handovers in &args.handovers {
            bar.set_message(format!("at most {handovers} hand-overs on a host"));
            let lock = match LockDesign::TwoLevel.algorithm(&Capabilities::new("sim", AtomicAgent::Simulated)) {
                AnyLock::TwoLevel(lock) => lock.handovers(*handovers),
                other => return Err(format!("{other:?} hands nothing over on a host").into()),
            };
            measured.extend(results(args, &lock, TwoLevel::NAME, (*origins, 0), Some(*handovers)));
        }
    }
    bar.finish_and_clear();
    let document = Document::new(Machine::collect(), "sim", &measured);
    finish(&document, files, "onesided bench scale", begun)
}

/// Who has fewer turns than these on the average has them by chance, and Jain's index tells of that.
const TURNS_OF_JAIN: u64 = 5;

/// So long that each origin could have 20 turns, if all went on at one lock as fast as the network lets it; and bounded, for
/// virtual time takes real time: a second or so for 100 ms.
fn lasting(args: &Args, origins: u32) -> Duration {
    const TURNS: u64 = 20;
    /// From one owner to the next: a release, and an acquire that waits for it.
    const HANDOVER: u64 = 3_000;
    let nanos = TURNS.saturating_mul(u64::from(origins)).saturating_mul(args.section.saturating_add(HANDOVER));
    Duration::from_nanos(nanos.clamp(10_000_000, 500_000_000))
}

/// What a contest gives: at so many origins of which so many of a hundred read, or at that many hand-overs.
fn results<A: LockAlgorithm>(
    args: &Args,
    lock: &A,
    name: &str,
    (origins, readers): (u32, u32),
    handovers: Option<u16>,
) -> Vec<Measured> {
    let lasting = args.lasting.map_or_else(|| lasting(args, origins), Duration::from_millis);
    let outcome: Outcome = ThroughputRun::of(lock)
        .origins(origins)
        .readers(readers)
        .section(Duration::from_nanos(args.section))
        .idle(Duration::from_nanos(args.rest))
        .lasting(lasting)
        .per_host(args.per_host)
        .seed(args.seed)
        .simulated();
    let quantile = |part| outcome.waits.quantile(part).map(|nanos| nanos as f64);
    // One in a thousand of fewer is one, by chance.
    let (acquisitions, many) = (outcome.acquisitions(), outcome.waits.count() >= 1_000);
    let turns = acquisitions / u64::from(origins);
    let what = match handovers {
        Some(_) => format!("{WHAT}, {origins} origins, {} on a host", args.per_host),
        None if readers == 0 => WHAT.to_owned(),
        None => format!("{WHAT}, {readers} % to read"),
    };
    let parameter = match handovers {
        Some(most) => Parameter::new("hand-overs on a host", f64::from(most), "1"),
        None => Parameter::new("origins", f64::from(origins), "1"),
    };
    let measured = |(metric, value): (Metric, Option<f64>)| {
        Some(Measured {
            what: what.clone(),
            size: None,
            parameter: Some(parameter.clone()),
            metric,
            ranks: origins + 1,
            value: Spread::of(&[value?]),
            against: Against::Nothing,
            lock: name.to_owned(),
        })
    };
    [
        (Metric::Acquisitions, Some(outcome.rate())),
        (Metric::P50, quantile(0.5)),
        (Metric::P99, quantile(0.99)),
        (Metric::P999, quantile(0.999).filter(|_| many)),
        (Metric::WorstP99, Some(outcome.worst_p99 as f64)),
        (Metric::LongestBypass, Some(outcome.bypasses.largest() as f64)),
        (Metric::Jain, (turns >= TURNS_OF_JAIN).then(|| outcome.jain())),
        (Metric::Operations, Some(outcome.operations_each())),
    ]
    .into_iter()
    .filter_map(measured)
    .collect()
}
