//! What the simulator keeps of a rank: little, there may be very many.

use std::collections::VecDeque;

use remote_memory::{Fault, Message, Port};

use crate::memory::Memory;
use crate::report::WaitsFor;

/// A rank.
#[derive(Debug, Default)]
pub(crate) struct RankState {
    pub(crate) memory: Memory,
    /// By target.
    connections: Vec<Connection>,
    /// What its futures wait for that is no operation of its own.
    pub(crate) waiting: Vec<WaitsFor>,
    /// Messages that arrived, by port; there from the first one on.
    ports: Option<Box<[VecDeque<Message>; Port::COUNT]>>,
    /// From when on its card can send and receive.
    pub(crate) sends_at: u64,
    pub(crate) receives_at: u64,
    /// Until when it polls; then it sleeps.
    pub(crate) polls_until: u64,
    /// Operations that have not completed.
    pub(crate) under_way: u32,
    pub(crate) life: Life,
}

/// A rank's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Life {
    #[default]
    Alive,
    /// It has closed its end, and leaves when its operations are complete.
    Closing,
    /// Everybody knows that it left.
    Left,
    /// It died, and nobody knows.
    Killed,
    /// Everybody knows that it died.
    Dead,
}

impl Life {
    /// Whether its memory is gone.
    pub(crate) const fn is_over(self) -> bool {
        matches!(self, Self::Killed | Self::Dead)
    }
}

/// The way from a rank to a target.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    target: u32,
    /// Messages under way or unread.
    pub(crate) unread: u32,
    /// Operations ever posted and completed, wrapping.
    pub(crate) posted: u32,
    pub(crate) completed: u32,
    /// Answers with bulk data under way.
    pub(crate) bulky: u32,
    /// Nothing arrives, or completes, before what was posted before it.
    pub(crate) arrives_at: u64,
    pub(crate) completes_at: u64,
    /// The first fault that nobody awaited.
    pub(crate) fault: Option<Fault>,
}

impl RankState {
    /// The connection to a target.
    pub(crate) fn connection(&mut self, target: u32) -> &mut Connection {
        let found = self.connections.binary_search_by_key(&target, |connection| connection.target);
        let index = found.unwrap_or_else(|index| {
            if self.connections.is_empty() {
                self.connections.reserve_exact(1); // most ranks of a large world have few
            }
            self.connections.insert(index, Connection { target, ..Connection::default() });
            index
        });
        &mut self.connections[index]
    }

    /// The queue of a port.
    pub(crate) fn port(&mut self, port: Port) -> &mut VecDeque<Message> {
        &mut self.ports.get_or_insert_default()[usize::from(port.0)]
    }
}
