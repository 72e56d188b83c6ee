//! Words of one of two fabrics.

use onesided_remote_memory::{At, Chain, Fault, Link, Liveness, Patience, Rank, RemoteMemory};

use crate::dispatch::Either::{self, First, Second};
use crate::dispatch::future::{EitherFuture, aside};
use crate::dispatch::table::forward;
use crate::dispatch::{EitherPause, FOREIGN};
use crate::util::links::all;

// All but the four operations, which are links.
impl<A: RemoteMemory, B: RemoteMemory> RemoteMemory for Either<A, B> {
    type Word<'f> = Either<A::Word<'f>, B::Word<'f>>;
    type Op = EitherFuture<A::Op, B::Op>;
    type Wait<'f, P: Fn(u64) -> bool + Unpin + Send + 'f> = EitherFuture<A::Wait<'f, P>, B::Wait<'f, P>>;
    type Pause<'f> = EitherPause<A::Pause<'f>, B::Pause<'f>>;

    forward! {
        #[inline(always)]
        call fn rank(&self) -> Rank;
        #[inline(always)]
        call fn size(&self) -> u32;
        make fn word(&self, at: At) -> Result<Self::Word<'_>, Fault>;
        #[inline(always)]
        call fn write_is_atomic(&self) -> bool;
        #[inline(always)]
        call_of fn load(&self, own: Self::Word<'_>) -> Result<u64, Fault>;
        #[inline(always)]
        call_of fn store(&self, own: Self::Word<'_>, value: u64) -> Result<(), Fault>;
        #[inline(always)]
        call_of (else false) fn take_values(&self, own: Self::Word<'_>, each: &mut dyn FnMut(u64)) -> bool;
        call fn now(&self) -> u64;
        call fn liveness(&self, rank: Rank) -> Liveness;
        call fn has_failed(&self, home: Rank, rank: Rank) -> bool;
        call fn failure(&self, index: u32) -> Option<Rank>;
        call fn ends(&self) -> u32;
        call fn lost_connection(&self, home: Rank, from: Rank) -> Option<Rank>;
    }

    async fn has_cut(&self, home: Rank, rank: Rank) -> Result<bool, Fault> {
        match self {
            First(fabric) => fabric.has_cut(home, rank).await,
            Second(fabric) => fabric.has_cut(home, rank).await,
        }
    }

    fn post<const N: usize>(&self, links: [Link<Self::Word<'_>>; N]) -> Chain<Self::Op, N> {
        let foreign = || Chain::of(links.map(|_| Some(EitherFuture::failed(FOREIGN))));
        match self {
            First(fabric) => match all(links.map(|link| link.filter_map(Either::first))) {
                Some(links) => fabric.post(links).map(EitherFuture::first),
                None => foreign(),
            },
            Second(fabric) => match all(links.map(|link| link.filter_map(Either::second))) {
                Some(links) => fabric.post(links).map(EitherFuture::second),
                None => foreign(),
            },
        }
    }

    #[inline(always)]
    fn post_link(&self, link: Link<Self::Word<'_>>) -> Self::Op {
        match self {
            First(fabric) => match link.filter_map(Either::first) {
                Some(link) => EitherFuture::first(fabric.post_link(link)),
                None => EitherFuture::failed(FOREIGN),
            },
            Second(fabric) => match link.filter_map(Either::second) {
                Some(link) => EitherFuture::second(aside(move || fabric.post_link(link))),
                None => EitherFuture::failed(FOREIGN),
            },
        }
    }

    fn wait_until<'f, P>(&'f self, own: Self::Word<'f>, predicate: P, patience: Patience) -> Self::Wait<'f, P>
    where
        P: Fn(u64) -> bool + Unpin + Send + 'f,
    {
        match (self, own) {
            (First(fabric), First(own)) => EitherFuture::first(fabric.wait_until(own, predicate, patience)),
            (Second(fabric), Second(own)) => {
                EitherFuture::second(aside(move || fabric.wait_until(own, predicate, patience)))
            }
            _ => EitherFuture::failed(FOREIGN),
        }
    }

    fn pause<'f>(&'f self, word: Self::Word<'f>, nanos: u64) -> Self::Pause<'f> {
        EitherPause(match (self, word) {
            (First(fabric), First(word)) => Some(First(fabric.pause(word, nanos))),
            (Second(fabric), Second(word)) => Some(Second(fabric.pause(word, nanos))),
            _ => None,
        })
    }
}
