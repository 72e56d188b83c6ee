//! The ticket lock: Mellor-Crummey and Scott, *Algorithms for scalable synchronization on
//! shared-memory multiprocessors*, ACM TOCS 9(1), 1991, section 2.2.

use onesided_lock_kit::lock_algos::{SimpleLock, SimpleUse};
use onesided_lock_kit::remote_memory::{Fault, RemoteMemory};

/// Words: the next number, and the number that is served. First come, first served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket;

impl SimpleLock for Ticket {
    const NAME: &'static str = "ticket";
    const WORDS: usize = 2;
    const LEAVES: bool = false; // a number cannot be returned

    fn is_free(home: &[u64]) -> bool {
        home[0] == home[1]
    }

    async fn acquire<M: RemoteMemory>(&self, mut lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
        let (memory, next, served) = (lock.memory, lock.word(0), lock.word(1));
        if lock.may_wait().is_err() {
            // A try takes only a number that is served.
            let number = memory.read(served).await?;
            let taken = memory.compare_swap(next, number, number.wrapping_add(1)).await? == number;
            return if taken { Ok(()) } else { lock.may_wait() };
        }
        lock.arrives();
        let number = memory.fetch_add(next, 1).await?;
        while memory.read(served).await? != number {
            lock.pause(1).await?;
        }
        Ok(())
    }

    async fn release<M: RemoteMemory>(&self, lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
        lock.memory.fetch_add(lock.word(1), 1).await.map(drop)
    }
}
