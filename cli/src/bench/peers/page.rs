//! The results as a page, and their ratios as a picture.

use std::collections::BTreeMap;
use std::iter;

use crate::bench::output::html::chart::{self, Label, Plot, Point, Series, Style, TIMES};
use crate::bench::output::html::figures::{date, together};
use crate::bench::output::html::page::{document_of, facts, legend, plots_of, to_html};
use crate::bench::output::html::svg::{self, escape};
use crate::bench::output::units::{self, number};
use crate::bench::peers::document::{Comparison, Document, LIMIT, OURS};
use crate::bench::peers::perftest;
use crate::bench::peers::plan::{ONE_WAY, OVERLAP};
use crate::bench::peers::table;
use crate::bench::results::groups;
use crate::bench::results::summary::Summary;

const TITLE: &str = "onesided bench peers";

/// How to read the figures.
const ALIKE: &str =
    "All programs had the same number of processes on the same cores, and did batches of the same loop, interleaved.";
const OF_WINDOWS: &str = "Latencies are of one operation and its flush while the lock is held.";
const OF_MESSAGES: &str = "Latencies are half of a round trip. A stream is a window of 64 messages, 16 from 1 MiB on, whose receives are posted \
    before, and an empty message back.";
const RATIOS: &str = "A ratio is how many times as fast onesided was: above 1 it was ahead. It is the median over the runs, each of which \
    compares adjacent batches; lines go from the smallest to the largest.";
const OF_OVERLAP: &str = "Two ranks send and receive a message of 1 MiB. One that computes does so for 1.8 ms before it \
    waits: its overlap is the time of the computation alone over that with the message. A sender is held until it may go on.";
const NOT_ALIKE: &str = "The limit is memcpy or a bare atomic instruction on shared memory, and a full fence where there is a \
    flush: onesided's flush has one, and promises that the target's processor sees the data. MPI checks types and \
    communicators in every call; onesided's are known at compile time.";
const NOT_ALIKE_OF_OVERLAP: &str = "MPI has no progress modes and is measured beside each.";
const NOT_ALIKE_OF_MESSAGES: &str = "The limit is a ping-pong of stores, or memcpy into shared memory and out of it. MPI checks \
    types and communicators in every call; onesided's are known at compile time. UCX runs by itself after the batches of the \
    others: its latency is the median of single messages, its stream has no answers.";

impl Document {
    pub(crate) fn to_page(&self) -> String {
        let programs = self.programs.iter().map(|program| format!("{} {}", program.name, program.version));
        let more = [("Programs", programs.collect::<Vec<_>>().join(", "))];
        let mut page = facts(&self.machine, &self.command, self.begun, &more, false);
        for note in &self.notes {
            page += &format!("<p class=\"noise\">{}</p>\n", escape(note));
        }
        let names = self.names();
        let has = |groups: &[&str]| self.results.iter().any(|result| groups.contains(&&*result.group));
        let (latencies, not_alike) = match () {
            () if has(&[ONE_WAY]) => (OF_MESSAGES, NOT_ALIKE_OF_MESSAGES),
            () if has(&OVERLAP) => (OF_OVERLAP, NOT_ALIKE_OF_OVERLAP),
            () => (OF_WINDOWS, NOT_ALIKE),
        };
        page += "<h2>How many times as fast was onesided?</h2>\n";
        page += &format!("<p>{ALIKE} {latencies} {RATIOS}</p>\n<p>{not_alike}</p>\n");
        let ours = (Style::Number(0).sample(false), "onesided; in ratios, the line at 1×".to_owned());
        page += &legend(&samples(&names, ours));
        let mut drawn = 0;
        let ratios: Vec<_> =
            self.ratios(&names).into_iter().map(|(group, plot)| (group.to_owned(), String::new(), plot)).collect();
        page += &plots_of(&ratios, &mut drawn);
        page += "<h2>How fast was each?</h2>\n";
        let mut values = Vec::new();
        for (group, results) in self.groups() {
            for of in groups(results, |one, other| one.quantity == other.quantity) {
                let quantity = of[0].quantity;
                let plot = rows(&of, &names, &of[0].unit, |result| &result.values, None);
                values.push((format!("{group}: {quantity}"), quantity.better().to_owned(), plot));
            }
        }
        page += &plots_of(&values, &mut drawn);
        page += "<h2>Results</h2>\n";
        let head = table::head(&names);
        let head: Vec<_> = head.iter().map(|name| &**name).collect();
        let about = "Medians, and how many times as fast onesided was as each of the others (smallest and largest of the runs).";
        page += &to_html(about, &head, self.results.iter().map(|result| table::cells(result, &names, true)));
        page += "<h2>Ranges</h2>\n";
        let ranges = self.results.iter().flat_map(|result| names.iter().filter_map(|name| range(result, name)));
        page += &to_html(
            "The smallest and the largest run.",
            &["benchmark", "who", "metric", "median", "min", "max", "unit"],
            ranges,
        );
        document_of(TITLE, &page)
    }

    /// The ratios alone, as a file of their own.
    pub(crate) fn to_picture(&self) -> String {
        let names = self.names();
        let programs = self.programs.iter().skip(1).map(|program| format!("{} {}", program.name, program.version));
        let heading = format!(
            "onesided beside {}: {} {}cores, {}{}",
            programs.collect::<Vec<_>>().join(" and "),
            self.machine.machine.cores,
            if self.machine.is_virtual { "virtual " } else { "" },
            if self.programs.iter().any(|program| program.name == perftest::NAME) { "verbs" } else { "shared memory" },
            date(self.begun),
        );
        let style = include_str!("../output/html/page.css").split("/* page */").next().unwrap_or_default();
        let ours = (svg::line("one", (11.0, 2.0), (11.0, 14.0)), "onesided: right of 1× it is ahead".to_owned());
        together((TITLE, &heading), &samples(&names, ours), &self.ratios(&names), style)
    }

    /// A plot of ratios for each group that has some.
    fn ratios(&self, names: &[&str]) -> Vec<(&str, Plot)> {
        let plot = |(group, results): (_, Vec<&Comparison>)| {
            let compared: Vec<_> = results.into_iter().filter(|result| !result.ratios.is_empty()).collect();
            (!compared.is_empty()).then(|| (group, rows(&compared, names, TIMES, |result| &result.ratios, Some(1.0))))
        };
        self.groups().into_iter().filter_map(plot).collect()
    }

    /// The results that are drawn together, in the order of the first of each group.
    pub(crate) fn groups(&self) -> Vec<(&str, Vec<&Comparison>)> {
        let groups = groups(&self.results, |one, other| one.group == other.group);
        groups.into_iter().map(|results| (&*results[0].group, results)).collect()
    }
}

/// A program's colour and mark.
fn style(number: usize, name: &str) -> Style {
    match name {
        LIMIT => Style::Limit,
        OURS => Style::Number(0),
        _ => Style::Number(number - 1), // after this library and the limit
    }
}

/// The entries of the legend, this library's first.
fn samples(names: &[&str], ours: (String, String)) -> Vec<(String, String)> {
    let others = names.iter().enumerate().filter(|(_, name)| **name != OURS);
    let others = others.map(|(number, name)| (style(number, name).sample(false), (*name).to_owned()));
    iter::once(ours).chain(others).collect()
}

/// A row for each result, with what `of` has of each program.
fn rows(
    results: &[&Comparison],
    names: &[&str],
    unit: &str,
    of: impl Fn(&Comparison) -> &BTreeMap<String, Summary>,
    line: Option<f64>,
) -> Plot {
    let labels: Vec<_> = results.iter().map(|result| Label { name: result.label(), notes: Vec::new() }).collect();
    let series = |(number, name): (usize, &&str)| {
        let point = |(at, result): (usize, &&Comparison)| {
            let Summary { median, min, max } = *of(result).get(*name)?;
            Some(Point { at, value: median, range: Some((min, max)), limit: None })
        };
        let points = results.iter().enumerate().filter_map(point).collect();
        Series { name: (*name).to_owned(), style: style(number, name), points }
    };
    let all: Vec<_> = names.iter().enumerate().map(series).collect();
    chart::rows(&labels, unit, &all, line)
}

fn range(result: &Comparison, name: &str) -> Option<Vec<String>> {
    let value = result.values.get(name)?;
    let digits = |value| number(value, &result.unit);
    let who = if name == LIMIT { "limit" } else { name };
    let numbers = [value.median, value.min, value.max].map(digits);
    let head = [result.label(), who.to_owned(), result.quantity.name().to_owned()];
    Some(head.into_iter().chain(numbers).chain([units::unit(&result.unit)]).collect())
}

#[cfg(test)]
mod tests {
    use crate::bench::peers::document::Comparison;
    use crate::bench::peers::document::tests::stored;

    #[test]
    fn every_result_is_drawn_in_both_ways() {
        let document = stored();
        let page = document.to_page();
        let compared = document.results.iter().filter(|result| !result.ratios.is_empty()).count();
        assert_eq!(page.matches("class=\"one\"").count(), compared, "a line in every row: {page}");
        // In each row and beside its label, for both kinds of plots.
        let of = |name: &str| {
            let has = |result: &Comparison| (result.values.contains_key(name), result.ratios.contains_key(name));
            let count = |has: (bool, bool)| usize::from(has.0) + usize::from(has.1);
            document.results.iter().map(|result| count(has(result))).sum::<usize>()
        };
        let marks = |class: &str| page.matches(&format!("class=\"{class}\"")).count();
        assert!(marks("s1") > of("MPICH") && marks("s2") > of("Open MPI"), "{page}");
        assert_eq!(marks("square"), of("limit") + 1, "and in the legend: {page}");
        for wrong in ["http:", "https:", "src=", "href=", "url(", "<script", "NaN", "inf\""] {
            assert!(!page.contains(wrong), "{wrong}: {page}");
        }
    }

    #[test]
    fn the_picture_stands_alone() {
        let picture = stored().to_picture();
        assert!(picture.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox="), "{picture}");
        assert!(picture.contains("<style>") && !picture.contains("NaN") && !picture.contains("\nbody"), "{picture}");
    }
}
