//! Windows over one memory, between processes.

use onesided::{Window, WindowMemory, World};

use super::all_go_well;
use crate::jobs::{Role, ok};

pub(super) const ROLES: &[Role] = &[("user memory: one line", one_line)];

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
