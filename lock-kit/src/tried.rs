//! How much a trial of a suite has tried: executions, states, cases.

use std::cell::Cell;

thread_local! {
    static TRIED: Cell<usize> = const { Cell::new(0) };
}

/// So many more.
pub(crate) fn tried(more: usize) {
    TRIED.set(TRIED.get() + more);
}

/// All since the last call.
pub(crate) fn take_tried() -> usize {
    TRIED.take()
}
