//! The wire format of a rendezvous.
//!
//! A frame is a length (4 bytes, at most [`LONGEST`], little endian as all integers) and a frame of
//! the job's
//! [protocol](crate::protocol): magic, version, kind, fields.
//!
//! | kind | from rank 0 | fields |
//! |---|---|---|
//! | 65 | greeting | nonce 32 |
//! | 66 | here | proof 32, name of its socket |
//! | 67 | refused | reason 2 |
//! | 68 | keep | proof 32 |
//!
//! | kind | from another rank | fields |
//! |---|---|---|
//! | 193 | hello | rank 4, size 4, host 16, nonce 32, proof 32 |
//!
//! Rank 0 sends greeting, the other rank answers hello, and rank 0 names the socket of its host's
//! daemon or refuses. The lowest rank of another host is told to become its host's daemon instead;
//! the stream is then a [control relay](crate::daemon). The secret keys each proof,
//! which covers both nonces and every other field: no proof is valid for another connection, rank
//! or answer.

#[cfg(test)]
mod tests;

use onesided_remote_memory::Rank;

use crate::Secret;
use crate::host_name::HostId;
use crate::protocol::{Malformed, Nonce, Proof, Refusal, frame, open};

/// The longest frame without its length, in bytes.
pub(crate) const LONGEST: usize = 256;

/// A frame from rank 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FromRankZero {
    Greeting { nonce: Nonce },
    Here { proof: Proof, socket: String },
    Refused(Refusal),
    Keep { proof: Proof },
}

/// A frame from another rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Coming {
    pub(crate) rank: Rank,
    pub(crate) size: u32,
    pub(crate) host: HostId,
    pub(crate) nonce: Nonce,
    pub(crate) proof: Proof,
}

impl FromRankZero {
    pub(crate) fn encode(&self) -> Vec<u8> {
        with_length(match self {
            Self::Greeting { nonce } => frame(65, &[nonce]),
            Self::Here { proof, socket } => frame(66, &[proof, &[socket.len() as u8], socket.as_bytes()]),
            Self::Refused(refusal) => frame(67, &[&refusal.code().to_le_bytes()]),
            Self::Keep { proof } => frame(68, &[proof]),
        })
    }

    pub(crate) fn decode(frame: &[u8]) -> Result<Self, Malformed> {
        let (kind, mut fields) = open(frame)?;
        let decoded = match kind {
            65 => Self::Greeting { nonce: fields.array()? },
            66 => Self::Here { proof: fields.array()?, socket: fields.name()? },
            67 => Self::Refused(Refusal::from_code(fields.u16()?)?),
            68 => Self::Keep { proof: fields.array()? },
            _ => return Err(Malformed::Kind(kind)),
        };
        fields.end().map(|()| decoded)
    }
}

impl Coming {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let Self { rank, size, host, nonce, proof } = self;
        with_length(frame(193, &[&rank.0.to_le_bytes(), &size.to_le_bytes(), host, nonce, proof]))
    }

    pub(crate) fn decode(frame: &[u8]) -> Result<Self, Malformed> {
        let (kind, mut fields) = open(frame)?;
        if kind != 193 {
            return Err(Malformed::Kind(kind));
        }
        let decoded = Self {
            rank: Rank(fields.u32()?),
            size: fields.u32()?,
            host: fields.array()?,
            nonce: fields.array()?,
            proof: fields.array()?,
        };
        fields.end().map(|()| decoded)
    }

    /// The proof over the other fields, after a greeting with this nonce.
    pub(crate) fn proof(&self, secret: &Secret, greeting: &Nonce) -> Proof {
        let Self { rank, size, host, nonce, .. } = self;
        let parts: [&[u8]; 5] = [greeting, nonce, &rank.0.to_le_bytes(), &size.to_le_bytes(), host];
        *secret.proof_of("onesided rendezvous: a rank comes", &parts).as_bytes()
    }

    /// The proof of rank 0's answer.
    pub(crate) fn answer(&self, secret: &Secret, greeting: &Nonce, socket: &str) -> Proof {
        let parts: [&[u8]; 4] = [greeting, &self.nonce, &self.rank.0.to_le_bytes(), socket.as_bytes()];
        *secret.proof_of("onesided rendezvous: rank 0 is here", &parts).as_bytes()
    }

    /// The proof of rank 0's instruction to become a host daemon.
    pub(crate) fn keep(&self, secret: &Secret, greeting: &Nonce) -> Proof {
        let parts: [&[u8]; 3] = [greeting, &self.nonce, &self.rank.0.to_le_bytes()];
        *secret.proof_of("onesided rendezvous: keep your host", &parts).as_bytes()
    }
}

/// Compares in constant time.
pub(crate) fn same(a: &Proof, b: &Proof) -> bool {
    blake3::Hash::from_bytes(*a) == blake3::Hash::from_bytes(*b)
}

fn with_length(frame: Vec<u8>) -> Vec<u8> {
    [&(frame.len() as u32).to_le_bytes()[..], &frame].concat()
}

/// Received bytes of an incomplete frame.
#[derive(Debug, Default)]
pub(crate) struct Incoming(Vec<u8>);

impl Incoming {
    /// A lower bound for the missing bytes of the frame; 0: it is complete.
    ///
    /// # Errors
    /// [`Malformed::Long`]: its length is impossible.
    pub(crate) fn missing(&self) -> Result<usize, Malformed> {
        let Some((length, rest)) = self.0.split_first_chunk() else { return Ok(4 - self.0.len()) };
        match u32::from_le_bytes(*length) as usize {
            length @ 1..=LONGEST => Ok(length.saturating_sub(rest.len())),
            0 => Err(Malformed::Short(1)),
            length => Err(Malformed::Long(length - LONGEST)),
        }
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the complete frame, without its length.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let mut all = std::mem::take(&mut self.0);
        all.drain(..4.min(all.len()));
        all
    }
}
