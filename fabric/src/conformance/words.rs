//! Words: addressing, operations, atomicity, order.

use onesided_remote_memory::{At, FaultKind, Link, Notify, Rank, RegionId};

use super::{Context, Verdict, fails, holds, same};
use crate::{Fabric, Segment};

pub(super) async fn places<F: Fabric>(cx: &Context<F>) -> Verdict {
    for rank in [cx.me(), cx.next()] {
        let segment = cx.segment(rank);
        let region = segment.key().region;
        let word = |at: At| cx.fabric().word(at).map(drop);
        same("the last word", word(At { rank, region, offset: 56 }), Ok(()))?;
        for (offset, kind) in [
            (64, FaultKind::OutOfRange),
            (1 << 40, FaultKind::OutOfRange),
            (u64::MAX - 7, FaultKind::OutOfRange),
            (4, FaultKind::Misaligned),
            (57, FaultKind::Misaligned),
        ] {
            fails(&format!("word at {offset}"), word(At { rank, region, offset }), kind)?;
            fails(&format!("word in a segment at {offset}"), cx.fabric().word_in(segment, offset).map(drop), kind)?;
            let words = cx.fabric().words_in::<2>(segment, offset);
            holds(&format!("there are no words in a segment from {offset}"), words.is_none())?;
        }
        let nowhere = At { rank, region: RegionId(u32::MAX), offset: 0 };
        fails("region 2^32 - 1", word(nowhere), FaultKind::NoSuchRegion)?;
        for rank in [Rank(cx.size()), Rank(u32::MAX)] {
            fails(&format!("{rank}"), word(At { rank, region, offset: 0 }), FaultKind::NoSuchRank)?;
        }
    }
    Ok(())
}

/// Words resolved together are the words resolved one by one.
pub(super) async fn neighbours<F: Fabric>(cx: &Context<F>) -> Verdict {
    let (fabric, own) = (cx.fabric(), cx.segment(cx.me()));
    for offset in (0..64).step_by(8) {
        fabric.write(fabric.word_in(own, offset)?, offset + 1, Notify::No).await?;
    }
    for (word, value) in fabric.words_in::<6>(own, 16).into_iter().flatten().zip([17, 25, 33, 41, 49, 57]) {
        same("a word among others", fabric.read(word).await, Ok(value))?;
        same("an own word among others", fabric.load(word), Ok(value))?;
    }
    for segment in [own, cx.segment(cx.next())] {
        holds("all that there are", fabric.words_in::<8>(segment, 0).is_some())?;
        holds("not one more", fabric.words_in::<9>(segment, 0).is_none())?;
        holds("not one past the end", fabric.words_in::<6>(segment, 24).is_none())?;
        holds("not between words", fabric.words_in::<2>(segment, 20).is_none())?;
    }
    Ok(())
}

pub(super) async fn operations<F: Fabric>(cx: &Context<F>) -> Verdict {
    on_word_of(cx, cx.next()).await?;
    cx.barrier().await?;
    for (offset, expected) in [(8, 7), (16, u64::MAX), (24, 7)] {
        same("what the owner sees", cx.fabric().load(cx.word(cx.me(), offset)?), Ok(expected))?;
    }
    Ok(())
}

pub(super) async fn own_word_operations<F: Fabric>(cx: &Context<F>) -> Verdict {
    on_word_of(cx, cx.me()).await
}

/// Every operation on the word at 16; its neighbours must not change.
async fn on_word_of<F: Fabric>(cx: &Context<F>, rank: Rank) -> Verdict {
    let fabric = cx.fabric();
    let word = cx.word(rank, 16)?;
    for neighbour in [8, 24] {
        fabric.write(cx.word(rank, neighbour)?, 7, Notify::No).await?;
    }
    same("a new word", fabric.read(word).await, Ok(0))?;
    for value in [1, u64::MAX, 1 << 63, 0x0123_4567_89ab_cdef] {
        fabric.write(word, value, Notify::No).await?;
        same("read after write", fabric.read(word).await, Ok(value))?;
        for bit in [0, 31, 32, 63] {
            same("compare-swap finds another", fabric.compare_swap(word, value ^ 1 << bit, 5).await, Ok(value))?;
            same("and leaves it", fabric.read(word).await, Ok(value))?;
        }
        same("compare-swap finds it", fabric.compare_swap(word, value, !value).await, Ok(value))?;
        same("and swaps", fabric.read(word).await, Ok(!value))?;
        same("fetch-add finds", fabric.fetch_add(word, value).await, Ok(!value))?;
        same("and adds", fabric.read(word).await, Ok(u64::MAX))?;
        same("fetch-add wraps", fabric.fetch_add(word, 2).await, Ok(u64::MAX))?;
        same("to", fabric.fetch_add(word, 0).await, Ok(1))?;
    }
    fabric.write(word, u64::MAX, Notify::Yes).await?;
    for neighbour in [8, 24] {
        same("the neighbour", fabric.read(cx.word(rank, neighbour)?).await, Ok(7))?;
    }
    Ok(())
}

pub(super) async fn own_words_only<F: Fabric>(cx: &Context<F>) -> Verdict {
    let fabric = cx.fabric();
    let own = cx.word(cx.me(), 0)?;
    same("store", fabric.store(own, 11), Ok(()))?;
    same("load", fabric.load(own), Ok(11))?;
    if cx.size() > 1 {
        let peers = cx.word(cx.next(), 8)?;
        fails("load of a peer's word", fabric.load(peers), FaultKind::NotOwn)?;
        fails("store to a peer's word", fabric.store(peers, 1), FaultKind::NotOwn)?;
        let wait = fabric.wait_until(peers, |_| true, cx.soon()).await;
        fails("wait for a peer's word", wait, FaultKind::NotOwn)?;
    }
    cx.barrier().await?;
    same("the peer's view of a store", fabric.read(cx.word(cx.next(), 0)?).await, Ok(11))?;
    same("a refused store", fabric.load(cx.word(cx.me(), 8)?), Ok(0))
}

pub(super) async fn sums<F: Fabric>(cx: &Context<F>) -> Verdict {
    const EACH: u64 = 200;
    // The owner, rank 0, adds to its own word as its peers do.
    let word = cx.word(Rank(0), 0)?;
    let mut last = None;
    for turn in 0..EACH {
        // Sometimes several are in flight.
        let dropped = (turn % 4 == 0).then(|| cx.fabric().fetch_add(word, 1));
        let found = cx.fabric().fetch_add(word, 1 << 32).await?;
        holds("what is found rises", last < Some(found))?;
        last = Some(found);
        drop(dropped);
    }
    cx.fabric().flush(Rank(0)).await?;
    cx.barrier().await?;
    let all = u64::from(cx.size()) * EACH;
    same("the sum", cx.fabric().read(word).await, Ok((all << 32) | (all / 4)))
}

/// Same-host words, which only ranks of one host change.
pub(super) async fn near_words<F: Fabric>(cx: &Context<F>) -> Verdict {
    const EACH: u64 = 200;
    let fabric = cx.fabric();
    let here = |rank: Rank| fabric.host_of(rank) == fabric.host_of(cx.me());
    let of = |rank| fabric.same_host_word(cx.segment(rank), 8);
    let is_near = |rank| of(rank).is_ok();
    if !is_near(cx.me()) {
        return fails("a word near, where there are none", of(cx.next()).map(drop), FaultKind::Unsupported);
    }
    for rank in (0..cx.size()).map(Rank).filter(|rank| !here(*rank)) {
        fails("a word near of another host", of(rank).map(drop), FaultKind::Unsupported)?;
    }
    fails("a word near at 4", fabric.same_host_word(cx.segment(cx.me()), 4).map(drop), FaultKind::Misaligned)?;
    fails("a word near at 64", fabric.same_host_word(cx.segment(cx.me()), 64).map(drop), FaultKind::OutOfRange)?;
    let mates: Vec<_> = (0..cx.size()).map(Rank).filter(|rank| here(*rank)).collect();
    let word = of(mates[0])?;
    for _ in 0..EACH {
        fabric.fetch_add(word, 1 << 32).await?;
        let mut found = fabric.read(word).await?;
        loop {
            match fabric.compare_swap(word, found, found + 1).await? {
                now if now == found => break,
                now => found = now,
            }
        }
        fabric.post_link(Link::FetchAdd { word, add: 2, waited: true }).await?;
    }
    cx.barrier().await?;
    let all = mates.len() as u64 * EACH;
    same("the sum", fabric.read(word).await, Ok((all << 32) | (3 * all)))?;
    cx.barrier().await?;
    if cx.me() == mates[0] {
        fabric.write(word, 5, Notify::No).await?;
        same("the owner's view", fabric.load(word), Ok(5))?;
    }
    Ok(())
}

pub(super) async fn compare_swap_counters<F: Fabric>(cx: &Context<F>) -> Verdict {
    const EACH: u64 = 30;
    let word = cx.word(Rank(0), 0)?;
    for _ in 0..EACH {
        let mut expected = cx.fabric().read(word).await?;
        let mut failures = 0;
        loop {
            let found = cx.fabric().compare_swap(word, expected, expected + 1).await?;
            if found == expected {
                break;
            }
            expected = found;
            failures += 1;
            holds("somebody's compare-swap succeeds", failures < 100_000)?;
            cx.fabric().pause(word, 1000 * u64::from(cx.me().0 + 1)).await;
        }
    }
    cx.barrier().await?;
    same("the count", cx.fabric().read(word).await, Ok(u64::from(cx.size()) * EACH))
}

pub(super) async fn writes_in_order<F: Fabric>(cx: &Context<F>) -> Verdict {
    const ROUNDS: u64 = 200;
    let fabric = cx.fabric();
    let (data, flag) = (cx.word(cx.next(), 0)?, cx.word(cx.next(), 8)?);
    for round in 1..=ROUNDS {
        drop(fabric.write(data, round, Notify::No));
        drop(fabric.write(flag, round, Notify::Yes));
    }
    let (data, flag) = (cx.word(cx.me(), 0)?, cx.word(cx.me(), 8)?);
    let mut seen = 0;
    while seen < ROUNDS {
        seen = fabric.wait_until(flag, move |value| value > seen, cx.soon()).await?;
        let behind = fabric.load(data)?;
        holds(&format!("flag {seen} came before its data: {behind}"), behind >= seen)?;
    }
    Ok(fabric.flush(cx.next()).await?)
}

pub(super) async fn chains<F: Fabric>(cx: &Context<F>) -> Verdict {
    let fabric = cx.fabric();
    for rank in [cx.next(), cx.me()] {
        // Two ranks never use the same word.
        let word = cx.word(rank, if rank == cx.me() { 0 } else { 8 })?;
        let (waited, notify) = (true, Notify::No);
        for value in [5, u64::MAX] {
            let [_, added, read] = fabric
                .post([
                    Link::Write { word, value, notify, waited },
                    Link::FetchAdd { word, add: 3, waited },
                    Link::Read { word, waited },
                ])
                .await?;
            same("write, fetch-add, read", (added, read), (value, value.wrapping_add(3)))?;
        }
        let [unwaited, swapped, read] = fabric
            .post([
                Link::Write { word, value: 8, notify, waited: false },
                Link::CompareSwap { word, expected: 8, new: 9, waited },
                Link::Read { word, waited },
            ])
            .await?;
        same("an unwaited write, compare-swap, read", (unwaited, swapped, read), (0, 8, 9))?;
        let [missed, added] = fabric
            .post([
                Link::CompareSwap { word, expected: 8, new: 1, waited },
                Link::FetchAdd { word, add: 1, waited: false },
            ])
            .await?;
        same("a compare-swap that fails stops nothing", (missed, added), (9, 0))?;
        fabric.flush(rank).await?;
        same("the unwaited fetch-add", fabric.read(word).await, Ok(10))?;
        let [before, _, after] = fabric
            .post([
                Link::Read { word, waited },
                Link::Write { word, value: 11, notify, waited: false },
                Link::Read { word, waited },
            ])
            .await?;
        same("read, write, read", (before, after), (10, 11))?;
    }
    Ok(())
}

pub(super) async fn dropped_operations<F: Fabric>(cx: &Context<F>) -> Verdict {
    const COUNT: u64 = 100;
    let fabric = cx.fabric();
    let (counter, last) = (cx.word(cx.next(), 0)?, cx.word(cx.next(), 8)?);
    for turn in 0..COUNT {
        drop(fabric.fetch_add(counter, 1));
        drop(fabric.compare_swap(last, turn, turn + 1));
    }
    fabric.flush(cx.next()).await?;
    cx.barrier().await?;
    same("dropped fetch-adds", fabric.load(cx.word(cx.me(), 0)?), Ok(COUNT))?;
    same("dropped compare-swaps, in order", fabric.load(cx.word(cx.me(), 8)?), Ok(COUNT))?;
    same("flush with nothing to do", fabric.flush(cx.next()).await, Ok(()))?;
    same("flush of oneself", fabric.flush(cx.me()).await, Ok(()))?;
    same("local flush", fabric.flush_local(cx.next()).await, Ok(()))
}
