//! The receives of a rank.

use std::ops::{Index, IndexMut};

use super::queue::{Handle, Queue};
use super::{Envelope, Key, Pattern, gone};

/// The receives of a rank, named by their index until they are removed: those that are posted, which
/// are matched in the order of their posting, and those that have a message or never get one.
#[derive(Debug)]
pub(crate) struct Receives<R> {
    queue: Queue<Key, R>,
    /// The number of receives so far.
    count: u64,
}

impl<R: Default> Receives<R> {
    pub(super) fn new() -> Self {
        Self { queue: Queue::new(), count: 0 }
    }

    /// Whether a receive is posted.
    pub(crate) const fn has_posted(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Posts a receive that no unexpected message fits. Its value is the default.
    #[inline]
    pub(crate) fn post(&mut self, pattern: Pattern) -> usize {
        match pattern.exact().map(Envelope::matched) {
            Some(exact) => self.insert((Some(exact.hash()), false), exact.into()),
            None => self.insert((None, true), Key::of(pattern)),
        }
    }

    /// Adds a receive that is not matched any more.
    pub(crate) fn add(&mut self, pattern: Pattern, receive: R) -> usize {
        let added = self.insert((None, false), Key::of(pattern));
        self[added] = receive;
        added
    }

    #[inline]
    fn insert(&mut self, (hash, is_scanned): (Option<u32>, bool), key: Key) -> usize {
        self.count += 1;
        self.queue.insert(hash, is_scanned, key, self.count).index()
    }

    /// The oldest posted receive that fits a message. It is posted no more.
    #[inline]
    pub(super) fn take_posted(&mut self, envelope: Envelope) -> Option<usize> {
        if self.queue.is_empty() {
            return None;
        }
        let matched = envelope.matched();
        let exact = self.queue.find(matched.hash(), |key| *key == matched.into());
        let wild = self.queue.scan(|key| key.pattern().fits(envelope));
        let oldest = match (exact, wild) {
            (Some(exact), Some(wild)) if wild.stamp() < exact.stamp() => wild,
            (exact, wild) => exact.or(wild)?,
        };
        self.withdraw(oldest.index());
        Some(oldest.index())
    }

    /// No message is matched to a receive from now on.
    #[inline]
    pub(crate) fn withdraw(&mut self, receive: usize) {
        self.queue.unlist(receive);
    }

    /// Removes a receive, posted or not.
    #[inline]
    pub(crate) fn remove(&mut self, receive: usize) -> R {
        self.queue.remove_at(receive).unwrap_or_else(|| gone())
    }

    /// Ends a receive that is posted no more, and whose value is the default.
    #[inline]
    pub(crate) fn end(&mut self, receive: usize) {
        self.queue.free(receive);
    }

    /// What a receive asks for.
    pub(crate) fn pattern(&self, receive: usize) -> Pattern {
        self.queue.key(receive).pattern()
    }

    /// All receives, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &R)> {
        self.queue.iter().map(|(handle, _, receive)| (handle.index(), receive))
    }

    /// All receives, to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut R> {
        self.queue.values_mut()
    }

    /// All receives, each with a number that no other one ever has.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (u64, Pattern, &R)> {
        self.queue.iter().map(|(handle, pattern, receive)| (Handle::stamp(handle), pattern.pattern(), receive))
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.queue.has_none()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.queue.iter().count()
    }

    /// The number of posted ones.
    #[cfg(test)]
    pub(super) const fn posted_len(&self) -> usize {
        self.queue.listed()
    }
}

impl<R: Default> Index<usize> for Receives<R> {
    type Output = R;

    #[inline]
    fn index(&self, receive: usize) -> &R {
        self.queue.at(receive).unwrap_or_else(|| gone())
    }
}

impl<R: Default> IndexMut<usize> for Receives<R> {
    #[inline]
    fn index_mut(&mut self, receive: usize) -> &mut R {
        self.queue.at_mut(receive).unwrap_or_else(|| gone())
    }
}
