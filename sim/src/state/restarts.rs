//! A new process takes the rank of one that has died.

use onesided_remote_memory::{Fault, FaultKind, Rank};

use super::failures::Failure;
use super::{State, Step};
use crate::agenda::Due;
use crate::operation::Stage;
use crate::rank::Life;

impl State {
    /// Schedules a rank's return.
    pub(crate) fn restart_at(&mut self, rank: Rank, time: u64) {
        self.agenda.enter(time, Due::Restart(rank.0));
    }

    /// A rank returns, once it is dead and every other one knows.
    pub(super) fn restart(&mut self, rank: u32) -> Option<Step> {
        let life = self.lives[rank as usize];
        if life == Life::Left {
            return None;
        }
        if life != Life::Killed || !self.is_known_dead(Rank(rank)) {
            self.agenda.enter(self.now + self.wire.all_know_after(), Due::Restart(rank));
            return self.kill(rank);
        }
        self.trace.note([self.now, 4, rank.into(), 0]);
        self.forget(Rank(rank));
        self.drop_stale(Rank(rank));
        *self.restarts.entry(rank).or_default() += 1;
        self.lives[rank as usize] = Life::Alive;
        let dead = |other: &Rank| self.lives[other.index()] == Life::Killed;
        let dead: Vec<Rank> = (0..self.ranks.len() as u32).map(Rank).filter(dead).collect();
        dead.into_iter().for_each(|dead| self.learn(Rank(rank), dead));
        match &mut self.processors {
            Some(processors) => processors.restart(self.now, rank, &mut self.agenda),
            None => self.agenda.enter(self.now, Due::Wake(rank)),
        }
        Some(Step::Restart(rank))
    }

    /// How often a rank has returned.
    pub(crate) fn restarts(&self, rank: Rank) -> u32 {
        self.restarts.get(&rank.0).copied().unwrap_or(0)
    }

    /// Whether all that live have learned of a death, and nobody will again.
    fn is_known_dead(&self, rank: Rank) -> bool {
        let lives = |other: &Rank| *other != rank && matches!(self.lives[other.index()], Life::Alive | Life::Closing);
        let mut living = (0..self.ranks.len() as u32).map(Rank).filter(lives);
        living.all(|other| self.knows_failed(other, rank))
            && !self.agenda.pending().any(|(_, due)| due == Due::Detect(rank.0))
    }

    /// Drops what a dead rank has posted, and what was posted to it: neither reaches the new
    /// process, or is taken for what it posts.
    fn drop_stale(&mut self, dead: Rank) {
        self.faults.retain(|(origin, _), _| *origin != dead.0);
        let unexplained = self.ranks[dead.index()].renew();
        unexplained.into_iter().for_each(|slot| drop(self.operations.remove(slot)));
        for (_, held) in self.limited.extract_if(|(origin, _), _| *origin == dead.0) {
            held.held.into_iter().for_each(|slot| drop(self.operations.remove(slot)));
        }
        for operation in self.operations.in_flight() {
            if operation.origin == dead.0 {
                operation.stage = Stage::Stale;
            } else if operation.target == dead.0 && (operation.stage == Stage::Outward || operation.outcome().is_err())
            {
                operation.set_outcome(Err(Fault::of(FaultKind::PeerDied, dead)));
                let holds_room = operation.stage == Stage::Outward && operation.action.takes_room();
                self.ranks[operation.origin as usize].connection(dead.0).unread += u32::from(holds_room);
            }
        }
    }

    /// The other ranks know nothing bad of the new process.
    fn forget(&mut self, dead: Rank) {
        self.revoked.retain(|(home, peer)| *home != dead.0 && *peer != dead.0);
        self.broken.retain(|(one, other)| *one != dead && *other != dead);
        for (learns, failure) in &mut self.news {
            match *failure {
                Failure::Rank(rank) if rank == dead => *failure = Failure::Over,
                // One that finds its own connection broken is to come.
                Failure::Connection(one, other) if *learns != one && (one == dead || other == dead) => {
                    *failure = Failure::Over;
                }
                _ => {}
            }
        }
        for rank in (0..self.ranks.len()).filter(|rank| *rank != dead.index()) {
            self.ranks[rank].forget(dead);
        }
    }
}
