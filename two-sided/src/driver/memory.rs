//! Registered memory of messages, kept to be used again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Fabric, Path, Segment, SegmentKey, lock};

use crate::driver::pieces::Pieces;
use crate::driver::progress::{Opened, Progress, Registered};
use crate::engine::elements::zeroed;
use crate::engine::is_refused;

/// The most memory that sends have used and that is kept to be used again, in bytes.
const KEPT: u64 = 64 << 20;

/// Registered memory that no peer reads (`S`), by length; and that of peers (`P`) which was read last.
#[derive(Debug)]
pub(crate) struct Memory<S, P> {
    free: BTreeMap<u64, Class<S>>,
    bytes: u64,
    /// How often memory was asked for so far, and how often it was there.
    uses: u64,
    reuses: u64,
    opened: VecDeque<(SegmentKey, P)>,
    /// Bytes that messages were read into before they were waited for, or that went in packets, to be used
    /// again: fresh ones cost a page fault for each page.
    spare: Vec<Vec<u8>>,
    /// Offers of peers, which they use again: at most [`OFFERS`], each in the place of its key.
    offers: Vec<Option<(SegmentKey, P)>>,
}

/// What a rank has registered for its messages so far. See
/// [`Messages::registrations`](crate::Messages::registrations).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Registrations {
    /// How often memory was registered.
    pub count: u64,
    /// How much, in bytes.
    pub bytes: u64,
    /// How often a message or a [`Buffer`](crate::Buffer), or a piece of them, had memory that was
    /// registered before.
    pub reuses: u64,
    /// How often memory could not be registered: the message, or those of the
    /// [`Buffer`](crate::Buffer), went in packets.
    pub refusals: u64,
}

/// Registrations, their bytes, and how many were refused.
#[derive(Debug, Default)]
pub(crate) struct Counters([AtomicU64; 3]);

impl Counters {
    pub(crate) fn count<R, E>(&self, bytes: u64, registered: &Result<R, E>) {
        let Self([count, sum, refusals]) = self;
        match registered {
            Ok(_) => {
                count.fetch_add(1, Ordering::Relaxed);
                sum.fetch_add(bytes, Ordering::Relaxed);
            }
            Err(_) => _ = refusals.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Tells of refusals, if there were some.
    pub(crate) fn describe(&self) -> Option<String> {
        let Self([.., refusals]) = self;
        let refusals = Some(refusals.load(Ordering::Relaxed)).filter(|refusals| *refusals > 0)?;
        let advice = "(registered memory is locked memory: raise `ulimit -l`)";
        Some(format!("memory for messages was refused {refusals} times {advice}: they go in packets"))
    }
}

const OFFERS: usize = 256;
const SPARE: usize = 64;
/// Shorter ones are not kept.
const SPARE_MIN: usize = 64 << 10;

/// Memory of one length.
#[derive(Debug)]
struct Class<S> {
    free: Vec<S>,
    /// The message that used it last.
    used: u64,
}

/// Memory of peers stays open if it is at least this long, or if it is a user's in another process,
/// because to open it takes system calls then; shorter memory is opened by a few loads, and its owner
/// uses it again sooner if it is closed.
const STAYS_OPEN: u64 = 1 << 20;

/// The length of the memory that is allocated for so many bytes: at most an eighth more, above a
/// cache line, so that there are few lengths.
pub(crate) const fn allocated(len: u64) -> u64 {
    let len = if len < 64 { 64 } else { len };
    len.next_multiple_of(len.next_power_of_two() / 16)
}

impl<S, P> Default for Memory<S, P> {
    fn default() -> Self {
        Self {
            free: BTreeMap::new(),
            bytes: 0,
            uses: 0,
            reuses: 0,
            opened: VecDeque::new(),
            spare: Vec::new(),
            offers: Vec::new(),
        }
    }
}

impl<S, P> Memory<S, P> {
    fn class(&mut self, len: u64) -> &mut Class<S> {
        let used = self.uses;
        self.free.entry(len).or_insert(Class { free: Vec::new(), used })
    }

    fn take(&mut self, len: u64) -> Option<S> {
        self.uses += 1;
        let used = self.uses;
        let class = self.class(len);
        class.used = used;
        let segment = class.free.pop()?;
        self.bytes -= len;
        self.reuses += 1;
        Some(segment)
    }

    /// Keeps memory instead of some of the length that was used longest ago.
    fn keep(&mut self, len: u64, segment: S) {
        while self.bytes + len > KEPT {
            let Some(oldest) = self.free.iter().min_by_key(|(_, class)| class.used).map(|(len, _)| *len) else { break };
            match self.free.get_mut(&oldest).and_then(|class| class.free.pop()) {
                Some(_) => self.bytes -= oldest,
                None => drop(self.free.remove(&oldest)),
            }
        }
        self.class(len).free.push(segment);
        self.bytes += len;
    }
}

impl<F: Fabric> Progress<F> {
    /// Registered memory of at least `len` bytes.
    pub(crate) fn memory(&self, len: u64) -> Result<Registered<F>, Fault> {
        let len = allocated(len);
        {
            if let Some(segment) = lock(&self.memory).take(len) {
                return Ok(segment);
            }
        }
        let segment = self.register(len, (), |()| self.fabric.allocate(len).map_err(|error| ((), error.fault())));
        Ok(Arc::new(Pieces::whole(segment.map_err(|((), fault)| fault)?)))
    }

    /// Registers so many bytes. `from` goes to `register`, and comes back from it with a fault.
    pub(crate) fn register<W>(
        &self,
        len: u64,
        from: W,
        register: impl Fn(W) -> Result<F::Segment, (W, Fault)>,
    ) -> Result<F::Segment, (W, Fault)> {
        let segment = match register(from) {
            // What is kept may be what fills the limit.
            Err((from, fault)) if is_refused(fault) && self.drop_kept() => register(from),
            segment => segment,
        };
        self.registrations.count(len, &segment);
        segment
    }

    /// Gives back the memory that is kept to be used again: whether there was some.
    #[cold]
    fn drop_kept(&self) -> bool {
        let kept = {
            let memory = &mut *lock(&self.memory);
            memory.bytes = 0;
            std::mem::take(&mut memory.free)
        };
        kept.values().any(|class| !class.free.is_empty())
    }

    /// Memory of at least `len` bytes that is registered piece by piece, when it is needed.
    pub(crate) fn pieces(&self, len: u64) -> Registered<F> {
        let mut memory = lock(&self.memory);
        let registered = |len| Arc::into_inner(memory.take(len)?).and_then(Pieces::into_piece);
        Arc::new(Pieces::cut(len, registered))
    }

    /// Bytes for a message that is read before it is waited for, or goes in packets.
    pub(crate) fn bytes(&self, len: u64) -> Option<Vec<u8>> {
        let spare = {
            let spare = &mut lock(&self.memory).spare;
            let fits = |bytes: &Vec<u8>| bytes.len() as u64 >= len && bytes.len() as u64 / 2 <= len;
            spare.iter().position(fits).map(|at| spare.swap_remove(at))
        };
        match spare {
            Some(mut bytes) => {
                bytes.truncate(len as usize);
                Some(bytes)
            }
            None => zeroed(usize::try_from(len).ok()?).ok(),
        }
    }

    /// Keeps bytes whose message was copied out of them.
    pub(crate) fn keep_bytes(&self, bytes: Vec<u8>) {
        if bytes.len() >= SPARE_MIN && bytes.capacity() / 2 <= bytes.len() {
            let spare = &mut lock(&self.memory).spare;
            spare.push(bytes);
            while spare.len() > SPARE || spare.iter().map(Vec::capacity).sum::<usize>() as u64 > KEPT {
                spare.remove(0);
            }
        }
    }

    /// At least so many bytes that are not registered, now or later.
    pub(crate) fn plain(&self, len: u64) -> Result<Registered<F>, Fault> {
        let bytes = self.bytes(len.checked_next_multiple_of(8).unwrap_or(len).max(8));
        Ok(Arc::new(Pieces::plain(bytes.ok_or(Fault::new(FaultKind::NoMemory))?)))
    }

    /// Opens the memory of a peer's message.
    pub(crate) fn open(&self, key: &SegmentKey) -> Result<Opened<F>, Fault> {
        let Memory { opened, .. } = &mut *lock(&self.memory);
        if let Some((_, memory)) = opened.iter().find(|(known, _)| known == key) {
            return Ok(Arc::clone(memory));
        }
        let memory = self.fabric.open(key).map(Arc::new).map_err(|error| error.fault())?;
        let path = memory.path();
        if path == Path::Helper {
            return Err(Fault::of(FaultKind::Refused, key.rank)); // its owner would have to help: in packets
        }
        if key.len < STAYS_OPEN && path != Path::ProcessVm {
            return Ok(memory);
        }
        opened.push_front((*key, Arc::clone(&memory)));
        let mut left = KEPT;
        opened.retain(|(key, _)| {
            left = left.saturating_sub(key.len.max(STAYS_OPEN));
            left > 0
        });
        Ok(memory)
    }

    /// Opens the memory of a peer's offer.
    pub(crate) fn open_offer(&self, key: &SegmentKey) -> Result<Opened<F>, Fault> {
        let offers = &mut lock(&self.memory).offers;
        if offers.is_empty() {
            offers.resize_with(OFFERS, || None);
        }
        let at = key.region.0.wrapping_add(key.rank.0.wrapping_mul(61)) as usize % OFFERS;
        match &offers[at] {
            Some((known, memory)) if known == key => Ok(Arc::clone(memory)),
            _ => {
                let memory = Arc::new(self.fabric.open(key).map_err(|error| error.fault())?);
                offers[at] = Some((*key, Arc::clone(&memory)));
                Ok(memory)
            }
        }
    }

    /// Keeps memory for the next messages.
    pub(crate) fn keep(&self, segments: impl IntoIterator<Item = Registered<F>>) {
        // What is in use still is so by a slice that is offered, or by a buffer. The user's is freed, by
        // code of the user: without a lock.
        let unused = segments.into_iter().filter_map(Arc::into_inner).filter(|unused| !unused.is_users());
        for mut unused in unused {
            unused.take_bytes().into_iter().for_each(|bytes| self.keep_bytes(bytes));
            for piece in unused.apart().filter(|piece| piece.len() <= KEPT) {
                lock(&self.memory).keep(piece.len(), Arc::new(piece));
            }
        }
    }

    /// What this rank has registered so far.
    pub(crate) fn registrations(&self) -> Registrations {
        let [count, bytes, refusals] = self.registrations.0.each_ref().map(|counter| counter.load(Ordering::Relaxed));
        Registrations { count, bytes, reuses: lock(&self.memory).reuses, refusals }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_few_lengths() {
        for len in [0, 1, 63, 64, 65, 4095, 4096, 4097, (1 << 20) + 128, 1 << 62] {
            let long = allocated(len);
            assert!(long >= len && long <= (len + len / 8).max(64), "{len}: {long}");
        }
        let lengths: std::collections::BTreeSet<_> = (1..=1 << 16).map(allocated).collect();
        assert!(lengths.len() <= 8 * 11, "{}", lengths.len());
    }

    /// What was used longest ago makes room.
    #[test]
    fn memory_is_kept_within_its_bound() {
        let mut memory = Memory::<u64, u64>::default();
        for (len, many) in [(1 << 20, 64), (16 << 20, 2), (1 << 20, 8)] {
            for _ in 0..many {
                memory.uses += 1;
                memory.keep(len, len);
                memory.free.get_mut(&len).unwrap().used = memory.uses;
                assert!(memory.bytes <= KEPT);
                assert_eq!(memory.free.values().flat_map(|class| &class.free).sum::<u64>(), memory.bytes);
            }
        }
        assert_eq!(memory.free[&(16 << 20)].free.len(), 1);
        assert_eq!(memory.free[&(1 << 20)].free.len(), 39);
    }
}
