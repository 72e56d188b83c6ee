//! Failures of ranks and of connections, and which rank knows of them.

use onesided_remote_memory::{Fault, FaultKind, Rank, Watch};

use super::State;
use crate::agenda::Due;
use crate::rank::Life;

/// A failure of which ranks learn.
#[derive(Clone, Copy, Debug)]
pub(super) enum Failure {
    /// This rank died, or is believed to have.
    Rank(Rank),
    /// The connection of these two ranks is lost.
    Connection(Rank, Rank),
    /// One of a process whose rank another one has taken since.
    Over,
}

/// A pair of ranks as it is noted.
fn pair(one: Rank, other: Rank) -> (Rank, Rank) {
    if one < other { (one, other) } else { (other, one) }
}

impl State {
    /// The fault of needing a rank that is known to have died.
    pub(super) fn died(&self, rank: Rank, other: Rank) -> Option<Fault> {
        self.knows_failed(rank, other).then(|| Fault::of(FaultKind::PeerDied, other))
    }

    /// The fault of needing a rank to which the connection is known to be lost, or if one of the
    /// two has revoked the access of the other.
    pub(crate) fn denied(&self, rank: Rank, other: Rank) -> Option<Fault> {
        let either = self.has_revoked(rank, other) || self.has_revoked(other, rank);
        self.lost(rank, other).or_else(|| either.then(|| Fault::of(FaultKind::Revoked, other)))
    }

    /// The fault of needing a rank to which the connection is known to be lost.
    pub(super) fn lost(&self, rank: Rank, other: Rank) -> Option<Fault> {
        self.knows_lost(rank, rank, other).then(|| Fault::of(FaultKind::ConnectionLost, other))
    }

    /// Whether a rank's card takes no operation of another any more.
    pub(crate) fn has_cut(&self, home: Rank, rank: Rank) -> bool {
        self.has_revoked(home, rank) || self.knows_lost(home, home, rank)
    }

    /// Whether a rank's card refuses the operations of another, with an answer.
    pub(super) fn has_revoked(&self, home: Rank, rank: Rank) -> bool {
        self.revoked.contains(&(home.0, rank.0)) || self.knows_failed(home, rank)
    }

    /// Whether a rank knows that the connection of two ranks is lost.
    pub(super) fn knows_lost(&self, rank: Rank, one: Rank, other: Rank) -> bool {
        !self.broken.is_empty() && self.ranks[rank.index()].lost().contains(&pair(one, other))
    }

    /// The lowest rank, from `from` on, whose connection to `home` is lost, as another rank knows
    /// it.
    pub(crate) fn lost_connection(&self, asks: Rank, home: Rank, from: Rank) -> Option<Rank> {
        let partner = |(one, other): &(Rank, Rank)| match home {
            home if home == *one => Some(*other),
            home if home == *other => Some(*one),
            _ => None,
        };
        let lost = if self.any_failed { self.ranks[asks.index()].lost() } else { &[] };
        lost.iter().filter_map(partner).filter(|rank| *rank >= from).min()
    }

    /// How many ends of ranks and losses of connections a rank knows of.
    pub(crate) fn ends(&self, asks: Rank) -> u32 {
        let failed = if self.any_failed { self.ranks[asks.index()].lost().len() } else { 0 };
        (failed + self.known_failures(asks).len() + self.departed.len()) as u32
    }

    pub(super) fn knows_failed(&self, rank: Rank, other: Rank) -> bool {
        self.known_failures(rank).contains(&(other, true))
    }

    /// The ranks that this one has known to have failed, and whether they have: asked for often,
    /// and mostly without a look at the rank.
    pub(crate) fn known_failures(&self, rank: Rank) -> &[(Rank, bool)] {
        if self.any_failed { self.ranks[rank.index()].failures() } else { &[] }
    }

    /// Revokes a peer's access to a rank's memory.
    pub(crate) fn revoke(&mut self, rank: Rank, peer: Rank) {
        self.revoked.insert((rank.0, peer.0));
        self.wake_watchers(|watch| match watch {
            Watch::Rank(other) | Watch::RankAndFailures(other) => other == rank || other == peer,
            Watch::NoRank => false,
        });
    }

    /// A rank has failed, or is believed to have, unless it left before.
    pub(super) fn detect(&mut self, failed: Rank) {
        if self.lives[failed.index()] == Life::Left {
            return;
        }
        for rank in (0..self.ranks.len() as u32).map(Rank).filter(|rank| *rank != failed) {
            match self.wire.learning() {
                0 => self.learn(rank, failed),
                delay => self.hear_at(self.now + delay, rank, Failure::Rank(failed)),
            }
        }
    }

    /// A rank learns of a failure, and cuts the failed rank: wakes what waits for either at the
    /// other.
    pub(super) fn learn(&mut self, rank: Rank, failed: Rank) {
        if self.knows_failed(rank, failed) {
            return;
        }
        self.any_failed = true;
        let rare = self.ranks[rank.index()].more().rare();
        rare.failures.push((failed, true));
        for slot in std::mem::take(&mut rare.unexplained) {
            self.agenda.enter(self.now, Due::Operation(slot));
        }
        self.wake_after_failure(rank, (failed, failed));
        self.wake_watcher(failed, |watch| match watch {
            Watch::Rank(watched) | Watch::RankAndFailures(watched) => watched == rank,
            Watch::NoRank => false,
        });
    }

    /// A rank has learned of a failure of these ranks: wakes its waits for one of them, and those
    /// for failures.
    fn wake_after_failure(&mut self, rank: Rank, failed: (Rank, Rank)) {
        self.wake_watcher(rank, |watch| match watch {
            Watch::Rank(watched) => watched == failed.0 || watched == failed.1,
            Watch::RankAndFailures(_) => true,
            Watch::NoRank => false,
        });
    }

    fn wake_watcher(&mut self, rank: Rank, ends: impl Fn(Watch) -> bool) {
        if self.ranks[rank.index()].waiting().iter().any(|waiter| ends(waiter.watch)) {
            self.wake_rank(rank, self.now);
        }
    }

    /// Schedules the time from which a living rank is believed to have failed.
    pub(crate) fn suspect_at(&mut self, rank: Rank, time: u64) {
        self.agenda.enter(time.saturating_add(self.wire.detection), Due::Detect(rank.0));
    }

    /// An operation completes. If its outcome is unknown though the target lives, the connection is
    /// lost with it; if the connection is lost already, so is the outcome. If the target died, the
    /// operation completes when the origin knows that: `false` before.
    pub(super) fn tell_cause(&mut self, slot: u32) -> bool {
        let operation = &self.operations[slot];
        let (origin, target) = (Rank(operation.origin), Rank(operation.target));
        let fails = operation.outcome().is_err_and(Fault::is_unknown);
        let ended = |rank: Rank| self.lives[rank.index()].is_over();
        if fails && ended(target) && !ended(origin) {
            let Some(died) = self.died(origin, target) else {
                self.ranks[origin.index()].more().rare().unexplained.push(slot);
                return false;
            };
            self.operations[slot].set_outcome(Err(died));
            return true;
        }
        let ended = ended(origin) || ended(target);
        if self.broken.contains(&pair(origin, target)) || (fails && !ended) {
            self.operations[slot].set_outcome(Err(Fault::of(FaultKind::Unknown, target)));
            self.disconnect(origin, target);
        }
        true
    }

    /// A rank finds the connection to a peer lost. The peer learns of it as the other ranks do, or
    /// when an operation of its own fails.
    fn disconnect(&mut self, rank: Rank, peer: Rank) {
        let lost = pair(rank, peer);
        if self.broken.insert(lost) {
            self.trace.note([self.now, 3, lost.0.0.into(), lost.1.0.into()]);
            for other in (0..self.ranks.len() as u32).map(Rank).filter(|other| *other != rank) {
                let after = self.wire.detection + self.wire.learning();
                self.hear_at(self.now + after, other, Failure::Connection(rank, peer));
            }
        }
        self.learn_lost(rank, lost);
    }

    /// A rank learns of a lost connection. If it is one of its own, it cuts the peer with that:
    /// what is in flight from the peer takes effect until now.
    fn learn_lost(&mut self, rank: Rank, lost: (Rank, Rank)) {
        if self.knows_lost(rank, lost.0, lost.1) {
            return;
        }
        self.any_failed = true;
        self.ranks[rank.index()].more().rare().lost.push(lost);
        self.wake_after_failure(rank, lost);
    }

    /// Schedules the time at which a rank finds its connection to a peer lost.
    pub(crate) fn disconnect_at(&mut self, rank: Rank, peer: Rank, time: u64) {
        self.hear_at(time, rank, Failure::Connection(rank, peer));
    }

    fn hear_at(&mut self, time: u64, rank: Rank, failure: Failure) {
        self.agenda.enter(time, Due::Learn(self.news.len() as u32));
        self.news.push((rank, failure));
    }

    /// A rank hears of a failure.
    pub(super) fn hear(&mut self, rank: Rank, failure: Failure) {
        match failure {
            Failure::Over => {}
            Failure::Rank(failed) => self.learn(rank, failed),
            Failure::Connection(one, other) if self.broken.contains(&pair(one, other)) => {
                self.learn_lost(rank, pair(one, other));
            }
            Failure::Connection(one, other) => {
                let ended = |rank: Rank| matches!(self.lives[rank.index()], Life::Killed | Life::Left);
                if !ended(one) && !ended(other) {
                    self.disconnect(rank, if rank == one { other } else { one });
                }
            }
        }
    }
}
