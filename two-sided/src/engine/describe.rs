//! What is under way, as a dump shows it.

use super::receives::ReceiveState;
use super::{Engine, SendState};
use crate::matching::is_collective;
use crate::{Source, Status, Tag, Tags};

/// The most of each kind that are shown.
const SHOWN: usize = 8;

impl<S> Engine<S> {
    /// The messages that no receive has got, the receives and sends that are not over, and peers
    /// without credit, a line each.
    pub(crate) fn describe(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut list = |[one, many]: [&str; 2], all: Vec<String>| {
            let more = all.len().saturating_sub(SHOWN);
            if !all.is_empty() {
                let shown = all[..all.len() - more].join("; ");
                let more = if more == 0 { String::new() } else { format!("; and {more} more") };
                let what = if all.len() == 1 { one } else { many };
                lines.push(format!("{} {what}: {shown}{more}", all.len()));
            }
        };
        // A wait for a collective tells of itself.
        let is_posted = |state: &ReceiveState<S>| matches!(state, ReceiveState::Posted(_));
        let posted = self.receives.iter().map(|(_, receive)| receive);
        let posted = posted.filter(|receive| is_posted(&receive.state) && !is_collective(receive.pattern.context));
        let posted = posted.map(|receive| {
            let source = receive.pattern.source.map_or(Source::Any, Source::Rank);
            let tags = receive.pattern.tag.map_or(Tags::Any, |tag| Tags::Is(Tag(tag)));
            format!("with {tags} from {source}")
        });
        list(["receive posted", "receives posted"], posted.collect());
        let unexpected = self.matcher.all_unexpected().filter(|(envelope, _)| !is_collective(envelope.context));
        let unexpected = unexpected.map(|(envelope, (body, _))| {
            Status { source: envelope.source, tag: Tag(envelope.tag), bytes: body.len() }.to_string()
        });
        list(["message without a receive", "messages without a receive"], unexpected.collect());
        let sends = self.sends.iter().filter_map(|(_, send)| {
            let state = match send.state {
                SendState::Queued => "queued",
                SendState::Announced => "announced, not read",
                SendState::Done(_) => return None,
            };
            Some(format!("to {} ({state})", send.to))
        });
        list(["send under way", "sends under way"], sends.collect());
        let ranks = (0..).zip(&self.peer_of).filter(|(_, at)| **at != 0);
        let waits = ranks.filter_map(|(rank, at)| {
            let queued = self.peers[*at as usize - 1].without_credit()?;
            Some(format!("rank {rank} ({queued} messages queued)"))
        });
        list(
            ["peer without credit, which receives too little", "peers without credit, which receive too little"],
            waits.collect(),
        );
        lines
    }
}
