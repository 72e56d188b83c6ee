//! A queue whose entries are found by the hash of their key, or by a scan in order of their stamps.

/// The bins of a queue.
const BINS: usize = 1 << 10;

/// The index of an entry, or [`NONE`].
type Index = u32;

/// The end of a list, and the bin of an entry that is in none.
const NONE: Index = Index::MAX;

/// Names an entry as long as it is in its queue, and nothing after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    index: Index,
    stamp: u64,
}

impl Handle {
    /// Unique among the entries of a queue.
    pub(crate) const fn stamp(self) -> u64 {
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
    stamp: u64,
    /// The bin, or [`NONE`].
    bin: Index,
    is_scanned: bool,
    links: [Links; 2],
    /// `None`: the entry is free, and `links[0].after` is the next free one.
    value: Option<T>,
}

/// Entries in order of their stamps. An entry is in the bin of its hash, in the scanned list, or in
/// both.
#[derive(Debug)]
pub(super) struct Queue<K, T> {
    entries: Vec<Entry<K, T>>,
    free: Index,
    bins: Box<[List]>,
    scanned: List,
    len: usize,
}

impl<K: Copy, T> Queue<K, T> {
    pub(super) fn new() -> Self {
        let bins = vec![EMPTY; BINS].into_boxed_slice();
        Self { entries: Vec::new(), free: NONE, bins, scanned: EMPTY, len: 0 }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[cfg(test)]
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// All entries with their stamps, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &K, &T)> {
        self.entries.iter().filter_map(|entry| Some((entry.stamp, &entry.key, entry.value.as_ref()?)))
    }

    /// Inserts an entry into the bin of a hash, if there is one, and into the scanned list if it is
    /// to be found by [`scan`](Self::scan). Stamps are unique, and mostly rise.
    pub(super) fn insert(&mut self, hash: Option<u32>, is_scanned: bool, key: K, stamp: u64, value: T) -> Handle {
        let bin = hash.map_or(NONE, |hash| hash % BINS as u32);
        let links = [Links { before: NONE, after: NONE }; 2];
        let entry = Entry { key, stamp, bin, is_scanned, links, value: Some(value) };
        let index = match self.free {
            NONE => {
                self.entries.push(entry);
                self.entries.len() as Index - 1
            }
            index => {
                self.free = self.entries[index as usize].links[0].after;
                self.entries[index as usize] = entry;
                index
            }
        };
        self.len += 1;
        if bin != NONE {
            self.bins[bin as usize] = self.link(Which::Bin, self.bins[bin as usize], index);
        }
        if is_scanned {
            self.scanned = self.link(Which::Scanned, self.scanned, index);
        }
        Handle { index, stamp }
    }

    fn link(&mut self, which: Which, list: List, index: Index) -> List {
        let stamp = self.entries[index as usize].stamp;
        let (mut before, mut after) = (list.last, NONE);
        while before != NONE && self.entries[before as usize].stamp > stamp {
            (before, after) = (self.entries[before as usize].links[which as usize].before, before);
        }
        self.entries[index as usize].links[which as usize] = Links { before, after };
        let List { mut first, mut last } = list;
        match before {
            NONE => first = index,
            before => self.entries[before as usize].links[which as usize].after = index,
        }
        match after {
            NONE => last = index,
            after => self.entries[after as usize].links[which as usize].before = index,
        }
        List { first, last }
    }

    fn unlink(&mut self, which: Which, list: List, index: Index) -> List {
        let Links { before, after } = self.entries[index as usize].links[which as usize];
        let List { mut first, mut last } = list;
        match before {
            NONE => first = after,
            before => self.entries[before as usize].links[which as usize].after = after,
        }
        match after {
            NONE => last = before,
            after => self.entries[after as usize].links[which as usize].before = before,
        }
        List { first, last }
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

    fn entry(&self, handle: Handle) -> Option<&Entry<K, T>> {
        self.entries.get(handle.index as usize).filter(|entry| entry.stamp == handle.stamp)
    }

    pub(super) fn get(&self, handle: Handle) -> Option<(K, &T)> {
        self.entry(handle).and_then(|entry| Some((entry.key, entry.value.as_ref()?)))
    }

    /// Takes an entry out, if it is still in.
    pub(super) fn remove(&mut self, handle: Handle) -> Option<(K, T)> {
        let &Entry { key, bin, is_scanned, .. } = self.entry(handle)?;
        let value = self.entries[handle.index as usize].value.take()?;
        if bin != NONE {
            self.bins[bin as usize] = self.unlink(Which::Bin, self.bins[bin as usize], handle.index);
        }
        if is_scanned {
            self.scanned = self.unlink(Which::Scanned, self.scanned, handle.index);
        }
        self.entries[handle.index as usize].links[0].after = self.free;
        (self.free, self.len) = (handle.index, self.len - 1);
        Some((key, value))
    }
}
