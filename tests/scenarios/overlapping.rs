//! Windows over overlapping ranges of one memory: operations through one are visible through the
//! others, atomics are atomic through all of them, and the memory returns when the last is closed.

use onesided_fabric::{Fabric, UserMemory, World};
use onesided_windows::{Error, Op, Window, WindowMemory};

use crate::{Outcome, scenario};

scenario!(overlapping, what_one_window_puts_another_gets, [1, 2, 4]);
scenario!(overlapping_sums, atomics_through_several_windows, [1, 3, 4]);
scenario!(overlapping_types, elements_of_other_types, [2, 3]);
scenario!(overlapping_lives, the_memory_outlives_its_windows, [1, 2, 3]);
scenario!(overlapping_limits, ranges_that_are_refused, [1, 2]);
scenario!(created_from, memory_of_something_else, [1, 2, 3]);

/// The windows' ranges: from these elements to the end, or to the beginning of the last one.
const STARTS: [usize; 3] = [0, 30, 55];
const LEN: usize = 80;

async fn what_one_window_puts_another_gets<F: Fabric>(world: World<F>) -> Outcome {
    let (me, size) = (world.rank(), world.size());
    let (next, before) = ((me + 1) % size, (me + size - 1) % size);
    let memory = WindowMemory::new(&world, (0..LEN as u64).collect::<Vec<_>>())?;
    let mut windows = Vec::new();
    for start in STARTS {
        windows.push(Window::<u64>::builder().name("part").create_over(&world, &memory, start..LEN).await?);
    }
    assert_eq!((memory.windows(), windows[1].len(next)), (3, LEN - 30));
    for (from, to) in [(0, 1), (1, 2), (2, 0), (1, 0)] {
        let (start, other) = (STARTS[from].max(STARTS[to]), 100 * from as u64 + to as u64 + 1000);
        let values: Vec<u64> = (0..(LEN - start) as u64).map(|at| at + other * u64::from(me + 1)).collect();
        // Through both in the same epoch, completed by the flush of the first.
        let (put, get) = (windows[from].lock_exclusive(next).await?, windows[to].lock_shared(next).await?);
        put.put(start - STARTS[from], &values)?;
        put.flush().await?;
        let mut seen = vec![0; values.len()];
        get.get(start - STARTS[to], &mut seen).await?;
        assert_eq!(seen, values);
        put.unlock().await?;
        get.unlock().await?;
        // The rank itself sees it through all of them.
        world.barrier().await.unwrap();
        let expected: Vec<u64> = (0..(LEN - start) as u64).map(|at| at + other * u64::from(before + 1)).collect();
        for (window, first) in windows.iter().zip(STARTS) {
            let shown = start.max(first);
            assert_eq!(window.local().read(shown - first..LEN - first), expected[shown - start..]);
        }
        world.barrier().await.unwrap();
        // And by fences of one, local writes of the other.
        windows[to].local().write(start - STARTS[to], &[u64::from(me) + 7])?;
        let epoch = windows[from].fence().await?;
        let mut one = [0];
        epoch.at(next)?.get(start - STARTS[from], &mut one).await?;
        assert_eq!(one, [u64::from(next) + 7]);
        epoch.end().await?;
    }
    for window in windows {
        window.close().await?;
    }
    let vector = memory.take_back().await?.into_vec::<u64>().unwrap();
    assert_eq!((vector.len(), vector[29], vector[30]), (LEN, 29, u64::from(me) + 7));
    Ok(())
}

async fn atomics_through_several_windows<F: Fabric>(world: World<F>) -> Outcome {
    const TURNS: u64 = 30;
    let (me, size) = (world.rank(), world.size());
    let memory = WindowMemory::new(&world, vec![0_u64; 8])?;
    let one = Window::<u64>::builder().create_over(&world, &memory, 0..6).await?;
    let other = Window::<u64>::builder().create_over(&world, &memory, 2..8).await?;
    let (ones, others) = (one.lock_all().await?, other.lock_all().await?);
    let mut highest = 0;
    for turn in 0..TURNS {
        let target = ((u64::from(me) + turn) % u64::from(size)) as u32;
        let (one, other) = (ones.at(target).await?, others.at(target).await?);
        // All ranks on the same words, alternating between the two windows.
        if turn % 2 == u64::from(me) % 2 {
            one.fetch_add(4, 1).await?;
            other.accumulate(2, &[1, 2], Op::Sum).await?;
        } else {
            other.fetch_add(2, 1).await?;
            one.accumulate(4, &[1, 2], Op::Sum).await?;
        }
        // A compare-and-swap loop that reads through one window and swaps through the other.
        let mut found = one.fetch_one(3).await?;
        loop {
            let before = other.compare_and_swap(1, found, found + 1).await?;
            if before == found {
                break;
            }
            found = before;
        }
        highest = highest.max(found + 1);
    }
    ones.unlock_all().await?;
    others.unlock_all().await?;
    assert!(highest > 0);
    one.close().await?;
    other.close().await?;
    let vector = memory.take_back().await?.into_vec::<u64>().unwrap();
    // Each rank went around, so every target was visited about as often as there are ranks.
    let total: u64 = vector[3];
    assert_eq!(vector, [0, 0, 0, total, 2 * total, 2 * total, 0, 0]);
    let all = world.all_gather(&total.to_le_bytes()).await.unwrap();
    let sum: u64 = all.iter().map(|bytes| u64::from_le_bytes(bytes[..].try_into().unwrap())).sum();
    assert_eq!(sum, TURNS * u64::from(size));
    Ok(())
}

async fn elements_of_other_types<F: Fabric>(world: World<F>) -> Outcome {
    let next = (world.rank() + 1) % world.size();
    let memory = WindowMemory::new(&world, vec![0_u32; 9])?; // its last word is half the vector's spare capacity
    let halves = Window::<u16>::builder().create_over(&world, &memory, 4..18).await?;
    let words = Window::<u32>::builder().create_over(&world, &memory, 0..9).await?;
    let long = Window::<u64>::builder().create_over(&world, &memory, 1..2).await?;
    let (small, middle, large) =
        (halves.lock_shared(next).await?, words.lock_shared(next).await?, long.lock_shared(next).await?);
    small.fetch_and_op(1, 0x1234, Op::Sum).await?;
    assert_eq!(middle.fetch_one(2).await?, 0x1234_0000);
    large.fetch_add(0, 1 << 32 | 1).await?;
    let mut found = [0; 4];
    small.get_accumulate(0, &[1, 0, 0, 0], &mut found, Op::Sum).await?;
    assert_eq!(found, [1, 0x1234, 1, 0]);
    middle.accumulate(8, &[u32::MAX], Op::Sum).await?;
    assert_eq!(small.fetch_and_op(13, 1, Op::Sum).await?, u16::MAX);
    assert!(matches!(small.put(14, &[1]), Err(Error::Range { .. })));
    small.unlock().await?;
    middle.unlock().await?;
    large.unlock().await?;
    halves.close().await?;
    words.close().await?;
    long.close().await?;
    let vector = memory.take_back().await?.into_vec::<u32>().unwrap();
    assert_eq!(vector, [0, 0, 0x1234_0002, 1, 0, 0, 0, 0, 0xffff]);
    Ok(())
}

async fn the_memory_outlives_its_windows<F: Fabric>(world: World<F>) -> Outcome {
    let next = (world.rank() + 1) % world.size();
    let mut memory = WindowMemory::new(&world, vec![0_u64; 10])?;
    let first = Window::<u64>::builder().create_over(&world, &memory, 0..10).await?;
    let second = Window::<u64>::builder().create_over(&world, &memory, 5..10).await?;
    let refused = memory.take_back().await.unwrap_err();
    assert!(matches!(refused.error(), Error::StillLent { windows: 2 }), "{refused}");
    memory = refused.into_parts().1.unwrap();
    first.close().await?;
    // The other window is unaffected, and takes another memory in its place.
    let third = Window::<u64>::builder().create_over(&world, &memory, 0..6).await?;
    let (epoch, again) = (second.lock_shared(next).await?, third.lock_shared(next).await?);
    again.put(5, &[11])?;
    again.flush().await?;
    assert_eq!(epoch.fetch_add(0, 1).await?, 11);
    epoch.unlock().await?;
    again.unlock().await?;
    second.close().await?;
    let refused = memory.take_back().await.unwrap_err();
    memory = refused.into_parts().1.unwrap();
    assert!(third.clone().close_into().await.is_err(), "it is not its own to give");
    let other = memory.clone();
    let vector = memory.take_back().await?.into_vec::<u64>().unwrap();
    assert_eq!(vector, [0, 0, 0, 0, 0, 12, 0, 0, 0, 0]);
    // The memory is exhausted, and every rank reports it.
    let again = Window::<u64>::builder().create_over(&world, &other, 0..1).await;
    assert!(matches!(again, Err(Error::Create { .. })), "{again:?}");
    let closed = other.take_back().await.unwrap_err();
    assert!(matches!(closed.error(), Error::TakeBack { .. }), "{closed}");
    // The last window keeps memory whose handles are gone; memory without elements is kept, too.
    let memory = WindowMemory::new(&world, vec![world.rank(); 4])?;
    let window = Window::<u32>::builder().create_over(&world, &memory, 2..4).await?;
    let none = Window::<u32>::builder().create_over(&world, &memory, 2..2).await?;
    assert_eq!(memory.windows(), 2);
    none.close().await?;
    assert_eq!(memory.windows(), 1);
    drop(memory);
    assert_eq!(window.lock_shared(next).await?.fetch_one(1).await?, next);
    window.close().await
}

async fn ranges_that_are_refused<F: Fabric>(world: World<F>) -> Outcome {
    assert!(matches!(WindowMemory::new(&world, Vec::<u64>::new()), Err(Error::Lend { .. })));
    let memory = WindowMemory::new(&world, vec![1_u16; 8])?;
    assert_eq!((memory.len(), memory.is_empty()), (16, false));
    let last = world.size() - 1;
    for range in [0..9, 9..9, usize::MAX - 1..usize::MAX, 2..4, std::ops::Range { start: 4, end: 0 }] {
        // One rank's mistake is every rank's error.
        let range = if world.rank() == last { range } else { 0..4 };
        let outcome = Window::<u16>::builder().uneven().create_over(&world, &memory, range.clone()).await;
        match outcome {
            Err(Error::Create { .. }) if world.rank() == last => {}
            Err(Error::CreateElsewhere { rank, .. }) if rank == last => {}
            outcome => panic!("{range:?}: {outcome:?}"),
        }
    }
    assert_eq!(memory.windows(), 0);
    // Ranges and memory of different kinds in one window.
    let window = match world.rank() {
        0 => Window::<u16>::builder().create_over(&world, &memory, 4..8).await?,
        _ => Window::<u16>::builder().create(&world, vec![1; 4]).await?,
    };
    let epoch = window.lock_shared(last).await?;
    epoch.accumulate(0, &[1; 4], Op::Sum).await?;
    epoch.unlock().await?;
    world.barrier().await.unwrap();
    let ranks = if world.rank() == last { world.size() as u16 } else { 0 };
    assert_eq!(window.local().read(0..4), [1 + ranks; 4]);
    window.close().await?;
    memory.take_back().await?;
    Ok(())
}

async fn memory_of_something_else<F: Fabric>(world: World<F>) -> Outcome {
    let (me, next) = (world.rank(), (world.rank() + 1) % world.size());
    let memory = UserMemory::from(vec![u64::from(me); 5]);
    let window = Window::<u32>::builder().create_from(&world, memory).await?;
    assert_eq!(window.len(next), 10);
    let epoch = window.lock_exclusive(next).await?;
    assert_eq!(epoch.fetch_add(8, 5).await?, next);
    epoch.unlock().await?;
    let memory = window.close_into_memory().await?;
    assert_eq!(memory.into_vec::<u64>().unwrap()[3..], [u64::from(me), u64::from(me) + 5]);
    // Too little for an element, and memory that is not a vector of the window's type.
    let window = Window::<[u64; 4]>::builder().create_from(&world, vec![1_u64; 3].into()).await?;
    assert_eq!(window.len(next), 0);
    assert_eq!(window.close_into_memory().await?.into_vec::<u64>().unwrap(), [1; 3]);
    let window = Window::<u32>::builder().create_from(&world, vec![1_u64].into()).await?;
    assert!(window.close_into().await.is_err());
    let allocated = Window::<u8>::builder().allocate(&world, 3).await?;
    assert!(allocated.close_into_memory().await.is_err());
    Ok(())
}
