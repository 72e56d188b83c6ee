//! `onesided bench peers`: MPICH, Open MPI and the machine's own limits beside the library, in one run.
//!
//! [`install`] fetches and compiles, [`plan`] says what is measured, [`measure`] has everybody do it in turns, each a job
//! whose ranks it talks to through [`subject`]. Ours are [`worker`] with the loops of [`probes`]; the others are the C
//! programs of `benches/peers`, which this program carries with it. On verbs, [`perftest`] is the peer. The results are a [`document`], told by [`table`] and
//! drawn by [`page`].

mod chart;
mod document;
mod echoes;
mod install;
mod measure;
mod page;
mod perftest;
mod plan;
mod probes;
mod subject;
mod table;
pub(crate) mod worker;

use onesided_windows::LockDesign;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use crate::bench::json::Machine;
use crate::bench::locks::{Locks, locks, unique};
use crate::bench::measure::{command, create};
use crate::bench::peers::document::{Document, Program};
use crate::bench::peers::install::MPIS;
use crate::bench::peers::measure::Field;
use crate::bench::peers::perftest::Perftest;
use crate::bench::worker::Effort;
use crate::failure::{Failure, say};
use crate::run::{FabricName, interrupts};

/// Measures MPICH, Open MPI, bare instructions and this library in turns, on this host, and compares.
///
/// Measured with 2 processes: lock + unlock; lock + put + unlock; put, get, fetch_and_op, compare_and_swap and accumulate
/// of 8 B, each with a flush; 64 puts or gets and one flush; the bandwidth of put and get of 64 KiB to 4 MiB; the
/// allocation of windows of 4 KiB to 16 MiB, alone, until each rank has touched every page of its part, until the window is
/// freed, and all of that; a first lock while the target waits, and while it computes. With 2, 4 and 8:
/// how many locks all get together, and the smallest share by the largest.
///
/// MPICH 5 and Open MPI 5 are installed from PyPI into a folder (once; that needs python3 with venv and pip, and a C
/// compiler), and programs in C are compiled against them. Then jobs of all three wait while one of them has its turn:
/// everybody does a batch of about half a millisecond of the same operation, then everybody the next, so that whatever
/// else the machine does hits all alike. Each has as many processes, kept on the same cores, with a window of 16 MiB by
/// MPI_Win_allocate or Window::allocate with no hints, and the same loops: while rank 0 reaches into the part of the last
/// rank, that one is in a barrier. The limits are memcpy, bare atomic instructions and a fence on shared memory.
///
/// --fabric verbs: perftest's programs (Debian: perftest) have their turn after our batches, on the same RDMA device, 300
/// rounds each time: ib_read_lat after get and ib_atomic_lat after compare_and_swap and fetch_and_op of 8 B, ib_write_lat
/// after signals and ib_send_lat after messages that are answered (half of there and back), of which they tell the typical
/// time; ib_write_bw after 64 puts and a flush, of 8 B and of 64 KiB, and ib_send_bw after 64 messages, of which they tell
/// the average. Nothing else is measured then. On Soft-RoCE the ratios are those of an emulated device, and all processes are
/// idle tasks (chrt -i 0), so that none keeps the device from its work by spinning.
///
/// Ratios say how many times as fast onesided was: the median of 7 runs (--quick: 3), each of which compares neighbours.
/// What cannot be had (no network, no compiler), dies or gives no answer for a minute is said and left out.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// What our ranks reach each other's memory by: shm beside MPICH and Open MPI, verbs beside perftest
    #[arg(long, value_enum, default_value_t = FabricName::Shm)]
    fabric: FabricName,

    /// Which lock our windows have, by name; several with commas between them, or all: then whatever is a lock's is measured with
    /// each, in the same turns, and the rest with the first
    #[arg(long = "lock", value_name = "NAME", value_delimiter = ',', default_value = "test-and-set", value_parser = locks)]
    locks: Vec<Locks>,

    /// Where the peers are installed and compiled
    #[arg(long, value_name = "FOLDER", default_value = "target/peers")]
    folder: PathBuf,

    /// Also write the results as one JSON object
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Also write a page with plots and all results: one HTML file that needs nothing else
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,

    /// Also draw the ratios as a picture
    #[arg(long, value_name = "FILE.svg")]
    picture: Option<PathBuf>,

    /// Measure nothing: tell and draw what an earlier run wrote with --json
    #[arg(long, value_name = "FILE", conflicts_with_all = ["quick", "folder", "fabric", "locks"])]
    from: Option<PathBuf>,

    /// Fewer and shorter runs: some seconds, and more noise
    #[arg(long)]
    quick: bool,
}

const HELP: &str = "\
JSON: an object with `machine`, `begun` (seconds since 1970), `command`, `programs` (`name`, `version`), `notes` (what was
left out, and why) and `results`. Each result has `benchmark`, `group`, `size` (the bytes of one operation or window, or
null), `ranks`, `metric`, `unit`, `values` (by program and `limit`: `median`, `min`, `max`) and `ratios` (how many times as
fast onesided was as each of the others). These names stay.

Not alike: MPI's flush promises completion at the target, ours also that the target's processor sees it, hence a fence;
MPI types and communicators are looked at in every call, ours are known to the compiler. Windows are allocated and freed one
after the other: ours get the zeroed pages of those before, MPI's fault in new ones, as our first of a size does.
perftest's loops check nothing and have no flush and no window. It tells the median of its rounds, or the average of its
bandwidth; ours is the median of batches, each the average of about ten, and a batch of compare_and_swap begins with a put.
Our puts are copied, and proven to be in memory; ib_write_bw's are neither. A signal takes a receive at its target,
ib_write_lat's writes do not.";

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let stored = args.from.as_deref().map(read).transpose()?;
    // Made first: a minute of measurements must not end in a file that cannot be written.
    let outputs = Outputs {
        json: args.json.as_deref().map(create).transpose()?,
        report: args.report.as_deref().map(create).transpose()?,
        picture: args.picture.as_deref().map(create).transpose()?,
    };
    let document = match stored {
        Some(document) => document,
        None => match measure(args)? {
            Ok(document) => document,
            Err(code) => return Ok(code.into()),
        },
    };
    outputs.write(&document)?;
    match io::stdout().lock().write_all(document.to_text().as_bytes()) {
        // A reader that has seen enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// What becomes of the results.
struct Outputs {
    json: Option<File>,
    report: Option<File>,
    picture: Option<File>,
}

impl Outputs {
    fn write(self, document: &Document) -> Result<(), Failure> {
        if let Some(mut json) = self.json {
            json.write_all((serde_json::to_string_pretty(document)? + "\n").as_bytes())?;
        }
        if let Some(mut report) = self.report {
            report.write_all(document.to_page().as_bytes())?;
        }
        if let Some(mut picture) = self.picture {
            picture.write_all(document.to_picture().as_bytes())?;
        }
        Ok(())
    }
}

fn read(path: &Path) -> Result<Document, Failure> {
    let told = |error: &dyn std::fmt::Display| Failure::from(format!("{}: {error}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| told(&error))?;
    serde_json::from_str(&text).map_err(|error| told(&error))
}

/// A run, or the exit status of what ended it.
fn measure(args: &Args) -> Result<Result<Document, u8>, Failure> {
    let (machine, begun) = (Machine::collect(), SystemTime::now());
    let effort = if args.quick { Effort::Quick } else { Effort::Full };
    let mut notes = Vec::new();
    let mut note = |text: String| {
        say(&text);
        notes.push(text);
    };
    let fabric = args.fabric.built_in()?;
    let mut installed = Vec::new();
    let mut perftest = None;
    if matches!(args.fabric, FabricName::Mixed) {
        return Err("--fabric mixed: the peers are beside shm and verbs".into());
    }
    if matches!(args.fabric, FabricName::Shm) {
        for mpi in &MPIS {
            match install::install(&args.folder, mpi) {
                Ok(mpi) => installed.push(mpi),
                Err(why) => note(format!("{} is left out: {why}", mpi.name)),
            }
        }
        note("perftest is left out: it measures verbs (--fabric verbs)".to_owned());
    } else {
        for mpi in &MPIS {
            note(format!(
                "{} is left out: between processes of one host it takes shared memory, not the card",
                mpi.name
            ));
        }
        perftest = Some(Perftest::find().map_err(|why| Failure::from(format!("--fabric {fabric}: {why}")))?);
    }
    let locks = unique(&args.locks);
    if locks.len() > 1 && perftest.is_some() {
        return Err("several locks: perftest has none to compare with".into());
    }
    if locks[0] != LockDesign::default() {
        note(format!("onesided's windows have the lock {}", locks[0]));
    }
    let field = Field { fabric, locks, installed: &installed, perftest };
    let interrupts = interrupts()?;
    let results = match measure::run(effort, &field, &interrupts, &mut note)? {
        Ok(results) => results,
        Err(code) => return Ok(Err(code)),
    };
    let ours = Program { name: "onesided".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
    let perftest =
        field.perftest.map(|perftest| Program { name: perftest::NAME.to_owned(), version: perftest.version });
    let programs = [ours]
        .into_iter()
        .chain(perftest)
        .chain(
            installed.iter().map(|mpi| Program { name: mpi.mpi.name.to_owned(), version: mpi.mpi.version.to_owned() }),
        )
        .collect();
    Ok(Ok(Document::new(machine, begun, command(), programs, notes, results)))
}
