//! The whole kit on one lock, in one call.

mod programs;
mod report;

use onesided_lock_algos::{LockAlgorithm, Mode};
use onesided_remote_memory::FaultKind;

pub use report::{Report, Trial};

use crate::loom::quietly;
use crate::program::Section;
use crate::{Atomics, Checker, Exploration, Explored, Linearizability, Op, Search, Setting};
use programs::Programs;

/// Runs the whole kit on a lock, in bounds that suit a test: some ten seconds.
///
/// ```
/// let report = onesided_lock_kit::conformance(&onesided_lock_kit::wrong::right());
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
/// tokens](crate::Fencing), with origins that crash, are stopped, or lose an operation. With the
/// feature `bench` also a short [throughput run](crate::bench::ThroughputRun).
///
/// A lock without an optional feature is configured by
/// [`without_recovery`](Self::without_recovery), a lock with an additional guarantee by
/// [`bypass`](Self::bypass).
///
/// For a [served](LockAlgorithm::SERVED) lock the explorations have 2 origins, the server neither
/// crashes nor ends on a loss, and there are no histories and no throughput run: these have no
/// server.
#[derive(Clone, Debug)]
pub struct Conformance<A> {
    lock: A,
    preemptions: usize,
    states: usize,
    cases: u32,
    seed: Option<u64>,
    recovers: bool,
    loses: bool,
    bypass: Option<u32>,
    setting: Setting,
}

/// The most states of a check of three origins.
const OF_THREE: usize = 40_000;
/// The same for checks in which the memory of dead ranks is lost.
const OF_MEMORY: usize = 10_000;

/// The extent of a trial, as a number and in words.
type Tried = Result<(usize, String), String>;

impl<A: LockAlgorithm + Clone> Conformance<A> {
    /// The suite for this lock: up to 2 preemptions, 100,000 states of each program, 500 cases of
    /// each search.
    pub fn of(lock: &A) -> Self {
        let lock = lock.clone();
        Self {
            lock,
            preemptions: 2,
            states: 100_000,
            cases: 500,
            seed: None,
            recovers: true,
            loses: true,
            bypass: None,
            setting: Setting::USUAL,
        }
    }

    /// The most preemptions of an execution. With 3 an exploration takes minutes.
    #[must_use]
    pub fn preemptions(self, preemptions: usize) -> Self {
        Self { preemptions, ..self }
    }

    /// The most states in the check of a program; at most 40,000 for three origins. Then come the
    /// schedules with a [delay bound](Checker::delay_bound) of 2, up to as many states.
    #[must_use]
    pub fn states(self, states: usize) -> Self {
        Self { states, ..self }
    }

    /// The number of cases of each search.
    #[must_use]
    pub fn cases(self, cases: u32) -> Self {
        Self { cases, ..self }
    }

    /// Repeats the same cases. Without a seed the cases differ each time, unless the environment
    /// has one ([`Search::SEED`]).
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed: Some(seed), ..self }
    }

    /// The lock does not recover from a death, or from an owner that saw `Unknown`: the trials have
    /// neither.
    #[must_use]
    pub fn without_recovery(self) -> Self {
        Self { recovers: false, ..self }
    }

    /// No operation is lost while all ranks are alive, for a lock that cannot resolve losses.
    #[must_use]
    pub fn without_losses(self) -> Self {
        Self { loses: false, ..self }
    }

    /// The lock guarantees that at most this many acquires that arrived later (whose first
    /// operation took effect later) enter before a waiter that they exclude; 0 is first come, first
    /// served.
    #[must_use]
    pub fn bypass(self, at_most: u32) -> Self {
        Self { bypass: Some(at_most), ..self }
    }

    /// Plants a fault in every memory of the kit: operations and stores are posted as this returns
    /// them. So a wrong lock is one line. The [throughput runs](crate::bench::ThroughputRun) have
    /// memories that are not the kit's, and are left out.
    #[must_use]
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

    /// Runs the suite and returns the report, with any violations.
    pub fn verdict(&self) -> Report {
        self.trials(false)
    }

    /// Runs the suite up to its first violation.
    pub fn first_violation(&self) -> Option<Trial> {
        self.trials(true).trials.pop().filter(|trial| trial.outcome.is_err())
    }

    fn trials(&self, until_violated: bool) -> Report {
        let mut trials: Vec<Trial> = Vec::new();
        let mut trial = |name, run: &dyn Fn() -> Tried| {
            if until_violated && trials.last().is_some_and(|last| last.outcome.is_err()) {
                return;
            }
            let (tried, outcome) = run().map_or_else(|violation| (0, Err(violation)), |(tried, how)| (tried, Ok(how)));
            trials.push(Trial { name, tried, outcome });
        };
        trial("interleavings", &|| self.interleavings());
        trial("on cards", &|| self.on_cards());
        if !A::SERVED {
            trial("cancelled", &|| self.cancelled());
        }
        if self.recovers {
            trial("a death inside", &|| self.death_inside());
        }
        let checker = Checker::of(&self.lock).setting(self.setting);
        let calm = self.bypass.map_or(checker.clone(), |at_most| checker.clone().bypass(at_most));
        trial("schedules", &|| self.schedules(&calm, &programs::CALM, |_| None));
        let stops = checker.clone().stops(1).crashes(u8::from(self.recovers));
        if self.recovers {
            let nobody = |explored: &Explored| (explored.recoveries == 0).then_some("no owner recovers");
            let crashes = checker.clone().crashes(1);
            trial("with a crash", &|| self.schedules(&crashes, &programs::CRASHES, nobody));
            let brief = Self { states: self.states.min(OF_MEMORY), ..self.clone() };
            let gone = crashes.clone().memory_goes().delay_bound(2);
            trial("memory lost", &|| brief.schedules(&gone, &programs::CRASHES, nobody));
            let left = crashes.clone().leaves().delay_bound(2);
            trial("left inside", &|| brief.schedules(&left, &programs::CRASHES, nobody));
            trial("left, memory lost", &|| brief.schedules(&left.clone().memory_goes(), &programs::CRASHES, nobody));
        }
        if self.recovers && self.loses {
            let none = |explored: &Explored| (explored.lost == 0).then_some("nothing is lost");
            let loses = checker.losses(1);
            trial("with a loss", &|| self.schedules(&loses, &programs::LOSSES, none));
        }
        trial("with a stop", &|| self.schedules(&stops, &programs::STOPS, |_| None));
        let seeded = |search: Search<A>| match self.seed {
            Some(seed) => search.cases(self.cases).setting(self.setting).seed(seed),
            None => search.cases(self.cases).setting(self.setting),
        };
        let search = seeded(Search::of(&self.lock));
        trial("random programs", &|| self.cases_of(&search));
        if self.recovers {
            trial("with a death", &|| self.cases_of(&search.clone().deaths()));
            trial("with a leave", &|| self.cases_of(&search.clone().leaves()));
        }
        if !A::SERVED {
            let histories = seeded(Linearizability::of(&self.lock));
            trial("linearizable", &|| self.cases_of(&histories));
            if self.recovers {
                trial("the same with a death", &|| self.cases_of(&histories.clone().deaths()));
            }
            #[cfg(feature = "bench")]
            if self.setting.mutate.is_none() {
                trial("contest", &|| self.contest());
            }
        }
        Report { lock: A::NAME, trials }
    }

    fn exploration(&self, preemptions: usize) -> Exploration<A> {
        Exploration::of(&self.lock).setting(self.setting).preemptions(preemptions)
    }

    fn explored(&self, exploration: &Exploration<A>, programs: &[Programs<'_>]) -> Tried {
        // The server's thread is one more.
        let fits = |programs: &&Programs<'_>| !A::SERVED || programs.len() < 3;
        let programs = programs.iter().filter(fits);
        let executions: Vec<_> = programs.map(|programs| exploration.verdict(programs)).collect::<Result<_, _>>()?;
        Ok(executed(executions.iter().sum(), executions.len()))
    }

    fn interleavings(&self) -> Tried {
        let exploration = self.exploration(if A::SERVED { self.preemptions.min(1) } else { self.preemptions });
        self.explored(&exploration, &[&programs::PAIRS[..], &programs::TRIPLES].concat())
    }

    fn on_cards(&self) -> Tried {
        let exploration = self.exploration(self.preemptions).atomics(Atomics::OneAnother);
        self.explored(&exploration, &programs::ON_CARDS)
    }

    fn cancelled(&self) -> Tried {
        quietly(|| self.exploration(self.preemptions.saturating_sub(1)).cancelled()).map(|all| executed(all, 10))
    }

    fn death_inside(&self) -> Tried {
        const X: Section = Section::EXCLUSIVE;
        const S: Section = Section::SHARED;
        let exploration = self.exploration(if A::SERVED { self.preemptions.min(1) } else { self.preemptions });
        let mut executions = 0;
        let deaths = [(Mode::Exclusive, X), (Mode::Exclusive, S), (Mode::Shared, X)];
        for (dying, survivor) in deaths {
            let kinds = match dying {
                Mode::Exclusive => vec![FaultKind::OwnerDied, FaultKind::ParticipantDied],
                Mode::Shared => Vec::new(),
            };
            executions += quietly(|| exploration.death(dying, survivor, kinds))?;
        }
        Ok(executed(executions, deaths.len()))
    }

    /// `missing`: what a program of two origins should have shown.
    fn schedules(
        &self,
        checker: &Checker<A>,
        programs: &[Programs<'_>],
        missing: fn(&Explored) -> Option<&'static str>,
    ) -> Tried {
        let (mut states, mut whole, mut bypassed, mut all) = (0, 0, 0, 0);
        for programs in programs {
            all += 1;
            let at_most = if programs.len() > 2 { self.states.min(OF_THREE) } else { self.states };
            let checker = checker.clone().at_most(at_most);
            let explored = checker.verdict(programs)?;
            if let Some(what) = missing(&explored).filter(|_| explored.complete) {
                return Err(format!("{}: {what} in {programs:?}: {explored}", A::NAME));
            }
            states += explored.states;
            whole += usize::from(explored.complete);
            bypassed = bypassed.max(explored.bypassed);
            if !explored.complete && !checker.is_delay_bounded() {
                let whole_length = checker.delay_bound(2).verdict(programs)?;
                states += whole_length.states;
                bypassed = bypassed.max(whole_length.bypassed);
            }
        }
        Ok((states, format!("{states} states of {all} programs, {whole} of them whole; at most {bypassed} bypassed")))
    }

    fn cases_of(&self, search: &Search<A>) -> Tried {
        search.verdict().map(|()| (self.cases as usize, format!("{} cases", self.cases)))
    }

    /// Two threads in real time, and 100 simulated origins.
    #[cfg(feature = "bench")]
    fn contest(&self) -> Tried {
        use std::time::Duration;

        use crate::bench::ThroughputRun;

        let contest = ThroughputRun::of(&self.lock);
        let threads =
            contest.clone().lasting(Duration::from_millis(20)).threads().map_err(|error| format!("{error}"))?;
        let simulated = contest.origins(100).lasting(Duration::from_millis(1)).simulated();
        let tried = threads.acquisitions() + simulated.acquisitions();
        if threads.acquisitions() == 0 || simulated.acquisitions() == 0 {
            return Err(format!("{}: no acquisitions in {threads:?}, {simulated:?}", A::NAME));
        }
        let (rate, share, far) = (threads.rate(), threads.share(), simulated.rate());
        let each = simulated.operations_each();
        let how = format!(
            "2 threads: {rate:.0} a second, smallest share {share:.2}; 100 simulated origins: {far:.0} a second, {each:.1} \
             operations each"
        );
        Ok((tried as usize, how))
    }
}

fn executed(executions: usize, programs: usize) -> (usize, String) {
    (executions, format!("{executions} executions of {programs} programs"))
}
