//! The reports of `onesided bench` and `reproduce` in a browser: every plot is drawn, nothing is
//! loaded, and all text is readable.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::bench::{Folder, LONG, measured};
use crate::support::{finish, finish_within, onesided};

/// What a browser shows of a page in the width of a screen, a phone and a sheet of paper.
struct Seen(Value);

/// How often a figure has each kind of mark.
type Marks = BTreeMap<String, u64>;

impl Seen {
    /// Opens a page by the browser that `ONESIDED_CHROMIUM` names.
    fn of(page: &Path) -> Self {
        let folder = Folder::new();
        let source = serde_json::to_string(&fs::read_to_string(page).unwrap()).unwrap();
        let harness = folder.path("harness.html");
        // A closing tag ends a script even in a string.
        fs::write(&harness, include_str!("browser.html").replacen("SOURCE", &source.replace("</", "<\\/"), 1)).unwrap();
        let browser = std::env::var_os("ONESIDED_CHROMIUM").unwrap_or_else(|| "chromium".into());
        let mut command = Command::new(browser);
        command
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"])
            .args(["--disable-component-update", "--disable-sync", "--dump-dom"])
            .arg(format!("--user-data-dir={}", folder.path("profile").display()))
            .arg(format!("file://{}", harness.display()));
        let ended = finish_within(&mut command, LONG);
        assert_eq!(ended.code(), 0, "{ended:?}");
        let dom = ended.stdout.join("\n");
        let seen = dom.split_once("<pre id=\"seen\">").and_then(|(_, rest)| rest.split_once("</pre>"));
        let (seen, _) = seen.unwrap_or_else(|| panic!("{dom}"));
        let text = seen.replace("&lt;", "<").replace("&gt;", ">").replace("&nbsp;", "\u{a0}").replace("&amp;", "&");
        Self(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
    }

    /// Checks the rules for all pages; returns the captions and marks of its figures.
    fn figures(&self) -> Vec<(String, Marks)> {
        assert_eq!(self.0["errors"], Value::Array(Vec::new()), "{}", self.0);
        let pages = self.0["pages"].as_array().unwrap();
        assert_eq!(pages.len(), 3);
        for page in pages {
            assert_eq!(page["bad"], Value::Array(Vec::new()), "{}: texts", page["medium"]);
            assert_eq!(page["loaded"], Value::Array(Vec::new()), "{}: a page loads nothing", page["medium"]);
            assert_eq!(page["figures"], pages[0]["figures"], "{}: as on a screen", page["medium"]);
        }
        let figure = |figure: &Value| {
            let marks = serde_json::from_value(figure["marks"].clone()).unwrap();
            (figure["caption"].as_str().unwrap().to_owned(), marks)
        };
        pages[0]["figures"].as_array().unwrap().iter().map(figure).collect()
    }
}

fn count(marks: &Marks, name: &str) -> u64 {
    marks.get(name).copied().unwrap_or(0)
}

/// Runs a benchmark for some seconds: every result is a mark, of a curve or in a row, with what it
/// is compared with.
fn report_of(name: &str) {
    let folder = Folder::new();
    let report = folder.path("report.html");
    let (_, results) = measured(onesided(&["bench", name, "--trial", "-n", "2", "--report"]).arg(&report));
    let mut results: Vec<_> = results["results"].as_array().unwrap().iter().collect();
    let limits = |results: &[&Value]| results.iter().filter(|result| !result["limit"].is_null()).count() as u64;
    let text = |result: &Value, field: &str| result[field].as_str().unwrap().to_owned();

    let figures = Seen::of(&report).figures();
    let (mut in_rows, mut limits_in_rows) = (0, 0);
    for (caption, marks) in &figures {
        let is_it = |result: &&Value| *caption == format!("{}: {}", text(result, "benchmark"), text(result, "metric"));
        let of_kind = |kind: &str| count(marks, &format!("limit-{kind}")) + count(marks, &format!("baseline-{kind}"));
        let (curve, others): (Vec<_>, Vec<_>) = results.iter().partition(|result| is_it(result));
        results = others;
        if curve.is_empty() {
            in_rows += count(marks, "s0");
            limits_in_rows += of_kind("tick");
            assert!(count(marks, "middle") >= 2 && count(marks, "axis") >= 3, "{caption}: {marks:?}");
        } else {
            assert_eq!((count(marks, "s0"), count(marks, "axis")), (curve.len() as u64, 1), "{caption}: {marks:?}");
            let limits = if limits(&curve) > 0 { 2 } else { 0 };
            assert_eq!(of_kind("line"), limits, "with its key, {caption}: {marks:?}");
            assert!(
                count(marks, "grid") >= 4 && count(marks, "middle") >= 2 && count(marks, "end") >= 2,
                "{caption}: {marks:?}"
            );
        }
    }
    assert_eq!((in_rows, limits_in_rows), (results.len() as u64, limits(&results)), "{figures:?}");
}

#[test]
#[ignore = "what the stage report of scripts/test starts"]
fn a_browser_draws_the_report_of_locks() {
    report_of("locks");
}

#[test]
#[ignore = "what the stage report of scripts/test starts"]
fn a_browser_draws_the_report_of_rma() {
    report_of("rma");
}

#[test]
#[ignore = "what the stage report of scripts/test starts"]
fn a_browser_draws_the_report_of_messages() {
    report_of("messages");
}

#[test]
#[ignore = "what the stage report of scripts/test starts"]
fn a_browser_draws_the_report_of_peers() {
    let folder = Folder::new();
    let report = folder.path("report.html");
    let stored = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/peers.json");
    let ended = finish(&mut onesided(&["bench", "peers", "--from", stored, "--report", report.to_str().unwrap()]));
    assert_eq!(ended.code(), 0, "{ended:?}");
    let document: Value = serde_json::from_str(&fs::read_to_string(stored).unwrap()).unwrap();
    let results = document["results"].as_array().unwrap();
    let of = |group: &str, list: &str, name: &str| {
        results.iter().filter(|result| result["group"] == group && !result[list][name].is_null()).count() as u64
    };

    let figures = Seen::of(&report).figures();
    let mut groups: Vec<_> = results.iter().map(|result| result["group"].as_str().unwrap()).collect();
    groups.dedup();
    for group in groups {
        let marks = |caption: &str| {
            let found = figures.iter().find(|(other, _)| other == caption);
            &found.unwrap_or_else(|| panic!("{caption}: {figures:?}")).1
        };
        let ratios = marks(group);
        // Beside the label, and at its value.
        for (name, class) in [("MPICH", "s1"), ("Open MPI", "s2")] {
            assert_eq!(count(ratios, class), 2 * of(group, "ratios", name), "{group}, {name}: {ratios:?}");
        }
        assert_eq!(count(ratios, "square"), of(group, "ratios", "limit"), "{group}: {ratios:?}");
        let compared = results.iter().filter(|result| result["group"] == group && result["ratios"] != json!({}));
        assert_eq!(count(ratios, "one"), compared.count() as u64, "{group}: {ratios:?}");
        assert!(count(ratios, "axis") >= 3 && count(ratios, "middle") >= 2, "{group}: {ratios:?}");
        let of_group = figures.iter().filter(|(caption, _)| caption.starts_with(&format!("{group}: ")));
        let values: Vec<_> = of_group.map(|(_, marks)| marks).collect();
        for (name, class) in [("onesided", "s0"), ("limit", "square"), ("MPICH", "s1"), ("Open MPI", "s2")] {
            let drawn: u64 = values.iter().map(|marks| count(marks, class)).sum();
            assert!(drawn >= of(group, "values", name), "{group}, {name}: {values:?}");
        }
    }
}

/// All locks by all metrics, and simulated ones, as an earlier run stored them.
#[test]
#[ignore = "what the stage report of scripts/test starts"]
fn a_browser_draws_the_reports_of_all_locks() {
    for name in ["locks", "scale"] {
        let folder = Folder::new();
        let report = folder.path("report.html");
        let stored = format!("{}/../docs/{name}.json", env!("CARGO_MANIFEST_DIR"));
        let ended = finish(&mut onesided(&["bench", name, "--from", &stored, "--report", report.to_str().unwrap()]));
        assert_eq!(ended.code(), 0, "{ended:?}");
        let figures = Seen::of(&report).figures();
        assert!(figures.len() > 5, "{figures:?}");
        for (caption, marks) in &figures {
            let drawn: u64 = (0..8).map(|lock| count(marks, &format!("s{lock}"))).sum();
            assert!(drawn > 0, "{caption}: {marks:?}");
        }
    }
}

/// Every figure has a mark for each value, but for curves that coincide.
#[test]
#[ignore = "what the stage report of scripts/test starts"]
fn a_browser_draws_the_reproduced_figures() {
    let folder = Folder::new();
    let [json, report] = ["figures.json", "figures.html"].map(|name| folder.path(name));
    let mut arguments = vec!["reproduce", "--designs", "all", "--times", "5", "--set", "slice=1000000"];
    arguments.extend(["--json", json.to_str().unwrap(), "--report", report.to_str().unwrap()]);
    let ended = finish_within(&mut onesided(&arguments), LONG);
    assert_eq!(ended.code(), 0, "{ended:?}");
    let document: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    let figures = document["figures"].as_array().unwrap();
    let drawn = Seen::of(&report).figures();
    assert_eq!(drawn.len(), figures.len(), "{drawn:?}");
    for (figure, (caption, marks)) in figures.iter().zip(&drawn) {
        assert_eq!(figure["title"], **caption);
        let series = figure["series"].as_array().unwrap();
        let values: u64 = series.iter().map(|series| series["points"].as_array().unwrap().len() as u64).sum();
        let mark = |(name, count): (&String, &u64)| {
            let is_mark = name.starts_with('s') && !name.contains('-') && name != "start";
            if is_mark { *count } else { 0 }
        };
        let all: u64 = marks.iter().map(mark).sum();
        let is_whole = match count(marks, "row") {
            0 => (1..=values).contains(&all),        // curves
            _ => all == values || all == 2 * values, // in the row, and beside the number
        };
        assert!(is_whole, "{caption}: {values}, {marks:?}");
    }
}

#[test]
#[ignore = "what the stage report of scripts/test starts"]
fn a_browser_sees_what_is_wrong() {
    let folder = Folder::new();
    let page = folder.path("wrong.html");
    let wide = "x".repeat(300);
    let text = |x: u32, text: &str| format!("<text x=\"{x}\" y=\"50\" style=\"font: 12px sans-serif\">{text}</text>");
    let svg =
        format!("<svg viewBox=\"0 0 360 200\">{}{}{}</svg>", text(10, "under"), text(15, "over"), text(340, "beyond"));
    let figure = format!("<figure><figcaption>c</figcaption>{svg}</figure>");
    fs::write(&page, format!("<!DOCTYPE html><p>{wide}</p>{figure}<img src=\"http://127.0.0.1:47999/none.png\">"))
        .unwrap();
    let Seen(seen) = Seen::of(&page);
    for page in seen["pages"].as_array().unwrap() {
        let bad = page["bad"].to_string();
        for wrong in ["under: over over", "beyond: over the edge", "xxx: too wide", "the page is"] {
            assert!(bad.contains(wrong) || (page["medium"] == "screen" && wrong.contains("page")), "{wrong}: {page}");
        }
        assert_ne!(page["loaded"], Value::Array(Vec::new()), "{page}");
    }
}
