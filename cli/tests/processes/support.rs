//! Starts `onesided` and waits for it, with deadlines.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// Ends what hangs: ten times what any test takes.
pub(crate) const DEADLINE: Duration = Duration::from_secs(300);

/// `onesided` with these arguments. The signals that end it are not ignored, even if the tests'
/// parent ignores them.
pub(crate) fn onesided(args: &[&str]) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT,TERM,HUP", env!("CARGO_BIN_EXE_onesided")]).args(args);
    command
}

/// `onesided run` with these options and a shell script.
pub(crate) fn script(options: &[&str], script: &str) -> Command {
    onesided(&[&["run"], options, &["--", "sh", "-c", script]].concat())
}

/// A running program: its lines are read one by one, and its end has a deadline.
pub(crate) struct Running {
    child: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
    deadline: Instant,
}

/// How a program ended, and its unread output.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<String>,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

impl Ended {
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("no exit status: {self:?}"))
    }
}

pub(crate) fn start(command: &mut Command) -> Running {
    start_with(command.stdin(Stdio::null()))
}

/// The same with the command's own standard input.
pub(crate) fn start_with(command: &mut Command) -> Running {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stdout = lines(child.stdout.take().unwrap());
    let stderr = lines(child.stderr.take().unwrap());
    Running { child, stdout, stderr, deadline: Instant::now() + DEADLINE }
}

pub(crate) fn finish(command: &mut Command) -> Ended {
    start(command).wait()
}

/// The same with another deadline.
pub(crate) fn finish_within(command: &mut Command, limit: Duration) -> Ended {
    let mut running = start(command);
    running.deadline = Instant::now() + limit;
    running.wait()
}

fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                break;
            }
        }
    });
    receiver
}

impl Running {
    pub(crate) fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal);
    }

    /// The next line of standard output.
    pub(crate) fn line(&self) -> String {
        let left = self.deadline.saturating_duration_since(Instant::now());
        self.stdout
            .recv_timeout(left)
            .unwrap_or_else(|_| panic!("no line: {:?}", self.stderr.try_iter().collect::<Vec<_>>()))
    }

    /// The next line of standard error.
    pub(crate) fn error_line(&self) -> String {
        self.stderr.recv_timeout(self.deadline.saturating_duration_since(Instant::now())).unwrap()
    }

    /// One line of each of `ranks` ranks, by rank, without the labels.
    pub(crate) fn line_of_each(&self, ranks: usize) -> Vec<String> {
        let mut lines: Vec<_> = (0..ranks).map(|_| self.line()).collect();
        lines.sort();
        lines
            .iter()
            .enumerate()
            .map(|(rank, line)| line.strip_prefix(&format!("[{rank}] ")).unwrap().to_owned())
            .collect()
    }

    pub(crate) fn wait(mut self) -> Ended {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > self.deadline {
                let _ = self.child.kill();
                panic!("did not end; said {:?}", self.stderr.try_iter().collect::<Vec<_>>());
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let took = begin.elapsed();
        // Until the end of the pipes, which only the ended program held.
        let rest = |lines: &Receiver<String>| {
            let mut rest = Vec::new();
            while let Ok(line) = lines.recv_timeout(DEADLINE) {
                rest.push(line);
            }
            rest
        };
        Ended { status, stdout: rest(&self.stdout), stderr: rest(&self.stderr).join("\n"), took }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn kill(pid: i32, signal: Signal) {
    rustix::process::kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// Whether a process runs. A zombie does not.
pub(crate) fn runs(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}

/// Waits for a condition, at most `limit`.
pub(crate) fn eventually(limit: Duration, what: &str, condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < limit, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The memory files of the library that a process has open, by inode.
pub(crate) fn memory_files(pid: &str) -> Vec<u64> {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    open.filter(|entry| fs::read_link(entry.path()).is_ok_and(|link| link.to_string_lossy().contains("memfd:onesided")))
        .filter_map(|entry| fs::metadata(entry.path()).ok())
        .map(|metadata| metadata.ino())
        .collect()
}

/// Whether any process has this memory file open.
pub(crate) fn is_open_somewhere(inode: u64) -> bool {
    let processes =
        fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    processes.filter(|name| name.parse::<u32>().is_ok()).any(|pid| memory_files(&pid).contains(&inode))
}

/// Whether the kernel knows a socket of this name.
pub(crate) fn is_listening(address: &str) -> bool {
    fs::read_to_string("/proc/net/unix").unwrap().contains(address)
}
