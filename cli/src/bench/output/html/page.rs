//! The page: the facts of a run, its plots by question, and tables of everything.

use std::time::{Duration, UNIX_EPOCH};

use crate::bench::output::html::chart::Plot;
use crate::bench::output::html::figures::{self, figures};
use crate::bench::output::html::svg::{self, escape};
use crate::bench::output::html::timeline;
use crate::bench::output::json::{Comparison, Document, Figure, Limit, Machine, Range, Row};
use crate::bench::output::table;
use crate::bench::output::units::{number, size, unit, utc};
use crate::bench::results::quantity::Question;

/// The policy keeps the browser from loading anything.
const HEAD: &str = "\
<!DOCTYPE html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<meta name=\"color-scheme\" content=\"light dark\">
<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">
";

/// How many plots are on top.
const DECIDING: usize = 3;

/// A run's results as HTML.
pub(crate) fn page(document: &Document, title: &str) -> String {
    let mut page = run_facts(document);
    let has = |comparison| document.results.iter().any(|row| row.comparison == Some(comparison));
    page += &legend(&samples(document));
    let (mut deciding, mut others) = (Vec::new(), Vec::new());
    for figure in figures(document) {
        let decides = figure.heading.is_some() && deciding.len() < DECIDING;
        if decides { &mut deciding } else { &mut others }.push(figure);
    }
    let mut groups = vec![("The plots that decide", deciding)];
    for question in Question::ALL {
        let (of_question, rest) = others.into_iter().partition(|figure: &figures::Figure| figure.question == question);
        groups.push((question.text(), of_question));
        others = rest;
    }
    let mut drawn = 0;
    for (heading, figures) in groups.into_iter().filter(|(_, figures)| !figures.is_empty()) {
        let plots: Vec<_> = figures.into_iter().map(|figure| (figure.title, figure.sentence, figure.plot)).collect();
        page += &format!("<h2>{}</h2>\n{}", escape(heading), plots_of(&plots, &mut drawn));
    }
    let timelines = timeline::figures(document);
    if !timelines.is_empty() {
        let of = |(title, sentence, svg): &(String, String, String)| figure(title, sentence, svg);
        page += &format!("<h2>Time stamps</h2>\n{}", timelines.iter().map(of).collect::<String>());
    }
    if !document.remarks.is_empty() {
        let remarks: String = document.remarks.iter().map(|remark| format!("<li>{}</li>\n", escape(remark))).collect();
        page += &format!("<ul>\n{remarks}</ul>\n");
    }
    page += "<h2>Results</h2>\n";
    let mut about = "Medians of all runs, the smallest and the largest.".to_owned();
    if has(Comparison::Limit) || has(Comparison::Baseline) {
        about += " Ratio: median / limit, lower is better for a latency, higher for the rest. A limit is what bare \
                  instructions reach: for a contended lock, the same algorithm; for an uncontended one, a \
                  compare-and-swap lock; for a computing target, the same with an idle one. It is measured interleaved \
                  with the result.";
    }
    if has(Comparison::Baseline) {
        about += " What a result beats fivefold is no limit and is called a baseline.";
    }
    if document.results.iter().any(|row| row.oversubscribed) {
        let cores = document.machine.machine.cores;
        about +=
            &format!(" * More ranks than the {cores} cores: ranks share cores, and the scheduler is measured too.");
    }
    if document.results.iter().any(|row| row.needs_own_core) {
        about += " † A thread that polls serves the lock, and needs a core of its own at each rank.";
    }
    let head = [
        "benchmark",
        "lock",
        "at",
        "size",
        "ranks",
        "metric",
        "median",
        "min",
        "max",
        "unit",
        "limit",
        "ratio",
        "beside",
    ];
    let several = document.locks().len() > 1;
    page += &to_html(&about, &head, document.results.iter().map(|row| result(row, several)));
    if !document.limits.is_empty() {
        page += "<h2>Limits and baselines</h2>\n";
        let head = ["limit", "at", "size", "ranks", "metric", "median", "min", "max", "unit", "is a"];
        page += &to_html(
            "What bare instructions reach, and the results with an idle target that those with a computing one are compared with.",
            &head,
            document.limits.iter().map(limit),
        );
    }
    document_of(title, &page)
}

/// The entries of the legend: the locks, and the marks that the plots have.
fn samples(document: &Document) -> Vec<(String, String)> {
    let of_comparison = |comparison: Comparison| {
        let has = document.results.iter().any(|row| row.comparison == Some(comparison));
        let sample = svg::line(&format!("{}-tick", comparison.name()), (11.0, 2.0), (11.0, 14.0));
        let dashes = if comparison == Comparison::Limit { "dashed" } else { "dotted" };
        has.then(|| (sample, format!("{} (of a curve: {dashes})", comparison.name())))
    };
    let is_wide = |row: &Row| row.range.is_some_and(|range| range.min < range.max);
    let whisker = svg::line("s7-range", (1.0, 8.0), (21.0, 8.0)) + &svg::circle("s7", (11.0, 8.0), 2.5);
    let whisker = (whisker, "smallest to largest run".to_owned());
    let whisker = document.results.iter().any(is_wide).then_some(whisker);
    figures::legend(document)
        .into_iter()
        .chain([Comparison::Limit, Comparison::Baseline].into_iter().filter_map(of_comparison))
        .chain(whisker)
        .collect()
}

/// The legend of all plots of a page: samples of 22 by 16 units with their names.
pub(crate) fn legend(samples: &[(String, String)]) -> String {
    let entry = |(sample, name): &(String, String)| {
        format!("<li><svg viewBox=\"0 0 22 16\" aria-hidden=\"true\">\n{sample}</svg>{}</li>\n", escape(name))
    };
    format!("<ul class=\"legend\">\n{}</ul>\n", samples.iter().map(entry).collect::<String>())
}

/// Titles, sentences and plots as figures. `drawn` numbers those of the page.
pub(crate) fn plots_of(plots: &[(String, String, Plot)], drawn: &mut usize) -> String {
    let mut figures = String::new();
    for (title, sentence, plot) in plots {
        let svg = plot.picture(&format!("plot-{drawn}"), title);
        *drawn += 1;
        figures += &figure(title, sentence, &svg);
    }
    format!("<div class=\"plots\">\n{figures}</div>\n")
}

fn figure(title: &str, sentence: &str, svg: &str) -> String {
    let sentence = if sentence.is_empty() { String::new() } else { format!("<p>{}</p>\n", escape(sentence)) };
    format!("<figure>\n<figcaption>{}</figcaption>\n{sentence}{svg}</figure>\n", escape(title))
}

/// A page with this title, which is also its heading, and this content.
pub(crate) fn document_of(title: &str, content: &str) -> String {
    let (style, title) = (include_str!("page.css"), escape(title));
    format!(
        "{HEAD}<title>{title}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n\
         {content}</main>\n</body>\n</html>\n"
    )
}

/// The facts about a run of `bench locks`, `rma` or `scale`.
fn run_facts(document: &Document) -> String {
    let mut more = Vec::new();
    if let Some(first) = document.results.first() {
        more.push(("Fabric", first.fabric.clone()));
        if document.is_of_locks() {
            more.push(("Lock", document.locks().join(", ")));
        }
    }
    more.push(("Version", format!("onesided {}", env!("CARGO_PKG_VERSION"))));
    facts(&document.machine, &document.command, document.begun, &more, document.is_simulated())
}

/// A list of the command line, the machine, the time of the run, and more facts; and a warning if
/// the machine was busy, unless time is virtual.
pub(crate) fn facts(
    machine: &Machine,
    command: &str,
    begun: u64,
    more: &[(&str, String)],
    is_simulated: bool,
) -> String {
    let host = &machine.machine;
    let mut facts = vec![
        ("Command", format!("<code>{}</code>", escape(command))),
        ("Processor", escape(&format!("{}, {} cores", machine.processor, host.cores))),
        ("Kernel", escape(&format!("{} ({})", host.kernel, host.architecture))),
    ];
    facts.extend(more.iter().map(|(name, value)| (*name, escape(value))));
    facts.push(("Begun", utc(UNIX_EPOCH + Duration::from_secs(begun))));
    let facts: String = facts.iter().map(|(name, value)| format!("<dt>{name}</dt><dd>{value}</dd>\n")).collect();
    let noise = if machine.load > 0.5 && !is_simulated {
        format!("<p class=\"noise\">The load was {} before the run: expect noise.</p>\n", machine.load)
    } else {
        String::new()
    };
    format!("<dl>\n{facts}</dl>\n{noise}")
}

fn result(row: &Row, with_lock: bool) -> Vec<String> {
    let lock = if with_lock {
        format!("{}{}", row.algorithm, if row.needs_own_core { "†" } else { "" })
    } else {
        String::new()
    };
    let limit = row.limit.map_or_else(String::new, |limit| number_of(row, limit));
    let ratio = row.ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
    let compared = [limit, ratio, table::comparison(row).unwrap_or_default()];
    [row.benchmark.clone(), lock].into_iter().chain(figure_cells(row)).chain(compared).collect()
}

fn limit(limit: &Limit) -> Vec<String> {
    let is_a = limit.comparison.map_or("", Comparison::name).to_owned();
    [limit.name.clone()].into_iter().chain(figure_cells(limit)).chain([is_a]).collect()
}

/// The cells at, size, ranks, metric, median, min, max, unit.
fn figure_cells(figure: &Figure) -> [String; 8] {
    let of_range =
        |end: fn(&Range) -> f64| figure.range.as_ref().map_or_else(String::new, |range| number_of(figure, end(range)));
    [
        figure.parameter.as_ref().map_or_else(String::new, table::point),
        figure.size.map_or_else(String::new, size),
        format!("{}{}", figure.ranks, if figure.oversubscribed { "*" } else { "" }),
        figure.quantity.to_string(),
        number_of(figure, figure.value),
        of_range(|range| range.min),
        of_range(|range| range.max),
        unit(&figure.unit),
    ]
}

/// A value as one of this figure.
fn number_of(figure: &Figure, value: f64) -> String {
    if figure.quantity.is_count() { format!("{value:.0}") } else { number(value, &figure.unit) }
}

/// A table, without its empty columns. The first cell of a row is its head. A wide table scrolls in
/// a box of its own, which has keyboard focus.
pub(crate) fn to_html(about: &str, head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let rows: Vec<_> = rows.collect();
    let is_used = |column: &usize| *column == 0 || rows.iter().any(|row| !row[*column].is_empty());
    let used: Vec<_> = (0..head.len()).filter(is_used).collect();
    let class = |column: usize| match head[column] {
        "metric" | "lock" | "at" | "beside" | "is a" | "why" => " class=\"text\"",
        "unit" | "" => " class=\"unit\"",
        _ if column == 0 => " class=\"text\"",
        _ => "",
    };
    let heads: String = used
        .iter()
        .map(|column| format!("<th scope=\"col\"{}>{}</th>", class(*column), escape(head[*column])))
        .collect();
    let mut body = String::new();
    for row in &rows {
        body += "<tr>";
        for column in used.iter().copied() {
            let (class, cell) = (class(column), escape(&row[column]));
            body += &match column {
                0 => format!("<th scope=\"row\"{class}>{cell}</th>"),
                _ => format!("<td{class}>{cell}</td>"),
            };
        }
        body += "</tr>\n";
    }
    let (about, label) = (escape(about), escape(head[0]));
    format!(
        "<p>{about}</p>\n<div class=\"table\" role=\"region\" aria-label=\"Table: {label}\" tabindex=\"0\">\n<table>\n\
         <thead><tr>{heads}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n</div>\n",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::output::html::tests::{locks, several, sweep};
    use crate::bench::output::units::number;

    #[test]
    fn every_result_and_every_limit_has_its_row() {
        for document in [sweep(), locks()] {
            let page = page(&document, "bench");
            let rows: Vec<_> = page.lines().filter(|line| line.starts_with("<tr><th scope=\"row\"")).collect();
            assert_eq!(rows.len(), document.results.len() + document.limits.len());
            for (result, row) in document.results.iter().zip(&rows) {
                let cell = |text: String| assert!(row.contains(&format!(">{text}<")), "{text}: {row}");
                cell(escape(&result.benchmark));
                cell(result.quantity.to_string());
                cell(number(result.value, &result.unit));
                if let Some(bytes) = result.size {
                    cell(size(bytes));
                }
            }
        }
    }

    #[test]
    fn tables_have_no_empty_column() {
        let page = page(&locks(), "bench");
        for (head, is_there) in [("benchmark", true), ("ratio", true), ("size", false), ("at", false), ("lock", false)]
        {
            assert_eq!(page.contains(&format!(">{head}</th>")), is_there, "{head}: {page}");
        }
        for table in page.split("<tbody>").skip(1) {
            let (body, _) = table.split_once("</tbody>").unwrap();
            let rows: Vec<Vec<&str>> =
                body.lines().filter(|row| !row.is_empty()).map(|row| row.split("</t").collect()).collect();
            let columns = rows.iter().map(Vec::len).max().unwrap();
            for column in 0..columns - 2 {
                assert!(rows.iter().any(|row| !row[column].ends_with('>')), "column {column}: {body}");
            }
        }
    }

    #[test]
    fn one_legend_names_what_is_drawn_and_nothing_else() {
        let page = page(&several(), "bench");
        assert_eq!(page.matches("class=\"legend\"").count(), 1);
        let (_, legend) = page.split_once("<ul class=\"legend\">").unwrap();
        let (legend, _) = legend.split_once("</ul>").unwrap();
        for (name, is_there) in [("test-and-set", true), ("mcs", true), ("limit", true), ("baseline", false)] {
            assert_eq!(legend.contains(name), is_there, "{name}: {legend}");
        }
    }

    /// No result of `bench rma` depends on a lock.
    #[test]
    fn a_page_without_locks_names_none() {
        let (page, of_locks) = (page(&sweep(), "bench"), page(&locks(), "bench"));
        assert!(!page.contains("test-and-set") && page.contains("</svg>onesided</li>"), "{page}");
        assert!(of_locks.contains("</svg>test-and-set</li>") && !of_locks.contains("</svg>onesided</li>"));
    }

    #[test]
    fn plots_are_grouped_by_question_and_those_that_decide_come_first() {
        let page = page(&locks(), "bench");
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}: {page}"));
        let order =
            ["decide", ">lock + unlock, contended: acquisitions<", "How long", "How fair", "<h2>Results"].map(at);
        assert!(order.is_sorted(), "{order:?}: {page}");
        assert!(!page.contains("How many operations"), "no result answers that: {page}");
    }

    #[test]
    fn outside_text_is_escaped() {
        let mut document = sweep();
        document.machine.processor = "<script>".to_owned();
        let page = page(&document, "a & b");
        assert!(page.contains("&lt;script&gt;") && !page.contains("<script"), "{page}");
        assert!(page.contains("<title>a &amp; b</title>"), "{page}");
        assert!(page.contains("<code>onesided bench &#39;&lt;x&gt;&#39;</code>"), "{page}");
    }

    #[test]
    fn nothing_is_loaded_and_every_element_is_closed() {
        let page = page(&locks(), "bench");
        for loaded in ["http:", "https:", "src=", "href=", "url(", "@import", "<script", "NaN"] {
            assert!(!page.contains(loaded), "{loaded}: {page}");
        }
        for element in [
            "html", "head", "body", "main", "dl", "div", "figure", "svg", "title", "desc", "text", "table", "tr", "th",
            "td", "ul", "li",
        ] {
            let begun = page.matches(&format!("<{element}>")).count() + page.matches(&format!("<{element} ")).count();
            assert_eq!(begun, page.matches(&format!("</{element}>")).count(), "{element}: {page}");
        }
        let ids: Vec<_> = page.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let mut unique = ids.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!((unique.len(), ids.len()), (ids.len(), 2 * page.matches("<figure>").count()), "{ids:?}");
    }
}
