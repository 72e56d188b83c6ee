//! Tasks of a rank that every wait of it moves: collectives that were started.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Context;

use crate::progress::lock;

pub(crate) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

thread_local! {
    /// Whether this thread moves tasks now: what a task waits for moves no tasks in turn.
    static IS_MOVING: Cell<bool> = const { Cell::new(false) };
}

/// The tasks, by communicator and number, in the order in which they were started.
#[derive(Default)]
pub(crate) struct Tasks {
    list: Mutex<VecDeque<((u32, u64), Task)>>,
    /// Their number, so that a wait without any takes no lock.
    count: AtomicUsize,
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tasks", self.count.load(Ordering::Relaxed))
    }
}

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

    pub(crate) fn push(&self, call: (u32, u64), task: Task) {
        let mut list = lock(&self.list);
        list.push_back((call, task));
        self.count.store(list.len(), Ordering::Relaxed);
    }

    /// Polls all tasks. Threads do so one after the other: one that is about to sleep has then seen
    /// what others took in for a task.
    #[cold]
    pub(crate) fn poll(&self, cx: &mut Context<'_>) {
        let Some(_moving) = Moving::begin() else { return };
        let mut list = lock(&self.list);
        for _ in 0..list.len() {
            let Some((call, mut task)) = list.pop_front() else { break };
            // A task that panics is dropped.
            if task.as_mut().poll(cx).is_pending() {
                list.push_back((call, task));
            }
        }
        self.count.store(list.len(), Ordering::Relaxed);
    }

    /// Drops tasks, unless this is called by one.
    #[cold]
    pub(crate) fn end(&self, is_ended: impl Fn(&(u32, u64)) -> bool) {
        let Some(moving) = Moving::begin() else { return };
        let mut list = lock(&self.list);
        let (ended, left): (VecDeque<_>, _) =
            std::mem::take(&mut *list).into_iter().partition(|(call, _)| is_ended(call));
        *list = left;
        self.count.store(list.len(), Ordering::Relaxed);
        drop((list, moving));
        drop(ended); // it tells the other ranks
    }
}
