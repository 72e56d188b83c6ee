//! The array of Anderson, *The performance of spin lock alternatives for shared-memory
//! multiprocessors*, IEEE TPDS 1(1), 1990, section IV.

use onesided_lock_kit::lock_algos::{SimpleLock, SimpleUse};
use onesided_lock_kit::remote_memory::{Fault, Notify, RemoteMemory};

/// Words: the next place, and the slots. A slot has the last place that was granted there, so that
/// more owners than slots exclude each other as well. An owner keeps its place in its node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Anderson;

const SLOTS: u64 = 16;

const fn slot(place: u64) -> usize {
    1 + (place % SLOTS) as usize
}

impl SimpleLock for Anderson {
    const NAME: &'static str = "Anderson's array";
    const WORDS: usize = 1 + SLOTS as usize;
    const NODE_WORDS: usize = 1;
    const LEAVES: bool = false;

    fn is_free(home: &[u64]) -> bool {
        home[slot(home[0])] == home[0]
    }

    async fn acquire<M: RemoteMemory>(&self, mut lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
        let (memory, next) = (lock.memory, lock.word(0));
        let mut place = memory.read(next).await?;
        if lock.may_wait().is_ok() {
            lock.arrives();
            place = memory.fetch_add(next, 1).await?;
            while memory.read(lock.word(slot(place))).await? != place {
                lock.pause(slot(place)).await?;
            }
        } else if memory.read(lock.word(slot(place))).await? != place
            || memory.compare_swap(next, place, place + 1).await? != place
        {
            return lock.may_wait();
        }
        memory.store(lock.node(0), place)
    }

    async fn release<M: RemoteMemory>(&self, lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
        let next = lock.memory.load(lock.node(0))? + 1;
        lock.memory.write(lock.word(slot(next)), next, Notify::No).await.map(drop)
    }
}
