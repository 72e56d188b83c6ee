//! The statistics of repeated measurements.

use serde::{Deserialize, Serialize};

/// The median, the smallest and the largest of several runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Summary {
    /// Of at least one value.
    pub(crate) fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Self { median: middle(&sorted), min: sorted[0], max: sorted[sorted.len() - 1] }
    }
}

/// The median of at least one value.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    Summary::of(&values.into_iter().collect::<Vec<_>>()).median
}

/// Of sorted values, at least one.
fn middle(sorted: &[f64]) -> f64 {
    let (left, right) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
    f64::midpoint(left, right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_numbers() {
        assert_eq!(Summary::of(&[3.0, 1.0, 2.0]), Summary { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Summary::of(&[4.0, 1.0]), Summary { median: 2.5, min: 1.0, max: 4.0 });
    }
}
