//! The verbs fabric on a real device; on hosts without one run it inside `scripts/soft-roce`.
//!
//! Without a device every test prints that it is skipped and passes, unless
//! `ONESIDED_REQUIRE_VERBS=1`.
#![cfg(feature = "verbs")]
#![allow(clippy::print_stderr)] // reports skipped tests

use std::time::Duration;

use onesided_fabric::bootstrap::Job;
use onesided_fabric::remote_memory::{Fault, FaultKind, RemoteMemory};
use onesided_fabric::verbs::{Verbs, devices};
use onesided_fabric::{World, block_on, conformance};

mod bare;
mod connections;
mod cuts;
mod failures;
mod flow;
mod messages;
mod on_demand;
mod operations;
mod rails;
mod reconnect;
mod support;

use support::device;

fn ranks<T: Send>(size: u32, body: impl Fn(World<Verbs>) -> T + Sync) -> Vec<T> {
    support::ranks(size, Verbs::new, body)
}

fn ranks_of(jobs: Vec<Job>, body: impl Fn(World<Verbs>) + Sync) {
    support::ranks_of(jobs, Verbs::new, body);
}

fn kind<T: std::fmt::Debug>(result: Result<T, Fault>) -> FaultKind {
    result.expect_err("a fault").kind()
}

/// Ends what hangs: ten times what any test takes.
const LONG: Duration = Duration::from_secs(200);

fn until(fabric: &Verbs, time: Duration) -> u64 {
    fabric.now() + time.as_nanos() as u64
}

#[test]
fn devices_tell_what_they_are() {
    let Some(_device) = device("devices_tell_what_they_are") else { return };
    for device in devices().unwrap() {
        assert!(device.port >= 1 && device.outstanding_reads >= 1 && !device.address.is_empty(), "{device}");
        eprintln!("{device}");
    }
}

/// What packets travel over.
fn channel() -> String {
    std::env::var(onesided_fabric::verbs::MESSAGES_CHANNEL).unwrap_or_else(|_| "rc".into())
}

fn by_datagrams() -> bool {
    channel() != "rc"
}

#[test]
fn conforms() {
    let Some(_device) = device("conforms") else { return };
    // What is no message is the same over datagrams. Their ranks have one receive queue for all others.
    let (sizes, wanted): (_, fn(&str) -> bool) = match by_datagrams() {
        true => (vec![3], |check| ["transport::", "rendezvous::", "landings::"].iter().any(|of| check.starts_with(of))),
        false => (vec![1, 3], |_| true),
    };
    for size in sizes {
        for outcome in ranks(size, |world| block_on(world.fabric(), conformance::run_of(&world, wanted))) {
            let summary = outcome.unwrap_or_else(|failure| panic!("{size} ranks: {failure}"));
            assert_eq!(summary.fabric, "verbs");
        }
    }
}
