//! Windows whose lock is the program's own.

#[path = "../../lock-kit/examples/locks/mod.rs"]
mod locks;

use std::time::Duration;

use onesided::fabric::remote_memory::{Fault, RemoteMemory};
use onesided::lock_algos::{LockAlgorithm, Simple, SimpleLock, SimpleUse};
use onesided::{Error, LockDesign, Mode, Window};

/// One word: 0, or 1 and the owner's rank.
#[derive(Clone, Copy, Debug)]
struct OneWord;

impl SimpleLock for OneWord {
    const NAME: &'static str = "one-word";
    const WORDS: usize = 1;

    async fn acquire<M: RemoteMemory>(&self, lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
        let mut lock = lock;
        while lock.memory.compare_swap(lock.word(0), 0, 1 + u64::from(lock.owner.rank.0)).await? != 0 {
            lock.pause(0).await?;
        }
        Ok(())
    }

    async fn release<M: RemoteMemory>(&self, lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
        lock.memory.compare_swap(lock.word(0), 1 + u64::from(lock.owner.rank.0), 0).await.map(drop)
    }
}

/// The same under another name.
#[derive(Clone, Copy, Debug)]
struct Another;

impl SimpleLock for Another {
    const NAME: &'static str = "another";
    const WORDS: usize = 1;

    async fn acquire<M: RemoteMemory>(&self, lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
        OneWord.acquire(lock).await
    }

    async fn release<M: RemoteMemory>(&self, lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
        OneWord.release(lock).await
    }
}

#[test]
fn a_window_counts_under_the_programs_own_lock() {
    counts(4, 200, Simple::new(OneWord));
    counts(3, 200, Simple::new(locks::TestAndTestAndSet));
    counts(3, 200, Simple::new(locks::Ticket));
    counts(3, 200, Simple::new(locks::LeavableTicket));
    counts(3, 200, Simple::new(locks::Anderson));
    counts(3, 200, Simple::new(locks::Clh));
    counts(4, 200, Simple::new(locks::Mcs));
    counts(3, 100, Simple::new(locks::PhaseFair));
    counts(3, 200, Simple::new(locks::Bakery));
    counts(2, 200, Simple::new(locks::Peterson));
    counts(3, 200, locks::Recovering);
    counts(3, 200, locks::Leased(60_000 * locks::Leased::USUAL.0)); // a minute: nobody is late
}

/// `each`: the sections of a rank, of 200, that are exclusive; all in a lock without a shared mode.
#[track_caller]
fn counts(ranks: u32, each: u64, lock: impl LockAlgorithm + Copy) {
    onesided::fabric::threads(ranks, |world| {
        let window = Window::<u64>::builder().allocate_with_lock(lock, &world, 4).wait().unwrap();
        assert_eq!(window.info().lock, LockDesign::Own);
        for round in 0..200 {
            let epoch = match round % 2 {
                0 => window.lock_exclusive(1).wait().unwrap(),
                _ => window.lock_shared(1).wait().unwrap(),
            };
            let mut count = [0];
            epoch.get(0, &mut count).wait().unwrap();
            if epoch.mode() == Mode::Exclusive {
                epoch.put(0, &[count[0] + 1]).unwrap();
            }
            if round % 3 > 0 {
                epoch.unlock().wait().unwrap();
            } // otherwise the drop releases
        }
        world.barrier().wait().unwrap();
        let all = window.lock_all().wait().unwrap();
        let mut count = [0];
        all.at(1).wait().unwrap().get(0, &mut count).wait().unwrap();
        assert_eq!(count, [u64::from(ranks) * each], "{lock:?}");
        all.unlock_all().wait().unwrap();
        window.close().wait().unwrap();
    })
    .unwrap();
}

#[test]
fn an_acquire_of_the_programs_own_lock_ends_at_its_deadline() {
    ends(Simple::new(OneWord));
    ends(Simple::new(locks::Mcs));
}

fn ends(lock: impl LockAlgorithm + Copy) {
    onesided::fabric::threads(2, |world| {
        let window = Window::<u64>::builder().allocate_with_lock(lock, &world, 4).wait().unwrap();
        let held = (world.rank() == 0).then(|| window.lock_exclusive(0).wait().unwrap());
        world.barrier().wait().unwrap();
        if world.rank() == 1 {
            let error = window.lock_exclusive(0).deadline(Duration::from_millis(5)).wait().unwrap_err();
            assert!(Error::from(error).is_timed_out());
            assert!(window.try_lock_exclusive(0).wait().unwrap().is_none());
        }
        world.barrier().wait().unwrap();
        drop(held);
        world.barrier().wait().unwrap();
        window.lock_exclusive(0).wait().unwrap().unlock().wait().unwrap();
        window.close().wait().unwrap();
    })
    .unwrap();
}

#[test]
fn ranks_with_different_locks_do_not_match() {
    onesided::fabric::threads(2, |world| {
        let made = match world.rank() {
            0 => Window::<u64>::builder().allocate_with_lock(Simple::new(OneWord), &world, 4).wait(),
            _ => Window::<u64>::builder().allocate_with_lock(Simple::new(Another), &world, 4).wait(),
        };
        let error = Error::from(made.unwrap_err()).to_string();
        assert!(error.contains("one-word") && error.contains("another"), "{error}");
    })
    .unwrap();
}
