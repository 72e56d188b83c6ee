//! A job that does what it is told through a socket, whoever wrote it.

use std::fs::{self, DirBuilder, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::bench::peers::install::{Installed, reason};

/// More than a job takes to start, or to answer, on a machine that is busy.
const DEADLINE: Duration = Duration::from_secs(60);
/// How often a wait looks whether the run is over.
const LOOK: Duration = Duration::from_millis(100);

/// What all ranks of a job do, together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order<'a> {
    pub(crate) probe: &'a str,
    /// In bytes.
    pub(crate) size: u64,
    pub(crate) times: u64,
    pub(crate) argument: u64,
}

/// Where the ranks of a job call.
#[derive(Debug)]
pub(crate) struct Door {
    listener: UnixListener,
    folder: PathBuf,
}

impl Door {
    pub(crate) fn open() -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("onesided-peers-{}-{number}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&folder)?; // nobody else calls
        let listener = UnixListener::bind(folder.join("socket"));
        let door = Self { listener: listener.inspect_err(|_| drop(fs::remove_dir(&folder)))?, folder };
        door.listener.set_nonblocking(true)?;
        Ok(door)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join("socket")
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A job whose ranks have called.
#[derive(Debug)]
pub(crate) struct Subject<'o> {
    /// By rank; none once an order has failed, for nobody knows what the ranks would answer to the next.
    ranks: Vec<BufReader<UnixStream>>,
    /// Whether the run has been ended by somebody else.
    over: &'o AtomicBool,
    /// For an answer.
    limit: Duration,
}

impl<'o> Subject<'o> {
    /// Once all ranks of the job have called; `ended` says why they never will.
    pub(crate) fn answer(
        door: &Door,
        size: u32,
        over: &'o AtomicBool,
        mut ended: impl FnMut() -> Option<String>,
    ) -> Result<Self, String> {
        let deadline = Instant::now() + DEADLINE;
        let mut subject = Self { ranks: Vec::new(), over, limit: DEADLINE };
        let mut called = Vec::new();
        while called.len() < size as usize {
            match door.listener.accept() {
                Ok((stream, _)) => {
                    let mut stream = subject.reader(stream).map_err(|error| error.to_string())?;
                    let line = subject.line(&mut stream, deadline)?;
                    let rank: u32 = line.parse().map_err(|_| format!("`{line}` is no rank"))?;
                    called.push((rank, stream));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if let Some(why) = ended() {
                        return Err(why);
                    }
                    if over.load(Ordering::Relaxed) || Instant::now() > deadline {
                        return Err(format!("it did not start within {} s", DEADLINE.as_secs()));
                    }
                    thread::sleep(Duration::from_millis(5));
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        called.sort_by_key(|(rank, _)| *rank);
        subject.ranks = called.into_iter().map(|(_, stream)| stream).collect();
        Ok(subject)
    }

    fn reader(&self, stream: UnixStream) -> io::Result<BufReader<UnixStream>> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(LOOK))?;
        Ok(BufReader::new(stream))
    }

    /// What each rank answers, by rank. A job that lacks the probe stays; any other error loses it.
    pub(crate) fn ask(&mut self, order: Order<'_>) -> Result<Vec<f64>, String> {
        let probe = order.probe;
        // Put back only with all answers read; else the sockets are closed, which ends the job.
        let mut ranks = std::mem::take(&mut self.ranks);
        let lines = self.exchange(&mut ranks, order).map_err(|why| format!("at `{probe}`: {why}"))?;
        self.ranks = ranks;
        let number = |line: &String| line.parse().map_err(|_| format!("at `{probe}`: it answered `{line}`"));
        lines.iter().map(number).collect()
    }

    /// Whether it can be asked no more.
    pub(crate) fn is_lost(&self) -> bool {
        self.ranks.is_empty()
    }

    /// Whether the run has been ended by somebody else.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(crate) fn set_limit(&mut self, limit: Duration) {
        self.limit = limit;
    }

    fn exchange(&self, ranks: &mut [BufReader<UnixStream>], order: Order<'_>) -> Result<Vec<String>, String> {
        let Order { probe, size, times, argument } = order;
        if ranks.is_empty() {
            return Err("it is lost".to_owned());
        }
        for rank in &mut *ranks {
            writeln!(rank.get_mut(), "{probe} {size} {times} {argument}").map_err(|error| error.to_string())?;
        }
        let deadline = Instant::now() + self.limit;
        ranks.iter_mut().map(|rank| self.line(rank, deadline)).collect()
    }

    /// The next line, without its end.
    fn line(&self, stream: &mut BufReader<UnixStream>, deadline: Instant) -> Result<String, String> {
        let mut line = String::new();
        loop {
            match stream.read_line(&mut line) {
                Ok(_) if line.ends_with('\n') => return Ok(line.trim_end().to_owned()),
                Ok(_) => return Err("it ended".to_owned()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.is_over() {
                        return Err("the run was ended".to_owned());
                    }
                    if Instant::now() > deadline {
                        return Err(format!("no answer within {} s", self.limit.as_secs()));
                    }
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

/// A job of an MPI. Its ranks end when their socket does, and it is made to end if it does not then.
#[derive(Debug)]
pub(crate) struct Job<'i> {
    child: Child,
    installed: &'i Installed,
}

impl<'i> Job<'i> {
    pub(crate) fn start(installed: &'i Installed, size: u32, socket: &Path) -> Result<Self, String> {
        let told = |error: io::Error| format!("{}: {error}", installed.mpiexec.display());
        let log = File::create(&installed.log).map_err(told)?;
        let child = Command::new(&installed.mpiexec)
            .args(installed.mpi.options)
            .args(["-n", &size.to_string()])
            .arg(&installed.program)
            .arg(socket)
            // Open MPI wants to hear twice that root means it; it is asked for nothing but our own program.
            .envs(["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"].map(|name| (name, "1")))
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(told)?)
            .stderr(log)
            .process_group(0) // Ctrl-C is for this program, which then ends its jobs
            .spawn()
            .map_err(told)?;
        Ok(Self { child, installed })
    }

    /// Why it ended, if it did.
    pub(crate) fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        Some(format!("mpiexec: {} ({})", reason(&self.installed.log, "it said nothing"), status))
    }

    fn ends_within(&mut self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            match self.child.try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(5)),
                _ => return true,
            }
        }
        false
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        if self.ends_within(Duration::from_secs(10)) {
            return;
        }
        if let Ok(pid) = i32::try_from(self.child.id()).map(Pid::from_raw) {
            let _ = pid.map(|pid| rustix::process::kill_process(pid, Signal::TERM));
        }
        if !self.ends_within(Duration::from_secs(3)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
