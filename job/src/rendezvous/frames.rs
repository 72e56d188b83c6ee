//! The protocol of a rendezvous.
//!
//! A frame is a length (4 bytes, at most [`LONGEST`], little endian) and a [frame](crate::frame).
//!
//! | from rank 0 | fields |
//! |---|---|
//! | greeting | nonce |
//! | here | proof, name of its socket |
//! | refused | [`Refusal`] |
//! | keep | proof |
//! | missing | rank |
//!
//! | from another rank | fields |
//! |---|---|
//! | hello | rank, number of ranks, host, nonce, proof |
//!
//! Rank 0 sends greeting, the other rank answers hello, and rank 0 names the socket of its host's
//! daemon or refuses. The lowest rank of another host is told to become its host's daemon instead;
//! the stream is then a [control relay](crate::daemon). When rank 0 gives up, the waiting ranks of other
//! hosts learn which rank is missing. The secret keys each proof, which covers both nonces and every
//! other field: no proof is valid for another connection, rank or answer.

#[cfg(test)]
mod tests;

use onesided_remote_memory::Rank;
use serde::{Deserialize, Serialize};

use crate::Secret;
use crate::frame::{Frame, Malformed, Name};
use crate::host_name::HostId;
use crate::protocol::{Nonce, Proof, Refusal};

/// The longest frame without its length, in bytes.
pub(crate) const LONGEST: usize = 256;

/// A message from rank 0. `Missing` came last, without another version: a program that does not know it
/// ends with an error all the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FromRankZero {
    Greeting { nonce: Nonce },
    Here { proof: Proof, socket: Name },
    Refused(Refusal),
    Keep { proof: Proof },
    Missing { rank: Rank },
}

/// A message from another rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Coming {
    pub(crate) rank: Rank,
    pub(crate) size: u32,
    pub(crate) host: HostId,
    pub(crate) nonce: Nonce,
    pub(crate) proof: Proof,
}

impl Frame for FromRankZero {
    const PROTOCOL: u8 = 3;
}

impl Frame for Coming {
    const PROTOCOL: u8 = 4;
}

impl Coming {
    /// The proof over the other fields, after a greeting with this nonce.
    pub(crate) fn proof(&self, secret: &Secret, greeting: &Nonce) -> Proof {
        let Self { rank, size, host, nonce, .. } = self;
        let parts: [&[u8]; 5] = [greeting, nonce, &rank.0.to_le_bytes(), &size.to_le_bytes(), host];
        *secret.proof_of("onesided rendezvous: a rank comes", &parts).as_bytes()
    }

    /// The proof of rank 0's answer.
    pub(crate) fn answer(&self, secret: &Secret, greeting: &Nonce, socket: &Name) -> Proof {
        let parts: [&[u8]; 4] = [greeting, &self.nonce, &self.rank.0.to_le_bytes(), socket.0.as_bytes()];
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

/// A frame and its length.
pub(crate) fn with_length(message: &impl Frame) -> Vec<u8> {
    let frame = message.encode();
    [&(frame.len() as u32).to_le_bytes()[..], &frame].concat()
}

/// Received bytes of an incomplete frame.
#[derive(Debug, Default)]
pub(crate) struct Incoming(Vec<u8>);

impl Incoming {
    /// A lower bound for the missing bytes of the frame; 0: it is complete.
    ///
    /// # Errors
    /// Its length is impossible.
    pub(crate) fn missing(&self) -> Result<usize, Malformed> {
        let Some((length, rest)) = self.0.split_first_chunk() else { return Ok(4 - self.0.len()) };
        match u32::from_le_bytes(*length) as usize {
            length @ 1..=LONGEST => Ok(length.saturating_sub(rest.len())),
            0 => Err(Malformed::Magic),
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
