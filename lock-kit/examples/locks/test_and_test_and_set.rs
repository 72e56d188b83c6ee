//! Test-and-test-and-set: Rudolph and Segall, *Dynamic decentralized cache schemes for MIMD parallel
//! processors*, ISCA 1984.

use onesided_lock_kit::lock_algos::{SimpleLock, SimpleUse};
use onesided_lock_kit::remote_memory::{Fault, RemoteMemory};

/// Reads the word until it is 0, and only then swaps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TestAndTestAndSet;

impl SimpleLock for TestAndTestAndSet {
    const NAME: &'static str = "test-and-test-and-set";
    const WORDS: usize = 1;

    async fn acquire<M: RemoteMemory>(&self, mut lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
        let (memory, word) = (lock.memory, lock.word(0));
        while memory.read(word).await? != 0 || memory.compare_swap(word, 0, 1).await? != 0 {
            lock.pause(0).await?;
        }
        Ok(())
    }

    /// By an atomic: a card may lose a write to a word that a compare-swap is on.
    async fn release<M: RemoteMemory>(&self, lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
        lock.memory.compare_swap(lock.word(0), 1, 0).await.map(drop)
    }
}
