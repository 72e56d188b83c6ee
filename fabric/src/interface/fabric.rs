//! What every fabric provides: close enough to verbs to express the papers' protocols.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use onesided_remote_memory::{Fault, FaultKind, Rank, RemoteMemory};

use crate::interface::capabilities::{Capabilities, Path};
use crate::interface::note::Note;
use crate::interface::segment::{Segment, SegmentKey};
use crate::{Endpoint, Error, Events, Fencing, Landing, Launch, PeerProcesses, SolicitedEvents, Transport, UserMemory};

/// A rank's endpoint of a fabric: words ([boundary](onesided_remote_memory)), bulk data, packets.
///
/// Handles are cheap to clone, and all clones are one endpoint. Dropping the last one leaves the
/// world, unless [`leave`](Endpoint::leave) did before.
///
/// What the layers above use:
///
/// | user | operations |
/// |---|---|
/// | windows | [`allocate`](Self::allocate), [`register`](Self::register), [`open`](Self::open), [`put`](Self::put), [`get`](Self::get), [`flush`](Self::flush) |
/// | locks | words ([`word_in`](Self::word_in)) |
/// | background work of a cancelled acquire or release | [`spawn`](Endpoint::spawn) |
/// | messages | packets ([`transport`](Self::transport)), [`allocate`](Self::allocate) (a registered buffer, whose key a packet has), [`rdma_read`](Self::rdma_read), [`rdma_write`](Self::rdma_write) |
/// | collectives | [`world_segment`](Self::world_segment) |
pub trait Fabric: RemoteMemory + Clone + Debug {
    /// Registered memory, an own or a peer's. Reference counted: it stays registered while this
    /// rank holds a handle.
    type Segment: Segment;
    /// A transfer in flight. When the future is ready, the local buffer may be reused and read data
    /// is in place. Dropping it detaches.
    type Transfer: Future<Output = Result<(), Fault>> + Unpin + Send + 'static;
    /// A get into a borrowed buffer. The bytes arrive in memory of the driver and are copied when
    /// the future is ready, so a leaked future leaves no writer to the buffer.
    type Get<'b>: Future<Output = Result<(), Fault>> + Unpin + Send;
    /// See [`flush`](Self::flush).
    type Flush<'f>: Future<Output = Result<(), Fault>> + Unpin + Send;
    /// See [`transport`](Self::transport).
    type Transport: Transport;

    /// The packets of this rank, which one owner has at a time.
    ///
    /// # Errors
    /// `Refused` while another has them; `NoMemory`.
    fn transport(&self) -> Result<Self::Transport, Fault>;

    /// The same endpoint for the data of messages, over connections of their own where ranks have some.
    #[must_use]
    fn for_messages(&self) -> Self {
        self.clone()
    }

    /// This endpoint, if it is one of shared memory, where an operation is an instruction: what is to take a few
    /// of them is written for that fabric, without dispatch. Its segments are then [those of shared
    /// memory](Segment::as_shm).
    #[cfg(not(onesided_loom))]
    #[inline]
    fn as_shm(&self) -> Option<&crate::shm::Shm> {
        None
    }

    /// The properties of this fabric.
    fn capabilities(&self) -> Capabilities;

    /// The host of a rank, numbered from 0 in the order of the hosts' lowest ranks; by default, and for
    /// a rank that does not exist, 0.
    fn host_of(&self, rank: Rank) -> u32 {
        let _ = rank;
        0
    }

    /// Allocates and registers `len` zeroed bytes that peers can access with its [key](Segment::key).
    ///
    /// On shm the pages of segments above 64 KiB are allocated at the first touch, near the CPU
    /// that touches them, so a rank that initializes its memory has it nearby. A length that
    /// clearly exceeds the free memory of the host or the control group is refused here. For the
    /// rest it is as with `malloc`: if a page cannot be allocated at its first touch, the kernel's
    /// out-of-memory killer ends a process. Where the system does not overcommit
    /// (`vm.overcommit_memory` is 2), and on verbs, all pages are allocated before this returns.
    /// [`populate`](Segment::populate) allocates them explicitly.
    ///
    /// # Errors
    /// [`Error::Allocate`]: no memory, no descriptors, or the length is 0 or not addressable.
    fn allocate(&self, len: u64) -> Result<Self::Segment, Error>;

    /// [Allocates](Self::allocate) both segments or neither, faster where the fabric can.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    fn allocate_two(&self, lens: [u64; 2]) -> Result<(Self::Segment, Self::Segment), Error> {
        Ok((self.allocate(lens[0])?, self.allocate(lens[1])?))
    }

    /// Opens the memory of a key (an own or a peer's). The owner takes no action.
    ///
    /// # Errors
    /// [`Error::Open`].
    fn open(&self, key: &SegmentKey) -> Result<Self::Segment, Error>;

    /// The segment of [`WORLD_BYTES`](crate::WORLD_BYTES) of every rank (region 0), for collectives.
    ///
    /// # Errors
    /// [`Error::Open`].
    fn world_segment(&self, rank: Rank) -> Result<Self::Segment, Error>;

    /// Gives peers access to user memory by the segment's key, until it is [reclaimed](Self::reclaim).
    /// Dropping the segment frees the memory, or leaks it if a peer may still write to it.
    ///
    /// | fabric | how peers access it |
    /// |---|---|
    /// | shm | threads of this process directly; other processes by process_vm_readv where the system allows it, otherwise by this rank's progress thread. It has no words (see [`word_in`](Self::word_in)): atomics are [`change`](Segment::change) |
    /// | verbs | like all memory: its pages are registered with the card |
    /// | sim | it is copied in, and copied back when it is reclaimed |
    ///
    /// # Errors
    /// [`Error::Allocate`]: the memory is empty or not aligned to 8 bytes, or there is no memory or
    /// descriptor for its publication. The memory is then freed.
    fn register(&self, memory: UserMemory) -> Result<Self::Segment, Error> {
        let fault = Fault::of(FaultKind::Unsupported, self.rank());
        Err(Error::allocate(memory.len() as u64, "this fabric reaches only memory that it allocates", fault))
    }

    /// Withdraws a [registered](Self::register) segment and returns its memory. After the first
    /// call no new operation on it starts: peers get `NoSuchRegion` (on verbs their connection to
    /// this rank is lost with it, as with any stale key). `None` while a peer's operation is in
    /// progress: call again. It does not wait for a peer that died, but for one that is stopped.
    ///
    /// Words of it that were resolved before are invalid: operations on them fail.
    ///
    /// # Errors
    /// `NotOwn` for a peer's, `Closed` if it was reclaimed before, `Unsupported` for allocated
    /// memory. `Refused` if the card does not end its access: the memory is then leaked, because
    /// the card may still write to it.
    fn reclaim(&self, own: &Self::Segment) -> Result<Option<UserMemory>, Fault> {
        Err(Fault::of(FaultKind::Unsupported, own.rank()))
    }

    /// A part of memory that this rank has [registered](Self::register), as a segment with its own
    /// key. Parts may overlap: they are one memory, and atomics through different parts are atomic
    /// against one another. Only the whole can be [reclaimed](Self::reclaim), after which every
    /// part fails like the whole. A part keeps the whole from being dropped.
    ///
    /// # Errors
    /// `NotOwn` for a peer's, `OutOfRange` (a part has at least one byte), `Misaligned` if the
    /// offset is not a multiple of 8, `Unsupported` for allocated memory.
    fn part(&self, own: &Self::Segment, offset: u64, len: u64) -> Result<Self::Segment, Fault> {
        let _ = (offset, len);
        Err(Fault::of(FaultKind::Unsupported, own.rank()))
    }

    /// Resolves a word of a segment: [`RemoteMemory::word`] without the lookup of the region.
    ///
    /// # Errors
    /// `OutOfRange`, `Misaligned`; `Unsupported` with the detail [`WORDLESS`](crate::WORDLESS) for
    /// memory that its owner may reclaim while the word is held: only its owner's process can
    /// [change](Segment::change) it.
    fn word_in<'s>(&'s self, segment: &'s Self::Segment, offset: u64) -> Result<Self::Word<'s>, Fault>;

    /// Resolves consecutive words, the first at `offset`; `None` if [`word_in`](Self::word_in) fails for one
    /// of them.
    fn words_in<'s, const N: usize>(&'s self, segment: &'s Self::Segment, offset: u64) -> Option<[Self::Word<'s>; N]> {
        let mut words = [self.word_in(segment, offset).ok()?; N];
        for (index, word) in (0..).zip(&mut words).skip(1) {
            *word = self.word_in(segment, offset + 8 * index).ok()?;
        }
        Some(words)
    }

    /// Resolves a same-host word: only ranks of the segment's host access it, and only as such a
    /// word. The CPU executes its operations, where other words use the card. Its atomics are
    /// atomic with one another only. A write to it wakes no rank, and a chain has words of one
    /// kind. It outlives its rank: a rank that opened the segment before uses it as long as it keeps
    /// the segment, unless the two have lost their connection.
    ///
    /// # Errors
    /// As [`word_in`](Self::word_in); `Unsupported` if the CPU cannot access it; `ConnectionLost`.
    fn same_host_word<'s>(&'s self, segment: &'s Self::Segment, offset: u64) -> Result<Self::Word<'s>, Fault> {
        match segment.path() {
            Path::Card => Err(Fault::of(FaultKind::Unsupported, segment.rank())),
            _ => self.word_in(segment, offset),
        }
    }

    /// Puts bytes. The slice may be reused when the call returns; the data is complete at the
    /// target after a [`flush`](Self::flush). 8 bytes at an offset that is a multiple of 8 arrive
    /// as one word.
    ///
    /// # Errors
    /// `OutOfRange`. What fails later is reported by the flush.
    fn put(&self, to: &Self::Segment, offset: u64, from: &[u8]) -> Result<(), Fault>;

    /// Gets bytes. 8 bytes at an offset that is a multiple of 8 are read as one word.
    ///
    /// # Errors
    /// From the future: `OutOfRange`, `Unknown`, `PeerDied`.
    fn get<'b>(&self, from: &Self::Segment, offset: u64, into: &'b mut [u8]) -> Self::Get<'b>;

    /// Puts bytes to several places, each as by [`put`](Self::put), faster than one after the other
    /// where the fabric can.
    ///
    /// # Errors
    /// As [`put`](Self::put), the first one; the pieces before it were put.
    fn put_pieces<'p>(&self, to: &Self::Segment, pieces: impl Iterator<Item = (u64, &'p [u8])>) -> Result<(), Fault> {
        for (offset, from) in pieces {
            self.put(to, offset, from)?;
        }
        Ok(())
    }

    /// Gets bytes from several places where a get completes at post
    /// ([`Capabilities::completes_at_post`]), faster than one after the other where the fabric can.
    ///
    /// # Errors
    /// As [`get`](Self::get), the first one; `Unsupported` if a get does not complete at post.
    fn get_pieces<'p>(
        &self,
        from: &Self::Segment,
        pieces: impl Iterator<Item = (u64, &'p mut [u8])>,
    ) -> Result<(), Fault> {
        for (offset, into) in pieces {
            match Pin::new(&mut self.get(from, offset, into)).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(outcome) => outcome?,
                Poll::Pending => return Err(Fault::of(FaultKind::Unsupported, from.rank())),
            }
        }
        Ok(())
    }

    /// Writes `len` bytes of an own segment to a peer's, without a copy. Holds both segments until
    /// completion; a [packet](Transport) sent after that arrives after the bytes, perhaps also
    /// [one sent earlier](crate::ChannelTo::follows_writes). Of ranges that overlap, either's bytes arrive.
    ///
    /// # Errors
    /// From the future: `OutOfRange`, `NotOwn` (for the source), `Unknown`, `PeerDied`.
    fn rdma_write(&self, from: (&Self::Segment, u64), to: (&Self::Segment, u64), len: u64) -> Self::Transfer;

    /// Reads `len` bytes of a peer's segment into an own one, without a copy. Holds both segments
    /// until completion. Ranges that overlap as in [`rdma_write`](Self::rdma_write).
    ///
    /// # Errors
    /// From the future: `OutOfRange`, `NotOwn` (for the destination), `Unknown`, `PeerDied`.
    fn rdma_read(&self, from: (&Self::Segment, u64), into: (&Self::Segment, u64), len: u64) -> Self::Transfer;

    /// The longest message to a peer, or from it, whose datagrams are [received into its memory](Self::land); 0: there are
    /// none.
    fn landing_max(&self, peer: Rank) -> u64 {
        let _ = peer;
        0
    }

    /// Has the datagrams of a message received into the first bytes of own memory, from whoever is told the key. It is not
    /// the key of a segment.
    ///
    /// # Errors
    /// `Unsupported` also for a message that is empty or longer than [may be](Self::landing_max), `Full` while too many
    /// messages are received so, `NoMemory`, `OutOfRange`.
    fn land(&self, into: &Self::Segment, len: u64) -> Result<(SegmentKey, Box<dyn Landing>), Fault> {
        let _ = len;
        Err(Fault::of(FaultKind::Unsupported, into.rank()))
    }

    /// Sends bytes of own memory, from an offset on, as datagrams to where they are [received](Self::land), as many as
    /// there are to be. They may be lost.
    ///
    /// # Errors
    /// `Unsupported`, `NoMemory`, `OutOfRange`; from the future: `ConnectionLost` if they cannot be sent.
    fn launch(&self, from: (&Self::Segment, u64), to: &SegmentKey) -> Result<Launch, Fault> {
        let _ = from;
        Err(Fault::of(FaultKind::Unsupported, to.rank))
    }

    /// Completes, locally and remotely, everything that this rank has posted to `target`, and
    /// reports the first fault of an unawaited operation. After it, any rank that synchronises with
    /// this one sees the data, and this rank's next reads see what others had completed before.
    ///
    /// # Errors
    /// From the future: `NoSuchRank`, and the first fault of a posted operation (`Unknown`,
    /// `Refused`, `NoSuchRegion`, `PeerDied`, `PeerLeft`).
    ///
    /// # Cancel safety
    /// A flush dropped before completion guarantees nothing; the posted operations continue.
    fn flush(&self, target: Rank) -> Self::Flush<'_>;

    /// Completes what this rank has posted to `target` as far as the next release requires: a rank
    /// that sees that release sees the data. A [`flush`](Self::flush) unless order alone suffices.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    fn flush_before_release(&self, target: Rank) -> Self::Flush<'_> {
        self.flush(target)
    }

    /// Completes locally everything that this rank has posted to `target`: buffers may be reused. A
    /// [`flush`](Self::flush) unless less suffices.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    ///
    /// # Cancel safety
    /// As [`flush`](Self::flush).
    fn flush_local(&self, target: Rank) -> Self::Flush<'_> {
        self.flush(target)
    }

    /// Copies bytes out of memory by loads of this thread: own memory, and that which is
    /// [mapped](Segment::mapped) here. It does not wait for operations in flight.
    ///
    /// # Errors
    /// `NotOwn` for a peer's memory that is not mapped, `OutOfRange`.
    fn read_direct(&self, segment: &Self::Segment, offset: u64, into: &mut [u8]) -> Result<(), Fault>;

    /// Copies bytes into memory, by stores of this thread. See [`read_direct`](Self::read_direct).
    ///
    /// # Errors
    /// As [`read_direct`](Self::read_direct).
    fn write_direct(&self, segment: &Self::Segment, offset: u64, from: &[u8]) -> Result<(), Fault>;

    /// Ends the access of late ranks, if this fabric can.
    fn fencing(&self) -> Option<&dyn Fencing> {
        None
    }

    /// Background work, and the end.
    fn endpoint(&self) -> &dyn Endpoint;

    /// The memory of this host's processes, unregistered. `None`: they cannot be read.
    fn processes(&self) -> Option<&dyn PeerProcesses> {
        None
    }

    /// The events of a kind that wake a handler; `None` where there are none.
    fn events(&self, of: Events) -> Option<&dyn SolicitedEvents> {
        let _ = of;
        None
    }

    /// Takes a note of what memory holds, or of a lock that this rank waits for or holds, for the
    /// report of a simulation that ends in a deadlock. Other fabrics do not call `note`.
    #[doc(hidden)]
    #[inline(always)] // nothing is left of it
    fn note(&self, note: impl FnOnce() -> Option<Note>) {
        let _ = note;
    }
}
