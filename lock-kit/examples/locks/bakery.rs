//! The bakery: Lamport, *A new solution of Dijkstra's concurrent programming problem*, CACM 17(8),
//! 1974. It needs neither atomic operations nor atomic words.

use onesided_lock_kit::lock_algos::{SimpleLock, SimpleUse};
use onesided_lock_kit::remote_memory::{Fault, Notify, RemoteMemory};

/// Words: whether a rank chooses its number, and its number, for each of up to 8 ranks. One owner a
/// rank at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bakery;

const RANKS: usize = 8;

/// Waits until no rank has a lower number than this one's.
async fn wait<M: RemoteMemory>(lock: &mut SimpleUse<'_, '_, M>, mine: u64) -> Result<(), Fault> {
    let (memory, me) = (lock.memory, lock.owner.rank.index());
    for other in (0..memory.size() as usize).filter(|other| *other != me) {
        while memory.read(lock.word(other)).await? != 0 {
            lock.pause(other).await?;
        }
        loop {
            let number = memory.read(lock.word(RANKS + other)).await?;
            if number == 0 || (number, other) > (mine, me) {
                break;
            }
            lock.pause(RANKS + other).await?;
        }
    }
    Ok(())
}

impl SimpleLock for Bakery {
    const NAME: &'static str = "bakery";
    const WORDS: usize = 2 * RANKS;

    async fn acquire<M: RemoteMemory>(&self, mut lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
        let (memory, me, mut mine) = (lock.memory, lock.owner.rank.index(), 0);
        memory.write(lock.word(me), 1, Notify::No).await?;
        for other in 0..memory.size() as usize {
            mine = memory.read(lock.word(RANKS + other)).await?.max(mine);
        }
        mine += 1;
        memory.write(lock.word(RANKS + me), mine, Notify::No).await?;
        memory.write(lock.word(me), 0, Notify::No).await?;
        let waited = wait(&mut lock, mine).await;
        if waited.is_err() {
            self.release(lock).await?;
        }
        waited
    }

    async fn release<M: RemoteMemory>(&self, lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
        lock.memory.write(lock.word(RANKS + lock.owner.rank.index()), 0, Notify::No).await.map(drop)
    }
}
