//! Why a message goes as it goes.

use std::fmt;

use onesided_fabric::Fabric;

use crate::driver::rules::{Choice, EAGER_LEAST, OfferedFrom, Origin, Rules, TO_ONESELF};
use crate::engine::QUEUED_MAX;
use crate::{Error, Messages, Protocol};

/// What is offered.
const ONCE: &str = "copied once, out of the sender's slice";

/// How messages of a length go to a rank, and why. See [`Messages::explain`].
///
/// Shown as a table, a protocol a line in the order in which they are tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    to: u32,
    bytes: u64,
    protocol: Protocol,
    eager_max: usize,
    choice: Choice,
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
        let Self { to, bytes, protocol, eager_max, choice: Choice { offered, .. }, rules, origin } = self;
        write!(f, "{bytes} bytes to rank {to}: {protocol}")?;
        let is_rule = rules.eager.is_some_and(|bytes| bytes.max(EAGER_LEAST) as usize == *eager_max);
        let rule = if is_rule { format!(" ({origin})") } else { String::new() };
        let at_once = match *eager_max > QUEUED_MAX {
            true => format!(", more than {QUEUED_MAX} if there is room at once"),
            false => String::new(),
        };
        let (is_own, who) = (*offered == Err(TO_ONESELF), format!("any length ({origin})"));
        let set = |rendezvous, what: &str, otherwise: &str| match rules.rendezvous == rendezvous {
            _ if is_own => "never: a message to oneself is copied once or twice".into(),
            true => format!("{who}: {what}"),
            false => otherwise.into(),
        };
        let not_set = "never: it is not set (Messages::set_rules)";
        let offered = match (offered, rules.offered) {
            (Err(why), _) => format!("never: {why}"),
            (Ok((low, high)), OfferedFrom::Measured) if low < high => {
                let turns = format!("from {low} on in turns with rget until it is known which is faster");
                format!("at least {high} bytes, {turns}: {ONCE}")
            }
            (Ok((low, _)), OfferedFrom::Measured) => format!("at least {low} bytes (measured): {ONCE}"),
            (Ok((low, _)), _) => format!("at least {low} bytes ({origin}): {ONCE}"),
        };
        let written = "copied by the sender, written to the receiver when it is ready";
        let in_pieces = "as rput, in pieces that are registered while others move";
        let in_packets = "copied by both, in packets that the receiver has room for";
        let refused = "only if memory cannot be registered, or peers have no connection";
        let read = match is_own {
            true => "any length: copied by the send and by the receive; the send completes without a receive".into(),
            false => set(Protocol::Rget, "copied by the sender, read by the receiver", not_set),
        };
        for (tried, what) in [
            (Protocol::Eager, format!("at most {eager_max} bytes{rule}{at_once}: one packet, copied at both ends")),
            (Protocol::Offered, offered),
            (Protocol::Rput, set(Protocol::Rput, written, not_set)),
            (Protocol::Pipeline, set(Protocol::Pipeline, in_pieces, not_set)),
            (Protocol::Copy, set(Protocol::Copy, in_packets, refused)),
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
        let rank = self.rank("explain", to).map_err(|error| *error)?;
        let (eager_max, choice) = (self.progress().eager_max(rank), self.choose(rank));
        let (rules, origin) = self.progress().rules.said();
        let is_eager = bytes <= eager_max as u64;
        let protocol = if is_eager { Protocol::Eager } else { choice.protocol(bytes) };
        Ok(Explanation { to, bytes, protocol, eager_max, choice, rules, origin })
    }
}
