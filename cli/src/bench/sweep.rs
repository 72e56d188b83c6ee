//! Every operation at every size: one with its flush, many with one flush, many requests that are open at once.

use std::cell::RefCell;
use std::iter;

use onesided_fabric::{Any, World};
use onesided_windows::{Path, Window};

use crate::bench::rank::{LARGEST, ROOM, RankOfBench};
use crate::bench::report::Metric;
use crate::bench::rounds::{self, Probe};
use crate::bench::sweep::loops::{Access, Row};
use crate::bench::worker::Effort;
use crate::failure::Failure;

mod bare_loops;
mod loops;

/// An operation, and what does the same without a library.
struct Operation {
    name: &'static str,
    /// So many times, the whole row, and a flush if the last says so.
    run: fn(&Access<'_>, Row<'_>, u64, bool) -> Result<(), onesided_windows::Error>,
    limit: &'static str,
    bare: fn(&RankOfBench, Row<'_>, u64, bool),
    /// What the limit is called where there is no fence because there is no flush; none if the operation has no handle,
    /// because it is done with its buffer when it returns.
    requests: Option<&'static str>,
    /// In bytes.
    largest: usize,
    /// How many bytes of the window it reaches over for each of its own.
    reach: usize,
}

#[rustfmt::skip] // a table
const OPERATIONS: [Operation; 7] = [
    Operation { name: "put", run: loops::put, limit: "memcpy to shared + fence", bare: bare_loops::copy_in,
                requests: None, largest: LARGEST, reach: 1 },
    Operation { name: "get", run: loops::get, limit: "memcpy from shared + fence", bare: bare_loops::copy_out,
                requests: Some("memcpy from shared"), largest: LARGEST, reach: 1 },
    Operation { name: "strided put", run: loops::strided_put, limit: "stores to every second word + fence", bare: bare_loops::strided,
                requests: None, largest: LARGEST, reach: 2 },
    Operation { name: "accumulate", run: loops::accumulate, limit: "fetch-add of each word", bare: bare_loops::add_each,
                requests: Some("fetch-add of each word"), largest: EACH, reach: 1 },
    Operation { name: "get_accumulate", run: loops::get_accumulate, limit: "fetch-add of each word, results kept", bare: bare_loops::fetch_each,
                requests: Some("fetch-add of each word, results kept"), largest: EACH, reach: 1 },
    Operation { name: "fetch_and_op", run: loops::fetch_and_op, limit: "fetch-add", bare: bare_loops::fetch_add,
                requests: Some("fetch-add"), largest: WORD, reach: 1 },
    Operation { name: "compare_and_swap", run: loops::compare_and_swap, limit: "CAS", bare: bare_loops::compare_swap,
                requests: Some("CAS"), largest: WORD, reach: 1 },
];

/// The same on memory that its owner has lent, where the kernel's calls are the limit.
#[rustfmt::skip] // a table
const BY_PROCESS_VM: [Operation; 2] = [
    Operation { name: "put", run: loops::put, limit: "process_vm_writev", bare: bare_loops::write_there,
                requests: None, largest: LARGEST, reach: 1 },
    Operation { name: "get", run: loops::get, limit: "process_vm_readv", bare: bare_loops::read_there,
                requests: Some("process_vm_readv"), largest: LARGEST, reach: 1 },
];

/// A way to a peer's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Of memory that the window has allocated.
    Direct,
    ProcessVm,
    Helper,
}

impl Way {
    fn operations(self) -> impl Iterator<Item = &'static Operation> {
        let operations = if self == Self::ProcessVm { &BY_PROCESS_VM[..] } else { &OPERATIONS };
        // A request for each element would take the helper thread seconds.
        operations.iter().filter(move |operation| self != Self::Helper || operation.reach == 1)
    }

    /// What the names of its results end with.
    const fn ending(self) -> &'static str {
        match self {
            Self::Direct => "",
            Self::ProcessVm => ", process_vm",
            Self::Helper => ", helper thread",
        }
    }

    fn window(self, world: &World<Any>) -> Result<Window<u64>, onesided_windows::Error> {
        match self {
            Self::Direct => Window::allocate(world, ROOM / WORD).wait(),
            Self::ProcessVm | Self::Helper => Window::create(world, vec![0; ROOM / WORD]).wait(),
        }
    }

    /// Refuses to measure another way under this one's name.
    fn check(self, window: &Window<u64>, target: u32) -> Result<(), Failure> {
        let taken = match self {
            Self::Direct => return Ok(()),
            Self::ProcessVm => Path::ProcessVm,
            Self::Helper => Path::Helper,
        };
        window.lock_exclusive(target).wait()?.put(0, &[0])?;
        if window.paths(target).of(taken) == 0 {
            return Err(format!("this way is not to be had here: {}", window.explain(target)).into());
        }
        Ok(())
    }
}

/// The smallest size, and all that an atomic operation has.
const WORD: usize = 8;
/// The largest accumulate, which is an atomic operation on each word: more of them only takes longer.
const EACH: usize = 4 << 10;
/// How many operations make a row, if there is [`ROOM`] for them.
const MANY: usize = 64;

/// What is measured, in bytes: 8, and the powers of four (`--quick`) or two up to 4 MiB.
pub(crate) fn sizes(effort: Effort) -> impl Iterator<Item = usize> {
    let (first, factor) = match effort {
        Effort::Full => (2 * WORD, 2),
        Effort::Quick => (2 * WORD, 4),
    };
    iter::once(WORD)
        .chain(iter::successors(Some(first), move |size| Some(size * factor)).take_while(|size| *size <= LARGEST))
}

pub(crate) fn run(rank: &RankOfBench, effort: Effort, way: Way) -> Result<(), Failure> {
    let window = way.window(&rank.world)?;
    // What the kernel's calls go to in the limits: memory like that of the window, which no window knows.
    let mut plain = vec![0_u64; if way == Way::ProcessVm && rank.is_target() { ROOM / WORD } else { 0 }];
    bare_loops::tell(rank, &mut plain);
    rank.world.barrier().wait()?;
    // The other ranks sleep in `close`.
    if rank.world.rank() == 0 {
        way.check(&window, rank.peer())?;
        let epoch = window.lock_exclusive(rank.peer()).wait()?;
        let buffers = Buffers {
            elements: RefCell::new(vec![1; ROOM / WORD]),
            results: RefCell::new(vec![0; MANY * EACH / WORD]),
        };
        for size in sizes(effort) {
            let operations = way.operations().filter(|operation| size <= operation.largest);
            let probes =
                operations.flat_map(|operation| operation.probes((rank, way), &epoch, &buffers, size)).collect();
            rounds::run(rank, effort, probes)?;
        }
        epoch.unlock().wait()?;
    }
    window.close().wait()?;
    drop(plain); // nobody copies from or to it any more
    Ok(())
}

/// What all operations go from and into.
struct Buffers {
    elements: RefCell<Vec<u64>>,
    /// For operations of at most [`EACH`] bytes.
    results: RefCell<Vec<u64>>,
}

impl Buffers {
    fn with_row(&self, elements: usize, pieces: usize, run: impl FnOnce(Row<'_>)) {
        let (mut buffer, mut results) = (self.elements.borrow_mut(), self.results.borrow_mut());
        let kept = elements.min(results.len());
        run(Row { buffer: &mut buffer[..elements], results: &mut results[..kept], pieces });
    }
}

impl Operation {
    fn probes<'p>(
        &'p self,
        (rank, way): (&'p RankOfBench, Way),
        access: &'p Access<'_>,
        buffers: &'p Buffers,
        size: usize,
    ) -> Vec<Probe<'p>> {
        let rates: &[Metric] =
            if self.largest > WORD { &[Metric::Bandwidth, Metric::MessageRate] } else { &[Metric::MessageRate] };
        let many = MANY.min(ROOM / (size * self.reach));
        let mut ways = vec![
            (format!("{} + flush", self.name), self.limit.to_owned(), 1, &[Metric::Latency][..], true),
            (format!("many {} + flush", self.name), format!("many {}", self.limit), many, rates, true),
        ];
        if let Some(limit) = self.requests {
            ways.push((format!("many {}, requests", self.name), format!("many {limit}"), many, rates, false));
        }
        // Nothing bare does what a helper thread does.
        let has_limits = rank.has_limits() && way != Way::Helper;
        let mut probes = Vec::new();
        let mut limits = Vec::new();
        for (what, limit, pieces, metrics, flush) in ways {
            let elements = pieces * size / WORD;
            let ours = move |n| {
                let mut done = Ok(());
                buffers.with_row(elements, pieces, |row| done = (self.run)(access, row, n, flush));
                done
            };
            let mut both = vec![Probe::ours(&(what + way.ending()), &limit, ours)];
            // Where a flush costs nothing bare, requests and flushed operations have the same limit.
            if has_limits && !limits.contains(&limit) {
                let bare = move |n| buffers.with_row(elements, pieces, |row| (self.bare)(rank, row, n, flush));
                both.push(Probe::limit(&limit, bare));
                limits.push(limit);
            }
            probes.extend(both.into_iter().map(|probe| probe.of_size(size).measures(metrics).each_time(pieces)));
        }
        probes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_go_from_a_word_to_the_largest() {
        for effort in [Effort::Full, Effort::Quick] {
            let sizes: Vec<_> = sizes(effort).collect();
            assert_eq!((sizes[0], sizes[sizes.len() - 1]), (8, 4 << 20));
            assert!(sizes.iter().all(|size| size.is_power_of_two()), "{sizes:?}");
            assert!(sizes.is_sorted(), "{sizes:?}");
        }
    }
}
