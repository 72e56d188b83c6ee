//! The rules of a communicator: how its messages go.

use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};
use onesided_fabric::{Absent, Channel, Fabric};

use crate::driver::progress::Registered;
use crate::driver::rules::{Condition, EAGER_LEAST, Rule};
use crate::engine::is_refused;
use crate::{Error, Messages, Protocol, Rules, WrongRule};

/// What rules look at of a message.
pub(crate) struct Features<'m, F: Fabric> {
    pub(crate) messages: &'m Messages<F>,
    pub(crate) to: Rank,
    pub(crate) bytes: u64,
    pub(crate) is_registered: bool,
    /// Why it cannot be eager, or be offered, whoever receives it.
    pub(crate) eager: Result<(), &'static str>,
    pub(crate) offered: Result<(), &'static str>,
}

/// How a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) by: Protocol,
    /// The place in the chain of the rule that says so, or why no rule does.
    pub(crate) rule: Result<usize, &'static str>,
    /// Whether it is to be found out how long it takes, offered and not.
    pub(crate) is_tried: bool,
    /// Whether a rule before that one names a connection that is not there.
    pub(crate) counts: bool,
}

/// Why a rule is passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassedOver {
    Condition(Condition),
    Lacks(&'static str),
    /// There is no connection.
    Absent(Absent),
}

/// Messages of so many bytes that are to be read or written, and whose ranks have no connection, come in datagrams: of
/// 64 KiB in two thirds of the time that they take in packets, by the bench of channels; shorter ones were not measured.
const LANDS: u64 = 64 << 10;

/// A message that is eager by no rule.
pub(crate) const LONG: &str = "it is longer than a packet";
const NONE: &str = "there is none to this rank, or none yet";
const NO_FAST_PATH: &str = "none yet: that rank makes one when it has got enough short packets over the connection, if it may \
                            have as many (ONESIDED_MESSAGES_FAST_PATHS)";
/// A message that goes by no rule.
const SHORT: &str = "at most 128 bytes, which are eager by all rules";
const TO_ONESELF: &str =
    "a message to oneself, copied by the send and by the receive: the send completes without a receive";

impl<F: Fabric> Features<'_, F> {
    /// The first rule that holds.
    pub(crate) fn choose(&self, chain: &[Rule]) -> Choice {
        let mut counts = false;
        let holds = chain.iter().position(|rule| match self.passes_over(rule) {
            Some(PassedOver::Absent(_)) => {
                counts = true;
                false
            }
            other => other.is_none(),
        });
        // By `eager` a message counts as it is sent.
        let by = |by, rule| Choice { by, rule, is_tried: false, counts: counts && by != Protocol::Eager };
        // The last one is for all others, without a connection if it may not read or write.
        let (place, protocol) = match holds {
            Some(place) => (place, chain[place].by),
            None if self.bytes >= LANDS && self.may_land().is_ok() => (chain.len() - 1, Protocol::UdZcopy),
            None => (chain.len() - 1, Protocol::Copy),
        };
        if self.bytes <= EAGER_LEAST && self.eager.is_ok() && protocol.channel().is_none() {
            return by(Protocol::Eager, Err(SHORT));
        }
        if self.to == self.messages.world().fabric().rank() && !protocol.is_eager() {
            return by(Protocol::Rget, Err(TO_ONESELF));
        }
        let is_short = self.bytes < self.messages.progress().rules.measured.bound().1.into();
        Choice { is_tried: chain[place].when.contains(&Condition::Measured) && is_short, ..by(protocol, Ok(place)) }
    }

    pub(crate) fn passes_over(&self, rule: &Rule) -> Option<PassedOver> {
        let fails = rule.when.iter().find(|condition| !self.has(**condition));
        let lacks = || match rule.by {
            Protocol::Offered => self.offered.and_then(|()| self.may_be_offered()).map_err(PassedOver::Lacks),
            Protocol::Copy => Ok(()),
            Protocol::UdZcopy => self.may_land().map_err(PassedOver::Lacks),
            by if !by.is_eager() => self.absent().map_or(Ok(()), |absent| Err(PassedOver::Absent(absent))),
            by => self.eager.map_err(PassedOver::Lacks).and_then(|()| by.channel().map_or(Ok(()), |by| self.fits(by))),
        };
        fails.map(|condition| PassedOver::Condition(*condition)).or_else(|| lacks().err())
    }

    /// Why there is no connection to read or write over, where packets need none.
    fn absent(&self) -> Option<Absent> {
        let is_other = self.to != self.messages.world().fabric().rank();
        self.messages.progress().absent(self.to).filter(|_| is_other)
    }

    /// Whether a packet by a channel has room for the message.
    fn fits(&self, channel: Channel) -> Result<(), PassedOver> {
        match self.messages.progress().room_by(self.to, channel) {
            Ok(room) if self.bytes <= room as u64 => Ok(()),
            Ok(_) => Err(PassedOver::Lacks(LONG)),
            Err(Some(absent)) => Err(PassedOver::Absent(absent)),
            Err(None) => Err(PassedOver::Lacks(if channel == Channel::FastPath { NO_FAST_PATH } else { NONE })),
        }
    }

    fn has(&self, condition: Condition) -> bool {
        let (messages, fabric) = (self.messages, self.messages.world().fabric());
        let is_near = || fabric.host_of(self.to) == fabric.host_of(fabric.rank());
        match condition {
            Condition::AtMost(bytes) => self.bytes <= bytes,
            Condition::AtLeast(bytes) => self.bytes >= bytes,
            Condition::Measured => self.bytes >= messages.progress().rules.measured.bound().0.into(),
            Condition::RanksAtMost(ranks) => messages.world().size() <= ranks,
            Condition::RanksAtLeast(ranks) => messages.world().size() >= ranks,
            Condition::SameHost => is_near(),
            Condition::OtherHost => !is_near(),
            Condition::Registered => self.is_registered,
            Condition::Progress(mode) => messages.progress_mode() == mode,
        }
    }

    /// Whether its datagrams may be received into memory.
    fn may_land(&self) -> Result<(), &'static str> {
        match self.messages.progress().fabric.landing_max(self.to) {
            0 => Err("this fabric has no datagrams (those of cards: ONESIDED_MESSAGES_CHANNEL)"),
            most if self.bytes > most => Err("it has more datagrams than are received at a time"),
            _ if self.bytes == 0 => Err("it has no bytes"),
            _ => Ok(()),
        }
    }

    fn may_be_offered(&self) -> Result<(), &'static str> {
        let fabric = self.messages.world().fabric();
        if self.to == fabric.rank() {
            Err("a message to oneself is copied before the call returns")
        } else if fabric.processes().is_none() {
            Err("this fabric does not copy between processes, or ONESIDED_PROCESS_VM=off is set")
        } else if !self.messages.may_offer() {
            Err("a process of the communicator may not read another's memory (process_vm_readv)")
        } else {
            Ok(())
        }
    }
}

impl<F: Fabric> Messages<F> {
    /// Who moves the long messages that this rank sends from now on, in all its communicators: the
    /// receiver by RDMA reads ([RGET](Protocol::Rget), the default), or this rank by RDMA writes
    /// ([RPUT](Protocol::Rput)), in pieces ([pipeline](Protocol::Pipeline)); or none of them
    /// ([copy](Protocol::Copy)). It sets all [rules](Self::set_rules), to `eager` and this protocol; to the
    /// default for RGET. Each rank has its own choice. With a pipeline a new [buffer](Self::buffer) is not
    /// registered before it is sent.
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
        let _ = self.set_rules(rendezvous.into()); // which name no channel
    }

    /// Sets by which protocol this rank sends messages from now on, in all its communicators. Each
    /// rank has its own rules; a process begins with those of `ONESIDED_MESSAGES_RULES`, or of the file
    /// `NAME` if that is `@NAME`.
    ///
    /// # Errors
    /// A rule names a channel ([`rc-sr`](Protocol::RcSr), [`ud-sr`](Protocol::UdSr), [`rc-fp`](Protocol::RcFp)) that
    /// packets of this fabric cannot take: the rules stay as they were.
    ///
    /// ```
    /// use onesided_two_sided::{Messages, Protocol, Rules};
    ///
    /// onesided_fabric::threads(2, |world| {
    ///     let messages = Messages::new(&world).wait().unwrap();
    ///     let set = |rules: &str| messages.set_rules(rules.parse::<Rules>()?);
    ///     let protocol = |bytes| messages.explain(1 - world.rank(), bytes).unwrap().protocol();
    ///     set("eager, rget").unwrap(); // long messages are copied at both ends
    ///     assert_eq!(protocol(100_000), Protocol::Rget);
    ///     // What is longer stays at this rank until it is received.
    ///     set("size<=1000: eager, size>=65536: rput, rget").unwrap();
    ///     assert_eq!([1_000, 1_001, 100_000].map(protocol), [Protocol::Eager, Protocol::Rget, Protocol::Rput]);
    ///     set("rc-sr, rget").unwrap_err(); // threads have no connections
    /// })
    /// .unwrap();
    /// ```
    pub fn set_rules(&self, rules: Rules) -> Result<(), WrongRule> {
        self.progress().rules.set(rules, |channel| self.progress().has_channel(channel))
    }

    /// See [`set_rules`](Self::set_rules).
    #[must_use]
    pub fn rules(&self) -> Rules {
        self.progress().rules.said().0
    }

    /// The protocol of the last rule. See [`set_rendezvous`](Self::set_rendezvous).
    #[must_use]
    pub fn rendezvous(&self) -> Protocol {
        self.rules().last()
    }

    /// By what the memory of a buffer is sent, which peers may read.
    pub(crate) fn protocol_of_buffers(&self) -> Protocol {
        Some(self.rendezvous())
            .filter(|protocol| !matches!(protocol, Protocol::Copy | Protocol::UdZcopy))
            .unwrap_or_default()
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

impl From<WrongRule> for Error {
    fn from(wrong: WrongRule) -> Self {
        Self::Rules(wrong)
    }
}
