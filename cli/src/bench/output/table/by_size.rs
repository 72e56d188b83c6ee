//! Operations and messages by size.

use crate::bench::output::json::{Document, Figure, Row};
use crate::bench::output::table::{BASELINE, BESIDE, bytes, is_baseline, listed, mark, table, value};
use crate::bench::results::quantity::Quantity;

impl Document {
    /// A line for each operation and size: first the latencies, then the rates of many operations,
    /// whose bandwidth and message rate have the same ratio.
    pub(super) fn by_size(&self) -> String {
        let Some(Row { fabric, figure: Figure { ranks, .. }, .. }) = self.results.first() else { return String::new() };
        let title = match ranks {
            _ if self.results.iter().any(|row| row.ranks != *ranks) => format!("over {fabric}"),
            1 => format!("over {fabric}, 1 rank"),
            ranks => format!("over {fabric}, {ranks} ranks"),
        };
        let of = |quantity| self.results.iter().filter(move |row| row.quantity == quantity);
        // With its ranks, if the same was measured among others.
        let benchmark = |row: &Row| {
            let is_same =
                |other: &&Row| (&other.benchmark, other.size) == (&row.benchmark, row.size) && other.ranks != row.ranks;
            match self.results.iter().find(is_same) {
                Some(_) => format!("{}, {} ranks", row.benchmark, row.ranks),
                None => row.benchmark.clone(),
            }
        };
        let sizes = || self.results.iter().filter_map(|row| row.size);
        let (smallest, largest) = (sizes().min(), sizes().max());
        let key = of(Quantity::Latency).filter(|row| row.size == smallest);
        let key = key.chain(of(Quantity::Bandwidth).filter(|row| row.size == largest)).map(|row| {
            let [_, cells @ ..] = listed(row);
            [format!("{}, {}{}", benchmark(row), bytes(row), mark(row))].into_iter().chain(cells).collect()
        });
        let has_baselines = self.results.iter().any(is_baseline);
        let beside = |row: &Row| {
            let mark = [["", ""], [" ", BASELINE]][usize::from(has_baselines)][usize::from(is_baseline(row))];
            [value(row, row.value), row.limit.map_or_else(String::new, |limit| value(row, limit) + mark)]
        };
        let is_of_one = |row: &&Row| matches!(row.quantity, Quantity::Latency | Quantity::WakeUps);
        let latencies = self.results.iter().filter(is_of_one).map(|row| {
            let ([median, limit], [_, _, spread, ratio, _]) = (beside(row), listed(row));
            [benchmark(row) + mark(row), bytes(row), median, spread, limit, ratio].into()
        });
        let rates = of(Quantity::MessageRate).map(|rate| {
            let same = |row: &&Row| (&row.benchmark, row.size, row.ranks) == (&rate.benchmark, rate.size, rate.ranks);
            let ([rate_value, rate_limit], [_, _, _, ratio, _]) = (beside(rate), listed(rate));
            let [value, limit] = of(Quantity::Bandwidth).find(same).map(beside).unwrap_or_default();
            [rate.benchmark.clone() + mark(rate), bytes(rate), value, limit, rate_value, rate_limit, ratio].into()
        });
        [
            ("In short", table(&["", "median", "", "ratio", BESIDE], key)),
            (&*title, table(&["", "size", "median", "", "limit", "ratio"], latencies)),
            (&*title, table(&["", "size", "bandwidth", "limit", "messages", "limit", "ratio"], rates)),
        ]
        .into_iter()
        .filter(|(_, table)| table.lines().count() > 1) // of some benchmarks there are no rates
        .map(|(title, table)| format!("\n{title}\n{table}"))
        .collect()
    }
}
