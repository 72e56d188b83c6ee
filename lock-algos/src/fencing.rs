//! Fencing tokens: numbers that rise from one holder of a lock to the next.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use onesided_remote_memory::{Chain, Fault, FaultKind, Link, RemoteMemory, debug};

/// A fencing token that is being drawn: a fetch-add of a counter at the lock's home that only token
/// draws change. The first token is 1, and each is larger than all that were drawn before.
///
/// A token fences if it is drawn while the lock is held. The draw may be posted behind the [first
/// operation](crate::LockAlgorithm::start) of the acquire, in the same round trip, if that
/// operation [acquired](crate::LockAlgorithm::holds) the lock and was at the rank of the counter.
/// The first operation of a lock with [per-rank words](crate::LockAlgorithm::PER_RANK_WORD) may be
/// at another rank, and operations at two ranks have no order.
///
/// # Cancel safety
/// A draw that is dropped before it is done may have used up a token.
#[must_use = "the token is available only after an await"]
pub struct TokenDraw<O>(Drawn<O>);

enum Drawn<O> {
    Alone(O),
    /// With a read of the lock's word behind it, and the value that the word must have.
    Checked(Chain<O, 2>, Option<u64>),
}

impl<O> TokenDraw<O> {
    /// Draws from this counter.
    pub fn from<M: RemoteMemory<Op = O>>(memory: &M, counter: M::Word<'_>) -> Self {
        Self(Drawn::Alone(memory.fetch_add(counter, 1)))
    }

    /// Draws from this counter and reads the lock's word behind it, at the same rank. If another
    /// rank may take the lock while its owner believes that it holds it, the word shows that. See
    /// [`held_as`](Self::held_as).
    pub fn checked<'m, M: RemoteMemory<Op = O>>(memory: &M, counter: M::Word<'m>, lock: M::Word<'m>) -> Self {
        let draw = Link::FetchAdd { word: counter, add: 1, waited: true };
        Self(Drawn::Checked(memory.post([draw, Link::Read { word: lock, waited: true }]), None))
    }

    /// Sets the value that the lock's word has while its owner holds it exclusively. If the word
    /// has another value, the draw fails with `NotHeld`. No effect on a draw without the read.
    pub fn held_as(mut self, word: Option<u64>) -> Self {
        if let Drawn::Checked(_, held) = &mut self.0 {
            *held = word;
        }
        self
    }
}

/// The token of a fetch-add that found this value.
const fn after(drawn: u64) -> u64 {
    drawn.wrapping_add(1)
}

/// The token, if the lock was still held when it had been drawn. It is then smaller than any token
/// of a later owner.
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

debug!([O] TokenDraw<O>, |this| "TokenDraw {{ checked: {}, .. }}", matches!(this.0, Drawn::Checked(..)));
