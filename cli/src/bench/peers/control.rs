//! A job whose ranks run probes on request, through sockets: of this library, or of an MPI.

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

use crate::bench::peers::install::{Installed, ends_within, reason};

/// The longest that a job may take to start or to answer, on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);
/// How often a wait checks whether the run is over.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A probe that all ranks of a job run together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) probe: &'a str,
    /// In bytes.
    pub(crate) size: u64,
    pub(crate) times: u64,
    pub(crate) argument: u64,
}

/// The socket that the ranks of a job connect to.
#[derive(Debug)]
pub(crate) struct Listener {
    listener: UnixListener,
    folder: PathBuf,
}

impl Listener {
    pub(crate) fn open() -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("onesided-peers-{}-{number}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&folder)?; // only this user connects
        let listener = UnixListener::bind(folder.join("socket"));
        let listener = Self { listener: listener.inspect_err(|_| drop(fs::remove_dir(&folder)))?, folder };
        listener.listener.set_nonblocking(true)?;
        Ok(listener)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join("socket")
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A job whose ranks are connected.
#[derive(Debug)]
pub(crate) struct ControlledJob<'o> {
    /// By rank. Empty after a failed request, because the next answers could belong to that one.
    ranks: Vec<BufReader<UnixStream>>,
    /// Set when the run is ended from outside.
    over: &'o AtomicBool,
    /// The longest that an answer may take.
    limit: Duration,
}

impl<'o> ControlledJob<'o> {
    /// Waits until all ranks of the job have connected. `ended` returns why the job has ended, if
    /// it has.
    pub(crate) fn accept(
        listener: &Listener,
        size: u32,
        over: &'o AtomicBool,
        mut ended: impl FnMut() -> Option<String>,
    ) -> Result<Self, String> {
        let deadline = Instant::now() + DEADLINE;
        let mut job = Self { ranks: Vec::new(), over, limit: DEADLINE };
        let mut connected = Vec::new();
        while connected.len() < size as usize {
            match listener.listener.accept() {
                Ok((stream, _)) => {
                    let mut stream = job.reader(stream).map_err(|error| error.to_string())?;
                    let line = job.line(&mut stream, deadline)?;
                    let rank: u32 = line.parse().map_err(|_| format!("`{line}` is no rank"))?;
                    connected.push((rank, stream));
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
        connected.sort_by_key(|(rank, _)| *rank);
        job.ranks = connected.into_iter().map(|(_, stream)| stream).collect();
        Ok(job)
    }

    fn reader(&self, stream: UnixStream) -> io::Result<BufReader<UnixStream>> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(POLL_INTERVAL))?;
        Ok(BufReader::new(stream))
    }

    /// Sends a request to all ranks and returns their answers, by rank.
    ///
    /// # Errors
    /// A job without the probe stays usable; any other error loses the job.
    pub(crate) fn request(&mut self, request: Request<'_>) -> Result<Vec<f64>, String> {
        let probe = request.probe;
        // Put back only after all answers; otherwise the sockets are closed, which ends the job.
        let mut ranks = std::mem::take(&mut self.ranks);
        let lines = self.exchange(&mut ranks, request).map_err(|why| format!("at `{probe}`: {why}"))?;
        self.ranks = ranks;
        let number = |line: &String| line.parse().map_err(|_| format!("at `{probe}`: it answered `{line}`"));
        lines.iter().map(number).collect()
    }

    /// Whether a failed request has ended the connections.
    pub(crate) fn is_lost(&self) -> bool {
        self.ranks.is_empty()
    }

    /// Whether the run was ended from outside.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    pub(crate) fn over(&self) -> &'o AtomicBool {
        self.over
    }

    #[cfg(test)]
    pub(crate) fn set_limit(&mut self, limit: Duration) {
        self.limit = limit;
    }

    fn exchange(&self, ranks: &mut [BufReader<UnixStream>], request: Request<'_>) -> Result<Vec<String>, String> {
        let Request { probe, size, times, argument } = request;
        if ranks.is_empty() {
            return Err("it is lost".to_owned());
        }
        for rank in &mut *ranks {
            writeln!(rank.get_mut(), "{probe} {size} {times} {argument}").map_err(|error| error.to_string())?;
        }
        let deadline = Instant::now() + self.limit;
        ranks.iter_mut().map(|rank| self.line(rank, deadline)).collect()
    }

    /// The next line, without its terminator.
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

/// A job of an MPI. Its ranks end when their sockets are closed; dropping the job kills it if it
/// does not end then.
#[derive(Debug)]
pub(crate) struct Job<'i> {
    child: Child,
    installed: &'i Installed,
}

impl<'i> Job<'i> {
    pub(crate) fn start(installed: &'i Installed, size: u32, socket: &Path) -> Result<Self, String> {
        let failed = |error: io::Error| format!("{}: {error}", installed.mpiexec.display());
        let log = File::create(&installed.log).map_err(failed)?;
        let child = Command::new(&installed.mpiexec)
            .args(installed.mpi.options)
            .args(["-n", &size.to_string()])
            .arg(&installed.program)
            .arg(socket)
            // Open MPI refuses to run as root without both variables. It runs only the C program of
            // this crate.
            .envs(["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"].map(|name| (name, "1")))
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log)
            .process_group(0) // so that Ctrl-C reaches only this program, which then ends its jobs
            .spawn()
            .map_err(failed)?;
        Ok(Self { child, installed })
    }

    /// Why it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        Some(format!("mpiexec: {} ({})", reason(&self.installed.log, "it printed nothing"), status))
    }

    fn ends_within(&mut self, seconds: u64) -> bool {
        !matches!(ends_within(&mut self.child, Duration::from_secs(seconds)), Ok(None))
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        if self.ends_within(10) {
            return;
        }
        if let Ok(pid) = i32::try_from(self.child.id()).map(Pid::from_raw) {
            let _ = pid.map(|pid| rustix::process::kill_process(pid, Signal::TERM));
        }
        if !self.ends_within(3) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
