//! What operations did, one after the other.

use std::fmt;

use onesided_remote_memory::Rank;

/// What an operation does to its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Reads it.
    Read,
    /// Writes this.
    Write(u64),
    /// Compares with the first and, if that is there, makes it the second.
    CompareSwap(u64, u64),
    /// Adds this, wrapping.
    FetchAdd(u64),
}

impl Action {
    /// What the word is afterwards.
    #[must_use]
    pub const fn applied_to(self, value: u64) -> u64 {
        match self {
            Self::Write(new) => new,
            Self::CompareSwap(expected, new) if expected == value => new,
            Self::FetchAdd(add) => value.wrapping_add(add),
            Self::Read | Self::CompareSwap(..) => value,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read => write!(f, "read"),
            Self::Write(value) => write!(f, "write {value:#x}"),
            Self::CompareSwap(expected, new) => write!(f, "compare {expected:#x} and swap {new:#x}"),
            Self::FetchAdd(add) => write!(f, "fetch and add {add:#x}"),
        }
    }
}

/// An operation that took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect {
    /// Whose it was.
    pub origin: Rank,
    /// In whose region.
    pub target: Rank,
    /// Which word of that region.
    pub word: usize,
    /// What it did.
    pub action: Action,
    /// What it found there.
    pub found: u64,
}

/// What took effect, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace(Vec<Effect>);

impl Trace {
    pub(crate) fn push(&mut self, effect: Effect) {
        self.0.push(effect);
    }

    /// The operations.
    #[must_use]
    pub fn effects(&self) -> &[Effect] {
        &self.0
    }

    /// What was added by fetch-adds, and by whom.
    #[must_use]
    pub fn added(&self) -> Vec<(Rank, u64)> {
        let added = |effect: &Effect| match effect.action {
            Action::FetchAdd(add) => Some((effect.origin, add)),
            _ => None,
        };
        self.0.iter().filter_map(added).collect()
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Effect { origin, target, word, action, found } in &self.0 {
            writeln!(f, "  rank {}: {action} at rank {} word {word}, found {found:#x}", origin.0, target.0)?;
        }
        Ok(())
    }
}
