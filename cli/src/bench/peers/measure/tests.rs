//! Simulated jobs: when some fail, the others are measured all the same.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::thread;

use super::*;

fn setup(locks: &[LockDesign]) -> Setup<'static> {
    Setup { fabric: "shm", locks: locks.to_vec(), installed: &[], suite: Suite::Windows, external: None }
}

/// What a simulated job does, after so many requests.
#[derive(Clone, Copy)]
enum Fate {
    Answers,
    Dies(usize),
    FallsSilent(usize),
    /// Has no such probe.
    LacksPut,
}

/// A rank of a simulated job: every batch takes a millisecond.
fn rank(number: u32, fate: Fate, mut stream: UnixStream) {
    writeln!(stream, "{number}").unwrap();
    let requests = BufReader::new(stream.try_clone().unwrap()).lines();
    for (count, order) in requests.map_while(Result::ok).enumerate() {
        let answer = match fate {
            Fate::Dies(after) if count >= after => return,
            Fate::FallsSilent(after) if count >= after => continue,
            Fate::LacksPut if order.starts_with("put ") => "?",
            _ => "1000000",
        };
        if writeln!(stream, "{answer}").is_err() {
            return;
        }
    }
}

fn participant<'o>(name: &'static str, fate: Fate, over: &'o AtomicBool) -> Participant<'static, 'o> {
    let listener = Listener::open().unwrap();
    for number in 0..2 {
        let stream = UnixStream::connect(listener.path()).unwrap();
        thread::spawn(move || rank(number, fate, stream));
    }
    let mut control = ControlledJob::accept(&listener, 2, over, || None).unwrap();
    control.set_limit(Duration::from_millis(300));
    Participant { name, control, job: None }
}

/// The results of onesided beside a peer of that fate, and the notes.
fn beside(fate: Fate) -> (Result<Vec<Comparison>, String>, Vec<String>) {
    let over = AtomicBool::new(false);
    let mut participants = vec![participant(OURS, Fate::Answers, &over), participant("peer", fate, &over)];
    let mut notes = Vec::new();
    let rows = rounds(
        2,
        Effort::Quick,
        &setup(&[LockDesign::TestAndSet]),
        &mut participants,
        &mut |note| notes.push(note),
        &ProgressBar::hidden(),
    );
    (rows, notes)
}

/// How many rows have values of the peer. All rows have values of onesided.
fn measured(rows: &[Comparison]) -> usize {
    assert!(rows.len() > 20, "{rows:?}");
    assert!(rows.iter().all(|row| row.values.contains_key(OURS)), "{rows:?}");
    assert!(rows.iter().any(|row| row.values.contains_key(LIMIT)), "{rows:?}");
    rows.iter().filter(|row| row.values.contains_key("peer")).count()
}

#[test]
fn a_peer_that_dies_is_left_out_and_the_others_go_on() {
    // During calibration, and later.
    for after in [0, 20, 60] {
        let (rows, notes) = beside(Fate::Dies(after));
        assert_eq!(measured(&rows.unwrap()), 0, "after {after} requests");
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].starts_with("peer is left out with 2 ranks: at `"), "{notes:?}");
    }
}

#[test]
fn a_peer_that_falls_silent_is_left_out_when_its_time_is_over() {
    for after in [20, 60] {
        let (rows, notes) = beside(Fate::FallsSilent(after));
        assert_eq!(measured(&rows.unwrap()), 0, "after {after} requests");
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].contains("no answer within"), "{notes:?}");
    }
}

#[test]
fn a_peer_that_lacks_a_probe_has_the_others() {
    let (rows, notes) = beside(Fate::LacksPut);
    let rows = rows.unwrap();
    let puts = rows.iter().filter(|row| row.benchmark == "put + flush").count();
    assert_eq!(measured(&rows), rows.len() - puts);
    assert_eq!(notes.len(), puts, "{notes:?}");
    assert!(notes.iter().all(|note| note.starts_with("peer has no `put + flush`: ")), "{notes:?}");
}

#[test]
fn without_us_there_is_nothing_to_go_on_with() {
    let over = AtomicBool::new(false);
    for after in [20, 60] {
        let mut participants =
            vec![participant(OURS, Fate::Dies(after), &over), participant("peer", Fate::Answers, &over)];
        let why = rounds(
            2,
            Effort::Quick,
            &setup(&[LockDesign::Mcs]),
            &mut participants,
            &mut |note| panic!("{note}"),
            &ProgressBar::hidden(),
        );
        assert!(why.unwrap_err().starts_with("at `"));
    }
}

#[test]
fn each_of_several_locks_stands_beside_the_same_peer() {
    let over = AtomicBool::new(false);
    let mut participants = vec![participant(OURS, Fate::Answers, &over), participant("peer", Fate::Answers, &over)];
    let locks = [LockDesign::TestAndSet, LockDesign::Mcs];
    let rows = rounds(
        2,
        Effort::Quick,
        &setup(&locks),
        &mut participants,
        &mut |note| panic!("{note}"),
        &ProgressBar::hidden(),
    );
    let rows = rows.unwrap();
    assert_eq!(measured(&rows), rows.len());
    for (benchmark, metrics) in
        [("lock + unlock", 1), ("lock + unlock, contended", 2), ("target waits in a barrier", 1)]
    {
        assert!(!rows.iter().any(|row| row.benchmark == benchmark));
        for lock in locks {
            let name = format!("{benchmark}, {lock}");
            assert_eq!(rows.iter().filter(|row| row.benchmark == name).count(), metrics, "{name}");
        }
    }
    let puts = rows.iter().filter(|row| row.benchmark == "put + flush" && row.size.is_none());
    assert_eq!(puts.count(), 1, "measured once, because it does not depend on the lock");
}
