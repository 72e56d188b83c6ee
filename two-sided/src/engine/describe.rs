//! What is under way, as a dump shows it.
//!
//! Nothing reads a clock when it begins. A dump remembers when it first saw what is under way, and
//! later ones tell how long that is ago.

use std::collections::{BTreeSet, HashMap};

use onesided_fabric::remote_memory::Rank;

use super::peer::Peer;
use super::pipeline::Writes;
use super::receives::{Body, ReceiveState};
use super::rendezvous::Here;
use super::{Engine, SendState};
use crate::Protocol;
use crate::engine::matching::{Arrival, Pattern, is_collective};
use crate::{Source, Status, Tag, Tags};

/// The most of each kind that are shown.
const SHOWN: usize = 8;

/// What was seen, by unique numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Item {
    Receive(u64),
    Message(Arrival),
    Send(u64),
    /// A rank, and the number of its last message.
    Rank(u32, u32),
}

/// When each was first seen, in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Seen(HashMap<Item, u64>);

/// The ages of what is seen at a time.
struct Ages {
    now: u64,
    before: Seen,
    seen: Seen,
}

impl Ages {
    /// How long ago it was first seen, at least; nothing below a second.
    fn of(&mut self, item: Item) -> String {
        let first = self.before.0.get(&item).copied().unwrap_or(self.now);
        self.seen.0.insert(item, first);
        match self.now.saturating_sub(first) / 1_000_000_000 {
            0 => String::new(),
            seconds => format!(" since {seconds} s"),
        }
    }
}

impl<S> Engine<S> {
    /// The messages that no receive has got, the receives and sends that are not over, the ranks of
    /// these that send nothing, and peers without credit, a line each. `now` is in nanoseconds.
    pub(crate) fn describe(&mut self, now: u64) -> Vec<String> {
        let mut ages = Ages { now, before: std::mem::take(&mut self.seen), seen: Seen::default() };
        let (mut lines, mut awaited) = (Vec::new(), BTreeSet::new());
        let mut list = |[one, many]: [&str; 2], all: Vec<String>| {
            let more = all.len().saturating_sub(SHOWN);
            if !all.is_empty() {
                let shown = all[..all.len() - more].join("; ");
                let more = if more == 0 { String::new() } else { format!("; and {more} more") };
                let what = if all.len() == 1 { one } else { many };
                lines.push(format!("{} {what}: {shown}{more}", all.len()));
            }
        };
        let posted =
            self.matcher.receives.numbered().filter_map(|(number, Pattern { context, source, tag }, receive)| {
                let ReceiveState::Posted = receive.state else { return None };
                awaited.extend(source);
                // A wait for a collective tells of itself.
                if is_collective(context) {
                    return None;
                }
                let source = source.map_or(Source::Any, Source::Rank);
                let tags = tag.map_or(Tags::Any, |tag| Tags::Is(Tag(tag)));
                Some(format!("with {tags} from {source}{}", ages.of(Item::Receive(number))))
            });
        list(["receive posted", "receives posted"], posted.collect());
        let unexpected = self.matcher.all_unexpected();
        let unexpected = unexpected.filter(|(_, envelope, _)| !is_collective(envelope.context));
        let unexpected = unexpected.map(|(at, envelope, message)| {
            let status = Status { source: envelope.source, tag: Tag(envelope.tag), bytes: message.body.len() };
            format!("{status}{}", ages.of(Item::Message(self.matcher.arrival(at))))
        });
        list(["message without a receive", "messages without a receive"], unexpected.collect());
        let mut come = [const { Vec::new() }; 2];
        for (_, envelope, message) in self.matcher.messages() {
            if let Body::Moving(moving) = &message.body
                && let Some(exposed) = &moving.exposed
            {
                let is_copied = matches!(exposed.memory, Here::Elements(_));
                let status = Status { source: envelope.source, tag: Tag(envelope.tag), bytes: message.body.len() };
                come[usize::from(is_copied)].push(status.to_string());
            }
        }
        let [written, copied] = come;
        list(["message that its sender writes here", "messages that their senders write here"], written);
        list(["message that comes in packets", "messages that come in packets"], copied);
        let sends = self.sends.iter().filter_map(|(_, send)| {
            let state = match (&send.state, send.writes) {
                (SendState::Queued, _) => "queued",
                (
                    SendState::Announced,
                    Some(Writes { by: Protocol::Rput | Protocol::Pipeline | Protocol::UdZcopy, .. }),
                ) => "announced, to be written when its receiver is ready",
                (SendState::Announced, Some(Writes { by: Protocol::Copy, .. })) => {
                    "announced, to be sent in packets when its receiver is ready"
                }
                (SendState::Announced, _) => "announced, not read",
                (SendState::Writing(_), Some(Writes { is_copied: true, .. })) => "being sent in packets",
                (SendState::Writing(_), _) => "being written",
                (SendState::Done(_), _) => return None,
            };
            awaited.insert(send.to.0);
            Some(format!("to {} ({state}){}", send.to, ages.of(Item::Send(send.number))))
        });
        list(["send under way", "sends under way"], sends.collect());
        let silent = awaited.into_iter().filter_map(|rank| {
            let peer = self.known_peer(Rank(rank));
            let age = ages.of(Item::Rank(rank, peer.map_or(0, Peer::came)));
            (!age.is_empty()).then(|| format!("rank {rank}{age}"))
        });
        list(["awaited rank that sends no message", "awaited ranks that send no message"], silent.collect());
        let ranks = (0..).zip(&self.peer_of).filter(|(_, at)| **at != 0);
        let waits = ranks.filter_map(|(rank, at)| {
            let queued = self.peers[*at as usize - 1].without_credit()?;
            Some(format!("rank {rank} ({queued} messages queued)"))
        });
        list(
            ["peer without credit, which receives too little", "peers without credit, which receive too little"],
            waits.collect(),
        );
        self.seen = ages.seen;
        lines
    }
}
