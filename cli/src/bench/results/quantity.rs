//! The quantities that benchmarks measure: one row of a table each. JSON calls a quantity `metric`.

use onesided_fabric::{display, entries};
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
    /// Where the page shows it.
    question: Question,
    /// Whether the unit, or the benchmark's name, says what is measured.
    is_plain: bool,
    /// Whether a ratio to the limit means anything.
    has_limits: bool,
    /// Whether values are whole numbers.
    is_count: bool,
}

entries! {
    /// What a reader asks; the page has a group of plots for each.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Question {
        HowLong => "How long does it take?",
        HowMuch => "How much is done in a second?",
        HowFair => "How fair is it?",
        HowManyOperations => "How many operations does it take?",
        AtTheTarget => "What does it cost the target, and what if the target computes?",
        Machine => "What does it take of this machine?",
    }
    pub(crate) const ALL;
    pub(crate) fn text;
}

impl Question {
    /// The question that a benchmark answers.
    pub(crate) fn of(benchmark: &str, quantity: Quantity) -> Self {
        if benchmark.contains("target computes") { Self::AtTheTarget } else { quantity.facts().question }
    }
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
    question: Question::HowMuch,
    is_plain: true,
    has_limits: true,
    is_count: false,
};
const RATIO: Facts = Facts { unit: "1", ..RATE };
const FAIRNESS: Facts = Facts { question: Question::HowFair, is_plain: false, has_limits: false, ..RATIO };
const LATENCY: Facts = Facts { unit: "ns", better: "Lower is better.", question: Question::HowLong, ..RATE };
const WAIT: Facts = Facts { is_plain: false, ..LATENCY };
const BYPASS: Facts = Facts { unit: "1", question: Question::HowFair, is_count: true, ..WAIT };

quantities! {
    /// Of one operation.
    Latency = Facts { name: "latency", ..LATENCY };
    Bandwidth = Facts { name: "bandwidth", unit: "GB/s", ..RATE };
    /// The time of a computation alone over its time with a message: W/T of sur-2006, section 5.
    Overlap = Facts {
        name: "overlap",
        note: "the time of a computation alone over its time with a message",
        better: "1 is full overlap.",
        ..RATIO
    };
    /// Of one rank's operations.
    MessageRate = Facts { name: "message rate", ..RATE };
    Acquisitions = Facts { name: "acquisitions", note: "of all ranks together", ..RATE };
    /// From one acquisition, by whichever rank, to the next.
    Interval = Facts { name: "interval", note: "from one rank's acquisition to the next one's, on average", ..WAIT };
    LongestGap = Facts { name: "longest gap", note: "from one rank's acquisition to the next one's", ..WAIT };
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
    P50 = Facts { name: "p50", ..WAIT };
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
        question: Question::HowFair,
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
        question: Question::HowManyOperations,
        ..WAIT
    };
    /// Of a message.
    WakeUps = Facts {
        name: "wake-ups",
        unit: "1",
        note: "of sleeping threads",
        better: "Fewer is better.",
        question: Question::HowManyOperations,
        ..WAIT
    };
    /// Of this machine, for a simulated rank; or for a rank's channels of a kind.
    Memory = Facts { name: "memory", unit: "B", note: "of this machine", question: Question::Machine, ..WAIT };
    /// Of a simulation.
    Events = Facts { name: "events", note: "of a simulation, a second of processor time", question: Question::Machine, ..RATE };
    /// The fraction of a core's time.
    Cpu = Facts {
        name: "cpu",
        unit: "1",
        note: "of a core's time",
        better: "Of a core's time. Less is better.",
        question: Question::AtTheTarget,
        ..LATENCY
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

    /// A benchmark and this quantity, as far as neither the unit nor the benchmark's name says it.
    pub(crate) fn label(self, benchmark: &str) -> String {
        if self.facts().is_plain || benchmark.contains(self.name()) {
            benchmark.to_owned()
        } else {
            format!("{benchmark}: {self}")
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

display!([] Quantity, |this| "{}", this.name());

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
    fn a_label_says_what_the_unit_does_not() {
        assert_eq!(Quantity::Acquisitions.label("lock"), "lock");
        assert_eq!(Quantity::Jain.label("lock"), "lock: jain");
        assert_eq!(Quantity::Operations.label("lock: operations of a release"), "lock: operations of a release");
        assert_eq!(Quantity::Operations.label("simulated contended lock"), "simulated contended lock: operations");
    }
}
