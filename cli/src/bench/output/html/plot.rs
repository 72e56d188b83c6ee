//! Curves and bars: a result beside its limit, which differ by more than colour.

use crate::bench::output::html::scale::Scale;
use crate::bench::output::html::svg;
use crate::bench::output::units::{rounded, size};

/// The width of a plot, in units of the picture: about the pixels of a phone, where its texts are
/// as large as the page's.
const WIDTH: f64 = 360.0;

/// The horizontal axis of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Axis {
    /// Bytes of an operation: both axes are logarithmic.
    Size,
    /// The vertical axis begins at zero.
    Ranks,
}

/// A result: the position on the axis, the median, the smallest and the largest value, the limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    pub(crate) at: f64,
    pub(crate) value: f64,
    pub(crate) range: (f64, f64),
    pub(crate) limit: Option<f64>,
}

/// A bar's label, value and limit.
pub(crate) type Bar<'a> = (&'a str, f64, Option<f64>);

/// A curve with dots and ranges, and its limit as a dashed curve with squares.
pub(crate) fn curve(id: &str, title: &str, over: Axis, unit: &str, points: &[Point]) -> String {
    const HEIGHT: f64 = 250.0;
    /// The margins have room for the labels of the ticks, and on the right for half of the last
    /// one.
    const AREA: ((f64, f64), (f64, f64)) = ((62.0, WIDTH - 26.0), (HEIGHT - 44.0, 34.0));
    let ((left, right), (bottom, top)) = AREA;
    let ats = points.iter().map(|point| point.at);
    let values =
        points.iter().flat_map(|point| [point.value, point.range.0, point.range.1].into_iter().chain(point.limit));
    let x = Scale::binary(ats, AREA.0);
    let (y, axis) = match over {
        Axis::Size => (Scale::decimal(values, AREA.1), "size of an operation"),
        Axis::Ranks => (Scale::linear(values, AREA.1), "ranks"),
    };
    let name = |at: f64| match over {
        Axis::Size => size(at as usize),
        Axis::Ranks => at.to_string(),
    };

    let mut content = String::new();
    for tick in y.ticks() {
        let Some(at) = y.at(tick) else { continue };
        content += &svg::line("grid", (left, at), (right, at));
        content += &svg::text("end", (left - 6.0, at + 4.0), rounded(tick, unit));
    }
    for tick in x.ticks() {
        let Some(at) = x.at(tick) else { continue };
        content += &svg::line("grid", (at, bottom), (at, top));
        content += &svg::text("middle", (at, bottom + 17.0), name(tick));
    }
    content += &svg::line("axis", (left, bottom), (right, bottom));
    content += &svg::text("middle", (f64::midpoint(left, right), HEIGHT - 8.0), axis);

    let place = |at, value| Some((x.at(at)?, y.at(value)?));
    let limits: Vec<_> = points.iter().filter_map(|point| place(point.at, point.limit?)).collect();
    let results: Vec<_> = points.iter().filter_map(|point| place(point.at, point.value)).collect();
    if !limits.is_empty() {
        content += &svg::path("limit", limits.iter().copied());
        content += &limits.iter().map(|place| square(*place)).collect::<String>();
    }
    for Point { at, range: (min, max), .. } in points {
        if let (Some(min), Some(max)) = (place(*at, *min), place(*at, *max)) {
            content += &svg::line("range", min, max);
        }
    }
    if !results.is_empty() {
        content += &svg::path("result", results.iter().copied());
        content += &results.iter().map(|place| svg::circle("dot", *place, 3.0)).collect::<String>();
    }
    content += &legend(!limits.is_empty(), "onesided: median, min to max", |limit, x, y| {
        let (class, mark) = if limit { ("limit", square((x, y))) } else { ("result", svg::circle("dot", (x, y), 3.0)) };
        svg::line(class, (x - 11.0, y), (x + 11.0, y)) + &mark
    });

    let alt_texts = points.iter().map(|point| alt_text(&name(point.at), point.value, point.limit, unit));
    let description = alt_texts.collect::<Vec<_>>().join("; ");
    svg::picture(id, (WIDTH, HEIGHT), (title, &description), &content)
}

/// Horizontal bars, each limit as an empty one below its result.
pub(crate) fn bars(id: &str, title: &str, unit: &str, bars: &[Bar<'_>]) -> String {
    const TOP: f64 = 28.0;
    /// From the label's top to the bar's, and the thickness of a bar.
    const LABEL: f64 = 15.0;
    const THICK: f64 = 13.0;
    const GAP: f64 = 12.0;
    /// For the number behind the longest bar.
    const NUMBER: f64 = 75.0;
    let longest = bars.iter().flat_map(|(_, value, limit)| [*value, limit.unwrap_or(0.0)]);
    let longest = longest.filter(|value| value.is_finite()).fold(f64::MIN_POSITIVE, f64::max);

    let mut content = legend(bars.iter().any(|(.., limit)| limit.is_some()), "onesided: median", |limit, x, y| {
        svg::rect(if limit { "limit-bar" } else { "bar" }, (x - 10.5, y - 5.5), (21.0, 11.0))
    });
    let mut top = TOP;
    for (label, value, limit) in bars {
        content += &svg::text("start", (0.0, top + LABEL - 5.0), label);
        top += LABEL;
        for (class, value) in [("bar", Some(*value)), ("limit-bar", *limit)] {
            let Some(value) = value.filter(|value| value.is_finite()) else { continue };
            let width = (value.max(0.0) / longest * (WIDTH - NUMBER)).max(1.0);
            content += &svg::rect(class, (0.5, top + 0.5), (width, THICK - 2.0));
            content += &svg::text("start number", (width + 6.0, top + THICK - 2.5), rounded(value, unit));
            top += THICK;
        }
        top += GAP;
    }
    let alt_texts = bars.iter().map(|(label, value, limit)| alt_text(label, *value, *limit, unit));
    let description = alt_texts.collect::<Vec<_>>().join("; ");
    svg::picture(id, (WIDTH, top), (title, &description), &content)
}

/// A value in the text for screen readers.
fn alt_text(label: &str, value: f64, limit: Option<f64>, unit: &str) -> String {
    let limit = limit.map_or_else(String::new, |limit| format!(" (limit {})", rounded(limit, unit)));
    format!("{label}: {}{limit}", rounded(value, unit))
}

/// The legend on top of a plot. `sample` draws the mark of the limit, or of the result, around a
/// point.
fn legend(has_limits: bool, result: &str, sample: impl Fn(bool, f64, f64) -> String) -> String {
    let mut legend = sample(false, 12.0, 8.0) + &svg::text("start", (28.0, 12.0), result);
    if has_limits {
        legend += &(sample(true, 232.0, 8.0) + &svg::text("start", (248.0, 12.0), "limit"));
    }
    legend
}

fn square((x, y): (f64, f64)) -> String {
    svg::rect("square", (x - 2.5, y - 2.5), (5.0, 5.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn point(at: f64, value: f64, limit: Option<f64>) -> Point {
        Point { at, value, range: (value * 0.9, value * 1.1), limit }
    }

    fn count(picture: &str, part: &str) -> usize {
        picture.matches(part).count()
    }

    /// Every number between quotes and in paths is one, and lies in the picture.
    fn numbers_are_sound(picture: &str) {
        for word in ["NaN", "inf", "-0.", "None"] {
            assert!(!picture.contains(word), "{word}: {picture}");
        }
        let (_, rest) = picture.split_once("viewBox=\"0 0 ").unwrap();
        let (size, rest) = rest.split_once('"').unwrap();
        let largest = size.split(' ').map(|side| side.parse::<f64>().unwrap()).fold(0.0, f64::max);
        let places =
            rest.split('"').filter(|text| text.starts_with(|c: char| c == 'M' || c == '-' || c.is_ascii_digit()));
        for number in places.flat_map(|place| place.split(['M', 'L', ' '])).filter(|number| !number.is_empty()) {
            let number: f64 = number.parse().unwrap_or_else(|_| panic!("{number}: {picture}"));
            assert!((0.0..=largest).contains(&number), "{number}: {picture}");
        }
    }

    #[test]
    fn curves_have_a_mark_for_every_result_and_every_limit() {
        let points =
            [point(8.0, 20.0, Some(10.0)), point(1024.0, 90.0, Some(40.0)), point(4_194_304.0, 5e5, Some(4e5))];
        let picture = curve("p", "put", Axis::Size, "ns", &points);
        numbers_are_sound(&picture);
        // And one each in the legend.
        assert_eq!((count(&picture, "\"dot\""), count(&picture, "\"square\"")), (4, 4), "{picture}");
        assert_eq!(count(&picture, "\"range\""), 3, "{picture}");
        assert!(picture.contains("8 B: 20 ns (limit 10 ns); 1 KiB: 90 ns (limit 40 ns); 4 MiB: 500 µs"), "{picture}");
        for tick in ["256 B", "64 KiB", "1 MiB", "100 ns", "100 µs"] {
            assert!(picture.contains(&format!(">{tick}<")), "{tick}: {picture}");
        }
    }

    #[test]
    fn labels_stay_in_the_picture() {
        let points = [2048.0, 262_144.0].map(|size| point(size, 20.0, None));
        let picture = curve("p", "put", Axis::Size, "ns", &points);
        let (before, _) = picture.split_once(">256 KiB<").unwrap();
        let (_, x) = before.rsplit_once(" x=\"").unwrap();
        let x: f64 = x.split('"').next().unwrap().parse().unwrap();
        assert!(x + 7.0 * 3.5 <= WIDTH, "seven letters of 7 units around {x}: {picture}");
    }

    #[test]
    fn curves_over_ranks_begin_at_zero() {
        let points = [2.0, 4.0, 8.0].map(|ranks| point(ranks, 1e7 / ranks, None));
        let picture = curve("p", "locks", Axis::Ranks, "1/s", &points);
        numbers_are_sound(&picture);
        assert!(picture.contains(">0/s<") && picture.contains(">8<") && !picture.contains(">limit<"), "{picture}");
    }

    #[test]
    fn values_that_have_no_place_are_left_out_of_the_picture_alone() {
        let strange = [0.0, f64::NAN, f64::INFINITY].map(|value| point(8.0, value, Some(value)));
        for over in [Axis::Size, Axis::Ranks] {
            let picture = curve("p", "put", over, "1", &strange);
            let (_, drawn) = picture.split_once("</desc>").unwrap();
            assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{picture}");
            curve("p", "put", over, "1", &[]);
        }
        let picture = bars("p", "locks", "ns", &[("none", 0.0, Some(f64::NAN)), ("strange", f64::INFINITY, None)]);
        let (_, drawn) = picture.split_once("</desc>").unwrap();
        assert!(!drawn.contains("NaN") && !drawn.contains("inf\""), "{picture}");
        assert!(drawn.contains(">0 ns<"), "{picture}");
    }

    #[test]
    fn bars_have_their_numbers_beside_them() {
        let picture = bars("p", "locks", "ns", &[("lock & unlock", 20.0, Some(10.0)), ("other", 5.0, None)]);
        numbers_are_sound(&picture);
        for text in ["lock &amp; unlock", "20 ns", "10 ns", "other", "5 ns"] {
            assert!(picture.contains(&format!(">{text}<")), "{text}: {picture}");
        }
        assert_eq!((count(&picture, "\"bar\""), count(&picture, "\"limit-bar\"")), (3, 2), "{picture}");
    }
}
