//! The phase-fair ticket lock: Brandenburg and Anderson, *Spin-based reader-writer synchronization for
//! multiprocessor real-time systems*, Real-Time Systems 46(1), 2010, section 4.1 (PF-T).

use onesided_lock_kit::lock_algos::{Mode, SimpleLock, SimpleUse};
use onesided_lock_kit::remote_memory::{Fault, RemoteMemory};

/// Words: readers that came, in units of [`READER`], and in the low bits the writer that blocks them;
/// readers that left; the next writer's number, and the one that is served. Readers and writers take
/// turns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PhaseFair;

const WRITER: u64 = 0b10; // and a bit that changes from one writer to the next
const READER: u64 = 0b100;

const fn writer(number: u64) -> u64 {
    WRITER | number & 1
}

impl SimpleLock for PhaseFair {
    const NAME: &'static str = "phase-fair";
    const WORDS: usize = 4;
    const SHARED: bool = true;
    const LEAVES: bool = false;

    fn is_free(home: &[u64]) -> bool {
        home[0] == home[1] && home[2] == home[3]
    }

    async fn acquire<M: RemoteMemory>(&self, mut lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
        let [came, left, next, served] = [0, 1, 2, 3].map(|word| lock.word(word));
        let (memory, tries) = (lock.memory, lock.may_wait().is_err());
        if lock.mode() == Mode::Shared {
            if tries {
                let found = memory.read(came).await?;
                let open = found % READER == 0;
                let joined = open && memory.compare_swap(came, found, found + READER).await? == found;
                return if joined { Ok(()) } else { lock.may_wait() };
            }
            let writer = memory.fetch_add(came, READER).await? % READER;
            while writer != 0 && memory.read(came).await? % READER == writer {
                lock.pause(0).await?;
            }
            return Ok(());
        }
        let number = if tries { memory.read(served).await? } else { memory.fetch_add(next, 1).await? };
        if tries && memory.compare_swap(next, number, number + 1).await? != number {
            return lock.may_wait();
        }
        while memory.read(served).await? != number {
            lock.pause(3).await?;
        }
        let readers = memory.fetch_add(came, writer(number)).await?;
        while memory.read(left).await? != readers {
            if let Err(given_up) = lock.may_wait() {
                self.release(lock).await?;
                return Err(given_up);
            }
            lock.pause(1).await?;
        }
        Ok(())
    }

    async fn release<M: RemoteMemory>(&self, lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
        let memory = lock.memory;
        if lock.mode() == Mode::Shared {
            return memory.fetch_add(lock.word(1), READER).await.map(drop);
        }
        let number = memory.read(lock.word(3)).await?;
        memory.fetch_add(lock.word(0), writer(number).wrapping_neg()).await?;
        memory.fetch_add(lock.word(3), 1).await.map(drop)
    }
}
