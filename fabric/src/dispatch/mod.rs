//! Run-time dispatch: one of two fabrics, chosen when a process starts.
//!
//! Each method of the traits stands once in a [table](self::table), with how it is forwarded.
//! Provided methods are forwarded as well, because the chosen fabric may override them:
//! `clippy::missing_trait_methods` refuses an implementation here that lacks one.

mod bulk;
mod drive;
mod future;
mod table;
mod transport;
mod words;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use onesided_remote_memory::{Fault, FaultKind};

pub use crate::dispatch::future::EitherFuture;

/// One of two fabrics, or an object of one of them.
///
/// A resolved object (a word, a segment) remembers its fabric, so an operation branches once,
/// predictably, without a table or a virtual call. A word or a segment of the other fabric is
/// refused as `NoSuchRegion`.
///
/// The first fabric's operations are inlined and the second one's are called, so a fabric whose
/// operations complete at post comes first.
#[derive(Clone, Copy, Debug)]
pub enum Either<A, B> {
    /// The first fabric's.
    First(A),
    /// The second fabric's.
    Second(B),
}

use Either::{First, Second};

impl<A, B> Either<A, B> {
    fn first(self) -> Option<A> {
        match self {
            First(first) => Some(first),
            Second(_) => None,
        }
    }

    fn second(self) -> Option<B> {
        match self {
            First(_) => None,
            Second(second) => Some(second),
        }
    }
}

/// What an operation on a word or a segment of the other fabric reports.
const FOREIGN: Fault = Fault::new(FaultKind::NoSuchRegion);

/// A pause of one of two fabrics; none for a word of the other one.
#[derive(Debug)]
pub struct EitherPause<A, B>(Option<Either<A, B>>);

impl<A: Future<Output = ()> + Unpin, B: Future<Output = ()> + Unpin> Future for EitherPause<A, B> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.0 {
            Some(First(first)) => Pin::new(first).poll(cx),
            Some(Second(second)) => Pin::new(second).poll(cx),
            None => Poll::Ready(()),
        }
    }
}
