//! The quantities that benchmarks measure: one row of a table each. JSON calls a quantity `metric`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What every output has to know of a quantity.
struct Facts {
    /// In JSON, tables and plots.
    name: &'static str,
    unit: &'static str,
    /// Explains the name in the help; may be empty.
    note: &'static str,
    /// Says which values are good, under a plot.
    better: &'static str,
    /// Which rows of the text table begin with the benchmark's name.
    heads: Heads,
    /// Whether a ratio to the limit means anything.
    has_limits: bool,
    /// Whether values are whole numbers.
    is_count: bool,
    /// Whether a plot of one lock is drawn like one of several.
    is_plotted_by_lock: bool,
}

/// Which rows of the text table begin with the benchmark's name; the others follow them, with the
/// quantity's name.
enum Heads {
    All,
    None,
    /// Those of benchmarks whose name contains the word; the row's label ends with the text.
    Containing(&'static str, &'static str),
}

macro_rules! quantities {
    ($($(#[$doc:meta])* $quantity:ident = $facts:expr;)*) => {
        /// What a number says.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(into = "&'static str", try_from = "String")]
        pub(crate) enum Quantity {
            $($(#[$doc])* $quantity,)*
        }

        impl Quantity {
            pub(crate) const ALL: &'static [Self] = &[$(Self::$quantity,)*];

            const fn facts(self) -> &'static Facts {
                match self {
                    $(Self::$quantity => {
                        const FACTS: Facts = $facts;
                        &FACTS
                    })*
                }
            }
        }
    };
}

const RATE: Facts = Facts {
    name: "",
    unit: "1/s",
    note: "",
    better: "Higher is better.",
    heads: Heads::All,
    has_limits: true,
    is_count: false,
    is_plotted_by_lock: false,
};
const FAIRNESS: Facts = Facts { unit: "1", heads: Heads::None, has_limits: false, ..RATE };
const WAIT: Facts =
    Facts { unit: "ns", better: "Lower is better.", heads: Heads::None, is_plotted_by_lock: true, ..RATE };
const BYPASS: Facts = Facts { unit: "1", is_count: true, ..WAIT };

quantities! {
    /// Of one operation.
    Latency = Facts { name: "latency", unit: "ns", better: "Lower is better.", ..RATE };
    Bandwidth = Facts { name: "bandwidth", unit: "GB/s", ..RATE };
    /// Of one rank's operations.
    MessageRate = Facts { name: "message rate", heads: Heads::None, ..RATE };
    Acquisitions = Facts { name: "acquisitions", note: "of all ranks together", ..RATE };
    Share = Facts {
        name: "smallest/largest share",
        better: "The smallest rank's acquisitions over the largest's: 1 is fair.",
        ..FAIRNESS
    };
    Jain = Facts {
        name: "jain",
        note: "index of fairness",
        better: "Jain's index of fairness: 1 is fair.",
        ..FAIRNESS
    };
    P50 = Facts { name: "p50", heads: Heads::Containing("wait", ", p50"), ..WAIT };
    P99 = Facts { name: "p99", ..WAIT };
    P999 = Facts {
        name: "p99.9",
        note: "of all waits, less the time to read the clock; a rank that starves others has many short waits",
        ..WAIT
    };
    /// The largest of the ranks' own p99.
    WorstP99 = Facts {
        name: "p99 of the rank served worst",
        note: "of its own waits; a rank that never acquired the lock waited all the time",
        better: "Of its own waits; the other percentiles are dominated by the ranks served often. Lower is better.",
        ..WAIT
    };
    LongestBypass = Facts {
        name: "longest bypass",
        better: "The most acquisitions by other ranks between one rank's request and its acquisition.",
        ..BYPASS
    };
    Bypass = Facts {
        name: "p99.9 bypass",
        note: "acquisitions by other ranks between a request and its acquisition",
        better: "Acquisitions by other ranks between a request and its acquisition, for all but one in a thousand.",
        ..BYPASS
    };
    /// On the fabric.
    Operations = Facts {
        name: "operations",
        unit: "1",
        note: "on the fabric",
        better: "Fewer is better.",
        heads: Heads::Containing("operations", ""),
        ..WAIT
    };
    /// The fraction of a core's time.
    Cpu = Facts {
        name: "cpu",
        unit: "1",
        note: "of a core's time",
        better: "Of a core's time. Less is better.",
        heads: Heads::All,
        ..WAIT
    };
}

impl Quantity {
    pub(crate) const fn name(self) -> &'static str {
        self.facts().name
    }

    pub(crate) const fn unit(self) -> &'static str {
        self.facts().unit
    }

    pub(crate) const fn better(self) -> &'static str {
        self.facts().better
    }

    /// Whether a ratio to the limit means anything: fairness stands for itself.
    pub(crate) const fn has_limits(self) -> bool {
        self.facts().has_limits
    }

    pub(crate) const fn is_count(self) -> bool {
        self.facts().is_count
    }

    /// Whether a plot of one lock is drawn like one of several.
    pub(crate) const fn is_plotted_by_lock(self) -> bool {
        self.facts().is_plotted_by_lock
    }

    /// The first cell of a row in the text table: the benchmark, or, in the rows after that one,
    /// the quantity.
    pub(crate) fn label(self, benchmark: &str) -> String {
        match self.facts().heads {
            Heads::All => benchmark.to_owned(),
            Heads::Containing(word, end) if benchmark.contains(word) => format!("{benchmark}{end}"),
            Heads::None | Heads::Containing(..) => format!("  {self}"),
        }
    }

    /// All names with their notes, for the help.
    pub(crate) fn help() -> String {
        let one = |quantity: &Self| match quantity.facts().note {
            "" => quantity.name().to_owned(),
            note => format!("{quantity} ({note})"),
        };
        Self::ALL.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<Quantity> for &'static str {
    fn from(quantity: Quantity) -> Self {
        quantity.name()
    }
}

impl TryFrom<String> for Quantity {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|quantity| quantity.name() == name);
        found.copied().ok_or_else(|| format!("unknown metric `{name}`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_can_be_read_back() {
        for quantity in Quantity::ALL {
            let json = serde_json::to_string(quantity).unwrap();
            assert_eq!(json, format!("\"{quantity}\""));
            assert_eq!(serde_json::from_str::<Quantity>(&json).unwrap(), *quantity);
        }
        assert!(serde_json::from_str::<Quantity>("\"other\"").is_err());
    }

    #[test]
    fn fairness_stands_below_the_rate_that_it_belongs_to() {
        assert_eq!(Quantity::Acquisitions.label("lock"), "lock");
        assert_eq!(Quantity::Jain.label("lock"), "  jain");
        assert_eq!(Quantity::P50.label("wait for a contended lock"), "wait for a contended lock, p50");
        assert_eq!(Quantity::P50.label("simulated contended lock"), "  p50");
    }
}
