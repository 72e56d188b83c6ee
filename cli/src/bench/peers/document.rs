//! The results of a run: the document that `--json` writes and `--from` reads. The field names stay.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::bench::json::Machine;
use crate::bench::report::Metric;
use crate::bench::spread::Spread;

/// Ourselves, and bare instructions, among [`Result::values`].
pub(crate) const OURS: &str = "onesided";
pub(crate) const LIMIT: &str = "limit";

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Document {
    pub(crate) machine: Machine,
    /// In seconds since 1970.
    pub(crate) begun: u64,
    pub(crate) command: String,
    /// Who was measured: we, and the others.
    pub(crate) programs: Vec<Program>,
    /// What was left out, and why.
    pub(crate) notes: Vec<String>,
    pub(crate) results: Vec<Result>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) version: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Result {
    pub(crate) benchmark: String,
    /// What it is drawn with.
    pub(crate) group: String,
    pub(crate) size: Option<u64>,
    pub(crate) ranks: u32,
    pub(crate) metric: Metric,
    pub(crate) unit: String,
    /// By program, and of [`LIMIT`].
    pub(crate) values: BTreeMap<String, Spread>,
    /// How many times as fast as each of the others we were, by runs; empty for shares.
    pub(crate) ratios: BTreeMap<String, Spread>,
}

impl Document {
    pub(crate) fn new(
        machine: Machine,
        begun: SystemTime,
        command: String,
        programs: Vec<Program>,
        notes: Vec<String>,
        results: Vec<Result>,
    ) -> Self {
        let begun = begun.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self { machine, begun, command, programs, notes, results }
    }

    /// We, the limit, the others, as far as there are any.
    pub(crate) fn names(&self) -> Vec<&str> {
        let has = |name: &&str| self.results.iter().any(|result| result.values.contains_key(*name));
        let others = self.programs.iter().map(|program| &*program.name).filter(|name| *name != OURS);
        [OURS, LIMIT].into_iter().chain(others).filter(has).collect()
    }
}

impl Result {
    /// Nobody's yet.
    pub(crate) fn new((benchmark, group): (&str, &str), size: Option<u64>, ranks: u32, metric: Metric) -> Self {
        Self {
            benchmark: benchmark.to_owned(),
            group: group.to_owned(),
            size,
            ranks,
            metric,
            unit: metric.unit().to_owned(),
            values: BTreeMap::new(),
            ratios: BTreeMap::new(),
        }
    }

    /// With everybody's runs, of which those of the same number were neighbours.
    pub(crate) fn with(mut self, runs: &[(&str, &[f64])]) -> Self {
        let ours = runs.iter().find(|(name, _)| *name == OURS).map(|(_, values)| *values);
        for (name, values) in runs {
            self.values.insert((*name).to_owned(), Spread::of(values));
            let Some(ours) = ours.filter(|_| *name != OURS && self.metric != Metric::Share) else { continue };
            let faster = |(ours, theirs): (&f64, &f64)| match self.metric {
                Metric::Latency => theirs / ours,
                _ => ours / theirs,
            };
            let ratios: Vec<_> = ours.iter().zip(*values).map(faster).filter(|ratio| ratio.is_finite()).collect();
            if !ratios.is_empty() {
                self.ratios.insert((*name).to_owned(), Spread::of(&ratios));
            }
        }
        self
    }

    /// With what it differs by from others of its name.
    pub(crate) fn label(&self) -> String {
        let size = self.size.map(|size| format!(", {}", crate::bench::units::size(size as usize)));
        let ranks = (self.ranks != 2 || self.metric == Metric::Acquisitions || self.metric == Metric::Share)
            .then(|| format!(", {} ranks", self.ranks));
        format!("{}{}{}", self.benchmark, size.unwrap_or_default(), ranks.unwrap_or_default())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn a_ratio_says_how_many_times_as_fast_we_were() {
        let runs = [(OURS, &[10.0, 20.0, 40.0][..]), ("other", &[20.0, 60.0, 40.0]), (LIMIT, &[5.0, 10.0, 20.0])];
        let slower = Result::new(("lock", "Locks"), None, 2, Metric::Latency).with(&runs);
        assert_eq!(slower.ratios["other"], Spread { median: 2.0, min: 1.0, max: 3.0 }, "neighbours are compared");
        assert_eq!(slower.ratios[LIMIT].median, 0.5);
        assert_eq!(slower.values[OURS].median, 20.0);
        let faster = Result::new(("put", "Bandwidth"), Some(8), 2, Metric::Bandwidth).with(&runs);
        assert_eq!(faster.ratios["other"].median, 0.5);
        assert!(!faster.ratios.contains_key(OURS));
        let fair = Result::new(("lock", "Locks"), None, 2, Metric::Share).with(&runs);
        assert!(fair.ratios.is_empty() && fair.values.len() == 3);
    }

    /// A stored run, as `--json` wrote it.
    pub(crate) fn stored() -> Document {
        serde_json::from_str(include_str!("../../../../docs/peers.json")).unwrap()
    }

    #[test]
    fn what_was_written_can_be_read() {
        let text = serde_json::to_string(&stored()).unwrap();
        let again: Document = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&again).unwrap(), text);
    }
}
