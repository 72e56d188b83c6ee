//! The metrics of `bench locks`, one module each; `sweep` is what some of them share.
//!
//! A new metric is a file that declares a [`LockMetric`], its `mod` line, a line in
//! [`LOCK_METRICS`], and one in `POINTS` of `cli/tests/processes/bench.rs`.
//! `--metric` and its help, the jobs, `bench worker`, the progress bar and the plots' texts follow
//! from that table; JSON and the page follow from the
//! [quantities](crate::bench::results::quantity) that a metric reports. Its descriptions say which
//! of these the terminal shows.

mod concurrency;
mod contended;
mod cpu;
mod delay;
mod operations;
mod overhead;
mod readers;
mod recovery;
mod section;
mod sweep;
mod wait;
mod wake;
mod zipf;

use std::process::ExitCode;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use crate::bench::lock_choice::{self, Locks};
use crate::bench::output::json::Sections;
use crate::bench::results::description::Description;
use crate::bench::results::unique;
use crate::bench::runner::suite::Suite;
use crate::bench::runner::{self, Job, Options};
use crate::failure::Failure;

/// Measures locks and small operations between processes of this host, beside what bare
/// instructions can do.
///
/// First without contention: one rank locks, puts, gets and swaps, at its own window memory and at
/// a peer's, also while the peer computes. Then all ranks contend for one lock. The limits of the
/// machine (compare-and-swap locks, the same algorithms by bare instructions, a shared pthread
/// mutex, stores, memcpy) are measured interleaved with the results, by the same processes.
/// Uncontended, every lock is compared with a bare compare-and-swap lock, whatever its own
/// algorithm. Contended, it is compared with the same algorithm (fetch-add-queue: a bare ticket
/// lock), or with nothing if there is no bare one. What a result beats fivefold is no limit and is
/// called a baseline. --metric measures more. Each rank is kept on one
/// core. Every figure is the median of 7 runs (--quick: 3). The benchmark assumes an otherwise idle
/// machine.
#[derive(Debug, clap::Args)]
#[command(after_help = runner::help())]
pub(crate) struct Args {
    /// How many ranks [default: 2, and contended 2, 4 and 8]; some metrics always have their own
    /// number
    #[arg(short = 'n', long = "ranks", visible_alias = "np", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ranks: Option<u32>,

    /// Which locks, by name, or all; several, with commas between them, have a row each
    #[arg(long = "lock", value_name = "NAME", value_delimiter = ',', default_value = "test-and-set", value_parser = lock_choice::parse)]
    locks: Vec<Locks>,

    /// What is measured; several with commas between them
    #[arg(
        long = "metric",
        value_name = "METRIC",
        value_delimiter = ',',
        default_value = "overhead,contended",
        value_parser = metric_parser()
    )]
    metrics: Vec<Metrics>,

    #[command(flatten)]
    options: Options,
}

/// One metric, or all of them.
#[derive(Debug, Clone)]
struct Metrics(Vec<&'static LockMetric>);

const ALL: &str = "all";

/// A former name, which works still, and the metric's name: it counts operations, not messages.
const FORMER: (&str, &str) = ("messages", "operations");

/// Parses a name of [`LOCK_METRICS`].
fn metric_parser() -> impl TypedValueParser<Value = Metrics> {
    let each = LOCK_METRICS.iter().map(|metric| {
        let value = PossibleValue::new(metric.name).help(metric.help);
        if metric.name == FORMER.1 { value.alias(FORMER.0) } else { value }
    });
    let all = PossibleValue::new(ALL).help("All of these");
    PossibleValuesParser::new(each.chain([all])).map(|name| {
        let name = if name == FORMER.0 { FORMER.1 } else { &name };
        let chosen = LOCK_METRICS.iter().copied().filter(|metric| name == ALL || name == metric.name);
        Metrics(chosen.collect())
    })
}

pub(crate) fn start(args: &Args) -> Result<ExitCode, Failure> {
    let locks = lock_choice::unique(&args.locks);
    let metrics = || args.metrics.iter().flat_map(|metrics| &metrics.0).copied();
    if args.options.measures() && args.options.wants_picture() && !metrics().any(LockMetric::has_curves) {
        return Err(no_curves().into());
    }
    let jobs = metrics().flat_map(|metric| metric.jobs);
    let suites =
        unique(jobs.flat_map(|(suite, ranks)| ranks.numbers(args.ranks).into_iter().map(move |ranks| (suite, ranks))));
    // The same suite with each lock, directly after one another.
    let jobs: Vec<Job> =
        suites.iter().flat_map(|(suite, ranks)| locks.iter().map(|lock| (*suite, *ranks, *lock))).collect();
    runner::run("onesided bench locks", &args.options, &jobs, sections())
}

/// What is shown: a section for each metric.
pub(crate) fn sections() -> Sections {
    let section = |metric: &&'static LockMetric| {
        (format!("{}: {}", metric.name, metric.help), metric.descriptions.iter().collect())
    };
    LOCK_METRICS.iter().map(section).collect()
}

/// Tells which metrics `--picture` can draw.
fn no_curves() -> String {
    let drawn: Vec<_> = LOCK_METRICS.iter().filter(|metric| metric.has_curves()).map(|metric| metric.name).collect();
    format!("{}; {} have, and `bench scale`", runner::NO_CURVES, drawn.join(", "))
}

/// All metrics, in the order of the help.
pub(crate) static LOCK_METRICS: &[&LockMetric] = &[
    &overhead::METRIC,
    &contended::METRIC,
    &wait::METRIC,
    &delay::METRIC,
    &wake::METRIC,
    &concurrency::METRIC,
    &operations::METRIC,
    &cpu::METRIC,
    &readers::METRIC,
    &section::METRIC,
    &zipf::METRIC,
    &recovery::METRIC,
];

/// What `bench locks --metric NAME` measures.
#[derive(Debug)]
pub(crate) struct LockMetric {
    pub(crate) name: &'static str,
    /// The line in `--help`.
    pub(crate) help: &'static str,
    pub(crate) jobs: &'static [(Suite, Ranks)],
    /// What the terminal shows, and the texts of its plots.
    pub(crate) descriptions: &'static [Description],
}

/// By how many ranks a suite is measured: one job for each number.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ranks {
    /// The number that `--ranks` gives, or these.
    Default(&'static [u32]),
    /// These, whatever `--ranks` says.
    Always(&'static [u32]),
    /// Two origins, and a target if there is a core for it.
    TwoOrigins,
}

impl Ranks {
    fn numbers(self, chosen: Option<u32>) -> Vec<u32> {
        match (self, chosen) {
            (Self::Default(_), Some(chosen)) => vec![chosen],
            (Self::Default(numbers) | Self::Always(numbers), _) => numbers.to_vec(),
            (Self::TwoOrigins, _) => {
                let cores = std::thread::available_parallelism().map_or(1, usize::from);
                vec![if cores > 2 { 3 } else { 2 }]
            }
        }
    }
}

impl LockMetric {
    /// Whether some of its plots are in the picture.
    fn has_curves(&self) -> bool {
        self.descriptions.iter().flat_map(|description| description.shown).any(|shown| shown.heading.is_some())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = LOCK_METRICS.iter().map(|metric| metric.name).collect();
        let mut suites: Vec<_> =
            LOCK_METRICS.iter().flat_map(|metric| metric.jobs).map(|(suite, _)| suite.name).collect();
        for names in [&mut names, &mut suites] {
            let all = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), all, "{names:?}");
        }
    }

    #[test]
    fn every_metric_shows_something_on_a_terminal() {
        for metric in LOCK_METRICS {
            let shown = metric.descriptions.iter().flat_map(|description| description.shown).count();
            assert!(shown > 0, "{}", metric.name);
        }
    }

    #[test]
    fn the_number_of_ranks_is_chosen_where_it_can_be() {
        assert_eq!(Ranks::Default(&[2, 4]).numbers(None), [2, 4]);
        assert_eq!(Ranks::Default(&[2, 4]).numbers(Some(3)), [3]);
        assert_eq!(Ranks::Always(&[6]).numbers(Some(3)), [6]);
    }

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn a_metric_has_its_former_name_still() {
        let names = |metric: &str| {
            let line = Line::try_parse_from(["locks", "--metric", metric]).unwrap();
            let metrics = line.args.metrics.iter().flat_map(|metrics| &metrics.0);
            metrics.map(|metric| metric.name).collect::<Vec<_>>()
        };
        assert_eq!(names("messages,operations,wake"), ["operations", "operations", "wake"]);
        assert_eq!(names(ALL).len(), LOCK_METRICS.len());
    }
}
