//! An operation of one of two fabrics.
//!
//! An operation of the first fabric that completes at post has to be as cheap as without dispatch:
//! some nanoseconds. Passing it through memory alone costs ten, because a locked instruction waits
//! for the stores before it. The optimiser keeps a value in registers only if no path, however
//! cold, takes its address, and if the second fabric's code is not inlined. Therefore:
//!
//! - the second operation is polled and dropped by value, in separate functions;
//! - there is no drop glue, which would take its address;
//! - the tag is a word of its own: in a spare byte of the second operation, it would be copied by
//!   bytes.
//!
//! `onesided bench locks` of a build with two fabrics measures it; such copies once took most of a
//! lock's time.

use std::future::Future;
use std::mem::{ManuallyDrop, forget, needs_drop, replace};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use onesided_remote_memory::{Fault, FaultKind};

/// An operation of one of two fabrics, or one that both rejected.
#[derive(Debug)]
pub struct EitherFuture<A, B>(ManuallyDrop<State<A, B>>);

#[derive(Debug)]
#[repr(u64)]
enum State<A, B> {
    First(A),
    Second(B),
    Failed(Fault),
    /// The state after a panic in the second operation's poll.
    Taken,
}

impl<A, B> EitherFuture<A, B> {
    #[inline(always)]
    pub(crate) const fn first(first: A) -> Self {
        Self(ManuallyDrop::new(State::First(first)))
    }

    #[inline(always)]
    pub(crate) const fn second(second: B) -> Self {
        Self(ManuallyDrop::new(State::Second(second)))
    }

    #[inline(always)]
    pub(super) const fn failed(fault: Fault) -> Self {
        Self(ManuallyDrop::new(State::Failed(fault)))
    }
}

impl<A, B> Drop for EitherFuture<A, B> {
    #[inline(always)]
    fn drop(&mut self) {
        match replace(&mut *self.0, State::Taken) {
            // Rebuilt: for a value that is only read, the optimiser would pass the address of the
            // old one.
            State::Second(second) if needs_drop::<B>() => discard(State::<A, B>::Second(second)),
            _ => {} // drops the first one
        }
    }
}

/// Runs the second fabric's code out of line.
#[cold]
#[inline(never)]
pub(super) fn aside<T>(run: impl FnOnce() -> T) -> T {
    warm(run)
}

/// Not cold itself, although the path to it is: a cold function inlines hardly anything.
#[inline(never)]
fn warm<T>(run: impl FnOnce() -> T) -> T {
    run()
}

#[cold]
#[inline(never)]
fn discard<T>(value: T) {
    warm(|| drop(value));
}

/// Polls a future and returns it. Takes the waker, because a context passed by reference goes
/// through memory, too.
#[cold]
#[inline(never)]
fn poll_aside<B: Future + Unpin>(mut second: B, waker: &Waker) -> (B, Poll<B::Output>) {
    let poll = warm(|| Pin::new(&mut second).poll(&mut Context::from_waker(waker)));
    (second, poll)
}

impl<T, A, B> Future for EitherFuture<A, B>
where
    A: Future<Output = Result<T, Fault>> + Unpin,
    B: Future<Output = Result<T, Fault>> + Unpin,
{
    type Output = Result<T, Fault>;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let state = &mut *self.0;
        match state {
            State::First(first) => return Pin::new(first).poll(cx),
            State::Failed(fault) => return Poll::Ready(Err(*fault)),
            State::Second(_) | State::Taken => {}
        }
        let State::Second(second) = replace(state, State::Taken) else {
            return Poll::Ready(Err(Fault::new(FaultKind::Closed)));
        };
        let (second, poll) = poll_aside(second, cx.waker());
        forget(replace(state, State::Second(second))); // it is empty, and a drop would take its address
        poll
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    type Polled = Poll<Result<u64, Fault>>;

    /// Counts its drops.
    struct Counted<'c>(&'c Cell<u32>);

    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }

    /// Ready at the third poll with the number of polls; counts its drops.
    fn operation(drops: &Cell<u32>) -> impl Future<Output = Result<u64, Fault>> + Unpin {
        let (counted, mut polls) = (Counted(drops), 0);
        poll_fn(move |_| {
            let _ = &counted;
            polls += 1;
            if polls == 3 { Poll::Ready(Ok(polls)) } else { Poll::Pending }
        })
    }

    fn poll(operation: &mut (impl Future<Output = Result<u64, Fault>> + Unpin)) -> Polled {
        Pin::new(operation).poll(&mut Context::from_waker(Waker::noop()))
    }

    fn both<A>(make: impl Fn() -> A) -> [EitherFuture<A, A>; 2] {
        [EitherFuture::first(make()), EitherFuture::second(make())]
    }

    #[test]
    fn an_operation_of_either_keeps_its_state_between_polls_and_is_dropped_once() {
        let drops = Cell::new(0);
        for (at, mut either) in both(|| operation(&drops)).into_iter().enumerate() {
            assert_eq!(poll(&mut either), Poll::Pending);
            assert_eq!(poll(&mut either), Poll::Pending);
            assert_eq!(poll(&mut either), Poll::Ready(Ok(3)));
            assert_eq!(drops.get(), at as u32);
            drop(either);
            assert_eq!(drops.get(), at as u32 + 1);
        }
    }

    #[test]
    fn an_operation_of_either_that_is_dropped_under_way_is_dropped_once() {
        let drops = Cell::new(0);
        for mut either in both(|| operation(&drops)) {
            assert_eq!(poll(&mut either), Poll::Pending);
        }
        assert_eq!(drops.get(), 2);
        drop(both(|| operation(&drops)));
        assert_eq!(drops.get(), 4);
    }

    #[test]
    fn an_operation_of_neither_fails_whenever_it_is_asked() {
        const FAULT: Fault = Fault::new(FaultKind::NoSuchRegion);
        type Never = std::future::Pending<Result<u64, Fault>>;
        let mut neither = EitherFuture::<Never, Never>::failed(FAULT);
        assert_eq!(poll(&mut neither), Poll::Ready(Err(FAULT)));
        assert_eq!(poll(&mut neither), Poll::Ready(Err(FAULT)));
    }

    #[test]
    fn a_second_operation_whose_poll_panicked_is_gone() {
        let drops = Cell::new(0);
        let counted = Counted(&drops);
        let second = poll_fn(move |_| -> Polled {
            let _ = &counted;
            panic!("the poll")
        });
        let mut either = EitherFuture::<std::future::Ready<Result<u64, Fault>>, _>::second(second);
        assert!(catch_unwind(AssertUnwindSafe(|| poll(&mut either))).is_err());
        assert_eq!(drops.get(), 1);
        assert_eq!(poll(&mut either), Poll::Ready(Err(Fault::new(FaultKind::Closed))));
        drop(either);
        assert_eq!(drops.get(), 1);
    }

    #[test]
    fn the_second_operation_wakes_whoever_polls() {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicBool, Ordering};
        use std::task::Wake;

        struct Told(AtomicBool);

        impl Wake for Told {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::Relaxed);
            }
        }

        let told = Arc::new(Told(AtomicBool::new(false)));
        let second = poll_fn(|cx| -> Polled {
            cx.waker().wake_by_ref();
            Poll::Pending
        });
        let mut either = EitherFuture::<std::future::Ready<Result<u64, Fault>>, _>::second(second);
        let waker = Waker::from(Arc::clone(&told));
        assert_eq!(Pin::new(&mut either).poll(&mut Context::from_waker(&waker)), Poll::Pending);
        assert!(told.0.load(Ordering::Relaxed));
    }
}
