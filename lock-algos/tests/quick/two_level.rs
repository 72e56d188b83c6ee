use lock_kit::wrong::two_level;
use lock_kit::{Checker, Round, Search, Setting};

use crate::Lost;

#[test]
fn searched() {
    for per_host in 1..4 {
        let setting = Setting { per_host, ..Setting::USUAL };
        for passes in [0, 1] {
            let search = Search::of(&two_level(2).passes(passes)).setting(setting).seed(1).cases(100);
            search.clone().run();
            search.deaths().run();
        }
    }
}

#[test]
fn checked() {
    for per_host in [2, 1] {
        crate::check(&two_level(1), Lost::Told, per_host);
        crate::check(&two_level(1).passes(1), Lost::Told, per_host);
    }
}

/// The queue of a host ends with the rank that has it.
#[test]
fn a_queue_goes_with_its_rank() {
    const A: Round = Round::EXCLUSIVE.touching(0);
    const B: Round = Round::SHARED.touching(0);
    // On the other host.
    let programs: [&[&[Round]]; 3] =
        [&[&[], &[], &[A, A], &[A, A]], &[&[A], &[], &[A], &[A]], &[&[], &[], &[A, B], &[A], &[B]]];
    for passes in [0, 1] {
        let checker = Checker::of(&two_level(1).passes(passes)).crashes(1).memory_goes().departures(2);
        for programs in programs {
            assert!(checker.clone().run(programs).heirs > 0);
        }
    }
}

/// At the home, where it is another host's.
#[test]
fn losses_are_settled() {
    const A: Round = Round::EXCLUSIVE.touching(0);
    let programs: [&[&[Round]]; 3] = [&[&[], &[A, A]], &[&[A], &[A, A]], &[&[A], &[A], &[A]]];
    for passes in [0, 1] {
        let checker = Checker::of(&two_level(1).passes(passes)).per_host(1).near_is_safe().losses(1).settled();
        for programs in programs {
            assert!(checker.clone().departures(2).run(programs).lost > 0);
        }
    }
}
