//! Digests of states.

use std::hash::{Hash, Hasher};

/// A digest of 64 bits, which is the same in each run. A check takes one of every state, so it
/// costs a multiplication for each word.
pub(crate) fn digest(of: impl Hash) -> u64 {
    let mut digest = Digest::default();
    of.hash(&mut digest);
    digest.finish()
}

/// Takes an integer as one word.
macro_rules! each_word {
    ($($write:ident: $integer:ty),+) => {$(
        #[inline]
        fn $write(&mut self, value: $integer) {
            self.word(value as u64);
        }
    )+};
}

/// The state of a digest.
#[derive(Default)]
pub(crate) struct Digest(u64);

impl Digest {
    /// Both halves of the product with an odd constant (the golden ratio), so that each bit of the
    /// word reaches all of the digest.
    #[inline]
    fn word(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word ^ 0x517c_c1b7_2722_0a95) * 0x9e37_79b9_7f4a_7c15;
        self.0 = ((product >> 64) as u64 ^ product as u64).rotate_left(23).wrapping_add(word);
    }
}

impl Hasher for Digest {
    fn finish(&self) -> u64 {
        let mut last = Self(self.0);
        last.word(0);
        last.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.word(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        if !rest.is_empty() {
            self.word(u64::from_le_bytes(last));
        }
    }

    each_word! { write_u8: u8, write_u16: u16, write_u32: u32, write_u64: u64, write_usize: usize }
}
