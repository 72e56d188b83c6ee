//! `bench rma`: every operation at every size, one with its flush, many with one flush, and many
//! open requests.

pub(crate) mod bare_loops;
pub(crate) mod loops;

use std::cell::RefCell;
use std::iter;
use std::process::ExitCode;

use clap::ValueEnum;
use onesided_fabric::{Any, World};
use onesided_windows::info::Path;
use onesided_windows::{LockDesign, Window};

use crate::bench::output::json::Sections;
use crate::bench::prelude::*;
use crate::bench::rma::bare_loops::Bare;
use crate::bench::rma::loops::{Access, Loop, Row};
use crate::bench::runner::{self, Job, Options};
use crate::bench::worker::rank::{LARGEST, TRANSFER_AREA};

/// Measures put, get, strided put, accumulate, get_accumulate, fetch_and_op and compare_and_swap
/// between processes of this host, beside what bare instructions can do.
///
/// Rank 0 accesses the window memory of the last rank, which is idle meanwhile. Sizes are 8 B to 4
/// MiB by powers of two (--quick: of four); accumulate and get_accumulate, sums of 8-byte words, go
/// to 4 KiB, the other atomic operations have 8 B; a strided put goes to every second word.
/// Latency: one operation, waited for, and a flush. Bandwidth and message rate ("many"): 64
/// operations at 64 displacements, or as many as fit in 16 MiB, are open at once, all are waited
/// for, and one flush follows; "requests" are the same without the flush (a put has no request: its
/// buffer is free when it returns). The limits do the same with memcpy (8 B: a store or a load)
/// between the same local buffer and memory that is shared like a window's, and a full fence for a
/// flush, or with the bare atomic instruction; they are measured interleaved with the results, by
/// the same process. --path measures other transports as well. Each rank is kept on one core. Every
/// figure is the median of 7 runs (--quick: 3). The benchmark assumes an otherwise idle machine.
#[derive(Debug, clap::Args)]
#[command(after_help = runner::help())]
pub(crate) struct Args {
    /// How many ranks; 1 measures its own window memory
    #[arg(short = 'n', long = "ranks", visible_alias = "np", value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    ranks: u32,

    /// Which transports are measured, several with commas between
    #[arg(long = "path", value_name = "PATH", value_enum, value_delimiter = ',', default_value = "direct")]
    transports: Vec<Transport>,

    #[command(flatten)]
    options: Options,
}

pub(crate) fn start(args: &Args) -> Result<ExitCode, Failure> {
    args.options.without_picture()?;
    let mut jobs: Vec<Job> = Vec::new();
    for transport in &args.transports {
        if *transport != Transport::Direct && (args.ranks < 2 || !args.options.is_shm()) {
            return Err("--path process-vm and helper: these transports lead from process to process over shm".into());
        }
        let job = (transport.suite(), args.ranks, LockDesign::default());
        if !jobs.contains(&job) {
            jobs.push(job);
        }
    }
    runner::run("onesided bench rma", &args.options, &jobs, sections())
}

/// An operation, and bare instructions that do the same.
struct Operation {
    name: &'static str,
    /// Does the whole row so many times, with a flush if the last argument says so.
    run: Loop,
    limit: &'static str,
    bare: Bare,
    /// The name of the limit without a fence, for requests without a flush. `None` if the operation
    /// has no request: its buffer is free when it returns.
    requests: Option<&'static str>,
    /// In bytes.
    largest: usize,
    /// How many bytes of the window one byte of the operation spans.
    extent: usize,
}

#[rustfmt::skip] // a table
const OPERATIONS: [Operation; 7] = [
    Operation { name: "put", run: loops::put, limit: "memcpy to shared + fence", bare: bare_loops::copy_in,
                requests: None, largest: LARGEST, extent: 1 },
    Operation { name: "get", run: loops::get, limit: "memcpy from shared + fence", bare: bare_loops::copy_out,
                requests: Some("memcpy from shared"), largest: LARGEST, extent: 1 },
    Operation { name: "strided put", run: loops::strided_put, limit: "stores to every second word + fence", bare: bare_loops::strided,
                requests: None, largest: LARGEST, extent: 2 },
    Operation { name: "accumulate", run: loops::accumulate, limit: "fetch-add of each word", bare: bare_loops::add_each,
                requests: Some("fetch-add of each word"), largest: LARGEST_ATOMIC, extent: 1 },
    Operation { name: "get_accumulate", run: loops::get_accumulate, limit: "fetch-add of each word, results kept", bare: bare_loops::fetch_each,
                requests: Some("fetch-add of each word, results kept"), largest: LARGEST_ATOMIC, extent: 1 },
    Operation { name: "fetch_and_op", run: loops::fetch_and_op, limit: "fetch-add", bare: bare_loops::fetch_add,
                requests: Some("fetch-add"), largest: WORD, extent: 1 },
    Operation { name: "compare_and_swap", run: loops::compare_and_swap, limit: "CAS", bare: bare_loops::compare_swap,
                requests: Some("CAS"), largest: WORD, extent: 1 },
];

/// The same on user memory, where the kernel's calls are the limit.
#[rustfmt::skip] // a table
const BY_PROCESS_VM: [Operation; 2] = [
    Operation { name: "put", run: loops::put, limit: "process_vm_writev", bare: bare_loops::write_there,
                requests: None, largest: LARGEST, extent: 1 },
    Operation { name: "get", run: loops::get, limit: "process_vm_readv", bare: bare_loops::read_there,
                requests: Some("process_vm_readv"), largest: LARGEST, extent: 1 },
];

/// How a window's operations reach a peer's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// Memory that the window has allocated: by instructions over shm, by the card over verbs
    Direct,
    /// User memory of the peer: put and get by process_vm_writev and process_vm_readv, whose bare
    /// calls are the limit
    ProcessVm,
    /// User memory of the peer, where its helper thread does everything
    Helper,
}

/// What the plots show.
fn sections() -> Sections {
    vec![("operations".to_owned(), DESCRIPTIONS.iter().collect())]
}

const DESCRIPTIONS: &[Description] = &[
    Description::of("put + flush", &[Shown::new(Quantity::Latency, "").heading("A put and its flush")]).saying(ONE),
    Description::of("get + flush", &[Shown::new(Quantity::Latency, "").heading("A get and its flush")]).saying(ONE),
    Description::of(
        "many put + flush",
        &[Shown::new(Quantity::Bandwidth, "").heading("Many puts and a flush: bandwidth")],
    )
    .saying(MANY_OPEN),
    Description::named(Name::StartsWith("many "), &[]).saying(MANY_OPEN),
    Description::named(Name::StartsWith(""), &[]).saying(ONE),
];
const ONE: &str = "One operation, waited for, and a flush.";
const MANY_OPEN: &str = "64 operations (of large sizes fewer) are open at once, and waited for. One flush follows, after requests \
                         none.";

fn steps(effort: Effort) -> u64 {
    (sizes(effort).count() * effort.runs()) as u64
}

static DIRECT: Suite = suite("rma", |rank, effort| run(rank, effort, Transport::Direct), &[]);
static PROCESS_VM: Suite = suite("rma-process-vm", |rank, effort| run(rank, effort, Transport::ProcessVm), &[]);
static HELPER: Suite =
    suite("rma-helper", |rank, effort| run(rank, effort, Transport::Helper), &["ONESIDED_PROCESS_VM=off"]);

const fn suite(
    name: &'static str,
    run: fn(&BenchRank, Effort) -> Result<(), Failure>,
    environment: &'static [&'static str],
) -> Suite {
    Suite { steps, environment, ..Suite::new(name, Program::Plain(run)) }
}

impl Transport {
    fn suite(self) -> &'static Suite {
        match self {
            Self::Direct => &DIRECT,
            Self::ProcessVm => &PROCESS_VM,
            Self::Helper => &HELPER,
        }
    }

    pub(crate) fn suites() -> impl Iterator<Item = &'static Suite> {
        Self::value_variants().iter().map(|transport| transport.suite())
    }

    fn operations(self) -> impl Iterator<Item = &'static Operation> {
        let operations = if self == Self::ProcessVm { &BY_PROCESS_VM[..] } else { &OPERATIONS };
        // A request for each element would take the helper thread seconds.
        operations.iter().filter(move |operation| self != Self::Helper || operation.extent == 1)
    }

    /// The end of its results' names.
    const fn ending(self) -> &'static str {
        match self {
            Self::Direct => "",
            Self::ProcessVm => ", process_vm",
            Self::Helper => ", helper thread",
        }
    }

    fn window(self, world: &World<Any>) -> Result<Window<u64>, onesided_windows::Error> {
        match self {
            Self::Direct => Window::allocate(world, TRANSFER_AREA / WORD).wait(),
            Self::ProcessVm | Self::Helper => Window::create(world, vec![0; TRANSFER_AREA / WORD]).wait(),
        }
    }

    /// Fails if the operations use another transport than this one.
    fn check(self, window: &Window<u64>, target: u32) -> Result<(), Failure> {
        let taken = match self {
            Self::Direct => return Ok(()),
            Self::ProcessVm => Path::ProcessVm,
            Self::Helper => Path::Helper,
        };
        window.lock_exclusive(target).wait()?.put(0, &[0])?;
        if window.paths(target).of(taken) == 0 {
            return Err(format!("this transport is not available here: {}", window.explain(target)).into());
        }
        Ok(())
    }
}

/// The smallest size, and the only one of single-element atomic operations.
const WORD: usize = 8;
/// The largest accumulate. It is one atomic operation for each word, so that larger ones only take
/// longer.
const LARGEST_ATOMIC: usize = 4 << 10;
/// How many operations make a row, if they fit in [`TRANSFER_AREA`].
const MANY: usize = 64;

/// The measured sizes in bytes: 8, and then powers of two (`--quick`: of four) up to 4 MiB.
fn sizes(effort: Effort) -> impl Iterator<Item = usize> {
    let (first, factor) = match effort {
        Effort::Full => (2 * WORD, 2),
        Effort::Quick | Effort::Trial => (2 * WORD, 4),
    };
    iter::once(WORD)
        .chain(iter::successors(Some(first), move |size| Some(size * factor)).take_while(|size| *size <= LARGEST))
}

fn run(rank: &BenchRank, effort: Effort, transport: Transport) -> Result<(), Failure> {
    let window = transport.window(&rank.world)?;
    // The target of the kernel's calls in the limits: memory like the window's, outside any window.
    let mut plain =
        vec![0_u64; if transport == Transport::ProcessVm && rank.is_target() { TRANSFER_AREA / WORD } else { 0 }];
    bare_loops::publish(rank, &mut plain);
    rank.world.barrier().wait()?;
    // The other ranks wait in `close`.
    if rank.world.rank() == 0 {
        transport.check(&window, rank.peer())?;
        let epoch = window.lock_exclusive(rank.peer()).wait()?;
        let buffers = Buffers {
            elements: RefCell::new(vec![1; TRANSFER_AREA / WORD]),
            results: RefCell::new(vec![0; MANY * LARGEST_ATOMIC / WORD]),
        };
        for size in sizes(effort) {
            let operations = transport.operations().filter(|operation| size <= operation.largest);
            let probes =
                operations.flat_map(|operation| operation.probes((rank, transport), &epoch, &buffers, size)).collect();
            probes::run(rank, effort, probes)?;
        }
        epoch.unlock().wait()?;
    }
    window.close().wait()?;
    drop(plain); // after the last copy from or to it
    Ok(())
}

/// The local buffers of all operations.
struct Buffers {
    elements: RefCell<Vec<u64>>,
    /// For operations of at most [`LARGEST_ATOMIC`] bytes.
    results: RefCell<Vec<u64>>,
}

impl Buffers {
    fn with_row(&self, elements: usize, pieces: usize, run: impl FnOnce(Row<'_>)) {
        let (mut buffer, mut results) = (self.elements.borrow_mut(), self.results.borrow_mut());
        let result_elements = elements.min(results.len());
        run(Row { buffer: &mut buffer[..elements], results: &mut results[..result_elements], pieces });
    }
}

impl Operation {
    fn probes<'p>(
        &'p self,
        (rank, transport): (&'p BenchRank, Transport),
        access: &'p Access<'_>,
        buffers: &'p Buffers,
        size: usize,
    ) -> Vec<Probe<'p>> {
        let rates: &[Quantity] =
            if self.largest > WORD { &[Quantity::Bandwidth, Quantity::MessageRate] } else { &[Quantity::MessageRate] };
        let many = MANY.min(TRANSFER_AREA / (size * self.extent));
        let mut variants = vec![
            (format!("{} + flush", self.name), self.limit.to_owned(), 1, &[Quantity::Latency][..], true),
            (format!("many {} + flush", self.name), format!("many {}", self.limit), many, rates, true),
        ];
        if let Some(limit) = self.requests {
            variants.push((format!("many {}, requests", self.name), format!("many {limit}"), many, rates, false));
        }
        // A helper thread has no bare counterpart.
        let has_limits = rank.has_limits() && transport != Transport::Helper;
        let mut probes = Vec::new();
        let mut limits = Vec::new();
        for (what, limit, pieces, metrics, flush) in variants {
            let elements = pieces * size / WORD;
            let ours = move |n| {
                let mut done = Ok(());
                buffers.with_row(elements, pieces, |row| done = (self.run)(access, row, n, flush));
                done
            };
            let mut both = vec![Probe::ours(&(what + transport.ending()), &limit, ours)];
            // Where the bare instructions have no fence, requests and flushed operations have the
            // same limit.
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
