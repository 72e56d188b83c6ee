//! Generated sections on data at several ranks, over the model memory.

use onesided_lock_algos::{LockAlgorithm, Mode, Owner};
use onesided_remote_memory::{Fault, Notify, Rank, RemoteMemory};
use proptest::collection::vec;
use proptest::prelude::*;

use super::history::{History, Step};
use crate::Record;
use crate::program::{DATA, Section, word};
use crate::random::{Scenario, cases, recorded};
use crate::world::Setting;

/// An access of a section to a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads it.
    Read,
    /// Writes a unique value; only a flush waits for it.
    Write,
    /// Adds one.
    Add,
    /// Waits for all writes.
    Flush,
}

/// A section under the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataSection {
    /// The mode of the lock. A shared section only reads.
    pub mode: Mode,
    /// The accesses, and the rank of each word.
    pub accesses: Vec<(Access, usize)>,
    /// After how many reads of its intent the acquire is cancelled, if it is.
    pub cancelled: Option<u8>,
}

/// One deterministic run.
pub type Sections = Scenario<DataSection>;

fn section() -> impl Strategy<Value = DataSection> {
    let access = prop_oneof![3 => Just(Access::Read), 3 => Just(Access::Write), 1 => Just(Access::Add), 1 => Just(Access::Flush)];
    let mode = prop_oneof![2 => Just(Mode::Exclusive), 1 => Just(Mode::Shared)];
    let cancelled = prop_oneof![5 => Just(None), 1 => (0_u8..4).prop_map(Some)];
    (mode, vec((access, 0..4_usize), 0..5), cancelled).prop_map(|(mode, accesses, cancelled)| DataSection {
        mode,
        accesses,
        cancelled,
    })
}

/// Programs of 2 to 4 processes with 1 to 3 sections each, and the order of up to 300 events. One
/// rank dies if `dies`.
pub fn sections(dies: bool) -> impl Strategy<Value = Sections> {
    cases(section(), dies)
}

/// Runs sections and checks that their history is linearizable. `flushes`: whether each release
/// waits for the writes.
///
/// # Errors
/// The violation.
pub(crate) fn run<A: LockAlgorithm + Clone>(
    setting: Setting,
    flushes: bool,
    lock: &A,
    sections: &Sections,
) -> Result<(), String> {
    let section = |DataSection { mode, cancelled, .. }: &DataSection| {
        let section = Section { mode: *mode, ..Section::EXCLUSIVE };
        cancelled.map_or(section, |asked| section.cancelled(asked))
    };
    let Scenario { programs, schedule, death } = sections.clone();
    let rounds = programs.iter().map(|program| program.iter().map(section).collect()).collect();
    let record = Record::of(Accesses { history: History::default(), programs, flushes });
    recorded(setting, lock, &Scenario { programs: rounds, schedule, death }, record).map(drop)
}

/// What sections do under the lock instead of touching the data: by rank and section.
#[derive(Debug)]
pub(crate) struct Accesses {
    pub(crate) history: History,
    programs: Vec<Vec<DataSection>>,
    /// Whether each release waits for the writes.
    flushes: bool,
}

impl Accesses {
    /// An owner begins a section; `None` if it is that of a survivor at the end.
    pub(crate) fn begins(&self, owner: Owner) -> Option<Accessing<'_>> {
        let section = self.programs.get(owner.rank.index())?.get(owner.generation as usize)?;
        Some(Accessing {
            history: &self.history,
            section,
            flushes: self.flushes,
            call: self.history.invoked(owner.rank.0),
        })
    }
}

/// A section under way.
pub(crate) struct Accessing<'a> {
    history: &'a History,
    section: &'a DataSection,
    flushes: bool,
    call: usize,
}

impl Accessing<'_> {
    /// What it does while it holds the lock.
    pub(crate) async fn inside<M: RemoteMemory>(&self, memory: &M, owner: Owner) -> Result<(), Fault> {
        let Self { history, section, call, .. } = *self;
        let mut written = Vec::new();
        for (number, (access, at)) in section.accesses.iter().enumerate() {
            let at = at % memory.size() as usize;
            let word = word(memory, Rank(at as u32), DATA)?;
            match access {
                Access::Read => {
                    // Earlier writes come first.
                    flush(history, call, &mut written).await?;
                    let step = history.step(call, Step::Read(at, None));
                    history.answered(call, step, memory.read(word).await?);
                }
                Access::Write if section.mode == Mode::Exclusive => {
                    let value = (1 + u64::from(owner.rank.0)) << 40 | u64::from(owner.generation) << 20 | number as u64;
                    let step = history.step(call, Step::Write(at, value, false));
                    written.push((step, memory.write(word, value, Notify::No)));
                }
                Access::Add if section.mode == Mode::Exclusive => {
                    flush(history, call, &mut written).await?;
                    let step = history.step(call, Step::Add(at, 1, None));
                    history.answered(call, step, memory.fetch_add(word, 1).await?);
                }
                Access::Flush => flush(history, call, &mut written).await?,
                Access::Write | Access::Add => {}
            }
        }
        if self.flushes { flush(history, call, &mut written).await } else { Ok(()) }
    }

    /// Its release is complete.
    pub(crate) fn ends(self) {
        self.history.returned(self.call);
    }
}

async fn flush<O: Future<Output = Result<u64, Fault>>>(
    history: &History,
    call: usize,
    written: &mut Vec<(usize, O)>,
) -> Result<(), Fault> {
    for (step, write) in written.drain(..) {
        write.await?;
        history.answered(call, step, 0);
    }
    Ok(())
}
