//! Which receive gets which message, by lists.

use std::collections::HashMap;

use super::net::{Brought, messages_of};
use crate::engine::matching::oracle::Oracle;
use crate::engine::matching::{Envelope, Pattern};

/// The matching by lists. Receives are the indices of their requests.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) oracle: Oracle,
    /// The messages that have arrived, in order.
    pub(super) arrivals: Vec<(Envelope, u64)>,
    /// The arrivals that receives get.
    pub(super) gets: HashMap<usize, u32>,
    pub(super) is_closed: bool,
}

impl Seen {
    pub(super) fn arrive(&mut self, from: u32, packet: &[u8]) {
        let Some(Brought { context, tag, number, .. }) = messages_of(packet).pop() else { return };
        let last = self.arrivals.iter().rev().find(|(envelope, _)| envelope.source == from);
        assert!(last.is_none_or(|(_, last)| *last < number), "{number} arrived twice or out of order");
        self.arrivals.push((Envelope { context, source: from, tag }, number));
        if !self.is_closed {
            self.place(self.arrivals.len() as u32 - 1);
        }
    }

    fn place(&mut self, arrival: u32) {
        let (envelope, _) = self.arrivals[arrival as usize];
        match self.oracle.take_posted(envelope) {
            Some(receive) => drop(self.gets.insert(receive as usize, arrival)),
            None => self.oracle.keep(envelope, arrival),
        }
    }

    pub(super) fn take(&mut self, pattern: Pattern, request: usize) -> bool {
        let found = self.oracle.find(pattern).map(|at| self.oracle.unexpected.remove(at).1);
        self.gets.extend(found.map(|arrival| (request, arrival)));
        found.is_some()
    }

    pub(super) fn receive(&mut self, pattern: Pattern, request: usize, is_lost: bool) {
        if !self.take(pattern, request) && !is_lost {
            self.oracle.posted.push((pattern, request as u32));
        }
    }

    pub(super) fn give_back(&mut self, request: usize) {
        if let Some(arrival) = self.gets.remove(&request) {
            self.place(arrival);
        }
    }
}
