//! Every operation at every size: one with its flush, many with one flush, many requests that are open at once.

use std::cell::RefCell;
use std::iter;

use windows::Window;

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
    run: fn(&Access<'_>, Row<'_>, u64, bool) -> Result<(), windows::Error>,
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

pub(crate) fn run(rank: &RankOfBench, effort: Effort) -> Result<(), Failure> {
    let window = Window::<u64>::allocate(&rank.world, ROOM / WORD)?;
    // The other ranks sleep in `close`.
    if rank.world.rank() == 0 {
        let epoch = window.lock_exclusive(rank.peer()).wait()?;
        let buffers = Buffers {
            elements: RefCell::new(vec![1; ROOM / WORD]),
            results: RefCell::new(vec![0; MANY * EACH / WORD]),
        };
        for size in sizes(effort) {
            let operations = OPERATIONS.iter().filter(|operation| size <= operation.largest);
            let probes = operations.flat_map(|operation| operation.probes(rank, &epoch, &buffers, size)).collect();
            rounds::run(rank, effort, probes)?;
        }
        epoch.unlock()?;
    }
    Ok(window.close()?)
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
        rank: &'p RankOfBench,
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
        let mut probes = Vec::new();
        let mut limits = Vec::new();
        for (what, limit, pieces, metrics, flush) in ways {
            let elements = pieces * size / WORD;
            let ours = move |n| {
                let mut done = Ok(());
                buffers.with_row(elements, pieces, |row| done = (self.run)(access, row, n, flush));
                done
            };
            let mut both = vec![Probe::ours(&what, &limit, ours)];
            // Where a flush costs nothing bare, requests and flushed operations have the same limit.
            if rank.has_limits() && !limits.contains(&limit) {
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
