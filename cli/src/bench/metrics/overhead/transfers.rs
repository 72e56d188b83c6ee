//! Bandwidth of puts and gets.
#![allow(unsafe_code)] // the bare memory, for memcpy

use std::cell::RefCell;
use std::hint::black_box;

use onesided_windows::{Access, Error, Window};

use crate::bench::baselines::bare;
use crate::bench::prelude::*;
use crate::bench::worker::rank::LARGEST;

const SIZES: [(usize, &str); 3] = [(64 << 10, "64 KiB"), (1 << 20, "1 MiB"), (LARGEST, "4 MiB")];

pub(super) fn run(rank: &BenchRank, effort: Effort) -> Result<(), Failure> {
    let window = Window::<u8>::allocate(&rank.world, LARGEST).wait()?;
    // The other ranks wait in `close`.
    if rank.world.rank() == 0 {
        let epoch = window.lock_exclusive(rank.peer()).wait()?;
        let buffer = RefCell::new(vec![1_u8; LARGEST]);
        let (access, buffer) = (&*epoch, &buffer);
        let mut probes = Vec::new();
        for (size, name) in SIZES {
            let (to, from) = (format!("memcpy to shared, {name}"), format!("memcpy from shared, {name}"));
            let put = move |n| put(access, &buffer.borrow()[..size], n);
            let get = move |n| get(access, &mut buffer.borrow_mut()[..size], n);
            let mut pair = vec![
                Probe::ours(&format!("put + flush, {name}"), &to, put),
                Probe::ours(&format!("get, {name}"), &from, get),
            ];
            if rank.has_limits() {
                let shared = rank.transfer_area();
                pair.push(Probe::limit(&to, move |n| {
                    // SAFETY: the transfer area has at least LARGEST bytes, and no other rank
                    // accesses it now.
                    unsafe { bare::memcpy_in(shared, &buffer.borrow()[..size], n) }
                }));
                pair.push(Probe::limit(&from, move |n| {
                    // SAFETY: as above.
                    unsafe { bare::memcpy_out(&mut buffer.borrow_mut()[..size], shared, n) }
                }));
            }
            probes.extend(pair.into_iter().map(|probe| probe.of_size(size).measures(&[Quantity::Bandwidth])));
        }
        probes::run(rank, effort, probes)?;
        epoch.unlock().wait()?;
    }
    Ok(window.close().wait()?)
}

#[inline(never)]
fn put(access: &Access<'_, u8, onesided_fabric::Any>, from: &[u8], n: u64) -> Result<(), Error> {
    for _ in 0..n {
        access.put(0, black_box(from))?;
        access.flush().wait()?;
    }
    Ok(())
}

#[inline(never)]
fn get(access: &Access<'_, u8, onesided_fabric::Any>, into: &mut [u8], n: u64) -> Result<(), Error> {
    for _ in 0..n {
        access.get(0, black_box(&mut *into)).wait()?;
    }
    Ok(())
}
