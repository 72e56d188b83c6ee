//! Deadlocks of waiters that pause and try again: events go on without end, and change nothing.

use std::collections::{BTreeMap, BTreeSet};

use onesided_remote_memory::{At, Rank, RegionId};

use super::State;
use crate::agenda::Due;
use crate::report::{Stuck, WaitsFor};

/// How many changes are remembered.
const REMEMBERED: usize = 4096;

/// How a stall is found: first nothing changes for half of the time. Then the ranks are watched
/// until everything that was to come has happened, and for the other half of the time. If nothing
/// has changed, a rank that tried again meanwhile, or has no timer, waits in vain.
#[derive(Debug)]
pub(crate) struct Stall {
    /// So long without a change.
    after: u64,
    changed_at: u64,
    /// When this is looked at next.
    look_at: u64,
    /// When the watch began. `None`: the ranks are not watched.
    watched_since: Option<u64>,
    /// The ranks that tried again during the watch. Of those with an operation: its word, and the
    /// value that it found.
    retried: BTreeMap<u32, Option<(At, u64)>>,
    /// The last changes, as a ring, with the ranks that made them.
    changes: Vec<(u32, At)>,
    next_change: usize,
}

impl Stall {
    pub(super) fn after(after: u64) -> Self {
        Self {
            after,
            changed_at: 0,
            look_at: after / 2,
            watched_since: None,
            retried: BTreeMap::new(),
            changes: Vec::new(),
            next_change: 0,
        }
    }

    /// Memory has changed, or a message has arrived.
    pub(super) const fn note_change(&mut self, now: u64) {
        self.changed_at = now;
    }

    pub(super) fn remember(&mut self, origin: Rank, at: At) {
        let change = (origin.0, at);
        match self.changes.get_mut(self.next_change) {
            Some(oldest) => *oldest = change,
            None => self.changes.push(change),
        }
        self.next_change = (self.next_change + 1) % REMEMBERED;
    }

    /// A rank has tried again to find a value, or registers a wait.
    pub(crate) fn note_retry(&mut self, rank: Rank, found: Option<(At, u64)>) {
        if self.watched_since.is_some() {
            let retried = self.retried.entry(rank.0).or_default();
            *retried = found.or(*retried);
        }
    }

    /// The remembered changes, the last one first.
    fn changes(&self) -> impl Iterator<Item = (Rank, At)> {
        let (newer, older) = self.changes.split_at(self.next_change.min(self.changes.len()));
        newer.iter().rev().chain(older.iter().rev()).map(|(origin, at)| (Rank(*origin), *at))
    }
}

impl State {
    /// Whether nothing but timers and attempts that fail may have happened for too long: then
    /// [`stuck`](Self::stuck) knows.
    pub(super) fn may_be_stalled(&mut self) -> bool {
        let (now, stall) = (self.now, &mut self.stall);
        if now <= stall.look_at {
            return false;
        }
        match stall.watched_since {
            Some(since) if stall.changed_at <= since => {
                let comes = |due| {
                    matches!(due, Due::Kill(_) | Due::Restart(_) | Due::Detect(_) | Due::Learn(_) | Due::Leave(_))
                };
                if !self.agenda.pending().any(|(_, due)| comes(due)) {
                    return true;
                }
                self.watch();
            }
            None if now.saturating_sub(stall.changed_at) >= stall.after / 2 => self.watch(),
            _ => {
                stall.watched_since = None;
                stall.look_at = stall.changed_at.saturating_add(stall.after / 2);
            }
        }
        false
    }

    /// Watches the ranks from now on.
    fn watch(&mut self) {
        let last = self.agenda.pending().map(|(time, _)| time).max().unwrap_or(0);
        let heals = self.partitions.iter().map(|partition| partition.time.end).max().unwrap_or(0);
        self.stall.retried.clear();
        self.stall.watched_since = Some(self.now);
        self.stall.look_at = self.now.max(last).max(heals).saturating_add(self.stall.after / 2);
    }

    /// What each unfinished rank waits for. `None` if one of them is about to go on by itself; then
    /// the ranks are watched again.
    pub(crate) fn stalled(&mut self, unfinished: &[Rank]) -> Option<Vec<Stuck>> {
        let timer = |(_, due)| match due {
            Due::Timer(thread) => Some(self.rank_of(thread)),
            _ => None,
        };
        let timers: BTreeSet<u32> = self.agenda.pending().filter_map(timer).collect();
        let waits = |rank: &Rank| self.stall.retried.contains_key(&rank.0) || !timers.contains(&rank.0);
        if !unfinished.iter().all(waits) {
            self.watch();
            return None;
        }
        Some(self.stuck(unfinished))
    }

    /// What these ranks wait for.
    pub(crate) fn stuck(&self, ranks: &[Rank]) -> Vec<Stuck> {
        let of = |rank: &Rank| {
            let waits = self.ranks[rank.index()].waiting().iter().filter(|waiter| !waiter.watches);
            let waits = waits.map(|waiter| WaitsFor::from(waiter.what));
            let found = self.stall.retried.get(&rank.0).copied().flatten();
            let retried = found.map(|(At { rank, region, offset }, found)| WaitsFor::Retried {
                rank,
                region: region.0,
                offset,
                found,
            });
            let waits_for: Vec<_> = waits.chain(retried).collect();
            let (locks, memory) = (self.lock_waits(*rank), self.noted_memory(*rank, &waits_for));
            let holder = locks.iter().find_map(|wait| wait.holders.first()).map(|(holder, _)| *holder);
            let behind = holder.or_else(|| self.behind(*rank, &waits_for, memory.is_empty()));
            Stuck { rank: *rank, waits_for, locks, memory, behind }
        };
        ranks.iter().map(of).collect()
    }

    /// The rank that this one waits for, as far as the last changes tell: the one that last changed
    /// the word. If the words may be those of a bare lock, the one that last changed another word
    /// at the same rank; else, of a waiter in a queue, the one whose memory it changed last.
    fn behind(&self, rank: Rank, waits_for: &[WaitsFor], is_bare: bool) -> Option<Rank> {
        let words = waits_for.iter().filter_map(|what| match *what {
            WaitsFor::Word { region, offset } => Some(At { rank, region: RegionId(region), offset }),
            WaitsFor::Retried { rank, region, offset, .. } => Some(At { rank, region: RegionId(region), offset }),
            _ => None,
        });
        let words: Vec<At> = words.collect();
        let others = || self.stall.changes().filter(|(origin, _)| *origin != rank);
        let same_word = others().find(|(_, at)| words.contains(at));
        let near =
            |at: &At| words.iter().any(|word| word.rank != rank && word.rank == at.rank && word.region == at.region);
        let same_lock = || others().find(|(_, at)| near(at));
        let ahead = || self.stall.changes().find(|(origin, at)| *origin == rank && at.rank != rank);
        if !is_bare {
            return same_word.map(|(origin, _)| origin);
        }
        let by = same_word.or_else(same_lock).map(|(origin, _)| origin);
        by.or_else(|| if words.is_empty() { None } else { ahead().map(|(_, at)| at.rank) })
    }
}
