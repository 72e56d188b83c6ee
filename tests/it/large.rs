//! Windows of more than 4 GiB, with accesses on both sides of that boundary.

use onesided::{Op, Window};

use crate::support::ranks;

/// Elements of 8 bytes up to 4 GiB, and beyond.
const LINE: usize = (4 << 30) / 8;
const LEN: usize = LINE + (1 << 16);

/// The memory for an allocated window of that length, and as much again for everything else.
const NEEDED: u64 = 6 << 30;

fn available() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()).map_or(0, |kib| kib << 10)
}

fn enough(test: &str) -> bool {
    let there = available();
    if there < NEEDED {
        eprintln!("{test}: NOT RUN, it needs {} MiB of memory and {} are available", NEEDED >> 20, there >> 20);
    }
    there >= NEEDED
}

/// Puts, gets and atomics at the beginning, at the end, and across the boundary.
fn reaches_everywhere(window: &Window<u64>) {
    let world = window.world().clone();
    if world.rank() == 0 {
        assert_eq!(window.len(1), LEN);
        let epoch = window.lock_exclusive(1).wait().unwrap();
        for (number, at) in (1..).zip([0, LINE - 1, LINE, LEN - 1]) {
            epoch.put(at, &[number]).unwrap();
            assert_eq!(epoch.fetch_add(at, 100).wait().unwrap(), number);
            assert_eq!(epoch.compare_and_swap(at, number + 100, number + 200).wait().unwrap(), number + 100);
            epoch.accumulate(at, &[7], Op::Max).wait().unwrap();
            let mut seen = [0];
            epoch.get(at, &mut seen).wait().unwrap();
            assert_eq!(seen, [number + 200]);
        }
        let across: Vec<u64> = (0..8192).map(|at| at * 3 + 1).collect();
        epoch.put(LINE - 4096, &across).unwrap();
        let mut seen = vec![0; across.len()];
        epoch.get(LINE - 4096, &mut seen).wait().unwrap();
        assert_eq!(seen, across);
        let mut before = vec![0; 4];
        epoch.get_accumulate(LINE - 2, &[1; 4], &mut before, Op::Sum).wait().unwrap();
        assert_eq!(before, across[4094..4098]);
        // Where an offset truncated to 32 bits would have written.
        let mut below = [9; 2];
        epoch.get(LEN - 1 - LINE, &mut below[..1]).wait().unwrap();
        epoch.get(1, &mut below[1..]).wait().unwrap();
        assert_eq!(below, [0, 0]);
        assert!(epoch.put(LEN, &[1]).is_err() && epoch.put(LEN - 1, &[1, 2]).is_err());
        epoch.unlock().wait().unwrap();
    }
    world.barrier().wait().unwrap();
    if world.rank() == 1 {
        let mut seen = [0; 2];
        window.local().read_into(LINE - 1, &mut seen).unwrap();
        assert_eq!(seen, [4095 * 3 + 2, 4096 * 3 + 2]);
        assert_eq!(window.local().read(LEN - 1..LEN), [204]);
    }
}

#[test]
fn an_allocated_window_of_more_than_4_gib() {
    if !enough("an_allocated_window_of_more_than_4_gib") {
        return;
    }
    ranks(2, |world| {
        let len = if world.rank() == 1 { LEN } else { 0 };
        let window = Window::<u64>::builder().name("large").uneven().allocate(&world, len).wait().unwrap();
        reaches_everywhere(&window);
        window.close().wait().unwrap();
    });
}

/// This window has pages only where they were touched.
#[test]
fn a_created_window_of_more_than_4_gib() {
    if !enough("a_created_window_of_more_than_4_gib") {
        return;
    }
    ranks(2, |world| {
        let vector = vec![0_u64; if world.rank() == 1 { LEN } else { 0 }];
        let window = Window::builder().name("large").uneven().create(&world, vector).wait().unwrap();
        reaches_everywhere(&window);
        let vector = window.close_into().wait().unwrap();
        if world.rank() == 1 {
            assert_eq!((vector.len(), vector[LEN - 1], vector[0]), (LEN, 204, 201));
        }
    });
}
