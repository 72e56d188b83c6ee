//! A rendezvous over RDMA read (RGET: sur-2006, section 4): the sender announces its buffer in a
//! message (RTS); the receiver reads the bytes and sends a completion (FIN).

use onesided_remote_memory::Port;

use super::{Context, Verdict, Wrong, both, pattern, same, same_bytes};
use crate::{Fabric, Segment, SegmentKey};

const RTS: Port = Port(Port::USER.0);
const FIN: Port = Port(Port::USER.0 + 1);
/// Lengths of the blocks, all in flight concurrently.
const BLOCKS: [u64; 6] = [1, 48, 4096, 200_003, 65_536, 2];

/// Every rank sends its blocks to the next rank, and receives those of the previous one.
pub(super) async fn read<F: Fabric>(cx: &Context<F>) -> Verdict {
    both(send(cx), receive(cx)).await
}

async fn send<F: Fabric>(cx: &Context<F>) -> Verdict {
    let mut blocks = Vec::new();
    for (number, len) in (0..).zip(BLOCKS) {
        let block = cx.fabric().allocate(len)?;
        cx.fabric().write_own(&block, 0, &pattern(cx.me().0 + number, len as usize))?;
        let mut rts = number.to_le_bytes().to_vec();
        rts.extend(block.key().to_bytes());
        cx.send(cx.next(), RTS, &rts).await?;
        blocks.push(Some(block));
    }
    while blocks.iter().any(Option::is_some) {
        let fin = cx.fabric().recv(FIN, cx.soon()).await?;
        same("FIN comes from the receiver", fin.from, cx.next())?;
        let block = blocks.get_mut(number_of(fin.bytes())? as usize).and_then(Option::take);
        block.ok_or_else(|| Wrong("FIN for a block that is not under way".into()))?;
    }
    Ok(())
}

async fn receive<F: Fabric>(cx: &Context<F>) -> Verdict {
    let mut reads = Vec::new();
    for _ in BLOCKS {
        let rts = cx.fabric().recv(RTS, cx.soon()).await?;
        same("RTS comes from the sender", rts.from, cx.previous())?;
        let number = number_of(rts.bytes())?;
        let key = SegmentKey::from_bytes(&rts.bytes()[4..]).ok_or_else(|| Wrong("RTS holds a key".into()))?;
        let block = cx.fabric().open(&key)?;
        let buffer = cx.fabric().allocate(key.len)?;
        let read = cx.fabric().rdma_read((&block, 0), (&buffer, 0), key.len);
        reads.push((number, buffer, read));
    }
    for (number, buffer, read) in reads {
        read.await?;
        let mut bytes = vec![0; buffer.len() as usize];
        cx.fabric().read_own(&buffer, 0, &mut bytes)?;
        let expected = pattern(cx.previous().0 + number, BLOCKS.get(number as usize).map_or(0, |len| *len as usize));
        same_bytes(&format!("block {number}"), &bytes, &expected)?;
        cx.send(cx.previous(), FIN, &number.to_le_bytes()).await?;
    }
    Ok(())
}

fn number_of(message: &[u8]) -> Result<u32, Wrong> {
    let number = message.first_chunk().ok_or_else(|| Wrong("a message begins with a number".into()))?;
    Ok(u32::from_le_bytes(*number))
}
