//! The figures, quickly: few repetitions, short time slices.

use clap::Parser;
use onesided_windows::LockDesign;

use super::experiment::{Contention, Experiment, Lock, Unlock};
use super::*;

fn lab() -> Lab {
    let profile = Profile::shipped("infinihost").unwrap().with("slice", 1e6).unwrap();
    Lab { profile, seed: 1, times: 200, origins: vec![1, 2, 7], threads: vec![0, 2, 4], slices: 20 }
}

/// A number or claim of the paper that comes out in another way is to be looked at.
#[test]
fn all_figures_have_their_verdicts() {
    let lab = lab();
    let figures: Vec<_> = FIGURES.iter().map(|(_, figure)| figure(&lab).unwrap()).collect();
    let verdicts = verdicts(&figures);
    let names: Vec<_> = figures.iter().map(|figure| figure.name).collect();
    assert_eq!(names, FIGURES.map(|(name, _)| name));
    assert_eq!(verdicts.len(), 27);
    let unlike: Vec<_> = verdicts.iter().filter(|line| line.verdict != Verdict::Reproduced).collect();
    let unlike: Vec<_> = unlike.iter().map(|line| (line.figure, line.what, line.verdict)).collect();
    let explained = |figure, what| (figure, what, Verdict::Explained);
    assert_eq!(
        unlike,
        [
            explained("jiang-2004-1", "the event-driven thread is worst"),
            explained("jiang-2004-2", "atomics beat threads"),
            explained("jiang-2004-3", "the dedicated thread's time increases with the origins"),
            explained("jiang-2004-4", "test-and-set without backoff, 7 origins"),
            explained("jiang-2004-4", "test-and-set, 7 origins"),
            explained("jiang-2004-4", "MCS, 7 origins"),
        ]
    );
    let text = summary(&lab.profile, &verdicts);
    assert!(text.contains("missed 0 of 26") && text.contains("explained 6 of 26"), "{text}");
}

fn contend(lock: Lock) -> Contention {
    let lab = lab();
    let experiment = Experiment { profile: &lab.profile, lock, unlock: Unlock::AsPaper, seed: 1, times: 30 };
    experiment.contend(7, false).unwrap()
}

/// What is counted are the operations of the shipped locks: tickets are drawn by fetch-adds, and
/// without backoff, a change of the lock alone, there are several times as many attempts.
#[test]
fn the_shipped_locks_run() {
    let words = contend(Lock::Shipped(LockDesign::TestAndSet));
    let tickets = contend(Lock::Shipped(LockDesign::Ticket));
    assert!(words.all.fetch_adds == 0 && tickets.all.fetch_adds > 200, "{words:?}, {tickets:?}");
    let changed = contend(Lock::WithoutBackoff);
    assert!(changed.operations() > 2.0 * words.operations(), "{words:?}, {changed:?}");
}

#[test]
fn the_same_seed_gives_the_same_figure() {
    let text = || FIGURES[3].1(&lab()).unwrap().to_text();
    assert_eq!(text(), text());
}

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

#[test]
fn figures_and_profiles_are_named() {
    let parse = |words: &[&str]| Line::try_parse_from([&["reproduce"], words].concat()).map(|line| line.args);
    assert_eq!(parse(&["jiang-2004-3", "jiang-2004"]).unwrap().figures, ["jiang-2004-3", "jiang-2004"]);
    for wrong in ["jiang", "jiang-2004-7", "jiang-200", ""] {
        assert!(is_wrong(parse(&[wrong])), "{wrong}");
    }
    let with = |words: &[&str]| parse(words).unwrap().profile();
    let one = with(&["--set", "atomic=7"]).unwrap();
    assert_eq!((one.number("atomic"), one.number("latency")), (Some(7.0), Some(2700.0)));
    assert!(with(&["--set", "atom=7"]).is_err() && with(&["--profile", "/dev/null/none"]).is_err());
    assert!(is_wrong(parse(&["--set", "atomic"])) && is_wrong(parse(&["--set", "atomic=x"])));
    assert_eq!(with(&["--profile", "connectx7"]).unwrap().title, "ConnectX-7 NDR");
}

fn is_wrong(parsed: Result<Args, clap::Error>) -> bool {
    parsed.is_err()
}
