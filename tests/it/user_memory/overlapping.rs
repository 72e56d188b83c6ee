//! Windows over one memory, between processes.

use onesided::{FaultKind, Op, Window, WindowMemory, World};

use super::{all_go_well, expected_path};
use crate::jobs::{Role, ok};

pub(super) const ROLES: &[Role] = &[("user memory: overlapping", overlapping), ("user memory: one line", one_line)];

#[test]
fn windows_over_one_memory_see_one_another_and_end_one_by_one() {
    all_go_well(3, "user memory: overlapping");
}

fn overlapping(world: World) {
    const TURNS: u64 = 100;
    let (me, size) = (world.rank(), world.size());
    let next = (me + 1) % size;
    let memory = WindowMemory::new(&world, vec![0_u64; 1000]).unwrap();
    let all = Window::<u64>::builder().name("all").create_over(&world, &memory, 0..1000).wait().unwrap();
    let second = Window::<u64>::builder().name("second").create_over(&world, &memory, 500..1000).wait().unwrap();
    expected_path(&all, next);
    expected_path(&second, next);
    let (alls, second_all) = (all.lock_all().wait().unwrap(), second.lock_all().wait().unwrap());
    let (there, over) = (alls.at(next).wait().unwrap(), second_all.at(next).wait().unwrap());
    for turn in 0..TURNS {
        let at = 500 + turn as usize;
        there.put(at, &[turn + 1, turn + 2]).unwrap();
        there.flush().wait().unwrap();
        let mut seen = [0; 2];
        over.get(at - 500, &mut seen).wait().unwrap();
        assert_eq!(seen, [turn + 1, turn + 2]);
        // All ranks use one word of rank 0, through either window.
        if turn % 2 == 0 {
            alls.at(0).wait().unwrap().fetch_add(900, 1).wait().unwrap();
        } else {
            second_all.at(0).wait().unwrap().accumulate(400, &[1], Op::Sum).wait().unwrap();
        }
    }
    alls.unlock_all().wait().unwrap();
    second_all.unlock_all().wait().unwrap();
    // It ends that window, not the memory.
    all.close().wait().unwrap();
    let epoch = second.lock_shared(next).wait().unwrap();
    let mut seen = [0];
    epoch.get(99, &mut seen).wait().unwrap();
    assert_eq!(seen, [TURNS]);
    assert_eq!(epoch.fetch_add(300, u64::from(me)).wait().unwrap(), 0);
    // The memory ends with its last handle, in whatever order windows were closed.
    world.barrier().wait().unwrap();
    let memory = memory.take_back().wait().unwrap_err().into_parts().1.unwrap();
    epoch.unlock().wait().unwrap();
    let again = second.clone();
    second.close().wait().unwrap();
    let vector = memory.take_back().wait().unwrap().into_vec::<u64>().unwrap();
    assert_eq!((vector[500], vector[800]), (1, u64::from((me + size - 1) % size)));
    assert_eq!(vector[900], if me == 0 { TURNS * u64::from(size) } else { 0 });
    world.barrier().wait().unwrap();
    // A closed window begins no epochs.
    let error = again.lock_shared(next).wait().unwrap_err();
    assert_eq!(error.fault().map(|fault| fault.kind()), Some(FaultKind::Closed), "{error}");
    world.barrier().wait().unwrap();
    assert_eq!(vector[500], 1);
    ok();
}

#[test]
fn threads_share_one_request_line_through_several_windows() {
    all_go_well(2, "user memory: one line");
}

/// Both ranks' threads put and get through two windows at the same time.
fn one_line(world: World) {
    const LEN: usize = 3000;
    let memory = WindowMemory::new(&world, vec![0_u64; 2 * LEN]).unwrap();
    let windows = [0, LEN].map(|start| Window::<u64>::create_over(&world, &memory, start..start + LEN).wait().unwrap());
    let next = 1 - world.rank();
    std::thread::scope(|scope| {
        for (window, mark) in windows.iter().zip([1_u64 << 32, 2 << 32]) {
            scope.spawn(move || {
                let epoch = window.lock_exclusive(next).wait().unwrap();
                for turn in 0..100 {
                    let (len, mut seen) = (1 + turn * 29 % LEN, vec![0; LEN]);
                    epoch.put(0, &vec![mark | turn as u64; len]).unwrap();
                    epoch.get(0, &mut seen[..len]).wait().unwrap();
                    assert!(seen[..len].iter().all(|element| *element == mark | turn as u64), "turn {turn}");
                }
                epoch.unlock().wait().unwrap();
            });
        }
    });
    windows.into_iter().for_each(|window| window.close().wait().unwrap());
    memory.take_back().wait().unwrap();
    ok();
}
