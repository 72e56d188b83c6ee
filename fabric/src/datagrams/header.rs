//! The header of a datagram.

use onesided_remote_memory::Rank;

/// The length of a header in bytes.
pub(super) const HEADER: usize = 40;
const MAGIC: u16 = 0x5344;
const VERSION: u8 = 1;
/// The datagram carries a packet.
const DATA: u8 = 1;
/// The receiver acknowledges at once.
const ASKS: u8 = 2;

/// What a datagram says before its packet.
///
/// | bytes | field (little endian) |
/// |---|---|
/// | 0, 2, 3 | magic 2, version 1, flags 1: carries a packet, asks for an acknowledgement |
/// | 4, 8, 12, 16 | job, sender's rank, sender's incarnation, receiver's incarnation: 4 each |
/// | 20 | sequence number 4 |
/// | 24, 28, 30 | acknowledgement 4, room 2, zero 2 |
/// | 32 | selective acknowledgement 8 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) carries: bool,
    pub(super) asks: bool,
    pub(super) job: u32,
    pub(super) from: Rank,
    pub(super) incarnation: u32,
    /// The receiver's incarnation.
    pub(super) to: u32,
    /// The number of its packet, or of the next one.
    pub(super) sequence: u32,
    pub(super) acknowledges: Acknowledgement,
}

/// What a receiver has of one sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Acknowledgement {
    /// The number of the first packet that it lacks.
    pub(super) next: u32,
    /// How many packets from that on it takes.
    pub(super) room: u16,
    /// Bit `n`: it has the packet `next + 1 + n`.
    pub(super) selective: u64,
}

impl Header {
    pub(super) fn to_bytes(self) -> [u8; HEADER] {
        let Self { carries, asks, job, from, incarnation, to, sequence, acknowledges } = self;
        let mut bytes = [0; HEADER];
        bytes[..2].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[2] = VERSION;
        bytes[3] = (u8::from(carries) * DATA) | (u8::from(asks) * ASKS);
        let words = [job, from.0, incarnation, to, sequence, acknowledges.next, acknowledges.room.into()];
        for (bytes, word) in bytes[4..].chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        bytes[32..].copy_from_slice(&acknowledges.selective.to_le_bytes());
        bytes
    }

    /// The header of a datagram and its packet. `None`: not a datagram of this protocol and
    /// version.
    pub(super) fn parse(datagram: &[u8]) -> Option<(Self, &[u8])> {
        let (header, packet) = datagram.split_first_chunk::<HEADER>()?;
        let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let flags = header[3];
        let carries = flags & DATA != 0;
        let valid = header[..2] == MAGIC.to_le_bytes()
            && header[2] == VERSION
            && flags & !(DATA | ASKS) == 0
            && (carries || packet.is_empty());
        let acknowledges = Acknowledgement {
            next: word(24),
            room: u16::try_from(word(28)).ok()?,
            selective: u64::from(word(36)) << 32 | u64::from(word(32)),
        };
        let header = Self {
            carries,
            asks: flags & ASKS != 0,
            job: word(4),
            from: Rank(word(8)),
            incarnation: word(12),
            to: word(16),
            sequence: word(20),
            acknowledges,
        };
        valid.then_some((header, packet))
    }
}
