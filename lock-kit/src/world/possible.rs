//! The events that may happen next.

use onesided_remote_memory::Rank;

use super::{ENDLESS, Event, Kind, OUTWAITED, Pending, Time, UNHEARD, UNWOKEN, World};
use crate::program::HOME;

impl World {
    /// The possible events: first in the order of posting, at last those of time. `at_work`: the
    /// ranks that have tasks.
    pub(crate) fn possible(&self, at_work: &[bool]) -> Vec<Event> {
        let mut events = Vec::new();
        let hears = |pending: &Pending| self.stopped != Some(pending.origin);
        for (number, pending) in &self.pending {
            let event = match pending.kind {
                Kind::Travels { .. } if self.may_take_effect(*number, pending) => Event::Effect(*number),
                Kind::Returns { .. } if hears(pending) && self.may_return(*number, pending) => Event::Wake(*number),
                kind @ Kind::Waits { .. } if hears(pending) && self.goes_on(kind) => Event::Wake(*number),
                _ => continue,
            };
            events.push(event);
        }
        if self.time != Time::LastResort {
            events.extend(self.timers().map(|(_, number)| Event::Time(number)));
            return events;
        }
        let active = |rank: &Rank| at_work[rank.index()] && !self.is_dead(*rank);
        if self.idle == 0 {
            if self.budget.lost > 0 {
                let waited = |number: &u32| self.pending.get(number).is_some_and(|pending| self.may_be_lost(pending));
                let effects: Vec<u32> = events
                    .iter()
                    .filter_map(|event| if let Event::Effect(number) = event { Some(*number) } else { None })
                    .filter(waited)
                    .collect();
                events.extend(
                    effects.iter().flat_map(|number| [Event::LoseReply(*number), Event::LoseOperation(*number)]),
                );
            }
            let crashes = self.budget.crashes > 0 && self.dead.iter().filter(|dead| !**dead).count() > 1;
            // One that has ended its program may crash while others go on, unless it lost an operation: then
            // it may have left the lock to the others.
            let at_work = at_work.contains(&true) && self.lost.is_empty();
            let may_crash =
                |rank: &Rank| (active(rank) || at_work && !self.is_dead(*rank)) && !(self.home_lives && *rank == HOME);
            events.extend((0..self.ranks()).map(Rank).filter(|_| crashes).filter(may_crash).map(Event::Crash));
            let stops = self.budget.stops > 0 && self.stopped.is_none();
            events.extend((0..self.ranks()).map(Rank).filter(|_| stops).filter(active).map(Event::Stop));
        }
        let moves = |event: &Event| matches!(event, Event::Effect(_) | Event::Wake(_));
        let moves = events.iter().any(moves);
        let news = (0..self.ranks()).map(Rank).filter(|rank| self.is_dead(*rank) && !self.is_announced_dead(*rank));
        let told = events.len();
        events.extend(news.map(Event::News));
        if !moves && (events.len() == told || self.idle < UNHEARD) {
            events.extend(self.last_resort(at_work));
        }
        events
    }

    /// Whether a wait or a pause ends.
    pub(super) fn goes_on(&self, kind: Kind) -> bool {
        let Kind::Waits { word, since, deaths, .. } = kind else { return false };
        match deaths {
            None => self.versions[word as usize] != since,
            Some(deaths) => self.notified[word as usize] != since || deaths != self.deaths,
        }
    }

    fn may_be_lost(&self, pending: &Pending) -> bool {
        let Kind::Travels { word, .. } = pending.kind else { return false };
        let near = |ranks: u32| pending.origin.0 / ranks == self.target(word) as u32 / ranks;
        let serves = self.home_lives && pending.origin == HOME;
        !pending.detached && !near(1) && !serves && !self.safe_within.is_some_and(near)
    }

    /// The event when no task can run.
    fn last_resort(&self, at_work: &[bool]) -> Option<Event> {
        let others_at_work =
            (0..self.ranks()).map(Rank).any(|rank| self.stopped != Some(rank) && at_work[rank.index()]);
        // While all ranks are alive, none is stopped and nothing was lost, waiters must be woken, and
        // pauses end a few times.
        let troubled = self.dead.contains(&true) || self.stopped.is_some() || !self.lost.is_empty();
        let outwaited = self.stopped.is_some() && self.outwaited >= OUTWAITED;
        let most = if troubled { ENDLESS } else { UNWOKEN * at_work.len() as u32 };
        let passes = self.idle < most && others_at_work && !outwaited;
        let ends = |(_, number): &(u64, u32)| passes && (troubled || !self.woken && self.pending[number].is_pause());
        match self.timers().find(ends) {
            Some((_, number)) => Some(Event::Time(number)),
            None => self.stopped.map(|_| Event::Continue),
        }
    }

    /// The pauses and deadlines that may end, the earliest first.
    fn timers(&self) -> impl Iterator<Item = (u64, u32)> {
        let end = |(number, pending): (&u32, &Pending)| match pending.kind {
            _ if self.stopped == Some(pending.origin) => None,
            Kind::Waits { deaths: Some(_), .. } if self.time == Time::WithoutDeadlines => None,
            Kind::Waits { until, .. } if until != u64::MAX => Some((until, *number)),
            _ => None,
        };
        let mut ends: Vec<_> = self.pending.iter().filter_map(end).collect();
        ends.sort_unstable();
        ends.into_iter()
    }
}
