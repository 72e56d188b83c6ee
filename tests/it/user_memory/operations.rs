//! Operations on user memory.

use onesided::info::Path;
use onesided::{Op, Shape, Window, World};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, TestRunner};

use super::{all_go_well, expected_path};
use crate::jobs::{Role, ok};
use crate::model::{Model, same};
use crate::support::{DEADLINE, compute_until};

pub(super) const ROLES: &[Role] = &[("user memory: operations", operations), ("user memory: counts", counts)];

#[test]
fn every_operation_on_user_memory_follows_the_model() {
    all_go_well(2, "user memory: operations");
}

/// Rank 0 performs random operations on the vector of rank 1, and on a copy, for every type.
fn operations(world: World) {
    random_operations::<u8>(&world, 131);
    random_operations::<i16>(&world, 61);
    random_operations::<u32>(&world, 9);
    random_operations::<f32>(&world, 33);
    random_operations::<u64>(&world, 40);
    random_operations::<f64>(&world, 7000); // several requests for the whole
    random_operations::<onesided::Located<i32>>(&world, 20);
    ok();
}

fn random_operations<T: Model>(world: &World, len: usize) {
    let mut runner = TestRunner::deterministic();
    let mut draw = |below: usize| (0..below).new_tree(&mut runner).unwrap().current();
    let mut values = TestRunner::new(Config::default());
    let mut value = || T::values().new_tree(&mut values).unwrap().current();
    let first: Vec<T> = vec![T::zeroed(); len];
    let window = Window::create(world, first.clone()).wait().unwrap();
    let mut model = first;
    if world.rank() == 0 {
        let epoch = window.lock_exclusive(1).wait().unwrap();
        for _ in 0..120 {
            let at = draw(len);
            let count = draw(len - at) + 1;
            let operands: Vec<T> = (0..count).map(|_| value()).collect();
            let op = Op::ALL[draw(Op::ALL.len())];
            let mut found = vec![T::zeroed(); count];
            match draw(6) {
                0 => {
                    epoch.put(at, &operands).unwrap();
                    model[at..at + count].copy_from_slice(&operands);
                }
                1 => {
                    epoch.get(at, &mut found).wait().unwrap();
                    assert!(found.iter().zip(&model[at..]).all(|(found, model)| same(*found, *model)));
                }
                2 => {
                    let expected = if draw(2) == 0 { model[at] } else { operands[0] };
                    let before = epoch.compare_and_swap(at, expected, *operands.last().unwrap()).wait().unwrap();
                    assert!(same(before, model[at]));
                    if bytemuck::bytes_of(&before) == bytemuck::bytes_of(&expected) {
                        model[at] = *operands.last().unwrap();
                    }
                }
                3 if T::model(op, operands[0], operands[0]).is_some() => {
                    let before = epoch.fetch_and_op(at, operands[0], op).wait().unwrap();
                    assert!(same(before, model[at]), "{op:?}: {before:?} {:?}", model[at]);
                    model[at] = T::model(op, model[at], operands[0]).unwrap();
                }
                4 => {
                    // Every third element, as many as there are.
                    let (block, stride) = (1, 3);
                    let shape = Shape::Vector { count: count.div_ceil(stride), block, stride };
                    let outcome = epoch.accumulate_shaped(at, shape, &operands[..count.div_ceil(stride)], op).wait();
                    if T::model(op, operands[0], operands[0]).is_none() {
                        assert!(outcome.unwrap_err().to_string().contains("not for elements"));
                        continue;
                    }
                    outcome.unwrap();
                    for (number, operand) in operands[..count.div_ceil(stride)].iter().enumerate() {
                        let element = &mut model[at + stride * number];
                        *element = T::model(op, *element, *operand).unwrap();
                    }
                }
                _ => {
                    let given = if op == Op::NoOp { &[][..] } else { &operands };
                    let outcome = epoch.get_accumulate(at, given, &mut found, op).wait();
                    if T::model(op, operands[0], operands[0]).is_none() {
                        outcome.unwrap_err();
                        continue;
                    }
                    outcome.unwrap();
                    for ((found, element), operand) in found.iter().zip(&mut model[at..]).zip(&operands) {
                        assert!(same(*found, *element), "{op:?}");
                        *element = T::model(op, *element, *operand).unwrap();
                    }
                }
            }
        }
        let mut all = vec![T::zeroed(); len];
        epoch.get(0, &mut all).wait().unwrap();
        assert!(all.iter().zip(&model).all(|(seen, model)| same(*seen, *model)));
        for error in [
            epoch.put(len, &[model[0]]).unwrap_err(),
            epoch.get(1, &mut all).wait().unwrap_err(),
            epoch.fetch_and_op(len, model[0], Op::Replace).wait().unwrap_err(),
            epoch.accumulate(len - 1, &[model[0]; 2], Op::Replace).wait().unwrap_err(),
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
