//! What a rank has sent, by channel, protocol and size class (koop-2008, section 6).

use std::collections::BTreeMap;

use onesided_fabric::Channel;
use onesided_fabric::remote_memory::Rank;

use super::Engine;
use crate::Protocol;
use crate::engine::wire::Encoded;

/// The longest messages of all size classes but the last, in bytes; koop-2008, Fig. 5 has four of them.
pub(crate) const CLASSES: [u64; 5] = [64, 512, 4 << 10, 64 << 10, 512 << 10];
/// Packets are shorter than the longest of these.
const OF_PACKETS: usize = 4;

/// Messages, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

impl Tally {
    #[inline]
    pub(super) const fn add(&mut self, bytes: u64) {
        self.messages += 1;
        self.bytes += bytes;
    }
}

#[inline]
fn class(bytes: u64) -> usize {
    CLASSES.iter().position(|most| bytes <= *most).unwrap_or(CLASSES.len())
}

/// What was sent to all ranks together.
#[derive(Debug, Default)]
pub(super) struct Sent {
    /// By channel and class.
    eager: [[Tally; OF_PACKETS]; Channel::ALL.len()],
    /// By class; packets without a message have no protocol.
    others: BTreeMap<(Channel, Option<Protocol>, usize), Tally>,
}

impl Sent {
    /// A short message was sent.
    #[inline]
    pub(super) fn eager(&mut self, channel: Channel, bytes: usize) {
        self.eager[channel as usize][class(bytes as u64).min(OF_PACKETS - 1)].add(bytes as u64);
    }
}

impl<S> Engine<S> {
    /// A packet has left that waited, with so many bytes behind its head.
    pub(super) fn count(&mut self, (to, channel): (Rank, Channel), packet: &Encoded, behind: usize) {
        if packet.is_data() {
            return;
        }
        let begins = packet.begins(behind);
        if let Some((_, bytes)) = begins {
            self.peer(to).sent_by(channel).add(bytes);
        }
        match begins {
            Some((Protocol::Eager, _)) => self.sent.eager(channel, behind),
            Some((by, bytes)) => self.sent.others.entry((channel, Some(by), class(bytes))).or_default().add(bytes),
            None => self.sent.others.entry((channel, None, 0)).or_default().add(packet.bytes().len() as u64),
        }
    }

    /// The messages that were sent, by channel, protocol and class, and last of a channel the packets without
    /// one.
    pub(crate) fn sent_messages(&self) -> Vec<(Channel, Option<Protocol>, usize, Tally)> {
        let of_channel = |channel: Channel| {
            let eager = self.sent.eager[channel as usize].iter().enumerate();
            let eager = eager.map(move |(class, tally)| (channel, Some(Protocol::Eager), class, *tally));
            let others = self.sent.others.iter().filter(move |((of, ..), _)| *of == channel);
            let mut others: Vec<_> = others.map(|((_, by, class), tally)| (channel, *by, *class, *tally)).collect();
            others.sort_by_key(|(_, by, class, _)| (by.is_none(), *by, *class));
            eager.filter(|(.., tally)| tally.messages > 0).chain(others)
        };
        Channel::ALL.into_iter().flat_map(of_channel).collect()
    }

    /// The ranks that messages were sent to, with those by each [channel](Channel::ALL).
    pub(crate) fn sent_to(&self) -> impl Iterator<Item = (Rank, [Tally; Channel::ALL.len()])> {
        let spoken_to = (0..).zip(&self.peer_of).filter(|(_, at)| **at != 0);
        spoken_to.map(|(rank, at)| (Rank(rank), self.peers[*at as usize - 1].sent()))
    }
}
