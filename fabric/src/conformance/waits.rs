//! Waiting: for a word, for a time, for adopted work.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use onesided_remote_memory::{FaultKind, Notify, Patience};

use super::{Context, NAP, Verdict, fails, holds, same};
use crate::Fabric;

pub(super) async fn immediate<F: Fabric>(cx: &Context<F>) -> Verdict {
    let fabric = cx.fabric();
    let own = cx.word(cx.me(), 0)?;
    fabric.store(own, 5)?;
    same("a value that is there", fabric.wait_until(own, |value| value == 5, cx.soon()).await, Ok(5))?;
    let over = Patience::until(0);
    same("though the deadline is over", fabric.wait_until(own, |value| value == 5, over).await, Ok(5))?;
    fails("a deadline that is over", fabric.wait_until(own, |value| value == 6, over).await, FaultKind::TimedOut)
}

/// Each rank lets the next one fall asleep, then wakes it.
pub(super) async fn woken<F: Fabric>(cx: &Context<F>) -> Verdict {
    let fabric = cx.fabric();
    let (own, next) = (cx.word(cx.me(), 0)?, cx.word(cx.next(), 0)?);
    for round in 1..=3 {
        if cx.me().0 == 0 {
            fabric.pause(next, NAP).await;
            fabric.write(next, round, Notify::Yes).await?;
        }
        let patience = cx.soon();
        let value = fabric.wait_until(own, move |value| value >= round, patience).await?;
        same("the round", value, round)?;
        holds("the write woke it, not the deadline", fabric.now() < patience.deadline)?;
        if cx.me().0 != 0 {
            fabric.pause(next, NAP).await;
            fabric.write(next, round, Notify::Yes).await?;
        }
    }
    Ok(())
}

pub(super) async fn deadline<F: Fabric>(cx: &Context<F>) -> Verdict {
    let fabric = cx.fabric();
    let own = cx.word(cx.me(), 0)?;
    let deadline = fabric.now() + NAP;
    let patience = [Patience::until(deadline), Patience::on(cx.next()).and_until(deadline)];
    for patience in patience {
        fails("a deadline", fabric.wait_until(own, |value| value != 0, patience).await, FaultKind::TimedOut)?;
        holds("it did not end early", fabric.now() >= deadline)?;
    }
    Ok(())
}

/// A dropped wait affects neither the word nor the next wait for it.
pub(super) async fn dropped<F: Fabric>(cx: &Context<F>) -> Verdict {
    let fabric = cx.fabric();
    let own = cx.word(cx.me(), 0)?;
    {
        let mut wait = pin!(fabric.wait_until(own, |value| value == 3, cx.soon()));
        let ready = poll_fn(|context| Poll::Ready(wait.as_mut().poll(context).is_ready())).await;
        holds("nobody has written yet", !ready)?;
    }
    cx.barrier().await?;
    let next = cx.word(cx.next(), 0)?;
    drop(fabric.write(next, 3, Notify::Yes));
    same("the next wait", fabric.wait_until(own, |value| value == 3, cx.soon()).await, Ok(3))?;
    Ok(fabric.flush(cx.next()).await?)
}

pub(super) async fn pauses<F: Fabric>(cx: &Context<F>) -> Verdict {
    for nanos in [0, 1, 1_000, NAP] {
        cx.fabric().pause(cx.word(cx.next(), 0)?, nanos).await;
    }
    Ok(())
}

/// Spawned work continues while its rank waits.
pub(super) async fn adopted<F: Fabric>(cx: &Context<F>) -> Verdict {
    let own = cx.word(cx.me(), 0)?;
    let (fabric, segment) = (cx.fabric().clone(), cx.own().clone());
    cx.fabric().endpoint().spawn(Box::pin(async move {
        for _ in 0..3 {
            let Ok(word) = fabric.word_in(&segment, 0) else { return };
            let added = fabric.fetch_add(word, 1);
            // The result does not matter: the wait below checks whether it added.
            let _ = added.await;
        }
        if let Ok(word) = fabric.word_in(&segment, 8) {
            let _ = fabric.write(word, 1, Notify::Yes).await;
        }
    }));
    cx.fabric().wait_until(cx.word(cx.me(), 8)?, |done| done == 1, cx.soon()).await?;
    same("what the task did", cx.fabric().load(own), Ok(3))
}
