//! Random programs: whatever a program may call is cancelled and timed out under traffic, and ranks
//! end in all ways. The seeds are the same in each run of the tests, and others with `ONESIDED_LONG`.

mod collectives;
mod locks;
mod messages;
mod tasks;

use std::collections::BTreeMap;
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
#[derive(Debug)]
struct Plan {
    seed: u64,
    ranks: u32,
    /// Which ranks end, how, and after how many steps: never rank 0.
    ends: BTreeMap<u32, (End, u64)>,
}

impl Plan {
    fn new(seed: u64, ranks: u32, is_of_threads: bool) -> Self {
        let mut random = Random(seed);
        let ways = [End::Leaves, End::Panics, End::Fails, End::Dies];
        let ways = if is_of_threads { &ways[..2] } else { &ways };
        let (mut way, mut others) = ((seed / 2 + seed / 20) as usize, (1..ranks).collect::<Vec<_>>());
        let mut ends = BTreeMap::new();
        for _ in 0..if seed % 2 == 1 { ranks / 2 } else { 0 } {
            let ender = others.remove(random.below(others.len() as u64) as usize);
            ends.insert(ender, (ways[way % ways.len()], 20 + random.below(120)));
            way = random.below(ways.len() as u64) as usize;
        }
        Self { seed, ranks, ends }
    }

    /// Whether all ranks stay to the end.
    fn all_stay(&self) -> bool {
        self.ends.is_empty()
    }

    fn stays(&self, rank: u32) -> bool {
        !self.ends.contains_key(&rank)
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
        match self.ends.get(&world.rank()) {
            Some((end, after)) if *after <= steps => match end {
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
        let ended = fault.rank().and_then(|rank| Some((rank.0, self.ends.get(&rank.0)?.0)));
        // The memory of a rank that panics goes before its end is known.
        use FaultKind::{Closed, NoSuchRegion, PeerDied, PeerLeft};
        let is_end = matches!(fault.kind(), PeerDied | PeerLeft | Closed | NoSuchRegion);
        let is_lost = jobs::on_cards() && fault.kind() == FaultKind::ConnectionLost;
        assert!(is_end || is_lost, "{self:?}, rank {}: {error}", world.rank());
        let (ended, how) = ended.unwrap_or_else(|| panic!("{self:?}, rank {}: {error}", world.rank()));
        let has_died = !world.is_alive(ended) && how != End::Leaves;
        assert!(fault.kind() != PeerDied || has_died, "{self:?}: {error}");
        ended
    }
}

/// All have what they need of one another. A rank may end before others have seen that.
fn begin(world: &World, plan: &Plan) {
    let begun = world.barrier().wait();
    assert!(begun.is_ok() || !plan.all_stay(), "{plan:?}: {begun:?}");
}

/// Three ranks, or five, of which two end: each design of a lock has both within 32 seeds, and a test of few seeds as well.
fn three_or_five(seed: u64) -> (u64, u32) {
    (seed, if (seed / 4 + seed / 16).is_multiple_of(2) || jobs::is_short_on_cards() { 3 } else { 5 })
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
    let expected: Vec<_> = (0..ranks).filter(|rank| plan.stays(*rank)).collect();
    assert_eq!(ended.ok(), expected, "{plan:?} {ended:#?}");
}
