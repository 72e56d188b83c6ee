//! Packets.

use std::future::poll_fn;
use std::task::Poll;

use onesided_remote_memory::{FaultKind, Patience, Rank};

use super::{Context, NAP, Verdict, Wrong, both, fails, holds, pattern, same, same_bytes};
use crate::{Arrival, Fabric, Packet, SHORTEST_LIMIT, Transport};

/// More than any lane or queue holds.
const FLOOD: u32 = 2_000;

pub(super) async fn all_to_all<F: Fabric>(cx: &Context<F>) -> Verdict {
    const EACH: u32 = 30;
    let send = async {
        for number in 0..EACH {
            for to in (0..cx.size()).map(Rank) {
                cx.send(to, &numbered(cx.me(), number)).await?;
            }
        }
        Ok(())
    };
    let receive = async {
        let mut next = vec![0; cx.size() as usize];
        for _ in 0..EACH * cx.size() {
            let (from, bytes) = cx.recv(cx.soon()).await?;
            let expected = next.get_mut(from.index()).ok_or_else(|| Wrong(format!("from {from}")))?;
            same_bytes(&format!("from {from}"), &bytes, &numbered(from, *expected))?;
            *expected += 1;
        }
        same("packets from each", next, vec![EACH; cx.size() as usize])
    };
    both(send, receive).await
}

/// Packets of many lengths, each with its number.
fn numbered(from: Rank, number: u32) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend(pattern(from.0 + number, number as usize % (SHORTEST_LIMIT - 3)));
    bytes
}

pub(super) async fn edges<F: Fabric>(cx: &Context<F>) -> Verdict {
    let limit = cx.packet_max();
    holds("a packet has some length", limit >= SHORTEST_LIMIT)?;
    let longest = pattern(cx.me().0, limit);
    for bytes in [&longest[..], &[]] {
        cx.send(cx.next(), bytes).await?;
    }
    let (from, bytes) = cx.recv(cx.soon()).await?;
    same("from", from, cx.previous())?;
    same_bytes("the longest packet", &bytes, &pattern(cx.previous().0, limit))?;
    same("an empty packet", cx.recv(cx.soon()).await?.1.len(), 0)?;
    let limit = cx.packet_max(); // of another channel, if that was opened since
    for len in [limit + 1, limit + 256, 1 << 16] {
        fails(&format!("a packet of {len} bytes"), cx.sent(cx.next(), &vec![0; len]).await, FaultKind::TooLong)?;
    }
    for rank in [Rank(cx.size()), Rank(u32::MAX)] {
        fails(&format!("to {rank}"), cx.sent(rank, &[]).await, FaultKind::NoSuchRank)?;
    }
    fails("a second owner", cx.fabric().transport(), FaultKind::Refused)
}

/// Heads and bodies of all alignments, read in parts.
pub(super) async fn parts<F: Fabric>(cx: &Context<F>) -> Verdict {
    let longest = cx.packet_max();
    for (number, (head, len)) in
        [(16, 17), (0, 40), (8, 48), (13, 40), (5, longest), (16, longest)].into_iter().enumerate()
    {
        let bytes = pattern(number as u32, len);
        let (head, body) = bytes.split_at(head);
        let packet = Packet { body, ..Packet::new(cx.channel(cx.next()).channel, head) };
        poll_fn(|task| cx.packets().poll_send(task, cx.next(), packet)).await?;
        let patience = cx.soon();
        let Arrival { from, channel, len } = poll_fn(|task| cx.packets().poll_recv(task, patience)).await?;
        same("from", (from, channel), (cx.previous(), packet.channel))?;
        let mut read = vec![0; len];
        for start in [3, 16, 7, 0] {
            let (start, end) = (start.min(len), (start * 3 + 24).min(len));
            cx.packets().read(start, &mut read[start..end.max(start)]);
        }
        let start = 24.min(len);
        cx.packets().read(start, &mut read[start..]);
        same_bytes(&format!("packet {number} in parts"), &read, &bytes)?;
    }
    Ok(())
}

/// Every rank sends far more than fits, and receives as much.
pub(super) async fn flood<F: Fabric>(cx: &Context<F>) -> Verdict {
    let send = async {
        for number in 0..FLOOD {
            cx.send(cx.next(), &number.to_le_bytes()).await?;
        }
        Ok(())
    };
    let receive = async {
        let slow = cx.word(cx.me(), 0)?;
        for number in 0..FLOOD {
            if number % 512 == 0 {
                cx.fabric().pause(slow, NAP).await;
            }
            same_bytes("in order", &cx.recv(cx.soon()).await?.1, &number.to_le_bytes())?;
        }
        Ok(())
    };
    both(send, receive).await
}

/// Sends that are dropped before they are ready have sent nothing.
pub(super) async fn dropped<F: Fabric>(cx: &Context<F>) -> Verdict {
    let (mut sent, channel) = (0_u32, cx.channel(cx.next()).channel);
    poll_fn(|task| {
        while sent < FLOOD {
            let bytes = sent.to_le_bytes();
            match cx.packets().poll_send(task, cx.next(), Packet::new(channel, &bytes)) {
                Poll::Ready(Ok(())) => sent += 1,
                Poll::Ready(Err(fault)) => return Poll::Ready(Err(fault)),
                Poll::Pending if sent == 0 => return Poll::Pending, // an earlier check filled it
                Poll::Pending => break,
            }
        }
        Poll::Ready(Ok(()))
    })
    .await?;
    let finish = async { cx.send(cx.next(), b"the end").await };
    let receive = async {
        for number in 0_u32.. {
            let (_, bytes) = cx.recv(cx.soon()).await?;
            if bytes == b"the end" {
                return holds("some were sent", number > 0);
            }
            same_bytes("in order", &bytes, &number.to_le_bytes())?;
        }
        Ok(())
    };
    both(finish, receive).await
}

pub(super) async fn deadline<F: Fabric>(cx: &Context<F>) -> Verdict {
    let deadline = cx.fabric().now() + NAP;
    let received = cx.received(Patience::until(deadline)).await;
    fails("no packet", received.map(drop), FaultKind::TimedOut)?;
    holds("it did not end early", cx.fabric().now() >= deadline)
}

/// Each rank lets the next one fall asleep, then wakes it.
pub(super) async fn woken<F: Fabric>(cx: &Context<F>) -> Verdict {
    let wake = async || {
        cx.fabric().pause(cx.word(cx.me(), 0)?, NAP).await;
        cx.send(cx.next(), b"up").await
    };
    if cx.me().0 == 0 {
        wake().await?;
    }
    let patience = cx.soon();
    let (_, bytes) = cx.recv(patience).await?;
    same_bytes("the packet", &bytes, b"up")?;
    holds("the packet woke it, not the deadline", cx.fabric().now() < patience.deadline)?;
    if cx.me().0 != 0 {
        wake().await?;
    }
    Ok(())
}
