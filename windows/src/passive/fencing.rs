//! Fencing tokens: numbers that only rise, from one holder of a lock to the next.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Drive, Fabric, handle, wait_for};

use onesided_lock_algos::{Mode, TokenDraw};

use crate::locks::layout::LockId;
use crate::passive::cancelled::Unclaimed;
use crate::window::inner::Inner;
use crate::window::target::Target;
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
    UnderWay(TokenDraw<F::Op>),
    Done(Result<u64, Fault>),
}

impl<F: Fabric> FencingToken<'_, F> {
    /// Says what the lock's word is while its owner has it, if another may take it.
    fn held_as(self, word: Option<u64>) -> Self {
        let drawn = match self.drawn {
            Drawn::UnderWay(draw) => Drawn::UnderWay(draw.held_as(word)),
            done => done,
        };
        Self { drawn, ..self }
    }
}

impl<F: Fabric> Inner<F> {
    /// Draws a token of a lock: a fetch-add of the word beside it.
    pub(crate) fn draw_token<'w>(&'w self, target: &'w Target<F>, id: LockId) -> FencingToken<'w, F> {
        let word = match (id.is_window_lock(), self.locks.table.token) {
            (true, _) => self.fabric().word_in(&target.locks, self.locks.layout.token()),
            (false, Some(token)) => self.fabric().word_in(&target.data, self.locks.table.word(id, token)),
            (false, None) => Err(Fault::of(FaultKind::Unsupported, target.fabric_rank())),
        };
        let drawn = word.and_then(|word| match self.locks.commits() && id.is_window_lock() {
            false => Ok(TokenDraw::from(self.fabric(), word)),
            true => {
                let lock = self.fabric().word_in(&target.locks, self.locks.layout.word(0))?;
                Ok(TokenDraw::checked(self.fabric(), word, lock))
            }
        });
        let drawn = drawn.map_or_else(|fault| Drawn::Done(Err(fault)), Drawn::UnderWay);
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
            Drawn::UnderWay(draw) => wait_for(self.inner.fabric(), draw),
            Drawn::Done(token) => token,
        };
        token.map_err(|fault| self.inner.failed_or_expired("fencing_token", self.rank, fault))
    }
}

handle!(['w, F], FencingToken<'w, F>, u64, Error, |token| token.inner.fabric());

// Nothing in it is pinned in place: what a fabric gives is Unpin.
impl<F: Fabric> Unpin for FencingToken<'_, F> {}

impl<F: Fabric> Future for FencingToken<'_, F> {
    type Output = Result<u64, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let token = match &mut self.drawn {
            Drawn::UnderWay(draw) => ready!(Pin::new(draw).poll(cx)),
            Drawn::Done(token) => *token,
        };
        self.drawn = Drawn::Done(token);
        Poll::Ready(token.map_err(|fault| self.inner.failed_or_expired("fencing_token", self.rank, fault)))
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
    /// **It must be drawn while the lock is surely held**: at once after the acquire, or with it, not after whatever may have taken
    /// long. Who draws one when an heir has the lock already, because it was taken for dead meanwhile, gets a larger one than
    /// the heir's. Only with [`LeasePolicy::VersionedCommit`](crate::LeasePolicy::VersionedCommit) is that seen: behind the
    /// fetch-add the lock's word is read, in the same round trip, and a late owner gets [`Error::Late`] for a token.
    ///
    /// A fetch-add beside the lock, which leaves with the call: who does not ask pays nothing. Two calls give two tokens, the
    /// second one larger. Asked for [in advance](LockRequest::fenced) it costs no round trip of its own.
    ///
    /// ```
    /// # use onesided_windows::Window;
    /// # onesided_fabric::threads(2, |world| {
    /// # let window = Window::<u64>::allocate(&world, 1).wait()?;
    /// let epoch = window.lock_exclusive(1).wait()?;
    /// let token = epoch.fencing_token().wait()?;
    /// epoch.unlock().wait()?;
    /// let (epoch, later) = window.lock_exclusive(1).fenced().wait()?;
    /// assert!(later > token);
    /// # epoch.unlock().wait()?;
    /// # window.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
    /// ```
    ///
    /// # Errors
    /// When waited for: [`Error::Operation`]; [`Error::Late`] in a window with
    /// [`LeasePolicy::VersionedCommit`](crate::LeasePolicy::VersionedCommit).
    ///
    /// # Cancel safety
    /// Dropped before it is done it may have drawn a token that nobody has.
    pub fn fencing_token(&self) -> FencingToken<'w, F> {
        let (inner, target, id) = self.lock_parts();
        inner.draw_token(target, id).held_as(self.sole_word())
    }

    /// What the lock's word is while this owner has it, if it has it alone.
    fn sole_word(&self) -> Option<u64> {
        (self.mode() == Mode::Exclusive).then(|| self.held_word())
    }
}

impl<'w, T: Element, F: Fabric> LockRequest<'w, T, F> {
    /// Asks for a [fencing token](Epoch::fencing_token) with the lock: it is drawn behind the acquire's first operation, in
    /// the same round trip, and once more only if that did not suffice. A [deadline](Self::deadline) is said before.
    ///
    /// # Errors
    /// When waited for: those of [`wait`](Self::wait), and those of [`fencing_token`](Epoch::fencing_token) if the token could not be drawn; the lock
    /// is released then.
    ///
    /// # Cancel safety
    /// As the request.
    pub fn fenced(self) -> Request<'w, (Epoch<'w, T, F>, u64), F> {
        let inner = self.inner();
        // Behind the compare-swap on the same connection: if that took the lock, this was drawn under it.
        let target = inner.begin(self.target_lock().0).ok().filter(|_| inner.locks.starts_at_target());
        let early = target.map(|target| inner.draw_token(target, self.target_lock().1));
        Request::new(inner.fabric().clone(), "lock with a fencing token", async move {
            match (self.held().await?, early) {
                ((epoch, true), Some(early)) => {
                    let token = early.held_as(epoch.sole_word()).await?;
                    Ok((epoch, token))
                }
                ((epoch, _), _) => {
                    let epoch = Unclaimed::new(epoch);
                    let token = epoch.fencing_token().await?;
                    Ok((epoch.claim(), token))
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use onesided_fabric::block_on;

    use crate::{Error, LockDesign, Window};

    /// A reader of distributed counters holds the lock by its first operation, but that was not at the target.
    #[test]
    fn behind_a_spread_lock_nothing_is_under_it() {
        for (design, at_once) in [(LockDesign::Ticket, true), (LockDesign::DistributedCounters, false)] {
            let ranks = onesided_fabric::threads(1, |world| {
                let window = Window::<u64>::builder().lock(design).allocate(&world, 1).wait()?;
                let (epoch, sufficed) = block_on(world.fabric(), window.lock_shared(0).held())?;
                assert_eq!(sufficed, at_once, "{design}");
                epoch.unlock().wait()?;
                for token in 1..4 {
                    let (epoch, drawn) = window.lock_shared(0).fenced().wait()?;
                    assert_eq!(drawn, token, "{design}");
                    epoch.unlock().wait()?;
                }
                window.close().wait()
            });
            ranks.unwrap().into_iter().collect::<Result<(), Error>>().unwrap();
        }
    }
}
