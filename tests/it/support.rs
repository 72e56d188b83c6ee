//! Ranks as threads with a deadline, and an async runtime in a few lines.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::task::{Context, Poll, Wake};
use std::thread::Thread;
use std::time::{Duration, Instant};

use onesided::World;

/// Ends what hangs: ten times what any test takes, on emulated cards as well.
pub(crate) const DEADLINE: Duration = Duration::from_secs(600);

/// Runs threads as ranks and returns their results. A test whose ranks do not end fails.
pub(crate) fn ranks<T: Send + 'static>(count: u32, run: impl Fn(World) -> T + Send + Sync + 'static) -> Vec<T> {
    let (sender, receiver) = channel();
    let threads = std::thread::spawn(move || {
        let outcome = onesided::fabric::threads(count, run).unwrap();
        sender.send(outcome).unwrap();
    });
    match receiver.recv_timeout(DEADLINE) {
        Ok(outcome) => outcome,
        Err(RecvTimeoutError::Timeout) => panic!("the ranks did not end"),
        Err(RecvTimeoutError::Disconnected) => match threads.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("it sends before it ends"),
        },
    }
}

/// A minimal async runtime: parks the thread until a waker unparks it.
pub(crate) fn run_async<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        std::thread::park_timeout(DEADLINE);
        assert!(Instant::now() < deadline, "the task was not woken");
    }
}

/// Polls once, with a waker that is never used again.
pub(crate) fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    let waker = Arc::new(Unpark(std::thread::current())).into();
    std::pin::Pin::new(future).poll(&mut Context::from_waker(&waker))
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Uses the processor without calling the library, as an application does.
pub(crate) fn compute(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// The same until a condition holds, at most `limit`; returns whether it does.
pub(crate) fn compute_until(limit: Duration, condition: impl Fn() -> bool) -> bool {
    let begin = Instant::now();
    while !condition() {
        if begin.elapsed() > limit {
            return false;
        }
        std::hint::spin_loop();
    }
    true
}

/// Waits for a condition, at most `limit`.
pub(crate) fn eventually(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < limit, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
