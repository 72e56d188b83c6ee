//! The whole kit on one lock, in one call.

mod programs;
mod report;

use std::time::{Duration, Instant};

use onesided_lock_algos::{LockAlgorithm, Mode};

pub use report::{Report, Trial};

use crate::caught::caught;
use crate::loom::RECOVERED;
use crate::program::Section;
use crate::tried::take_tried;
use crate::{Atomics, Checker, Exploration, Explored, Linearizability, Op, Search, Setting};
use programs::Programs;

/// Runs the whole kit on a lock: cheap checks first, up to the first violation. It takes two minutes
/// at most optimised, ten unoptimised, and mostly less than one.
///
/// ```no_run
/// let lock = onesided_lock_kit::lock_algos::TestAndSet::default();
/// let report = onesided_lock_kit::conformance(&lock);
/// println!("{report}");
/// ```
///
/// # Panics
/// As [`Conformance::run`].
#[track_caller]
pub fn conformance<A: LockAlgorithm + Clone>(lock: &A) -> Report {
    Conformance::of(lock).run()
}

/// A conformance suite: every [exploration](Exploration), [check](Checker), [search](Search) and
/// [history](Linearizability) of this kit, on programs that cover all uses of a lock: exclusive and
/// shared, nonblocking, tried, cancelled, released without waiting, with [fencing
/// tokens](crate::Fencing), with origins that crash, are stopped, or lose an operation; and from words
/// near their [ends](Setting::home). With the feature `bench` also simulated [throughput
/// runs](crate::bench::ThroughputRun) of 3 and 100 origins.
///
/// A lock without an optional feature is configured by
/// [`without_recovery`](Self::without_recovery) and [`owners`](Self::owners), a lock with an additional
/// guarantee by [`bypass`](Self::bypass).
///
/// It ends at the first violation, unless asked for [all](Self::all), and in [time](Self::within).
///
/// For a [served](LockAlgorithm::SERVED) lock the explorations have 2 origins, the server neither
/// crashes nor ends on a loss, and there are no histories and no throughput runs: these have no
/// server.
#[derive(Clone, Debug)]
#[must_use = "a suite does nothing until it is run"]
pub struct Conformance<A> {
    lock: A,
    preemptions: usize,
    states: usize,
    cases: u32,
    seed: Option<u64>,
    recovers: bool,
    bypass: Option<u32>,
    all: bool,
    deeper: usize,
    flushes: bool,
    within: Duration,
    setting: Setting,
}

/// The most states of a check of three origins.
const OF_THREE: usize = 40_000;
/// The same for checks in which the memory of dead ranks is lost.
const OF_MEMORY: usize = 10_000;

/// The extent of a trial in words, or the violation.
type Tried = Result<String, String>;

impl<A: LockAlgorithm + Clone> Conformance<A> {
    /// The suite for this lock: up to 2 preemptions, of some programs more, 100,000 states of each
    /// program, 3,000 cases of each search.
    pub fn of(lock: &A) -> Self {
        let lock = lock.clone();
        Self {
            lock,
            preemptions: 2,
            states: 100_000,
            cases: 3_000,
            seed: None,
            recovers: A::RECOVERS,
            bypass: None,
            all: false,
            deeper: 3_000,
            flushes: true,
            within: Duration::from_secs(if cfg!(debug_assertions) { 480 } else { 100 }),
            setting: Setting::USUAL,
        }
    }

    setters! {
        /// The most preemptions of an execution of every program. With 3 an exploration takes minutes.
        preemptions: usize,
        /// The most states in the check of a program; at most 40,000 for three origins. Then come the
        /// schedules with a [delay bound](Checker::delay_bound) of 2, up to as many states.
        states: usize,
        /// The number of cases of each search.
        cases: u32,
        /// Repeats the same cases. Without a seed the cases differ each time, unless the environment
        /// has one ([`Search::SEED`]).
        seed: u64,
        /// The lock guarantees that at most this many acquires that arrived later (whose first
        /// operation took effect later) enter before a waiter that they exclude; 0 is first come, first
        /// served.
        bypass: u32,
        /// About how many executions a program has at each number of preemptions above that of all
        /// programs; 3,000 by default.
        deeper: usize,
        /// How long the suite takes at most: 100 s optimised, 480 s unoptimised. A trial that would take
        /// longer than a third of what is left is cut short, and its report says so.
        within: Duration,
    }

    /// The lock does not recover from a death, or from an owner that saw `Unknown`: the trials have
    /// neither. A lock may say so itself ([`LockAlgorithm::RECOVERS`]).
    pub fn without_recovery(self) -> Self {
        Self { recovers: false, ..self }
    }

    /// The lock works for at most this many owners at a time, each of another rank (Peterson: 2; the
    /// filter lock, Anderson's: its slots). Without this call it meets 100.
    pub fn owners(self, at_most: u32) -> Self {
        Self { setting: Setting { owners: at_most, ..self.setting }, ..self }
    }

    /// The lock guarantees that no waiter depends on the end of a pause by itself: see
    /// [`Setting::woken`].
    pub fn woken(self) -> Self {
        Self { setting: Setting { woken: true, ..self.setting }, ..self }
    }

    /// An owner whose lease is over loses the lock: to an acquire that recovers, after at least this
    /// long, informed by [`LeaseExpired`](onesided_remote_memory::FaultKind::LeaseExpired); and its
    /// release fails by [`NotHeld`](onesided_remote_memory::FaultKind::NotHeld), with no effect. Checked
    /// with stopped owners and in random programs, whose owners then only read the data; without histories.
    pub fn leases(self, lease: Duration) -> Self {
        let lease = u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX);
        Self { setting: Setting { lease: Some(lease), ..self.setting }, ..self }
    }

    /// Owners release without a flush of what they wrote: wrong on purpose. The histories show what the
    /// next owner does not see.
    pub fn without_flush(self) -> Self {
        Self { flushes: false, ..self }
    }

    /// Runs all trials, after a violation too.
    pub fn all(self) -> Self {
        Self { all: true, ..self }
    }

    /// Plants a fault in every memory of the kit: operations and stores are posted as this returns
    /// them. So a wrong lock is one line. The [throughput runs](crate::bench::ThroughputRun) have
    /// memories that are not the kit's, and are left out.
    pub fn mutate(self, mutate: fn(Op) -> Op) -> Self {
        Self { setting: Setting { mutate: Some(mutate), ..self.setting }, ..self }
    }

    /// Runs the suite.
    ///
    /// # Panics
    /// On a violation. The message is the report.
    #[track_caller]
    pub fn run(&self) -> Report {
        let report = self.verdict();
        assert!(report.conforms(), "{report}");
        report
    }

    /// Runs the suite and returns the report, with any violations. A panic of the lock is one.
    pub fn verdict(&self) -> Report {
        let end = Instant::now().checked_add(self.within);
        let mut trials: Vec<Trial> = Vec::new();
        let mut trial = |name, unit, run: &dyn Fn(&Self) -> Tried| {
            let violated = trials.iter().any(|trial| trial.outcome.is_err());
            // A contest of a lock that loops without an operation would not end.
            if violated && (!self.all || name == "contest") {
                return;
            }
            take_tried();
            let begun = Instant::now();
            let until = end.map(|end| begun + end.saturating_duration_since(begun) / 3);
            let timed = Self { setting: Setting { until, ..self.setting }, ..self.clone() };
            let outcome = caught(|| run(&timed)).unwrap_or_else(|panic| Err(format!("{}: {panic}", A::NAME)));
            let cut = if timed.setting.is_over() { "; cut short" } else { "" };
            let outcome = outcome.map(|how| format!("{how}{cut}"));
            trials.push(Trial { name, tried: take_tried(), unit, outcome, took: begun.elapsed() });
        };
        let [executions, states, cases] = ["executions", "states", "cases"];
        trial("interleavings", executions, &Self::interleavings);
        trial("on cards", executions, &Self::on_cards);
        if !A::SERVED {
            trial("tried", executions, &|this| this.exploration(1).tried().map(|_| "of 3 programs".into()));
            let few = self.preemptions.saturating_sub(1);
            trial("cancelled", executions, &|this| this.exploration(few).cancelled().map(|_| "of 18 programs".into()));
        }
        #[cfg(feature = "bench")]
        if !A::SERVED && self.setting.mutate.is_none() {
            trial("contest", "acquires", &Self::contest);
        }
        trial("words at their ends", executions, &Self::at_the_ends);
        let none = |explored: &Explored| (explored.lost == 0).then_some("nothing is lost");
        if self.recovers {
            let deaths = |this: &Self| this.exploration(this.most()).deaths(&RECOVERED);
            trial("a death inside", executions, &|this| deaths(this).map(|_| "of 3 programs".into()));
        } else {
            trial("with an error", states, &|this| this.schedules(&this.checker().errors(), &programs::LOSSES, none));
        }
        trial("schedules", states, &|this| {
            let calm = this.checker();
            let calm = this.bypass.map_or(calm.clone(), |at_most| calm.bypass(at_most));
            this.schedules(&calm, &programs::CALM, |_| None)
        });
        trial("random programs", cases, &|this| this.cases_of(&this.search(Search::of(&this.lock))));
        let ordered = !A::SERVED && self.setting.lease.is_none();
        if ordered {
            trial("linearizable", cases, &|this| this.cases_of(&this.histories()));
        }
        if self.recovers {
            let nobody = |explored: &Explored| (explored.recoveries == 0).then_some("no owner recovers");
            let crashes = |this: &Self| this.checker().crashes(1);
            trial("with a crash", states, &|this| this.schedules(&crashes(this), &programs::CRASHES, nobody));
            let brief = |this: &Self, checker: Checker<A>| {
                let brief = Self { states: this.states.min(OF_MEMORY), ..this.clone() };
                brief.schedules(&checker.delay_bound(2), &programs::CRASHES, nobody)
            };
            trial("memory lost", states, &|this| brief(this, crashes(this).memory_goes()));
            trial("left inside", states, &|this| brief(this, crashes(this).leaves()));
            trial("left, memory lost", states, &|this| brief(this, crashes(this).leaves().memory_goes()));
            trial("with a loss", states, &|this| this.schedules(&this.checker().losses(1), &programs::LOSSES, none));
        }
        trial("with a stop", states, &|this| {
            let stops = this.checker().stops(1).crashes(u8::from(this.recovers));
            this.schedules(
                &stops,
                &programs::STOPS,
                match this.setting.lease {
                    Some(_) => {
                        |explored| (explored.recoveries == 0).then_some("lease: nobody takes a stopped owner's lock")
                    }
                    None => |_| None,
                },
            )
        });
        if self.recovers {
            trial("with a death", cases, &|this| this.cases_of(&this.search(Search::of(&this.lock)).deaths()));
            trial("with a leave", cases, &|this| this.cases_of(&this.search(Search::of(&this.lock)).leaves()));
            if ordered {
                trial("the same with a death", cases, &|this| this.cases_of(&this.histories().deaths()));
            }
        }
        if !A::SERVED {
            trial("deeper", executions, &Self::preempted_often);
        }
        Report { lock: A::NAME, trials }
    }

    fn exploration(&self, preemptions: usize) -> Exploration<A> {
        Exploration::of(&self.lock).setting(self.setting).preemptions(preemptions)
    }

    /// The most preemptions: the server's thread is one more.
    fn most(&self) -> usize {
        if A::SERVED { self.preemptions.min(1) } else { self.preemptions }
    }

    fn checker(&self) -> Checker<A> {
        Checker::of(&self.lock).setting(self.setting)
    }

    fn search(&self, search: Search<A>) -> Search<A> {
        let search = search.cases(self.cases).setting(self.setting);
        self.seed.map_or(search.clone(), |seed| search.seed(seed))
    }

    fn histories(&self) -> Search<A> {
        let search = self.search(Linearizability::of(&self.lock));
        if self.flushes { search } else { search.without_flush() }
    }

    /// Every program with few preemptions before any with more: what is found first is short.
    fn explored(&self, exploration: &Exploration<A>, bounds: &[usize], programs: &[Programs<'_>]) -> Tried {
        // The server's thread is one more.
        let fits = |programs: &&Programs<'_>| self.setting.allows(programs) && (!A::SERVED || programs.len() < 3);
        for preemptions in bounds {
            for programs in programs.iter().filter(fits) {
                exploration.clone().preemptions(*preemptions).verdict(programs)?;
            }
        }
        Ok(format!("of {} programs", programs.iter().filter(fits).count()))
    }

    fn interleavings(&self) -> Tried {
        let most = self.most();
        let programs = [&programs::PAIRS[..], &programs::TRIPLES].concat();
        self.explored(&self.exploration(0), &[1, most][usize::from(most < 2)..], &programs)
    }

    fn on_cards(&self) -> Tried {
        let cards = self.exploration(0).atomics(Atomics::OneAnother);
        self.explored(&cards, &[self.preemptions], &programs::ON_CARDS)?;
        self.explored(&cards.at_most(self.deeper), &[3], &programs::SHORTEST)
    }

    /// With more preemptions, as far as some executions reach.
    fn preempted_often(&self) -> Tried {
        let all = self.exploration(0).at_most(self.deeper);
        let bounds = [self.preemptions + 1, self.preemptions + 2];
        self.explored(&all.clone().atomics(Atomics::OneAnother), &bounds, &programs::ON_CARDS)?;
        self.explored(&all, &bounds, &[&programs::PAIRS[..2], &programs::TRIPLES].concat())
    }

    /// From words of which counters of 8, 16, 32 or 64 bits overflow at the second acquire. Words that
    /// the lock calls free, and that one owner who is alone changes as it does words of 0: others are
    /// no counters of that width.
    fn at_the_ends(&self) -> Tried {
        let counts = |setting| {
            let alone = |mode| self.exploration(0).setting(setting).alone(Section { mode, ..Section::EXCLUSIVE });
            [Mode::Exclusive, Mode::Shared].map(alone)
        };
        let (usual, mut ends) = (counts(self.setting), 0);
        // In the lowest bits alone, and side by side in the whole word.
        let lanes = [8, 16, 32, 64].map(|bits| u64::MAX >> (64 - bits));
        let alone = lanes[..3].iter().map(|lane| lane - 1);
        for filled in alone.chain(lanes.iter().map(|lane| (lane - 1).wrapping_mul(u64::MAX / lane))) {
            let setting = Setting { home: Some(filled), ..self.setting };
            if A::is_free(&setting.words::<A>()) && usual.iter().all(Option::is_some) && counts(setting) == usual {
                let near = Self { setting, ..self.clone() };
                near.explored(&near.exploration(0), &[1], &programs::AT_THE_ENDS)?;
                ends += 1;
            }
        }
        Ok(format!("of {} programs, from {ends} of 7 ends", programs::AT_THE_ENDS.len()))
    }

    /// `missing`: what a program of two origins should have shown.
    fn schedules(
        &self,
        checker: &Checker<A>,
        programs: &[Programs<'_>],
        missing: fn(&Explored) -> Option<&'static str>,
    ) -> Tried {
        let (mut whole, mut bypassed, mut all) = (0, 0, 0);
        for programs in programs.iter().filter(|programs| self.setting.allows(programs)) {
            all += 1;
            let at_most = if programs.len() > 2 { self.states.min(OF_THREE) } else { self.states };
            let checker = checker.clone().at_most(at_most);
            let explored = checker.verdict(programs)?;
            if let Some(what) = missing(&explored).filter(|_| explored.complete) {
                return Err(format!("{}: {what} in {programs:?}: {explored}", A::NAME));
            }
            whole += usize::from(explored.complete);
            bypassed = bypassed.max(explored.bypassed);
            if !explored.complete && !checker.is_delay_bounded() {
                bypassed = bypassed.max(checker.delay_bound(2).verdict(programs)?.bypassed);
            }
        }
        Ok(format!("of {all} programs, {whole} of them whole; at most {bypassed} bypassed"))
    }

    fn cases_of(&self, search: &Search<A>) -> Tried {
        search.verdict().map(|()| String::new())
    }

    /// 3 simulated origins for so long that a byte that counts acquires wraps, and 100.
    #[cfg(feature = "bench")]
    fn contest(&self) -> Tried {
        use crate::bench::ThroughputRun;
        use crate::tried::tried;

        let contest =
            ThroughputRun::of(&self.lock).at_home().section(Duration::from_nanos(500)).lasting(Duration::from_secs(4));
        let mut how = Vec::new();
        for (origins, events) in [(3, 20_000), (100, 100_000)] {
            let origins = origins.min(self.setting.owners);
            let simulated = contest.clone().origins(origins).events(events);
            let outcome = simulated.verdict().map_err(|what| {
                format!("{what}\n again: ThroughputRun::of(&lock).at_home().section(500 ns).lasting(4 s).origins({origins}).events({events}).verdict()")
            })?;
            tried(outcome.acquisitions() as usize);
            how.push(format!("{origins} simulated origins: {:.0} a second", outcome.rate()));
        }
        Ok(how.join("; "))
    }
}
