//! Windows over the user's memory, between processes: by process_vm, and by the owner's helper thread.

use std::time::{Duration, Instant};

use onesided::{Error, FaultKind, Op, Path, Place, Shape, Window, World, fabric};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, TestRunner};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

use crate::jobs::{self, Role, ok, send, state};
use crate::model::{Model, same};
use crate::support::{compute, eventually};

pub(crate) const ROLES: &[Role] = &[
    ("lent: operations", operations),
    ("lent: counts", counts),
    ("lent: taken back", taken_back),
    ("lent: copier dies", copier_dies),
    ("lent: copier stops", copier_stops),
    ("lent: owner dies", owner_dies),
    ("lent: owner stops", owner_stops),
    ("lent: list", list),
    ("lent: end fails", end_fails),
    ("lent: many", many),
    ("lent: owner cannot answer", owner_cannot_answer),
];

/// With copies from process to process, where the system allows them, and without.
const BOTH: [(&str, &str); 2] = [("ONESIDED_PROCESS_VM", "on"), ("ONESIDED_PROCESS_VM", "off")];

#[track_caller]
fn all_go_well(ranks: u32, role: &str) {
    for path in BOTH {
        let ended = jobs::start_under(ranks, role, path).wait();
        assert_eq!((ended.code, ended.ok().len()), (0, ranks as usize), "{path:?}: {ended:?}");
    }
}

/// Which path peers' puts and gets take here.
fn expected_path(window: &Window<u64>, target: u32) -> Path {
    let helper = std::env::var("ONESIDED_PROCESS_VM").is_ok_and(|word| word == "off");
    let works = fabric::shm::process_vm_works().is_ok();
    let path = if helper || !works { Path::Helper } else { Path::ProcessVm };
    let told = window.explain(target);
    assert!(told.contains(if path == Path::Helper { "helper thread" } else { "by process_vm" }), "{told}");
    path
}

#[test]
fn every_operation_on_lent_memory_does_what_the_model_does() {
    all_go_well(2, "lent: operations");
}

/// Rank 0 does this and that to the vector of rank 1, and to a copy; a part of every type.
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
                    // Every third element, so far as there are any.
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
fn atomics_on_lent_memory_are_atomic_and_need_nothing_of_a_computing_owner() {
    all_go_well(4, "lent: counts");
}

fn counts(world: World) {
    const TURNS: usize = 200;
    let (me, size) = (world.rank(), world.size());
    let window = Window::<u64>::builder().name("counts").create(&world, vec![0; 10]).wait().unwrap();
    let all = window.lock_all().wait().unwrap();
    if me == 0 {
        compute(Duration::from_millis(300)); // its helper serves meanwhile
    }
    let begin = Instant::now();
    for turn in 0..TURNS {
        for target in 0..size {
            all.at(target).unwrap().fetch_add(0, 1).wait().unwrap();
            all.at(target).unwrap().accumulate(1, &[1, 2, 3], Op::Sum).wait().unwrap();
            let mut found = all.at(target).unwrap().fetch_one(4).wait().unwrap();
            let mut done = turn % 10 != 0;
            while !done {
                let before = all.at(target).unwrap().compare_and_swap(4, found, found + 1).wait().unwrap();
                (done, found) = (before == found, before);
            }
        }
        if turn == 0 && me != 0 {
            assert!(begin.elapsed() < Duration::from_secs(10));
        }
    }
    // Handles that are open at the same time are waited for in any order.
    let one = all.at((me + 1) % size).unwrap().fetch_add(5, 1);
    let two = all.at((me + 1) % size).unwrap().fetch_add(5, 1);
    two.wait().unwrap();
    one.wait().unwrap();
    all.at((me + 1) % size).unwrap().put(6 + me as usize % 4, &[7]).unwrap();
    let mut seen = [0];
    all.at((me + 1) % size).unwrap().get(6 + me as usize % 4, &mut seen).wait().unwrap();
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

#[test]
fn memory_that_was_taken_back_is_an_error_for_peers() {
    all_go_well(3, "lent: taken back");
}

/// Rank 0's vector comes and goes; the others have places of it.
fn taken_back(world: World) {
    let places = Window::<u64>::allocate(&world, 4).wait().unwrap();
    let window = Window::<u64>::builder().name("loans").dynamic(&world).wait().unwrap();
    let tell = |what: u64| {
        for target in 0..world.size() {
            let epoch = places.lock_exclusive(target).wait().unwrap();
            epoch.put(0, &[what]).unwrap();
            epoch.unlock().wait().unwrap();
        }
    };
    for turn in 0..5_u64 {
        let mine = (world.rank() == 0).then(|| {
            let place = window.attach(vec![turn; 1000]).unwrap();
            tell(place.to_word());
            place
        });
        world.barrier().wait().unwrap();
        let place = Place::from_word(places.local().read(0..1)[0]);
        let epoch = window.lock_shared(0).wait().unwrap();
        let there = epoch.attached(place).wait().unwrap();
        let mut seen = [0; 3];
        there.get(500, &mut seen).wait().unwrap();
        assert_eq!(seen, [turn; 3]);
        world.barrier().wait().unwrap();
        there.put(world.rank() as usize, &[100 + turn]).unwrap();
        there.fetch_add(10, 1).wait().unwrap();
        world.barrier().wait().unwrap();
        if let Some(place) = mine {
            let vector = window.detach(place).wait().unwrap();
            assert_eq!(vector[..4], [100 + turn, 100 + turn, 100 + turn, turn]);
            assert_eq!((vector[10], vector.len()), (turn + 3, 1000));
        }
        world.barrier().wait().unwrap();
        let no_region = |error: Error| {
            assert_eq!(error.fault().map(|fault| fault.kind()), Some(FaultKind::NoSuchRegion), "{error}");
        };
        no_region(there.put(0, &[1]).unwrap_err().into());
        no_region(there.get(0, &mut seen).wait().unwrap_err().into());
        no_region(there.fetch_add(0, 1).wait().unwrap_err().into());
        epoch.unlock().wait().unwrap();
        world.barrier().wait().unwrap();
    }
    window.close().wait().unwrap();
    places.close().wait().unwrap();
    ok();
}

/// 32 MiB at rank 0 that rank 1 puts to, over and over, until it fails; who learns where it lies, and rank 1's process.
struct Copied {
    window: Window<u64>,
    board: Window<u64>,
}

const LONG: usize = 4 << 20;

impl Copied {
    fn new(world: &World) -> Self {
        let window = Window::<u64>::builder().name("copied").dynamic(world).wait().unwrap();
        let board = Window::<u64>::builder().name("board").allocate(world, 8).wait().unwrap();
        Self { window, board }
    }

    fn tell(&self, target: u32, at: usize, value: u64) {
        let epoch = self.board.lock_exclusive(target).wait().unwrap();
        epoch.put(at, &[value]).unwrap();
        epoch.unlock().wait().unwrap();
    }

    fn told(&self, at: usize) -> u64 {
        eventually(Duration::from_secs(10), "it is told", || self.board.local().read(at..at + 1)[0] != 0);
        self.board.local().read(at..at + 1)[0]
    }

    /// Rank 1: copies until the memory is taken back, or its owner ends.
    fn copy(&self) -> Error {
        let place = Place::from_word(self.told(0));
        let epoch = self.window.lock_shared(0).wait().unwrap();
        let there = epoch.attached(place).wait().unwrap();
        self.tell(0, 1, std::process::id().into());
        let bytes = vec![u64::MAX; LONG];
        let mut turn = 0;
        let error = loop {
            if let Err(error) = there.put(0, &bytes) {
                break error;
            }
            turn += 1;
            self.board.local().write(2, &[turn]).unwrap();
        };
        std::mem::forget(epoch); // its target may be gone
        error.into()
    }
}

#[test]
fn memory_comes_back_from_under_a_copier_that_dies() {
    for path in BOTH {
        let ended = jobs::start_under(2, "lent: copier dies", path).wait();
        assert_eq!(ended.ok(), [0], "{path:?}: {ended:?}");
    }
}

fn copier_dies(world: World) {
    let copied = Copied::new(&world);
    if world.rank() == 1 {
        panic!("{}", copied.copy()); // it is killed in the middle
    }
    let place = copied.window.attach(vec![1_u64; LONG]).unwrap();
    copied.tell(1, 0, place.to_word());
    let copier = copied.told(1);
    std::thread::sleep(Duration::from_millis(30));
    send(copier, Signal::KILL);
    let begin = Instant::now();
    let mut vector = copied.window.detach(place).wait().unwrap();
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    assert!(vector.iter().all(|element| *element == 1 || *element == u64::MAX));
    vector.fill(3);
    std::thread::sleep(Duration::from_millis(20));
    assert!(vector.iter().all(|element| *element == 3));
    eventually(Duration::from_secs(5), "it is seen to be dead", || !world.is_alive(1));
    ok();
}

#[test]
fn memory_does_not_come_back_while_a_stopped_copier_may_write_to_it() {
    all_go_well(2, "lent: copier stops");
}

fn copier_stops(world: World) {
    let copied = Copied::new(&world);
    if world.rank() == 1 {
        let error = copied.copy();
        assert_eq!(error.fault().map(|fault| fault.kind()), Some(FaultKind::NoSuchRegion), "{error}");
        copied.tell(0, 3, 1);
        ok();
        copied.told(4);
        return;
    }
    let place = copied.window.attach(vec![1_u64; LONG]).unwrap();
    copied.tell(1, 0, place.to_word());
    let copier = copied.told(1);
    std::thread::sleep(Duration::from_millis(20));
    send(copier, Signal::STOP);
    eventually(Duration::from_secs(5), "it stops", || state(copier) == Some('T'));
    // Where it was stopped, inside or outside, is chance: then the memory is back, or given up.
    let mut vector = match copied.window.detach(place).wait() {
        Ok(mut vector) => {
            vector.fill(3);
            Some(vector)
        }
        Err(error) => {
            assert!(error.is_timed_out(), "{error}");
            None
        }
    };
    send(copier, Signal::CONT);
    copied.told(3);
    if let Some(vector) = &mut vector {
        assert!(vector.iter().all(|element| *element == 3));
    }
    ok();
    copied.tell(1, 4, 1);
}

#[test]
fn a_copy_to_an_owner_that_dies_is_an_error() {
    for path in BOTH {
        let ended = jobs::start_under(2, "lent: owner dies", path).wait();
        assert_eq!(ended.ok(), [1], "{path:?}: {ended:?}");
    }
}

fn owner_dies(world: World) {
    let copied = Copied::new(&world);
    if world.rank() == 0 {
        let place = copied.window.attach(vec![1_u64; LONG]).unwrap();
        copied.tell(1, 0, place.to_word());
        copied.told(1);
        std::thread::sleep(Duration::from_millis(30));
        jobs::die();
    }
    let error = copied.copy();
    assert_eq!(error.fault().map(|fault| fault.kind()), Some(FaultKind::PeerDied), "{error}");
    eventually(Duration::from_secs(5), "it is seen to be dead", || !world.is_alive(0));
    let epoch = copied.window.lock_shared(0).wait();
    if let Ok(epoch) = epoch {
        let place = Place::from_word(copied.told(0));
        let there = epoch.attached(place).wait().unwrap();
        let died =
            |error: Error| assert_eq!(error.fault().map(|fault| fault.kind()), Some(FaultKind::PeerDied), "{error}");
        died(there.fetch_add(0, 1).wait().unwrap_err().into());
        died(there.accumulate(0, &[1; 9000], Op::Max).wait().unwrap_err().into());
        died(there.get(0, &mut [0]).wait().unwrap_err().into());
    }
    ok();
}

#[test]
fn a_stopped_owner_is_waited_for_or_not_needed() {
    all_go_well(2, "lent: owner stops");
}

/// Its memory is reached while it is stopped where the kernel copies; its helper answers when it goes on.
fn owner_stops(world: World) {
    let board = Window::<u64>::builder().name("board").allocate(&world, 2).wait().unwrap();
    let window = Window::<u64>::builder().name("stopped").create(&world, vec![5; 100]).wait().unwrap();
    if world.rank() == 0 {
        let epoch = board.lock_exclusive(1).wait().unwrap();
        epoch.put(0, &[std::process::id().into()]).unwrap();
        epoch.unlock().wait().unwrap();
    }
    world.barrier().wait().unwrap();
    if world.rank() == 1 {
        let owner = board.local().read(0..1)[0];
        let epoch = window.lock_exclusive(0).wait().unwrap();
        epoch.get(0, &mut [0]).wait().unwrap();
        send(owner, Signal::STOP);
        eventually(Duration::from_secs(5), "it stops", || state(owner) == Some('T'));
        if expected_path(&window, 0) == Path::ProcessVm {
            epoch.put(3, &[6]).unwrap();
            let mut seen = [0; 2];
            epoch.get(2, &mut seen).wait().unwrap();
            assert_eq!(seen, [5, 6]);
        }
        let mut fetch = epoch.fetch_add(3, 1);
        assert_eq!(fetch.test().unwrap(), None);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(fetch.test().unwrap(), None);
        send(owner, Signal::CONT);
        let before = fetch.wait().unwrap();
        assert!(before == 5 || before == 6);
        epoch.unlock().wait().unwrap();
    }
    window.close().wait().unwrap();
    board.close().wait().unwrap();
    ok();
}

#[test]
fn a_list_over_attached_memory_of_processes_has_every_node() {
    all_go_well(3, "lent: list");
}

/// Every rank pushes nodes to a list whose head is at rank 0; a node is `[next rank, next place, value]`.
fn list(world: World) {
    const NODES: u64 = 20;
    let head = Window::<u64>::builder().name("head").allocate(&world, 2).wait().unwrap();
    let nodes = Window::<u64>::builder().name("nodes").dynamic(&world).wait().unwrap();
    let mut mine = Vec::new();
    for number in 0..NODES {
        let value = u64::from(world.rank()) * NODES + number;
        let place = nodes.attach(vec![0, 0, value]).unwrap();
        let epoch = head.lock_exclusive(0).wait().unwrap();
        let mut first = [0; 2];
        epoch.get(0, &mut first).wait().unwrap();
        let own = nodes.lock_shared(world.rank()).wait().unwrap();
        own.attached(place).wait().unwrap().put(0, &first).unwrap();
        own.unlock().wait().unwrap();
        epoch.put(0, &[world.rank().into(), place.to_word()]).unwrap();
        epoch.unlock().wait().unwrap();
        mine.push(place);
    }
    world.barrier().wait().unwrap();
    let mut at = [0; 2];
    head.lock_shared(0).wait().unwrap().get(0, &mut at).wait().unwrap();
    let mut values = Vec::new();
    while !Place::from_word(at[1]).is_null() {
        let epoch = nodes.lock_shared(at[0] as u32).wait().unwrap();
        let mut node = [0; 3];
        epoch.attached(Place::from_word(at[1])).wait().unwrap().get(0, &mut node).wait().unwrap();
        values.push(node[2]);
        at = [node[0], node[1]];
        epoch.unlock().wait().unwrap();
    }
    values.sort_unstable();
    assert_eq!(values, (0..u64::from(world.size()) * NODES).collect::<Vec<_>>());
    world.barrier().wait().unwrap();
    for place in mine {
        assert_eq!(nodes.detach(place).wait().unwrap().len(), 3);
    }
    nodes.close().wait().unwrap();
    head.close().wait().unwrap();
    ok();
}

#[test]
fn an_owner_that_cannot_answer_is_an_error() {
    let ended = jobs::start(2, "lent: owner cannot answer").wait();
    assert_eq!((ended.code, ended.ok().len()), (0, 2), "{ended:?}");
}

/// Rank 0 has no descriptor for the memory in which rank 1 looks for the answer.
fn owner_cannot_answer(world: World) {
    let window = Window::<u64>::builder().name("mute").create(&world, vec![5; 10]).wait().unwrap();
    let before = getrlimit(Resource::Nofile);
    if world.rank() == 0 {
        setrlimit(Resource::Nofile, Rlimit { current: Some(1), ..before }).unwrap();
    }
    world.barrier().wait().unwrap();
    if world.rank() == 1 {
        let epoch = window.lock_shared(0).wait().unwrap();
        drop(epoch.fetch_add(3, 1)); // one that nobody waits for does not block the others
        let error = epoch.fetch_add(3, 1).wait().unwrap_err();
        assert_eq!(error.fault().map(|fault| fault.kind()), Some(FaultKind::NoDescriptors), "{error}");
        epoch.unlock().wait().unwrap();
    }
    world.barrier().wait().unwrap();
    if world.rank() == 0 {
        setrlimit(Resource::Nofile, before).unwrap();
    }
    world.barrier().wait().unwrap();
    if world.rank() == 1 {
        let epoch = window.lock_shared(0).wait().unwrap();
        assert_eq!(epoch.fetch_add(3, 1).wait().unwrap(), 5, "what was refused was not done");
        epoch.unlock().wait().unwrap();
    }
    window.close().wait().unwrap();
    ok();
}

#[test]
fn memory_that_comes_and_goes_takes_no_descriptors_of_those_who_meet_it() {
    let ended = jobs::start(2, "lent: many").wait();
    assert_eq!((ended.code, ended.ok().len()), (0, 2), "{ended:?}");
}

/// Rank 1 meets more memory of rank 0's than it may have files open.
fn many(world: World) {
    let places = Window::<u64>::allocate(&world, 1).wait().unwrap();
    let window = Window::<u64>::builder().name("many").dynamic(&world).wait().unwrap();
    setrlimit(Resource::Nofile, Rlimit { current: Some(60), ..getrlimit(Resource::Nofile) }).unwrap();
    for turn in 0..100 {
        let mine = (world.rank() == 0).then(|| {
            let place = if turn % 2 == 0 { window.attach(vec![turn; 10]) } else { window.attach_zeroed(10) }.unwrap();
            let epoch = places.lock_exclusive(1).wait().unwrap();
            epoch.put(0, &[place.to_word()]).unwrap();
            epoch.unlock().wait().unwrap();
            place
        });
        world.barrier().wait().unwrap();
        if mine.is_none() {
            let epoch = window.lock_shared(0).wait().unwrap();
            let place = Place::from_word(places.local().read(0..1)[0]);
            epoch.attached(place).wait().unwrap().put(3, &[turn + 1]).unwrap();
            epoch.unlock().wait().unwrap();
        }
        world.barrier().wait().unwrap();
        if let Some(place) = mine {
            assert_eq!(window.detach(place).wait().unwrap()[3], turn + 1);
        }
    }
    window.close().wait().unwrap();
    places.close().wait().unwrap();
    ok();
}

#[test]
fn a_slot_that_is_freed_is_another_threads_at_once() {
    onesided::threads(1, |world| {
        let window = Window::<u64>::builder().name("slots").dynamic(&world).wait().unwrap();
        let fill = window.attach_zeroed(1).unwrap();
        let others: Vec<_> = (0..254).map(|_| window.attach(vec![0]).unwrap()).collect();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..3000 {
                        let Ok(place) = window.attach(vec![7]) else { continue }; // the other has the only one
                        let epoch = window.lock_shared(0).wait().unwrap();
                        epoch.attached(place).wait().unwrap();
                        epoch.unlock().wait().unwrap();
                        assert_eq!(window.detach(place).wait().unwrap(), [7]);
                    }
                });
            }
        });
        others.into_iter().for_each(|place| drop(window.detach(place).wait().unwrap()));
        window.detach(fill).wait().unwrap();
        let clone = window.clone();
        window.close().wait().unwrap();
        let error = clone.attach(vec![1]).unwrap_err();
        assert_eq!(error.fault().map(|fault| fault.kind()), Some(FaultKind::Closed), "{error}");
    })
    .unwrap();
}

#[test]
fn a_vector_comes_back_from_a_window_whose_end_fails() {
    let ended = jobs::start(2, "lent: end fails").wait();
    assert_eq!(ended.ok(), [0], "{ended:?}");
}

fn end_fails(world: World) {
    let window = Window::<u64>::create(&world, vec![3; 10]).wait().unwrap();
    world.barrier().wait().unwrap();
    if world.rank() == 1 {
        jobs::die();
    }
    let (error, vector) = window.close_into().wait().unwrap_err().into_parts();
    assert_eq!(error.fault().map(|fault| fault.kind()), Some(FaultKind::PeerDied), "{error}");
    assert_eq!(vector.unwrap(), [3; 10]);
    ok();
}
