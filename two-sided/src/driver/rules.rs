//! Rules: which way a message goes, as data.
//!
//! | peer | length | protocol | who says it |
//! |---|---|---|---|
//! | oneself | any | a copy | |
//! | any | at most a packet, and [`Rules::eager`] | eager | the fabric, or [`Rules::eager`] |
//! | another process of this host | from a bound on | offered, by RGET | measured, or [`Rules::offered`] |
//! | any | longer | [`Rules::rendezvous`] | |
//!
//! The bound between a slice that its receiver copies by a system call and bytes that are copied
//! twice, by the sender into registered memory and by the receiver out of it, depends on the
//! machine: on one, two copies of 32 KiB take half of the time, on another three times as long. So
//! it is found by *tries*: messages between 4 and 128 KiB go either way, in turns, until in each
//! group of lengths (a power of two) each way has been timed [`ENOUGH`] times. What counts is the
//! best sum of the copies, at both ends, and not what lies between: a receiver may be late. One try
//! is under way at a time, so that the next one has warm memory. The bound is known as an interval,
//! which each decision makes shorter.

use std::fmt;
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::Protocol;
use crate::driver::progress::lock;

/// The variable with the rules of a process.
pub(crate) const VARIABLE: &str = "ONESIDED_MESSAGES_RULES";

/// The bound is in this interval.
const LOWEST: u32 = 4 << 10;
const HIGHEST: u32 = 128 << 10;
/// Powers of two in it.
const CLASSES: usize = (HIGHEST / LOWEST).ilog2() as usize;
/// Tries that decide: of each way.
const ENOUGH: u32 = 16;
/// After so many tries that were not all timed, slices are offered.
const TRIES: u32 = 256;

/// The least limit of eager messages. Ranks send each other messages of up to this length for locks
/// and collectives, and short messages of lists share packets.
pub(crate) const EAGER_LEAST: u32 = 128;

/// From which length on a slice is [offered](crate::Protocol::Offered) to another process of this host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OfferedFrom {
    /// Messages of 4 to 128 KiB go by slice and by copy in turns, timed at both ends, until one is
    /// known to be faster.
    #[default]
    Measured,
    /// From so many bytes on.
    Bytes(u32),
    /// None is.
    Never,
}

/// The protocols of the messages that a rank sends. See
/// [`Messages::set_rules`](crate::Messages::set_rules).
///
/// As text: words with commas between them, each `rget`, `rput`, `pipeline`, `copy`,
/// `offered=BYTES`, `offered=measured`, `offered=never`, `eager=BYTES` or `eager=packet`. The last
/// of a kind counts; a kind without a word has its default.
///
/// ```
/// use onesided_two_sided::{OfferedFrom, Protocol, Rules};
///
/// let rules: Rules = "offered=16384,rput,eager=1000".parse()?;
/// let offered = OfferedFrom::Bytes(16384);
/// assert_eq!(rules, Rules { rendezvous: Protocol::Rput, offered, eager: Some(1000) });
/// assert_eq!("".parse(), Ok(Rules::default()));
/// assert!("rgett".parse::<Rules>().is_err());
/// # Ok::<(), onesided_two_sided::UnknownRule>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "a program writes the fields down")]
pub struct Rules {
    /// How a message goes that is neither eager nor offered: by RGET, if this says one of them.
    pub rendezvous: Protocol,
    /// Which slices are offered, if the rendezvous is RGET.
    pub offered: OfferedFrom,
    /// The longest eager message in bytes, at least 128; `None`: a packet's. A longer one goes by
    /// rendezvous, also if it fits a packet.
    pub eager: Option<u32>,
}

/// A text that is no [`Rules`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "rule {place} is none of rget, rput, pipeline, copy, offered=BYTES (less than 4 GiB), offered=measured, \
     offered=never, eager=BYTES, eager=packet (with a comma between them)"
)]
#[non_exhaustive]
pub struct UnknownRule {
    /// Its place in the text, from 1.
    pub place: usize,
}

impl FromStr for Rules {
    type Err = UnknownRule;

    fn from_str(text: &str) -> Result<Self, UnknownRule> {
        let mut rules = Self::default();
        let words = text.split(',').map(str::trim).filter(|_| !text.trim().is_empty());
        for (place, word) in (1..).zip(words) {
            let rendezvous = Protocol::REGISTERED.into_iter().find(|protocol| protocol.to_string() == word);
            let number = |bytes: &str| bytes.parse().map_err(|_| UnknownRule { place });
            match (rendezvous, word.split_once('=')) {
                (Some(rendezvous), _) => rules.rendezvous = rendezvous,
                (None, Some(("offered", "measured"))) => rules.offered = OfferedFrom::Measured,
                (None, Some(("offered", "never"))) => rules.offered = OfferedFrom::Never,
                (None, Some(("offered", bytes))) => rules.offered = OfferedFrom::Bytes(number(bytes)?),
                (None, Some(("eager", "packet"))) => rules.eager = None,
                (None, Some(("eager", bytes))) => rules.eager = Some(number(bytes)?),
                (None, _) => return Err(UnknownRule { place }),
            }
        }
        Ok(rules)
    }
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},offered=", self.rendezvous)?;
        match self.offered {
            OfferedFrom::Measured => f.write_str("measured"),
            OfferedFrom::Bytes(bytes) => write!(f, "{bytes}"),
            OfferedFrom::Never => f.write_str("never"),
        }?;
        self.eager.map_or(Ok(()), |bytes| write!(f, ",eager={bytes}"))
    }
}

/// Who said the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    BuiltIn,
    Environment,
    Program,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BuiltIn => "built in",
            Self::Environment => VARIABLE,
            Self::Program => "the program",
        })
    }
}

/// How a long message goes to a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// From which length on its slice is offered: an interval, until that is known. Or why it never is.
    pub(crate) offered: Result<(u32, u32), &'static str>,
    /// How it goes that is not offered.
    pub(crate) otherwise: Protocol,
}

/// Why no slice is offered to the rank that sends.
pub(crate) const TO_ONESELF: &str = "a message to oneself is copied before the call returns";

impl Choice {
    /// Its protocol. While the shortest offered length is being [measured](Self::is_tried), one that is
    /// offered may be copied instead.
    pub(crate) fn protocol(&self, bytes: u64) -> Protocol {
        if self.offered.is_ok_and(|(low, _)| bytes >= low.into()) { Protocol::Offered } else { self.otherwise }
    }

    /// Whether it is to be found out how long each way takes.
    pub(crate) fn is_tried(&self, bytes: u64) -> bool {
        self.offered.is_ok_and(|(low, high)| (low.into()..high.into()).contains(&bytes))
    }
}

/// The rules of a rank, as its sends read them.
#[derive(Debug)]
pub(crate) struct Applied {
    rendezvous: AtomicU8,
    /// The bound of offered slices: at least the low half, at most the high one.
    bound: AtomicU64,
    /// The longest eager message, if a packet has room for it.
    eager: AtomicU32,
    said: Mutex<(Rules, Origin)>,
    tries: Mutex<[Tries; CLASSES]>,
    /// Whether a try is under way.
    is_trying: AtomicBool,
}

/// Tries of lengths up to twice the shortest: how many, and of each way how many were timed and the
/// time of the best, in picoseconds a byte.
#[derive(Clone, Copy, Debug, Default)]
struct Tries {
    begun: u32,
    timed: [u32; 2],
    best: [u64; 2],
}

const fn bound(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

fn class(len: usize) -> Option<usize> {
    let class = (len / LOWEST as usize).checked_ilog2()? as usize;
    (class < CLASSES).then_some(class)
}

impl Applied {
    /// Those of the environment, or those that are built in.
    pub(crate) fn new() -> Result<Self, UnknownRule> {
        Ok(match std::env::var(VARIABLE) {
            Ok(text) => Self::with(text.parse()?, Origin::Environment),
            Err(std::env::VarError::NotPresent) => Self::with(Rules::default(), Origin::BuiltIn),
            Err(std::env::VarError::NotUnicode(_)) => return Err(UnknownRule { place: 1 }),
        })
    }

    fn with(rules: Rules, origin: Origin) -> Self {
        let applied = Self {
            rendezvous: AtomicU8::new(0),
            bound: AtomicU64::new(bound(LOWEST, HIGHEST)),
            eager: AtomicU32::new(u32::MAX),
            said: Mutex::new((Rules::default(), origin)),
            tries: Mutex::default(),
            is_trying: AtomicBool::new(false),
        };
        applied.set(rules, origin);
        applied
    }

    pub(crate) fn set(&self, rules: Rules, origin: Origin) {
        let mut said = lock(&self.said);
        let is_new = said.0.offered != rules.offered; // else what was measured stays
        let (low, high) = match rules.offered {
            OfferedFrom::Measured => (LOWEST, HIGHEST),
            OfferedFrom::Bytes(bytes) => (bytes.max(1), bytes.max(1)),
            OfferedFrom::Never => (u32::MAX, u32::MAX),
        };
        let rendezvous = Protocol::REGISTERED.iter().position(|protocol| *protocol == rules.rendezvous);
        self.rendezvous.store(rendezvous.unwrap_or_default() as u8, Ordering::Relaxed);
        self.eager.store(rules.eager.map_or(u32::MAX, |bytes| bytes.max(EAGER_LEAST)), Ordering::Relaxed);
        if is_new {
            *lock(&self.tries) = Default::default();
            self.bound.store(bound(low, high), Ordering::Relaxed);
        }
        *said = (rules, origin);
    }

    pub(crate) fn said(&self) -> (Rules, Origin) {
        *lock(&self.said)
    }

    #[inline]
    pub(crate) fn rendezvous(&self) -> Protocol {
        Protocol::REGISTERED[usize::from(self.rendezvous.load(Ordering::Relaxed))]
    }

    /// The longest eager message, if a packet has room for it.
    #[inline]
    pub(crate) fn eager(&self) -> usize {
        self.eager.load(Ordering::Relaxed) as usize
    }

    /// The interval of the bound from which on slices are offered; `None`: none is.
    #[inline]
    pub(crate) fn bound(&self) -> Option<(u32, u32)> {
        let bound = self.bound.load(Ordering::Relaxed);
        let (low, high) = (bound as u32, (bound >> 32) as u32);
        (low < u32::MAX).then_some((low, high))
    }

    /// Begins a try, which is to be [ended](Self::end_try): whether its slice is offered, or copied to
    /// where its receiver reads it. `None`: another is under way.
    pub(crate) fn begin_try(&self, len: usize) -> Option<Protocol> {
        let class = class(len).filter(|_| !self.is_trying.swap(true, Ordering::Relaxed))?;
        let tries = &mut lock(&self.tries)[class];
        tries.begun += 1;
        if tries.begun == TRIES {
            self.decide(class, Protocol::Offered);
        }
        Some(if tries.begun % 2 == 1 { Protocol::Rget } else { Protocol::Offered })
    }

    pub(crate) fn end_try(&self) {
        self.is_trying.store(false, Ordering::Relaxed);
    }

    /// The copies of a try took so long.
    pub(crate) fn learn(&self, by: Protocol, len: usize, nanos: u64) {
        let Some(class) = class(len) else { return };
        let tries = &mut lock(&self.tries)[class];
        let at = usize::from(by != Protocol::Offered);
        let (timed, best) = (&mut tries.timed[at], &mut tries.best[at]);
        let time = nanos.saturating_mul(1000) / len as u64;
        *best = if *timed == 0 { time } else { time.min(*best) };
        *timed += 1;
        if tries.timed.iter().all(|timed| *timed >= ENOUGH) {
            let [slice, copy] = tries.best;
            self.decide(class, if copy < slice { Protocol::Rget } else { Protocol::Offered });
        }
    }

    /// What is longer is offered too, what is shorter is copied.
    fn decide(&self, class: usize, by: Protocol) {
        let shortest = LOWEST << class;
        let _ = self.bound.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
            let (low, high) = (now as u32, (now >> 32) as u32);
            let is_open = low <= shortest && shortest < high;
            is_open.then(|| if by == Protocol::Offered { bound(low, shortest) } else { bound(2 * shortest, high) })
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The protocol of a slice; `None`: it is to be found out.
    fn way(applied: &Applied, len: u64) -> Option<Protocol> {
        let choice = Choice { offered: applied.bound().ok_or("never"), otherwise: Protocol::Rget };
        Some(choice.protocol(len)).filter(|_| !choice.is_tried(len))
    }

    /// Tries with these costs, in nanoseconds: fixed ones, and ones a KiB.
    fn found(slice: [u64; 2], copy: [u64; 2], lens: &[usize]) -> Option<(u32, u32)> {
        let applied = Applied::with(Rules::default(), Origin::BuiltIn);
        for round in 0..40 {
            for len in lens {
                if way(&applied, *len as u64).is_none()
                    && let Some(by) = applied.begin_try(*len)
                {
                    assert_eq!(applied.begin_try(*len), None);
                    let [fixed, per_kib] = if by == Protocol::Offered { slice } else { copy };
                    // Some come late.
                    let late = if round % 3 == 0 { 50_000 } else { 0 };
                    applied.learn(by, *len, fixed + per_kib * (*len as u64 >> 10) + late);
                    applied.end_try();
                }
            }
        }
        applied.bound()
    }

    #[test]
    fn the_bound_is_between_the_costs() {
        let all = [4 << 10, 9_000, 20_000, 40_000, (64 << 10) - 1, 70_000, (128 << 10) - 1, 128 << 10];
        // A system call costs as much as to copy 10, 100 and 1 KiB once more.
        assert_eq!(found([1_000, 100], [0, 200], &all), Some((16 << 10, 16 << 10)));
        assert_eq!(found([10_000, 100], [0, 200], &all), Some((64 << 10, 64 << 10)));
        assert_eq!(found([100, 100], [0, 200], &all), Some((4 << 10, 4 << 10)));
        // Of one length alone the bound is known on one side.
        assert_eq!(found([10_000, 100], [0, 200], &[20_000]), Some((32 << 10, 128 << 10)));
        assert_eq!(found([100, 100], [0, 200], &[20_000]), Some((4 << 10, 16 << 10)));
    }

    #[test]
    fn tries_that_nobody_times_end() {
        let applied = Applied::with(Rules::default(), Origin::BuiltIn);
        let begun = (0..1000).filter(|_| way(&applied, 5_000).is_none() && applied.begin_try(5_000).is_some());
        assert_eq!(begun.inspect(|_| applied.end_try()).count() as u32, TRIES);
        assert_eq!(way(&applied, 5_000), Some(Protocol::Offered));
    }

    #[test]
    fn rules_are_read_as_they_are_shown() {
        let eager = "rget,offered=measured,eager=0";
        for text in ["rget,offered=measured", "copy,offered=never", "rput,offered=16384", "pipeline,offered=1", eager] {
            assert_eq!(text.parse::<Rules>().unwrap().to_string(), text);
        }
        assert_eq!("eager=9,eager=packet".parse::<Rules>(), Ok(Rules::default()));
        assert_eq!(" offered=never , rput".parse::<Rules>().unwrap().to_string(), "rput,offered=never");
        for (text, place) in [("RGET", 1), ("rget,", 2), ("rget,offered=", 2), ("offered=4096 x", 1), ("offered=-1", 1)]
            .into_iter()
            .chain([("eager", 1), ("eager=never", 1), ("rget,eager=4294967296", 2), ("rget=1", 1)])
        {
            assert_eq!(text.parse::<Rules>(), Err(UnknownRule { place }), "{text}");
        }
        let wrong = crate::Error::from(UnknownRule { place: 2 }).to_string();
        assert!(wrong.starts_with("ONESIDED_MESSAGES_RULES: rule 2 is none of rget, rput,"), "{wrong}");
    }

    #[test]
    fn what_was_measured_stays_when_something_else_is_set() {
        let applied = Applied::with(Rules::default(), Origin::BuiltIn);
        applied.decide(1, Protocol::Rget);
        applied.set(Rules { rendezvous: Protocol::Rput, ..Rules::default() }, Origin::Program);
        assert_eq!((applied.bound(), applied.rendezvous()), (Some((16 << 10, 128 << 10)), Protocol::Rput));
        applied.set("offered=100".parse().unwrap(), Origin::Program);
        assert_eq!([99, 100].map(|len| way(&applied, len)), [Some(Protocol::Rget), Some(Protocol::Offered)]);
        applied.set("offered=never".parse().unwrap(), Origin::Program);
        assert_eq!((applied.bound(), way(&applied, 1 << 30)), (None, Some(Protocol::Rget)));
    }
}
