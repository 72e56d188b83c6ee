//! `onesided run` as a library: starts the processes of a job, watches over them, ends them; on several hosts by an agent
//! on each.
//!
//! Each rank's process leads a process group of its own: a signal for the job reaches what the rank has started as
//! well, a Ctrl-C at the terminal reaches the launcher alone, which forwards it once, and whatever is left of a group
//! at the job's end is killed. When the launcher itself is killed, the kernel kills the ranks (`PR_SET_PDEATHSIG`).
//!
//! On other hosts a remote shell starts an *agent*, this program with another subcommand. It keeps its host: a board, the
//! ranks' processes and their output. Its input and output, as the remote shell carries them, are its stream to the
//! launcher, which is the hub of the job's bridge. So no port is opened, whatever reaches the host will
//! do, and the end of either side, or of what is between them, is the end of the stream.
#![allow(unsafe_code)] // one call between fork and exec

mod agent;
mod control;
mod events;
mod hosts;
mod limits;
mod output;
mod ranks;
mod remote;
mod remote_shell;
mod slurm;
mod supervisor;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use onesided_remote_memory::Rank;
use rustix::process::{Resource, Rlimit, Signal};

pub use crate::launcher::agent::agent;
pub use crate::launcher::events::{End, Event};
pub use crate::launcher::hosts::{Hosts, Slots};
pub use crate::launcher::slurm::SRUN;

use crate::Error;
use crate::daemon::bridge;
use crate::daemon::bridge::{Bridge, Desk};
use crate::environment::{Environment, FABRIC, SECRET_FILE};
use crate::launcher::limits::{Limits, NotStarted};
use crate::launcher::output::{Output, Stream, Target};
use crate::launcher::ranks::Ranks;
use crate::launcher::remote::Remote;
use crate::launcher::supervisor::Supervisor;
use crate::segment::Board;
use crate::{SUSPECT_AFTER, Secret, Server, start};

/// How long survivors may take to notice a failure and report it, and then to obey `SIGTERM`.
pub const GRACE: Duration = Duration::from_secs(2);
/// Descriptors of the launcher for each rank (process, two pipes, connection and its process), and beside them.
const DESCRIPTORS_A_RANK: u64 = 5;
const DESCRIPTORS: u64 = 128;

/// A job to be started.
#[derive(Debug, Clone)]
pub struct Launch {
    /// How many ranks.
    pub size: u32,
    /// What each of them runs; found by `PATH`.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// The fabric they shall use, for `ONESIDED_FABRIC`.
    pub fabric: String,
    /// What becomes of the others when one fails.
    pub on_failure: OnFailure,
    /// Whether each line of output begins with its rank.
    pub labels: bool,
}

/// What becomes of the other ranks when one fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// They get [`GRACE`] to report it, then `SIGTERM`, then, [`GRACE`] later, `SIGKILL`.
    Abort,
    /// Nothing: the library tells them, and they go on.
    Continue,
}

/// What a rank finds beside the job.
#[derive(Debug)]
struct Surroundings {
    /// Whether our standard input is for rank 0.
    reads: bool,
    /// If not ours.
    folder: Option<OsString>,
    /// Beside ours.
    variables: Vec<(OsString, OsString)>,
}

impl Surroundings {
    const fn own() -> Self {
        Self { reads: true, folder: None, variables: Vec::new() }
    }
}

/// A signal that ends the job, and what becomes readable when it comes. Whoever handles signals makes it.
#[derive(Debug)]
pub struct Interrupt {
    /// Which signal; it is forwarded.
    pub signal: Signal,
    /// A pipe or socket that the handler writes to; nonblocking.
    pub raised: OwnedFd,
}

/// What keeps a job, its processes, and their output.
type Started = ((Arc<Board>, Server), (Ranks, Remote), Vec<Stream>);

impl Launch {
    /// Starts the job and waits for its end. Returns the exit status for the launcher: that of the first rank that
    /// failed (128 + n if signal n killed it), 128 + n if an interrupt by signal n ended the job, else 0.
    ///
    /// The first interrupt is forwarded to all ranks, which are killed if they do not end within [`GRACE`]; the next
    /// kills them at once. Raises this process's soft limit of descriptors to the hard one. When the calling thread
    /// ends, the ranks are killed. A process that ignores `SIGCHLD` does not learn how they ended: status 255.
    ///
    /// # Errors
    /// [`Error::Launch`]: no ranks, or more than memory, descriptors or processes allow. [`Error::Program`]: the
    /// program cannot be started. Whatever had been started is killed.
    pub fn run(&self, interrupts: &[Interrupt], observe: &mut dyn FnMut(Event)) -> Result<u8, Error> {
        let spare_descriptors = self.check()?;
        let board = Arc::new(Board::create(self.size).map_err(failed("make the job's board"))?);
        let secret = Secret::random();
        let server = Server::start(Arc::clone(&board), secret.clone(), spare_descriptors)?;
        let (ranks, streams) = self.start_all((0..self.size).map(Rank), &server, &secret, &Surroundings::own())?;
        let remote = Remote::none().map_err(failed("make a desk"))?;
        self.supervise((board, server), (ranks, remote), streams, interrupts, observe)
    }

    /// As [`run`](Self::run), on several hosts. The launcher need not run on one of them. The ranks on its own host, if it
    /// is in the list under its name or as `localhost`, are its children; on the others an agent starts them, which ends,
    /// and kills them, when it loses the launcher.
    ///
    /// Agents have `ONESIDED_JOIN_TIMEOUT` seconds to answer. A host whose agent is silent for `ONESIDED_SUSPECT_AFTER`
    /// seconds is lost, and that is a failure of its ranks. Only ranks on this host can read standard input. An interrupt
    /// before all agents have answered ends the job's start, and what was started.
    ///
    /// # Errors
    /// As [`run`](Self::run). [`Error::Launch`], naming the host: too few slots, a remote shell that cannot be started or
    /// ends, no such program there or one of another version.
    pub fn run_on(&self, hosts: &Hosts, interrupts: &[Interrupt], observe: &mut dyn FnMut(Event)) -> Result<u8, Error> {
        match self.start_on(hosts, interrupts) {
            Ok((keeper, ranks, streams)) => self.supervise(keeper, ranks, streams, interrupts, observe),
            Err(NotStarted::Interrupted(signal)) => Ok(End::Killed(signal.as_raw()).code()),
            Err(NotStarted::Failed(error)) => Err(error),
        }
    }

    fn start_on(&self, hosts: &Hosts, interrupts: &[Interrupt]) -> Result<Started, NotStarted> {
        let spare_descriptors = self.check()?;
        let suspect_after = bridge::suspect_after(std::env::var_os(SUSPECT_AFTER))?;
        let patience = start::patience()?;
        let limits = Limits { until: Instant::now() + patience, patience, interrupts };
        let (used, by_rank) = hosts.assign(self.size)?;
        let board = Arc::new(Board::create(self.size).map_err(failed("make the job's board"))?);
        (0..).map(Rank).zip(&by_rank).for_each(|(rank, host)| board.place(rank, u32::from(*host)));
        let secret = Secret::random();
        let mut server = Server::start(Arc::clone(&board), secret.clone(), spare_descriptors)?;
        let desk = Arc::new(Desk::new().map_err(failed("make a desk"))?);
        let (mut remote, links, mut streams) =
            Remote::start(self, hosts, (&used, &by_rank), (&secret, suspect_after), &desk, &limits)?;
        server.bridge(Bridge::hub(links, suspect_after, Some(desk)))?;
        let here = used.iter().position(|host| host.is_here());
        let own = (0..).map(Rank).zip(&by_rank).filter(|(_, host)| Some(usize::from(**host)) == here);
        let own = own.map(|(rank, _)| rank);
        let all = remote.wait_for_all(&self.program, &limits);
        let all = all.and_then(|()| Ok(self.start_all(own, &server, &secret, &Surroundings::own())?));
        let (ranks, own) = all.inspect_err(|_| server.stop())?; // the agents are told to go
        streams.extend(own);
        Ok(((board, server), (ranks, remote), streams))
    }

    fn supervise(
        &self,
        (board, server): (Arc<Board>, Server),
        (ranks, remote): (Ranks, Remote),
        streams: Vec<Stream>,
        interrupts: &[Interrupt],
        observe: &mut dyn FnMut(Event),
    ) -> Result<u8, Error> {
        let output = Output::start(streams).map_err(failed("start printing"))?;
        let supervisor = Supervisor::new(board, server, (ranks, remote), output, self.on_failure, interrupts);
        supervisor.run(observe).map_err(failed("wait for the ranks"))
    }

    /// Whether the job fits this host; how many descriptors are left for the ranks' memory.
    fn check(&self) -> Result<usize, Error> {
        let refuse = |what: String| Err(Error::Launch { what, source: None });
        if self.size == 0 {
            return refuse("a job has at least one rank".to_owned());
        }
        let (limit, needed) = (raise_descriptors(), DESCRIPTORS + u64::from(self.size) * DESCRIPTORS_A_RANK);
        let Some(spare) = limit.checked_sub(needed) else {
            let size = self.size;
            return refuse(format!("{size} ranks need {needed} descriptors, the limit is {limit} (see ulimit -Hn)"));
        };
        // Asked first: a board is made with all its pages, and the kernel kills somebody when there are none left.
        let (needed, free) = (Board::bytes(self.size), available_memory());
        if free.is_some_and(|free| needed > free) {
            let (size, needed, free) = (self.size, needed >> 20, free.unwrap_or(0) >> 20);
            return refuse(format!("{size} ranks need {needed} MiB for messages among them, {free} MiB are free"));
        }
        Ok(usize::try_from(spare).unwrap_or(usize::MAX))
    }

    fn start_all(
        &self,
        own: impl Iterator<Item = Rank>,
        server: &Server,
        secret: &Secret,
        surroundings: &Surroundings,
    ) -> Result<(Ranks, Vec<Stream>), Error> {
        let mut ranks = Ranks::default();
        let mut streams = Vec::new();
        for rank in own {
            let environment =
                Environment { rank, size: self.size, address: server.address().to_owned(), secret: secret.clone() };
            let mut child = self.command(&environment, surroundings).spawn().map_err(|source| Error::Program {
                program: self.program.clone(),
                host: None,
                source,
            })?;
            let label = self.labels.then_some(rank);
            let pipes = [
                (child.stdout.take().map(OwnedFd::from), Target::Stdout),
                (child.stderr.take().map(OwnedFd::from), Target::Stderr),
            ];
            streams.extend(pipes.into_iter().filter_map(|(pipe, target)| Some(Stream::new(pipe?, target, label))));
            feed(&mut child);
            ranks.add(rank, child)?;
        }
        Ok((ranks, streams))
    }

    fn command(&self, environment: &Environment, surroundings: &Surroundings) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .envs(surroundings.variables.iter().map(|(name, value)| (name, value)))
            .envs(environment.variables())
            .env(FABRIC, &self.fabric)
            .env_remove(SECRET_FILE)
            .process_group(0);
        if let Some(folder) = &surroundings.folder {
            command.current_dir(folder);
        }
        let reads = surroundings.reads && environment.rank == Rank(0);
        command.stdin(if reads { stdin() } else { Stdio::null() });
        // One rank without a label may have the terminal for itself.
        if self.labels || self.size > 1 {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        die_with_the_launcher(&mut command, Session::Ours);
        command
    }
}

fn failed(what: &str) -> impl FnOnce(io::Error) -> Error + use<> {
    let what = what.to_owned();
    move |source| Error::Launch { what, source: Some(source) }
}

/// Whether a process is in our session, and has our terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Session {
    Ours,
    Own,
}

/// Has the kernel kill the process when the thread that starts it ends.
fn die_with_the_launcher(command: &mut Command, session: Session) {
    let launcher = rustix::process::getpid();
    let before_exec = move || {
        if session == Session::Own {
            rustix::process::setsid()?;
        }
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // Had the launcher died before that call, the signal would never come.
        if rustix::process::getppid() != Some(launcher) {
            return Err(rustix::io::Errno::SRCH.into());
        }
        Ok(())
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed. The closure makes system calls and
    // builds errors from numbers; it neither allocates, nor locks, nor touches memory that another thread may hold.
    unsafe { command.pre_exec(before_exec) };
}

/// What rank 0 reads: our own standard input. A terminal it cannot have itself, being in another process group: then
/// a pipe, see [`feed`]. If the launcher runs in the background, nothing, for reading would stop it.
fn stdin() -> Stdio {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        Stdio::inherit()
    } else if rustix::termios::tcgetpgrp(&stdin).is_ok_and(|group| group == rustix::process::getpgrp()) {
        Stdio::piped()
    } else {
        Stdio::null()
    }
}

/// Copies the terminal's input to a rank that reads from a pipe, for as long as both last.
fn feed(child: &mut Child) {
    let (Some(mut pipe), Ok(terminal)) = (child.stdin.take(), io::stdin().as_fd().try_clone_to_owned()) else { return };
    // Detached: a read of the terminal cannot be ended. The process's end ends it.
    let _ = std::thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(move || io::copy(&mut File::from(terminal), &mut pipe));
}

/// Raises the soft limit of descriptors to the hard one: each region of the job's memory takes one.
fn raise_descriptors() -> u64 {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let _ = rustix::process::setrlimit(Resource::Nofile, raised); // never refused; if it were, the old limit holds
    rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// What the kernel thinks may still be allocated, in bytes; `None` where it does not say.
fn available_memory() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
