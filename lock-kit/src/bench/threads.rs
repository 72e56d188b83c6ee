//! A contest of threads over shared memory, in real time.

use std::hint::spin_loop;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fabric::{Any, Drive, Error, Fabric, Segment, SegmentKey, World, block_on, threads};
use lock_algos::LockAlgorithm;
use remote_memory::{Fault, FaultKind};

use super::contest::{Contest, Origin, Outcome};
use super::place::{Ground, Spot, words};
use super::{Counted, Histogram, Operations};

/// What one rank did.
struct Tally {
    count: u64,
    lasted: Duration,
    waits: Histogram,
    bypasses: Histogram,
    operations: Operations,
}

impl<A: LockAlgorithm> Contest<'_, A> {
    /// Runs it twice, each origin a thread of this process, and the lock at the first one's: once to count, once with every wait timed, for to read the clock
    /// costs more than some locks. On the fabric that `ONESIDED_FABRIC` names, shared memory if it is not set. An otherwise
    /// idle machine is assumed.
    ///
    /// # Errors
    /// What the fabric reports.
    ///
    /// # Panics
    /// When a rank panics.
    pub fn threads(&self) -> Result<Outcome, Error> {
        let acquired = AtomicU64::new(0);
        let (begin, over) = (Barrier::new(self.origins as usize), [AtomicBool::new(false), AtomicBool::new(false)]);
        let tallies = threads(self.origins, |world| self.origin(&world, &acquired, &begin, &over))?;
        let tallies = tallies.into_iter().collect::<Result<Vec<_>, _>>()?;
        let mut outcome = Outcome {
            counts: tallies.iter().map(|tally| tally.count).collect(),
            lasted: tallies.iter().map(|tally| tally.lasted).max().unwrap_or_default(),
            waits: Histogram::default(),
            bypasses: Histogram::default(),
            operations: Operations::default(),
            trace: 0,
        };
        for tally in &tallies {
            outcome.waits.merge(&tally.waits);
            outcome.bypasses.merge(&tally.bypasses);
            outcome.operations = outcome.operations + tally.operations;
        }
        Ok(outcome)
    }

    fn origin(
        &self,
        world: &World<Any>,
        acquired: &AtomicU64,
        begin: &Barrier,
        over: &[AtomicBool; 2],
    ) -> Result<Tally, Error> {
        let fabric = world.fabric();
        let own = fabric.allocate(8 * words::<A>().next_multiple_of(16) as u64)?;
        let keys =
            block_on(fabric, world.all_gather(&own.key().to_bytes())).map_err(Error::operation("gather keys"))?;
        let open = |key: &Vec<u8>| {
            let key = SegmentKey::from_bytes(key).ok_or(Error::operation("open")(Fault::new(FaultKind::Protocol)))?;
            fabric.open(&key)
        };
        let segments = keys.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let referee = |flag: &AtomicBool| {
            std::thread::sleep(self.long);
            flag.store(true, Ordering::Relaxed);
        };
        let (mut waits, mut bypasses, mut count) = (Histogram::default(), Histogram::default(), 0);
        let counted = Counted::new(fabric.clone());
        begin.wait();
        let started = Instant::now();
        let mut lasted = Duration::ZERO;
        let rounds = std::thread::scope(|scope| {
            if world.rank() == 0 {
                scope.spawn(|| referee(&over[0]));
            }
            let mut origin = Origin::new(self, fabric, Ground::Opened(&segments), acquired);
            while !over[0].load(Ordering::Relaxed) {
                block_on(fabric, origin.once(None, spend))?;
                count += 1;
            }
            lasted = started.elapsed();
            Ok::<_, Fault>(origin.generation)
        });
        let generation = rounds.map_err(Error::operation(A::NAME))?;
        begin.wait();
        let timed = std::thread::scope(|scope| {
            if world.rank() == 0 {
                scope.spawn(|| referee(&over[1]));
            }
            let mut origin = Origin::new(self, &counted, Ground::Opened(&segments), acquired);
            origin.generation = generation; // the nodes are the same
            while !over[1].load(Ordering::Relaxed) {
                let mut note = |waited, between| {
                    waits.add(waited);
                    bypasses.add(between);
                };
                block_on(&counted, origin.once(Some(&mut note), spend))?;
            }
            Ok::<_, Fault>(())
        });
        timed.map_err(Error::operation(A::NAME))?;
        world.barrier().wait()?; // nobody reaches into a segment that is gone
        Ok(Tally { count, lasted, waits, bypasses, operations: counted.operations() })
    }
}

/// Has real time pass, at work.
async fn spend<F: Drive>(_: &Spot<'_, F>, long: Duration) -> Result<(), Fault> {
    let begin = Instant::now();
    while begin.elapsed() < long {
        spin_loop();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use lock_algos::{Mcs, TestAndSet};

    use super::*;

    #[test]
    fn threads_contend_and_everything_is_counted() {
        let long = Duration::from_millis(20);
        let alone = Contest::of(&TestAndSet::default()).origins(1).lasting(long).threads().unwrap();
        assert!(alone.acquisitions() > 0 && alone.waits.count() > 0, "{alone:?}");
        let Operations { compare_swaps, .. } = alone.operations;
        assert_eq!(compare_swaps, alone.waits.count(), "one each");
        assert_eq!((alone.operations_each(), alone.bypasses.largest()), (2.0, 0), "a compare-swap and a write");
        let three = Contest::of(&Mcs::default()).origins(3).readers(30).lasting(long).threads().unwrap();
        assert_eq!(three.counts.len(), 3);
        assert!(three.counts.iter().all(|count| *count > 0) && three.operations_each() > 1.0, "{three:?}");
    }
}
