//! Bulk operations: puts, gets, transfers, own memory.

use onesided_remote_memory::{FaultKind, Notify, Rank};

use super::{Context, Verdict, fails, holds, pattern, same, same_bytes};
use crate::{Fabric, Segment};

/// Bytes for [`sizes_and_offsets`].
pub(super) const AREA: u64 = 128;
/// Bytes for [`long`].
pub(super) const LONG: u64 = 64 * 1024 + MEBIBYTE + 3;
/// Bytes for [`flushed`].
pub(super) const FLUSHED: u64 = 16 * 1024;
/// Bytes for [`transfers`].
pub(super) const TRANSFERS: u64 = 2 * (200 * 1024 + 3);

const MEBIBYTE: u64 = 1 << 20;

/// Every length around words and cache lines, at every offset within a word; neighbouring bytes
/// must not change.
pub(super) async fn sizes_and_offsets<F: Fabric>(cx: &Context<F>) -> Verdict {
    let next = cx.segment(cx.next());
    let mut expected = vec![0xee; AREA as usize];
    cx.fabric().put(next, 0, &expected)?;
    for len in 0..=70 {
        for offset in 8..17 {
            let what = format!("{len} bytes at {offset}");
            let bytes = pattern(len * 17 + offset, len as usize);
            let range = offset as usize..(offset + len) as usize;
            expected[range.clone()].copy_from_slice(&bytes);
            cx.fabric().put(next, offset.into(), &bytes)?;
            cx.fabric().flush(cx.next()).await?;
            cx.gets(&format!("put {what}"), next, 0, &expected).await?;
            let mut part = vec![0xdd; len as usize + 2];
            cx.fabric().get(next, offset.into(), &mut part[1..=len as usize]).await?;
            same_bytes(&format!("get {what}"), &part[1..=len as usize], &expected[range])?;
            same("around it", (part[0], part[len as usize + 1]), (0xdd, 0xdd))?;
        }
    }
    Ok(())
}

pub(super) async fn long<F: Fabric>(cx: &Context<F>) -> Verdict {
    let areas = [(0, 64 * 1024), (64 * 1024, MEBIBYTE + 3)];
    for (offset, len) in areas {
        let bytes = pattern(cx.next().0, len as usize);
        cx.fabric().put(cx.segment(cx.next()), offset, &bytes)?;
        cx.fabric().flush(cx.next()).await?;
        cx.gets(&format!("get of {len} bytes"), cx.segment(cx.next()), offset, &bytes).await?;
    }
    cx.barrier().await?;
    for (offset, len) in areas {
        let expected = pattern(cx.me().0, len as usize);
        cx.reads("what the owner sees after flush and barrier", cx.own(), offset, &expected)?;
    }
    Ok(())
}

pub(super) async fn ranges<F: Fabric>(cx: &Context<F>) -> Verdict {
    let fabric = cx.fabric();
    for rank in [cx.next(), cx.me()] {
        let segment = cx.segment(rank);
        for (offset, len) in [(100, 1), (99, 2), (0, 101), (1 << 40, 8), (u64::MAX, 2), (u64::MAX - 7, 8)] {
            let mut bytes = vec![1; len];
            let what = |operation| format!("{operation} {len} bytes at {offset}");
            fails(&what("put"), fabric.put(segment, offset, &bytes), FaultKind::OutOfRange)?;
            fails(&what("get"), fabric.get(segment, offset, &mut bytes).await, FaultKind::OutOfRange)?;
            let len = len as u64;
            let write = fabric.rdma_write((cx.own(), 0), (segment, offset), len).await;
            fails(&what("RDMA write"), write, FaultKind::OutOfRange)?;
            let read = fabric.rdma_read((segment, offset), (cx.own(), 0), len).await;
            fails(&what("RDMA read"), read, FaultKind::OutOfRange)?;
            let write = fabric.rdma_write((cx.own(), offset), (segment, 0), len).await;
            fails(&what("RDMA write from"), write, FaultKind::OutOfRange)?;
            let read = fabric.rdma_read((segment, 0), (cx.own(), offset), len).await;
            fails(&what("RDMA read into"), read, FaultKind::OutOfRange)?;
        }
        same("put of nothing at the end", fabric.put(segment, 100, &[]), Ok(()))?;
        same("get of nothing at the end", fabric.get(segment, 100, &mut []).await, Ok(()))?;
        // An unawaited error would be reported here.
        let _ = fabric.flush(rank).await;
        cx.gets("after refused puts", segment, 0, &[0; 100]).await?;
    }
    Ok(())
}

/// A put of 8 aligned bytes is never seen in part.
pub(super) async fn whole_words<F: Fabric>(cx: &Context<F>) -> Verdict {
    const ROUNDS: u64 = 300;
    const PER_RANK_WORD: u64 = 0x0101_0101_0101_0101;
    let fabric = cx.fabric();
    let own = cx.word(cx.me(), 8)?;
    for round in 1..=ROUNDS {
        fabric.put(cx.segment(cx.next()), 8, &(round % 256 * PER_RANK_WORD).to_ne_bytes())?;
        let seen = fabric.load(own)?;
        holds(&format!("half a word: {seen:#x}"), seen % 256 * PER_RANK_WORD == seen)?;
        let mut bytes = [0; 8];
        fabric.get(cx.segment(cx.next()), 8, &mut bytes).await?;
        let seen = u64::from_ne_bytes(bytes);
        same("one's own put", seen, round % 256 * PER_RANK_WORD)?;
    }
    Ok(())
}

/// A rank that reads a flag after a put and a flush sees the put data.
pub(super) async fn flushed<F: Fabric>(cx: &Context<F>) -> Verdict {
    const ROUNDS: u64 = 10;
    let fabric = cx.fabric();
    let len = FLUSHED as usize - 16;
    let told = Rank((cx.next().0 + 1) % cx.size());
    let teller = Rank((cx.previous().0 + cx.size() - 1) % cx.size());
    for round in 1..=ROUNDS {
        let bytes = |from: Rank| pattern(from.0 + round as u32 * 31, len);
        fabric.put(cx.segment(cx.next()), 16, &bytes(cx.me()))?;
        fabric.flush(cx.next()).await?;
        // Words: at 0 the flag, at 8 the count of ranks that have read.
        drop(fabric.write(cx.word(told, 0)?, round, Notify::Yes));
        fabric.wait_until(cx.word(cx.me(), 0)?, move |told| told >= round, cx.soon()).await?;
        cx.gets("what the third rank sees", cx.segment(cx.previous()), 16, &bytes(teller)).await?;
        drop(fabric.write(cx.word(teller, 8)?, round, Notify::Yes));
        fabric.wait_until(cx.word(cx.me(), 8)?, move |looked| looked >= round, cx.soon()).await?;
    }
    Ok(())
}

/// Put data is visible when the flag written after it is.
pub(super) async fn data_before_flag<F: Fabric>(cx: &Context<F>) -> Verdict {
    const ROUNDS: u64 = 40;
    const LEN: usize = 901;
    let fabric = cx.fabric();
    // Words: at 0 the flag from the previous rank, at 8 the next rank's acknowledgement.
    for round in 1..=ROUNDS {
        fabric.put(cx.segment(cx.next()), 16, &pattern(round as u32, LEN))?;
        drop(fabric.write(cx.word(cx.next(), 0)?, round, Notify::Yes));
        let flag = fabric.wait_until(cx.word(cx.me(), 0)?, move |flag| flag >= round, cx.soon()).await?;
        same("the flag", flag, round)?;
        cx.reads(&format!("data of round {round}"), cx.own(), 16, &pattern(round as u32, LEN))?;
        drop(fabric.write(cx.word(cx.previous(), 8)?, round, Notify::Yes));
        fabric.wait_until(cx.word(cx.me(), 8)?, move |seen| seen >= round, cx.soon()).await?;
    }
    fabric.flush(cx.next()).await?;
    Ok(fabric.flush(cx.previous()).await?)
}

/// RDMA writes to the next rank's upper half, and reads it back to another place.
pub(super) async fn transfers<F: Fabric>(cx: &Context<F>) -> Verdict {
    let fabric = cx.fabric();
    let (own, next) = (cx.own(), cx.segment(cx.next()));
    let half = TRANSFERS / 2;
    let local = fabric.allocate(half)?;
    for (from, to, len) in [(0, 0, 1), (3, 5, 70), (8, 16, 4096), (1, 0, 65_537), (0, 0, half)] {
        let bytes = pattern(cx.me().0 + len as u32, len as usize);
        fabric.write_direct(own, from, &bytes)?;
        fabric.rdma_write((own, from), (next, half + to), len).await?;
        fabric.flush(cx.next()).await?;
        fabric.rdma_read((next, half + to), (&local, half - len), len).await?;
        cx.reads(&format!("{len} bytes there and back"), &local, half - len, &bytes)?;
    }
    if cx.size() > 1 {
        let read = fabric.rdma_read((own, 0), (next, 0), 8).await;
        fails("RDMA read into a peer's segment", read, FaultKind::NotOwn)?;
        let write = fabric.rdma_write((next, 0), (own, 0), 8).await;
        fails("RDMA write from a peer's segment", write, FaultKind::NotOwn)?;
    }
    cx.barrier().await?;
    cx.reads("what the owner sees", own, half, &pattern(cx.previous().0 + half as u32, half as usize))
}

pub(super) async fn own_bytes<F: Fabric>(cx: &Context<F>) -> Verdict {
    let fabric = cx.fabric();
    let mut bytes = pattern(cx.me().0, 91);
    fabric.write_direct(cx.own(), 9, &bytes)?;
    cx.reads("one's own bytes", cx.own(), 9, &bytes)?;
    for (offset, len) in [(100, 1), (9, 92), (u64::MAX, 2)] {
        let what = format!("{len} own bytes at {offset}");
        fails(&what, fabric.read_direct(cx.own(), offset, &mut vec![0; len]), FaultKind::OutOfRange)?;
        fails(&what, fabric.write_direct(cx.own(), offset, &vec![0; len]), FaultKind::OutOfRange)?;
    }
    if cx.size() > 1 {
        let peers = cx.segment(cx.next());
        if peers.mapped().is_none() {
            fails("a peer's bytes", fabric.read_direct(peers, 0, &mut bytes), FaultKind::NotOwn)?;
            fails("a peer's bytes", fabric.write_direct(peers, 0, &bytes), FaultKind::NotOwn)?;
        }
    }
    cx.barrier().await?;
    cx.gets("the peer's view", cx.segment(cx.next()), 9, &pattern(cx.next().0, 91)).await
}
