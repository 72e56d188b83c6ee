//! A trace of operations in the order of their effects.

use std::collections::HashSet;
use std::fmt;

use onesided_lock_algos::{Mode, Owner};
use onesided_remote_memory::{Link, Notify, Rank};

use crate::program::Place;

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
    /// That of a link, and whether it also wakes.
    pub(crate) fn of<W>(link: Link<W>) -> (Self, Notify) {
        match link {
            Link::Read { .. } => (Self::Read, Notify::No),
            Link::Write { value, notify, .. } => (Self::Write(value), notify),
            Link::CompareSwap { expected, new, .. } => (Self::CompareSwap(expected, new), Notify::No),
            Link::FetchAdd { add, .. } => (Self::FetchAdd(add), Notify::No),
        }
    }

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

    /// The output of the operation, of a word with this value. That of a write means nothing, so that
    /// a lock that relies on it is found.
    pub(crate) const fn answer(self, found: u64) -> u64 {
        if let Self::Write(_) = self { !found } else { found }
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

/// An operation as it is posted, or a store: what a planted fault changes ([`posted!`](crate::posted)).
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

/// A planted fault as a closure: what is posted instead of these [actions](Action).
///
/// ```
/// use onesided_lock_kit::{Op, posted};
///
/// /// A release that does nothing.
/// let forgets: fn(Op) -> Op = posted!(Write(0) => Read);
/// ```
#[macro_export]
macro_rules! posted {
    ($($action:pat $(if $guard:expr)? => $new:expr),+) => {
        |op: $crate::Op| {
            #[allow(unused_imports)]
            use $crate::Action::{CompareSwap, FetchAdd, Read, Write};
            op.with(match op.action { $($action $(if $guard)? => $new,)+ other => other })
        }
    };
}

/// An operation that took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect {
    /// The rank that posted it.
    pub origin: Rank,
    /// The rank of the region.
    pub target: Rank,
    /// The index of the word in that region.
    pub word: usize,
    /// The word.
    pub place: Place,
    /// Its action.
    pub action: Action,
    /// The previous value of the word.
    pub found: u64,
    /// The value that it returned: another one if it is a card's atomic, and a write came between
    /// its read of the word and its store, which loses that write.
    pub returned: u64,
}

/// What else a trace shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// An owner enters its section.
    Enters(Mode),
    /// It leaves it: its release starts.
    Leaves,
    /// A store to a word of the rank's own.
    Stores(Place, u64),
    /// A pause, or a wait for a notification.
    Waits(Place, bool),
    /// The rank ends, and its operations in flight never take effect.
    Ends,
    /// The others learn that.
    IsKnown,
    /// It is stopped.
    Stops,
    /// It goes on.
    GoesOn,
    /// Its next operation in effect has no reply.
    LosesReply,
    /// An operation of the rank never takes effect.
    LosesOperation,
}

/// Operations in the order of their effects, and what happened between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    effects: Vec<Effect>,
    /// With the number of effects before.
    notes: Vec<(usize, Rank, Note)>,
}

impl Trace {
    pub(crate) fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(crate) fn note(&mut self, rank: Rank, note: Note) {
        self.notes.push((self.effects.len(), rank, note));
    }

    /// The operations.
    #[must_use]
    pub fn effects(&self) -> &[Effect] {
        &self.effects
    }

    /// A violation, its step, and the trace.
    pub(crate) fn tells(&self, violation: &str) -> String {
        format!("{violation}, at step {}\n its steps:\n{self}", self.effects.len() + self.notes.len())
    }

    /// All steps, and from which one on nothing changes.
    fn lines(&self) -> (Vec<String>, usize) {
        let mut notes = self.notes.iter().peekable();
        let (mut lines, mut still) = (Vec::new(), 0);
        for done in 0..=self.effects.len() {
            while let Some((_, rank, note)) = notes.next_if(|(before, ..)| *before == done) {
                lines.push(format!("rank {} {note}", rank.0));
                still = if let Note::Waits(..) = note { still } else { lines.len() };
            }
            if let Some(effect) = self.effects.get(done) {
                lines.push(effect.to_string());
                still = if effect.action.applied_to(effect.returned) == effect.found { still } else { lines.len() };
            }
        }
        (lines, still)
    }
}

/// The longest trace that is shown whole.
const SHOWN: usize = 200;

/// A step without its values.
fn shape(line: &str) -> String {
    let without = |mark| move |part: &str| [mark, part.trim_start_matches(|c: char| c.is_ascii_hexdigit())].concat();
    let line: String = line.split("0x").map(without("0x")).collect();
    line.split("word(").map(without("word(")).collect()
}

/// The first step that lies whole periods, at least two, before its repetition up to the end, and the period.
fn circle(lines: &[String]) -> Option<(usize, usize)> {
    let repeats = |step: usize, period: usize| step >= period && lines[step] == lines[step - period];
    (1..lines.len().min(SHOWN) / 2).find_map(|period| {
        let back = (0..lines.len()).rev().take_while(|step| repeats(*step, period)).count();
        (back > 2 * period).then_some((lines.len() - back, period))
    })
}

impl fmt::Display for Trace {
    /// A livelock is cut to its circle, the end of a deadlock to one step of each kind.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lines, still) = self.lines();
        let (end, mut seen) = (lines.len(), HashSet::new());
        let shapes = || lines.iter().map(|line| shape(line)).collect::<Vec<_>>();
        let last: Vec<usize> = (still..end).filter(|at| seen.insert(&lines[*at])).collect();
        let (shown, rest): (Vec<usize>, _) = if last.len() < end - still {
            ((0..still).chain(last).collect(), format!("and so on until step {end}: nothing changes"))
        } else if let Some((shown, period)) = circle(&lines) {
            ((0..shown).collect(), format!("and so on: the last {period} steps repeat until step {end}"))
        } else if let Some((shown, period)) = (end > SHOWN).then(|| circle(&shapes())).flatten() {
            let rest = format!("and so on: the last {period} steps repeat with other values until step {end}");
            ((0..shown).collect(), rest)
        } else {
            ((0..end).collect(), String::new())
        };
        let cut = shown.len().saturating_sub(SHOWN);
        for (number, at) in shown.iter().enumerate() {
            match number.checked_sub(SHOWN / 2).filter(|number| *number < cut) {
                None => writeln!(f, "  {:>3}  {}", at + 1, lines[*at])?,
                Some(0) => writeln!(f, "       ... {cut} steps are left out")?,
                Some(_) => {}
            }
        }
        if rest.is_empty() { Ok(()) } else { writeln!(f, "       ... {rest}") }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, place, action, found, returned, .. } = self;
        write!(f, "rank {}: {action} at {place}, found {returned:#x}", origin.0)?;
        match returned == found {
            true => Ok(()),
            false => write!(f, "; the write of {found:#x} before its store is lost"),
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enters(mode) => write!(f, "ENTERS, {mode:?}"),
            Self::Leaves => f.write_str("LEAVES"),
            Self::Stores(place, value) => write!(f, "stores {value:#x} to {place}"),
            Self::Waits(place, true) => write!(f, "pauses on {place}"),
            Self::Waits(place, false) => write!(f, "waits for a notification of {place}"),
            Self::Ends => f.write_str("ENDS, with its operations in flight"),
            Self::IsKnown => f.write_str("is known to have ended"),
            Self::Stops => f.write_str("is STOPPED"),
            Self::GoesOn => f.write_str("goes on"),
            Self::LosesReply => f.write_str("LOSES the reply of its next operation"),
            Self::LosesOperation => f.write_str("LOSES an operation"),
        }
    }
}

/// An owner, as messages name it.
pub(crate) fn who(Owner { rank, slot, .. }: Owner) -> String {
    if slot == 0 { format!("rank {}", rank.0) } else { format!("rank {} slot {slot}", rank.0) }
}

/// Words as a trace shows them.
pub(crate) fn hex(words: &[u64]) -> String {
    let words: Vec<_> = words.iter().map(|word| format!("{word:#x}")).collect();
    format!("[{}]", words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_names_words_and_is_cut_to_its_circle() {
        let (origin, target, action, place) = (Rank(1), Rank(0), Action::Read, Place::Lock(0));
        let mut trace = Trace::default();
        trace.note(Rank(0), Note::Enters(Mode::Exclusive));
        trace.push(Effect { origin, target, word: 1, place, action, found: 42, returned: 42 });
        assert_eq!(
            trace.to_string(),
            "    1  rank 0 ENTERS, Exclusive\n    2  rank 1: read at lock.word(0), found 0x2a\n"
        );
        for _ in 0..1_000 {
            trace.push(Effect { origin, target, word: 1, place, action, found: 7, returned: 7 });
            trace.note(Rank(1), Note::Waits(place, true));
        }
        let text = trace.to_string();
        assert!(text.lines().count() == 5 && text.contains("until step 2002: nothing changes"), "{text}");
        // Whether its values rise or not.
        for rises in [0, 1] {
            for found in (0..1_000).map(|step| step * rises) {
                let action = Action::CompareSwap(found, found + 1);
                trace.push(Effect { origin, target, word: 1, place, action, found, returned: found });
                trace.note(Rank(1), Note::Leaves);
            }
            let text = trace.to_string();
            assert!(text.contains("the last 2 steps repeat") && text.contains("values") == (rises > 0), "{text}");
        }
        assert_eq!(hex(&[0, 42]), "[0x0, 0x2a]");
    }
}
