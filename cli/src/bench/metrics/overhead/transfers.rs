//! Bandwidth of puts and gets.

use std::cell::RefCell;

use onesided_windows::Window;

use crate::bench::prelude::*;
use crate::bench::rma::bare_loops::{self, Bare};
use crate::bench::rma::loops::{self, Loop, Row};
use crate::bench::worker::rank::LARGEST;

const SIZES: [(usize, &str); 3] = [(64 << 10, "64 KiB"), (1 << 20, "1 MiB"), (LARGEST, "4 MiB")];
const WORD: usize = 8;

pub(super) fn run(rank: &BenchRank, effort: Effort) -> Result<(), Failure> {
    let window = Window::<u64>::allocate(&rank.world, LARGEST / WORD).wait()?;
    // The other ranks wait in `close`.
    if rank.world.rank() == 0 {
        let epoch = window.lock_exclusive(rank.peer()).wait()?;
        let buffer = RefCell::new(vec![1; LARGEST / WORD]);
        let (access, buffer) = (&*epoch, &buffer);
        let mut probes = Vec::new();
        for (size, name) in SIZES {
            let ours = |what: String, limit: &str, run: Loop, flush| {
                let batch = move |n| run(access, Row::of(&mut buffer.borrow_mut()[..size / WORD]), n, flush);
                Probe::ours(&what, limit, batch)
            };
            let bare = |what: &str, run: Bare| {
                Probe::limit(what, move |n| run(rank, Row::of(&mut buffer.borrow_mut()[..size / WORD]), n, false))
            };
            let (to, from) = (format!("memcpy to shared, {name}"), format!("memcpy from shared, {name}"));
            let mut pair = vec![
                ours(format!("put + flush, {name}"), &to, loops::put, true),
                ours(format!("get, {name}"), &from, loops::get, false),
            ];
            if rank.has_limits() {
                pair.extend([bare(&to, bare_loops::copy_in), bare(&from, bare_loops::copy_out)]);
            }
            probes.extend(pair.into_iter().map(|probe| probe.of_size(size).measures(&[Quantity::Bandwidth])));
        }
        probes::run(rank, effort, probes)?;
        epoch.unlock().wait()?;
    }
    Ok(window.close().wait()?)
}
