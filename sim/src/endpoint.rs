//! The endpoint of a simulated rank.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use onesided_fabric::{AtomicAgent, Capabilities, Error, Fabric, Segment, SegmentKey, ServerThread, Task, UserMemory};
use onesided_remote_memory::{
    At, Fault, FaultKind, Liveness, Mailbox, Message, Notify, Patience, Port, Rank, RegionId, RemoteMemory,
};

use crate::futures::{Flush, Get, Op, Pause, Recv, Send, Transfer, Wait};
use crate::memory::WORLD_REGION;
use crate::operation::{Action, GetBuffer, Operation};
use crate::state::{State, Step, check_range, check_word};

/// What all ranks of a simulation share. One thread runs it, so the lock is never contended; it
/// exists because threads may share an endpoint.
#[derive(Debug)]
pub(crate) struct Shared {
    /// A copy of the state's time, which futures read most often.
    now: AtomicU64,
    /// How many ranks share a host.
    per_host: u32,
    state: Mutex<State>,
    /// User memory by rank and region, returned when it is reclaimed.
    user_memory: Mutex<BTreeMap<(Rank, u32), UserMemory>>,
}

impl Shared {
    pub(crate) const fn new(state: State, per_host: u32) -> Self {
        Self {
            now: AtomicU64::new(state.now),
            per_host,
            state: Mutex::new(state),
            user_memory: Mutex::new(BTreeMap::new()),
        }
    }

    fn user_memory(&self) -> MutexGuard<'_, BTreeMap<(Rank, u32), UserMemory>> {
        self.user_memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) const fn host_of(&self, rank: Rank) -> u32 {
        rank.0 / self.per_host
    }

    /// Virtual time.
    pub(crate) fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Advances time until an event concerns a task.
    pub(crate) fn step(&self, until: u64) -> Step {
        let mut state = self.lock();
        let step = state.step(until);
        self.now.store(state.now, Ordering::Relaxed);
        step
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A rank's panic unwinds the whole simulation, whose state is not used afterwards.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The endpoint of one rank on the simulated fabric.
///
/// Time passes only while every rank waits; computation takes none. A task is polled when one of
/// its rank's events occurs, whatever waker it was given.
pub struct SimFabric {
    shared: Arc<Shared>,
    rank: Rank,
    size: u32,
}

impl Clone for SimFabric {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.shared), self.rank, self.size)
    }
}

impl Drop for SimFabric {
    fn drop(&mut self) {
        self.state().close(self.rank);
    }
}

impl fmt::Debug for SimFabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimFabric({} of {})", self.rank, self.size)
    }
}

/// A checked word of a simulated rank.
#[derive(Clone, Copy, Debug)]
pub struct Word {
    at: At,
    /// Whether it bypasses the card.
    same_host: bool,
}

impl SimFabric {
    pub(crate) fn new(shared: Arc<Shared>, rank: Rank, size: u32) -> Self {
        shared.lock().open(rank);
        Self { shared, rank, size }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }

    fn post(&self, Word { at, same_host }: Word, action: Action) -> Op {
        let operation = Operation::new(self.rank(), at.rank, at.region.0, at.offset, action);
        let slot = self.state().post(Operation { same_host, ..operation });
        Op::new(Arc::clone(&self.shared), slot)
    }

    fn refuse(&self, target: Rank, fault: Fault) -> Op {
        let operation = Operation::new(self.rank(), target, WORLD_REGION, 0, Action::Read);
        let slot = self.state().refuse(operation, fault);
        Op::new(Arc::clone(&self.shared), slot)
    }

    /// Posts an operation on a range of a segment, or one that is complete with the fault of the
    /// check.
    fn post_range(&self, segment: &SimSegment, offset: u64, checked: Result<(), Fault>, action: Action) -> Op {
        match checked {
            Ok(()) => self.post(Word::of(segment.place(offset)), action),
            Err(fault) => self.refuse(segment.rank, fault),
        }
    }

    pub(crate) fn own(&self, rank: Rank) -> Result<(), Fault> {
        if rank == self.rank() { Ok(()) } else { Err(Fault::of(FaultKind::NotOwn, rank)) }
    }

    pub(crate) fn load_word(&self, Word { at, .. }: Word) -> Result<u64, Fault> {
        self.own(at.rank)?;
        Ok(self.state().ranks[at.rank.index()].memory().load(at.region.0, at.offset))
    }
}

impl Word {
    const fn of(at: At) -> Self {
        Self { at, same_host: false }
    }

    /// The location of the word.
    #[must_use]
    pub const fn at(self) -> At {
        self.at
    }
}

impl RemoteMemory for SimFabric {
    type Word<'f> = Word;
    type Op = Op;
    type Wait<'f, P: Fn(u64) -> bool + Unpin + std::marker::Send + 'f> = Wait<'f, P>;
    type Pause<'f> = Pause<'f>;

    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn word(&self, at: At) -> Result<Word, Fault> {
        self.state().check_word(at).map(|()| Word::of(at))
    }

    fn read(&self, word: Word) -> Op {
        self.post(word, Action::Read)
    }

    fn write(&self, word: Word, value: u64, notify: Notify) -> Op {
        self.post(word, Action::Write { value, notify })
    }

    fn compare_swap(&self, word: Word, expected: u64, new: u64) -> Op {
        self.post(word, Action::CompareSwap { expected, new })
    }

    fn fetch_add(&self, word: Word, add: u64) -> Op {
        self.post(word, Action::FetchAdd(add))
    }

    fn load(&self, own: Word) -> Result<u64, Fault> {
        self.load_word(own)
    }

    fn store(&self, own: Word, value: u64) -> Result<(), Fault> {
        let At { rank, region, offset } = own.at;
        self.own(rank)?;
        let mut state = self.state();
        let memory = &mut state.ranks[rank.index()].more().memory;
        memory.len(region.0).ok_or(Fault::of(FaultKind::NoSuchRegion, rank))?;
        memory.store(region.0, offset, value);
        state.changed(rank, region.0, offset, 8, Notify::No);
        Ok(())
    }

    fn wait_until<'f, P>(&'f self, own: Word, predicate: P, patience: Patience) -> Wait<'f, P>
    where
        P: Fn(u64) -> bool + Unpin + std::marker::Send + 'f,
    {
        Wait::new(self, own, predicate, patience)
    }

    fn pause<'f>(&'f self, _word: Word, nanos: u64) -> Pause<'f> {
        Pause::new(self, nanos)
    }

    fn now(&self) -> u64 {
        self.shared.now()
    }

    fn liveness(&self, rank: Rank) -> Liveness {
        self.state().liveness(rank)
    }

    fn failed_rank(&self) -> Option<Rank> {
        self.state().failed_rank()
    }
}

impl Mailbox for SimFabric {
    type Send<'f> = Send<'f>;
    type Recv<'f> = Recv<'f>;

    fn send<'f>(&'f self, to: Rank, port: Port, bytes: &[u8], notify: Notify) -> Send<'f> {
        let message = Message::new(self.rank(), bytes).and_then(|message| {
            check_port(port)?;
            if to.0 < self.size() { Ok(message) } else { Err(Fault::of(FaultKind::NoSuchRank, to)) }
        });
        Send::new(self, to, port, notify, message)
    }

    fn recv<'f>(&'f self, port: Port, patience: Patience) -> Recv<'f> {
        Recv::new(self, port, patience)
    }
}

/// Checks that the port exists.
pub(crate) fn check_port(port: Port) -> Result<(), Fault> {
    if usize::from(port.0) < Port::COUNT {
        Ok(())
    } else {
        Err(Fault::new(FaultKind::Protocol).with_detail(port.0.into()))
    }
}

impl Fabric for SimFabric {
    type Segment = SimSegment;
    type Transfer = Transfer;
    type Get<'b> = Get<'b>;
    type Flush<'f> = Flush<'f>;

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
            _ => self.state().ranks[self.rank().index()].more().memory.allocate(len),
        };
        let region = region.ok_or_else(|| Error::Allocate {
            len,
            what: if len == 0 { "a segment has at least one byte" } else { "no memory for it" }.into(),
            fault: Fault::of(if len == 0 { FaultKind::OutOfRange } else { FaultKind::NoMemory }, self.rank()),
            source: None,
        })?;
        Ok(SimSegment { rank: self.rank(), region, len, at: 0, part: false, _region_ref: Some(self.hold(region)) })
    }

    fn register(&self, memory: UserMemory) -> Result<SimSegment, Error> {
        let own = self.allocate(memory.len() as u64)?;
        self.state().ranks[self.rank().index()].more().memory.write(own.region, 0, memory.bytes());
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
        let memory = &mut state.ranks[own.rank.index()].more().memory;
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
        let open = || {
            let mut state = self.state();
            let owner = state.ranks.get_mut(rank.index()).ok_or(Fault::of(FaultKind::NoSuchRank, rank))?;
            let part = match owner.memory().len(region) {
                None => return Err(Fault::of(FaultKind::NoSuchRegion, rank)),
                // All of it, or a part of user memory.
                Some(there) if at % 8 == 0 && len > 0 && at.checked_add(len).is_some_and(|end| end <= there) => {
                    len < there
                }
                Some(_) => return Err(Fault::of(FaultKind::OutOfRange, rank)),
            };
            if rank == self.rank() {
                owner.more().memory.hold(region);
                return Ok((part, true));
            }
            state.absent(rank).map_or(Ok((part, false)), Err)
        };
        match open() {
            Ok((part, own)) => {
                Ok(SimSegment { rank, region, len, at, part, _region_ref: own.then(|| self.hold(region)) })
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
        let fault = Fault::of(FaultKind::NoSuchRank, rank);
        Err(Error::Open { rank, what: fault.to_string(), fault, source: None })
    }

    fn word_in<'s>(&'s self, segment: &'s SimSegment, offset: u64) -> Result<Word, Fault> {
        check_word(segment.rank, segment.len, offset)?;
        Ok(Word::of(segment.place(offset)))
    }

    fn same_host_word<'s>(&'s self, segment: &'s SimSegment, offset: u64) -> Result<Word, Fault> {
        if self.host_of(segment.rank) != self.host_of(self.rank()) {
            return Err(Fault::of(FaultKind::Unsupported, segment.rank));
        }
        Ok(Word { same_host: true, ..self.word_in(segment, offset)? })
    }

    fn put(&self, to: &SimSegment, offset: u64, from: &[u8]) -> Result<(), Fault> {
        to.check(offset, from.len() as u64)?;
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
        self.state().ranks[self.rank().index()].memory().read(from.0.region, from.0.at + from.1, &mut bytes);
        Transfer::new(self.post_range(to.0, to.1, checked, Action::Put(bytes.into())))
    }

    fn rdma_read(&self, from: (&SimSegment, u64), into: (&SimSegment, u64), len: u64) -> Transfer {
        let checked =
            self.own(into.0.rank).and_then(|()| into.0.check(into.1, len)).and_then(|()| from.0.check(from.1, len));
        if checked.is_ok() {
            self.state().ranks[self.rank().index()].more().memory.hold(into.0.region);
        }
        let into = Some(Box::new(GetBuffer { region: into.0.region, offset: into.0.at + into.1 }));
        Transfer::new(self.post_range(from.0, from.1, checked, Action::Get { len, into }))
    }

    fn flush(&self, target: Rank) -> Flush<'_> {
        Flush::new(self, target)
    }

    fn flush_local(&self, target: Rank) -> Flush<'_> {
        Flush::new(self, target)
    }

    fn read_own(&self, own: &SimSegment, offset: u64, into: &mut [u8]) -> Result<(), Fault> {
        self.own(own.rank)?;
        own.check(offset, into.len() as u64)?;
        let state = self.state();
        let memory = state.ranks[own.rank.index()].memory();
        memory.len(own.region).ok_or(Fault::of(FaultKind::NoSuchRegion, own.rank))?;
        memory.read(own.region, own.at + offset, into);
        Ok(())
    }

    fn write_own(&self, own: &SimSegment, offset: u64, from: &[u8]) -> Result<(), Fault> {
        self.own(own.rank)?;
        own.check(offset, from.len() as u64)?;
        let mut state = self.state();
        let memory = &mut state.ranks[own.rank.index()].more().memory;
        memory.len(own.region).ok_or(Fault::of(FaultKind::NoSuchRegion, own.rank))?;
        memory.write(own.region, own.at + offset, from);
        state.changed(own.rank, own.region, own.at + offset, from.len() as u64, Notify::No);
        Ok(())
    }

    fn can_revoke(&self, rank: Rank) -> bool {
        rank != self.rank() && rank.0 < self.size()
    }

    fn revoke(&self, rank: Rank) -> Result<bool, Fault> {
        match self.can_revoke(rank) {
            true => self.state().revoke(self.rank(), rank),
            false => return Err(Fault::of(FaultKind::Unsupported, rank)),
        }
        Ok(true)
    }

    fn spawn(&self, task: Task) {
        let refused = self.state().spawn(self.rank(), task);
        drop(refused); // after the lock is released: a task owns endpoints
    }

    fn serve(&self, task: Task) -> Result<(), Fault> {
        let refused = self.state().serve(self.rank(), task);
        drop(refused); // as above
        Ok(())
    }

    /// As [`serve`](Fabric::serve). A polling task makes its rank poll for everything that it waits
    /// for.
    fn serve_apart(&self, task: Task, thread: ServerThread) -> Result<Option<JoinHandle<()>>, Fault> {
        if thread == ServerThread::Polls {
            self.state().ranks[self.rank().index()].more().polls = true;
        }
        self.serve(task).map(|()| None)
    }

    /// Does nothing: a simulated rank leaves when its program and its spawned tasks are done.
    fn leave(&self) {}
}

/// Registered memory of a simulated rank.
#[derive(Clone, Debug)]
pub struct SimSegment {
    rank: Rank,
    region: u32,
    len: u64,
    /// Its offset in its region.
    at: u64,
    /// Whether it is a part of a region; only the whole is reclaimed.
    part: bool,
    /// Keeps the region of a rank's own segment.
    _region_ref: Option<Arc<RegionRef>>,
}

struct RegionRef {
    shared: Arc<Shared>,
    rank: Rank,
    region: u32,
}

impl SimFabric {
    /// A reference to an own region, already counted.
    fn hold(&self, region: u32) -> Arc<RegionRef> {
        Arc::new(RegionRef { shared: Arc::clone(&self.shared), rank: self.rank(), region })
    }
}

impl Drop for RegionRef {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let memory = &mut state.ranks[self.rank.index()].more().memory;
        memory.release(self.region);
        if memory.len(self.region).is_none() {
            drop(state);
            self.shared.user_memory().remove(&(self.rank, self.region));
        }
    }
}

impl fmt::Debug for RegionRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RegionRef")
    }
}

impl SimSegment {
    fn check(&self, offset: u64, count: u64) -> Result<(), Fault> {
        check_range(self.rank, self.len, offset, count)
    }

    /// The location of a checked offset.
    const fn place(&self, offset: u64) -> At {
        At { rank: self.rank, region: RegionId(self.region), offset: self.at + offset }
    }
}

impl Segment for SimSegment {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn key(&self) -> SegmentKey {
        SegmentKey { rank: self.rank, region: RegionId(self.region), len: self.len, address: self.at, rkey: 0 }
    }
}
