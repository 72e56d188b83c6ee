//! A trace of operations in the order of their effects.

use std::fmt;

use onesided_remote_memory::{Notify, Rank};

use crate::program::{Names, Place};

/// The action of an operation on its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Reads it.
    Read,
    /// Writes this value.
    Write(u64),
    /// Stores the second value if the word has the first.
    CompareSwap(u64, u64),
    /// Adds this value, wrapping.
    FetchAdd(u64),
}

impl Action {
    /// The value of the word after the action.
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

/// An operation as it is posted, or a store: what a planted fault changes.
///
/// ```
/// use onesided_lock_kit::{Action, Op};
///
/// /// A release that does nothing.
/// let forgets: fn(Op) -> Op = |op| match op.action {
///     Action::Write(0) => op.with(Action::Read),
///     _ => op,
/// };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// The rank that posts it.
    pub origin: Rank,
    /// Its word.
    pub place: Place,
    /// Its action.
    pub action: Action,
    /// Whether it wakes a waiter; only a write does.
    pub notify: Notify,
}

impl Op {
    /// The same with another action.
    #[must_use]
    pub const fn with(self, action: Action) -> Self {
        Self { action, ..self }
    }
}

/// The words of a memory and the faults that are planted in it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Planted {
    pub(crate) names: Names,
    pub(crate) mutate: Option<fn(Op) -> Op>,
}

impl Planted {
    /// The word and the operation that are posted instead of this.
    pub(crate) fn post(&self, origin: Rank, word: usize, action: Action, notify: Notify) -> (usize, Action, Notify) {
        let notify = if self.names.is_polled(word) { Notify::Yes } else { notify };
        let Some(mutate) = self.mutate else { return (word, action, notify) };
        let Op { place, action, notify, .. } = mutate(Op { origin, place: self.names.place(word), action, notify });
        (self.names.number(place), action, notify)
    }
}

/// An operation that took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect {
    /// The rank that posted it.
    pub origin: Rank,
    /// The rank of the region.
    pub target: Rank,
    /// The index of the word in that region. At rank 0 word 0 is the data, and from word 1 on are
    /// the words of the lock.
    pub word: usize,
    /// Its action.
    pub action: Action,
    /// The previous value of the word.
    pub found: u64,
    /// The value that it returned: another one if it is a card's atomic, and a write came between
    /// its read of the word and its store, which loses that write.
    pub returned: u64,
}

/// Operations in the order of their effects.
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

    /// The fetch-adds, as origin and addend.
    #[must_use]
    pub fn added(&self) -> Vec<(Rank, u64)> {
        let added = |effect: &Effect| match effect.action {
            Action::FetchAdd(add) => Some((effect.origin, add)),
            _ => None,
        };
        self.0.iter().filter_map(added).collect()
    }
}

/// A rank that waits.
pub(crate) fn waiting(rank: Rank, place: Place, pauses: bool) -> String {
    let how = if pauses { "pauses on" } else { "waits for a notification of" };
    format!("rank {} {how} {place}", rank.0)
}

/// Words as a trace shows them.
pub(crate) fn hex(words: &[u64]) -> String {
    let words: Vec<_> = words.iter().map(|word| format!("{word:#x}")).collect();
    format!("[{}]", words.join(", "))
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Effect { origin, target, word, action, found, returned } in &self.0 {
            write!(f, "  rank {}: {action} at rank {} word {word}, found {returned:#x}", origin.0, target.0)?;
            match returned == found {
                true => writeln!(f)?,
                false => writeln!(f, "; the write of {found:#x} before its store is lost")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_hexadecimal_as_in_a_trace() {
        let (origin, target, action) = (Rank(1), Rank(0), Action::Read);
        let trace = Trace(vec![Effect { origin, target, word: 1, action, found: 42, returned: 42 }]);
        assert_eq!(trace.to_string(), "  rank 1: read at rank 0 word 1, found 0x2a\n");
        assert_eq!(hex(&[0, 42]), "[0x0, 0x2a]");
    }
}
