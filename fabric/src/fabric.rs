//! What every fabric provides, close enough to verbs that the papers' protocols can be said in it.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;

use onesided_remote_memory::{Fault, FaultKind, Link, Mailbox, Rank, RemoteMemory};

use crate::capabilities::{AtomicAgent, Capabilities, Path};
use crate::segment::{Segment, SegmentKey};
use crate::{Error, ServerThread, UserMemory};

/// A rank's end of a fabric: the words and messages of the [boundary](onesided_remote_memory), and
/// what moves bulk data.
///
/// Handles are cheap to clone; all clones are one endpoint, and the last one that is dropped leaves
/// the world, unless [`leave`](Self::leave) did before.
///
/// What the layers above need of it, and how they get it:
///
/// | user | stands on |
/// |---|---|
/// | windows | [`allocate`](Self::allocate), [`register`](Self::register), [`open`](Self::open), [`put`](Self::put), [`get`](Self::get), [`flush`](Self::flush) |
/// | locks | words ([`word_in`](Self::word_in)), [`Mailbox`] |
/// | a lock or a release that its caller walked away from | [`spawn`](Self::spawn) |
/// | RGET, RPUT, pipelined rendezvous | [`allocate`](Self::allocate) (a registered buffer), keys that travel in messages, [`rdma_read`](Self::rdma_read), [`rdma_write`](Self::rdma_write) |
/// | collectives | [`world_segment`](Self::world_segment) |
pub trait Fabric: Mailbox + Clone + Debug {
    /// Registered memory, one's own or a peer's; counted: a segment stays as long as somebody here
    /// holds it.
    type Segment: Segment;
    /// A transfer under way, done when the future is ready: the local buffer may be used again, and
    /// what was read is there. Dropping it detaches.
    type Transfer: Future<Output = Result<(), Fault>> + Unpin + Send + 'static;
    /// A get into a borrowed buffer. The bytes land in memory of the driver and are copied when the
    /// future is ready, so that leaking the future leaves nobody writing to the buffer.
    type Get<'b>: Future<Output = Result<(), Fault>> + Unpin + Send;
    /// See [`flush`](Self::flush).
    type Flush<'f>: Future<Output = Result<(), Fault>> + Unpin + Send;

    /// What this fabric states about itself.
    fn capabilities(&self) -> Capabilities;

    /// Whether what this rank posts to a target takes effect there in the order of posting: a get
    /// behind a compare-swap of another region is answered after it, a put behind a word's write
    /// comes after that. Otherwise only operations on one region do, and words (of any region)
    /// behind bytes: who needs more waits, or flushes.
    fn keeps_order(&self, target: Rank) -> bool {
        let _ = target;
        self.capabilities().ordered
    }

    /// On which host a rank is, numbered from 0 in the order of the hosts' lowest ranks; all on
    /// one, if nothing else is said. 0 for a rank that there is not.
    fn host_of(&self, rank: Rank) -> u32 {
        let _ = rank;
        0
    }

    /// Registers `len` zeroed bytes that peers can reach with the segment's [key](Segment::key).
    ///
    /// On shm the pages of more than 64 KiB come when they are first touched, near the CPU that
    /// does, so that a rank that initializes its memory has it near itself. What is clearly more
    /// than the host, or the control group, has left is refused here. Whether the rest can still be
    /// had when it is touched is as with memory from `malloc`: where it cannot, the kernel's
    /// out-of-memory killer ends a process. Only where the system overcommits nothing
    /// (`vm.overcommit_memory` is 2) all pages are there when this returns, as they always are on
    /// verbs. [`populate`](Self::populate) has them come.
    ///
    /// # Errors
    /// [`Error::Allocate`]: no memory, no descriptors, or the length is 0 or not addressable.
    fn allocate(&self, len: u64) -> Result<Self::Segment, Error>;

    /// Has all pages of one's own segment come now, near the CPU that runs this, where they were to
    /// come when they are first touched. Nothing to do on fabrics whose memory is registered with a
    /// card.
    ///
    /// # Errors
    /// [`Error::Allocate`]: there is not so much memory. [`Error::Operation`]: `NotOwn`.
    fn populate(&self, own: &Self::Segment) -> Result<(), Error> {
        let _ = own;
        Ok(())
    }

    /// [Allocates](Self::allocate) two segments, in less time than one after the other where the fabric can: both, or none.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    fn allocate_two(&self, lens: [u64; 2]) -> Result<(Self::Segment, Self::Segment), Error> {
        Ok((self.allocate(lens[0])?, self.allocate(lens[1])?))
    }

    /// Reaches the memory behind a key (one's own or a peer's), lazily: the owner need not do
    /// anything.
    ///
    /// # Errors
    /// [`Error::Open`].
    fn open(&self, key: &SegmentKey) -> Result<Self::Segment, Error>;

    /// The segment of [`WORLD_BYTES`] that every rank has from the start (region 0), for
    /// [`World`](crate::World)'s collectives.
    ///
    /// # Errors
    /// [`Error::Open`].
    fn world_segment(&self, rank: Rank) -> Result<Self::Segment, Error>;

    /// Lends memory of the user's to peers, who reach it with the segment's [key](Segment::key),
    /// until it is [reclaimed](Self::reclaim). A segment that is dropped frees it, or leaks it
    /// where a peer may still be writing to it.
    ///
    /// | fabric | how peers reach it |
    /// |---|---|
    /// | shm | threads of this process at once; other processes by process_vm_readv where the system allows it, otherwise by this rank's helper thread. There are no words of it (see [`word_in`](Self::word_in)): atomics are [`change`](Self::change) |
    /// | verbs | as all memory: its pages are registered with the card |
    /// | sim | it is copied in, and back when it is reclaimed |
    ///
    /// # Errors
    /// [`Error::Allocate`]: it has no bytes, or does not begin at a multiple of 8; no memory or
    /// descriptors for what peers need to find it. The memory is freed then.
    fn register(&self, memory: UserMemory) -> Result<Self::Segment, Error> {
        Err(Error::Allocate {
            len: memory.len() as u64,
            what: "this fabric reaches only memory that it allocates".into(),
            fault: Fault::of(FaultKind::Unsupported, self.rank()),
            source: None,
        })
    }

    /// Ends the loan of a [registered](Self::register) segment and gives the memory back. From the
    /// first call on nobody begins an operation on it: peers get `NoSuchRegion` (on verbs by a
    /// broken connection, as with any stale key). `None` while somebody is still in the middle of
    /// one: ask again. A peer that died is not waited for; one that is stopped is.
    ///
    /// Words of it that were resolved before are dead: operations on them fail.
    ///
    /// # Errors
    /// `NotOwn` for a peer's, `Closed` for one that was given back before, `Unsupported` for memory
    /// that was allocated.
    fn reclaim(&self, own: &Self::Segment) -> Result<Option<UserMemory>, Fault> {
        Err(Fault::of(FaultKind::Unsupported, own.rank()))
    }

    /// A part of memory that this rank has [registered](Self::register), as a segment with a key of
    /// its own. Parts may overlap: they are one memory, whose atomics are atomic against one
    /// another through whatever part. It is given back by [reclaiming](Self::reclaim) what was
    /// registered, not a part; after that every part fails as the whole does. A part keeps the
    /// whole from being dropped.
    ///
    /// # Errors
    /// `NotOwn` for a peer's, `OutOfRange` (it has to have a byte), `Misaligned` if the offset is
    /// no multiple of 8, `Unsupported` for memory that was allocated.
    fn part(&self, own: &Self::Segment, offset: u64, len: u64) -> Result<Self::Segment, Fault> {
        let _ = (offset, len);
        Err(Fault::of(FaultKind::Unsupported, own.rank()))
    }

    /// Changes words in a row, each atomically against all other atomics on it, where they lie in
    /// this process's memory but [`word_in`](Self::word_in) gives none. `change` gets the word's
    /// number from `offset` on and what was found there, and gives what it shall be. It may be
    /// called several times for a word; the last call counts.
    ///
    /// # Errors
    /// `NotOwn` for memory in another process, `OutOfRange`, `Misaligned`, `NoSuchRegion` if it was
    /// taken back, `Unsupported` for memory that has words.
    fn change(
        &self,
        segment: &Self::Segment,
        offset: u64,
        words: usize,
        change: &mut dyn FnMut(usize, u64) -> u64,
    ) -> Result<(), Fault> {
        let _ = (offset, words, change);
        Err(Fault::of(FaultKind::Unsupported, segment.rank()))
    }

    /// The words of a segment that is mapped here for as long as the segment: what plain loads and
    /// stores reach. `None` for what is not, or may be taken back.
    fn mapped<'s>(&self, segment: &'s Self::Segment) -> Option<&'s [AtomicU64]> {
        let _ = segment;
        None
    }

    /// Copies bytes out of a [mapped](Self::mapped) segment, by loads of this thread, at once: it
    /// waits for nothing that is under way.
    ///
    /// # Errors
    /// `OutOfRange`, `Unsupported` for what is not mapped.
    fn read_mapped(&self, segment: &Self::Segment, offset: u64, into: &mut [u8]) -> Result<(), Fault> {
        if segment.rank() == self.rank() {
            return self.read_own(segment, offset, into);
        }
        // Where all of it is mapped, a get is such a copy.
        match poll_now(&mut self.get(segment, offset, into)) {
            Poll::Ready(read) => read,
            Poll::Pending => Err(Fault::of(FaultKind::Unsupported, segment.rank())),
        }
    }

    /// Copies bytes into a [mapped](Self::mapped) segment, by stores of this thread. See
    /// [`read_mapped`](Self::read_mapped).
    ///
    /// # Errors
    /// As [`read_mapped`](Self::read_mapped).
    fn write_mapped(&self, segment: &Self::Segment, offset: u64, from: &[u8]) -> Result<(), Fault> {
        if segment.rank() == self.rank() {
            return self.write_own(segment, offset, from);
        }
        self.put(segment, offset, from)
    }

    /// Which way puts and gets of a segment take.
    fn path(&self, segment: &Self::Segment) -> Path {
        let _ = segment;
        match self.capabilities().agent {
            AtomicAgent::Cpu => Path::Cpu,
            AtomicAgent::Card => Path::Card,
            AtomicAgent::Simulated => Path::Simulated,
        }
    }

    /// Resolves a word of a segment: as [`RemoteMemory::word`], without looking for the region.
    ///
    /// # Errors
    /// `OutOfRange`, `Misaligned`; `Unsupported` with the detail [`WORDLESS`] for memory that its
    /// owner may take back while the word is held: its owner's process [changes](Self::change) it.
    fn word_in<'s>(&'s self, segment: &'s Self::Segment, offset: u64) -> Result<Self::Word<'s>, Fault>;

    /// Resolves words that follow one another, the first at `offset`.
    ///
    /// # Errors
    /// As [`word_in`](Self::word_in) of the first word that cannot be had.
    fn words_in<'s, const N: usize>(
        &'s self,
        segment: &'s Self::Segment,
        offset: u64,
    ) -> Result<[Self::Word<'s>; N], Fault> {
        let mut words = [self.word_in(segment, offset)?; N];
        for (index, word) in (0..).zip(&mut words).skip(1) {
            *word = self.word_in(segment, offset + 8 * index)?;
        }
        Ok(words)
    }

    /// Resolves a word that only ranks of the segment's host ever touch, and only as such a word:
    /// the CPU's, where other words take the card. Its atomics are atomic with one another, and
    /// with no others. Nobody is waked by a write to it, and a chain has words of one kind.
    ///
    /// # Errors
    /// As [`word_in`](Self::word_in); `Unsupported` where the CPU does not reach it, `PeerDied` and
    /// `PeerLeft`.
    fn same_host_word<'s>(&'s self, segment: &'s Self::Segment, offset: u64) -> Result<Self::Word<'s>, Fault> {
        match self.path(segment) {
            Path::Card => Err(Fault::of(FaultKind::Unsupported, segment.rank())),
            _ => self.word_in(segment, offset),
        }
    }

    /// Puts bytes. The slice may be used again when the call returns; the data is complete at the
    /// target after a [`flush`](Self::flush). 8 bytes to an offset that is a multiple of 8 arrive
    /// as one word.
    ///
    /// # Errors
    /// `OutOfRange`. What fails later is reported by the flush.
    fn put(&self, to: &Self::Segment, offset: u64, from: &[u8]) -> Result<(), Fault>;

    /// Gets bytes. 8 bytes at an offset that is a multiple of 8 are one word, never half of two.
    ///
    /// # Errors
    /// From the future: `OutOfRange`, `Unknown`, `PeerDied`.
    fn get<'b>(&self, from: &Self::Segment, offset: u64, into: &'b mut [u8]) -> Self::Get<'b>;

    /// Puts bytes to several places, each as by [`put`](Self::put), in less time than one after the
    /// other where the fabric can.
    ///
    /// # Errors
    /// As [`put`](Self::put), the first one; the pieces before it were put.
    fn put_pieces<'p>(&self, to: &Self::Segment, pieces: impl Iterator<Item = (u64, &'p [u8])>) -> Result<(), Fault> {
        for (offset, from) in pieces {
            self.put(to, offset, from)?;
        }
        Ok(())
    }

    /// Gets bytes of several places where a get is done when it is posted
    /// ([`Capabilities::completes_at_post`]), in less time than one after the other where the
    /// fabric can.
    ///
    /// # Errors
    /// As [`get`](Self::get), the first one; `Unsupported` where a get takes its time.
    fn get_pieces<'p>(
        &self,
        from: &Self::Segment,
        pieces: impl Iterator<Item = (u64, &'p mut [u8])>,
    ) -> Result<(), Fault> {
        for (offset, into) in pieces {
            match poll_now(&mut self.get(from, offset, into)) {
                Poll::Ready(outcome) => outcome?,
                Poll::Pending => return Err(Fault::of(FaultKind::Unsupported, from.rank())),
            }
        }
        Ok(())
    }

    /// Writes `len` bytes of one's own segment to a peer's, without a copy. Both segments are held
    /// until it is done.
    ///
    /// # Errors
    /// From the future: `OutOfRange`, `NotOwn` (the source is not), `Unknown`, `PeerDied`.
    fn rdma_write(&self, from: (&Self::Segment, u64), to: (&Self::Segment, u64), len: u64) -> Self::Transfer;

    /// Reads `len` bytes of a peer's segment into one's own, without a copy. Both segments are held
    /// until it is done.
    ///
    /// # Errors
    /// From the future: `OutOfRange`, `NotOwn` (the destination is not), `Unknown`, `PeerDied`.
    fn rdma_read(&self, from: (&Self::Segment, u64), into: (&Self::Segment, u64), len: u64) -> Self::Transfer;

    /// Completes everything that this rank has posted to `target`, there and here, and reports the
    /// first fault of an operation that nobody awaited. After it, any rank that synchronises with
    /// this one sees the data, and this rank's next reads see what others had completed before.
    ///
    /// # Errors
    /// From the future: `NoSuchRank`, and the first fault of what was posted (`Unknown`, `Refused`,
    /// `NoSuchRegion`, `PeerDied`, `PeerLeft`).
    ///
    /// # Cancel safety
    /// Dropped before it is ready, it has promised nothing; what was posted goes on.
    fn flush(&self, target: Rank) -> Self::Flush<'_>;

    /// Completes what this rank has posted to `target` as far as a release that is posted next
    /// needs it: whoever sees that release sees the data. A [`flush`](Self::flush), where order
    /// alone does not give that.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    fn flush_before_release(&self, target: Rank) -> Self::Flush<'_> {
        self.flush(target)
    }

    /// Posts a release behind what this rank has posted to the word's owner, and waits for nothing:
    /// whoever sees the release sees the data, as after
    /// [`flush_before_release`](Self::flush_before_release). What failed before it is reported by
    /// the next flush.
    fn post_release(&self, release: Link<Self::Word<'_>>) {
        // The read is answered from memory, behind the writes before it; a link takes effect behind
        // the one before it.
        drop(self.post([Link::Read { word: release.word(), waited: false }, release]));
    }

    /// Completes everything that this rank has posted to `target`, here: buffers may be used again.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    ///
    /// # Cancel safety
    /// As [`flush`](Self::flush).
    fn flush_local(&self, target: Rank) -> Self::Flush<'_>;

    /// Reads one's own segment at once.
    ///
    /// # Errors
    /// `NotOwn`, `OutOfRange`.
    fn read_own(&self, own: &Self::Segment, offset: u64, into: &mut [u8]) -> Result<(), Fault>;

    /// Writes one's own segment at once.
    ///
    /// # Errors
    /// `NotOwn`, `OutOfRange`.
    fn write_own(&self, own: &Self::Segment, offset: u64, from: &[u8]) -> Result<(), Fault>;

    /// Whether a rank is another process of this host, which [`kill`](Self::kill) can end.
    fn can_kill(&self, rank: Rank) -> bool {
        let _ = rank;
        false
    }

    /// Ends the process of a rank that is only late, as nothing else can (SIGKILL by a pidfd, so
    /// that it is no other process that has its number meanwhile). It is done when the rank is dead
    /// for [`liveness`](RemoteMemory::liveness).
    ///
    /// # Errors
    /// `Unsupported` where it is no process of this host, or this very one; `Refused` where this
    /// process may not.
    fn kill(&self, rank: Rank) -> Result<(), Fault> {
        Err(Fault::of(FaultKind::Unsupported, rank))
    }

    /// Whether this rank can end a peer's access to its memory, by [`revoke`](Self::revoke).
    fn can_revoke(&self, rank: Rank) -> bool {
        let _ = rank;
        false
    }

    /// Ends a peer's access to this rank's memory, all of it and for good, though the peer lives:
    /// it may be late, and must not do any more what it has begun. `true` once that is so: from
    /// then on nothing that the peer has posted, or will post, takes effect here. `false`: not yet,
    /// and it goes on when it is asked again, some time later.
    ///
    /// It is mutual: what either of the two posts to the other, has under way, or waits for, ends
    /// as [`Revoked`](FaultKind::Revoked). With all other ranks both go on, and neither is dead for
    /// anybody.
    ///
    /// | fabric | how |
    /// |---|---|
    /// | verbs | the queue pair to the peer is closed (Aguilera et al., *Mu*, OSDI 2020), and the peer told by a write before |
    /// | sim | the card refuses the peer's operations |
    /// | shm, and mixed within a host | not at all: the peer has the memory mapped |
    ///
    /// # Errors
    /// `Unsupported` where that cannot be done, and for this rank itself; `TimedOut` if the card
    /// does not end what is under way; `Refused` if it does not do what it is told.
    fn revoke(&self, rank: Rank) -> Result<bool, Fault> {
        Err(Fault::of(FaultKind::Unsupported, rank))
    }

    /// Runs a task to its end, even while the application computes: what is left of an acquire or a
    /// release whose caller walked away. The task owns what it needs, a clone of the fabric
    /// included.
    fn spawn(&self, task: Task);

    /// Runs a task that serves peers, as [`spawn`](Self::spawn) does, but nobody waits for its end:
    /// not [`leave`](Self::leave), and not [`unfinished`](Drive::unfinished).
    ///
    /// # Errors
    /// `Refused` if there is no thread to run it: the task is dropped, and peers are not served.
    fn serve(&self, task: Task) -> Result<(), Fault> {
        self.spawn(task);
        Ok(())
    }

    /// Runs a task that serves peers, as [`serve`](Self::serve) does, but on a thread of its own
    /// that waits in this way; the thread ends with the task, and can be joined. `None` where time
    /// is virtual: there are no threads there.
    ///
    /// # Errors
    /// `Refused` if there is no thread to run it: the task is dropped, and peers are not served.
    fn serve_apart(&self, task: Task, attendant: ServerThread) -> Result<Option<JoinHandle<()>>, Fault> {
        let _ = attendant;
        self.serve(task).map(|()| None)
    }

    /// Leaves the world: the application has dropped its last handle. Gives adopted work some time
    /// to be finished. What the endpoint itself still holds on to may be dropped later, or never,
    /// when the process ends.
    fn leave(&self);
}

/// Work that the endpoint finishes for a caller that is gone.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send + 'static>>;

/// `NoSuchRank` for a rank that the world does not have.
pub(crate) fn check_rank<M: RemoteMemory + ?Sized>(memory: &M, rank: Rank) -> Result<(), Fault> {
    if rank.0 < memory.size() { Ok(()) } else { Err(Fault::of(FaultKind::NoSuchRank, rank)) }
}

/// Polls once, without a waker.
fn poll_now<O: Future + Unpin>(operation: &mut O) -> Poll<O::Output> {
    Pin::new(operation).poll(&mut Context::from_waker(Waker::noop()))
}
