//! Atomic operations of several ranks on the same elements, and of one rank in sequence.

use onesided_fabric::{Fabric, World};
use onesided_windows::{Located, Op, Window};

use crate::{Outcome, scenario};

scenario!(fetch_and_op, fetches_are_a_permutation, [2, 5]);
scenario!(compare_and_swap, swaps_count_up, [2, 4]);
scenario!(get_accumulate, rows_are_fetched_and_added, [1, 4]);
scenario!(atomic_rmw, every_type_and_way, [3]);
scenario!(atomic_get, a_read_is_never_half_a_write, [3]);
scenario!(acc_ordering, program_order_holds, [3]);
scenario!(large_small_acc, large_and_small_ones_keep_their_order, [2]);
scenario!(many_operands, more_operands_than_are_under_way, [2]);

/// Every rank adds 1, by every suitable call: each sees a different value.
async fn fetches_are_a_permutation<F: Fabric>(world: World<F>) -> Outcome {
    const ROUNDS: u64 = 10;
    let size = u64::from(world.size());
    let counters = Window::<u64>::builder().allocate(&world, 1).await?;
    let seen = Window::<u32>::builder().allocate(&world, (3 * ROUNDS * size) as usize).await?;
    let all = counters.lock_all().await?;
    let marks = seen.lock_all().await?;
    for _ in 0..ROUNDS {
        let mut before = [0];
        all.at(0).await?.get_accumulate(0, &[1], &mut before, Op::Sum).await?;
        let fetched =
            [all.at(0).await?.fetch_and_op(0, 1, Op::Sum).await?, before[0], all.at(0).await?.fetch_add(0, 1).await?];
        for fetched in fetched {
            marks.at(0).await?.accumulate(fetched as usize, &[1], Op::Sum).await?;
        }
    }
    marks.unlock_all().await?;
    all.unlock_all().await?;
    world.barrier().await.unwrap();
    if world.rank() == 0 {
        assert_eq!(counters.local().read(0..1), [3 * ROUNDS * size]);
        assert!(seen.local().read(0..(3 * ROUNDS * size) as usize).iter().all(|count| *count == 1));
    }
    seen.close().await?;
    counters.close().await
}

async fn swaps_count_up<F: Fabric>(world: World<F>) -> Outcome {
    const ROUNDS: i16 = 20;
    let window = Window::<i16>::builder().allocate(&world, 5).await?;
    let all = window.lock_all().await?;
    let home = all.at(world.size() - 1).await?;
    for _ in 0..ROUNDS {
        let mut expected = 0;
        loop {
            let found = home.compare_and_swap(3, expected, expected + 1).await?;
            if found == expected {
                break;
            }
            expected = found;
        }
    }
    all.unlock_all().await?;
    world.barrier().await.unwrap();
    if world.rank() == world.size() - 1 {
        assert_eq!(window.local().read(0..5), [0, 0, 0, ROUNDS * world.size() as i16, 0]);
    }
    window.close().await
}

/// Rows that begin and end within words; the results of all ranks together contain every addition
/// once.
async fn rows_are_fetched_and_added<F: Fabric>(world: World<F>) -> Outcome {
    const LEN: usize = 23;
    const ROUNDS: u32 = 6;
    let window = Window::<u16>::builder().allocate(&world, LEN + 2).await?;
    let sums = Window::<u64>::builder().allocate(&world, 1).await?;
    let all = window.lock_all().await?;
    let mut sum = 0;
    for _ in 0..ROUNDS {
        let mut before = [0; LEN];
        all.at(0).await?.get_accumulate(1, &[1; LEN], &mut before, Op::Sum).await?;
        sum += before.iter().map(|before| u64::from(*before)).sum::<u64>();
    }
    all.unlock_all().await?;
    let all = sums.lock_all().await?;
    all.at(0).await?.accumulate(0, &[sum], Op::Sum).await?;
    all.unlock_all().await?;
    world.barrier().await.unwrap();
    if world.rank() == 0 {
        let total = u64::from(world.size() * ROUNDS);
        let mut expected = [total as u16; LEN + 2];
        (expected[0], expected[LEN + 1]) = (0, 0);
        assert_eq!(window.local().read(0..LEN + 2), expected);
        assert_eq!(sums.local().read(0..1), [LEN as u64 * total * (total - 1) / 2]);
    }
    sums.close().await?;
    window.close().await
}

/// Fetch-and-op, accumulate and get-accumulate on one element at the same time, for every element
/// size.
async fn every_type_and_way<F: Fabric>(world: World<F>) -> Outcome {
    async fn adds<T: onesided_windows::AtomicElement + From<u8> + std::fmt::Debug, F: Fabric>(
        world: &World<F>,
    ) -> Outcome {
        let window = Window::<T>::builder().allocate(world, 9).await?;
        let all = window.lock_all().await?;
        let one = T::from(1);
        for _ in 0..8 {
            let mut before = [T::zeroed(); 9];
            all.at(0).await?.accumulate(0, &[one; 9], Op::Sum).await?;
            all.at(0).await?.get_accumulate(0, &[one; 9], &mut before, Op::Sum).await?;
            for at in 0..9 {
                all.at(0).await?.fetch_and_op(at, one, Op::Sum).await?;
            }
        }
        all.unlock_all().await?;
        world.barrier().await.unwrap();
        if world.rank() == 0 {
            assert_eq!(window.local().read(0..9), [T::from(24 * world.size() as u8); 9]);
        }
        window.close().await
    }
    adds::<u8, F>(&world).await?;
    adds::<i16, F>(&world).await?;
    adds::<u32, F>(&world).await?;
    adds::<i64, F>(&world).await?;
    adds::<f32, F>(&world).await?;
    adds::<f64, F>(&world).await?;

    let best = Window::<Located<i32>>::builder().allocate(&world, 3).await?;
    let all = best.lock_all().await?;
    for round in 0..5 {
        let index = world.rank() * 10 + round;
        all.at(0)
            .await?
            .accumulate(0, &[Located::new(7, index), Located::new(-(index as i32), index)], Op::MaxLoc)
            .await?;
        all.at(0).await?.accumulate(1, &[Located::new(-(index as i32), index); 2], Op::MinLoc).await?;
    }
    all.unlock_all().await?;
    world.barrier().await.unwrap();
    if world.rank() == 0 {
        let last = 10 * world.size() - 6;
        let read = best.local().read(0..3);
        assert_eq!(read[2], Located::new(-(last as i32), last));
        assert_eq!(read[0], Located::new(7, 0));
        // Each rank's last value is the smallest of all that are written, so that a maximum after
        // it has no effect.
        assert!(
            read[1].value() <= 0 && read[1].value() >= -(last as i32) && read[1].index() == -read[1].value() as u32
        );
    }
    best.close().await
}

/// One rank replaces the value, the others read it by no-op: they see only values that were
/// written, and never an older one after a newer one.
async fn a_read_is_never_half_a_write<F: Fabric>(world: World<F>) -> Outcome {
    const ROUNDS: u64 = 200;
    let window = Window::<u64>::builder().allocate(&world, 3).await?;
    let all = window.lock_all().await?;
    if world.rank() == 0 {
        for round in 1..=ROUNDS {
            all.at(1).await?.accumulate(1, &[round << 32 | round, round << 48 | round], Op::Replace).await?;
        }
    } else {
        let (mut last, mut before) = (0, [0; 2]);
        while last < ROUNDS {
            all.at(1).await?.get_accumulate(1, &[], &mut before, Op::NoOp).await?;
            assert_eq!(before[0] >> 32, before[0] & 0xffff_ffff);
            assert_eq!(before[1] >> 48, before[1] & 0xffff_ffff);
            assert!(before[0] & 0xffff_ffff >= last, "went back");
            last = before[0] & 0xffff_ffff;
        }
    }
    all.unlock_all().await?;
    window.close().await
}

/// Operations of one rank on one element, without a flush between them, while other ranks write its
/// neighbours in the same word.
async fn program_order_holds<F: Fabric>(world: World<F>) -> Outcome {
    let me = world.rank() as usize;
    let narrow = Window::<i16>::builder().allocate(&world, 8).await?;
    let wide = Window::<u64>::builder().allocate(&world, 8).await?;
    let (few, many) = (narrow.lock_all().await?, wide.lock_all().await?);
    for round in 0..30 {
        let at = few.at(0).await?;
        at.accumulate(me, &[round], Op::Replace).await?;
        at.accumulate(me, &[3], Op::Product).await?;
        at.accumulate(me, &[5], Op::Sum).await?;
        at.accumulate(me, &[1000], Op::Min).await?;
        assert_eq!(at.fetch_and_op(me, -1, Op::Xor).await?, 3 * round + 5);
        assert_eq!(at.fetch_one(me).await?, !(3 * round + 5));
        // The sum is posted; the other operations are loops.
        let (at, round) = (many.at(0).await?, round as u64);
        at.accumulate(me, &[round], Op::Replace).await?;
        at.accumulate(me, &[4], Op::Sum).await?;
        at.accumulate(me, &[2], Op::Product).await?;
        at.accumulate(me, &[7], Op::Sum).await?;
        assert_eq!(at.compare_and_swap(me, 2 * round + 15, 1).await?, 2 * round + 15);
        at.accumulate(me, &[1], Op::Sum).await?;
        at.accumulate(me, &[6], Op::Xor).await?;
        let mut now = [0];
        at.get_accumulate(me, &[], &mut now, Op::NoOp).await?;
        assert_eq!(now, [4]);
    }
    many.unlock_all().await?;
    few.unlock_all().await?;
    wide.close().await?;
    narrow.close().await
}

async fn large_and_small_ones_keep_their_order<F: Fabric>(world: World<F>) -> Outcome {
    const LEN: usize = 700;
    let window = Window::<u32>::builder().allocate(&world, LEN).await?;
    if world.rank() == 0 {
        let epoch = window.lock_shared(1).await?;
        for (large, small) in [(Op::Replace, Op::Sum), (Op::Sum, Op::Replace)] {
            epoch.accumulate(0, &[7; LEN], Op::Replace).await?;
            epoch.accumulate(0, &[20; LEN], large).await?;
            epoch.accumulate(LEN - 1, &[3], small).await?;
            let mut now = [0; LEN];
            epoch.get_accumulate(0, &[], &mut now, Op::NoOp).await?;
            let (all, last) = if large == Op::Replace { (20, 23) } else { (27, 3) };
            assert!(now[..LEN - 1].iter().all(|now| *now == all));
            assert_eq!(now[LEN - 1], last);
        }
        epoch.unlock().await?;
    }
    window.close().await
}

/// Of every kind: posted as a whole, loops, and native ones with results.
async fn more_operands_than_are_under_way<F: Fabric>(world: World<F>) -> Outcome {
    const LEN: usize = 203;
    let window = Window::<u64>::builder().allocate(&world, LEN).await?;
    let operands: Vec<u64> = (0..LEN as u64).collect();
    let all = window.lock_all().await?;
    let target = all.at((world.rank() + 1) % world.size()).await?;
    target.accumulate(0, &operands, Op::Sum).await?;
    target.accumulate(0, &operands, Op::Sum).await?;
    target.accumulate(0, &[3; LEN], Op::Product).await?;
    let mut before = vec![0; LEN];
    target.get_accumulate(0, &[1; LEN], &mut before, Op::Sum).await?;
    assert!(before.iter().zip(&operands).all(|(before, operand)| *before == 6 * operand));
    target.get_accumulate(0, &[100; LEN], &mut before, Op::Min).await?;
    assert!(before.iter().zip(&operands).all(|(before, operand)| *before == 6 * operand + 1));
    target.flush().await?;
    all.unlock_all().await?;
    world.barrier().await.unwrap();
    assert!(window.local().read(0..LEN).iter().zip(&operands).all(|(now, operand)| *now == (6 * operand + 1).min(100)));
    window.close().await
}
