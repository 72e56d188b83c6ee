//! Eleven locks from the literature, verified, and one of them measured.
//!
//! ```sh
//! cargo run -p onesided-lock-kit --example locks
//! ```
#![allow(clippy::print_stdout)] // a program's purpose

#[path = "mod.rs"]
pub(crate) mod locks;

use std::time::Duration;

use onesided_lock_kit::Conformance;
use onesided_lock_kit::bench::ThroughputRun;
use onesided_lock_kit::lock_algos::{LockAlgorithm, Simple, SimpleLock};

use locks::{
    Anderson, Bakery, Clh, Leased, LeavableTicket, Mcs, Peterson, PhaseFair, Recovering, TestAndTestAndSet, Ticket,
};

/// Prints the report; panics with it if the lock violates a promise.
fn run<A: LockAlgorithm + Clone>(suite: Conformance<A>, within: Duration) {
    print!("{}", suite.within(within).run());
}

fn simple<L: SimpleLock + Copy>(lock: L) -> Conformance<Simple<L>> {
    Conformance::of(&Simple::new(lock))
}

/// What each lock promises, in the given time.
const VERIFY: [fn(Duration); 11] = [
    |within| run(simple(TestAndTestAndSet), within),
    |within| run(simple(Ticket).bypass(0), within),
    |within| run(simple(LeavableTicket).bypass(0), within),
    |within| run(simple(Anderson).bypass(0), within),
    |within| run(simple(Clh).bypass(0), within),
    |within| run(simple(Mcs).bypass(0), within),
    |within| run(simple(PhaseFair), within),
    |within| run(simple(Bakery).owners(8), within),
    |within| run(simple(Peterson).owners(2), within),
    |within| run(Conformance::of(&Recovering), within),
    |within| run(Conformance::of(&Leased::USUAL).without_recovery().leases(Leased::LEASE), within),
];

/// The throughput run of the suite, with other bounds.
fn measure() {
    let lock = Simple::new(Mcs);
    for origins in [10, 100] {
        let simulated = ThroughputRun::of(&lock).origins(origins).lasting(Duration::from_millis(1)).simulated();
        let (rate, each) = (simulated.rate(), simulated.operations_each());
        println!("{origins} simulated origins: {rate:.0} a second, {each:.1} operations each");
    }
}

fn main() {
    VERIFY.iter().for_each(|verify| verify(Duration::from_secs(100)));
    measure();
}

/// Run by `lock-algos/tests/verify`, which has compiled the suites for its wrong locks.
#[test]
fn they_are_right_and_run() {
    let within = Duration::from_secs(if std::env::var_os("ONESIDED_LONG").is_some() { 600 } else { 2 });
    std::thread::scope(|scope| {
        for half in VERIFY.chunks(6) {
            scope.spawn(move || half.iter().for_each(|verify| verify(within)));
        }
    });
    measure();
}
