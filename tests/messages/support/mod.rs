//! Ranks with a communicator, networks, and what messages are made of.

use std::time::Duration;

use onesided_fabric::{Any, Fabric, World, threads};
use onesided_sim::Network;
use onesided_two_sided::{Buffer, Messages};

pub(crate) fn ranks<T: Send>(ranks: u32, run: impl Fn(World<Any>, Messages) -> T + Sync) -> Vec<T> {
    threads(ranks, |world| {
        let messages = Messages::new(&world).wait().unwrap();
        run(world, messages)
    })
    .unwrap()
}

/// Packets are datagrams that are lost, doubled and overtaken.
pub(crate) fn rough() -> Network {
    let jitter = Duration::from_micros(50);
    Network { datagrams: true, loss: 0.1, duplication: 0.05, jitter, retries: 50, ..Network::default() }
}

pub(crate) fn words(seed: usize, len: usize) -> Vec<u64> {
    (0..len).map(|at| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed as u64).collect()
}

pub(crate) fn filled<F: Fabric>(messages: &Messages<F>, seed: usize, len: usize) -> Buffer<u64, F> {
    let mut buffer = messages.buffer(len).unwrap();
    buffer.write(0, &words(seed, len));
    buffer
}
