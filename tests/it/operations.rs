//! Every operation against a sequential model.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use onesided::{Located, Op, Shape, Window};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::model::{Model, same};
use crate::support::ranks;

/// Elements at each rank: with elements of one byte a few words and a rest.
const LEN: usize = 37;

#[derive(Clone, Debug)]
enum Step<T> {
    Put(usize, Vec<T>),
    Get(usize, usize),
    Fetch(usize, usize, T),
    /// Compares expected and actual values.
    Swap(usize, bool, T),
    PutShaped(Vec<Range<usize>>, Vec<T>),
    GetShaped(Vec<Range<usize>>),
    AccumulateShaped(Vec<Range<usize>>, usize, Vec<T>),
    Accumulate(usize, usize, Vec<T>),
    GetAccumulate(usize, usize, Vec<T>),
    Flush,
}

/// Disjoint, because overlapping ranges have no order; in any order, and some of them empty.
fn ranges(len: usize) -> impl Strategy<Value = Vec<Range<usize>>> {
    let ranges = prop::collection::vec(0..=len, 0..12).prop_map(|mut cuts| {
        cuts.sort_unstable();
        cuts.chunks_exact(2).map(|ends| ends[0]..ends[1]).collect::<Vec<_>>()
    });
    ranges.prop_shuffle()
}

fn step<T: Model>(len: usize) -> impl Strategy<Value = Step<T>> {
    let row = move || {
        (0..=len, prop::collection::vec(T::values(), 0..=len)).prop_map(move |(offset, mut values)| {
            values.truncate(len - offset); // often to the very end
            (offset, values)
        })
    };
    let many = move || prop::collection::vec(T::values(), len);
    prop_oneof![
        (ranges(len), many()).prop_map(|(ranges, values)| Step::PutShaped(ranges, values)),
        ranges(len).prop_map(Step::GetShaped),
        (ranges(len), 0..Op::ALL.len(), many())
            .prop_map(|(ranges, op, values)| Step::AccumulateShaped(ranges, op, values)),
        row().prop_map(|(offset, values)| Step::Put(offset, values)),
        (row(), 0..Op::ALL.len()).prop_map(|((offset, values), op)| Step::Accumulate(offset, op, values)),
        (row(), 0..Op::ALL.len()).prop_map(|((offset, values), op)| Step::GetAccumulate(offset, op, values)),
        (0..=len, 0..=len).prop_map(move |(offset, count)| Step::Get(offset, count.min(len - offset))),
        (0..len, 0..Op::ALL.len(), T::values()).prop_map(|(offset, op, operand)| Step::Fetch(offset, op, operand)),
        (0..len, any::<bool>(), T::values()).prop_map(|(offset, hits, new)| Step::Swap(offset, hits, new)),
        Just(Step::Flush),
    ]
}

/// One rank performs steps on the other's memory and on its own.
fn follows_the_model<T: Model>() {
    ranks(2, |world| {
        let window = Window::<T>::builder().name("tried").allocate(&world, LEN).wait().unwrap();
        if world.rank() == 0 {
            try_all(&window, 0..2, 40);
        }
        world.barrier().wait().unwrap();
        window.close().wait().unwrap();
    });
}

/// Steps on the memory of these ranks.
pub(crate) fn try_all<T: Model>(window: &Window<T>, targets: Range<u32>, cases: u32) {
    let len = window.len(1);
    let config = Config { failure_persistence: None, ..Config::with_cases(cases) };
    let strategy = (targets, prop::collection::vec(step::<T>(len), 0..40));
    let run = TestRunner::new(config).run(&strategy, |(target, steps)| {
        try_steps(window, target, steps);
        Ok(())
    });
    run.unwrap_or_else(|error| panic!("{}: {error}", std::any::type_name::<T>()));
}

/// The result of an operation on a row of elements; `None` where the operation does not exist.
fn refused(operation: &str, op: usize, target: u32) -> String {
    format!("{operation} ({:?}) on rank {target} of window \"tried\": not for elements of type ", Op::ALL[op])
}

fn modelled<T: Model>(op: Op, elements: &[T], operands: &[T]) -> Option<Vec<T>> {
    T::model(op, T::zeroed(), T::zeroed())?;
    elements.iter().zip(operands).map(|(element, operand)| T::model(op, *element, *operand)).collect()
}

fn splice<T: Model>(model: &mut [T], after: Option<Vec<T>>) {
    for (element, after) in model.iter_mut().zip(after.unwrap_or_default()) {
        *element = after;
    }
}

fn try_steps<T: Model>(window: &Window<T>, target: u32, steps: Vec<Step<T>>) {
    let len = window.len(target);
    let mut model = vec![T::zeroed(); len];
    let epoch = window.lock_exclusive(target).wait().unwrap();
    epoch.put(0, &model).unwrap();
    for step in steps {
        match step {
            Step::Put(offset, values) => {
                epoch.put(offset, &values).unwrap();
                model[offset..offset + values.len()].copy_from_slice(&values);
            }
            Step::Get(offset, count) => {
                let mut values = vec![T::zeroed(); count];
                epoch.get(offset, &mut values).wait().unwrap();
                assert!(values.iter().zip(&model[offset..]).all(|(got, expected)| same(*got, *expected)));
            }
            Step::PutShaped(ranges, values) => {
                let shape = Shape::Indexed(&ranges);
                epoch.put_shaped(0, shape, &values[..shape.count()]).wait().unwrap();
                let places = ranges.iter().cloned().flatten();
                places.zip(values).for_each(|(place, value)| model[place] = value);
            }
            Step::GetShaped(ranges) => {
                let places: Vec<usize> = ranges.iter().cloned().flatten().collect();
                let mut values = vec![T::zeroed(); places.len()];
                epoch.get_shaped(0, Shape::Indexed(&ranges), &mut values).wait().unwrap();
                assert!(values.iter().zip(places).all(|(got, place)| same(*got, model[place])));
            }
            Step::AccumulateShaped(ranges, op, operands) => {
                let places: Vec<usize> = ranges.iter().cloned().flatten().collect();
                let shape = Shape::Indexed(&ranges);
                let done = epoch.accumulate_shaped(0, shape, &operands[..places.len()], Op::ALL[op]).wait();
                assert_eq!(done.is_ok(), T::model(Op::ALL[op], T::zeroed(), T::zeroed()).is_some());
                for (place, operand) in places.into_iter().zip(operands) {
                    model[place] = T::model(Op::ALL[op], model[place], operand).unwrap_or(model[place]);
                }
            }
            Step::Accumulate(offset, op, operands) => {
                let done = epoch.accumulate(offset, &operands, Op::ALL[op]).wait();
                let after = modelled(Op::ALL[op], &model[offset..], &operands);
                assert_eq!(done.is_ok(), after.is_some());
                splice(&mut model[offset..], after);
            }
            Step::GetAccumulate(offset, op, operands) => {
                let mut before = vec![T::zeroed(); operands.len()];
                let done = epoch.get_accumulate(offset, &operands, &mut before, Op::ALL[op]).wait();
                match modelled(Op::ALL[op], &model[offset..], &operands) {
                    Some(after) => {
                        done.unwrap();
                        assert!(before.iter().zip(&model[offset..]).all(|(got, expected)| same(*got, *expected)));
                        splice(&mut model[offset..], Some(after));
                    }
                    None => {
                        let text = done.unwrap_err().to_string();
                        assert!(text.starts_with(&refused("get_accumulate", op, target)));
                    }
                }
            }
            Step::Fetch(offset, op, operand) => {
                let fetched = epoch.fetch_and_op(offset, operand, Op::ALL[op]).wait();
                match T::model(Op::ALL[op], model[offset], operand) {
                    Some(after) => {
                        assert!(same(fetched.unwrap(), model[offset]));
                        model[offset] = after;
                    }
                    None => {
                        let text = fetched.unwrap_err().to_string();
                        assert!(text.starts_with(&refused("fetch_and_op", op, target)));
                    }
                }
            }
            Step::Swap(offset, hits, new) => {
                // Not even the neighbour's bits may matter.
                let expected = if hits { model[offset] } else { model[(offset + 1) % len] };
                let found = epoch.compare_and_swap(offset, expected, new).wait().unwrap();
                assert!(same(found, model[offset]));
                if bytemuck::bytes_of(&expected) == bytemuck::bytes_of(&found) {
                    model[offset] = new;
                }
            }
            Step::Flush => epoch.flush().wait().unwrap(),
        }
    }
    let mut all = vec![T::zeroed(); len];
    epoch.get(0, &mut all).wait().unwrap();
    epoch.unlock().wait().unwrap();
    assert!(all.iter().zip(&model).all(|(got, expected)| same(*got, *expected)), "{all:?} {model:?}");
}

#[test]
fn integers_follow_the_model() {
    follows_the_model::<u8>();
    follows_the_model::<i8>();
    follows_the_model::<u16>();
    follows_the_model::<i16>();
    follows_the_model::<u32>();
    follows_the_model::<i32>();
    follows_the_model::<u64>();
    follows_the_model::<i64>();
}

#[test]
fn floats_follow_the_model() {
    follows_the_model::<f32>();
    follows_the_model::<f64>();
}

#[test]
fn located_values_follow_the_model() {
    follows_the_model::<Located<u32>>();
    follows_the_model::<Located<i32>>();
    follows_the_model::<Located<f32>>();
}

#[test]
fn a_local_range_out_of_bounds_panics_before_allocating() {
    ranks(1, |world| {
        let window = Window::<u64>::allocate(&world, LEN).wait().unwrap();
        assert!(window.local().read(LEN..LEN).is_empty());
        let reversed = Range { start: 3, end: 1 };
        for range in [0..1 << 55, 0..usize::MAX, 0..LEN + 1, LEN + 1..LEN + 1, reversed] {
            let read = catch_unwind(AssertUnwindSafe(|| window.local().read(range.clone())));
            assert!(read.is_err(), "{range:?}");
        }
        window.close().wait().unwrap();
    });
}
