//! What the ranks of the other tests do: this test binary, started again by `onesided run`.

use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use fabric::bootstrap::client::{join, join_as};
use fabric::bootstrap::environment::Environment;
use fabric::bootstrap::{Job, Secret};
use fabric::remote_memory::{Liveness, Rank, RegionId};
use fabric::shm::Mapping;
use fabric::{Any, World};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use windows::Window;

use crate::support::{DEADLINE, onesided};

const ROLE: &str = "ONESIDED_TEST_ROLE";

/// Makes a shell, whose `$0` is this binary, a rank that plays. It speaks by standard error, which becomes the shell's
/// output, for the test harness writes to standard output as well.
const BECOME_A_RANK: &str = "exec \"$0\" --exact ranks::a_rank --nocapture 2>&1 >/dev/null";

/// The same of a child of the shell.
const START_A_RANK: &str = "\"$0\" --exact ranks::a_rank --nocapture 2>&1 >/dev/null";

/// `onesided run` with these options, of ranks that play a role below.
pub(crate) fn play(options: &[&str], role: &str) -> Command {
    play_after("", options, role)
}

/// The same, after a few shell commands.
pub(crate) fn play_after(commands: &str, options: &[&str], role: &str) -> Command {
    play_in(&format!("{commands} {BECOME_A_RANK}"), options, role)
}

/// The same in a shell that goes on after the rank's end with a few commands.
pub(crate) fn play_inside(commands: &str, options: &[&str], role: &str) -> Command {
    play_in(&format!("{START_A_RANK}; {commands}"), options, role)
}

fn play_in(script: &str, options: &[&str], role: &str) -> Command {
    let mut command = onesided(&[&["run"], options, &["--", "sh", "-c", script]].concat());
    command.arg(std::env::current_exe().unwrap()).env(ROLE, role);
    command
}

/// No test of its own: without a role it has nothing to do.
#[test]
fn a_rank() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let code = match &*role {
        "exchange" => exchange(&join().unwrap().unwrap()),
        "watch" => watch(&join().unwrap().unwrap()),
        "desert" => join().map(|_| 0).unwrap(),
        "wait for a value" => wait_for_a_value(&join().unwrap().unwrap()),
        "guess the secret" => guess_the_secret(),
        "outlive" => outlive(),
        "fail in turn" => fail_in_turn(&join().unwrap().unwrap()),
        "publish without end" => publish_without_end(&join().unwrap().unwrap()),
        _ => panic!("no such role: {role}"),
    };
    std::process::exit(code); // before the test harness says anything
}

/// Every rank puts a value, gets everybody's, and leaves.
fn exchange(job: &Job) -> i32 {
    job.exchange.put(&format!("name/{}", job.rank.0), &job.rank.0.to_le_bytes()).unwrap();
    let all = (0..job.board.size()).map(|rank| job.exchange.get(&format!("name/{rank}"), DEADLINE).unwrap());
    let sum: u32 = all.map(|value| u32::from_le_bytes(value.try_into().unwrap())).sum();
    eprintln!("sum {sum}");
    job.board.leave(job.rank);
    0
}

/// Says its process, and waits for anybody's death; says whose.
fn watch(job: &Job) -> i32 {
    eprintln!("{}", std::process::id());
    while job.board.casualty().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let died = job.board.casualty().unwrap();
    eprintln!("{died} {:?}", job.board.liveness(died));
    job.board.leave(job.rank);
    0
}

/// Rank 0 waits for a value that nobody puts; the others say their process and wait to be killed.
fn wait_for_a_value(job: &Job) -> i32 {
    eprintln!("{}", std::process::id());
    if job.rank != Rank(0) {
        std::thread::sleep(DEADLINE);
        return 1;
    }
    let error = job.exchange.get("never", DEADLINE).unwrap_err();
    eprintln!("{error}");
    job.board.leave(job.rank);
    7
}

/// Rank 3 takes the lock on rank 0 and says its process, to be killed. Rank 1 waits for that lock; then the survivors go
/// on with one another, and even with the memory of the dead.
fn outlive() -> i32 {
    let world = World::<Any>::init().unwrap();
    let window = Window::<u64>::allocate(&world, 1).unwrap();
    let me = world.rank();
    if me == 3 {
        let _held = window.lock_exclusive(0).wait().unwrap();
        eprintln!("{}", std::process::id());
        std::thread::sleep(DEADLINE);
        return 1;
    }
    while world.is_alive(3) {
        std::thread::sleep(Duration::from_millis(1));
    }
    if me == 1 {
        eprintln!("{}", window.lock_exclusive(0).wait().unwrap_err());
    }
    for target in [2, 3] {
        for _ in 0..100 {
            let epoch = window.lock_exclusive(target).wait().unwrap();
            let mut value = [0];
            epoch.get(0, &mut value).wait().unwrap();
            epoch.put(0, &[value[0] + 1]).unwrap();
            epoch.unlock().unwrap();
        }
    }
    // Rank 2 watches the count in its own part: a barrier would need everybody.
    let sees = |count| (0..1000).any(|_| window.local().read(0..1) == [count] || pause());
    if me == 2 {
        eprintln!("all counted: {}", sees(300));
    }
    eprintln!("{}", world.barrier().wait().unwrap_err());
    0
}

/// Always `false`.
fn pause() -> bool {
    std::thread::sleep(Duration::from_millis(10));
    false
}

/// Rank 2 fails, rank 1 after it and with another status, rank 0 not at all.
fn fail_in_turn(job: &Job) -> i32 {
    let dead = |rank| while job.board.liveness(rank) == Liveness::Alive && !pause() {};
    match job.rank.0 {
        2 => 42,
        1 => {
            dead(Rank(2));
            43
        }
        _ => {
            dead(Rank(1));
            eprintln!("{:?} {:?}", job.board.liveness(Rank(1)), job.board.liveness(Rank(2)));
            job.board.leave(job.rank);
            0
        }
    }
}

fn guess_the_secret() -> i32 {
    let environment = Environment::read().unwrap().unwrap();
    let error = join_as(&Environment { secret: Secret::random(), ..environment }).unwrap_err();
    eprintln!("{error}");
    3
}

/// Until the launcher has no room; then fetches until this process has none. Both must go on as before.
fn publish_without_end(job: &Job) -> i32 {
    let memory = Arc::new(Mapping::create(4096).unwrap());
    let mut regions = (0..).map(RegionId);
    let full = regions.find_map(|region| job.exchange.publish(region, &memory).err()).unwrap();
    eprintln!("publish: {}", full.fault());
    job.exchange.retract(RegionId(0));
    job.exchange.publish(RegionId(0), &memory).unwrap();

    let limit = getrlimit(Resource::Nofile);
    let next = std::fs::File::open("/dev/null").unwrap().as_raw_fd() as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(next), ..limit }).unwrap();
    eprintln!("fetch: {}", job.exchange.fetch(job.rank, RegionId(0)).unwrap_err().fault());
    setrlimit(Resource::Nofile, limit).unwrap();
    job.exchange.fetch(job.rank, RegionId(0)).unwrap();
    job.board.leave(job.rank);
    0
}
