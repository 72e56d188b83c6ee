//! How long until a lock whose owner was killed has an heir.

use std::sync::atomic::Ordering;

use onesided_windows::Window;
use rustix::process::{Signal, getpid, kill_process};

use crate::bench::delay::{await_word, now};
use crate::bench::rank::RankOfBench;
use crate::bench::report::Metric;
use crate::failure::Failure;

// Bare words: which rank has the lock, whether rank 0 has asked for it, when its owner was about to be killed, and whose
// turn it is.
const HELD: u64 = 7;
const ASKED: u64 = 8;
const KILLED_AT: u64 = 9;
const TURN: u64 = 10;

/// All ranks but rank 0 take the lock of rank 0's part in turn and are killed with it, while rank 0 waits for it.
///
/// Bare words lie in memory of the last rank's that the others have mapped: they outlive it.
pub(crate) fn run(rank: &RankOfBench) -> Result<(), Failure> {
    let world = &rank.world;
    let window = Window::<u64>::allocate(world, 8).wait()?;
    world.barrier().wait()?;
    let me = u64::from(world.rank());
    if me > 0 {
        await_word(rank.word(TURN), me);
        let epoch = window.lock_exclusive(0).wait()?;
        rank.word(HELD).store(me, Ordering::Release);
        await_word(rank.word(ASKED), me);
        // Until it waits in earnest.
        std::thread::sleep(std::time::Duration::from_millis(5));
        rank.word(KILLED_AT).store(now(), Ordering::Release);
        kill_process(getpid(), Signal::KILL)?;
        epoch.unlock().wait()?; // not reached
        return Ok(());
    }
    let mut times = Vec::new();
    for victim in 1..u64::from(world.size()) {
        rank.word(TURN).store(victim, Ordering::Release);
        await_word(rank.word(HELD), victim);
        let request = window.lock_exclusive(0).recover();
        rank.word(ASKED).store(victim, Ordering::Release);
        let epoch = request.wait()?;
        let inherited_at = now();
        if epoch.previous_owner().is_none() {
            return Err(format!("the lock was had without being inherited from rank {victim}").into());
        }
        times.push(inherited_at.saturating_sub(rank.word(KILLED_AT).load(Ordering::Acquire)) as f64);
        epoch.unlock().wait()?;
    }
    rank.step()?;
    rank.alone(("lock: owner killed to heir holds", None), Metric::Latency, &times)
}
