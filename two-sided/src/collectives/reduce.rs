//! A binomial tree; a long vector by Rabenseifner's reduce-scatter, whose blocks the root gathers
//! (Thakur, Rabenseifner and Gropp, IJHPCA 19, 2005).

use onesided_fabric::Fabric;

use super::all_reduce::{self, Halving};
use super::broadcast::Tree;
use super::link::{Link, Outcome};
use super::operation::{Operation, Side};

/// From so many bytes on, among at least four ranks.
const LONG: usize = 64 << 10;

pub(super) async fn run<F: Fabric>(
    link: &mut Link<'_, F>,
    data: &mut [u8],
    operation: &Operation,
    root: u32,
) -> Outcome {
    if data.len() >= LONG && link.size >= 4 {
        return halved(link, data, operation, root).await;
    }
    // In the order of the ranks if that matters: then rank 0 has the result first.
    let top = if operation.is_commutative { root } else { 0 };
    tree(link, data, operation, top).await?;
    match (link.me, top == root) {
        (_, true) => Ok(()),
        (me, false) if me == top => link.send(root, data).await,
        (me, false) if me == root => link.recv(top, data).await,
        _ => Ok(()),
    }
}

async fn tree<F: Fabric>(link: &mut Link<'_, F>, data: &mut [u8], operation: &Operation, top: u32) -> Outcome {
    let tree = Tree::new(link.me, top, link.size);
    let mut scratch = link.scratch(if tree.span() > 1 { data.len() } else { 0 })?;
    // The nearest ones first: each has all between it and the next one.
    let mut bit = 1;
    while bit < tree.span() {
        let others = scratch.bytes();
        link.recv(tree.rank(tree.relative + bit), others).await?;
        operation.apply(data, (Side::Right, others));
        bit *= 2;
    }
    match tree.parent() {
        Some(parent) => link.send(parent, data).await,
        None => Ok(()),
    }
}

async fn halved<F: Fabric>(link: &mut Link<'_, F>, data: &mut [u8], operation: &Operation, root: u32) -> Outcome {
    let halving = Halving::new(link, data.len() / operation.element, operation.element);
    all_reduce::reduce_scatter(link, data, operation, &halving).await?;
    let mine = halving.mine();
    if link.me != root {
        return match mine {
            Some(mine) => link.send(root, &data[mine]).await,
            None => Ok(()),
        };
    }
    for (rank, block) in halving.all().filter(|(rank, _)| *rank != root) {
        link.recv(rank, &mut data[block]).await?;
    }
    Ok(())
}
