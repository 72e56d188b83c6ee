//! Recovering owners with an indeterminate operation: a later owner acquires the lock, whatever its
//! outcome.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use onesided_lock_algos::{Intent, LockAlgorithm, Mode};
use onesided_lock_kit::program::region_words;
use onesided_lock_kit::random::{PauseEnd, Reply, Wait};
use onesided_lock_kit::wrong::{distributed, global, mcs, queue, right, ticket, two_level};
use onesided_lock_kit::{Layout, ModelMemory};
use onesided_remote_memory::{At, Fault, FaultKind, Liveness, Notify, Patience, Rank, RemoteMemory};

use super::{Lost, slotted};
use crate::stopped::{ENDLESS, SLOTS, run};

/// One of its operations is indeterminate.
#[derive(Clone, Debug)]
struct Lossy {
    memory: ModelMemory,
    /// Which one, counted down to 1; none if it starts at 0.
    lost: Arc<AtomicUsize>,
    takes_effect: bool,
}

/// The reply, if there is any, and whether it is lost.
#[derive(Debug)]
struct Answer(Option<Reply>, bool);

impl Future for Answer {
    type Output = Result<u64, Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let lost = Err(Fault::new(FaultKind::Unknown));
        let Some(reply) = &mut self.0 else { return Poll::Ready(lost) };
        let answer = ready!(Pin::new(reply).poll(cx));
        Poll::Ready(if self.1 { lost } else { answer })
    }
}

impl Lossy {
    fn send(&self, post: impl FnOnce() -> Reply) -> Answer {
        let is_lost = self.lost.load(Relaxed) > 0 && self.lost.fetch_sub(1, Relaxed) == 1;
        Answer((!is_lost || self.takes_effect).then(post), is_lost)
    }
}

impl RemoteMemory for Lossy {
    type Word<'f> = usize;
    type Op = Answer;
    type Wait<'f, P: Fn(u64) -> bool + Unpin + Send + 'f> = Wait<'f, P>;
    type Pause<'f> = PauseEnd;

    fn rank(&self) -> Rank {
        self.memory.rank()
    }

    fn size(&self) -> u32 {
        self.memory.size()
    }

    fn word(&self, at: At) -> Result<usize, Fault> {
        self.memory.word(at)
    }

    fn read(&self, word: usize) -> Answer {
        self.send(|| self.memory.read(word))
    }

    fn write(&self, word: usize, value: u64, notify: Notify) -> Answer {
        self.send(|| self.memory.write(word, value, notify))
    }

    fn compare_swap(&self, word: usize, expected: u64, new: u64) -> Answer {
        self.send(|| self.memory.compare_swap(word, expected, new))
    }

    fn fetch_add(&self, word: usize, add: u64) -> Answer {
        self.send(|| self.memory.fetch_add(word, add))
    }

    fn load(&self, own: usize) -> Result<u64, Fault> {
        self.memory.load(own)
    }

    fn store(&self, own: usize, value: u64) -> Result<(), Fault> {
        self.memory.store(own, value)
    }

    fn wait_until<'f, P>(&'f self, own: usize, predicate: P, patience: Patience) -> Wait<'f, P>
    where
        P: Fn(u64) -> bool + Unpin + Send + 'f,
    {
        self.memory.wait_until(own, predicate, patience)
    }

    fn pause(&self, word: usize, nanos: u64) -> PauseEnd {
        self.memory.pause(word, nanos)
    }

    fn now(&self) -> u64 {
        self.memory.now()
    }

    fn liveness(&self, rank: Rank) -> Liveness {
        self.memory.liveness(rank)
    }

    fn failed_rank(&self) -> Option<Rank> {
        self.memory.failed_rank()
    }
}

/// Acquires the lock, recovers it if necessary, and releases it in this way.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    Keep,
    Release,
    Forsake,
}

async fn acquires<A: LockAlgorithm>(lock: &A, memory: &Lossy, mode: Mode, then: Then) -> Result<(), Fault> {
    let context = Layout::<_, A>::new(memory, slotted(memory.rank().0), SLOTS);
    let words = lock.words(context)?;
    let started = lock.start(memory, context, words, mode)?;
    let held = lock.finish(memory, context, words, mode, started, || Intent::LOCK.recovering()).await?;
    match then {
        Then::Keep => Ok(()),
        Then::Forsake if held.recovered.is_some() => lock.release_poisoned(memory, context, words, held).await,
        Then::Forsake | Then::Release => {
            let started = lock.start_release(memory, context, words, held.mode)?;
            lock.finish_release(memory, context, words, held.mode, started).await
        }
    }
}

/// Rank 1 dies with the lock, and rank 0 recovers and releases it. Then rank 2 acquires it; if the
/// lock does not resolve losses, once rank 0 has ended.
fn recoveries<A: LockAlgorithm>(lock: &A, settled: Lost) {
    for dying in [Mode::Shared, Mode::Exclusive] {
        for (then, takes_effect) in
            [(Then::Release, true), (Then::Release, false), (Then::Forsake, true), (Then::Forsake, false)]
        {
            for lost in 1.. {
                let memory = ModelMemory::new(3, region_words::<A>(SLOTS));
                let of = |rank, lost| Lossy { memory: memory.of(rank), lost: Arc::new(lost), takes_effect };
                let all = [of(0, lost.into()), of(1, 0.into()), of(2, 0.into())];
                let drive = |memory: &Lossy, mode, then| {
                    let acquires: Pin<Box<dyn Future<Output = _>>> = Box::pin(acquires(lock, memory, mode, then));
                    run(&memory.memory, &mut { acquires }, 20 * ENDLESS)
                };
                drive(&all[1], dying, Then::Keep).unwrap().unwrap();
                memory.net().kill(Rank(1), 0);
                let case = format!("{}, {dying:?}, {then:?}, {lost} lost, takes effect: {takes_effect}", A::NAME);
                let told = drive(&all[0], Mode::Exclusive, then);
                let told = told.unwrap_or_else(|| panic!("{case}: rank 0 waits without end"));
                if settled == Lost::Told && told.is_err_and(|fault| fault.is_unknown()) {
                    memory.net().kill(Rank(0), 0);
                }
                assert_eq!(drive(&all[2], Mode::Exclusive, Then::Release), Some(Ok(())), "{case}, rank 0: {told:?}");
                if all[0].lost.load(Relaxed) > 0 {
                    break; // it has no further operation
                }
            }
        }
    }
}

#[test]
fn test_and_set() {
    recoveries(&right(), Lost::Settled);
}

#[test]
fn the_queue_lock() {
    recoveries(&mcs(), Lost::Settled);
}

#[test]
fn tickets() {
    recoveries(&ticket::<15>(), Lost::Settled);
}

#[test]
fn queues_by_fetch_add() {
    recoveries(&queue::<15, 16>(), Lost::Settled);
}

#[test]
fn distributed_counters() {
    recoveries(&distributed::<15>(), Lost::Settled);
}

#[test]
fn two_levels() {
    recoveries(&two_level(8), Lost::Told);
    recoveries(&two_level(8).bypasses(1), Lost::Told);
}

#[test]
fn a_room() {
    recoveries(&global::<_, 15>(right()), Lost::Settled);
}
