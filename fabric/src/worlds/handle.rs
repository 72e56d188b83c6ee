//! What every handle has besides its own `wait`, in this crate and those above.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::{Drive, block_on};

/// A call that starts at its first poll: first its arguments, then its future, boxed because it
/// must not move. A call that is only waited for is never boxed.
#[doc(hidden)]
pub enum Call<'a, Q, R> {
    NotStarted(Q),
    Running(Pin<Box<dyn Future<Output = R> + Send + 'a>>),
    Over,
}

impl<'a, Q, R> Call<'a, Q, R> {
    pub fn poll<A>(&mut self, cx: &mut Context<'_>, begin: impl FnOnce(Q) -> A) -> Poll<R>
    where
        A: Future<Output = R> + Send + 'a,
    {
        if let Self::NotStarted(_) = self
            && let Self::NotStarted(asked) = std::mem::replace(self, Self::Over)
        {
            *self = Self::Running(Box::pin(begin(asked)));
        }
        let Self::Running(under_way) = self else { panic!("a handle gives its result once") };
        let outcome = under_way.as_mut().poll(cx);
        if outcome.is_ready() {
            *self = Self::Over;
        }
        outcome
    }

    pub fn wait<D: Drive, A: Future<Output = R>>(self, drive: &D, begin: impl FnOnce(Q) -> A) -> R {
        match self {
            Self::NotStarted(asked) => block_on(drive, begin(asked)),
            Self::Running(under_way) => block_on(drive, under_way),
            Self::Over => panic!("a handle gives its result once"),
        }
    }
}

impl<Q, R> fmt::Debug for Call<'_, Q, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotStarted(_) => "not begun",
            Self::Running(_) => "under way",
            Self::Over => "over",
        })
    }
}

/// `test` and `wait_timeout` of a handle that is a future, and its [`WaitAll`](crate::WaitAll).
/// Arguments: its parameters without bounds on the fabric `F`, its type, its value and its error, its
/// fabric, and what waits for the first ones of a set, if that takes less work than one after the other.
#[doc(hidden)]
#[macro_export]
macro_rules! handle {
    (
        [$($parameters:tt)*], $handle:ty, $value:ty, $error:ty, |$this:ident| $fabric:expr $(, first $wait_first:path)?
    ) => {
        impl<$($parameters)*> $crate::WaitAll for $handle
        where
            F: $crate::Drive,
        {
            $(fn wait_first(requests: &mut Vec<Self>) -> Vec<Self::Output> {
                $wait_first(requests)
            })?
        }

        impl<$($parameters)*> $handle
        where
            F: $crate::Fabric,
        {
            /// Returns the result if there is one, without waiting (`MPI_Test`). The operation
            /// makes progress in the background.
            ///
            /// # Errors
            /// As [`wait`](Self::wait).
            pub fn test(&mut self) -> ::core::result::Result<Option<$value>, $error>
            where
                F: $crate::Drive,
            {
                let $this = &*self;
                let fabric = $fabric;
                match $crate::poll_now(fabric, self) {
                    ::core::task::Poll::Ready(outcome) => outcome.map(Some),
                    ::core::task::Poll::Pending => Ok(None),
                }
            }

            /// Blocks until completion, at most this long. On `None` the operation continues, and
            /// the caller may wait again.
            ///
            /// # Errors
            /// As [`wait`](Self::wait).
            pub fn wait_timeout(
                &mut self,
                timeout: ::core::time::Duration,
            ) -> ::core::result::Result<Option<$value>, $error>
            where
                F: $crate::Drive,
            {
                let $this = &*self;
                let fabric = $fabric;
                $crate::wait_timeout(fabric, self, timeout).transpose()
            }
        }
    };
}

/// A handle with a [`Call`] named `call` and a [`Limit`](crate::Limit) named `limit`: like
/// [`handle`], with the function that runs the call, and its result after the deadline, which drops
/// the operation if `late` has not. The handle is then a future and has a `block` for its `wait`. It has
/// a `deadline`, and that `wait`, where their documentation stands above their names.
#[doc(hidden)]
#[macro_export]
macro_rules! limited {
    (
        [$($parameters:tt)*], $handle:ty, $value:ty, $error:ty, |$this:ident| $fabric:expr, |$asked:pat_param| $run:expr,
        late $late:expr $(, first $wait_first:path)?
        $(; $(#[$deadline:meta])* deadline $(; $(#[$wait:meta])* wait)?)?
    ) => {
        $crate::handle!([$($parameters)*], $handle, $value, $error, |$this| $fabric $(, first $wait_first)?);

        // Nothing in it is pinned in place: what must not move is boxed.
        impl<$($parameters)*> Unpin for $handle where F: $crate::Fabric {}

        impl<$($parameters)*> ::core::future::Future for $handle
        where
            F: $crate::Fabric,
        {
            type Output = ::core::result::Result<$value, $error>;

            fn poll(
                mut self: ::core::pin::Pin<&mut Self>,
                cx: &mut ::core::task::Context<'_>,
            ) -> ::core::task::Poll<Self::Output> {
                let $this = &mut *self;
                let polled = $this.call.poll(cx, |$asked| $run);
                if polled.is_pending() && $this.limit.is_set() && $this.limit.poll(cx, $fabric).is_ready() {
                    let late = $late;
                    $this.call = $crate::Call::Over;
                    return ::core::task::Poll::Ready(Err(late));
                }
                polled
            }
        }

        impl<$($parameters)*> $handle
        where
            F: $crate::Fabric,
        {
            $($(#[$deadline])*
            pub const fn deadline(mut self, after: ::core::time::Duration) -> Self {
                self.limit.said = Some(after);
                self
            }

            $($(#[$wait])*
            pub fn wait(self) -> ::core::result::Result<$value, $error>
            where
                F: $crate::Drive,
            {
                self.block()
            })?)?
        }

        impl<$($parameters)*> $handle
        where
            F: $crate::Drive,
        {
            fn block(self) -> ::core::result::Result<$value, $error> {
                let $this = self;
                let fabric = $fabric;
                if $this.limit.is_set() {
                    return $crate::block_on(fabric, $this);
                }
                $this.call.wait(fabric, |$asked| $run)
            }
        }
    };
}
