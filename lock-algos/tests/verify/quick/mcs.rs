use crate::right::mcs;
use crate::users::slotted;
use onesided_lock_algos::{Held, Mcs, Mode};
use onesided_lock_kit::ModelMemory;
use onesided_lock_kit::program::region_words;
use onesided_remote_memory::{Fault, FaultKind, Liveness, Rank, RemoteMemory};

use crate::stopped::{ENDLESS, SLOTS, acquire, run};

#[test]
fn searched() {
    super::search(&mcs());
}

#[test]
fn checked() {
    super::check(&mcs(), 2);
}

/// Rank 1, which holds the lock, frees its nodes and lives: it has closed its window. Rank 2 waits
/// for the news of its end, which never come, for a bounded time.
#[test]
fn a_rank_that_only_closed_its_window_keeps_no_other_waiting() {
    let (lock, memory) = (mcs(), ModelMemory::new(3, region_words::<Mcs>(SLOTS)));
    let all: Vec<_> = (0..3).map(|rank| memory.of(rank)).collect();
    let asks = |rank: u32| acquire(&lock, &all[rank as usize], slotted(rank), Mode::Exclusive);
    assert_eq!(run(&memory, &mut asks(1), ENDLESS), Some(Ok(Held::cleanly(Mode::Exclusive))));
    memory.world().memory_goes = true;
    memory.world().kill(Rank(1));
    assert_eq!(all[2].liveness(Rank(1)), Liveness::Alive);
    let left = Fault::of(FaultKind::ParticipantLeft, Rank(1));
    let before = all[2].now();
    assert_eq!(run(&memory, &mut asks(2), 4 * ENDLESS), Some(Ok(Held::after(left, Mode::Exclusive))));
    assert!(all[2].now() - before > 5_000_000_000, "the news of a death may come as late as that");
}
