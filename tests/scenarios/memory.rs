//! Windows over user memory, dynamic memory and shared memory.

use std::sync::atomic::Ordering;

use onesided_fabric::remote_memory::Rank;
use onesided_fabric::{Fabric, Segment, World};
use onesided_windows::info::{Flavor, Path};
use onesided_windows::{Error, LockAll, Op, RemotePtr, Shape, Window};

use crate::{Outcome, scenario};

scenario!(created, a_vector_is_exposed_and_returned, [1, 2, 5]);
scenario!(created_uneven, vectors_of_any_length, [1, 4]);
scenario!(dynamic, memory_comes_and_goes, [1, 3]);
scenario!(dynamic_full, no_more_than_256_pieces, [1]);
scenario!(linked_list, a_list_under_exclusive_locks, [2, 4]);
scenario!(linked_list_lock_shr, a_list_under_shared_locks, [2, 4]);
scenario!(linked_list_lockall, a_list_under_one_lock, [2, 4]);
scenario!(fence_shm, stores_between_fences, [2, 4]);
scenario!(flush_get_shm, plain_loads_see_what_was_flushed, [2, 3]);
scenario!(paths, paths_are_counted, [2]);

async fn a_vector_is_exposed_and_returned<F: Fabric>(world: World<F>) -> Outcome {
    let (me, size) = (world.rank(), world.size());
    let next = (me + 1) % size;
    for turn in 0..3_u32 {
        let vector: Vec<u32> = (0..101).map(|at| me * 1000 + at + turn).collect();
        let window = Window::builder().name("created").create(&world, vector).await?;
        assert_eq!((window.info().flavor, window.info().lengths), (Flavor::Created, vec![101; size as usize]));
        let epoch = window.lock_exclusive(next).await?;
        let mut seen = [0; 101];
        epoch.get(0, &mut seen).await?;
        assert_eq!(seen[100], next * 1000 + 100 + turn);
        epoch.put(100, &[7])?;
        epoch.put_shaped(0, Shape::Vector { count: 3, block: 2, stride: 5 }, &[1, 2, 3, 4, 5, 6]).await?;
        epoch.flush().await?;
        assert_eq!(epoch.fetch_and_op(50, 3, Op::Sum).await?, next * 1000 + 50 + turn);
        assert_eq!(epoch.compare_and_swap(100, 7, 8).await?, 7);
        let mut before = [0; 4];
        epoch.get_accumulate(0, &[100; 4], &mut before, Op::Max).await?;
        assert_eq!(before[..2], [1, 2]);
        epoch.accumulate_shaped(20, Shape::Blocks { block: 1, starts: &[0, 9] }, &[1 << 30; 2], Op::Or).await?;
        assert!(matches!(epoch.put(101, &[1]), Err(Error::Range { .. })));
        assert!(matches!(epoch.fetch_and_op(0, 1, Op::MinLoc).await, Err(Error::Type { .. })));
        epoch.unlock().await?;
        world.barrier().await.unwrap();
        assert_eq!(window.local().read(100..101), [8]);
        window.local().write(99, &[me])?;
        let vector = window.close_into().await?;
        assert_eq!((vector.len(), vector[100], vector[99]), (101, 8, me));
        assert_eq!((vector[1], vector[5], vector[50]), (100.max(before[1]), 3, me * 1000 + 53 + turn));
        assert_eq!((vector[20] >> 30, vector[29] >> 30, vector[21] >> 30), (1, 1, 0));
    }
    // Close without the vector, and a window that was not created over one.
    Window::builder().create(&world, vec![1_u8; 3]).await?.close().await?;
    let allocated = Window::<u8>::builder().allocate(&world, 3).await?;
    assert!(allocated.close_into().await.is_err());
    Ok(())
}

async fn vectors_of_any_length<F: Fabric>(world: World<F>) -> Outcome {
    let me = world.rank();
    for shift in 0..4 {
        let len = |rank: u32| ((rank + shift) % 4) as usize * 3;
        let window = Window::builder().uneven().create(&world, vec![me as u8; len(me)]).await?;
        let all = window.lock_all().await?;
        for target in 0..world.size() {
            let access = all.at(target).await?;
            assert_eq!(access.len(), len(target));
            if let Some(last) = access.len().checked_sub(1) {
                access.accumulate(last, &[1], Op::Sum).await?;
            }
            assert!(access.put(access.len(), &[1]).is_err() && access.put(access.len(), &[]).is_ok());
        }
        all.unlock_all().await?;
        let vector = window.close_into().await?;
        assert_eq!(vector.len(), len(me));
        assert_eq!(vector.last().copied(), (!vector.is_empty()).then_some((me + world.size()) as u8));
    }
    Ok(())
}

/// Every rank passes its pointer to every rank.
async fn exchange<F: Fabric>(world: &World<F>, mine: RemotePtr) -> Vec<RemotePtr> {
    let all = world.all_gather(&mine.to_word().to_le_bytes()).await.unwrap();
    all.iter().map(|bytes| RemotePtr::from_word(u64::from_le_bytes(bytes[..].try_into().unwrap()))).collect()
}

async fn memory_comes_and_goes<F: Fabric>(world: World<F>) -> Outcome {
    let (me, size) = (world.rank(), world.size());
    let next = (me + 1) % size;
    let window = Window::<u64>::builder().name("loans").dynamic(&world).await?;
    let mut stale = RemotePtr::NULL;
    for turn in 0..20_u64 {
        let from_vector = turn % 3 != 2;
        let mine =
            if from_vector { window.attach(vec![turn; 10 + turn as usize])? } else { window.attach_zeroed(10)? };
        let places = exchange(&world, mine.checked_add(2).unwrap()).await;
        let epoch = window.lock_shared(next).await?;
        let place = places[next as usize];
        assert_eq!(place.index(), 2);
        let there = epoch.attached(place).await?;
        assert_eq!(there.len(), if from_vector { 10 + turn as usize } else { 10 });
        there.put(place.index(), &[77 + turn])?;
        there.flush().await?;
        assert_eq!(there.fetch_add(3, 5).await?, if from_vector { turn } else { 0 });
        assert!(matches!(there.put(there.len(), &[0]), Err(Error::Range { .. })));
        assert!(epoch.attached(RemotePtr::NULL).await.is_err());
        if size > 1 && turn > 0 {
            assert!(epoch.attached(stale).await.is_err(), "another memory, or none, is there now");
        }
        epoch.unlock().await?;
        world.barrier().await.unwrap();
        let vector = window.detach(mine).await?;
        assert_eq!((vector[2], vector[3]), (77 + turn, if from_vector { turn + 5 } else { 5 }));
        assert!(window.detach(mine).await.is_err());
        stale = RemotePtr::from_word(place.to_word() ^ 1 << 40);
        world.barrier().await.unwrap();
    }
    // What is still attached at the end goes with the window.
    window.attach(vec![1; 10])?;
    window.attach_zeroed(3)?;
    window.close().await
}

async fn no_more_than_256_pieces<F: Fabric>(world: World<F>) -> Outcome {
    let window = Window::<u8>::builder().dynamic(&world).await?;
    let places = (0..256).map(|_| window.attach(vec![1; 8])).collect::<Result<Vec<_>, _>>()?;
    let full = window.attach(vec![1; 8]).unwrap_err();
    assert!(full.to_string().contains("no room"), "{full}");
    window.detach(places[7]).await?;
    window.attach(vec![2; 8])?;
    window.detach(places[8]).await?;
    let empty = window.attach(Vec::new())?;
    assert_eq!(window.detach(empty).await?, []);
    let other = Window::<u8>::builder().allocate(&world, 1).await?;
    assert!(other.attach(vec![1; 8]).is_err());
    other.close().await?;
    window.close().await
}

/// The locks that a walk through the list takes.
#[derive(Clone, Copy)]
enum Walk {
    Exclusive,
    Shared,
    All,
}

/// A list whose nodes lie in memory that the ranks attach,
/// `[rank + 1 of the next or 0, its displacement, value]`. All ranks append at the same time: a
/// compare-and-swap takes the end, then its owner writes where the next node lies.
async fn append_and_count<F: Fabric>(world: World<F>, walk: Walk, nodes: u64) -> Outcome {
    let (me, size) = (world.rank(), world.size());
    let window = Window::<u64>::builder().name("list").dynamic(&world).await?;
    let mut mine = vec![window.attach(vec![0, 0, u64::MAX])?];
    let head = (0, exchange(&world, mine[0]).await[0]);
    let all = match walk {
        Walk::All => Some(window.lock_all().await?),
        _ => None,
    };
    let mut tail = head;
    for number in 0..nodes {
        let place = window.attach(vec![0, 0, u64::from(me) * nodes + number])?;
        mine.push(place);
        loop {
            let next = change(&window, (walk, all.as_ref()), tail, (0, Some(u64::from(me) + 1))).await?;
            if next == 0 {
                change(&window, (walk, all.as_ref()), tail, (1, Some(place.to_word()))).await?;
                tail = (me, place);
                break;
            }
            tail = follow(&window, (walk, all.as_ref()), tail, next).await?;
        }
    }
    world.barrier().await.unwrap();
    let (mut at, mut values) = (head, Vec::new());
    loop {
        let next = change(&window, (walk, all.as_ref()), at, (0, None)).await?;
        if next == 0 {
            break;
        }
        at = follow(&window, (walk, all.as_ref()), at, next).await?;
        values.push(change(&window, (walk, all.as_ref()), at, (2, None)).await?);
    }
    values.sort_unstable();
    assert!(values.into_iter().eq(0..u64::from(size) * nodes));
    if let Some(all) = all {
        all.unlock_all().await?;
    }
    world.barrier().await.unwrap();
    for place in mine {
        window.detach(place).await?;
    }
    window.clone().close().await
}

type Locks<'a, 'w, F> = (Walk, Option<&'a LockAll<'w, u64, F>>);

/// Sets a word of a node that is 0, or reads it; returns the previous value.
async fn change<F: Fabric>(
    window: &Window<u64, F>,
    (walk, all): Locks<'_, '_, F>,
    (rank, place): (u32, RemotePtr),
    (word, new): (usize, Option<u64>),
) -> Result<u64, Error> {
    let epoch = match walk {
        Walk::Exclusive => Some(window.lock_exclusive(rank).await?),
        Walk::Shared => Some(window.lock_shared(rank).await?),
        Walk::All => None,
    };
    let access = match (&epoch, all) {
        (Some(epoch), _) => epoch,
        (None, Some(all)) => all.at(rank).await?,
        (None, None) => unreachable!("one of them is locks"),
    };
    let node = access.attached(place).await?;
    let before = match new {
        Some(new) => node.compare_and_swap(word, 0, new).await?,
        None => node.fetch_one(word).await?,
    };
    if let Some(epoch) = epoch {
        epoch.unlock().await?;
    }
    Ok(before)
}

/// The next node: its rank is known; waits for its displacement.
async fn follow<F: Fabric>(
    window: &Window<u64, F>,
    locks: Locks<'_, '_, F>,
    at: (u32, RemotePtr),
    next: u64,
) -> Result<(u32, RemotePtr), Error> {
    loop {
        let place = RemotePtr::from_word(change(window, locks, at, (1, None)).await?);
        if !place.is_null() {
            return Ok((next as u32 - 1, place));
        }
    }
}

async fn a_list_under_exclusive_locks<F: Fabric>(world: World<F>) -> Outcome {
    append_and_count(world, Walk::Exclusive, 4).await
}

async fn a_list_under_shared_locks<F: Fabric>(world: World<F>) -> Outcome {
    append_and_count(world, Walk::Shared, 4).await
}

async fn a_list_under_one_lock<F: Fabric>(world: World<F>) -> Outcome {
    append_and_count(world, Walk::All, 4).await
}

/// Whether a rank's memory can be loaded and stored to: on shm every rank's, on mixed those of the
/// same host. Where not, `direct` returns an error.
fn shares<F: Fabric>(window: &Window<u64, F>, rank: u32) -> bool {
    let path = window.world().fabric().world_segment(Rank(rank)).unwrap().path();
    match window.direct(rank) {
        Ok(_) => true,
        Err(Error::Direct { target, path: said, .. }) => {
            assert_eq!((target, said), (rank, path));
            assert!(matches!(path, Path::Card | Path::Simulated), "{path}");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

async fn stores_between_fences<F: Fabric>(world: World<F>) -> Outcome {
    let (me, size) = (world.rank(), world.size());
    let next = (me + 1) % size;
    let window = Window::<u64>::builder().allocate(&world, 4).await?;
    let mut fence = window.fence().await?;
    let shared = shares(&window, next);
    for turn in 1..10_u64 {
        if shared {
            let there = window.direct(next)?;
            there.write(0, &[turn, u64::from(me)])?;
            there.words()[2].fetch_add(turn, Ordering::Relaxed);
            assert!(matches!(there.write(4, &[1]), Err(Error::Range { .. })));
        } else {
            let there = fence.at(next)?;
            there.put(0, &[turn, u64::from(me)])?;
            there.fetch_add(2, turn).await?;
        }
        fence = fence.fence().await?;
        let mut seen = [0; 3];
        window.local().read_into(0, &mut seen)?;
        assert_eq!(seen, [turn, u64::from((me + size - 1) % size), (1..=turn).sum()]);
        if shared {
            window.direct(next)?.read_into(0, &mut seen)?;
            assert_eq!(seen, [turn, u64::from(me), (1..=turn).sum()]);
        }
        fence = fence.fence().await?;
    }
    fence.end().await?;
    // User memory may be taken back, so `direct` refuses it.
    let created = Window::builder().create(&world, vec![0_u64; 4]).await?;
    assert!(size == 1 || created.direct(next).is_err());
    assert!(matches!(created.direct(size), Err(Error::Rank { .. })));
    created.close().await?;
    window.close().await
}

async fn plain_loads_see_what_was_flushed<F: Fabric>(world: World<F>) -> Outcome {
    let window = Window::<u64>::builder().allocate(&world, 5).await?;
    let shared = shares(&window, 1);
    let all = window.lock_all().await?;
    for turn in 1..20_u64 {
        if world.rank() == 0 {
            let there = all.at(1).await?;
            there.put(0, &[turn])?;
            there.accumulate(1, &[turn], Op::Max).await?;
            there.get_accumulate(2, &[turn], &mut [0], Op::Replace).await?;
            there.fetch_add(3, 1).await?;
            there.compare_and_swap(4, turn - 1, turn).await?;
            there.flush().await?;
        }
        world.barrier().await.unwrap();
        if shared {
            let words = window.direct(1)?.words();
            assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == turn));
            let mut seen = [0; 5];
            window.direct(1)?.read_into(0, &mut seen)?;
            assert_eq!(seen, [turn; 5]);
        } else if world.rank() == 1 {
            assert_eq!(window.local().read(0..5), [turn; 5]);
        }
        world.barrier().await.unwrap();
    }
    all.unlock_all().await?;
    window.close().await
}

async fn paths_are_counted<F: Fabric>(world: World<F>) -> Outcome {
    let window = Window::<u32>::builder().count_paths(true).allocate(&world, 10).await?;
    let next = (world.rank() + 1) % world.size();
    let epoch = window.lock_shared(next).await?;
    let path = world.fabric().world_segment(world.fabric().rank()).unwrap().path();
    epoch.put(0, &[1])?;
    epoch.put_shaped(0, Shape::Vector { count: 3, block: 1, stride: 2 }, &[1, 2, 3]).await?;
    epoch.get(0, &mut [0; 3]).await?;
    epoch.get_shaped(0, Shape::Vector { count: 2, block: 1, stride: 2 }, &mut [0; 2]).await?;
    assert_eq!(window.paths(next).total(), 4);
    epoch.fetch_add(0, 1).await?;
    epoch.accumulate(0, &[1; 10], Op::Sum).await?;
    epoch.compare_and_swap(0, 1, 2).await?;
    assert!(epoch.put(11, &[1]).is_err() && epoch.fetch_add(10, 1).await.is_err());
    assert_eq!((window.paths(next).of(path), window.paths(next).total()), (7, 7));
    assert_eq!(window.info().paths[next as usize].total(), 7);
    epoch.unlock().await?;
    assert_eq!(window.paths(world.rank()).total(), 0);
    window.close().await
}
