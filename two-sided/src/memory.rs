//! Registered memory of messages, kept to be used again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use onesided_fabric::remote_memory::Fault;
use onesided_fabric::{Fabric, Segment, SegmentKey};

use crate::elements::{self, Elements};
use crate::progress::{Progress, Registered, lock};

/// The most memory that sends have used and that is kept to be used again, in bytes.
const KEPT: u64 = 64 << 20;

/// Registered memory that no peer reads, by length; and that of peers which was read last.
#[derive(Debug)]
pub(crate) struct Memory<S> {
    free: BTreeMap<u64, Class<S>>,
    bytes: u64,
    /// The number of messages so far.
    uses: u64,
    opened: VecDeque<(SegmentKey, S)>,
    /// Bytes that messages were read into before they were waited for, to be used again: fresh ones
    /// cost a page fault for each page.
    spare: Vec<Vec<u8>>,
    /// Offers of peers, which they use again: at most [`OFFERS`], each in the place of its key.
    offers: Vec<Option<(SegmentKey, S)>>,
}

const OFFERS: usize = 256;
const SPARE: usize = 4;
/// Shorter ones are not kept.
const SPARE_MIN: usize = 64 << 10;

/// Memory of one length.
#[derive(Debug)]
struct Class<S> {
    free: Vec<S>,
    /// The message that used it last.
    used: u64,
}

/// Memory of peers stays open if it is at least this long, because to open it takes system calls
/// then; shorter memory is opened by a few loads, and its owner uses it again sooner if it is closed.
const STAYS_OPEN: u64 = 1 << 20;

/// The length of the memory that is allocated for so many bytes: at most an eighth more, above a
/// cache line, so that there are few lengths.
const fn allocated(len: u64) -> u64 {
    let len = if len < 64 { 64 } else { len };
    len.next_multiple_of(len.next_power_of_two() / 16)
}

impl<S> Default for Memory<S> {
    fn default() -> Self {
        Self {
            free: BTreeMap::new(),
            bytes: 0,
            uses: 0,
            opened: VecDeque::new(),
            spare: Vec::new(),
            offers: Vec::new(),
        }
    }
}

impl<S> Memory<S> {
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
        self.fabric.allocate(len).map(Arc::new).map_err(|error| error.fault())
    }

    /// Bytes for a message that is read before it is waited for.
    pub(crate) fn bytes(&self, len: u64) -> Option<Box<dyn Elements>> {
        let spare = {
            let spare = &mut lock(&self.memory).spare;
            let fits = |bytes: &Vec<u8>| bytes.len() as u64 >= len && bytes.len() as u64 / 2 <= len;
            spare.iter().position(fits).map(|at| spare.swap_remove(at))
        };
        match spare {
            Some(mut bytes) => {
                bytes.truncate(len as usize);
                Some(Box::new(bytes))
            }
            None => elements::allocate::<u8>(len),
        }
    }

    /// Keeps bytes whose message was copied out of them.
    pub(crate) fn keep_bytes(&self, elements: Box<dyn Elements>) {
        let Some(bytes) = elements::into_vec::<u8>(elements).filter(|bytes| bytes.len() >= SPARE_MIN) else { return };
        let spare = &mut lock(&self.memory).spare;
        if spare.len() == SPARE {
            spare.remove(0);
        }
        spare.push(bytes);
    }

    /// Opens the memory of a peer's message.
    pub(crate) fn open(&self, key: &SegmentKey) -> Result<Registered<F>, Fault> {
        let open = || self.fabric.open(key).map(Arc::new).map_err(|error| error.fault());
        if key.len < STAYS_OPEN {
            return open();
        }
        let Memory { opened, .. } = &mut *lock(&self.memory);
        if let Some((_, memory)) = opened.iter().find(|(known, _)| known == key) {
            return Ok(Arc::clone(memory));
        }
        let memory = open()?;
        opened.push_front((*key, Arc::clone(&memory)));
        let mut left = KEPT;
        opened.retain(|(key, _)| {
            left = left.saturating_sub(key.len);
            left > 0
        });
        Ok(memory)
    }

    /// Opens the memory of a peer's offer.
    pub(crate) fn open_offer(&self, key: &SegmentKey) -> Result<Registered<F>, Fault> {
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
        let mut memory = lock(&self.memory);
        for mut segment in segments {
            let len = segment.len();
            let is_in_use = Arc::get_mut(&mut segment).is_none(); // by a slice that is offered still
            if !is_in_use && len <= KEPT {
                memory.keep(len, segment);
            }
        }
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
        let mut memory = Memory::default();
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
