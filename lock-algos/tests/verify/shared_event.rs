//! The race of yu-2004, Fig. 5: one event counts the completions of many operations, and the thread
//! that it wakes resets the count while others complete.

use std::panic::catch_unwind;

use onesided_lock_kit::loom::{block_on, quietly};
use onesided_lock_kit::{Atomics, LoomMemory};
use onesided_remote_memory::{At, Fault, Rank, RegionId, RemoteMemory};

/// How a thread takes the count.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reset {
    /// By a store of 0, as in the figure.
    Stored,
    /// By subtracting the value that it read, with an atomic.
    Subtracted,
}

/// Two ranks complete an operation each and count it; rank 0 waits until it has seen both.
async fn consume(memory: LoomMemory, reset: Reset) -> Result<(), Fault> {
    let count = memory.word(At { rank: Rank(0), region: RegionId(0), offset: 0 })?;
    let mut seen = 0;
    while seen < 2 {
        let found = memory.read(count).await?;
        if found == 0 {
            memory.pause(count, 0).await;
            continue;
        }
        seen += found;
        match reset {
            Reset::Stored => memory.store(count, 0)?,
            Reset::Subtracted => drop(memory.fetch_add(count, found.wrapping_neg()).await?),
        }
    }
    Ok(())
}

fn explore(reset: Reset) {
    loom::model(move || {
        let memory = LoomMemory::new(3, 1, Atomics::All);
        let others = [1, 2].map(|rank| {
            let memory = memory.of(rank);
            loom::thread::spawn(move || {
                let count = memory.word(At { rank: Rank(0), region: RegionId(0), offset: 0 }).unwrap();
                block_on(memory.fetch_add(count, 1)).unwrap();
            })
        });
        block_on(consume(memory.of(0), reset)).unwrap();
        for other in others {
            other.join().unwrap();
        }
    });
}

#[test]
fn an_event_that_is_set_back_by_a_store_loses_completions() {
    explore(Reset::Subtracted);
    let panic = quietly(|| catch_unwind(|| explore(Reset::Stored))).expect_err("nothing is caught");
    let message = panic.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(message.contains("deadlock"), "{message}");
}
