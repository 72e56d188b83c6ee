//! The results for people.

use crate::bench::json::{Document, Limit, Row};

impl Document {
    pub(crate) fn to_text(&self) -> String {
        let machine = &self.machine;
        let mut text = format!(
            "{}, {} cores, {} ({})\n",
            machine.processor, machine.machine.cores, machine.machine.kernel, machine.machine.architecture
        );
        if machine.load > 0.5 {
            text += &format!("The load was {} before the run: expect noise.\n", machine.load);
        }
        if !self.limits.is_empty() {
            text +=
                &table(["limit of this machine", "ranks", "median", "min", "max", ""], self.limits.iter().map(limit));
        }
        if let Some(Row { algorithm, fabric, .. }) = self.results.first() {
            let title = format!("{algorithm} over {fabric}");
            let head = [&*title, "ranks", "median", "min", "max", "", "limit", "ratio"];
            text += &table(head, self.results.iter().map(result));
        }
        text += "\nratio: median / limit, measured in turns. Lower is better for a latency, higher for the rest.\n";
        text
    }
}

fn limit(limit: &Limit) -> [String; 6] {
    let number = |value| number(value, limit.unit);
    [
        title(&limit.name, limit.metric),
        limit.ranks.to_string(),
        number(limit.value),
        number(limit.min),
        number(limit.max),
        unit(limit.unit),
    ]
}

fn result(row: &Row) -> [String; 8] {
    let number = |value| number(value, row.unit);
    [
        title(&row.benchmark, row.metric),
        row.ranks.to_string(),
        number(row.value),
        number(row.range.0),
        number(row.range.1),
        unit(row.unit),
        row.limit.map_or_else(String::new, number),
        row.ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
    ]
}

/// What was measured, and which side of it where that is not plain from the unit.
fn title(what: &str, metric: &str) -> String {
    match metric {
        "latency" | "bandwidth" | "acquisitions" => what.to_owned(),
        _ => format!("  {metric}"),
    }
}

/// Millions a second read better than single ones.
fn unit(unit: &str) -> String {
    match unit {
        "1/s" => "M/s".to_owned(),
        "1" => String::new(),
        unit => unit.to_owned(),
    }
}

/// Three digits or so.
fn number(value: f64, unit: &str) -> String {
    match unit {
        "1/s" => format!("{:.3}", value / 1e6),
        "1" => format!("{value:.3}"),
        _ if value < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Columns as wide as they must be: the first to the left, the others to the right, but for units, which follow their
/// numbers.
fn table<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let rows: Vec<_> = std::iter::once(head.map(str::to_owned)).chain(rows).collect();
    let widths: [usize; N] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let mut text = "\n".to_owned();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
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
    fn numbers_have_few_digits() {
        assert_eq!(number(9.149, "ns"), "9.1");
        assert_eq!(number(386_412.0, "ns"), "386412");
        assert_eq!(number(16_123_456.0, "1/s"), "16.123");
        assert_eq!(number(0.2, "1"), "0.200");
    }

    #[test]
    fn fairness_stands_under_what_it_belongs_to() {
        assert_eq!(title("lock", "acquisitions"), "lock");
        assert_eq!(title("lock", "jain"), "  jain");
    }
}
