//! A ticket lock that a waiter can leave, as the queue locks of Scott and Scherer, *Scalable
//! queue-based spin locks with timeout*, PPoPP 2001: it marks its number, and whoever serves that
//! number skips it.

use onesided_lock_kit::lock_algos::{SimpleLock, SimpleUse};
use onesided_lock_kit::remote_memory::{Fault, RemoteMemory};

/// Words: the next number, the number that is served, and the marks of those that left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeavableTicket;

const MARKS: u64 = 2; // few, so that a check reaches their end

/// Skips the numbers from this one on, which is served, whose owners have left.
async fn skip<M: RemoteMemory>(lock: &SimpleUse<'_, '_, M>, mut number: u64) -> Result<(), Fault> {
    let mark = |number| lock.word(2 + (number % MARKS) as usize);
    while lock.memory.compare_swap(mark(number), number + 1, 0).await? == number + 1 {
        number = lock.memory.fetch_add(lock.word(1), 1).await? + 1;
    }
    Ok(())
}

impl SimpleLock for LeavableTicket {
    const NAME: &'static str = "leavable ticket";
    const WORDS: usize = 2 + MARKS as usize;

    fn is_free(home: &[u64]) -> bool {
        home[0] == home[1]
    }

    async fn acquire<M: RemoteMemory>(&self, mut lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
        let (memory, served) = (lock.memory, lock.word(1));
        lock.arrives();
        let number = memory.fetch_add(lock.word(0), 1).await?;
        let mark = lock.word(2 + (number % MARKS) as usize);
        while memory.read(served).await? != number {
            let Err(given_up) = lock.pause(1).await else { continue };
            if memory.compare_swap(mark, 0, number + 1).await? == 0 {
                // Its turn may have come meanwhile: one of both takes the mark away, and goes on.
                if memory.read(served).await? == number {
                    skip(&lock, number).await?;
                }
                return Err(given_up);
            }
            // Another number's mark is there: it leaves later, or waits for its turn.
            memory.pause(served, 1_000).await;
        }
        Ok(())
    }

    async fn release<M: RemoteMemory>(&self, lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
        let number = lock.memory.fetch_add(lock.word(1), 1).await? + 1;
        skip(&lock, number).await
    }
}
