//! Several concurrent operations on borrowed slices.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use onesided_fabric::remote_memory::Rank;
use onesided_fabric::{Drive, Fabric, block_on, debug};

use crate::{Access, AtomicElement, Element, Error, Op, Window};

/// Concurrent operations that complete at the end of a [`Window::scope`].
pub struct Scope<'env, T: Element, F: Fabric = onesided_fabric::Any> {
    window: &'env Window<T, F>,
    begun: RefCell<Begun<'env, T, F>>,
}

type Handle<'env> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'env>>;

impl<'env, T: Element, F: Fabric> Scope<'env, T, F> {
    const fn new(window: &'env Window<T, F>) -> Self {
        Self { window, begun: RefCell::new(Begun::NONE) }
    }

    /// Starts a get. See [`Access::get`].
    pub fn get(&self, from: &'env Access<'env, T, F>, offset: usize, into: &'env mut [T]) {
        self.begun.borrow_mut().handles.push(Box::pin(from.get(offset, into)));
    }

    /// Starts a put. See [`Access::put`].
    pub fn put(&self, to: &'env Access<'env, T, F>, offset: usize, elements: &[T]) {
        let mut begun = self.begun.borrow_mut();
        begun.targets.insert(to.target.fabric_rank(), to);
        let failed = to.put(offset, elements).err();
        begun.failed = begun.failed.take().or(failed);
    }

    /// Takes the operations that were started.
    fn take(&self) -> Begun<'env, T, F> {
        self.begun.replace(Begun::NONE)
    }
}

/// The operations of a closure: separate from the scope, whose cells are not `Sync`.
struct Begun<'env, T: Element, F: Fabric> {
    handles: Vec<Handle<'env>>,
    /// The targets of puts, by the fabric's rank: the accesses may be of several windows, which
    /// number their ranks differently.
    targets: BTreeMap<Rank, &'env Access<'env, T, F>>,
    failed: Option<Error>,
}

impl<T: Element, F: Fabric> Begun<'_, T, F> {
    const NONE: Self = Self { handles: Vec::new(), targets: BTreeMap::new(), failed: None };

    /// Waits for all operations, and flushes the targets of puts.
    async fn complete(self) -> Result<(), Error> {
        let Self { handles, targets, mut failed } = self;
        let mut handles: Vec<_> = handles.into_iter().map(Some).collect();
        let mut outcomes: Vec<_> = handles.iter().map(|_| Ok(())).collect();
        // Polls all of them each time: operations of several steps progress concurrently.
        poll_fn(|cx| {
            let mut left = false;
            for (handle, outcome) in handles.iter_mut().zip(&mut outcomes) {
                match handle.as_mut().map(|under_way| under_way.as_mut().poll(cx)) {
                    Some(Poll::Ready(done)) => (*handle, *outcome) = (None, done),
                    Some(Poll::Pending) => left = true,
                    None => {}
                }
            }
            if left { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        for outcome in outcomes {
            failed = failed.or(outcome.err());
        }
        for access in targets.values() {
            access.inner.begin_flushes(std::iter::once(access.target));
        }
        for access in targets.into_values() {
            failed = failed.or(access.flush().await.err());
        }
        failed.map_or(Ok(()), Err)
    }
}

impl<'env, T: AtomicElement, F: Fabric> Scope<'env, T, F> {
    /// Starts an accumulate. See [`Access::accumulate`].
    pub fn accumulate(&self, at: &'env Access<'env, T, F>, offset: usize, operands: &'env [T], op: Op) {
        let mut begun = self.begun.borrow_mut();
        begun.targets.insert(at.target.fabric_rank(), at);
        begun.handles.push(Box::pin(at.accumulate(offset, operands, op)));
    }

    /// Starts a get_accumulate. See [`Access::get_accumulate`].
    pub fn get_accumulate(
        &self,
        at: &'env Access<'env, T, F>,
        offset: usize,
        operands: &'env [T],
        results: &'env mut [T],
        op: Op,
    ) {
        self.begun.borrow_mut().handles.push(Box::pin(at.get_accumulate(offset, operands, results, op)));
    }
}

/// Completes the operations even if the closure panics.
struct Completes<'s, 'env, T: Element, F: Drive>(&'s Scope<'env, T, F>);

impl<T: Element, F: Drive> Drop for Completes<'_, '_, T, F> {
    fn drop(&mut self) {
        // After a closure that returned, nothing is left to complete.
        let _ = block_on(self.0.window.inner().fabric(), self.0.take().complete());
    }
}

impl<T: Element, F: Drive> Window<T, F> {
    /// Runs a closure that starts operations on borrowed slices, and waits for all of them: when
    /// this returns, or unwinds from a panic of the closure, gets have filled their slices and puts
    /// are complete at their targets.
    ///
    /// The operations run concurrently and are unordered, except for puts to one target. They start in
    /// the closure; accumulates of several steps progress after it has returned. The accesses may be of
    /// other windows too.
    ///
    /// ```
    /// # use onesided_windows::{Op, Window};
    /// # onesided_fabric::threads(2, |world| {
    /// # let window = Window::<u64>::allocate(&world, 100).wait()?;
    /// let all = window.lock_all().wait()?;
    /// let (mut left, mut right) = ([1; 10], [1; 10]);
    /// window.scope(|scope| {
    ///     scope.get(all.at(0).wait()?, 0, &mut left);
    ///     scope.get(all.at(1).wait()?, 10, &mut right);
    ///     scope.put(all.at(1).wait()?, 20 + world.rank() as usize, &[7]);
    ///     Ok(())
    /// })?;
    /// assert_eq!((left, right), ([0; 10], [0; 10]));
    /// # all.unlock_all().wait()?;
    /// # window.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
    /// ```
    ///
    /// # Errors
    /// The closure's error; if it has none, the first of the operations.
    ///
    /// # Panics
    /// If the closure panics, after all operations are complete.
    pub fn scope<'env, R>(&'env self, begin: impl FnOnce(&Scope<'env, T, F>) -> Result<R, Error>) -> Result<R, Error> {
        let scope = Scope::new(self);
        let completes = Completes(&scope);
        let begun = begin(&scope);
        let completed = block_on(self.inner().fabric(), scope.take().complete());
        drop(completes);
        begun.and_then(|value| completed.map(|()| value))
    }
}

impl<T: Element, F: Fabric> Window<T, F> {
    /// [`scope`](Self::scope) without blocking the thread: the closure starts the operations, the
    /// future waits for them.
    ///
    /// # Errors
    /// As [`scope`](Self::scope).
    ///
    /// # Cancel safety
    /// If dropped before it completes, each slice is unchanged or filled; puts go on.
    pub async fn scope_async<'env, R>(
        &'env self,
        begin: impl FnOnce(&Scope<'env, T, F>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let (outcome, begun) = {
            let scope = Scope::new(self);
            (begin(&scope), scope.take())
        };
        let completed = begun.complete().await;
        outcome.and_then(|value| completed.map(|()| value))
    }
}

debug!(
    [T: Element, F: Fabric] Scope<'_, T, F>,
    |this| "{} operations on {:?}", this.begun.borrow().handles.len(), this.window
);
