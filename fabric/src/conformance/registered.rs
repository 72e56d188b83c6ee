//! User memory: registered, accessed like any other segment, and returned.

use onesided_remote_memory::FaultKind;

use super::{Context, Verdict, Wrong, fails, holds, pattern, same, same_bytes};
use crate::{Error, Fabric, Segment, SegmentKey, UserMemory, WORDLESS};

/// Bytes for [`memory`]: space for the owner's key, then for the peers' reports.
pub(super) const KEY: u64 = 64;
const LEN: usize = 100_003;

/// Sends the next rank this rank's key, and returns that of the previous rank.
async fn exchange<F: Fabric>(cx: &Context<F>, own: &F::Segment) -> Result<SegmentKey, Wrong> {
    let fabric = cx.fabric();
    fabric.put(cx.segment(cx.next()), 0, &own.key().to_bytes())?;
    fabric.flush(cx.next()).await?;
    cx.barrier().await?;
    let mut key = [0; SegmentKey::BYTES];
    fabric.read_direct(cx.own(), 0, &mut key)?;
    SegmentKey::from_bytes(&key).ok_or_else(|| Wrong("a key has its length".into()))
}

pub(super) async fn memory<F: Fabric>(cx: &Context<F>) -> Verdict {
    let (fabric, me) = (cx.fabric(), cx.me().0);
    holds("no bytes are refused", matches!(fabric.register(Vec::<u64>::new().into()), Err(Error::Allocate { .. })))?;
    let own = fabric.register(pattern(me, LEN).into())?;
    same("the length", own.len(), LEN.next_multiple_of(8) as u64)?;
    let key = exchange(cx, &own).await?;
    let peers = fabric.open(&key)?;
    same("the owner", (peers.rank(), peers.len()), (cx.previous(), own.len()))?;
    cx.gets("what a peer gets", &peers, 0, &pattern(cx.previous().0, LEN)).await?;
    for (at, len) in [(0, 1), (7, 9), (64, 8), (4090, 20), (50_000, 50_003)] {
        fabric.put(&peers, at, &pattern(me + 77, len))?;
        fabric.flush(cx.previous()).await?;
        cx.gets("what was put", &peers, at, &pattern(me + 77, len)).await?;
    }
    let mut one = [0];
    fails("a get past the end", fabric.get(&peers, own.len(), &mut one).await, FaultKind::OutOfRange)?;
    fails("a put past the end", fabric.put(&peers, own.len() - 1, &[1, 2]), FaultKind::OutOfRange)?;
    fails("an endless offset", fabric.put(&peers, u64::MAX, &[1, 2]), FaultKind::OutOfRange)?;
    let buffer = fabric.allocate(LEN as u64)?;
    fabric.rdma_read((&peers, 8), (&buffer, 1), 1000).await?;
    fabric.rdma_write((&buffer, 1), (&peers, 2000), 1000).await?;
    let mut from = vec![0; 1000];
    fabric.get(&peers, 8, &mut from).await?;
    cx.gets("transferred", &peers, 2000, &from).await?;
    fabric.flush(cx.previous()).await?;
    cx.barrier().await?;
    cx.reads("at its owner", &own, 50_000, &pattern(cx.next().0 + 77, 50_003))?;
    fabric.write_direct(&own, 3, &[9, 8, 7])?;
    drop(peers);
    cx.barrier().await?;
    let memory = take_back(cx, &own).await?;
    same_bytes(
        "given back",
        &memory.bytes()[..7],
        &[&here_begins(cx)[..3], &[9, 8, 7], &here_begins(cx)[6..7]].concat(),
    )?;
    let bytes = memory.into_vec::<u8>().map_err(|_| Wrong("it is the registered vector".into()))?;
    same("its length", bytes.len(), LEN)?;
    fails("a second time", fabric.reclaim(&own).map(drop), FaultKind::Closed)?;
    fails("one's own, taken back", fabric.read_direct(&own, 0, &mut [0]), FaultKind::NoSuchRegion)?;
    cx.barrier().await?;
    holds("its key opens nothing any more", matches!(fabric.open(&key), Err(Error::Open { .. })))?;
    fails("allocated memory is no loan", fabric.reclaim(cx.own()).map(drop), FaultKind::Unsupported)?;
    cx.barrier().await
}

/// Transfers between this rank's user memory and memory that a peer's fabric has allocated.
pub(super) async fn transfers<F: Fabric>(cx: &Context<F>) -> Verdict {
    let fabric = cx.fabric();
    let there = fabric.allocate(LEN as u64)?;
    fabric.write_direct(&there, 0, &pattern(cx.me().0, LEN))?;
    let theirs = fabric.open(&exchange(cx, &there).await?)?;
    let own = fabric.register(vec![0_u8; LEN].into())?;
    fabric.rdma_read((&theirs, 8), (&own, 17), 1000).await?;
    fabric.rdma_write((&own, 17), (&theirs, 50_001), 1000).await?;
    fabric.flush(cx.previous()).await?;
    cx.barrier().await?;
    cx.reads("written", &there, 50_001, &pattern(cx.me().0, LEN)[8..1008])?;
    let memory = take_back(cx, &own).await?;
    same_bytes("read", &memory.bytes()[17..1017], &pattern(cx.previous().0, LEN)[8..1008])?;
    cx.barrier().await
}

/// What the next rank has put at the start of this rank's memory.
fn here_begins<F: Fabric>(cx: &Context<F>) -> Vec<u8> {
    let mut bytes = pattern(cx.me().0, 7);
    bytes[0] = pattern(cx.next().0 + 77, 1)[0];
    bytes
}

/// Reclaims; retries while a peer still accesses the memory.
async fn take_back<F: Fabric>(cx: &Context<F>, own: &F::Segment) -> Result<UserMemory, Wrong> {
    let until = cx.fabric().now() + super::SOON;
    loop {
        if let Some(memory) = cx.fabric().reclaim(own)? {
            return Ok(memory);
        }
        holds("it is given back soon", cx.fabric().now() < until)?;
        cx.fabric().pause(cx.word(cx.me(), 0)?, 10_000).await;
    }
}

/// Words of user memory are either the fabric's, or a process that maps them changes them.
pub(super) async fn changed<F: Fabric>(cx: &Context<F>) -> Verdict {
    let fabric = cx.fabric();
    let own = fabric.register(vec![5_u64, 6, 7].into())?;
    let key = exchange(cx, &own).await?;
    let peers = fabric.open(&key)?;
    for segment in [&own, &peers] {
        match fabric.word_in(segment, 8) {
            Ok(word) => {
                fabric.fetch_add(word, 1).await?;
            }
            Err(fault) => {
                same("there is no word", (fault.kind(), fault.detail()), (FaultKind::Unsupported, WORDLESS))?;
                let mut found = [0; 2];
                let changed = segment.change(8, 2, &mut |at, before| {
                    found[at] = before;
                    if at == 0 { before + 1 } else { before }
                });
                match changed {
                    Ok(()) => holds("what was there", found[0] >= 6 && found[1] == 7)?,
                    Err(fault) => same("memory elsewhere", fault.kind(), FaultKind::NotOwn)?,
                }
                fails("past the end", segment.change(16, 2, &mut |_, _| 0), FaultKind::OutOfRange)?;
                fails("no word", fabric.word_in(segment, 24).map(drop), FaultKind::OutOfRange)?;
            }
        }
    }
    fabric.flush(cx.previous()).await?;
    cx.barrier().await?;
    let memory = take_back(cx, &own).await?.into_vec::<u64>().map_err(|_| Wrong("the vector".into()))?;
    let both = fabric.capabilities().agent != crate::AtomicAgent::Cpu || memory[1] == 8;
    holds("each change counts", both && memory[1] > 6 && memory[1] <= 8 && memory[0] == 5)?;
    cx.barrier().await
}

/// Overlapping parts are one memory, whichever part is used to access it.
pub(super) async fn parts<F: Fabric>(cx: &Context<F>) -> Verdict {
    let fabric = cx.fabric();
    let whole = fabric.register((0..100_u64).collect::<Vec<_>>().into())?;
    let (low, high) = (fabric.part(&whole, 0, 480)?, fabric.part(&whole, 400, 400)?);
    for (offset, len) in [(0, 0), (0, 808), (800, 8), (u64::MAX - 7, 8), (8, u64::MAX)] {
        fails("a part of more than there is", fabric.part(&whole, offset, len).map(drop), FaultKind::OutOfRange)?;
    }
    fails("a part between words", fabric.part(&whole, 4, 8).map(drop), FaultKind::Misaligned)?;
    fails("a part of allocated memory", fabric.part(cx.own(), 0, 8).map(drop), FaultKind::Unsupported)?;
    let deep = fabric.part(&high, 392, 8)?;
    cx.reads("a part of a part", &deep, 0, &99_u64.to_le_bytes())?;
    same("its owner", deep.key().rank, cx.me())?;
    let (low, high) = (exchange(cx, &low).await?, (cx.barrier().await?, exchange(cx, &high).await?).1);
    let (low, high) = (fabric.open(&low)?, fabric.open(&high)?);
    same("their lengths", (low.len(), high.len(), low.rank()), (480, 400, cx.previous()))?;
    if cx.previous() != cx.me() {
        fails("a peer's", fabric.part(&low, 0, 8).map(drop), FaultKind::NotOwn)?;
    }
    fabric.put(&low, 400, &7777_u64.to_le_bytes())?;
    fabric.flush(cx.previous()).await?;
    cx.gets("what was put through another part", &high, 0, &7777_u64.to_le_bytes()).await?;
    for (part, offset) in [(&low, 408), (&high, 8)] {
        match fabric.word_in(part, offset) {
            Ok(word) => drop(fabric.fetch_add(word, 1).await?),
            Err(_) => match part.change(offset, 1, &mut |_, found| found + 1) {
                Err(fault) if fault.kind() != FaultKind::NotOwn => return Err(fault.into()),
                _ => {}
            },
        }
    }
    fails("a put past a part", fabric.put(&low, 476, &[0; 8]), FaultKind::OutOfRange)?;
    fails("a get past a part", fabric.get(&high, 400, &mut [0]).await, FaultKind::OutOfRange)?;
    let none = SegmentKey { len: 808, ..low.key() };
    holds("a key of more than there is", fabric.open(&none).is_err())?;
    fabric.flush(cx.previous()).await?;
    drop((low, high));
    cx.barrier().await?;
    fails("a part is not given back", fabric.reclaim(&deep).map(drop), FaultKind::Unsupported)?;
    let memory = take_back(cx, &whole).await?.into_vec::<u64>().map_err(|_| Wrong("the vector".into()))?;
    same("what was put", (memory[49], memory[50], memory[52]), (49, 7777, 52))?;
    let both = fabric.capabilities().agent != crate::AtomicAgent::Cpu || memory[51] == 53;
    holds("each change counts", both && (memory[51] == 51 || memory[51] == 53))?;
    fails("a part of what was given back", fabric.read_direct(&deep, 0, &mut [0]), FaultKind::NoSuchRegion)?;
    cx.barrier().await
}

/// User memory that is dropped without being reclaimed disappears for peers, and no memory is
/// corrupted.
pub(super) async fn dropped<F: Fabric>(cx: &Context<F>) -> Verdict {
    let fabric = cx.fabric();
    for turn in 0..20_u32 {
        let own = fabric.register(pattern(turn, 4096 + turn as usize).into())?;
        let key = own.key();
        let again = fabric.open(&key)?;
        drop(own);
        drop(again);
        holds("nothing is there any more", fabric.open(&key).is_err())?;
    }
    Ok(())
}
