//! Axes: the coordinates of values, and the ticks.

/// A scale from values to a coordinate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    kind: Kind,
    /// The smallest and the largest value.
    from: f64,
    to: f64,
    /// The coordinates of these.
    start: f64,
    end: f64,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    /// Ticks at multiples of this.
    Linear(f64),
    /// Ticks at powers of ten, and at 2 and 5 times these if there is room.
    Decimal,
}

/// The most ticks of an axis.
const TICKS: usize = 6;

impl Scale {
    /// From 0 to a round value above all values.
    pub(crate) fn linear(values: impl Iterator<Item = f64>, (start, end): (f64, f64)) -> Self {
        let max = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
        let max = if max > 0.0 { max } else { 1.0 };
        let step = round_up(max / (TICKS - 1) as f64);
        Self { kind: Kind::Linear(step), from: 0.0, to: step * (max / step - 1e-6).ceil(), start, end }
    }

    /// From a round value below to one above all values, by powers of ten.
    pub(crate) fn decimal(values: impl Iterator<Item = f64>, (start, end): (f64, f64)) -> Self {
        let (from, to) = extent(values);
        let (from, to) = (round_down(from), round_up(to));
        let (from, to) = if from < to { (from, to) } else { (round_down(from / 2.0), round_up(to * 2.0)) };
        Self { kind: Kind::Decimal, from, to, start, end }
    }

    /// The coordinate of a value. `None` if it is not a number, or needs a logarithm and has none.
    pub(crate) fn at(&self, value: f64) -> Option<f64> {
        let part = match self.kind {
            Kind::Linear(_) => value / self.to,
            _ if value > 0.0 => (value / self.from).ln() / (self.to / self.from).ln(),
            _ => return None,
        };
        let at = self.start + part * (self.end - self.start);
        at.is_finite().then_some(at)
    }

    /// Round values, in ascending order.
    pub(crate) fn ticks(&self) -> Vec<f64> {
        let within = |tick: &f64| (self.from * 0.999_999..=self.to * 1.000_001).contains(tick);
        match self.kind {
            Kind::Linear(step) => (0..TICKS).map(|tick| tick as f64 * step).filter(within).collect(),
            Kind::Decimal => {
                let decades = |step: i32| (-30..30).map(move |i| 10_f64.powi(i * step));
                let round = decades(1).flat_map(|decade| [1.0, 2.0, 5.0].map(|digit| digit * decade)).filter(within);
                let sparse = [1, 2, 3, 6, 12].map(|step| decades(step).filter(within).collect());
                std::iter::once(round.collect())
                    .chain(sparse)
                    .find(|ticks: &Vec<f64>| ticks.len() <= TICKS)
                    .unwrap_or_default()
            }
        }
    }
}

/// The smallest and the largest value that has a logarithm; 1 if none has.
fn extent(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let positive = values.filter(|value| value.is_finite() && *value > 0.0);
    let extent = positive.fold((f64::INFINITY, 0.0_f64), |(min, max), value| (min.min(value), max.max(value)));
    if extent.1 > 0.0 { extent } else { (1.0, 1.0) }
}

/// The largest of 1, 2, 5 times a power of ten that is not above a positive value.
fn round_down(value: f64) -> f64 {
    let decade = 10_f64.powi(value.log10().floor() as i32);
    let round = [0.5, 1.0, 2.0, 5.0, 10.0].map(|digit| digit * decade);
    round.into_iter().rfind(|round| *round <= value * 1.000_001).unwrap_or(decade)
}

/// The smallest of them that is not below it.
fn round_up(value: f64) -> f64 {
    let decade = 10_f64.powi(value.log10().floor() as i32);
    let round = [1.0, 2.0, 5.0, 10.0, 20.0].map(|digit| digit * decade);
    round.into_iter().find(|round| *round >= value * 0.999_999).unwrap_or(10.0 * decade)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(scale: Scale) -> Vec<f64> {
        let ticks = scale.ticks();
        assert!((2..=TICKS).contains(&ticks.len()), "{scale:?}: {ticks:?}");
        assert!(ticks.is_sorted_by(|a, b| a < b), "{ticks:?}");
        for tick in &ticks {
            let at = scale.at(*tick).unwrap();
            assert!((-0.01..=100.01).contains(&at), "{tick} at {at} of {scale:?}");
        }
        ticks
    }

    const RANGE: (f64, f64) = (0.0, 100.0);

    fn close(values: &[f64], expected: &[f64]) {
        let same = values.iter().zip(expected).all(|(a, b)| (a - b).abs() <= 1e-9 * b.abs());
        assert!(same && values.len() == expected.len(), "{values:?}, not {expected:?}");
    }

    #[test]
    fn linear_axes_begin_at_zero_and_end_above_the_largest_value() {
        close(&ticks(Scale::linear([3.0, 9.5].into_iter(), RANGE)), &[0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        close(&ticks(Scale::linear([0.97].into_iter(), RANGE)), &[0.0, 0.2, 0.4, 0.6, 0.8, 1.0]);
        for max in [1e-3, 0.12, 1.0, 1.3, 2.2, 3.1, 4.9, 6.5, 7.7, 12_345.0, 9.99e9] {
            let scale = Scale::linear([max].into_iter(), RANGE);
            assert!((50.0..=100.01).contains(&scale.at(max).unwrap()), "{scale:?}");
            ticks(scale);
        }
    }

    #[test]
    fn decimal_axes_hold_all_values() {
        close(&ticks(Scale::decimal([9.1, 386_412.0].into_iter(), RANGE)), &[10.0, 100.0, 1e3, 1e4, 1e5]);
        close(&ticks(Scale::decimal([3.0, 41.0].into_iter(), RANGE)), &[2.0, 5.0, 10.0, 20.0, 50.0]);
        close(&ticks(Scale::decimal([10.0].into_iter(), RANGE)), &[5.0, 10.0, 20.0]);
        for (min, max) in [(1e-3, 1e9), (0.3, 0.31), (1.0, 10.0), (9.99, 1001.0), (1e-9, 1e15), (1.5, 150.0)] {
            let scale = Scale::decimal([min, max].into_iter(), RANGE);
            assert!(scale.at(min).unwrap() >= -0.01 && scale.at(max).unwrap() <= 100.01, "{scale:?}");
            ticks(scale);
        }
    }

    #[test]
    fn values_without_a_coordinate_have_none() {
        let scale = Scale::decimal([0.0, f64::NAN, f64::INFINITY, -1.0].into_iter(), RANGE);
        assert_eq!([0.0, -1.0, f64::NAN, f64::INFINITY].map(|value| scale.at(value)), [None; 4]);
        ticks(scale);
        let scale = Scale::linear([0.0, f64::NAN].into_iter(), RANGE);
        assert_eq!((scale.at(0.0), scale.at(f64::NAN)), (Some(0.0), None));
        ticks(scale);
    }
}
