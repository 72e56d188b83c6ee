//! Histories, and whether they are linearizable.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An operation on the data in a section. Words are numbered as in the programs; all are 0 at
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A read. `None`: its reply never came.
    Read(usize, Option<u64>),
    /// A write; whether it is known to be complete.
    Write(usize, u64, bool),
    /// A fetch-add, and the value that it found. `None`: its reply never came.
    Add(usize, u64, Option<u64>),
}

/// A section under the lock, from the start of its acquire to the end of its release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The process.
    pub process: u32,
    /// The start.
    pub invoked: u64,
    /// The end. `None`: its process died before.
    pub returned: Option<u64>,
    /// The operations in order.
    pub steps: Vec<Step>,
}

impl Call {
    /// The possible words after the section, given what it found. A section that never ended has
    /// completed the operations with known outcomes, and any of the others.
    fn apply(&self, words: &[u64]) -> Vec<Vec<u64>> {
        let mut all = vec![words.to_vec()];
        for step in &self.steps {
            let (at, known, found) = match *step {
                Step::Read(at, found) => (at, true, found),
                Step::Write(at, _, known) => (at, known || self.returned.is_some(), None),
                Step::Add(at, _, found) => (at, found.is_some() || self.returned.is_some(), found),
            };
            all.retain(|words| found.is_none_or(|found| words[at] == found));
            let before = if known { Vec::new() } else { all.clone() };
            for words in &mut all {
                match *step {
                    Step::Read(..) => {}
                    Step::Write(_, value, _) => words[at] = value,
                    Step::Add(_, add, _) => words[at] = words[at].wrapping_add(add),
                }
            }
            all.extend(before);
        }
        all
    }
}

/// The history of all processes of one run. Its clock counts the recorded events, or is the
/// caller's.
#[derive(Debug, Default)]
pub struct History(Mutex<(u64, Vec<Call>)>);

impl History {
    fn state(&self) -> MutexGuard<'_, (u64, Vec<Call>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A section begins. Returns its number.
    pub fn invoked(&self, process: u32) -> usize {
        let mut state = self.state();
        state.0 += 1;
        let invoked = state.0;
        state.1.push(Call { process, invoked, returned: None, steps: Vec::new() });
        state.1.len() - 1
    }

    /// An operation in it starts. Returns its number among the steps.
    pub fn step(&self, call: usize, step: Step) -> usize {
        let steps = &mut self.state().1[call].steps;
        steps.push(step);
        steps.len() - 1
    }

    /// A read or a fetch-add found this value, or a write is complete.
    pub fn answered(&self, call: usize, step: usize, value: u64) {
        match &mut self.state().1[call].steps[step] {
            Step::Read(_, found) | Step::Add(_, _, found) => *found = Some(value),
            Step::Write(_, _, known) => *known = true,
        }
    }

    /// The section ended.
    pub fn returned(&self, call: usize) {
        let mut state = self.state();
        state.0 += 1;
        state.1[call].returned = Some(state.0);
    }

    /// The recorded sections.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.state().1.clone()
    }

    /// Checks that the history is [`linearizable`], with this many words.
    ///
    /// # Errors
    /// The history.
    pub fn check(&self, words: usize) -> Result<(), String> {
        let calls = self.calls();
        if linearizable(&calls, words) {
            return Ok(());
        }
        let line = |Call { process, invoked, returned, steps }: &Call| {
            let end = returned.map_or("never".into(), |returned| returned.to_string());
            format!("  process {process} from {invoked} to {end}: {steps:?}\n")
        };
        Err(format!("not linearizable:\n{}", calls.iter().map(line).collect::<String>()))
    }
}

/// Whether there is an order of the calls in which each takes effect atomically between its
/// invocation and its return, and finds what it found. A call that never returned may have had no
/// effect, or some of its effects.
///
/// The search of Wing and Gong (*Testing and Verifying Concurrent Objects*, 1993): some call
/// without a predecessor comes first; remaining calls and words are memoized, as in Lowe's and Horn
/// and Kroening's versions. Exponential in the worst case.
///
/// # Panics
/// With more than 128 calls.
#[must_use]
pub fn linearizable(calls: &[Call], words: usize) -> bool {
    assert!(calls.len() <= 128, "{} calls", calls.len());
    let returned = calls.iter().enumerate().filter(|(_, call)| call.returned.is_some());
    let all = returned.fold(0_u128, |all, (number, _)| all | 1 << number);
    let mut known = HashSet::new();
    let mut open = vec![(0_u128, vec![0_u64; words])];
    while let Some((done, words)) = open.pop() {
        if done & all == all {
            return true;
        }
        let left = || calls.iter().enumerate().filter(move |(number, _)| done >> number & 1 == 0);
        let first_return = left().filter_map(|(_, call)| call.returned).min().unwrap_or(u64::MAX);
        for (number, call) in left().filter(|(_, call)| call.invoked < first_return) {
            for words in call.apply(&words) {
                let next = (done | 1 << number, words);
                if known.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(process: u32, invoked: u64, returned: u64, steps: &[Step]) -> Call {
        Call { process, invoked, returned: (returned > 0).then_some(returned), steps: steps.to_vec() }
    }

    #[test]
    fn tells_right_histories_from_wrong_ones() {
        let write = call(0, 1, 4, &[Step::Write(0, 7, true), Step::Write(1, 7, true)]);
        let reads = |invoked, first, second| {
            call(1, invoked, invoked + 1, &[Step::Read(0, Some(first)), Step::Read(1, Some(second))])
        };
        for (read, right) in [
            (reads(2, 0, 0), true),
            (reads(2, 7, 7), true),
            (reads(2, 7, 0), false),
            (reads(5, 7, 7), true),
            (reads(5, 0, 0), false),
        ] {
            assert_eq!(linearizable(&[write.clone(), read.clone()], 2), right, "{read:?}");
        }
        // A value that was read once stays visible.
        assert!(linearizable(&[write.clone(), reads(2, 0, 0), reads(6, 7, 7)], 2));
        let overlapping = call(0, 1, 9, &write.steps);
        assert!(!linearizable(&[overlapping, reads(2, 7, 7), reads(5, 0, 0)], 2));
    }

    #[test]
    fn two_that_add_to_the_same_find_different_values() {
        let add = |process, found| call(process, 1, 9, &[Step::Add(0, 1, Some(found))]);
        assert!(linearizable(&[add(0, 1), add(1, 0), add(2, 2)], 1));
        assert!(!linearizable(&[add(0, 0), add(1, 0)], 1));
    }

    /// A process that died inside has completed the operations with known outcomes, and any of the
    /// others; or was never inside.
    #[test]
    fn the_dead_may_have_done_a_part() {
        let dead = call(0, 1, 0, &[Step::Write(0, 7, true), Step::Write(1, 7, false)]);
        let reads = |first, second| call(1, 2, 3, &[Step::Read(0, Some(first)), Step::Read(1, Some(second))]);
        for (read, right) in [(reads(0, 0), true), (reads(7, 0), true), (reads(7, 7), true), (reads(0, 7), false)] {
            assert_eq!(linearizable(&[dead.clone(), read.clone()], 2), right, "{read:?}");
        }
    }
}
