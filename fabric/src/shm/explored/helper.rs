//! The progress thread: registered wakers and spawned tasks.

use std::future::poll_fn;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};

use crate::Ticket;
use crate::shm::explored::doorbell::{Flaw, Sleeper};
use crate::shm::explored::{LOST, caught, holds, holds_in_time, together};
use crate::util::sync::atomic::Ordering::Acquire;
use crate::util::sync::{Condvar, Mutex};
use crate::waiting::tasks::{Driver, Tasks};

impl Driver for Arc<Sleeper> {
    fn now(&self) -> u64 {
        0
    }

    fn arm(&self) -> Ticket {
        Sleeper::arm(self)
    }

    fn sleep(&self, ticket: Ticket, until: u64) {
        match until {
            0 => self.doorbell().disarm(),
            _ => Sleeper::sleep(self, ticket),
        }
    }

    fn wake(&self) {
        self.ring();
    }

    fn wake_others(&self, armed: Ticket) -> Ticket {
        self.ring_others(armed)
    }
}

/// An async runtime's thread: it sleeps until its task is woken.
#[derive(Default)]
struct Runtime {
    woken: Mutex<bool>,
    wakes: Condvar,
}

impl Wake for Runtime {
    fn wake(self: Arc<Self>) {
        *self.woken.lock().unwrap() = true;
        self.wakes.notify_one();
    }
}

impl Runtime {
    /// Runs the task that `poll` polls.
    fn run(self: &Arc<Self>, mut poll: impl FnMut(&mut Context<'_>) -> Poll<()>) {
        let waker = Arc::clone(self).into();
        while poll(&mut Context::from_waker(&waker)).is_pending() {
            let mut woken = self.woken.lock().unwrap();
            while !*woken {
                woken = self.wakes.wait(woken).unwrap();
            }
            *woken = false;
        }
    }
}

/// What a poll of `wait_until` with a deadline does.
fn poll(rank: &Sleeper, endpoint: &Tasks, word: usize, deadline: u64, cx: &Context<'_>) -> Poll<()> {
    if rank.words[word].load(Acquire) == 1 {
        return Poll::Ready(());
    }
    endpoint.register_waker(cx, deadline);
    Poll::Pending
}

/// A task waits for one word after another, served by the progress thread, which ends with the
/// endpoint.
fn a_task(flaw: Flaw, words: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rank = Sleeper::new(flaw);
        let theirs = Arc::clone(&rank);
        let write = move || (0..words).for_each(|word| theirs.write(word, 1));
        let task = move || {
            // Not dropped while loom unwinds after a failure.
            let endpoint = ManuallyDrop::new(Tasks::new(Arc::clone(&rank)));
            let runtime = Arc::<Runtime>::default();
            (0..words).for_each(|word| runtime.run(|cx| poll(&rank, &endpoint, word, u64::MAX, cx)));
            drop(ManuallyDrop::into_inner(endpoint));
        };
        together([Box::new(write), Box::new(task)]);
    }
}

#[test]
fn the_helper_wakes_a_task() {
    holds(Some(3), 13_314, a_task(Flaw::None, 1));
    holds(Some(2), 5_691, a_task(Flaw::None, 2));
    for flaw in [Flaw::RingWithoutFence, Flaw::ArmWithoutFence, Flaw::AnnounceAfterPoll] {
        caught(LOST, a_task(flaw, 1));
    }
}

/// A thread that sleeps by the doorbell and polls only woken futures, as collections of futures do.
#[test]
fn the_helper_wakes_what_a_sleeping_thread_polls() {
    holds(Some(2), 5_000, || {
        let rank = Sleeper::new(Flaw::None);
        let theirs = Arc::clone(&rank);
        let thread = move || {
            let endpoint = ManuallyDrop::new(Tasks::new(Arc::clone(&rank)));
            let runtime = Arc::<Runtime>::default();
            let waker = Arc::clone(&runtime).into();
            let look = || poll(&rank, &endpoint, 0, u64::MAX, &mut Context::from_waker(&waker)).is_ready();
            let woken = || std::mem::take(&mut *runtime.woken.lock().unwrap());
            if !look() {
                rank.wait(|| woken() && look());
            }
            drop(ManuallyDrop::into_inner(endpoint));
        };
        together([Box::new(move || theirs.write(0, 1)), Box::new(thread)]);
    });
}

#[test]
fn the_helper_wakes_two_tasks_of_which_one_has_a_deadline() {
    holds_in_time(2, [1_991, 98_751], || {
        let rank = Sleeper::new(Flaw::None);
        let endpoint = Arc::new(Tasks::new(Arc::clone(&rank)));
        let task = |word: usize, deadline| {
            let (rank, endpoint) = (Arc::clone(&rank), Arc::clone(&endpoint));
            move || Arc::<Runtime>::default().run(|cx| poll(&rank, &endpoint, word, deadline, cx))
        };
        let (one, two) = (task(0, u64::MAX), task(0, 5));
        drop(endpoint);
        together([Box::new(move || rank.write(0, 1)), Box::new(one), Box::new(two)]);
    });
}

#[test]
fn the_helper_finishes_what_it_adopted_and_may_drop_the_last_handle() {
    holds(Some(3), 3_106, || {
        let rank = Sleeper::new(Flaw::None);
        let theirs = Arc::clone(&rank);
        let spawn = move || {
            let endpoint = Arc::new(Tasks::new(Arc::clone(&rank)));
            let held = Arc::clone(&endpoint);
            endpoint.spawn(Box::pin(poll_fn(move |cx| poll(&rank, &held, 0, u64::MAX, cx))));
        };
        together([Box::new(move || theirs.write(0, 1)), Box::new(spawn)]);
    });
}

#[test]
fn the_helper_takes_up_more_while_it_sleeps() {
    holds(Some(3), 1_250, || {
        let rank = Sleeper::new(Flaw::None);
        let endpoint = Arc::new(Tasks::new(Arc::clone(&rank)));
        let (first, held) = (Arc::clone(&rank), Arc::clone(&endpoint));
        endpoint.spawn(Box::pin(poll_fn(move |cx| poll(&first, &held, 0, u64::MAX, cx))));
        // The second task does what the first waits for.
        endpoint.spawn(Box::pin(async move { rank.write(0, 1) }));
    });
}
