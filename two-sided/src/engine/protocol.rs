//! The protocols by which a message goes.

use onesided_fabric::{Channel, entries};

entries! {
    /// How a message goes to its receiver, and who moves it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[non_exhaustive]
    pub enum Protocol {
        /// In one packet, which the receiver copies: by the fast path or the connection of the two if there is one,
        /// otherwise as the fabric has it.
        Eager => "eager",
        /// The same over a connection alone (RC-SR: koop-2008).
        RcSr => "rc-sr",
        /// The same in datagrams alone (UD-SR).
        UdSr => "ud-sr",
        /// The same written into memory that the receiver looks at (RC-FP): a short message.
        RcFp => "rc-fp",
        /// The receiver copies out of the sender's slice, and a sender that waits helps.
        Offered => "offered",
        /// The receiver reads it by RDMA out of registered memory of the sender (sur-2006, section 4): a
        /// sender that computes does not hold it up.
        #[default]
        Rget => "rget",
        /// The sender writes it by RDMA into registered memory, when the receiver has said where to
        /// (sur-2006, section 3): it moves when both sides are in a call, one after the other.
        Rput => "rput",
        /// As [`Rput`](Self::Rput), in pieces of 64 to 512 KiB, longer ones from 32 MiB on (woodall-2006): on
        /// a card each side registers a piece while the one before moves. It pays for memory that no
        /// earlier message had.
        Pipeline => "pipeline",
        /// The sender sends it as datagrams that the receiver's card puts into registered memory (UD-ZCopy: koop-2008), when
        /// the receiver has said where to: nothing is copied, and no connection is needed. Those that are lost come in
        /// packets. A message of up to 4096 datagrams between ranks of cards: from 64 KiB on any that would be read or
        /// written, and for which the two have no connection.
        UdZcopy => "ud-zcopy",
        /// In packets of which at most 128 KiB are on their way: both sides copy them, and no memory is
        /// registered (copy: woodall-2006). Any message goes so whose memory cannot be registered (the limit
        /// of `ulimit -l`), at either side, or for which the two have no connection to read or write over and no [other
        /// way](Self::UdZcopy).
        Copy => "copy",
    }
    pub(crate) const ALL;
    fn name;
}

impl Protocol {
    /// Whether the message is in its first packet.
    pub(crate) const fn is_eager(self) -> bool {
        matches!(self, Self::Eager | Self::RcSr | Self::UdSr | Self::RcFp)
    }

    /// The channel that it names.
    pub(crate) const fn channel(self) -> Option<Channel> {
        match self {
            Self::RcSr => Some(Channel::Connection),
            Self::UdSr => Some(Channel::Datagrams),
            Self::RcFp => Some(Channel::FastPath),
            _ => None,
        }
    }

    /// Whether the sender moves an announced message.
    pub(crate) const fn is_written(self) -> bool {
        matches!(self, Self::Rput | Self::Pipeline | Self::UdZcopy | Self::Copy)
    }
}
