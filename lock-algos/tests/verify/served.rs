//! The locks that a thread at the target serves, that thread beside the origins.

use lock_algos::{DedicatedThread, EventThread, Mode};
use lock_kit::{Exploration, Round, Search};
use remote_memory::FaultKind;

const X: Round = Round::EXCLUSIVE;
const S: Round = Round::SHARED;

fn lock() -> EventThread {
    EventThread::default()
}

#[test]
fn a2() {
    for (programs, preemptions) in [(&[&[X][..], &[X]][..], 2), (&[&[X, X][..], &[X]][..], 1), (&[&[X, S], &[S, X]], 1), (&[&[X], &[S], &[S]], 1), (&[&[X], &[X], &[S]], 1)] {
        let began = std::time::Instant::now();
        let n = Exploration::of(&lock()).preemptions(preemptions).run(programs);
        eprintln!("{} {preemptions}: {n} {:?}", programs.len(), began.elapsed());
    }
}
#[test]
fn a3() {
        let began = std::time::Instant::now();
        let n = Exploration::of(&lock()).preemptions(1).run_abandoned();
        eprintln!("aband: {n} {:?}", began.elapsed());
}
#[test]
fn a4() {
    for (dying, survivor, kind) in [(Mode::Exclusive, X, FaultKind::OwnerDied), (Mode::Exclusive, S, FaultKind::OwnerDied), (Mode::Shared, X, FaultKind::MemberDied), (Mode::Exclusive, X.without_node(), FaultKind::OwnerDied)] {
        let began = std::time::Instant::now();
        Exploration::of(&lock()).preemptions(1).run_death(dying, survivor, kind);
        eprintln!("death {:?}", began.elapsed());
    }
}
#[test]
fn a5() {
    for (programs, preemptions) in [(&[&[X.without_node()][..], &[X]][..], 2),(&[&[X.trying(), S.trying()][..], &[X]][..], 1), (&[&[S.without_node()], &[X.without_node()]], 1), (&[&[X.without_node()], &[S], &[S]], 1)] {
        let began = std::time::Instant::now();
        let n = Exploration::of(&lock()).preemptions(preemptions).run(programs);
        eprintln!("w {} {preemptions}: {n} {:?}", programs.len(), began.elapsed());
    }
}

#[test]
fn searched() {
    Search::of(&lock()).run();
    Search::of(&DedicatedThread::default()).run();
    Search::of(&lock()).deaths().run();
}
