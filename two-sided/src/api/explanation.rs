//! Why a message goes as it goes.

use std::fmt;

use onesided_fabric::Fabric;

use crate::api::rules::{Choice, Features, PassedOver};
use crate::driver::rules::{Condition, Origin, Rules};
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

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { to, bytes, choice, rules, passed_over, origin, measured: (low, high), .. } = self;
        write!(f, "{bytes} bytes to rank {to}: {}, ", choice.by)?;
        let chosen = match choice.rule {
            Ok(place) => place,
            Err(why) => return f.write_str(why),
        };
        write!(f, "by rule {} of {} ({origin})", chosen + 1, passed_over.len())?;
        let shown: Vec<_> = rules.chain().iter().map(ToString::to_string).collect();
        let width = shown.iter().map(String::len).max().unwrap_or_default();
        for (at, (rule, passed_over)) in rules.chain().iter().zip(passed_over).enumerate() {
            let mark = if chosen == at { '>' } else { ' ' };
            write!(f, "\n{mark} {:width$}  ", shown[at])?;
            match passed_over {
                Some(PassedOver::Condition(condition)) => write!(f, "passed over: not {condition}")?,
                Some(PassedOver::Lacks(why)) => write!(f, "passed over: {why}")?,
                None if chosen < at => f.write_str("not asked")?,
                None => f.write_str(what(rule.by))?,
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
        Protocol::Offered => "copied once, out of the sender's slice",
        Protocol::Rget => "copied by the sender, read by the receiver",
        Protocol::Rput => "copied by the sender, written to the receiver when it is ready",
        Protocol::Pipeline => "as rput, in pieces that are registered while others move",
        Protocol::Copy => "copied by both, in packets that the receiver has room for",
    }
}

impl<F: Fabric> Messages<F> {
    /// How a [`send`](Self::send) of so many bytes out of a slice goes to a rank, and why. What is longer
    /// than 2 KiB is eager only if there is room at once; and a message whose memory cannot be registered, or
    /// whose ranks have no connection, goes by [copy](Protocol::Copy) where it would be read or written.
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
        let eager = if bytes <= room as u64 { Ok(()) } else { Err("it is longer than a packet") };
        let features = Features { messages: self, to: rank, bytes, is_registered: false, eager, offered: Ok(()) };
        let applied = &self.progress().rules;
        let (rules, origin) = applied.said();
        Ok(Explanation {
            to,
            bytes,
            choice: features.choose(rules.chain()),
            eager_max: room.min(usize::try_from(applied.eager()).unwrap_or(usize::MAX)),
            passed_over: rules.chain().iter().map(|rule| features.passes_over(rule)).collect(),
            rules,
            origin,
            measured: applied.measured.bound(),
        })
    }
}
