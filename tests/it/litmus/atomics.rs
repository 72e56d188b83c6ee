//! The promises of atomic operations.

use onesided_fabric::{AtomicAgent, Fabric, World};
use onesided_windows::{AtomicElement, Op};

use super::{Outcome, Rig, Seen};

/// An atomic operation that returned its value is complete at the target: a third rank that
/// synchronises afterwards sees it.
pub(super) async fn complete_when_waited<F: Fabric>(world: World<F>) -> Outcome {
    let mut rig = Rig::new(world);
    let window = rig.window::<u64>(4).await?;
    let all = window.lock_all().await?;
    let mut seen = Seen::default();
    for round in 1..=rig.rounds() {
        match rig.rank() {
            0 => {
                rig.skew().await;
                let mut before = [0];
                all.at(1).await?.fetch_add(0, 1).await?;
                all.at(1).await?.get_accumulate(1, &[round], &mut before, Op::Replace).await?;
                all.at(1).await?.compare_and_swap(2, round - 1, round).await?;
                all.at(1).await?.fetch_and_op(3, round, Op::Max).await?;
                rig.send(2, round).await;
            }
            2 => {
                let round = rig.recv().await;
                let mut found = [0; 4];
                all.at(1).await?.get(0, &mut found).await?;
                seen.forbidden += u64::from(found.iter().any(|found| *found < round));
            }
            _ => {}
        }
    }
    all.unlock_all().await?;
    window.close().await?;
    Ok(seen)
}

/// Atomic operations of one rank on one element take effect in the order in which they were waited
/// for.
pub(super) async fn accumulate_order<F: Fabric>(world: World<F>) -> Outcome {
    async fn run<T: AtomicElement + From<u8>, F: Fabric>(rig: &mut Rig<F>) -> Outcome {
        const LEN: usize = 11;
        let window = rig.window::<T>(2 * LEN).await?;
        let all = window.lock_all().await?;
        let (place, mut seen) = (rig.rank() as usize * LEN, Seen::default());
        let of = |value: u64| T::from((value % 100) as u8);
        for round in 1..=rig.rounds() {
            for target in 0..2 {
                let target = all.at(target).await?;
                rig.skew().await;
                target.accumulate(place, &[of(round); LEN], Op::Replace).await?;
                target.accumulate(place, &[of(1); LEN], Op::Sum).await?;
                target.fetch_and_op(place, of(1), Op::Sum).await?;
                target.accumulate(place, &[of(2); LEN], Op::Product).await?;
                let mut found = [T::zeroed(); LEN];
                target.get_accumulate(place, &[], &mut found, Op::NoOp).await?;
                let value = (round % 100) as u8;
                let expected = |at| T::from((value + if at == 0 { 2 } else { 1 }) * 2);
                seen.forbidden += u64::from((0..LEN).any(|at| found[at] != expected(at)));
            }
        }
        all.unlock_all().await?;
        window.close().await?;
        Ok(seen)
    }
    let mut rig = Rig::new(world);
    let mut seen = run::<u64, F>(&mut rig).await?;
    seen += run::<u16, F>(&mut rig).await?;
    Ok(seen)
}

/// Atomic operations are atomic with respect to one another, element by element, for every size,
/// whichever rank issues them.
pub(super) async fn atomicity<F: Fabric>(world: World<F>) -> Outcome {
    async fn run<T: AtomicElement + From<u8>, F: Fabric>(rig: &mut Rig<F>) -> Outcome {
        const LEN: usize = 9;
        // So few that a byte can count them.
        let turns = rig.rounds().clamp(20, 60) as u8;
        let window = rig.window::<T>(LEN).await?;
        let (one, me) = (T::from(1), rig.rank() as usize);
        let mut seen = Seen::default();
        for _ in 0..rig.rounds().div_ceil(u64::from(turns)) {
            let all = window.lock_all().await?;
            for _ in 0..turns {
                rig.skew().await;
                all.at(1).await?.accumulate(0, &[one; LEN], Op::Sum).await?;
                // Neighbours within a word, each with a rank of its own.
                all.at(1).await?.fetch_and_op(me, one, Op::Sum).await?;
            }
            all.unlock_all().await?;
            rig.barrier().await;
            if rig.rank() == 1 {
                let count = |at: usize| T::from(turns * if at < 3 { 4 } else { 3 });
                let sums = window.local().read(0..LEN);
                seen.forbidden += (0..LEN).filter(|at| sums[*at] != count(*at)).count() as u64;
                window.local().write(0, &[T::zeroed(); LEN])?;
            }
            rig.barrier().await;
        }
        window.close().await?;
        Ok(seen)
    }
    let mut rig = Rig::new(world);
    let mut seen = run::<u8, F>(&mut rig).await?;
    seen += run::<u16, F>(&mut rig).await?;
    seen += run::<u32, F>(&mut rig).await?;
    seen += run::<u64, F>(&mut rig).await?;
    Ok(seen)
}

/// Where the processor makes atomics atomic, they leave puts to neighbours in the same word alone.
pub(super) async fn neighbours<F: Fabric>(world: World<F>) -> Outcome {
    let mut rig = Rig::new(world);
    let window = rig.window::<u16>(4).await?;
    let all = window.lock_all().await?;
    let mut seen = Seen::default();
    let rounds = if rig.agent() == AtomicAgent::Card { 0 } else { 20 * rig.rounds() };
    for round in 0..rounds {
        rig.skew().await;
        if rig.rank() == 0 {
            all.at(1).await?.accumulate(2, &[1], Op::Sum).await?;
        } else {
            let mut found = [0];
            all.at(1).await?.put(3, &[round as u16])?;
            rig.skew().await;
            all.at(1).await?.get(3, &mut found).await?;
            seen.forbidden += u64::from(found != [round as u16]);
        }
    }
    all.unlock_all().await?;
    window.close().await?;
    Ok(seen)
}
