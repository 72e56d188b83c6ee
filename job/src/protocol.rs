//! The protocol between a host daemon and the ranks of its host.
//!
//! A [frame](crate::frame) is one packet of a `SOCK_SEQPACKET` socket, at most
//! [`MAX_FRAME`](crate::frame::MAX_FRAME) bytes. *fd*: exactly one descriptor comes along by
//! `SCM_RIGHTS`.
//!
//! | from the daemon | fields |
//! |---|---|
//! | challenge | daemon's nonce |
//! | welcome | number of ranks, daemon's proof, *fd* of the job segment |
//! | refused | [`Refusal`] |
//! | done | |
//! | value | value |
//! | memory | *fd* |
//! | failed | [`Failure`] |
//!
//! | from a rank | fields | answer |
//! |---|---|---|
//! | hello | rank, rank's nonce, rank's proof | welcome or refused |
//! | put | name, value | done or failed |
//! | get | name, patience in milliseconds | value or failed |
//! | publish | region, *fd* | done or failed |
//! | retract | region | done |
//! | fetch | rank, region | memory or failed |
//!
//! The daemon speaks first (challenge). After that every frame of a rank has one answer, and the
//! rank waits for it. A peer that violates the protocol is told `refused` where that can help, and
//! the connection is closed.

use onesided_remote_memory::{Rank, RegionId};
use serde::{Deserialize, Serialize};

use crate::frame::{Bytes, Frame, Name};

/// A number used once, which binds a proof to a connection.
pub(crate) type Nonce = [u8; 32];
/// See [`Secret::proof`](crate::Secret::proof).
pub(crate) type Proof = [u8; 32];

/// A message from the host daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FromDaemon {
    Challenge { nonce: Nonce },
    Welcome { size: u32, proof: Proof },
    Refused(Refusal),
    Done,
    Value(Bytes),
    Memory,
    Failed(Failure),
}

/// A message from a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FromRank {
    Hello { rank: Rank, nonce: Nonce, proof: Proof },
    Put { name: Name, value: Bytes },
    Get { name: Name, patience_ms: u64 },
    Publish { region: RegionId },
    Retract { region: RegionId },
    Fetch { rank: Rank, region: RegionId },
}

impl Frame for FromDaemon {
    const PROTOCOL: u8 = 1;
}

impl Frame for FromRank {
    const PROTOCOL: u8 = 2;
}

/// Why a process may not join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("the secret is not the job's")]
    Secret,
    #[error("the job has no such rank")]
    NoSuchRank,
    #[error("another process has joined as this rank; was this program started by a rank, or did it join twice?")]
    Taken,
    #[error("the other side did not understand the request; was this program built with another version of onesided?")]
    Malformed,
    #[error("the job has another number of ranks")]
    Size,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub(crate) enum Failure {
    #[error("the name is taken")]
    NameTaken,
    #[error("nobody put a value under the name in time")]
    TimedOut,
    #[error("{0} died")]
    PeerDied(Rank),
    #[error(
        "no descriptors left where the job is kept (the launcher, or rank 0); raise the limit (ulimit -n) or use fewer segments"
    )]
    NoDescriptors,
    #[error("the region is published already")]
    RegionTaken,
    #[error("the rank has published no such region")]
    NoSuchRegion,
    #[error("the job keeps no more values")]
    Full,
}

impl FromDaemon {
    /// Whether a descriptor comes along.
    pub(crate) const fn brings_descriptor(&self) -> bool {
        matches!(self, Self::Welcome { .. } | Self::Memory)
    }
}

impl FromRank {
    /// Whether a descriptor comes along.
    pub(crate) const fn brings_descriptor(&self) -> bool {
        matches!(self, Self::Publish { .. })
    }
}

#[cfg(test)]
mod tests;
