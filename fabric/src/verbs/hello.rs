//! The datagram by which two ranks agree on a connection.

use serde::{Deserialize, Serialize};

use crate::verbs::connector::ROOM;
use crate::verbs::fast_path::RingAddress;
use crate::verbs::traffic::Traffic;

/// The wire form's first bytes: what it is, and its version.
pub(super) const MAGIC: [u8; 4] = *b"1SC\x06";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
pub(super) struct Hello {
    pub(super) magic: [u8; 4],
    pub(super) from: u32,
    /// The incarnations of the sender, and of the receiver that it means: those of other processes
    /// and jobs are dropped.
    pub(super) incarnations: [u64; 2],
    /// Which connection it is about, and the sender's queue pair of it.
    pub(super) traffic: Traffic,
    pub(super) queue_pair: u32,
    /// Tells the connection from earlier ones of its kind between the two.
    pub(super) generation: u64,
    pub(super) asks: bool,
    pub(super) knows: bool,
    pub(super) refuses: bool,
    /// There is to be no such connection: the sender has too many.
    pub(super) full: bool,
    pub(super) waits: bool,
    /// Of a further rail: how many connections of messages broke before the one that it belongs to.
    pub(super) breaks: u32,
    /// The number of a wish to give the connection back, or 0; and the answer to it.
    pub(super) gives: u32,
    pub(super) keeps: bool,
    pub(super) given: bool,
    /// The sender has a [ring](super::fast_path) for packets of the receiver.
    pub(super) ring: Option<RingAddress>,
}

impl Hello {
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (hello, rest) = postcard::take_from_bytes::<Self>(bytes).ok()?;
        (hello.magic == MAGIC && rest.is_empty()).then_some(hello)
    }

    pub(super) fn write(self, into: &mut [u8; ROOM.longest as usize]) -> &[u8] {
        postcard::to_slice(&self, into).expect("it is shorter than a datagram")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::raw::Remote;

    #[test]
    fn hellos_travel() {
        let hello = Hello {
            magic: MAGIC,
            from: u32::MAX,
            incarnations: [u64::MAX; 2],
            traffic: Traffic::Messages,
            queue_pair: u32::MAX,
            generation: u64::MAX,
            asks: true,
            knows: false,
            refuses: false,
            full: true,
            waits: true,
            breaks: u32::MAX,
            gives: u32::MAX,
            keeps: true,
            given: true,
            ring: Some(RingAddress { start: Remote { address: u64::MAX, key: u32::MAX }, slots: u8::MAX }),
        };
        let mut room = [0; ROOM.longest as usize];
        let bytes = hello.write(&mut room);
        assert_eq!(Hello::read(bytes), Some(hello));
        for len in 0..bytes.len() {
            assert_eq!(Hello::read(&bytes[..len]), None);
        }
        assert_eq!(Hello::read(&[bytes, &[0]].concat()), None);
        assert_eq!(Hello::read(&[&[0], &bytes[1..]].concat()), None);
    }
}
