//! The statistics of repeated measurements.

use serde::{Deserialize, Serialize};

/// The median of several runs, and how far they lay apart.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// Of at least one value.
    pub(crate) fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Self { median: median(&sorted), min: sorted[0], max: sorted[sorted.len() - 1] }
    }
}

/// Of sorted values, at least one.
fn median(sorted: &[f64]) -> f64 {
    let (left, right) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
    f64::midpoint(left, right)
}

/// The smallest share over the largest: 1 is fair.
pub(crate) fn share(counts: &[f64]) -> f64 {
    let (min, max) =
        counts.iter().fold((f64::INFINITY, 0.0_f64), |(min, max), count| (min.min(*count), max.max(*count)));
    min / max.max(1.0)
}

/// Jain's index of fairness (Jain, Chiu, Hawe 1984): 1 where all have the same, 1/n where one has all.
pub(crate) fn jain(counts: &[f64]) -> f64 {
    let sum: f64 = counts.iter().sum();
    let squares: f64 = counts.iter().map(|count| count * count).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (counts.len() as f64 * squares) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_numbers() {
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Spread::of(&[4.0, 1.0]), Spread { median: 2.5, min: 1.0, max: 4.0 });
    }

    #[test]
    fn fairness_has_its_known_values() {
        assert_eq!((share(&[2.0, 2.0]), jain(&[2.0, 2.0])), (1.0, 1.0));
        assert_eq!((share(&[0.0, 5.0]), jain(&[0.0, 5.0])), (0.0, 0.5));
        assert_eq!((share(&[0.0, 0.0]), jain(&[0.0, 0.0])), (0.0, 1.0));
        assert!((jain(&[1.0, 2.0, 3.0]) - 36.0 / 42.0).abs() < 1e-12);
    }
}
