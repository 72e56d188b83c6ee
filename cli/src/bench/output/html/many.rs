//! Plots of several locks: a curve for each, or a mark for each on a row for each benchmark. Locks
//! differ by more than colour.

use crate::bench::output::html::scale::Scale;
use crate::bench::output::html::svg;
use crate::bench::output::units::rounded;

/// The width of a plot, in units of the picture: about the pixels of a phone.
pub(crate) const WIDTH: f64 = 360.0;

/// A plot with its height and its text for screen readers.
pub(crate) struct Plot {
    pub(crate) content: String,
    pub(crate) height: f64,
    pub(crate) alt_text: String,
}

impl Plot {
    /// As a picture of its own. `id` is unique on the page.
    pub(crate) fn picture(&self, id: &str, title: &str) -> String {
        svg::picture(id, (WIDTH, self.height), (title, &self.alt_text), &self.content)
    }
}
/// The height of a row of the legend.
const LEGEND: f64 = 17.0;
/// Values whose ratio is larger than this are drawn on a logarithmic axis.
const FAR: f64 = 20.0;

/// A lock's values at the points of an axis, each with its limit.
#[derive(Debug, Clone, Default)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<Point>,
}

/// The index on the axis, the median, the smallest and the largest value, the limit.
pub(crate) type Point = (usize, f64, (f64, f64), Option<f64>);

/// The colour and mark of the n-th lock. `page.css` has the colours.
#[derive(Clone, Copy)]
struct Style(usize);

impl Style {
    const COLOURS: usize = 8;
    /// Not the same number, so that locks of the same colour have different marks.
    const MARKS: usize = 10;

    fn class(self, what: &str) -> String {
        format!("s{}{what}", self.0 % Self::COLOURS)
    }

    /// A disc, triangles on their bases and tips, a diamond or a square, filled or empty.
    fn mark(self, (x, y): (f64, f64)) -> String {
        let kind = self.0 % Self::MARKS;
        let class = self.class(if kind < 5 { "" } else { " empty" });
        match kind {
            0 | 5 => svg::circle(&class, (x, y), 3.5),
            1 | 7 => svg::path(
                &class,
                [(x - 4.5, y + 3.5), (x, y - 4.5), (x + 4.5, y + 3.5), (x - 4.5, y + 3.5)].into_iter(),
            ),
            2 | 8 => {
                svg::path(&class, [(x - 4.5, y), (x, y - 4.5), (x + 4.5, y), (x, y + 4.5), (x - 4.5, y)].into_iter())
            }
            3 | 9 => svg::path(
                &class,
                [(x - 4.5, y - 3.5), (x, y + 4.5), (x + 4.5, y - 3.5), (x - 4.5, y - 3.5)].into_iter(),
            ),
            _ => svg::rect(&class, (x - 3.0, y - 3.0), (6.0, 6.0)),
        }
    }
}

/// A curve for each series over evenly spaced points, and its limit, dashed, in the same colour.
pub(crate) fn curves((axis, points): (&str, &[String]), unit: &str, all: &[Series]) -> Plot {
    const AREA: f64 = 170.0;
    let (legend, top) = legend(all);
    let (left, right, bottom) = (62.0, WIDTH - 20.0, top + AREA);
    let values = || {
        all.iter().flat_map(|series| &series.points).flat_map(|(_, value, _, limit)| [Some(*value), *limit]).flatten()
    };
    let y = scale(values, (bottom, top));
    let x = |at: usize| left + (right - left) * (at as f64 + 0.5) / points.len().max(1) as f64;

    let mut content = legend;
    for tick in y.ticks() {
        let Some(at) = y.at(tick) else { continue };
        content += &svg::line("grid", (left, at), (right, at));
        content += &svg::text("end", (left - 6.0, at + 4.0), rounded(tick, unit));
    }
    for (at, name) in points.iter().enumerate() {
        content += &svg::line("grid", (x(at), bottom), (x(at), top));
        content += &svg::text("middle", (x(at), bottom + 16.0), name);
    }
    content += &svg::line("axis", (left, bottom), (right, bottom));
    content += &svg::text("middle", (f64::midpoint(left, right), bottom + 34.0), axis);
    for (number, series) in all.iter().enumerate() {
        let style = Style(number);
        let place = |at: usize, value: f64| Some((x(at), y.at(value)?.clamp(top, bottom)));
        let limits: Vec<_> = series.points.iter().filter_map(|(at, .., limit)| place(*at, (*limit)?)).collect();
        if limits.len() > 1 {
            content += &svg::path(&style.class("-limit"), limits.into_iter());
        }
        let results: Vec<_> = series.points.iter().filter_map(|(at, value, ..)| place(*at, *value)).collect();
        for (at, _, (min, max), _) in &series.points {
            if let (Some(min), Some(max)) = (place(*at, *min), place(*at, *max)) {
                content += &svg::line(&style.class("-range"), min, max);
            }
        }
        if results.len() > 1 {
            content += &svg::path(&style.class("-line"), results.iter().copied());
        }
        content += &results.into_iter().map(|place| style.mark(place)).collect::<String>();
    }
    Plot { content, height: bottom + 40.0, alt_text: alt_text(points, unit, all) }
}

/// A row for each benchmark with a mark for each lock, and a bar for what bare instructions reach.
pub(crate) fn rows(labels: &[String], unit: &str, all: &[Series]) -> Plot {
    const ROW: f64 = 34.0;
    let (legend, top) = legend(all);
    let (left, right, bottom) = (10.0, WIDTH - 24.0, top + ROW * labels.len() as f64);
    let values = || {
        all.iter().flat_map(|series| &series.points).flat_map(|(_, value, _, limit)| [Some(*value), *limit]).flatten()
    };
    let x = scale(values, (left, right));
    let mut content = legend;
    for tick in x.ticks() {
        let Some(at) = x.at(tick) else { continue };
        content += &svg::line("grid", (at, top), (at, bottom));
        content += &svg::text("middle", (at, bottom + 16.0), rounded(tick, unit));
    }
    for (number, label) in labels.iter().enumerate() {
        let y = top + ROW * number as f64 + 24.0;
        content += &svg::text("start", (0.0, y - 11.0), label);
        content += &svg::line("row", (left, y), (right, y));
        let points = |number| {
            all.iter().enumerate().filter_map(move |(lock, series)| {
                let (_, value, _, limit) = series.points.iter().find(|(at, ..)| *at == number)?;
                Some((lock, *value, *limit))
            })
        };
        for at in points(number).filter_map(|(_, _, limit)| x.at(limit?)) {
            content += &svg::line("limit-tick", (at, y - 7.0), (at, y + 7.0));
        }
        for (lock, value, _) in points(number) {
            content += &x.at(value).map_or_else(String::new, |at| Style(lock).mark((at.clamp(left, right), y)));
        }
    }
    Plot { content, height: bottom + 24.0, alt_text: alt_text(labels, unit, all) }
}

fn scale<I: Iterator<Item = f64>>(values: impl Fn() -> I, ends: (f64, f64)) -> Scale {
    let positive = || values().filter(|value| value.is_finite() && *value > 0.0);
    let (min, max) = positive().fold((f64::INFINITY, 0.0_f64), |(min, max), value| (min.min(value), max.max(value)));
    let has_zero = values().any(|value| value == 0.0);
    let is_fraction = max <= 1.0; // fairness, or processor time
    if max > FAR * min && !has_zero && !is_fraction {
        Scale::decimal(positive(), ends)
    } else {
        Scale::linear(values(), ends)
    }
}

/// The names with their marks, in as many rows as they need, and the bottom of the last row.
fn legend(all: &[Series]) -> (String, f64) {
    let (mut x, mut y) = (0.0, 0.0);
    let mut legend = String::new();
    for (number, series) in all.iter().enumerate() {
        let wide = 34.0 + 6.6 * series.name.chars().count() as f64;
        if x > 0.0 && x + wide > WIDTH {
            (x, y) = (0.0, y + LEGEND);
        }
        let style = Style(number);
        legend += &svg::line(&style.class("-line"), (x + 1.0, y + 8.0), (x + 21.0, y + 8.0));
        legend += &style.mark((x + 11.0, y + 8.0));
        legend += &svg::text("start", (x + 26.0, y + 12.0), &series.name);
        x += wide + 8.0;
    }
    (legend, y + LEGEND + 12.0)
}

/// The text for screen readers.
fn alt_text(points: &[String], unit: &str, all: &[Series]) -> String {
    let one = |series: &Series| {
        let values = series
            .points
            .iter()
            .filter_map(|(at, value, ..)| Some(format!("{} {}", points.get(*at)?, rounded(*value, unit))));
        format!("{}: {}", series.name, values.collect::<Vec<_>>().join(", "))
    };
    all.iter().map(one).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, values: &[f64]) -> Series {
        let point = |(at, value): (usize, &f64)| (at, *value, (value * 0.9, value * 1.1), Some(value * 0.5));
        Series { name: name.into(), points: values.iter().enumerate().map(point).collect() }
    }

    #[test]
    fn every_lock_has_a_mark_at_every_point() {
        let all = [series("test-and-set", &[5e7, 4e7, 5e7]), series("mcs", &[4e6, 7e5, 4e5])];
        let points = ["2", "4", "8"].map(str::to_owned);
        let picture = curves(("ranks", &points), "1/s", &all).picture("p", "contended");
        let marks = |class: &str| picture.matches(&format!("class=\"{class}\"")).count();
        // One each in the legend, with a line.
        assert_eq!((marks("s0"), marks("s1"), marks("s0-line"), marks("s1-limit")), (4, 4, 2, 1), "{picture}");
        assert!(picture.contains("mcs: 2 4 M/s, 4 700 k/s, 8 400 k/s"), "{picture}");
    }

    #[test]
    fn rows_have_their_labels_and_missing_values_are_left_out() {
        let all = [series("a", &[10.0, 20.0]), series("b", &[30.0])];
        let labels = ["first", "second <&>"].map(str::to_owned);
        let picture = rows(&labels, "ns", &all).picture("p", "latency");
        assert!(picture.contains(">first<") && picture.contains("second &lt;&amp;&gt;"), "{picture}");
        assert_eq!(picture.matches("class=\"s1\"").count(), 2, "{picture}");
        assert_eq!(picture.matches("class=\"limit-tick\"").count(), 3, "{picture}");
    }

    #[test]
    fn values_without_a_position_and_no_values_do_no_harm() {
        for strange in [0.0, f64::NAN, f64::INFINITY] {
            let all: Vec<_> = (0..12).map(|lock| series(&format!("lock {lock}"), &[strange, 1.0])).collect();
            let points = ["1", "2"].map(str::to_owned);
            for picture in [curves(("x", &points), "1", &all), rows(&points, "1", &all)] {
                let drawn = picture.content;
                assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
            }
        }
        curves(("x", &[]), "1", &[]);
    }
}
