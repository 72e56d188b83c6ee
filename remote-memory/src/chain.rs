//! Chains: several operations posted to one target in order.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use crate::{Fault, Notify};

/// One operation of a chain ([`RemoteMemory::post`](crate::RemoteMemory::post)).
///
/// Lock and read in one round trip, write and release, a compare-swap and the fetch-add of its
/// fencing token: each is a chain of two.
#[derive(Clone, Copy, Debug)]
pub enum Link<W> {
    /// As [`RemoteMemory::read`](crate::RemoteMemory::read).
    Read {
        /// The word to read.
        word: W,
        /// Whether the chain's future waits for it.
        waited: bool,
    },
    /// As [`RemoteMemory::write`](crate::RemoteMemory::write).
    Write {
        /// The word to write.
        word: W,
        /// The value to write.
        value: u64,
        /// Whether the write wakes a waiter at the target.
        notify: Notify,
        /// Whether the chain's future waits for it.
        waited: bool,
    },
    /// As [`RemoteMemory::compare_swap`](crate::RemoteMemory::compare_swap).
    CompareSwap {
        /// The word to swap.
        word: W,
        /// The value that the word must have.
        expected: u64,
        /// The value to store if it does.
        new: u64,
        /// Whether the chain's future waits for it.
        waited: bool,
    },
    /// As [`RemoteMemory::fetch_add`](crate::RemoteMemory::fetch_add).
    FetchAdd {
        /// The word to add to.
        word: W,
        /// The addend.
        add: u64,
        /// Whether the chain's future waits for it.
        waited: bool,
    },
}

impl<W> Link<W> {
    /// Maps the link's word to another representation; `None` if `word_of` returns `None`.
    #[inline(always)] // passed through memory, a link costs more than its operation
    pub fn filter_map<T>(self, word_of: impl FnOnce(W) -> Option<T>) -> Option<Link<T>> {
        Some(match self {
            Self::Read { word, waited } => Link::Read { word: word_of(word)?, waited },
            Self::Write { word, value, notify, waited } => Link::Write { word: word_of(word)?, value, notify, waited },
            Self::CompareSwap { word, expected, new, waited } => {
                Link::CompareSwap { word: word_of(word)?, expected, new, waited }
            }
            Self::FetchAdd { word, add, waited } => Link::FetchAdd { word: word_of(word)?, add, waited },
        })
    }

    /// The word that the link operates on.
    pub const fn word(&self) -> W
    where
        W: Copy,
    {
        match self {
            Self::Read { word, .. }
            | Self::Write { word, .. }
            | Self::CompareSwap { word, .. }
            | Self::FetchAdd { word, .. } => *word,
        }
    }

    /// Whether the chain's future waits for this link.
    pub const fn waited(&self) -> bool {
        match self {
            Self::Read { waited, .. }
            | Self::Write { waited, .. }
            | Self::CompareSwap { waited, .. }
            | Self::FetchAdd { waited, .. } => *waited,
        }
    }
}

/// A posted chain. Its output is the value of every link that is waited for (0 for the others), or
/// the first fault among them.
#[derive(Debug)]
#[must_use = "the links are posted, but their outcomes are known only after an await"]
pub struct Chain<O, const N: usize> {
    links: [Option<O>; N],
    values: [u64; N],
}

impl<O, const N: usize> Chain<O, N> {
    /// A chain of operations that are posted already. `None` marks a link that is not waited for.
    pub const fn of(links: [Option<O>; N]) -> Self {
        Self { links, values: [0; N] }
    }
}

impl<O, const N: usize> Chain<O, N> {
    /// The same chain with each operation wrapped.
    pub fn map<T>(self, wrap: impl Fn(O) -> T) -> Chain<T, N> {
        Chain { links: self.links.map(|link| link.map(&wrap)), values: self.values }
    }
}

impl<O, const N: usize> Future for Chain<O, N>
where
    O: Future<Output = Result<u64, Fault>> + Unpin,
{
    type Output = Result<[u64; N], Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let chain = &mut *self;
        let mut pending = false;
        for (link, value) in chain.links.iter_mut().zip(&mut chain.values) {
            if let Some(op) = link {
                match Pin::new(op).poll(cx) {
                    Poll::Ready(Ok(found)) => {
                        *value = found;
                        *link = None;
                    }
                    Poll::Ready(Err(fault)) => return Poll::Ready(Err(fault)),
                    Poll::Pending => pending = true,
                }
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(Ok(chain.values)) }
    }
}
