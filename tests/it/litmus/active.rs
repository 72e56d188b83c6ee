//! The order that fences, exposures and barriers promise.

use onesided_fabric::{Fabric, World};

use super::{Outcome, Rig, Seen};

/// After a fence every rank sees what every rank did before it: in its own memory directly, in
/// others' by a get.
pub(super) async fn fence<F: Fabric>(world: World<F>) -> Outcome {
    let mut rig = Rig::new(world);
    let (me, size) = (rig.rank() as usize, rig.world.size());
    let window = rig.window::<u64>(size as usize).await?;
    let mut seen = Seen::default();
    let mut epoch = window.fence().await?;
    for round in 1..=rig.rounds() {
        for target in (0..size).filter(|target| *target as usize != me) {
            rig.skew().await;
            epoch.at(target)?.put(me, &[round])?;
        }
        window.local().write(me, &[round])?;
        epoch = epoch.fence().await?;
        let own = window.local().read(0..size as usize);
        let mut there = vec![0; size as usize];
        epoch.at((rig.rank() + 1) % size)?.get(0, &mut there).await?;
        seen.forbidden += u64::from([own, there].iter().flatten().any(|found| *found != round));
        epoch = epoch.fence().await?;
    }
    epoch.end().await?;
    window.close().await?;
    Ok(seen)
}

/// An origin that has started sees what the target wrote before it posted; a target that has waited
/// sees what the origin did before it completed.
pub(super) async fn post_start_complete_wait<F: Fabric>(world: World<F>) -> Outcome {
    const LEN: usize = 50;
    let mut rig = Rig::new(world);
    let window = rig.window::<u64>(1 + LEN).await?;
    let mut seen = Seen::default();
    for round in 1..=rig.rounds() {
        rig.skew().await;
        let (target, origin) = ((round % 2) as u32, 1 - (round % 2) as u32);
        if rig.rank() == target {
            window.local().write(0, &[round])?;
            window.post(&[origin])?.await?;
            seen.forbidden += u64::from(window.local().read(1..1 + LEN) != [round; LEN]);
        } else {
            let epoch = window.start(&[target]).await?;
            let mut found = [0];
            epoch.at(target)?.get(0, &mut found).await?;
            seen.forbidden += u64::from(found != [round]);
            rig.skew().await;
            epoch.at(target)?.put(1, &[round; LEN])?;
            epoch.complete().await?;
        }
    }
    window.close().await?;
    Ok(seen)
}

/// What a rank had flushed, or unlocked, before its barrier, every rank sees after its own.
pub(super) async fn barrier<F: Fabric>(world: World<F>) -> Outcome {
    let mut rig = Rig::new(world);
    let (me, size) = (rig.rank(), rig.world.size());
    let window = rig.window::<u64>(size as usize).await?;
    let mut seen = Seen::default();
    for round in 1..=rig.rounds() {
        rig.skew().await;
        for step in 1..size {
            let epoch = window.lock_shared((me + step) % size).await?;
            epoch.put(me as usize, &[round])?;
            if round % 2 == 0 {
                epoch.flush().await?;
                drop(epoch);
            } else {
                epoch.unlock().await?;
            }
        }
        rig.barrier().await;
        let own = window.local().read(0..size as usize);
        let mut there = vec![0; size as usize];
        window.lock_shared((me + 1) % size).await?.get(0, &mut there).await?;
        let late =
            |home: u32, found: &[u64]| (0..size).zip(found).any(|(origin, found)| origin != home && *found != round);
        seen.forbidden += u64::from(late(me, &own)) + u64::from(late((me + 1) % size, &there));
        rig.barrier().await;
    }
    window.close().await?;
    Ok(seen)
}
