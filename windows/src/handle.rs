//! What every handle has beside its own `wait`.

/// `test` and `wait_timeout` of a handle that is a future: its parameters, its type, what it gives and its error, and where
/// its fabric is.
macro_rules! handle {
    ([$($parameters:tt)*], $handle:ty, $value:ty, $error:ty, |$this:ident| $fabric:expr) => {
        impl<$($parameters)*> $handle {
            /// What it gives if it is done, without waiting (`MPI_Test`); what it needs for that goes on.
            ///
            /// # Errors
            /// As [`wait`](Self::wait).
            pub fn test(&mut self) -> Result<Option<$value>, $error> {
                let $this = &*self;
                let fabric = $fabric;
                match fabric::poll_now(fabric, self) {
                    std::task::Poll::Ready(outcome) => outcome.map(Some),
                    std::task::Poll::Pending => Ok(None),
                }
            }

            /// Blocks until it is done, at most this long; then `None`, and it can be waited for again.
            ///
            /// # Errors
            /// As [`wait`](Self::wait).
            pub fn wait_timeout(&mut self, timeout: std::time::Duration) -> Result<Option<$value>, $error> {
                let $this = &*self;
                let fabric = $fabric;
                fabric::wait_timeout(fabric, self, timeout).transpose()
            }
        }
    };
}
