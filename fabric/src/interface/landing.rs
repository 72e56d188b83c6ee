//! Memory that datagrams are received into (UD-ZCopy: koop-2008, section 3.2).

use std::fmt::Debug;
use std::pin::Pin;
use std::task::{Context, Poll};

use onesided_remote_memory::Fault;

/// Memory of this rank into which the datagrams of one message are received, each by its own receive. When it is
/// dropped no datagram of that message reaches the memory any more.
pub trait Landing: Debug + Send {
    /// Ends it, once its sender has said that all datagrams have left. It waits for those that are late for a short time,
    /// and moves to its place what came in another one's receive.
    ///
    /// # Errors
    /// `Closed` if the memory was reclaimed.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<Result<Missing, Fault>>;
}

/// What did not come of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "all of it")]
pub struct Missing {
    /// The bytes of a datagram, but of the last one.
    pub unit: u32,
    /// The numbers of those that are missing, in order.
    pub datagrams: Vec<u32>,
}

/// The datagrams of a message on their way to a [landing](Landing). It is ready when they have left: the memory may be
/// reused.
pub type Launch = Pin<Box<dyn Future<Output = Result<(), Fault>> + Send>>;
