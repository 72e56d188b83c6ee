//! A digest of the state, and what waits in it.

use std::hash::{Hash, Hasher};

use super::{Kind, Pending, World};
use crate::digest::Digest;
use crate::trace::Note;

impl World {
    /// What each rank waits for.
    pub(crate) fn waits(&self) -> String {
        let waits = self.pending.values().filter_map(|pending| match pending.kind {
            Kind::Waits { word, deaths, .. } => {
                let note = Note::Waits(self.names.place(word as usize), deaths.is_none());
                Some(format!("rank {} {note}", pending.origin.0))
            }
            _ => None,
        });
        waits.collect::<Vec<_>>().join(", ")
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
