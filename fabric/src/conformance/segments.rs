//! Segments: keys, allocation, lifetime.

use onesided_remote_memory::Rank;

use super::{Context, Verdict, Wrong, holds, pattern, same};
use crate::{Error, Fabric, Segment, SegmentKey};

/// Bytes for [`many`]: space for the keys.
pub(super) const KEYS: u64 = MANY as u64 * SegmentKey::BYTES as u64;
/// Bytes for [`dropped_transfers`].
pub(super) const SOURCE: u64 = 64 * 1024;

const MANY: u32 = 40;

pub(super) async fn keys<F: Fabric>(cx: &Context<F>) -> Verdict {
    let fabric = cx.fabric();
    let key = cx.own().key();
    same("the key", (key.rank, key.len), (cx.me(), 64))?;
    let again = fabric.open(&key)?;
    same("one's own segment, opened", (again.rank(), again.len(), again.key()), (cx.me(), 64, key))?;
    fabric.write_direct(&again, 0, &[1, 2, 3])?;
    drop(again);
    cx.barrier().await?;
    let peers = fabric.open(&cx.segment(cx.next()).key())?;
    cx.gets("through a second handle", &peers, 0, &[1, 2, 3]).await?;
    let nobody = SegmentKey { rank: Rank(cx.size()), ..key };
    holds("no segment of rank `size`", matches!(fabric.open(&nobody), Err(Error::Open { .. })))
}

pub(super) async fn allocation<F: Fabric>(cx: &Context<F>) -> Verdict {
    for len in [0, u64::MAX, u64::MAX - 4096, 1 << 62] {
        let result = cx.fabric().allocate(len);
        holds(&format!("{len} bytes are refused"), matches!(result, Err(Error::Allocate { .. })))?;
    }
    for len in [1, 7, 8, 4095, 4097, 100_000] {
        let segment = cx.fabric().allocate(len)?;
        same("the length", segment.len(), len)?;
        cx.reads("new memory", &segment, 0, &vec![0; len as usize])?;
        cx.fabric().write_direct(&segment, 0, &vec![1; len as usize])?;
    }
    Ok(())
}

pub(super) async fn many<F: Fabric>(cx: &Context<F>) -> Verdict {
    let fabric = cx.fabric();
    let mut mine = Vec::new();
    for number in 0..MANY {
        let segment = fabric.allocate(u64::from(number) + 8)?;
        fabric.write_direct(&segment, 0, &pattern(cx.me().0 + number, number as usize + 8))?;
        fabric.put(cx.segment(cx.next()), key_at(number), &segment.key().to_bytes())?;
        mine.push(segment);
    }
    fabric.flush(cx.next()).await?;
    cx.barrier().await?;
    for number in 0..MANY {
        let mut key = [0; SegmentKey::BYTES];
        fabric.read_direct(cx.own(), key_at(number), &mut key)?;
        let key = SegmentKey::from_bytes(&key).ok_or_else(|| Wrong("a key has its length".into()))?;
        let peers = fabric.open(&key)?;
        let expected = pattern(cx.previous().0 + number, number as usize + 8);
        cx.gets(&format!("segment {number}"), &peers, 0, &expected).await?;
    }
    cx.barrier().await
}

fn key_at(number: u32) -> u64 {
    u64::from(number) * SegmentKey::BYTES as u64
}

/// Segments and transfers may be dropped while bytes are in flight: the transfer holds what it
/// needs.
pub(super) async fn dropped_transfers<F: Fabric>(cx: &Context<F>) -> Verdict {
    let fabric = cx.fabric();
    let bytes = pattern(cx.me().0, SOURCE as usize);
    fabric.write_direct(cx.own(), 0, &bytes)?;
    cx.barrier().await?;
    let next = cx.segment(cx.next());
    for turn in 0..4 {
        let into = fabric.allocate(SOURCE)?;
        let transfer = fabric.rdma_read((next, 0), (&into, 0), SOURCE);
        if turn % 2 == 0 {
            drop(transfer);
            drop(into);
        } else {
            drop(into);
            transfer.await?;
        }
        // Memory allocated in place of the dropped segment is not overwritten.
        let fresh = fabric.allocate(SOURCE)?;
        fabric.flush(cx.next()).await?;
        cx.reads("fresh memory", &fresh, 0, &vec![0; SOURCE as usize])?;
    }
    let mut seen = vec![0; SOURCE as usize];
    let get = fabric.get(next, 0, &mut seen);
    drop(get);
    fabric.flush(cx.next()).await?;
    cx.gets("after a dropped get", next, 0, &pattern(cx.next().0, SOURCE as usize)).await
}
