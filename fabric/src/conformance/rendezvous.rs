//! A rendezvous over RDMA read (RGET: sur-2006, section 4): the sender announces its buffer in a
//! message (RTS); the receiver reads the bytes and sends a completion (FIN). And over RDMA write
//! (RPUT: section 3): the receiver says where to (RTR); the sender writes, and sends the completion.

use onesided_remote_memory::Rank;

use super::{Context, Verdict, Wrong, pattern, same};
use crate::{Fabric, Segment, SegmentKey};

/// An RTS or an RTR: it has the key of a block.
const KEY: u8 = 1;
const FIN: u8 = 2;
/// Lengths of the blocks, all in flight concurrently.
const BLOCKS: [u64; 6] = [1, 48, 4096, 200_003, 65_536, 2];

/// Sends the keys of new blocks to a rank, in which this rank's bytes are if they are to be `read`.
async fn announce<F: Fabric>(cx: &Context<F>, to: Rank, read: bool) -> Result<Vec<Option<F::Segment>>, Wrong> {
    let mut blocks = Vec::new();
    for (number, len) in (0..).zip(BLOCKS) {
        let block = cx.fabric().allocate(len)?;
        if read {
            cx.fabric().write_direct(&block, 0, &bytes_of(cx.me(), number, len))?;
        }
        cx.send(to, &packet(KEY, number, &block.key().to_bytes())).await?;
        blocks.push(Some(block));
    }
    Ok(blocks)
}

fn packet(kind: u8, number: u32, key: &[u8]) -> Vec<u8> {
    [&[kind][..], &number.to_le_bytes(), key].concat()
}

/// The next packet: its sender, the number of a block, and the key, unless it is a FIN.
async fn next<F: Fabric>(cx: &Context<F>) -> Result<(Rank, u32, Option<SegmentKey>), Wrong> {
    let (from, bytes) = cx.recv(cx.soon()).await?;
    let number = bytes.get(1..5).and_then(|number| number.try_into().ok()).map(u32::from_le_bytes);
    let number = number.ok_or_else(|| Wrong("a packet has a number".into()))?;
    let key = if bytes[0] == KEY { SegmentKey::from_bytes(&bytes[5..]).map(Some) } else { Some(None) };
    Ok((from, number, key.ok_or_else(|| Wrong("an RTS or RTR holds a key".into()))?))
}

/// A block that is no longer under way.
fn take<S>(blocks: &mut [Option<S>], number: u32) -> Result<S, Wrong> {
    let block = blocks.get_mut(number as usize).and_then(Option::take);
    block.ok_or_else(|| Wrong("FIN for a block that is not under way".into()))
}

fn bytes_of(rank: Rank, number: u32, len: u64) -> Vec<u8> {
    pattern(rank.0 + number, len as usize)
}

/// Every rank sends its blocks to the next rank, and receives those of the previous one.
pub(super) async fn read<F: Fabric>(cx: &Context<F>) -> Verdict {
    let (messages, mut blocks) = (cx.fabric().for_messages(), announce(cx, cx.next(), true).await?);
    let (mut announced, mut reads) = (0, Vec::new());
    while announced < BLOCKS.len() || blocks.iter().any(Option::is_some) {
        let (from, number, key) = next(cx).await?;
        if let Some(key) = key {
            same("RTS comes from the sender", from, cx.previous())?;
            let (block, buffer) = (messages.open(&key)?, cx.fabric().allocate(key.len)?);
            let read = messages.rdma_read((&block, 0), (&buffer, 0), key.len);
            reads.push((number, buffer, read));
            announced += 1;
        } else {
            same("FIN comes from the receiver", from, cx.next())?;
            take(&mut blocks, number)?;
        }
        if announced < BLOCKS.len() {
            continue;
        }
        for (number, buffer, read) in std::mem::take(&mut reads) {
            read.await?;
            let len = BLOCKS.get(number as usize).copied().unwrap_or_default();
            same("the length", buffer.len(), len)?;
            cx.reads(&format!("block {number}"), &buffer, 0, &bytes_of(cx.previous(), number, len))?;
            cx.send(cx.previous(), &packet(FIN, number, &[])).await?;
        }
    }
    Ok(())
}

/// Every rank writes its blocks to the next rank, and has those of the previous one when its packet
/// comes, which is sent behind the write where it may be.
pub(super) async fn write<F: Fabric>(cx: &Context<F>) -> Verdict {
    let (messages, mut blocks) = (cx.fabric().for_messages(), announce(cx, cx.previous(), false).await?);
    let (mut ready, mut writes) = (0, Vec::new());
    while ready < BLOCKS.len() || blocks.iter().any(Option::is_some) {
        let (from, number, key) = next(cx).await?;
        if let Some(key) = key {
            same("RTR comes from the receiver", from, cx.next())?;
            let (to, own) = (messages.open(&key)?, cx.fabric().allocate(key.len)?);
            cx.fabric().write_direct(&own, 0, &bytes_of(cx.me(), number, key.len))?;
            let mut write = Some(messages.rdma_write((&own, 0), (&to, 0), key.len));
            if !cx.channel(cx.next()).follows_writes
                && let Some(write) = write.take()
            {
                write.await?;
            }
            cx.send(cx.next(), &packet(FIN, number, &[])).await?;
            writes.extend(write);
            ready += 1;
        } else {
            same("FIN comes from the sender", from, cx.previous())?;
            let block = take(&mut blocks, number)?;
            cx.reads(&format!("block {number}"), &block, 0, &bytes_of(cx.previous(), number, block.len()))?;
        }
    }
    for write in writes {
        write.await?;
    }
    Ok(())
}
