//! The host daemon's tables: joined ranks, values by name, memory by region.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use onesided_remote_memory::{Liveness, Rank, RegionId};

use crate::Secret;
use crate::daemon::relay::frames::Said;
use crate::frame::{Bytes, Name};
use crate::protocol::{Failure, FromDaemon, FromRank, Refusal};
use crate::segment::JobSegment;

/// The maximum bytes of names and values together, per rank.
const BYTES_A_RANK: usize = 4 << 20;

/// The host daemon's tables.
#[derive(Debug)]
pub(crate) struct Tables {
    job_segment: Arc<JobSegment>,
    secret: Secret,
    /// The ranks of this host that a process has joined as.
    seated: HashSet<Rank>,
    values: HashMap<Name, Bytes>,
    /// The bytes of all names and values.
    used: usize,
    regions: HashMap<(Rank, RegionId), OwnedFd>,
    most_regions: usize,
    /// Frames for the daemons of other hosts; `None` without other hosts.
    outbox: Option<Outbox>,
}

/// Frames that wait to be sent to the daemons of other hosts.
#[derive(Debug, Default)]
struct Outbox {
    waiting: Vec<Said>,
    /// The head daemon decides about values; daemons of other hosts ask it.
    asks: Asks,
}

/// Whether the head daemon is asked about values.
#[derive(Debug, Default)]
enum Asks {
    /// This is the head daemon.
    #[default]
    Nobody,
    /// The next request id, and the answers received.
    Head { next: u64, answers: HashMap<u64, Result<(), Failure>> },
    /// The head is gone: a rank of its host, and the answers that it still sent.
    Gone { rank: Rank, answers: HashMap<u64, Result<(), Failure>> },
}

/// The outcome of a rank's put.
#[derive(Debug)]
pub(crate) enum Put {
    Done(Result<(), Failure>),
    /// The head decides; [`Tables::stored`] has the answer later.
    Requested(u64),
}

/// The answer to a rank.
#[derive(Debug)]
pub(crate) enum Answer<'t> {
    Say(FromDaemon),
    Hand(BorrowedFd<'t>),
}

impl From<Failure> for Answer<'_> {
    fn from(failure: Failure) -> Self {
        Self::Say(FromDaemon::Failed(failure))
    }
}

impl Tables {
    pub(crate) fn new(job_segment: Arc<JobSegment>, secret: Secret, most_regions: usize) -> Self {
        Self {
            job_segment,
            secret,
            seated: HashSet::new(),
            values: HashMap::new(),
            used: 0,
            regions: HashMap::new(),
            most_regions,
            outbox: None,
        }
    }

    /// Starts relaying to other hosts. `head`: whether this daemon decides about values.
    pub(crate) fn relay(&mut self, head: bool) {
        let asks = if head { Asks::Nobody } else { Asks::Head { next: 0, answers: HashMap::new() } };
        // Relays the values that were put before.
        let values = self.values.iter().map(|(name, value)| Said::Value { name: name.clone(), value: value.clone() });
        let waiting = if head { values.collect() } else { Vec::new() };
        self.outbox = Some(Outbox { waiting, asks });
    }

    /// Takes the frames for the daemons of other hosts, in order.
    pub(crate) fn outgoing(&mut self) -> Vec<Said> {
        self.outbox.as_mut().map_or_else(Vec::new, |outbox| std::mem::take(&mut outbox.waiting))
    }

    /// Records the head's answer.
    pub(crate) fn answered(&mut self, ticket: u64, outcome: Result<(), Failure>) {
        if let Some(Outbox { asks: Asks::Head { answers, .. }, .. }) = &mut self.outbox {
            answers.insert(ticket, outcome);
        }
    }

    /// Records that the head is gone; `rank` was on its host. Its answers remain valid, read or
    /// not.
    pub(crate) fn head_gone(&mut self, rank: Rank) {
        if let Some(Outbox { waiting, asks }) = &mut self.outbox {
            waiting.clear();
            let answers = match std::mem::take(asks) {
                Asks::Head { answers, .. } | Asks::Gone { answers, .. } => answers,
                Asks::Nobody => HashMap::new(),
            };
            *asks = Asks::Gone { rank, answers };
        }
    }

    /// The head's answer, once it is there.
    pub(crate) fn stored(&mut self, ticket: u64) -> Option<Answer<'_>> {
        let outcome = match &mut self.outbox.as_mut()?.asks {
            Asks::Head { answers, .. } => answers.remove(&ticket)?,
            Asks::Gone { rank, answers } => answers.remove(&ticket).unwrap_or(Err(Failure::PeerDied(*rank))),
            Asks::Nobody => return None,
        };
        Some(outcome.map_or_else(Answer::from, |()| Answer::Say(FromDaemon::Done)))
    }

    /// Puts a value for a rank of this host.
    pub(crate) fn put_by_rank(&mut self, name: Name, value: Bytes) -> Put {
        match &mut self.outbox {
            Some(Outbox { waiting, asks: Asks::Head { next, .. } }) => {
                let ticket = *next;
                *next += 1;
                waiting.push(Said::Put { ticket, name, value });
                Put::Requested(ticket)
            }
            Some(Outbox { asks: Asks::Gone { rank, .. }, .. }) => Put::Done(Err(Failure::PeerDied(*rank))),
            _ => Put::Done(self.put(name, value)),
        }
    }

    pub(crate) fn size(&self) -> u32 {
        self.job_segment.size()
    }

    pub(crate) fn job_segment(&self) -> &JobSegment {
        &self.job_segment
    }

    pub(crate) const fn secret(&self) -> &Secret {
        &self.secret
    }

    /// A rank joins once: a second process would be taken for the first.
    pub(crate) fn claim_rank(&mut self, rank: Rank) -> Result<(), Refusal> {
        if !self.job_segment.has(rank) {
            return Err(Refusal::NoSuchRank);
        }
        if self.seated.insert(rank) { Ok(()) } else { Err(Refusal::Taken) }
    }

    /// A rank that left takes its memory with it. A dead rank's memory stays for recovery.
    pub(crate) fn disconnected(&mut self, rank: Rank) {
        if self.job_segment.liveness(rank) == Liveness::Left {
            self.regions.retain(|(owner, _), _| *owner != rank);
        }
    }

    /// Serves a request with an immediate answer. `memory` is missing if it was lost in transit.
    pub(crate) fn serve(&mut self, from: Rank, request: FromRank, memory: Option<OwnedFd>) -> Answer<'_> {
        let done = match request {
            FromRank::Publish { region } => self.publish((from, region), memory),
            FromRank::Retract { region } => {
                self.regions.remove(&(from, region));
                Ok(())
            }
            FromRank::Fetch { rank, region } => {
                return match self.regions.get(&(rank, region)) {
                    Some(memory) => Answer::Hand(memory.as_fd()),
                    None => Failure::NoSuchRegion.into(),
                };
            }
            FromRank::Hello { .. } | FromRank::Put { .. } | FromRank::Get { .. } => {
                unreachable!("the session answers these")
            }
        };
        done.map_or_else(Answer::from, |()| Answer::Say(FromDaemon::Done))
    }

    /// The answer to a `get`; `None` while it has to wait.
    pub(crate) fn value(&self, name: &Name, late: bool) -> Option<Answer<'_>> {
        if let Some(value) = self.values.get(name) {
            return Some(Answer::Say(FromDaemon::Value(value.clone())));
        }
        // It is unknown which rank would put the value. Like a barrier, a wait needs all ranks.
        match self.job_segment.failed_rank() {
            Some(rank) => Some(Failure::PeerDied(rank).into()),
            None => late.then(|| Failure::TimedOut.into()),
        }
    }

    /// Stores a value; the head relays it to the other hosts.
    pub(crate) fn put(&mut self, name: Name, value: Bytes) -> Result<(), Failure> {
        let used = self.used + name.0.len() + value.0.len();
        if used > self.size() as usize * BYTES_A_RANK {
            return Err(Failure::Full);
        }
        match self.values.entry(name) {
            Entry::Occupied(_) => Err(Failure::NameTaken),
            Entry::Vacant(entry) => {
                if let Some(Outbox { waiting, asks: Asks::Nobody }) = &mut self.outbox {
                    waiting.push(Said::Value { name: entry.key().clone(), value: value.clone() });
                }
                entry.insert(value);
                self.used = used;
                Ok(())
            }
        }
    }

    fn publish(&mut self, region: (Rank, RegionId), memory: Option<OwnedFd>) -> Result<(), Failure> {
        if self.regions.len() >= self.most_regions {
            return Err(Failure::NoDescriptors);
        }
        match (self.regions.entry(region), memory) {
            (Entry::Occupied(_), _) => Err(Failure::RegionTaken),
            (Entry::Vacant(_), None) => Err(Failure::NoDescriptors),
            (Entry::Vacant(entry), Some(memory)) => {
                entry.insert(memory);
                Ok(())
            }
        }
    }
}
