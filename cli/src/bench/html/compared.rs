//! Which results of several locks, or of sweeps, are drawn together.

use crate::bench::html::about;
use crate::bench::html::many::{self, Plot, Series};
use crate::bench::json::Row;
use crate::bench::units::quantity;

/// What is drawn.
pub(super) struct Drawn {
    pub(super) title: String,
    /// A sentence about it.
    pub(super) told: String,
    /// Of those that tell most.
    pub(super) heading: Option<&'static str>,
    pub(super) plot: Plot,
}

/// Curves of what was measured at several points, in the order of the results; then rows of the rest, a plot for each metric.
pub(super) fn pictures(rows: &[&Row], locks: &[&str]) -> Vec<Drawn> {
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        let same = |group: &&mut Vec<&Row>| (&group[0].benchmark, group[0].metric) == (&row.benchmark, row.metric);
        match groups.iter_mut().find(same) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    let (curves, single): (Vec<_>, Vec<_>) = groups.into_iter().partition(|group| points(group).1.len() > 1);
    let mut metrics: Vec<(&str, Vec<&Row>)> = Vec::new();
    for row in single.into_iter().flatten() {
        match metrics.iter_mut().find(|(metric, _)| *metric == row.metric) {
            Some((_, rows)) => rows.push(row),
            None => metrics.push((row.metric, vec![row])),
        }
    }
    let mut drawn: Vec<Drawn> = metrics.into_iter().map(|(_, rows)| beside(&rows, locks)).collect();
    drawn.extend(curves.into_iter().map(|group| curve(&group, locks)));
    drawn
}

/// What the results differ by, and the points of it, as they are called.
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
        unit => quantity(value, unit),
    }
}

fn curve(group: &[&Row], locks: &[&str]) -> Drawn {
    let first = group[0];
    let (axis, points) = points(group);
    let at = |row: &Row| {
        let by_parameter = row.parameter.as_ref().map(|parameter| value(parameter.value, &parameter.unit));
        let of = |name: &String| points.iter().position(|point| point == name);
        by_parameter.as_ref().and_then(of).filter(|_| axis != "ranks").or_else(|| of(&row.ranks.to_string()))
    };
    let series = series(group, locks, &at);
    let title = format!("{}: {}", first.benchmark, first.metric);
    let plot = many::curves((&axis, &points), first.unit, &series);
    Drawn { title, told: about::sentence(first), heading: about::heading(first), plot }
}

fn beside(rows: &[&Row], locks: &[&str]) -> Drawn {
    let mut labels: Vec<String> = Vec::new();
    for row in rows {
        if !labels.contains(&row.benchmark) {
            labels.push(row.benchmark.clone());
        }
    }
    let series = series(rows, locks, &|row| labels.iter().position(|label| *label == row.benchmark));
    let metric = rows[0].metric;
    let mut title = metric.to_owned();
    title[..1].make_ascii_uppercase();
    let mut told = about::better(metric).to_owned();
    if rows.iter().any(|row| row.limit.is_some()) {
        told += " The upright bars are what bare instructions reach.";
    }
    Drawn { title, told, heading: None, plot: many::rows(&labels, rows[0].unit, &series) }
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
    use crate::bench::html::tests::several;

    #[test]
    fn every_result_is_a_mark_of_one_plot() {
        let document = several();
        let rows: Vec<_> = document.results.iter().collect();
        let drawn = pictures(&rows, &["test-and-set", "mcs"]);
        let titles: Vec<_> = drawn.iter().map(|drawn| drawn.title.as_str()).collect();
        assert_eq!(
            titles,
            ["Latency", "lock + unlock, contended: acquisitions", "lock + unlock, some to read: acquisitions"]
        );
        let marks =
            |plot: &Plot| plot.content.matches("class=\"s0\"").count() + plot.content.matches("class=\"s1\"").count();
        let all: usize = drawn.iter().map(|drawn| marks(&drawn.plot) - 2).sum();
        assert_eq!(all, rows.len(), "but for the legends'");
        assert!(drawn.iter().all(|drawn| !drawn.told.is_empty()));
    }
}
