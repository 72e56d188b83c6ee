//! A binomial tree; long blocks, and blocks of different lengths, go straight to the root (Thakur,
//! Rabenseifner and Gropp, IJHPCA 19, 2005).

use onesided_fabric::Fabric;

use super::blocks::Blocks;
use super::broadcast::Tree;
use super::link::{Link, Outcome};

/// Blocks of at most so many bytes go up the tree.
const SHORT: usize = 1 << 10;

/// `blocks` are those of the root if they are not equal.
pub(super) async fn run<F: Fabric>(
    link: &mut Link<'_, F>,
    (mine, all): (Option<&[u8]>, &mut [u8]),
    blocks: Option<Blocks>,
    root: u32,
) -> Outcome {
    if link.me != root {
        // In place is the root's alone.
        let Some(mine) = mine else { return link.has_length(0, 1) };
        return match blocks {
            None if mine.len() <= SHORT => inner(link, mine, root).await,
            _ => link.send(root, mine).await,
        };
    }
    let is_equal = blocks.is_none();
    let blocks = Blocks::of_all(blocks, mine, all, link.size);
    link.has_length(all.len(), blocks.ranges(0..link.size).end)?;
    if let Some(mine) = mine {
        let own = &mut all[blocks.range(root)];
        link.has_length(mine.len(), own.len())?;
        own.copy_from_slice(mine);
    }
    match blocks {
        Blocks::Equal(len) if is_equal && len <= SHORT => top(link, all, len).await,
        blocks => {
            for from in (0..link.size).filter(|rank| *rank != root) {
                link.recv(from, &mut all[blocks.range(from)]).await?;
            }
            Ok(())
        }
    }
}

/// A rank below the root: its subtree's blocks, in the order of the places.
async fn inner<F: Fabric>(link: &mut Link<'_, F>, mine: &[u8], root: u32) -> Outcome {
    let tree = Tree::new(link.me, root, link.size);
    let Some(parent) = tree.parent() else { return Ok(()) };
    if tree.span() == 1 {
        return link.send(parent, mine).await;
    }
    let mut scratch = link.scratch(tree.span() as usize * mine.len())?;
    let blocks = scratch.bytes();
    blocks[..mine.len()].copy_from_slice(mine);
    for (child, span) in tree.children() {
        let at = (child - tree.relative) as usize * mine.len();
        link.recv(tree.rank(child), &mut blocks[at..at + span as usize * mine.len()]).await?;
    }
    link.send(parent, blocks).await
}

/// The root.
async fn top<F: Fabric>(link: &mut Link<'_, F>, all: &mut [u8], len: usize) -> Outcome {
    let tree = Tree::new(link.me, link.me, link.size);
    for (child, span) in tree.children() {
        let (first, bytes) = (tree.rank(child) as usize, span as usize * len);
        if first * len + bytes <= all.len() {
            link.recv(tree.rank(child), &mut all[first * len..][..bytes]).await?;
        } else {
            // They go on at rank 0.
            let mut scratch = link.scratch(bytes)?;
            let blocks = scratch.bytes();
            link.recv(tree.rank(child), blocks).await?;
            let (high, low) = blocks.split_at(all.len() - first * len);
            all[first * len..].copy_from_slice(high);
            all[..low.len()].copy_from_slice(low);
        }
    }
    Ok(())
}
