//! A custom lock, verified and measured in a few lines.
//!
//! ```sh
//! cargo run -p onesided-lock-kit --example own_lock
//! ```
//!
//! The lock is the simplest ticket lock: an arriving owner takes a number by one fetch-add, and
//! waits until that number is served.
#![allow(clippy::print_stdout)] // a program's purpose

use std::time::Duration;

use onesided_lock_kit::Conformance;
use onesided_lock_kit::bench::ThroughputRun;
use onesided_lock_kit::lock_algos::{Held, IntentFn, LockAlgorithm, LockContext, LockUse, Mode};
use onesided_lock_kit::remote_memory::{Fault, FaultKind, RemoteMemory};

/// Two words at the home: the next number, and the number that is served. It has no shared mode:
/// readers hold the lock exclusively. It does not recover from a dead owner.
#[derive(Clone, Copy, Debug)]
struct Numbers;

impl LockAlgorithm for Numbers {
    const NAME: &'static str = "numbers";
    const HOME_WORDS: usize = 2;
    const NODE_WORDS: usize = 0;

    fn is_free(home: &[u64]) -> bool {
        home[0] == home[1]
    }

    fn uses_node(&self, _mode: Mode) -> bool {
        false
    }

    fn start<'m, M: RemoteMemory>(&self, lock: LockUse<'m, M, impl LockContext<'m, M>>) -> Result<M::Op, Fault> {
        Ok(lock.memory.fetch_add(lock.home, 1))
    }

    /// The number alone does not tell whether it is served.
    fn holds(&self, _owner: u64, _mode: Mode, _number: u64) -> bool {
        false
    }

    async fn contend<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        lock: LockUse<'m, M, P>,
        number: Result<u64, Fault>,
        intent: IntentFn<'_>,
    ) -> Result<Held, Fault> {
        let (served, number, mut waited) = (lock.context.home(1)?, number?, false);
        while lock.memory.read(served).await? != number {
            waited = true;
            lock.memory.pause(served, 1_000).await;
        }
        // A number cannot be returned: a cancelled owner passes it on.
        let given_up = match intent() {
            intent if intent.is_over() => FaultKind::Closed,
            intent if waited && !intent.is_patient() => FaultKind::TimedOut,
            _ => return Ok(Held::cleanly(Mode::Exclusive)),
        };
        lock.memory.fetch_add(served, 1).await?;
        Err(Fault::new(given_up))
    }

    fn releases_in_one_step(&self, _mode: Mode) -> bool {
        true
    }

    fn start_release<'m, M: RemoteMemory>(
        &self,
        lock: LockUse<'m, M, impl LockContext<'m, M>>,
    ) -> Result<M::Op, Fault> {
        Ok(lock.memory.fetch_add(lock.context.home(1)?, 1))
    }

    async fn finish_release<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        _lock: LockUse<'m, M, P>,
        found: Result<u64, Fault>,
    ) -> Result<(), Fault> {
        found.map(drop)
    }
}

fn verify() {
    // The whole kit, with what this lock guarantees, and without what it does not.
    let report = Conformance::of(&Numbers).bypass(0).without_recovery().run();
    print!("{report}");

    // A missing guarantee is found, and reported so that it can be reproduced.
    let report = Conformance::of(&Numbers).verdict();
    let found = report.violations().find(|what| what.contains("wait without end")).expect("a crash inside");
    println!("if its owners died: {}", found.lines().next().unwrap_or_default());
}

fn measure() -> Result<(), Box<dyn std::error::Error>> {
    // The throughput run of the suite, with other bounds.
    let threads = ThroughputRun::of(&Numbers).origins(2).lasting(Duration::from_millis(50)).threads()?;
    println!("two threads: {:.0} acquisitions a second, smallest share {:.2}", threads.rate(), threads.share());
    for origins in [10, 100] {
        let simulated = ThroughputRun::of(&Numbers).origins(origins).lasting(Duration::from_millis(1)).simulated();
        let (rate, each) = (simulated.rate(), simulated.operations_each());
        println!("{origins} simulated origins: {rate:.0} a second, {each:.1} operations each");
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    verify();
    measure()
}

#[test]
fn it_is_right_and_runs() {
    main().unwrap();
}
