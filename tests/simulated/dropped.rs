//! Every request for a lock is dropped at each of its `Pending`s in turn, and is ended by a deadline
//! there, while another rank holds the lock and a third one waits behind. It leaves nothing locked;
//! nor does it when its rank leaves the world then, or dies.

mod collectives;
mod epochs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use onesided_fabric::World;
use onesided_fabric::remote_memory::RemoteMemory as _;
use onesided_instances as _;
use onesided_sim::{End, Network, SimFabric, Simulation};
use onesided_windows::{Error, LeasePolicy, LockAllDesign, LockDesign, LockTable, Mode, RwLock, Window};

use crate::common::{bound, pause_until, variants};
use crate::left::{Left, at_all_times};

variants! {
    /// The requests that rank 2 leaves, for the lock of rank 0.
    Request, REQUESTS:
    Exclusive,
    Shared,
    TryExclusive,
    TryShared,
    Fenced,
    All,
    Unlock,
    Update,
    Read,
    Write,
    TryWrite,
    UnlockValue,
    Many,
    Epochs,
    Versioned,
    ReadVersion,
    InTable,
    TryInTable,
    ManyInTable,
    UnlockInTable,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    design: LockDesign,
    all: LockAllDesign,
    request: Request,
    left: Left,
    /// How rank 1 holds the lock meanwhile, and how long.
    held: Option<(Mode, Duration)>,
    then: Then,
    /// The lock of rank 0 then has a lease, shorter than rank 1 holds it.
    lease: Option<Duration>,
}

/// What becomes of rank 2 after its request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    GoesOn,
    Leaves,
    Dies,
}

/// The element that is counted in, that of the rank inside, and the one that is counted in under a lock
/// of the table.
const COUNT: usize = 0;
const INSIDE: usize = 1;
const TABLED: usize = 2;
const ROUNDS: u64 = 2;
const LEASE: Duration = Duration::from_micros(500);
/// A release that was posted is complete after this time, in nanoseconds.
const RELEASED: u64 = 20_000;

/// Counts under the lock, which no other rank has meanwhile. Returns whether it was poisoned.
async fn count(window: &Window<u64, SimFabric>) -> Result<bool, Error> {
    let epoch = window.lock_exclusive(0).recover().await?;
    let is_poisoned = epoch.previous_owner().is_some();
    let mut words = [0; 2];
    epoch.get(COUNT, &mut words).await?;
    assert_eq!(words[INSIDE], 0, "another rank is inside");
    epoch.put(INSIDE, &[1 + u64::from(window.world().rank())])?;
    epoch.flush().await?;
    epoch.get(COUNT, &mut words).await?;
    assert_eq!(words[INSIDE], 1 + u64::from(window.world().rank()), "another rank was inside");
    epoch.put(COUNT, &[words[COUNT] + 1, 0])?;
    epoch.unlock().await?;
    Ok(is_poisoned)
}

/// The same under a lock of the table.
async fn count_in_table(window: &Window<u64, SimFabric>, table: &LockTable<SimFabric>) -> Result<bool, Error> {
    let guard = table.lock_exclusive(0).recover().await?;
    let (open, mut word) = (window.no_check(), [0]);
    let access = open.at(0)?;
    access.get(TABLED, &mut word).await?;
    access.put(TABLED, &[word[0] + 1])?;
    access.flush().await?;
    let is_poisoned = guard.previous_owner().is_some();
    guard.unlock().await?;
    Ok(is_poisoned)
}

/// Makes the request, and releases what it got; returns whether it was left, and how much was counted.
async fn request(
    window: &Window<u64, SimFabric>,
    value: &RwLock<u64, SimFabric>,
    table: &LockTable<SimFabric>,
    Case { request, left, .. }: Case,
) -> Result<(bool, u64), Error> {
    let (after, late) = (left.deadline(), Error::is_timed_out);
    let is_left = match request {
        Exclusive => left.run(window.lock_exclusive(0).deadline(after), late).await?.map(drop).is_none(),
        Shared => left.run(window.lock_shared(0).deadline(after), late).await?.map(drop).is_none(),
        TryExclusive => left.run(window.try_lock_exclusive(0), late).await?.map(drop).is_none(),
        TryShared => left.run(window.try_lock_shared(0), late).await?.map(drop).is_none(),
        Fenced => left.run(window.lock_exclusive(0).fenced().deadline(after), late).await?.map(drop).is_none(),
        All => {
            let all = async {
                let all = window.lock_all().await?;
                all.at(0).deadline(after).await?;
                all.unlock_all().await
            };
            left.run(all, late).await?.is_none()
        }
        Unlock => {
            let epoch = window.lock_exclusive(0).await?;
            epoch.fetch_add(COUNT, 1).await?;
            return Ok((left.run(epoch.unlock(), late).await?.is_none(), 1));
        }
        Update => {
            let mut word = [0];
            let update = window.locked(0).update(COUNT, &mut word, |word| word[0] += 1).deadline(after);
            return Ok((left.run(update, late).await?.is_none(), 1));
        }
        Read => left.run(value.read().deadline(after), late).await?.map(drop).is_none(),
        Write => left.run(value.write().deadline(after), late).await?.map(|mut guard| *guard += 1).is_none(),
        TryWrite => left.run(value.try_write().deadline(after), late).await?.map(drop).is_none(),
        UnlockValue => {
            let mut guard = value.write().await?;
            *guard += 1;
            left.run(guard.unlock(), late).await?.is_none()
        }
        Many => left.run(window.lock_many(&[1, 0], Mode::Exclusive).deadline(after), late).await?.map(drop).is_none(),
        Epochs => {
            let mut epochs = window.epochs();
            let is_left = left.run(epochs.lock(0, Mode::Exclusive).deadline(after), late).await?.is_none();
            assert_ne!(is_left, epochs.at(0).is_ok());
            is_left
        }
        Versioned => {
            let versioned = window.clone().versioned();
            left.run(versioned.write(0).deadline(after), late).await?.map(drop).is_none()
        }
        ReadVersion => {
            let (versioned, mut word) = (window.clone().versioned(), [0]);
            left.run(versioned.read_into(0, COUNT, &mut word).deadline(after), late).await?.is_none()
        }
        InTable => left.run(table.lock_exclusive(0).deadline(after), late).await?.map(drop).is_none(),
        TryInTable => left.run(table.try_lock_shared(0), late).await?.map(drop).is_none(),
        ManyInTable => {
            left.run(table.lock_many(&[1, 0], Mode::Exclusive).deadline(after), late).await?.map(drop).is_none()
        }
        UnlockInTable => {
            let guard = table.lock_shared(0).await?;
            left.run(guard.unlock(), late).await?.is_none()
        }
    };
    Ok((is_left, 0))
}

/// What a rank does; returns whether its request was left, or it found the lock poisoned, and the counts
/// of the window and the value. `over`: when the request of rank 2 was over.
async fn play(world: World<SimFabric>, case: Case, over: Arc<AtomicU64>) -> Result<(bool, u64, u64), Error> {
    let builder = Window::builder().lock(case.design).lock_all(case.all);
    let window = match case.lease {
        Some(lease) => builder.lease_policy(LeasePolicy::VersionedCommit, lease).allocate(&world, 3).await?,
        None => builder.allocate(&world, 3).await?,
    };
    let value = RwLock::with(Window::builder().lock(case.design), &world, 0, 0_u64).await?;
    let in_table = match case.design {
        design @ (LockDesign::Mcs | LockDesign::Ticket | LockDesign::FetchAddQueue) => design,
        _ => LockDesign::TestAndSet,
    };
    let table = LockTable::with(Window::builder().lock(in_table), &world, 1).await?;
    let held = case.held.filter(|_| world.rank() == 1);
    let both = match held {
        Some((Mode::Exclusive, _)) => {
            Some((window.lock_exclusive(0).await?, Ok(value.write().await?), table.lock_exclusive(0).await?))
        }
        Some((Mode::Shared, _)) => {
            Some((window.lock_shared(0).await?, Err(value.read().await?), table.lock_shared(0).await?))
        }
        None => None,
    };
    world.barrier().await.expect("a barrier");
    let (begun, mut is) = (world.fabric().now(), false);
    match world.rank() {
        1 => {
            if let (Some((_, time)), Some((epoch, guard, in_table))) = (held, both) {
                pause_until(&world, begun + time.as_nanos() as u64).await;
                let unlocked = epoch.unlock().await;
                assert!(case.lease.is_some() || unlocked.is_ok(), "{unlocked:?}");
                in_table.unlock().await?;
                match guard {
                    Ok(write) => write.unlock().await?,
                    Err(read) => drop(read),
                }
            }
        }
        2 => {
            pause_until(&world, begun + 20_000).await; // all have left the barrier
            is = request(&window, &value, &table, case).await?.0;
            over.store(world.fabric().now(), Relaxed);
            match case.then {
                Then::GoesOn => {}
                Then::Leaves => return Ok((is, 0, 0)),
                Then::Dies => std::future::pending().await,
            }
        }
        _ => pause_until(&world, begun + 25_000).await, // behind rank 2
    }
    for _ in 0..ROUNDS {
        is |= count(&window).await?;
        is |= count_in_table(&window, &table).await?;
        let mut guard = value.write().recover().await?;
        is |= guard.previous_owner().is_some();
        *guard += 1;
        guard.unlock().await?;
    }
    // Until all have counted, as far as they count.
    let least = ROUNDS * if case.then == Then::GoesOn { 4 } else { 3 };
    loop {
        let epoch = window.lock_shared(0).recover().await?;
        is |= epoch.previous_owner().is_some();
        let mut words = [0; 3];
        epoch.get(COUNT, &mut words).await?;
        epoch.unlock().await?;
        assert!(words[TABLED] <= least);
        let guard = value.read().recover().await?;
        is |= guard.previous_owner().is_some();
        let counted = *guard;
        drop(guard);
        if words[COUNT] >= least && counted >= least && words[TABLED] == least {
            if world.rank() == 0 {
                pause_until(&world, world.fabric().now() + 10_000_000).await; // the others need its memory
            }
            return Ok((is, words[COUNT] - least, counted - least));
        }
        assert!(world.fabric().now() < begun + 60_000_000_000, "{words:?}, {counted}");
        pause_until(&world, world.fabric().now() + 100_000).await;
    }
}

/// Runs a case, and returns whether the request was left.
fn is_left(case: Case) -> bool {
    let hosts = if case.design == LockDesign::TwoLevel { 2 } else { 1 };
    let over = Arc::<AtomicU64>::default();
    let run = |simulation: Simulation, then| {
        let (case, over) = (Case { then, ..case }, Arc::clone(&over));
        simulation.run(move |world| play(world, case, Arc::clone(&over)))
    };
    let simulation =
        Simulation::new(Network::default()).ranks(4).per_host(hosts).stalled_after(Duration::from_secs(60));
    let mut is_over = false;
    let mut report = run(simulation.clone(), if case.then == Then::Dies { Then::Leaves } else { case.then });
    if case.then == Then::Dies {
        let left = report.results[2].take();
        is_over = matches!(case.request, Unlock | UnlockValue | UnlockInTable) && matches!(left, Some(Ok((false, ..))));
        let death = over.load(Relaxed) + if is_over { RELEASED } else { 0 };
        report = run(simulation.kill(2, Duration::from_nanos(death)), Then::Dies);
        report.results[2] = left;
    }
    assert_eq!(report.end, End::Finished, "{case:?}");
    let outcomes = report.results.into_iter().flatten();
    let outcomes: Vec<_> =
        outcomes.map(|outcome| outcome.unwrap_or_else(|error| panic!("{case:?}: {error}"))).collect();
    let (is_left, ..) = outcomes[2];
    // Only one that dies may leave it so, and not after its release.
    let is_poisoned = [0, 1, 3].iter().any(|rank| outcomes[*rank].0);
    let may_be = case.then == Then::Dies && !is_over || case.lease.is_some();
    assert!(!is_poisoned || may_be, "{case:?}: poisoned");
    // What a request counts that is complete, and may count if it was left.
    let most = match case.request {
        Unlock | Update => (1, 0),
        Write | UnlockValue => (0, 1),
        _ => (0, 0),
    };
    // The last one that has counted has seen all.
    let seen = |count: fn(&(bool, u64, u64)) -> u64| outcomes.iter().map(count).max().unwrap_or(0);
    let (counted, valued) = (seen(|outcome| outcome.1), seen(|outcome| outcome.2));
    let is_lost = is_left || case.then == Then::Dies && !is_over;
    let is_right = |most: u64, found: u64| found == most || is_lost && case.request != Unlock && found == 0;
    assert!(is_right(most.0, counted) && is_right(most.1, valued), "{case:?}: {counted}, {valued}");
    is_left
}

fn cases(then: Then) -> impl Iterator<Item = Case> {
    // A cancelled request that others are behind of has two seconds.
    let long = if then == Then::GoesOn { Duration::from_micros(40) } else { Duration::from_secs(3) };
    let held = [Some((Mode::Exclusive, long)), Some((Mode::Shared, long)), None];
    let all = LockDesign::ALL.iter().flat_map(|design| REQUESTS.iter().map(|request| (*design, *request)));
    let all = all.flat_map(move |(design, request)| held.map(|held| (design, request, held))).enumerate();
    all.map(move |(number, (design, request, held))| {
        let may_lease = design == LockDesign::TestAndSet && then == Then::GoesOn && request != Versioned;
        let lease = (may_lease && number % 2 == 0).then_some(LEASE);
        // A lease needs to know whose it is.
        let all = if lease.is_some() { LockAllDesign::OnDemand } else { LockAllDesign::ALL[number % 3] };
        let held = held.map(|(mode, time)| (mode, if lease.is_some() { 2 * LEASE } else { time }));
        Case { design, all, request, left: Left::NEVER, held, then, lease }
    })
}

#[test]
fn a_request_that_is_left_leaves_the_lock_free() {
    let mut pendings = 0;
    for case in cases(Then::GoesOn).step_by(bound(7, 1)) {
        pendings += at_all_times(|left| is_left(Case { left, ..case }));
    }
    assert!(pendings > 0);
}

/// While it waits, or behind what it holds; the cancelled request has two seconds before its rank has
/// left. One that dies may leave the lock poisoned.
#[test]
fn and_so_it_does_when_its_rank_ends() {
    for case in cases(Then::Leaves).chain(cases(Then::Dies)).step_by(bound(23, 1)) {
        for left in [0, 1, 2, 5].map(Left::AtPending) {
            is_left(Case { left, ..case });
        }
    }
}
