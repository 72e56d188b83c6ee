//! The document that `--json` writes. Its field names are stable.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::bench::results::description::Description;
use crate::bench::results::quantity::Quantity;
use crate::bench::results::report::{Against, Measured, Parameter};
use crate::info;

/// One run of `onesided bench`.
#[derive(Debug, Serialize)]
pub(crate) struct Document {
    pub(crate) machine: Machine,
    pub(crate) limits: Vec<Limit>,
    pub(crate) results: Vec<Row>,
    /// The texts of the plots.
    #[serde(skip)]
    pub(crate) descriptions: Vec<&'static Description>,
}

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

/// What bare instructions reach on this machine: the median, the smallest and the largest of all
/// runs.
#[derive(Debug, Serialize)]
pub(crate) struct Limit {
    /// The benchmark.
    pub(crate) name: String,
    /// As in [`Row`].
    pub(crate) size: Option<usize>,
    /// As in [`Row`].
    pub(crate) parameter: Option<Parameter>,
    /// The number of processes.
    pub(crate) ranks: u32,
    /// As in [`Row`].
    #[serde(rename = "metric")]
    pub(crate) quantity: Quantity,
    pub(crate) value: f64,
    /// As in [`Row`].
    pub(crate) unit: &'static str,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// A result: the median of all runs.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    /// The benchmark's name.
    pub(crate) benchmark: String,
    /// The lock of the window.
    pub(crate) algorithm: String,
    /// `shm`, `verbs`, `mixed` or `sim`.
    pub(crate) fabric: String,
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
    pub(crate) unit: &'static str,
    /// What bare instructions reach, in the same unit and measured interleaved with the result;
    /// `null` without a comparison.
    pub(crate) limit: Option<f64>,
    /// `value / limit`: lower is better for a latency, higher for all other metrics.
    pub(crate) ratio: Option<f64>,
    /// The smallest and the largest run.
    #[serde(skip)]
    pub(crate) range: (f64, f64),
}

impl Document {
    pub(crate) fn new(
        machine: Machine,
        fabric: &str,
        measured: &[Measured],
        descriptions: Vec<&'static Description>,
    ) -> Self {
        // A limit that was measured with several locks is listed once.
        let is_limit = |(i, one): &(usize, &Measured)| {
            let same = |other: &&Measured| {
                (&other.what, other.quantity, other.ranks, other.size) == (&one.what, one.quantity, one.ranks, one.size)
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
            descriptions,
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
    fn of(Measured { what, size, parameter, quantity, ranks, value, .. }: &Measured) -> Self {
        Self {
            name: what.clone(),
            size: *size,
            parameter: parameter.clone(),
            ranks: *ranks,
            quantity: *quantity,
            value: value.median,
            unit: quantity.unit(),
            min: value.min,
            max: value.max,
        }
    }
}

impl Row {
    fn of(result: &Measured, fabric: &str, measured: &[Measured]) -> Self {
        let Measured { what, size, parameter, quantity, ranks, value, against, lock } = result;
        let is_limit = |other: &&Measured| {
            other.against == Against::IsLimit
                && matches!(against, Against::Limit(name) if *name == other.what)
                && (other.quantity, other.ranks, other.size, &other.lock) == (*quantity, *ranks, *size, lock)
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
            quantity: *quantity,
            value: value.median,
            unit: quantity.unit(),
            limit,
            ratio: limit.filter(|limit| *limit > 0.0).map(|limit| value.median / limit),
            range: (value.min, value.max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::results::summary::Summary;

    #[test]
    fn results_find_their_own_limits() {
        let sized = |what: &str, size, ranks, value: f64, against| {
            let value = Summary { median: value, min: value, max: value };
            let lock = "mcs".to_owned();
            Measured {
                what: what.into(),
                size,
                parameter: None,
                quantity: Quantity::Latency,
                ranks,
                value,
                against,
                lock,
            }
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
        let Document { limits, results, .. } = Document::new(Machine::collect(), "shm", &all, Vec::new());
        assert_eq!((limits.len(), &*limits[0].name, limits[0].value), (2, "bare", 10.0), "each once");
        let ratios: Vec<_> = results.iter().map(|row| (row.limit, row.ratio)).collect();
        let expected =
            [(Some(10.0), Some(1.5)), (None, None), (None, None), (Some(20.0), Some(1.5)), (Some(20.0), Some(2.0))];
        assert_eq!(ratios, expected);
    }
}
