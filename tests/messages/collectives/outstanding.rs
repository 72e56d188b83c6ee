//! Several collectives are under way when a rank dies or drops one of them: each call ends at every
//! rank, complete or with an error that names that rank and what it did.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::{FaultKind, Rank, RemoteMemory as _};
use onesided_sim::{End, Network, Report, Simulation};
use onesided_two_sided::{CollectiveFault, Error, Messages, Tag};

use super::steps::{ALL, Random, Step};

const CALLS: usize = 3;
/// When all have ended.
const LATE: Duration = Duration::from_millis(50);

/// What a rank does, and the call at whose `Pending` of this number it does it.
#[derive(Clone, Copy, Debug)]
enum Ends {
    Drops(usize, u32),
    /// It drops all calls, and leaves.
    Leaves(u32),
}

/// Begins the calls in their order, and moves all until they are over; of a rank that `ends`, it may be
/// the first ones only. Returns their outcomes, of which that of a dropped call is `None`, and how often
/// none was over.
async fn together<F: Fabric>(
    messages: &Messages<F>,
    steps: &[Step; CALLS],
    (begun, ends): (usize, Option<Ends>),
) -> ([Option<Result<(), Error>>; CALLS], u32) {
    let mut number = 0..;
    let mut calls = steps
        .each_ref()
        .map(|step| number.next().filter(|number| *number < begun).map(|_| Box::pin(step.run(messages))));
    let (mut outcomes, mut pendings) = ([const { None }; CALLS], 0);
    let all = poll_fn(|cx| {
        // Begun in their order, then the last one first.
        let order: &[usize; CALLS] = if pendings == 0 { &[0, 1, 2] } else { &[2, 1, 0] };
        for call in order {
            if let Some(running) = &mut calls[*call]
                && let Poll::Ready(ended) = running.as_mut().poll(cx)
            {
                (calls[*call], outcomes[*call]) = (None, Some(ended));
            }
        }
        match ends {
            Some(Ends::Drops(call, at)) if at == pendings => calls[call] = None,
            Some(Ends::Leaves(at)) if at == pendings => calls = [const { None }; CALLS],
            _ => {}
        }
        pendings += 1;
        if calls.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
    });
    all.await;
    (outcomes, pendings)
}

/// The outcomes of a rank, how often none of its calls was over, and when they began.
type Seen = ([Option<Result<(), Error>>; CALLS], u32, u64);

/// Calls of some ranks, of which one ends early.
struct Calls {
    size: u32,
    steps: [Step; CALLS],
    ender: u32,
    /// How many of them this rank begins.
    begun: usize,
}

impl Calls {
    fn random(seed: u64) -> Self {
        let mut random = Random(seed);
        let size = 2 + random.below(5) as u32;
        let steps = [(); CALLS].map(|()| {
            let collective = ALL[random.below(ALL.len() as u64) as usize];
            let longest = [4, 300, 3_000][random.below(3) as usize];
            Step::random(collective, size, longest, &mut random)
        });
        let begun = if seed.is_multiple_of(2) { CALLS } else { random.below(CALLS as u64) as usize };
        Self { size, steps, ender: random.below(size.into()) as u32, begun }
    }

    fn run(&self, ends: Option<Ends>, death: Option<u64>) -> Report<Seen> {
        // Each rank learns of a death at a time of its own.
        let network = Network { detection_jitter: Duration::from_millis(1), ..Network::default() };
        let mut simulation = Simulation::new(network).ranks(self.size).stalled_after(Duration::from_secs(60));
        if let Some(at) = death {
            simulation = simulation.kill(self.ender, Duration::from_nanos(at));
        }
        let report = simulation.run(|world| async move {
            let messages = Messages::new(&world).await.expect("messages");
            let began = world.fabric().now();
            let is_ender = world.rank() == self.ender;
            let ends = ends.filter(|_| is_ender);
            let begun = match ends {
                Some(Ends::Leaves(_)) => self.begun,
                None if is_ender && death.is_some() => self.begun,
                _ => CALLS,
            };
            let (outcomes, pendings) = together(&messages, &self.steps, (begun, ends)).await;
            if !matches!(ends, Some(Ends::Leaves(_))) {
                // Its memory stays until the others have ended, too.
                let _ = messages.recv::<u8>(world.rank(), Tag(0)).deadline(LATE).await;
            }
            (outcomes, pendings, began)
        });
        assert_eq!(report.end, End::Finished, "{} ranks, {:?}, {ends:?}, {death:?}", self.size, self.steps);
        report
    }

    /// How often none of the ender's calls is over, and when all ranks have begun.
    fn usual(&self) -> (u32, u64) {
        let seen: Vec<_> = self.run(None, None).results.into_iter().flatten().collect();
        (seen[self.ender as usize].1, seen.iter().map(|seen| seen.2).max().unwrap_or(0))
    }

    /// All errors name the rank and what it did.
    fn check(&self, report: Report<Seen>, what: &str, is_that: impl Fn(CollectiveFault) -> bool) {
        for (rank, seen) in report.results.into_iter().enumerate() {
            for (call, outcome) in seen.into_iter().flat_map(|(outcomes, ..)| outcomes).enumerate() {
                let Some(Err(error)) = outcome else { continue };
                let Error::Collective { fault, .. } = error else { panic!("{error}") };
                assert!(is_that(fault), "rank {rank}, call {call}, {} {what}: {error}, {:?}", self.ender, self.steps);
            }
        }
    }
}

fn seeds() -> std::ops::Range<u64> {
    0..if std::env::var_os("ONESIDED_LONG").is_some() { 400 } else { 24 }
}

fn is_of(fault: CollectiveFault, kinds: &[FaultKind], rank: u32) -> bool {
    matches!(fault, CollectiveFault::Fault(fault) if kinds.contains(&fault.kind()) && fault.rank() == Some(Rank(rank)))
}

#[test]
fn a_death_ends_all_calls_with_its_rank() {
    for seed in seeds() {
        let calls = Calls::random(seed);
        let began = calls.usual().1;
        for step in 0..if calls.begun < CALLS { 4 } else { 100 } {
            let report = calls.run(None, Some(began + 1 + step * 700)); // less than the latency
            calls.check(report, "died", |fault| is_of(fault, &[FaultKind::PeerDied], calls.ender));
        }
    }
}

#[test]
fn a_dropped_call_ends_all_calls_with_its_rank() {
    for seed in seeds() {
        let calls = Calls::random(seed);
        for (at, call) in (0..calls.usual().0).zip((0..CALLS).cycle()) {
            let report = calls.run(Some(Ends::Drops(call, at)), None);
            calls.check(
                report,
                "dropped a call",
                |fault| matches!(fault, CollectiveFault::Dropped { rank } if rank == calls.ender),
            );
        }
    }
}

#[test]
fn a_rank_that_leaves_ends_all_calls_with_its_rank() {
    for seed in seeds() {
        let calls = Calls::random(seed);
        for at in 0..calls.usual().0 {
            let report = calls.run(Some(Ends::Leaves(at)), None);
            calls.check(report, "left", |fault| {
                matches!(fault, CollectiveFault::Dropped { rank } if rank == calls.ender)
                    || is_of(fault, &[FaultKind::PeerLeft, FaultKind::Closed, FaultKind::NoSuchRegion], calls.ender)
            });
        }
    }
}
