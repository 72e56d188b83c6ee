//! Limits so low that something is refused: memory, descriptors, sizes of files, threads. Each step
//! of a job fails once, because the limit rises from nothing until all goes well.

use std::ffi::OsStr;

use onesided::{Error, Messages, Tag, Window, World};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::jobs::{self, Ended};
use crate::support::run_async;

/// Which limit, and how high: `nofile 7 1` for rank 1 alone, `nofile 7` for all ranks.
pub(crate) const LIMIT: &str = "ONESIDED_IT_LIMIT";
/// How many threads each process of a limited job runs as the ranks of a job of its own, if any.
const THREADS: &str = "ONESIDED_IT_THREADS";
/// The program of a limited job's ranks.
pub(crate) const ROLE: &str = "limited";

/// Lowers the limit that the environment names for this rank, if it does.
pub(crate) fn lower() {
    let Ok(text) = std::env::var(LIMIT) else { return };
    let words: Vec<&str> = text.split(' ').collect();
    let rank = std::env::var("ONESIDED_RANK").unwrap();
    if words.get(2).is_some_and(|only| *only != rank) {
        return;
    }
    let value: u64 = words[1].parse().unwrap();
    let (resource, value) = match words[0] {
        "nofile" => (Resource::Nofile, value),
        "fsize" => (Resource::Fsize, value),
        // Beyond what the process uses now.
        "as" => (Resource::As, pages() * 4096 + value),
        "memlock" => {
            // A process that may lock memory has no limit. Requests to Soft-RoCE are refused to a process
            // whose capabilities change while it has the device open.
            let mut sets = capabilities(None).unwrap();
            sets.effective.remove(CapabilitySet::IPC_LOCK);
            sets.permitted.remove(CapabilitySet::IPC_LOCK);
            sets.inheritable.remove(CapabilitySet::IPC_LOCK);
            set_capabilities(None, sets).unwrap();
            (Resource::Memlock, value)
        }
        other => panic!("no limit of the name {other}"),
    };
    // Or the highest that there may be.
    let maximum = getrlimit(resource).maximum;
    let current = Some(maximum.map_or(value, |maximum| value.min(maximum)));
    setrlimit(resource, Rlimit { current, maximum }).unwrap();
}

/// The address space in use.
fn pages() -> u64 {
    std::fs::read_to_string("/proc/self/statm").unwrap().split(' ').next().unwrap().parse().unwrap()
}

/// Everything that takes memory, descriptors or threads: joining, windows of every kind of memory,
/// the first access of each peer, the helper thread, messages.
fn run(world: World) -> Result<(), Error> {
    let next = (world.rank() + 1) % world.size();
    let subworld = world.split(0, world.size() - world.rank()).wait()?;
    subworld.barrier().wait()?;
    let small = Window::<u64>::builder().name("small").allocate(&world, 1000).wait()?;
    small.lock_shared(next).wait()?.put(0, &[1; 1000])?;
    run_async(world.barrier().into_future())?;
    let large = Window::<u64>::builder().name("large").allocate(&world, 1 << 17).wait()?;
    let epoch = large.lock_exclusive(next).wait()?;
    epoch.put(0, &[2; 1 << 17])?;
    epoch.unlock().wait()?;
    large.lock_all().wait()?.at(next).wait()?;
    large.close().wait()?;
    small.close().wait()?;
    // User memory: copies by the kernel or the card, and atomics by the target's helper thread.
    let created = Window::<u64>::builder().name("created").create(&world, vec![0; 1000]).wait()?;
    let epoch = created.lock_exclusive(next).wait()?;
    epoch.put(0, &[3; 1000])?;
    epoch.fetch_add(0, 1).wait()?;
    epoch.unlock().wait()?;
    created.close().wait()?;
    // Attached memory.
    let loans = Window::<u64>::builder().name("loans").dynamic(&world).wait()?;
    loans.attach(vec![4; 1000])?;
    loans.attach_zeroed(1000)?;
    loans.close().wait()?;
    // A long message, by slices and by a vector.
    let (messages, before) = (Messages::new(&world).wait()?, (world.rank() + world.size() - 1) % world.size());
    let sent = vec![5_u64; 1 << 15];
    let send = messages.send(&sent, next, Tag(0));
    assert!(messages.recv::<u64>(before, Tag(0)).wait()?.0 == sent);
    send.wait()?;
    Ok(())
}

/// The program of a limited rank.
pub(crate) fn play() -> ! {
    let outcome = match std::env::var(THREADS) {
        Ok(threads) => {
            let outcomes = onesided::fabric::threads(threads.parse().unwrap(), run);
            outcomes.map_err(Error::from).and_then(|outcomes| outcomes.into_iter().collect())
        }
        Err(_) => World::init().map_err(Error::from).and_then(run),
    };
    let Err(error) = outcome else {
        jobs::ok();
        std::process::exit(0)
    };
    // As a program that returns it from `main`: the error, and the system's message.
    let mut deepest: &dyn std::error::Error = &error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    eprintln!("error: {error}: {deepest}");
    std::process::exit(1)
}

/// A job under a limit: it ends, and each rank prints `ok` or one error.
fn limited(ranks: u32, limit: &str, more: &[(&str, &str)]) -> Ended {
    let ended = {
        let mut variables = vec![(jobs::ROLE, OsStr::new(ROLE)), (LIMIT, OsStr::new(limit))];
        variables.extend(more.iter().map(|(name, value)| (*name, OsStr::new(*value))));
        jobs::start_with(ranks, &variables).wait()
    };
    // Where not even some bytes are left, Rust's own library ends the process, or that of C.
    let ends = ["memory allocation of", "Fatal glibc error", "fatal runtime error"];
    let starved = |line: &String| ends.iter().any(|end| line.contains(end));
    if limit.starts_with("as ") && ended.lines.iter().any(starved) {
        return ended;
    }
    let is_outcome = |line: &&String| line.starts_with("error: ") || line.contains("] error: ") || line.ends_with("ok");
    assert_eq!(ended.lines.iter().filter(is_outcome).count(), ranks as usize, "{limit}: {ended:?}");
    // libibverbs prints a message about files that it cannot open.
    let others = || ended.lines.iter().filter(|line| !is_outcome(line) && !line.contains("] libibverbs: Warning"));
    assert!(ended.code <= 1 && others().all(|line| line.contains("exited with status 1")), "{limit}: {ended:?}");
    ended
}

/// Raises a limit until both ranks succeed; returns what they printed on the way, each line once.
fn sweep(limits: impl Iterator<Item = String>) -> Vec<String> {
    sweep_with(limits, 2, &[])
}

fn sweep_with(limits: impl Iterator<Item = String>, ranks: u32, more: &[(&str, &str)]) -> Vec<String> {
    let mut said = Vec::new();
    for limit in limits {
        let ended = limited(ranks, &limit, more);
        if ended.code == 0 {
            eprintln!("{limit}: all is well");
            return said;
        }
        for line in ended.lines.into_iter().filter(|line| line.contains("error: ")) {
            if !said.contains(&line) {
                eprintln!("{limit}: {line}");
                said.push(line);
            }
        }
    }
    panic!("no limit sufficed: {said:#?}");
}

fn some(said: &[String], what: &str) {
    assert!(said.iter().any(|line| line.contains(what)), "nobody said {what}: {said:#?}");
}

/// What rank 1 lacks is told as its own, by rank 0 too.
fn rank_1_lacks(said: &[String], what: &str) {
    let is_mistaken = |line: &&String| match line.starts_with("[0]") {
        true => [what, "no such region"].iter().any(|what| line.contains(what)) && !line.contains("rank 1: "),
        false => ["memory", "file"].iter().any(|what| line.contains(&format!("rank 0: no {what}"))),
    };
    let mistaken: Vec<_> = said.iter().filter(is_mistaken).collect();
    assert!(mistaken.is_empty(), "{mistaken:#?}");
}

#[test]
fn every_number_of_descriptors() {
    for who in ["", " 1"] {
        let said = sweep((3..80).map(|limit| format!("nofile {limit}{who}")));
        some(&said, "raise `ulimit -n`");
        if who == " 1" {
            rank_1_lacks(&said, "raise `ulimit -n`");
        }
    }
}

#[test]
fn every_size_of_files() {
    let sizes = [0, 1, 4095, 4096, 8000, 8191, 8192, 1 << 16, (1 << 20) - 1, 1 << 20, 1 << 21, 1 << 22, 1 << 24];
    for who in ["", " 1"] {
        let said = sweep(sizes.iter().map(|limit| format!("fsize {limit}{who}")));
        some(&said, "raise `ulimit -f`");
    }
}

#[test]
fn every_size_of_the_address_space() {
    let said = sweep((0..200).map(|limit| format!("as {} 1", limit << 17)));
    some(&said, "no memory");
    rank_1_lacks(&said, "no memory");
}

/// The same by threads, whose stacks take address space as well.
#[test]
fn every_limit_of_threads() {
    let said = sweep_with((0..400).map(|limit| format!("as {}", limit << 17)), 1, &[(THREADS, "4")]);
    some(&said, "start a thread for rank");
    some(&said, "no memory");
    sweep_with((3..80).map(|limit| format!("nofile {limit}")), 1, &[(THREADS, "4")]);
}

/// On verbs registered memory is locked memory. On shared memory none is.
#[test]
fn every_limit_of_locked_memory() {
    // In KiB: where a different step fails on verbs each time (found by smaller steps).
    let all = [0, 64, 256, 320, 1344, 2048, 3072, 4096, 8192, 65536];
    // That each step may fail is seen by descriptors, too.
    let kib: Vec<_> = all.into_iter().step_by(if jobs::is_short_on_cards() { 3 } else { 1 }).collect();
    let said = sweep(kib.iter().map(|limit| format!("memlock {}", limit << 10)));
    if jobs::on_cards() {
        some(&said, "raise `ulimit -l`");
    }
}
