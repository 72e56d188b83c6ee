//! Small programs of several ranks: a lock, and a queue of work.

use onesided_fabric::{Fabric, World};
use onesided_windows::{Op, Window};

use crate::{Outcome, pause, scenario};

scenario!(mutex, a_queue_lock_made_of_windows, [2, 5]);
scenario!(adlb_mimic, servers_and_clients, [4]);

/// The queue lock of Mellor-Crummey and Scott as a user program: the tail on rank 0, the next
/// pointer and a flag on each rank.
async fn a_queue_lock_made_of_windows<F: Fabric>(world: World<F>) -> Outcome {
    const ROUNDS: u64 = 12;
    const TAIL: usize = 0;
    const NEXT: usize = 1;
    const GRANTED: usize = 2;
    let me = u64::from(world.rank()) + 1; // 0 is no rank
    let queue = Window::<u64>::builder().allocate(&world, 3).await?;
    let counter = Window::<u64>::builder().allocate(&world, 1).await?;
    let (all, data) = (queue.lock_all().await?, counter.lock_all().await?);
    let (home, own) = (all.at(0).await?, all.at(world.rank()).await?);
    for _ in 0..ROUNDS {
        own.accumulate(NEXT, &[0, 0], Op::Replace).await?;
        own.flush().await?;
        let before = home.fetch_and_op(TAIL, me, Op::Replace).await?;
        if before != 0 {
            all.at(before as u32 - 1).await?.accumulate(NEXT, &[me], Op::Replace).await?;
            while own.fetch_one(GRANTED).await? == 0 {
                pause(&world, 1000).await;
            }
        }
        let mut count = [0];
        data.at(0).await?.get(0, &mut count).await?;
        data.at(0).await?.put(0, &[count[0] + 1])?;
        data.at(0).await?.flush().await?;
        if home.compare_and_swap(TAIL, me, 0).await? != me {
            let next = loop {
                match own.fetch_one(NEXT).await? {
                    0 => pause(&world, 1000).await,
                    next => break next,
                }
            };
            all.at(next as u32 - 1).await?.accumulate(GRANTED, &[1], Op::Replace).await?;
        }
    }
    data.unlock_all().await?;
    all.unlock_all().await?;
    world.barrier().await.unwrap();
    if world.rank() == 0 {
        assert_eq!(counter.local().read(0..1), [ROUNDS * u64::from(world.size())]);
    }
    counter.close().await?;
    queue.close().await
}

/// Clients take work from servers that only own the memory, under locks of changing targets, while
/// others add work.
async fn servers_and_clients<F: Fabric>(world: World<F>) -> Outcome {
    const WORK: u64 = 30;
    const SERVERS: u32 = 2;
    // Left, taken, and a queue of as many numbers.
    let window = Window::<u64>::builder().allocate(&world, 2 + WORK as usize).await?;
    if world.rank() < SERVERS {
        let epoch = window.lock_exclusive(world.rank()).await?;
        epoch.put(0, &[WORK])?;
        epoch.put(2, &(0..WORK).collect::<Vec<_>>())?;
        epoch.unlock().await?;
    }
    world.barrier().await.unwrap();
    let (mut taken, mut sum) = (0, 0);
    if world.rank() >= SERVERS {
        let mut empty = 0;
        let mut server = world.rank() % SERVERS;
        while empty < SERVERS {
            let epoch = window.lock_exclusive(server).await?;
            let mut head = [0; 2];
            epoch.get(0, &mut head).await?;
            if head[0] == 0 {
                empty += 1;
            } else {
                let mut work = [0];
                epoch.get(2 + head[1] as usize, &mut work).await?;
                epoch.put(0, &[head[0] - 1, head[1] + 1])?;
                taken += 1;
                sum += work[0];
            }
            epoch.unlock().await?;
            server = (server + 1) % SERVERS;
        }
    }
    let totals = Window::<u64>::builder().allocate(&world, 2).await?;
    let all = totals.lock_all().await?;
    all.at(0).await?.accumulate(0, &[taken, sum], Op::Sum).await?;
    all.unlock_all().await?;
    world.barrier().await.unwrap();
    if world.rank() == 0 {
        let servers = u64::from(SERVERS);
        assert_eq!(totals.local().read(0..2), [servers * WORK, servers * WORK * (WORK - 1) / 2]);
    }
    totals.close().await?;
    window.close().await
}
