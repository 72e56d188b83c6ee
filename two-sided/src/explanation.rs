//! Why a message goes as it goes.

use std::fmt;

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};

use crate::engine::{QUEUED_MAX, is_refused};
use crate::pieces::Pieces;
use crate::progress::Registered;
use crate::rules::{EAGER_LEAST, OfferedFrom, Origin, Rules, Way};
use crate::wire::By;
use crate::{Error, Messages};

/// Why no slice is offered to the rank that sends.
const TO_ONESELF: &str = "a message to oneself is copied before the call returns";

/// What is offered.
const ONCE: &str = "copied once, out of the sender's slice";

/// How a message goes to its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Protocol {
    /// In one packet, which the receiver copies.
    Eager,
    /// The receiver copies out of the sender's slice, and a sender that waits helps.
    Offered,
    /// The receiver reads it by RDMA out of registered memory of the sender.
    Rget,
    /// The sender writes it by RDMA into registered memory that the receiver exposes.
    Rput,
    /// The same in pieces, which each side registers while others move.
    Pipeline,
    /// In packets, for which the receiver has room: the receiver copies them.
    Copy,
}

/// Who moves a long message that is not [offered](Protocol::Offered), by RDMA. See
/// [`Messages::set_rendezvous`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rendezvous {
    /// The receiver reads it (sur-2006, section 4): a sender that computes does not hold it up.
    #[default]
    Rget,
    /// The sender writes it when the receiver has said where to (sur-2006, section 3): it moves when
    /// both sides are in a call, one after the other.
    Rput,
    /// As [`Rput`](Self::Rput), in pieces of 64 to 512 KiB, longer ones from 32 MiB on (woodall-2006): on
    /// a card each side registers a piece while the one before moves. It pays for memory that no
    /// earlier message had.
    Pipeline,
    /// Nobody by RDMA: it goes in packets of which at most 128 KiB are on their way, and no memory is
    /// registered (copy: woodall-2006). Any message goes so whose memory cannot be registered (the limit
    /// of `ulimit -l`), at either side, or for which the two have no connection to read or write over.
    Copy,
}

impl Rendezvous {
    pub(crate) const ALL: [Self; 4] = [Self::Rget, Self::Rput, Self::Pipeline, Self::Copy];
}

impl fmt::Display for Rendezvous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Rget => "rget",
            Self::Rput => "rput",
            Self::Pipeline => "pipeline",
            Self::Copy => "copy",
        })
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

/// How messages of a length go to a rank, and why. See [`Messages::explain`].
///
/// Shown as a table, a protocol a line in the order in which they are tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    to: u32,
    bytes: u64,
    protocol: Protocol,
    eager_max: usize,
    /// Why no slice is offered, however long it is.
    never_offered: Option<&'static str>,
    /// The interval of the shortest offered one.
    bound: (u32, u32),
    rules: Rules,
    origin: Origin,
}

impl Explanation {
    /// The protocol of such a message. While the shortest offered length is being measured, one that
    /// is offered may be copied instead.
    #[must_use]
    pub const fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The longest eager message in bytes.
    #[must_use]
    pub const fn eager_max(&self) -> usize {
        self.eager_max
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { to, bytes, protocol, eager_max, never_offered, bound: (low, high), rules, origin } = self;
        write!(f, "{bytes} bytes to rank {to}: {protocol}")?;
        let is_rule = rules.eager.is_some_and(|bytes| bytes.max(EAGER_LEAST) as usize == *eager_max);
        let rule = if is_rule { format!(" ({origin})") } else { String::new() };
        let at_once = match *eager_max > QUEUED_MAX {
            true => format!(", more than {QUEUED_MAX} if there is room at once"),
            false => String::new(),
        };
        let (is_own, who) = (*never_offered == Some(TO_ONESELF), format!("any length ({origin})"));
        let set = |rendezvous, what: &str, otherwise: &str| match rules.rendezvous == rendezvous {
            _ if is_own => "never: a message to oneself is copied once or twice".into(),
            true => format!("{who}: {what}"),
            false => otherwise.into(),
        };
        let not_set = "never: it is not set (Messages::set_rules)";
        let offered = match (never_offered, rules.offered) {
            (Some(why), _) => format!("never: {why}"),
            (None, OfferedFrom::Measured) if low < high => {
                let turns = format!("from {low} on in turns with rget until it is known which is faster");
                format!("at least {high} bytes, {turns}: {ONCE}")
            }
            (None, OfferedFrom::Measured) => format!("at least {low} bytes (measured): {ONCE}"),
            (None, _) => format!("at least {low} bytes ({origin}): {ONCE}"),
        };
        let written = "copied by the sender, written to the receiver when it is ready";
        let in_pieces = "as rput, in pieces that are registered while others move";
        let in_packets = "copied by both, in packets that the receiver has room for";
        let refused = "only if memory cannot be registered, or peers have no connection";
        let read = match is_own {
            true => "any length: copied by the send and by the receive; the send completes without a receive".into(),
            false => set(Rendezvous::Rget, "copied by the sender, read by the receiver", not_set),
        };
        for (tried, what) in [
            (Protocol::Eager, format!("at most {eager_max} bytes{rule}{at_once}: one packet, copied at both ends")),
            (Protocol::Offered, offered),
            (Protocol::Rput, set(Rendezvous::Rput, written, not_set)),
            (Protocol::Pipeline, set(Rendezvous::Pipeline, in_pieces, not_set)),
            (Protocol::Copy, set(Rendezvous::Copy, in_packets, refused)),
            (Protocol::Rget, read),
        ] {
            let mark = if tried == *protocol { '>' } else { ' ' };
            write!(f, "\n{mark} {tried:8}  {what}")?;
        }
        Ok(())
    }
}

impl<F: Fabric> Messages<F> {
    /// How a [`send`](Self::send) of so many bytes to a rank goes, and why.
    ///
    /// ```
    /// use onesided_two_sided::{Messages, Protocol};
    ///
    /// onesided_fabric::threads(2, |world| {
    ///     let messages = Messages::new(&world).wait().unwrap();
    ///     let other = 1 - world.rank();
    ///     println!("{}", messages.explain(other, 100_000).unwrap());
    ///     assert_eq!(messages.explain(other, 8).unwrap().protocol(), Protocol::Eager);
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Error::Rank`].
    pub fn explain(&self, to: u32, bytes: u64) -> Result<Explanation, Error> {
        let rank = self.rank("explain", to)?;
        let (eager_max, never_offered) = (self.progress().eager_max(rank), self.never_offered(rank));
        let (applied, bound) = (&self.progress().rules, self.progress().rules.bound().unwrap_or_default());
        let (rules, origin) = applied.said();
        let protocol = match rules.rendezvous {
            _ if bytes <= eager_max as u64 => Protocol::Eager,
            _ if never_offered.is_none() && bytes >= bound.0.into() => Protocol::Offered,
            _ if never_offered == Some(TO_ONESELF) => Protocol::Rget,
            Rendezvous::Rget => Protocol::Rget,
            Rendezvous::Rput => Protocol::Rput,
            Rendezvous::Pipeline => Protocol::Pipeline,
            Rendezvous::Copy => Protocol::Copy,
        };
        Ok(Explanation { to, bytes, protocol, eager_max, never_offered, bound, rules, origin })
    }

    /// How a slice is copied for a rank, if it may be offered to it; `None`: it is to be found out.
    pub(crate) fn way(&self, to: Rank, len: usize) -> Option<Way> {
        let way = self.progress().rules.way(len);
        if way == Some(Way::Copy) || self.never_offered(to).is_none() { way } else { Some(Way::Copy) }
    }

    fn never_offered(&self, to: Rank) -> Option<&'static str> {
        let fabric = self.world().fabric();
        if to == fabric.rank() {
            Some(TO_ONESELF)
        } else if self.rendezvous() != Rendezvous::Rget {
            Some("the rendezvous is not rget (Messages::set_rules)")
        } else if self.progress().rules.bound().is_none() {
            Some("the rules have offered=never")
        } else if fabric.processes().is_none() {
            Some("this fabric does not copy between processes, or ONESIDED_PROCESS_VM=off is set")
        } else if !self.may_offer() {
            Some("a process of the communicator may not read another's memory (process_vm_readv)")
        } else {
            None
        }
    }

    /// Who moves the long messages that this rank sends from now on, in all its communicators: the
    /// receiver by RDMA reads (RGET, the default), or this rank by RDMA writes (RPUT), in pieces
    /// ([pipeline](Rendezvous::Pipeline)); or none of them ([copy](Rendezvous::Copy)). Each rank has its
    /// own choice. A rank that does not leave them to their receivers [offers](Protocol::Offered) no
    /// slices. With a pipeline a new [buffer](Self::buffer) is not registered before it is sent.
    ///
    /// ```
    /// use onesided_two_sided::{Messages, Protocol, Rendezvous, Tag};
    ///
    /// onesided_fabric::threads(2, |world| {
    ///     let messages = Messages::new(&world).wait()?;
    ///     messages.set_rendezvous(Rendezvous::Rput);
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
    pub fn set_rendezvous(&self, rendezvous: Rendezvous) {
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
    pub fn rendezvous(&self) -> Rendezvous {
        self.progress().rules.rendezvous()
    }
}

impl<F: Fabric> Messages<F> {
    /// How a message in memory of this rank moves.
    pub(crate) fn moved_by(&self, to: Rank, memory: &Pieces<F>) -> By {
        match self.rendezvous() {
            _ if memory.is_plain() => By::Copy,
            _ if to == self.world().fabric().rank() => By::Read,
            _ if !memory.is_whole() => By::Pipeline,
            Rendezvous::Rget => By::Read,
            Rendezvous::Rput => By::Write,
            Rendezvous::Pipeline => By::Pipeline,
            Rendezvous::Copy => By::Copy,
        }
    }

    /// Memory for a message, or for a buffer. It is not registered yet if it is written in pieces and
    /// that takes time; and not at all where no more can be, or that of a message that goes in packets.
    pub(crate) fn memory_for(&self, to: Option<Rank>, bytes: u64) -> Result<Registered<F>, Fault> {
        let (fabric, progress) = (self.world().fabric(), self.progress());
        match self.rendezvous() {
            Rendezvous::Copy if to.is_some_and(|to| to != fabric.rank()) => return progress.plain(bytes),
            Rendezvous::Pipeline
                if to != Some(fabric.rank()) && bytes > 0 && !fabric.capabilities().completes_at_post =>
            {
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
