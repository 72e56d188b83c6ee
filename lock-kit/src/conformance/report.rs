//! The report of a conformance suite.

use std::fmt;
use std::time::Duration;

/// The trials of a [`Conformance`](super::Conformance) and their results. Displayed as one line for
/// each trial, and each violation in full: the programs, the events, and how to reproduce it.
#[derive(Clone, Debug)]
#[must_use = "the report says whether the lock conforms"]
pub struct Report {
    pub(super) lock: &'static str,
    pub(super) trials: Vec<Trial>,
}

/// One trial.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Trial {
    /// Its name.
    pub name: &'static str,
    /// How many were tried, up to the violation if there is one.
    pub tried: usize,
    /// Of what: executions, states, cases.
    pub unit: &'static str,
    /// The extent in words, or the violation.
    pub outcome: Result<String, String>,
    /// How long it took.
    pub took: Duration,
}

impl Report {
    /// Whether there were no violations.
    #[must_use]
    pub fn conforms(&self) -> bool {
        self.violations().next().is_none()
    }

    /// The trials, in order.
    #[must_use]
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// The extent of the trial with this name; 0 if it was left out.
    #[must_use]
    pub fn tried(&self, name: &str) -> usize {
        self.trials.iter().find(|trial| trial.name == name).map_or(0, |trial| trial.tried)
    }

    /// The violations.
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
        for Trial { name, tried, unit, outcome, took } in &self.trials {
            let how = match outcome {
                Ok(how) => how.clone(),
                Err(violation) => format!("VIOLATED: {}", violation.lines().next().unwrap_or_default()),
            };
            let line = format!("  {name:<22} {:>6.1} s  {tried:>7} {unit:<10}  {how}", took.as_secs_f64());
            writeln!(f, "{}", line.trim_end())?;
        }
        self.violations().try_for_each(|violation| writeln!(f, "\n{violation}"))
    }
}
