//! What a benchmark shows, in a sentence on the page. Each measurement declares its own beside its
//! code.

use crate::bench::results::quantity::Quantity;

/// The sentence and the headings of the plots of one benchmark, or of several with similar names.
#[derive(Debug)]
pub(crate) struct Description {
    pub(crate) benchmark: Name,
    /// For a reader who sees the plot for the first time.
    pub(crate) sentence: &'static str,
    /// The plots of these quantities are in the picture, under these headings.
    pub(crate) headings: &'static [(Quantity, &'static str)],
}

/// Which benchmarks a [`Description`] is for.
#[derive(Debug)]
pub(crate) enum Name {
    Is(&'static str),
    StartsWith(&'static str),
    EndsWith(&'static str),
}

impl Description {
    pub(crate) fn is_for(&self, benchmark: &str) -> bool {
        match self.benchmark {
            Name::Is(name) => benchmark == name,
            Name::StartsWith(name) => benchmark.starts_with(name),
            Name::EndsWith(name) => benchmark.ends_with(name),
        }
    }

    /// The heading of a plot in the picture, if it belongs there.
    pub(crate) fn heading(&self, quantity: Quantity) -> Option<&'static str> {
        self.headings.iter().find_map(|(of, heading)| (*of == quantity).then_some(*heading))
    }
}
