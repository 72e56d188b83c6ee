//! The results as text, in lines of at most [`WIDTH`] characters: for each section a table with a
//! row for each lock, or, of one lock, a row for each result.

mod by_size;

use comfy_table::{Cell, CellAlignment, ColumnConstraint, ContentArrangement, Table, Width};

use crate::bench::output::json::{Comparison, Document, Machine, Row};
use crate::bench::output::units::{rounded, size};
use crate::bench::results::description::Description;
use crate::bench::results::report::Parameter;
use crate::bench::results::{groups, unique};
use crate::bench::runner::wrap;
use crate::info;

pub(crate) const WIDTH: usize = 100;
/// How much of the first column is not wrapped: names of locks are not broken.
const NAME: u16 = 29;
/// The most columns of a table of locks, beside their names. The other columns follow below.
const COLUMNS: usize = 6;

/// What the locks have in common: a quantity of a benchmark at one point of a sweep.
struct Column<'d> {
    heading: &'static str,
    /// What is swept, and its value.
    axis: String,
    point: String,
    is_key: bool,
    /// A row for each lock that has one.
    rows: Vec<&'d Row>,
}

impl Document {
    pub(crate) fn to_text(&self) -> String {
        let mut text = machine(&self.machine, self.is_simulated());
        if !self.is_of_locks() {
            return text + &self.by_size() + &self.notes(0);
        }
        if let (Some(row), [lock]) = (self.results.first(), &*self.locks()) {
            text += &format!("{lock}{} over {}\n", if row.needs_own_core { OWN_CORE } else { "" }, row.fabric);
        }
        let sections: Vec<_> = self.sections.iter().map(|(title, all)| (&**title, self.columns(all))).collect();
        let sections: Vec<_> = sections.into_iter().filter(|(_, columns)| !columns.is_empty()).collect();
        if sections.len() > 1 {
            let key: Vec<_> = sections.iter().flat_map(|(_, columns)| key(columns)).collect();
            text += &self.section("In short", &key);
        }
        let mut shown = 0;
        for (title, columns) in &sections {
            text += &self.section(title, &columns.iter().collect::<Vec<_>>());
            shown += columns.iter().map(|column| column.rows.len()).sum::<usize>();
        }
        text + &self.notes(self.results.len().saturating_sub(shown))
    }

    fn columns(&self, descriptions: &[&'static Description]) -> Vec<Column<'_>> {
        let mut columns = Vec::new();
        for description in descriptions {
            let is_described =
                |row: &&Row| self.description(&row.benchmark).is_some_and(|other| std::ptr::eq(other, *description));
            for shown in description.shown {
                let of = |row: &&Row| row.quantity == shown.quantity && is_described(row);
                let rows: Vec<&Row> = self.results.iter().filter(of).collect();
                let points = groups(rows.iter().copied(), |one, other| one.is_same_point(other));
                columns.extend(points.into_iter().map(|point| {
                    let (axis, value) = point_among(description, point[0], &rows);
                    Column { heading: shown.column, axis, point: value, is_key: shown.is_key, rows: point }
                }));
            }
        }
        columns
    }

    /// The columns that several locks have, as tables; then the others, as rows.
    fn section(&self, title: &str, columns: &[&Column<'_>]) -> String {
        let mut tables = Vec::new();
        let (of_locks, single): (Vec<_>, Vec<_>) =
            columns.iter().partition(|column| column.rows.iter().any(|row| row.algorithm != column.rows[0].algorithm));
        let mut rest = &of_locks[..];
        while !rest.is_empty() {
            let (these, others) = rest.split_at(fitting(rest));
            tables.push(self.by_lock(these));
            rest = others;
        }
        if !single.is_empty() {
            let head = ["", "median", "", "ratio", BESIDE];
            let rows = single.iter().flat_map(|column| &column.rows).map(|row| listed(row).into());
            tables.push(table(&head, rows));
        }
        format!("\n{}\n{}", wrap(title, WIDTH), tables.join("\n"))
    }

    /// A row for each lock; locks with equal rows share one. Then what they are compared with.
    fn by_lock(&self, columns: &[&Column<'_>]) -> String {
        let head = columns.iter().map(|column| {
            format!("{}\n{}{}", column.heading, column.point, mark(column.rows[0])).trim_end().to_owned()
        });
        let mut axes: Vec<&str> = columns.iter().map(|column| &*column.axis).collect();
        axes.dedup();
        axes.retain(|axis| !axis.is_empty());
        let axes = if axes.is_empty() { String::new() } else { format!("\n{}", axes.join(", ")) };
        let head: Vec<String> = std::iter::once(axes).chain(head).collect();
        let mut rows: Vec<(Vec<String>, Vec<String>)> = Vec::new();
        for lock in self.locks() {
            let of_lock = columns.iter().map(|column| column.rows.iter().find(|row| row.algorithm == lock));
            let found: Vec<_> = of_lock.collect();
            let Some(any) = found.iter().flatten().next() else { continue };
            let name = format!("{lock}{}", if any.needs_own_core { OWN_CORE } else { "" });
            let cells = found.iter().map(|row| row.map_or_else(String::new, |row| value(row, row.value))).collect();
            match rows.iter_mut().find(|(_, other)| *other == cells) {
                Some((names, _)) => names.push(name),
                None => rows.push((vec![name], cells)),
            }
        }
        let compared = columns.iter().flat_map(|column| &column.rows);
        let names = unique(compared.filter_map(|row| comparison(row)));
        rows.extend(names.into_iter().map(|name| {
            let cell = |column: &&Column<'_>| {
                let found = column.rows.iter().find(|row| comparison(row).as_ref() == Some(&name));
                found.and_then(|row| Some(value(row, row.limit?))).unwrap_or_default()
            };
            let cells = columns.iter().map(cell).collect();
            (vec![name], cells)
        }));
        let head: Vec<_> = head.iter().map(|cell| &**cell).collect();
        table(&head, rows.into_iter().map(|(names, cells)| [vec![names.join(", ")], cells].concat()))
    }

    /// The legend of the tables.
    fn notes(&self, unseen: usize) -> String {
        let any = |is: &dyn Fn(&Row) -> bool| self.results.iter().any(is);
        let mut notes = Vec::new();
        if any(&|row| row.ratio.is_some()) {
            let mark = if any(&is_baseline) && !self.is_of_locks() { BASELINE } else { "" };
            notes.push(format!(
                "ratio: median / limit, measured interleaved. Lower is better for a latency, higher for the rest. A limit \
                 is what bare instructions reach; a baseline{mark} does the same and is beaten fivefold."
            ));
        }
        if self.locks().len() == 1 && any(&|row| row.range.is_some()) {
            notes.push("±: half of what the largest run has more than the smallest.".to_owned());
        }
        if any(&|row| row.oversubscribed) {
            notes.push(format!(
                "{OVERSUBSCRIBED} more ranks than cores: they share the cores, and the scheduler is measured too."
            ));
        }
        if any(&|row| row.needs_own_core) {
            notes.push(format!(
                "{OWN_CORE} a thread that polls serves the lock, and needs a core of its own at each rank."
            ));
        }
        if any(&|row| row.benchmark.ends_with("lock: acquire")) {
            notes.push("acquire, release: each timed on its own; they do not add up to the whole.".to_owned());
        }
        notes.extend(self.remarks.iter().cloned());
        if unseen > 0 {
            notes.push(format!("{unseen} more results: --report FILE.html, --json FILE."));
        }
        notes.iter().map(|note| format!("\n{}", wrap(note, WIDTH))).collect::<String>() + "\n"
    }
}

impl Row {
    /// Whether another result differs by its lock alone.
    fn is_same_point(&self, other: &Self) -> bool {
        (&self.benchmark, self.quantity, self.ranks) == (&other.benchmark, other.quantity, other.ranks)
            && (self.size, &self.parameter) == (other.size, &other.parameter)
    }
}

/// How many of the columns, one at least, have room beside the names of locks.
fn fitting(columns: &[&Column<'_>]) -> usize {
    let width = |column: &&Column<'_>| {
        let values = column.rows.iter().map(|row| value(row, row.value).chars().count());
        values.chain([column.heading.len(), column.point.chars().count() + 1]).max().unwrap_or(0) + 2
    };
    let ends = columns.iter().scan(usize::from(NAME) + 1, |end, column| {
        *end += width(column);
        Some(*end)
    });
    ends.take(COLUMNS).take_while(|end| *end <= WIDTH).count().max(1)
}

/// The key columns; of a sweep, the first and the last.
fn key<'c, 'd>(columns: &'c [Column<'d>]) -> impl Iterator<Item = &'c Column<'d>> {
    let is_same = |one: &Column<'_>, other: &Column<'_>| {
        (&one.rows[0].benchmark, one.rows[0].quantity) == (&other.rows[0].benchmark, other.rows[0].quantity)
    };
    columns.iter().enumerate().filter_map(move |(at, column)| {
        let is_inside = at > 0
            && is_same(&columns[at - 1], column)
            && columns.get(at + 1).is_some_and(|next| is_same(column, next));
        (column.is_key && !is_inside).then_some(column)
    })
}

/// How a result differs from the others of its description, but for the lock.
fn point_among(description: &Description, row: &Row, rows: &[&Row]) -> (String, String) {
    let differ = |by: &dyn Fn(&Row) -> bool| rows.iter().any(|other| by(other));
    let (mut axis, mut parts) = (String::new(), Vec::new());
    if differ(&|other| other.benchmark != row.benchmark) {
        parts.push(description.rest(&row.benchmark).to_owned());
    }
    if let Some(parameter) = &row.parameter
        && differ(&|other| other.parameter != row.parameter)
    {
        axis.clone_from(&parameter.name);
        parts.push(point(parameter).trim_start_matches(&axis).trim_start().to_owned());
    } else if differ(&|other| other.ranks != row.ranks) {
        "ranks".clone_into(&mut axis);
        parts.push(row.ranks.to_string());
    }
    parts.retain(|part| !part.is_empty());
    (axis, parts.join(", "))
}

/// The cells benchmark, median, half the range, ratio, what it is compared with.
fn listed(row: &Row) -> [String; 5] {
    let parameter = row.parameter.as_ref().map_or_else(String::new, |parameter| format!(", {}", point(parameter)));
    let mut label = row.quantity.label(&(row.benchmark.clone() + &parameter));
    if row.parameter.is_none() && row.benchmark.contains("contended") {
        label += &format!(", {} ranks", row.ranks);
    }
    label += mark(row);
    let spread = row.range.filter(|_| row.value > 0.0).map(|range| 50.0 * (range.max - range.min) / row.value);
    [
        label,
        value(row, row.value),
        spread.map_or_else(String::new, |percent| format!("±{percent:.0} %")),
        row.ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
        comparison(row).zip(row.limit).map_or_else(String::new, |(name, limit)| {
            format!("{} {}", value(row, limit), name.trim_start_matches("limit: "))
        }),
    ]
}

/// A value of a result, with its unit.
fn value(row: &Row, value: f64) -> String {
    if row.quantity.is_count() { format!("{value:.0}") } else { rounded(value, &row.unit) }
}

/// What a result is compared with, as in `limit: CAS + store`.
pub(crate) fn comparison(row: &Row) -> Option<String> {
    let (comparison, name) = (row.comparison?.name(), row.compared_with.as_deref()?);
    // The same with another target has the same name but for its end.
    let same = row.benchmark.rsplit_once(", ").and_then(|(begin, _)| name.strip_prefix(begin)?.strip_prefix(", "));
    let name = same.unwrap_or_else(|| name.strip_prefix("lock: ").unwrap_or(name));
    Some(format!("{comparison}: {name}"))
}

/// The machine, and a warning if it was busy.
pub(crate) fn machine(machine: &Machine, is_simulated: bool) -> String {
    let info::Machine { cores, kernel, architecture, .. } = &machine.machine;
    let mut text = format!("{}, {cores} cores, {kernel} ({architecture})\n", machine.processor);
    if cfg!(debug_assertions) && !is_simulated {
        text += "This is a debug build, whose figures say little: cargo run --release.\n";
    }
    // Load does not affect virtual time.
    if machine.load > 0.5 && !is_simulated {
        text += &format!("The load was {} before the run: expect noise.\n", machine.load);
    }
    text
}

fn mark(row: &Row) -> &'static str {
    if row.oversubscribed { OVERSUBSCRIBED } else { "" }
}

fn bytes(row: &Row) -> String {
    row.size.map_or_else(String::new, size)
}

/// The heading of what results are compared with.
const BESIDE: &str = "compared with";
const OVERSUBSCRIBED: &str = "*";
const OWN_CORE: &str = "†";
/// In tables whose column of limits has no names.
const BASELINE: &str = "‡";

fn is_baseline(row: &Row) -> bool {
    row.comparison == Some(Comparison::Baseline)
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

/// A table: the first column is left-aligned, the others are right-aligned, but for units and
/// remarks, which have no heading and follow their numbers. Wide cells are wrapped.
pub(crate) fn table(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(WIDTH as u16).set_header(head.iter().map(Cell::new));
    // A value and its unit stay together, unlike the words of names.
    let together = |(column, cell): (usize, String)| match column {
        0 => cell,
        _ if head[column] == BESIDE => cell,
        _ => cell.replace(' ', "\u{a0}"),
    };
    table.add_rows(rows.map(|row| row.into_iter().enumerate().map(together).collect::<Vec<_>>()));
    // The first column has what the others leave. They are wrapped only where that is not enough.
    let widths = table.column_max_content_widths();
    let others: u16 = widths[1..].iter().map(|width| width + 2).sum();
    let left = (WIDTH as u16).saturating_sub(others + 1).max(NAME);
    if let (Some(column), true) = (table.column_mut(0), left < widths[0]) {
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(left + 1)));
    }
    for (column, name) in table.column_iter_mut().zip(head) {
        let is_left = name.is_empty() || [head[0], BESIDE].contains(name);
        column.set_padding(if is_left { (0, 1) } else { (1, 1) });
        column.set_cell_alignment(if is_left { CellAlignment::Left } else { CellAlignment::Right });
    }
    table.trim_fmt().replace('\u{a0}', " ") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::output::html::tests::several;

    fn width(text: &str) -> usize {
        text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
    }

    #[test]
    fn columns_are_aligned_and_wide_cells_are_wrapped() {
        let rows = [["a", "1", "ns"], ["longer", "12.5", ""]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(table(&["what", "value", ""], rows.into_iter()), "what    value\na           1 ns\nlonger   12.5\n");
        let wide = vec!["word ".repeat(30), "value ".repeat(30)];
        assert!(width(&table(&["what", "value"], [wide].into_iter())) <= WIDTH);
    }

    #[test]
    fn locks_have_a_row_each_and_equal_rows_are_one() {
        let mut document = several();
        let text = document.to_text();
        let line = |text: &str, begin: &str| text.lines().filter(|line| line.starts_with(begin)).count();
        assert_eq!((line(&text, "test-and-set, mcs  "), line(&text, "mcs  ")), (1, 0), "{text}");
        document.results.iter_mut().filter(|row| row.algorithm == "mcs").for_each(|row| row.figure.value *= 1.5);
        let text = document.to_text();
        assert_eq!((line(&text, "test-and-set  "), line(&text, "mcs  ")), (1, 1), "{text}");
        assert!(text.contains("limit: bare lock + unlock"), "{text}");
        assert!(width(&text) <= WIDTH, "{text}");
    }

    /// A stored run of all locks and metrics, as written by `--json`.
    #[test]
    fn everything_fits_the_terminal() {
        for (name, sections) in
            [("locks", crate::bench::metrics::sections()), ("scale", crate::bench::simulated::sections())]
        {
            let path = format!("{}/../docs/{name}.json", env!("CARGO_MANIFEST_DIR"));
            let document = Document::read(path.as_ref(), sections).unwrap();
            let text = document.to_text();
            assert!(width(&text) <= WIDTH, "{text}");
            for name in ["dedicated-thread-per-window", "event-thread-per-window"] {
                let begun = text.matches(name.trim_end_matches("window")).count();
                assert_eq!(text.matches(name).count(), begun, "{name} is not broken: {text}");
            }
            let first_screen: Vec<_> = text.split("\n\n").take(2).collect();
            assert!(first_screen[1].starts_with("In short") && first_screen[1].lines().count() < 24, "{text}");
            for lock in document.locks() {
                assert!(first_screen[1].contains(lock), "{lock}: {text}");
            }
        }
    }

    #[test]
    fn a_size_has_one_line_for_both_of_its_rates() {
        let text = crate::bench::output::html::tests::sweep().to_text();
        let lines: Vec<_> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        for line in [
            "put + flush, 8 B 20 ns ±25 % 2.00 10 ns bare put + flush",
            "put + flush 8 B 20 ns ±25 % 10 ns 2.00",
            "many put + flush 8 B 400 MB/s 800 MB/s 50 M/s 100 M/s 0.50",
            "many CAS + flush 8 B 50 M/s 100 M/s 0.50",
        ] {
            assert_eq!(lines.iter().filter(|other| *other == line).count(), 1, "{line}: {text}");
        }
        assert!(width(&text) <= WIDTH, "{text}");
    }

    #[test]
    fn a_baseline_is_marked_where_it_has_no_name() {
        let mut document = crate::bench::output::html::tests::sweep();
        assert!(!document.to_text().contains(BASELINE), "{}", document.to_text());
        document.results[0].figure.comparison = Some(Comparison::Baseline);
        let text = document.to_text();
        assert_eq!(text.matches("10 ns‡").count(), 1, "{text}");
        assert!(text.contains("a baseline‡ does"), "{text}");
    }

    #[test]
    fn results_of_the_second_lock_alone_are_printed() {
        let mut document = several();
        document.results.retain(|row| row.algorithm != "test-and-set" || row.parameter.is_none());
        let text = document.to_text();
        for readers in ["0 %", "50 %", "100 %"] {
            let row = format!("lock + unlock, some to read, readers {readers}");
            assert_eq!(text.lines().filter(|line| line.starts_with(&row)).count(), 1, "{text}");
        }
    }
}
