//! The two kinds of plots: a curve for each lock or program over the points of an axis, and rows
//! with a mark for each. Locks and programs differ by more than colour.

use crate::bench::output::html::scale::Scale;
use crate::bench::output::html::svg;
use crate::bench::output::json::Comparison;
use crate::bench::output::units::{rounded, times};
use crate::bench::results::groups;
use crate::bench::runner::wrap;

/// The width of a plot, in units of the picture: about the pixels of a phone.
pub(crate) const WIDTH: f64 = 360.0;
/// The height of a line of text, and how many characters it has room for.
const LINE: f64 = 16.0;
const CHARACTERS: usize = 54;
/// Values whose ratio is larger than this are drawn on a logarithmic axis.
const FAR: f64 = 20.0;
/// The unit of ratios.
pub(crate) const TIMES: &str = "×";

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

/// The values of a lock or a program.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) style: Style,
    pub(crate) points: Vec<Point>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    /// The index on the axis, or of the row.
    pub(crate) at: usize,
    pub(crate) value: f64,
    /// The smallest and the largest run.
    pub(crate) range: Option<(f64, f64)>,
    pub(crate) limit: Option<(f64, Comparison)>,
}

impl Point {
    fn values(&self) -> impl Iterator<Item = f64> + use<> {
        let (min, max) = self.range.unzip();
        [Some(self.value), min, max, self.limit.map(|(limit, _)| limit)].into_iter().flatten()
    }
}

/// The colour and mark of a lock or a program. `page.css` has the colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Number(usize),
    /// Bare instructions.
    Limit,
}

impl Style {
    const COLOURS: usize = 8;
    /// Not the same number, so that locks of the same colour have different marks.
    const MARKS: usize = 10;

    fn class(self, what: &str) -> String {
        match self {
            Self::Number(number) => format!("s{}{what}", number % Self::COLOURS),
            Self::Limit if what.is_empty() => "square".to_owned(),
            Self::Limit => format!("limit{what}"),
        }
    }

    /// A disc, triangles on their bases and tips, a diamond or a square, filled or empty.
    fn mark(self, (x, y): (f64, f64)) -> String {
        let Self::Number(number) = self else { return svg::rect(&self.class(""), (x - 3.0, y - 3.0), (6.0, 6.0)) };
        let kind = number % Self::MARKS;
        let class = self.class(if kind < 5 { "" } else { " empty" });
        let polygon = |corners: &[(f64, f64)]| svg::path(&class, corners.iter().map(|(dx, dy)| (x + dx, y + dy)));
        match kind {
            0 | 5 => svg::circle(&class, (x, y), 3.5),
            1 | 7 => polygon(&[(-4.5, 3.5), (0.0, -4.5), (4.5, 3.5), (-4.5, 3.5)]),
            2 | 8 => polygon(&[(-4.5, 0.0), (0.0, -4.5), (4.5, 0.0), (0.0, 4.5), (-4.5, 0.0)]),
            3 | 9 => polygon(&[(-4.5, -3.5), (0.0, 4.5), (4.5, -3.5), (-4.5, -3.5)]),
            _ => svg::rect(&class, (x - 3.0, y - 3.0), (6.0, 6.0)),
        }
    }

    /// The sample in the legend, 22 units wide and 16 high.
    pub(crate) fn sample(self, is_curve: bool) -> String {
        let line = if is_curve { svg::line(&self.class("-line"), (1.0, 8.0), (21.0, 8.0)) } else { String::new() };
        line + &self.mark((11.0, 8.0))
    }
}

/// A curve for each series over evenly spaced points; dashed, what it is compared with, whose name
/// `compared` has for each series.
pub(crate) fn curves(
    (axis, points): (&str, &[String]),
    unit: &str,
    all: &[Series],
    compared: &[Option<String>],
) -> Plot {
    const AREA: f64 = 170.0;
    let (left, right, bottom, top) = (62.0, WIDTH - 20.0, 8.0 + AREA, 8.0);
    let values = all.iter().flat_map(|series| &series.points).flat_map(Point::values);
    let y = scale(values.collect(), unit, (bottom, top));
    let x = |at: usize| left + (right - left) * (at as f64 + 0.5) / points.len().max(1) as f64;
    let place = |at: usize, value: f64| Some((x(at), y.at(value)?.clamp(top, bottom)));

    let mut content = String::new();
    for tick in y.ticks() {
        let Some(at) = y.at(tick) else { continue };
        content += &svg::line("grid", (left, at), (right, at));
        content += &svg::text("end", (left - 6.0, at + 4.0), with_unit(tick, unit));
    }
    let longest = points.iter().map(|name| name.chars().count()).max().unwrap_or(0) as f64;
    let every = ((longest * 7.0 + 8.0) * points.len() as f64 / (right - left)).ceil().max(1.0) as usize;
    for (at, name) in points.iter().enumerate().step_by(every) {
        content += &svg::line("grid", (x(at), bottom), (x(at), top));
        content += &svg::text("middle", (x(at), bottom + 16.0), name);
    }
    content += &svg::line("axis", (left, bottom), (right, bottom));
    content += &svg::text("middle", (f64::midpoint(left, right), bottom + 34.0), axis);

    // What only one name stands for has the colour of limits, else each has the colour of its lock.
    let is_one = compared.iter().flatten().all(|name| compared.iter().flatten().next() == Some(name));
    let mut keys: Vec<(String, &str)> = Vec::new();
    for (series, name) in all.iter().zip(compared) {
        let Some(name) = name.as_deref().filter(|name| keys.iter().all(|(_, other)| other != name)) else { continue };
        let limits: Vec<_> = series.points.iter().filter_map(|point| Some((point.at, point.limit?))).collect();
        let Some((_, (_, comparison))) = limits.first() else { continue };
        let class = if is_one { format!("{}-line", comparison.name()) } else { series.style.class("-limit") };
        content += &svg::path(&class, limits.iter().filter_map(|(at, (limit, _))| place(*at, *limit)));
        keys.push((class, name));
    }
    let (drawn, notes) = coinciding(unit, all);
    for series in drawn {
        for point in &series.points {
            let ends = point.range.and_then(|range| place(point.at, range.0).zip(place(point.at, range.1)));
            content += &ends.map_or_else(String::new, |(min, max)| svg::line(&series.style.class("-range"), min, max));
        }
        let results: Vec<_> = series.points.iter().filter_map(|point| place(point.at, point.value)).collect();
        content += &svg::path(&series.style.class("-line"), results.iter().copied());
        content += &results.into_iter().map(|place| series.style.mark(place)).collect::<String>();
    }
    let mut height = bottom + 42.0;
    for (class, name) in keys {
        content += &svg::line(&class, (0.0, height + 8.0), (22.0, height + 8.0));
        for line in wrap(name, CHARACTERS - 5).lines() {
            content += &svg::text("note", (28.0, height + 12.0), line);
            height += LINE;
        }
    }
    for line in notes.iter().flat_map(|note| wrap(note, CHARACTERS).lines().map(str::to_owned).collect::<Vec<_>>()) {
        content += &svg::text("note", (0.0, height + 12.0), line);
        height += LINE;
    }
    Plot { content, height, alt_text: alt_text(points, unit, all) }
}

/// The series to draw, one of those that look alike, and who these are.
fn coinciding<'s>(unit: &str, all: &'s [Series]) -> (Vec<&'s Series>, Vec<String>) {
    let looks = |series: &Series| -> Vec<_> {
        series.points.iter().map(|point| (point.at, rounded(point.value, unit))).collect()
    };
    let drawn = all.iter().filter(|series| !series.points.is_empty());
    let alike = groups(drawn, |one, other| looks(one) == looks(other));
    let names = |all: &Vec<&Series>| all.iter().map(|series| &*series.name).collect::<Vec<_>>().join(", ");
    let notes = alike.iter().filter(|all| all.len() > 1).map(|all| format!("One curve: {}", names(all)));
    (alike.iter().map(|all| all[0]).collect(), notes.collect())
}

/// The label of a row, and lines of remarks below it.
pub(crate) struct Label {
    pub(crate) name: String,
    pub(crate) notes: Vec<String>,
}

/// A row for each label with a mark for each series, and bars for what these are compared with.
/// The values stand beside the labels, if they fit in all rows. `line` is drawn across all rows.
pub(crate) fn rows(labels: &[Label], unit: &str, all: &[Series], line: Option<f64>) -> Plot {
    let (left, right) = (26.0, WIDTH - 26.0);
    let values = all.iter().flat_map(|series| &series.points).flat_map(Point::values).chain(line);
    let x = scale(values.collect(), unit, (left, right));
    let place = |value: f64| Some(x.at(value)?.clamp(left, right));
    let points = |row: usize| {
        let of = move |series: &Series| series.points.iter().find(|point| point.at == row).copied();
        all.iter().filter_map(move |series| Some((series.style, of(series)?)))
    };
    let has_marks = all.iter().filter(|series| !series.points.is_empty()).count() > 1;
    let numbers = |row: usize, top: f64| numbers(points(row), has_marks, unit, top);
    let fits = |(row, label): (usize, &Label)| 7.0 * label.name.chars().count() as f64 <= numbers(row, 0.0).1;
    let has_numbers = labels.iter().enumerate().all(fits);
    let (mut content, mut top) = (String::new(), 0.0);
    for (row, label) in labels.iter().enumerate() {
        let lines: Vec<_> = label
            .notes
            .iter()
            .flat_map(|note| wrap(note, CHARACTERS).lines().map(str::to_owned).collect::<Vec<_>>())
            .collect();
        content += &svg::text("start", (0.0, top + 12.0), &label.name);
        if has_numbers {
            content += &numbers(row, top).0;
        }
        for line in lines {
            top += LINE;
            content += &svg::text("note", (0.0, top + 11.0), line);
        }
        let y = top + 23.0;
        content += &svg::line("row", (left, y), (right, y));
        if let Some(at) = line.and_then(place) {
            content += &svg::line("one", (at, y - 6.0), (at, y + 6.0));
        }
        for (value, comparison) in points(row).filter_map(|(_, point)| point.limit) {
            let Some(at) = place(value) else { continue };
            content += &svg::line(&format!("{}-tick", comparison.name()), (at, y - 7.0), (at, y + 7.0));
        }
        for (style, point) in points(row) {
            let ends = point.range.and_then(|(min, max)| Some((place(min)?, place(max)?)));
            content +=
                &ends.map_or_else(String::new, |(min, max)| svg::line(&style.class("-range"), (min, y), (max, y)));
        }
        content +=
            &points(row).filter_map(|(style, point)| Some(style.mark((place(point.value)?, y)))).collect::<String>();
        top += 34.0;
    }
    let mut free = 0.0; // right of the last name; a tick whose name has no room has none
    for tick in x.ticks() {
        let Some(at) = x.at(tick) else { continue };
        content += &svg::line("axis", (at, top), (at, top + 4.0));
        let text = with_unit(tick, unit);
        let half = 3.75 * text.chars().count() as f64;
        let middle = at.clamp(half, WIDTH - half);
        if middle - half >= free {
            content += &svg::text("middle", (middle, top + 17.0), text);
            free = middle + half;
        }
    }
    content += &svg::line("axis", (left, top), (right, top));
    let names: Vec<_> = labels.iter().map(|label| label.name.clone()).collect();
    Plot { content, height: top + 24.0, alt_text: alt_text(&names, unit, all) }
}

/// The values, right-aligned on the line of the label, each with its mark or without; and where
/// they begin.
fn numbers(points: impl Iterator<Item = (Style, Point)>, has_marks: bool, unit: &str, top: f64) -> (String, f64) {
    let mut right = WIDTH;
    let mut content = String::new();
    let points: Vec<_> = points.filter(|(style, point)| *style != Style::Limit && point.value.is_finite()).collect();
    for (style, point) in points.iter().rev() {
        let number = with_unit(point.value, unit);
        content += &svg::text("end number", (right, top + 12.0), &number);
        right -= number.chars().map(|c| if c == '.' { 4.0 } else { 8.0 }).sum::<f64>() + 8.0;
        if has_marks {
            content += &style.mark((right, top + 8.0));
            right -= 14.0;
        }
    }
    (content, right)
}

fn with_unit(value: f64, unit: &str) -> String {
    match value {
        0.0 => "0".to_owned(),
        _ if unit == TIMES => times(value),
        _ => rounded(value, unit),
    }
}

fn scale(values: Vec<f64>, unit: &str, ends: (f64, f64)) -> Scale {
    let positive = || values.iter().copied().filter(|value| value.is_finite() && *value > 0.0);
    let (min, max) = positive().fold((f64::INFINITY, 0.0_f64), |(min, max), value| (min.min(value), max.max(value)));
    let has_zero = values.contains(&0.0);
    let is_fraction = max <= 1.0; // fairness, or processor time
    if unit == TIMES || max > FAR * min && !has_zero && !is_fraction {
        Scale::decimal(positive(), ends)
    } else {
        Scale::linear(values.iter().copied(), ends)
    }
}

/// The text for screen readers.
fn alt_text(points: &[String], unit: &str, all: &[Series]) -> String {
    let one = |series: &Series| {
        let value = |point: &Point| {
            let limit =
                |(limit, comparison): (f64, Comparison)| format!(" ({} {})", comparison.name(), with_unit(limit, unit));
            let limit = point.limit.map_or_else(String::new, limit);
            Some(format!("{} {}{limit}", points.get(point.at)?, with_unit(point.value, unit)))
        };
        let values: Vec<_> = series.points.iter().filter_map(value).collect();
        format!("{}: {}", series.name, values.join(", "))
    };
    all.iter().map(one).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(number: usize, values: &[f64]) -> Series {
        let point = |(at, value): (usize, &f64)| Point {
            at,
            value: *value,
            range: Some((value * 0.5, value * 3.0)),
            limit: Some((value * 0.5, Comparison::Limit)),
        };
        let points = values.iter().enumerate().map(point).collect();
        Series { name: format!("lock {number}"), style: Style::Number(number), points }
    }

    fn labels(names: &[&str]) -> Vec<Label> {
        names.iter().map(|name| Label { name: (*name).to_owned(), notes: vec!["limit: CAS".to_owned()] }).collect()
    }

    fn count(content: &str, class: &str) -> usize {
        content.matches(&format!("class=\"{class}\"")).count()
    }

    /// The numbers in the attribute `name`, or in paths.
    fn numbers(content: &str, name: &str) -> Vec<f64> {
        let begin = format!(" {name}=\"");
        let values = content.split(&begin).skip(1).filter_map(|rest| rest.split('"').next());
        values.flat_map(|value| value.split(['M', 'L', ' '])).filter_map(|number| number.parse().ok()).collect()
    }

    #[test]
    fn every_series_has_a_mark_at_every_point_and_whiskers_end_inside() {
        let all = [series(0, &[5e7, 4e7, 5e7]), series(1, &[4e6, 7e5, 4e5])];
        let points = ["2", "4", "8"].map(str::to_owned);
        let compared = [Some("limit: CAS".to_owned()), Some("baseline: MCS".to_owned())];
        let Plot { content, height, alt_text } = curves(("ranks", &points), "1/s", &all, &compared);
        assert_eq!([count(&content, "s0"), count(&content, "s1"), count(&content, "s0-range")], [3, 3, 3], "{content}");
        assert_eq!([count(&content, "s0-limit"), count(&content, "s1-limit")], [2, 2], "with their keys: {content}");
        assert!(content.contains(">limit: CAS<") && content.contains(">baseline: MCS<"), "{content}");
        assert!(alt_text.contains("lock 1: 2 4 M/s (limit 2 M/s), 4 700 k/s"), "{alt_text}");
        assert!(numbers(&content, "d").iter().all(|at| (0.0..=height.max(WIDTH)).contains(at)), "{content}");
        let whiskers = content.lines().filter(|line| line.contains("-range"));
        let ends: Vec<_> = whiskers.flat_map(|line| numbers(line, "d")).collect();
        assert!(ends.len() == 24 && ends.iter().all(|at| *at > 8.1), "none is cut: {content}");
    }

    #[test]
    fn rows_have_their_labels_and_missing_values_are_left_out() {
        let all = [series(0, &[10.0, 20.0]), series(1, &[30.0])];
        let Plot { content, .. } = rows(&labels(&["first", "second <&>"]), "ns", &all, None);
        assert!(content.contains(">first<") && content.contains("second &lt;&amp;&gt;"), "{content}");
        assert_eq!(
            [count(&content, "s0"), count(&content, "s1"), count(&content, "limit-tick")],
            [4, 2, 3],
            "{content}"
        );
        assert!(content.contains(">30 ns<") && content.contains(">limit: CAS<"), "{content}");
    }

    #[test]
    fn ticks_of_rows_are_named_where_there_is_room() {
        let all = [series(0, &[0.1, 0.5])]; // from 50 MB/s to 1.5 GB/s
        let Plot { content, .. } = rows(&labels(&["slow", "fast"]), "GB/s", &all, None);
        let named = |tick: &str| content.contains(&format!("y=\"117\">{tick} MB/s<"));
        assert_eq!(["50", "100", "200", "500"].map(named), [true, true, false, true], "{content}");
    }

    #[test]
    fn many_points_have_few_names() {
        let points: Vec<_> = (0..20).map(|power| format!("{} KiB", 1 << power)).collect();
        let all = [series(0, &[1.0; 20])];
        let Plot { content, .. } = curves(("size", &points), "ns", &all, &[None]);
        assert!((3..8).contains(&content.matches(" KiB<").count()), "{content}");
    }

    #[test]
    fn values_without_a_position_and_no_values_do_no_harm() {
        for strange in [0.0, f64::NAN, f64::INFINITY] {
            let all: Vec<_> = (0..12).map(|lock| series(lock, &[strange, 1.0])).collect();
            let compared = vec![Some("limit: CAS".to_owned()); 12];
            let points = ["1", "2"].map(str::to_owned);
            for Plot { content, .. } in
                [curves(("x", &points), "1", &all, &compared), rows(&labels(&["1", "2"]), "1", &all, None)]
            {
                assert!(!content.contains("NaN") && !content.contains("inf\""), "{content}");
            }
        }
        curves(("x", &[]), "1", &[], &[]);
        rows(&[], "1", &[], Some(1.0));
    }
}
