//! The mailbox.

use onesided_remote_memory::{FaultKind, MAX_MESSAGE, Notify, Patience, Port, Rank};

use super::{Context, NAP, Verdict, Wrong, both, fails, holds, pattern, same, same_bytes};
use crate::Fabric;

/// More than any ring holds.
const FLOOD: u32 = 2_000;
/// Two user ports.
const HERE: Port = Port(Port::USER.0);
const THERE: Port = Port(Port::USER.0 + 1);

pub(super) async fn all_to_all<F: Fabric>(cx: &Context<F>) -> Verdict {
    const EACH: u32 = 30;
    let send = async {
        for number in 0..EACH {
            for to in (0..cx.size()).map(Rank) {
                cx.send(to, HERE, &numbered(cx.me(), number)).await?;
            }
        }
        Ok(())
    };
    let receive = async {
        let mut next = vec![0; cx.size() as usize];
        for _ in 0..EACH * cx.size() {
            let message = cx.fabric().recv(HERE, cx.soon()).await?;
            let expected = next.get_mut(message.from.index()).ok_or_else(|| Wrong(format!("from {}", message.from)))?;
            same_bytes(&format!("from {}", message.from), message.bytes(), &numbered(message.from, *expected))?;
            *expected += 1;
        }
        same("messages from each", next, vec![EACH; cx.size() as usize])
    };
    both(send, receive).await
}

/// Messages of every length, each with its number.
fn numbered(from: Rank, number: u32) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend(pattern(from.0 + number, number as usize % (MAX_MESSAGE - 3)));
    bytes
}

pub(super) async fn edges<F: Fabric>(cx: &Context<F>) -> Verdict {
    let fabric = cx.fabric();
    let longest = pattern(cx.me().0, MAX_MESSAGE);
    for bytes in [&longest[..], &[]] {
        cx.send(cx.next(), HERE, bytes).await?;
    }
    let message = fabric.recv(HERE, cx.soon()).await?;
    same("from", message.from, cx.previous())?;
    same_bytes("the longest message", message.bytes(), &pattern(cx.previous().0, MAX_MESSAGE))?;
    same("an empty message", fabric.recv(HERE, cx.soon()).await?.bytes().len(), 0)?;
    for len in [MAX_MESSAGE + 1, 256, 4096] {
        let sent = fabric.send(cx.next(), HERE, &vec![0; len], Notify::No).await;
        fails(&format!("a message of {len} bytes"), sent, FaultKind::TooLong)?;
    }
    for rank in [Rank(cx.size()), Rank(u32::MAX)] {
        fails(&format!("to {rank}"), fabric.send(rank, HERE, &[], Notify::No).await, FaultKind::NoSuchRank)?;
    }
    for port in [Port(Port::COUNT as u8), Port(255)] {
        fails(&format!("to {port:?}"), fabric.send(cx.next(), port, &[], Notify::No).await, FaultKind::Protocol)?;
        fails(&format!("receive at {port:?}"), fabric.recv(port, cx.soon()).await, FaultKind::Protocol)?;
    }
    Ok(())
}

/// Each port has its own receive queue: messages of one do not block the other.
pub(super) async fn ports<F: Fabric>(cx: &Context<F>) -> Verdict {
    let fabric = cx.fabric();
    for (port, bytes) in [(HERE, b"one"), (THERE, b"two"), (HERE, b"six")] {
        cx.send(cx.next(), port, bytes).await?;
    }
    for (port, bytes) in [(THERE, b"two"), (HERE, b"one"), (HERE, b"six")] {
        same_bytes("by port", fabric.recv(port, cx.soon()).await?.bytes(), bytes)?;
    }
    Ok(())
}

/// Every rank sends far more than fits, and receives as much.
pub(super) async fn flood<F: Fabric>(cx: &Context<F>) -> Verdict {
    let send = async {
        for number in 0..FLOOD {
            cx.send(cx.next(), HERE, &number.to_le_bytes()).await?;
        }
        Ok(())
    };
    let receive = async {
        let slow = cx.word(cx.me(), 0)?;
        for number in 0..FLOOD {
            if number % 512 == 0 {
                cx.fabric().pause(slow, NAP).await;
            }
            let message = cx.fabric().recv(HERE, cx.soon()).await?;
            same_bytes("in order", message.bytes(), &number.to_le_bytes())?;
        }
        Ok(())
    };
    both(send, receive).await
}

pub(super) async fn deadline<F: Fabric>(cx: &Context<F>) -> Verdict {
    let deadline = cx.fabric().now() + NAP;
    let received = cx.fabric().recv(THERE, Patience::until(deadline)).await;
    fails("no message", received.map(drop), FaultKind::TimedOut)?;
    holds("it did not end early", cx.fabric().now() >= deadline)
}

/// Each rank lets the next one fall asleep, then wakes it.
pub(super) async fn woken<F: Fabric>(cx: &Context<F>) -> Verdict {
    let wake = async || {
        cx.fabric().pause(cx.word(cx.me(), 0)?, NAP).await;
        cx.send(cx.next(), THERE, b"up").await
    };
    if cx.me().0 == 0 {
        wake().await?;
    }
    let patience = cx.soon();
    let message = cx.fabric().recv(THERE, patience).await?;
    same_bytes("the message", message.bytes(), b"up")?;
    holds("the message woke it, not the deadline", cx.fabric().now() < patience.deadline)?;
    if cx.me().0 != 0 {
        wake().await?;
    }
    Ok(())
}
