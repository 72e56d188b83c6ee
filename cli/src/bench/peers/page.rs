//! The results as a page, and their ratios as a picture.

use std::time::{Duration, UNIX_EPOCH};

use crate::bench::output::html::page::{document_of, facts, to_html};
use crate::bench::output::html::svg::{self, escape};
use crate::bench::output::units::{self, number, utc};
use crate::bench::peers::chart::{self, Plot, WIDTH};
use crate::bench::peers::document::{Comparison, Document, LIMIT};
use crate::bench::peers::perftest;
use crate::bench::peers::table;

const TITLE: &str = "onesided bench peers";

/// How to read the figures.
const ALIKE: &str = "All programs had the same number of processes on the same cores, and did batches of the same loop, interleaved. \
    Latencies are of one operation and its flush while the lock is held. A ratio is how many times as fast onesided was: \
    above 1 it was ahead. It is the median over the runs, each of which compares adjacent batches; lines go from the \
    smallest to the largest.";
const NOT_ALIKE: &str = "The limit is memcpy or a bare atomic instruction on shared memory, and a full fence where there is a \
    flush: onesided's flush has one, and promises that the target's processor sees the data. MPI checks types and \
    communicators in every call; onesided's are known at compile time.";

impl Document {
    pub(crate) fn to_page(&self) -> String {
        let programs = self.programs.iter().map(|program| format!("{} {}", program.name, program.version));
        let more = [("Programs", programs.collect::<Vec<_>>().join(", "))];
        let begun = UNIX_EPOCH + Duration::from_secs(self.begun);
        let mut page = facts(&self.machine, &self.command, begun, &more, false);
        for note in &self.notes {
            page += &format!("<p class=\"noise\">{}</p>\n", escape(note));
        }
        page += &format!("<h2>Ratios</h2>\n<p>{ALIKE}</p>\n<p>{NOT_ALIKE}</p>\n");
        let names = self.names();
        let mut figures = Figures { count: 0, html: String::new() };
        for (group, results) in self.groups() {
            let compared: Vec<_> = results.into_iter().filter(|result| !result.ratios.is_empty()).collect();
            if !compared.is_empty() {
                figures.add(group, chart::ratios(&compared, &names));
            }
        }
        page += &format!("<div class=\"plots\">\n{}</div>\n", std::mem::take(&mut figures.html));
        page += "<h2>Values</h2>\n<p>Medians. The bars of each benchmark have a scale of their own: shorter is better for \
                 a latency, longer for the rest.</p>\n";
        for (group, results) in self.groups() {
            figures.add(&format!("{group}: values"), chart::values(&results, &names));
        }
        page += &format!("<div class=\"plots\">\n{}</div>\n", figures.html);
        page += "<h2>Results</h2>\n";
        let head = table::head(&names);
        let head: Vec<_> = head.iter().map(|name| &**name).collect();
        let about = "Medians, and how many times as fast onesided was as each of the others (smallest and largest of the runs).";
        page += &to_html(about, &head, self.results.iter().map(|result| table::cells(result, &names)));
        page += "<h2>Ranges</h2>\n";
        let ranges = self.results.iter().flat_map(|result| names.iter().filter_map(|name| range(result, name)));
        page += &to_html(
            "The smallest and the largest run.",
            &["benchmark", "who", "metric", "median", "min", "max", "unit"],
            ranges,
        );
        document_of(TITLE, &page)
    }

    /// The ratios alone, as a file of their own: two columns of plots.
    pub(crate) fn to_picture(&self) -> String {
        const GAP: f64 = 40.0;
        const MARGIN: f64 = 12.0;
        let names = self.names();
        let plots = self.groups().into_iter().filter_map(|(group, results)| {
            let compared: Vec<_> = results.into_iter().filter(|result| !result.ratios.is_empty()).collect();
            (!compared.is_empty()).then(|| (group, chart::ratios(&compared, &names)))
        });
        let plots: Vec<_> = plots.collect();
        let total: f64 = plots.iter().map(|(_, plot)| plot.height + GAP).sum();
        let (mut content, mut alt_texts) = (String::new(), Vec::new());
        let mut tops = [28.0 + MARGIN; 2];
        for (group, Plot { content: plot, height, alt_text }) in &plots {
            let column = usize::from(tops[0] + height / 2.0 > 28.0 + MARGIN + total / 2.0);
            let x = MARGIN + column as f64 * (WIDTH + GAP);
            let top = tops[column];
            content += &format!("<g transform=\"translate({x} {top:.1})\">\n");
            content += &svg::text("heading", (0.0, 0.0), group);
            content += &format!("<g transform=\"translate(0 12)\">\n{plot}</g>\n</g>\n");
            tops[column] += height + GAP;
            alt_texts.push(format!("{group}: {alt_text}"));
        }
        let programs = self.programs.iter().skip(1).map(|program| format!("{} {}", program.name, program.version));
        let begun = utc(UNIX_EPOCH + Duration::from_secs(self.begun));
        let heading = format!(
            "onesided beside {}: {} {}cores, {}, {}",
            programs.collect::<Vec<_>>().join(" and "),
            self.machine.machine.cores,
            if self.machine.is_virtual { "virtual " } else { "" },
            if self.programs.iter().any(|program| program.name == perftest::NAME) { "verbs" } else { "shared memory" },
            begun.split(' ').next().unwrap_or_default(),
        );
        let size = (2.0 * (WIDTH + MARGIN) + GAP, tops[0].max(tops[1]) - GAP + MARGIN);
        let style = include_str!("../output/html/page.css");
        let content = format!(
            "<style>\n{style}</style>\n{}{}{content}",
            svg::rect("paper", (0.0, 0.0), size),
            svg::text("start", (MARGIN, 20.0), heading)
        );
        svg::picture("picture", size, (TITLE, &alt_texts.join(". ")), &content).replacen(
            "<svg ",
            "<svg xmlns=\"http://www.w3.org/2000/svg\" ",
            1,
        )
    }

    /// The results that are drawn together, in the order of the first of each group.
    fn groups(&self) -> Vec<(&str, Vec<&Comparison>)> {
        let mut groups: Vec<(&str, Vec<&Comparison>)> = Vec::new();
        for result in &self.results {
            match groups.iter_mut().find(|(name, _)| *name == result.group) {
                Some((_, results)) => results.push(result),
                None => groups.push((&result.group, vec![result])),
            }
        }
        groups
    }
}

/// The figures of a page, each with a unique id.
struct Figures {
    count: usize,
    html: String,
}

impl Figures {
    fn add(&mut self, title: &str, Plot { content, height, alt_text }: Plot) {
        let svg = svg::picture(&format!("plot-{}", self.count), (WIDTH, height), (title, &alt_text), &content);
        self.html += &format!("<figure>\n<figcaption>{}</figcaption>\n{svg}</figure>\n", escape(title));
        self.count += 1;
    }
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
    use crate::bench::peers::document::tests::stored;

    #[test]
    fn every_result_is_drawn_in_both_ways() {
        let document = stored();
        let page = document.to_page();
        let compared = document.results.iter().filter(|result| !result.ratios.is_empty());
        let legends = document.groups().len();
        // A line at 1 with our dot on it in every row, and one in each legend.
        assert_eq!(page.matches("class=\"dot\"").count(), compared.count() + legends, "{page}");
        let bars = document.results.iter().filter(|result| result.values.contains_key("onesided")).count();
        assert_eq!(page.matches("class=\"bar\"").count(), bars + legends, "{page}");
        for wrong in ["http:", "https:", "src=", "href=", "url(", "<script", "NaN", "inf\""] {
            assert!(!page.contains(wrong), "{wrong}: {page}");
        }
    }

    #[test]
    fn the_picture_stands_alone() {
        let picture = stored().to_picture();
        assert!(picture.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox="), "{picture}");
        assert!(picture.contains("<style>") && !picture.contains("NaN"), "{picture}");
    }
}
