//! The requests of owners and the replies of the server, one word each.

use onesided_remote_memory::{Fault, FaultKind, Rank, RemoteMemory};

use crate::recovery::owner_ended;
use crate::{Held, Mode};

/// A request, in a request slot at the home: request id 32 bits | slot 12 | unused 12 | flags 4 |
/// verb 4.
///
/// No two consecutive requests of a request slot are the same word: the ids of a slot rise, and the
/// request behind an acquire has another verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The request id: which of the slot's acquires. The reply repeats it.
    pub id: u32,
    /// The slot whose node receives the reply.
    pub slot: u16,
    /// What is asked for.
    pub verb: Verb,
}

/// What an owner asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Acquires the lock in this mode.
    Acquire(Mode, Terms),
    /// Releases the lock. There is no reply.
    Release,
    /// Withdraws the acquire, granted or not.
    Withdraw,
    /// Releases the lock as poisoned: the owner panicked.
    Panic,
}

/// The terms of an acquire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Only without waiting.
    pub at_once: bool,
    /// Recovers a poisoned lock.
    pub recovers: bool,
}

const AT_ONCE: u64 = 1 << 4;
const RECOVERS: u64 = 1 << 5;

impl Verb {
    /// Each at the place that is its number.
    const fn all(terms: Terms) -> [Self; 5] {
        use Mode::{Exclusive, Shared};
        [Self::Acquire(Exclusive, terms), Self::Acquire(Shared, terms), Self::Release, Self::Withdraw, Self::Panic]
    }

    pub(super) fn to_bits(self) -> u64 {
        let terms = if let Self::Acquire(_, terms) = self { terms } else { Terms::default() };
        let flags = if terms.at_once { AT_ONCE } else { 0 } | if terms.recovers { RECOVERS } else { 0 };
        flags | numbered(&Self::all(terms), self)
    }

    pub(super) fn from_bits(bits: u64) -> Option<Self> {
        let terms = Terms { at_once: bits & AT_ONCE != 0, recovers: bits & RECOVERS != 0 };
        of_number(&Self::all(terms), bits & 0xf)
    }
}

/// The number of one of them, from 1.
fn numbered<T: PartialEq>(all: &[T], one: T) -> u64 {
    all.iter().position(|other| *other == one).map_or(0, |at| at as u64 + 1)
}

fn of_number<T: Copy>(all: &[T], number: u64) -> Option<T> {
    all.get(usize::try_from(number).ok()?.checked_sub(1)?).copied()
}

impl Request {
    /// The word.
    pub fn to_bits(self) -> u64 {
        (self.id as u64) << 32 | (self.slot as u64 & 0xfff) << 20 | self.verb.to_bits()
    }

    /// `None` if there is no request.
    pub fn from_bits(bits: u64) -> Option<Self> {
        let verb = Verb::from_bits(bits & 0xff)?;
        Some(Self { id: (bits >> 32) as u32, slot: (bits >> 20) as u16 & 0xfff, verb })
    }
}

/// The wake event behind a request: rank 24 bits | slot 12 | request slot 8 | verb and flags 8 |
/// request id 12. It names the last request, and differs from any other wake event that may come
/// before the server's next read: an owner needs its reply before its next request id.
pub(super) fn ring(rank: Rank, request_slot: u16, request: Request) -> u64 {
    (rank.0 as u64 & 0xff_ffff) << 40
        | (request.slot as u64 & 0xfff) << 28
        | (request_slot as u64 & 0xff) << 20
        | request.verb.to_bits() << 12
        | request.id as u64 & 0xfff
}

/// The request slot of a wake event that names none.
pub(super) const NO_REQUEST_SLOT: u16 = 0xff;

/// The request slot that a wake event names.
pub(super) const fn named_by(ring: u64) -> (Rank, u16) {
    (Rank((ring >> 40) as u32 & 0xff_ffff), (ring >> 20) as u16 & 0xff)
}

/// A reply, in an owner's node, once for each request id; [`Withdrawn`](Outcome::Withdrawn) may
/// follow another reply: request id 32 bits | unused 4 | outcome 4 | rank 24.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The request id.
    pub id: u32,
    /// What has become of the request.
    pub outcome: Outcome,
}

/// What has become of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The owner holds the lock, as requested, or recovered.
    Granted(Option<Poison>),
    /// The owner did not want to wait, and others hold the lock.
    Busy,
    /// The lock is poisoned, and the owner does not recover.
    Poisoned(Poison),
    /// The owner holds nothing, as it asked.
    Withdrawn,
    /// The server has ended.
    Closed,
}

/// Why a lock is poisoned: this rank held it exclusively.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poison {
    /// The owner.
    pub rank: Rank,
    /// It lives, and panicked; otherwise it died or left.
    pub panicked: bool,
}

impl Poison {
    /// The fault of an acquire that does not recover, or of what was recovered from.
    pub fn fault(self, memory: &impl RemoteMemory) -> Fault {
        match self.panicked {
            true => Fault::of(FaultKind::OwnerPanicked, self.rank),
            false => owner_ended(memory, self.rank),
        }
    }
}

impl Outcome {
    /// The result of an acquire that asked for this mode.
    pub(super) fn held(poison: Option<Poison>, mode: Mode, memory: &impl RemoteMemory) -> Held {
        match poison {
            None => Held::cleanly(mode),
            Some(poison) => Held::after(poison.fault(memory), Mode::Exclusive),
        }
    }

    const fn poison(self) -> Option<Poison> {
        match self {
            Self::Granted(poison) => poison,
            Self::Poisoned(poison) => Some(poison),
            Self::Busy | Self::Withdrawn | Self::Closed => None,
        }
    }

    /// Each at the place that is its number; of those with a poison, of this rank.
    fn all(rank: Rank) -> [Self; 8] {
        use Outcome::{Busy, Closed, Granted, Poisoned, Withdrawn};
        let [died, panicked] = [false, true].map(|panicked| Poison { rank, panicked });
        let [plain, after_death, after_panic] = [None, Some(died), Some(panicked)].map(Granted);
        [plain, after_death, after_panic, Busy, Poisoned(died), Poisoned(panicked), Withdrawn, Closed]
    }
}

impl Answer {
    /// The word.
    pub fn to_bits(self) -> u64 {
        let rank = self.outcome.poison().map_or(Rank(0), |poison| poison.rank);
        let code = numbered(&Outcome::all(rank), self.outcome);
        u64::from(self.id) << 32 | code << 24 | u64::from(rank.0) & 0xff_ffff
    }

    /// `None` if this is no reply.
    pub fn from_bits(bits: u64) -> Option<Self> {
        let outcome = of_number(&Outcome::all(Rank(bits as u32 & 0xff_ffff)), bits >> 24 & 0xff)?;
        Some(Self { id: (bits >> 32) as u32, outcome })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANKS: [Rank; 3] = [Rank(0), Rank(1), Rank(Rank::LIMIT)];
    const MODES: [Mode; 2] = [Mode::Exclusive, Mode::Shared];

    fn verbs() -> Vec<Verb> {
        let terms = [(false, false), (true, false), (false, true), (true, true)];
        let terms = terms.map(|(at_once, recovers)| Terms { at_once, recovers });
        let acquires = MODES.iter().flat_map(|mode| terms.map(|terms| Verb::Acquire(*mode, terms)));
        acquires.chain([Verb::Release, Verb::Withdraw, Verb::Panic]).collect()
    }

    #[test]
    fn requests_pack_at_every_fields_edge() {
        for verb in verbs() {
            for id in [0, 1, u32::MAX] {
                for slot in [0, 1, 0xfff] {
                    let request = Request { id, slot, verb };
                    assert_eq!(Request::from_bits(request.to_bits()), Some(request));
                    for rank in RANKS {
                        for request_slot in [0, 0xff] {
                            assert_eq!(named_by(ring(rank, request_slot, request)), (rank, request_slot));
                        }
                    }
                }
            }
        }
        assert_eq!(Request::from_bits(0), None);
        assert_eq!(Request::from_bits(u64::MAX), None);
    }

    #[test]
    fn rings_that_may_come_between_two_looks_differ() {
        let all: Vec<_> = verbs()
            .into_iter()
            .flat_map(|verb| [0, 1, 2].map(|id| [0, 1].map(|slot| Request { id, slot, verb })))
            .flatten()
            .flat_map(|request| RANKS.map(|rank| [0, 1].map(|request_slot| ring(rank, request_slot, request))))
            .flatten()
            .collect();
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
        assert!(!distinct.contains(&0), "as if nobody had ever rung");
    }

    #[test]
    fn answers_pack_at_every_fields_edge() {
        let poisons = RANKS.map(|rank| [false, true].map(|panicked| Poison { rank, panicked })).concat();
        let of_poisons =
            poisons.into_iter().flat_map(|poison| [Outcome::Granted(Some(poison)), Outcome::Poisoned(poison)]);
        let others = [Outcome::Granted(None), Outcome::Busy, Outcome::Withdrawn, Outcome::Closed];
        for outcome in of_poisons.chain(others) {
            for id in [0, 1, u32::MAX] {
                let answer = Answer { id, outcome };
                assert_eq!(Answer::from_bits(answer.to_bits()), Some(answer));
            }
        }
        assert_eq!(Answer::from_bits(0), None);
    }
}
