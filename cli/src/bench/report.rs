//! What a worker tells the program that started it: one JSON value a line.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::bench::spread::Spread;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Line {
    /// One of [`Suite::steps`](crate::bench::worker::Suite::steps) is done.
    Step,
    Measured(Measured),
}

/// A limit of the machine, or a result of ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// What was done.
    pub(crate) what: String,
    /// The bytes of one operation, where that was chosen.
    pub(crate) size: Option<usize>,
    /// Which point of a sweep it is.
    #[serde(default)]
    pub(crate) parameter: Option<Parameter>,
    pub(crate) metric: Metric,
    pub(crate) ranks: u32,
    pub(crate) value: Spread,
    /// The name of a result's limit, which is a [`Measured`] of the same metric, ranks and size; a limit has
    /// none.
    pub(crate) against: Against,
    /// The lock of the windows; whoever started the job knows it.
    #[serde(skip)]
    pub(crate) lock: String,
}

/// What a sweep goes over, and where in it a result lies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Parameter {
    /// `readers`, say.
    pub(crate) name: String,
    pub(crate) value: f64,
    /// `%`, `ns`, `1`.
    pub(crate) unit: String,
}

impl Parameter {
    pub(crate) fn new(name: &str, value: f64, unit: &str) -> Self {
        Self { name: name.to_owned(), value, unit: unit.to_owned() }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Against {
    /// It is a limit.
    IsLimit,
    /// The limit of this name.
    Limit(String),
    /// There is no limit to compare with on this fabric.
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Metric {
    /// Of one operation.
    #[serde(rename = "latency")]
    Latency,
    #[serde(rename = "bandwidth")]
    Bandwidth,
    /// Of one rank's operations.
    #[serde(rename = "message rate")]
    MessageRate,
    /// Of all ranks together.
    #[serde(rename = "acquisitions")]
    Acquisitions,
    /// The smallest rank's over the largest's.
    #[serde(rename = "smallest/largest share")]
    Share,
    /// Jain's index.
    #[serde(rename = "jain")]
    Jain,
    /// Of all waits, the value that half of them are at most.
    #[serde(rename = "p50")]
    P50,
    #[serde(rename = "p99")]
    P99,
    #[serde(rename = "p99.9")]
    P999,
    /// The largest of the ranks' own p99: who starves others has short waits, and many of them.
    #[serde(rename = "p99 of the rank served worst")]
    WorstP99,
    /// How many others had the lock at most between somebody's asking and having.
    #[serde(rename = "longest bypass")]
    LongestBypass,
    /// The same, of all but one in a thousand.
    #[serde(rename = "p99.9 bypass")]
    Bypass,
    /// Operations on the fabric.
    #[serde(rename = "operations")]
    Operations,
    /// Of a core's time, the part that was used.
    #[serde(rename = "cpu")]
    Cpu,
}

impl Metric {
    /// Its name in JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Bandwidth => "bandwidth",
            Self::MessageRate => "message rate",
            Self::Acquisitions => "acquisitions",
            Self::Share => "smallest/largest share",
            Self::Jain => "jain",
            Self::P50 => "p50",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
            Self::WorstP99 => "p99 of the rank served worst",
            Self::LongestBypass => "longest bypass",
            Self::Bypass => "p99.9 bypass",
            Self::Operations => "operations",
            Self::Cpu => "cpu",
        }
    }

    pub(crate) const fn unit(self) -> &'static str {
        match self {
            Self::Latency | Self::P50 | Self::P99 | Self::P999 | Self::WorstP99 => "ns",
            Self::Bandwidth => "GB/s",
            Self::MessageRate | Self::Acquisitions => "1/s",
            Self::Share | Self::Jain | Self::LongestBypass | Self::Bypass | Self::Operations | Self::Cpu => "1",
        }
    }
}

/// A rank's way to the program that started it; only rank 0 says anything.
#[derive(Debug)]
pub(crate) struct Reporter(Option<File>);

impl Reporter {
    pub(crate) fn open(path: Option<&Path>, rank: u32) -> io::Result<Self> {
        let open = |path| OpenOptions::new().append(true).open(path);
        Ok(Self(path.filter(|_| rank == 0).map(open).transpose()?))
    }

    pub(crate) fn say(&self, line: &Line) -> io::Result<()> {
        let Some(mut file) = self.0.as_ref() else { return Ok(()) };
        file.write_all((serde_json::to_string(line)? + "\n").as_bytes())
    }

    pub(crate) fn step(&self) -> io::Result<()> {
        self.say(&Line::Step)
    }
}
