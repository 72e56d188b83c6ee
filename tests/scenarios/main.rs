//! What programs do with windows, after MPICH's test/mpi/rma. Each scenario is generic over the
//! fabric and runs by threads over shared memory, also with more ranks than cores, and in the
//! simulator. With `ONESIDED_FABRIC` set, it runs by threads over that fabric instead.

mod active;
mod alike;
mod atomics;
mod borrowed;
mod combined;
mod completion;
mod groups;
mod lease;
mod lives;
mod lock_all;
mod memory;
mod mixed;
mod no_check;
mod on_demand;
mod overlapping;
mod packed;
mod programs;
mod signals;
mod values;

use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use onesided_fabric::{Any, Fabric, World, block_on};
use onesided_instances as _;
use onesided_sim::{End, Network, SimFabric, Simulation};
use onesided_windows::{Error, LockDesign};

/// The result of a scenario.
pub(crate) type Outcome = Result<(), Error>;

/// Longer than any scenario takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(180);

/// A test that runs a body with several numbers of ranks.
#[macro_export]
macro_rules! scenario {
    ($name:ident, $body:ident, $ranks:expr) => {
        #[test]
        fn $name() {
            for ranks in $crate::sizes(&$ranks) {
                $crate::by_threads(ranks, $body);
                if !$crate::on_cards() {
                    $crate::simulated(ranks, $body);
                }
            }
        }
    };
}

/// Lets some time pass, in nanoseconds.
pub(crate) async fn pause<F: Fabric>(world: &World<F>, nanos: u64) {
    let fabric = world.fabric();
    let own = fabric.world_segment(fabric.rank()).unwrap();
    fabric.pause(fabric.word_in(&own, 0).unwrap(), nanos).await;
}

/// Polls a request once (`MPI_Test`, where the program drives no fabric).
pub(crate) fn is_pending<R>(request: &mut (impl Future<Output = Result<R, Error>> + Unpin)) -> Result<bool, Error> {
    match Pin::new(request).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Pending => Ok(true),
        Poll::Ready(outcome) => outcome.map(|_| false),
    }
}

pub(crate) fn on_cards() -> bool {
    std::env::var_os("ONESIDED_FABRIC").is_some()
}

/// Whether to leave out what does not depend on the fabric.
pub(crate) fn is_short_on_cards() -> bool {
    on_cards() && std::env::var_os("ONESIDED_LONG").is_none()
}

/// Of the numbers of ranks that a scenario asks for, those that it runs with. On cards one, with few
/// ranks: what more of them do to one another was seen over shared memory and in the simulator. Where
/// cards are mixed with shared memory three, of which two share a host, if it asks for fewer and more.
pub(crate) fn sizes(asked: &[u32]) -> Vec<u32> {
    if !is_short_on_cards() {
        return asked.to_vec();
    }
    if std::env::var_os("ONESIDED_FABRIC").is_some_and(|fabric| fabric == "mixed") {
        let (fewest, most) = (asked.iter().min(), asked.iter().max());
        return most.map(|most| 3.clamp(fewest.copied().unwrap_or(*most), *most)).into_iter().collect();
    }
    let few = asked.iter().filter(|size| (2..=3).contains(*size)).max();
    few.or(asked.iter().find(|size| **size > 1)).or(asked.first()).copied().into_iter().collect()
}

/// A scenario's ranks, whatever its future is: what runs them is compiled once.
type Body<F> = dyn Fn(World<F>) -> Pin<Box<dyn Future<Output = Outcome>>> + Send + Sync;

/// Over shared memory, or the fabric that the environment names. Ranks that do not end fail the
/// test.
pub(crate) fn by_threads<R: Future<Output = Outcome> + 'static>(ranks: u32, body: fn(World<Any>) -> R) {
    run_by_threads(ranks, Box::new(move |world| Box::pin(body(world))));
}

fn run_by_threads(ranks: u32, body: Box<Body<Any>>) {
    let (sender, receiver) = channel();
    let threads = std::thread::spawn(move || {
        let outcomes = onesided_fabric::threads(ranks, |world| {
            let fabric = world.fabric().clone();
            block_on(&fabric, body(world))
        });
        sender.send(outcomes).unwrap();
    });
    match receiver.recv_timeout(DEADLINE) {
        Ok(outcomes) => outcomes.unwrap().into_iter().for_each(Result::unwrap),
        Err(RecvTimeoutError::Timeout) => panic!("{ranks} ranks did not end"),
        Err(RecvTimeoutError::Disconnected) => match threads.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("it sends before it ends"),
        },
    }
}

/// In virtual time, on a network that loses and delays messages; with a lock that depends on hosts,
/// on several hosts as well. Under another lock than the default once, but in the long run: what it
/// does when messages overtake one another was explored.
pub(crate) fn simulated<R: Future<Output = Outcome> + 'static>(ranks: u32, body: fn(World<SimFabric>) -> R) {
    run_simulated(ranks, &move |world| Box::pin(body(world)));
}

fn run_simulated(ranks: u32, body: &Body<SimFabric>) {
    let network = Network { loss: 0.01, jitter: Duration::from_micros(3), ..Network::default() };
    let lock = std::env::var_os("ONESIDED_LOCK");
    let hosts = lock.as_ref().is_some_and(|lock| lock == "two-level");
    let is_short = lock.is_some() && !hosts && std::env::var_os("ONESIDED_LONG").is_none();
    for seed in 0..if is_short { 1 } else { 3 } {
        let per_host = if hosts { [u32::MAX, 2, 1][seed as usize] } else { u32::MAX };
        let report = Simulation::new(network.clone()).ranks(ranks).per_host(per_host).seed(seed).run(body);
        assert_eq!(report.end, End::Finished, "{ranks} ranks, seed {seed}");
        for outcome in report.results {
            outcome.unwrap().unwrap_or_else(|error| panic!("{ranks} ranks, seed {seed}: {error}"));
        }
    }
}

/// The scenarios that lock, under a design, by threads and in the simulator.
fn pass_under(design: LockDesign) {
    if std::env::var_os("ONESIDED_LOCK").is_some() {
        return; // it was started by this test
    }
    let (on_cards, is_short) = (on_cards(), is_short_on_cards());
    // Hundreds of threads that poll are too much for the virtual machine's one core. Where no CPU
    // reaches another rank of its host, the two-level lock is test-and-set.
    if on_cards && (design.name().ends_with("per-window") || design == LockDesign::TwoLevel) {
        return;
    }
    // These post the operations that a card's conformance suite has, in the orders that it has: what
    // the lock makes of their results does not depend on the fabric.
    let by_words = matches!(design, LockDesign::Ticket | LockDesign::FetchAddQueue | LockDesign::DistributedCounters);
    if is_short && by_words {
        return;
    }
    // What does not lock is the same on cards under all designs, and slow there. A thread that polls
    // takes a processor from the emulated card all the time.
    let scenarios: &[_] = match design {
        LockDesign::DedicatedThread if is_short => &["combined::"],
        _ if is_short => &["programs::", "combined::", "no_check::"],
        _ if design.name().ends_with("per-window") => &["programs::", "combined::", "no_check::", "lives::"],
        _ => &["programs::", "combined::", "no_check::", "completion::", "atomics::", "lives::"],
    };
    let ended = std::process::Command::new(std::env::current_exe().unwrap())
        .args(scenarios)
        // The first measures the default; the second leaks a guard, which blocks a queue.
        .args(["--skip", "an_update_takes_one_round_trip", "--skip", "close_behind_a_request"])
        // As the tests themselves: two at a time would starve an emulated card.
        .args(on_cards.then_some("--test-threads=1"))
        .env("ONESIDED_LOCK", design.name())
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && output.contains("test combined::"), "{design}: {output}");
}

/// A test per design: each has its own time.
macro_rules! scenarios_pass_under {
    ($($name:ident $design:ident)*) => {
        mod scenarios_pass_under {
            use onesided_windows::LockDesign;

            $(#[test]
            fn $name() {
                super::pass_under(LockDesign::$design);
            })*

            #[test]
            fn every_design() {
                let tested = [LockDesign::default(), $(LockDesign::$design),*];
                assert_eq!(tested.len(), LockDesign::ALL.len());
                assert!(LockDesign::ALL.iter().all(|design| tested.contains(design)));
            }
        }
    };
}

scenarios_pass_under! {
    mcs Mcs
    ticket Ticket
    fetch_add_queue FetchAddQueue
    distributed_counters DistributedCounters
    two_level TwoLevel
    dedicated_thread DedicatedThread
    dedicated_thread_per_window DedicatedThreadPerWindow
    event_thread EventThread
    event_thread_per_window EventThreadPerWindow
}
