//! A queue whose entries are found by the hash of their key, or by a scan in order of their stamps.

/// The bins of a queue.
const BINS: usize = 1 << 10;

/// The index of an entry, or [`NONE`].
type Index = u32;

/// The stamp of free entries.
const FREE: u64 = 0;

/// The end of a list, and the bin of an entry that is in none.
const NONE: Index = Index::MAX;

/// Names an entry as long as it is in its queue, and nothing after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handle {
    index: Index,
    stamp: u64,
}

impl Handle {
    #[inline]
    pub(super) const fn index(self) -> usize {
        self.index as usize
    }

    /// Unique among the entries of a queue.
    pub(super) const fn stamp(self) -> u64 {
        self.stamp
    }
}

/// A doubly linked list through the entries.
#[derive(Clone, Copy, Debug)]
struct List {
    first: Index,
    last: Index,
}

const EMPTY: List = List { first: NONE, last: NONE };

/// The neighbours of an entry in a list.
#[derive(Clone, Copy, Debug)]
struct Links {
    before: Index,
    after: Index,
}

/// The two lists that an entry may be in.
#[derive(Clone, Copy, Debug)]
enum Which {
    Bin = 0,
    Scanned = 1,
}

#[derive(Debug)]
struct Entry<K, T> {
    key: K,
    /// [`FREE`]: the entry is free, `links[0].after` is the next free one, and the value is the default.
    stamp: u64,
    /// The bin, or [`NONE`].
    bin: Index,
    is_scanned: bool,
    links: [Links; 2],
    value: T,
}

/// Entries in order of their stamps. An entry is in the bin of its hash, in the scanned list, or in
/// both; or in none, and then only its index finds it.
#[derive(Debug)]
pub(super) struct Queue<K, T> {
    entries: Vec<Entry<K, T>>,
    free: Index,
    bins: Box<[List; BINS]>,
    scanned: List,
    /// The number of entries, and of those that are in lists.
    len: usize,
    listed: usize,
}

/// Puts an entry into a list, usually at its end.
#[inline]
fn link<K, T>(entries: &mut [Entry<K, T>], which: Which, list: &mut List, index: Index) {
    let stamp = entries[index as usize].stamp;
    let (mut before, mut after) = (list.last, NONE);
    while before != NONE && entries[before as usize].stamp > stamp {
        (before, after) = (entries[before as usize].links[which as usize].before, before);
    }
    let links = Links { before, after };
    entries[index as usize].links[which as usize] = links;
    join(entries, which, list, links, Links { before: index, after: index });
}

/// Gives the neighbours of a place in a list, or its ends, what is after the one and before the other
/// now.
#[inline]
fn join<K, T>(entries: &mut [Entry<K, T>], which: Which, list: &mut List, Links { before, after }: Links, now: Links) {
    match before {
        NONE => list.first = now.after,
        before => entries[before as usize].links[which as usize].after = now.after,
    }
    match after {
        NONE => list.last = now.before,
        after => entries[after as usize].links[which as usize].before = now.before,
    }
}

impl<K: Copy, T: Default> Queue<K, T> {
    pub(super) fn new() -> Self {
        let bins = Box::new([EMPTY; BINS]);
        Self { entries: Vec::new(), free: NONE, bins, scanned: EMPTY, len: 0, listed: 0 }
    }

    /// Whether no entry is in a list.
    pub(super) const fn is_empty(&self) -> bool {
        self.listed == 0
    }

    #[cfg(test)]
    pub(super) const fn listed(&self) -> usize {
        self.listed
    }

    /// All entries, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Handle, &K, &T)> {
        let named = |(index, entry): (usize, &Entry<K, T>)| Handle { index: index as Index, stamp: entry.stamp };
        self.entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.stamp != FREE)
            .map(move |entry| (named(entry), &entry.1.key, &entry.1.value))
    }

    /// The values of all entries, to be changed.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().filter(|entry| entry.stamp != FREE).map(|entry| &mut entry.value)
    }

    /// Whether there is no entry.
    pub(super) const fn has_none(&self) -> bool {
        self.len == 0
    }

    /// Inserts an entry into the bin of a hash, if there is one, and into the scanned list if it is
    /// to be found by [`scan`](Self::scan). Its value is the default. Stamps are unique, and mostly
    /// rise.
    #[inline]
    pub(super) fn insert(&mut self, hash: Option<u32>, is_scanned: bool, key: K, stamp: u64) -> Handle {
        let index = match self.free {
            NONE => self.grow(key),
            index => index,
        };
        let entry = &mut self.entries[index as usize];
        self.free = entry.links[0].after;
        (entry.key, entry.stamp) = (key, stamp);
        self.len += 1;
        self.list(index, hash, is_scanned);
        Handle { index, stamp }
    }

    /// Puts an entry that is in no list into its lists, as of [`insert`](Self::insert).
    #[inline]
    pub(super) fn list(&mut self, index: Index, hash: Option<u32>, is_scanned: bool) {
        let bin = hash.map_or(NONE, |hash| hash % BINS as u32);
        let entry = &mut self.entries[index as usize];
        (entry.bin, entry.is_scanned) = (bin, is_scanned);
        self.listed += usize::from(bin != NONE || is_scanned);
        if bin != NONE {
            link(&mut self.entries, Which::Bin, &mut self.bins[bin as usize % BINS], index);
        }
        if is_scanned {
            link(&mut self.entries, Which::Scanned, &mut self.scanned, index);
        }
    }

    /// A free entry more.
    #[cold]
    fn grow(&mut self, key: K) -> Index {
        let links = [Links { before: NONE, after: NONE }; 2];
        self.entries.push(Entry { key, stamp: FREE, bin: NONE, is_scanned: false, links, value: T::default() });
        self.entries.len() as Index - 1
    }

    /// The oldest entry in the bin of a hash whose key fits.
    #[inline]
    pub(super) fn find(&self, hash: u32, fits: impl Fn(&K) -> bool) -> Option<Handle> {
        self.walk(Which::Bin, self.bins[hash as usize % BINS], fits)
    }

    /// The oldest scanned entry whose key fits.
    #[inline]
    pub(super) fn scan(&self, fits: impl Fn(&K) -> bool) -> Option<Handle> {
        self.walk(Which::Scanned, self.scanned, fits)
    }

    #[inline]
    fn walk(&self, which: Which, list: List, fits: impl Fn(&K) -> bool) -> Option<Handle> {
        let mut index = list.first;
        while index != NONE {
            let entry = &self.entries[index as usize];
            if fits(&entry.key) {
                return Some(Handle { index, stamp: entry.stamp });
            }
            index = entry.links[which as usize].after;
        }
        None
    }

    /// The value of an entry, by its index.
    #[inline]
    pub(super) fn at(&self, index: usize) -> Option<&T> {
        self.entries.get(index).filter(|entry| entry.stamp != FREE).map(|entry| &entry.value)
    }

    #[inline]
    pub(super) fn at_mut(&mut self, index: usize) -> Option<&mut T> {
        self.entries.get_mut(index).filter(|entry| entry.stamp != FREE).map(|entry| &mut entry.value)
    }

    /// The key of an entry.
    pub(super) fn key(&self, index: usize) -> K {
        self.entries[index].key
    }

    pub(super) fn stamp(&self, index: usize) -> u64 {
        self.entries[index].stamp
    }

    /// Whether an entry is in a list.
    pub(super) fn is_listed(&self, index: usize) -> bool {
        let Entry { bin, is_scanned, .. } = self.entries[index];
        bin != NONE || is_scanned
    }

    /// Takes an entry out.
    #[inline]
    pub(super) fn remove_at(&mut self, index: usize) -> Option<T> {
        let value = std::mem::take(self.at_mut(index)?);
        self.unlist(index);
        self.free(index);
        Some(value)
    }

    /// Drops the value of an entry, and takes it out.
    #[inline]
    pub(super) fn drop_at(&mut self, index: usize) {
        self.entries[index].value = T::default();
        self.unlist(index);
        self.free(index);
    }

    /// Frees an entry that is in no list, and whose value is the default.
    #[inline]
    pub(super) fn free(&mut self, index: usize) {
        let entry = &mut self.entries[index];
        (entry.stamp, entry.links[0].after) = (FREE, self.free);
        (self.free, self.len) = (index as Index, self.len - 1);
    }

    /// Takes an entry out of the lists that it is in.
    #[inline]
    pub(super) fn unlist(&mut self, index: usize) {
        let entry = &mut self.entries[index];
        let (bin, is_scanned, [of_bin, of_scanned]) = (entry.bin, entry.is_scanned, entry.links);
        (entry.bin, entry.is_scanned) = (NONE, false);
        if bin != NONE {
            join(&mut self.entries, Which::Bin, &mut self.bins[bin as usize % BINS], of_bin, of_bin);
        }
        if is_scanned {
            join(&mut self.entries, Which::Scanned, &mut self.scanned, of_scanned, of_scanned);
        }
        self.listed -= usize::from(bin != NONE || is_scanned);
    }
}
