//! Closing a window, and returning its memory.

use std::sync::Arc;

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Fabric, UserMemory};

use crate::error::Lack;
use crate::memory::window_memory::Backing;
use crate::operation::request::Awaited;
use crate::window::exchange::Flavor;
use crate::window::group::Closing;
use crate::{BufferError, Element, Error, Request, Window};

impl<T: Element, F: Fabric> Window<T, F> {
    /// Closes the window on all ranks: completes what this rank has posted, waits for the others,
    /// and reports deferred errors. Collective.
    ///
    /// A guard borrows the handle that gave it out, which cannot be closed before the guard is
    /// gone: unlock it, or drop it. A guard of another handle (a clone) may still hold its lock,
    /// and releases it later.
    ///
    /// Other handles of the window become useless: starting an epoch (a lock, a fence, a post, a
    /// start, an access without a check or a direct one), an operation in an epoch that is still
    /// open, attaching, and closing again fail with `Closed`. Direct loads and stores, and
    /// operations that other threads start during the close, are not checked: on shm they access
    /// memory that is not reused, over a card they cost the connection once the peer has freed its
    /// memory.
    ///
    /// # Errors
    /// [`Error::Operation`] with the first deferred error: of a posted operation, or of a release
    /// that a dropped guard or request left to the endpoint ([`TimedOut`](Error::is_timed_out) if a
    /// release is still under way after 5 s); [`Error::Collective`] where a rank died.
    ///
    /// # Cancel safety
    /// Not cancel safe: collective, as a [barrier](onesided_fabric::World::barrier) of the window.
    pub fn close(self) -> Request<'static, (), F> {
        Request::new(Awaited::close(&self.inner), "close", self.run_close())
    }

    async fn run_close(mut self) -> Result<(), Error> {
        let (ended, memory) = self.end_into().await;
        ended.and(memory.map(drop).map_err(|fault| self.inner.failed("close", self.inner.world.rank(), fault)))
    }

    /// Closes the window on all ranks, as [`close`](Self::close) does, and returns the vector that
    /// this rank's window memory was [created](Self::create) over. Collective; the others may call
    /// either. Other handles behave as after `close`.
    ///
    /// ```
    /// # use onesided_windows::Window;
    /// # onesided_fabric::threads(2, |world| {
    /// let window = Window::create(&world, vec![world.rank(); 100]).wait()?;
    /// let epoch = window.lock_exclusive(1 - world.rank()).wait()?;
    /// epoch.put(7, &[77])?;
    /// epoch.unlock().wait()?;
    /// let vector = window.close_into().wait()?;
    /// assert_eq!(vector[6..9], [world.rank(), 77, world.rank()]);
    /// # Ok(())
    /// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [`close`](Self::close). After any error the memory is taken back and returned with
    /// the error. If a peer stays in the middle of an operation on it for 5 s (it is stopped), the
    /// memory is leaked instead, and the error is [`TimedOut`](Error::is_timed_out). `Unsupported`
    /// if the window was not made over a vector of this type.
    ///
    /// # Cancel safety
    /// Not cancel safe: collective, as a [barrier](onesided_fabric::World::barrier) of the window.
    pub fn close_into(self) -> Request<'static, Vec<T>, F, BufferError<Vec<T>>> {
        Request::new(Awaited::close(&self.inner), "close_into", self.run_close_into())
    }

    async fn run_close_into(mut self) -> Result<Vec<T>, BufferError<Vec<T>>> {
        let (ended, memory) = self.end_into().await;
        let vector = memory.and_then(|memory| memory.and_then(|memory| memory.into_vec().ok()).ok_or(self.not_given()));
        self.with_memory("close_into", ended, vector)
    }

    /// Closes the window on all ranks, as [`close`](Self::close) does, and returns the memory that
    /// this rank's window memory was [created from](crate::Builder::create_from), or over.
    /// Collective; the others may call any of the three.
    ///
    /// # Errors
    /// Those of [`close_into`](Self::close_into). `Unsupported` if the fabric allocated the memory,
    /// or if it is [`WindowMemory`](crate::WindowMemory), which has its own call.
    ///
    /// # Cancel safety
    /// Not cancel safe: collective, as a [barrier](onesided_fabric::World::barrier) of the window.
    pub fn close_into_memory(self) -> Request<'static, UserMemory, F, BufferError<UserMemory>> {
        Request::new(Awaited::close(&self.inner), "close_into_memory", self.run_close_into_memory())
    }

    async fn run_close_into_memory(mut self) -> Result<UserMemory, BufferError<UserMemory>> {
        let (ended, memory) = self.end_into().await;
        self.with_memory("close_into_memory", ended, memory.and_then(|memory| memory.ok_or(self.not_given())))
    }

    /// Closes the window and takes back the memory of this rank's that it was made over as a whole.
    async fn end_into(&mut self) -> (Result<(), Error>, Result<Option<UserMemory>, Fault>) {
        // Only one handle of a rank closes the window: a second would enter a barrier that no other rank enters.
        if !self.inner.lifecycle.begin_close() {
            let fault = Fault::of(FaultKind::Closed, self.inner.fabric().rank());
            return (Err(self.inner.failed("close", self.inner.world.rank(), fault)), Err(fault));
        }
        let ended = self.end().await;
        let memory = match (self.inner.memory.flavor, self.inner.memory.attached.take_backing()) {
            // Window memory without elements registered nothing.
            (Flavor::Created, Some(Backing::Empty(memory))) => Ok(Some(memory)),
            (Flavor::Created, None) => self.inner.take_back(&self.inner.memory.own).await.map(Some),
            (Flavor::Dynamic, _) => self.inner.detach_all().await.map(|()| None),
            (Flavor::Created | Flavor::Allocated, _) => Ok(None),
        };
        (ended, memory)
    }

    fn not_given(&self) -> Fault {
        Lack::GivenMemory.of(self.inner.fabric().rank())
    }

    fn with_memory<M>(
        &self,
        operation: &'static str,
        ended: Result<(), Error>,
        memory: Result<M, Fault>,
    ) -> Result<M, BufferError<M>> {
        match (ended, memory) {
            (Ok(()), Ok(memory)) => Ok(memory),
            (Err(error), memory) => Err(BufferError::new(error, memory.ok())),
            (Ok(()), Err(fault)) => {
                Err(BufferError::new(self.inner.failed(operation, self.inner.world.rank(), fault), None))
            }
        }
    }

    /// Completes what this rank has posted and waits for the others.
    async fn end(&mut self) -> Result<(), Error> {
        let own = self.inner.world.rank();
        // Even after a failure this rank must release the others' memory: they free it after the
        // barrier.
        let mut flushed = self.inner.drain_background().await.map_err(|fault| self.inner.failed("close", own, fault));
        flushed = flushed.and(self.inner.flush_each("close", self.inner.memory.all_cached(), F::flush).await);
        flushed = flushed.and(self.inner.lifecycle.take_deferred());
        let closing = Closing::new(&self.inner);
        // Without other handles, this rank accesses no peer's memory any more but the slots: its owner
        // has it back after the barrier.
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.memory.targets.iter_mut().for_each(|target| drop(target.take()));
        }
        // The others wait for this rank even if its own operations failed.
        let barrier = closing.meet().await;
        drop(closing);
        self.inner.lifecycle.set_ended(barrier.is_ok());
        self.inner.close_agent();
        let stopped = self.inner.locks.stop_server().await.map_err(|fault| self.inner.failed("close", own, fault));
        flushed.and(barrier).and(stopped)
    }
}
