//! The results as text.

use std::iter;

use crate::bench::output::table::{WIDTH, machine, table};
use crate::bench::output::units::rounded;
use crate::bench::peers::document::{Comparison, Document, LIMIT, OURS};
use crate::bench::results::quantity::Quantity;
use crate::bench::runner::wrap;

/// How many programs, the limit among them, have their values and ratios in one table.
const ONE_TABLE: usize = 4;

impl Document {
    pub(crate) fn to_text(&self) -> String {
        let mut text = machine(&self.machine, false);
        let names = self.names();
        let head = head(&names);
        let head: Vec<_> = head.iter().map(|name| &**name).collect();
        let mut rows = Vec::new();
        for (group, results) in self.groups() {
            let mut title = vec![String::new(); head.len()];
            title[0] = format!("{group}:");
            rows.push(title);
            rows.extend(results.into_iter().map(|result| cells(result, &names, false)));
        }
        // With more programs the values and the ratios are a table each.
        let split = if names.len() > ONE_TABLE { 1 + names.len() } else { head.len() };
        for columns in [1..split, split..head.len()].into_iter().filter(|columns| !columns.is_empty()) {
            let head = [&head[..1], &head[columns.clone()]].concat();
            let rows = rows.iter().map(|row| [&row[..1], &row[columns.clone()]].concat());
            text += &format!("\n{}", table(&head, rows));
        }
        text += "\nMedians. x NAME: how many times as fast onesided was as NAME.\n";
        for note in &self.notes {
            text += &format!("{}\n", wrap(note, WIDTH));
        }
        text
    }
}

pub(crate) fn head(names: &[&str]) -> Vec<String> {
    let others = names.iter().filter(|name| **name != OURS);
    let ratios = others.map(|name| format!("x {}", name.replace(' ', "\n")));
    ["benchmark"].into_iter().chain(names.iter().copied()).map(str::to_owned).chain(ratios).collect()
}

/// The cells label, medians of all programs, ratios, with their ranges or without.
pub(crate) fn cells(result: &Comparison, names: &[&str], with_ranges: bool) -> Vec<String> {
    let value =
        |name: &&str| result.values.get(*name).map_or_else(String::new, |value| rounded(value.median, &result.unit));
    let ratio = |name: &&str| {
        result.ratios.get(*name).map_or_else(String::new, |ratio| {
            let digits = |ratio: f64| match ratio {
                _ if ratio < 0.0995 => format!("{ratio:.4}"),
                _ if ratio < 9.95 => format!("{ratio:.2}"),
                _ if ratio < 99.5 => format!("{ratio:.1}"),
                _ => format!("{ratio:.0}"),
            };
            match *name {
                _ if !with_ranges || *name == LIMIT => digits(ratio.median),
                _ => format!("{} ({}-{})", digits(ratio.median), digits(ratio.min), digits(ratio.max)),
            }
        })
    };
    let label = match result.quantity {
        Quantity::Share => format!("  {}", Quantity::Share),
        _ => result.label(),
    };
    let others = names.iter().filter(|name| **name != OURS);
    iter::once(label).chain(names.iter().map(value)).chain(others.map(ratio)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::peers::document::Program;
    use crate::bench::peers::document::tests::stored;

    #[test]
    fn five_programs_fit_the_terminal() {
        let runs: Vec<(&str, &[f64])> =
            [OURS, LIMIT, "MPICH", "Open MPI", "UCX"].into_iter().zip([&[123_456.0][..]; 5]).collect();
        let mut document = stored();
        document.programs.push(Program { name: "UCX".to_owned(), version: "1".to_owned() });
        document.results =
            vec![Comparison::new(("all unexpected", "Rates"), Some(8), 2, Quantity::Latency).with(&runs)];
        let text = document.to_text();
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        let words: Vec<Vec<_>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        for line in ["benchmark onesided limit MPICH Open MPI UCX", "all unexpected, 8 B 1.00 1.00 1.00 1.00"] {
            let line: Vec<_> = line.split(' ').collect();
            assert!(words.contains(&line), "{line:?}: {text}");
        }
    }

    #[test]
    fn every_result_and_every_note_has_its_line() {
        let document = stored();
        let text = document.to_text();
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        for result in document.results.iter().filter(|result| result.label().len() < 30) {
            let is_it = |line: &&str| line.starts_with(&format!("{}  ", result.label()));
            assert_eq!(text.lines().filter(is_it).count(), 1, "{text}");
        }
        for note in &document.notes {
            assert!(text.lines().any(|line| line == note), "{text}");
        }
    }
}
