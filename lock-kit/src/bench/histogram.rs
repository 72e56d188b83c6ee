//! Distributions of waits, and measures of fairness.

/// A histogram with a resolution of 3 %: each power of two has [`Histogram::PARTS`] buckets.
///
/// ```
/// let mut waits = onesided_lock_kit::bench::Histogram::default();
/// (1..=100).for_each(|nanos| waits.add(nanos));
/// assert_eq!((waits.count(), waits.quantile(0.5), waits.largest()), (100, Some(50), 100));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    buckets: Vec<u64>,
    largest: u64,
}

/// The logarithm to base 2 of the buckets of a power of two.
const BITS: u32 = 5;

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: vec![0; Self::BUCKETS], largest: 0 }
    }
}

impl Histogram {
    /// Buckets of each power of two.
    pub const PARTS: u64 = 1 << BITS;
    /// The number of buckets.
    pub const BUCKETS: usize = ((64 - BITS as usize) + 1) << BITS;

    /// Adds a value.
    #[inline]
    pub fn add(&mut self, value: u64) {
        self.buckets[Self::bucket(value)] += 1;
        self.largest = self.largest.max(value);
    }

    /// The number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The largest value; 0 if there is none.
    #[must_use]
    pub const fn largest(&self) -> u64 {
        self.largest
    }

    /// The quantile of `part`, from 0 to 1: the middle of its bucket. `None` without values.
    #[must_use]
    pub fn quantile(&self, part: f64) -> Option<u64> {
        let wanted = ((self.count() as f64 * part).ceil() as u64).max(1);
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        Some(Self::middle(bucket).min(self.largest))
    }

    /// Adds the values of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.largest = self.largest.max(other.largest);
    }

    /// The count of each bucket, then the largest value, for transfer to another process.
    pub fn words(&self) -> impl Iterator<Item = u64> + '_ {
        self.buckets.iter().copied().chain([self.largest])
    }

    /// The inverse of [`words`](Self::words). Missing words are 0.
    #[must_use]
    pub fn from_words(words: impl IntoIterator<Item = u64>) -> Self {
        let mut words = words.into_iter();
        let buckets = (0..Self::BUCKETS).map(|_| words.next().unwrap_or(0)).collect();
        Self { buckets, largest: words.next().unwrap_or(0) }
    }

    const fn bucket(value: u64) -> usize {
        if value < Self::PARTS {
            return value as usize;
        }
        let power = 63 - value.leading_zeros();
        let part = (value >> (power - BITS)) & (Self::PARTS - 1);
        (((power - BITS + 1) as u64) << BITS | part) as usize
    }

    const fn middle(bucket: usize) -> u64 {
        let (power, part) = ((bucket >> BITS) as u32, bucket as u64 & (Self::PARTS - 1));
        if power == 0 {
            return part;
        }
        let width = 1 << (power - 1);
        ((Self::PARTS + part) << (power - 1)) + width / 2
    }
}

/// The smallest count over the largest. 1 is fair, also for an empty list; 0 if all counts are 0.
#[must_use]
pub fn share(counts: &[f64]) -> f64 {
    if counts.is_empty() {
        return 1.0;
    }
    let (min, max) =
        counts.iter().fold((f64::INFINITY, 0.0_f64), |(min, max), count| (min.min(*count), max.max(*count)));
    if max > 0.0 { min / max } else { 0.0 }
}

/// Jain's index of fairness (Jain, Chiu, Hawe 1984): 1 if all counts are equal or there are none,
/// 1/n if one has all.
#[must_use]
pub fn jain(counts: &[f64]) -> f64 {
    let sum: f64 = counts.iter().sum();
    let squares: f64 = counts.iter().map(|count| count * count).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (counts.len() as f64 * squares) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_as_narrow_as_said() {
        let mut last = 0;
        for power in 0..64 {
            for value in [1_u64 << power, (1 << power) + (1 << power) / 3, (1 << power) - 1 + (1 << power)] {
                let bucket = Histogram::bucket(value);
                assert!(bucket >= last && bucket < Histogram::BUCKETS, "{value}: {bucket} after {last}");
                let middle = Histogram::middle(bucket);
                assert!(middle.abs_diff(value) as f64 <= value as f64 / 32.0, "{value}: {middle}");
                last = bucket;
            }
        }
        assert_eq!(Histogram::bucket(u64::MAX), Histogram::BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_those_of_the_values() {
        let mut all = Histogram::default();
        assert_eq!(all.quantile(0.5), None);
        (1..=1000).for_each(|value| all.add(value));
        for (part, value) in [(0.0, 1), (0.5, 500), (0.99, 990), (0.999, 999), (1.0, 1000)] {
            let found = all.quantile(part).unwrap();
            assert!(found.abs_diff(value) as f64 <= value as f64 / 32.0, "{part}: {found}");
        }
        assert_eq!((all.count(), all.largest()), (1000, 1000));
    }

    #[test]
    fn what_is_sent_and_merged_is_the_same() {
        let (mut low, mut high, mut both) = (Histogram::default(), Histogram::default(), Histogram::default());
        for value in 0..100 {
            low.add(value);
            high.add(value << 40);
            both.add(value);
            both.add(value << 40);
        }
        low.merge(&Histogram::from_words(high.words()));
        assert_eq!(low, both);
    }

    #[test]
    fn fairness_has_its_known_values() {
        assert_eq!((share(&[2.0, 2.0]), jain(&[2.0, 2.0])), (1.0, 1.0));
        assert_eq!((share(&[0.0, 5.0]), jain(&[0.0, 5.0])), (0.0, 0.5));
        assert_eq!((share(&[0.0, 0.0]), jain(&[0.0, 0.0])), (0.0, 1.0));
        assert_eq!((share(&[]), jain(&[])), (1.0, 1.0));
        assert_eq!(share(&[0.1, 0.5]), 0.2);
        assert!((jain(&[1.0, 2.0, 3.0]) - 36.0 / 42.0).abs() < 1e-12);
    }
}
