//! Runs the measures with all programs, interleaved.

use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::ProgressBar;
use onesided_fabric::bootstrap::launcher::Interrupt;
use onesided_lock_kit::bench::share;
use onesided_windows::LockDesign;

use crate::bench::effort::Effort;
use crate::bench::peers::control::{ControlledJob, Job, Listener, Request};
use crate::bench::peers::document::{Comparison, LIMIT, OURS};
use crate::bench::peers::external::External;
use crate::bench::peers::install::Installed;
use crate::bench::peers::perftest;
use crate::bench::peers::plan::{Measure, Repeat, Suite, collectives, measures, messages, over_cards, overlap};
use crate::bench::results::quantity::Quantity;
use crate::bench::results::summary::Summary;
use crate::bench::runner::job::of_this_program;
use crate::bench::worker::timing::now;
use crate::failure::{Failure, say};
use crate::output::progress;

/// The numbers of ranks of the jobs.
const RANKS: [u32; 3] = [2, 4, 8];
/// A batch takes at least half as long.
const BATCH: Duration = Duration::from_micros(500);
/// Time for all ranks to receive a throughput request before its run begins.
const BEGIN: Duration = Duration::from_millis(20);

/// The programs of a run.
pub(crate) struct Setup<'i> {
    /// The fabric of this library.
    pub(crate) fabric: &'static str,
    /// The locks of this library's windows, at least one. Measures that do not depend on the lock
    /// use the first.
    pub(crate) locks: Vec<LockDesign>,
    pub(crate) installed: &'i [Installed],
    /// Over shared memory.
    pub(crate) suite: Suite,
    /// A peer that measures by itself. Over verbs only measures that it supports are run.
    pub(crate) external: Option<External>,
}

impl Setup<'_> {
    /// perftest, over verbs.
    fn perftest(&self) -> Option<&External> {
        self.external.as_ref().filter(|external| external.name == perftest::NAME)
    }

    fn ranks(&self) -> &'static [u32] {
        match (self.suite, self.perftest()) {
            (Suite::Messages | Suite::Overlap, _) | (_, Some(_)) => &RANKS[..1],
            (Suite::Collectives, None) => &RANKS[..2],
            (Suite::Windows, None) => &RANKS,
        }
    }

    fn measures(&self, ranks: u32, effort: Effort) -> Vec<Measure> {
        let Some(perftest) = self.perftest() else {
            return match self.suite {
                Suite::Windows => measures(ranks, effort),
                Suite::Messages => messages(),
                Suite::Collectives => collectives(),
                Suite::Overlap => overlap(),
            };
        };
        // Bare instructions are not the limit of a card.
        let all = measures(ranks, effort).into_iter().chain(over_cards());
        all.filter(|measure| perftest.supports(measure)).map(|measure| Measure { limit: None, ..measure }).collect()
    }
}

/// All results, or the exit status that ended this library's own job.
pub(crate) fn run(
    effort: Effort,
    setup: &Setup<'_>,
    interrupts: &[Interrupt],
    note: &mut dyn FnMut(String),
) -> Result<Result<Vec<Comparison>, u8>, Failure> {
    let steps = setup.ranks().iter().map(|ranks| setup.measures(*ranks, effort).len() * effort.runs()).sum::<usize>();
    let progress = progress(steps as u64);
    let mut results = Vec::new();
    for &ranks in setup.ranks() {
        progress.set_message(format!("{ranks} ranks"));
        match job(ranks, effort, setup, interrupts, &mut |text| progress.suspend(|| note(text)), &progress)? {
            Ok(more) => results.extend(more),
            Err(code) => return Ok(Err(code)),
        }
    }
    progress.finish_and_clear();
    Ok(Ok(results))
}

/// Runs the measures in one job of each program, with so many ranks.
fn job(
    ranks: u32,
    effort: Effort,
    setup: &Setup<'_>,
    interrupts: &[Interrupt],
    note: &mut dyn FnMut(String),
    progress: &ProgressBar,
) -> Result<Result<Vec<Comparison>, u8>, Failure> {
    let over = AtomicBool::new(false);
    let listener = Listener::open()?;
    let wrapper = setup.external.as_ref().map_or(&[][..], |external| external.wrapper);
    let lock = format!("ONESIDED_LOCK={}", setup.locks[0]);
    let variables = (setup.locks[0] != LockDesign::default()).then_some(["env", &lock]);
    let before = wrapper.iter().copied().chain(variables.into_iter().flatten());
    let launch = of_this_program((ranks, setup.fabric), before, [OsString::from("peer"), listener.path().into()])?;
    std::thread::scope(|scope| {
        let launched = scope.spawn(|| {
            let code = launch.run(interrupts, &mut |event| say(&event.to_string()));
            over.store(true, Ordering::Relaxed);
            code
        });
        let measured = (|| {
            let ours = ControlledJob::accept(&listener, ranks, &over, || None)?;
            let mut participants = vec![Participant { name: OURS, control: ours, job: None }];
            for peer in setup.installed {
                match Participant::start(peer, ranks, &over) {
                    Ok(participant) => participants.push(participant),
                    Err(why) => note(format!("{} is left out with {ranks} ranks: {why}", peer.mpi.name)),
                }
            }
            rounds(ranks, effort, setup, &mut participants, note, progress)
        })();
        // The own ranks end when their sockets are closed.
        let code = launched.join().map_err(|_| "the thread that starts the job panicked")??;
        match measured {
            Ok(results) if code == 0 => Ok(Ok(results)),
            Err(why) if code == 0 => Err(Failure::from(why)),
            _ => Ok(Err(code)),
        }
    })
}

/// A program with its job.
struct Participant<'i, 'o> {
    name: &'static str,
    control: ControlledJob<'o>,
    /// Declared after `control`: closing the sockets lets the job end.
    job: Option<Job<'i>>,
}

impl<'i, 'o> Participant<'i, 'o> {
    /// Drops a lost job with a note.
    ///
    /// # Errors
    /// If this library's own job is lost, or the run is over.
    fn failed(&mut self, ranks: u32, why: String, note: &mut dyn FnMut(String)) -> Result<(), String> {
        if !self.control.is_lost() {
            return Ok(());
        }
        if self.name == OURS || self.control.is_over() {
            return Err(why);
        }
        // The launcher's reason is more specific.
        let why = self.job.as_mut().and_then(Job::ended).map_or(why.clone(), |ended| format!("{why}; {ended}"));
        self.job = None;
        note(format!("{} is left out with {ranks} ranks: {why}", self.name));
        Ok(())
    }

    fn start(peer: &'i Installed, ranks: u32, over: &'o AtomicBool) -> Result<Self, String> {
        let listener = Listener::open().map_err(|error| error.to_string())?;
        let mut job = Job::start(peer, ranks, &listener.path())?;
        let control = ControlledJob::accept(&listener, ranks, over, || job.ended())?;
        Ok(Self { name: peer.mpi.name, control, job: Some(job) })
    }
}

/// What a participant does in a measure, and its values.
struct Entry {
    /// That of a participant, or [`LIMIT`].
    name: &'static str,
    /// The index of the participant that runs the probe.
    participant: usize,
    /// The lock of the window, if several are measured.
    lock: Option<LockDesign>,
    probe: String,
    /// Iterations of a batch.
    times: u64,
    /// The value of each run.
    values: Vec<f64>,
    /// The smallest over the largest share of the ranks in each throughput run.
    shares: Vec<f64>,
}

/// Runs all measures with these participants, and closes their connections.
fn rounds(
    ranks: u32,
    effort: Effort,
    setup: &Setup<'_>,
    participants: &mut Vec<Participant<'_, '_>>,
    note: &mut dyn FnMut(String),
    progress: &ProgressBar,
) -> Result<Vec<Comparison>, String> {
    let measures = setup.measures(ranks, effort);
    let mut external = setup.external.as_ref();
    let name = external.map_or("", |external| external.name);
    let mut of_external: Vec<_> = measures.iter().map(|_| Entry::new(name, 0, "")).collect();
    let mut entered = Vec::new();
    for measure in &measures {
        let entries = entries(setup, measure, participants);
        entered.push(calibrated(measure, entries, ranks, participants, note)?);
    }
    for run in 0..effort.runs() {
        for ((measure, entries), of_external) in measures.iter().zip(&mut entered).zip(&mut of_external) {
            measure_run(measure, entries, (run, measure.batches(effort)), ranks, participants, note)?;
            if let Some(program) = external.filter(|program| program.supports(measure)) {
                match program.measure(measure, participants[0].control.over()) {
                    Ok(nanos) => of_external.values.push(measure.value(nanos * measure.operations as f64)),
                    Err(why) if participants[0].control.is_over() => return Err(why),
                    Err(why) => {
                        note(format!("{name} is left out from here on: {why}"));
                        external = None;
                    }
                }
            }
            progress.inc(1);
        }
    }
    for (entries, of_external) in entered.iter_mut().zip(of_external) {
        entries.push(of_external); // left out if it has no values
    }
    for participant in participants.iter_mut() {
        if let Some(why) = participant.job.as_mut().and_then(Job::ended) {
            note(format!("{} ended before the others with {ranks} ranks: {why}", participant.name));
        }
    }
    participants.clear();
    let rows = measures.iter().zip(entered).flat_map(|(measure, entries)| rows(measure, ranks, entries, effort.runs()));
    Ok(rows.collect())
}

/// The entries of a measure: one for each participant (with several locks, one of this library for
/// each), and the limit.
fn entries(setup: &Setup<'_>, measure: &Measure, participants: &[Participant<'_, '_>]) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (participant, Participant { name, .. }) in participants.iter().enumerate() {
        match &*setup.locks {
            several @ [_, _, ..] if *name == OURS && measure.depends_on_lock() => {
                entries.extend(several.iter().map(|lock| Entry::with(*lock, measure.probe)));
            }
            _ => entries.push(Entry::new(name, participant, measure.probe)),
        }
    }
    entries.extend(measure.limit.map(|probe| Entry::new(LIMIT, 0, probe)));
    entries
}

/// The entries whose participants have the probe, calibrated.
fn calibrated(
    measure: &Measure,
    entries: Vec<Entry>,
    ranks: u32,
    participants: &mut [Participant<'_, '_>],
    note: &mut dyn FnMut(String),
) -> Result<Vec<Entry>, String> {
    let mut able = Vec::new();
    for mut entry in entries {
        let participant = &mut participants[entry.participant];
        if participant.control.is_lost() {
            continue;
        }
        match entry.calibrate(measure, &mut participant.control) {
            Ok(()) => able.push(entry),
            Err(why) => {
                if !participant.control.is_lost() {
                    note(format!("{} has no `{}`: {why}", entry.name, measure.benchmark));
                }
                participant.failed(ranks, why, note)?;
            }
        }
    }
    if measure.repeat == Repeat::Alike {
        let most = able.iter().map(|entry| entry.times).max().unwrap_or(1);
        able.iter_mut().for_each(|entry| entry.times = most);
    }
    Ok(able)
}

/// One run of a measure: its batches, interleaved, and their medians.
fn measure_run(
    measure: &Measure,
    entries: &mut [Entry],
    (run, batches): (usize, usize),
    ranks: u32,
    participants: &mut [Participant<'_, '_>],
    note: &mut dyn FnMut(String),
) -> Result<(), String> {
    let mut values = vec![Vec::new(); entries.len()];
    for batch in 0..batches {
        // The order rotates, so that no entry always follows the same one.
        for position in 0..entries.len() {
            let index = (position + batch + run) % entries.len();
            let entry = &mut entries[index];
            let participant = &mut participants[entry.participant];
            if participant.control.is_lost() {
                continue;
            }
            match entry.batch(measure, &mut participant.control) {
                Ok(value) => values[index].push(value),
                Err(why) if entry.participant == 0 => return Err(why),
                Err(why) => participant.failed(ranks, why, note)?,
            }
        }
    }
    for (entry, values) in entries.iter_mut().zip(values) {
        if values.len() == batches {
            entry.values.push(Summary::of(&values).median);
        }
    }
    Ok(())
}

impl Entry {
    fn new(name: &'static str, participant: usize, probe: &'static str) -> Self {
        Self {
            name,
            participant,
            lock: None,
            probe: probe.to_owned(),
            times: 1,
            values: Vec::new(),
            shares: Vec::new(),
        }
    }

    /// This library with a window that has this lock.
    fn with(lock: LockDesign, probe: &'static str) -> Self {
        Self { lock: Some(lock), probe: format!("{probe}:{lock}"), ..Self::new(OURS, 0, "") }
    }

    /// Determines the iterations of a batch. The shortest of three counts: the first is cold, and
    /// any may lose its core.
    fn calibrate(&mut self, measure: &Measure, control: &mut ControlledJob<'_>) -> Result<(), String> {
        match measure.repeat {
            Repeat::Once | Repeat::Throughput(_) => return Ok(()),
            Repeat::Times(times) => {
                self.times = times;
                return Ok(());
            }
            Repeat::Batches | Repeat::Alike => {}
        }
        loop {
            let mut shortest = f64::INFINITY;
            for _ in 0..3 {
                shortest = shortest.min(self.request(measure, control)?[0]);
            }
            if shortest * 2.0 >= BATCH.as_nanos() as f64 {
                return Ok(());
            }
            self.times *= 2;
        }
    }

    fn request(&self, measure: &Measure, control: &mut ControlledJob<'_>) -> Result<Vec<f64>, String> {
        let (times, argument) = match measure.repeat {
            Repeat::Throughput(millis) => (millis, now() + BEGIN.as_nanos() as u64),
            _ => (self.times, measure.argument),
        };
        control.request(Request { probe: &self.probe, size: measure.size, times, argument })
    }

    /// The value of a batch, as the measure's quantity.
    fn batch(&mut self, measure: &Measure, control: &mut ControlledJob<'_>) -> Result<f64, String> {
        let answers = self.request(measure, control)?;
        Ok(match measure.repeat {
            Repeat::Throughput(millis) => {
                self.shares.push(share(&answers));
                answers.iter().sum::<f64>() / millis as f64 * 1e3
            }
            _ => measure.value(answers[0] / self.times as f64),
        })
    }
}

/// The rows of a measure: one for each lock, with the same peers. Entries that lack runs are left
/// out.
fn rows(measure: &Measure, ranks: u32, mut entries: Vec<Entry>, runs: usize) -> Vec<Comparison> {
    entries.retain(|entry| entry.values.len() == runs);
    let size = measure.sized.then_some(measure.size);
    let mut locks: Vec<_> = entries.iter().filter_map(|entry| entry.lock).map(Some).collect();
    if locks.is_empty() {
        locks.push(None);
    }
    let mut rows = Vec::new();
    for lock in locks {
        let benchmark =
            lock.map_or_else(|| measure.benchmark.to_owned(), |lock| format!("{}, {lock}", measure.benchmark));
        let row = |quantity| Comparison::new((&benchmark, measure.group), size, ranks, quantity);
        let beside = || entries.iter().filter(|entry| entry.name != OURS || entry.lock == lock);
        let values = beside().map(|entry| (entry.name, &*entry.values)).collect::<Vec<_>>();
        rows.push(row(measure.quantity).with(&values));
        if matches!(measure.repeat, Repeat::Throughput(_)) {
            let shares = beside().map(|entry| (entry.name, &*entry.shares)).collect::<Vec<_>>();
            rows.push(row(Quantity::Share).with(&shares));
        }
    }
    rows
}

#[cfg(test)]
mod tests;
