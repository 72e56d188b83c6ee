//! The ranks of the other tests: this test binary, started again by `onesided run` with a role.

use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use onesided_fabric::bootstrap::{Job, join};
use onesided_fabric::remote_memory::{Liveness, Patience, Rank, RegionId};
use onesided_fabric::shm::Mapping;
use onesided_fabric::{Any, Fabric, Transport, World};
use onesided_windows::Window;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use self::wrapped::Act;
use crate::support::{DEADLINE, onesided};

/// Prints a line in one write, because some launchers insert their labels between writes.
macro_rules! say {
    ($($text:tt)*) => {
        std::io::Write::write_all(&mut std::io::stderr(), (format!($($text)*) + "\n").as_bytes()).unwrap()
    };
}

mod losses;
mod wrapped;

const ROLE: &str = "ONESIDED_TEST_ROLE";

/// A shell command that runs a role, with this binary as the shell's `$0`. The rank prints on
/// standard error, which becomes the shell's output, because the test harness writes to standard
/// output as well.
const BECOME_A_RANK: &str = "exec \"$0\" --exact ranks::a_rank --nocapture 2>&1 >/dev/null";

/// The same as a child of the shell.
const START_A_RANK: &str = "\"$0\" --exact ranks::a_rank --nocapture 2>&1 >/dev/null";

/// `onesided run` with these options; the ranks run a role below.
pub(crate) fn play(options: &[&str], role: &str) -> Command {
    play_after("", options, role)
}

/// The same, after a few shell commands.
pub(crate) fn play_after(commands: &str, options: &[&str], role: &str) -> Command {
    play_in(&format!("{commands} {BECOME_A_RANK}"), options, role)
}

/// The same in a shell that runs a few commands after the rank's end.
pub(crate) fn play_inside(commands: &str, options: &[&str], role: &str) -> Command {
    play_in(&format!("{START_A_RANK}; {commands}"), options, role)
}

/// The same in the background of a shell that ends with status 0 at SIGUSR1; `by`: a program that starts it.
pub(crate) fn play_behind(by: &str, options: &[&str], role: &str) -> Command {
    play_in(&format!("trap 'exit 0' USR1; {by} {START_A_RANK} & wait; wait"), options, role)
}

/// The same by a program that executes it.
pub(crate) fn play_by(program: &str, options: &[&str], role: &str) -> Command {
    play_in(&format!("exec {program} {START_A_RANK}"), options, role)
}

fn play_in(script: &str, options: &[&str], role: &str) -> Command {
    let mut command = onesided(&[&["run"], options, &["--", "sh", "-c", script]].concat());
    command.arg(std::env::current_exe().unwrap()).env(ROLE, role);
    command
}

/// A process that runs a role without a launcher: the caller sets the variables.
pub(crate) fn plays(role: &str) -> Command {
    plays_after("", role)
}

/// The same, after a few shell commands.
pub(crate) fn plays_after(commands: &str, role: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{commands} {BECOME_A_RANK}")]).arg(std::env::current_exe().unwrap()).env(ROLE, role);
    command
}

/// Not a test: without a role it returns.
#[test]
fn a_rank() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let code = match &*role {
        "exchange" => exchange(&join().unwrap().unwrap()),
        "watch" => watch(&join().unwrap().unwrap()),
        "desert" => join().map(|_| 0).unwrap(),
        "wait for a value" => wait_for_a_value(&join().unwrap().unwrap()),
        "outlive" => outlive(),
        "fail in turn" => fail_in_turn(&join().unwrap().unwrap()),
        "name the dead" => name_the_dead(&join().unwrap().unwrap()),
        "desert alone" => desert_alone(&join().unwrap().unwrap()),
        "rank 0 leaves first" => rank_0_leaves_first(),
        "rank 0 panics" => rank_0_panics(),
        "fail to join" => fail_to_join(),
        "where" => say_where(&join().unwrap().unwrap()),
        "list the dead" => list_the_dead(&join().unwrap().unwrap()),
        "fail to start a world" => fail_to_start_a_world(),
        "print" => print(&join().unwrap().unwrap()),
        "put until it fails" => losses::put_until_it_fails(),
        "go on after a loss" => losses::go_on_after_a_loss(),
        "update under locks" => update_under_locks(),
        "wait for what never comes" => wait_for_what_never_comes(),
        "serve a remote shell" => crate::hosts::rsh::serve(),
        "call a remote shell" => crate::hosts::rsh::call(),
        "wait for all" => wait_for_all(),
        "rank 0 aborts" => abort(&join().unwrap().unwrap(), |_| 0),
        "the last rank aborts" => abort(&join().unwrap().unwrap(), |size| size - 1),
        "a world is aborted" => World::<Any>::init().unwrap().abort(0),
        "hold while the wrapper ends" => wrapped::hold(&Act::WrapperEnds),
        "hold while the wrapper is killed" => wrapped::hold(&Act::WrapperIsKilled),
        "hold without descriptors" => wrapped::hold(&Act::CloseDescriptors),
        "outlast the wrapper" => wrapped::outlast(&Act::WrapperEnds),
        "outlast without descriptors" => wrapped::outlast(&Act::CloseDescriptors),
        "publish without end" => publish_without_end(&join().unwrap().unwrap()),
        _ => panic!("no such role: {role}"),
    };
    std::process::exit(code); // before the test harness prints anything
}

/// Every rank puts a value, gets those of all ranks, and leaves.
fn exchange(job: &Job) -> i32 {
    job.exchange.put(&format!("name/{}", job.rank.0), &job.rank.0.to_le_bytes()).unwrap();
    let all = (0..job.job_segment.size()).map(|rank| job.exchange.get(&format!("name/{rank}"), DEADLINE).unwrap());
    let sum: u32 = all.map(|value| u32::from_le_bytes(value.try_into().unwrap())).sum();
    say!("sum {sum}");
    job.job_segment.leave(job.rank);
    0
}

/// Every rank puts values, gets those of all ranks, prints their sum and each rank's location, and
/// leaves.
fn say_where(job: &Job) -> i32 {
    let size = job.job_segment.size();
    for round in 0..20 {
        job.exchange.put(&format!("big/{}/{round}", job.rank.0), &[round; 2000]).unwrap();
    }
    let all = (0..size).map(|rank| job.exchange.get(&format!("big/{rank}/19"), DEADLINE).unwrap());
    assert!(all.into_iter().all(|value| value == [19; 2000]));
    let hosts: Vec<_> = (0..size).map(|rank| job.host_of(Rank(rank)).to_string()).collect();
    say!("sum {} hosts {}", (0..size).sum::<u32>(), hosts.join(" "));
    job.job_segment.leave(job.rank);
    0
}

/// Prints its process id; and the dead ranks whenever these have changed, once they have been
/// stable for a while.
fn list_the_dead(job: &Job) -> i32 {
    say!("{}", std::process::id());
    let mut said = String::new();
    for _ in 0..300 {
        let dead = || {
            let dead =
                (0..job.job_segment.size()).filter(|rank| job.job_segment.liveness(Rank(*rank)) == Liveness::Dead);
            dead.map(|rank| format!(" {rank}")).collect::<String>()
        };
        let now = dead();
        std::thread::sleep(Duration::from_millis(100));
        if now == dead() && now != said {
            say!("dead{now}");
            said = now;
        }
    }
    0
}

/// Puts, gets and updates in one call each, locally and remotely; prints its progress, and in the
/// end that the data is complete, or the error.
fn update_under_locks() -> i32 {
    let rounds = std::env::var("ONESIDED_TEST_ROUNDS").map_or(100, |rounds| rounds.parse().unwrap());
    let run = || -> Result<(), Box<dyn std::error::Error>> {
        let world = World::<Any>::init()?;
        let window = Window::<u64>::allocate(&world, 32).wait()?;
        for round in 1..=rounds {
            let home = window.locked(((round + u64::from(world.rank())) % u64::from(world.size())) as u32);
            let mut record = [0; 16];
            home.update(0, &mut record, |record| record.iter_mut().for_each(|word| *word += 1)).wait()?;
            assert_eq!(record, [record[0]; 16]);
            home.put(16, &[round; 16]).wait()?;
            home.get(16, &mut record).wait()?;
            assert_eq!(record, [record[0]; 16]);
            if round % 25 == 0 {
                say!("round {round}");
            }
        }
        for rank in 0..world.size() {
            window.locked(rank).flush().wait()?;
        }
        world.barrier().wait()?;
        assert_eq!(window.local().read(0..16), [rounds; 16]);
        Ok(window.close().wait()?)
    };
    match run() {
        Ok(()) => say!("updated {rounds} times"),
        Err(error) => say!("ended by: {error}"),
    }
    0
}

/// Rank 0 waits for a message from rank 1, which sends none, and prints how the wait ended.
fn wait_for_what_never_comes() -> i32 {
    let world = World::<Any>::init().unwrap();
    world.barrier().wait().unwrap();
    say!("{}", std::process::id());
    if world.rank() == 0 {
        let fabric = world.fabric();
        let patience = Patience::on(Rank(1));
        say!(
            "ended by: {}",
            onesided_fabric::block_on(fabric, fabric.transport().unwrap().recv(patience)).unwrap_err()
        );
        std::process::exit(0) // there is no rank to announce the departure to
    }
    while world.is_alive(0) {
        pause();
    }
    std::process::exit(0)
}

fn fail_to_start_a_world() -> i32 {
    say!("{}", World::<Any>::init().unwrap_err());
    0
}

/// Prints many lines once all ranks have joined, and leaves.
fn print(job: &Job) -> i32 {
    for line in 0..20_000 {
        say!("line {line}");
    }
    job.job_segment.leave(job.rank);
    0
}

/// Prints its process id, and which rank it finds dead.
fn watch(job: &Job) -> i32 {
    say!("{}", std::process::id());
    watch_silently(job)
}

/// Rank 0 waits for a value that no rank puts; the others print their process ids and wait to be
/// killed.
fn wait_for_a_value(job: &Job) -> i32 {
    say!("{}", std::process::id());
    if job.rank != Rank(0) {
        std::thread::sleep(DEADLINE);
        return 1;
    }
    let error = job.exchange.get("never", DEADLINE).unwrap_err();
    say!("{error}");
    job.job_segment.leave(job.rank);
    7
}

/// Rank 3 acquires the lock of rank 0 and prints its process id, to be killed. Rank 1 waits for
/// that lock. Then the survivors go on with one another, and even with the memory of the dead rank.
fn outlive() -> i32 {
    let world = World::<Any>::init().unwrap();
    let window = Window::<u64>::allocate(&world, 2).wait().unwrap();
    let me = world.rank();
    let add = |target, place: usize, by| {
        let epoch = window.lock_exclusive(target).wait().unwrap();
        let mut value = [0];
        epoch.get(place, &mut value).wait().unwrap();
        epoch.put(place, &[value[0] + by]).unwrap();
        epoch.unlock().wait().unwrap();
        value[0] + by
    };
    if me == 3 {
        // A rank that is still creating the window would fail, too.
        while window.local().read(1..2) != [3] {
            pause();
        }
        let _held = window.lock_exclusive(0).wait().unwrap();
        say!("{}", std::process::id());
        std::thread::sleep(DEADLINE);
        return 1;
    }
    add(3, 1, 1);
    while world.is_alive(3) {
        std::thread::sleep(Duration::from_millis(1));
    }
    if me == 1 {
        say!("{}", window.lock_exclusive(0).wait().unwrap_err());
    }
    for _ in 0..100 {
        add(2, 0, 1);
        add(3, 0, 1);
    }
    // A barrier would need all ranks.
    add(2, 1, 1);
    while add(2, 1, 0) < 3 {
        pause();
    }
    if me == 2 {
        say!("counted {} and {}", add(2, 0, 0), add(3, 0, 0));
    }
    // The rank whose memory the others use leaves last.
    add(2, 1, 1);
    while me == 2 && window.local().read(1..2) != [6] {
        pause();
    }
    say!("{}", world.barrier().wait().unwrap_err());
    0
}

/// Prints how a barrier ended.
fn wait_for_all() -> i32 {
    let world = World::<Any>::init().unwrap();
    say!("{}", world.barrier().wait().unwrap_err());
    0
}

fn pause() {
    std::thread::sleep(Duration::from_millis(10));
}

/// Rank 2 fails, then rank 1 with another status; rank 0 does not fail.
fn fail_in_turn(job: &Job) -> i32 {
    let dead = |rank| {
        while job.job_segment.liveness(rank) == Liveness::Alive {
            pause();
        }
    };
    match job.rank.0 {
        2 => 42,
        1 => {
            dead(Rank(2));
            43
        }
        _ => {
            dead(Rank(1));
            say!("{:?} {:?}", job.job_segment.liveness(Rank(1)), job.job_segment.liveness(Rank(2)));
            job.job_segment.leave(job.rank);
            0
        }
    }
}

/// Prints its process id, then each rank whose death it detects, until two are left; then requests
/// new memory.
fn name_the_dead(job: &Job) -> i32 {
    say!("{}", std::process::id());
    let ranks = || (0..job.job_segment.size()).map(Rank);
    let mut alive: Vec<_> = ranks().collect();
    while alive.len() > 2 {
        alive.retain(|rank| {
            let dead = job.job_segment.liveness(*rank) == Liveness::Dead;
            if dead {
                say!("{} died", rank.0);
            }
            !dead
        });
        pause();
    }
    if let Err(error) = job.exchange.publish(RegionId(0), &Arc::new(Mapping::create(4096).unwrap())) {
        say!("{error}");
    }
    job.job_segment.leave(job.rank);
    0
}

/// Each prints its process id, and one aborts the job with status 7, when all are there.
fn abort(job: &Job, who: impl Fn(u32) -> u32) -> ! {
    say!("{}", std::process::id());
    let here = |rank: u32| format!("here/{rank}");
    job.exchange.put(&here(job.rank.0), &[]).unwrap();
    let size = job.job_segment.size();
    if job.rank.0 == who(size) {
        (0..size).for_each(|rank| drop(job.exchange.get(&here(rank), DEADLINE).unwrap()));
        job.abort(7);
    }
    loop {
        pause();
    }
}

/// The last rank exits without leaving; the others detect it.
fn desert_alone(job: &Job) -> i32 {
    if job.rank.0 == job.job_segment.size() - 1 {
        std::process::exit(9);
    }
    watch_silently(job)
}

/// Waits for the death of any rank, and prints which.
fn watch_silently(job: &Job) -> i32 {
    let died = loop {
        match job.job_segment.failed_rank() {
            Some(died) => break died,
            None => pause(),
        };
    };
    say!("{died} {:?}", job.job_segment.liveness(died));
    job.job_segment.leave(job.rank);
    0
}

/// The others publish and map one another's memory only after rank 0 has left.
fn rank_0_leaves_first() -> i32 {
    let job = join().unwrap().unwrap();
    if job.rank == Rank(0) {
        say!("{}", std::process::id());
        job.job_segment.leave(job.rank);
        drop(job);
        say!("went");
        return 0;
    }
    while job.job_segment.liveness(Rank(0)) == Liveness::Alive {
        pause();
    }
    job.exchange.publish(RegionId(1), &Arc::new(Mapping::create(4096).unwrap())).unwrap();
    let other = Rank(3 - job.rank.0);
    job.exchange.put(&format!("published/{}", job.rank.0), &[]).unwrap();
    job.exchange.get(&format!("published/{}", other.0), DEADLINE).unwrap();
    job.exchange.fetch(other, RegionId(1)).unwrap();
    say!("mapped");
    std::thread::sleep(Duration::from_millis(500));
    job.job_segment.leave(job.rank);
    0
}

/// Rank 0 catches its panic and goes on without a world; the others print the dead rank.
fn rank_0_panics() -> i32 {
    if std::env::var("PMI_RANK").unwrap() != "0" {
        return name_the_dead(&join().unwrap().unwrap());
    }
    let panic = std::panic::catch_unwind(|| {
        let _world = World::<Any>::init().unwrap();
        panic!("as it should");
    });
    assert!(panic.is_err());
    std::thread::sleep(DEADLINE);
    0
}

fn fail_to_join() -> i32 {
    let error = join().map(|job| job.map(|job| job.rank)).unwrap_err();
    say!("{error}{}", std::error::Error::source(&error).map_or_else(String::new, |source| format!(": {source}")));
    0
}

/// Publishes until the launcher is full, then fetches until this process is. Both must go on as
/// before.
fn publish_without_end(job: &Job) -> i32 {
    let memory = Arc::new(Mapping::create(4096).unwrap());
    let mut regions = (0..).map(RegionId);
    let full = regions.find_map(|region| job.exchange.publish(region, &memory).err()).unwrap();
    say!("publish: {}", full.fault());
    job.exchange.retract(RegionId(0));
    job.exchange.publish(RegionId(0), &memory).unwrap();

    let limit = getrlimit(Resource::Nofile);
    let next = std::fs::File::open("/dev/null").unwrap().as_raw_fd() as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(next), ..limit }).unwrap();
    say!("fetch: {}", job.exchange.fetch(job.rank, RegionId(0)).unwrap_err().fault());
    setrlimit(Resource::Nofile, limit).unwrap();
    job.exchange.fetch(job.rank, RegionId(0)).unwrap();
    job.job_segment.leave(job.rank);
    0
}
