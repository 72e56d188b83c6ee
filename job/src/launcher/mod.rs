//! `onesided run` as a library: starts, supervises and ends the processes of a job, on several
//! hosts with an agent on each.
//!
//! Each rank's process leads its own process group. A signal to the job reaches the rank's children
//! too. A Ctrl-C reaches the launcher alone, which forwards it once. At the end of the job the
//! launcher kills whatever is left of a group, and the process that joined wherever it is. When the launcher itself is killed, the kernel kills
//! the ranks (`PR_SET_PDEATHSIG`).
//!
//! On another host a command starts an *agent*: a process that calls [`agent`](agent()). The caller
//! of the launcher makes that command ([`StartAgent`]): the program `onesided` has ssh and `srun`.
//! The agent is its host's daemon: it holds the job segment, the ranks' processes and their output.
//! The standard input and output of the command are its stream to the launcher, which is the head
//! daemon. So no port is opened, any remote shell works, and the stream ends when either side, or
//! anything between them, ends.
#![allow(unsafe_code)] // one call between fork and exec

mod agent;
mod control;
mod events;
mod hosts;
mod limits;
mod output;
mod ranks;
mod remote;
mod remote_agent;
mod reports;
mod stuck;
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
pub use crate::launcher::hosts::{Hosts, Slots, StartAgent};

use crate::Error;
use crate::daemon::relay;
use crate::daemon::relay::{ControlRelay, RelayEvents};
use crate::environment::{Environment, FABRIC, SECRET_FILE, STUCK_AFTER};
use crate::launcher::limits::{Limits, NotStarted};
use crate::launcher::output::{Output, Stream, Target};
use crate::launcher::ranks::Ranks;
use crate::launcher::remote::Remote;
use crate::launcher::reports::Reports;
use crate::launcher::stuck::Stuck;
use crate::launcher::supervisor::Supervisor;
use crate::segment::JobSegment;
use crate::{STATISTICS, SUSPECT_AFTER, Secret, Server, start};

/// How long survivors may take to notice and report a failure, and then to react to `SIGTERM`.
pub const GRACE: Duration = Duration::from_secs(2);
/// The launcher's descriptors for each rank (process, two pipes, connection and its process, the process
/// that outlasts a script), and in addition.
const DESCRIPTORS_A_RANK: u64 = 6;
const DESCRIPTORS: u64 = 128;

/// A job to be started.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The number of ranks.
    pub size: u32,
    /// The program that each rank runs, looked up in `PATH`.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// The value of `ONESIDED_FABRIC`.
    pub fabric: String,
    /// What happens to the other ranks when one fails.
    pub on_failure: OnFailure,
    /// Whether each line of output begins with its rank.
    pub labels: bool,
    /// Ranks report what they have waited for so long, and the launcher makes a page of it.
    pub stuck_after: Option<Duration>,
    /// Ranks report what messages they have sent, and the launcher writes the sums of the job to standard
    /// error at its end.
    pub statistics: Option<StatisticsFormat>,
}

/// How the [statistics](crate::Statistics) of a job are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatisticsFormat {
    /// A table.
    Table,
    /// One line: an array of the table's rows.
    Json,
}

/// What happens to the other ranks when one fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// They get [`GRACE`] to report it, then `SIGTERM`, then `SIGKILL` after another [`GRACE`].
    Abort,
    /// Nothing: the library reports the failure to them, and they continue.
    Continue,
}

/// A rank's surroundings besides the job.
#[derive(Debug)]
struct Surroundings {
    /// Whether rank 0 reads the launcher's standard input.
    reads: bool,
    /// The working directory, if not the launcher's.
    folder: Option<OsString>,
    /// Variables in addition to the launcher's.
    variables: Vec<(OsString, OsString)>,
}

impl Surroundings {
    const fn own() -> Self {
        Self { reads: true, folder: None, variables: Vec::new() }
    }
}

/// A signal that ends the job, and a descriptor that becomes readable when it arrives. The owner of
/// the signal handlers makes it.
#[derive(Debug)]
pub struct Interrupt {
    /// The signal, which is forwarded.
    pub signal: Signal,
    /// A nonblocking pipe or socket that the handler writes to.
    pub raised: OwnedFd,
}

/// A started job: its server, its processes, and their output.
type Started = ((Arc<JobSegment>, Server), (Ranks, Remote), Vec<Stream>);

impl Launch {
    /// Starts the job and waits for its end. Returns the launcher's exit status: that of the first
    /// rank that failed (128 + n if signal n killed it), 128 + n if an interrupt by signal n ended
    /// the job, else 0.
    ///
    /// The first interrupt is forwarded to all ranks, which are killed if they do not end within
    /// [`GRACE`]; the next one kills them. Raises this process's soft limit of descriptors to the
    /// hard limit. The ranks are killed when the calling thread ends. A process that ignores
    /// `SIGCHLD` does not learn how the ranks ended and returns status 255.
    ///
    /// # Errors
    /// - [`Error::Launch`]: no ranks, or more than memory, descriptors or processes allow.
    /// - [`Error::Program`]: the program cannot be started.
    ///
    /// On an error, everything that was started is killed.
    pub fn run(&self, interrupts: &[Interrupt], observe: &mut dyn FnMut(Event)) -> Result<u8, Error> {
        let spare_descriptors = self.check()?;
        let job_segment = Arc::new(JobSegment::create(self.size).map_err(failed("make the job segment"))?);
        let secret = Secret::random();
        let server = Server::start(Arc::clone(&job_segment), secret.clone(), spare_descriptors)?;
        let (ranks, streams) = self.start_all((0..self.size).map(Rank), &server, &secret, &Surroundings::own())?;
        let remote = Remote::none().map_err(failed("make an eventfd"))?;
        self.supervise((job_segment, server), (ranks, remote), streams, interrupts, observe)
    }

    /// Like [`run`](Self::run), on several hosts. The launcher need not run on one of them. Ranks
    /// on its own host, listed under its name or as `localhost`, are its children. On the others an
    /// agent starts them; it ends, and kills them, when it loses the launcher.
    ///
    /// Agents have `ONESIDED_JOIN_TIMEOUT` seconds to answer. A host whose agent is silent for
    /// `ONESIDED_SUSPECT_AFTER` seconds is lost, which is a failure of its ranks. Only ranks on
    /// this host can read standard input. An interrupt before all agents have answered cancels the
    /// start.
    ///
    /// # Errors
    /// As [`run`](Self::run). [`Error::Launch`]: too few slots. [`Error::Launch`], which names the
    /// host: the command for its agent cannot be started or ends; the agent has another version.
    pub fn run_on(&self, hosts: &Hosts, interrupts: &[Interrupt], observe: &mut dyn FnMut(Event)) -> Result<u8, Error> {
        match self.start_on(hosts, interrupts) {
            Ok((daemon, ranks, streams)) => self.supervise(daemon, ranks, streams, interrupts, observe),
            Err(NotStarted::Interrupted(signal)) => Ok(End::Killed(signal.as_raw()).code()),
            Err(NotStarted::Failed(error)) => Err(error),
        }
    }

    fn start_on(&self, hosts: &Hosts, interrupts: &[Interrupt]) -> Result<Started, NotStarted> {
        let spare_descriptors = self.check()?;
        let suspect_after = relay::suspect_after(std::env::var_os(SUSPECT_AFTER))?;
        let patience = start::patience()?;
        let limits = Limits { until: Instant::now() + patience, patience, interrupts };
        let (used, by_rank) = hosts::assign(&hosts.list, self.size)?;
        let job_segment = Arc::new(JobSegment::create(self.size).map_err(failed("make the job segment"))?);
        job_segment.lay_out(&by_rank, suspect_after);
        let secret = Secret::random();
        let mut server = Server::start(Arc::clone(&job_segment), secret.clone(), spare_descriptors)?;
        let events = Arc::new(RelayEvents::new().map_err(failed("make an eventfd"))?);
        let (mut remote, links, mut streams) =
            Remote::start(self, hosts, (used, &by_rank), (&secret, suspect_after), &events, &limits)?;
        server.relay(ControlRelay::head(links, suspect_after, Some(events)))?;
        let here = used.iter().position(Slots::is_here);
        let own = (0..).map(Rank).zip(&by_rank).filter(|(_, host)| Some(usize::from(**host)) == here);
        let own = own.map(|(rank, _)| rank);
        let all = remote.wait_for_all(&self.program, &limits);
        let all = all.and_then(|()| Ok(self.start_all(own, &server, &secret, &Surroundings::own())?));
        let (ranks, own) = all.inspect_err(|_| server.stop())?; // ends the agents
        streams.extend(own);
        Ok(((job_segment, server), (ranks, remote), streams))
    }

    fn supervise(
        &self,
        (job_segment, server): (Arc<JobSegment>, Server),
        (ranks, remote): (Ranks, Remote),
        streams: Vec<Stream>,
        interrupts: &[Interrupt],
        observe: &mut dyn FnMut(Event),
    ) -> Result<u8, Error> {
        let reports = Reports::new(self.stuck_after.map(|_| Stuck::new(self.size)), self.statistics);
        let output = Output::start(streams, reports).map_err(failed("start printing"))?;
        let supervisor = Supervisor::new(job_segment, server, (ranks, remote), output, self.on_failure, interrupts);
        supervisor.run(observe).map_err(failed("wait for the ranks"))
    }

    /// Checks that the job fits this host; returns how many descriptors are left for the ranks'
    /// memory.
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
        // Checked first: creating a job segment touches pages, and the kernel kills processes when
        // memory runs out.
        let (needed, free) = (JobSegment::bytes(self.size), available_memory());
        if free.is_some_and(|free| needed > free) {
            let (size, needed, free) = (self.size, needed >> 20, free.unwrap_or(0) >> 20);
            return refuse(format!(
                "{size} ranks need {needed} MiB for the memory that they share, {free} MiB are free"
            ));
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
        let mut ranks = Ranks::new(Arc::clone(server.job_segment()));
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

    /// The variables that make ranks report.
    fn reporting(&self) -> impl Iterator<Item = (&'static str, String)> + use<> {
        let stuck = self.stuck_after.map(|after| (STUCK_AFTER, after.as_secs_f64().to_string()));
        stuck.into_iter().chain(self.statistics.map(|_| (STATISTICS, "1".to_owned())))
    }

    fn command(&self, environment: &Environment, surroundings: &Surroundings) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .envs(surroundings.variables.iter().map(|(name, value)| (name, value)))
            .envs(environment.variables())
            .env(FABRIC, &self.fabric)
            .envs(self.reporting())
            .env_remove(SECRET_FILE)
            .process_group(0);
        if let Some(folder) = &surroundings.folder {
            command.current_dir(folder);
        }
        let reads = surroundings.reads && environment.rank == Rank(0);
        command.stdin(if reads { stdin() } else { Stdio::null() });
        // A single rank without a label may use the terminal directly.
        if self.labels || self.size > 1 || self.statistics.is_some() {
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

/// Whether a process belongs to our session, and so to our terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Session {
    Ours,
    Own,
}

/// Makes the kernel kill the process when the thread that starts it ends.
fn die_with_the_launcher(command: &mut Command, session: Session) {
    let launcher = rustix::process::getpid();
    let before_exec = move || {
        if session == Session::Own {
            rustix::process::setsid()?;
        }
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // A launcher that died before that call sends no signal.
        if rustix::process::getppid() != Some(launcher) {
            return Err(rustix::io::Errno::SRCH.into());
        }
        Ok(())
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed. The closure makes
    // system calls and builds errors from numbers; it neither allocates, nor locks, nor touches
    // memory that another thread may hold.
    unsafe { command.pre_exec(before_exec) };
}

/// What rank 0 reads: our standard input. Rank 0 cannot read a terminal itself from another process
/// group, and gets a pipe then, see [`feed`]. A launcher in the background passes nothing, because
/// reading would stop it.
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

/// Copies the terminal's input to a rank's pipe while both last.
fn feed(child: &mut Child) {
    let (Some(mut pipe), Ok(terminal)) = (child.stdin.take(), io::stdin().as_fd().try_clone_to_owned()) else { return };
    // Detached: a read of the terminal cannot be interrupted. It ends with the process.
    let _ = std::thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(move || io::copy(&mut File::from(terminal), &mut pipe));
}

/// Raises the soft limit of descriptors to the hard limit: each region of the job's memory takes
/// one.
fn raise_descriptors() -> u64 {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let _ = rustix::process::setrlimit(Resource::Nofile, raised); // on failure the old limit holds
    rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// The kernel's estimate of the memory that can still be allocated, in bytes; `None` where it gives
/// none.
fn available_memory() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
