//! Memory of closed windows is reused: zeroed, and never while a rank can still access it.

use onesided::fabric::Fabric as _;
use onesided::{FaultKind, Window, World};

use crate::support::ranks;

fn window(world: &World, len: usize) -> Window<u64> {
    Window::allocate(world, len).wait().unwrap()
}

/// Writes to all memory of every rank, from every rank; each rank's memory then has one value.
fn fill(window: &Window<u64>) {
    let (world, len) = (window.world(), window.len(0));
    for target in (0..world.size()).filter(|target| *target != world.rank()) {
        let epoch = window.lock_exclusive(target).wait().unwrap();
        epoch.put(0, &vec![u64::MAX; len]).unwrap();
        epoch.unlock().wait().unwrap();
    }
    window.local().write(len / 2, &[u64::MAX]).unwrap();
    world.barrier().wait().unwrap();
    assert_eq!(window.local().read(0..len), vec![u64::MAX; len]);
}

/// All memory is zero, as its own rank and its peers see it.
fn assert_new(window: &Window<u64>) {
    let (world, len) = (window.world(), window.len(0));
    assert_eq!(window.local().read(0..len), vec![0; len], "rank {} sees old contents", world.rank());
    let next = (world.rank() + 1) % world.size();
    let epoch = window.lock_shared(next).wait().unwrap();
    let mut seen = vec![1; len];
    epoch.get(0, &mut seen).wait().unwrap();
    assert_eq!(seen, vec![0; len], "rank {} sees old contents of rank {next}", world.rank());
    epoch.unlock().wait().unwrap();
    world.barrier().wait().unwrap();
}

/// Over a card such an operation breaks the connection.
fn may_be_late(world: &World) -> bool {
    world.fabric().capabilities().memory_survives
}

#[test]
fn a_kept_epoch_reaches_no_later_window() {
    ranks(3, |world| {
        if !may_be_late(&world) {
            return eprintln!("a_kept_epoch_reaches_no_later_window: NOT RUN, its writes are errors here");
        }
        for len in [1, 512, 9000, 70_000] {
            let old = window(&world, len);
            fill(&old);
            // Rank 1 keeps a handle, locks that it holds when the window ends, and direct access.
            let kept = (world.rank() == 1).then(|| old.clone());
            let epochs = kept.iter().flat_map(|kept| [0, 2].map(|target| kept.lock_exclusive(target).wait().unwrap()));
            let epochs: Vec<_> = epochs.collect();
            let directs = kept.iter().flat_map(|kept| [0, 2].map(|target| kept.direct(target).unwrap()));
            let directs: Vec<_> = directs.collect();
            world.barrier().wait().unwrap();
            old.close().wait().unwrap();
            for _ in 0..5 {
                let (new, other) = (window(&world, len), window(&world, len));
                for late in &epochs {
                    let error = late.put(0, &vec![5; len]).unwrap_err();
                    assert_eq!(error.kind(), Some(FaultKind::Closed), "{error}");
                }
                directs.iter().for_each(|late| late.write(0, &vec![5; len]).unwrap());
                world.barrier().wait().unwrap();
                assert_new(&new);
                assert_new(&other);
                other.close().wait().unwrap();
                new.close().wait().unwrap();
            }
            // The lock words are the old ones, too.
            for late in directs {
                let mut seen = vec![0; len];
                late.read_into(0, &mut seen).unwrap();
                assert_eq!(seen, vec![5; len]);
            }
            epochs.into_iter().for_each(|late| drop(late.unlock().wait()));
        }
    });
}

#[test]
fn a_thousand_windows_at_the_same_time_and_again() {
    ranks(2, |world| {
        let counts = if may_be_late(&world) { [1000, 200] } else { [40, 40] };
        let other = 1 - world.rank();
        for (round, count) in (0_u64..).zip(counts) {
            let windows: Vec<_> = (0..count).map(|_| window(&world, 3)).collect();
            for (number, window) in (1_u64..).zip(&windows) {
                let epoch = window.lock_exclusive(other).wait().unwrap();
                let old = epoch.fetch_add(1, number + round).wait().unwrap();
                assert_eq!(old, 0, "window {number}");
                epoch.unlock().wait().unwrap();
            }
            world.barrier().wait().unwrap();
            for (number, window) in (1_u64..).zip(&windows) {
                assert_eq!(window.local().read(0..3), [0, number + round, 0], "window {number}");
            }
            windows.into_iter().for_each(|window| window.close().wait().unwrap());
        }
    });
}

#[test]
fn windows_with_all_their_pages() {
    ranks(2, |world| {
        for len in [1, 100, 100_000, 1 << 20] {
            let window = Window::<u64>::builder().populate().allocate(&world, len).wait().unwrap();
            assert_new(&window);
            fill(&window);
            window.close().wait().unwrap();
        }
        let error = Window::<u64>::builder().populate().allocate(&world, 1 << 44).wait().map(drop).unwrap_err();
        assert!(error.to_string().starts_with("create window"), "{error}");
        window(&world, 8).close().wait().unwrap();
    });
}
