//! Everybody in turns.

use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::ProgressBar;
use onesided_fabric::bootstrap::launcher::{Interrupt, Launch, OnFailure};
use onesided_lock_kit::bench::share;
use onesided_windows::LockDesign;
use rustix::time::{ClockId, clock_gettime};

use crate::bench::measure::progress;
use crate::bench::peers::document::{LIMIT, OURS, Result as Row};
use crate::bench::peers::install::Installed;
use crate::bench::peers::perftest::{self, Perftest};
use crate::bench::peers::plan::{How, Measure, measures, over_cards};
use crate::bench::peers::subject::{Door, Job, Order, Subject};
use crate::bench::report::Metric;
use crate::bench::spread::Spread;
use crate::bench::worker::Effort;
use crate::failure::{Failure, say};

/// How many ranks the jobs have.
const RANKS: [u32; 3] = [2, 4, 8];
/// A batch lasts at least half as long.
const BATCH: Duration = Duration::from_micros(500);
/// Until all ranks of a contest are asleep and wait for its begin.
const BEGIN: Duration = Duration::from_millis(20);

/// Who is measured.
#[derive(Debug)]
pub(crate) struct Field<'i> {
    /// Ours.
    pub(crate) fabric: &'static str,
    /// Those of our windows: at least one. What no lock has to do with is measured with the first.
    pub(crate) locks: Vec<LockDesign>,
    pub(crate) installed: &'i [Installed],
    /// Over verbs: what it knows is measured, and nothing else.
    pub(crate) perftest: Option<Perftest>,
}

impl Field<'_> {
    fn ranks(&self) -> &'static [u32] {
        if self.perftest.is_some() { &RANKS[..1] } else { &RANKS }
    }

    fn measures(&self, ranks: u32, effort: Effort) -> Vec<Measure> {
        let all = measures(ranks, effort);
        if self.perftest.is_none() {
            return all;
        }
        // Bare instructions are no limit of a card.
        all.into_iter()
            .chain(over_cards())
            .filter(perftest::knows)
            .map(|measure| Measure { limit: None, ..measure })
            .collect()
    }
}

/// All results, or the exit status of what ended our own job.
pub(crate) fn run(
    effort: Effort,
    field: &Field<'_>,
    interrupts: &[Interrupt],
    note: &mut dyn FnMut(String),
) -> Result<Result<Vec<Row>, u8>, Failure> {
    let steps = field.ranks().iter().map(|ranks| field.measures(*ranks, effort).len() * effort.runs()).sum::<usize>();
    let progress = progress(steps as u64);
    let mut results = Vec::new();
    for &ranks in field.ranks() {
        progress.set_message(format!("{ranks} ranks"));
        match job(ranks, effort, field, interrupts, &mut |text| progress.suspend(|| note(text)), &progress)? {
            Ok(more) => results.extend(more),
            Err(code) => return Ok(Err(code)),
        }
    }
    progress.finish_and_clear();
    Ok(Ok(results))
}

/// One job of each, with so many ranks.
fn job(
    ranks: u32,
    effort: Effort,
    field: &Field<'_>,
    interrupts: &[Interrupt],
    note: &mut dyn FnMut(String),
    progress: &ProgressBar,
) -> Result<Result<Vec<Row>, u8>, Failure> {
    let over = AtomicBool::new(false);
    let door = Door::open()?;
    let before = field.perftest.as_ref().map_or(&[][..], Perftest::before);
    let mut args: Vec<OsString> = before.iter().map(OsString::from).collect();
    if field.locks[0] != LockDesign::default() {
        args.extend(["env".into(), format!("ONESIDED_LOCK={}", field.locks[0]).into()]);
    }
    args.extend([std::env::current_exe()?.into(), "bench".into(), "peer".into(), door.path().into()]);
    let launch = Launch {
        size: ranks,
        program: args.remove(0),
        args,
        fabric: field.fabric.to_owned(),
        on_failure: OnFailure::Abort,
        labels: ranks > 1,
    };
    std::thread::scope(|scope| {
        let launched = scope.spawn(|| {
            let code = launch.run(interrupts, &mut |event| say(&event.to_string()));
            over.store(true, Ordering::Relaxed);
            code
        });
        let measured = (|| {
            let ours = Subject::answer(&door, ranks, &over, || None)?;
            let mut lanes = vec![Lane { name: OURS, subject: ours, job: None }];
            for peer in field.installed {
                match Lane::start(peer, ranks, &over) {
                    Ok(lane) => lanes.push(lane),
                    Err(why) => note(format!("{} is left out with {ranks} ranks: {why}", peer.mpi.name)),
                }
            }
            rounds(ranks, effort, field, &mut lanes, note, progress)
        })();
        // Our ranks have ended with their socket, or are ended by what `measured` tells.
        let code = launched.join().map_err(|_| "the thread that starts the job panicked")??;
        match measured {
            Ok(results) if code == 0 => Ok(Ok(results)),
            Err(why) if code == 0 => Err(Failure::from(why)),
            _ => Ok(Err(code)),
        }
    })
}

/// Who takes part.
struct Lane<'i, 'o> {
    name: &'static str,
    subject: Subject<'o>,
    /// Behind the subject, whose end lets it end.
    job: Option<Job<'i>>,
}

impl<'i, 'o> Lane<'i, 'o> {
    /// Lets go of it if it is lost, and says so; that we are lost is an error, and so is the end of the run.
    fn failed(&mut self, ranks: u32, why: String, note: &mut dyn FnMut(String)) -> Result<(), String> {
        if !self.subject.is_lost() {
            return Ok(());
        }
        if self.name == OURS || self.subject.is_over() {
            return Err(why);
        }
        // What its launcher says of the end tells more.
        let why = self.job.as_mut().and_then(Job::ended).map_or(why.clone(), |ended| format!("{why}; {ended}"));
        self.job = None;
        note(format!("{} is left out with {ranks} ranks: {why}", self.name));
        Ok(())
    }

    fn start(peer: &'i Installed, ranks: u32, over: &'o AtomicBool) -> Result<Self, String> {
        let door = Door::open().map_err(|error| error.to_string())?;
        let mut job = Job::start(peer, ranks, &door.path())?;
        let subject = Subject::answer(&door, ranks, over, || job.ended())?;
        Ok(Self { name: peer.mpi.name, subject, job: Some(job) })
    }
}

/// A lane in a measure: who is asked for what, and what came of it.
struct Entrant {
    /// A lane's, or [`LIMIT`].
    name: &'static str,
    lane: usize,
    /// Of several.
    lock: Option<LockDesign>,
    probe: String,
    times: u64,
    /// A run's value each, and the share of the least lucky rank.
    values: Vec<f64>,
    shares: Vec<f64>,
}

fn rounds(
    ranks: u32,
    effort: Effort,
    field: &Field<'_>,
    lanes: &mut Vec<Lane<'_, '_>>,
    note: &mut dyn FnMut(String),
    progress: &ProgressBar,
) -> Result<Vec<Row>, String> {
    let measures = field.measures(ranks, effort);
    let mut outside: Vec<_> = measures.iter().map(|_| Entrant::new(perftest::NAME, 0, "")).collect();
    let mut perftest = field.perftest.as_ref();
    let mut entered = Vec::new();
    for measure in &measures {
        let mut entrants = Vec::new();
        for (lane, Lane { name, .. }) in lanes.iter().enumerate() {
            match &*field.locks {
                several @ [_, _, ..] if *name == OURS && measure.is_of_locks() => {
                    entrants.extend(several.iter().map(|lock| Entrant::with(*lock, measure.probe)));
                }
                _ => entrants.push(Entrant::new(name, lane, measure.probe)),
            }
        }
        entrants.extend(measure.limit.map(|probe| Entrant::new(LIMIT, 0, probe)));
        let mut able = Vec::new();
        for mut entrant in entrants {
            let lane = &mut lanes[entrant.lane];
            if lane.subject.is_lost() {
                continue;
            }
            match entrant.calibrate(measure, &mut lane.subject) {
                Ok(()) => able.push(entrant),
                Err(why) => {
                    if !lane.subject.is_lost() {
                        note(format!("{} has no `{}`: {why}", entrant.name, measure.benchmark));
                    }
                    lane.failed(ranks, why, note)?;
                }
            }
        }
        entered.push(able);
    }
    for run in 0..effort.runs() {
        for ((measure, entrants), outside) in measures.iter().zip(&mut entered).zip(&mut outside) {
            let batches = measure.batches(effort);
            let mut values = vec![Vec::new(); entrants.len()];
            for batch in 0..batches {
                // Nobody always comes behind the same one.
                for turn in 0..entrants.len() {
                    let who = (turn + batch + run) % entrants.len();
                    let entrant = &mut entrants[who];
                    let lane = &mut lanes[entrant.lane];
                    if lane.subject.is_lost() {
                        continue;
                    }
                    match entrant.batch(measure, &mut lane.subject) {
                        Ok(value) => values[who].push(value),
                        Err(why) if entrant.lane == 0 => return Err(why),
                        Err(why) => lane.failed(ranks, why, note)?,
                    }
                }
            }
            for (entrant, values) in entrants.iter_mut().zip(values) {
                if values.len() == batches {
                    entrant.values.push(Spread::of(&values).median);
                }
            }
            if let Some(program) = perftest {
                match program.measure(measure, lanes[0].subject.over()) {
                    Ok(nanos) => outside.values.push(measure.value(nanos * measure.operations as f64)),
                    Err(why) if lanes[0].subject.is_over() => return Err(why),
                    Err(why) => {
                        note(format!("perftest is left out from here on: {why}"));
                        perftest = None;
                    }
                }
            }
            progress.inc(1);
        }
    }
    for (entrants, outside) in entered.iter_mut().zip(outside) {
        entrants.push(outside); // with no values, it is left out
    }
    for lane in lanes.iter_mut() {
        if let Some(why) = lane.job.as_mut().and_then(Job::ended) {
            note(format!("{} ended before the others with {ranks} ranks: {why}", lane.name));
        }
    }
    lanes.clear();
    let rows =
        measures.iter().zip(entered).flat_map(|(measure, entrants)| rows(measure, ranks, entrants, effort.runs()));
    Ok(rows.collect())
}

impl Entrant {
    fn new(name: &'static str, lane: usize, probe: &'static str) -> Self {
        Self { name, lane, lock: None, probe: probe.to_owned(), times: 1, values: Vec::new(), shares: Vec::new() }
    }

    /// Us, with a window that has this lock.
    fn with(lock: LockDesign, probe: &'static str) -> Self {
        Self { lock: Some(lock), probe: format!("{probe}:{lock}"), ..Self::new(OURS, 0, "") }
    }

    /// How many times make a batch: the shortest of three counts, for the first is cold and any may lose its core.
    fn calibrate(&mut self, measure: &Measure, subject: &mut Subject<'_>) -> Result<(), String> {
        match measure.how {
            How::Once | How::Contest(_) => return Ok(()),
            How::Times(times) => {
                self.times = times;
                return Ok(());
            }
            How::Batches => {}
        }
        loop {
            let mut shortest = f64::INFINITY;
            for _ in 0..3 {
                shortest = shortest.min(self.ask(measure, subject)?[0]);
            }
            if shortest * 2.0 >= BATCH.as_nanos() as f64 {
                return Ok(());
            }
            self.times *= 2;
        }
    }

    fn ask(&self, measure: &Measure, subject: &mut Subject<'_>) -> Result<Vec<f64>, String> {
        let (times, argument) = match measure.how {
            How::Contest(millis) => {
                let now = clock_gettime(ClockId::Monotonic);
                (millis, now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64 + BEGIN.as_nanos() as u64)
            }
            _ => (self.times, measure.argument),
        };
        subject.ask(Order { probe: &self.probe, size: measure.size, times, argument })
    }

    /// A batch's value, as the metric has it.
    fn batch(&mut self, measure: &Measure, subject: &mut Subject<'_>) -> Result<f64, String> {
        let answers = self.ask(measure, subject)?;
        Ok(match measure.how {
            How::Contest(millis) => {
                self.shares.push(share(&answers));
                answers.iter().sum::<f64>() / millis as f64 * 1e3
            }
            _ => measure.value(answers[0] / self.times as f64),
        })
    }
}

/// What came of a measure: a row for each of several locks, beside the same others. Who did not come through all runs is left
/// out.
fn rows(measure: &Measure, ranks: u32, mut entrants: Vec<Entrant>, runs: usize) -> Vec<Row> {
    entrants.retain(|entrant| entrant.values.len() == runs);
    let size = measure.sized.then_some(measure.size);
    let mut locks: Vec<_> = entrants.iter().filter_map(|entrant| entrant.lock).map(Some).collect();
    if locks.is_empty() {
        locks.push(None);
    }
    let mut rows = Vec::new();
    for lock in locks {
        let benchmark =
            lock.map_or_else(|| measure.benchmark.to_owned(), |lock| format!("{}, {lock}", measure.benchmark));
        let row = |metric: Metric| Row::new((&benchmark, measure.group), size, ranks, metric);
        let beside = || entrants.iter().filter(|entrant| entrant.name != OURS || entrant.lock == lock);
        let values = beside().map(|entrant| (entrant.name, &*entrant.values)).collect::<Vec<_>>();
        rows.push(row(measure.metric).with(&values));
        if matches!(measure.how, How::Contest(_)) {
            let shares = beside().map(|entrant| (entrant.name, &*entrant.shares)).collect::<Vec<_>>();
            rows.push(row(Metric::Share).with(&shares));
        }
    }
    rows
}

#[cfg(test)]
mod tests;
