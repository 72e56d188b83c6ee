//! Small messages, for what a thread at the target serves.

use core::fmt;
use core::future::Future;

use crate::{Fault, FaultKind, Notify, Patience, Rank, RemoteMemory};

/// The longest message in bytes: with its header it fills one cache line.
pub const MAX_MESSAGE: usize = 48;

/// Who at the receiving rank a message is for. Each port is a queue of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Port(pub u8);

impl Port {
    /// How many ports a rank has.
    pub const COUNT: usize = 8;
    /// Requests to the lock threads of jiang-2004, section 4.
    pub const LOCKS: Self = Self(0);
    /// The messaging engine.
    pub const MESSAGES: Self = Self(1);
    /// The first of those that the library leaves to its users.
    pub const USER: Self = Self(4);
}

/// A message as it arrived.
#[derive(Clone, Copy)]
pub struct Message {
    /// Who sent it.
    pub from: Rank,
    length: u8,
    bytes: [u8; MAX_MESSAGE],
}

impl Message {
    /// A message of these bytes.
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

    /// What was sent.
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

/// Small messages between ranks: in order between one sender and one port of one receiver, never lost, never doubled.
pub trait Mailbox: RemoteMemory {
    /// See [`send`](Self::send).
    type Send<'f>: Future<Output = Result<(), Fault>> + Unpin + Send;
    /// See [`recv`](Self::recv).
    type Recv<'f>: Future<Output = Result<Message, Fault>> + Unpin + Send;

    /// Sends a message. It has left when the future is ready: at once, unless the way to the receiver is full. It waits for
    /// room for as long as the fabric is told to (a minute, if nothing else is said), counted from the first poll that found
    /// none.
    /// [`Notify::Yes`] wakes a receiver that sleeps.
    ///
    /// # Errors
    /// `TooLong`, `NoSuchRank`, `Protocol` (no such port), `PeerDied`, `PeerLeft`; `Full`, naming the receiver, where it made
    /// no room in that time: nothing was sent, and it may be tried again.
    ///
    /// # Cancel safety
    /// A future that was dropped before it was ready has sent nothing, or all of it.
    fn send<'f>(&'f self, to: Rank, port: Port, bytes: &[u8], notify: Notify) -> Self::Send<'f>;

    /// Receives the next message of a port, from whoever sent it.
    ///
    /// # Errors
    /// `TimedOut`, `PeerDied`, `PeerLeft` as [`Patience`] says; messages that have arrived come first.
    ///
    /// # Cancel safety
    /// No message is lost by dropping the future.
    fn recv<'f>(&'f self, port: Port, patience: Patience) -> Self::Recv<'f>;
}
