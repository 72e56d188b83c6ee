//! Fields of records against a sequential model: in allocated memory, and in user memory of threads
//! and of processes.

use bytemuck::{Pod, Zeroable};
use onesided::WindowError as Error;
use onesided::info::Path;
use onesided::{Access, Any, Field, FieldAccess, Fields, Located, Op, Shape, Window, World, field};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::jobs::{self, Role, ok};
use crate::model::Model;
use crate::support::ranks;

pub(crate) const ROLES: &[Role] = &[("fields: operations", operations), ("fields: many", many)];

/// 56 bytes: two words and more, halves, and fields that share a word.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Particle {
    place: [f64; 3],
    mass: f32,
    kind: u32,
    best: Located<i32>,
    flags: [u8; 8],
    home: Home,
}

#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Home {
    cell: u32,
    level: i16,
    rest: [u8; 2],
}

/// 13 bytes without padding.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C, packed)]
struct Odd {
    first: u8,
    number: u64,
    last: [u16; 2],
}

const PLACE: Field<Particle, [f64; 3]> = field!(Particle, place);
const HEIGHT: Field<Particle, f64> = PLACE.element(2);
const MASS: Field<Particle, f32> = field!(Particle, mass);
const KIND: Field<Particle, u32> = field!(Particle, kind);
const BEST: Field<Particle, Located<i32>> = field!(Particle, best);
const FLAG: Field<Particle, u8> = field!(Particle, flags).element(5);
const LEVEL: Field<Particle, i16> = field!(Particle, home).then(field!(Home, level));

#[test]
fn a_field_is_where_the_compiler_puts_it() {
    let mut particle = Particle::zeroed();
    particle.home.level = -3;
    let at = LEVEL.offset();
    assert_eq!(bytemuck::bytes_of(&particle)[at..at + 2], (-3_i16).to_ne_bytes());
    assert_eq!(field!(Particle, home.level).offset(), at);
    assert_eq!((HEIGHT.offset(), MASS.offset(), FLAG.offset()), (16, 24, 45));
    assert_eq!((field!(Odd, number).offset(), field!(Odd, last).element(1).offset()), (1, 11));
    assert_eq!(format!("{:?}", field!(Home, cell)), format!("u32 at byte 0 of {}", std::any::type_name::<Home>()));
    assert!(std::panic::catch_unwind(|| field!(Odd, last).element(2)).is_err());
}

/// Records at each rank.
const LEN: usize = 19;

#[derive(Clone, Debug)]
enum Step {
    Mass(Places, Vec<f32>),
    Level(Places, Vec<i16>),
    /// Fields of four types, not in the order of the record.
    Several(Places, Vec<(u8, f32, i32)>),
    Whole(Places, Vec<f64>),
    Sum(Places, Vec<f64>, bool),
    Kind(Places, usize, Vec<u32>, bool),
    Best(Places, bool, Vec<i32>),
    Fetch(usize, usize, i16),
    Swap(usize, bool, u8),
}

/// Disjoint indices, or a vector of them.
#[derive(Clone, Debug)]
enum Places {
    Blocks(Vec<usize>),
    Vector(usize, usize, usize),
}

impl Places {
    fn shape(&self) -> Shape<'_> {
        match *self {
            Self::Blocks(ref starts) => Shape::Blocks { block: 1, starts },
            Self::Vector(count, block, stride) => Shape::Vector { count, block, stride },
        }
    }
}

fn places() -> impl Strategy<Value = Places> {
    prop_oneof![
        prop::sample::subsequence((0..LEN).collect::<Vec<_>>(), 0..=LEN).prop_shuffle().prop_map(Places::Blocks),
        (0_usize..4, 0_usize..3, 0_usize..3).prop_map(|(count, block, gap)| Places::Vector(count, block, block + gap)),
    ]
}

fn many_of<T: std::fmt::Debug + 'static>(one: impl Strategy<Value = T>) -> impl Strategy<Value = Vec<T>> {
    prop::collection::vec(one, LEN)
}

fn step() -> impl Strategy<Value = Step> {
    let number = || (-100_i16..100).prop_map(f32::from);
    let large = || (-100_i32..100).prop_map(f64::from);
    prop_oneof![
        (places(), many_of(number())).prop_map(|(places, values)| Step::Mass(places, values)),
        (places(), many_of(any::<i16>())).prop_map(|(places, values)| Step::Level(places, values)),
        (places(), many_of((any::<u8>(), number(), any::<i32>())))
            .prop_map(|(places, values)| Step::Several(places, values)),
        (places(), many_of(large())).prop_map(|(places, values)| Step::Whole(places, values)),
        (places(), many_of(large()), any::<bool>()).prop_map(|(places, values, back)| Step::Sum(places, values, back)),
        (places(), 0..Op::ALL.len(), many_of(u32::values()), any::<bool>())
            .prop_map(|(places, op, values, back)| Step::Kind(places, op, values, back)),
        (places(), any::<bool>(), many_of(any::<i32>()))
            .prop_map(|(places, max, values)| Step::Best(places, max, values)),
        (0..LEN, 0..Op::ALL.len(), any::<i16>()).prop_map(|(at, op, operand)| Step::Fetch(at, op, operand)),
        (0..LEN, any::<bool>(), any::<u8>()).prop_map(|(at, hits, new)| Step::Swap(at, hits, new)),
    ]
}

/// Puts values, and gets them again.
fn there_and_back<S: Fields<Particle>>(
    fields: FieldAccess<'_, Particle, S>,
    shape: Shape<'_>,
    values: &[S::Values],
    mut back: Vec<S::Values>,
) where
    S::Values: PartialEq + std::fmt::Debug,
{
    fields.put_shaped(0, shape, values).wait().unwrap();
    fields.get_shaped(0, shape, &mut back).wait().unwrap();
    assert_eq!(back, values);
}

/// Fetches, swaps and accumulates of one field.
fn combine<T: Model>(
    fields: FieldAccess<'_, Particle, Field<Particle, T>>,
    (shape, op, back): (Shape<'_>, Op, bool),
    operands: &[T],
    model: &mut [Particle],
    of: impl Fn(&mut Particle) -> &mut T,
) {
    let places: Vec<usize> = shape.runs().flatten().collect();
    let mut found = vec![T::zeroed(); operands.len()];
    let outcome = match back {
        true => fields.get_accumulate_shaped(0, shape, operands, &mut found, op).wait(),
        false => fields.accumulate_shaped(0, shape, operands, op).wait(),
    };
    if T::model(op, T::zeroed(), T::zeroed()).is_none() {
        return assert!(matches!(outcome, Err(Error::Type { .. })));
    }
    outcome.unwrap();
    for (at, (place, operand)) in places.into_iter().zip(operands).enumerate() {
        let element = of(&mut model[place]);
        assert!(!back || crate::model::same(found[at], *element));
        *element = T::model(op, *element, *operand).unwrap();
    }
}

fn try_step(epoch: &Access<'_, Particle, Any>, step: Step, model: &mut [Particle]) {
    fn each<V: Copy>(shape: Shape<'_>, values: &[V], mut put: impl FnMut(usize, V)) -> Vec<V> {
        let places: Vec<usize> = shape.runs().flatten().collect();
        places.iter().zip(values).for_each(|(place, value)| put(*place, *value));
        values[..places.len()].to_vec()
    }
    match step {
        Step::Mass(places, values) => {
            let values = each(places.shape(), &values, |at, value| model[at].mass = value);
            there_and_back(epoch.fields(MASS), places.shape(), &values, vec![0.0; values.len()]);
        }
        Step::Level(places, values) => {
            let values = each(places.shape(), &values, |at, value| model[at].home.level = value);
            there_and_back(epoch.fields(LEVEL), places.shape(), &values, vec![0; values.len()]);
        }
        Step::Several(places, values) => {
            let values: Vec<_> =
                values.into_iter().map(|(flag, mass, best)| (flag, mass, Located::new(best, 7))).collect();
            let values = each(places.shape(), &values, |at, (flag, mass, best)| {
                (model[at].flags[5], model[at].mass, model[at].best) = (flag, mass, best);
            });
            let empty = vec![(0, 0.0, Located::new(0, 0)); values.len()];
            there_and_back(epoch.fields((FLAG, MASS, BEST)), places.shape(), &values, empty);
        }
        Step::Whole(places, values) => {
            let values: Vec<_> = values.into_iter().map(|value| ([value; 3], value as u32)).collect();
            let values = each(places.shape(), &values, |at, (place, kind)| {
                (model[at].place, model[at].kind) = (place, kind);
            });
            there_and_back(epoch.fields((PLACE, KIND)), places.shape(), &values, vec![([0.0; 3], 0); values.len()]);
        }
        Step::Sum(places, values, back) => {
            let (shape, count) = (places.shape(), places.shape().count());
            combine(epoch.fields(HEIGHT), (shape, Op::Sum, back), &values[..count], model, |all| &mut all.place[2]);
        }
        Step::Kind(places, op, values, back) => {
            let (shape, count) = (places.shape(), places.shape().count());
            combine(epoch.fields(KIND), (shape, Op::ALL[op], back), &values[..count], model, |all| &mut all.kind);
        }
        Step::Best(places, max, values) => {
            let (shape, op) = (places.shape(), if max { Op::MaxLoc } else { Op::MinLoc });
            let values: Vec<_> = values[..shape.count()].iter().map(|value| Located::new(*value, 1)).collect();
            combine(epoch.fields(BEST), (shape, op, true), &values, model, |all| &mut all.best);
        }
        Step::Fetch(at, op, operand) => {
            let outcome = epoch.fields(LEVEL).fetch_and_op(at, operand, Op::ALL[op]).wait();
            let level = &mut model[at].home.level;
            match i16::model(Op::ALL[op], *level, operand) {
                Some(after) => assert_eq!(outcome.unwrap(), std::mem::replace(level, after)),
                None => assert!(outcome.is_err()),
            }
        }
        Step::Swap(at, hits, new) => {
            let flag = &mut model[at].flags[5];
            let expected = if hits { *flag } else { flag.wrapping_add(1) };
            let found = epoch.fields(FLAG).compare_and_swap(at, expected, new).wait().unwrap();
            assert_eq!(found, *flag);
            if hits {
                *flag = new;
            }
        }
    }
}

/// Steps on a rank's memory; after each the memory equals the model.
fn follows_the_model(window: &Window<Particle>, target: u32, cases: u32) {
    let config = Config { failure_persistence: None, ..Config::with_cases(cases) };
    let run = TestRunner::new(config).run(&prop::collection::vec(step(), 0..12), |steps| {
        let mut model = vec![Particle::zeroed(); LEN];
        let epoch = window.lock_exclusive(target).wait().unwrap();
        epoch.put(0, &model).unwrap();
        for step in steps {
            try_step(&epoch, step, &mut model);
            let mut all = vec![Particle::zeroed(); LEN];
            epoch.flush().wait().unwrap();
            epoch.get(0, &mut all).wait().unwrap();
            assert_eq!(all, model);
        }
        epoch.unlock().wait().unwrap();
        Ok(())
    });
    run.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn fields_follow_the_model() {
    ranks(2, |world| {
        let allocated = Window::<Particle>::allocate(&world, LEN).wait().unwrap();
        let created = Window::create(&world, vec![Particle::zeroed(); LEN]).wait().unwrap();
        if world.rank() == 0 {
            for target in 0..2 {
                follows_the_model(&allocated, target, 100);
                follows_the_model(&created, target, 50);
            }
        }
        world.barrier().wait().unwrap();
        created.close().wait().unwrap();
        allocated.close().wait().unwrap();
    });
}

#[test]
fn fields_of_another_process_follow_the_model() {
    for word in ["on", "off"] {
        for role in ["fields: operations", "fields: many"] {
            let ended = jobs::start_under(2, role, ("ONESIDED_PROCESS_VM", word)).wait();
            assert_eq!((ended.code, ended.ok().len()), (0, 2), "{role} {word}: {ended:?}");
        }
    }
}

fn operations(world: World) {
    let created = Window::create(&world, vec![Particle::zeroed(); LEN]).wait().unwrap();
    if world.rank() == 0 {
        follows_the_model(&created, 1, 20);
    }
    world.barrier().wait().unwrap();
    created.close().wait().unwrap();
    ok();
}

/// More pieces, and more bytes, than any message or system call takes; the bytes between the fields
/// stay.
fn many(world: World) {
    const LEN: usize = 30_000;
    let window = Window::create(&world, vec![Odd::zeroed(); LEN]).wait().unwrap();
    if world.rank() == 0 {
        let epoch = window.lock_exclusive(1).wait().unwrap();
        let numbers: Vec<u64> = (0..LEN as u64).map(|at| at << 32 | 5).collect();
        epoch.fields(field!(Odd, number)).put(0, &numbers).wait().unwrap();
        let others = Shape::Vector { count: LEN / 2, block: 1, stride: 2 };
        let (first, last) = (field!(Odd, first), field!(Odd, last).element(1));
        let pairs: Vec<(u16, u8)> = (0..LEN as u16 / 2).map(|at| (at, 9)).collect();
        epoch.fields((last, first)).put_shaped(1, others, &pairs).wait().unwrap();
        let mut back = vec![Odd::zeroed(); LEN];
        epoch.get(0, &mut back).wait().unwrap();
        for (at, odd) in back.iter().enumerate() {
            let (touched, number) = (at % 2 == 1, odd.number);
            assert_eq!(number, numbers[at]);
            assert_eq!((odd.first, odd.last), if touched { (9, [0, at as u16 / 2]) } else { (0, [0, 0]) });
        }
        let mut got = vec![(0, 0); LEN / 2];
        epoch.fields((last, first)).get_shaped(1, others, &mut got).wait().unwrap();
        assert_eq!(got, pairs);
        let long = Shape::Vector { count: 3, block: 7000, stride: 9000 };
        let mut blocks = vec![Odd::zeroed(); 21_000];
        epoch.get_shaped(2, long, &mut blocks).wait().unwrap();
        assert!(long.runs().flatten().zip(&blocks).all(|(at, odd)| *odd == back[at + 2]));
        blocks.iter_mut().for_each(|odd| odd.first = 77);
        epoch.put_shaped(2, long, &blocks).wait().unwrap();
        epoch.get(0, &mut back).wait().unwrap();
        let touched = |at: usize| at >= 2 && (at - 2) % 9000 < 7000 && at - 2 < 25_000;
        assert!(back.iter().enumerate().all(|(at, odd)| (odd.first == 77) == touched(at)));
        assert_eq!(window.paths(1).of(Path::Card), 0);
        epoch.unlock().wait().unwrap();
    }
    world.barrier().wait().unwrap();
    window.close().wait().unwrap();
    ok();
}

#[test]
fn fields_out_of_range_are_refused_and_nothing_is_moved() {
    ranks(1, |world| {
        let window = Window::<Odd>::builder().name("odd").allocate(&world, 10).wait().unwrap();
        let epoch = window.lock_exclusive(0).wait().unwrap();
        let number = epoch.fields(field!(Odd, number));
        let error = number.put(8, &[1, 2, 3]).wait().unwrap_err().to_string();
        assert_eq!(error, "put of 3 elements at 8 on rank 0 of window \"odd\": it has 10 elements there");
        let error = number.put_shaped(0, Shape::Row(2), &[1]).wait().unwrap_err().to_string();
        assert_eq!(error, "put_shaped on rank 0 of window \"odd\": 1 element given, 2 expected");
        let mut into = [5; 3];
        assert!(number.get(usize::MAX, &mut into).wait().is_err());
        assert!(number.get_shaped(0, Shape::Row(2), &mut into).wait().is_err());
        assert_eq!(into, [5; 3]);
        // An offset that no atomic of eight bytes can have.
        for error in [
            number.accumulate(0, &[1], Op::Sum).wait().unwrap_err(),
            number.fetch_and_op(3, 1, Op::Sum).wait().unwrap_err(),
            number.compare_and_swap(3, 0, 1).wait().unwrap_err(),
        ] {
            let Error::Operation { fault, .. } = &error else { panic!("{error}") };
            assert_eq!(fault.kind(), onesided::FaultKind::Misaligned, "{error}");
        }
        let first = epoch.fields(field!(Odd, first));
        assert_eq!(first.fetch_and_op(9, 3, Op::Max).wait().unwrap(), 0);
        assert_eq!(first.fetch_add(9, 4).wait().unwrap(), 3);
        assert!(matches!(first.fetch_and_op(10, 3, Op::Max).wait(), Err(Error::Range { .. })));
        let mut found = [0; 2];
        first.get_accumulate(8, &[], &mut found, Op::NoOp).wait().unwrap();
        assert_eq!(found, [0, 7]);
        assert!(matches!(first.get_accumulate(8, &[1], &mut found, Op::Sum).wait(), Err(Error::Lengths { .. })));
        assert!(matches!(first.accumulate(8, &[1; 3], Op::Sum).wait(), Err(Error::Range { .. })));
        epoch.unlock().wait().unwrap();
        let mut expected = [Odd::zeroed(); 10];
        expected[9].first = 7;
        assert_eq!(window.local().read(0..10), expected);
        window.close().wait().unwrap();
    });
}
