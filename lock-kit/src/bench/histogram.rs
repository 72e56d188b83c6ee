//! Distributions of waits, and measures of fairness.

/// A histogram with a resolution of 1 %. Values above [`Histogram::MAX`] count as that.
///
/// ```
/// let mut waits = onesided_lock_kit::bench::Histogram::default();
/// (1..=100).for_each(|nanos| waits.add(nanos));
/// assert_eq!((waits.count(), waits.quantile(0.5), waits.largest()), (100, Some(50), 100));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram(hdrhistogram::Histogram<u64>);

impl Default for Histogram {
    fn default() -> Self {
        let empty = hdrhistogram::Histogram::new_with_max(Self::MAX, 2);
        Self(empty.expect("two digits up to this value are possible"))
    }
}

impl Histogram {
    /// In nanoseconds, 18 minutes.
    pub const MAX: u64 = (1 << 40) - 1;

    /// Adds a value.
    #[inline]
    pub fn add(&mut self, value: u64) {
        self.0.saturating_record(value);
    }

    /// The number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The largest value; 0 if there is none.
    #[must_use]
    pub fn largest(&self) -> u64 {
        self.0.max()
    }

    /// The quantile of `part`, from 0 to 1. `None` without values.
    #[must_use]
    pub fn quantile(&self, part: f64) -> Option<u64> {
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(part))
    }

    /// Adds the values of another histogram.
    pub fn merge(&mut self, other: &Self) {
        self.0 += &other.0;
    }

    /// The count of each bucket, for transfer to another process: the same number of words for
    /// every histogram.
    pub fn words(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter_all().map(|bucket| bucket.count_at_value())
    }

    /// The inverse of [`words`](Self::words). Missing words are 0.
    #[must_use]
    pub fn from_words(words: impl IntoIterator<Item = u64>) -> Self {
        let (buckets, mut all) = (Self::default(), Self::default());
        // A value that is recorded no times would count as the largest.
        for (bucket, count) in buckets.0.iter_all().zip(words).filter(|(_, count)| *count > 0) {
            all.0.saturating_record_n(bucket.value_iterated_to(), count);
        }
        all
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
    fn quantiles_are_those_of_the_values() {
        let mut all = Histogram::default();
        assert_eq!((all.quantile(0.5), all.largest()), (None, 0));
        (1..=1000).for_each(|value| all.add(value));
        for (part, value) in [(0.0, 1), (0.5, 500), (0.99, 990), (0.999, 999), (1.0, 1000)] {
            let found = all.quantile(part).unwrap();
            assert!(found.abs_diff(value) as f64 <= value as f64 / 100.0, "{part}: {found}");
        }
        assert!(all.count() == 1000 && all.largest().abs_diff(1000) < 10, "{}", all.largest());
        all.add(u64::MAX);
        assert_eq!(all.largest(), Histogram::MAX);
    }

    #[test]
    fn what_is_sent_and_merged_is_the_same() {
        let (mut low, mut high, mut both) = (Histogram::default(), Histogram::default(), Histogram::default());
        for value in 0..100 {
            low.add(value);
            high.add(value << 30);
            both.add(value);
            both.add(value << 30);
        }
        assert_eq!(high.words().count(), Histogram::default().words().count());
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
