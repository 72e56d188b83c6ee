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

/// When each was used, and those by time.
#[derive(Debug, Default)]
struct Kept {
    used: HashMap<Context, u64>,
    by_use: BTreeMap<u64, Context>,
    uses: u64,
}

impl Contexts {
    /// `most` 0: of all.
    pub(crate) fn new(most: u32, fetch: u64) -> Self {
        Self { most: most as usize, fetch, cards: HashMap::new() }
    }

    /// A card uses one: how long it fetches it.
    pub(crate) fn fetch(&mut self, card: u32, context: Context) -> u64 {
        if self.most == 0 {
            return 0;
        }
        let Kept { used, by_use, uses } = self.cards.entry(card).or_default();
        *uses += 1;
        by_use.insert(*uses, context);
        if let Some(before) = used.insert(context, *uses) {
            by_use.remove(&before);
            return 0;
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
        let mut fetched =
            |all: &[u32]| -> Vec<u64> { all.iter().map(|to| contexts.fetch(0, (0, Some(*to)))).collect() };
        assert_eq!(fetched(&[1, 2, 1, 1, 3, 1, 2, 3]), [7, 7, 0, 0, 7, 0, 7, 7]);
        assert_eq!((contexts.fetch(0, (0, None)), contexts.fetch(1, (0, Some(3)))), (7, 7));
        let mut all = Contexts::new(0, 7);
        assert!((0..100).all(|to| all.fetch(0, (0, Some(to))) == 0));
    }
}
