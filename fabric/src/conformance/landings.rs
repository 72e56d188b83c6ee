//! Datagrams that are received into memory (UD-ZCopy), where there are some.

use std::future::poll_fn;

use onesided_remote_memory::{FaultKind, Rank};

use super::{Context, Verdict, Wrong, fails, holds, pattern, same};
use crate::{Fabric, SegmentKey};

/// Of the segment of both checks.
pub(super) const LEN: u64 = 50_000;
/// And the barriers of [`arrive`].
pub(super) const ROUNDS: u32 = 20;

const SENT: &[u8] = b"sent";

/// What is sent to a landing that is gone changes no memory, neither that of the landing nor that of the next one. What
/// is not missing of the next one is in its place.
pub(super) async fn arrive<F: Fabric>(cx: &Context<F>) -> Verdict {
    let (messages, next, previous) = (cx.fabric().for_messages(), cx.next(), cx.previous());
    if messages.landing_max(next) == 0 {
        return Ok(());
    }
    let allocate = || messages.allocate(LEN);
    let [first, second, late, from] = [allocate()?, allocate()?, allocate()?, allocate()?];
    messages.write_direct(&late, 0, &pattern(cx.size() + cx.me().0, LEN as usize))?;
    messages.write_direct(&from, 0, &pattern(cx.me().0, LEN as usize))?;
    for _ in 0..ROUNDS {
        messages.write_direct(&second, 0, &vec![0; LEN as usize])?;
        let (gone, landing) = messages.land(&first, LEN)?;
        drop(landing);
        let (key, mut landing) = messages.land(&second, LEN)?;
        same("the queue pair, which the next landing has again", key.address, gone.address)?;
        for key in [gone, key] {
            cx.send(previous, &key.to_bytes()).await?;
        }
        let (mut launched, mut has_left) = (0, false);
        while launched < 2 || !has_left {
            let (sender, packet) = cx.recv(cx.soon()).await?;
            if packet == SENT {
                same("the sender of the message", sender, previous)?;
                has_left = true;
                continue;
            }
            let key = SegmentKey::from_bytes(&packet).ok_or_else(|| Wrong("a key has its length".into()))?;
            messages.launch((if launched == 0 { &late } else { &from }, 0), &key)?.await?;
            launched += 1;
            if launched == 2 {
                cx.send(next, SENT).await?;
            }
        }
        let missing = poll_fn(|task| landing.poll_over(task)).await?;
        let count = LEN.div_ceil(u64::from(missing.unit).max(1));
        holds("some of it comes", (missing.datagrams.len() as u64) < count)?;
        cx.reads("memory of a landing that is gone", &first, 0, &vec![0; LEN as usize])?;
        let whole = pattern(previous.0, LEN as usize);
        for (number, bytes) in (0..).zip(whole.chunks(missing.unit as usize)) {
            if !missing.datagrams.contains(&number) {
                let at = u64::from(number) * u64::from(missing.unit);
                cx.reads(&format!("datagram {number}"), &second, at, bytes)?;
            }
        }
        cx.barrier().await?;
    }
    Ok(())
}

/// There are few, and what no landing has is no key of one.
pub(super) async fn limits<F: Fabric>(cx: &Context<F>) -> Verdict {
    let (messages, other) = (cx.fabric().for_messages(), cx.next());
    let (own, most) = (messages.allocate(LEN)?, messages.landing_max(other));
    let land = |len| messages.land(&own, len);
    same("the longest to oneself", messages.landing_max(cx.me()), 0)?;
    if most == 0 {
        return if cx.size() == 1 { Ok(()) } else { fails("without datagrams", land(LEN), FaultKind::Unsupported) };
    }
    holds("the longest has several datagrams", most >= LEN)?;
    for len in [0, most + 1] {
        fails("a length that no message has", land(len), FaultKind::Unsupported)?;
    }
    fails("more than the memory", land(LEN + 1), FaultKind::OutOfRange)?;
    let mut all: Vec<_> = std::iter::from_fn(|| land(LEN).ok()).take(100).collect();
    fails("one more", land(LEN), FaultKind::Full)?;
    holds("one of several is dropped", all.pop().is_some())?;
    drop(land(LEN)?);
    let Some((key, _)) = all.first() else { return Err(Wrong("there are several".into())) };
    let key = SegmentKey { rank: other, ..*key };
    let unit = key.address >> u32::BITS;
    for wrong in [
        SegmentKey { address: key.address & u64::from(u32::MAX), ..key },
        SegmentKey { address: key.address ^ (unit + 1) << u32::BITS, ..key },
        SegmentKey { address: key.address | 1 << 24, ..key },
        SegmentKey { rank: Rank(cx.size()), ..key },
        SegmentKey { rank: cx.me(), ..key },
    ] {
        let launched = messages.launch((&own, 0), &wrong).map(drop);
        fails(&format!("a wrong key, {wrong:?}"), launched, FaultKind::Unsupported)?;
    }
    fails("more than the memory", messages.launch((&own, 1), &key).map(drop), FaultKind::OutOfRange)
}
