//! Stand-ins for jobs: some fail on the way, and the others are measured all the same.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::thread;

use super::*;

fn field(locks: &[LockDesign]) -> Field<'static> {
    Field { fabric: "shm", locks: locks.to_vec(), installed: &[], perftest: None }
}

/// After so many orders.
#[derive(Clone, Copy)]
enum Fate {
    Answers,
    Dies(usize),
    FallsSilent(usize),
    /// Has no such probe.
    LacksPut,
}

/// A rank of a stand-in: every batch takes a millisecond.
fn rank(number: u32, fate: Fate, mut stream: UnixStream) {
    writeln!(stream, "{number}").unwrap();
    let orders = BufReader::new(stream.try_clone().unwrap()).lines();
    for (count, order) in orders.map_while(Result::ok).enumerate() {
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

fn lane<'o>(name: &'static str, fate: Fate, over: &'o AtomicBool) -> Lane<'static, 'o> {
    let door = Door::open().unwrap();
    for number in 0..2 {
        let stream = UnixStream::connect(door.path()).unwrap();
        thread::spawn(move || rank(number, fate, stream));
    }
    let mut subject = Subject::answer(&door, 2, over, || None).unwrap();
    subject.set_limit(Duration::from_millis(300));
    Lane { name, subject, job: None }
}

/// What came of onesided beside a peer of that fate, and what was said.
fn beside(fate: Fate) -> (Result<Vec<Row>, String>, Vec<String>) {
    let over = AtomicBool::new(false);
    let mut lanes = vec![lane(OURS, Fate::Answers, &over), lane("peer", fate, &over)];
    let mut notes = Vec::new();
    let rows = rounds(
        2,
        Effort::Quick,
        &field(&[LockDesign::TestAndSet]),
        &mut lanes,
        &mut |note| notes.push(note),
        &ProgressBar::hidden(),
    );
    (rows, notes)
}

/// Where the peer has values, onesided and the limits having theirs.
fn measured(rows: &[Row]) -> usize {
    assert!(rows.len() > 20, "{rows:?}");
    assert!(rows.iter().all(|row| row.values.contains_key(OURS)), "{rows:?}");
    assert!(rows.iter().any(|row| row.values.contains_key(LIMIT)), "{rows:?}");
    rows.iter().filter(|row| row.values.contains_key("peer")).count()
}

#[test]
fn a_peer_that_dies_is_left_out_and_the_others_go_on() {
    // While the batches are sized, and later.
    for after in [0, 20, 60] {
        let (rows, notes) = beside(Fate::Dies(after));
        assert_eq!(measured(&rows.unwrap()), 0, "after {after} orders");
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].starts_with("peer is left out with 2 ranks: at `"), "{notes:?}");
    }
}

#[test]
fn a_peer_that_falls_silent_is_left_out_when_its_time_is_over() {
    for after in [20, 60] {
        let (rows, notes) = beside(Fate::FallsSilent(after));
        assert_eq!(measured(&rows.unwrap()), 0, "after {after} orders");
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
        let mut lanes = vec![lane(OURS, Fate::Dies(after), &over), lane("peer", Fate::Answers, &over)];
        let why = rounds(
            2,
            Effort::Quick,
            &field(&[LockDesign::Mcs]),
            &mut lanes,
            &mut |note| panic!("{note}"),
            &ProgressBar::hidden(),
        );
        assert!(why.unwrap_err().starts_with("at `"));
    }
}

#[test]
fn each_of_several_locks_stands_beside_the_same_peer() {
    let over = AtomicBool::new(false);
    let mut lanes = vec![lane(OURS, Fate::Answers, &over), lane("peer", Fate::Answers, &over)];
    let locks = [LockDesign::TestAndSet, LockDesign::Mcs];
    let rows =
        rounds(2, Effort::Quick, &field(&locks), &mut lanes, &mut |note| panic!("{note}"), &ProgressBar::hidden());
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
    assert_eq!(puts.count(), 1, "what is no lock's doing is measured once");
}
