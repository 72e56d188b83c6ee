//! The memory of a simulated rank.

use onesided_fabric::WORLD_BYTES;

/// The region that every rank has from the start.
pub(crate) const WORLD_REGION: u32 = 0;

/// Words up to the last one ever written; the rest reads as zero. The first ones are inline: most
/// locks have no more in the memory of a rank, and there may be very many ranks.
#[derive(Debug)]
enum Words {
    Few([u64; 3]),
    Many(Vec<u64>),
}

impl Words {
    const NONE: Self = Self::Few([0; 3]);

    fn written(&self) -> &[u64] {
        match self {
            Self::Few(words) => words,
            Self::Many(words) => words,
        }
    }

    /// At least `count` of them.
    fn at_least(&mut self, count: usize) -> &mut [u64] {
        if let Self::Few(few) = self
            && few.len() < count
        {
            *self = Self::Many(few.to_vec());
        }
        match self {
            Self::Few(words) => words,
            Self::Many(words) => {
                if words.len() < count {
                    words.reserve_exact(count - words.len());
                    words.resize(count, 0);
                }
                words
            }
        }
    }
}

impl Default for Words {
    fn default() -> Self {
        Self::NONE
    }
}

/// A region that was allocated.
#[derive(Debug)]
struct Region {
    id: u32,
    /// The number of the owner's segments and transfers that refer to it.
    holders: u32,
    /// The number of segments of its host's other ranks, which have it mapped.
    mappings: u32,
    len: u64,
    words: Words,
}

/// All regions of a rank, by number; a number is never reused.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Of the region that every rank has.
    world: Words,
    /// Boxed: of very many ranks, few allocate.
    others: Option<Box<Others>>,
}

/// The regions that a rank has allocated.
#[derive(Debug, Default)]
struct Others {
    regions: Vec<Region>,
    allocated: u32,
    /// The most bytes of all.
    limit: Option<u64>,
    recorded: Vec<Recorded>,
}

/// A word whose values are recorded.
#[derive(Debug)]
struct Recorded {
    region: u32,
    offset: u64,
    /// Those since they were taken last, at most [`MOST_VALUES`].
    values: Vec<u64>,
}

/// The record of a word that is not taken for so long ends.
const MOST_VALUES: usize = 1 << 16;

impl Memory {
    pub(crate) const fn new() -> Self {
        Self { world: Words::NONE, others: None }
    }

    /// That of a new process: its regions have other numbers than these.
    pub(crate) fn renewed(self) -> Self {
        let allocated = self.others.map_or(0, |others| others.allocated);
        let others = (allocated > 0).then(|| Box::new(Others { allocated, ..Others::default() }));
        Self { world: Words::NONE, others }
    }

    /// Registers a region with one reference. `None`: no memory.
    pub(crate) fn allocate(&mut self, len: u64) -> Option<u32> {
        let mut words = Vec::new();
        words.try_reserve_exact(usize::try_from(len.div_ceil(8)).ok()?).ok()?;
        let others = self.others.get_or_insert_default();
        let held = || others.regions.iter().map(|region| region.len).sum::<u64>();
        if others.limit.is_some_and(|limit| held().saturating_add(len) > limit) {
            return None;
        }
        let id = others.allocated.checked_add(1)?;
        others.allocated = id;
        others.regions.push(Region { id, holders: 1, mappings: 0, len, words: Words::Many(words) });
        Some(id)
    }

    /// Bounds the bytes of all regions.
    pub(crate) fn limit(&mut self, bytes: u64) {
        self.others.get_or_insert_default().limit = Some(bytes);
    }

    /// The length of a region in bytes, if its owner has it registered.
    pub(crate) fn len(&self, id: u32) -> Option<u64> {
        match id {
            WORLD_REGION => Some(WORLD_BYTES),
            _ => self.region(id).filter(|region| region.holders > 0).map(|region| region.len),
        }
    }

    /// Whether a region is there for a rank that has it mapped.
    pub(crate) fn is_mapped(&self, id: u32) -> bool {
        id == WORLD_REGION || self.region(id).is_some()
    }

    pub(crate) fn hold(&mut self, id: u32) {
        self.refer(id, |region| region.holders += 1);
    }

    pub(crate) fn release(&mut self, id: u32) {
        self.refer(id, |region| region.holders -= 1);
    }

    pub(crate) fn map(&mut self, id: u32) {
        self.refer(id, |region| region.mappings += 1);
    }

    pub(crate) fn unmap(&mut self, id: u32) {
        self.refer(id, |region| region.mappings -= 1);
    }

    /// Changes the references to a region, which goes with the last one.
    fn refer(&mut self, id: u32, change: impl FnOnce(&mut Region)) {
        if let Some(region) = self.region_mut(id) {
            change(region);
            if region.holders == 0 && region.mappings == 0 {
                self.remove(id);
            }
        }
    }

    /// Removes a region, whatever refers to it.
    pub(crate) fn remove(&mut self, id: u32) {
        if let Some(others) = &mut self.others {
            others.regions.retain(|region| region.id != id);
            others.recorded.retain(|word| word.region != id);
        }
    }

    /// The word at a checked offset.
    pub(crate) fn load(&self, id: u32, offset: u64) -> u64 {
        self.written(id).get((offset / 8) as usize).copied().unwrap_or(0)
    }

    /// Takes the values that a word was set to since the last call. `None`: they are recorded from
    /// now on.
    pub(crate) fn take_values(&mut self, region: u32, offset: u64) -> Option<Vec<u64>> {
        let recorded = &mut self.others.get_or_insert_default().recorded;
        let known = recorded.iter_mut().find(|word| (word.region, word.offset) == (region, offset));
        if known.is_none() {
            recorded.push(Recorded { region, offset, values: Vec::new() });
            return None;
        }
        known.map(|word| std::mem::take(&mut word.values))
    }

    fn record(&mut self, region: u32, offset: u64, value: u64) {
        let Some(others) = &mut self.others else { return };
        let known = others.recorded.iter().position(|word| (word.region, word.offset) == (region, offset));
        if let Some(index) = known {
            let values = &mut others.recorded[index].values;
            if values.len() < MOST_VALUES {
                values.push(value);
            } else {
                others.recorded.swap_remove(index);
            }
        }
    }

    /// Sets the word at a checked offset.
    pub(crate) fn store(&mut self, id: u32, offset: u64, value: u64) {
        self.record(id, offset, value);
        self.words(id, (offset / 8) as usize + 1)[(offset / 8) as usize] = value;
    }

    /// Copies out of a checked range.
    pub(crate) fn read(&self, id: u32, offset: u64, into: &mut [u8]) {
        let bytes: &[u8] = bytemuck::cast_slice(self.written(id));
        let there = bytes.get(offset as usize..).unwrap_or(&[]);
        let copied = there.len().min(into.len());
        into[..copied].copy_from_slice(&there[..copied]);
        into[copied..].fill(0);
    }

    /// Copies into a checked range.
    pub(crate) fn write(&mut self, id: u32, offset: u64, from: &[u8]) {
        let (start, end) = (offset as usize, offset as usize + from.len());
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(self.words(id, end.div_ceil(8)));
        bytes[start..end].copy_from_slice(from);
    }

    fn region(&self, id: u32) -> Option<&Region> {
        let regions = &self.others.as_ref()?.regions;
        regions.binary_search_by_key(&id, |region| region.id).ok().map(|index| &regions[index])
    }

    fn region_mut(&mut self, id: u32) -> Option<&mut Region> {
        let regions = &mut self.others.as_mut()?.regions;
        regions.binary_search_by_key(&id, |region| region.id).ok().map(|index| &mut regions[index])
    }

    /// The words of a region that were written.
    fn written(&self, id: u32) -> &[u64] {
        match id {
            WORLD_REGION => self.world.written(),
            _ => self.region(id).map_or(&[], |region| region.words.written()),
        }
    }

    /// The words of an existing region, at least `count` of them.
    fn words(&mut self, id: u32, count: usize) -> &mut [u64] {
        let words = match self.others.as_mut().filter(|_| id != WORLD_REGION) {
            Some(others) => match others.regions.binary_search_by_key(&id, |region| region.id) {
                Ok(index) => &mut others.regions[index].words,
                Err(_) => &mut self.world,
            },
            None => &mut self.world,
        };
        words.at_least(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untouched_memory_is_zero_and_costs_nothing() {
        let mut memory = Memory::default();
        let mut bytes = [7; 20];
        memory.read(WORLD_REGION, 4000, &mut bytes);
        assert!(bytes == [0; 20] && matches!(memory.world, Words::Few(_)));
        memory.write(WORLD_REGION, 3, &[1, 2, 3]);
        memory.read(WORLD_REGION, 0, &mut bytes[..8]);
        assert_eq!(bytes[..8], [0, 0, 0, 1, 2, 3, 0, 0]);
        assert_eq!(memory.load(WORLD_REGION, 0), u64::from_ne_bytes([0, 0, 0, 1, 2, 3, 0, 0]));
    }

    #[test]
    fn the_values_of_a_word_are_recorded_until_nobody_takes_them() {
        let mut memory = Memory::default();
        memory.store(WORLD_REGION, 8, 1);
        assert_eq!(memory.take_values(WORLD_REGION, 8), None);
        for value in [2, 2, 3] {
            memory.store(WORLD_REGION, 8, value);
            memory.store(WORLD_REGION, 16, 9);
        }
        assert_eq!(memory.take_values(WORLD_REGION, 8), Some(vec![2, 2, 3]));
        assert_eq!(memory.take_values(WORLD_REGION, 8), Some(vec![]));
        (0..=MOST_VALUES as u64).for_each(|value| memory.store(WORLD_REGION, 8, value));
        assert_eq!(memory.take_values(WORLD_REGION, 8), None);
        let region = memory.allocate(8).unwrap();
        assert_eq!(memory.take_values(region, 0), None);
        memory.remove(region);
        assert!(memory.others.unwrap().recorded.iter().all(|word| word.region == WORLD_REGION));
    }

    #[test]
    fn regions_last_as_long_as_their_holders_and_numbers_do_not_come_back() {
        let mut memory = Memory::default();
        let first = memory.allocate(13).unwrap();
        memory.hold(first);
        memory.release(first);
        assert_eq!(memory.len(first), Some(13));
        memory.release(first);
        assert_eq!(memory.len(first), None);
        assert_ne!(memory.allocate(8), Some(first));
        assert_eq!(memory.allocate(u64::MAX), None);
    }
}
