//! What ranks tell one another of collectives, apart from the collectives' own messages.
//!
//! A rank that waits for long in a call asks the rank that it waits for ([`CONTROL`] alone): that
//! one may be in another collective, or may have dropped the communicator, which it answers ([`CONTROL`]
//! and [`CLOSED`]). A rank whose call has failed tells all others ([`CONTROL`] and [`FAILED`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use onesided_fabric::entries;
use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};

use super::Engine;
use super::peer::{Class, Outgoing};
use crate::engine::matching::{Envelope, collective_number, is_collective};
use crate::engine::wire::Packet;

/// The bit of the tag of a message that no receive gets.
pub(crate) const CONTROL: u32 = 1 << 31;

/// What tells a failure from a question, in the bits of the tag that say the collective.
const FAILED: u32 = 0x1f << 26;

/// What tells the answer of a rank that has no such communicator any more.
const CLOSED: u32 = 0x1e << 26;

/// The bit of the number of [early](Engine::early) messages that says that a call has failed
/// somewhere.
pub(crate) const TOLD: u32 = 1 << 31;

/// A call that failed at a rank, which is the end of its communicator's collectives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallFailure {
    pub(crate) reason: Reason,
    pub(crate) fault: Fault,
    /// The number of the call, modulo 2<sup>32</sup>.
    pub(crate) number: u32,
    /// The rank that failed first, on the fabric.
    pub(crate) origin: Rank,
    /// What the reason says more.
    pub(crate) words: [u64; 2],
}

entries! {
    /// Why a call failed at the rank that failed first.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u8)]
    pub(crate) enum Reason {
        /// The fault.
        Fault,
        /// A rank is in another collective: the tags, and that rank.
        OutOfStep,
        /// A rank sent a number of bytes, and another one was expected.
        Lengths,
        /// It dropped its request.
        Dropped,
        /// Its deadline passed.
        Late,
        /// A slice has a number of bytes, and another one is needed.
        Slice,
        /// It gave a number of counts, and there is another number of ranks.
        Counts,
        /// It named a root that there is not.
        Root,
        /// The [number](onesided_layouts::Op) of an operation that does not apply to the elements.
        Op,
    }
    const ALL;
}

impl CallFailure {
    const BYTES: usize = 32;

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let place = u64::from(self.number) << 32 | (self.reason as u64) << 24 | u64::from(self.origin.0);
        let mut bytes = [0; Self::BYTES];
        let words = [self.fault.to_bits(), place, self.words[0], self.words[1]];
        bytes.chunks_exact_mut(8).zip(words).for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_le_bytes()));
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(*bytes.get(8 * at..)?.first_chunk()?));
        let (fault, place) = (Fault::from_bits(word(0)?)?, word(1)?);
        let reason = *Reason::ALL.get((place >> 24) as usize & 0xff)?;
        let (number, origin) = ((place >> 32) as u32, Rank(place as u32 & 0xff_ffff));
        Some(Self { reason, fault, number, origin, words: [word(2)?, word(3)?] })
    }

    /// Whether a call is not before this one.
    pub(crate) const fn ends(&self, number: u32) -> bool {
        number.wrapping_sub(self.number) as i32 >= 0
    }

    /// The tag of the message that says it.
    pub(crate) const fn tag(&self) -> u32 {
        CONTROL | FAILED | collective_number(self.number)
    }
}

/// A message of another collective than the one that a rank is in: its sender and its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) from: Rank,
    pub(crate) tag: u32,
}

/// Why a call will not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It, or an earlier one, failed at another rank.
    Failed(CallFailure),
    /// A rank is in another collective.
    OutOfStep(Found),
}

/// What is known beyond the messages.
#[derive(Debug, Default)]
pub(super) struct Collectives {
    /// Calls that wait for long.
    waiting: Vec<Waiting>,
    /// The first failed call of each communicator, by context.
    failures: Vec<(u32, CallFailure)>,
    /// Members that have dropped a communicator, by context. What they sent before has come.
    closed: Vec<(u32, Rank)>,
}

#[derive(Debug)]
struct Waiting {
    context: u32,
    tag: u32,
    found: Option<Found>,
}

impl Collectives {
    pub(super) fn close(&mut self, context: u32) {
        self.waiting.retain(|waiting| waiting.context != context);
        self.failures.retain(|(of, _)| *of != context);
        self.closed.retain(|(of, _)| *of != context);
    }
}

impl<S> Engine<S> {
    /// Takes in a message that no receive gets; `bytes` are its first ones.
    #[cold]
    pub(super) fn control(&mut self, envelope: Envelope, bytes: &[u8]) {
        let Envelope { context, source, tag } = envelope;
        let (kind, from) = (tag & FAILED, Rank(source));
        if !self.is_open(context) {
            if !matches!(kind, FAILED | CLOSED) {
                self.answer_closed(from, context);
            }
            return;
        }
        if kind == CLOSED {
            if !self.collectives.closed.contains(&(context, from)) {
                self.collectives.closed.push((context, from));
            }
        } else if kind == FAILED {
            let Some(failure) = CallFailure::from_bytes(bytes) else { return };
            let known = self.collectives.failures.iter_mut().find(|(of, _)| *of == context);
            match known {
                Some((_, known)) if known.ends(failure.number) => return,
                Some((_, known)) => *known = failure,
                None => self.collectives.failures.push((context, failure)),
            }
            self.early.fetch_or(TOLD, Ordering::Relaxed);
        } else {
            let found = Found { from, tag: tag & !CONTROL };
            let number = collective_number(tag);
            let of_call = |waiting: &&mut Waiting| {
                waiting.context == context && collective_number(waiting.tag) == number && waiting.tag != found.tag
            };
            let Some(waiting) = self.collectives.waiting.iter_mut().find(of_call) else { return };
            waiting.found = Some(found);
        }
        self.wake_all();
    }

    /// Answers a question about a communicator that this rank has dropped. If it cannot be sent at once, the next
    /// question is answered.
    fn answer_closed(&mut self, to: Rank, context: u32) {
        let class = Class::of(context);
        if self.peer(to).may_pass(class, 0).is_some() {
            let packet = Packet::Eager { context, tag: CONTROL | CLOSED }.encode(0);
            self.queue(to, Outgoing::notice(class, packet));
        }
    }

    /// Why a member will send no more in a context.
    pub(crate) fn lost_in(&self, context: u32, rank: Rank) -> Option<Fault> {
        let is_closed = || self.collectives.closed.contains(&(context, rank));
        self.lost(rank).or_else(|| is_closed().then(|| Fault::of(FaultKind::Closed, rank)))
    }

    /// Why a call will not end, as far as this rank was told.
    #[inline]
    pub(crate) fn trouble(&self, (context, tag): (u32, u32), number: u32) -> Option<Trouble> {
        let Collectives { waiting, failures, .. } = &self.collectives;
        if waiting.is_empty() && failures.is_empty() {
            return None;
        }
        let failed = failures.iter().find(|(of, failure)| *of == context && failure.ends(number));
        let found = || waiting.iter().find(|waiting| (waiting.context, waiting.tag) == (context, tag))?.found;
        failed.map(|(_, failure)| Trouble::Failed(*failure)).or_else(|| found().map(Trouble::OutOfStep))
    }

    /// Counts an unexpected message, or one less, if it is of a collective.
    #[inline]
    pub(super) fn count_early(&self, envelope: Envelope, by: u32) {
        if is_collective(envelope.context) {
            self.early.fetch_add(by, Ordering::Relaxed);
        }
    }

    /// The number of unexpected messages of collectives, and [`TOLD`].
    pub(crate) fn early(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.early)
    }

    /// A message of this call or of an earlier one, of all that are unexpected and that `of_call`
    /// finds. Later ones may be for calls that this rank has not begun.
    pub(crate) fn stray(&self, (context, tag): (u32, u32), of_call: impl Fn(u32) -> bool) -> Option<Found> {
        // Far fewer calls are behind than may be ahead: a root waits for nobody.
        const BEHIND: u32 = 1 << 12;
        let is_stray = |envelope: &Envelope| {
            let behind = collective_number(tag.wrapping_sub(envelope.tag));
            envelope.context == context && behind < BEHIND && of_call(envelope.tag)
        };
        let stray = self.matcher.all_unexpected().map(|(_, envelope, _)| envelope).find(is_stray)?;
        Some(Found { from: Rank(stray.source), tag: stray.tag })
    }

    /// A call waits for long: questions about it are answered from now on. If `is_only` is true, no
    /// other call of the communicator is under way at this rank, none has failed, and what is left of earlier ones
    /// is found too.
    pub(crate) fn waits_in_call(&mut self, (context, tag): (u32, u32), is_only: bool) {
        let is_same = |other: u32| collective_number(other) == collective_number(tag);
        let found = self.stray((context, tag), |other| other != tag && (is_only || is_same(other)));
        let waiting = &mut self.collectives.waiting;
        match waiting.iter_mut().find(|waiting| (waiting.context, waiting.tag) == (context, tag)) {
            Some(waiting) => waiting.found = waiting.found.or(found),
            None => waiting.push(Waiting { context, tag, found }),
        }
    }

    /// A call that [waited for long](Self::waits_in_call) is over.
    pub(crate) fn ends_call(&mut self, call: (u32, u32)) {
        self.collectives.waiting.retain(|waiting| (waiting.context, waiting.tag) != call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_travels_whole_or_not_at_all() {
        for (at, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, at);
            let fault = Fault::of(FaultKind::PeerDied, Rank(7));
            let failure = CallFailure { reason, fault, number: u32::MAX, origin: Rank(3), words: [5, u64::MAX] };
            let bytes = failure.to_bytes();
            assert_eq!(CallFailure::from_bytes(&bytes), Some(failure));
            assert!((0..bytes.len()).all(|cut| CallFailure::from_bytes(&bytes[..cut]).is_none()));
            assert!(failure.ends(u32::MAX) && failure.ends(0) && !failure.ends(u32::MAX - 1));
        }
    }
}
