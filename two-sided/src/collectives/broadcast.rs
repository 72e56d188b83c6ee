//! A binomial tree; a long message is scattered and gathered again (van de Geijn: Barnett et al.,
//! "Interprocessor collective communication library", SHPCC 1994), as in Thakur, Rabenseifner and
//! Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 19, 2005.

use onesided_fabric::Fabric;

use super::blocks::disjoint;
use super::link::{Link, Outcome};
use super::published;

/// From so many bytes on, among at least [`MANY`] ranks, a message is scattered.
const LONG: usize = 512 << 10;
const MANY: u32 = 8;

pub(super) async fn run<F: Fabric>(link: &mut Link<'_, F>, data: &mut [u8], root: u32) -> Outcome {
    match link.size {
        1 => Ok(()),
        _ if link.has_buffers(data.len()) => published::broadcast(link, data, root).await,
        size if size >= MANY && data.len() >= LONG => Box::pin(scattered(link, data, root)).await,
        _ => tree(link, data, root).await,
    }
}

/// The ranks in a tree below the root: `relative` is the place of a rank when the root is 0, and
/// the lowest bit that is set in it leads to its parent.
pub(super) struct Tree {
    pub(super) relative: u32,
    root: u32,
    size: u32,
}

impl Tree {
    pub(super) const fn new(me: u32, root: u32, size: u32) -> Self {
        Self { relative: (me + size - root) % size, root, size }
    }

    /// The rank at a place.
    pub(super) const fn rank(&self, relative: u32) -> u32 {
        (relative + self.root) % self.size
    }

    pub(super) fn parent(&self) -> Option<u32> {
        let lowest = self.relative & self.relative.wrapping_neg();
        (lowest != 0).then(|| self.rank(self.relative - lowest))
    }

    /// The number of places from this one on that its subtree has.
    pub(super) fn span(&self) -> u32 {
        let lowest = self.relative & self.relative.wrapping_neg();
        let most = self.size - self.relative;
        if lowest == 0 { most } else { lowest.min(most) }
    }

    /// The places of the children, the largest subtree first, and the sizes of their subtrees.
    pub(super) fn children(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        let (relative, span, size) = (self.relative, self.span(), self.size);
        let first = span.next_power_of_two();
        let bits = std::iter::successors(Some(first), |bit| Some(bit / 2)).take_while(|bit| *bit > 0);
        bits.filter(move |bit| *bit < span).map(move |bit| (relative + bit, bit.min(size - relative - bit)))
    }
}

async fn tree<F: Fabric>(link: &mut Link<'_, F>, data: &mut [u8], root: u32) -> Outcome {
    let tree = Tree::new(link.me, root, link.size);
    if let Some(parent) = tree.parent() {
        link.recv(parent, data).await?;
    }
    let sends = link.post_all(tree.children().map(|(child, _)| (tree.rank(child), &*data)))?;
    if sends.is_empty() { Ok(()) } else { link.all_sent(sends).await }
}

async fn scattered<F: Fabric>(link: &mut Link<'_, F>, data: &mut [u8], root: u32) -> Outcome {
    let tree = Tree::new(link.me, root, link.size);
    let (len, size) = (data.len(), link.size);
    let block = len.div_ceil(size as usize).next_multiple_of(64);
    let blocks = |from: u32, count: u32| (from as usize * block).min(len)..((from + count) as usize * block).min(len);
    // Scatter: a subtree's blocks go to its root.
    if let Some(parent) = tree.parent() {
        link.recv(parent, &mut data[blocks(tree.relative, tree.span())]).await?;
    }
    let sends = link.post_all(tree.children().map(|(child, span)| (tree.rank(child), &data[blocks(child, span)])))?;
    link.all_sent(sends).await?;
    // All-gather around a ring.
    let (right, left) = (tree.rank((tree.relative + 1) % size), tree.rank((tree.relative + size - 1) % size));
    for step in 0..size - 1 {
        let at = |behind: u32| blocks((tree.relative + 2 * size - behind) % size, 1);
        let (send, recv) = disjoint(data, at(step), at(step + 1));
        link.exchange((right, send), (left, recv)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_has_one_parent_and_all_are_below_the_root() {
        for size in 1..40 {
            for root in [0, 1 % size, size - 1] {
                let trees = (0..size).map(|me| Tree::new(me, root, size));
                let mut parents = vec![None; size as usize];
                for (me, tree) in (0..size).zip(trees) {
                    let children: Vec<_> = tree.children().collect();
                    assert_eq!(children.iter().map(|(_, span)| span).sum::<u32>() + 1, tree.span());
                    for (child, span) in children {
                        let rank = tree.rank(child);
                        assert_eq!(Tree::new(rank, root, size).span(), span);
                        assert_eq!(parents[rank as usize].replace(me), None);
                    }
                }
                for (me, parent) in (0..size).zip(parents) {
                    assert_eq!(Tree::new(me, root, size).parent(), parent, "{me} of {size}");
                    assert_eq!(parent.is_none(), me == root);
                }
            }
        }
    }
}
