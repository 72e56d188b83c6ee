//! Shared code of the kit's memories, whose words are numbered over all ranks' regions.

use onesided_remote_memory::{At, Chain, Fault, FaultKind, Link, Notify, Rank};

use crate::trace::Action;

/// The number of the word at an address.
pub(crate) fn resolve(at: At, ranks: u32, region_words: usize) -> Result<usize, Fault> {
    let index = at.offset as usize / 8;
    if at.rank.0 >= ranks {
        return Err(Fault::of(FaultKind::NoSuchRank, at.rank));
    }
    if index >= region_words {
        return Err(Fault::of(FaultKind::OutOfRange, at.rank));
    }
    Ok(at.rank.index() * region_words + index)
}

/// Whether a word lies in a rank's own region.
pub(crate) fn check_own(word: usize, region_words: usize, rank: Rank) -> Result<(), Fault> {
    if word / region_words == rank.index() { Ok(()) } else { Err(Fault::new(FaultKind::NotOwn)) }
}

/// Posts the links of a chain. The flag tells `post` whether the link has a predecessor.
pub(crate) fn post_all<O, const N: usize>(
    links: [Link<usize>; N],
    mut post: impl FnMut(usize, (Action, Notify), bool) -> O,
) -> Chain<O, N> {
    let mut chained = false;
    Chain::of(links.map(|link| {
        let (word, action) = match link {
            Link::Read { word, .. } => (word, (Action::Read, Notify::No)),
            Link::Write { word, value, notify, .. } => (word, (Action::Write(value), notify)),
            Link::CompareSwap { word, expected, new, .. } => (word, (Action::CompareSwap(expected, new), Notify::No)),
            Link::FetchAdd { word, add, .. } => (word, (Action::FetchAdd(add), Notify::No)),
        };
        let reply = post(word, action, std::mem::replace(&mut chained, true));
        link.waited().then_some(reply)
    }))
}
