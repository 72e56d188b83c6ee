//! Operations that are left before they are complete.

use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

/// When an operation is left.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Left {
    /// Dropped at this `Pending`, counted from 0.
    AtPending(u32),
    /// By its deadline.
    After(Duration),
}

impl Left {
    pub(crate) const NEVER: Self = Self::AtPending(u32::MAX);

    pub(crate) fn deadline(self) -> Duration {
        if let Self::After(time) = self { time } else { Duration::MAX }
    }

    /// The outcome of an operation that has this [deadline](Self::deadline); `None` if it was left.
    pub(crate) async fn run<T, E>(
        self,
        operation: impl Future<Output = Result<T, E>>,
        is_timed_out: impl Fn(&E) -> bool,
    ) -> Result<Option<T>, E> {
        let mut left = if let Self::AtPending(number) = self { number } else { u32::MAX };
        let mut operation = Box::pin(operation); // dropped before this returns
        let outcome = poll_fn(|cx| match operation.as_mut().poll(cx) {
            Poll::Ready(outcome) => Poll::Ready(outcome.map(Some)),
            Poll::Pending if left == 0 => Poll::Ready(Ok(None)),
            Poll::Pending => {
                left -= 1;
                Poll::Pending
            }
        });
        match outcome.await {
            Err(error) if is_timed_out(&error) => Ok(None),
            outcome => outcome,
        }
    }
}

/// Leaves an operation at each `Pending` and by deadlines at many times, until it is complete before:
/// `run` says whether it was left. Returns the number of its `Pending`s.
pub(crate) fn at_all_times(mut run: impl FnMut(Left) -> bool) -> u32 {
    let pendings = (0..1_000).find(|number| !run(Left::AtPending(*number))).expect("it ends");
    let after = |step: u32| Left::After(Duration::from_nanos(200) * 2_u32.pow(step));
    assert!(pendings == 0 || (0..24).any(|step| !run(after(step))), "it ends");
    pendings
}
