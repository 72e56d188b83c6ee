//! The report page: profile, figures and verdicts in one HTML file without scripts.

use std::fmt::Write as _;

use onesided_sim::Profile;

use super::figure::{Figure, Kind, Series, Verdict};

const STYLE: &str = include_str!("report.css");
const COLOURS: usize = 9;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 280.0;
/// Left of the plot, where its values stand; the other sides.
const LEFT: f64 = 56.0;
const EDGE: f64 = 28.0;

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The whole page.
pub(super) fn page(profile: &Profile, figures: &[Figure], command: &str) -> String {
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>Reproduced figures</title>\n\
         <style>\n{STYLE}</style></head><body>\n<h1>Reproduced figures</h1>\n<p>{} Simulated; windows and locks as \
         shipped. <code>{}</code></p>\n",
        escape(&format!("{}.", profile.title)),
        escape(command),
    );
    for figure in figures {
        html += &section(figure);
    }
    html += &parameters(profile);
    html + "</body></html>\n"
}

fn section(figure: &Figure) -> String {
    let mut html = format!("<section><h2>{}: {}</h2>\n<p>{}</p>\n", figure.name, figure.title, escape(figure.value));
    let curves = figure.series.iter().all(|series| series.points.len() > 3);
    html += &if curves { plot(figure) } else { bars(figure) };
    html += "<table><tr><th>number or claim</th><th>paper</th><th>ours</th><th>ratio</th><th>verdict</th></tr>\n";
    for number in &figure.numbers {
        let kind = if number.kind == Kind::Calibration { None } else { Some(number.verdict()) };
        let ablation = number.ablation.as_ref().map(|ablation| ablation.to_text());
        html += &row(
            number.what,
            [
                format!("{} {}", number.paper, number.unit),
                format!("{:.2}", number.ours),
                format!("{:.2}", number.ours / number.paper),
            ],
            kind,
            ablation,
        );
    }
    for claim in &figure.claims {
        let ablation = claim.ablation.as_ref().map(|ablation| ablation.to_text());
        let ours = format!("{}: {}", if claim.holds { "yes" } else { "no" }, claim.evidence);
        html += &row(claim.what, ["yes".into(), ours, String::new()], Some(claim.verdict()), ablation);
    }
    html += "</table>\n";
    for note in &figure.notes {
        let _ = writeln!(html, "<p class=\"note\">{}</p>", escape(note));
    }
    html + "</section>\n"
}

fn row(what: &str, cells: [String; 3], verdict: Option<Verdict>, ablation: Option<String>) -> String {
    let verdict = verdict.map_or("calibration", Verdict::text);
    let [paper, ours, ratio] = cells.map(|cell| escape(&cell));
    let why = ablation.map_or(String::new(), |ablation| format!("<br><small>{}</small>", escape(&ablation)));
    let what = escape(what);
    format!(
        "<tr><td>{what}{why}</td><td>{paper}</td><td>{ours}</td><td>{ratio}</td><td class=\"{verdict}\">{verdict}</td></tr>\n"
    )
}

/// A round number that is no smaller.
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.max(f64::MIN_POSITIVE).log10().floor());
    let digits = [1.0, 1.2, 1.6, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0];
    digits.iter().map(|digit| digit * power).find(|round| *round >= value * 0.999).unwrap_or(value)
}

/// The largest value that is no more than so many times the median.
fn longest(figure: &Figure, times: f64) -> f64 {
    let mut values: Vec<_> = figure.series.iter().flat_map(|series| &series.points).map(|point| point.1).collect();
    values.sort_by(f64::total_cmp);
    values.iter().copied().rfind(|value| *value <= times * values[values.len() / 2]).unwrap_or(1.0)
}

/// Curves over the parameter; one that rises far above the others is cut.
fn plot(figure: &Figure) -> String {
    let points = || figure.series.iter().flat_map(|series| &series.points);
    let top = round_up(longest(figure, 6.0));
    let [first, last] =
        [points().map(|point| point.0).fold(f64::MAX, f64::min), points().map(|point| point.0).fold(0.0, f64::max)];
    let x = |at: f64| LEFT + (at - first) / (last - first).max(1.0) * (WIDTH - LEFT - EDGE);
    let y = |value: f64| HEIGHT - EDGE - value / top * (HEIGHT - 2.0 * EDGE);
    let title = escape(figure.title);
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\"><title>{title}</title>\n");
    for step in 0..=4 {
        let value = top * f64::from(step) / 4.0;
        let (at, label) = (y(value), value);
        let _ = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{}\"/><text class=\"end\" x=\"{}\" y=\"{:.1}\">{label}</text>",
            WIDTH - EDGE,
            LEFT - 6.0,
            at + 4.0
        );
    }
    for (at, _) in figure.series.first().map_or(&[][..], |series| &series.points) {
        let _ = writeln!(svg, "<text class=\"middle\" x=\"{:.1}\" y=\"{:.1}\">{at}</text>", x(*at), HEIGHT - 10.0);
    }
    let above = EDGE - 4.0;
    let _ = writeln!(
        svg,
        "<svg y=\"{above}\" width=\"{WIDTH}\" height=\"{}\" viewBox=\"0 {above} {WIDTH} {}\">",
        HEIGHT - above,
        HEIGHT - above
    );
    for (index, Series { points, other, .. }) in figure.series.iter().enumerate() {
        let places: Vec<_> = points.iter().map(|(at, value)| format!("{:.1} {:.1}", x(*at), y(*value))).collect();
        let colour = index % COLOURS;
        let other = if *other { " other" } else { "" };
        let _ = writeln!(svg, "<path class=\"curve c{colour}{other}\" d=\"M{}\"/>", places.join("L"));
        for place in &places {
            let (cx, cy) = place.split_once(' ').unwrap_or(("0", "0"));
            let _ = writeln!(svg, "<circle class=\"f{colour}\" cx=\"{cx}\" cy=\"{cy}\" r=\"3\"/>");
        }
    }
    svg += "</svg></svg>\n<p class=\"key\">";
    for (index, series) in figure.series.iter().enumerate() {
        let last = series.last();
        let other = if series.other { " other" } else { "" };
        let name = escape(&series.name);
        let _ = write!(svg, "<span class=\"k{}{other}\">{name} ({last:.2})</span> ", index % COLOURS);
    }
    format!("<figure>{svg}</p><figcaption>{}</figcaption></figure>\n", escape(figure.parameter))
}

/// Bars, one for each value; a value far above the others is cut.
fn bars(figure: &Figure) -> String {
    let longest = longest(figure, 20.0);
    let mut html = "<table class=\"bars\">\n".to_owned();
    for series in &figure.series {
        for (at, value) in &series.points {
            let part = 100.0 * (value / longest).min(1.0);
            let cut = if *value > longest { " cut" } else { "" };
            let which = escape(&figure.label(*at));
            let _ = writeln!(
                html,
                "<tr><td>{}</td><td>{which}</td><td class=\"bar\"><div class=\"f{}{cut}\" style=\"width:{part:.1}%\"></div></td><td>{value:.2}</td></tr>",
                escape(&series.name),
                (*at as usize) % COLOURS,
            );
        }
    }
    html + "</table>\n"
}

fn parameters(profile: &Profile) -> String {
    let mut html = "<section><h2>Profile</h2><table><tr><th>cost</th><th>value</th><th>source</th></tr>\n".to_owned();
    for (name, parameter) in &profile.parameters {
        let (value, unit) = (parameter.value, if parameter.unit == "1" { "" } else { &parameter.unit });
        let _ = writeln!(html, "<tr><td>{name}</td><td>{value} {unit}</td><td>{}</td></tr>", escape(&parameter.source));
    }
    html += "</table><table><tr><th>measured</th><th>set from</th><th>simulated</th><th>source</th></tr>\n";
    for check in &profile.checks {
        let ours = profile.measure(&check.measures).unwrap_or(f64::NAN);
        let _ = writeln!(
            html,
            "<tr><td>{}</td><td>{} {}</td><td>{ours:.2}</td><td>{}</td></tr>",
            escape(&check.measures),
            check.value,
            escape(&check.unit),
            escape(&check.source)
        );
    }
    html + "</table></section>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_ends_at_a_round_number() {
        assert_eq!([0.9, 1.0, 13.97, 82.7, 120.0, 2.1].map(round_up), [1.0, 1.0, 16.0, 100.0, 120.0, 3.0]);
    }

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
        for part in
            ["M56.0 ", "a &lt; b", "&lt;i&gt;", "run &lt;x&gt;", "one (8.00)", " cut\"", "<td>first</td>", "PCIe-2004"]
        {
            assert!(page.contains(part), "{part} in {page}");
        }
        assert_eq!(page.matches("<circle").count(), 4);
    }
}
