//! One of two fabrics, chosen at run time.

mod future;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll};
use std::thread::JoinHandle;

use onesided_remote_memory::{
    At, Chain, Fault, FaultKind, Link, Liveness, Mailbox, Notify, Patience, Port, Rank, RemoteMemory,
};

pub use crate::either::future::EitherFuture;
use crate::either::future::aside;
use crate::{Capabilities, Drive, Error, Fabric, Path, Segment, SegmentKey, ServerThread, Task, Ticket, UserMemory};

/// One of two fabrics, or what belongs to one of them.
///
/// What is resolved once (a word, a segment) remembers its fabric, so an operation looks at its word and goes straight to
/// memory, or to the card: one predictable branch, no table, no virtual call. A word or a segment of the other fabric is
/// refused as `NoSuchRegion`.
///
/// The first one's operations are inlined and the second one's are called, so the one whose operations are done when they
/// are posted comes first.
#[derive(Clone, Copy, Debug)]
pub enum Either<A, B> {
    /// Of the first.
    First(A),
    /// Of the second.
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

/// All of them, or none.
pub(crate) fn all<T, const N: usize>(links: [Option<T>; N]) -> Option<[T; N]> {
    if links.iter().any(Option::is_none) {
        return None;
    }
    Some(links.map(|link| link.expect("just looked")))
}

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

/// Asks whichever fabric it is.
macro_rules! ask {
    ($self:expr, $fabric:ident => $answer:expr) => {
        match $self {
            First($fabric) => $answer,
            Second($fabric) => $answer,
        }
    };
}

/// Posts to whichever fabric it is.
macro_rules! post_to_any {
    ($self:expr, $fabric:ident => $operation:expr) => {
        match $self {
            First($fabric) => EitherFuture::first($operation),
            Second($fabric) => EitherFuture::second(aside(move || $operation)),
        }
    };
}

/// Posts to the fabric that the word or segment belongs to.
macro_rules! post {
    ($self:expr, $of:expr, |$fabric:ident, $mine:ident| $operation:expr) => {
        match ($self, $of) {
            (First($fabric), First($mine)) => EitherFuture::first($operation),
            (Second($fabric), Second($mine)) => EitherFuture::second(aside(move || $operation)),
            _ => EitherFuture::failed(FOREIGN),
        }
    };
}

/// Asks the fabric that the word or segment belongs to.
macro_rules! ask_about {
    ($self:expr, $of:expr, |$fabric:ident, $mine:ident| $answer:expr) => {
        match ($self, $of) {
            (First($fabric), First($mine)) => $answer,
            (Second($fabric), Second($mine)) => aside(move || $answer),
            _ => Err(FOREIGN),
        }
    };
}

/// Gives what the fabric gives, marked as its own.
macro_rules! wrap {
    ($self:expr, $fabric:ident => $made:expr) => {
        match $self {
            First($fabric) => $made.map(First),
            Second($fabric) => $made.map(Second),
        }
    };
}

impl<A: RemoteMemory, B: RemoteMemory> RemoteMemory for Either<A, B> {
    type Word<'f> = Either<A::Word<'f>, B::Word<'f>>;
    type Op = EitherFuture<A::Op, B::Op>;
    type Wait<'f, P: Fn(u64) -> bool + Unpin + Send + 'f> = EitherFuture<A::Wait<'f, P>, B::Wait<'f, P>>;
    type Pause<'f> = EitherPause<A::Pause<'f>, B::Pause<'f>>;

    #[inline(always)]
    fn rank(&self) -> Rank {
        ask!(self, fabric => fabric.rank())
    }

    #[inline(always)]
    fn size(&self) -> u32 {
        ask!(self, fabric => fabric.size())
    }

    fn word(&self, at: At) -> Result<Self::Word<'_>, Fault> {
        wrap!(self, fabric => fabric.word(at))
    }

    #[inline(always)]
    fn read(&self, word: Self::Word<'_>) -> Self::Op {
        post!(self, word, |fabric, word| fabric.read(word))
    }

    #[inline(always)]
    fn write(&self, word: Self::Word<'_>, value: u64, notify: Notify) -> Self::Op {
        post!(self, word, |fabric, word| fabric.write(word, value, notify))
    }

    #[inline(always)]
    fn write_is_atomic(&self) -> bool {
        ask!(self, fabric => fabric.write_is_atomic())
    }

    #[inline(always)]
    fn compare_swap(&self, word: Self::Word<'_>, expected: u64, new: u64) -> Self::Op {
        post!(self, word, |fabric, word| fabric.compare_swap(word, expected, new))
    }

    #[inline(always)]
    fn fetch_add(&self, word: Self::Word<'_>, add: u64) -> Self::Op {
        post!(self, word, |fabric, word| fabric.fetch_add(word, add))
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
    fn load(&self, own: Self::Word<'_>) -> Result<u64, Fault> {
        ask_about!(self, own, |fabric, own| fabric.load(own))
    }

    #[inline(always)]
    fn store(&self, own: Self::Word<'_>, value: u64) -> Result<(), Fault> {
        ask_about!(self, own, |fabric, own| fabric.store(own, value))
    }

    fn wait_until<'f, P>(&'f self, own: Self::Word<'f>, predicate: P, patience: Patience) -> Self::Wait<'f, P>
    where
        P: Fn(u64) -> bool + Unpin + Send + 'f,
    {
        post!(self, own, |fabric, own| fabric.wait_until(own, predicate, patience))
    }

    fn pause<'f>(&'f self, word: Self::Word<'f>, nanos: u64) -> Self::Pause<'f> {
        EitherPause(match (self, word) {
            (First(fabric), First(word)) => Some(First(fabric.pause(word, nanos))),
            (Second(fabric), Second(word)) => Some(Second(fabric.pause(word, nanos))),
            _ => None,
        })
    }

    fn now(&self) -> u64 {
        ask!(self, fabric => fabric.now())
    }

    fn liveness(&self, rank: Rank) -> Liveness {
        ask!(self, fabric => fabric.liveness(rank))
    }

    fn failed_rank(&self) -> Option<Rank> {
        ask!(self, fabric => fabric.failed_rank())
    }
}

impl<A: Mailbox, B: Mailbox> Mailbox for Either<A, B> {
    type Send<'f> = EitherFuture<A::Send<'f>, B::Send<'f>>;
    type Recv<'f> = EitherFuture<A::Recv<'f>, B::Recv<'f>>;

    fn send<'f>(&'f self, to: Rank, port: Port, bytes: &[u8], notify: Notify) -> Self::Send<'f> {
        post_to_any!(self, fabric => fabric.send(to, port, bytes, notify))
    }

    fn recv<'f>(&'f self, port: Port, patience: Patience) -> Self::Recv<'f> {
        post_to_any!(self, fabric => fabric.recv(port, patience))
    }
}

impl<A: Fabric, B: Fabric> Fabric for Either<A, B> {
    type Segment = Either<A::Segment, B::Segment>;
    type Transfer = EitherFuture<A::Transfer, B::Transfer>;
    /// The second one's is boxed: what is larger than the first one's would be copied with that.
    type Get<'b> = EitherFuture<A::Get<'b>, Box<B::Get<'b>>>;
    type Flush<'f> = EitherFuture<A::Flush<'f>, B::Flush<'f>>;

    fn capabilities(&self) -> Capabilities {
        ask!(self, fabric => fabric.capabilities())
    }

    fn keeps_order(&self, target: Rank) -> bool {
        ask!(self, fabric => fabric.keeps_order(target))
    }

    fn host_of(&self, rank: Rank) -> u32 {
        ask!(self, fabric => fabric.host_of(rank))
    }

    fn allocate(&self, len: u64) -> Result<Self::Segment, Error> {
        wrap!(self, fabric => fabric.allocate(len))
    }

    fn allocate_two(&self, lens: [u64; 2]) -> Result<(Self::Segment, Self::Segment), Error> {
        match self {
            First(fabric) => fabric.allocate_two(lens).map(|(one, other)| (First(one), First(other))),
            Second(fabric) => fabric.allocate_two(lens).map(|(one, other)| (Second(one), Second(other))),
        }
    }

    fn populate(&self, own: &Self::Segment) -> Result<(), Error> {
        match (self, own) {
            (First(fabric), First(own)) => fabric.populate(own),
            (Second(fabric), Second(own)) => fabric.populate(own),
            _ => Err(Error::operation("populate")(FOREIGN)),
        }
    }

    fn open(&self, key: &SegmentKey) -> Result<Self::Segment, Error> {
        wrap!(self, fabric => fabric.open(key))
    }

    fn world_segment(&self, rank: Rank) -> Result<Self::Segment, Error> {
        wrap!(self, fabric => fabric.world_segment(rank))
    }

    fn register(&self, memory: UserMemory) -> Result<Self::Segment, Error> {
        wrap!(self, fabric => fabric.register(memory))
    }

    fn reclaim(&self, own: &Self::Segment) -> Result<Option<UserMemory>, Fault> {
        ask_about!(self, own, |fabric, own| fabric.reclaim(own))
    }

    fn part(&self, own: &Self::Segment, offset: u64, len: u64) -> Result<Self::Segment, Fault> {
        match (self, own) {
            (First(fabric), First(own)) => fabric.part(own, offset, len).map(First),
            (Second(fabric), Second(own)) => fabric.part(own, offset, len).map(Second),
            _ => Err(FOREIGN),
        }
    }

    fn change(
        &self,
        segment: &Self::Segment,
        offset: u64,
        words: usize,
        change: &mut dyn FnMut(usize, u64) -> u64,
    ) -> Result<(), Fault> {
        ask_about!(self, segment, |fabric, segment| fabric.change(segment, offset, words, change))
    }

    fn mapped<'s>(&self, segment: &'s Self::Segment) -> Option<&'s [AtomicU64]> {
        match (self, segment) {
            (First(fabric), First(segment)) => fabric.mapped(segment),
            (Second(fabric), Second(segment)) => fabric.mapped(segment),
            _ => None,
        }
    }

    fn read_mapped(&self, segment: &Self::Segment, offset: u64, into: &mut [u8]) -> Result<(), Fault> {
        match (self, segment) {
            (First(fabric), First(segment)) => fabric.read_mapped(segment, offset, into),
            (Second(fabric), Second(segment)) => fabric.read_mapped(segment, offset, into),
            _ => Err(FOREIGN),
        }
    }

    fn write_mapped(&self, segment: &Self::Segment, offset: u64, from: &[u8]) -> Result<(), Fault> {
        match (self, segment) {
            (First(fabric), First(segment)) => fabric.write_mapped(segment, offset, from),
            (Second(fabric), Second(segment)) => fabric.write_mapped(segment, offset, from),
            _ => Err(FOREIGN),
        }
    }

    fn path(&self, segment: &Self::Segment) -> Path {
        match (self, segment) {
            (First(fabric), First(segment)) => fabric.path(segment),
            (Second(fabric), Second(segment)) => fabric.path(segment),
            (First(_), Second(_)) | (Second(_), First(_)) => Path::Helper, // nobody reaches it so
        }
    }

    fn same_host_word<'s>(&'s self, segment: &'s Self::Segment, offset: u64) -> Result<Self::Word<'s>, Fault> {
        match (self, segment) {
            (First(fabric), First(segment)) => fabric.same_host_word(segment, offset).map(First),
            (Second(fabric), Second(segment)) => fabric.same_host_word(segment, offset).map(Second),
            _ => Err(FOREIGN),
        }
    }

    #[inline(always)]
    fn word_in<'s>(&'s self, segment: &'s Self::Segment, offset: u64) -> Result<Self::Word<'s>, Fault> {
        match (self, segment) {
            (First(fabric), First(segment)) => fabric.word_in(segment, offset).map(First),
            (Second(fabric), Second(segment)) => aside(move || fabric.word_in(segment, offset)).map(Second),
            _ => Err(FOREIGN),
        }
    }

    #[inline(always)]
    fn words_in<'s, const N: usize>(
        &'s self,
        segment: &'s Self::Segment,
        offset: u64,
    ) -> Result<[Self::Word<'s>; N], Fault> {
        match (self, segment) {
            (First(fabric), First(segment)) => fabric.words_in(segment, offset).map(|words| words.map(First)),
            (Second(fabric), Second(segment)) => {
                aside(move || fabric.words_in(segment, offset)).map(|words| words.map(Second))
            }
            _ => Err(FOREIGN),
        }
    }

    #[inline(always)]
    fn put(&self, to: &Self::Segment, offset: u64, from: &[u8]) -> Result<(), Fault> {
        ask_about!(self, to, |fabric, to| fabric.put(to, offset, from))
    }

    #[inline(always)]
    fn get<'b>(&self, from: &Self::Segment, offset: u64, into: &'b mut [u8]) -> Self::Get<'b> {
        match (self, from) {
            (First(fabric), First(from)) => EitherFuture::first(fabric.get(from, offset, into)),
            (Second(fabric), Second(from)) => {
                EitherFuture::second(aside(move || Box::new(fabric.get(from, offset, into))))
            }
            _ => EitherFuture::failed(FOREIGN),
        }
    }

    #[inline]
    fn put_pieces<'p>(&self, to: &Self::Segment, pieces: impl Iterator<Item = (u64, &'p [u8])>) -> Result<(), Fault> {
        ask_about!(self, to, |fabric, to| fabric.put_pieces(to, pieces))
    }

    #[inline]
    fn get_pieces<'p>(
        &self,
        from: &Self::Segment,
        pieces: impl Iterator<Item = (u64, &'p mut [u8])>,
    ) -> Result<(), Fault> {
        ask_about!(self, from, |fabric, from| fabric.get_pieces(from, pieces))
    }

    fn rdma_write(&self, from: (&Self::Segment, u64), to: (&Self::Segment, u64), len: u64) -> Self::Transfer {
        match (self, from.0, to.0) {
            (First(fabric), First(a), First(b)) => EitherFuture::first(fabric.rdma_write((a, from.1), (b, to.1), len)),
            (Second(fabric), Second(a), Second(b)) => {
                EitherFuture::second(fabric.rdma_write((a, from.1), (b, to.1), len))
            }
            _ => EitherFuture::failed(FOREIGN),
        }
    }

    fn rdma_read(&self, from: (&Self::Segment, u64), into: (&Self::Segment, u64), len: u64) -> Self::Transfer {
        match (self, from.0, into.0) {
            (First(fabric), First(a), First(b)) => EitherFuture::first(fabric.rdma_read((a, from.1), (b, into.1), len)),
            (Second(fabric), Second(a), Second(b)) => {
                EitherFuture::second(fabric.rdma_read((a, from.1), (b, into.1), len))
            }
            _ => EitherFuture::failed(FOREIGN),
        }
    }

    #[inline(always)]
    fn flush(&self, target: Rank) -> Self::Flush<'_> {
        post_to_any!(self, fabric => fabric.flush(target))
    }

    #[inline(always)]
    fn flush_before_release(&self, target: Rank) -> Self::Flush<'_> {
        post_to_any!(self, fabric => fabric.flush_before_release(target))
    }

    #[inline(always)]
    fn flush_local(&self, target: Rank) -> Self::Flush<'_> {
        post_to_any!(self, fabric => fabric.flush_local(target))
    }

    fn read_own(&self, own: &Self::Segment, offset: u64, into: &mut [u8]) -> Result<(), Fault> {
        ask_about!(self, own, |fabric, own| fabric.read_own(own, offset, into))
    }

    fn write_own(&self, own: &Self::Segment, offset: u64, from: &[u8]) -> Result<(), Fault> {
        ask_about!(self, own, |fabric, own| fabric.write_own(own, offset, from))
    }

    fn can_kill(&self, rank: Rank) -> bool {
        ask!(self, fabric => fabric.can_kill(rank))
    }

    fn kill(&self, rank: Rank) -> Result<(), Fault> {
        ask!(self, fabric => fabric.kill(rank))
    }

    fn can_revoke(&self, rank: Rank) -> bool {
        ask!(self, fabric => fabric.can_revoke(rank))
    }

    fn revoke(&self, rank: Rank) -> Result<bool, Fault> {
        ask!(self, fabric => fabric.revoke(rank))
    }

    fn spawn(&self, task: Task) {
        ask!(self, fabric => fabric.spawn(task));
    }

    fn serve(&self, task: Task) -> Result<(), Fault> {
        ask!(self, fabric => fabric.serve(task))
    }

    fn serve_apart(&self, task: Task, attendant: ServerThread) -> Result<Option<JoinHandle<()>>, Fault> {
        ask!(self, fabric => fabric.serve_apart(task, attendant))
    }

    fn leave(&self) {
        ask!(self, fabric => fabric.leave());
    }
}

impl<A: Drive, B: Drive> Drive for Either<A, B> {
    #[inline]
    fn progress(&self) -> usize {
        ask!(self, fabric => fabric.progress())
    }

    #[inline]
    fn relax(&self) {
        ask!(self, fabric => fabric.relax());
    }

    fn spins(&self) -> u32 {
        ask!(self, fabric => fabric.spins())
    }

    fn arm(&self) -> Ticket {
        ask!(self, fabric => fabric.arm())
    }

    fn sleep(&self, ticket: Ticket, until: u64) {
        ask!(self, fabric => fabric.sleep(ticket, until));
    }

    fn disarm(&self, ticket: Ticket) {
        ask!(self, fabric => fabric.disarm(ticket));
    }

    fn oversubscribed(&self) -> bool {
        ask!(self, fabric => fabric.oversubscribed())
    }

    fn shares_its_core(&self) -> bool {
        ask!(self, fabric => fabric.shares_its_core())
    }

    fn unfinished(&self) -> usize {
        ask!(self, fabric => fabric.unfinished())
    }
}

impl<A: Segment, B: Segment> Segment for Either<A, B> {
    #[inline(always)]
    fn rank(&self) -> Rank {
        ask!(self, segment => segment.rank())
    }

    fn len(&self) -> u64 {
        ask!(self, segment => segment.len())
    }

    fn key(&self) -> SegmentKey {
        ask!(self, segment => segment.key())
    }
}
