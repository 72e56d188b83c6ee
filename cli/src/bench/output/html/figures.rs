//! Which results are drawn together, and how.

use std::time::SystemTime;

use crate::bench::output::html::compared::{self, Drawn};
use crate::bench::output::html::many::WIDTH;
use crate::bench::output::html::plot::{self, Axis, Bar, Point};
use crate::bench::output::html::svg::{self, escape};
use crate::bench::output::json::{Document, Row};
use crate::bench::output::units::{rounded, utc};

/// All plots of a run, as HTML figures. Every result is in exactly one. Several locks, and sweeps,
/// have a curve for each lock, or a row for each benchmark with a mark for each lock. For one lock,
/// a benchmark at several sizes or with several numbers of ranks has a curve; the other results of
/// a metric are bars.
pub(crate) fn figures(document: &Document) -> Vec<String> {
    let locks = locks(document);
    let swept = |row: &&Row| row.parameter.is_some() || row.quantity.is_plotted_by_lock();
    let (swept, plain): (Vec<&Row>, Vec<&Row>) =
        document.results.iter().partition(|row| (locks.len() > 1 && row.size.is_none()) || swept(row));
    let mut drawn: Vec<(Option<Axis>, Vec<&Row>)> = Vec::new();
    for row in plain {
        let over = over(document, row);
        let belongs = |(other_over, rows): &&mut (Option<Axis>, Vec<&Row>)| {
            let other = rows[0];
            *other_over == over
                && other.quantity == row.quantity
                && (over.is_none() || other.benchmark == row.benchmark)
        };
        match drawn.iter_mut().find(belongs) {
            Some((_, rows)) => rows.push(row),
            None => drawn.push((over, vec![row])),
        }
    }
    let pictures = drawn.iter().flat_map(|(over, rows)| match over {
        Some(over) => vec![curve(*over, rows)],
        None => bars(rows),
    });
    let plain = pictures.map(|(title, picture)| (title, String::new(), picture));
    let figure = |(number, (title, sentence, picture)): (usize, (String, String, Picture<'_>))| {
        let svg = picture(&format!("plot-{number}"), &title);
        let sentence = if sentence.is_empty() { sentence } else { format!("<p>{}</p>\n", escape(&sentence)) };
        format!("<figure>\n<figcaption>{}</figcaption>\n{sentence}{svg}</figure>\n", escape(&title))
    };
    let swept = compared::pictures(&swept, &locks, &document.descriptions);
    let swept = swept.into_iter().map(|Drawn { title, sentence, plot, .. }| {
        let picture: Picture<'_> = Box::new(move |id, title| plot.picture(id, title));
        (title, sentence, picture)
    });
    swept.chain(plain).enumerate().map(figure).collect()
}

/// The locks of a run, in the order of their first results.
fn locks(document: &Document) -> Vec<&str> {
    let mut locks: Vec<&str> = Vec::new();
    for row in &document.results {
        if !locks.contains(&&*row.algorithm) {
            locks.push(&row.algorithm);
        }
    }
    locks
}

/// The plots that have a heading, as a file of their own: two columns. `None` if there are none.
pub(crate) fn picture(document: &Document, begun: SystemTime) -> Option<String> {
    const GAP: f64 = 40.0;
    const MARGIN: f64 = 12.0;
    /// The height of a plot's heading.
    const HEADING: f64 = 18.0;
    let rows: Vec<_> = document.results.iter().filter(|row| row.size.is_none()).collect();
    let drawn = compared::pictures(&rows, &locks(document), &document.descriptions).into_iter();
    let plots: Vec<_> = drawn.filter_map(|drawn| Some((drawn.heading?, drawn.plot))).collect();
    if plots.is_empty() {
        return None;
    }
    let mut tops = [MARGIN + 28.0 + HEADING; 2];
    let (mut content, mut alt_texts) = (String::new(), Vec::new());
    for (title, plot) in &plots {
        let column = usize::from(tops[1] < tops[0]);
        let (x, top) = (MARGIN + column as f64 * (WIDTH + GAP), tops[column]);
        content += &format!("<g transform=\"translate({x} {top:.1})\">\n{}", svg::text("heading", (0.0, 0.0), title));
        content += &format!("<g transform=\"translate(0 12)\">\n{}</g>\n</g>\n", plot.content);
        tops[column] += plot.height + GAP;
        alt_texts.push(format!("{title}: {}", plot.alt_text));
    }
    let fabric = document.results.first().map_or("", |row| row.fabric.as_str());
    let machine = &document.machine;
    let on = if fabric == "sim" {
        "a modelled network".to_owned()
    } else {
        format!("{} {}cores, {fabric}", machine.machine.cores, if machine.is_virtual { "virtual " } else { "" })
    };
    let mut heading = format!("Locks of onesided: {on}, {}", utc(begun).split(' ').next().unwrap_or_default());
    if rows.iter().any(|row| row.limit.is_some()) {
        heading += "; dashed: the same algorithm by bare instructions";
    }
    let size = (2.0 * (WIDTH + MARGIN) + GAP, tops[0].max(tops[1]) - GAP + MARGIN);
    // Restricted to the picture's class, because it may be embedded in another page.
    let style = include_str!("picture.css");
    let content = format!(
        "<style>\n{style}</style>\n{}{}{content}",
        svg::rect("paper", (0.0, 0.0), size),
        svg::text("start", (MARGIN, 20.0), heading)
    );
    let picture = svg::picture("picture", size, ("Locks of onesided", &alt_texts.join(". ")), &content);
    Some(picture.replacen("<svg ", "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"lock-curves\" ", 1))
}

/// Draws a plot, given its id and its title.
type Picture<'d> = Box<dyn Fn(&str, &str) -> String + 'd>;

/// The axis that the results of a row's benchmark and metric differ by.
fn over(document: &Document, row: &Row) -> Option<Axis> {
    let same = |other: &&Row| (&other.benchmark, other.quantity) == (&row.benchmark, row.quantity);
    let differ = |by: fn(&Row) -> Option<u64>| document.results.iter().filter(same).any(|other| by(other) != by(row));
    if differ(|row| row.size.map(|size| size as u64)) {
        Some(Axis::Size)
    } else if differ(|row| Some(row.ranks.into())) {
        Some(Axis::Ranks)
    } else {
        None
    }
}

fn curve<'d>(over: Axis, rows: &[&'d Row]) -> (String, Picture<'d>) {
    let (title, unit) = (format!("{}: {}", rows[0].benchmark, rows[0].quantity), rows[0].unit);
    let at = |row: &Row| match over {
        Axis::Size => row.size.unwrap_or(0) as f64,
        Axis::Ranks => row.ranks.into(),
    };
    let point = |row: &&Row| Point { at: at(row), value: row.value, range: row.range, limit: row.limit };
    let points: Vec<_> = rows.iter().map(point).collect();
    (title, Box::new(move |id, title| plot::curve(id, title, over, unit, &points)))
}

/// Results of one metric. A bar that would be shorter than a tenth of the longest is in another
/// plot, because it would be too short to compare with its limit.
fn bars<'d>(rows: &[&'d Row]) -> Vec<(String, Picture<'d>)> {
    let length =
        |row: &Row| [Some(row.value), row.limit].into_iter().flatten().filter(|v| v.is_finite()).fold(0.0, f64::max);
    let mut plots = Vec::new();
    let mut rest = rows.to_vec();
    while !rest.is_empty() {
        let longest = rest.iter().map(|row| length(row)).fold(0.0, f64::max);
        let (long, short): (Vec<_>, Vec<_>) = rest.into_iter().partition(|row| length(row) >= longest / 10.0);
        plots.push((longest, long));
        rest = short;
    }
    let several = plots.len() > 1;
    let shortest_first = plots.into_iter().rev();
    let plot = |(longest, rows): (f64, Vec<&'d Row>)| {
        let (quantity, unit) = (rows[0].quantity, rows[0].unit);
        let mut title =
            if several { format!("{quantity}, up to {}", rounded(longest, unit)) } else { quantity.to_string() };
        title[..1].make_ascii_uppercase();
        let bars: Vec<Bar<'_>> = rows.iter().map(|row| (&*row.benchmark, row.value, row.limit)).collect();
        (title, Box::new(move |id: &str, title: &str| plot::bars(id, title, unit, &bars)) as Picture<'d>)
    };
    shortest_first.map(plot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::output::html::tests::{locks, several, sweep};

    #[test]
    fn every_result_is_drawn_once() {
        let figures = figures(&sweep());
        let captions: Vec<_> = figures.iter().map(|figure| caption(figure)).collect();
        let expected = [
            "put + flush: latency",
            "many put + flush: bandwidth",
            "many put + flush: message rate",
            "Latency",
            "Message rate",
        ];
        assert_eq!(captions, expected);
        assert_eq!(figures[0].matches("\"dot\"").count(), 3, "{}", figures[0]);
        assert_eq!(figures[3].matches("\"bar\"").count(), 2, "{}", figures[3]);
    }

    #[test]
    fn locks_are_bars_and_contended_curves() {
        let figures = figures(&locks());
        let captions: Vec<_> = figures.iter().map(|figure| caption(figure)).collect();
        let expected =
            ["Latency, up to 30 ns", "Latency, up to 900 ns", "lock + unlock, contended: acquisitions", "Jain"];
        assert_eq!(captions, expected);
        let bars: Vec<_> = figures.iter().map(|figure| figure.matches("\"bar\"").count()).collect();
        assert_eq!(bars, [3, 2, 0, 2], "each with that of its legend");
    }

    #[test]
    fn the_picture_of_curves_stands_alone() {
        let picture = picture(&several(), SystemTime::UNIX_EPOCH).unwrap();
        let begins = "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"lock-curves\" viewBox=";
        assert!(picture.starts_with(begins), "{picture}");
        assert!(!picture.contains("\n\n"), "one block of Markdown: {picture}");
        assert!(
            picture.contains("Contended: acquisitions a second") && picture.contains("shm, 1970-01-01"),
            "{picture}"
        );
        assert!(picture.contains("<style>") && !picture.contains("NaN"), "{picture}");
    }

    #[test]
    fn without_curves_there_is_no_picture() {
        assert_eq!(picture(&sweep(), SystemTime::UNIX_EPOCH), None);
    }

    fn caption(figure: &str) -> &str {
        figure.split("figcaption>").nth(1).unwrap().trim_end_matches("</")
    }
}
