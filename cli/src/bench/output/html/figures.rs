//! Which results are drawn together, and the picture of the most important curves.

use std::time::{Duration, UNIX_EPOCH};

use crate::bench::output::html::chart::{self, Label, Plot, Point, Series, Style, WIDTH};
use crate::bench::output::html::svg;
use crate::bench::output::json::{Document, Row};
use crate::bench::output::table::comparison;
use crate::bench::output::units::{rounded, size, utc};
use crate::bench::results::quantity::Question;
use crate::bench::results::{groups, unique};

/// A plot with its texts.
pub(super) struct Figure {
    pub(super) question: Question,
    pub(super) title: String,
    /// What the plot shows.
    pub(super) sentence: String,
    /// The heading in the picture, if the plot belongs there.
    pub(super) heading: Option<&'static str>,
    pub(super) plot: Plot,
}

/// All plots of a run. Every result is in exactly one: curves of a benchmark that was measured at
/// several points, and rows of the others that answer the same question in the same unit.
pub(super) fn figures(document: &Document) -> Vec<Figure> {
    let same_benchmark =
        |one: &&Row, other: &&Row| (&one.benchmark, one.quantity) == (&other.benchmark, other.quantity);
    let all = groups(document.results.iter(), same_benchmark);
    let (curves, single): (Vec<_>, Vec<_>) = all.into_iter().partition(|group| Axis::of(group).points(group).len() > 1);
    let question = |row: &Row| (Question::of(&row.benchmark, row.quantity), row.quantity);
    let rows_of = groups(single.into_iter().flatten(), |one, other| question(one) == question(other));
    let rows_of = rows_of.iter().map(|group| rows(document, group));
    rows_of.chain(curves.iter().map(|group| curve(document, group))).collect()
}

/// What the results of a benchmark differ by, beside the lock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Axis {
    Parameter,
    Size,
    Ranks,
}

impl Axis {
    fn of(group: &[&Row]) -> Self {
        let differ = |by: fn(&Row, &Row) -> bool| group.iter().any(|row| by(row, group[0]));
        match () {
            () if differ(|one, other| one.parameter != other.parameter) => Self::Parameter,
            () if differ(|one, other| one.size != other.size) => Self::Size,
            () => Self::Ranks,
        }
    }

    fn name(self, group: &[&Row]) -> String {
        let parameter = group.iter().find_map(|row| row.parameter.as_ref());
        match (self, parameter) {
            (Self::Parameter, Some(parameter)) if parameter.unit == "%" => format!("{}, %", parameter.name),
            (Self::Parameter, Some(parameter)) => parameter.name.clone(),
            (Self::Size, _) => "size of an operation".to_owned(),
            _ if group.iter().any(|row| row.oversubscribed) => "ranks (*: more than cores)".to_owned(),
            _ => "ranks".to_owned(),
        }
    }

    fn point(self, row: &Row) -> String {
        match (self, &row.parameter) {
            (Self::Parameter, Some(parameter)) => match parameter.unit.as_str() {
                "1" | "%" => parameter.value.to_string(),
                unit => rounded(parameter.value, unit),
            },
            (Self::Size, _) => row.size.map_or_else(String::new, size),
            _ => format!("{}{}", row.ranks, if row.oversubscribed { "*" } else { "" }),
        }
    }

    /// The names of the points, in the order of the results.
    fn points(self, group: &[&Row]) -> Vec<String> {
        unique(group.iter().map(|row| self.point(row)))
    }
}

fn curve(document: &Document, group: &[&Row]) -> Figure {
    let (first, axis) = (group[0], Axis::of(group));
    let points = axis.points(group);
    let series = series(document, group, &|row| points.iter().position(|name| *name == axis.point(row)));
    let compared: Vec<_> = document.locks().into_iter().map(|lock| compared(group, lock)).collect();
    let plot = chart::curves((&axis.name(group), &points), &first.unit, &series, &compared);
    let description = document.description(&first.benchmark);
    let sentence = description.map_or("", |description| description.sentence);
    Figure {
        question: Question::of(&first.benchmark, first.quantity),
        title: format!("{}: {}", first.benchmark, first.quantity),
        sentence: [sentence, first.quantity.better()].join(" ").trim().to_owned(),
        heading: description.and_then(|description| description.heading(first.quantity)),
        plot,
    }
}

/// What a lock's results are compared with: by stores at the first points, then by memcpy.
fn compared(group: &[&Row], lock: &str) -> Option<String> {
    let names = unique(group.iter().filter(|row| row.algorithm == lock).filter_map(|row| comparison(row)));
    let (first, others) = names.split_first()?;
    let kind = first.split(": ").next().unwrap_or_default();
    let rest =
        |name: &String| name.strip_prefix(kind).map_or(name.clone(), |rest| rest.trim_start_matches(": ").to_owned());
    Some(std::iter::once(first.clone()).chain(others.iter().map(rest)).collect::<Vec<_>>().join(", then "))
}

fn rows(document: &Document, group: &[&Row]) -> Figure {
    let first = group[0];
    let name = |row: &Row| format!("{}{}", row.benchmark, if row.oversubscribed { "*" } else { "" });
    let mut labels: Vec<Label> = Vec::new();
    for row in group {
        let note = comparison(row).zip(row.limit).map(|(name, limit)| format!("{name}, {}", rounded(limit, &row.unit)));
        let label = match labels.iter_mut().find(|label| label.name == name(row)) {
            Some(label) => label,
            None => {
                labels.push(Label { name: name(row), notes: Vec::new() });
                labels.last_mut().expect("it was just added")
            }
        };
        // Each lock has measured the same limit again.
        let is_new = |note: &String| label.notes.iter().all(|other| other.split(',').next() != note.split(',').next());
        label.notes.extend(note.filter(is_new));
    }
    let at = |row: &Row| labels.iter().position(|label| label.name == name(row));
    let plot = chart::rows(&labels, &first.unit, &series(document, group, &at), None);
    let mut title = first.quantity.to_string();
    title[..1].make_ascii_uppercase();
    Figure {
        question: Question::of(&first.benchmark, first.quantity),
        title,
        sentence: first.quantity.better().to_owned(),
        heading: None,
        plot,
    }
}

fn series(document: &Document, rows: &[&Row], at: &dyn Fn(&Row) -> Option<usize>) -> Vec<Series> {
    let of = |(number, lock): (usize, &str)| {
        let point = |row: &&Row| {
            let range = row.range.map(|range| (range.min, range.max));
            Some(Point { at: at(row)?, value: row.value, range, limit: row.limit.zip(row.comparison) })
        };
        let points = rows.iter().filter(|row| row.algorithm == lock).filter_map(point).collect();
        Series { name: label(document, lock).to_owned(), style: Style::Number(number), points }
    };
    document.locks().into_iter().enumerate().map(of).collect()
}

/// What the results of a lock are called: by its name, if it matters to them.
fn label<'d>(document: &Document, lock: &'d str) -> &'d str {
    if document.is_of_locks() { lock } else { "onesided" }
}

/// The plots that have a heading, as a file of their own. `None` if there are none.
pub(crate) fn picture(document: &Document) -> Option<String> {
    let plots: Vec<_> = figures(document).into_iter().filter_map(|one| Some((one.heading?, one.plot))).collect();
    if plots.is_empty() {
        return None;
    }
    let machine = &document.machine;
    let on = match document.results.first()?.fabric.as_str() {
        "sim" => "a modelled network".to_owned(),
        fabric => {
            format!("{} {}cores, {fabric}", machine.machine.cores, if machine.is_virtual { "virtual " } else { "" })
        }
    };
    let heading = format!("Locks of onesided: {on}{}", date(document.begun));
    // Restricted to the picture's class, because it may be embedded in another page.
    let style = include_str!("page.css").split("/* page */").next().unwrap_or_default();
    let style = style.replace(":root", ".curves");
    let style = [".", "[", "text"].iter().fold(style, |style, begin| {
        style.replace(&format!("\n{begin}"), &format!("\n.curves {begin}")).replace(".curves .curves {", ".curves {")
    });
    let picture = together(("Locks of onesided", &heading), &legend(document), &plots, &style);
    Some(picture.replacen("<svg ", "<svg class=\"curves\" ", 1))
}

/// As in `, 2026-11-24`; nothing if the time is not known.
pub(crate) fn date(begun: u64) -> String {
    let date = utc(UNIX_EPOCH + Duration::from_secs(begun));
    if begun == 0 { String::new() } else { format!(", {}", date.split(' ').next().unwrap_or_default()) }
}

/// The entries of the legend: samples of the locks with their names.
pub(super) fn legend(document: &Document) -> Vec<(String, String)> {
    let needs_own_core = |lock: &str| document.results.iter().any(|row| row.needs_own_core && row.algorithm == lock);
    let locks = document.locks();
    let entry = |(number, lock): (usize, &&str)| {
        let own_core = if needs_own_core(lock) { "†" } else { "" };
        (Style::Number(number).sample(true), format!("{}{own_core}", label(document, lock)))
    };
    let mut entries: Vec<_> = locks.iter().enumerate().map(entry).collect();
    if locks.iter().any(|lock| needs_own_core(lock)) {
        entries.push((String::new(), "† needs a core of its own".to_owned()));
    }
    entries
}

/// Plots in two columns under a heading and one legend, as a file of their own.
pub(crate) fn together(
    (title, heading): (&str, &str),
    legend: &[(String, String)],
    plots: &[(&str, Plot)],
    style: &str,
) -> String {
    const GAP: f64 = 42.0;
    const MARGIN: f64 = 12.0;
    let width = 2.0 * (WIDTH + MARGIN) + GAP;
    let mut content = svg::text("start", (MARGIN, 20.0), heading);
    let (mut x, mut y) = (MARGIN, 32.0);
    for (sample, name) in legend {
        let wide = 44.0 + 6.6 * name.chars().count() as f64;
        if x + wide > width {
            (x, y) = (MARGIN, y + 18.0);
        }
        let text = svg::text("start", (26.0, 12.0), name);
        content += &format!("<g transform=\"translate({x:.1} {y})\">\n{sample}{text}</g>\n");
        x += wide;
    }
    let top = y + 50.0;
    let mut tops = [top; 2];
    // Split where the columns are most alike.
    let heights = |plots: &[(&str, Plot)]| plots.iter().map(|(_, plot)| plot.height + GAP).sum::<f64>();
    let taller = |at: &usize| heights(&plots[..*at]).max(heights(&plots[*at..]));
    let split = (0..=plots.len()).min_by(|one, other| taller(one).total_cmp(&taller(other))).unwrap_or(0);
    for (number, (title, plot)) in plots.iter().enumerate() {
        let column = usize::from(number >= split);
        let (x, top) = (MARGIN + column as f64 * (WIDTH + GAP), tops[column]);
        content += &format!("<g transform=\"translate({x} {top:.1})\">\n{}", svg::text("heading", (0.0, 0.0), title));
        content += &format!("<g transform=\"translate(0 12)\">\n{}</g>\n</g>\n", plot.content);
        tops[column] += plot.height + GAP;
    }
    let size = (width, tops[0].max(tops[1]) - GAP + MARGIN);
    let alt_texts: Vec<_> = plots.iter().map(|(title, plot)| format!("{title}: {}", plot.alt_text)).collect();
    let content = format!("<style>\n{style}</style>\n{}{content}", svg::rect("paper", (0.0, 0.0), size));
    svg::picture("picture", size, (title, &alt_texts.join(". ")), &content).replacen(
        "<svg ",
        "<svg xmlns=\"http://www.w3.org/2000/svg\" ",
        1,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::output::html::tests::{locks, several, sweep};

    fn titles(figures: &[Figure]) -> Vec<&str> {
        figures.iter().map(|figure| &*figure.title).collect()
    }

    /// How many marks of locks the plots have, or of what they are compared with.
    fn marks(figures: &[Figure], class: &str) -> Vec<usize> {
        figures.iter().map(|figure| figure.plot.content.matches(&format!("class=\"{class}\"")).count()).collect()
    }

    #[test]
    fn every_result_is_drawn_once() {
        let figures = figures(&sweep());
        let expected = [
            "Latency",
            "Message rate",
            "put + flush: latency",
            "many put + flush: bandwidth",
            "many put + flush: message rate",
        ];
        assert_eq!(titles(&figures), expected);
        assert_eq!(marks(&figures, "s0"), [1, 1, 2, 2, 2]);
        assert_eq!(marks(&figures, "limit-tick"), [1, 1, 0, 0, 0]);
        assert_eq!(marks(&figures, "limit-line"), [0, 0, 2, 2, 2], "and its key");
    }

    #[test]
    fn a_curve_names_all_that_it_is_compared_with() {
        let mut document = sweep();
        let last = document.results.iter_mut().rfind(|row| row.benchmark == "put + flush").unwrap();
        last.compared_with = Some("memcpy".to_owned());
        let content = &figures(&document)[2].plot.content;
        assert!(content.contains(">limit: bare put + flush, then memcpy<"), "{content}");
    }

    #[test]
    fn one_lock_has_rows_and_contended_curves() {
        let figures = figures(&locks());
        assert_eq!(titles(&figures), ["Latency", "Jain", "lock + unlock, contended: acquisitions"]);
        assert_eq!(marks(&figures, "s0"), [3, 1, 3]);
        let questions: Vec<_> = figures.iter().map(|figure| figure.question).collect();
        assert_eq!(questions, [Question::HowLong, Question::HowFair, Question::HowMuch]);
        assert!(figures[0].plot.content.contains(">limit: bare first lock, 450 ns<"), "{}", figures[0].plot.content);
    }

    #[test]
    fn curves_that_coincide_are_drawn_once_and_named_together() {
        let document = several();
        let figures = figures(&document);
        let curves: Vec<_> = figures.iter().filter(|figure| figure.title.contains("contended")).collect();
        let content = &curves[0].plot.content;
        assert_eq!(content.matches("class=\"s0-line\"").count(), 1, "{content}");
        assert_eq!(content.matches("class=\"s1-line\"").count(), 0, "{content}");
        assert!(content.contains(">One curve: test-and-set, mcs<"), "{content}");
    }

    #[test]
    fn the_picture_of_curves_stands_alone() {
        let picture = picture(&several()).unwrap();
        assert!(
            picture.starts_with("<svg class=\"curves\" xmlns=\"http://www.w3.org/2000/svg\" viewBox="),
            "{picture}"
        );
        assert!(!picture.contains("\n\n"), "one block of Markdown: {picture}");
        assert!(
            picture.contains("Contended: acquisitions a second") && picture.contains("shm, 1970-01-02"),
            "{picture}"
        );
        assert!(
            picture.contains(".curves [class^=s0]") && !picture.contains("\nbody") && !picture.contains("NaN"),
            "{picture}"
        );
    }

    #[test]
    fn without_curves_there_is_no_picture() {
        assert_eq!(picture(&sweep()), None);
    }
}
