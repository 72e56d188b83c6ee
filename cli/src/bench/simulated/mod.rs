//! `bench scale`: locks in simulation, in [`windows`] and on their own ([`contention`]), also under
//! [`conditions`].

mod conditions;
mod contention;
mod footprint;
mod windows;

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use onesided_fabric::{AtomicAgent, Capabilities};
use onesided_lock_kit::lock_algos::AnyLock;
use onesided_windows::LockDesign;

use crate::bench::lock_choice::{self, Locks};
use crate::bench::output::json::{Document, Machine, Sections};
use crate::bench::results::quantity::Quantity;
use crate::bench::results::report::Measured;
use crate::bench::runner::{self, Files, finish};
use crate::bench::simulated::contention::Load;
use crate::failure::Failure;
use crate::output::{command, progress};

/// Measures locks with 10, 100, ... simulated origins in virtual time, by the production code.
///
/// First, windows on the simulated network: acquire and release apart, the delay from a release to
/// the next acquisition, 1 to 7 origins with a window each, and the operations of as many at one
/// lock. Then all origins contend for one lock. Every rank has a card of its own, a microsecond
/// away from the others; one more rank is the lock's home. Only the two-level lock knows hosts:
/// ranks of one host access each other's words in 0.1 us. Each origin acquires the lock, holds it
/// for --section, releases it, and is idle for --rest. The figures are exact and reproducible.
/// Where a curve of acquisitions turns down, the lock stops scaling; its home serves 10 million
/// operations a second. A lock with less than 1 % of its best rate is not run with more origins.
/// The p99.9 is left out for fewer than 1,000 waits, Jain's index for fewer than 5 acquisitions by
/// an origin on average.
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

    /// Also measure each lock under conditions: with 1 % of the messages lost, an owner that stops
    /// or dies, and on two testbeds; with so many origins
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "100", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    conditions: Option<u32>,

    /// Also measure the simulation itself: bytes of memory a rank, events a second. These are not
    /// the same each time
    #[arg(long)]
    simulator: bool,

    #[command(flatten)]
    files: Files,
}

/// What is shown, and the texts of all plots.
pub(crate) fn sections() -> Sections {
    vec![
        ("contended: all origins at one lock".to_owned(), contention::DESCRIPTIONS.iter().collect()),
        ("conditions: faults, and cards of two generations".to_owned(), conditions::DESCRIPTIONS.iter().collect()),
        ("windows: few origins, at one lock or with a window each".to_owned(), windows::DESCRIPTIONS.iter().collect()),
    ]
}

/// A lock with a smaller part of its best rate is not run with more origins.
const SCALES: f64 = 0.01;

pub(crate) fn start(args: &Args) -> Result<ExitCode, Failure> {
    const TITLE: &str = "onesided bench scale";
    if let Some(from) = &args.files.from {
        return args.files.show(from, TITLE, sections());
    }
    let begun = SystemTime::now();
    let designs = lock_choice::unique(&args.locks);
    let files = args.files.create()?;
    let bar = progress((designs.len() * args.origins.len() * args.readers.len()) as u64);
    let mut measured = Vec::new();
    for design in &designs {
        measured.extend(windows::measure(*design, args.seed)?);
    }
    let load = Load {
        section: args.section,
        idle: args.rest,
        per_host: args.per_host,
        duration: args.lasting.map(Duration::from_millis),
        seed: args.seed,
    };
    let capabilities = Capabilities::new("sim", AtomicAgent::Simulated);
    let algorithm = |design: LockDesign| design.algorithm(&capabilities).unwrap_or_default();
    let mut curves: Vec<_> = designs.iter().map(|design| Curve::of(*design)).collect();
    for origins in &args.origins {
        for readers in &args.readers {
            for curve in &mut curves {
                let design = curve.design;
                bar.set_message(format!("{design}, {origins} origins, {readers} % readers"));
                if curve.goes_on(*origins) {
                    let lock = algorithm(design);
                    let point = load.measure(&lock, design.name(), (*origins, *readers), None, args.simulator);
                    curve.add(*origins, &point);
                    measured.extend(point);
                }
                bar.inc(1);
            }
        }
    }
    if let Some(origins) = args.conditions {
        for design in &designs {
            bar.set_message(format!("{design} under conditions"));
            measured.extend(conditions::measure(&load, &algorithm(*design), design.name(), origins)?);
        }
    }
    if let Some(origins) = args.origins.iter().max().filter(|_| designs.contains(&LockDesign::TwoLevel)) {
        for handovers in &args.handovers {
            bar.set_message(format!("at most {handovers} hand-overs on a host"));
            let lock = match LockDesign::TwoLevel.algorithm(&capabilities) {
                Some(AnyLock::TwoLevel(lock)) => lock.handovers(*handovers),
                other => return Err(format!("{other:?} hands nothing over on a host").into()),
            };
            measured.extend(load.measure(
                &AnyLock::TwoLevel(lock),
                LockDesign::TwoLevel.name(),
                (*origins, 0),
                Some(*handovers),
                false,
            ));
        }
    }
    bar.finish_and_clear();
    let mut document = Document::new(Machine::collect(), "sim", (begun, command()), &measured, sections());
    document.remarks = curves.iter().flat_map(Curve::remarks).collect();
    finish(&document, files, TITLE)
}

/// What a lock reached with more and more origins.
struct Curve {
    design: LockDesign,
    /// Origins, and acquisitions a second.
    points: Vec<(u32, f64)>,
    /// The first number of origins that it was not run with, and why.
    ended: Option<(u32, String)>,
}

impl Curve {
    const fn of(design: LockDesign) -> Self {
        Self { design, points: Vec::new(), ended: None }
    }

    fn best(&self) -> (u32, f64) {
        self.points.iter().copied().fold((0, 0.0), |best, point| if point.1 > best.1 { point } else { best })
    }

    /// Whether it is run with so many origins.
    fn goes_on(&mut self, origins: u32) -> bool {
        if let Some((from, _)) = self.ended {
            return origins < from;
        }
        let fewer = self.points.iter().filter(|(fewer, _)| *fewer < origins);
        let slow = fewer.max_by_key(|(fewer, _)| *fewer).filter(|(_, rate)| *rate < SCALES * self.best().1);
        let Some((with, _)) = slow else { return true };
        self.ended = Some((origins, format!("with {with} it has less than 1 % of its best rate")));
        false
    }

    fn add(&mut self, origins: u32, results: &[Measured]) {
        let rate =
            results.iter().find(|one| one.point.quantity == Quantity::Acquisitions).map_or(0.0, |one| one.value.median);
        self.points.push((origins, rate));
    }

    /// Where it stops scaling, and where it was not run.
    fn remarks(&self) -> Vec<String> {
        let (at, best) = self.best();
        let halved = self.points.iter().find(|(origins, rate)| *origins > at && *rate < best / 2.0);
        let scales = match halved {
            Some((origins, rate)) => {
                let part = match 100.0 * rate / best {
                    part if part < 1.0 => "less than 1 %".to_owned(),
                    part => format!("{part:.0} %"),
                };
                format!("{}: best with {at} origins; {part} of that with {origins}", self.design)
            }
            None => format!("{}: keeps at least half of its best rate", self.design),
        };
        let ended = self.ended.iter().map(|(from, why)| format!("{}: not run with {from} origins: {why}", self.design));
        Some(scales).filter(|_| self.points.len() > 1).into_iter().chain(ended).collect()
    }
}
