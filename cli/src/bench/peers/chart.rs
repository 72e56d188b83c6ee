//! Plots that compare all programs: ratios as dots, values as bars. Programs differ by more than
//! colour.

use crate::bench::output::html::scale::Scale;
use crate::bench::output::html::svg;
use crate::bench::output::units::rounded;
use crate::bench::peers::document::{Comparison, LIMIT, OURS};

/// The width of a plot, in units of the picture: about the pixels of a phone.
pub(crate) const WIDTH: f64 = 360.0;

/// A plot with its height.
pub(crate) struct Plot {
    pub(crate) content: String,
    pub(crate) height: f64,
    /// The text for screen readers.
    pub(crate) alt_text: String,
}

/// The colour and mark of a program.
#[derive(Clone, Copy)]
enum Style {
    Ours,
    Limit,
    /// A peer, by its number; the third and later ones look alike.
    Other(usize),
}

impl Style {
    /// The style of one of `names`.
    fn of(name: &str, names: &[&str]) -> Self {
        match name {
            OURS => Self::Ours,
            LIMIT => Self::Limit,
            _ => {
                let others = names.iter().filter(|name| **name != OURS && **name != LIMIT);
                Self::Other(others.take_while(|other| **other != name).count())
            }
        }
    }

    fn class(self) -> &'static str {
        match self {
            Self::Ours => "dot",
            Self::Limit => "square",
            Self::Other(0) => "first",
            Self::Other(1) => "second",
            Self::Other(_) => "third",
        }
    }

    /// A disc, an empty square, a triangle, a diamond, or a triangle on its tip.
    fn mark(self, (x, y): (f64, f64)) -> String {
        let class = self.class();
        match self {
            Self::Ours => svg::circle(class, (x, y), 3.5),
            Self::Limit => svg::rect(class, (x - 3.0, y - 3.0), (6.0, 6.0)),
            Self::Other(0) => svg::path(class, [(x - 4.5, y + 3.5), (x, y - 4.5), (x + 4.5, y + 3.5)].into_iter()),
            Self::Other(1) => svg::path(class, [(x - 4.5, y), (x, y - 4.5), (x + 4.5, y), (x, y + 4.5)].into_iter()),
            Self::Other(_) => svg::path(class, [(x - 4.5, y - 3.5), (x, y + 4.5), (x + 4.5, y - 3.5)].into_iter()),
        }
    }

    fn bar(self, place: (f64, f64), size: (f64, f64)) -> String {
        match self {
            Self::Ours => svg::rect("bar", place, size),
            Self::Limit => svg::rect("limit-bar", place, size),
            Self::Other(_) => svg::rect(self.class(), place, size),
        }
    }
}

/// How many times as fast this library was as each of the others: a row for each result, on a
/// common axis. The line at 1 is this library.
pub(crate) fn ratios(results: &[&Comparison], names: &[&str]) -> Plot {
    const TOP: f64 = 26.0;
    const ROW: f64 = 34.0;
    const AREA: (f64, f64) = (28.0, WIDTH - 28.0);
    let others: Vec<_> = names.iter().copied().filter(|name| *name != OURS).collect();
    let bottom = TOP + ROW * results.len() as f64;
    let all =
        results.iter().flat_map(|result| result.ratios.values()).flat_map(|ratio| [ratio.median, ratio.min, ratio.max]);
    let x = Scale::decimal(all.chain([0.8, 1.25]), AREA);

    let mut content = legend(names, |style, place| style.mark(place));
    for tick in x.ticks() {
        let Some(at) = x.at(tick) else { continue };
        content += &svg::line("grid", (at, TOP), (at, bottom));
        content += &svg::text(
            "middle",
            (at, bottom + 16.0),
            match tick {
                _ if tick < 0.1 => format!("{}×", (tick * 1e6).round() / 1e6),
                _ if tick > 999.0 => format!("{}k×", rounded(tick / 1e3, "1")),
                _ => format!("{}×", rounded(tick, "1")),
            },
        );
    }
    if let Some(at) = x.at(1.0) {
        content += &svg::line("one", (at, TOP - 2.0), (at, bottom));
    }
    for (result, top) in results.iter().zip((0..).map(|row| TOP + ROW * f64::from(row))) {
        let y = top + 23.0;
        content += &svg::rect("paper", (0.0, top + 1.5), (WIDTH, 14.0));
        content += &svg::text("start", (0.0, top + 12.0), result.label());
        content += &numbers_from_the_right(result, names, top);
        content += &svg::line("row", (AREA.0, y), (AREA.1, y));
        for name in &others {
            let (Some(ratio), style) = (result.ratios.get(*name), Style::of(name, names)) else { continue };
            if let (Some(min), Some(max)) = (x.at(ratio.min), x.at(ratio.max)) {
                let class = if matches!(style, Style::Limit) {
                    "limit-range".to_owned()
                } else {
                    format!("{}-range", style.class())
                };
                content += &svg::line(&class, (min, y), (max, y));
            }
        }
        if let Some(at) = x.at(1.0) {
            content += &Style::Ours.mark((at, y));
        }
        for name in &others {
            let place = result.ratios.get(*name).and_then(|ratio| x.at(ratio.median));
            content += &place.map_or_else(String::new, |at| Style::of(name, names).mark((at, y)));
        }
    }
    content += &svg::text("middle", (WIDTH / 2.0, bottom + 33.0), "times as fast: right of 1 onesided is ahead");
    let alt_texts = results.iter().map(|result| format!("{}: {}", result.label(), numbers(result, &others)));
    Plot { content, height: bottom + 40.0, alt_text: alt_texts.collect::<Vec<_>>().join("; ") }
}

/// The ratios to the peers, each with its mark, right-aligned on the line of the label.
fn numbers_from_the_right(result: &Comparison, names: &[&str], top: f64) -> String {
    let programs = names.iter().rev().filter(|name| **name != LIMIT);
    let mut right = WIDTH;
    let mut content = String::new();
    for (name, ratio) in programs.filter_map(|name| Some((name, result.ratios.get(*name)?))) {
        let number = times(ratio.median);
        content += &svg::text("end number", (right, top + 12.0), &number);
        right -= number.chars().map(|c| if c == '.' { 4.0 } else { 8.0 }).sum::<f64>() + 8.0;
        content += &Style::of(name, names).mark((right, top + 8.0));
        right -= 14.0;
    }
    content
}

/// The ratios to the peers as text.
fn numbers(result: &Comparison, others: &[&str]) -> String {
    let programs = others.iter().filter(|name| **name != LIMIT);
    let texts = programs.filter_map(|name| Some(format!("{name} {}", times(result.ratios.get(*name)?.median))));
    texts.collect::<Vec<_>>().join(", ")
}

/// A ratio with about two digits.
fn times(ratio: f64) -> String {
    match ratio {
        _ if ratio < 0.0995 => format!("{ratio:.3}×"),
        _ if ratio < 0.995 => format!("{ratio:.2}×"),
        _ if ratio < 9.95 => format!("{ratio:.1}×"),
        _ if ratio < 999.5 => format!("{ratio:.0}×"),
        _ if ratio < 9950.0 => format!("{:.1}k×", ratio / 1e3),
        _ => format!("{:.0}k×", ratio / 1e3),
    }
}

/// The values of all programs: horizontal bars, with a scale of its own for each result.
pub(crate) fn values(results: &[&Comparison], names: &[&str]) -> Plot {
    const THICK: f64 = 12.0;
    /// For the number behind the longest bar.
    const NUMBER: f64 = 75.0;
    let mut content = legend(names, |style, (x, y)| style.bar((x - 6.0, y - 5.0), (12.0, 10.0)));
    let mut top = 26.0;
    let mut alt_texts = Vec::new();
    for result in results {
        content += &svg::text("start", (0.0, top + 10.0), format!("{}, {}", result.label(), result.quantity.name()));
        top += 15.0;
        let longest = result.values.values().map(|value| value.median).fold(f64::MIN_POSITIVE, f64::max);
        let mut numbers = Vec::new();
        for name in names {
            let Some(value) = result.values.get(*name) else { continue };
            let width = (value.median.max(0.0) / longest * (WIDTH - NUMBER)).max(1.0);
            let number = rounded(value.median, &result.unit);
            content += &Style::of(name, names).bar((0.5, top + 0.5), (width, THICK - 2.0));
            content += &svg::text("start number", (width + 6.0, top + THICK - 2.0), &number);
            numbers.push(format!("{name} {number}"));
            top += THICK;
        }
        top += 12.0;
        alt_texts.push(format!("{}: {}", result.label(), numbers.join(", ")));
    }
    Plot { content, height: top, alt_text: alt_texts.join("; ") }
}

/// The legend on top of a plot. `sample` draws the mark of a program around a point.
fn legend(names: &[&str], sample: impl Fn(Style, (f64, f64)) -> String) -> String {
    let mut x = 8.0;
    let mut legend = String::new();
    for name in names {
        legend += &sample(Style::of(name, names), (x, 8.0));
        legend += &svg::text("start", (x + 11.0, 12.0), name);
        x += 28.0 + 6.8 * name.len() as f64;
    }
    legend
}
