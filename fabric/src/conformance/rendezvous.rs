//! A rendezvous over RDMA read (RGET: sur-2006, section 4): the sender announces its buffer in a
//! message (RTS); the receiver reads the bytes and sends a completion (FIN). And over RDMA write
//! (RPUT: section 3): the receiver says where to (RTR); the sender writes, and sends the completion.

use onesided_remote_memory::Rank;

use super::{Context, Verdict, Wrong, pattern, same, same_bytes};
use crate::{Fabric, Segment, SegmentKey};

const RTS: u8 = 1;
const FIN: u8 = 2;
/// Lengths of the blocks, all in flight concurrently.
const BLOCKS: [u64; 6] = [1, 48, 4096, 200_003, 65_536, 2];

/// Every rank sends its blocks to the next rank, and receives those of the previous one.
pub(super) async fn read<F: Fabric>(cx: &Context<F>) -> Verdict {
    let (messages, mut blocks) = (cx.fabric().for_messages(), Vec::new());
    for (number, len) in (0..).zip(BLOCKS) {
        let block = cx.fabric().allocate(len)?;
        cx.fabric().write_direct(&block, 0, &pattern(cx.me().0 + number, len as usize))?;
        let mut rts = vec![RTS];
        rts.extend(number.to_le_bytes());
        rts.extend(block.key().to_bytes());
        cx.send(cx.next(), &rts).await?;
        blocks.push(Some(block));
    }
    let (mut announced, mut reads) = (0, Vec::new());
    while announced < BLOCKS.len() || blocks.iter().any(Option::is_some) {
        let (from, bytes) = cx.recv(cx.soon()).await?;
        let number = bytes.get(1..5).and_then(|number| number.try_into().ok()).map(u32::from_le_bytes);
        let number = number.ok_or_else(|| Wrong("a packet has a number".into()))?;
        match bytes[0] {
            RTS => {
                same("RTS comes from the sender", from, cx.previous())?;
                let key = SegmentKey::from_bytes(&bytes[5..]).ok_or_else(|| Wrong("RTS holds a key".into()))?;
                let block = messages.open(&key)?;
                let buffer = cx.fabric().allocate(key.len)?;
                let read = messages.rdma_read((&block, 0), (&buffer, 0), key.len);
                reads.push((number, buffer, read));
                announced += 1;
            }
            _ => {
                same("FIN comes from the receiver", from, cx.next())?;
                let block = blocks.get_mut(number as usize).and_then(Option::take);
                block.ok_or_else(|| Wrong("FIN for a block that is not under way".into()))?;
            }
        }
        if announced < BLOCKS.len() {
            continue;
        }
        for (number, buffer, read) in std::mem::take(&mut reads) {
            read.await?;
            let mut bytes = vec![0; buffer.len() as usize];
            cx.fabric().read_direct(&buffer, 0, &mut bytes)?;
            let expected =
                pattern(cx.previous().0 + number, BLOCKS.get(number as usize).map_or(0, |len| *len as usize));
            same_bytes(&format!("block {number}"), &bytes, &expected)?;
            let mut fin = vec![FIN];
            fin.extend(number.to_le_bytes());
            cx.send(cx.previous(), &fin).await?;
        }
    }
    Ok(())
}

/// Every rank writes its blocks to the next rank, and has those of the previous one when its packet
/// comes, which is sent behind the write where it may be.
pub(super) async fn write<F: Fabric>(cx: &Context<F>) -> Verdict {
    let (messages, mut blocks) = (cx.fabric().for_messages(), Vec::new());
    for (number, len) in (0_u32..).zip(BLOCKS) {
        let block = cx.fabric().allocate(len)?;
        let mut rtr = vec![RTS];
        rtr.extend(number.to_le_bytes());
        rtr.extend(block.key().to_bytes());
        cx.send(cx.previous(), &rtr).await?;
        blocks.push(Some(block));
    }
    let (mut ready, mut writes) = (0, Vec::new());
    while ready < BLOCKS.len() || blocks.iter().any(Option::is_some) {
        let (from, bytes) = cx.recv(cx.soon()).await?;
        let number = bytes.get(1..5).and_then(|number| number.try_into().ok()).map(u32::from_le_bytes);
        let number = number.ok_or_else(|| Wrong("a packet has a number".into()))?;
        let expected = |writer: Rank, len: u64| pattern(writer.0 + number, len as usize);
        if bytes[0] == RTS {
            same("RTR comes from the receiver", from, cx.next())?;
            let key = SegmentKey::from_bytes(&bytes[5..]).ok_or_else(|| Wrong("RTR holds a key".into()))?;
            let (to, own) = (messages.open(&key)?, cx.fabric().allocate(key.len)?);
            cx.fabric().write_direct(&own, 0, &expected(cx.me(), key.len))?;
            let mut write = Some(messages.rdma_write((&own, 0), (&to, 0), key.len));
            if !cx.channel(cx.next()).follows_writes
                && let Some(write) = write.take()
            {
                write.await?;
            }
            let mut fin = vec![FIN];
            fin.extend(number.to_le_bytes());
            cx.send(cx.next(), &fin).await?;
            writes.extend(write);
            ready += 1;
        } else {
            same("FIN comes from the sender", from, cx.previous())?;
            let block = blocks.get_mut(number as usize).and_then(Option::take);
            let block = block.ok_or_else(|| Wrong("FIN for a block that is not under way".into()))?;
            let mut bytes = vec![0; block.len() as usize];
            cx.fabric().read_direct(&block, 0, &mut bytes)?;
            same_bytes(&format!("block {number}"), &bytes, &expected(cx.previous(), block.len()))?;
        }
    }
    for write in writes {
        write.await?;
    }
    Ok(())
}
