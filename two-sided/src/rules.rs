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

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};

use crate::engine::is_refused;
use crate::progress::{Registered, lock};
use crate::{Error, Messages};

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

/// How a message goes to its receiver, and who moves it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Protocol {
    /// In one packet, which the receiver copies.
    Eager,
    /// The receiver copies out of the sender's slice, and a sender that waits helps.
    Offered,
    /// The receiver reads it by RDMA out of registered memory of the sender (sur-2006, section 4): a
    /// sender that computes does not hold it up.
    #[default]
    Rget,
    /// The sender writes it by RDMA into registered memory, when the receiver has said where to
    /// (sur-2006, section 3): it moves when both sides are in a call, one after the other.
    Rput,
    /// As [`Rput`](Self::Rput), in pieces of 64 to 512 KiB, longer ones from 32 MiB on (woodall-2006): on
    /// a card each side registers a piece while the one before moves. It pays for memory that no
    /// earlier message had.
    Pipeline,
    /// In packets of which at most 128 KiB are on their way: both sides copy them, and no memory is
    /// registered (copy: woodall-2006). Any message goes so whose memory cannot be registered (the limit
    /// of `ulimit -l`), at either side, or for which the two have no connection to read or write over.
    Copy,
}

impl Protocol {
    /// Those of messages that are neither eager nor offered.
    const REGISTERED: [Self; 4] = [Self::Rget, Self::Rput, Self::Pipeline, Self::Copy];

    /// Whether the sender moves an announced message.
    pub(crate) const fn is_written(self) -> bool {
        matches!(self, Self::Rput | Self::Pipeline | Self::Copy)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Eager => "eager",
            Self::Offered => "offered",
            Self::Rget => "rget",
            Self::Rput => "rput",
            Self::Pipeline => "pipeline",
            Self::Copy => "copy",
        })
    }
}

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

impl<F: Fabric> Messages<F> {
    /// Who moves the long messages that this rank sends from now on, in all its communicators: the
    /// receiver by RDMA reads ([RGET](Protocol::Rget), the default), or this rank by RDMA writes
    /// ([RPUT](Protocol::Rput)), in pieces ([pipeline](Protocol::Pipeline)); or none of them
    /// ([copy](Protocol::Copy)). Each rank has its
    /// own choice. A rank that does not leave them to their receivers [offers](Protocol::Offered) no
    /// slices. With a pipeline a new [buffer](Self::buffer) is not registered before it is sent.
    ///
    /// ```
    /// use onesided_two_sided::{Messages, Protocol, Tag};
    ///
    /// onesided_fabric::threads(2, |world| {
    ///     let messages = Messages::new(&world).wait()?;
    ///     messages.set_rendezvous(Protocol::Rput);
    ///     let other = 1 - world.rank();
    ///     assert_eq!(messages.explain(other, 100_000)?.protocol(), Protocol::Rput);
    ///     let sent = vec![world.rank(); 100_000];
    ///     let send = messages.send(&sent, other, Tag(0));
    ///     assert_eq!(messages.recv::<u32>(other, Tag(0)).wait()?.0, [other; 100_000]);
    ///     send.wait()
    /// })
    /// .unwrap()
    /// .into_iter()
    /// .collect::<Result<(), onesided_two_sided::Error>>()
    /// .unwrap();
    /// ```
    pub fn set_rendezvous(&self, rendezvous: Protocol) {
        self.set_rules(Rules { rendezvous, ..self.rules() });
    }

    /// Sets by which protocol this rank sends messages from now on, in all its communicators, and
    /// how long an eager one may be. Each rank has its own rules; a process begins with those of
    /// `ONESIDED_MESSAGES_RULES`. It cannot fail.
    ///
    /// ```
    /// use onesided_two_sided::{Messages, Protocol};
    ///
    /// onesided_fabric::threads(2, |world| {
    ///     let messages = Messages::new(&world).wait().unwrap();
    ///     messages.set_rules("offered=never".parse().unwrap()); // long messages are copied at both ends
    ///     assert_eq!(messages.explain(1 - world.rank(), 100_000).unwrap().protocol(), Protocol::Rget);
    ///     // Longer ones stay at this rank until they are received.
    ///     messages.set_rules("eager=1000".parse().unwrap());
    ///     assert_eq!(messages.explain(1 - world.rank(), 1_001).unwrap().protocol(), Protocol::Rget);
    /// })
    /// .unwrap();
    /// ```
    pub fn set_rules(&self, rules: Rules) {
        self.progress().rules.set(rules, Origin::Program);
    }

    /// See [`set_rules`](Self::set_rules).
    #[must_use]
    pub fn rules(&self) -> Rules {
        self.progress().rules.said().0
    }

    /// See [`set_rendezvous`](Self::set_rendezvous).
    #[must_use]
    pub fn rendezvous(&self) -> Protocol {
        self.progress().rules.rendezvous()
    }

    /// How a message goes to a rank that is not eager.
    pub(crate) fn choose(&self, to: Rank) -> Choice {
        let (fabric, rules) = (self.world().fabric(), &self.progress().rules);
        if to == fabric.rank() {
            return Choice { offered: Err(TO_ONESELF), otherwise: Protocol::Rget };
        }
        let otherwise = rules.rendezvous();
        let offered = match rules.bound() {
            _ if otherwise != Protocol::Rget => Err("the rendezvous is not rget (Messages::set_rules)"),
            None => Err("the rules have offered=never"),
            _ if fabric.processes().is_none() => {
                Err("this fabric does not copy between processes, or ONESIDED_PROCESS_VM=off is set")
            }
            _ if !self.may_offer() => {
                Err("a process of the communicator may not read another's memory (process_vm_readv)")
            }
            Some(bound) => Ok(bound),
        };
        Choice { offered, otherwise }
    }

    /// By what the memory of a buffer is sent, which peers may read.
    pub(crate) fn protocol_of_buffers(&self) -> Protocol {
        Some(self.rendezvous()).filter(|protocol| *protocol != Protocol::Copy).unwrap_or_default()
    }

    /// Memory for a message that goes so. It is not registered yet if it is written in pieces and that
    /// takes time; and not at all where no more can be, or if it goes in packets.
    pub(crate) fn memory_for(&self, protocol: Protocol, bytes: u64) -> Result<Registered<F>, Fault> {
        let progress = self.progress();
        match protocol {
            Protocol::Copy => return progress.plain(bytes),
            Protocol::Pipeline if bytes > 0 && !progress.fabric.capabilities().completes_at_post => {
                // So much memory is tried for once: its pieces are allocated when they are written.
                let has_room = Vec::<u8>::new().try_reserve_exact(bytes as usize);
                return has_room.map(|()| progress.pieces(bytes)).map_err(|_| Fault::new(FaultKind::NoMemory));
            }
            _ => {}
        }
        match progress.memory(bytes) {
            Err(fault) if is_refused(fault) => progress.plain(bytes),
            memory => memory,
        }
    }
}

impl From<UnknownRule> for Error {
    fn from(unknown: UnknownRule) -> Self {
        Self::Rules(unknown)
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
        let wrong = Error::from(UnknownRule { place: 2 }).to_string();
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
