//! Joining a job, with and without the right secret.

use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use crate::ranks::{play, play_after};
use crate::support::{DEADLINE, eventually, finish, runs, script, start};

#[test]
fn ranks_meet() {
    // More ranks than cores.
    let ended = finish(&mut play(&["-n", "9"], "exchange"));
    assert_eq!((ended.code(), &*ended.stderr), (0, ""), "{ended:?}");
    let mut lines = ended.stdout;
    lines.sort();
    assert_eq!(lines, (0..9).map(|rank| format!("[{rank}] sum 36")).collect::<Vec<_>>());
}

#[test]
fn a_wrong_secret_is_refused() {
    let ended = finish(&mut play(&["-n", "2"], "guess the secret"));
    assert_eq!(ended.code(), 3, "{ended:?}");
    assert!(ended.stdout.iter().any(|line| line.contains("is not the job's")), "{ended:?}");
}

fn connect(address: &str) -> OwnedFd {
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(address.as_bytes()).unwrap()).unwrap();
    socket
}

#[test]
fn garbage_connections_do_not_disturb_a_job() {
    // The ranks join after the garbage has arrived.
    let running = start(&mut play_after("echo $ONESIDED_ADDRESS; sleep 1;", &["-n", "3"], "exchange"));
    let addresses = running.line_of_each(3);
    assert!(addresses.iter().all(|address| *address == addresses[0]));
    let garbage: Vec<_> = (0..500_usize)
        .map(|i| {
            let socket = connect(&addresses[0]);
            // Some connections are silent; most of the others are longer or shorter than a
            // greeting. The launcher may have closed the connection.
            if i % 3 > 0 {
                let _ = rustix::net::send(&socket, &vec![i as u8; i * 7 % 200 + 1], SendFlags::NOSIGNAL);
            }
            socket
        })
        .collect();
    let ended = running.wait();
    assert_eq!((ended.code(), &*ended.stderr), (0, ""), "{ended:?}");
    let mut lines = ended.stdout;
    lines.sort();
    assert_eq!(lines, ["[0] sum 3", "[1] sum 3", "[2] sum 3"]);
    drop(garbage);
}

/// The signal that ends a rank with its launcher is set before it runs a single instruction of its
/// own.
#[test]
fn ranks_are_bound_to_the_launcher_from_the_start() {
    let running = start(&mut script(&["-n", "8"], "echo $$; sleep 60"));
    let first: i32 = running.line().split_once("] ").unwrap().1.parse().unwrap();
    drop(running); // kills the launcher while ranks may be starting
    eventually(DEADLINE, "it is gone", || !runs(first));
}
