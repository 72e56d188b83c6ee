//! Fencing tokens: numbers that rise from one holder of a lock to the next.

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_lock_algos::{Mode, TokenDraw};

use crate::handles::LockRequest;
use crate::locks::layout::LockId;
use crate::operation::request::{Awaited, Begin};
use crate::passive::lock::{Kind, operation};
use crate::window::inner::Inner;
use crate::window::target::Target;
use crate::{Element, Epoch, Error, Request};

impl<F: Fabric> Inner<F> {
    /// Draws a token of a lock: a fetch-add on the word beside it.
    fn draw_token(&self, target: &Target<F>, id: LockId) -> Result<TokenDraw<F::Op>, Fault> {
        let word = match (id.is_window_lock(), self.locks.table.token) {
            (true, _) => self.fabric().word_in(&target.locks, self.locks.layout.token())?,
            (false, Some(token)) => self.fabric().word_in(&target.data, self.locks.table.word(id, token))?,
            (false, None) => return Err(Fault::of(FaultKind::Unsupported, target.fabric_rank())),
        };
        if self.locks.commits() && id.is_window_lock() {
            let lock = self.fabric().word_in(&target.locks, self.locks.layout.word(0))?;
            return Ok(TokenDraw::checked(self.fabric(), word, lock));
        }
        Ok(TokenDraw::from(self.fabric(), word))
    }
}

impl<'w, T: Element, F: Fabric> Epoch<'w, T, F> {
    /// Draws a fencing token: a number, from 1 on, larger than the token of every earlier holder of
    /// the lock and smaller than that of every later holder, also across recoveries. Concurrent
    /// shared holders get different tokens. A store that keeps the largest token it has seen, and
    /// rejects smaller ones, is safe from an owner that is only delayed: one that was declared
    /// dead, or stopped past its lease.
    ///
    /// **Draw it while the lock is certainly held**: right after the acquire, or with it, not after
    /// anything that may have taken long. An owner that was declared dead meanwhile, and draws a
    /// token when the recovering owner already holds the lock, gets a larger one than the
    /// recovering owner. Only [`LeasePolicy::VersionedCommit`](crate::LeasePolicy::VersionedCommit)
    /// detects that: it reads the lock's word behind the fetch-add, in the same round trip, and an
    /// owner whose lease has expired gets [`Error::Late`] instead of a token.
    ///
    /// A token is a fetch-add beside the lock, posted by the call; locks without tokens pay
    /// nothing. Two calls give two tokens, the second one larger. Requested [with the
    /// lock](LockRequest::fenced) it costs no round trip of its own.
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
    /// When waited on: [`Error::Operation`]; [`Error::Late`] in a window with
    /// [`LeasePolicy::VersionedCommit`](crate::LeasePolicy::VersionedCommit).
    ///
    /// # Cancel safety
    /// If dropped before it completes, a token may have been drawn and discarded.
    #[inline]
    pub fn fencing_token(&self) -> Request<'w, u64, F, Error, impl Begin<u64> + use<'w, T, F>> {
        let (inner, target, id) = self.lock_parts();
        Request::unboxed(self.awaited(), "fencing_token", self.token(inner.draw_token(target, id)))
    }

    /// The token that was drawn under this lock.
    #[inline]
    fn token(&self, drawn: Result<TokenDraw<F::Op>, Fault>) -> impl Begin<u64> + use<'w, T, F> {
        let ((inner, target, _), word) = (self.lock_parts(), self.sole_word());
        move || async move {
            let token = match drawn {
                Ok(draw) => draw.held_as(word).await,
                Err(fault) => Err(fault),
            };
            token.map_err(|fault| inner.failed_or_expired("fencing_token", target.rank, fault))
        }
    }

    /// The value of the lock's word while this owner holds it exclusively.
    fn sole_word(&self) -> Option<u64> {
        (self.mode() == Mode::Exclusive).then(|| self.held_word())
    }
}

impl<'w, T: Element, F: Fabric, K: Kind<T>> LockRequest<'w, T, F, K> {
    /// Requests a [fencing token](Epoch::fencing_token) with the lock: it is drawn behind the
    /// acquire's first operation, in the same round trip, and again only if that operation did not
    /// suffice. Set [`recover`](Self::recover) first.
    ///
    /// # Errors
    /// When waited on: those of [`wait`](Self::wait), and those of
    /// [`fencing_token`](Epoch::fencing_token) if the token could not be drawn; the lock is then
    /// released. A try-lock that finds the lock taken is [`TimedOut`](Error::is_timed_out).
    ///
    /// # Cancel safety
    /// As the request.
    pub fn fenced(self) -> Request<'w, (K::Guard<'w, F>, u64), F> {
        let (inner, lock, (rank, id)) = (self.inner(), self.lock(), self.target_lock());
        // Behind the compare-and-swap on the same connection: if that took the lock, the token was
        // drawn under it.
        let target = inner.begin(rank).ok().filter(|_| inner.locks.starts_at_target());
        let early = target.map(|target| inner.draw_token(target, id));
        Request::new(Awaited::Lock(inner, rank), operation(self.mode()), async move {
            let (epoch, by_first) = self.held().await?;
            let token = match early.filter(|_| by_first) {
                Some(early) => epoch.token(early).begin().await?,
                None => epoch.fencing_token().await?,
            };
            Ok((K::guard(epoch.claim(), lock), token))
        })
    }
}

#[cfg(test)]
mod tests {
    use onesided_fabric::block_on;

    use crate::{Error, LockDesign, Window};

    /// A reader of distributed counters holds the lock by its first operation, which is not at the
    /// target.
    #[test]
    fn a_lock_with_per_rank_words_has_no_token_under_it() {
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
