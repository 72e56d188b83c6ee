//! The kinds of connections, and their names.

use onesided_remote_memory::{Rank, entries};
use serde::{Deserialize, Serialize};

entries! {
    /// What a connection is for. Each has its own queue pair. What waits for a receive holds up its own kind
    /// alone. A connection that breaks ends its own kind, and that of messages its rails too.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
    pub(super) enum Traffic {
        /// Windows and locks.
        #[default]
        Memory,
        /// Packets, and the data of messages.
        Messages,
        /// A part of the data of long messages (`rails`).
        SecondRail,
        /// The same.
        ThirdRail,
    }
    pub(super) const ALL;
}

impl Traffic {
    /// Those that long messages are divided among.
    pub(super) const RAILS: [Self; 3] = [Self::Messages, Self::SecondRail, Self::ThirdRail];

    /// Its place among the rails; that of the connection of memory is the first one's.
    pub(super) const fn rail(self) -> usize {
        match self {
            Self::Memory | Self::Messages => 0,
            Self::SecondRail => 1,
            Self::ThirdRail => 2,
        }
    }

    /// Whether it is for the data of messages alone.
    pub(super) const fn is_further_rail(self) -> bool {
        matches!(self, Self::SecondRail | Self::ThirdRail)
    }
}

/// Names a connection of this rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionId {
    pub(super) rank: Rank,
    pub(super) traffic: Traffic,
}

impl Default for ConnectionId {
    /// The first one.
    fn default() -> Self {
        Self::of(0)
    }
}

impl ConnectionId {
    /// Those of all ranks are numbered from 0.
    #[inline]
    pub(super) const fn number(self) -> usize {
        Traffic::ALL.len() * self.rank.index() + self.traffic as usize
    }

    /// The connection with a number.
    pub(super) const fn of(number: u64) -> Self {
        let kinds = Traffic::ALL.len() as u64;
        Self { rank: Rank((number / kinds) as u32), traffic: Traffic::ALL[(number % kinds) as usize] }
    }
}
