//! Operations on user memory.

use onesided::info::Path;
use onesided::{Op, Window, World};

use super::{all_go_well, expected_path};
use crate::jobs::{Role, ok};
use crate::model::{Model, same};
use crate::operations::try_all;
use crate::support::{DEADLINE, compute_until};

pub(super) const ROLES: &[Role] = &[("user memory: operations", operations), ("user memory: counts", counts)];

#[test]
fn every_operation_on_user_memory_follows_the_model() {
    all_go_well(2, "user memory: operations");
}

/// Rank 0 performs random operations on the vector of rank 1, of every type.
fn operations(world: World) {
    follows_the_model::<u8>(&world, 131, 20);
    follows_the_model::<i16>(&world, 61, 20);
    follows_the_model::<u32>(&world, 9, 20);
    follows_the_model::<f32>(&world, 33, 20);
    follows_the_model::<u64>(&world, 40, 20);
    follows_the_model::<f64>(&world, 7000, 2); // several requests for the whole
    follows_the_model::<onesided::Located<i32>>(&world, 20, 20);
    ok();
}

fn follows_the_model<T: Model>(world: &World, len: usize, cases: u32) {
    let window = Window::builder().name("tried").create(world, vec![T::zeroed(); len]).wait().unwrap();
    if world.rank() == 0 {
        try_all(&window, 1..2, cases);
        let mut all = vec![T::zeroed(); len];
        let epoch = window.lock_exclusive(1).wait().unwrap();
        for error in [
            epoch.put(len, &[all[0]]).unwrap_err(),
            epoch.fetch_and_op(len, all[0], Op::Replace).wait().unwrap_err(),
            epoch.accumulate(len - 1, &[all[0]; 2], Op::Replace).wait().unwrap_err(),
            epoch.get(1, &mut all).wait().unwrap_err(),
        ] {
            assert!(error.to_string().contains("elements there"), "{error}");
        }
        epoch.unlock().wait().unwrap();
    }
    let vector = window.close_into().wait().unwrap();
    assert_eq!(vector.len(), len);
    if world.rank() == 0 {
        assert!(vector.iter().all(|element| same(*element, T::zeroed())));
    }
}

#[test]
fn atomics_on_user_memory_are_atomic_while_the_target_computes() {
    all_go_well(4, "user memory: counts");
}

fn counts(world: World) {
    const TURNS: usize = 200;
    let (me, size) = (world.rank(), world.size());
    let window = Window::<u64>::builder().name("counts").create(&world, vec![0; 10]).wait().unwrap();
    let all = window.lock_all().wait().unwrap();
    if me == 0 {
        // Its helper thread serves meanwhile.
        let served = || window.local().read(0..1)[0] + 1 >= u64::from(size);
        assert!(compute_until(DEADLINE / 2, served), "atomics wait for a target that computes");
    }
    for turn in 0..TURNS {
        for target in 0..size {
            all.at(target).wait().unwrap().fetch_add(0, 1).wait().unwrap();
            all.at(target).wait().unwrap().accumulate(1, &[1, 2, 3], Op::Sum).wait().unwrap();
            let mut found = all.at(target).wait().unwrap().fetch_one(4).wait().unwrap();
            let mut done = turn % 10 != 0;
            while !done {
                let before = all.at(target).wait().unwrap().compare_and_swap(4, found, found + 1).wait().unwrap();
                (done, found) = (before == found, before);
            }
        }
    }
    // Handles that are open at the same time are waited for in any order.
    let one = all.at((me + 1) % size).wait().unwrap().fetch_add(5, 1);
    let two = all.at((me + 1) % size).wait().unwrap().fetch_add(5, 1);
    two.wait().unwrap();
    one.wait().unwrap();
    all.at((me + 1) % size).wait().unwrap().put(6 + me as usize % 4, &[7]).unwrap();
    let mut seen = [0];
    all.at((me + 1) % size).wait().unwrap().get(6 + me as usize % 4, &mut seen).wait().unwrap();
    assert_eq!(seen, [7]);
    let next = (me + 1) % size;
    let (path, paths) = (expected_path(&window, next), window.paths(next));
    if path == Path::ProcessVm {
        assert_eq!(paths.of(path), 2, "{paths}");
    } else {
        assert!(paths.of(path) > 2, "{paths}"); // the agent is the helper thread, too
    }
    assert_eq!(paths.of(Path::Cpu), 0, "{paths}");
    assert!(paths.of(Path::Helper) >= 3 * TURNS as u64 + 2, "{paths}");
    let here = window.paths(me);
    assert!(here.of(Path::Helper) == 0 && here.of(Path::Cpu) >= 3 * TURNS as u64, "{here}");
    all.unlock_all().wait().unwrap();
    let vector = window.close_into().wait().unwrap();
    let turns = TURNS as u64 * u64::from(size);
    assert_eq!(vector[..6], [turns, turns, 2 * turns, 3 * turns, turns / 10, 2]);
    assert_eq!(vector[6..].iter().sum::<u64>(), 7);
    ok();
}
