//! The order that a lock promises, and the order that it does not.

use onesided_fabric::{Fabric, World};

use super::{Outcome, Rig, Seen};

/// The next owner of a lock sees everything that was done under an exclusive lock; what was read
/// under a shared one was read before the next exclusive owner writes.
pub(super) async fn lock_hands_over<F: Fabric>(world: World<F>) -> Outcome {
    const LEN: usize = 40;
    let mut rig = Rig::new(world);
    let (me, rounds) = (u64::from(rig.rank()), rig.rounds());
    let window = rig.window::<u64>(LEN).await?;
    let mut seen = Seen::default();
    let writes = |rank: u64, round: u64| (round + rank) % 3 != 2;
    for round in 0..rounds {
        let target = (round % 2) as u32;
        let mut record = [0; LEN];
        if writes(me, round) {
            let epoch = window.lock_exclusive(target).await?;
            epoch.get(0, &mut record).await?;
            seen.forbidden += u64::from(record != [record[0]; LEN]);
            rig.skew().await;
            epoch.put(0, &[record[0] + 1; LEN / 2])?;
            epoch.put(LEN / 2, &[record[0] + 1; LEN / 2])?;
            epoch.unlock().await?;
        } else {
            let epoch = window.lock_shared(target).await?;
            epoch.get(0, &mut record).await?;
            seen.forbidden += u64::from(record != [record[0]; LEN]);
            rig.skew().await;
            let mut again = [0; LEN];
            epoch.get(0, &mut again).await?;
            seen.forbidden += u64::from(record != again);
            epoch.unlock().await?;
        }
    }
    rig.barrier().await;
    if rig.rank() < 2 {
        let all = (0..rounds).filter(|round| round % 2 == me).flat_map(|round| (0..3).map(move |rank| (rank, round)));
        let count = all.filter(|(rank, round)| writes(*rank, *round)).count() as u64;
        seen.forbidden += u64::from(window.local().read(0..LEN) != [count; LEN]);
    }
    window.close().await?;
    Ok(seen)
}

/// No update in one call is lost, and none sees half of another one, the target's own included.
pub(super) async fn locked_update<F: Fabric>(world: World<F>) -> Outcome {
    const LEN: usize = 10;
    let mut rig = Rig::new(world);
    let rounds = rig.rounds();
    let window = rig.window::<u64>(LEN).await?;
    let mut seen = Seen::default();
    for _ in 0..rounds {
        let mut record = [0; LEN];
        window.locked(1).update(0, &mut record, |record| record.iter_mut().for_each(|word| *word += 1)).await?;
        seen.forbidden += u64::from(record != [record[0]; LEN]);
        rig.pause_up_to(60_000).await;
    }
    window.locked(1).flush().await?;
    rig.barrier().await;
    let mut record = [0; LEN];
    window.locked(1).get(0, &mut record).await?;
    seen.forbidden += u64::from(record != [u64::from(rig.world.size()) * rounds; LEN]);
    window.close().await?;
    Ok(seen)
}

/// Under the lock of its own memory a rank sees directly what others did under it, and they see
/// what it wrote directly.
pub(super) async fn local_under_lock<F: Fabric>(world: World<F>) -> Outcome {
    const LEN: usize = 10;
    let mut rig = Rig::new(world);
    let rounds = rig.rounds();
    let window = rig.window::<u64>(LEN).await?;
    let mut seen = Seen::default();
    for _ in 0..rounds {
        let epoch = window.lock_exclusive(1).await?;
        let mut record = [0; LEN];
        if rig.rank() == 1 {
            window.local().read_into(0, &mut record)?;
            rig.skew().await;
            window.local().write(0, &record.map(|found| found + 1))?;
        } else {
            epoch.get(0, &mut record).await?;
            rig.skew().await;
            epoch.put(0, &record.map(|found| found + 1))?;
        }
        seen.forbidden += u64::from(record != [record[0]; LEN]);
        epoch.unlock().await?;
    }
    rig.barrier().await;
    if rig.rank() == 1 {
        seen.forbidden += u64::from(window.local().read(0..LEN) != [2 * rounds; LEN]);
    }
    window.close().await?;
    Ok(seen)
}

/// Data at rank 1 under the lock of rank 2: flushed before the unlock, the next owner sees it;
/// otherwise it may be late.
pub(super) async fn lock_elsewhere<F: Fabric>(world: World<F>) -> Outcome {
    let mut rig = Rig::new(world);
    let data = rig.window::<u64>(1).await?;
    let locks = rig.window::<u64>(1).await?;
    let all = data.lock_all().await?;
    let mut seen = Seen::default();
    for round in 1..=rig.rounds() {
        let flushed = round % 2 == 0;
        rig.barrier().await;
        rig.skew().await;
        match rig.rank() {
            0 => {
                let epoch = locks.lock_exclusive(2).await?;
                all.at(1).await?.put(0, &[round])?;
                if flushed {
                    all.at(1).await?.flush().await?;
                }
                epoch.put(0, &[round])?;
                epoch.unlock().await?;
            }
            2 => loop {
                let epoch = locks.lock_shared(2).await?;
                let (mut turn, mut found) = ([0], [0]);
                epoch.get(0, &mut turn).await?;
                if turn[0] == round {
                    all.at(1).await?.get(0, &mut found).await?;
                    let late = u64::from(found[0] < round);
                    seen += if flushed { Seen { forbidden: late, weak: 0 } } else { Seen { forbidden: 0, weak: late } };
                    epoch.unlock().await?;
                    break;
                }
                epoch.unlock().await?;
                rig.pause_up_to(3_000).await;
            },
            _ => {}
        }
        // The next round starts with this one's data written.
        all.at(1).await?.flush().await?;
    }
    all.unlock_all().await?;
    locks.close().await?;
    data.close().await?;
    Ok(seen)
}

/// A versioned read sees a record as it was between two writes; records never go back.
pub(super) async fn versioned_read<F: Fabric>(world: World<F>) -> Outcome {
    const LEN: usize = 60;
    let mut rig = Rig::new(world);
    let rounds = rig.rounds();
    let table = rig.window::<u64>(LEN).await?.versioned();
    let (mut seen, mut last) = (Seen::default(), 0);
    for _ in 0..rounds {
        rig.skew().await;
        if rig.rank() == 2 {
            let mut record = [0; LEN];
            table.read_into(1, 0, &mut record).await?;
            seen.forbidden += u64::from(record != [record[0]; LEN] || record[0] < last);
            last = record[0];
        } else {
            let epoch = table.write(1).await?;
            let mut count = [0];
            epoch.get(LEN - 1, &mut count).await?;
            epoch.put(0, &[count[0] + 1; LEN / 2])?;
            rig.skew().await;
            epoch.put(LEN / 2, &[count[0] + 1; LEN / 2])?;
            if count[0] % 2 == 0 { epoch.unlock().await? } else { drop(epoch) }
        }
    }
    rig.barrier().await;
    let mut record = [0; LEN];
    table.read_into(1, 0, &mut record).await?;
    seen.forbidden += u64::from(record != [2 * rounds; LEN]);
    table.close().await?;
    Ok(seen)
}
