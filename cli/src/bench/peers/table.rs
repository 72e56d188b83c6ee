//! The results as text.

use std::iter;

use crate::bench::output::table::{WIDTH, machine, table};
use crate::bench::output::units::rounded;
use crate::bench::peers::document::{Comparison, Document, LIMIT, OURS};
use crate::bench::results::quantity::Quantity;
use crate::bench::runner::wrap;

impl Document {
    pub(crate) fn to_text(&self) -> String {
        let mut text = machine(&self.machine, false);
        let names = self.names();
        let head = head(&names);
        let head: Vec<_> = head.iter().map(|name| &**name).collect();
        text += "\n";
        let mut rows = Vec::new();
        for (group, results) in self.groups() {
            let mut title = vec![String::new(); head.len()];
            title[0] = format!("{group}:");
            rows.push(title);
            rows.extend(results.into_iter().map(|result| cells(result, &names, false)));
        }
        text += &table(&head, rows.into_iter());
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
    use crate::bench::peers::document::tests::stored;

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
