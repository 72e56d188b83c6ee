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

use crate::bench::results::description::Description;
use crate::bench::runner::suite::Suite;

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
    pub(crate) fn numbers(self, chosen: Option<u32>) -> Vec<u32> {
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
    pub(crate) fn has_curves(&self) -> bool {
        self.descriptions.iter().flat_map(|description| description.shown).any(|shown| shown.heading.is_some())
    }
}

#[cfg(test)]
mod tests {
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
}
