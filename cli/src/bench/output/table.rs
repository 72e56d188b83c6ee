//! The results as text.

use crate::bench::output::json::{Document, Limit, Machine, Row};
use crate::bench::output::units::{number, rounded, rounded_parts, size, unit};
use crate::bench::results::quantity::Quantity;
use crate::bench::results::report::Parameter;
use crate::info;

impl Document {
    pub(crate) fn to_text(&self) -> String {
        let mut text = machine(&self.machine, self.is_simulated());
        if self.results.iter().all(|row| row.size.is_some()) {
            return text + &self.by_size();
        }
        if !self.limits.is_empty() {
            text += &table(
                ["limit of this machine", "ranks", "median", "min", "max", ""],
                self.limits.iter().map(|one| self.mark_oversubscribed(limit(one))),
            );
        }
        let mut locks: Vec<&str> = self.results.iter().map(|row| &*row.algorithm).collect();
        locks.sort_unstable();
        locks.dedup();
        if locks.len() > 1 {
            text += &self.by_lock();
        } else if let Some(Row { algorithm, fabric, .. }) = self.results.first() {
            let title = format!("{algorithm} over {fabric}");
            let head = [&*title, "ranks", "median", "min", "max", "", "limit", "ratio"];
            text += &table(head, self.results.iter().map(|row| self.mark_oversubscribed(result(row))));
        }
        text + &self.notes()
    }

    /// Whether the time is virtual.
    pub(crate) fn is_simulated(&self) -> bool {
        self.results.iter().all(|row| row.fabric == "sim")
    }

    /// Whether there are fewer cores than ranks.
    fn is_oversubscribed(&self, ranks: u32) -> bool {
        ranks as usize > self.machine.machine.cores
    }

    /// The number of ranks, marked if there are fewer cores.
    fn ranks(&self, ranks: &str) -> String {
        let oversubscribed = !self.is_simulated() && ranks.parse().is_ok_and(|ranks| self.is_oversubscribed(ranks));
        format!("{ranks}{}", if oversubscribed { OVERSUBSCRIBED } else { "" })
    }

    /// Marks the ranks of a row, its second cell.
    fn mark_oversubscribed<const N: usize>(&self, mut row: [String; N]) -> [String; N] {
        row[1] = self.ranks(&row[1]);
        row
    }

    /// The legend of the tables.
    fn notes(&self) -> String {
        let mut notes = String::new();
        if self.results.iter().any(|row| row.ratio.is_some()) {
            notes += RATIO;
        }
        if !self.is_simulated() && self.results.iter().any(|row| self.is_oversubscribed(row.ranks)) {
            notes += &format!(
                "{OVERSUBSCRIBED} more ranks than cores: they share the cores, and the scheduler is measured too.\n"
            );
        }
        let is_part = |row: &Row| row.benchmark.ends_with("lock: acquire") || row.benchmark.contains("lock: release, ");
        if self.results.iter().any(|row| is_part(row) || row.benchmark.ends_with("lock: release")) {
            notes += SEPARATELY;
        }
        if notes.is_empty() { notes } else { format!("\n{notes}") }
    }

    /// A line for each benchmark, with a column for each lock.
    fn by_lock(&self) -> String {
        let Some(Row { fabric, .. }) = self.results.first() else { return String::new() };
        let mut locks: Vec<&String> = Vec::new();
        for row in &self.results {
            if !locks.contains(&&row.algorithm) {
                locks.push(&row.algorithm);
            }
        }
        // The column of ratios is left out if no result has a limit.
        let compared = self.results.iter().any(|row| row.ratio.is_some());
        let mut head = vec![format!("over {fabric}"), "ranks".to_owned()];
        head.extend(locks.iter().flat_map(|lock| {
            let ratio = compared.then(|| "ratio".to_owned());
            [lock.to_string(), String::new()].into_iter().chain(ratio)
        }));
        let same = |row: &Row, other: &Row| {
            (&other.benchmark, other.quantity) == (&row.benchmark, row.quantity)
                && (other.ranks, other.size, &other.parameter) == (row.ranks, row.size, &row.parameter)
        };
        // Some locks lack some benchmarks.
        let is_new = |(at, row): &(usize, &Row)| !self.results[..*at].iter().any(|other| same(row, other));
        let rows = self.results.iter().enumerate().filter(is_new).map(|(_, row)| {
            let mut cells = vec![row.quantity.label(&label(row)), self.ranks(&row.ranks.to_string())];
            for lock in &locks {
                let found = self.results.iter().find(|other| other.algorithm == **lock && same(row, other));
                let [_, _, mut median, _, _, mut unit, _, ratio] = found.map(result).unwrap_or_default();
                // The times of different locks differ by orders of magnitude.
                if let Some(row) = found.filter(|row| row.unit == "ns") {
                    (median, unit) = rounded_parts(row.value, row.unit);
                }
                cells.extend([median, unit].into_iter().chain(compared.then_some(ratio)));
            }
            cells
        });
        columns(&head, rows)
    }

    /// A line for each operation and size: first the latencies, then the rates of many operations,
    /// whose bandwidth and message rate have the same ratio.
    fn by_size(&self) -> String {
        let Some(Row { fabric, ranks, .. }) = self.results.first() else { return String::new() };
        let title = format!("over {fabric}, {ranks} rank{}", if *ranks == 1 { "" } else { "s" });
        let of = |quantity| self.results.iter().filter(move |row| row.quantity == quantity);
        let latencies = of(Quantity::Latency).map(|row| {
            let mut cells = result(row);
            cells[1] = bytes(row);
            cells
        });
        let rates = of(Quantity::MessageRate).map(|rate| {
            let same = |row: &&Row| (&row.benchmark, row.size, row.ranks) == (&rate.benchmark, rate.size, rate.ranks);
            let [rate_value, rate_limit, rate_unit] = beside_limit(Some(rate));
            let [value, limit, unit] = beside_limit(of(Quantity::Bandwidth).find(same));
            let ratio = result(rate)[7].clone();
            [rate.benchmark.clone(), bytes(rate), value, limit, unit, rate_value, rate_limit, rate_unit, ratio]
        });
        table([&*title, "size", "median", "min", "max", "", "limit", "ratio"], latencies)
            + &table([&*title, "size", "bandwidth", "limit", "", "message rate", "limit", "", "ratio"], rates)
            + &self.notes()
    }
}

/// The machine, and a warning if it was busy.
pub(crate) fn machine(machine: &Machine, is_simulated: bool) -> String {
    let info::Machine { cores, kernel, architecture, .. } = &machine.machine;
    let mut text = format!("{}, {cores} cores, {kernel} ({architecture})\n", machine.processor);
    // Load does not affect virtual time.
    if machine.load > 0.5 && !is_simulated {
        text += &format!("The load was {} before the run: expect noise.\n", machine.load);
    }
    text
}

fn bytes(row: &Row) -> String {
    row.size.map_or_else(String::new, size)
}

/// A result, its limit, and the unit of both.
fn beside_limit(row: Option<&Row>) -> [String; 3] {
    row.map_or_else(Default::default, |row| {
        let number = |value| number(value, row.unit);
        [number(row.value), row.limit.map_or_else(String::new, number), unit(row.unit)]
    })
}

const OVERSUBSCRIBED: &str = "*";
const SEPARATELY: &str = "acquire, release: each timed on its own; they do not add up to the whole.\n";
const RATIO: &str =
    "ratio: median / limit, measured interleaved. Lower is better for a latency, higher for the rest.\n";

/// The cells benchmark, ranks, median, smallest, largest, unit.
pub(crate) fn limit(limit: &Limit) -> [String; 6] {
    let number = |value| number(value, limit.unit);
    [
        limit.quantity.label(&with_parameter(&limit.name, limit.parameter.as_ref())),
        limit.ranks.to_string(),
        number(limit.value),
        number(limit.min),
        number(limit.max),
        unit(limit.unit),
    ]
}

/// The cells benchmark, ranks, median, smallest, largest, unit, limit, ratio.
pub(crate) fn result(row: &Row) -> [String; 8] {
    let is_count = row.quantity.is_count();
    let number = |value| if is_count { format!("{value:.0}") } else { number(value, row.unit) };
    [
        row.quantity.label(&label(row)),
        row.ranks.to_string(),
        number(row.value),
        number(row.range.0),
        number(row.range.1),
        unit(row.unit),
        row.limit.map_or_else(String::new, number),
        row.ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
    ]
}

/// The benchmark and the point of its sweep.
pub(crate) fn label(row: &Row) -> String {
    with_parameter(&row.benchmark, row.parameter.as_ref())
}

/// A point of a sweep, as in `readers 50 %`, `section 10 µs` or `origins 4`.
pub(crate) fn point(parameter: &Parameter) -> String {
    let Parameter { name, value, unit } = parameter;
    match unit.as_str() {
        "1" => format!("{name} {value}"),
        "%" => format!("{name} {value} %"),
        unit => format!("{name} {}", rounded(*value, unit)),
    }
}

fn with_parameter(what: &str, parameter: Option<&Parameter>) -> String {
    parameter.map_or_else(|| what.to_owned(), |parameter| format!("{what}, {}", point(parameter)))
}

fn table<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    columns(&head.map(str::to_owned), rows.map(Vec::from))
}

/// Columns of minimal width: the first is left-aligned, the others are right-aligned, except for
/// units, which follow their numbers and have no heading.
pub(crate) fn columns(head: &[String], rows: impl Iterator<Item = Vec<String>>) -> String {
    let rows: Vec<_> = std::iter::once(head.to_vec()).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row: &Vec<String>| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = "\n".to_owned();
    for row in &rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            line += &match column {
                0 => format!("{cell:<width$}"),
                _ if head[column].is_empty() => format!(" {cell:<width$}"),
                _ => format!("  {cell:>width$}"),
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [["a", "1", "ns"], ["longer", "12.5", ""]].map(|row| row.map(str::to_owned));
        let expected = "\nwhat    value\na           1 ns\nlonger   12.5\n";
        assert_eq!(table(["what", "value", ""], rows.into_iter()), expected);
    }

    #[test]
    fn a_size_has_one_line_for_both_of_its_rates() {
        let document = crate::bench::output::html::tests::sweep();
        let text = document.to_text();
        let line = |begin: &str| text.lines().find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("{text}"));
        let words = |begin| line(begin).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words("put + flush   "), "put + flush 8 B 20.0 15.0 25.0 ns 10.0 2.00");
        assert_eq!(words("many put + flush"), "many put + flush 8 B 0.400 0.800 GB/s 50.000 100.000 M/s 0.50");
        assert_eq!(words("many CAS + flush"), "many CAS + flush 8 B 50.000 100.000 M/s 0.50");
    }

    #[test]
    fn benchmarks_of_the_second_lock_alone_are_printed() {
        let mut document = crate::bench::output::html::tests::several();
        document
            .results
            .retain(|row| row.algorithm != "test-and-set" || row.benchmark != "lock + unlock, some to read");
        let text = document.to_text();
        assert_eq!(text.lines().filter(|line| line.starts_with("lock + unlock, some to read")).count(), 3, "{text}");
    }
}
