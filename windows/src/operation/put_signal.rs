//! Signals: puts that notify their receiver.

use std::pin::pin;

use onesided_fabric::remote_memory::{Fault, FaultKind, Notify, Patience};
use onesided_fabric::{Fabric, Wait, telling};

use crate::datatype::element::{elements_in, from_word, to_word};
use crate::datatype::fields::WholeElement;
use crate::error::SIGNAL_AT;
use crate::handles::Operation;
use crate::helper::is_wordless;
use crate::operation::request::Awaited;
use crate::window::inner::Inner;
use crate::{Access, AtomicElement, Element, Error, Local, Request, Shape};

impl<T: Element, F: Fabric> Access<'_, T, F> {
    /// Puts one element of 8 bytes and wakes its owner if it waits for it ([`Local::wait_until`]).
    /// A rank that sees the signal also sees what this rank has put to this target before, through
    /// any window: data first, then the signal, without a flush between them
    /// ([`put_signal`](Self::put_signal) does both). On cards it is a solicited write with
    /// immediate; to memory that has no words here (user memory, on shm) it is a put
    /// whose completion the owner waits for.
    ///
    /// A signal is not ordered behind pending atomics and gets, and is not atomic itself: origins
    /// that signal the same target use an element each. Like a [`put`](Self::put) it is complete
    /// there after a flush.
    ///
    /// # Errors
    /// [`Error::Range`]; [`Error::Type`] if an element does not have 8 bytes. The flush or the
    /// unlock reports later failures.
    pub fn signal(&self, offset: usize, value: T) -> Result<(), Error>
    where
        T: AtomicElement,
    {
        self.signalled_element("signal", offset).and_then(|element| self.signal_at("signal", (offset, element), value))
    }
}

impl<T: AtomicElement, F: Fabric> Access<'_, T, F> {
    fn signalled_element(&self, operation: &'static str, offset: usize) -> Result<Signalled<'_, F>, Error> {
        let element = check::<T>().and_then(|()| self.atomic_range(offset, 1)).and_then(|at| {
            match self.inner.fabric().word_in(&self.target.data, at) {
                Ok(word) => Ok(Signalled::Word(word)),
                Err(fault) if is_wordless(fault) => Ok(Signalled::Wordless(at)),
                Err(fault) => Err(fault),
            }
        });
        element.map_err(|fault| self.copy().failed(operation, (offset, 1), fault))
    }

    fn signal_at(
        &self,
        operation: &'static str,
        (offset, element): (usize, Signalled<'_, F>),
        value: T,
    ) -> Result<(), Error> {
        match element {
            Signalled::Word(word) => {
                drop(self.inner.fabric().write(word, to_word(value), Notify::Yes));
                Ok(())
            }
            Signalled::Wordless(at) => {
                let signalled = self.inner.signal_wordless(self.target, at, to_word(value));
                signalled.map_err(|fault| self.copy().failed(operation, (offset, 1), fault))
            }
        }
    }
}

/// The destination of a signal.
enum Signalled<'w, F: Fabric> {
    Word(F::Word<'w>),
    /// Memory that has no words here.
    Wordless(u64),
}

impl<T: Element, F: Fabric> Access<'_, T, F> {
    /// Puts elements and then a [signal](Access::signal), in one call (`shmem_put_signal` with
    /// `SHMEM_SIGNAL_SET`; OpenSHMEM 1.5, 9.8.1). The signal is element `at` of `signals`, which
    /// must be of the same rank but may be of another window.
    ///
    /// ```
    /// # use onesided_windows::Window;
    /// # onesided_fabric::threads(2, |world| {
    /// let (data, signals) = (Window::<f32>::allocate(&world, 100).wait()?, Window::<u64>::allocate(&world, 1).wait()?);
    /// let other = 1 - world.rank();
    /// let (to, flags) = (data.lock_shared(other).wait()?, signals.lock_shared(other).wait()?);
    /// to.put_signal(0, &[1.5; 100], &flags, 0, 1)?;
    /// signals.local().wait_until_from(other, 0, |signal| signal == 1).wait()?;
    /// assert_eq!(data.local().read(0..100), [1.5; 100]);
    /// # to.unlock().wait()?;
    /// # flags.unlock().wait()?;
    /// # data.close().wait()?;
    /// # signals.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [`put`](Self::put) and [`signal`](Access::signal), and [`Error::Operation`]
    /// (`Unsupported`) where `signals` is of another rank: the two would be unordered. After a
    /// returned error nothing was signalled; the flush or the unlock reports later failures.
    pub fn put_signal<S: AtomicElement>(
        &self,
        offset: usize,
        elements: &[T],
        signals: &Access<'_, S, F>,
        at: usize,
        value: S,
    ) -> Result<(), Error> {
        let element = self.signalled_in("put_signal", signals, at)?;
        self.put(offset, elements)?;
        signals.signal_at("put_signal", (at, element), value)
    }

    /// [`put_signal`](Self::put_signal) with the elements of a shape that starts at `offset`. The
    /// request does nothing unless waited on or polled; when it completes, the slice may be reused.
    ///
    /// ```
    /// # use onesided_windows::{Shape, Window};
    /// # onesided_fabric::threads(2, |world| {
    /// # let (data, signals) =
    /// #     (Window::<f32>::allocate(&world, 40).wait()?, Window::<u64>::allocate(&world, 1).wait()?);
    /// # let other = 1 - world.rank();
    /// # let (to, flags) = (data.lock_shared(other).wait()?, signals.lock_shared(other).wait()?);
    /// let column = Shape::Vector { count: 4, block: 1, stride: 10 };
    /// to.put_signal_shaped(7, column, &[1.5; 4], &flags, 0, 1).wait()?;
    /// signals.local().wait_until_from(other, 0, |signal| signal == 1).wait()?;
    /// assert_eq!(data.local().get(37)?, 1.5);
    /// # to.unlock().wait()?;
    /// # flags.unlock().wait()?;
    /// # data.close().wait()?;
    /// # signals.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
    /// ```
    ///
    /// # Errors
    /// When waited on: those of [`put_shaped`](Self::put_shaped) and
    /// [`put_signal`](Self::put_signal).
    ///
    /// # Cancel safety
    /// A request that is dropped before it completes has not signalled, and may have put some of
    /// the elements.
    pub fn put_signal_shaped<'s, S: AtomicElement>(
        &'s self,
        offset: usize,
        shape: Shape<'s>,
        elements: &'s [T],
        signals: &'s Access<'_, S, F>,
        at: usize,
        value: S,
    ) -> Request<'s, (), F> {
        let operation = "put_signal_shaped";
        Request::new(Awaited::Target(self.inner, self.target.rank), operation, async move {
            let element = self.signalled_in(operation, signals, at)?;
            Operation::put_pieces(self.copy(), operation, (offset, shape), WholeElement, elements).await?;
            signals.signal_at(operation, (at, element), value)
        })
    }

    /// The element to be signalled, of this target.
    fn signalled_in<'s, S: AtomicElement>(
        &self,
        operation: &'static str,
        signals: &'s Access<'_, S, F>,
        at: usize,
    ) -> Result<Signalled<'s, F>, Error> {
        let target = self.target.fabric_rank();
        if signals.target.fabric_rank() != target {
            let elsewhere = Fault::of(FaultKind::Unsupported, target).with_detail(SIGNAL_AT | signals.target.rank);
            return Err(self.inner.failed(operation, self.target.rank, elsewhere));
        }
        signals.signalled_element(operation, at)
    }
}

impl<'w, T: Element, F: Fabric> Local<'w, T, F> {
    /// Waits until an element of 8 bytes satisfies the predicate, and returns it. A peer's
    /// [`signal`](Access::signal) wakes this rank. Use a signal: a put does not wake this rank.
    ///
    /// What peers did before they signalled is then visible, to [`read`](Self::read) too. No lock
    /// is needed.
    ///
    /// The death of any rank fails it: that rank may have been the one to signal. So does the leaving
    /// of all others.
    ///
    /// Does nothing unless waited on or polled.
    ///
    /// # Errors
    /// [`Error::Range`]; [`Error::Type`] if an element does not have 8 bytes; [`Error::Operation`]
    /// if a rank died, all others have left, or the deadline passed. A value that arrived before that is returned.
    pub fn wait_until<P>(&self, offset: usize, predicate: P) -> Request<'w, T, F>
    where
        T: AtomicElement,
        P: Fn(T) -> bool + Send + 'w,
    {
        self.request("wait_until", wait_until(self.inner(), offset, Box::new(predicate), None))
    }

    /// The same for a signal of this rank: only its death or its leaving fails the wait.
    ///
    /// # Errors
    /// As [`wait_until`](Self::wait_until), and [`Error::Rank`].
    pub fn wait_until_from<P>(&self, origin: u32, offset: usize, predicate: P) -> Request<'w, T, F>
    where
        T: AtomicElement,
        P: Fn(T) -> bool + Send + 'w,
    {
        self.request("wait_until", wait_until(self.inner(), offset, Box::new(predicate), Some(origin)))
    }

    pub(super) fn request<R>(
        &self,
        operation: &'static str,
        wait: impl Future<Output = Result<R, Error>> + Send + 'w,
    ) -> Request<'w, R, F> {
        let inner = self.inner();
        Request::new(Awaited::Target(inner, inner.world.rank()), operation, wait)
    }
}

async fn wait_until<T: AtomicElement, F: Fabric>(
    inner: &Inner<F>,
    offset: usize,
    predicate: Box<dyn Fn(T) -> bool + Send + '_>,
    from: Option<u32>,
) -> Result<T, Error> {
    let fabric = inner.fabric();
    let own = inner.world.rank();
    let len = elements_in::<T>(inner.memory.len(own));
    let origin = from.map(|origin| inner.world.fabric_rank(origin));
    let word = check::<T>().and_then(|()| match origin {
        Some(None) => Err(Fault::new(FaultKind::NoSuchRank)),
        _ if offset >= len => Err(Fault::new(FaultKind::OutOfRange)),
        _ => fabric.word_in(&inner.memory.own, 8 * offset as u64),
    });
    let predicate = move |told| predicate(from_word(told));
    let patience = origin.flatten().map(Patience::on);
    let wait = pin!(async {
        match (word, patience) {
            (Ok(word), _) if fabric.load(word).is_err_and(|fault| fault.kind() == FaultKind::NotOwn) => {
                inner.wait_user_memory(8 * offset as u64, predicate, patience).await
            }
            (Ok(word), Some(patience)) => fabric.wait_until(word, predicate, patience).await,
            (Ok(word), None) => inner.world.wait_until(word, predicate).await,
            (Err(fault), _) if is_wordless(fault) => inner.wait_wordless(8 * offset as u64, predicate, patience).await,
            (Err(fault), _) => Err(fault),
        }
    });
    let told = telling(wait, || {
        let what = format!("a signal at offset {offset} of window \"{}\"", inner.name);
        Some(Wait { rank: fabric.rank(), awaited: origin.flatten().into_iter().collect(), since: None, what })
    });
    told.await.map(from_word).map_err(|fault| {
        let (operation, window, target) = ("wait_until", inner.name.clone(), own);
        match fault.kind() {
            FaultKind::OutOfRange => Error::Range { operation, offset, count: 1, target, len, window },
            FaultKind::Unsupported if fault.rank().is_none() => {
                Error::Type { operation, op: None, target, window, element: std::any::type_name::<T>() }
            }
            FaultKind::NoSuchRank => inner.failed(operation, from.unwrap_or(target), fault),
            _ => inner.failed(operation, target, fault),
        }
    })
}

/// Signals are words of 8 bytes.
fn check<T>() -> Result<(), Fault> {
    if size_of::<T>() == 8 { Ok(()) } else { Err(Fault::new(FaultKind::Unsupported)) }
}
