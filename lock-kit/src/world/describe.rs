//! What an event is called, and a digest of the state.

use std::hash::{Hash, Hasher};

use super::{Event, Kind, Pending, World};
use crate::digest::Digest;

impl World {
    /// Describes an event before it happens.
    pub(crate) fn describe(&self, event: Event) -> String {
        let of = |number: u32| {
            let Some(Pending { origin, kind, .. }) = self.pending.get(&number) else { return String::new() };
            let place = |word: u32| format!("rank {} word {}", self.target(word), word as usize % self.region_words);
            match *kind {
                Kind::Travels { word, action, .. } => {
                    let found = self.words[word as usize];
                    format!("rank {}: {action} at {}, finds {found:#x}", origin.0, place(word))
                }
                Kind::Returns { word, outcome, .. } => {
                    let outcome = outcome.map_or_else(|fault| format!("{fault:?}"), |found| format!("{found:#x}"));
                    format!("rank {} learns {outcome} from {}", origin.0, place(word))
                }
                Kind::Waits { word, .. } => {
                    format!("rank {} reads {} again", origin.0, place(word))
                }
                Kind::Ready { .. } => String::new(),
            }
        };
        match event {
            Event::Effect(number) | Event::Wake(number) => of(number),
            Event::LoseReply(number) => format!("{}; the reply is lost", of(number)),
            Event::LoseOperation(number) => format!("{}: the operation is lost", of(number)),
            Event::Crash(rank) => format!("rank {} crashes", rank.0),
            Event::News(rank) => format!("the others learn that rank {} has ended", rank.0),
            Event::Stop(rank) => format!("rank {} is stopped", rank.0),
            Event::Continue => "the stopped rank goes on".into(),
            Event::Time(number) => format!("time passes; {}", of(number)),
        }
    }

    /// A digest of the state, except for that of the tasks, which their histories stand for. Of a
    /// version it includes whether it is the current one, of numbers their order within a rank.
    pub(crate) fn state(&self) -> u64 {
        let mut hasher = Digest::default();
        (
            &self.words,
            &self.dead,
            &self.announced_dead,
            self.now,
            self.idle,
            self.stopped,
            &self.lost,
            &self.histories,
            self.budget,
        )
            .hash(&mut hasher);
        let passed = |word: u32, version: u32| self.versions[word as usize] != version;
        for seen in &self.seen {
            seen.len().hash(&mut hasher);
            seen.iter().for_each(|(word, version)| (word, passed(*word, *version)).hash(&mut hasher));
        }
        for rank in 0..self.ranks() {
            rank.hash(&mut hasher);
            for Pending { view, kind, detached, marked, .. } in
                self.pending.values().filter(|pending| pending.origin.0 == rank)
            {
                (view, detached, marked, std::mem::discriminant(kind)).hash(&mut hasher);
                match *kind {
                    Kind::Travels { .. } | Kind::Ready { .. } => kind.hash(&mut hasher),
                    Kind::Returns { word, outcome, version } => {
                        (word, outcome, passed(word, version)).hash(&mut hasher)
                    }
                    Kind::Waits { word, deaths, until, .. } => {
                        (word, deaths.is_some(), self.goes_on(*kind), until).hash(&mut hasher);
                    }
                }
            }
        }
        hasher.finish()
    }
}
