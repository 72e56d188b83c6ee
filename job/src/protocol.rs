//! The wire format between a host daemon and the ranks of its host.
//!
//! A frame is one packet of a `SOCK_SEQPACKET` socket, at most [`MAX_FRAME`] bytes, integers little
//! endian:
//!
//! | bytes | field |
//! |---|---|
//! | 4 | magic, `1SID` |
//! | 2 | version, [`VERSION`] |
//! | 2 | kind |
//! | rest | the kind's fields, in the order of the tables below; nothing may follow them |
//!
//! `name` is a length byte (1 to [`MAX_NAME`]) and that many bytes of printable ASCII without
//! spaces. `value` is the rest of the frame, at most [`MAX_VALUE`] bytes. *fd*: exactly one
//! descriptor comes along by `SCM_RIGHTS`.
//!
//! | kind | from the daemon | fields |
//! |---|---|---|
//! | 1 | challenge | daemon's nonce 32 |
//! | 2 | welcome | size 4, daemon's proof 32, *fd* of the job segment |
//! | 3 | refused | reason 2 ([`Refusal`]) |
//! | 4 | done | |
//! | 5 | value | value |
//! | 6 | memory | *fd* |
//! | 7 | failed | reason 2, rank 4 ([`Failure`]) |
//!
//! | kind | from a rank | fields | answer |
//! |---|---|---|---|
//! | 129 | hello | rank 4, rank's nonce 32, rank's proof 32 | welcome or refused |
//! | 130 | put | name, value | done or failed |
//! | 131 | get | patience in milliseconds 8, name | value or failed |
//! | 132 | publish | region 4, *fd* | done or failed |
//! | 133 | retract | region 4 | done |
//! | 134 | fetch | rank 4, region 4 | memory or failed |
//!
//! The daemon speaks first (challenge). After that every frame of a rank has one answer, and the
//! rank waits for it. A peer that violates the protocol is told `refused` where that can help, and
//! the connection is closed.

use onesided_remote_memory::{Rank, RegionId};

/// The version of this format. Programs of different versions refuse each other.
pub(crate) const VERSION: u16 = 3;
/// The longest frame in bytes.
pub(crate) const MAX_FRAME: usize = 64 << 10;
/// The longest value in bytes.
pub(crate) const MAX_VALUE: usize = MAX_FRAME - 128;
/// The longest name in bytes.
pub(crate) const MAX_NAME: usize = 64;

const MAGIC: [u8; 4] = *b"1SID";

/// A number used once, which binds a proof to a connection.
pub(crate) type Nonce = [u8; 32];
/// See [`Secret::proof`](crate::Secret::proof).
pub(crate) type Proof = [u8; 32];

/// A frame from the host daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FromDaemon {
    Challenge { nonce: Nonce },
    Welcome { size: u32, proof: Proof },
    Refused(Refusal),
    Done,
    Value(Vec<u8>),
    Memory,
    Failed(Failure),
}

/// A frame from a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FromRank {
    Hello { rank: Rank, nonce: Nonce, proof: Proof },
    Put { name: String, value: Vec<u8> },
    Get { name: String, patience_ms: u64 },
    Publish { region: RegionId },
    Retract { region: RegionId },
    Fetch { rank: Rank, region: RegionId },
}

/// Why a process may not join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
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

/// What is wrong with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("not a frame of onesided")]
    Magic,
    #[error("version {0} of the protocol, this program speaks version {VERSION}")]
    Version(u16),
    #[error("unknown kind {0}")]
    Kind(u16),
    #[error("{0} bytes missing")]
    Short(usize),
    #[error("{0} bytes too many")]
    Long(usize),
    #[error("not a name")]
    Name,
    #[error("unknown reason {0}")]
    Reason(u16),
}

impl FromDaemon {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Challenge { nonce } => frame(1, &[nonce]),
            Self::Welcome { size, proof } => frame(2, &[&size.to_le_bytes(), proof]),
            Self::Refused(refusal) => frame(3, &[&refusal.code().to_le_bytes()]),
            Self::Done => frame(4, &[]),
            Self::Value(value) => frame(5, &[value]),
            Self::Memory => frame(6, &[]),
            Self::Failed(failure) => {
                let (code, rank) = failure.code();
                frame(7, &[&code.to_le_bytes(), &rank.0.to_le_bytes()])
            }
        }
    }

    pub(crate) fn decode(frame: &[u8]) -> Result<Self, Malformed> {
        let (kind, mut fields) = open(frame)?;
        let decoded = match kind {
            1 => Self::Challenge { nonce: fields.array()? },
            2 => Self::Welcome { size: fields.u32()?, proof: fields.array()? },
            3 => Self::Refused(Refusal::from_code(fields.u16()?)?),
            4 => Self::Done,
            5 => Self::Value(fields.value()?),
            6 => Self::Memory,
            7 => Self::Failed(Failure::from_code(fields.u16()?, Rank(fields.u32()?))?),
            _ => return Err(Malformed::Kind(kind)),
        };
        fields.end().map(|()| decoded)
    }

    /// Whether a descriptor comes along.
    pub(crate) const fn brings_descriptor(&self) -> bool {
        matches!(self, Self::Welcome { .. } | Self::Memory)
    }
}

impl FromRank {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Hello { rank, nonce, proof } => frame(129, &[&rank.0.to_le_bytes(), nonce, proof]),
            Self::Put { name, value } => frame(130, &[&[name.len() as u8], name.as_bytes(), value]),
            Self::Get { name, patience_ms } => {
                frame(131, &[&patience_ms.to_le_bytes(), &[name.len() as u8], name.as_bytes()])
            }
            Self::Publish { region } => frame(132, &[&region.0.to_le_bytes()]),
            Self::Retract { region } => frame(133, &[&region.0.to_le_bytes()]),
            Self::Fetch { rank, region } => frame(134, &[&rank.0.to_le_bytes(), &region.0.to_le_bytes()]),
        }
    }

    pub(crate) fn decode(frame: &[u8]) -> Result<Self, Malformed> {
        let (kind, mut fields) = open(frame)?;
        let decoded = match kind {
            129 => Self::Hello { rank: Rank(fields.u32()?), nonce: fields.array()?, proof: fields.array()? },
            130 => Self::Put { name: fields.name()?, value: fields.value()? },
            131 => {
                let patience_ms = fields.u64()?;
                Self::Get { name: fields.name()?, patience_ms }
            }
            132 => Self::Publish { region: RegionId(fields.u32()?) },
            133 => Self::Retract { region: RegionId(fields.u32()?) },
            134 => Self::Fetch { rank: Rank(fields.u32()?), region: RegionId(fields.u32()?) },
            _ => return Err(Malformed::Kind(kind)),
        };
        fields.end().map(|()| decoded)
    }

    /// Whether a descriptor comes along.
    pub(crate) const fn brings_descriptor(&self) -> bool {
        matches!(self, Self::Publish { .. })
    }
}

impl Refusal {
    const ALL: [(u16, Self); 5] =
        [(1, Self::Secret), (2, Self::NoSuchRank), (3, Self::Taken), (4, Self::Malformed), (5, Self::Size)];

    pub(crate) fn code(self) -> u16 {
        Self::ALL.iter().find(|(_, refusal)| *refusal == self).map_or(0, |(code, _)| *code)
    }

    pub(crate) fn from_code(code: u16) -> Result<Self, Malformed> {
        Self::ALL.iter().find(|(known, _)| *known == code).map(|(_, refusal)| *refusal).ok_or(Malformed::Reason(code))
    }
}

impl Failure {
    pub(crate) const fn code(self) -> (u16, Rank) {
        match self {
            Self::NameTaken => (1, Rank(0)),
            Self::TimedOut => (2, Rank(0)),
            Self::PeerDied(rank) => (3, rank),
            Self::NoDescriptors => (4, Rank(0)),
            Self::RegionTaken => (5, Rank(0)),
            Self::NoSuchRegion => (6, Rank(0)),
            Self::Full => (7, Rank(0)),
        }
    }

    pub(crate) const fn from_code(code: u16, rank: Rank) -> Result<Self, Malformed> {
        Ok(match code {
            1 => Self::NameTaken,
            2 => Self::TimedOut,
            3 => Self::PeerDied(rank),
            4 => Self::NoDescriptors,
            5 => Self::RegionTaken,
            6 => Self::NoSuchRegion,
            7 => Self::Full,
            _ => return Err(Malformed::Reason(code)),
        })
    }
}

/// Whether `name` is valid in a frame.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
}

pub(crate) fn frame(kind: u16, fields: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(8 + fields.iter().map(|field| field.len()).sum::<usize>());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&kind.to_le_bytes());
    fields.iter().for_each(|field| bytes.extend_from_slice(field));
    bytes
}

pub(crate) fn open(frame: &[u8]) -> Result<(u16, Fields<'_>), Malformed> {
    let mut fields = Fields(frame);
    if frame.get(..4).is_some_and(|magic| magic != MAGIC) {
        return Err(Malformed::Magic);
    }
    fields.array::<4>()?;
    match fields.u16()? {
        VERSION => Ok((fields.u16()?, fields)),
        other => Err(Malformed::Version(other)),
    }
}

/// The unread fields of a frame.
pub(crate) struct Fields<'f>(&'f [u8]);

impl<'f> Fields<'f> {
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (array, rest) = self.0.split_first_chunk().ok_or_else(|| Malformed::Short(N - self.0.len()))?;
        self.0 = rest;
        Ok(*array)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn name(&mut self) -> Result<String, Malformed> {
        let [len] = self.array()?;
        let len = usize::from(len);
        let (name, rest) = self.0.split_at_checked(len).ok_or_else(|| Malformed::Short(len - self.0.len()))?;
        self.0 = rest;
        std::str::from_utf8(name).ok().filter(|name| is_name(name)).map(str::to_owned).ok_or(Malformed::Name)
    }

    pub(crate) fn value(&mut self) -> Result<Vec<u8>, Malformed> {
        match self.0.len().checked_sub(MAX_VALUE) {
            None | Some(0) => Ok(std::mem::take(&mut self.0).to_vec()),
            Some(above) => Err(Malformed::Long(above)),
        }
    }

    pub(crate) const fn of(bytes: &'f [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'f [u8], Malformed> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or_else(|| Malformed::Short(len - self.0.len()))?;
        self.0 = rest;
        Ok(bytes)
    }

    /// The unread rest.
    pub(crate) fn rest(&mut self) -> &'f [u8] {
        std::mem::take(&mut self.0)
    }

    pub(crate) const fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed::Long(self.0.len())) }
    }
}

#[cfg(test)]
mod tests;
