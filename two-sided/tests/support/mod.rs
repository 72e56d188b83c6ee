//! What messages are made of.

use onesided_fabric::Fabric;
use onesided_two_sided::{Buffer, Messages};

pub(crate) fn words(seed: usize, len: usize) -> Vec<u64> {
    (0..len).map(|at| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed as u64).collect()
}

pub(crate) fn filled<F: Fabric>(messages: &Messages<F>, seed: usize, len: usize) -> Buffer<u64, F> {
    let mut buffer = messages.buffer(len).unwrap();
    buffer.write(0, &words(seed, len));
    buffer
}
