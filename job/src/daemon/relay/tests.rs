//! Jobs whose ranks claim to be on several hosts, and hosts that violate the protocol.

mod connections;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::scope;

use onesided_remote_memory::{FaultKind, Liveness, RegionId};

use super::*;
use crate::daemon::tables::{Answer, Put};
use crate::frame::{Frame, MAX_VALUE};
use crate::protocol::{Failure, FromDaemon};
use crate::rendezvous::{JobCoordinates, frames, join};
use crate::segment::Mapping;
use crate::{Job, Secret};

const SOON: Duration = Duration::from_secs(10);
const SUSPECT_SOON: Duration = Duration::from_secs(2);
/// What is found within [`SOON`] was not found by silence.
const UNSUSPECTED: Duration = Duration::from_secs(1000);

fn name(text: &str) -> Name {
    Name(text.to_owned())
}

fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Ranks of this process that claim to be on these hosts.
fn jobs(hosts: &[u8]) -> Vec<Job> {
    let (address, secret) = (free_address(), Secret::random());
    let places = places(&address, &secret, hosts);
    scope(|scope| {
        let joins: Vec<_> = places.iter().map(|place| scope.spawn(|| join(place, SOON).unwrap())).collect();
        joins.into_iter().map(|join| join.join().unwrap()).collect()
    })
}

fn places(address: &str, secret: &Secret, hosts: &[u8]) -> Vec<JobCoordinates> {
    let place = |(rank, host): (u32, &u8)| JobCoordinates {
        address: address.to_owned(),
        rank: Rank(rank),
        size: hosts.len() as u32,
        secret: secret.clone(),
        host: [*host; 16],
        suspect_after: SUSPECT_SOON,
        told_by: "a test",
    };
    (0..).zip(hosts).map(place).collect()
}

/// Ends a job in order: all ranks leave, and each waits for the ranks that it serves.
fn leave(jobs: Vec<Job>) {
    jobs.iter().for_each(|job| job.job_segment.leave(job.rank));
    scope(|scope| {
        jobs.into_iter().for_each(|job| drop(scope.spawn(move || drop(job))));
    });
}

fn eventually(what: &str, condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < SOON, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn hosts_are_numbered_by_their_lowest_ranks_and_values_reach_all() {
    let jobs = jobs(&[7, 3, 7, 1, 3]);
    for job in &jobs {
        let hosts: Vec<_> = (0..5).map(|rank| job.host_of(Rank(rank))).collect();
        assert_eq!((hosts, job.hosts()), (vec![0, 1, 0, 2, 1], 3));
        let silence = [1, 2, 3].map(|rank| job.job_segment.suspect_after(Rank(rank), Rank(0)));
        assert_eq!(silence, [SUSPECT_SOON, Duration::ZERO, SUSPECT_SOON]);
        job.exchange.put(&format!("from/{}", job.rank.0), &[job.rank.0 as u8; 3]).unwrap();
    }
    for job in &jobs {
        for rank in 0..5 {
            assert_eq!(job.exchange.get(&format!("from/{rank}"), SOON).unwrap(), [rank as u8; 3]);
        }
    }
    // A name is unique across hosts, and its value is visible to every rank that was refused it.
    for job in &jobs {
        assert!(job.exchange.put("from/3", b"").unwrap_err().to_string().contains("taken"));
    }
    let big = vec![7; MAX_VALUE];
    jobs[3].exchange.put("big", &big).unwrap();
    assert_eq!(jobs[1].exchange.get("big", SOON).unwrap(), big);
    assert_eq!(jobs[4].exchange.get("never", SUSPECT_SOON).unwrap_err().fault().kind(), FaultKind::TimedOut);
    // Longer than the failure-detection timeout: heartbeats arrive.
    std::thread::sleep(2 * SUSPECT_SOON);
    assert!(jobs.iter().all(|job| job.job_segment.failed_rank().is_none()));
    leave(jobs);
}

#[test]
fn memory_is_shared_on_a_host_and_not_beyond() {
    let jobs = jobs(&[0, 1, 1]);
    let memory = Arc::new(Mapping::create(4096).unwrap());
    jobs[2].exchange.publish(RegionId(4), &memory).unwrap();
    jobs[1].exchange.fetch(Rank(2), RegionId(4)).unwrap();
    assert_eq!(jobs[0].exchange.fetch(Rank(2), RegionId(4)).unwrap_err().fault().kind(), FaultKind::NoSuchRegion);
    leave(jobs);
}

#[test]
fn who_leaves_and_who_dies_is_known_on_all_hosts() {
    let mut jobs = jobs(&[0, 1, 2, 1, 2, 0]);
    jobs[4].job_segment.leave(Rank(4));
    jobs[5].job_segment.leave(Rank(5));
    let survivors: Vec<_> = jobs.iter().map(|job| Arc::clone(&job.job_segment)).collect();
    let all = |rank: u32, liveness| survivors.iter().all(|job_segment| job_segment.liveness(Rank(rank)) == liveness);
    eventually("4 and 5 have left", || all(4, Liveness::Left) && all(5, Liveness::Left));
    drop(jobs.remove(3)); // without leaving
    eventually("3 has died", || all(3, Liveness::Dead));
    assert!(survivors.iter().all(|job_segment| job_segment.failed_rank() == Some(Rank(3))));
    // Waits for values fail after a death.
    let fault = jobs[2].exchange.get("never", SOON).unwrap_err().fault();
    assert_eq!((fault.kind(), fault.rank()), (FaultKind::PeerDied, Some(Rank(3))));
    leave(jobs);
}

/// A host tells of a rank that ended without joining as of no other end.
#[test]
fn who_never_joined_is_known_on_all_hosts() {
    let (mut host, mut tables, mut head) = host_of_a_played_hub();
    assert!(tables.job_segment().end_unjoined(Rank(1), true));
    host.turn(&mut tables);
    let said: Vec<_> = std::iter::from_fn(|| head.hear().ok().flatten()).filter(|said| *said != Said::Beat).collect();
    assert_eq!(said, [Said::Status { rank: Rank(1), gone: Gone::NeverJoined }]);
    beside(SUSPECT_SOON, |mut link, jobs| {
        link.say(&Said::Status { rank: Rank(2), gone: Gone::NeverJoined });
        link.flush().unwrap();
        let known = |job: &Job| job.job_segment.liveness(Rank(2)) == Liveness::NeverJoined;
        eventually("it is known", || jobs.iter().all(known));
    });
}

#[test]
fn a_keeper_goes_after_its_host_and_rank_0_last() {
    let mut jobs = jobs(&[0, 1, 1]);
    jobs.iter().take(2).for_each(|job| job.job_segment.leave(job.rank));
    let last = jobs.pop().unwrap();
    scope(|scope| {
        let going: Vec<_> = jobs.into_iter().map(|job| scope.spawn(move || drop(job))).collect();
        std::thread::sleep(2 * SUSPECT_SOON);
        assert!(!going.iter().any(|going| going.is_finished()));
        last.exchange.put("still", b"kept").unwrap();
        last.job_segment.leave(last.rank);
        eventually("both go", || going.iter().all(|going| going.is_finished()));
    });
    assert_eq!(last.job_segment.failed_rank(), None);
}

/// Rank 0 with rank 1 on another host, and rank 2, played by the test, on a third, whose silence is
/// suspected after this time.
fn beside(silence: Duration, play: impl FnOnce(RelayStream, &[Job])) {
    let (address, secret) = (free_address(), Secret::random());
    let mut places = places(&address, &secret, &[0, 1, 2]);
    places.iter_mut().for_each(|place| place.suspect_after = silence);
    scope(|scope| {
        let joins = [0, 1].map(|rank| {
            let place = &places[rank];
            scope.spawn(move || join(place, SOON).unwrap())
        });
        let mut link = come(&places[2]);
        link.say(&Said::Ready { socket: name("none") });
        link.say(&Said::Put { ticket: 0, name: name("join/2"), value: Bytes(vec![]) });
        let joined = loop {
            match link.hear_until(Instant::now() + SOON).unwrap() {
                Said::Value { name, .. } if name.0 == "join/all" => break joins.map(|join| join.join().unwrap()),
                Said::Beat | Said::Value { .. } | Said::Stored { outcome: Ok(()), .. } => {}
                other => panic!("{other:?}"),
            }
        };
        play(link, &joined);
        for job in &joined {
            eventually("the third host is gone", || job.job_segment.liveness(Rank(2)) != Liveness::Alive);
            assert_eq!(job.job_segment.liveness(Rank(1 - job.rank.0)), Liveness::Alive);
        }
        leave(joined.into());
    });
}

/// A rank that has contacted rank 0 and waits for its answer.
fn wait_to_keep(place: &JobCoordinates) -> (TcpStream, frames::Coming, [u8; 32]) {
    let stream = loop {
        match TcpStream::connect(&place.address) {
            Ok(stream) => break stream,
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let frames::FromRankZero::Greeting { nonce } = from_rank_0(&stream) else { panic!() };
    let JobCoordinates { rank, size, host, secret, .. } = place;
    let mut coming = frames::Coming { rank: *rank, size: *size, host: *host, nonce: [4; 32], proof: [0; 32] };
    coming.proof = coming.proof(secret, &nonce);
    (&stream).write_all(&frames::with_length(&coming)).unwrap();
    (stream, coming, nonce)
}

fn from_rank_0(mut stream: &TcpStream) -> frames::FromRankZero {
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut frame = vec![0; u32::from_le_bytes(length) as usize];
    stream.read_exact(&mut frame).unwrap();
    frames::FromRankZero::decode(&frame).unwrap()
}

/// A rank that contacts rank 0 and is told to serve its host.
fn come(place: &JobCoordinates) -> RelayStream {
    let (stream, coming, nonce) = wait_to_keep(place);
    let secret = &place.secret;
    assert_eq!(from_rank_0(&stream), frames::FromRankZero::Keep { proof: coming.keep(secret, &nonce) });
    let mut link = RelayStream::new(Stream::Socket(stream.into()), End::Host, secret, &nonce, &[4; 32]).unwrap();
    let Said::Layout(layout) = link.hear_until(Instant::now() + SOON).unwrap() else { panic!() };
    assert_eq!((layout.head, &*layout.hosts), (Some(0), &[0, 1, 2][..]));
    link
}

/// A rank of another host waits for its answer. If it ends before that, another may take its place.
#[test]
fn a_rank_that_goes_while_it_waits_may_come_again() {
    let (address, secret) = (free_address(), Secret::random());
    let places = places(&address, &secret, &[0, 1, 2]);
    scope(|scope| {
        let zero = scope.spawn(|| join(&places[0], SOON).unwrap());
        for _ in 0..2 {
            drop(wait_to_keep(&places[1]));
            std::thread::sleep(SUSPECT_SOON / 4);
        }
        let others = [1, 2].map(|rank| {
            let place = &places[rank];
            scope.spawn(move || join(place, SOON).unwrap())
        });
        let [one, two] = others.map(|join| join.join().unwrap());
        leave(vec![zero.join().unwrap(), one, two]);
    });
}

fn dead(job: &Job) -> bool {
    job.job_segment.liveness(Rank(2)) == Liveness::Dead && job.job_segment.failed_rank() == Some(Rank(2))
}

#[test]
fn a_host_whose_stream_ends_is_dead() {
    beside(UNSUSPECTED, |link, jobs| {
        drop(link);
        eventually("dead", || jobs.iter().all(dead));
    });
}

#[test]
fn a_host_that_is_silent_is_dead_and_not_before_its_time() {
    beside(SUSPECT_SOON, |link, jobs| {
        let begin = Instant::now();
        eventually("dead", || jobs.iter().all(dead));
        assert!((SUSPECT_SOON / 2..SOON).contains(&begin.elapsed()), "{:?}", begin.elapsed());
        drop(link);
    });
}

#[test]
fn a_host_that_says_bye_while_its_ranks_live_is_dead() {
    beside(SUSPECT_SOON, |mut link, jobs| {
        link.say(&Said::Bye);
        link.flush().unwrap();
        eventually("dead", || jobs.iter().all(dead));
        loop {
            match link.hear_until(Instant::now() + SOON) {
                Ok(Said::Bye) => break,
                Ok(_) => {}
                Err(error) => panic!("{error}"),
            }
        }
    });
}

#[test]
fn what_a_host_may_not_say_ends_its_stream() {
    let value = |text| Said::Value { name: name(text), value: Bytes(vec![]) };
    for said in [
        Said::Status { rank: Rank(1), gone: Gone::Dead },
        Said::Status { rank: Rank(0), gone: Gone::Left },
        Said::Status { rank: Rank(3), gone: Gone::Dead },
        Said::Status { rank: Rank(u32::MAX), gone: Gone::Dead },
        Said::LostConnection { one: Rank(0), other: Rank(1), round: 1 },
        Said::LostConnection { one: Rank(1), other: Rank(1), round: 1 },
        Said::LostConnection { one: Rank(2), other: Rank(3), round: 1 },
        Said::LostConnection { one: Rank(u32::MAX), other: Rank(2), round: 1 },
        Said::Stored { ticket: 0, outcome: Ok(()) },
        Said::Ready { socket: name("again") },
        Said::Layout(Layout { suspect_after_ms: 1, head: None, hosts: vec![] }),
        Said::Control(Bytes(vec![1, 2, 3])),
        value("x"),
    ] {
        beside(UNSUSPECTED, |mut link, jobs| {
            link.say(&said);
            link.flush().unwrap();
            eventually(&format!("dead after {said:?}"), || jobs.iter().all(dead));
        });
    }
}

/// Two connected streams, and access to the bytes from the host to the head.
fn pair() -> (RelayStream, RelayStream, TcpStream, TcpStream) {
    let secret = Secret::random();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connect = || {
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one, listener.accept().unwrap().0)
    };
    let ((host, from_host), (to_head, head)) = (connect(), connect());
    let link = |stream: TcpStream, end| {
        RelayStream::new(Stream::Socket(stream.into()), end, &secret, &[1; 32], &[2; 32]).unwrap()
    };
    (link(host, End::Host), link(head, End::Head), from_host, to_head)
}

/// The head's end of a stream, and the host's.
fn linked(secret: &Secret) -> (RelayStream, RelayStream) {
    let (head, host) = std::os::unix::net::UnixStream::pair().unwrap();
    let link = |stream: std::os::unix::net::UnixStream, end| {
        RelayStream::new(Stream::Socket(stream.into()), end, secret, &[1; 32], &[2; 32]).unwrap()
    };
    (link(head, End::Head), link(host, End::Host))
}

/// A host that is ready receives heartbeats while another is not, often enough not to suspect the
/// head.
#[test]
fn who_is_ready_is_not_left_in_silence() {
    let secret = Secret::random();
    let ((mut first, mut ready), (mut second, _silent)) = (linked(&secret), linked(&secret));
    ready.say(&Said::Ready { socket: name("there") });
    ready.flush().unwrap();
    let until = Instant::now() + Duration::from_secs(1);
    let late = hear_ready(&mut [&mut first, &mut second], Duration::from_millis(100), until).unwrap_err();
    assert_eq!(late.0, 1);
    let beats = std::iter::from_fn(|| ready.hear().unwrap()).filter(|said| *said == Said::Beat).count();
    assert!(beats > 0, "none in ten times as long as it waits for one"); // how many, a busy machine decides
}

#[test]
fn a_changed_repeated_or_missing_frame_is_found() {
    let frames = [Said::Beat, Said::Status { rank: Rank(2), gone: Gone::Left }, Said::Beat];
    let lengths: Vec<_> = frames.iter().map(|said| said.encode().len() + 36).collect();
    let total: usize = lengths.iter().sum();
    let run = |change: &dyn Fn(Vec<u8>) -> Vec<u8>| {
        let (mut host, mut head, mut from_host, mut to_head) = pair();
        frames.iter().for_each(|said| host.say(said));
        host.flush().unwrap();
        let mut bytes = vec![0; total];
        from_host.read_exact(&mut bytes).unwrap();
        to_head.write_all(&change(bytes)).unwrap();
        drop(to_head);
        let mut heard = 0;
        loop {
            match head.hear_until(Instant::now() + SOON) {
                Ok(said) => assert_eq!(said, frames[heard]),
                Err(lost) => return (heard, lost),
            }
            heard += 1;
        }
    };
    assert!(matches!(run(&|bytes| bytes), (3, Lost::Ended)));
    for at in 0..total {
        let (heard, lost) = run(&|mut bytes| {
            bytes[at] ^= 0x10;
            bytes
        });
        let first = lengths
            .iter()
            .scan(0, |sum, len| {
                *sum += len;
                Some(*sum)
            })
            .position(|end| at < end)
            .unwrap();
        // A larger length waits for bytes that never come.
        assert!(heard == first && matches!(lost, Lost::Forged | Lost::Ended), "{at}: {heard} {lost}");
    }
    assert!(matches!(run(&|bytes| bytes[lengths[0]..].to_vec()), (0, Lost::Forged)), "one is left out");
    let twice = |bytes: Vec<u8>| [&bytes[..lengths[0]], &bytes].concat();
    assert!(matches!(run(&twice), (1, Lost::Forged)), "one is repeated");
}

#[test]
fn a_frame_of_one_side_is_none_of_the_other() {
    let (mut host, _hub, from_host, to_head) = pair();
    drop(to_head);
    let mut reader = from_host;
    host.say(&Said::Beat);
    host.flush().unwrap();
    let mut bytes = vec![0; Said::Beat.encode().len() + 36];
    reader.read_exact(&mut bytes).unwrap();
    reader.write_all(&bytes).unwrap(); // back to where it came from
    assert!(matches!(host.hear_until(Instant::now() + SOON), Err(Lost::Forged)));
}

#[test]
fn a_flood_of_garbage_is_dropped_at_its_first_frame() {
    let (_host, mut head, _from_host, mut to_head) = pair();
    let flood = std::thread::spawn(move || while to_head.write_all(&[0x5a; 64 << 10]).is_ok() {});
    assert!(matches!(head.hear_until(Instant::now() + SOON), Err(Lost::Forged)));
    drop(head);
    flood.join().unwrap();
}

#[test]
fn the_patience_with_a_host_is_read_from_the_environment() {
    assert_eq!(suspect_after(None).unwrap(), SUSPECT);
    assert_eq!(suspect_after(Some("0.25".into())).unwrap(), Duration::from_millis(250));
    for wrong in ["", "0", "-1", "soon", "nan", "inf", "0.01", "1e9"] {
        assert!(suspect_after(Some(wrong.into())).unwrap_err().to_string().contains(SUSPECT_AFTER), "{wrong}");
    }
}

/// Frames left after a turn do not make the socket readable again.
#[test]
fn frames_that_are_left_after_a_turn_are_heard_at_once() {
    let secret = Secret::random();
    let (head, mut host) = linked(&secret);
    let job_segment = Arc::new(crate::segment::JobSegment::create(2).unwrap());
    let mut tables = Tables::new(Arc::clone(&job_segment), secret.clone(), 8);
    let mut head = ControlRelay::head(vec![(1, head)], SOON, None);
    head.turn(&mut tables); // sends its heartbeat
    (0..A_TURN).for_each(|_| host.say(&Said::Beat));
    host.flush().unwrap();
    head.turn(&mut tables);
    assert!(head.deadline() > Some(Instant::now()), "nothing is left");
    (0..=A_TURN).for_each(|_| host.say(&Said::Beat));
    host.flush().unwrap();
    head.turn(&mut tables);
    assert!(head.deadline() <= Some(Instant::now()), "one is left");
    head.turn(&mut tables);
    assert!(head.deadline() > Some(Instant::now()));
}

/// A host's relay, and the head's end of its stream, which the test plays.
fn host_of_a_played_hub() -> (ControlRelay, Tables, RelayStream) {
    let secret = Secret::random();
    let (head, host) = linked(&secret);
    let job_segment = Arc::new(crate::segment::JobSegment::create(2).unwrap());
    job_segment.place(Rank(1), 1);
    let mut tables = Tables::new(job_segment, secret.clone(), 8);
    tables.relay(false);
    let layout = Layout { suspect_after_ms: 10_000, head: Some(0), hosts: vec![0, 1] };
    (ControlRelay::host(1, host, &layout, None), tables, head)
}

/// The head may end right after its answer: both arrive in one turn, before the requester looks.
#[test]
fn what_the_hub_answered_holds_although_it_is_gone() {
    for says_bye in [true, false] {
        let (mut host, mut tables, mut head) = host_of_a_played_hub();
        let Put::Requested(first) = tables.put_by_rank(name("join/1"), Bytes(vec![])) else { panic!() };
        let Put::Requested(second) = tables.put_by_rank(name("taken"), Bytes(vec![])) else { panic!() };
        let Put::Requested(unheard) = tables.put_by_rank(name("unheard"), Bytes(vec![])) else { panic!() };
        host.turn(&mut tables);
        head.say(&Said::Value { name: name("join/1"), value: Bytes(vec![]) });
        head.say(&Said::Stored { ticket: first, outcome: Ok(()) });
        head.say(&Said::Stored { ticket: second, outcome: Err(Failure::NameTaken) });
        head.say(&Said::Value { name: name("join/all"), value: Bytes(vec![]) });
        if says_bye {
            head.say(&Said::Bye);
        }
        head.flush().unwrap();
        drop(head);
        host.turn(&mut tables);
        assert_eq!(tables.job_segment().liveness(Rank(0)), Liveness::Dead);
        let mut stored = |ticket| match tables.stored(ticket) {
            Some(Answer::Say(said)) => said,
            other => panic!("{other:?}"),
        };
        assert_eq!(stored(first), FromDaemon::Done);
        assert_eq!(stored(second), FromDaemon::Failed(Failure::NameTaken));
        assert_eq!(stored(unheard), FromDaemon::Failed(Failure::PeerDied(Rank(0))));
        assert!(matches!(tables.value(&name("join/all"), false), Some(Answer::Say(FromDaemon::Value(_)))));
        assert!(matches!(tables.put_by_rank(name("later"), Bytes(vec![])), Put::Done(Err(Failure::PeerDied(Rank(0))))));
    }
}
