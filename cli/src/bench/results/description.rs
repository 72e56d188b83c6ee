//! What a benchmark shows, for the tables on a terminal and for the page. Each measurement declares
//! its own beside its code.

use crate::bench::results::quantity::Quantity;

/// What is shown of one benchmark, or of several with similar names.
#[derive(Debug)]
pub(crate) struct Description {
    pub(crate) benchmark: Name,
    /// For a reader who sees the plot for the first time; may be empty.
    pub(crate) sentence: &'static str,
    /// What the terminal shows; the page and JSON have every quantity.
    pub(crate) shown: &'static [Shown],
}

/// Which benchmarks a [`Description`] is for.
#[derive(Debug)]
pub(crate) enum Name {
    Is(&'static str),
    StartsWith(&'static str),
    EndsWith(&'static str),
}

/// A quantity that is worth a column.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) quantity: Quantity,
    /// The heading of the column: short words.
    pub(crate) column: &'static str,
    /// Whether it is on the first screen.
    pub(crate) is_key: bool,
    /// The heading of its plot in the picture, if it belongs there. The first plots with a heading
    /// are on top of the page.
    pub(crate) heading: Option<&'static str>,
}

impl Shown {
    pub(crate) const fn new(quantity: Quantity, column: &'static str) -> Self {
        Self { quantity, column, is_key: false, heading: None }
    }

    pub(crate) const fn key(self) -> Self {
        Self { is_key: true, ..self }
    }

    pub(crate) const fn heading(self, heading: &'static str) -> Self {
        Self { heading: Some(heading), ..self }
    }
}

impl Description {
    /// Of the benchmark of this name, without a sentence.
    pub(crate) const fn of(name: &'static str, shown: &'static [Shown]) -> Self {
        Self::named(Name::Is(name), shown)
    }

    pub(crate) const fn named(benchmark: Name, shown: &'static [Shown]) -> Self {
        Self { benchmark, sentence: "", shown }
    }

    pub(crate) const fn saying(self, sentence: &'static str) -> Self {
        Self { sentence, ..self }
    }

    pub(crate) fn is_for(&self, benchmark: &str) -> bool {
        match self.benchmark {
            Name::Is(name) => benchmark == name,
            Name::StartsWith(name) => benchmark.starts_with(name),
            Name::EndsWith(name) => benchmark.ends_with(name),
        }
    }

    /// How a benchmark differs from the others of this description: the last part of its name.
    pub(crate) fn rest<'b>(&self, benchmark: &'b str) -> &'b str {
        let rest = match self.benchmark {
            Name::Is(_) => "",
            Name::StartsWith(name) => benchmark.strip_prefix(name).unwrap_or(benchmark),
            Name::EndsWith(name) => benchmark.strip_suffix(name).unwrap_or(benchmark),
        };
        rest.rsplit(", ").next().unwrap_or(rest).trim()
    }

    /// The heading of a plot in the picture, if it belongs there.
    pub(crate) fn heading(&self, quantity: Quantity) -> Option<&'static str> {
        self.shown.iter().find(|shown| shown.quantity == quantity)?.heading
    }
}
