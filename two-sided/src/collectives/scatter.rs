//! A binomial tree; long blocks, and blocks of different lengths, come straight from the root
//! (Thakur, Rabenseifner and Gropp, IJHPCA 19, 2005).

use onesided_fabric::Fabric;

use super::blocks::Blocks;
use super::broadcast::Tree;
use super::link::{Link, Outcome};

/// Blocks of at most so many bytes go down the tree.
const SHORT: usize = 1 << 10;

/// `blocks` are those of the root if they are not equal.
pub(super) async fn run<F: Fabric>(
    link: &mut Link<'_, F>,
    (all, mine): (&[u8], Option<&mut [u8]>),
    blocks: Option<Blocks>,
    root: u32,
) -> Outcome {
    if link.me != root {
        // In place is the root's alone.
        let Some(mine) = mine else { return link.has_length(0, 1) };
        return match blocks {
            None if mine.len() <= SHORT => inner(link, mine, root).await,
            _ => link.recv(root, mine).await,
        };
    }
    let is_equal = blocks.is_none();
    let blocks = blocks.unwrap_or_else(|| Blocks::Equal(all.len() / link.size as usize));
    link.has_length(all.len(), blocks.ranges(0..link.size).end)?;
    let own = &all[blocks.range(root)];
    if let Some(mine) = mine {
        link.has_length(mine.len(), own.len())?;
        mine.copy_from_slice(own);
    }
    match blocks {
        Blocks::Equal(len) if is_equal && len <= SHORT => top(link, all, len).await,
        blocks => {
            let others = (0..link.size).filter(|rank| *rank != root);
            let sends = link.post_all(others.map(|to| (to, &all[blocks.range(to)])))?;
            link.all_sent(sends).await
        }
    }
}

/// A rank below the root: its subtree's blocks, in the order of the places.
async fn inner<F: Fabric>(link: &mut Link<'_, F>, mine: &mut [u8], root: u32) -> Outcome {
    let (tree, len) = (Tree::new(link.me, root, link.size), mine.len());
    let Some(parent) = tree.parent() else { return Ok(()) };
    if tree.span() == 1 {
        return link.recv(parent, mine).await;
    }
    let mut scratch = link.scratch(tree.span() as usize * len)?;
    let blocks = scratch.bytes();
    link.recv(parent, blocks).await?;
    for (child, span) in tree.children() {
        let at = (child - tree.relative) as usize * len;
        link.send(tree.rank(child), &blocks[at..at + span as usize * len]).await?;
    }
    mine.copy_from_slice(&blocks[..len]);
    Ok(())
}

/// The root.
async fn top<F: Fabric>(link: &mut Link<'_, F>, all: &[u8], len: usize) -> Outcome {
    let tree = Tree::new(link.me, link.me, link.size);
    for (child, span) in tree.children() {
        let (first, bytes) = (tree.rank(child) as usize, span as usize * len);
        if first * len + bytes <= all.len() {
            link.send(tree.rank(child), &all[first * len..][..bytes]).await?;
        } else {
            // They go on at rank 0.
            let mut scratch = link.scratch(bytes)?;
            let blocks = scratch.bytes();
            let (high, low) = blocks.split_at_mut(all.len() - first * len);
            high.copy_from_slice(&all[first * len..]);
            low.copy_from_slice(&all[..low.len()]);
            link.send(tree.rank(child), blocks).await?;
        }
    }
    Ok(())
}
