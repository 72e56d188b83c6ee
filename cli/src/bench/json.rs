//! The results for programs: the document that `--json` writes. The field names stay.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::bench::report::{Against, Measured, Parameter};
use crate::info;

/// One run of `onesided bench`.
#[derive(Debug, Serialize)]
pub(crate) struct Document {
    pub(crate) machine: Machine,
    pub(crate) limits: Vec<Limit>,
    pub(crate) results: Vec<Row>,
}

/// What it ran on.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    #[serde(flatten)]
    pub(crate) machine: info::Machine,
    /// As the processor calls itself; empty where the kernel does not say.
    pub(crate) processor: String,
    /// Whether the processor says that it is a virtual machine's.
    #[serde(default)]
    pub(crate) is_virtual: bool,
    /// Of the minute before the run: runnable threads. Well above 0, and the results are worth less.
    pub(crate) load: f64,
}

/// What bare instructions do on this machine: the median of all runs, the smallest and the largest.
#[derive(Debug, Serialize)]
pub(crate) struct Limit {
    /// What was measured.
    pub(crate) name: String,
    /// As in [`Row`].
    pub(crate) size: Option<usize>,
    /// As in [`Row`].
    pub(crate) parameter: Option<Parameter>,
    /// How many processes were there.
    pub(crate) ranks: u32,
    /// As in [`Row`].
    pub(crate) metric: &'static str,
    pub(crate) value: f64,
    /// As in [`Row`].
    pub(crate) unit: &'static str,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// A result: the median of all runs.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    /// What was measured.
    pub(crate) benchmark: String,
    /// The lock of the window.
    pub(crate) algorithm: String,
    /// `shm`, `verbs`, `mixed` or `sim`.
    pub(crate) fabric: String,
    /// The bytes of one operation; `null` where there is no size to choose.
    pub(crate) size: Option<usize>,
    /// Of one point of a sweep: `name` of what it goes over (`held for`, `origins`, `computing threads`, `pairs`, `readers`,
    /// `section`, `skew`), `value` and `unit` (`ns`, `%`, `1`); `null` of what is no sweep.
    pub(crate) parameter: Option<Parameter>,
    /// How many processes were there.
    pub(crate) ranks: u32,
    /// `latency`, `bandwidth`, `message rate`, `acquisitions` (all ranks' together), `smallest/largest share`, `jain` (index of
    /// fairness), `p50`, `p99`, `p99.9` (of all waits), `p99 of the rank served worst`, `longest bypass`, `p99.9 bypass` (how many others had the lock between
    /// somebody's asking and having), `operations` (on the fabric), `cpu` (of a core's time).
    pub(crate) metric: &'static str,
    pub(crate) value: f64,
    /// `ns`, `GB/s` (10^9 bytes), `1/s`, `1`.
    pub(crate) unit: &'static str,
    /// What bare instructions reach, in the same unit and measured in turns with it; `null` where there is nothing to
    /// compare with.
    pub(crate) limit: Option<f64>,
    /// `value / limit`: lower is better for a latency, higher for all else.
    pub(crate) ratio: Option<f64>,
    /// For people alone.
    #[serde(skip)]
    pub(crate) range: (f64, f64),
}

impl Document {
    pub(crate) fn new(machine: Machine, fabric: &str, measured: &[Measured]) -> Self {
        // What was measured beside several locks stands there once.
        let is_limit = |(i, one): &(usize, &Measured)| {
            let same = |other: &&Measured| {
                (&other.what, other.metric, other.ranks, other.size) == (&one.what, one.metric, one.ranks, one.size)
                    && (other.against == Against::IsLimit && other.parameter == one.parameter)
            };
            one.against == Against::IsLimit && !measured[..*i].iter().any(|other| same(&other))
        };
        let limits = measured.iter().enumerate().filter(is_limit).map(|(_, limit)| limit);
        let results = measured.iter().filter(|measured| measured.against != Against::IsLimit);
        Self {
            machine,
            limits: limits.map(Limit::of).collect(),
            results: results.map(|result| Row::of(result, fabric, measured)).collect(),
        }
    }
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

impl Limit {
    fn of(Measured { what, size, parameter, metric, ranks, value, .. }: &Measured) -> Self {
        Self {
            name: what.clone(),
            size: *size,
            parameter: parameter.clone(),
            ranks: *ranks,
            metric: metric.name(),
            value: value.median,
            unit: metric.unit(),
            min: value.min,
            max: value.max,
        }
    }
}

impl Row {
    fn of(result: &Measured, fabric: &str, measured: &[Measured]) -> Self {
        let Measured { what, size, parameter, metric, ranks, value, against, lock } = result;
        let is_limit = |other: &&Measured| {
            other.against == Against::IsLimit
                && matches!(against, Against::Limit(name) if *name == other.what)
                && (other.metric, other.ranks, other.size, &other.lock) == (*metric, *ranks, *size, lock)
                && other.parameter == *parameter
        };
        let limit = measured.iter().find(is_limit).map(|limit| limit.value.median);
        Self {
            benchmark: what.clone(),
            algorithm: lock.clone(),
            fabric: fabric.to_owned(),
            size: *size,
            parameter: parameter.clone(),
            ranks: *ranks,
            metric: metric.name(),
            value: value.median,
            unit: metric.unit(),
            limit,
            ratio: limit.filter(|limit| *limit > 0.0).map(|limit| value.median / limit),
            range: (value.min, value.max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::Metric;
    use crate::bench::spread::Spread;

    #[test]
    fn results_find_their_own_limits() {
        let sized = |what: &str, size, ranks, value: f64, against| {
            let value = Spread { median: value, min: value, max: value };
            let lock = "mcs".to_owned();
            Measured { what: what.into(), size, parameter: None, metric: Metric::Latency, ranks, value, against, lock }
        };
        let measured = |what: &str, ranks, value, against| sized(what, None, ranks, value, against);
        let against = || Against::Limit("bare".into());
        let all = [
            measured("ours", 2, 15.0, against()),
            measured("ours", 4, 15.0, against()),
            measured("other", 2, 15.0, Against::Nothing),
            measured("bare", 2, 10.0, Against::IsLimit),
            sized("ours", Some(8), 2, 30.0, against()),
            sized("bare", Some(8), 2, 20.0, Against::IsLimit),
            Measured { lock: "ticket".into(), ..measured("ours", 2, 40.0, against()) },
            Measured { lock: "ticket".into(), ..measured("bare", 2, 20.0, Against::IsLimit) },
        ];
        let Document { limits, results, .. } = Document::new(Machine::collect(), "shm", &all);
        assert_eq!((limits.len(), &*limits[0].name, limits[0].value), (2, "bare", 10.0), "each once");
        let ratios: Vec<_> = results.iter().map(|row| (row.limit, row.ratio)).collect();
        let expected =
            [(Some(10.0), Some(1.5)), (None, None), (None, None), (Some(20.0), Some(1.5)), (Some(20.0), Some(2.0))];
        assert_eq!(ratios, expected);
    }
}
