//! The protocol between the host daemons of a job.
//!
//! The *head daemon* serves the job as a whole: it is the launcher, or rank 0. Every other host's
//! daemon has one stream to it.
//!
//! | bytes | field |
//! |---|---|
//! | 4 | length of the frame, 1 to [`LONGEST`], little endian |
//! | length | a [frame](crate::frame) |
//! | 32 | tag: BLAKE3 keyed for this stream and direction, over the frame's number (8 bytes, from 0) and the frame |
//!
//! The keys derive from the job's secret and a nonce of each side, so the first frame of either
//! side is its proof. A changed, missing, repeated or foreign frame fails its tag, and the receiver
//! closes the stream.
//!
//! | message | sender | fields |
//! |---|---|---|
//! | layout | head | [`Layout`] |
//! | ready | host | name of the daemon's socket |
//! | put | host | request id, name, value |
//! | stored | head | request id, success or [`Failure`] |
//! | value | head | name, value |
//! | status | both | rank, [`Gone`] |
//! | lost connection | both | the two ranks, the [round](JobSegment::again) |
//! | aborted | both | the rank that aborted the job, the exit status |
//! | heartbeat | both | |
//! | bye | both | |
//! | control | both | opaque: between those who run the daemons |
//!
//! The head sends layout, the host answers ready, and then both send as needed. The head answers
//! put with stored after the value has gone to all hosts. An idle side sends heartbeats. A side
//! that no longer needs the other sends bye as its last frame, and the other answers with bye.

#[cfg(test)]
mod tests;

use std::time::Duration;

use onesided_remote_memory::{Liveness, Rank};
use serde::{Deserialize, Serialize};

use crate::frame::{Bytes, Frame, Name};
use crate::protocol::Failure;
use crate::segment::Aborted;

/// The longest frame, in bytes: the layout of the largest job.
pub(crate) const LONGEST: usize = 192 << 10;

/// A message between two host daemons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Said {
    Layout(Layout),
    Ready { socket: Name },
    Put { ticket: u64, name: Name, value: Bytes },
    Stored { ticket: u64, outcome: Result<(), Failure> },
    Value { name: Name, value: Bytes },
    Status { rank: Rank, gone: Gone },
    LostConnection { one: Rank, other: Rank, round: u32 },
    Aborted(Aborted),
    Beat,
    Bye,
    Control(Bytes),
}

impl Frame for Said {
    const PROTOCOL: u8 = 5;
}

/// The host of each rank, and the failure-detection timeout of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Layout {
    pub(crate) suspect_after_ms: u32,
    /// The head's host; `None` if no ranks run there.
    pub(crate) head: Option<u16>,
    /// By rank.
    pub(crate) hosts: Vec<u16>,
}

impl Layout {
    pub(crate) fn suspect_after(&self) -> Duration {
        Duration::from_millis(self.suspect_after_ms.max(100).into())
    }
}

/// How a rank ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Gone {
    Left,
    Dead,
    NeverJoined,
}

impl Gone {
    pub(crate) const fn of(liveness: Liveness) -> Option<Self> {
        match liveness {
            Liveness::Left => Some(Self::Left),
            Liveness::Dead => Some(Self::Dead),
            Liveness::NeverJoined => Some(Self::NeverJoined),
            Liveness::Alive => None,
        }
    }
}
