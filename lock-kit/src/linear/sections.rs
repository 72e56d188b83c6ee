//! Generated sections on data at several ranks, over the model memory.

use std::sync::{Arc, Mutex};

use onesided_lock_algos::{Intent, LockAlgorithm, LockUse, Mode, Owner};
use onesided_remote_memory::{At, Fault, Notify, Rank, RegionId, RemoteMemory};
use proptest::collection::vec;
use proptest::prelude::*;

use super::history::{History, Step};
use crate::program::{Crashable, DATA, Layout, Section, Slots, Spawn, abandon};
use crate::random::{Scenario, cases};
use crate::trace::Note;
use crate::world::{ModelMemory, Setting, Tasks};

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

/// More events than any run that ends has.
const ENDLESS: usize = 4_000;

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
pub fn run<A: LockAlgorithm + Clone>(
    setting: Setting,
    flushes: bool,
    lock: &A,
    sections: &Sections,
) -> Result<(), String> {
    let ranks = sections.programs.len();
    let cancelled = |program: &Vec<DataSection>| program.iter().filter(|section| section.cancelled.is_some()).count();
    let most = sections.programs.iter().map(cancelled).max().unwrap_or(0);
    let mut slots = Slots::new(1 + most as u16);
    let mut tasks = Tasks::over(setting.memory::<A>(ranks, &mut slots));
    let (history, fault) = (Arc::new(History::default()), Arc::new(Mutex::new(None)));
    for (rank, program) in sections.programs.iter().enumerate() {
        let (lock, history, fault, program) =
            (Arc::new(lock.clone()), Arc::clone(&history), Arc::clone(&fault), program.clone());
        tasks.start(Rank(rank as u32), |memory, spawn| async move {
            if let Err(failed) = (Process { memory, lock, slots, history, flushes }).run(program, spawn).await {
                *fault.lock().unwrap() = Some(format!("an acquire or a release fails: rank {rank}: {failed}"));
            }
        });
    }
    let mut choices = sections.choices();
    for _ in 0..ENDLESS {
        let Some(event) = choices.next(&tasks.possible(), 0) else { break };
        tasks.happen(event);
    }
    let failed = fault.lock().unwrap().take().map_or(Ok(()), Err);
    let checked = failed.and_then(|()| tasks.ended()).and_then(|()| history.check(ranks));
    checked.map_err(|what| tasks.memory.world().trace.tells(&what))
}

/// A process.
struct Process<A> {
    memory: ModelMemory,
    lock: Arc<A>,
    slots: Slots,
    history: Arc<History>,
    flushes: bool,
}

impl<A: LockAlgorithm> Process<A> {
    async fn run(&self, sections: Vec<DataSection>, spawn: Spawn) -> Result<(), Fault> {
        let mut slot = 0;
        for (generation, section) in (0..).zip(sections) {
            let rank = self.memory.rank();
            let Some(asked) = section.cancelled else {
                self.section(Owner { rank, slot: 0, generation }, &section).await?;
                continue;
            };
            slot += 1;
            let owner = Owner { rank, slot, generation };
            let round = Section { mode: section.mode, ..Section::EXCLUSIVE }.cancelled(asked);
            abandon(&self.memory, &self.lock, (owner, self.slots), round, &Arc::default(), &*spawn)?;
        }
        Ok(())
    }

    async fn section(&self, owner: Owner, section: &DataSection) -> Result<(), Fault> {
        let Self { memory, lock, slots, history, flushes } = self;
        let place = Layout::new::<A>(memory, owner, *slots);
        let words = lock.words(place)?;
        let call = history.invoked(owner.rank.0);
        let started = lock.start(LockUse::new(memory, place, words, section.mode))?;
        let intent = || Intent::LOCK.recovering();
        let held = lock.finish(LockUse::new(memory, place, words, section.mode), started, intent).await?;
        memory.note(Note::Enters(held.mode));
        let mut written = Vec::new();
        for (number, (access, at)) in section.accesses.iter().enumerate() {
            let at = at % memory.size() as usize;
            let word = memory.word(At { rank: Rank(at as u32), region: RegionId(0), offset: 8 * DATA as u64 })?;
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
        if *flushes {
            flush(history, call, &mut written).await?;
        }
        drop(written);
        memory.note(Note::Leaves);
        let released = lock.start_release(LockUse::new(memory, place, words, held.mode))?;
        lock.finish_release(LockUse::new(memory, place, words, held.mode), released.await).await?;
        history.returned(call);
        Ok(())
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
