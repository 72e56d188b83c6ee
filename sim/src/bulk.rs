//! Segments and bulk data of a simulated rank.

use std::thread::JoinHandle;

use onesided_fabric::{
    AtomicAgent, Capabilities, Endpoint, Error, Events, Fabric, Fence, Fencing, Landing, Launch, Note, SegmentKey,
    ServerThread, SolicitedEvents, Task, UserMemory,
};
use onesided_remote_memory::{At, Fault, FaultKind, Notify, Rank, RegionId, RemoteMemory};

use crate::endpoint::{SimFabric, Word};
use crate::futures::{Flush, Get, Op, Transfer};
use crate::memory::WORLD_REGION;
use crate::operation::{Action, GetBuffer};
use crate::segment::SimSegment;
use crate::state::check_word;
use crate::transport::{self, SimTransport};

impl SimFabric {
    /// Posts an operation on a range of a segment, or one that is complete with the fault of the
    /// check.
    fn post_range(&self, segment: &SimSegment, offset: u64, checked: Result<(), Fault>, action: Action) -> Op {
        match checked {
            Ok(()) => self.post_at(segment.place(offset), false, action),
            Err(fault) => self.refuse(segment.rank, fault),
        }
    }
}

impl Fabric for SimFabric {
    type Segment = SimSegment;
    type Transfer = Transfer;
    type Get<'b> = Get<'b>;
    type Flush<'f> = Flush<'f>;
    type Transport = SimTransport;

    fn transport(&self) -> Result<SimTransport, Fault> {
        transport::take(self)
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new("sim", AtomicAgent::Simulated);
        capabilities.ordered = true;
        capabilities
    }

    fn host_of(&self, rank: Rank) -> u32 {
        self.shared.host_of(rank)
    }

    fn allocate(&self, len: u64) -> Result<SimSegment, Error> {
        let region = match len {
            0 => None,
            _ => {
                let mut state = self.state();
                let region = state.ranks[self.rank().index()].memory.allocate(len);
                state.charge_registration(region.map_or(0, |_| len));
                region
            }
        };
        let (what, kind) = match len {
            0 => ("a segment has at least one byte", FaultKind::OutOfRange),
            _ => ("no memory for it", FaultKind::NoMemory),
        };
        let region = region.ok_or_else(|| Error::allocate(len, what, Fault::of(kind, self.rank())))?;
        Ok(SimSegment {
            rank: self.rank(),
            region,
            len,
            at: 0,
            part: false,
            _region_ref: Some(self.hold(self.rank(), region)),
        })
    }

    fn register(&self, memory: UserMemory) -> Result<SimSegment, Error> {
        let own = self.allocate(memory.len() as u64)?;
        self.state().ranks[self.rank().index()].memory.write(own.region, 0, memory.bytes());
        self.shared.user_memory().insert((self.rank(), own.region), memory);
        Ok(own)
    }

    fn reclaim(&self, own: &SimSegment) -> Result<Option<UserMemory>, Fault> {
        self.own(own.rank)?;
        if own.part {
            return Err(Fault::of(FaultKind::Unsupported, own.rank));
        }
        let removed = self.shared.user_memory().remove(&(own.rank, own.region));
        let mut state = self.state();
        let memory = &mut state.ranks[own.rank.index()].memory;
        let Some(mut user_memory) = removed else {
            let kind = if memory.len(own.region).is_some() { FaultKind::Unsupported } else { FaultKind::Closed };
            return Err(Fault::of(kind, own.rank));
        };
        memory.read(own.region, 0, user_memory.bytes_mut());
        memory.remove(own.region);
        Ok(Some(user_memory))
    }

    fn part(&self, own: &SimSegment, offset: u64, len: u64) -> Result<SimSegment, Fault> {
        self.own(own.rank)?;
        let refused = |kind| Err(Fault::of(kind, own.rank));
        if !self.shared.user_memory().contains_key(&(own.rank, own.region)) {
            return refused(FaultKind::Unsupported);
        }
        if !offset.is_multiple_of(8) {
            return refused(FaultKind::Misaligned);
        }
        if len == 0 {
            return refused(FaultKind::OutOfRange);
        }
        own.check(offset, len)?;
        Ok(SimSegment { at: own.at + offset, len, part: true, ..own.clone() })
    }

    fn open(&self, key: &SegmentKey) -> Result<SimSegment, Error> {
        let SegmentKey { rank, region: RegionId(region), len, address: at, .. } = *key;
        let is_near = self.host_of(rank) == self.host_of(self.rank());
        let open = || {
            let mut state = self.state();
            let is_killed = state.is_killed(rank);
            let owner = state.ranks.get_mut(rank.index()).ok_or(Fault::of(FaultKind::NoSuchRank, rank))?;
            let part = match owner.memory.len(region) {
                None if is_killed => false, // it does not answer: operations end when its death is known
                None => return Err(Fault::of(FaultKind::NoSuchRegion, rank)),
                // All of it, or a part of user memory.
                Some(there) if at % 8 == 0 && len > 0 && at.checked_add(len).is_some_and(|end| end <= there) => {
                    len < there
                }
                Some(_) => return Err(Fault::of(FaultKind::OutOfRange, rank)),
            };
            if rank == self.rank() {
                owner.memory.hold(region);
            } else if let Some(fault) = state.absent(self.rank(), rank) {
                return Err(fault);
            } else if is_near {
                state.ranks[rank.index()].memory.map(region);
            }
            Ok(part)
        };
        match open() {
            Ok(part) => {
                let region_ref = is_near.then(|| self.hold(rank, region));
                Ok(SimSegment { rank, region, len, at, part, _region_ref: region_ref })
            }
            Err(fault) => Err(Error::Open { rank, what: format!("region {region}: {fault}"), fault, source: None }),
        }
    }

    fn world_segment(&self, rank: Rank) -> Result<SimSegment, Error> {
        if rank.0 < self.size() {
            return Ok(SimSegment {
                rank,
                region: WORLD_REGION,
                len: onesided_fabric::WORLD_BYTES,
                at: 0,
                part: false,
                _region_ref: None,
            });
        }
        Err(Error::open(rank, Fault::of(FaultKind::NoSuchRank, rank).to_string(), FaultKind::NoSuchRank))
    }

    fn word_in<'s>(&'s self, segment: &'s SimSegment, offset: u64) -> Result<Word, Fault> {
        check_word(segment.rank, segment.len, offset)?;
        Word::of(segment.place(offset))
    }

    fn same_host_word<'s>(&'s self, segment: &'s SimSegment, offset: u64) -> Result<Word, Fault> {
        if self.host_of(segment.rank) != self.host_of(self.rank()) {
            return Err(Fault::of(FaultKind::Unsupported, segment.rank));
        }
        Ok(self.word_in(segment, offset)?.on_same_host())
    }

    fn put(&self, to: &SimSegment, offset: u64, from: &[u8]) -> Result<(), Fault> {
        to.check(offset, from.len() as u64)?;
        self.state().charge_copy(from.len() as u64);
        drop(self.post_range(to, offset, Ok(()), Action::Put(from.into())));
        Ok(())
    }

    fn get<'b>(&self, from: &SimSegment, offset: u64, into: &'b mut [u8]) -> Get<'b> {
        let len = into.len() as u64;
        Get::new(self.post_range(from, offset, from.check(offset, len), Action::Get { len, into: None }), into)
    }

    fn rdma_write(&self, from: (&SimSegment, u64), to: (&SimSegment, u64), len: u64) -> Transfer {
        let checked =
            self.own(from.0.rank).and_then(|()| from.0.check(from.1, len)).and_then(|()| to.0.check(to.1, len));
        let mut bytes = vec![0; checked.map_or(0, |()| len as usize)];
        self.state().ranks[self.rank().index()].memory.read(from.0.region, from.0.at + from.1, &mut bytes);
        Transfer::new(self.post_range(to.0, to.1, checked, Action::Put(bytes.into())))
    }

    fn rdma_read(&self, from: (&SimSegment, u64), into: (&SimSegment, u64), len: u64) -> Transfer {
        let checked =
            self.own(into.0.rank).and_then(|()| into.0.check(into.1, len)).and_then(|()| from.0.check(from.1, len));
        if checked.is_ok() {
            self.state().ranks[self.rank().index()].memory.hold(into.0.region);
        }
        let into = Some(Box::new(GetBuffer { region: into.0.region, offset: into.0.at + into.1 }));
        Transfer::new(self.post_range(from.0, from.1, checked, Action::Get { len, into }))
    }

    fn landing_max(&self, peer: Rank) -> u64 {
        self.longest_landing(peer)
    }

    fn land(&self, into: &SimSegment, len: u64) -> Result<(SegmentKey, Box<dyn Landing>), Fault> {
        self.begin_landing(into, len)
    }

    fn launch(&self, from: (&SimSegment, u64), to: &SegmentKey) -> Result<Launch, Fault> {
        self.begin_launch(from, to)
    }

    fn flush(&self, target: Rank) -> Flush<'_> {
        Flush::new(self, target)
    }

    fn read_direct(&self, own: &SimSegment, offset: u64, into: &mut [u8]) -> Result<(), Fault> {
        self.own(own.rank)?;
        own.check(offset, into.len() as u64)?;
        let mut state = self.state();
        state.charge_copy(into.len() as u64);
        let memory = &state.ranks[own.rank.index()].memory;
        memory.len(own.region).ok_or(Fault::of(FaultKind::NoSuchRegion, own.rank))?;
        memory.read(own.region, own.at + offset, into);
        Ok(())
    }

    fn write_direct(&self, own: &SimSegment, offset: u64, from: &[u8]) -> Result<(), Fault> {
        self.own(own.rank)?;
        own.check(offset, from.len() as u64)?;
        let mut state = self.state();
        state.charge_copy(from.len() as u64);
        let memory = &mut state.ranks[own.rank.index()].memory;
        memory.len(own.region).ok_or(Fault::of(FaultKind::NoSuchRegion, own.rank))?;
        memory.write(own.region, own.at + offset, from);
        let at = At { rank: own.rank, region: RegionId(own.region), offset: own.at + offset };
        state.changed(own.rank, at, from.len() as u64, Notify::No);
        Ok(())
    }

    fn fencing(&self) -> Option<&dyn Fencing> {
        Some(self)
    }

    fn endpoint(&self) -> &dyn Endpoint {
        self
    }

    /// Where hosts have cores: otherwise computation takes no time.
    fn events(&self, of: Events) -> Option<&dyn SolicitedEvents> {
        (of == Events::Packets && self.state().has_handlers()).then_some(self as _)
    }

    fn note(&self, note: impl FnOnce() -> Option<Note>) {
        if let Some(note) = note() {
            self.state().note(self.rank(), note);
        }
    }
}

impl Fencing for SimFabric {
    fn fence_of(&self, rank: Rank) -> Option<Fence> {
        (rank != self.rank() && rank.0 < self.size()).then_some(Fence::Revoke)
    }

    fn fence(&self, rank: Rank) -> Result<bool, Fault> {
        match self.fence_of(rank) {
            Some(_) => self.state().revoke(self.rank(), rank),
            None => return Err(Fault::of(FaultKind::Unsupported, rank)),
        }
        Ok(true)
    }
}

impl Endpoint for SimFabric {
    fn spawn(&self, task: Task) {
        let refused = self.state().spawn(self.rank(), task);
        drop(refused); // after the lock is released: a task owns endpoints
    }

    /// A polling task makes its rank poll for everything that it waits for.
    fn serve(&self, task: Task, thread: Option<ServerThread>) -> Result<Option<JoinHandle<()>>, Fault> {
        let mut state = self.state();
        let refused = match thread {
            Some(thread) => state.serve_apart(self.rank(), task, thread == ServerThread::Polls),
            None => state.serve(self.rank(), task),
        };
        drop(state);
        drop(refused); // as above
        Ok(None)
    }

    fn departed(&self, since: u32) -> (u32, Vec<Rank>) {
        let departed = &self.state().departed;
        (departed.len() as u32, departed[since as usize..].to_vec())
    }

    /// Does nothing: a simulated rank leaves when its program and its spawned tasks are done.
    fn leave(&self) {}

    fn abort(&self, status: u8) -> ! {
        panic!("{} aborts the job with status {}", self.rank(), status.max(1))
    }
}
