//! Random programs: whatever a program may call is cancelled and timed out under traffic, and ranks
//! end in all ways. The seeds are the same in each run of the tests, and others with `ONESIDED_LONG`.

mod collectives;
mod locks;
mod messages;
mod tasks;

use std::time::Duration;

use onesided::{Fault, FaultKind, ProgressMode, Protocol, World};

use crate::collectives::steps::Random;
use crate::jobs::{self, Role, die};

pub(crate) const ROLES: &[Role] = &[
    ("stress: messages", |world| messages::play(&world, &Plan::given(&world))),
    ("stress: locks", |world| locks::play(&world, &Plan::given(&world))),
    ("stress: collectives", |world| collectives::play(&world, &Plan::given(&world))),
];

const SEED: &str = "ONESIDED_IT_SEED";
/// Ends a program that hangs, or has lost a message.
const LIMIT: Duration = Duration::from_secs(300);
const RANKS: u32 = 3;
const MODES: [ProgressMode; 5] = [
    ProgressMode::Polling,
    ProgressMode::Interrupt,
    ProgressMode::Thread,
    ProgressMode::TwoThreads,
    ProgressMode::Hybrid,
];
const WAYS: [Protocol; 4] = [Protocol::Rget, Protocol::Rput, Protocol::Pipeline, Protocol::Copy];

/// How a rank ends before the others.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Leaves,
    /// It ends with a status.
    Fails,
    Panics,
    Dies,
}

/// What is random of a program, besides what each rank draws.
#[derive(Clone, Copy, Debug)]
struct Plan {
    seed: u64,
    ranks: u32,
    /// Which rank ends, how, and after how many steps: never rank 0.
    ends: Option<(u32, End, u64)>,
}

impl Plan {
    fn new(seed: u64, ranks: u32, is_of_threads: bool) -> Self {
        let mut random = Random(seed);
        let ends = [End::Leaves, End::Panics, End::Fails, End::Dies];
        let end = ends[((seed / 2 + seed / 20) % if is_of_threads { 2 } else { 4 }) as usize];
        let ender = 1 + random.below(u64::from(ranks) - 1) as u32;
        let ends = (seed % 2 == 1).then(|| (ender, end, 20 + random.below(120)));
        Self { seed, ranks, ends }
    }

    /// That of a process.
    fn given(world: &World) -> Self {
        Self::new(std::env::var(SEED).unwrap().parse().unwrap(), world.size(), false)
    }

    fn random(&self, rank: u32) -> Random {
        Random(self.seed << 8 | u64::from(rank))
    }

    /// Ends this rank, if its time has come. Returns whether it leaves.
    fn ends_now(&self, world: &World, steps: u64) -> bool {
        match self.ends {
            Some((rank, end, after)) if rank == world.rank() && after <= steps => match end {
                End::Leaves => true,
                End::Fails => std::process::exit(3),
                End::Panics => std::panic::resume_unwind(Box::new("on purpose")),
                End::Dies => die(),
            },
            _ => false,
        }
    }

    /// An error says that a rank has ended that has.
    fn check(&self, world: &World, fault: Fault, error: &dyn std::fmt::Display) -> u32 {
        let named = fault.rank().map(|rank| rank.0);
        let ended = self.ends.map(|(rank, ..)| rank);
        // The memory of a rank that panics goes before its end is known.
        use FaultKind::{Closed, NoSuchRegion, PeerDied, PeerLeft};
        let is_end = matches!(fault.kind(), PeerDied | PeerLeft | Closed | NoSuchRegion);
        let is_lost = jobs::on_cards() && fault.kind() == FaultKind::ConnectionLost;
        assert!(is_end || is_lost, "{self:?}, rank {}: {error}", world.rank());
        assert_eq!(named, ended, "{self:?}, rank {}: {error}", world.rank());
        let has_died = !world.is_alive(ended.unwrap()) && self.ends.unwrap().1 != End::Leaves;
        assert!(fault.kind() != PeerDied || has_died, "{self:?}: {error}");
        ended.unwrap()
    }
}

/// All have what they need of one another. A rank may end before others have seen that.
fn begin(world: &World, plan: &Plan) {
    let begun = world.barrier().wait();
    assert!(begun.is_ok() || plan.ends.is_some(), "{plan:?}: {begun:?}");
}

/// The seeds of a test; one, if it is given.
fn seeds(usual: u64, long: u64, on_cards: &[u64]) -> Vec<u64> {
    if let Some(seed) = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok()) {
        return vec![seed];
    }
    if jobs::is_short_on_cards() {
        return on_cards.to_vec();
    }
    if std::env::var_os("ONESIDED_LONG").is_none() {
        return (0..usual).collect();
    }
    let first = std::env::var("PROPTEST_RNG_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0_u64) % 1_000_000;
    (first * 1_000..first * 1_000 + long).collect()
}

/// Runs ranks as threads.
fn threads((seed, ranks): (u64, u32), play: fn(&World, &Plan)) {
    let plan = Plan::new(seed, ranks, true);
    let run = std::panic::AssertUnwindSafe(|| onesided::fabric::threads(ranks, |world| play(&world, &plan)).unwrap());
    let outcome = std::panic::catch_unwind(run);
    let is_on_purpose = |panic: Box<dyn std::any::Any + Send>| panic.downcast_ref::<&str>() == Some(&"on purpose");
    assert!(outcome.map(drop).or_else(|panic| if is_on_purpose(panic) { Ok(()) } else { Err(()) }).is_ok(), "{plan:?}");
}

/// Runs ranks as processes, with more variables.
fn processes((seed, ranks): (u64, u32), role: &str, variables: &[(&str, &str)]) {
    let plan = Plan::new(seed, ranks, false);
    let text = seed.to_string();
    let mut all: Vec<(&str, &std::ffi::OsStr)> = vec![(jobs::ROLE, role.as_ref()), (SEED, text.as_ref())];
    all.extend(variables.iter().map(|(name, value)| (*name, value.as_ref())));
    let ended = jobs::start_with(ranks, &all).wait();
    let expected: Vec<_> = (0..ranks).filter(|rank| plan.ends.is_none_or(|(ender, ..)| ender != *rank)).collect();
    assert_eq!(ended.ok(), expected, "{plan:?} {ended:#?}");
}
