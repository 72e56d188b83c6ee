//! The job's secret, and how both sides prove that they know it without revealing it.

use onesided_remote_memory::{Rank, debug};

use crate::frame::VERSION;
use crate::protocol::{Nonce, Proof};

/// 32 random bytes that the launcher gives only to the processes it starts.
#[derive(Clone)]
pub struct Secret([u8; 32]);

/// The side that proves the secret: a proof of one side is not valid for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Daemon,
    Rank,
}

impl Secret {
    /// A new secret from the system's random numbers.
    #[must_use]
    pub fn random() -> Self {
        Self(random_bytes())
    }

    /// Parses the hexadecimal form; `None` unless it has 32 bytes.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        blake3::Hash::from_hex(text).ok().map(|hash| Self(hash.into()))
    }

    /// The hexadecimal form, for the environment of a process that is to join.
    #[must_use]
    pub fn to_hex(&self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }

    /// The proof of `side`. Both nonces bind it to one connection. [`blake3::Hash`] compares in
    /// constant time.
    pub(crate) fn proof(&self, side: Side, rank: Rank, daemon: &Nonce, client: &Nonce) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(match side {
            Side::Daemon => b"onesided launcher",
            Side::Rank => b"onesided rank    ",
        });
        hasher.update(&VERSION.to_le_bytes());
        hasher.update(&rank.0.to_le_bytes());
        hasher.update(daemon);
        hasher.update(client);
        hasher.finalize()
    }

    /// A proof over any parts, for one purpose. The lengths separate the parts.
    pub(crate) fn proof_of(&self, purpose: &str, parts: &[&[u8]]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for part in std::iter::once(&purpose.as_bytes()).chain(parts) {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        hasher.finalize()
    }

    /// Whether `proof` is the correct proof of `side`.
    pub(crate) fn accepts(&self, proof: &Proof, side: Side, rank: Rank, daemon: &Nonce, client: &Nonce) -> bool {
        self.proof(side, rank, daemon, client) == blake3::Hash::from_bytes(*proof)
    }
}

debug!([] Secret, |_this| "Secret(..)");

/// Random bytes for secrets, nonces and names.
pub(crate) fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        // Every supported kernel has random numbers; only a signal interrupts the call.
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()).unwrap_or(0);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn travels_as_text_and_hides_from_debug() {
        let secret = Secret::random();
        let text = secret.to_hex();
        assert_eq!(Secret::from_hex(&text).unwrap().0, secret.0);
        assert!(Secret::from_hex(&text[1..]).is_none() && Secret::from_hex(&text.replace(&text[..1], "g")).is_none());
        assert!(Secret::from_hex("").is_none() && Secret::from_hex(&format!("{text}00")).is_none());
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        assert_ne!(Secret::random().0, secret.0);
    }

    #[test]
    fn a_proof_is_for_one_side_rank_and_connection() {
        let secret = Secret::random();
        let (a, b) = ([1; 32], [2; 32]);
        let proof = *secret.proof(Side::Rank, Rank(3), &a, &b).as_bytes();
        assert!(secret.accepts(&proof, Side::Rank, Rank(3), &a, &b));
        assert!(!secret.accepts(&proof, Side::Daemon, Rank(3), &a, &b));
        assert!(!secret.accepts(&proof, Side::Rank, Rank(4), &a, &b));
        assert!(!secret.accepts(&proof, Side::Rank, Rank(3), &b, &a));
        assert!(!Secret::random().accepts(&proof, Side::Rank, Rank(3), &a, &b));
    }
}
