//! `onesided bench peers`: MPICH, Open MPI and the machine's own limits beside the library, in one
//! run.
//!
//! [`install`] fetches and compiles the peers. [`plan`] lists the measures, and [`measure`] runs
//! them, interleaved, in a job of each program, whose ranks it controls through sockets
//! ([`control`]). The ranks of this library run [`worker`] with the loops of [`probes`] and
//! [`echoes`]; those of the MPIs run the C program of `benches/peers`, which is embedded in this
//! one. Other peers are [`external`] programs: [`perftest`] on verbs, [`ucx`] for messages. The
//! results are a [`document`], printed by [`table`] and drawn by [`page`].

mod control;
mod document;
mod echoes;
mod external;
mod install;
mod measure;
mod page;
mod perftest;
mod plan;
mod probes;
mod table;
mod ucx;
pub(crate) mod worker;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use onesided_windows::LockDesign;

use crate::bench::effort::Effort;
use crate::bench::lock_choice::{self, Locks};
use crate::bench::output::json::{Machine, read, seconds};
use crate::bench::peers::document::{Document, Program};
use crate::bench::peers::install::{MPIS, Mpi};
use crate::bench::peers::measure::Setup;
use crate::bench::peers::plan::Suite;
use crate::bench::runner::{Files, show};
use crate::fabric::FabricName;
use crate::failure::{Failure, say};
use crate::output::command;
use crate::run::interrupts;

/// Compares this library with MPICH, Open MPI and bare instructions, on this host, in interleaved
/// batches.
///
/// Measured with 2 processes: lock + unlock; lock + put + unlock; put, get, fetch_and_op,
/// compare_and_swap and accumulate of 8 B, each with a flush; 64 puts or gets and one flush; the
/// bandwidth of put and get of 64 KiB to 4 MiB; the allocation of windows of 4 KiB to 16 MiB,
/// alone, with all ranks' writes to every page of their window memory, with the deallocation, and
/// with both; a first lock while the target waits, and while it computes. With 2, 4 and 8
/// processes: the acquisitions of a contended lock by all processes together, and the smallest
/// share over the largest.
///
/// --suite messages: with 2 processes, half a round trip of messages of 8 B to 4 MiB; streams, which
/// are a window of 64 messages (16 from 1 MiB on), each into a place of its own by a receive posted
/// before, and an empty message back; messages of 8 B a second in such streams, and if the receives
/// are posted after all 64 have arrived. MPI sends by MPI_Send and MPI_Isend, as osu_latency and
/// osu_bw do; all programs do the same number of rounds and of uncounted ones before. The limits are
/// stores and memcpy into shared memory and out of it. ucx_perftest (Debian: ucx-utils) is measured
/// too, if it is installed, after the others' batches of each run: tag_lat and tag_bw over shared
/// memory, with as many sends open.
///
/// --suite collectives: with 2 and 4 processes, a barrier; all_reduce of 8 B and 1 MiB, sums of floats
/// of 8 B in place; broadcast of 8 B and 1 MiB, from each rank in turn; all_gather and all_to_all of
/// blocks of 8 B and 64 KiB. All ranks call the same one again and again, as many times in all
/// programs; rank 0 is timed. There are no limits.
///
/// --suite overlap: with 2 processes, a message of 1 MiB between ranks that compute for 1.8 ms
/// between the start of their send or receive and the wait for it, as in `bench overlap`; once in
/// each progress mode of this library, and beside each by MPI_Isend, MPI_Irecv and MPI_Wait. Of a
/// rank that computes W/T is compared (sur-2006, section 5): the computation alone, which is
/// measured before each message, over its time with the message. Of a sender, what it waits while
/// its receiver computes: one that posts the receive before, or when the message was announced
/// (late).
///
/// MPICH 5 and Open MPI 5 are installed from PyPI into a folder (once; that needs python3 with venv
/// and pip, and a C compiler), and C programs are compiled against them. The jobs of all three run
/// at the same time, but only one of them is active: each does a batch of about half a millisecond
/// of the same operation, one job after the other, so that other load on the machine affects all
/// alike. Each has the same number of processes on the same cores, a window of 16 MiB by
/// MPI_Win_allocate or Window::allocate without hints, and the same loops: while rank 0 accesses
/// the window memory of the last rank, that rank waits in a barrier. The limits are memcpy, bare
/// atomic instructions and a fence on shared memory.
///
/// --fabric verbs: perftest's programs (Debian: perftest) run after the library's batches, on the
/// same RDMA device, 300 rounds each time. Their typical time is compared: ib_read_lat with get,
/// ib_atomic_lat with compare_and_swap and fetch_and_op of 8 B, ib_write_lat with signals and
/// ib_send_lat with messages that are answered (half a round trip). Their average bandwidth is
/// compared: ib_write_bw with 64 puts and a flush, of 8 B and of 64 KiB, and ib_send_bw with 64
/// messages. Messages of 1 MiB, 30 rounds each time: buffers that are read and written beside
/// ib_read_lat and ib_write_lat, streams beside ib_read_bw and ib_write_bw. Over datagrams
/// (ONESIDED_MESSAGES_CHANNEL=ud) sends are compared with those of perftest. Nothing else is measured
/// then. On Soft-RoCE the ratios are those of an emulated
/// device, and all processes are idle tasks (chrt -i 0), so that spinning processes do not keep the
/// device from its work.
///
/// Ratios are how many times as fast onesided was: the median of 7 runs (--quick: 3), each of which
/// compares adjacent batches. A program that is not available (no network, no compiler), dies, or
/// gives no answer for a minute is left out with a note.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP, mut_arg("picture", |picture| picture.help("Also draw the ratios as a picture")))]
pub(crate) struct Args {
    /// What is compared
    #[arg(long, value_enum, default_value_t = Suite::Windows, conflicts_with = "from")]
    suite: Suite,

    /// How the ranks of this library access each other's memory: shm beside MPICH and Open MPI,
    /// verbs beside perftest
    #[arg(long, value_enum, default_value_t = FabricName::Shm, conflicts_with = "from")]
    fabric: FabricName,

    /// Which lock this library's windows have, by name; several with commas between them, or all:
    /// then what depends on the lock is measured with each, interleaved, and the rest with the
    /// first
    #[arg(long = "lock", value_name = "NAME", value_delimiter = ',', default_value = "test-and-set", value_parser = lock_choice::parse, conflicts_with = "from")]
    locks: Vec<Locks>,

    /// Where the peers are installed and compiled
    #[arg(long, value_name = "FOLDER", default_value = "target/peers", conflicts_with = "from")]
    folder: PathBuf,

    #[command(flatten)]
    files: Files,

    /// Fewer and shorter runs: some seconds, and more noise
    #[arg(long, conflicts_with = "from")]
    quick: bool,

    /// One short run of each measurement, for tests
    #[arg(long, hide = true, conflicts_with_all = ["quick", "from"])]
    trial: bool,
}

const HELP: &str = "\
JSON: an object with `machine`, `begun` (seconds since 1970), `command`, `programs` (`name`, `version`), `notes` (what was
left out, and why) and `results`. Each result has `benchmark`, `group`, `size` (the bytes of one operation or window, or
null), `ranks`, `metric`, `unit`, `values` (by program and `limit`: `median`, `min`, `max`) and `ratios` (how many times as
fast onesided was as each of the others). These names stay.

Not alike: MPI's flush guarantees completion at the target, the library's also visibility to the target's processor, which
takes a fence. MPI checks types and communicators in every call; the library's are known at compile time. Windows are
allocated and freed one after the other: the library reuses zeroed pages of earlier windows, MPI faults in new ones, as the
library's first window of a size does. perftest's loops check nothing and have no flush and no window. perftest reports the
median of its rounds, or its average bandwidth; the library's value is the median of batches, each the average of about ten
rounds. The library copies its puts and confirms that they are in memory; ib_write_bw does neither. A signal takes a receive
at its target, ib_write_lat's writes do not. ucx_perftest reports the median of its single messages, or its overall rate; its
streams have no answers.";

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let stored = args.files.from.as_deref().map(read::<Document>).transpose()?;
    let files = args.files.create()?;
    let document = match stored {
        Some(document) => document,
        None => match measure(args)? {
            Ok(document) => document,
            Err(code) => return Ok(code.into()),
        },
    };
    show(&document, &document.to_text(), files, || document.to_page(), || Some(document.to_picture()))
}

/// Runs all measures; returns the document, or the exit status that ended the run.
fn measure(args: &Args) -> Result<Result<Document, u8>, Failure> {
    let (machine, begun) = (Machine::collect(), SystemTime::now());
    let effort = Effort::of(args.quick, args.trial);
    let mut notes = Vec::new();
    let mut note = |text: String| {
        say(&text);
        notes.push(text);
    };
    let fabric = args.fabric.built_in()?;
    let (mut installed, mut external) = (Vec::new(), None);
    match (args.fabric, args.suite) {
        (FabricName::Mixed, _) => return Err("--fabric mixed: only shm and verbs have peers".into()),
        (FabricName::Verbs, Suite::Messages) => {
            let why = "--suite messages: over shm; over verbs, messages are among what is compared with perftest";
            return Err(why.into());
        }
        (FabricName::Verbs, Suite::Collectives | Suite::Overlap) => {
            return Err("--suite collectives, overlap: over shm, which MPICH and Open MPI use".into());
        }
        (FabricName::Verbs, Suite::Windows) => {
            for Mpi { name, .. } in &MPIS {
                note(format!("{name} is left out: between processes of one host it uses shared memory, not the card"));
            }
            external = Some(perftest::find().map_err(|why| format!("--fabric {fabric}: {why}"))?);
        }
        (FabricName::Shm, suite) => {
            for mpi in &MPIS {
                match install::install(&args.folder, mpi) {
                    Ok(mpi) => installed.push(mpi),
                    Err(why) => note(format!("{} is left out: {why}", mpi.name)),
                }
            }
            match suite {
                Suite::Windows => note("perftest is left out: it measures verbs (--fabric verbs)".to_owned()),
                Suite::Collectives | Suite::Overlap => {}
                Suite::Messages => match ucx::find() {
                    Ok(ucx) => external = Some(ucx),
                    Err(why) => note(format!("UCX is left out: {why}")),
                },
            }
        }
    }
    let locks = lock_choice::unique(&args.locks);
    if locks.len() > 1 && external.as_ref().is_some_and(|external| external.name == perftest::NAME) {
        return Err("several locks: perftest has none to compare with".into());
    }
    if locks[0] != LockDesign::default() {
        note(format!("onesided's windows have the lock {}", locks[0]));
    }
    let setup = Setup { fabric, locks, installed: &installed, suite: args.suite, external };
    let interrupts = interrupts()?;
    let results = match measure::run(effort, &setup, &interrupts, &mut note)? {
        Ok(results) => results,
        Err(code) => return Ok(Err(code)),
    };
    let ours = Program { name: "onesided".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
    let program = |name: &str, version: &str| Program { name: name.to_owned(), version: version.to_owned() };
    let mpis = installed.iter().map(|mpi| program(mpi.mpi.name, mpi.mpi.version));
    let external = setup.external.iter().map(|external| program(external.name, &external.version));
    let programs = [ours].into_iter().chain(mpis).chain(external).collect();
    Ok(Ok(Document { machine, begun: seconds(begun), command: command(), programs, notes, results }))
}
