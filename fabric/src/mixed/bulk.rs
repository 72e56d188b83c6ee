//! Bulk operations: by the CPU where the memory is mapped and no change is in flight, else by the
//! card.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::thread::JoinHandle;

use onesided_remote_memory::{Fault, FaultKind, Link, Rank, RegionId, RemoteMemory};

use crate::EitherFuture;
use crate::mixed::changes::Change;
use crate::mixed::segment::AgentWord;
use crate::mixed::{HostPaths, Mixed, MixedSegment, MixedWord};
use crate::shm::ShmSegment;
use crate::verbs::{Verbs, VerbsGet, VerbsTransfer, VerbsTransport};
use crate::{
    BackgroundSlot, Capabilities, Error, Fabric, Path, Segment, SegmentKey, ServerThread, SolicitedEvents, Task,
    UserMemory,
};

/// A get: completed at post, or in flight on the card.
pub type MixedGet<'b> = EitherFuture<Ready<Result<(), Fault>>, VerbsGet<'b>>;
/// A transfer: completed at post, or in flight on the card.
pub type MixedTransfer = EitherFuture<Ready<Result<(), Fault>>, VerbsTransfer>;

/// The path to the bytes of a segment.
enum DataPath<'s> {
    /// The CPU: all changes that this rank has posted to the region are in memory.
    Cpu(&'s ShmSegment),
    /// The card: the only path, or behind changes in flight.
    Card(Option<&'s Change>),
}

impl Mixed {
    /// The path to take now.
    #[inline]
    fn data_path<'s>(&'s self, segment: &'s MixedSegment) -> DataPath<'s> {
        let Some(memory) = &segment.mapped else { return DataPath::Card(None) };
        let SegmentKey { rank, region, .. } = memory.key();
        let Some(host_peer) = self.host_peer(rank) else { return DataPath::Card(None) };
        let change = host_peer.changes.of(&self.verbs, region);
        if change.is_placed(&self.verbs, rank) { DataPath::Cpu(memory) } else { DataPath::Card(Some(change)) }
    }

    /// Moves bytes between an own segment and another by the CPU, if that is the path.
    fn copied(
        &self,
        own: (&MixedSegment, u64),
        other: (&MixedSegment, u64),
        len: u64,
        copy: impl FnOnce((&ShmSegment, u64), (&ShmSegment, u64)) -> Result<(), Fault>,
    ) -> Option<Result<(), Fault>> {
        // User memory is the card's alone.
        let (DataPath::Cpu(theirs), Some(mine)) = (self.data_path(other.0), &own.0.mapped) else { return None };
        if mine.rank() != self.rank() {
            return Some(Err(Fault::of(FaultKind::NotOwn, own.0.rank())));
        }
        // Errors about the ranges come first, as on the card's path.
        let checked = own.0.card.check(own.1, len).and_then(|()| other.0.card.check(other.1, len));
        Some(checked.and_then(|()| {
            self.verbs.check_usable(other.0.rank())?;
            copy((mine, own.1), (theirs, other.1))
        }))
    }
}

impl Fabric for Mixed {
    type Segment = MixedSegment;
    type Transfer = MixedTransfer;
    type Get<'b> = MixedGet<'b>;
    type Flush<'f> = <Verbs as Fabric>::Flush<'f>;
    type Transport = VerbsTransport;

    fn transport(&self) -> Result<VerbsTransport, Fault> {
        self.verbs.transport()
    }

    fn for_messages(&self) -> Self {
        Self { verbs: self.verbs.for_messages(), paths: Arc::clone(&self.paths) }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { name: self.paths.name, ordered: !self.has_host_peers(), ..self.verbs.capabilities() }
    }

    /// For ranks of this host, bytes and words take different paths.
    fn keeps_order(&self, target: Rank) -> bool {
        self.host_peer(target).is_none()
    }

    fn host_of(&self, rank: Rank) -> u32 {
        self.paths.pretended.get(rank.index()).copied().unwrap_or_else(|| self.verbs.host_of(rank))
    }

    fn allocate(&self, len: u64) -> Result<MixedSegment, Error> {
        self.publish(self.verbs.allocate(len)?)
    }

    /// A peer of this host: the card reads its region table, then the exchange provides the memory.
    fn open(&self, key: &SegmentKey) -> Result<MixedSegment, Error> {
        let card = self.verbs.open(key)?;
        // That segment is mapped already.
        if key.region == RegionId(0) { self.world_segment(key.rank) } else { self.map(card) }
    }

    fn world_segment(&self, rank: Rank) -> Result<MixedSegment, Error> {
        let Some(host_peer) = self.host_peer(rank) else { return self.map(self.verbs.world_segment(rank)?) };
        if let Some(world) = host_peer.world.get() {
            return Ok(world.clone());
        }
        let world = self.map(self.verbs.world_segment(rank)?)?;
        Ok(host_peer.world.get_or_init(|| world).clone())
    }

    /// Only the card accesses it, for ranks of this host too.
    fn register(&self, memory: UserMemory) -> Result<MixedSegment, Error> {
        Ok(MixedSegment { card: self.verbs.register(memory)?, mapped: None })
    }

    fn reclaim(&self, own: &MixedSegment) -> Result<Option<UserMemory>, Fault> {
        self.verbs.reclaim(&own.card)
    }

    fn part(&self, own: &MixedSegment, offset: u64, len: u64) -> Result<MixedSegment, Fault> {
        Ok(MixedSegment { card: self.verbs.part(&own.card, offset, len)?, mapped: None })
    }

    /// Includes segments of ranks of this host. The CPU's change of a word is not atomic against
    /// the card's.
    fn mapped<'s>(&self, segment: &'s MixedSegment) -> Option<&'s [AtomicU64]> {
        segment.mapped.as_ref().map_or_else(|| self.verbs.mapped(&segment.card), ShmSegment::words)
    }

    fn read_mapped(&self, segment: &MixedSegment, offset: u64, into: &mut [u8]) -> Result<(), Fault> {
        match &segment.mapped {
            Some(memory) => memory.read(offset, into),
            None => self.verbs.read_mapped(&segment.card, offset, into),
        }
    }

    fn write_mapped(&self, segment: &MixedSegment, offset: u64, from: &[u8]) -> Result<(), Fault> {
        match &segment.mapped {
            Some(memory) => memory.write(offset, from),
            None => self.verbs.write_mapped(&segment.card, offset, from),
        }
    }

    fn path(&self, segment: &MixedSegment) -> Path {
        if segment.mapped.is_some() { Path::Cpu } else { Path::Card }
    }

    fn background(&self) -> Option<&BackgroundSlot> {
        self.verbs.background()
    }

    fn solicited(&self) -> Option<&dyn SolicitedEvents> {
        self.verbs.solicited()
    }

    fn completion_events(&self) -> Option<&dyn SolicitedEvents> {
        self.verbs.completion_events()
    }

    fn serve(&self, task: Task) -> Result<(), Fault> {
        self.verbs.serve(task)
    }

    fn serve_apart(&self, task: Task, kind: ServerThread) -> Result<Option<JoinHandle<()>>, Fault> {
        crate::server_threads::spawn(self, task, kind).map(Some)
    }

    fn word_in<'s>(&'s self, segment: &'s MixedSegment, offset: u64) -> Result<MixedWord<'s>, Fault> {
        self.verbs.word_in(&segment.card, offset).map(|word| MixedWord(AgentWord::Card(word)))
    }

    fn same_host_word<'s>(&'s self, segment: &'s MixedSegment, offset: u64) -> Result<MixedWord<'s>, Fault> {
        let Some(memory) = &segment.mapped else { return Err(Fault::of(FaultKind::Unsupported, segment.rank())) };
        self.verbs.check_connected(segment.rank())?;
        memory.word(offset).map(|word| MixedWord(AgentWord::Cpu(word)))
    }

    #[inline]
    fn put(&self, to: &MixedSegment, offset: u64, from: &[u8]) -> Result<(), Fault> {
        match self.data_path(to) {
            DataPath::Cpu(memory) => {
                memory.check(offset, from.len())?;
                match self.verbs.check_usable(memory.rank()) {
                    Ok(()) => memory.write(offset, from)?,
                    Err(fault) => self.verbs.defer(fault), // reported by the flush, as on the card's path
                }
                Ok(())
            }
            DataPath::Card(change) => {
                self.verbs.put(&to.card, offset, from)?;
                if let Some(change) = change {
                    change.note(&self.verbs, to.rank(), true);
                }
                Ok(())
            }
        }
    }

    #[inline]
    fn get<'b>(&self, from: &MixedSegment, offset: u64, into: &'b mut [u8]) -> MixedGet<'b> {
        match self.data_path(from) {
            DataPath::Cpu(memory) => {
                let alive = || self.verbs.check_usable(memory.rank());
                let checked = memory.check(offset, into.len()).and_then(|()| alive());
                EitherFuture::first(ready(checked.and_then(|()| memory.read(offset, into))))
            }
            DataPath::Card(_) => EitherFuture::second(self.verbs.get(&from.card, offset, into)),
        }
    }

    fn rdma_write(&self, from: (&MixedSegment, u64), to: (&MixedSegment, u64), len: u64) -> MixedTransfer {
        match self.copied(from, to, len, |mine, theirs| mine.0.transfer(mine.1, theirs, len)) {
            Some(copied) => EitherFuture::first(ready(copied)),
            None => {
                let transfer = self.verbs.rdma_write((&from.0.card, from.1), (&to.0.card, to.1), len);
                if let Some(host_peer) = self.host_peer(to.0.rank()) {
                    host_peer.changes.of(&self.verbs, to.0.key().region).note(&self.verbs, to.0.rank(), true);
                }
                EitherFuture::second(transfer)
            }
        }
    }

    fn rdma_read(&self, from: (&MixedSegment, u64), into: (&MixedSegment, u64), len: u64) -> MixedTransfer {
        match self.copied(into, from, len, |mine, theirs| theirs.0.transfer(theirs.1, mine, len)) {
            Some(copied) => EitherFuture::first(ready(copied)),
            None => EitherFuture::second(self.verbs.rdma_read((&from.0.card, from.1), (&into.0.card, into.1), len)),
        }
    }

    /// A full fence completes the CPU's puts, which `put x; flush; get y` needs as well. The card's
    /// complete as on verbs; a card with nothing in flight is not asked.
    #[inline]
    fn flush(&self, target: Rank) -> Self::Flush<'_> {
        if self.host_peer(target).is_some() {
            fence(Ordering::SeqCst);
        }
        self.verbs.flush(target)
    }

    /// As on verbs, after the CPU's stores.
    fn post_release(&self, release: Link<MixedWord<'_>>) {
        if release.word().card().and_then(|word| self.change_of(word)).is_some() {
            fence(Ordering::SeqCst);
        }
        drop(self.post([Link::Read { word: release.word(), waited: false }, release]));
    }

    fn flush_local(&self, target: Rank) -> Self::Flush<'_> {
        self.verbs.flush_local(target)
    }

    fn read_own(&self, own: &MixedSegment, offset: u64, into: &mut [u8]) -> Result<(), Fault> {
        self.verbs.read_own(&own.card, offset, into)
    }

    fn write_own(&self, own: &MixedSegment, offset: u64, from: &[u8]) -> Result<(), Fault> {
        self.verbs.write_own(&own.card, offset, from)
    }

    /// Not within a host, where the peer has the memory mapped.
    fn can_revoke(&self, rank: Rank) -> bool {
        self.host_peer(rank).is_none() && self.verbs.can_revoke(rank)
    }

    fn revoke(&self, rank: Rank) -> Result<bool, Fault> {
        match self.can_revoke(rank) {
            true => self.verbs.revoke(rank),
            false => Err(Fault::of(FaultKind::Unsupported, rank)),
        }
    }

    fn spawn(&self, task: Task) {
        self.verbs.spawn(task);
    }

    fn departed(&self, since: u32) -> (u32, Vec<Rank>) {
        self.verbs.departed(since)
    }

    fn leave(&self) {
        self.verbs.leave();
    }

    fn again(&self) -> Option<Result<Self, Error>> {
        let HostPaths { name, pretended, .. } = &*self.paths;
        let join = |job| Self::with(job, name, pretended.clone(), |rank| self.host_peer(rank).is_some());
        Some(self.verbs.join_again(join))
    }

    fn abort(&self, status: u8) -> ! {
        self.verbs.abort(status)
    }
}
