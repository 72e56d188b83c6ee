//! What a fabric reports about itself and its ranks, and its collectives.

use onesided_remote_memory::{Fault, FaultKind, Liveness, Rank};

use super::{Context, Verdict, fails, holds, pattern, same, same_bytes};
use crate::{Fabric, Segment, WORLD_BYTES};

pub(super) async fn know_themselves<F: Fabric>(cx: &Context<F>) -> Verdict {
    let fabric = cx.fabric();
    holds("the rank is below the size", cx.me().0 < cx.size())?;
    same("a clone is the same rank", (fabric.clone().rank(), fabric.clone().size()), (cx.me(), cx.size()))?;
    for rank in (0..cx.size()).map(Rank) {
        same("liveness", fabric.liveness(rank), Liveness::Alive)?;
        let world = fabric.world_segment(rank)?;
        same("world segment", (world.rank(), world.len()), (rank, WORLD_BYTES))?;
        same("segment", (cx.segment(rank).rank(), cx.segment(rank).len()), (rank, 64))?;
    }
    for rank in [Rank(cx.size()), Rank(u32::MAX)] {
        same("liveness of a rank that is none", fabric.liveness(rank), Liveness::Left)?;
    }
    if let Some(fencing) = fabric.fencing() {
        same("this rank's fence", fencing.fence_of(cx.me()), None)?;
        for rank in (0..cx.size()).map(Rank).filter(|rank| fencing.fence_of(*rank).is_none()) {
            fails("a fence", fencing.fence(rank), FaultKind::Unsupported)?;
        }
    }
    same("failures", fabric.failure(0), None)?;
    same("ends", fabric.ends(), 0)?;
    for home in (0..cx.size()).map(Rank) {
        for rank in (0..cx.size()).map(Rank) {
            same("has_cut", fabric.has_cut(home, rank).await?, false)?;
            same("has_failed", fabric.has_failed(home, rank), false)?;
        }
        same("lost_connection", fabric.lost_connection(home, Rank(0)), None)?;
        same("has_cut of a rank that is none", fabric.has_cut(home, Rank(cx.size())).await?, true)?;
    }
    holds("there is no world segment of rank `size`", fabric.world_segment(Rank(cx.size())).is_err())?;
    let capabilities = fabric.capabilities();
    holds("the fabric has a name", !capabilities.name.is_empty())?;
    holds("reads may be outstanding", capabilities.outstanding_reads > 0)?;
    holds("a transfer moves bytes", capabilities.longest_transfer > 0)?;
    let before = fabric.now();
    holds("time does not go back", fabric.now() >= before)
}

pub(super) async fn gather_any_length<F: Fabric>(cx: &Context<F>) -> Verdict {
    fails("1025 bytes", cx.world.all_gather(&[0; 1025]).await.map_err(|error| error.fault()), FaultKind::TooLong)?;
    let mut verdict = Ok(());
    for step in [1, 0, 1024, 8, 333] {
        let len = |rank: u32| (step * (rank as usize + 1)) % 1025;
        // Whatever the result, all ranks enter the next gather.
        let all = cx.world.all_gather(&pattern(cx.me().0, len(cx.me().0))).await.map_err(|error| error.fault());
        verdict = verdict.and(compare(cx, all, len));
    }
    verdict
}

fn compare<F: Fabric>(cx: &Context<F>, all: Result<Vec<Vec<u8>>, Fault>, len: impl Fn(u32) -> usize) -> Verdict {
    let all = all?;
    same("contributions", all.len(), cx.size() as usize)?;
    let mut ranks = (0..).zip(&all);
    ranks.try_for_each(|(rank, seen)| same_bytes(&format!("rank {rank}'s"), seen, &pattern(rank, len(rank))))
}
