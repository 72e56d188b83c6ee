//! The report page: figures, verdicts and profile, as the pages of the benchmarks.

use onesided_sim::Profile;

use super::figure::{Figure, Kind};
use crate::bench::output::html::chart::{self, Label, Plot, Point, Style};
use crate::bench::output::html::page::{document_of, legend, plots_of, to_html};
use crate::bench::output::html::svg::escape;

/// The whole page.
pub(super) fn page(profile: &Profile, figures: &[Figure], command: &str) -> String {
    let mut content = format!(
        "<p>{}. Simulated; windows and locks as shipped. <code>{}</code></p>\n",
        escape(&profile.title),
        escape(command)
    );
    let mut drawn = 0;
    for figure in figures {
        content += &section(figure, &mut drawn);
    }
    document_of("Reproduced figures", &(content + &parameters(profile)))
}

fn section(figure: &Figure, drawn: &mut usize) -> String {
    let (samples, plot) = plot(figure);
    let mut html = format!("<h2>{}: {}</h2>\n{}", figure.name, escape(figure.title), legend(&samples));
    html += &plots_of(&[(figure.title.to_owned(), figure.value.to_owned(), plot)], drawn);
    let numbers = figure.numbers.iter().map(|number| {
        let kind = if number.kind == Kind::Calibration { "calibration" } else { number.verdict().text() };
        let [ours, ratio] = [number.ours, number.ours / number.paper].map(|value| format!("{value:.2}"));
        let why = number.ablation.as_ref().map_or_else(String::new, |ablation| ablation.to_text());
        vec![number.what.to_owned(), format!("{} {}", number.paper, number.unit), ours, ratio, kind.to_owned(), why]
    });
    let claims = figure.claims.iter().map(|claim| {
        let ours = if claim.holds { "yes" } else { "no" };
        let ablation = claim.ablation.as_ref().map_or_else(String::new, |ablation| format!("; {}", ablation.to_text()));
        let why = format!("{}{ablation}", claim.evidence);
        let cells = [claim.what, "yes", ours, "", claim.verdict().text()];
        cells.map(str::to_owned).into_iter().chain([why]).collect()
    });
    let head = ["number or claim", "paper", "ours", "ratio", "verdict", "why"];
    html += &to_html("Beside what the paper says.", &head, numbers.chain(claims));
    let notes: String = figure.notes.iter().map(|note| format!("<li>{}</li>\n", escape(note))).collect();
    if notes.is_empty() { html } else { format!("{html}<ul>\n{notes}</ul>\n") }
}

/// Curves over the parameter, or rows if there are few points; and the legend.
fn plot(figure: &Figure) -> (Vec<(String, String)>, Plot) {
    let mut at: Vec<f64> = figure.series.iter().flat_map(|series| &series.points).map(|point| point.0).collect();
    at.sort_by(f64::total_cmp);
    at.dedup();
    let names: Vec<_> = at.iter().map(|at| figure.label(*at)).collect();
    let index = |place: f64| at.partition_point(|other| *other < place);
    let point = |at, value| Point { at, value, range: None, limit: None };
    let of = |number: usize, name: &str, points| chart::Series {
        name: name.to_owned(),
        style: Style::Number(number),
        points,
    };
    let are_curves = figure.series.iter().all(|series| series.points.len() > 3);
    let (all, plot) = if are_curves {
        let curve = |(number, series): (usize, &super::figure::Series)| {
            let other = if series.other { " (not of the paper)" } else { "" };
            let points = series.points.iter().map(|(at, value)| point(index(*at), *value)).collect();
            of(number, &format!("{}{other}", series.name), points)
        };
        let all: Vec<_> = figure.series.iter().enumerate().map(curve).collect();
        let plot = chart::curves((figure.parameter, &names), "", &all, &vec![None; all.len()]);
        (all, plot)
    } else {
        let label = |series: &super::figure::Series| Label { name: series.name.clone(), notes: Vec::new() };
        let labels: Vec<_> = figure.series.iter().map(label).collect();
        let mark = |(number, name): (usize, &String)| {
            let rows = figure.series.iter().enumerate();
            let points = rows.flat_map(|(row, series)| series.points.iter().map(move |point| (row, point)));
            let points = points.filter(|(_, (at, _))| index(*at) == number);
            of(number, name, points.map(|(row, (_, value))| point(row, *value)).collect())
        };
        let all: Vec<_> = names.iter().enumerate().map(mark).collect();
        let plot = chart::rows(&labels, "", &all, None);
        (all, plot)
    };
    let named = all.iter().filter(|series| !series.name.is_empty());
    (named.map(|series| (series.style.sample(are_curves), series.name.clone())).collect(), plot)
}

fn parameters(profile: &Profile) -> String {
    let cost = |(name, parameter): (&String, &onesided_sim::Parameter)| {
        let unit = if parameter.unit == "1" { "" } else { &parameter.unit };
        vec![name.clone(), format!("{} {unit}", parameter.value), parameter.source.clone()]
    };
    let costs = to_html("What each step costs.", &["cost", "value", "why"], profile.parameters.iter().map(cost));
    let checks = profile.checks.iter().map(|check| {
        let ours = profile.measure(&check.measures).unwrap_or(f64::NAN);
        let set = format!("{} {}", check.value, check.unit);
        vec![check.measures.clone(), set, format!("{ours:.2}"), check.source.clone()]
    });
    let checks = to_html("What the costs were set from.", &["measured", "set from", "simulated", "why"], checks);
    format!("<h2>Profile</h2>\n{costs}{checks}")
}

#[cfg(test)]
mod tests {
    use super::super::figure::Series;
    use super::*;

    #[test]
    fn the_page_draws_every_series_and_escapes_text() {
        let series = |name: &str, points: &[(f64, f64)]| Series::new(name.into(), points.into());
        let figure = |series| Figure {
            name: "x-1",
            title: "T",
            value: "a < b",
            parameter: "origins",
            labels: &["", "first"],
            series,
            numbers: Vec::new(),
            claims: Vec::new(),
            notes: vec!["<i>".into()],
        };
        let curves = figure(vec![series("one", &[(1.0, 2.0), (2.0, 3.0), (3.0, 4.0), (4.0, 8.0)])]);
        let bars =
            figure(vec![series("two", &[(1.0, 1.0), (2.0, 1000.0)]), series("three", &[(1.0, 2.0), (2.0, 2.0)])]);
        let page = page(&Profile::shipped("infinihost").unwrap(), &[curves, bars], "run <x>");
        for part in ["a &lt; b", "&lt;i&gt;", "run &lt;x&gt;", ">one</li>", ">first</li>", ">three<", "PCIe-2004"] {
            assert!(page.contains(part), "{part} in {page}");
        }
        let marks = |class: &str| page.matches(&format!("class=\"{class}\"")).count();
        assert_eq!([marks("s0-line"), marks("s0"), marks("s1")], [2, 10, 5]); // with the numbers' and the legends'
    }
}
