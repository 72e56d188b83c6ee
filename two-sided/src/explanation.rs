//! Why a message goes as it goes.

use std::fmt;

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::Rank;

use crate::offered::SHORTEST;
use crate::{Error, Messages};

/// Why no slice is offered to the rank that sends.
const TO_ONESELF: &str = "a message to oneself is copied before the call returns";

/// How a message goes to its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Protocol {
    /// In one packet, which the receiver copies.
    Eager,
    /// The receiver copies out of the sender's slice, and a sender that waits helps.
    Offered,
    /// The sender copies it into registered memory, which the receiver reads by RDMA (RGET).
    Rendezvous,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Eager => "eager",
            Self::Offered => "offered",
            Self::Rendezvous => "rendezvous",
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
}

impl Explanation {
    /// The protocol of such a message.
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
        let Self { to, bytes, protocol, eager_max, never_offered } = self;
        write!(f, "{bytes} bytes to rank {to}: {protocol}")?;
        for (tried, what) in [
            (Protocol::Eager, format!("at most {eager_max} bytes: one packet, copied at both ends")),
            (
                Protocol::Offered,
                never_offered.map_or_else(
                    || format!("at least {SHORTEST} bytes: copied once, out of the sender's slice"),
                    |why| format!("never: {why}"),
                ),
            ),
            (
                Protocol::Rendezvous,
                if *never_offered == Some(TO_ONESELF) {
                    "any length: copied by the send and by the receive; the send completes without a receive".into()
                } else {
                    "any length: copied by the sender, read by the receiver".to_string()
                },
            ),
        ] {
            let mark = if tried == *protocol { '>' } else { ' ' };
            write!(f, "\n{mark} {tried:10}  {what}")?;
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
        let protocol = if bytes <= eager_max as u64 {
            Protocol::Eager
        } else if never_offered.is_none() && bytes >= SHORTEST as u64 {
            Protocol::Offered
        } else {
            Protocol::Rendezvous
        };
        Ok(Explanation { to, bytes, protocol, eager_max, never_offered })
    }

    /// Whether a slice is offered to a rank.
    pub(crate) fn is_offered(&self, to: Rank, len: usize) -> bool {
        len >= SHORTEST && self.never_offered(to).is_none()
    }

    fn never_offered(&self, to: Rank) -> Option<&'static str> {
        let fabric = self.world().fabric();
        if to == fabric.rank() {
            Some(TO_ONESELF)
        } else if fabric.processes().is_none() {
            Some("this fabric does not copy between processes, or ONESIDED_PROCESS_VM=off is set")
        } else if !self.may_offer() {
            Some("a process of the communicator may not read another's memory (process_vm_readv)")
        } else {
            None
        }
    }
}
