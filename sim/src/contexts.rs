//! The contexts of connections that cards keep in their own memory.

use std::collections::{BTreeMap, HashMap};

/// What has a context: the connection of a rank to another one, or its datagrams.
type Context = (u32, Option<u32>);

/// Of each card the contexts that it used last.
#[derive(Debug)]
pub(crate) struct Contexts {
    most: usize,
    fetch: u64,
    cards: HashMap<u32, Kept>,
}

/// When each was used, by a count, and when it is there; and those by use.
#[derive(Debug, Default)]
struct Kept {
    used: HashMap<Context, (u64, u64)>,
    by_use: BTreeMap<u64, Context>,
    uses: u64,
}

impl Contexts {
    /// `most` 0: of all.
    pub(crate) fn new(most: u32, fetch: u64) -> Self {
        Self { most: most as usize, fetch, cards: HashMap::new() }
    }

    /// A card uses one at a time: how long that waits until it is there.
    pub(crate) fn fetch(&mut self, now: u64, card: u32, context: Context) -> u64 {
        if self.most == 0 {
            return 0;
        }
        let Kept { used, by_use, uses } = self.cards.entry(card).or_default();
        *uses += 1;
        by_use.insert(*uses, context);
        // What follows on the same connection does not overtake what a fetch is under way for.
        let there_at = used.get(&context).map_or(now.saturating_add(self.fetch), |(_, there_at)| *there_at);
        if let Some((before, _)) = used.insert(context, (*uses, there_at)) {
            by_use.remove(&before);
            return there_at.saturating_sub(now);
        }
        if used.len() > self.most
            && let Some((_, oldest)) = by_use.pop_first()
        {
            used.remove(&oldest);
        }
        self.fetch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_keeps_what_it_used_last() {
        let mut contexts = Contexts::new(2, 7);
        let mut fetched = |all: &[u32]| -> Vec<u64> {
            (0..).zip(all).map(|(time, to)| contexts.fetch(10 * time, 0, (0, Some(*to)))).collect()
        };
        assert_eq!(fetched(&[1, 2, 1, 1, 3, 1, 2, 3]), [7, 7, 0, 0, 7, 0, 7, 7]);
        assert_eq!([100, 103, 107].map(|now| contexts.fetch(now, 0, (0, None))), [7, 4, 0]);
        assert_eq!(contexts.fetch(100, 1, (0, Some(3))), 7);
        let mut all = Contexts::new(0, 7);
        assert!((0..100).all(|to| all.fetch(0, 0, (0, Some(to))) == 0));
    }
}
