//! Waits for several requests at once.

use std::future::poll_fn;
use std::ops::DerefMut;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::{Drive, NOBODY, World, block_on};

/// A request that [`World::wait_all`] takes: all of the library's are, and pinned and borrowed futures.
pub trait WaitAll: Future + Unpin + Sized {
    /// Takes the first requests out of a set and waits for them, if that takes less work together
    /// than one after the other; their results.
    #[doc(hidden)]
    fn wait_first(_requests: &mut Vec<Self>) -> Vec<Self::Output> {
        Vec::new()
    }
}

impl<P: DerefMut<Target: Future> + Unpin> WaitAll for Pin<P> {}

impl<H: Future + Unpin + ?Sized> WaitAll for &mut H {}

/// Sets of requests of one type: sends, receives, gets, acquires. A request that is complete is
/// taken out of its set, and its index there is told with its result. Asynchronous code has the same
/// from `futures::future::select_all` and `join_all`.
impl<F: Drive> World<F> {
    /// Blocks until one of the requests is complete (`MPI_Waitany`). `None`: there is none. A result costs a
    /// poll of each request before it and a move of each behind it: of hundreds take
    /// [`wait_some`](Self::wait_some).
    pub fn wait_any<H: Future + Unpin>(&self, requests: &mut Vec<H>) -> Option<(usize, H::Output)> {
        self.wait_at_most(1, requests).pop()
    }

    /// Blocks until at least one of the requests is complete, and returns all that are
    /// (`MPI_Waitsome`). Empty: there are none.
    pub fn wait_some<H: Future + Unpin>(&self, requests: &mut Vec<H>) -> Vec<(usize, H::Output)> {
        self.wait_at_most(usize::MAX, requests)
    }

    /// Blocks until all of the requests are complete (`MPI_Waitall`); their results in order.
    pub fn wait_all<H: WaitAll>(&self, mut requests: Vec<H>) -> Vec<H::Output> {
        let mut first = H::wait_first(&mut requests);
        if requests.is_empty() {
            return first;
        }
        // The index in the set of each that is left.
        let mut left: Vec<_> = (0..requests.len()).collect();
        let mut results: Vec<_> = left.iter().map(|_| None).collect();
        while !requests.is_empty() {
            // The last one first, so that the indices of the others stay.
            for (index, result) in self.wait_some(&mut requests).into_iter().rev() {
                results[left.remove(index)] = Some(result);
            }
        }
        first.extend(results.into_iter().flatten());
        first
    }

    /// Those of the requests that are complete (`MPI_Testsome`), without waiting.
    pub fn test_some<H: Future + Unpin>(&self, requests: &mut Vec<H>) -> Vec<(usize, H::Output)> {
        self.fabric().progress();
        complete(usize::MAX, requests, &mut Context::from_waker(NOBODY))
    }

    fn wait_at_most<H: Future + Unpin>(&self, most: usize, requests: &mut Vec<H>) -> Vec<(usize, H::Output)> {
        let waits = poll_fn(|cx| {
            let done = complete(most, requests, cx);
            if done.is_empty() && !requests.is_empty() { Poll::Pending } else { Poll::Ready(done) }
        });
        block_on(self.fabric(), waits)
    }
}

/// Takes requests that are complete out of their set, in order.
fn complete<H: Future + Unpin>(most: usize, requests: &mut Vec<H>, cx: &mut Context<'_>) -> Vec<(usize, H::Output)> {
    let (mut done, mut next) = (Vec::new(), 0);
    requests.retain_mut(|request| {
        let index = next;
        next += 1;
        let polled = if done.len() < most { Pin::new(request).poll(cx) } else { Poll::Pending };
        match polled {
            Poll::Ready(result) => {
                done.push((index, result));
                false
            }
            Poll::Pending => true,
        }
    });
    done
}
