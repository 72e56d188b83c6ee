//! The server with honest and hostile clients.

use std::os::fd::AsFd;
use std::time::Instant;

use onesided_remote_memory::{FaultKind, Rank, RegionId};
use proptest::prelude::*;
use rustix::net::RecvFlags;
use rustix::net::sockopt::Timeout;

use super::*;
use crate::Job;
use crate::client::join_as;
use crate::daemon::session::PATIENCE;
use crate::environment::Environment;
use crate::frame::{MAX_FRAME, MAX_VALUE, Name, header};
use crate::protocol::{FromDaemon, FromRank, Nonce, Refusal};
use crate::secret::Side;
use crate::segment::Mapping;
use crate::wire::{Descriptor, Packet};

const SOON: Duration = Duration::from_secs(10);

struct Host {
    server: Server,
    job_segment: Arc<JobSegment>,
    secret: Secret,
}

impl Host {
    fn new(size: u32, regions: usize) -> Self {
        let (job_segment, secret) = (Arc::new(JobSegment::create(size).unwrap()), Secret::random());
        let server = Server::start(Arc::clone(&job_segment), secret.clone(), regions).unwrap();
        Self { server, job_segment, secret }
    }

    fn environment(&self, rank: u32) -> Environment {
        let address = self.server.address().to_owned();
        Environment { rank: Rank(rank), size: self.job_segment.size(), address, secret: self.secret.clone() }
    }

    fn join(&self, rank: u32) -> Job {
        join_as(&self.environment(rank)).unwrap()
    }

    /// A raw connection, and the nonce of its challenge.
    fn stranger(&self) -> (OwnedFd, Nonce) {
        let socket = self.silent();
        match FromDaemon::decode(&hear(&socket).unwrap().frame).unwrap() {
            FromDaemon::Challenge { nonce } => (socket, nonce),
            other => panic!("{other:?}"),
        }
    }

    fn silent(&self) -> OwnedFd {
        let socket = wire::socket(SocketFlags::empty()).unwrap();
        for direction in [Timeout::Recv, Timeout::Send] {
            rustix::net::sockopt::set_socket_timeout(&socket, direction, Some(SOON)).unwrap();
        }
        rustix::net::connect(&socket, &wire::address(self.server.address()).unwrap()).unwrap();
        socket
    }

    fn hello(&self, rank: u32, theirs: &Nonce) -> FromRank {
        let nonce = [7; 32];
        let proof = *self.secret.proof(Side::Rank, Rank(rank), theirs, &nonce).as_bytes();
        FromRank::Hello { rank: Rank(rank), nonce, proof }
    }
}

/// The next packet; `None` once the server has closed. Fails if neither happens.
fn hear(socket: &OwnedFd) -> Option<Packet> {
    match wire::receive(socket) {
        Ok(packet) => packet,
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => None,
        Err(error) => panic!("neither an answer nor a close: {error}"),
    }
}

/// The last frame before the server closes, which it must.
fn last_words(socket: &OwnedFd) -> Option<FromDaemon> {
    let last = hear(socket).map(|packet| FromDaemon::decode(&packet.frame).unwrap());
    if last.is_some() {
        assert!(hear(socket).is_none(), "not closed after {last:?}");
    }
    last
}

#[test]
fn values_and_memory_are_exchanged() {
    let host = Host::new(2, 100);
    let (a, b) = (host.join(0), host.join(1));
    assert_eq!(a.job_segment.size(), 2);
    a.exchange.put("x", b"1").unwrap();
    a.exchange.put("empty", b"").unwrap();
    a.exchange.put("long", &vec![9; MAX_VALUE]).unwrap();
    assert_eq!(b.exchange.get("x", SOON).unwrap(), b"1");
    assert_eq!(b.exchange.get("empty", SOON).unwrap(), b"");
    assert_eq!(b.exchange.get("long", SOON).unwrap(), vec![9; MAX_VALUE]);

    let memory = Arc::new(Mapping::create(4096).unwrap());
    a.exchange.publish(RegionId(5), &memory).unwrap();
    memory.word(8).unwrap().store(42, Ordering::Relaxed);
    let mapped = b.exchange.fetch(Rank(0), RegionId(5)).unwrap();
    assert_eq!(mapped.word(8).unwrap().load(Ordering::Relaxed), 42);
    a.exchange.retract(RegionId(5));
    let error = b.exchange.fetch(Rank(0), RegionId(5)).unwrap_err();
    assert_eq!(error.fault().kind(), FaultKind::NoSuchRegion);
    assert_eq!(mapped.word(8).unwrap().load(Ordering::Relaxed), 42);
}

#[test]
fn two_regions_are_published_both_or_not_at_all() {
    let host = Host::new(2, 10);
    let (a, b) = (host.join(0), host.join(1));
    let memories = [8192, 4096].map(|len| Arc::new(Mapping::create(len).unwrap()));
    let two =
        |first, second| a.exchange.publish_two([(RegionId(first), &memories[0]), (RegionId(second), &memories[1])]);
    let len = |region| b.exchange.fetch(Rank(0), RegionId(region)).map(|memory| memory.len());
    two(1, 2).unwrap();
    assert_eq!((len(1).unwrap(), len(2).unwrap()), (8192, 4096));
    for (first, second, untouched) in [(2, 3, 3), (4, 1, 4)] {
        assert_eq!(two(first, second).unwrap_err().fault().kind(), FaultKind::Refused);
        assert_eq!(len(untouched).unwrap_err().fault().kind(), FaultKind::NoSuchRegion);
    }
    assert_eq!((len(1).unwrap(), len(2).unwrap()), (8192, 4096));
    a.exchange.put("after", b"questions and answers still match").unwrap();
}

#[test]
fn a_get_waits_and_holds_up_nobody() {
    let host = Host::new(3, 10);
    let (a, b, c) = (host.join(0), host.join(1), host.join(2));
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| a.exchange.get("late", SOON).unwrap());
        std::thread::sleep(Duration::from_millis(50));
        b.exchange.put("other", b"o").unwrap();
        assert_eq!(c.exchange.get("other", SOON).unwrap(), b"o");
        assert!(!waiter.is_finished());
        c.exchange.put("late", b"l").unwrap();
        assert_eq!(waiter.join().unwrap(), b"l");
    });
    assert!(begin.elapsed() < SOON / 2, "the put did not wake it");
    let begin = Instant::now();
    let error = a.exchange.get("never", Duration::from_millis(80)).unwrap_err();
    assert_eq!(error.fault().kind(), FaultKind::TimedOut);
    assert!((Duration::from_millis(80)..SOON).contains(&begin.elapsed()));
    assert_eq!(a.exchange.get("other", Duration::ZERO).unwrap(), b"o", "the connection goes on");
}

#[test]
fn a_death_ends_the_wait_for_a_value() {
    let host = Host::new(2, 10);
    let a = host.join(0);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| a.exchange.get("never", SOON).unwrap_err());
        std::thread::sleep(Duration::from_millis(50));
        host.job_segment.declare_dead(Rank(1));
        host.server.wake();
        let fault = waiter.join().unwrap().fault();
        assert_eq!((fault.kind(), fault.rank()), (FaultKind::PeerDied, Some(Rank(1))));
    });
    let fault = a.exchange.fetch(Rank(1), RegionId(3)).unwrap_err().fault();
    assert_eq!((fault.kind(), fault.rank()), (FaultKind::PeerDied, Some(Rank(1))));
}

#[test]
fn memory_of_who_left_goes_and_of_who_died_stays() {
    let host = Host::new(3, 10);
    let (left, died, survivor) = (host.join(0), host.join(1), host.join(2));
    let memory = Arc::new(Mapping::create(4096).unwrap());
    left.exchange.publish(RegionId(1), &memory).unwrap();
    died.exchange.publish(RegionId(1), &memory).unwrap();
    left.job_segment.leave(Rank(0));
    drop(left);
    drop(died);
    host.job_segment.declare_dead(Rank(1));
    let begin = Instant::now();
    let fault = loop {
        match survivor.exchange.fetch(Rank(0), RegionId(1)) {
            Ok(_) => assert!(begin.elapsed() < SOON, "still there"),
            Err(error) => break error.fault(),
        }
    };
    assert_eq!((fault.kind(), fault.rank()), (FaultKind::PeerLeft, Some(Rank(0))));
    survivor.exchange.fetch(Rank(1), RegionId(1)).unwrap();
}

#[test]
fn requests_that_cannot_be_met_are_typed_errors() {
    let host = Host::new(1, 2);
    let job = host.join(0);
    let x = &job.exchange;
    x.put("x", b"1").unwrap();
    assert!(x.put("x", b"2").unwrap_err().to_string().contains("taken"));
    assert_eq!(x.get("x", SOON).unwrap(), b"1");
    for bad in ["", "with space", "n\n", "\u{e9}", &"n".repeat(65)] {
        assert!(matches!(x.put(bad, b""), Err(Error::Join { .. })), "{bad:?}");
        assert!(matches!(x.get(bad, SOON), Err(Error::Join { .. })), "{bad:?}");
    }
    assert!(x.put("big", &vec![0; MAX_VALUE + 1]).unwrap_err().to_string().contains("at most"));

    let memory = Arc::new(Mapping::create(4096).unwrap());
    x.publish(RegionId(1), &memory).unwrap();
    assert_eq!(x.publish(RegionId(1), &memory).unwrap_err().fault().kind(), FaultKind::Refused);
    x.publish(RegionId(2), &memory).unwrap();
    let full = x.publish(RegionId(3), &memory).unwrap_err();
    assert_eq!(full.fault().kind(), FaultKind::NoDescriptors);
    assert!(full.to_string().contains("ulimit"), "{full}");
    x.retract(RegionId(1));
    x.publish(RegionId(3), &memory).unwrap();
    assert_eq!(x.fetch(Rank(77), RegionId(0)).unwrap_err().fault().kind(), FaultKind::NoSuchRank);
    let mut fits = 0;
    while x.put(&format!("v{fits}"), &vec![0; MAX_VALUE]).is_ok() {
        fits += 1;
        assert!(fits < 1000, "no bound");
    }
    assert!(fits > 10);
}

#[test]
fn a_launcher_that_is_gone_is_an_error() {
    let host = Host::new(2, 10);
    let (job, environment) = (host.join(0), host.environment(1));
    drop(host);
    assert!(matches!(job.exchange.put("x", b""), Err(Error::Join { source: Some(_), .. })));
    assert!(matches!(job.exchange.get("x", SOON), Err(Error::Join { .. })));
    let memory = Arc::new(Mapping::create(4096).unwrap());
    assert!(matches!(job.exchange.publish(RegionId(1), &memory), Err(Error::Allocate { .. })));
    assert!(matches!(job.exchange.fetch(Rank(1), RegionId(1)), Err(Error::Open { .. })));
    job.exchange.retract(RegionId(1));
    assert!(matches!(join_as(&environment), Err(Error::Join { source: Some(_), .. })));
}

#[test]
fn whoever_may_not_join_is_told_why_and_gets_nothing() {
    let host = Host::new(2, 10);
    let _first = host.join(0);
    assert!(matches!(join_as(&Environment { secret: Secret::random(), ..host.environment(1) }), Err(Error::Secret)));
    let again = join_as(&host.environment(0)).unwrap_err().to_string();
    assert!(again.contains("another process"), "{again}");
    let outside = join_as(&Environment { rank: Rank(2), size: 3, ..host.environment(0) }).unwrap_err().to_string();
    assert!(outside.contains("no such rank"), "{outside}");
    let other_size = Environment { size: 3, ..host.environment(1) };
    assert!(join_as(&other_size).unwrap_err().to_string().contains("ONESIDED_SIZE"));
}

/// A launcher without the secret is refused: it could pass any memory as the job segment.
#[test]
fn a_false_launcher_is_refused() {
    let address = "onesided-test-false-launcher".to_owned() + &std::process::id().to_string();
    let listener = wire::socket(SocketFlags::empty()).unwrap();
    rustix::net::bind(&listener, &wire::address(&address).unwrap()).unwrap();
    rustix::net::listen(&listener, 1).unwrap();
    let job_segment = JobSegment::create(1).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let socket = rustix::net::accept(&listener).unwrap();
            wire::send(&socket, &FromDaemon::Challenge { nonce: [0; 32] }.encode(), None).unwrap();
            assert!(wire::receive(&socket).unwrap().is_some());
            let welcome = FromDaemon::Welcome { size: 1, proof: [0; 32] };
            wire::send(&socket, &welcome.encode(), Some(job_segment.file())).unwrap();
        });
        let environment = Environment { rank: Rank(0), size: 1, address, secret: Secret::random() };
        assert!(matches!(join_as(&environment), Err(Error::Secret)));
    });
    assert_eq!(job_segment.join(Rank(0)).map_err(|error| error.kind()), Ok(()), "the seat was not touched");
}

#[test]
fn a_replayed_proof_is_worth_nothing() {
    let host = Host::new(2, 10);
    let (_, old) = host.stranger();
    let (socket, _) = host.stranger();
    wire::send(&socket, &host.hello(1, &old).encode(), None).unwrap();
    assert_eq!(last_words(&socket), Some(FromDaemon::Refused(Refusal::Secret)));
    host.join(1);
}

#[test]
fn a_stranger_gets_nothing_before_the_proof() {
    let host = Host::new(2, 10);
    for request in [
        FromRank::Get { name: Name("x".into()), patience_ms: 5 },
        FromRank::Put { name: Name("x".into()), value: Bytes(vec![]) },
        FromRank::Fetch { rank: Rank(0), region: RegionId(0) },
        FromRank::Retract { region: RegionId(0) },
    ] {
        let (socket, _) = host.stranger();
        wire::send(&socket, &request.encode(), None).unwrap();
        assert_eq!(last_words(&socket), Some(FromDaemon::Refused(Refusal::Malformed)), "{request:?}");
    }
    let (a, b) = (host.join(0), host.join(1));
    a.exchange.put("x", b"1").unwrap();
    assert_eq!(b.exchange.get("x", SOON).unwrap(), b"1");
}

#[test]
fn oversized_frames_end_the_connection() {
    let host = Host::new(1, 10);
    let (socket, _) = host.stranger();
    wire::send(&socket, &vec![0x31; MAX_FRAME + 1], None).unwrap();
    assert_eq!(last_words(&socket), Some(FromDaemon::Refused(Refusal::Malformed)));
    host.join(0);
}

/// How many descriptors of this process refer to the same file as `file`.
fn descriptors_of(file: &OwnedFd) -> usize {
    let wanted = rustix::fs::fstat(file).unwrap();
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let same = |entry: std::fs::DirEntry| {
        let stat = rustix::fs::stat(entry.path()).ok()?;
        ((stat.st_dev, stat.st_ino) == (wanted.st_dev, wanted.st_ino)).then_some(())
    };
    open.filter_map(|entry| same(entry.ok()?)).count()
}

#[test]
fn descriptors_that_do_not_belong_are_closed() {
    let host = Host::new(1, 10);
    let file = rustix::fs::memfd_create("stray", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let (stranger, nonce) = host.stranger();
    wire::send(&stranger, &host.hello(0, &nonce).encode(), Some(file.as_fd())).unwrap();
    assert_eq!(last_words(&stranger), Some(FromDaemon::Refused(Refusal::Malformed)));

    let (rank, nonce) = host.stranger();
    wire::send(&rank, &host.hello(0, &nonce).encode(), None).unwrap();
    assert!(matches!(hear(&rank).unwrap().descriptor, Descriptor::One(_)));
    let put = FromRank::Put { name: Name("x".into()), value: Bytes(vec![]) };
    wire::send(&rank, &put.encode(), Some(file.as_fd())).unwrap();
    assert_eq!(last_words(&rank), Some(FromDaemon::Refused(Refusal::Malformed)));
    assert_eq!(descriptors_of(&file), 1);
}

#[test]
fn a_publication_without_memory_is_refused() {
    let host = Host::new(1, 10);
    let (rank, nonce) = host.stranger();
    wire::send(&rank, &host.hello(0, &nonce).encode(), None).unwrap();
    hear(&rank).unwrap();
    wire::send(&rank, &FromRank::Publish { region: RegionId(1) }.encode(), None).unwrap();
    assert_eq!(last_words(&rank), Some(FromDaemon::Refused(Refusal::Malformed)));
}

#[test]
fn silent_connections_are_dropped_and_hold_up_nobody() {
    let serves_beside_them = || {
        let host = Host::new(1, 10);
        let silent: Vec<_> = (0..8).map(|_| host.stranger().0).collect();
        let job = host.join(0);
        job.exchange.put("x", b"1").unwrap();
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        let is_open = |socket| rustix::net::recv(socket, &mut [0_u8; 1][..], flags).is_err();
        let are_open = silent.iter().all(is_open);
        for socket in silent {
            assert!(hear(&socket).is_none());
        }
        assert_eq!(job.exchange.get("x", SOON).unwrap(), b"1", "a rank may be silent");
        are_open
    };
    // On a busy machine their time may be over before.
    assert!((0..5).any(|_| serves_beside_them()));
}

#[test]
fn a_flood_of_connections_is_bounded() {
    let makes_room = || {
        let host = Host::new(2, 10);
        let before = host.join(0);
        let begin = Instant::now();
        let flood: Vec<_> = (0..300).map(|_| host.silent()).collect();
        let after = host.join(1);
        before.exchange.put("x", b"1").unwrap();
        assert_eq!(after.exchange.get("x", SOON).unwrap(), b"1");
        // The oldest connections were evicted: each reads its challenge and then the end.
        for socket in &flood[..200] {
            assert!(hear(socket).is_none() || hear(socket).is_none());
        }
        begin.elapsed() < PATIENCE
    };
    // On a busy machine they may have been dropped for their silence.
    assert!((0..5).any(|_| makes_room()));
}

#[test]
fn a_client_that_breaks_off_harms_nobody() {
    let host = Host::new(2, 10);
    drop(host.silent());
    let (rank, nonce) = host.stranger();
    wire::send(&rank, &host.hello(0, &nonce).encode(), None).unwrap();
    drop(rank); // before it has read the welcome
    assert!(join_as(&host.environment(0)).is_err(), "the seat of the one that broke off stays taken");
}

/// The end of a connection, or of what it says, is no death: its process, which is this one, runs.
#[test]
fn a_connection_that_ends_is_no_death() {
    let host = Host::new(4, 10);
    let survivor = host.join(3);
    for rank in 0..3 {
        let (socket, nonce) = host.stranger();
        wire::send(&socket, &host.hello(rank, &nonce).encode(), None).unwrap();
        hear(&socket).unwrap();
        host.job_segment.join(Rank(rank)).unwrap();
        match rank {
            0 => drop(socket),
            1 => wire::send(&socket, &[0], None).unwrap(), // refused
            _ => rustix::net::shutdown(&socket, rustix::net::Shutdown::Write).unwrap(),
        }
        let name = format!("after {rank}").replace(' ', "-");
        survivor.exchange.put(&name, &[]).unwrap(); // the server has read the above
        survivor.exchange.get(&name, SOON).unwrap();
        assert_eq!(host.job_segment.liveness(Rank(rank)), Liveness::Alive);
    }
    assert_eq!(host.job_segment.failures(), 0);
}

#[test]
fn a_question_before_the_answer_to_the_last_one_breaks_the_rules() {
    let host = Host::new(2, 10);
    let (waiter, nonce) = host.stranger();
    wire::send(&waiter, &host.hello(1, &nonce).encode(), None).unwrap();
    hear(&waiter).unwrap();
    wire::send(&waiter, &FromRank::Get { name: Name("x".into()), patience_ms: u64::MAX }.encode(), None).unwrap();
    wire::send(&waiter, &FromRank::Put { name: Name("x".into()), value: Bytes(vec![]) }.encode(), None).unwrap();
    assert_eq!(last_words(&waiter), Some(FromDaemon::Refused(Refusal::Malformed)));
}

#[test]
fn the_socket_goes_with_the_server() {
    let host = Host::new(1, 10);
    let listed = |address: &str| std::fs::read_to_string("/proc/net/unix").unwrap().contains(address);
    let address = host.server.address().to_owned();
    assert!(listed(&address));
    drop(host);
    assert!(!listed(&address));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a stranger sends, the server closes its connection, at once or later, and serves
    /// honest ranks.
    #[test]
    fn hostile_frames_harm_nobody(frames in proptest::collection::vec(hostile(), 1..6)) {
        let host = Host::new(1, 10);
        let (socket, _) = host.stranger();
        for frame in &frames {
            let _ = wire::send(&socket, frame, None); // it may have closed already
        }
        let said = hear(&socket).map(|packet| FromDaemon::decode(&packet.frame).unwrap());
        prop_assert!(matches!(said, None | Some(FromDaemon::Refused(_))), "{:?}", said);
        let job = host.join(0);
        job.exchange.put("x", b"1").unwrap();
        prop_assert_eq!(job.exchange.get("x", SOON).unwrap(), b"1");
    }
}

fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let signed = (0..8_u8, proptest::collection::vec(any::<u8>(), 0..120))
        .prop_map(|(kind, rest)| [&header(FromRank::PROTOCOL)[..], &[kind], &rest].concat());
    let hello = (0..3_u32, any::<Nonce>(), any::<[u8; 32]>(), 0..80_usize).prop_map(|(rank, nonce, proof, cut)| {
        let mut frame = FromRank::Hello { rank: Rank(rank), nonce, proof }.encode();
        frame.truncate(frame.len().saturating_sub(cut).max(1));
        frame
    });
    prop_oneof![proptest::collection::vec(any::<u8>(), 1..200), signed, hello]
}
