//! The wire format between the host daemons of a job.
//!
//! The *head daemon* serves the job as a whole: it is the launcher, or rank 0. Every other host's
//! daemon has one stream to it.
//!
//! | bytes | field |
//! |---|---|
//! | 4 | length of the frame, 1 to [`LONGEST`], little endian as all integers |
//! | length | a frame of the job's [protocol](crate::protocol): magic, version, kind, fields |
//! | 32 | tag: BLAKE3 keyed for this stream and direction, over the frame's number (8 bytes, from 0) and the frame |
//!
//! The keys derive from the job's secret and a nonce of each side, so the first frame of either
//! side is its proof. A changed, missing, repeated or foreign frame fails its tag, and the receiver
//! closes the stream.
//!
//! | kind | sender | message | fields |
//! |---|---|---|---|
//! | 257 | head | layout | suspect after, in milliseconds 4; the head's host 2 (65535: none); the host of each rank 2 |
//! | 258 | host | ready | name of the daemon's socket |
//! | 259 | host | put | request id 8, name, value |
//! | 260 | head | stored | request id 8, reason 2 (0: success), rank 4 |
//! | 261 | head | value | name, value |
//! | 262 | both | status | rank 4, new status 1 (2: left, 3: dead) |
//! | 263 | both | heartbeat | |
//! | 264 | both | bye | |
//! | 265 | both | lost connection | the two ranks, 4 each |
//! | 512-767 | both | control | opaque: between those who run the daemons |
//!
//! The head sends layout, the host answers ready, and then both send as needed. The head answers
//! put with stored after the value has gone to all hosts. An idle side sends heartbeats. A side
//! that no longer needs the other sends bye as its last frame, and the other answers with bye.

#[cfg(test)]
mod tests;

use std::time::Duration;

use onesided_remote_memory::{Liveness, Rank};

use crate::protocol::{Failure, Malformed, frame, open};

/// The longest frame, in bytes: the layout of the largest job.
pub(crate) const LONGEST: usize = 192 << 10;

/// Kinds passed on unchanged.
const CONTROL: std::ops::RangeInclusive<u16> = 512..=767;
/// The head runs on no rank's host.
const NO_HOST: u16 = u16::MAX;

/// A frame between two host daemons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Layout(Layout),
    Ready { socket: String },
    Put { ticket: u64, name: String, value: Vec<u8> },
    Stored { ticket: u64, outcome: Result<(), Failure> },
    Value { name: String, value: Vec<u8> },
    Status { rank: Rank, gone: Gone },
    LostConnection { one: Rank, other: Rank },
    Beat,
    Bye,
    Control { kind: u16, fields: Vec<u8> },
}

/// The host of each rank, and the failure-detection timeout of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    Left,
    Dead,
}

impl Gone {
    pub(crate) const fn of(liveness: Liveness) -> Option<Self> {
        match liveness {
            Liveness::Left => Some(Self::Left),
            Liveness::Dead => Some(Self::Dead),
            _ => None,
        }
    }
}

impl Said {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Layout(Layout { suspect_after_ms, head, hosts }) => {
                let hosts: Vec<u8> = hosts.iter().flat_map(|host| host.to_le_bytes()).collect();
                frame(257, &[&suspect_after_ms.to_le_bytes(), &head.unwrap_or(NO_HOST).to_le_bytes(), &hosts])
            }
            Self::Ready { socket } => frame(258, &[&[socket.len() as u8], socket.as_bytes()]),
            Self::Put { ticket, name, value } => {
                frame(259, &[&ticket.to_le_bytes(), &[name.len() as u8], name.as_bytes(), value])
            }
            Self::Stored { ticket, outcome } => {
                let (code, rank) = outcome.map_or_else(Failure::code, |()| (0, Rank(0)));
                frame(260, &[&ticket.to_le_bytes(), &code.to_le_bytes(), &rank.0.to_le_bytes()])
            }
            Self::Value { name, value } => frame(261, &[&[name.len() as u8], name.as_bytes(), value]),
            Self::Status { rank, gone } => {
                let gone = match gone {
                    Gone::Left => 2,
                    Gone::Dead => 3,
                };
                frame(262, &[&rank.0.to_le_bytes(), &[gone]])
            }
            Self::Beat => frame(263, &[]),
            Self::Bye => frame(264, &[]),
            Self::LostConnection { one, other } => frame(265, &[&one.0.to_le_bytes(), &other.0.to_le_bytes()]),
            Self::Control { kind, fields } => frame(*kind, &[fields]),
        }
    }

    pub(crate) fn decode(frame: &[u8]) -> Result<Self, Malformed> {
        let (kind, mut fields) = open(frame)?;
        let decoded = match kind {
            257 => {
                let (suspect_after_ms, head) = (fields.u32()?, fields.u16()?);
                let hosts = fields.rest().chunks(2).map(|host| match host {
                    [low, high] => Ok(u16::from_le_bytes([*low, *high])),
                    _ => Err(Malformed::Short(1)),
                });
                let hosts = hosts.collect::<Result<_, _>>()?;
                Self::Layout(Layout { suspect_after_ms, head: (head != NO_HOST).then_some(head), hosts })
            }
            258 => Self::Ready { socket: fields.name()? },
            259 => {
                let ticket = fields.u64()?;
                Self::Put { ticket, name: fields.name()?, value: fields.value()? }
            }
            260 => {
                let ticket = fields.u64()?;
                let outcome = match (fields.u16()?, fields.u32()?) {
                    (0, 0) => Ok(()),
                    (code, rank) => Err(Failure::from_code(code, Rank(rank))?),
                };
                Self::Stored { ticket, outcome }
            }
            261 => Self::Value { name: fields.name()?, value: fields.value()? },
            262 => {
                let rank = Rank(fields.u32()?);
                let gone = match fields.array::<1>()? {
                    [2] => Gone::Left,
                    [3] => Gone::Dead,
                    [other] => return Err(Malformed::Reason(other.into())),
                };
                Self::Status { rank, gone }
            }
            263 => Self::Beat,
            264 => Self::Bye,
            265 => Self::LostConnection { one: Rank(fields.u32()?), other: Rank(fields.u32()?) },
            kind if CONTROL.contains(&kind) => Self::Control { kind, fields: fields.rest().to_vec() },
            _ => return Err(Malformed::Kind(kind)),
        };
        fields.end().map(|()| decoded)
    }
}
