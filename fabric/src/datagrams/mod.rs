//! Reliable packets over unreliable datagrams (koop-2008, section 5.1: UD-SR).
//!
//! [`DatagramChannel`] is the protocol machine, without I/O, clock or threads:
//!
//! | file | contains |
//! |---|---|
//! | `header` | the header of each datagram |
//! | `window` | how many packets may be on their way, and the timeout |
//! | `sender` | packets of one peer until they are acknowledged |
//! | `receiver` | packets of one peer in order, and their acknowledgement |
//! | `channel` | all peers of a rank |
//! | `placement` | which datagrams of a message came where, of those that no machine orders |
//! | `transport` | the machine over a fabric's [`Datagrams`], and the packets of its rank |
//!
//! A packet has a number of 32 bits, which wraps. Every datagram acknowledges: the first packet
//! that its sender lacks, and which of the 64 after that it has. A receiver acknowledges at once
//! when it is asked to, by every quarter of a window, and when a packet came out of order or again;
//! otherwise with the next packet that it sends, or after half of the round-trip time, 50 us to 1
//! ms.
//!
//! A packet is sent again when three that were sent after it have arrived. When nothing arrives, a
//! timer ends after 100 us to 10 ms, by the smoothed round-trip time: first the receiver is asked for
//! an acknowledgement, and what its answer lacks is sent again; at a second end without an answer all
//! is sent again. The window has 2 to 256 packets, and a receiver tells how many it has room for. A
//! peer that has not answered for 8 s is lost.
//!
//! # A second channel
//!
//! Beside its datagrams a rank may have a reliable, ordered [channel](crate::Channel) to a peer. The two
//! have one sequence: a packet gets the next number whichever channel it takes, bears it there too
//! (`number_apart`), and is taken in that order out of the store of the receiver, which keeps at most 256
//! packets of a peer that came early. The sender sees to that: no packet is further ahead than 256 of the
//! first datagram that was not acknowledged, and a datagram that was never sent goes before it. Without
//! such a datagram there is no limit but the channel's own, and nothing is acknowledged. A packet of the
//! other channel is not sent again, and has its place in the sequence only until what was before it is
//! acknowledged. One from further ahead than 256 violates the protocol. Which channels there
//! are to a peer is asked for each packet (`Transport::channels`): first datagrams alone, and the connection
//! before them once it is there. It is asked for when so many messages count (`Transport::count`), and no packet
//! waits for it. The order holds on the way back to datagrams, too.
//!
//! Packets of the other channel may be *kept* ([`DatagramChannel::keeping`]), for which that channel need not be
//! reliable: they stay with the sender until they are acknowledged, like datagrams, and are no part of the window.
//! When the channel fails (`lose_apart`), those that were not acknowledged are lost datagrams, and sent again as such;
//! the receiver drops what it has. Packets of the channel acknowledge without a datagram. The receiver sends one
//! for each 64th packet, and otherwise after the time that an acknowledgement may wait.
//!
//! # The fast path
//!
//! Packets may also be written into slots that their receiver looks at ([`Channel::FastPath`](crate::Channel)). They are
//! packets of the other channel with two differences: each is acknowledged, at once for every eighth if none goes back,
//! and until then has its place in the sequence and its slot (`has_slot`); and none is written unless another packet
//! has left over the connection within a millisecond, because a slot wakes nobody.
//!
//! # What wakes a handler
//!
//! Datagrams that ask are solicited, as each transmission of a packet that starts a transfer is:
//! they wake a handler that is armed, which answers. Acknowledgements wake none; a handler looks
//! for them at the end of the machine's timer.

mod channel;
mod header;
mod placement;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;
mod transport;
mod window;

pub use channel::{DatagramChannel, DatagramCounts, Identity};
pub use placement::{Placement, Places};
pub use transport::{Apart, Connecting, DatagramTransport, DatagramWaits, Datagrams, Machine, Posted, SharedMachine};
