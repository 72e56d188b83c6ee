//! The results as text.

use std::iter;

use crate::bench::output::table::{columns, machine};
use crate::bench::output::units::{number, unit};
use crate::bench::peers::document::{Comparison, Document, LIMIT, OURS};
use crate::bench::results::quantity::Quantity;

impl Document {
    pub(crate) fn to_text(&self) -> String {
        let mut text = machine(&self.machine, false);
        let names = self.names();
        let head = head(&names);
        text += &columns(&head, self.results.iter().map(|result| cells(result, &names)));
        text += "\nMedians. x NAME: how many times as fast onesided was as NAME, and the smallest and the largest of the runs.\n";
        for note in &self.notes {
            text += &format!("{note}\n");
        }
        text
    }
}

pub(crate) fn head(names: &[&str]) -> Vec<String> {
    let others = names.iter().filter(|name| **name != OURS);
    let ratios = others.map(|name| format!("x {name}"));
    ["benchmark"].into_iter().chain(names.iter().copied()).chain([""]).map(str::to_owned).chain(ratios).collect()
}

/// The cells label, medians of all programs, unit, ratios.
pub(crate) fn cells(result: &Comparison, names: &[&str]) -> Vec<String> {
    // Long times are in microseconds.
    let least = result.values.values().map(|value| value.median).fold(f64::INFINITY, f64::min);
    let (scale, name) = if result.unit == "ns" && least >= 1e4 { (1e3, "µs") } else { (1.0, &*result.unit) };
    let value = |name: &&str| {
        result.values.get(*name).map_or_else(String::new, |value| number(value.median / scale, &result.unit))
    };
    let ratio = |name: &&str| {
        result.ratios.get(*name).map_or_else(String::new, |ratio| {
            let digits = |ratio: f64| match ratio {
                _ if ratio < 0.0995 => format!("{ratio:.4}"),
                _ if ratio < 9.95 => format!("{ratio:.2}"),
                _ if ratio < 99.5 => format!("{ratio:.1}"),
                _ => format!("{ratio:.0}"),
            };
            match *name {
                LIMIT => digits(ratio.median),
                _ => format!("{} ({}-{})", digits(ratio.median), digits(ratio.min), digits(ratio.max)),
            }
        })
    };
    let label = match result.quantity {
        Quantity::Share => format!("  {}", Quantity::Share),
        _ => result.label(),
    };
    let others = names.iter().filter(|name| **name != OURS);
    iter::once(label).chain(names.iter().map(value)).chain([unit(name)]).chain(others.map(ratio)).collect()
}

#[cfg(test)]
mod tests {
    use crate::bench::peers::document::tests::stored;

    #[test]
    fn every_result_and_every_note_has_its_line() {
        let document = stored();
        let text = document.to_text();
        for result in document.results.iter().filter(|result| !result.ratios.is_empty()) {
            assert_eq!(
                text.lines().filter(|line| line.starts_with(&format!("{}  ", result.label()))).count(),
                1,
                "{text}"
            );
        }
        for note in &document.notes {
            assert!(text.lines().any(|line| line == note), "{text}");
        }
    }
}
