//! Figures 1 to 6 of W. Jiang et al., "Efficient implementation of MPI-2 passive one-sided
//! communication on InfiniBand clusters", EuroPVM/MPI 2004.

mod concurrency;

use onesided_fabric::ServerThread;
use onesided_sim::Profile;
use onesided_windows::LockDesign;

use super::figure::{Ablation, Claim, Figure, Kind, Number, Series};
use crate::experiment::{Experiment, Handovers, Lock, Overhead, Turns, Unlock};
use crate::failure::Failure;

const TEST_AND_SET: Lock = Lock::Shipped(LockDesign::TestAndSet);
const MCS: Lock = Lock::Shipped(LockDesign::Mcs);
const DEDICATED: Lock = Lock::Shipped(LockDesign::DedicatedThread);
const EVENT: Lock = Lock::Shipped(LockDesign::EventThread);
const DEDICATED_EACH: Lock = Lock::Shipped(LockDesign::DedicatedThreadPerWindow);
const EVENT_EACH: Lock = Lock::Shipped(LockDesign::EventThreadPerWindow);
/// The paper's four designs.
const DESIGNS: [Lock; 4] = [DEDICATED, EVENT, TEST_AND_SET, MCS];

/// What "does not change" allows, and what "increases" asks for at least, as parts.
const FLAT: f64 = 0.05;
const GROWS: f64 = 0.1;

/// Behind the name of a lock whose unlocks do not wait.
const AS_SHIPPED: &str = ", unlock as shipped";

type Draw = fn(&Lab) -> Result<Figure, Failure>;

/// The figures, in the paper's order.
pub(super) const FIGURES: [(&str, Draw); 6] = [
    ("jiang-2004-1", overhead),
    ("jiang-2004-2", delay),
    ("jiang-2004-3", concurrency::figure),
    ("jiang-2004-4", messages),
    ("jiang-2004-5", computing_threads),
    ("jiang-2004-6", smp_mode),
];

/// Where the figures are measured, and how thoroughly.
#[derive(Clone, Debug)]
pub(super) struct Lab {
    pub(super) profile: Profile,
    pub(super) seed: u64,
    pub(super) times: u64,
    /// The numbers of origins.
    pub(super) origins: Vec<u32>,
    /// The numbers of computing threads.
    pub(super) threads: Vec<u32>,
    /// How long computing threads and locks run, in slices of the profile.
    pub(super) slices: u64,
    /// Whether the designs that the paper does not have are drawn as well.
    pub(super) all_designs: bool,
}

impl Lab {
    pub(super) fn lock(&self, lock: Lock) -> Experiment<'_> {
        let (network, unlock) = (self.profile.network(), Unlock::AsPaper);
        Experiment { network, is_one_host: false, lock, unlock, seed: self.seed, times: self.times }
    }

    /// The same with another value of one cost, in nanoseconds.
    fn with(&self, parameter: &str, value: f64) -> Result<Self, Failure> {
        Ok(Self { profile: self.profile.clone().with(parameter, value)?, ..self.clone() })
    }

    /// Measures again with one cost changed. `Some` only where there is something to explain.
    fn ablate<T>(
        &self,
        needed: bool,
        (parameter, to): (&'static str, f64),
        why: &'static str,
        measure: impl Fn(&Self) -> Result<(T, String), Failure>,
    ) -> Result<Option<Ablation<T>>, Failure> {
        if !needed {
            return Ok(None);
        }
        let from = self.profile.number(parameter).unwrap_or(f64::NAN);
        let (result, evidence) = measure(&self.with(parameter, to)?)?;
        Ok(Some(Ablation { parameter, from, to, result, evidence, why }))
    }

    /// A value of each number of origins.
    fn by_origins(&self, name: String, value: impl Fn(u32) -> Result<f64, Failure>) -> Result<Series, Failure> {
        let points = self.origins.iter().map(|origins| Ok((f64::from(*origins), value(*origins)?)));
        Ok(Series::new(name, points.collect::<Result<_, Failure>>()?))
    }

    /// The curves of the designs that are not drawn yet, if all are wanted.
    fn others(
        &self,
        drawn: &[Lock],
        points: impl Fn(Lock) -> Result<Vec<(f64, f64)>, Failure>,
    ) -> Result<Vec<Series>, Failure> {
        let all = LockDesign::ALL.iter().map(|design| Lock::Shipped(*design)).filter(|lock| !drawn.contains(lock));
        let wanted = all.filter(|_| self.all_designs);
        wanted.map(|lock| Ok(Series { name: lock.name(), other: true, points: points(lock)? })).collect()
    }

    fn most_origins(&self) -> u32 {
        self.origins.last().copied().unwrap_or(1)
    }
}

pub(super) const HANDOVERS: Handovers = Handovers { later: 100_000, held_for: 250_000, period: 700_000, shift: 1_777 };

fn micros(nanos: f64) -> f64 {
    nanos / 1000.0
}

const fn claim(what: &'static str, holds: bool, evidence: String) -> Claim {
    Claim { what, holds, evidence, ablation: None }
}

/// Whether a series stays where it began, or does not.
fn flat(what: &'static str, series: &Series) -> Claim {
    let evidence =
        format!("{:.2} to {:.2} us, at most {:.1} % off", series.first(), series.last(), 100.0 * series.spread());
    claim(what, series.spread() <= FLAT, evidence)
}

fn grows(what: &'static str, series: &Series) -> Claim {
    let more = series.last() / series.first() - 1.0;
    let evidence = format!("{:.2} to {:.2} us, {:+.1} %", series.first(), series.last(), 100.0 * more);
    claim(what, more >= GROWS, evidence)
}

fn overhead(lab: &Lab) -> Result<Figure, Failure> {
    let mut series = Vec::new();
    let mut totals = Vec::new();
    let mut releases = (0.0, 0.0);
    let points = |measured: Overhead| {
        let points = [measured.acquire, measured.release, measured.total()].map(micros);
        points.into_iter().enumerate().map(|(at, micros)| (at as f64, micros)).collect::<Vec<_>>()
    };
    let as_shipped = |lock| Experiment { unlock: Unlock::AsShipped, ..lab.lock(lock) }.overhead(1);
    for lock in DESIGNS {
        for unlock in [Unlock::AsPaper, Unlock::AsShipped] {
            let measured = Experiment { unlock, ..lab.lock(lock) }.overhead(1)?;
            let how = if unlock == Unlock::AsPaper { "" } else { AS_SHIPPED };
            series.push(Series::new(format!("{}{how}", lock.name()), points(measured)));
            if unlock == Unlock::AsPaper {
                totals.push(micros(measured.total()));
            }
            if lock == TEST_AND_SET {
                releases = (micros(measured.acquire), micros(measured.release));
            }
        }
    }
    for other in lab.others(&DESIGNS, |lock| Ok(points(as_shipped(lock)?)))? {
        series.push(Series { name: format!("{}{AS_SHIPPED}", other.name), ..other });
    }
    let [dedicated, event, test_and_set, mcs] = totals[..] else { return Err("four designs".into()) };
    let messages = |thread| Ok::<_, Failure>(micros(lab.lock(Lock::OverMessages(thread, false)).overhead(1)?.total()));
    let [polls, sleeps] = [messages(ServerThread::Polls)?, messages(ServerThread::Sleeps)?];
    let worst = |event: f64, mcs: f64| (event > mcs, format!("event-driven {event:.2}, MCS {mcs:.2} us"));
    let (event_is_worst, evidence) = worst(event.min(f64::INFINITY), mcs.max(dedicated));
    let ablation = lab.ablate(
        !event_is_worst,
        ("interrupt", 9000.0),
        "the interrupt of a release overlaps with the wait for its acknowledgement, and the thread that it wakes is \
         still awake for most of the next request",
        |lab| Ok(worst(micros(lab.lock(EVENT).overhead(1)?.total()), micros(lab.lock(MCS).overhead(1)?.total()))),
    )?;
    let claims = vec![
        claim(
            "test-and-set is best",
            totals.iter().all(|total| *total >= test_and_set),
            format!("{test_and_set:.2} us; dedicated {dedicated:.2}, MCS {mcs:.2}, event-driven {event:.2}"),
        ),
        claim("the dedicated thread is faster than MCS", dedicated < mcs, format!("{dedicated:.2} and {mcs:.2} us")),
        Claim { ablation, ..claim("the event-driven thread is worst", event_is_worst, evidence) },
        claim(
            "test-and-set's release is far below its acquire",
            releases.1 < releases.0 / 4.0,
            format!("{:.2} and {:.2} us", releases.1, releases.0),
        ),
    ];
    Ok(Figure {
        labels: &["lock", "unlock", "both"],
        numbers: vec![Number {
            what: "test-and-set, lock and unlock",
            unit: "us",
            kind: Kind::Calibration,
            paper: 12.83,
            ours: test_and_set,
            ablation: None,
        }],
        notes: vec![
            "the paper's unlocks wait for the release, all but test-and-set's; shipped ones never do".into(),
            format!("served over messages: dedicated {polls:.2} us, event-driven {sleeps:.2} us"),
        ],
        ..Figure::new(["jiang-2004-1", "Synchronization overhead", "us, one origin", ""], series, claims)
    })
}

fn delay(lab: &Lab) -> Result<Figure, Failure> {
    let locks = [DEDICATED, EVENT, TEST_AND_SET, Lock::WithoutBackoff, MCS];
    let delays = locks.iter().map(|lock| Ok(micros(lab.lock(*lock).delay(HANDOVERS)?)));
    let delays = delays.collect::<Result<Vec<_>, Failure>>()?;
    let [dedicated, event, backoff, without, mcs] = delays[..] else { return Err("five locks".into()) };
    let one_way = lab.profile.measure("write").unwrap_or(f64::NAN);
    let least = dedicated.min(event).min(backoff).min(without);
    let beat = |what, which: Lock, why| {
        let measure = |lab: &Lab| {
            let delay = |lock| Ok::<_, Failure>(micros(lab.lock(lock).delay(HANDOVERS)?));
            let [words, mcs, dedicated, event] = [delay(which)?, delay(MCS)?, delay(DEDICATED)?, delay(EVENT)?];
            let evidence = format!(
                "MCS {mcs:.2}, {} {words:.2}, dedicated thread {dedicated:.2}, event-driven {event:.2} us",
                which.name()
            );
            Ok::<_, Failure>((words.max(mcs) < dedicated.min(event), evidence))
        };
        let (holds, evidence) = measure(lab)?;
        let ablation = lab.ablate(!holds, ("progress", 6000.0), why, measure)?;
        Ok::<_, Failure>(Claim { ablation, ..claim(what, holds, evidence) })
    };
    let atomics_beat = [
        beat(
            "atomics beat threads, test-and-set without backoff",
            Lock::WithoutBackoff,
            "a shipped server takes no messages apart: its requests are words, which cost it far less than the \
             paper's two-sided messages through MPI's progress engine",
        )?,
        beat(
            "atomics beat threads, test-and-set as shipped, with backoff",
            TEST_AND_SET,
            "a waiter of the shipped lock that has waited for 150 us pauses before it asks again, for longer than a \
             thread takes; no cost of the testbed shortens that, and a thread would be slower only at 23 us a \
             message, more than its whole lock and unlock takes",
        )?,
    ];
    let series = locks.iter().zip(&delays).map(|(lock, delay)| Series::new(lock.name(), vec![(0.0, *delay)]));
    let series = series.chain(lab.others(&locks, |lock| Ok(vec![(0.0, micros(lab.lock(lock).delay(HANDOVERS)?))]))?);
    let claims = [
        claim("MCS is best", mcs < least, format!("{mcs:.2} us, the next {least:.2}")),
        claim(
            "MCS hands over by a single message",
            (mcs / one_way - 1.0).abs() < 0.1,
            format!("{mcs:.2} us, where a write takes {one_way:.2}"),
        ),
        claim(
            "all others take at least a round trip",
            least >= 2.0 * one_way,
            format!("at least {least:.2} us, where a round trip of writes takes {:.2}", 2.0 * one_way),
        ),
    ];
    let value = "two origins: us from the unlock of one until the other has the lock";
    Ok(Figure {
        notes: vec!["test-and-set's delay depends on how long its waiter has backed off: here 150 us".into()],
        ..Figure::new(
            ["jiang-2004-2", "Synchronization delay", value, ""],
            series.collect(),
            claims.into_iter().chain(atomics_beat).collect(),
        )
    })
}

/// A message is an operation that an origin posts on the target's memory, or the target on an
/// origin's. Answers of the card (results of atomics, acknowledgements) are none, and operations from
/// origin to origin are not between origin and target.
fn messages(lab: &Lab) -> Result<Figure, Failure> {
    let counted = |lab: &Lab, lock: Lock, origins: u32| {
        Ok::<_, Failure>(lab.lock(lock).contend(origins, false, Turns::OnAverage)?.messages)
    };
    let mut series = Vec::new();
    let locks = [DEDICATED, EVENT, TEST_AND_SET, Lock::WithoutBackoff, MCS];
    for lock in locks {
        series.push(lab.by_origins(lock.name(), |origins| counted(lab, lock, origins))?);
    }
    let [dedicated, event, backoff, without, mcs] = &series[..] else { return Err("five curves".into()) };
    let number = |what, lock, paper: f64, ours: f64, changed, why| {
        let off = (ours / paper - 1.0).abs() > 0.1;
        let ablation = lab.ablate(off, changed, why, |lab| {
            let ours = counted(lab, lock, lab.most_origins())?;
            Ok((ours, format!("{ours:.2}, ratio {:.2}", ours / paper)))
        })?;
        Ok::<_, Failure>(Number { what, unit: "messages", kind: Kind::Prediction, paper, ours, ablation })
    };
    let numbers = vec![
        number(
            "test-and-set without backoff, 7 origins",
            Lock::WithoutBackoff,
            9.0,
            without.last(),
            ("jitter", 5000.0),
            "without chance in its messages, a card that has just released a lock is always the next to acquire it",
        )?,
        number(
            "test-and-set, 7 origins",
            TEST_AND_SET,
            3.0,
            backoff.last(),
            ("post", 4000.0),
            "the origin that released the lock often acquires it at once; slower software leaves others a gap",
        )?,
        number(
            "MCS, 7 origins",
            MCS,
            7.0,
            mcs.last(),
            ("jitter", 5000.0),
            "in lockstep, each swap that is emulated finds the word changed, and nobody joins the queue",
        )?,
    ];
    let constant = |series: &Series| series.spread() <= FLAT;
    let claims = vec![
        claim(
            "the threads' number does not change",
            constant(dedicated) && constant(event),
            format!("{:.2} and {:.2} with {} origins", dedicated.last(), event.last(), lab.most_origins()),
        ),
        claim(
            "backoff reduces test-and-set's",
            backoff.last() < without.last() / 2.0,
            format!("{:.2} to {:.2}", without.last(), backoff.last()),
        ),
        claim(
            "MCS's increases with the origins",
            mcs.last() > mcs.first() * 2.0,
            format!("{:.2} to {:.2}", mcs.first(), mcs.last()),
        ),
    ];
    series.extend(
        lab.others(&locks, |lock| Ok(lab.by_origins(String::new(), |origins| counted(lab, lock, origins))?.points))?,
    );
    let value = "messages of a lock and unlock, all origins at one lock";
    Ok(Figure {
        numbers,
        notes: vec![
            "a message is an operation that an origin posts on the target's memory, or the target on an origin's; \
             answers of cards and writes from origin to origin are none"
                .into(),
            "test-and-set's number falls with the repetitions (--times): the shipped lock backs off for longer and \
             longer, and one origin acquires the lock many times in a row"
                .into(),
        ],
        ..Figure::new(["jiang-2004-4", "Message complexity", value, "origins"], series, claims)
    })
}

fn computing_threads(lab: &Lab) -> Result<Figure, Failure> {
    let slice = lab.profile.number("slice").unwrap_or(1e6);
    let mut series = Vec::new();
    let points = |lock: Lock| {
        // Only threads that poll take turns with those that compute.
        let slices = if [DEDICATED, DEDICATED_EACH].contains(&lock) { lab.slices } else { lab.slices.min(2) };
        let points = lab.threads.iter().map(|threads| {
            Ok((f64::from(*threads), micros(lab.lock(lock).computing(*threads, slices * slice as u64)?)))
        });
        points.collect::<Result<Vec<_>, Failure>>()
    };
    for lock in DESIGNS {
        series.push(Series::new(lock.name(), points(lock)?));
    }
    let [dedicated, event, test_and_set, mcs] = &series[..] else { return Err("four curves".into()) };
    let claims = vec![
        grows("the dedicated thread's time increases with the computing threads", dedicated),
        flat("the event-driven thread's remains", event),
        flat("test-and-set's remains", test_and_set),
        flat("MCS's remains", mcs),
    ];
    series.extend(lab.others(&DESIGNS, points)?);
    let (title, value) = ("CPU utilization: computing threads", "us of a lock and unlock");
    Ok(Figure::new(["jiang-2004-5", title, value, "computing threads at the target"], series, claims))
}

fn smp_mode(lab: &Lab) -> Result<Figure, Failure> {
    let mut series = Vec::new();
    let points = |lock: Lock| {
        let modes = [1, 2].map(|pairs| Ok((f64::from(pairs), micros(lab.lock(lock).overhead(pairs)?.total()))));
        modes.into_iter().collect::<Result<Vec<_>, Failure>>()
    };
    for lock in DESIGNS {
        series.push(Series::new(lock.name(), points(lock)?));
    }
    let [dedicated, _, test_and_set, mcs] = &series[..] else { return Err("four designs".into()) };
    let claims = vec![
        flat("test-and-set is the same in both modes", test_and_set),
        flat("MCS is the same in both modes", mcs),
        claim(
            "the dedicated thread does not work well with one process for each processor",
            dedicated.last() > 3.0 * dedicated.first(),
            format!("{:.2} to {:.2} us", dedicated.first(), dedicated.last()),
        ),
    ];
    series.extend(lab.others(&DESIGNS, points)?);
    let title = "CPU utilization: one process on a node, one for each processor";
    Ok(Figure::new(["jiang-2004-6", title, "us of a lock and unlock", "processes on a node"], series, claims))
}
