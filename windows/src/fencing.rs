//! Fencing tokens: numbers that only rise, from one holder of a lock to the next.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use fabric::remote_memory::Fault;
use fabric::{Drive, Fabric, handle, wait_for};

use crate::homes::Which;
use crate::window::{Inner, Target};
use crate::{Element, Epoch, Error, LockRequest, Request};

/// A fencing token that is drawn: `.wait()` blocks until it is here, `.await` does not, `.test()` looks. The operation has left.
/// See [`Epoch::fencing_token`].
#[must_use = "the token is there only after it was waited for"]
pub struct FencingToken<'w, F: Fabric> {
    inner: &'w Inner<F>,
    rank: u32,
    drawn: Drawn<F>,
}

enum Drawn<F: Fabric> {
    UnderWay(F::Op),
    Done(Result<u64, Fault>),
}

/// The token that was drawn from a counter that was so far.
const fn after(drawn: u64) -> u64 {
    drawn.wrapping_add(1)
}

impl<F: Fabric> Inner<F> {
    /// Draws a token of a lock: a fetch-add of the word beside it.
    pub(crate) fn draw_token<'w>(&'w self, target: &'w Target<F>, which: Which) -> FencingToken<'w, F> {
        let word = match (which.is_part(), self.table.token) {
            (true, _) => self.fabric().word_in(&target.locks, self.homes.token()),
            (false, Some(token)) => self.fabric().word_in(&target.data, self.table.word(which, token)),
            (false, None) => Err(Fault::of(fabric::remote_memory::FaultKind::Unsupported, target.fabric_rank())),
        };
        let drawn = match word {
            Ok(word) => Drawn::UnderWay(self.fabric().fetch_add(word, 1)),
            Err(fault) => Drawn::Done(Err(fault)),
        };
        FencingToken { inner: self, rank: target.rank, drawn }
    }
}

impl<F: Drive> FencingToken<'_, F> {
    /// Blocks until the token is here.
    ///
    /// # Errors
    /// See [`Epoch::fencing_token`].
    pub fn wait(self) -> Result<u64, Error> {
        let token = match self.drawn {
            Drawn::UnderWay(op) => wait_for(self.inner.fabric(), op).map(after),
            Drawn::Done(token) => token,
        };
        token.map_err(|fault| self.inner.failed("fencing_token", self.rank, fault))
    }
}

handle!(['w, F], FencingToken<'w, F>, u64, Error, |token| token.inner.fabric());

// Nothing in it is pinned in place: what a fabric gives is Unpin.
impl<F: Fabric> Unpin for FencingToken<'_, F> {}

impl<F: Fabric> Future for FencingToken<'_, F> {
    type Output = Result<u64, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let token = match &mut self.drawn {
            Drawn::UnderWay(op) => ready!(Pin::new(op).poll(cx)).map(after),
            Drawn::Done(token) => *token,
        };
        self.drawn = Drawn::Done(token);
        Poll::Ready(token.map_err(|fault| self.inner.failed("fencing_token", self.rank, fault)))
    }
}

impl<F: Fabric> fmt::Debug for FencingToken<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a fencing token of rank {} of window \"{}\"", self.rank, self.inner.name)
    }
}

impl<'w, T: Element, F: Fabric> Epoch<'w, T, F> {
    /// Draws a fencing token: a number, from 1 on, that is larger than that of everybody who held the lock before, and smaller
    /// than that of everybody who holds it later; across inheritances as well. Those who hold it together have different
    /// ones. A store that keeps the largest token it has seen, and refuses smaller ones, is safe from an owner that is only
    /// late: one that was taken for dead, or was stopped past its lease.
    ///
    /// A fetch-add beside the lock, which leaves with the call: who does not ask pays nothing. Two calls give two tokens, the
    /// second one larger. Asked for [in advance](LockRequest::fenced) it costs no round trip of its own.
    ///
    /// ```
    /// # use windows::Window;
    /// # fabric::threads(2, |world| {
    /// # let window = Window::<u64>::allocate(&world, 1).wait()?;
    /// let epoch = window.lock_exclusive(1).wait()?;
    /// let token = epoch.fencing_token().wait()?;
    /// epoch.unlock().wait()?;
    /// let (epoch, later) = window.lock_exclusive(1).fenced().wait()?;
    /// assert!(later > token);
    /// # epoch.unlock().wait()?;
    /// # window.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), windows::Error>>().unwrap();
    /// ```
    ///
    /// # Errors
    /// When waited for: [`Error::Operation`].
    ///
    /// # Cancel safety
    /// Dropped before it is done it may have drawn a token that nobody has.
    pub fn fencing_token(&self) -> FencingToken<'w, F> {
        let (inner, target, which) = self.lock_parts();
        inner.draw_token(target, which)
    }
}

impl<'w, T: Element, F: Fabric> LockRequest<'w, T, F> {
    /// Asks for a [fencing token](Epoch::fencing_token) with the lock: it is drawn behind the acquire's first operation, in
    /// the same round trip, and once more only if that did not suffice. A [deadline](Self::deadline) is said before.
    ///
    /// # Errors
    /// When waited for: those of [`wait`](Self::wait), and [`Error::Operation`] if the token could not be drawn; the lock is
    /// released then.
    ///
    /// # Cancel safety
    /// As the request.
    pub fn fenced(self) -> Request<'w, (Epoch<'w, T, F>, u64), F> {
        let inner = self.inner();
        // Behind the compare-swap on the same connection: if that took the lock, this was drawn under it.
        let early = inner.target(self.spot().0).ok().map(|target| inner.draw_token(target, self.spot().1));
        Request::new(inner.fabric().clone(), "lock with a fencing token", async move {
            match (self.held().await?, early) {
                ((epoch, true), Some(early)) => Ok((epoch, early.await?)),
                ((epoch, _), _) => {
                    let token = epoch.fencing_token().await?;
                    Ok((epoch, token))
                }
            }
        })
    }
}
