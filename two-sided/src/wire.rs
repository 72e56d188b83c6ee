//! The packets of the protocols.
//!
//! Integers are little endian. Each packet begins with its kind (1 byte), three zero bytes, and the
//! receiver's grant (4 bytes): how many units of credit the other side may have spent since the
//! start, modulo 2<sup>32</sup>.
//!
//! | kind | packet | fields |
//! |---|---|---|
//! | 1 | EAGER | context 4, tag 4, the message |
//! | 2 | RTS | context 4, tag 4, request 4, key 28: the message's memory and length |
//! | 3 | FIN | request 4, status 1 (0: read, else the kind of the fault) |
//! | 4 | CREDIT | |
//! | 5 | ASK: the sender has no credit left | |

use onesided_fabric::SegmentKey;
use onesided_fabric::remote_memory::MAX_MESSAGE;

const HEADER: usize = 8;
const ENVELOPE: usize = 8;

/// The longest message that fits a packet, in bytes.
pub(crate) const EAGER_MAX: usize = MAX_MESSAGE - HEADER - ENVELOPE;

const _: () = assert!(HEADER + ENVELOPE + 4 + SegmentKey::BYTES <= MAX_MESSAGE, "an RTS is one packet");

/// Names a send at its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RequestId(pub(crate) u32);

/// A packet without its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Packet<'p> {
    Eager { context: u32, tag: u32, bytes: &'p [u8] },
    Rts { context: u32, tag: u32, request: RequestId, key: SegmentKey },
    Fin { request: RequestId, status: u8 },
    Credit,
    Ask,
}

/// An encoded packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Encoded {
    bytes: [u8; MAX_MESSAGE],
    len: u8,
}

impl Encoded {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The same packet with another grant.
    pub(crate) fn with_grant(mut self, grant: u32) -> Self {
        self.bytes[4..8].copy_from_slice(&grant.to_le_bytes());
        self
    }
}

impl<'p> Packet<'p> {
    /// # Panics
    /// If an eager message is longer than [`EAGER_MAX`].
    pub(crate) fn encode(&self, grant: u32) -> Encoded {
        let mut encoded = Encoded { bytes: [0; MAX_MESSAGE], len: 0 };
        let mut put = |field: &[u8]| {
            let at = usize::from(encoded.len);
            encoded.bytes[at..at + field.len()].copy_from_slice(field);
            encoded.len += field.len() as u8;
        };
        let kind = match self {
            Self::Eager { .. } => 1,
            Self::Rts { .. } => 2,
            Self::Fin { .. } => 3,
            Self::Credit => 4,
            Self::Ask => 5,
        };
        put(&[kind, 0, 0, 0]);
        put(&grant.to_le_bytes());
        match self {
            Self::Eager { context, tag, bytes } => {
                put(&context.to_le_bytes());
                put(&tag.to_le_bytes());
                put(bytes);
            }
            Self::Rts { context, tag, request, key } => {
                put(&context.to_le_bytes());
                put(&tag.to_le_bytes());
                put(&request.0.to_le_bytes());
                put(&key.to_bytes());
            }
            Self::Fin { request, status } => {
                put(&request.0.to_le_bytes());
                put(&[*status]);
            }
            Self::Credit | Self::Ask => {}
        }
        encoded
    }

    /// The packet and its grant; `None` if the bytes are no packet.
    pub(crate) fn decode(bytes: &'p [u8]) -> Option<(Self, u32)> {
        let (header, rest) = bytes.split_first_chunk::<4>()?;
        let (grant, rest) = number(rest)?;
        let packet = match header {
            [1, 0, 0, 0] => {
                let (context, rest) = number(rest)?;
                let (tag, bytes) = number(rest)?;
                Self::Eager { context, tag, bytes }
            }
            [2, 0, 0, 0] => {
                let (context, rest) = number(rest)?;
                let (tag, rest) = number(rest)?;
                let (request, rest) = number(rest)?;
                let key = <&[u8; SegmentKey::BYTES]>::try_from(rest).ok()?;
                Self::Rts { context, tag, request: RequestId(request), key: SegmentKey::from_bytes(key)? }
            }
            [3, 0, 0, 0] => {
                let (request, rest) = number(rest)?;
                let [status] = rest else { return None };
                Self::Fin { request: RequestId(request), status: *status }
            }
            [4, 0, 0, 0] if rest.is_empty() => Self::Credit,
            [5, 0, 0, 0] if rest.is_empty() => Self::Ask,
            _ => return None,
        };
        Some((packet, grant))
    }
}

fn number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u32::from_le_bytes(*number), rest))
}

#[cfg(test)]
mod tests {
    use onesided_fabric::remote_memory::{Rank, RegionId};
    use proptest::prelude::*;

    use super::*;

    fn key() -> SegmentKey {
        SegmentKey { rank: Rank(7), region: RegionId(9), len: 1 << 40, address: 0x7f00_dead_beef, rkey: 11 }
    }

    #[test]
    fn packets_travel_whole_or_not_at_all() {
        let packets = [
            Packet::Eager { context: 1, tag: 2, bytes: b"a message" },
            Packet::Eager { context: 1, tag: 2, bytes: &[] },
            Packet::Rts { context: 1, tag: u32::MAX, request: RequestId(3), key: key() },
            Packet::Fin { request: RequestId(3), status: 1 },
            Packet::Credit,
            Packet::Ask,
        ];
        for packet in packets {
            let encoded = packet.encode(77);
            let bytes = encoded.bytes();
            assert_eq!(Packet::decode(bytes), Some((packet.clone(), 77)));
            let shortest = if matches!(packet, Packet::Eager { .. }) { HEADER + ENVELOPE } else { bytes.len() };
            assert!((0..shortest).all(|cut| Packet::decode(&bytes[..cut]).is_none()), "{packet:?}");
        }
        let longest = Packet::Eager { context: 1, tag: 2, bytes: &[5; EAGER_MAX] }.encode(0);
        assert_eq!(longest.bytes().len(), MAX_MESSAGE);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_packet_or_none(bytes in prop::collection::vec(any::<u8>(), 0..MAX_MESSAGE)) {
            if let Some((packet, grant)) = Packet::decode(&bytes) {
                let encoded = packet.encode(grant);
                prop_assert_eq!(encoded.bytes(), &bytes[..]);
            }
        }
    }
}
