//! The page.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::bench::html::figures::figures;
use crate::bench::html::svg::escape;
use crate::bench::json::{Document, Limit, Machine, Row};
use crate::bench::table;
use crate::bench::units::size;

/// Nothing is loaded from anywhere: the policy has the browser hold the page to it.
const HEAD: &str = "\
<!DOCTYPE html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<meta name=\"color-scheme\" content=\"light dark\">
<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">
";

/// A run's results as HTML; `title` is what was measured, `command` what was asked for, `begun` when.
pub(crate) fn page(document: &Document, title: &str, command: &str, begun: SystemTime) -> String {
    let mut page = about(document, command, begun);
    page += "<h2>Plots</h2>\n";
    let has_limits = document.results.iter().any(|row| row.limit.is_some());
    if has_limits {
        page += "<p>The limit (dashed) is what bare instructions reach: for a contended lock, the same algorithm; for one that \
                 nobody contends for, a compare-swap lock; for a target that computes, the same with an idle one. It is \
                 measured in turns with the result.</p>\n";
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
            &format!(" With more ranks than the {cores} cores they take turns, and the scheduler is measured too.");
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
            "What bare instructions reach, and what the results while the target computes are compared with.",
            &head,
            document.limits.iter().map(limit),
        );
    }
    whole(title, &page)
}

/// A page with this title, which is its heading too, and this content.
pub(crate) fn whole(title: &str, content: &str) -> String {
    let (style, title) = (include_str!("page.css"), escape(title));
    format!(
        "{HEAD}<title>{title}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n\
         {content}</main>\n</body>\n</html>\n"
    )
}

/// What ran where.
fn about(document: &Document, command: &str, begun: SystemTime) -> String {
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

/// What was asked for, what it ran on, when, and more, as a list; a warning if the machine was busy, unless time is virtual.
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
    let head = [row.benchmark.clone(), point, row.size.map_or_else(String::new, size), ranks, row.metric.to_owned()];
    head.into_iter().chain(numbers).collect()
}

fn limit(limit: &Limit) -> Vec<String> {
    let [_, ranks, numbers @ ..] = table::limit(limit);
    let point = limit.parameter.as_ref().map_or_else(String::new, table::point);
    let head = [limit.name.clone(), point, limit.size.map_or_else(String::new, size), ranks, limit.metric.to_owned()];
    head.into_iter().chain(numbers).collect()
}

/// The first cell of a row is its head. Wider than a phone, it scrolls in its own box, which the keyboard reaches.
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

/// 2026-11-21 17:05 UTC, in the calendar that was extended to all times.
pub(crate) fn utc(time: SystemTime) -> String {
    let minutes = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 60);
    let (days, minutes) = (minutes / 1440, minutes % 1440);
    let is_leap = |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let (mut year, mut day) = (1970, days);
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let months = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while day >= months[month] {
        day -= months[month];
        month += 1;
    }
    format!("{year}-{:02}-{:02} {:02}:{:02} UTC", month + 1, day + 1, minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::bench::html::tests::{locks, sweep};
    use crate::bench::units::number;

    #[test]
    fn every_result_and_every_limit_has_its_row() {
        for document in [sweep(), locks()] {
            let page = page(&document, "bench", "onesided bench", UNIX_EPOCH);
            let rows: Vec<_> = page.lines().filter(|line| line.starts_with("<tr><th scope=\"row\"")).collect();
            assert_eq!(rows.len(), document.results.len() + document.limits.len());
            for (result, row) in document.results.iter().zip(&rows) {
                let cell = |text: String| assert!(row.contains(&format!(">{text}<")), "{text}: {row}");
                cell(escape(&result.benchmark));
                cell(result.metric.to_owned());
                cell(result.ranks.to_string());
                cell(number(result.value, result.unit));
                cell(result.size.map_or_else(String::new, size));
            }
        }
    }

    #[test]
    fn what_comes_from_outside_is_text() {
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

    #[test]
    fn times_are_utc() {
        let at = |seconds| utc(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01 00:00 UTC");
        assert_eq!(at(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(at(1_795_280_759), "2026-11-21 17:05 UTC");
        assert_eq!(at(4_107_542_399), "2100-02-28 23:59 UTC");
        assert_eq!(at(4_107_542_400), "2100-03-01 00:00 UTC");
    }
}
