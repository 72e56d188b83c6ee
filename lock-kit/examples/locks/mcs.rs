//! The queue lock of Mellor-Crummey and Scott, *Algorithms for scalable synchronization on
//! shared-memory multiprocessors*, ACM TOCS 9(1), 1991, section 2.4.

use onesided_lock_kit::lock_algos::{Owner, SimpleLock, SimpleUse};
use onesided_lock_kit::remote_memory::{Fault, Notify, RemoteMemory};

/// The tail of the queue. A node: whether it is granted, and the next owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mcs;

impl SimpleLock for Mcs {
    const NAME: &'static str = "MCS";
    const WORDS: usize = 1;
    const NODE_WORDS: usize = 2;
    const LEAVES: bool = false;

    async fn acquire<M: RemoteMemory>(&self, mut lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
        let (memory, me, mut before) = (lock.memory, lock.owner.to_bits() + 1, 0);
        memory.store(lock.node(0), 0)?;
        memory.store(lock.node(1), 0)?;
        loop {
            lock.arrives();
            match memory.compare_swap(lock.word(0), before, me).await? {
                found if found == before => break,
                found => before = found,
            }
            if before != 0 {
                lock.may_wait()?;
            }
        }
        if before != 0 {
            let link = lock.node_of(Owner::from_bits(before - 1), 1)?;
            memory.write(link, me, Notify::Yes).await?; // it may sleep in its release
            lock.wait_until(0, |granted| granted != 0).await?;
        }
        Ok(())
    }

    async fn release<M: RemoteMemory>(&self, mut lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
        let (memory, me) = (lock.memory, lock.owner.to_bits() + 1);
        if memory.load(lock.node(1))? == 0 && memory.compare_swap(lock.word(0), me, 0).await? == me {
            return Ok(());
        }
        let next = lock.wait_until(1, |next| next != 0).await?;
        memory.write(lock.node_of(Owner::from_bits(next - 1), 0)?, 1, Notify::Yes).await.map(drop)
    }
}
