//! What a rank has sent.

use onesided_fabric::bootstrap;
use onesided_fabric::{Channel, ChannelCounts, ChannelMemory, Fabric, Transport, display};

use crate::driver::progress::Progress;
use crate::engine::{CLASSES, Tally};
use crate::{Messages, Protocol};

/// What a rank has sent, in all its communicators: see [`Messages::statistics`].
///
/// Shown as a table with a row for each channel, protocol and length, and at the end of a channel the packets
/// without a message, the ranks that were sent messages, and what became of the channel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Messages by channel, protocol and length, those of collectives and served locks among them.
    pub messages: Vec<SentMessages>,
    /// Packets without a message, by channel: grants of credit, and what moves announced messages on.
    pub control: Vec<(Channel, u64)>,
    /// Messages by rank of the fabric and channel.
    pub peers: Vec<SentTo>,
    /// What became of the channels, and what those of now take of this rank's memory.
    pub channels: ChannelCounts,
}

/// The messages of a channel, a protocol and a class of lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SentMessages {
    /// The channel of their first packet.
    pub channel: Channel,
    /// The protocol with which they began; [`Eager`](Protocol::Eager) also where a rule named the channel.
    pub protocol: Protocol,
    /// The longest in bytes: 64, 512, 4 Ki, 64 Ki or 512 Ki. `None`: longer.
    pub at_most: Option<u64>,
    /// How many.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The messages to a rank by a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SentTo {
    /// The rank.
    pub rank: u32,
    /// The channel of their first packet.
    pub channel: Channel,
    /// How many.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Statistics {
    fn to_table(&self) -> bootstrap::Statistics {
        use bootstrap::Statistics as Table;
        let mut table = Table::default();
        for SentMessages { channel, protocol, at_most, messages, bytes } in &self.messages {
            let at_most = at_most.unwrap_or(Table::LONGER);
            table.count(channel.name(), &protocol.to_string(), at_most, [*messages, *bytes]);
        }
        for (channel, packets) in &self.control {
            table.count(channel.name(), "control", Table::NONE, [*packets, 0]);
        }
        for SentTo { channel, .. } in &self.peers {
            table.count(channel.name(), "peers", Table::NONE, [1, 0]);
        }
        let ChannelCounts {
            made, refused, given_back, rings, resent, overtook, landed, moved, missing, memory, ..
        } = self.channels;
        for (channel, ChannelMemory { count, bytes }) in Channel::ALL.into_iter().zip(memory) {
            if count > 0 {
                table.count(channel.name(), "memory", Table::NONE, [count.into(), bytes]);
            }
        }
        for (channel, what, count) in [
            (Channel::Connection, "made", made),
            (Channel::Connection, "refused", refused),
            (Channel::Connection, "given-back", given_back),
            (Channel::Datagrams, "resent", resent),
            (Channel::Datagrams, "overtook", overtook),
            (Channel::Datagrams, "landed", landed),
            (Channel::Datagrams, "moved", moved),
            (Channel::Datagrams, "missing", missing),
            (Channel::FastPath, "made", rings),
        ] {
            if count > 0 {
                table.count(channel.name(), what, Table::NONE, [count, 0]);
            }
        }
        table
    }
}

display!([] Statistics, |this| "{}", this.to_table());

impl<F: Fabric> Progress<F> {
    fn statistics(&self) -> Statistics {
        let state = self.state();
        let (mut messages, mut control) = (Vec::new(), Vec::new());
        for (channel, protocol, class, Tally { messages: count, bytes }) in state.engine.sent_messages() {
            match protocol {
                Some(protocol) => {
                    let at_most = CLASSES.get(class).copied();
                    messages.push(SentMessages { channel, protocol, at_most, messages: count, bytes });
                }
                None => control.push((channel, count)),
            }
        }
        let peers = state.engine.sent_to().flat_map(|(rank, sent)| {
            let sent = Channel::ALL.into_iter().zip(sent).filter(|(_, tally)| tally.messages > 0);
            sent.map(move |(channel, Tally { messages, bytes })| SentTo { rank: rank.0, channel, messages, bytes })
        });
        let peers = peers.collect();
        Statistics { messages, control, peers, channels: state.transport.channel_counts() }
    }

    /// The lines of a dump that tell what was sent.
    pub(crate) fn describe_sent(&self) -> impl Iterator<Item = String> {
        let Statistics { messages, control, peers, .. } = self.statistics();
        Channel::ALL.into_iter().filter_map(move |channel| {
            let of_it = || messages.iter().filter(|sent| sent.channel == channel);
            let (count, bytes) =
                (of_it().map(|sent| sent.messages).sum::<u64>(), of_it().map(|sent| sent.bytes).sum::<u64>());
            let ranks = peers.iter().filter(|sent| sent.channel == channel).count();
            let control = control.iter().find(|(of, _)| *of == channel).map_or(0, |(_, packets)| *packets);
            (count + control > 0).then(|| {
                let name = channel.name();
                format!(
                    "sent {count} messages of {bytes} bytes by {name} to {ranks} ranks, and {control} control packets"
                )
            })
        })
    }

    /// Reports them at the end of this rank's messages, if that is asked for.
    pub(crate) fn report_statistics(&self) {
        if std::env::var_os(bootstrap::STATISTICS).is_some_and(|value| !value.is_empty()) {
            let lines = self.statistics().to_table().lines().concat();
            let _ = std::io::Write::write_all(&mut std::io::stderr(), lines.as_bytes());
        }
    }
}

impl<F: Fabric> Messages<F> {
    /// What this rank has sent so far, in all its communicators, by channel, protocol and length, and to whom;
    /// and what became of its channels (koop-2008, section 6). [`dump`](onesided_fabric::dump) has a summary;
    /// `onesided run --statistics` shows the sums of a job at its end.
    ///
    /// ```
    /// use onesided_two_sided::{Messages, Protocol, Tag};
    ///
    /// onesided_fabric::threads(2, |world| {
    ///     let messages = Messages::new(&world).wait().unwrap();
    ///     let other = 1 - world.rank();
    ///     let before = messages.statistics();
    ///     messages.send(&[7_u64; 100], other, Tag(0)).wait().unwrap();
    ///     messages.recv::<u64>(other, Tag(0)).wait().unwrap();
    ///     let of_this_length = |statistics: &onesided_two_sided::Statistics| {
    ///         let sent = statistics.messages.iter().find(|sent| sent.at_most == Some(4096));
    ///         sent.map_or((0, 0), |sent| (sent.messages, sent.bytes))
    ///     };
    ///     let after = messages.statistics();
    ///     assert_eq!((of_this_length(&before), of_this_length(&after)), ((0, 0), (1, 800)), "{after}");
    /// })
    /// .unwrap();
    /// ```
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.progress().statistics()
    }
}
