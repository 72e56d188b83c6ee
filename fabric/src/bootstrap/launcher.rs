//! `onesided run` as a library: starts the processes of a job, watches over them, ends them.
//!
//! Each rank's process leads a process group of its own: a signal for the job reaches what the rank has started as
//! well, a Ctrl-C at the terminal reaches the launcher alone, which forwards it once, and whatever is left of a group
//! at the job's end is killed. When the launcher itself is killed, the kernel kills the ranks (`PR_SET_PDEATHSIG`).
#![allow(unsafe_code)] // one call between fork and exec

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use remote_memory::{Liveness, Rank};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Resource, Rlimit, Signal};

pub use crate::bootstrap::events::{End, Event};

use crate::Error;
use crate::bootstrap::environment::{Environment, FABRIC, SECRET_FILE};
use crate::bootstrap::output::{Output, Stream, Target};
use crate::bootstrap::ranks::Ranks;
use crate::bootstrap::{Secret, Server, timespec};
use crate::shm::Board;

/// How long survivors may take to notice a failure and report it, and then to obey `SIGTERM`.
pub const GRACE: Duration = Duration::from_secs(2);
/// How long a process may take to end whose connection has ended.
const DYING: Duration = Duration::from_millis(200);
/// How long what a rank left running may take to write its last lines.
const LAST_LINES: Duration = Duration::from_secs(1);
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

/// A signal that ends the job, and what becomes readable when it comes. Whoever handles signals makes it.
#[derive(Debug)]
pub struct Interrupt {
    /// Which signal; it is forwarded.
    pub signal: Signal,
    /// A pipe or socket that the handler writes to; nonblocking.
    pub raised: OwnedFd,
}

impl Launch {
    /// Starts the job and waits for its end. Returns the exit status for the launcher: that of the first rank that
    /// failed (128 + n if signal n killed it), 128 + n if an interrupt by signal n ended the job, else 0.
    ///
    /// The first interrupt is forwarded to all ranks, which are killed if they do not end within [`GRACE`]; the next
    /// kills them at once. Raises this process's soft limit of descriptors to the hard one. When the calling thread
    /// ends, the ranks are killed.
    ///
    /// # Errors
    /// [`Error::Launch`]: no ranks, or more than memory, descriptors or processes allow. [`Error::Program`]: the
    /// program cannot be started. Whatever had been started is killed.
    pub fn run(&self, interrupts: &[Interrupt], observe: &mut dyn FnMut(Event)) -> Result<u8, Error> {
        let failed = |what: &str| {
            let what = what.to_owned();
            move |source| Error::Launch { what, source: Some(source) }
        };
        let spare_descriptors = self.check()?;
        let board = Board::create(self.size).map_err(failed("make the job's board"))?;
        let board = Arc::new(board);
        let secret = Secret::random();
        let server = Server::start(Arc::clone(&board), secret.clone(), spare_descriptors)?;
        let (ranks, streams) = self.start_all(&server, &secret)?;
        let output = Output::start(streams).map_err(failed("start printing"))?;
        let supervisor =
            Supervisor { board, server, ranks, output, on_failure: self.on_failure, interrupts, phase: Phase::Running };
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

    fn start_all(&self, server: &Server, secret: &Secret) -> Result<(Ranks, Vec<Stream>), Error> {
        let mut ranks = Ranks::default();
        let mut streams = Vec::new();
        for rank in (0..self.size).map(Rank) {
            let environment =
                Environment { rank, size: self.size, address: server.address().to_owned(), secret: secret.clone() };
            let mut child = self
                .command(&environment)
                .spawn()
                .map_err(|source| Error::Program { program: self.program.clone(), source })?;
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

    fn command(&self, environment: &Environment) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .envs(environment.variables())
            .env(FABRIC, &self.fabric)
            .env_remove(SECRET_FILE)
            .process_group(0);
        command.stdin(if environment.rank == Rank(0) { stdin() } else { Stdio::null() });
        // One rank without a label may have the terminal for itself.
        if self.labels || self.size > 1 {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        die_with_the_launcher(&mut command);
        command
    }
}

/// Has the kernel kill the process when the thread that starts it ends.
fn die_with_the_launcher(command: &mut Command) {
    let launcher = rustix::process::getpid();
    let before_exec = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // Had the launcher died before that call, the signal would never come.
        if rustix::process::getppid() != Some(launcher) {
            return Err(rustix::io::Errno::SRCH.into());
        }
        Ok(())
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed. The closure makes two system calls and
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

/// Watches over a running job.
struct Supervisor<'i> {
    board: Arc<Board>,
    server: Server,
    ranks: Ranks,
    output: Output,
    on_failure: OnFailure,
    interrupts: &'i [Interrupt],
    phase: Phase,
}

/// How far the job's end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// A rank failed; the others may end by themselves until then.
    Failed(Instant),
    /// The ranks have been asked to end; until then.
    Asked(Instant),
    /// They have been killed.
    Killed,
}

impl Supervisor<'_> {
    fn run(mut self, observe: &mut dyn FnMut(Event)) -> io::Result<u8> {
        let mut failure = None;
        let mut interrupt = None;
        while self.ranks.left() > 0 {
            let raised = self.wait()?;
            if let Some(signal) = raised {
                interrupt.get_or_insert(signal);
                self.interrupt(signal);
            }
            for (rank, pid, end) in self.ended()? {
                let Some(end) = self.settle(rank, end) else { continue };
                // What ends because it was told to does not fail.
                if matches!(self.phase, Phase::Running | Phase::Failed(_)) {
                    failure.get_or_insert(end);
                    observe(Event::Failed { rank, pid: pid.as_raw_nonzero().get(), end });
                }
            }
            if failure.is_some() && self.phase == Phase::Running && self.on_failure == OnFailure::Abort {
                self.phase = Phase::Failed(Instant::now() + GRACE);
            }
            self.escalate(observe);
        }
        interrupt = interrupt.or(self.last_lines()?);
        let lost = self.output.lost();
        if let Some(errno) = lost {
            observe(Event::OutputLost { errno });
        }
        let interrupted = interrupt.map(|signal| End::Killed(signal.as_raw()));
        // Ranks that write on get SIGPIPE: then that was the cause.
        Ok(interrupted.or(lost.map(|_| End::Exited(1))).or(failure).map_or(0, End::code))
    }

    /// Those that ended, the first that died first: others fail because of it. They may learn of its death by its
    /// connection and end before the kernel has quite finished with it.
    fn ended(&mut self) -> io::Result<Vec<(Rank, Pid, End)>> {
        let mut ended = self.ranks.ended();
        let first = self.board.casualty();
        if let Some(dying) = first.filter(|_| !ended.is_empty()).and_then(|first| self.ranks.end_of(first)) {
            // Not for long: it may have been inside a script that goes on.
            match poll(&mut [PollFd::new(&dying, PollFlags::IN)], Some(&timespec(DYING))) {
                Ok(_) | Err(rustix::io::Errno::INTR) => ended.extend(self.ranks.ended()),
                Err(error) => return Err(error.into()),
            }
        }
        ended.sort_by_key(|(rank, _, end)| (Some(*rank) != first, !matches!(end, End::Killed(_))));
        Ok(ended)
    }

    /// Tells the board how a rank ended. `Some` if it failed.
    fn settle(&self, rank: Rank, end: End) -> Option<End> {
        if end == End::Exited(0) && self.board.join(rank).is_ok() {
            // A program that knows nothing of the job. Nobody has to wait for it any more.
            self.board.leave(rank);
            return None;
        }
        self.board.declare_dead(rank); // unless it left
        self.server.look();
        match (end, self.board.liveness(rank)) {
            (End::Exited(0), Liveness::Dead) => Some(End::Deserted),
            (End::Exited(0), _) => None,
            _ => Some(end),
        }
    }

    fn interrupt(&mut self, signal: Signal) {
        self.phase = match self.phase {
            Phase::Running | Phase::Failed(_) => {
                self.ranks.signal(signal);
                Phase::Asked(Instant::now() + GRACE)
            }
            Phase::Asked(_) | Phase::Killed => {
                self.ranks.signal(Signal::KILL);
                Phase::Killed
            }
        };
    }

    fn escalate(&mut self, observe: &mut dyn FnMut(Event)) {
        let now = Instant::now();
        let (signal, next) = match self.phase {
            Phase::Failed(until) if until <= now => (Signal::TERM, Phase::Asked(now + GRACE)),
            Phase::Asked(until) if until <= now => (Signal::KILL, Phase::Killed),
            _ => return,
        };
        let left = self.ranks.left();
        if left > 0 {
            observe(Event::Stopping { left, signal });
            self.ranks.signal(signal);
        }
        self.phase = next;
    }

    /// Waits until a rank ends, an interrupt is raised (that one is returned), or the phase is over.
    fn wait(&self) -> io::Result<Option<Signal>> {
        let until = match self.phase {
            Phase::Failed(until) | Phase::Asked(until) => Some(until),
            Phase::Running | Phase::Killed => None,
        };
        self.wait_for(self.ranks.ends(), until)
    }

    fn wait_for<'f>(
        &'f self,
        others: impl Iterator<Item = BorrowedFd<'f>>,
        until: Option<Instant>,
    ) -> io::Result<Option<Signal>> {
        let raised = self.interrupts.iter().map(|interrupt| interrupt.raised.as_fd());
        let mut polled: Vec<_> = raised.chain(others).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let timeout = until.map(|until| timespec(until.saturating_duration_since(Instant::now())));
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let raised = self.interrupts.iter().zip(&polled).find(|(_, polled)| !polled.revents().is_empty());
        Ok(raised.map(|(interrupt, _)| {
            // One byte, so that two signals are two interrupts.
            let _ = rustix::io::read(&interrupt.raised, &mut [0; 1]);
            interrupt.signal
        }))
    }

    /// All ranks have ended. What they left running may write its last lines before it is killed. An interrupt ends
    /// the printing: whoever should read may have stopped reading.
    fn last_lines(&mut self) -> io::Result<Option<Signal>> {
        let until = Instant::now() + LAST_LINES;
        while !self.output.is_done() && Instant::now() < until {
            if let Some(signal) = self.wait_for(std::iter::once(self.output.done()), Some(until))? {
                return Ok(Some(signal));
            }
        }
        self.output.finish();
        while !self.output.is_done() {
            if let Some(signal) = self.wait_for(std::iter::once(self.output.done()), None)? {
                return Ok(Some(signal));
            }
        }
        Ok(None)
    }
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
