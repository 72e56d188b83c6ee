//! Which results of several locks, or of sweeps, are drawn together.

use crate::bench::output::html::many::{self, Plot, Series};
use crate::bench::output::json::Row;
use crate::bench::output::units::rounded;
use crate::bench::results::description::Description;
use crate::bench::results::quantity::Quantity;

/// A plot with its texts.
pub(super) struct Drawn {
    pub(super) title: String,
    /// What the plot shows.
    pub(super) sentence: String,
    /// The heading in the picture, if the plot belongs there.
    pub(super) heading: Option<&'static str>,
    pub(super) plot: Plot,
}

/// A plot with rows for each metric of what was measured at one point; then curves of what was
/// measured at several, in the order of the results.
pub(super) fn pictures(rows: &[&Row], locks: &[&str], descriptions: &[&'static Description]) -> Vec<Drawn> {
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        let same = |group: &&mut Vec<&Row>| (&group[0].benchmark, group[0].quantity) == (&row.benchmark, row.quantity);
        match groups.iter_mut().find(same) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    let (curves, single): (Vec<_>, Vec<_>) = groups.into_iter().partition(|group| points(group).1.len() > 1);
    let mut quantities: Vec<(Quantity, Vec<&Row>)> = Vec::new();
    for row in single.into_iter().flatten() {
        match quantities.iter_mut().find(|(quantity, _)| *quantity == row.quantity) {
            Some((_, rows)) => rows.push(row),
            None => quantities.push((row.quantity, vec![row])),
        }
    }
    let mut drawn: Vec<Drawn> = quantities.into_iter().map(|(_, rows)| single_points(&rows, locks)).collect();
    drawn.extend(curves.into_iter().map(|group| curve(&group, locks, descriptions)));
    drawn
}

/// The name of the axis that the results differ by, and the names of its points.
fn points(group: &[&Row]) -> (String, Vec<String>) {
    let parameter = group.iter().find_map(|row| row.parameter.as_ref());
    let differs = |by: &dyn Fn(&Row) -> String| group.iter().any(|row| by(row) != by(group[0]));
    let of_parameter = |row: &Row| {
        row.parameter.as_ref().map_or_else(String::new, |parameter| value(parameter.value, &parameter.unit))
    };
    let (axis, name): (String, &dyn Fn(&Row) -> String) = match parameter {
        Some(parameter) if differs(&of_parameter) => (axis(&parameter.name, &parameter.unit), &of_parameter),
        _ => ("ranks".to_owned(), &|row| row.ranks.to_string()),
    };
    let mut points = Vec::new();
    for row in group {
        let point = name(row);
        if !points.contains(&point) {
            points.push(point);
        }
    }
    (axis, points)
}

fn axis(name: &str, unit: &str) -> String {
    if unit == "%" { format!("{name}, %") } else { name.to_owned() }
}

fn value(value: f64, unit: &str) -> String {
    match unit {
        "1" | "%" => value.to_string(),
        unit => rounded(value, unit),
    }
}

fn curve(group: &[&Row], locks: &[&str], descriptions: &[&'static Description]) -> Drawn {
    let first = group[0];
    let (axis, points) = points(group);
    let at = |row: &Row| {
        let by_parameter = row.parameter.as_ref().map(|parameter| value(parameter.value, &parameter.unit));
        let of = |name: &String| points.iter().position(|point| point == name);
        by_parameter.as_ref().and_then(of).filter(|_| axis != "ranks").or_else(|| of(&row.ranks.to_string()))
    };
    let series = series(group, locks, &at);
    let title = format!("{}: {}", first.benchmark, first.quantity);
    let description = descriptions.iter().find(|description| description.is_for(&first.benchmark));
    let sentence = description.map_or("", |description| description.sentence);
    let sentence = [sentence, first.quantity.better()].join(" ").trim().to_owned();
    let heading = description.and_then(|description| description.heading(first.quantity));
    let plot = many::curves((&axis, &points), first.unit, &series);
    Drawn { title, sentence, heading, plot }
}

fn single_points(rows: &[&Row], locks: &[&str]) -> Drawn {
    let mut labels: Vec<String> = Vec::new();
    for row in rows {
        if !labels.contains(&row.benchmark) {
            labels.push(row.benchmark.clone());
        }
    }
    let series = series(rows, locks, &|row| labels.iter().position(|label| *label == row.benchmark));
    let quantity = rows[0].quantity;
    let mut title = quantity.to_string();
    title[..1].make_ascii_uppercase();
    let mut sentence = quantity.better().to_owned();
    if rows.iter().any(|row| row.limit.is_some()) {
        sentence += " The upright bars are what bare instructions reach.";
    }
    Drawn { title, sentence, heading: None, plot: many::rows(&labels, rows[0].unit, &series) }
}

fn series(rows: &[&Row], locks: &[&str], at: &dyn Fn(&Row) -> Option<usize>) -> Vec<Series> {
    let of = |lock: &&str| {
        let points = rows.iter().filter(|row| row.algorithm == *lock);
        let points = points.filter_map(|row| Some((at(row)?, row.value, row.range, row.limit))).collect();
        Series { name: (*lock).to_owned(), points }
    };
    locks.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::output::html::tests::several;

    #[test]
    fn every_result_is_a_mark_of_one_plot() {
        let document = several();
        let rows: Vec<_> = document.results.iter().collect();
        let drawn = pictures(&rows, &["test-and-set", "mcs"], &document.descriptions);
        let titles: Vec<_> = drawn.iter().map(|drawn| drawn.title.as_str()).collect();
        assert_eq!(
            titles,
            ["Latency", "lock + unlock, contended: acquisitions", "lock + unlock, some to read: acquisitions"]
        );
        let marks =
            |plot: &Plot| plot.content.matches("class=\"s0\"").count() + plot.content.matches("class=\"s1\"").count();
        let all: usize = drawn.iter().map(|drawn| marks(&drawn.plot) - 2).sum();
        assert_eq!(all, rows.len(), "without the legends'");
        assert!(drawn.iter().all(|drawn| !drawn.sentence.is_empty()));
    }
}
