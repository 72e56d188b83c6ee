//! How a window ends, and how its memory comes back.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use fabric::Fabric;
use fabric::remote_memory::{Fault, FaultKind};

use crate::part::Made;
use crate::{Element, Error, GivenBack, Request, Window};

impl<T: Element, F: Fabric> Window<T, F> {
    /// Ends the window on all ranks: completes what this rank has posted, waits for the others, and reports what failed
    /// after its caller was gone. Collective.
    ///
    /// Other handles of the window are for nothing then. Attaching, and the first contact with a rank, are errors
    /// (`Closed`). An operation on a rank that was reached before is not looked at, because that would cost every operation:
    /// on shm it goes to memory that nobody reads any more, over a card it costs the connection once the peer has freed it.
    ///
    /// # Errors
    /// [`Error::Operation`] with the first failure of what was posted and not waited for, or of a release that a dropped
    /// guard or request left to the endpoint ([`TimedOut`](Error::is_timed_out) if a release is still under way after
    /// 5 s); [`Error::Collective`] where a rank died.
    ///
    /// # Cancel safety
    /// Not cancel safe: collective.
    pub fn close(self) -> Request<'static, (), F> {
        let fabric = self.inner.fabric().clone();
        Request::new(fabric, "close", self.run_close())
    }

    async fn run_close(self) -> Result<(), Error> {
        let ended = self.end().await;
        let freed = match self.inner.made {
            Made::Created if self.inner.attached.kept().is_some() => Ok(()),
            Made::Created => self.inner.take_back(&self.inner.own).await.map(drop),
            Made::Allocated => Ok(()),
            Made::Attached => self.inner.detach_all().await,
        };
        let own = self.inner.world.rank();
        ended.and(freed.map_err(|fault| self.inner.failed("close", own, fault)))
    }

    /// Ends the window on all ranks, as [`close`](Self::close) does, and gives back the vector that this rank's part was
    /// [created](Self::create) over. Collective; the others may call either. What holds for other handles of the window is
    /// said there.
    ///
    /// ```
    /// # use windows::Window;
    /// # fabric::threads(2, |world| {
    /// let window = Window::create(&world, vec![world.rank(); 100]).wait()?;
    /// let epoch = window.lock_exclusive(1 - world.rank()).wait()?;
    /// epoch.put(7, &[77])?;
    /// epoch.unlock().wait()?;
    /// let vector = window.close_into().wait()?;
    /// assert_eq!(vector[6..9], [world.rank(), 77, world.rank()]);
    /// # Ok(())
    /// # }).unwrap().into_iter().collect::<Result<(), windows::Error>>().unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [`close`](Self::close). Whatever else failed, the memory is taken back and comes with the error, or, if a peer stays in the middle of
    /// an operation on it for 5 s (it is stopped), given up: it is never freed then, and the error is
    /// [`TimedOut`](Error::is_timed_out). `Unsupported` if the window was not made over a vector of this type.
    ///
    /// # Cancel safety
    /// Not cancel safe: collective.
    pub fn close_into(self) -> Request<'static, Vec<T>, F, GivenBack<Vec<T>>> {
        let fabric = self.inner.fabric().clone();
        Request::new(fabric, "close_into", self.run_close_into())
    }

    async fn run_close_into(self) -> Result<Vec<T>, GivenBack<Vec<T>>> {
        let own = self.inner.world.rank();
        let failed = |fault| self.inner.failed("close_into", own, fault);
        let ended = self.end().await;
        if self.inner.made != Made::Created {
            let error =
                ended.err().unwrap_or_else(|| failed(Fault::of(FaultKind::Unsupported, self.inner.fabric().rank())));
            return Err(GivenBack::new(error, None));
        }
        let memory = match self.inner.attached.kept() {
            // A part without elements lent nothing.
            Some(memory) => Ok(memory),
            None => self.inner.take_back(&self.inner.own).await,
        };
        let vector =
            memory.and_then(|memory| memory.into_vec().map_err(|_| Fault::new(FaultKind::Unsupported))).map_err(failed);
        match (ended, vector) {
            (Ok(()), Ok(vector)) => Ok(vector),
            (Err(error), vector) => Err(GivenBack::new(error, vector.ok())),
            (Ok(()), Err(error)) => Err(GivenBack::new(error, None)),
        }
    }

    /// Completes what this rank has posted and waits for the others.
    async fn end(&self) -> Result<(), Error> {
        let own = self.inner.world.rank();
        // One that failed leaves nothing of the others behind: their owners free the memory after the barrier.
        let mut flushed = self.inner.settle().await.map_err(|fault| self.inner.failed("close", own, fault));
        for target in self.inner.targets.iter().filter_map(OnceLock::get) {
            let flush = self.inner.fabric().flush(target.fabric_rank()).await;
            flushed = flushed.and(flush.map_err(|fault| self.inner.failed("close", target.rank, fault)));
        }
        flushed = flushed.and(self.inner.kept());
        // Others wait for this rank even if something of its own failed.
        let barrier = self.inner.world.barrier().await.map_err(|error| Error::Collective {
            operation: "close",
            window: self.inner.name.clone(),
            fault: error.fault(),
        });
        self.inner.ended.store(barrier.is_ok(), Ordering::Relaxed);
        self.inner.close_agent();
        flushed.and(barrier)
    }
}
