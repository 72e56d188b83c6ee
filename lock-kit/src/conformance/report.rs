//! What a conformance suite has to say.

use std::fmt;

/// What a [`Conformance`](super::Conformance) tried, and what it found. Its text has a line for each, and whole what was violated: the
/// programs, what happened, and how to see it again.
#[derive(Clone, Debug)]
#[must_use = "it says whether the lock conforms"]
pub struct Report {
    pub(super) lock: &'static str,
    pub(super) trials: Vec<Trial>,
}

/// One part of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Trial {
    /// What was tried.
    pub name: &'static str,
    /// How much was tried, as the part counts it: executions, states, cases.
    pub tried: usize,
    /// The same in words, or what was violated.
    pub outcome: Result<String, String>,
}

impl Report {
    /// Whether nothing was violated.
    #[must_use]
    pub fn conforms(&self) -> bool {
        self.violations().next().is_none()
    }

    /// All that was tried, in this order.
    #[must_use]
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// How much was tried by the part of this name; 0 if it was left out.
    #[must_use]
    pub fn tried(&self, name: &str) -> usize {
        self.trials.iter().find(|trial| trial.name == name).map_or(0, |trial| trial.tried)
    }

    /// What was violated.
    pub fn violations(&self) -> impl Iterator<Item = &str> {
        self.trials.iter().filter_map(|trial| trial.outcome.as_ref().err().map(String::as_str))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let violated = self.violations().count();
        match violated {
            0 => writeln!(f, "{} conforms", self.lock)?,
            _ => writeln!(f, "{} does not conform: {violated} of {} trials", self.lock, self.trials.len())?,
        }
        for Trial { name, outcome, .. } in &self.trials {
            match outcome {
                Ok(how) => writeln!(f, "  {name:<22} {how}")?,
                Err(violation) => {
                    writeln!(f, "  {name:<22} VIOLATED: {}", violation.lines().next().unwrap_or_default())?
                }
            }
        }
        self.violations().try_for_each(|violation| writeln!(f, "\n{violation}"))
    }
}
