//! Ranks without a launcher, which meet at a TCP address.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use onesided_fabric::bootstrap::Secret;

use crate::ranks::plays;
use crate::support::{Ended, Running, finish, onesided, start};

/// The address at which the ranks of a test meet, and the file with their secret.
pub(crate) struct Place {
    address: String,
    secret: PathBuf,
}

impl Place {
    fn new() -> Self {
        Self::at(&TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string())
    }

    pub(crate) fn at(address: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let secret = std::env::temp_dir().join(format!("onesided-test-{}-{number}", std::process::id()));
        let place = Self { address: address.to_owned(), secret };
        place.write(&Secret::random());
        place
    }

    fn write(&self, secret: &Secret) {
        let _ = fs::remove_file(&self.secret);
        let mut file = fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(&self.secret).unwrap();
        writeln!(file, "{}", secret.to_hex()).unwrap();
    }

    /// Sets the variables of a command that runs this rank.
    pub(crate) fn set<'c>(&self, command: &'c mut Command, rank: u32, size: u32) -> &'c mut Command {
        command.env("ONESIDED_ADDRESS", &self.address).env("ONESIDED_SECRET_FILE", &self.secret);
        command.env("ONESIDED_RANK", rank.to_string()).env("ONESIDED_SIZE", size.to_string())
    }

    fn start(&self, role: &str, rank: u32, size: u32) -> Running {
        start(self.set(&mut plays(role), rank, size))
    }

    fn start_all(&self, role: &str, size: u32) -> Vec<Running> {
        (0..size).map(|rank| self.start(role, rank, size)).collect()
    }

    /// The error of a rank that cannot join.
    fn failure(&self, rank: u32, size: u32, timeout: &str) -> String {
        let mut command = plays("fail to join");
        let ended = finish(self.set(&mut command, rank, size).env("ONESIDED_JOIN_TIMEOUT", timeout));
        ended.stdout.join("\n")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.secret);
    }
}

fn wait(ranks: Vec<Running>) -> Vec<Ended> {
    ranks.into_iter().map(Running::wait).collect()
}

#[test]
fn an_aborted_job_ends_all_its_processes() {
    for (role, aborts) in [("rank 0 aborts", 0), ("the last rank aborts", 3)] {
        let ended = wait(Place::new().start_all(role, 4));
        // Rank 0 ends the others, and then itself.
        let codes: Vec<_> = ended.iter().map(|ended| ended.status.code()).collect();
        let is_right = |rank: usize| codes[rank] == Some(7) || rank != 0 && rank != aborts && codes[rank].is_none();
        assert!((0..4).all(is_right), "{codes:?}");
    }
}

#[test]
fn the_same_address_serves_one_job_after_another() {
    let place = Place::new();
    for _ in 0..3 {
        let ended = wait(place.start_all("exchange", 3));
        assert!(ended.iter().all(|ended| ended.code() == 0 && ended.stdout == ["sum 3"]), "{ended:?}");
    }
}

#[test]
fn a_wrong_secret_a_missing_rank_and_a_missing_rank_0_are_errors() {
    let place = Place::new();
    let stranger = Place::at(&place.address);
    let zero = place.start("exchange", 0, 2);
    let said = stranger.failure(1, 2, "60");
    assert!(said.contains("is not the job's"), "{said}");
    // Rank 0 goes on, and the right rank 1 still finds it.
    for ended in wait(vec![zero, place.start("exchange", 1, 2)]) {
        assert_eq!((ended.code(), &*ended.stdout), (0, &["sum 1".to_owned()][..]), "{ended:?}");
    }
    let said = place.failure(0, 2, "1");
    assert!(said.ends_with("the deadline passed, waiting for rank 1"), "{said}");
    let said = place.failure(1, 2, "1");
    assert!(said.contains("did not listen in time"), "{said}");
    assert!(place.failure(1, 2, "soon").contains("ONESIDED_JOIN_TIMEOUT"));
    assert!(place.failure(1, 2, "0").contains("ONESIDED_JOIN_TIMEOUT"));
}

#[test]
fn our_own_launcher_and_info_know_a_rendezvous() {
    let place = Place::new();
    let info = finish(place.set(&mut onesided(&["info"]), 1, 3));
    assert!(info.stdout.iter().any(|line| line.contains("rendezvous: rank 1 of 3")), "{info:?}");
    // Its children are ranks of its own job.
    let ended = finish(place.set(&mut crate::ranks::play(&["-n", "2", "--no-label"], "exchange"), 0, 3));
    assert_eq!((ended.code(), &*ended.stdout), (0, &["sum 1".to_owned(), "sum 1".to_owned()][..]), "{ended:?}");
}
