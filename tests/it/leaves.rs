//! Ranks that leave in order and hold a lock still, or have asked for one: the others go on, as after
//! a death, and are told that the rank left.

use std::time::Duration;

use onesided::{Error, LockDesign, Mode, PreviousOwner, Window, World};

use crate::jobs::{self, Role, ok};
use crate::support::{DEADLINE, eventually, poll_once, ranks};

pub(crate) const ROLES: &[Role] = &[("leaves with guards", |world| {
    leaves_with_guards(&world, None);
    ok();
})];

fn allocate(world: &World, design: Option<LockDesign>) -> Window<u64> {
    let builder = Window::builder().name("left");
    let builder = if let Some(design) = design { builder.lock(design) } else { builder };
    builder.allocate(world, 1).wait().unwrap()
}

/// Waits until another rank has left, which may use this rank's memory until then.
fn has_left(world: &World, rank: u32) {
    eventually(DEADLINE, "it has left", || !world.is_alive(rank));
}

/// Rank 1 leaks an exclusive guard and a shared one.
fn leaves_with_guards(world: &World, design: Option<LockDesign>) {
    let window = allocate(world, design);
    if world.rank() == 1 {
        let guards = (window.lock_exclusive(0).wait().unwrap(), window.lock_shared(2).wait().unwrap());
        std::mem::forget(guards);
    }
    world.barrier().wait().unwrap();
    if world.rank() == 1 {
        return;
    }
    let design = window.info().lock;
    let epoch = window.lock_exclusive(2).deadline(DEADLINE).wait().unwrap();
    assert_eq!(epoch.previous_owner(), None, "{design}");
    epoch.unlock().wait().unwrap();
    if world.rank() == 0 {
        let error = Error::from(window.lock_exclusive(0).deadline(DEADLINE).wait().map(drop).unwrap_err());
        let left = [PreviousOwner::OwnerLeft(1), PreviousOwner::ParticipantLeft(1)];
        let told =
            left.map(|left| format!("lock_exclusive on rank 0 of window \"left\": {left} (`recover` takes it over)"));
        assert!(error.is_poisoned() && told.contains(&error.to_string()), "{design}: {error}");
        let epoch = window.lock_shared(0).recover().deadline(DEADLINE).wait().unwrap();
        assert!(epoch.previous_owner().is_some_and(|previous| left.contains(&previous)), "{design}");
        assert_eq!(epoch.mode(), Mode::Exclusive, "{design}");
        epoch.unlock().wait().unwrap();
        has_left(world, 2);
    } else {
        // It may wait for the recovery.
        eventually(DEADLINE, "the lock is recovered", || window.lock_exclusive(0).deadline(DEADLINE).wait().is_ok());
    }
}

/// Rank 0 holds its lock, and rank 2 waits for it, behind a request of rank 1 whose deadline has
/// passed when that rank leaves.
fn leaves_with_a_request(world: &World, design: LockDesign) {
    let window = allocate(world, Some(design));
    let held = (world.rank() == 0).then(|| window.lock_exclusive(0).wait().unwrap());
    world.barrier().wait().unwrap();
    if world.rank() == 1 {
        let waited = window.lock_exclusive(0).deadline(Duration::from_millis(20)).wait().map(drop);
        assert!(waited.is_err_and(|error| error.is_timed_out()));
    }
    world.barrier().wait().unwrap();
    let mut request = (world.rank() == 2).then(|| window.lock_exclusive(0).deadline(DEADLINE));
    if let Some(request) = &mut request {
        assert!(poll_once(request).is_pending());
    }
    world.barrier().wait().unwrap();
    match (held, request) {
        (Some(held), _) => {
            has_left(world, 1);
            held.unlock().wait().unwrap();
            has_left(world, 2);
        }
        (_, Some(request)) => {
            let epoch = request.wait().unwrap();
            assert_eq!(epoch.previous_owner(), None, "{design}");
            epoch.unlock().wait().unwrap();
            window.lock_shared(0).deadline(DEADLINE).wait().unwrap().unlock().wait().unwrap();
        }
        _ => {}
    }
}

#[test]
fn leaked_guards_of_threads_are_found() {
    for design in LockDesign::ALL {
        ranks(3, move |world| leaves_with_guards(&world, Some(*design)));
    }
}

#[test]
fn cancelled_requests_of_threads_give_up_their_places() {
    for design in LockDesign::ALL {
        ranks(3, move |world| leaves_with_a_request(&world, *design));
    }
}

/// A design of each kind of queue; on cards of one, as the scan for those that left is the same for all.
#[test]
fn leaked_guards_of_processes_are_found() {
    let designs = [LockDesign::Ticket, LockDesign::Mcs];
    for design in &designs[..if jobs::is_short_on_cards() { 1 } else { 2 }] {
        let ended = jobs::start_under(3, "leaves with guards", ("ONESIDED_LOCK", design.name())).wait();
        assert_eq!((ended.code, ended.ok()), (0, vec![0, 1, 2]), "{design}: {ended:#?}");
    }
}
