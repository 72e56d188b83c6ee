//! Matching: which receive gets which message (MPI-4.1, section 3.5).
//!
//! ```text
//! arrive(message)   the oldest posted receive whose pattern fits it, else it is unexpected
//! post(receive)     the oldest unexpected message that its pattern fits, else it is posted
//! ```
//!
//! A message stays at its place by arrival until a receive has ended with it. One that a receive or a
//! task gives back is unexpected again, there.
//!
//! Of the tag of a collective's message the [number of the call](collective_number) alone is matched.
//!
//! Exact patterns are found in bins by the hash of context, source and tag; patterns with a
//! wildcard in a list. Of the first that fits in each, the older one is taken. Unexpected messages
//! are in a bin, and in a list by arrival, which a pattern with a wildcard scans.

#[cfg(test)]
pub(crate) mod oracle;
mod posted;
mod queue;
#[cfg(test)]
mod tests;

use self::posted::Receives;
use self::queue::{Handle, Queue};

/// What a message is matched by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    /// The communicator.
    pub(crate) context: u32,
    /// The sender's rank in the communicator.
    pub(crate) source: u32,
    pub(crate) tag: u32,
}

/// The context of a communicator's collectives has this bit set.
pub(crate) const COLLECTIVE: u32 = 1 << 31;

/// The contexts of a served lock's communicator have this bit set.
pub(crate) const LOCK: u32 = 1 << 30;

/// The context in which members of a communicator make [others](crate::CreateGroup) has this bit set.
pub(crate) const GROUPS: u32 = 1 << 29;

/// The numbers of communicators are below.
pub(crate) const NUMBERS: u32 = 1 << 29;

/// What the contexts of one communicator have in common.
#[inline]
pub(crate) const fn communicator(context: u32) -> u32 {
    context & !(COLLECTIVE | GROUPS)
}

/// Whether a context is that of a communicator's collectives.
#[inline]
pub(crate) const fn is_collective(context: u32) -> bool {
    context & COLLECTIVE != 0
}

/// The bits of the tag of a collective's message that are the number of the call.
pub(crate) const fn collective_number(tag: u32) -> u32 {
    tag & 0xffff
}

impl Envelope {
    /// What is matched of it.
    #[inline]
    const fn matched(self) -> Self {
        let tag = if is_collective(self.context) { collective_number(self.tag) } else { self.tag };
        Self { tag, ..self }
    }

    /// Of what is matched. Fibonacci hashing: the upper half of a product with 2<sup>64</sup> by the
    /// golden ratio.
    #[inline]
    fn hash(self) -> u32 {
        let Self { context, source, tag } = self;
        let folded = (u64::from(context) << 32 | u64::from(source)) ^ u64::from(tag) << 16;
        (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
    }
}

/// What a receive or a probe asks for. `None` is a wildcard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    pub(crate) context: u32,
    pub(crate) source: Option<u32>,
    pub(crate) tag: Option<u32>,
}

impl Pattern {
    /// The only envelope that fits, if there is only one.
    #[inline]
    fn exact(self) -> Option<Envelope> {
        Some(Envelope { context: self.context, source: self.source?, tag: self.tag? })
    }

    #[inline]
    pub(crate) fn fits(self, envelope: Envelope) -> bool {
        self.context == envelope.context
            && self.source.is_none_or(|source| source == envelope.source)
            && self.tag.is_none_or(|tag| Envelope { tag, ..envelope }.matched() == envelope.matched())
    }
}

impl From<Envelope> for Pattern {
    /// That which fits this envelope alone.
    fn from(Envelope { context, source, tag }: Envelope) -> Self {
        Self { context, source: Some(source), tag: Some(tag) }
    }
}

/// A [`Pattern`] as a queue keeps it: context and source, and tag and wildcards, in a word each. Whole
/// words go through registers, where the loads of a pattern would wait for stores of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key(u64, u64);

const ANY_SOURCE: u64 = 1 << 32;
const ANY_TAG: u64 = 1 << 33;

impl Key {
    #[inline]
    fn of(Pattern { context, source, tag }: Pattern) -> Self {
        let (source, any_source) = source.map_or((0, ANY_SOURCE), |source| (source, 0));
        let (tag, any_tag) = tag.map_or((0, ANY_TAG), |tag| (tag, 0));
        Self(u64::from(context) << 32 | u64::from(source), u64::from(tag) | any_source | any_tag)
    }

    const fn pattern(self) -> Pattern {
        let Self(peer, rest) = self;
        Pattern {
            context: (peer >> 32) as u32,
            source: if rest & ANY_SOURCE == 0 { Some(peer as u32) } else { None },
            tag: if rest & ANY_TAG == 0 { Some(rest as u32) } else { None },
        }
    }
}

impl From<Envelope> for Key {
    /// That of the pattern which fits this envelope alone.
    #[inline]
    fn from(Envelope { context, source, tag }: Envelope) -> Self {
        Self(u64::from(context) << 32 | u64::from(source), tag.into())
    }
}

/// The receives `R` of a rank, and the messages `M` that have arrived and that no receive has ended
/// with. A message is named by its index until it is removed. It is *unexpected*, or it is *claimed*: a
/// receive or a task has it, and no receive finds it.
#[derive(Debug)]
pub(crate) struct Matcher<R, M> {
    pub(crate) receives: Receives<R>,
    messages: Queue<Envelope, M>,
    /// The number of messages that arrived so far.
    arrivals: u64,
}

/// When a message arrived, in the order of arrivals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Arrival(u64);

impl<R: Default, M: Default> Matcher<R, M> {
    pub(crate) fn new() -> Self {
        Self { receives: Receives::new(), messages: Queue::new(), arrivals: 0 }
    }

    /// Numbers a message that arrives now.
    pub(crate) const fn number(&mut self) -> Arrival {
        self.arrivals += 1;
        Arrival(self.arrivals)
    }

    /// The last message that has arrived.
    pub(crate) const fn last(&self) -> Arrival {
        Arrival(self.arrivals)
    }

    /// The oldest posted receive that fits a message. It is posted no more.
    #[inline]
    pub(crate) fn take_posted(&mut self, envelope: Envelope) -> Option<usize> {
        self.receives.take_posted(envelope)
    }

    /// Adds a message that no posted receive fits, or one that is claimed.
    #[inline]
    pub(crate) fn add(&mut self, envelope: Envelope, arrival: Arrival, is_unexpected: bool) -> usize {
        let hash = is_unexpected.then(|| envelope.matched().hash());
        self.messages.insert(hash, is_unexpected, envelope, arrival.0).index()
    }

    /// The oldest unexpected message that a pattern fits.
    #[inline]
    pub(crate) fn find(&self, pattern: Pattern) -> Option<usize> {
        if self.messages.is_empty() {
            return None;
        }
        let found = match pattern.exact() {
            Some(exact) => {
                let exact = exact.matched();
                self.messages.find(exact.hash(), |envelope| envelope.matched() == exact)
            }
            None => self.messages.scan(|envelope| pattern.fits(*envelope)),
        };
        found.map(Handle::index)
    }

    /// No receive finds an unexpected message from now on.
    pub(crate) fn claim(&mut self, message: usize) {
        self.messages.unlist(message);
    }

    /// A claimed message is unexpected again, at its place by arrival.
    pub(crate) fn release(&mut self, message: usize) {
        let hash = self.envelope(message).matched().hash();
        self.messages.list(message as u32, Some(hash), true);
    }

    /// Removes a message.
    pub(crate) fn remove(&mut self, message: usize) -> M {
        self.messages.remove_at(message).unwrap_or_else(|| gone())
    }

    /// Removes an unexpected message, and drops it.
    #[inline]
    pub(crate) fn discard(&mut self, message: usize) {
        self.messages.drop_at(message);
    }

    pub(crate) fn envelope(&self, message: usize) -> Envelope {
        self.messages.key(message)
    }

    pub(crate) fn arrival(&self, message: usize) -> Arrival {
        Arrival(self.messages.stamp(message))
    }

    pub(crate) fn get(&self, message: usize) -> Option<&M> {
        self.messages.at(message)
    }

    pub(crate) fn get_mut(&mut self, message: usize) -> Option<&mut M> {
        self.messages.at_mut(message)
    }

    pub(crate) fn message(&self, message: usize) -> &M {
        self.messages.at(message).unwrap_or_else(|| gone())
    }

    #[inline]
    pub(crate) fn message_mut(&mut self, message: usize) -> &mut M {
        self.messages.at_mut(message).unwrap_or_else(|| gone())
    }

    /// All messages, in no order.
    pub(crate) fn messages(&self) -> impl Iterator<Item = (usize, Envelope, &M)> {
        self.messages.iter().map(|(handle, envelope, message)| (handle.index(), *envelope, message))
    }

    /// The unexpected ones.
    pub(crate) fn all_unexpected(&self) -> impl Iterator<Item = (usize, Envelope, &M)> {
        self.messages().filter(|(message, ..)| self.messages.is_listed(*message))
    }

    /// The number of posted receives, of unexpected messages, and of all messages.
    #[cfg(test)]
    pub(crate) fn lens(&self) -> (usize, usize, usize) {
        (self.receives.posted_len(), self.messages.listed(), self.messages.iter().count())
    }
}

#[cold]
fn gone() -> ! {
    unreachable!("a receive or a message is named until it is removed")
}
