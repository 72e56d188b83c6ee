//! Why a message goes as it goes.

use std::fmt;

use onesided_fabric::{Absent, Channel, Fabric};

use crate::api::rules::{Choice, Features, LONG, PassedOver};
use crate::driver::rules::{Condition, EAGER_LEAST, Origin, Rules};
use crate::{Error, Messages, Protocol};

/// How messages of a length go to a rank, and why. See [`Messages::explain`].
///
/// Shown as a table, a rule a line in the order of the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    to: u32,
    bytes: u64,
    choice: Choice,
    eager_max: usize,
    /// The rules, and why each is passed over, if it is.
    rules: Rules,
    passed_over: Vec<Option<PassedOver>>,
    origin: Origin,
    /// The channel of an eager message, and why it is not the connection, if there may be several.
    first: Option<(Channel, Option<Absent>)>,
    /// From which length on it is faster to offer a slice: an interval, until that is known.
    measured: (u32, u32),
}

impl Explanation {
    /// The protocol of such a message. While the shortest offered length is being measured, one that
    /// is offered may be copied instead.
    #[must_use]
    pub const fn protocol(&self) -> Protocol {
        self.choice.by
    }

    /// Messages of up to so many bytes are eager, if there is room for them.
    #[must_use]
    pub const fn eager_max(&self) -> usize {
        self.eager_max
    }
}

impl Explanation {
    fn write_first(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first {
            Some((Channel::Connection, _)) => f.write_str("; over the connection")?,
            Some((Channel::FastPath, _)) => f.write_str("; by the fast path")?,
            Some(_) => f.write_str("; in datagrams")?,
            None => {}
        }
        let absent = self.first.and_then(|(_, absent)| absent);
        absent.map_or(Ok(()), |absent| write!(f, ": {}", NoConnection(self.to, absent)))
    }
}

struct NoConnection(u32, Absent);

impl fmt::Display for NoConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no connection to rank {}", self.0)?;
        match self.1 {
            Absent::Counted { messages, of } => write!(f, " yet: {messages} of {of} messages counted"),
            Absent::Asked => f.write_str(" yet: it is being made"),
            Absent::Refused { messages, of } => write!(
                f,
                ": one of the two had as many as it may have (ONESIDED_MESSAGES_CONNECTIONS); {messages} of {of} \
                 messages counted to ask again"
            ),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { to, bytes, choice, rules, passed_over, origin, measured: (low, high), .. } = self;
        let Choice { by, rule, .. } = choice;
        write!(f, "{bytes} bytes to rank {to}: {by}, ")?;
        let chosen = match *rule {
            Ok(place) => place,
            Err(why) => {
                f.write_str(why)?;
                return if *by == Protocol::Eager { self.write_first(f) } else { Ok(()) };
            }
        };
        write!(f, "by rule {} of {} ({origin})", chosen + 1, passed_over.len())?;
        let shown: Vec<_> = rules.chain().iter().map(ToString::to_string).collect();
        let width = shown.iter().map(String::len).max().unwrap_or_default();
        for (at, (rule, passed_over)) in rules.chain().iter().zip(passed_over).enumerate() {
            let mark = if chosen == at { '>' } else { ' ' };
            write!(f, "\n{mark} {:width$}  ", shown[at])?;
            match passed_over {
                Some(PassedOver::Condition(condition)) => write!(f, "passed over: not {condition}")?,
                Some(PassedOver::Lacks(why)) if chosen == at => write!(f, "{why}: {}", what(*by))?,
                Some(PassedOver::Lacks(why)) => write!(f, "passed over: {why}")?,
                Some(PassedOver::Absent(absent)) if chosen == at => {
                    write!(f, "{}: {}", NoConnection(*to, *absent), what(*by))?;
                }
                Some(PassedOver::Absent(absent)) => write!(f, "passed over: {}", NoConnection(*to, *absent))?,
                None if chosen < at => f.write_str("not asked")?,
                None => f.write_str(what(rule.by))?,
            }
            if chosen == at && rule.by == Protocol::Eager {
                self.write_first(f)?;
            }
            if chosen >= at && rule.when.contains(&Condition::Measured) {
                let turns = format!(", {low} to {high} in turns with rget to measure which is faster");
                write!(f, " (from {high} bytes on{})", if low < high { &turns } else { "" })?;
            }
        }
        Ok(())
    }
}

const fn what(by: Protocol) -> &'static str {
    match by {
        Protocol::Eager => "one packet, copied at both ends",
        Protocol::RcSr => "one packet over the connection, copied at both ends",
        Protocol::UdSr => "one packet in datagrams, copied at both ends",
        Protocol::RcFp => "one packet by the fast path, copied at both ends",
        Protocol::Offered => "copied once, out of the sender's slice",
        Protocol::Rget => "copied by the sender, read by the receiver",
        Protocol::Rput => "copied by the sender, written to the receiver when it is ready",
        Protocol::Pipeline => "as rput, in pieces that are registered while others move",
        Protocol::UdZcopy => "copied by the sender, as datagrams to where the receiver has it, when that is ready",
        Protocol::Copy => "copied by both, in packets that the receiver has room for",
    }
}

impl<F: Fabric> Messages<F> {
    /// How a [`send`](Self::send) of so many bytes out of a slice goes to a rank, and why. What is longer
    /// than 2 KiB is eager only if there is room at once; and a message whose memory cannot be registered, or
    /// whose ranks have no connection, goes by [UD-ZCopy](Protocol::UdZcopy) or [copy](Protocol::Copy) where it would be read
    /// or written.
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
        let rank = self.rank("explain", to).map_err(|error| *error)?;
        let room = self.progress().packet_room(rank);
        let eager = if bytes <= room as u64 { Ok(()) } else { Err(LONG) };
        let features = Features { messages: self, to: rank, bytes, is_registered: false, eager, offered: Ok(()) };
        let applied = &self.progress().rules;
        let (rules, origin) = applied.said();
        Ok(Explanation {
            to,
            bytes,
            choice: features.choose(rules.chain()),
            eager_max: room.min(usize::try_from(rules.surely_eager().max(EAGER_LEAST)).unwrap_or(usize::MAX)),
            first: self.progress().first_of_several(rank, bytes),
            passed_over: rules.chain().iter().map(|rule| features.passes_over(rule)).collect(),
            rules,
            origin,
            measured: applied.measured.bound(),
        })
    }
}
