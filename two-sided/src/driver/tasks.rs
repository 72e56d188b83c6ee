//! Tasks of a rank that every wait of it moves: collectives that were started.

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, TryLockError};
use std::task::{Context, Poll};

use onesided_fabric::{debug, lock};

pub(crate) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

thread_local! {
    /// Whether this thread moves tasks now: what a task waits for moves no tasks in turn.
    static IS_MOVING: Cell<bool> = const { Cell::new(false) };
}

/// The tasks, by communicator and number, in the order in which they were started.
#[derive(Default)]
pub(crate) struct Tasks {
    list: Mutex<VecDeque<((u32, u64), Task)>>,
    /// Those that were started since the last poll. What holds `list` runs functions of the user's.
    started: Mutex<Vec<((u32, u64), Task)>>,
    /// Their number, so that a wait without any takes no lock.
    count: AtomicUsize,
}

debug!([] Tasks, |this| "{} tasks", this.count.load(Ordering::Relaxed));

/// This thread moves tasks, until this is dropped.
struct Moving;

impl Moving {
    /// `None`: it does so already.
    fn begin() -> Option<Self> {
        (!IS_MOVING.replace(true)).then_some(Self)
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        IS_MOVING.set(false);
    }
}

impl Tasks {
    /// Whether a wait has none to move.
    #[inline]
    pub(crate) fn are_none(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0 || IS_MOVING.get()
    }

    /// Whether this thread moves tasks now.
    pub(crate) fn is_moving() -> bool {
        IS_MOVING.get()
    }

    /// Whether all are over.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn push(&self, call: (u32, u64), task: Task) {
        lock(&self.started).push((call, task));
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Polls all tasks. `false`: another thread does, which may take as long as a function of the
    /// user's, and may have polled a task before this thread took in what is for it.
    ///
    /// A task that panics is dropped, and tells so: the panic is not that of the wait that moves it.
    #[cold]
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> bool {
        let Some(_moving) = Moving::begin() else { return true };
        let mut list = match self.list.try_lock() {
            Ok(list) => list,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        list.extend(lock(&self.started).drain(..));
        for _ in 0..list.len() {
            let Some((call, mut task)) = list.pop_front() else { break };
            match catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(cx))) {
                Ok(Poll::Pending) => list.push_back((call, task)),
                Ok(Poll::Ready(())) | Err(_) => {
                    self.count.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
        true
    }

    /// Drops tasks, unless this is called by one.
    #[cold]
    pub(crate) fn end(&self, is_ended: impl Fn(&(u32, u64)) -> bool) {
        let Some(moving) = Moving::begin() else { return };
        let mut list = lock(&self.list);
        list.extend(lock(&self.started).drain(..));
        let (ended, left): (VecDeque<_>, _) =
            std::mem::take(&mut *list).into_iter().partition(|(call, _)| is_ended(call));
        *list = left;
        self.count.fetch_sub(ended.len(), Ordering::Relaxed);
        drop((list, moving));
        drop(ended); // it tells the other ranks
    }
}
