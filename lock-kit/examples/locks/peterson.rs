//! Peterson, *Myths about the mutual exclusion problem*, Information Processing Letters 12(3), 1981.

use onesided_lock_kit::lock_algos::{SimpleLock, SimpleUse};
use onesided_lock_kit::remote_memory::{Fault, Notify, RemoteMemory};

/// Words: whether rank 0 and rank 1 want the lock, and which of them waits if both do. Two ranks, one
/// owner of each at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peterson;

impl SimpleLock for Peterson {
    const NAME: &'static str = "Peterson";
    const WORDS: usize = 3;

    fn is_free(home: &[u64]) -> bool {
        home[..2] == [0, 0]
    }

    async fn acquire<M: RemoteMemory>(&self, mut lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
        let (memory, me) = (lock.memory, lock.owner.rank.index());
        let (other, turn) = (lock.word(1 - me), lock.word(2));
        memory.write(lock.word(me), 1, Notify::No).await?;
        memory.write(turn, me as u64, Notify::No).await?;
        while memory.read(other).await? == 1 && memory.read(turn).await? == me as u64 {
            if let Err(given_up) = lock.pause(2).await {
                self.release(lock).await?;
                return Err(given_up);
            }
        }
        Ok(())
    }

    async fn release<M: RemoteMemory>(&self, lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
        lock.memory.write(lock.word(lock.owner.rank.index()), 0, Notify::No).await.map(drop)
    }
}
