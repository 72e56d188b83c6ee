//! Fencing tokens: numbers that only rise, from one holder of a lock to the next.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use onesided_remote_memory::{Chain, Fault, FaultKind, Link, RemoteMemory};

/// A token that is being drawn: a fetch-add of a counter at the lock's home, which nobody else writes. The token is larger than
/// all that were drawn before, from 1 on.
///
/// It fences if it is drawn while the lock is surely held. That may be behind the acquire's [first
/// operation](crate::LockAlgorithm::start), in the same round trip, if that operation [sufficed](crate::LockAlgorithm::holds) and was
/// at the same rank as the counter: that of a lock that [is spread](crate::LockAlgorithm::PER_RANK_WORD) may have been at another one,
/// and operations at two ranks have no order.
///
/// # Cancel safety
/// Dropped before it is done it may have drawn a token that nobody has.
#[must_use = "the token is there only after it was awaited"]
pub struct TokenDraw<O>(Drawn<O>);

enum Drawn<O> {
    Alone(O),
    /// With a look at the lock's word behind it, and what that must be.
    Checked(Chain<O, 2>, Option<u64>),
}

impl<O> TokenDraw<O> {
    /// From this counter.
    pub fn from<M: RemoteMemory<Op = O>>(memory: &M, counter: M::Word<'_>) -> Self {
        Self(Drawn::Alone(memory.fetch_add(counter, 1)))
    }

    /// From this counter, with a look at the lock's word behind it, at the same rank: if another rank may take the lock over
    /// while its owner believes to hold it, its word tells of that. See [`held_as`](Self::held_as).
    pub fn checked<'m, M: RemoteMemory<Op = O>>(memory: &M, counter: M::Word<'m>, lock: M::Word<'m>) -> Self {
        let draw = Link::FetchAdd { word: counter, add: 1, waited: true };
        Self(Drawn::Checked(memory.post([draw, Link::Read { word: lock, waited: true }]), None))
    }

    /// Says what the lock's word is while its owner has it, if it has it alone: another one makes the draw fail, `NotHeld`. Means
    /// nothing to a draw without a look.
    pub fn held_as(mut self, word: Option<u64>) -> Self {
        if let Drawn::Checked(_, held) = &mut self.0 {
            *held = word;
        }
        self
    }
}

/// The token that was drawn from a counter that was so far.
const fn after(drawn: u64) -> u64 {
    drawn.wrapping_add(1)
}

/// The token, if the lock was still held when it had been drawn: then it is smaller than any of whoever took the lock over.
fn checked([drawn, found]: [u64; 2], held: Option<u64>) -> Result<u64, Fault> {
    match held {
        Some(held) if held != found => Err(Fault::new(FaultKind::NotHeld)),
        _ => Ok(after(drawn)),
    }
}

impl<O: Future<Output = Result<u64, Fault>> + Unpin> Future for TokenDraw<O> {
    type Output = Result<u64, Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match &mut self.0 {
            Drawn::Alone(op) => ready!(Pin::new(op).poll(cx)).map(after),
            Drawn::Checked(both, held) => ready!(Pin::new(both).poll(cx)).and_then(|found| checked(found, *held)),
        })
    }
}

impl<O> fmt::Debug for TokenDraw<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenDraw").field("checked", &matches!(self.0, Drawn::Checked(..))).finish_non_exhaustive()
    }
}
