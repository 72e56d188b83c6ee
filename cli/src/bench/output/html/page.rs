//! The page of a run.

use std::time::SystemTime;

use crate::bench::output::html::figures::figures;
use crate::bench::output::html::svg::escape;
use crate::bench::output::json::{Document, Limit, Machine, Row};
use crate::bench::output::table;
use crate::bench::output::units::{size, utc};

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

/// A run's results as HTML, with the command line and the time of the run.
pub(crate) fn page(document: &Document, title: &str, command: &str, begun: SystemTime) -> String {
    let mut page = run_facts(document, command, begun);
    page += "<h2>Plots</h2>\n";
    let has_limits = document.results.iter().any(|row| row.limit.is_some());
    if has_limits {
        page += "<p>The limit (dashed) is what bare instructions reach: for a contended lock, the same algorithm; for an \
                 uncontended one, a compare-and-swap lock; for a computing target, the same with an idle one. It is \
                 measured interleaved with the result.</p>\n";
    }
    page += &format!("<div class=\"plots\">\n{}</div>\n", figures(document).concat());
    page += "<h2>Results</h2>\n";
    let mut about = "Medians of all runs, the smallest and the largest.".to_owned();
    if has_limits {
        about += " Ratio: median / limit, lower is better for a latency, higher for the rest.";
    }
    let head = ["benchmark", "at", "size", "ranks", "metric", "median", "min", "max", "unit", "limit", "ratio"];
    if !document.is_simulated() {
        let cores = document.machine.machine.cores;
        about +=
            &format!(" With more ranks than the {cores} cores, ranks share cores, and the scheduler is measured too.");
    }
    let several = document.results.iter().any(|row| row.algorithm != document.results[0].algorithm);
    if several {
        let head = [&head[..1], &["lock"], &head[1..]].concat();
        let with_lock = |row: &Row| {
            let mut cells = result(row);
            cells.insert(1, row.algorithm.clone());
            cells
        };
        page += &to_html(&about, &head, document.results.iter().map(with_lock));
    } else {
        page += &to_html(&about, &head, document.results.iter().map(result));
    }
    if !document.limits.is_empty() {
        page += "<h2>Limits of this machine</h2>\n";
        let head = ["limit", "at", "size", "ranks", "metric", "median", "min", "max", "unit"];
        page += &to_html(
            "What bare instructions reach, and the results with an idle target that those with a computing one are compared with.",
            &head,
            document.limits.iter().map(limit),
        );
    }
    document_of(title, &page)
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
fn run_facts(document: &Document, command: &str, begun: SystemTime) -> String {
    let mut more = Vec::new();
    if let Some(Row { algorithm, fabric, .. }) = document.results.first() {
        more.push(("Fabric", fabric.clone()));
        let mut locks = vec![algorithm.as_str()];
        for row in &document.results {
            if !locks.contains(&row.algorithm.as_str()) {
                locks.push(&row.algorithm);
            }
        }
        more.push(("Lock", locks.join(", ")));
    }
    more.push(("Version", format!("onesided {}", env!("CARGO_PKG_VERSION"))));
    facts(&document.machine, command, begun, &more, document.is_simulated())
}

/// A list of the command line, the machine, the time of the run, and more facts; and a warning if
/// the machine was busy, unless time is virtual.
pub(crate) fn facts(
    machine: &Machine,
    command: &str,
    begun: SystemTime,
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
    facts.push(("Begun", utc(begun)));
    let facts: String = facts.iter().map(|(name, value)| format!("<dt>{name}</dt><dd>{value}</dd>\n")).collect();
    let noise = if machine.load > 0.5 && !is_simulated {
        format!("<p class=\"noise\">The load was {} before the run: expect noise.</p>\n", machine.load)
    } else {
        String::new()
    };
    format!("<dl>\n{facts}</dl>\n{noise}")
}

fn result(row: &Row) -> Vec<String> {
    let [_, ranks, numbers @ ..] = table::result(row);
    let point = row.parameter.as_ref().map_or_else(String::new, table::point);
    let head = [row.benchmark.clone(), point, row.size.map_or_else(String::new, size), ranks, row.quantity.to_string()];
    head.into_iter().chain(numbers).collect()
}

fn limit(limit: &Limit) -> Vec<String> {
    let [_, ranks, numbers @ ..] = table::limit(limit);
    let point = limit.parameter.as_ref().map_or_else(String::new, table::point);
    let head =
        [limit.name.clone(), point, limit.size.map_or_else(String::new, size), ranks, limit.quantity.to_string()];
    head.into_iter().chain(numbers).collect()
}

/// A table. The first cell of a row is its head. A wide table scrolls in a box of its own, which
/// has keyboard focus.
pub(crate) fn to_html(about: &str, head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let class = |column: usize| match head[column] {
        "metric" | "lock" | "at" => " class=\"text\"",
        "unit" | "" => " class=\"unit\"",
        _ if column == 0 => " class=\"text\"",
        _ => "",
    };
    let heads: String = head
        .iter()
        .enumerate()
        .map(|(column, name)| format!("<th scope=\"col\"{}>{}</th>", class(column), escape(name)))
        .collect();
    let mut body = String::new();
    for row in rows {
        body += "<tr>";
        for (column, cell) in row.iter().enumerate() {
            let (class, cell) = (class(column), escape(cell));
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
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::bench::output::html::tests::{locks, sweep};
    use crate::bench::output::units::number;

    #[test]
    fn every_result_and_every_limit_has_its_row() {
        for document in [sweep(), locks()] {
            let page = page(&document, "bench", "onesided bench", UNIX_EPOCH);
            let rows: Vec<_> = page.lines().filter(|line| line.starts_with("<tr><th scope=\"row\"")).collect();
            assert_eq!(rows.len(), document.results.len() + document.limits.len());
            for (result, row) in document.results.iter().zip(&rows) {
                let cell = |text: String| assert!(row.contains(&format!(">{text}<")), "{text}: {row}");
                cell(escape(&result.benchmark));
                cell(result.quantity.to_string());
                cell(result.ranks.to_string());
                cell(number(result.value, result.unit));
                cell(result.size.map_or_else(String::new, size));
            }
        }
    }

    #[test]
    fn outside_text_is_escaped() {
        let mut document = sweep();
        document.machine.processor = "<script>".to_owned();
        let page = page(&document, "a & b", "onesided --json '<x>'", UNIX_EPOCH);
        assert!(page.contains("&lt;script&gt;") && !page.contains("<script"), "{page}");
        assert!(page.contains("<title>a &amp; b</title>"), "{page}");
        assert!(page.contains("<code>onesided --json &#39;&lt;x&gt;&#39;</code>"), "{page}");
    }

    #[test]
    fn nothing_is_loaded_and_every_element_is_closed() {
        let page = page(&locks(), "bench", "onesided bench", UNIX_EPOCH);
        for loaded in ["http:", "https:", "src=", "href=", "url(", "@import", "<script", "NaN"] {
            assert!(!page.contains(loaded), "{loaded}: {page}");
        }
        for element in [
            "html", "head", "body", "main", "dl", "div", "figure", "svg", "title", "desc", "text", "table", "tr", "th",
            "td",
        ] {
            let begun = page.matches(&format!("<{element}>")).count() + page.matches(&format!("<{element} ")).count();
            assert_eq!(begun, page.matches(&format!("</{element}>")).count(), "{element}: {page}");
        }
        let ids: Vec<_> = page.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let mut unique = ids.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!((unique.len(), ids.len()), (ids.len(), 2 * page.matches("<svg").count()), "{ids:?}");
    }
}
