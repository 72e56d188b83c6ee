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
//! | 6 | RTS of a slice that the sender [offers](crate::driver::offered) | as RTS |
//! | 7 | RTS of a message that the sender writes (RPUT) | as RTS; of the key only rank and length count |
//! | 8 | RTR, the answer to it | the sender's request 4, the receiver's 4, key 28: where to write |
//! | 9 | FIN of the write | the receiver's request 4, status 1 |
//! | 10 | RTS of a message that the sender writes in pieces (pipeline) | as RTS of RPUT |
//! | 11 | RTS of a message that comes in packets ([copy](crate::engine)) | as RTS of RPUT |
//! | 12 | RTR for packets, the answer to any RTS but that of a slice | the sender's request 4, the receiver's 4, length 8 |
//! | 13 | DATA | the receiver's request 4, offset 8, the bytes |
//! | 14 | several EAGER of a list ([batch](crate::engine)) | context 4, zero 4; of each: tag 4, length 4, the message up to a multiple of 8 |
//! | 15 | RTS of a message that comes in datagrams ([zcopy](crate::engine)) | as RTS of RPUT |
//! | 16 | SENT: all of these datagrams have left | the receiver's request 4 |
//! | 17 | RTR for those that are missing | the sender's request 4, the receiver's 4, their length 4, offset 8, from there on which ones, a bit each, 16 |
//!
//! In a pipeline the key of each RTR is that of the bytes behind those of the RTR before, and there
//! is one FIN of the write. Each RTR for packets has room for the bytes behind those of the one before;
//! the DATA come in order, and the FIN of the write comes behind them.

use onesided_fabric::{SHORTEST_LIMIT, SegmentKey};

use crate::Protocol;

const HEADER: usize = 8;
const ENVELOPE: usize = 8;

/// What an EAGER has before its message, in bytes.
pub(crate) const EAGER_HEAD: usize = HEADER + ENVELOPE;

/// What a packet with several messages has before the first one.
pub(crate) const BATCH_HEAD: usize = EAGER_HEAD;

/// What a DATA has before its bytes.
pub(crate) const DATA_HEAD: usize = HEADER + 4 + 8;

/// The longest message in bytes. There is no memory for it; what follows from its length is a number.
const LONGEST: u64 = 1 << 62;

/// The longest head: all of a packet but the message.
pub(crate) const HEAD_MAX: usize = HEADER + ENVELOPE + 4 + SegmentKey::BYTES;

const _: () = assert!(HEAD_MAX == SHORTEST_LIMIT, "an RTS is one packet, and its bytes are read at once");

/// Names a send at its sender, or a receive at its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RequestId(pub(crate) u32);

/// A packet without its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packet {
    /// The message follows.
    Eager {
        context: u32,
        tag: u32,
    },
    /// Several messages follow.
    Batch {
        context: u32,
    },
    Rts {
        context: u32,
        tag: u32,
        request: RequestId,
        key: SegmentKey,
        /// Not eager.
        by: Protocol,
    },
    Fin {
        request: RequestId,
        status: u8,
    },
    Rtr {
        request: RequestId,
        receive: RequestId,
        key: SegmentKey,
    },
    /// There is room for the next bytes, which are to come in packets.
    RtrCopy {
        request: RequestId,
        receive: RequestId,
        len: u64,
    },
    /// Bytes of a message from an offset on follow.
    Data {
        receive: RequestId,
        at: u64,
    },
    Written {
        receive: RequestId,
        status: u8,
    },
    /// The datagrams of the message have left.
    Sent {
        receive: RequestId,
    },
    /// Datagrams did not come: their bytes are to come in packets.
    RtrMissing {
        request: RequestId,
        receive: RequestId,
        missing: Window,
    },
    Credit,
    Ask,
}

/// Which datagrams of a message are missing, of so many from an offset on as there are bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// The offset of the first one in bytes.
    pub(crate) at: u64,
    /// The bytes of each, but of the message's last one.
    pub(crate) unit: u32,
    pub(crate) bits: u128,
}

impl Window {
    /// The first of these datagrams of a message, which are in order and not empty.
    pub(crate) fn first(datagrams: &[u32], unit: u32) -> (Self, usize) {
        let first = datagrams[0];
        let count = datagrams.partition_point(|number| number - first < u128::BITS);
        let bits = datagrams[..count].iter().fold(0, |bits, number| bits | 1 << (number - first));
        (Self { at: u64::from(first) * u64::from(unit), unit, bits }, count)
    }

    /// Where they are in a message of so many bytes: each offset and length. None if one is beyond its end.
    pub(crate) fn ranges(&self, len: u64) -> Option<Vec<(u64, u64)>> {
        let unit = u64::from(self.unit);
        let set = (0..u128::BITS).filter(|bit| self.bits >> bit & 1 == 1);
        let range = |bit: u32| {
            let at = self.at.checked_add(u64::from(bit) * unit).filter(|at| *at < len)?;
            Some((at, unit.min(len - at)))
        };
        set.map(range).collect()
    }
}

const EAGER: u8 = 1;
const RTS: u8 = 2;
const FIN: u8 = 3;
const CREDIT: u8 = 4;
const ASK: u8 = 5;
const RTS_OFFERED: u8 = 6;
const RTS_WRITTEN: u8 = 7;
const RTR: u8 = 8;
const WRITTEN: u8 = 9;
const RTS_PIPELINE: u8 = 10;
const RTS_COPY: u8 = 11;
const RTR_COPY: u8 = 12;
const DATA: u8 = 13;
const BATCH: u8 = 14;
const RTS_ZCOPY: u8 = 15;
const SENT: u8 = 16;
const RTR_MISSING: u8 = 17;

/// The kinds of an RTS, by its protocol.
const ANNOUNCED: [(u8, Protocol); 6] = [
    (RTS, Protocol::Rget),
    (RTS_OFFERED, Protocol::Offered),
    (RTS_WRITTEN, Protocol::Rput),
    (RTS_PIPELINE, Protocol::Pipeline),
    (RTS_COPY, Protocol::Copy),
    (RTS_ZCOPY, Protocol::UdZcopy),
];

/// Whether a packet moves a message on, which its receiver may wait for in its sleep. A FIN that says why
/// not has the message go in packets. A message may be kept back for credit: who has none asks, and the
/// answer moves it; a rank wakes [its own threads](crate::engine::Engine::wake_own) by one.
pub(crate) fn starts_transfer(head: &[u8], is_own: bool) -> bool {
    match head {
        [RTS | RTS_OFFERED | RTS_WRITTEN | RTS_PIPELINE | RTS_COPY | RTS_ZCOPY, ..] => true,
        [RTR | RTR_COPY | RTR_MISSING | DATA | SENT, ..] => true,
        [CREDIT | ASK, ..] => !is_own,
        [FIN | WRITTEN, ..] => head.get(HEADER + 4).is_some_and(|status| *status != 0),
        _ => false,
    }
}

/// An encoded packet, an EAGER without its message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Encoded {
    bytes: [u8; HEAD_MAX],
    len: u8,
}

impl Encoded {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The protocol and the length of the message that it begins, with so many bytes behind it. `None`: it
    /// is a control packet, or a DATA, whose message began before.
    pub(crate) fn begins(&self, behind: usize) -> Option<(Protocol, u64)> {
        match Packet::decode(self.bytes())?.0 {
            Packet::Eager { .. } => Some((Protocol::Eager, behind as u64)),
            Packet::Rts { key, by, .. } => Some((by, key.len)),
            _ => None,
        }
    }

    pub(crate) fn is_data(&self) -> bool {
        self.bytes[0] == DATA
    }

    /// The same packet with another grant.
    pub(crate) fn with_grant(mut self, grant: u32) -> Self {
        self.bytes[4..8].copy_from_slice(&grant.to_le_bytes());
        self
    }
}

/// The head of an EAGER.
#[inline]
pub(crate) fn eager_head((context, tag): (u32, u32), grant: u32) -> [u8; EAGER_HEAD] {
    // Two words, as they are stored.
    let pair = |low: u32, high: u32| (u64::from(low) | u64::from(high) << 32).to_le_bytes();
    bytemuck::cast([pair(EAGER.into(), grant), pair(context, tag)])
}

/// The first bytes of a packet, as engines take them.
#[cfg(test)]
pub(crate) fn head_of(packet: &[u8]) -> [u8; HEAD_MAX] {
    let (mut head, len) = ([0xee; HEAD_MAX], packet.len().min(HEAD_MAX));
    head[..len].copy_from_slice(&packet[..len]);
    head
}

/// The envelope and the grant of an EAGER of so many bytes, which begins so; `None`: it is another
/// packet, or none.
#[inline]
pub(crate) fn eager_fields(head: &[u8; HEAD_MAX], len: usize) -> Option<((u32, u32), u32)> {
    let pair = |at: usize| {
        let (words, _) = head.as_chunks();
        let word = u64::from_le_bytes(words[at]);
        (word as u32, (word >> 32) as u32)
    };
    let (kind, grant) = pair(0);
    (kind == EAGER.into() && len >= EAGER_HEAD).then_some((pair(1), grant))
}

impl Packet {
    pub(crate) fn encode(&self, grant: u32) -> Encoded {
        let packet = |kind: u8, numbers: &[u32], rest: &[u8]| {
            let mut encoded = Encoded { bytes: [0; HEAD_MAX], len: 0 };
            let mut put = |field: &[u8]| {
                encoded.bytes[usize::from(encoded.len)..][..field.len()].copy_from_slice(field);
                encoded.len += field.len() as u8;
            };
            put(&[kind, 0, 0, 0]);
            put(&grant.to_le_bytes());
            numbers.iter().for_each(|number| put(&number.to_le_bytes()));
            put(rest);
            encoded
        };
        match *self {
            Self::Eager { context, tag } => packet(EAGER, &[context, tag], &[]),
            Self::Rts { context, tag, request, key, by } => {
                let kind = ANNOUNCED.iter().find(|(_, protocol)| *protocol == by).map_or(RTS, |(kind, _)| *kind);
                packet(kind, &[context, tag, request.0], &key.to_bytes())
            }
            Self::Fin { request, status } => packet(FIN, &[request.0], &[status]),
            Self::Written { receive, status } => packet(WRITTEN, &[receive.0], &[status]),
            Self::Rtr { request, receive, key } => packet(RTR, &[request.0, receive.0], &key.to_bytes()),
            Self::RtrCopy { request, receive, len } => packet(RTR_COPY, &[request.0, receive.0], &len.to_le_bytes()),
            Self::Sent { receive } => packet(SENT, &[receive.0], &[]),
            Self::RtrMissing { request, receive, missing: Window { at, unit, bits } } => {
                let rest: [u8; 24] = bytemuck::cast([
                    at.to_le_bytes(),
                    (bits as u64).to_le_bytes(),
                    ((bits >> 64) as u64).to_le_bytes(),
                ]);
                packet(RTR_MISSING, &[request.0, receive.0, unit], &rest)
            }
            Self::Data { receive, at } => packet(DATA, &[receive.0], &at.to_le_bytes()),
            Self::Batch { context } => packet(BATCH, &[context, 0], &[]),
            Self::Credit => packet(CREDIT, &[], &[]),
            Self::Ask => packet(ASK, &[], &[]),
        }
    }

    /// The packet and its grant; `None` if the bytes are no packet. Of an EAGER, several of them, and a
    /// DATA only the head is needed.
    #[inline]
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Self, u32)> {
        let ([kind, grant], rest) = numbers(bytes)?;
        let packet = match u8::try_from(kind).ok()? {
            EAGER => {
                let ([context, tag], _) = numbers(rest)?;
                Self::Eager { context, tag }
            }
            RTR => {
                let ([request, receive], rest) = numbers(rest)?;
                Self::Rtr { request: RequestId(request), receive: RequestId(receive), key: key(rest)? }
            }
            RTR_COPY => {
                let ([request, receive], rest) = numbers(rest)?;
                let len = u64::from_le_bytes(rest.try_into().ok()?);
                Self::RtrCopy { request: RequestId(request), receive: RequestId(receive), len }
            }
            SENT => match numbers(rest)? {
                ([receive], []) => Self::Sent { receive: RequestId(receive) },
                _ => return None,
            },
            RTR_MISSING => {
                let ([request, receive, unit], rest) = numbers(rest)?;
                let (at, bits) = rest.split_first_chunk()?;
                let missing =
                    Window { at: u64::from_le_bytes(*at), unit, bits: u128::from_le_bytes(bits.try_into().ok()?) };
                Self::RtrMissing { request: RequestId(request), receive: RequestId(receive), missing }
            }
            DATA => {
                let ([receive], rest) = numbers(rest)?;
                Self::Data { receive: RequestId(receive), at: u64::from_le_bytes(*rest.first_chunk()?) }
            }
            BATCH => match numbers(rest)?.0 {
                [context, 0] => Self::Batch { context },
                _ => return None,
            },
            kind @ (FIN | WRITTEN) => {
                let ([request], rest) = numbers(rest)?;
                let (&[status], request) = (rest, RequestId(request)) else { return None };
                match kind {
                    FIN => Self::Fin { request, status },
                    _ => Self::Written { receive: request, status },
                }
            }
            CREDIT if rest.is_empty() => Self::Credit,
            ASK if rest.is_empty() => Self::Ask,
            kind => {
                let (_, by) = *ANNOUNCED.iter().find(|(of, _)| *of == kind)?;
                let ([context, tag, request], rest) = numbers(rest)?;
                Self::Rts { context, tag, request: RequestId(request), key: key(rest)?, by }
            }
        };
        Some((packet, grant))
    }
}

/// The key of a message's memory, which is the rest of a packet.
fn key(rest: &[u8]) -> Option<SegmentKey> {
    let key = SegmentKey::from_bytes(<&[u8; SegmentKey::BYTES]>::try_from(rest).ok()?)?;
    (key.len <= LONGEST).then_some(key)
}

/// The first numbers, and what follows.
#[inline]
fn numbers<const N: usize>(bytes: &[u8]) -> Option<([u32; N], &[u8])> {
    let (numbers, rest) = bytes.split_at_checked(4 * N)?;
    Some((std::array::from_fn(|at| u32::from_le_bytes(numbers.as_chunks().0[at])), rest))
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
            Packet::Eager { context: 1, tag: 2 },
            Packet::Rts { context: 1, tag: u32::MAX, request: RequestId(3), key: key(), by: Protocol::Rget },
            Packet::Rts { context: 1, tag: 2, request: RequestId(3), key: key(), by: Protocol::Offered },
            Packet::Rts { context: 1, tag: 2, request: RequestId(3), key: key(), by: Protocol::Rput },
            Packet::Rts { context: 1, tag: 2, request: RequestId(3), key: key(), by: Protocol::Pipeline },
            Packet::Rts { context: 1, tag: 2, request: RequestId(3), key: key(), by: Protocol::Copy },
            Packet::Rts { context: 1, tag: 2, request: RequestId(3), key: key(), by: Protocol::UdZcopy },
            Packet::Rtr { request: RequestId(3), receive: RequestId(4), key: key() },
            Packet::Sent { receive: RequestId(4) },
            Packet::RtrMissing {
                request: RequestId(3),
                receive: RequestId(4),
                missing: Window { at: 1 << 40, unit: 1024, bits: 5 << 100 | 1 },
            },
            Packet::RtrCopy { request: RequestId(3), receive: RequestId(4), len: u64::MAX },
            Packet::Data { receive: RequestId(4), at: 1 << 40 },
            Packet::Batch { context: 1 },
            Packet::Written { receive: RequestId(4), status: 0 },
            Packet::Fin { request: RequestId(3), status: 1 },
            Packet::Credit,
            Packet::Ask,
        ];
        for packet in packets {
            let encoded = packet.encode(77);
            let bytes = encoded.bytes();
            assert_eq!(Packet::decode(bytes), Some((packet, 77)));
            assert!((0..bytes.len()).all(|cut| Packet::decode(&bytes[..cut]).is_none()), "{packet:?}");
        }
        assert_eq!(packets[0].encode(77).bytes(), eager_head((1, 2), 77));
        for packet in packets {
            let encoded = packet.encode(77);
            let head = head_of(encoded.bytes());
            let eager = matches!(packet, Packet::Eager { .. }).then_some(((1, 2), 77));
            assert_eq!(eager_fields(&head, encoded.bytes().len()), eager);
            assert_eq!(eager_fields(&head, EAGER_HEAD - 1), None);
        }
        assert_eq!(packets[1].encode(0).bytes().len(), HEAD_MAX);
    }

    #[test]
    fn a_window_has_what_is_missing() {
        let missing = [3, 4, 130, 131, 700];
        let (window, count) = Window::first(&missing, 10);
        assert_eq!((window, count), (Window { at: 30, unit: 10, bits: 1 << 127 | 3 }, 3));
        assert_eq!(window.ranges(1_305), Some(vec![(30, 10), (40, 10), (1_300, 5)]));
        assert_eq!(window.ranges(1_300), None);
        assert_eq!(Window { at: u64::MAX, unit: 1, bits: 2 }.ranges(u64::MAX), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_packet_or_none(bytes in prop::collection::vec(any::<u8>(), 0..SHORTEST_LIMIT)) {
            if let Some((packet, grant)) = Packet::decode(&bytes) {
                let encoded = packet.encode(grant);
                match packet {
                    Packet::Eager { .. } => prop_assert_eq!(encoded.bytes(), &bytes[..EAGER_HEAD]),
                    Packet::Data { .. } => prop_assert_eq!(encoded.bytes(), &bytes[..DATA_HEAD]),
                    Packet::Batch { .. } => prop_assert_eq!(encoded.bytes(), &bytes[..BATCH_HEAD]),
                    _ => prop_assert_eq!(encoded.bytes(), &bytes[..]),
                }
            }
        }
    }
}
