//! The document that `--json` writes. Its field names are stable.

use std::fs;
use std::ops::Deref;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use onesided_fabric::entries;
use onesided_windows::LockDesign;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::bench::results::description::Description;
use crate::bench::results::quantity::Quantity;
use crate::bench::results::report::{Against, Measured, Parameter, Point};
use crate::bench::results::{groups, unique};
use crate::failure::Failure;
use crate::info;

/// One run of `onesided bench`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Document {
    pub(crate) machine: Machine,
    /// In seconds since 1970.
    pub(crate) begun: u64,
    /// The command line of the run.
    pub(crate) command: String,
    pub(crate) limits: Vec<Limit>,
    pub(crate) results: Vec<Row>,
    /// What a reader has to know of the results: what was left out, and why.
    #[serde(default)]
    pub(crate) remarks: Vec<String>,
    /// What is shown of the results, in this order: a section each.
    #[serde(skip)]
    pub(crate) sections: Sections,
}

/// The titles and contents of the sections.
pub(crate) type Sections = Vec<(String, Vec<&'static Description>)>;

/// The machine of a run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    #[serde(flatten)]
    pub(crate) machine: info::Machine,
    /// The processor's name for itself; empty if the kernel does not report it.
    pub(crate) processor: String,
    /// Whether the processor reports a hypervisor.
    #[serde(default)]
    pub(crate) is_virtual: bool,
    /// The load average of the minute before the run. Results are noisy if it is well above 0.
    pub(crate) load: f64,
}

entries! {
    /// What a result is compared with.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub(crate) enum Comparison {
        /// What bare instructions reach on this machine.
        Limit => "limit",
        /// Bare instructions that do the same and that a result of the run beats by [`FAR`].
        Baseline => "baseline",
    }
    pub(crate) fn name;
}

/// A limit that is beaten so many times is none.
const FAR: f64 = 5.0;

/// What was measured: the median of all runs, of a result or of a limit.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Figure {
    /// The bytes of one operation; `null` if they do not vary.
    pub(crate) size: Option<usize>,
    /// The point of a sweep: `name` (`origins` or `readers`, for example), `value` and `unit`
    /// (`ns`, `%`, `1`); `null` without a sweep.
    pub(crate) parameter: Option<Parameter>,
    /// The number of processes.
    pub(crate) ranks: u32,
    /// The quantity's name.
    #[serde(rename = "metric")]
    pub(crate) quantity: Quantity,
    pub(crate) value: f64,
    /// `ns`, `GB/s` (10^9 bytes), `1/s`, `1`.
    pub(crate) unit: String,
    /// `min` and `max`.
    #[serde(flatten)]
    pub(crate) range: Option<Range>,
    /// What a result is compared with, and what a limit is: a limit, or a baseline; `null` without a
    /// comparison.
    #[serde(default)]
    pub(crate) comparison: Option<Comparison>,
    /// Whether there were more ranks than cores.
    #[serde(default)]
    pub(crate) oversubscribed: bool,
}

/// The smallest and the largest run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Range {
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// What bare instructions do on this machine.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Limit {
    /// The benchmark.
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) figure: Figure,
}

/// A result.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The benchmark's name.
    pub(crate) benchmark: String,
    /// The lock of the window.
    pub(crate) algorithm: String,
    /// `shm`, `verbs`, `mixed` or `sim`.
    pub(crate) fabric: String,
    #[serde(flatten)]
    pub(crate) figure: Figure,
    /// What bare instructions reach, in the same unit and measured interleaved with the result;
    /// `null` without a comparison.
    pub(crate) limit: Option<f64>,
    /// `value / limit`: lower is better for a latency, higher for all other metrics.
    pub(crate) ratio: Option<f64>,
    /// The name of that limit.
    #[serde(default)]
    pub(crate) compared_with: Option<String>,
    /// Whether the lock needs a core of its own at each target: a thread that polls serves it.
    #[serde(default)]
    pub(crate) needs_own_core: bool,
}

/// A figure with what else is known of it.
impl Deref for Limit {
    type Target = Figure;

    fn deref(&self) -> &Figure {
        &self.figure
    }
}

impl Deref for Row {
    type Target = Figure;

    fn deref(&self) -> &Figure {
        &self.figure
    }
}

impl Document {
    pub(crate) fn new(
        machine: Machine,
        fabric: &str,
        (begun, command): (SystemTime, String),
        measured: &[Measured],
        sections: Sections,
    ) -> Self {
        // A limit that was measured with several locks is listed once.
        let same = |one: &&Measured, other: &&Measured| (&other.point, other.ranks) == (&one.point, one.ranks);
        let (limits, results): (Vec<_>, Vec<_>) =
            measured.iter().partition(|measured| measured.point.against == Against::IsLimit);
        let mut document = Self {
            machine,
            begun: seconds(begun),
            command,
            limits: (groups(limits, same).iter())
                .map(|same| Limit { name: same[0].point.what.clone(), figure: Figure::of(same[0]) })
                .collect(),
            results: results.into_iter().map(|result| Row::of(result, fabric, measured)).collect(),
            remarks: Vec::new(),
            sections,
        };
        document.mark();
        document
    }

    /// Reads what an earlier run wrote.
    pub(crate) fn read(path: &Path, sections: Sections) -> Result<Self, Failure> {
        let mut document = Self { sections, ..read(path)? };
        document.mark();
        Ok(document)
    }

    /// Whether the time is virtual.
    pub(crate) fn is_simulated(&self) -> bool {
        self.results.iter().all(|row| row.fabric == "sim")
    }

    /// The locks, in the order of their first results.
    pub(crate) fn locks(&self) -> Vec<&str> {
        unique(self.results.iter().map(|row| &*row.algorithm))
    }

    /// Whether it is of locks. Else the lock of the windows matters to no result.
    pub(crate) fn is_of_locks(&self) -> bool {
        self.results.iter().any(|row| row.size.is_none() && self.description(&row.benchmark).is_some())
    }

    pub(crate) fn description(&self, benchmark: &str) -> Option<&'static Description> {
        let all = self.sections.iter().flat_map(|(_, descriptions)| descriptions);
        all.copied().find(|description| description.is_for(benchmark))
    }

    /// Sets the marks that depend on all results.
    fn mark(&mut self) {
        let is_far = |row: &&Row| {
            row.ratio.is_some_and(|ratio| if row.unit == "ns" { ratio * FAR <= 1.0 } else { ratio >= FAR })
        };
        let baselines: Vec<_> =
            self.results.iter().filter(is_far).map(|row| (row.compared_with.clone(), row.quantity)).collect();
        let comparison = |with: &Option<String>, quantity| {
            let is_baseline = with.is_some() && baselines.iter().any(|one| (&one.0, one.1) == (with, quantity));
            if is_baseline { Comparison::Baseline } else { Comparison::Limit }
        };
        let (cores, simulated) = (self.machine.machine.cores, self.is_simulated());
        let oversubscribed = |ranks: u32| ranks as usize > cores && !simulated;
        for row in &mut self.results {
            row.figure.comparison = row.limit.map(|_| comparison(&row.compared_with, row.quantity));
            row.figure.oversubscribed = oversubscribed(row.ranks);
            row.needs_own_core = !simulated
                && matches!(
                    row.algorithm.parse(),
                    Ok(LockDesign::DedicatedThread | LockDesign::DedicatedThreadPerWindow)
                );
        }
        for limit in &mut self.limits {
            limit.figure.comparison = Some(comparison(&Some(limit.name.clone()), limit.quantity));
            limit.figure.oversubscribed = oversubscribed(limit.ranks);
        }
    }
}

/// Since 1970.
pub(crate) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Reads a document that `--json` wrote.
pub(crate) fn read<D: DeserializeOwned>(path: &Path) -> Result<D, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::from(format!("{}: {error}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| failed(&error))?;
    serde_json::from_str(&text).map_err(|error| failed(&error))
}

impl Machine {
    pub(crate) fn collect() -> Self {
        let read = |file| fs::read_to_string(file).unwrap_or_default();
        let processor = read("/proc/cpuinfo");
        let is_flag = |line: &&str| line.starts_with("flags");
        let is_virtual =
            processor.lines().find(is_flag).is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
        let processor = processor.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let load = read("/proc/loadavg");
        Self {
            machine: info::Machine::collect(),
            processor: processor.map_or_else(String::new, |(_, name)| name.to_owned()),
            is_virtual,
            load: load.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0),
        }
    }
}

impl Figure {
    fn of(Measured { point, ranks, value, .. }: &Measured) -> Self {
        Self {
            size: point.size,
            parameter: point.parameter.clone(),
            ranks: *ranks,
            quantity: point.quantity,
            value: value.median,
            unit: point.quantity.unit().to_owned(),
            range: Some(Range { min: value.min, max: value.max }),
            comparison: None,
            oversubscribed: false,
        }
    }
}

impl Row {
    fn of(result: &Measured, fabric: &str, measured: &[Measured]) -> Self {
        let found = match &result.point.against {
            Against::Limit(name) => {
                let limit = Point { what: name.clone(), against: Against::IsLimit, ..result.point.clone() };
                let is_it =
                    |one: &&Measured| (&one.point, one.ranks, &one.lock) == (&limit, result.ranks, &result.lock);
                measured.iter().find(is_it)
            }
            _ => None,
        };
        let limit = found.map(|limit| limit.value.median);
        Self {
            benchmark: result.point.what.clone(),
            algorithm: result.lock.clone(),
            fabric: fabric.to_owned(),
            figure: Figure::of(result),
            limit,
            ratio: limit.filter(|limit| *limit > 0.0).map(|limit| result.value.median / limit),
            compared_with: found.map(|limit| limit.point.what.clone()),
            needs_own_core: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(what: &str, ranks: u32, quantity: Quantity, value: f64, against: Against) -> Measured {
        Point { against, ..Point::of(what, quantity) }.simulated("mcs", ranks, value)
    }

    fn document(all: &[Measured]) -> Document {
        Document::new(Machine::collect(), "shm", (UNIX_EPOCH, String::new()), all, Vec::new())
    }

    fn against() -> Against {
        Against::Limit("bare".into())
    }

    #[test]
    fn results_find_their_own_limits() {
        let measured = |what, ranks, value, against| measured(what, ranks, Quantity::Latency, value, against);
        let sized = |measured: Measured| Measured { point: measured.point.of_size(8), ..measured };
        let all = [
            measured("ours", 2, 15.0, against()),
            measured("ours", 4, 15.0, against()),
            measured("other", 2, 15.0, Against::Nothing),
            measured("bare", 2, 10.0, Against::IsLimit),
            sized(measured("ours", 2, 30.0, against())),
            sized(measured("bare", 2, 20.0, Against::IsLimit)),
            Measured { lock: "ticket".into(), ..measured("ours", 2, 40.0, against()) },
            Measured { lock: "ticket".into(), ..measured("bare", 2, 20.0, Against::IsLimit) },
        ];
        let Document { limits, results, .. } = document(&all);
        assert_eq!((limits.len(), &*limits[0].name, limits[0].value), (2, "bare", 10.0), "each once");
        let ratios: Vec<_> = results.iter().map(|row| (row.limit, row.ratio)).collect();
        let expected =
            [(Some(10.0), Some(1.5)), (None, None), (None, None), (Some(20.0), Some(1.5)), (Some(20.0), Some(2.0))];
        assert_eq!(ratios, expected);
    }

    #[test]
    fn what_is_beaten_by_far_is_a_baseline_at_every_number_of_ranks() {
        for (rate, comparison) in [(49.0, Comparison::Limit), (50.0, Comparison::Baseline)] {
            let all = [
                measured("ours", 2, Quantity::Acquisitions, 5.0, against()),
                measured("ours", 4, Quantity::Acquisitions, rate, against()),
                measured("ours", 2, Quantity::Latency, 10.0, against()),
                measured("bare", 2, Quantity::Acquisitions, 10.0, Against::IsLimit),
                measured("bare", 4, Quantity::Acquisitions, 10.0, Against::IsLimit),
                measured("bare", 2, Quantity::Latency, 10.0, Against::IsLimit),
            ];
            let document = document(&all);
            let found: Vec<_> = document.results.iter().map(|row| row.comparison).collect();
            assert_eq!(found, [Some(comparison), Some(comparison), Some(Comparison::Limit)], "{rate}");
            assert_eq!(document.limits[0].comparison, Some(comparison), "{rate}");
        }
    }

    #[test]
    fn more_ranks_than_cores_and_threads_that_poll_are_marked() {
        let of = |lock: &str, ranks| Measured {
            lock: lock.to_owned(),
            ..measured("ours", ranks, Quantity::Latency, 1.0, Against::Nothing)
        };
        let all = [of("mcs", 1), of("dedicated-thread-per-window", 1), of("event-thread", 100_000)];
        let document = document(&all);
        let marks: Vec<_> = document.results.iter().map(|row| (row.oversubscribed, row.needs_own_core)).collect();
        assert_eq!(marks, [(false, false), (false, true), (true, false)]);
    }

    #[test]
    fn a_written_document_can_be_read() {
        let text =
            serde_json::to_string(&document(&[measured("ours", 2, Quantity::P99, 1.5, Against::Nothing)])).unwrap();
        let again: Document = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&again).unwrap(), text);
        let without = text.replace(",\"min\":1.5,\"max\":1.5", "");
        let again: Document = serde_json::from_str(&without).unwrap();
        assert_eq!(again.results[0].range, None);
    }
}
