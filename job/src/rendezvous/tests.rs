//! Successful meetings, and callers and listeners that violate the protocol.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::thread::scope;

use onesided_remote_memory::{FaultKind, Liveness};

use super::*;
use crate::client::Client;
use crate::daemon::session::PATIENCE;
use crate::frame::{Frame, VERSION};
use crate::protocol::Refusal;
use crate::rendezvous::frames::{Coming, FromRankZero, with_length};
use crate::{Exchange, Process, Secret, Start, host_name};

const SOON: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(500);

/// An unused port of this host.
fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn place(address: &str, rank: u32, size: u32, secret: &Secret) -> JobCoordinates {
    let (address, rank, secret) = (address.to_owned(), Rank(rank), secret.clone());
    JobCoordinates { address, rank, size, secret, host: host_name::own(), suspect_after: SOON, told_by: "a test" }
}

#[test]
fn ranks_meet_in_whatever_order_they_come() {
    for first in 0..3 {
        let (address, secret) = (free_address(), Secret::random());
        scope(|scope| {
            let start = |rank| {
                let place = place(&address, rank, 3, &secret);
                scope.spawn(move || join(&place, SOON).unwrap())
            };
            let ranks = [first, (first + 1) % 3, (first + 2) % 3].map(|rank| {
                let joining = start(rank);
                std::thread::sleep(Duration::from_millis(80));
                joining
            });
            let jobs = ranks.map(|rank| rank.join().unwrap());
            for job in &jobs {
                assert_eq!(job.job_segment.size(), 3);
                job.exchange.put(&format!("x/{}", job.rank.0), &[7]).unwrap();
            }
            for job in &jobs {
                assert!((0..3).all(|rank| job.exchange.get(&format!("x/{rank}"), SOON).unwrap() == [7]));
            }
            assert!(TcpStream::connect(&address).is_err(), "nobody listens any more");
            jobs.iter().for_each(|job| job.job_segment.leave(job.rank));
        });
    }
}

#[test]
fn a_job_of_one_meets_nobody() {
    let job = join(&place("192.0.2.1:9", 0, 1, &Secret::random()), SOON).unwrap();
    assert_eq!((job.rank, job.job_segment.size()), (Rank(0), 1));
    job.job_segment.leave(job.rank);
}

#[test]
fn who_does_not_come_is_named() {
    let (address, secret) = (free_address(), Secret::random());
    // Only rank 0 knows which rank is missing, and tells the others that have come, one of its host and
    // one of another. Both come within that time, and are told before theirs is over.
    let elsewhere = JobCoordinates { host: [7; 16], ..place(&address, 3, 4, &secret) };
    scope(|scope| {
        let zero = scope.spawn(|| join(&place(&address, 0, 4, &secret), SOON).unwrap_err());
        let one = scope.spawn(|| join(&place(&address, 1, 4, &secret), SOON * 6).unwrap_err());
        let three = scope.spawn(|| join(&elsewhere, SOON * 6).unwrap_err());
        for error in [zero, one, three].map(|rank| rank.join().unwrap()) {
            let fault = error.fault();
            assert_eq!((fault.kind(), fault.rank()), (FaultKind::TimedOut, Some(Rank(2))), "{error}");
        }
    });
    let begin = Instant::now();
    let error = join(&place(&address, 1, 2, &secret), SHORT).unwrap_err();
    assert!(matches!(&error, Error::Join { source: Some(_), .. }), "{error}");
    assert!(error.to_string().contains("did not listen in time"), "{error}");
    assert!((SHORT / 2..SOON).contains(&begin.elapsed()));
}

/// Rank 1 of two, joined, before it asks whether all have arrived.
fn sit_down(place: &JobCoordinates) -> Client {
    let Found::Here(address) = caller::find(place, Instant::now() + SOON).unwrap() else { panic!() };
    let environment = Environment { rank: place.rank, size: place.size, address, secret: place.secret.clone() };
    let client = Client::connect(&environment, "rank 0").unwrap();
    client.job_segment().introduce(place.rank, Process::own());
    client.sit(place.rank).unwrap();
    client.put("join/1", &[]).unwrap();
    client
}

#[test]
fn who_is_slow_joins_although_rank_0_ends_at_once() {
    let (address, secret) = (free_address(), Secret::random());
    scope(|scope| {
        let zero = scope.spawn(|| drop(join(&place(&address, 0, 2, &secret), SOON).unwrap()));
        let slow = sit_down(&place(&address, 1, 2, &secret));
        std::thread::sleep(SHORT);
        slow.get("join/all", SOON).unwrap();
        assert!(!zero.is_finished(), "it serves whoever may still ask");
        slow.job_segment().arrive(Rank(1));
        let begin = Instant::now();
        zero.join().unwrap();
        assert!(begin.elapsed() < head_daemon::SLOW * 4 / 5);
        assert_eq!(slow.job_segment().liveness(Rank(0)), Liveness::Dead, "it did not leave");
    });
}

#[test]
fn who_never_asks_holds_rank_0_for_some_seconds_at_most() {
    let (address, secret) = (free_address(), Secret::random());
    scope(|scope| {
        let zero = scope.spawn(|| drop(join(&place(&address, 0, 2, &secret), SOON).unwrap()));
        let silent = sit_down(&place(&address, 1, 2, &secret));
        let begin = Instant::now();
        zero.join().unwrap();
        assert!((head_daemon::SLOW / 2..SOON).contains(&begin.elapsed()), "{:?}", begin.elapsed());
        drop(silent);
    });
}

#[test]
fn an_address_that_is_not_ones_own_or_no_name_is_an_error() {
    let secret = Secret::random();
    let error = join(&place("192.0.2.1:9000", 0, 2, &secret), SHORT).unwrap_err(); // reserved for documentation
    assert!(error.to_string().contains("listen at 192.0.2.1:9000"), "{error}");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let error = join(&place(&address, 0, 2, &secret), SHORT).unwrap_err();
    assert!(error.to_string().contains("listen at"), "{error}");
}

/// What a caller and rank 0 report when the caller is wrong.
fn wrong_caller(change: impl Fn(&mut JobCoordinates)) -> (Error, Error) {
    let (address, secret) = (free_address(), Secret::random());
    let mut caller = place(&address, 1, 2, &secret);
    change(&mut caller);
    scope(|scope| {
        let zero = scope.spawn(|| join(&place(&address, 0, 2, &secret), SHORT * 4).unwrap_err());
        let caller = join(&caller, SOON).unwrap_err();
        (caller, zero.join().unwrap())
    })
}

#[test]
fn wrong_secrets_ranks_and_sizes_are_refused() {
    let (caller, zero) = wrong_caller(|place| place.secret = Secret::random());
    assert!(matches!(caller, Error::Secret), "{caller}");
    assert_eq!(zero.fault().kind(), FaultKind::TimedOut, "strangers are nobody's business: {zero}");

    let (caller, zero) = wrong_caller(|place| place.size = 3);
    assert!(caller.to_string().contains("ONESIDED_SIZE"), "{caller}");
    assert!(zero.to_string().contains("rank 1 was refused: the job has another number of ranks"), "{zero}");

    let (caller, zero) = wrong_caller(|place| place.rank = Rank(2));
    assert!(caller.to_string().contains("no such rank"), "{caller}");
    assert!(zero.to_string().contains("came as rank 2"), "{zero}");
}

#[test]
fn two_of_one_rank_are_one_too_many() {
    let (address, secret) = (free_address(), Secret::random());
    scope(|scope| {
        let joins: Vec<_> = [0, 1, 1]
            .map(|rank| {
                let place = place(&address, rank, 3, &secret);
                scope.spawn(move || join(&place, SHORT * 4).unwrap_err().to_string())
            })
            .into_iter()
            .collect();
        let said: Vec<_> = joins.into_iter().map(|join| join.join().unwrap()).collect();
        assert!(said[0].contains("rank 2 did not come in time") && said[0].contains("another process"), "{said:?}");
        assert!(said[1..].iter().any(|said| said.contains("another process has joined as this rank")), "{said:?}");
    });
}

/// A process that knows the secret and plays a rank.
fn call(address: &str) -> (TcpStream, [u8; 32]) {
    let begin = Instant::now();
    let stream = loop {
        match TcpStream::connect(address) {
            Ok(stream) => break stream,
            Err(_) => assert!(begin.elapsed() < SOON),
        }
    };
    stream.set_read_timeout(Some(SOON)).unwrap();
    match FromRankZero::decode(&frame(&stream).unwrap()).unwrap() {
        FromRankZero::Greeting { nonce } => (stream, nonce),
        other => panic!("{other:?}"),
    }
}

/// The next frame without its length; `None` if the other side closed.
fn frame(mut stream: &TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("neither an answer nor a close"),
        Err(_) => return None,
    }
    let mut frame = vec![0; u32::from_le_bytes(length) as usize];
    stream.read_exact(&mut frame).unwrap();
    Some(frame)
}

fn coming(secret: &Secret, greeting: &[u8; 32], host: [u8; 16]) -> Coming {
    let mut coming = Coming { rank: Rank(1), size: 2, host, nonce: [5; 32], proof: [0; 32] };
    coming.proof = coming.proof(secret, greeting);
    coming
}

fn refusal(stream: &TcpStream) -> Option<Refusal> {
    frame(stream).map(|frame| match FromRankZero::decode(&frame).unwrap() {
        FromRankZero::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    })
}

/// Runs rank 0 of two while `run` plays the other side. Rank 1 joins at the end, so nothing has
/// disturbed the meeting.
fn beside_rank_0(run: impl FnOnce(&str, &Secret)) {
    let (address, secret) = (free_address(), Secret::random());
    scope(|scope| {
        let zero = scope.spawn(|| join(&place(&address, 0, 2, &secret), 3 * SOON).unwrap());
        run(&address, &secret);
        let one = join(&place(&address, 1, 2, &secret), SOON).unwrap();
        let zero = zero.join().unwrap();
        [zero, one].iter().for_each(|job| job.job_segment.leave(job.rank));
    });
}

#[test]
fn old_proofs_are_refused() {
    beside_rank_0(|address, secret| {
        let (_, old) = call(address);
        for proof_of in [old, [0; 32]] {
            let (mut stream, _) = call(address);
            stream.write_all(&with_length(&coming(secret, &proof_of, host_name::own()))).unwrap();
            assert_eq!(refusal(&stream), Some(Refusal::Secret));
        }
        // The proof covers every field.
        for change in [
            |coming: &mut Coming| coming.rank = Rank(0),
            |coming: &mut Coming| coming.size = 3,
            |coming: &mut Coming| coming.host[0] ^= 1,
            |coming: &mut Coming| coming.nonce[31] ^= 1,
            |coming: &mut Coming| coming.proof[7] ^= 1,
        ] {
            let (mut stream, greeting) = call(address);
            let mut coming = coming(secret, &greeting, host_name::own());
            change(&mut coming);
            stream.write_all(&with_length(&coming)).unwrap();
            assert_eq!(refusal(&stream), Some(Refusal::Secret));
        }
    });
}

#[test]
fn garbage_silence_and_other_versions_do_not_disturb_rank_0() {
    beside_rank_0(|address, secret| {
        let silent: Vec<_> = (0..200).map(|_| TcpStream::connect(address)).collect();
        let (slow, greeting) = call(address);
        (&slow).write_all(&with_length(&coming(secret, &greeting, host_name::own()))[..20]).unwrap(); // and no more
        let mut other_version = with_length(&coming(secret, &greeting, host_name::own()));
        other_version[8] = VERSION as u8 + 1;
        for garbage in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            &[0; 4],
            &[0xff; 300],
            &[1, 0, 0, 0, b'x'],
            &[4, 0, 0, 0, b'1', b'S', b'I', b'D'],
            &other_version,
        ] {
            let (mut stream, _) = call(address);
            stream.write_all(garbage).unwrap();
            // A reset caused by unread input may overtake the refusal.
            assert!(matches!(refusal(&stream), Some(Refusal::Malformed) | None), "{garbage:?}");
        }
        let begin = Instant::now();
        assert!(frame(&slow).is_none(), "who never finishes is dropped");
        assert!(begin.elapsed() < PATIENCE + SOON / 2);
        drop(silent);
    });
}

/// What rank 1 reports if the listener sends this and closes or stays silent.
fn error_after(said: &[u8], then_close: bool, patience: Duration) -> Error {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    scope(|scope| {
        scope.spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.write_all(said);
            if then_close {
                stream.shutdown(std::net::Shutdown::Write).unwrap();
            }
            let _ = stream.read_to_end(&mut Vec::new()); // until the rank gives up
        });
        join(&place(&address, 1, 2, &Secret::random()), patience).unwrap_err()
    })
}

/// Greets the next rank as rank 0 does.
fn greet(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().unwrap();
    let _ = stream.write_all(&with_length(&FromRankZero::Greeting { nonce: [1; 32] }));
    stream
}

/// Answers a rank that was greeted, unless it has gone.
fn answer(mut stream: &TcpStream, secret: &Secret) {
    let Some(coming) = frame(stream) else { return };
    let socket = Name("there".to_owned());
    let proof = Coming::decode(&coming).unwrap().answer(secret, &[1; 32], &socket);
    stream.write_all(&with_length(&FromRankZero::Here { proof, socket })).unwrap();
}

/// A flood of strangers evicts a connection that was greeted and had not sent its hello.
#[test]
fn who_is_driven_out_tries_again() {
    let (listener, secret) = (TcpListener::bind("127.0.0.1:0").unwrap(), Secret::random());
    let place = place(&listener.local_addr().unwrap().to_string(), 1, 2, &secret);
    scope(|scope| {
        scope.spawn(|| {
            for answers in [false, true] {
                let stream = greet(&listener);
                if answers {
                    answer(&stream, &secret);
                }
            }
        });
        let found = caller::find(&place, Instant::now() + SOON);
        drop(TcpStream::connect(&place.address)); // so that the listener ends if the rank has given up
        assert!(matches!(found.unwrap(), Found::Here(socket) if socket == "there"));
    });
}

/// Silent or unused addresses delay the right one only a little.
#[test]
fn silent_addresses_hold_up_nobody() {
    let [silent, other, listener] = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let (secret, nobody) = (Secret::random(), free_address().parse().unwrap());
    let at = |listener: &TcpListener| listener.local_addr().unwrap();
    let place = place("several", 1, 2, &secret);
    let (begin, patience) = (Instant::now(), Duration::from_secs(60));
    scope(|scope| {
        scope.spawn(|| answer(&greet(&listener), &secret));
        let addresses = [at(&silent), at(&other), nobody, at(&listener)];
        let found = caller::find_at_any(&place, &addresses, begin + patience);
        drop(TcpStream::connect(at(&listener))); // so that the listener ends if the rank has given up
        assert!(matches!(found.unwrap(), Found::Here(socket) if socket == "there"));
        assert!(begin.elapsed() < patience / 2, "{:?}", begin.elapsed());
    });
    // If all are silent, the rank's patience limits the wait.
    let late = caller::find_at_any(&place, &[at(&silent), at(&other)], Instant::now() + SHORT).unwrap_err();
    assert!(late.to_string().contains("connect to rank 0"), "{late}");
}

#[test]
fn what_is_no_rank_0_is_a_typed_error() {
    let greeting = with_length(&FromRankZero::Greeting { nonce: [1; 32] });
    let mut other_version = greeting.clone();
    other_version[8] = VERSION as u8 + 1;
    let socket = Name("onesided-false".to_owned());
    let false_answer = with_length(&FromRankZero::Here { proof: [0; 32], socket });
    assert!(matches!(error_after(&[greeting.clone(), false_answer].concat(), false, SOON), Error::Secret));
    let text = |said: &[u8]| error_after(said, false, SOON).to_string();
    assert!(text(&other_version).contains(&format!("version {} of the protocol", VERSION + 1)));
    for garbage in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], &[0; 8], &[3, 0, 0, 0, 1, 2, 3], &[0xff; 400]] {
        assert!(text(garbage).contains("does not speak like rank 0"), "{garbage:?}: {}", text(garbage));
    }
    assert!(text(&[greeting.clone(), greeting.clone()].concat()).contains("does not speak like rank 0"));
    for end in [0, 1, 4, 20, greeting.len() - 1, greeting.len()] {
        let silent = error_after(&greeting[..end], false, SHORT);
        assert_eq!(silent.fault().kind(), FaultKind::TimedOut, "{end}: {silent}");
    }
    for end in [1, 4, 20, greeting.len() - 1, greeting.len()] {
        let closed = error_after(&greeting[..end], true, SOON);
        assert!(matches!(closed, Error::Join { .. }), "{end}: {closed}");
    }
}

#[test]
fn the_environment_names_a_secret_file_that_nobody_else_reads() {
    let directory = std::env::temp_dir().join(format!("onesided-rendezvous-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let write = |name: &str, text: &str, mode| {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let hex = Secret::random().to_hex();
    let good = write("good", &format!("{hex}\n"), 0o600);
    let parse = |changed: &[(&str, &str)]| {
        let mut variables = vec![
            ("ONESIDED_ADDRESS", "localhost:7000"),
            ("ONESIDED_RANK", "1"),
            ("ONESIDED_SIZE", "2"),
            ("ONESIDED_SECRET_FILE", &*good),
        ];
        for change in changed {
            variables.retain(|(name, _)| *name != change.0);
            variables.push(*change);
        }
        Start::parse(|name| {
            let found = variables.iter().find(|(known, value)| *known == name && *value != "unset");
            found.map(|(_, value)| OsString::from(value))
        })
    };
    let Start::Rendezvous(place) = parse(&[("PMI_FD", "3")]).unwrap() else { panic!() };
    assert_eq!((place.rank, place.size, &*place.address), (Rank(1), 2, "localhost:7000"));
    assert_eq!(place.secret.to_hex(), hex);
    let missing = directory.join("missing");
    for (name, value, told) in [
        ("ONESIDED_SECRET_FILE", &*write("open", &hex, 0o640), "chmod 600"),
        ("ONESIDED_SECRET_FILE", &*write("writable", &hex, 0o602), "chmod 600"),
        ("ONESIDED_SECRET_FILE", &*write("short", &hex[1..], 0o600), "64 hexadecimal digits"),
        ("ONESIDED_SECRET_FILE", &*write("empty", "", 0o600), "64 hexadecimal digits"),
        ("ONESIDED_SECRET_FILE", &*write("long", &"ab".repeat(100_000), 0o600), "64 hexadecimal digits"),
        ("ONESIDED_SECRET_FILE", missing.to_str().unwrap(), "cannot be read"),
        ("ONESIDED_SECRET_FILE", directory.to_str().unwrap(), "is no file"),
        ("ONESIDED_SECRET_FILE", "/dev/zero", "is no file"),
        ("ONESIDED_SECRET", &hex, "ONESIDED_SECRET too"),
        ("ONESIDED_ADDRESS", "localhost", "HOST:PORT"),
        ("ONESIDED_ADDRESS", "localhost:0", "HOST:PORT"),
        ("ONESIDED_ADDRESS", "localhost:65536", "HOST:PORT"),
        ("ONESIDED_ADDRESS", "unset", "ONESIDED_ADDRESS is not set"),
        ("ONESIDED_RANK", "2", "ONESIDED_RANK"),
        ("ONESIDED_SIZE", "unset", "ONESIDED_SIZE is not set"),
    ] {
        let error = parse(&[(name, value)]).unwrap_err().to_string();
        assert!(error.contains(told), "{name}={value}: {error}");
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

/// An endless flood of silent strangers does not keep honest ranks out.
#[test]
fn a_flood_of_the_silent_keeps_no_rank_from_coming() {
    let (address, secret) = (free_address(), Secret::random());
    let over = std::sync::atomic::AtomicBool::new(false);
    scope(|scope| {
        let flood = || {
            let mut open = std::collections::VecDeque::new();
            let address = address.parse().unwrap();
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                open.extend(TcpStream::connect_timeout(&address, Duration::from_millis(50)));
                if open.len() > 100 {
                    open.pop_front();
                }
            }
        };
        let rank = |rank| {
            let place = place(&address, rank, 3, &secret);
            scope.spawn(move || join(&place, SOON))
        };
        let zero = rank(0);
        std::thread::sleep(Duration::from_millis(100)); // it listens
        (0..3).for_each(|_| drop(scope.spawn(flood)));
        std::thread::sleep(Duration::from_millis(200));
        let ranks = [zero, rank(1), rank(2)];
        let met: Vec<_> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        met.iter().for_each(|job| job.iter().for_each(|job| job.job_segment.leave(job.rank)));
        assert!(met.iter().all(Result::is_ok), "{met:?}");
    });
}
