//! Joining by correct and incorrect managers.

mod space;

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle, scope};

use onesided_remote_memory::{FaultKind, Liveness};

use self::space::Space;
use super::*;
use crate::Start;

const SOON: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(300);

fn join_over(stream: UnixStream, rank: u32, size: u32, patience: Duration) -> Result<Job, Error> {
    let until = Instant::now() + patience;
    join_by(Manager::over(stream.into(), until), Rank(rank), size, until)
}

/// A rank that joins by a correct manager.
fn rank_of<'s>(
    space: &'s Space,
    scope: &'s Scope<'s, '_>,
    (rank, size): (u32, u32),
    patience: Duration,
) -> ScopedJoinHandle<'s, Result<Job, Error>> {
    let (ours, theirs) = UnixStream::pair().unwrap();
    scope.spawn(|| space.serve(theirs));
    scope.spawn(move || join_over(ours, rank, size, patience))
}

#[test]
fn ranks_meet_exchange_and_rank_0_goes_last() {
    let space = Space::new(3);
    scope(|scope| {
        let ranks: Vec<_> = (0..3).map(|rank| rank_of(&space, scope, (rank, 3), SOON)).collect();
        let mut jobs: Vec<_> = ranks.into_iter().map(|rank| rank.join().unwrap().unwrap()).collect();
        for job in &jobs {
            assert_eq!(job.job_segment.size(), 3);
            job.exchange.put(&format!("x/{}", job.rank.0), &[job.rank.0 as u8]).unwrap();
        }
        for (job, of) in [(0, 1), (1, 2), (2, 0)] {
            assert_eq!(jobs[job].exchange.get(&format!("x/{of}"), SOON).unwrap(), [of]);
        }
        let (two, one) = (jobs.pop().unwrap(), jobs.pop().unwrap());
        let zero = jobs.pop().unwrap();
        zero.job_segment.leave(zero.rank);
        let last = scope.spawn(move || drop(zero));
        one.job_segment.leave(one.rank);
        drop(one);
        std::thread::sleep(Duration::from_millis(100));
        assert!(!last.is_finished(), "rank 0 went before rank 2");
        two.exchange.put("still", b"there").unwrap();
        // Rank 1 ends without leaving: rank 0 notices the closed connection and stops waiting.
        let job_segment = Arc::clone(&two.job_segment);
        drop(two);
        last.join().unwrap();
        assert_eq!(job_segment.liveness(Rank(2)), Liveness::Dead);
    });
}

#[test]
fn a_rank_that_joins_too_late_is_missed_by_name() {
    // The manager lets all ranks pass its barrier, but rank 2 never joins.
    let space = Space::new(3);
    scope(|scope| {
        let ranks: Vec<_> = (0..2).map(|rank| rank_of(&space, scope, (rank, 3), SHORT * 3)).collect();
        scope.spawn(|| space.barrier.wait());
        let begin = Instant::now();
        let faults = ranks.into_iter().map(|rank| rank.join().unwrap().unwrap_err().fault());
        let faults: Vec<_> = faults.map(|fault| (fault.kind(), fault.rank())).collect();
        assert_eq!(faults, [(FaultKind::TimedOut, Some(Rank(2))); 2]);
        assert!((SHORT * 2..SOON).contains(&begin.elapsed()));
    });
}

#[test]
fn a_barrier_that_nobody_else_enters_has_an_end() {
    let space = Space::new(2);
    scope(|scope| {
        let error = rank_of(&space, scope, (0, 2), SHORT).join().unwrap().unwrap_err();
        assert_eq!(error.fault().kind(), FaultKind::TimedOut, "{error}");
        space.barrier.wait(); // lets the manager's thread end
    });
}

/// What joining as rank 1 of 2 reports if the manager sends this regardless of the requests, then
/// closes or stays silent.
fn error_after(said: &[u8], then_close: bool, patience: Duration) -> Error {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(said).unwrap();
    if then_close {
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
    }
    let begin = Instant::now();
    let error = join_over(ours, 1, 2, patience).unwrap_err();
    assert!(begin.elapsed() < SOON + SOON / 2);
    error
}

const INIT: &str = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
const MAXES: &str = "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n";
const NAME: &str = "cmd=my_kvsname kvsname=k\n";
const PUT: &str = "cmd=put_result rc=0 msg=success\n";
const OUT: &str = "cmd=barrier_out\n";

#[test]
fn nonsense_of_a_manager_is_a_typed_error() {
    let good = [INIT, MAXES, NAME, PUT, OUT].concat();
    let of_value = |value: &str| format!("{good}cmd=get_result rc=0 value={value}\ncmd=finalize_ack\n");
    let secret = Secret::random().to_hex();
    let elsewhere = of_value(&format!("2/{:032x}/onesided-x/{secret}/", 7));
    let refusing = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let gone = of_value(&format!("2/{:032x}/onesided-x/{secret}/{refusing}", 7));
    let nobody = of_value(&format!("2/{:032x}/onesided-nobody/{secret}/", u128::from_be_bytes(host_name::own())));
    for (said, told) in [
        ("\n", "where response_to_init should come"),
        ("garbage without an equals sign\n", "where response_to_init should come"),
        ("cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n", "version 1 of PMI"),
        ("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1\n", "refuses"),
        ("cmd=response_to_init rc=0\n", "version 1 of PMI"),
        (&format!("{INIT}{INIT}"), "where maxes should come"),
        (&format!("{INIT}cmd=maxes vallen_max=-3\n"), "no vallen_max"),
        (&format!("{INIT}{MAXES}cmd=my_kvsname\n"), "no kvsname"),
        (&format!("{good}cmd=get_result rc=-1 msg=key_not_found\n"), "refuses"),
        (&format!("{good}cmd=get_result rc=0\n"), "no value"),
        (&of_value("failed"), "rank 0 could not start"),
        (&of_value("2.x.y.z"), "another version of onesided"),
        (&of_value("2/x/y/z/"), "another version of onesided"),
        (&of_value(&format!("1.{:032x}.onesided-x.{secret}", 7)), "another version of onesided"),
        (&of_value(&format!("2/{:032x}/onesided-x/{secret}/nowhere", 7)), "another version of onesided"),
        (&of_value(""), "another version of onesided"),
        (&of_value(&format!("2/{:032x}/onesided-x/{}/", 7, &secret[1..])), "another version of onesided"),
        (&elsewhere, "no address that leads there"),
        (&gone, "connect to rank 0 at 127.0.0.1:"),
        (&nobody, "connect to rank 0"),
        ("cmd=\u{0}\n", "where response_to_init should come"),
    ] {
        let error = error_after(said.as_bytes(), false, SOON);
        assert!(matches!(error, Error::Join { .. }) && error.to_string().contains(told), "{said:?}: {error}");
    }
    let error = error_after(b"cmd=\xff\xfe\n", false, SOON).to_string();
    assert!(error.contains("no text"), "{error}");
    let error = error_after(&[b'x'; 100_000], false, SOON).to_string();
    assert!(error.contains("a line without end"), "{error}");
}

#[test]
fn a_silent_manager_and_one_that_closes_are_errors_wherever_they_stop() {
    let whole = [INIT, MAXES, NAME, PUT, OUT, "cmd=get_result rc=0 value=failed\n"].concat();
    for end in [0, 1, INIT.len() - 1, INIT.len(), INIT.len() + 5, whole.len() - OUT.len(), whole.len() - 1, whole.len()]
    {
        let silent = error_after(&whole.as_bytes()[..end], false, SHORT);
        assert_eq!(silent.fault().kind(), FaultKind::TimedOut, "{end}: {silent}");
        let closed = error_after(&whole.as_bytes()[..end], true, SOON);
        assert!(matches!(closed, Error::Join { source: Some(_), .. }), "{end}: {closed}");
    }
}

#[test]
fn values_that_the_manager_cannot_keep_are_refused_here() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(format!("{INIT}cmd=maxes vallen_max=64\n{NAME}").as_bytes()).unwrap();
    let error = join_over(ours, 0, 2, SHORT).unwrap_err().to_string();
    assert!(error.contains("less than 64 bytes"), "{error}");
}

/// With `PMI_PORT` the manager tells each process its rank.
#[test]
fn a_port_is_another_way_to_the_manager() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let variables = [("PMI_PORT", address.clone()), ("PMI_ID", "5".to_owned())];
    let Start::Pmi(place) = start(&variables).unwrap() else { panic!() };
    for (said, expected) in [
        ("cmd=initack\ncmd=set size=4\ncmd=set rank=3\ncmd=set debug=0\n", Some((3, 4))),
        ("cmd=initack\ncmd=set size=4\ncmd=set rank=4\ncmd=set debug=0\n", None),
        ("cmd=initack\ncmd=set size=4\ncmd=set size=3\ncmd=set debug=0\n", None),
        ("cmd=initack rc=1\n", None),
    ] {
        scope(|scope| {
            let server = scope.spawn(|| {
                let mut stream = listener.accept().unwrap().0;
                stream.write_all(said.as_bytes()).unwrap();
                let mut line = String::new();
                BufReader::new(stream).read_line(&mut line).unwrap();
                line
            });
            let connected = Manager::connect(&place, Instant::now() + SOON);
            assert_eq!(server.join().unwrap(), "cmd=initack pmiid=5\n");
            assert_eq!(connected.ok().map(|(_, rank, size)| (rank.0, size)), expected, "{said}");
        });
    }
    drop(listener);
    let refused = Manager::connect(&place, Instant::now() + SOON).unwrap_err();
    assert!(refused.to_string().contains("PMI_PORT"), "{refused}");
}

#[test]
fn a_descriptor_that_is_none_is_an_error() {
    let connect = |number| {
        let place = ProcessEnv { contact: Contact::Descriptor(number), rank_and_size: Some((Rank(0), 2)) };
        join(&place, SHORT).unwrap_err().to_string()
    };
    for none in [-1, 1_000_000_000] {
        assert!(connect(none).contains("PMI_FD"), "{none}: {}", connect(none));
    }
    let file = std::fs::File::open("/dev/null").unwrap();
    let error = connect(std::os::fd::AsRawFd::as_raw_fd(&file));
    assert!(error.contains("speak to the process manager"), "{error}"); // no socket
}

fn start(variables: &[(&str, String)]) -> Result<Start, Error> {
    Start::parse(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value)))
}

#[test]
fn the_environment_says_how_to_join() {
    let parse = |text: &str| {
        let pairs = text.split_ascii_whitespace().filter_map(|pair| pair.split_once('='));
        start(&pairs.map(|(key, value)| (key, value.to_owned())).collect::<Vec<_>>())
    };
    let seen = |text: &str| match parse(text).unwrap() {
        Start::Pmi(place) => Some((place.contact, place.rank_and_size)),
        _ => None,
    };
    let by = |number, rank, size| Some((Contact::Descriptor(number), Some((Rank(rank), size))));
    assert_eq!(seen("PMI_FD=9 PMI_RANK=1 PMI_SIZE=2"), by(9, 1, 2));
    assert_eq!(seen("PMI_FD=9 SLURM_PROCID=3 SLURM_NTASKS=4"), by(9, 3, 4));
    // The manager's variables take precedence.
    assert_eq!(seen("PMI_FD=9 PMI_RANK=1 PMI_SIZE=2 SLURM_PROCID=0 SLURM_NTASKS=1"), by(9, 1, 2));
    let secret = Secret::random().to_hex();
    let launched = format!("PMI_FD=9 ONESIDED_RANK=0 ONESIDED_SIZE=2 ONESIDED_ADDRESS=a ONESIDED_SECRET={secret}");
    assert!(matches!(parse(&launched).unwrap(), Start::Launched(_)), "our own launcher goes first");
    // Slurm without a PMI socket, as in a shell in an allocation: there is no job to join.
    assert!(matches!(parse("SLURM_PROCID=0 SLURM_NTASKS=4 PMI_RANK=0").unwrap(), Start::Alone));
    for (bad, named) in [
        ("PMI_FD=9", "PMI_RANK"),
        ("PMI_FD=9 PMI_RANK=1", "PMI_SIZE"),
        ("PMI_FD=9 PMI_RANK=2 PMI_SIZE=2", "PMI_RANK"),
        ("PMI_FD=9 PMI_RANK=-1 PMI_SIZE=2", "PMI_RANK"),
        ("PMI_FD=x PMI_RANK=0 PMI_SIZE=2", "PMI_FD"),
        ("PMI_PORT=localhost:1", "PMI_ID"),
    ] {
        let error = parse(bad).unwrap_err().to_string();
        assert!(error.contains(named), "{bad}: {error}");
    }
}
