//! The transport: packets between ranks, beneath messages.
//!
//! A packet is a message of a protocol: the matching engine of `onesided-two-sided` writes and reads
//! them. What is too long for a packet is moved by the fabric's transfers
//! ([`Fabric::rdma_read`](crate::Fabric::rdma_read)), which packets announce.
//!
//! Nothing here blocks. A call that cannot be done now is `Pending`, as for futures, and the waker
//! is woken when it may be.

use std::fmt::Debug;
use std::future::poll_fn;
use std::task::{Context, Poll};

use onesided_remote_memory::{Fault, FaultKind, Patience, Rank, entries};

use crate::NOBODY;

entries! {
    /// A way of packets from one rank to another, of a kind: what breaks, is full, and has a longest packet.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[non_exhaustive]
    pub enum Channel {
        /// A ring in shared memory, of two ranks of a host.
        Lane => "lane",
        /// A reliable connection, whose packets wait in the receive queue of all connections of their receiver.
        Connection => "connection",
        /// Datagrams, which are acknowledged and sent again.
        Datagrams => "datagrams",
        /// Memory of the receiver, which it looks at, and which the sender writes over the connection of the two. What
        /// arrives there wakes nobody.
        FastPath => "fast-path",
    }
    /// All kinds.
    pub const ALL;
    /// The name in statistics.
    pub fn name;
}

/// A channel from one rank to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelTo {
    /// Its kind.
    pub channel: Channel,
    /// The longest packet in bytes, at least [`SHORTEST_LIMIT`].
    pub packet_max: usize,
    /// Whether a packet arrives after the bytes of the [writes](crate::Fabric::rdma_write) that the
    /// sender has posted to the same rank before it, [for messages](crate::Fabric::for_messages), and not
    /// at all if one of them fails on its way. Otherwise it may be sent once they are complete.
    pub follows_writes: bool,
}

/// Why there is no [connection](Channel::Connection) to a rank, over which packets to it may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Absent {
    /// It is made when there are so many messages [for it](Transport::count).
    Counted {
        /// Those that have been counted.
        messages: u32,
        /// The limit.
        of: u32,
    },
    /// It is being made.
    Asked,
    /// One of the two ranks had as many connections as it may have, or could make none. It is asked for again
    /// when so many messages have counted since.
    Refused {
        /// Those that have been counted.
        messages: u32,
        /// The limit.
        of: u32,
    },
}

/// The channels of a kind that a rank has now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelMemory {
    /// How many: connections to ranks, queues of datagrams, fast paths of ranks to this one.
    pub count: u32,
    /// The bytes of this rank's memory that they take: buffers of packets that arrive, which all connections share, and of
    /// datagrams that leave; rings of fast paths; and [64](Self::REQUEST) for each request that their queues have room
    /// for, which is the driver's memory. Completion queues, buffers that all operations share, and what a card keeps
    /// of its own do not count.
    pub bytes: u64,
}

impl ChannelMemory {
    /// The bytes that a driver has for a request in a queue: those of mlx5, with one piece of memory or few bytes inline.
    pub const REQUEST: u64 = 64;
}

/// What became of the channels of a rank since its start, and what those of now take of its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChannelCounts {
    /// Connections that were made for messages.
    pub made: u64,
    /// Those that were refused, because one of the two ranks had as many as it may have, or could make none.
    pub refused: u64,
    /// Those that were given back.
    pub given_back: u64,
    /// [Fast paths](Channel::FastPath) to this rank that it has made.
    pub rings: u64,
    /// Datagrams that were sent again.
    pub resent: u64,
    /// Packets that came before one that had been sent earlier.
    pub overtook: u64,
    /// Datagrams that were [received into their place](crate::Fabric::land).
    pub landed: u64,
    /// Those that were received into another one's, and moved.
    pub moved: u64,
    /// Those that were lost, and came as packets.
    pub missing: u64,
    /// The memory of each [kind](Channel::ALL) (koop-2008, figure 3(a)). Lanes are the job's.
    pub memory: [ChannelMemory; Channel::ALL.len()],
}

/// A packet to be sent: the bytes of `head`, then those of `body`.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'b> {
    /// The way that it takes, one [there is](Transport::channels).
    pub channel: Channel,
    /// The first bytes.
    pub head: &'b [u8],
    /// The bytes behind them.
    pub body: &'b [u8],
    /// Whether it also wakes the receiver's handler, where the fabric has [such
    /// events](crate::Fabric::events). Packets for which the receiver is to make room wake it in any case.
    pub solicited: bool,
}

impl<'b> Packet<'b> {
    /// A packet that wakes no handler.
    #[must_use]
    pub const fn new(channel: Channel, head: &'b [u8]) -> Self {
        Self { channel, head, body: &[], solicited: false }
    }

    /// Whether it has at most `max` bytes.
    ///
    /// # Errors
    /// `TooLong`.
    pub fn check(&self, max: usize) -> Result<(), Fault> {
        let len = self.head.len() + self.body.len();
        if len > max { Err(Fault::new(FaultKind::TooLong).with_detail(len as u32)) } else { Ok(()) }
    }
}

/// A packet that has arrived: its sender, its way, and its length in bytes. Its bytes are
/// [read](Transport::read) until the next packet is received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The sender.
    pub from: Rank,
    /// The way it took.
    pub channel: Channel,
    /// The length in bytes.
    pub len: usize,
}

/// The packets of a rank. There is one owner, so nothing is locked.
///
/// Packets arrive exactly once, whole, and in order from one sender by one channel. A sender that dies loses those
/// that it was sending, and none that had arrived.
pub trait Transport: Debug + Send + 'static {
    /// The channels to a rank that there are now, of which there is one to begin with: a packet may take
    /// any of them. A [fast path](Channel::FastPath) is the last.
    fn channels(&self, to: Rank) -> &[ChannelTo];

    /// The channel for a message to a rank in a packet of so many bytes: the fast path, if that has room for them now,
    /// else the first. The message counts for a connection that is not there and would be first: when there are enough,
    /// it is made (koop-2008, section 5.4).
    #[inline]
    fn count(&mut self, to: Rank, bytes: usize) -> ChannelTo {
        let _ = bytes;
        self.channels(to)[0]
    }

    /// Whether there may be [fast paths](Channel::FastPath).
    fn has_fast_path(&self) -> bool {
        false
    }

    /// Why there is no connection to a rank. `None`: there is, or never is.
    #[inline]
    fn absent(&self, to: Rank) -> Option<Absent> {
        let _ = to;
        None
    }

    /// What became of this rank's channels so far.
    fn channel_counts(&self) -> ChannelCounts {
        ChannelCounts::default()
    }

    /// Sends a packet by its channel. When it is ready the packet has left, the slices may be reused, and
    /// a sleeping receiver is woken. `Pending`: nothing was sent, because there is no room. A fast path is short of
    /// that often: the packet takes the first channel then.
    ///
    /// # Errors
    /// `TooLong`, `NoSuchRank`, `PeerDied`, `PeerLeft`, `Revoked`; `ConnectionLost` if packets reach
    /// the rank no more, though it lives.
    fn poll_send(&mut self, cx: &mut Context<'_>, to: Rank, packet: Packet<'_>) -> Poll<Result<(), Fault>>;

    /// Begins a list, or ends it: in one a packet that [is sent](Self::poll_send) may leave later, at the
    /// end at the latest. Cards post lists with one doorbell. Nothing but sends comes before the end.
    fn set_list(&mut self, is_open: bool) {
        let _ = is_open;
    }

    /// Receives the next packet from any rank, and gives the memory of the last one back.
    ///
    /// # Errors
    /// `TimedOut`, `PeerDied`, `PeerLeft` as [`Patience`] says, and `ConnectionLost`, which may be
    /// [of one connection](Self::renewed); packets that have arrived come first. `Protocol`, which
    /// names the sender, if its packets cannot be read any more.
    fn poll_recv(&mut self, cx: &mut Context<'_>, patience: Patience) -> Poll<Result<Arrival, Fault>>;

    /// Receives the next packet if one has arrived, for a caller that waits for nothing: what ends a wait
    /// may be left to [`poll_recv`](Self::poll_recv). `me`: this rank.
    ///
    /// # Errors
    /// As [`poll_recv`](Self::poll_recv).
    #[inline]
    fn try_recv(&mut self, me: Rank) -> Poll<Result<Arrival, Fault>> {
        self.poll_recv(&mut Context::from_waker(NOBODY), Patience::on(me))
    }

    /// Polls up to `polls` times for the next packet, and returns early when one may have arrived.
    /// For transports where this costs less than a [`poll_recv`](Self::poll_recv) that finds
    /// nothing; the default does nothing.
    #[inline]
    fn spin(&mut self, polls: u32) {
        let _ = polls;
    }

    /// Whether the lost connection to a rank that [`poll_recv`](Self::poll_recv) has just reported is
    /// made anew. What came over it was received before the report; packets that are sent from now on
    /// go over the next one, and none that was sent to this rank before arrives any more.
    fn renewed(&mut self, rank: Rank) -> Option<Renewed> {
        let _ = rank;
        None
    }

    /// Copies bytes of the packet that was received last, from this offset on. Bytes beyond its end
    /// are unspecified.
    fn read(&self, offset: usize, into: &mut [u8]);

    /// The first bytes of the packet that was received last, as [`read`](Self::read) copies them.
    #[inline]
    fn first(&self) -> [u8; SHORTEST_LIMIT] {
        let mut first = [0; SHORTEST_LIMIT];
        self.read(0, &mut first);
        first
    }

    /// [Sends](Self::poll_send) the bytes by the channel for which they [count](Self::count).
    ///
    /// # Errors
    /// As [`poll_send`](Self::poll_send).
    ///
    /// # Cancel safety
    /// A future that is dropped before it is ready has sent nothing.
    fn send(&mut self, to: Rank, bytes: &[u8]) -> impl Future<Output = Result<(), Fault>> + Send {
        let fast = Some(self.count(to, bytes.len()).channel).filter(|channel| *channel == Channel::FastPath);
        poll_fn(move |cx| {
            if let Some(fast) = fast
                && let Poll::Ready(sent) = self.poll_send(cx, to, Packet::new(fast, bytes))
            {
                return Poll::Ready(sent);
            }
            let channel = self.channels(to)[0].channel; // the one before may have been given back
            self.poll_send(cx, to, Packet::new(channel, bytes))
        })
    }

    /// [Receives](Self::poll_recv) a packet: its sender and its bytes.
    ///
    /// # Errors
    /// As [`poll_recv`](Self::poll_recv).
    ///
    /// # Cancel safety
    /// Dropping the future loses no packet.
    fn recv(&mut self, patience: Patience) -> impl Future<Output = Result<(Rank, Vec<u8>), Fault>> + Send {
        poll_fn(move |cx| {
            self.poll_recv(cx, patience).map_ok(|Arrival { from, len, .. }| {
                let mut bytes = vec![0; len];
                self.read(0, &mut bytes);
                (from, bytes)
            })
        })
    }
}

/// A connection that is made anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// Its kind; the other channels to the rank are as they were.
    pub channel: Channel,
    /// Whether a packet that this rank sent over the last one is not known to have arrived.
    pub is_missing: bool,
}

/// What every transport's packets may have, in bytes.
pub const SHORTEST_LIMIT: usize = 48;
