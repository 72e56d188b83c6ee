//! The order of puts, gets, flushes and signals.

use std::sync::atomic::Ordering;

use onesided_fabric::{Fabric, World};
use onesided_windows::Op;

use super::{Outcome, Rig, Seen};

/// `put x; flush; get y` here and `put y; flush; get x` there: at least one of them sees the
/// other's put.
pub(super) async fn store_buffering<F: Fabric>(world: World<F>) -> Outcome {
    const CELLS: usize = 64;
    let mut rig = Rig::new(world);
    let window = rig.window::<u64>(2 * CELLS).await?;
    let all = window.lock_all().await?;
    let mine = rig.rank() as usize;
    let mut seen = Seen::default();
    for batch in 1..=rig.rounds() {
        // The ranks that have the two variables.
        let homes = [[1, 0], [0, 1], [0, 0], [1, 1]][batch as usize % 4];
        let (to, from) = (all.at(homes[mine]).await?, all.at(homes[1 - mine]).await?);
        rig.barrier().await;
        let mut missed = 0;
        for cell in 0..CELLS {
            rig.skew().await;
            to.put(mine * CELLS + cell, &[batch])?;
            to.flush().await?;
            let mut found = [0];
            from.get((1 - mine) * CELLS + cell, &mut found).await?;
            missed |= u64::from(found != [batch]) << cell;
        }
        seen.forbidden += rig.both_missed(missed).await;
    }
    all.unlock_all().await?;
    window.close().await?;
    Ok(seen)
}

/// Data, a flush, then a flag, of any kind and at any rank: a rank that sees the flag sees the
/// data.
pub(super) async fn message_passing<F: Fabric>(world: World<F>) -> Outcome {
    const DATA: usize = 20;
    const FLAGS: usize = 4;
    let mut rig = Rig::new(world);
    let window = rig.window::<u64>(FLAGS + DATA).await?;
    let all = window.lock_all().await?;
    let mut seen = Seen::default();
    for round in 1..=rig.rounds() {
        let (kind, place) = (round as usize % FLAGS, (round as usize / FLAGS % 3) as u32);
        rig.barrier().await;
        rig.skew().await;
        match rig.rank() {
            0 => {
                all.at(2).await?.put(FLAGS, &[round; DATA])?;
                all.at(2).await?.flush().await?;
                match kind {
                    0 => all.at(place).await?.put(kind, &[round])?,
                    1 => drop(all.at(place).await?.fetch_and_op(kind, round, Op::Replace).await?),
                    2 => all.at(place).await?.accumulate(kind, &[round], Op::Max).await?,
                    _ => all.at(place).await?.signal(kind, round)?,
                }
            }
            1 => {
                let mut flag = [0];
                while flag[0] < round {
                    rig.pause_up_to(500).await;
                    all.at(place).await?.get(kind, &mut flag).await?;
                }
                let mut data = [0; DATA];
                all.at(2).await?.get(FLAGS, &mut data).await?;
                seen.forbidden += u64::from(data.iter().any(|found| *found < round));
            }
            _ => {}
        }
    }
    all.unlock_all().await?;
    window.close().await?;
    Ok(seen)
}

/// After a flush, any rank that synchronises with the origin by any means sees the data: the target
/// itself by a local read, a third rank by a get.
pub(super) async fn third_rank<F: Fabric>(world: World<F>) -> Outcome {
    const LEN: usize = 600;
    let mut rig = Rig::new(world);
    let window = rig.window::<u64>(LEN).await?;
    let all = window.lock_all().await?;
    let mut seen = Seen::default();
    for round in 1..=rig.rounds() {
        let len = [1, 5, LEN][round as usize % 3];
        if rig.rank() == 0 {
            rig.skew().await;
            all.at(1).await?.put(0, &[round; LEN][..len])?;
            all.at(1).await?.flush().await?;
            rig.send(1, round).await;
            rig.send(2, round).await;
        } else {
            let received = rig.recv().await;
            assert_eq!(received, round);
            let mut found = vec![0; len];
            match rig.rank() {
                1 => window.local().read_into(0, &mut found)?,
                _ => all.at(1).await?.get(0, &mut found).await?,
            }
            seen.forbidden += u64::from(found.iter().any(|found| *found < round));
        }
    }
    all.unlock_all().await?;
    window.close().await?;
    Ok(seen)
}

/// A rank that reads twice sees one rank's puts to an element in order.
pub(super) async fn coherence<F: Fabric>(world: World<F>) -> Outcome {
    const PUTS: u64 = 30;
    let mut rig = Rig::new(world);
    let window = rig.window::<u64>(1).await?;
    let all = window.lock_all().await?;
    let (mut seen, mut last) = (Seen::default(), 0);
    for round in 0..rig.rounds() {
        rig.barrier().await;
        for turn in 1..=PUTS {
            rig.skew().await;
            let mut found = [0];
            match rig.rank() {
                0 => {
                    all.at(1).await?.put(0, &[round * PUTS + turn])?;
                    continue;
                }
                1 => window.local().read_into(0, &mut found)?,
                _ => all.at(1).await?.get(0, &mut found).await?,
            }
            seen.forbidden += u64::from(found[0] < last);
            last = found[0];
        }
    }
    all.unlock_all().await?;
    window.close().await?;
    Ok(seen)
}

/// A get sees what the same rank has put to the same target before, flushed or not.
pub(super) async fn read_own_writes<F: Fabric>(world: World<F>) -> Outcome {
    const LEN: usize = 300;
    let mut rig = Rig::new(world);
    let window = rig.window::<u64>(2 * LEN).await?;
    let all = window.lock_all().await?;
    let mut seen = Seen::default();
    for round in 1..=rig.rounds() {
        for target in 0..2 {
            rig.skew().await;
            let (place, len) = (rig.rank() as usize * LEN, [1, 3, LEN][round as usize % 3]);
            all.at(target).await?.put(place, &[round; LEN][..len])?;
            let mut found = vec![0; len];
            all.at(target).await?.get(place, &mut found).await?;
            seen.forbidden += u64::from(found != vec![round; len]);
        }
    }
    all.unlock_all().await?;
    window.close().await?;
    Ok(seen)
}

/// A rank that got a signal sees what the signalling rank had put to it before, through any window,
/// flushed or not.
pub(super) async fn signal<F: Fabric>(world: World<F>) -> Outcome {
    const LEN: usize = 100;
    let mut rig = Rig::new(world);
    let window = rig.window::<u64>(1 + LEN).await?;
    let other = rig.window::<u64>(LEN).await?;
    let (all, others) = (window.lock_all().await?, other.lock_all().await?);
    let peer = 1 - rig.rank();
    let mut seen = Seen::default();
    for round in 1..=rig.rounds() {
        let mine = |rank: u32| u64::from(rank) == round % 2;
        if mine(rig.rank()) {
            rig.skew().await;
            all.at(peer).await?.put(1, &[round; LEN])?;
            if round % 4 < 2 {
                others.at(peer).await?.put_signal(0, &[round; LEN], all.at(peer).await?, 0, round)?;
            } else {
                others.at(peer).await?.put(0, &[round; LEN])?;
                all.at(peer).await?.signal(0, round)?;
            }
        } else {
            window.local().wait_until(0, |value| value >= round).await?;
            let found = [window.local().read(1..1 + LEN), other.local().read(0..LEN)];
            seen.forbidden += u64::from(found.iter().flatten().any(|found| *found < round));
        }
    }
    all.unlock_all().await?;
    others.unlock_all().await?;
    other.close().await?;
    window.close().await?;
    Ok(seen)
}

/// `write x; sync; read y` here and `write y; sync; read x` there, each `write` to the rank's own
/// memory by the CPU: at least one of them sees the other's.
pub(super) async fn sync_store_buffering<F: Fabric>(world: World<F>) -> Outcome {
    const CELLS: usize = 64;
    let mut rig = Rig::new(world);
    let window = rig.window::<u64>(CELLS).await?;
    let all = window.lock_all().await?;
    let peer = 1 - rig.rank();
    // Plain loads and stores, where a peer's memory is mapped.
    let mapped = window.direct(rig.rank()).ok().zip(window.direct(peer).ok());
    let mut seen = Seen::default();
    for batch in 1..=rig.rounds() {
        rig.barrier().await;
        let mut missed = 0;
        for cell in 0..CELLS {
            rig.skew().await;
            let found = match &mapped {
                Some((own, theirs)) if batch % 2 == 0 => {
                    own.words()[cell].store(batch, Ordering::Relaxed);
                    window.sync();
                    theirs.words()[cell].load(Ordering::Relaxed)
                }
                _ => {
                    window.local().write(cell, &[batch])?;
                    window.sync();
                    let mut found = [0];
                    all.at(peer).await?.get(cell, &mut found).await?;
                    found[0]
                }
            };
            missed |= u64::from(found != batch) << cell;
        }
        seen.forbidden += rig.both_missed(missed).await;
    }
    all.unlock_all().await?;
    window.close().await?;
    Ok(seen)
}

/// Data, a flush, then a flag: a rank that polls the flag in its own memory, and then syncs, sees
/// the data there.
pub(super) async fn sync_message_passing<F: Fabric>(world: World<F>) -> Outcome {
    const DATA: usize = 20;
    let mut rig = Rig::new(world);
    let window = rig.window::<u64>(1).await?;
    let other = rig.window::<u64>(DATA).await?;
    let (all, others) = (window.lock_all().await?, other.lock_all().await?);
    let peer = 1 - rig.rank();
    let mut seen = Seen::default();
    for round in 1..=rig.rounds() {
        if u64::from(rig.rank()) == round % 2 {
            rig.skew().await;
            others.at(peer).await?.put(0, &[round; DATA])?;
            others.at(peer).await?.flush().await?;
            all.at(peer).await?.put(0, &[round])?;
            all.at(peer).await?.flush().await?;
        } else {
            let mut flag = [0];
            while flag[0] < round {
                rig.pause_up_to(500).await;
                window.local().read_into(0, &mut flag)?;
            }
            window.sync();
            seen.forbidden += u64::from(other.local().read(0..DATA).iter().any(|found| *found < round));
        }
    }
    all.unlock_all().await?;
    others.unlock_all().await?;
    other.close().await?;
    window.close().await?;
    Ok(seen)
}

/// An element of 8 bytes is never half of two values, whichever rank writes it and however it is
/// read.
pub(super) async fn single_access<F: Fabric>(world: World<F>) -> Outcome {
    const TURNS: u64 = 30;
    let mut rig = Rig::new(world);
    let window = rig.window::<u64>(3).await?;
    let all = window.lock_all().await?;
    let mut seen = Seen::default();
    for round in 0..rig.rounds() {
        rig.barrier().await;
        for turn in 0..TURNS {
            rig.skew().await;
            let value = (round * TURNS + turn) % 255 * 0x0101_0101_0101_0101;
            if rig.rank() == 1 && turn % 2 == 0 {
                window.local().write(1, &[value])?;
            } else if turn % 2 == 0 {
                all.at(1).await?.put(1, &[!value])?;
            } else {
                let mut found = [0];
                match rig.rank() {
                    1 => window.local().read_into(1, &mut found)?,
                    2 if turn % 4 == 1 => found = [all.at(1).await?.fetch_one(1).await?],
                    _ => all.at(1).await?.get(1, &mut found).await?,
                }
                let bytes = found[0].to_ne_bytes();
                seen.forbidden += u64::from(bytes.iter().any(|byte| *byte != bytes[0]));
            }
        }
    }
    all.unlock_all().await?;
    window.close().await?;
    Ok(seen)
}
