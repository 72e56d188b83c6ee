//! Small messages, for services that a thread at the target runs.

use core::fmt;
use core::future::Future;

use crate::{Fault, FaultKind, Notify, Patience, Rank, RemoteMemory};

/// The longest message in bytes: with its header it fills one cache line.
pub const MAX_MESSAGE: usize = 48;

/// A receive queue of a rank. Each port has a queue of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Port(pub u8);

impl Port {
    /// The number of ports of a rank.
    pub const COUNT: usize = 8;
    /// Requests to the lock servers of jiang-2004, section 4.
    pub const LOCKS: Self = Self(0);
    /// The messaging engine.
    pub const MESSAGES: Self = Self(1);
    /// The first port that the library leaves to applications.
    pub const USER: Self = Self(4);
}

/// A received message.
#[derive(Clone, Copy)]
pub struct Message {
    /// The sender.
    pub from: Rank,
    length: u8,
    bytes: [u8; MAX_MESSAGE],
}

impl Message {
    /// Creates a message from these bytes.
    ///
    /// # Errors
    /// `TooLong` above [`MAX_MESSAGE`].
    pub fn new(from: Rank, bytes: &[u8]) -> Result<Self, Fault> {
        let mut message = Self { from, length: bytes.len() as u8, bytes: [0; MAX_MESSAGE] };
        match message.bytes.get_mut(..bytes.len()) {
            Some(room) => room.copy_from_slice(bytes),
            None => return Err(Fault::new(FaultKind::TooLong).with_detail(bytes.len() as u32)),
        }
        Ok(message)
    }

    /// The payload.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("from", &self.from).field("bytes", &self.bytes()).finish()
    }
}

/// Small messages between ranks: delivered exactly once, and in order from one sender to one port
/// of one receiver.
pub trait Mailbox: RemoteMemory {
    /// See [`send`](Self::send).
    type Send<'f>: Future<Output = Result<(), Fault>> + Unpin + Send;
    /// See [`recv`](Self::recv).
    type Recv<'f>: Future<Output = Result<Message, Fault>> + Unpin + Send;

    /// Sends a message. The future is ready once the message has left, which is at the first poll
    /// unless the receive queue is full. While it is full, the future waits for space up to the
    /// fabric's timeout (one minute by default), counted from the first poll that found none.
    /// [`Notify::Yes`] wakes a sleeping receiver.
    ///
    /// # Errors
    /// `TooLong`, `NoSuchRank`, `Protocol` (no such port), `PeerDied`, `PeerLeft`; `Full`, which
    /// names the receiver, if its queue had no space within the timeout: nothing was sent, and the
    /// caller may retry.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is ready has sent nothing, or the whole message.
    fn send<'f>(&'f self, to: Rank, port: Port, bytes: &[u8], notify: Notify) -> Self::Send<'f>;

    /// Receives the next message of a port, from any sender.
    ///
    /// # Errors
    /// `TimedOut`, `PeerDied`, `PeerLeft` as [`Patience`] says. Messages that have arrived are
    /// returned first.
    ///
    /// # Cancel safety
    /// Dropping the future loses no message.
    fn recv<'f>(&'f self, port: Port, patience: Patience) -> Self::Recv<'f>;
}
