//! The results of a run: the document that `--json` writes and `--from` reads. Its field names are
//! stable.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::bench::output::json::Machine;
use crate::bench::results::quantity::Quantity;
use crate::bench::results::summary::Summary;

/// The names of this library and of bare instructions in [`Comparison::values`].
pub(crate) const OURS: &str = "onesided";
pub(crate) const LIMIT: &str = "limit";

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Document {
    pub(crate) machine: Machine,
    /// In seconds since 1970.
    pub(crate) begun: u64,
    pub(crate) command: String,
    /// This library and its peers.
    pub(crate) programs: Vec<Program>,
    /// What was left out, and why.
    pub(crate) notes: Vec<String>,
    pub(crate) results: Vec<Comparison>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) version: String,
}

/// The values of all programs in one benchmark.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Comparison {
    pub(crate) benchmark: String,
    /// Comparisons of a group are drawn together.
    pub(crate) group: String,
    pub(crate) size: Option<u64>,
    pub(crate) ranks: u32,
    #[serde(rename = "metric")]
    pub(crate) quantity: Quantity,
    pub(crate) unit: String,
    /// By program, and of [`LIMIT`].
    pub(crate) values: BTreeMap<String, Summary>,
    /// By peer and [`LIMIT`]: how many times as fast this library was, over the runs. Empty for
    /// shares.
    pub(crate) ratios: BTreeMap<String, Summary>,
}

impl Document {
    /// The programs with values: this library, the limit, the peers.
    pub(crate) fn names(&self) -> Vec<&str> {
        let has = |name: &&str| self.results.iter().any(|result| result.values.contains_key(*name));
        let others = self.programs.iter().map(|program| &*program.name).filter(|name| *name != OURS);
        [OURS, LIMIT].into_iter().chain(others).filter(has).collect()
    }
}

impl Comparison {
    /// Without values.
    pub(crate) fn new((benchmark, group): (&str, &str), size: Option<u64>, ranks: u32, quantity: Quantity) -> Self {
        Self {
            benchmark: benchmark.to_owned(),
            group: group.to_owned(),
            size,
            ranks,
            quantity,
            unit: quantity.unit().to_owned(),
            values: BTreeMap::new(),
            ratios: BTreeMap::new(),
        }
    }

    /// With the runs of all programs. Runs of the same number were measured next to one another.
    pub(crate) fn with(mut self, runs: &[(&str, &[f64])]) -> Self {
        let ours = runs.iter().find(|(name, _)| *name == OURS).map(|(_, values)| *values);
        for (name, values) in runs {
            self.values.insert((*name).to_owned(), Summary::of(values));
            let Some(ours) = ours.filter(|_| *name != OURS && self.quantity != Quantity::Share) else { continue };
            let ratio = |(ours, theirs): (&f64, &f64)| match self.quantity {
                Quantity::Latency => theirs / ours,
                _ => ours / theirs,
            };
            let ratios: Vec<_> = ours.iter().zip(*values).map(ratio).filter(|ratio| ratio.is_finite()).collect();
            if !ratios.is_empty() {
                self.ratios.insert((*name).to_owned(), Summary::of(&ratios));
            }
        }
        self
    }

    /// The benchmark with its size and ranks, as far as these vary.
    pub(crate) fn label(&self) -> String {
        let size = self.size.map(|size| format!(", {}", crate::bench::output::units::size(size as usize)));
        let ranks = (self.ranks != 2 || self.quantity == Quantity::Acquisitions || self.quantity == Quantity::Share)
            .then(|| format!(", {} ranks", self.ranks));
        format!("{}{}{}", self.benchmark, size.unwrap_or_default(), ranks.unwrap_or_default())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_how_many_times_as_fast_this_library_was() {
        let runs = [(OURS, &[10.0, 20.0, 40.0][..]), ("other", &[20.0, 60.0, 40.0]), (LIMIT, &[5.0, 10.0, 20.0])];
        let slower = Comparison::new(("lock", "Locks"), None, 2, Quantity::Latency).with(&runs);
        assert_eq!(
            slower.ratios["other"],
            Summary { median: 2.0, min: 1.0, max: 3.0 },
            "runs of the same number are compared"
        );
        assert_eq!(slower.ratios[LIMIT].median, 0.5);
        assert_eq!(slower.values[OURS].median, 20.0);
        let faster = Comparison::new(("put", "Bandwidth"), Some(8), 2, Quantity::Bandwidth).with(&runs);
        assert_eq!(faster.ratios["other"].median, 0.5);
        assert!(!faster.ratios.contains_key(OURS));
        let fair = Comparison::new(("lock", "Locks"), None, 2, Quantity::Share).with(&runs);
        assert!(fair.ratios.is_empty() && fair.values.len() == 3);
    }

    /// A stored run, as written by `--json`.
    pub(crate) fn stored() -> Document {
        serde_json::from_str(include_str!("../../../../docs/peers.json")).unwrap()
    }

    #[test]
    fn a_written_document_can_be_read() {
        let text = serde_json::to_string(&stored()).unwrap();
        let again: Document = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&again).unwrap(), text);
    }
}
