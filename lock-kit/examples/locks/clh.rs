//! CLH: Craig, *Building FIFO and priority-queuing spin locks from atomic swap*, 1993; Magnusson,
//! Landin and Hagersten, *Queue locks on cache coherent multiprocessors*, IPPS 1994.

use onesided_lock_kit::lock_algos::{Owner, SimpleLock, SimpleUse};
use onesided_lock_kit::remote_memory::{Fault, RemoteMemory};

/// The tail of the queue. A node names its owner until that has released. Nodes do not migrate: a
/// later use of one has another [generation](Owner::generation), so it is not taken for this one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clh;

impl SimpleLock for Clh {
    const NAME: &'static str = "CLH";
    const WORDS: usize = 1;
    const NODE_WORDS: usize = 1;
    const LEAVES: bool = false;

    async fn acquire<M: RemoteMemory>(&self, mut lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
        let (memory, me, mut before) = (lock.memory, lock.owner.to_bits() + 1, 0);
        memory.store(lock.node(0), me)?;
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
            let its = lock.node_of(Owner::from_bits(before - 1), 0)?;
            while memory.read(its).await? == before {
                lock.pause_on(its).await?;
            }
        }
        Ok(())
    }

    async fn release<M: RemoteMemory>(&self, lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
        let (memory, me) = (lock.memory, lock.owner.to_bits() + 1);
        memory.compare_swap(lock.word(0), me, 0).await?;
        memory.store(lock.node(0), 0)
    }
}
