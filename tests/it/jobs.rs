//! Jobs of processes: this binary starts itself again as the launcher, which starts it again as
//! each rank.
//!
//! Ranks print to standard error, because the test harness writes to standard output as well.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use onesided::World;
use onesided::fabric::bootstrap::STATISTICS;
use onesided::fabric::bootstrap::launcher::{Launch, OnFailure, StatisticsFormat};
use rustix::process::{Pid, Signal};

use crate::limits;
use crate::support::DEADLINE;

const RANKS: &str = "ONESIDED_IT_RANKS";
/// The fabric, if not shared memory.
const FABRIC: &str = "ONESIDED_IT_FABRIC";
pub(crate) const ROLE: &str = "ONESIDED_IT_ROLE";
/// The program that the ranks run instead of this binary, and its arguments, separated by line
/// feeds.
const PROGRAM: &str = "ONESIDED_IT_PROGRAM";
/// After how many seconds the ranks report their waits.
const STUCK: &str = "ONESIDED_IT_STUCK";
/// The line that ends the output of the harness, before the ranks' output.
const BEGIN: &[u8] = b"\n--- output ---\n";

/// Whether ranks reach one another through cards alone.
pub(crate) fn is_on_cards() -> bool {
    std::env::var(FABRIC).is_ok_and(|fabric| fabric == "verbs")
}

/// The program of a rank, and the name by which `start` selects it.
pub(crate) type Role = (&'static str, fn(World));

/// A running job; killed when it is dropped.
pub(crate) struct Job {
    launcher: Child,
    output: Receiver<Vec<u8>>,
    /// Lines of standard error, in order.
    lines: Receiver<String>,
    deadline: Instant,
}

/// The result of a job.
pub(crate) struct Ended {
    /// The exit status of the launcher, as `onesided run` defines it.
    pub(crate) code: i32,
    pub(crate) output: Vec<u8>,
    /// The lines that were not read yet, sorted.
    pub(crate) lines: Vec<String>,
}

impl Ended {
    /// The ranks that printed `ok`.
    pub(crate) fn ok(&self) -> Vec<u32> {
        let ok = |line: &String| line.strip_prefix('[')?.strip_suffix("] ok")?.parse().ok();
        self.lines.iter().filter_map(ok).collect()
    }
}

impl std::fmt::Debug for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "status {}, said:\n{}", self.code, self.lines.join("\n"))
    }
}

/// Whether the jobs run on a fabric with cards.
pub(crate) fn on_cards() -> bool {
    std::env::var(FABRIC).is_ok_and(|fabric| fabric != "shm")
}

/// Whether to leave out what does not depend on the fabric: a job on emulated cards takes seconds.
pub(crate) fn is_short_on_cards() -> bool {
    on_cards() && std::env::var_os("ONESIDED_LONG").is_none()
}

/// Starts a job of `ranks` processes with a role (see `play`).
pub(crate) fn start(ranks: u32, role: &str) -> Job {
    start_with(ranks, &[(ROLE, role.as_ref())])
}

/// The same with another environment variable.
pub(crate) fn start_under(ranks: u32, role: &str, variable: (&str, &str)) -> Job {
    start_with(ranks, &[(ROLE, role.as_ref()), (variable.0, variable.1.as_ref())])
}

/// Starts a job of `ranks` processes of a program.
pub(crate) fn start_program(ranks: u32, program: &OsStr, args: &[OsString]) -> Job {
    let command = [&[program.to_owned()], args].concat().join(OsStr::new("\n"));
    start_with(ranks, &[(PROGRAM, &command)])
}

/// The same with any variables.
pub(crate) fn start_with(ranks: u32, variables: &[(&str, &OsStr)]) -> Job {
    let mut launcher = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "jobs::a_launcher", "--nocapture"])
        .env(RANKS, ranks.to_string())
        .env("RUST_BACKTRACE", "0")
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (stdout, stderr) = (launcher.stdout.take().unwrap(), launcher.stderr.take().unwrap());
    let (output_sender, output) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = { stdout }.read_to_end(&mut bytes);
        let begin = bytes.windows(BEGIN.len()).position(|window| window == BEGIN);
        output_sender.send(begin.map_or(Vec::new(), |at| bytes.split_off(at + BEGIN.len())))
    });
    let (line_sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
            let _ = line_sender.send(String::from_utf8_lossy(&line).into_owned());
        }
    });
    Job { launcher, output, lines, deadline: Instant::now() + DEADLINE }
}

impl Job {
    /// The next line.
    pub(crate) fn line(&self) -> String {
        let left = self.deadline.saturating_duration_since(Instant::now());
        self.lines.recv_timeout(left).expect("a line")
    }

    /// Waits for the end.
    pub(crate) fn wait(mut self) -> Ended {
        let mut lines = Vec::new();
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("the job did not end: {lines:#?}"),
            }
        }
        lines.sort();
        let output = self.output.recv_timeout(DEADLINE).unwrap();
        let status = self.launcher.wait().unwrap();
        Ended { code: status.code().unwrap_or_else(|| panic!("{status}: {lines:#?}")), output, lines }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.launcher.kill();
        let _ = self.launcher.wait();
    }
}

/// Not a test: the launcher that `start` runs.
#[test]
#[ignore = "what other tests start"]
fn a_launcher() {
    let Ok(ranks) = std::env::var(RANKS) else { return };
    let mut command = match std::env::var_os(PROGRAM) {
        Some(command) => {
            command.as_bytes().split(|byte| *byte == b'\n').map(|arg| OsString::from_vec(arg.to_vec())).collect()
        }
        None => {
            let args = ["--ignored", "--exact", "jobs::a_rank", "--nocapture"].map(OsString::from);
            [&[std::env::current_exe().unwrap().into()], &args[..]].concat()
        }
    };
    let launch = Launch {
        size: ranks.parse().unwrap(),
        program: command.remove(0),
        args: command,
        fabric: std::env::var(FABRIC).unwrap_or_else(|_| "shm".into()),
        on_failure: OnFailure::Continue,
        labels: std::env::var_os(ROLE).is_some(),
        stuck_after: std::env::var(STUCK).ok().map(|after| Duration::from_secs_f64(after.parse().unwrap())),
        statistics: std::env::var_os(STATISTICS).map(|_| StatisticsFormat::Table),
    };
    std::io::stdout().write_all(BEGIN).unwrap();
    std::io::stdout().flush().unwrap();
    let code = launch.run(&[], &mut |event| eprintln!("{event}")).unwrap();
    std::process::exit(code.into()); // before the harness prints anything
}

/// Not a test: the rank that the launcher runs.
#[test]
#[ignore = "what other tests start"]
fn a_rank() {
    let Ok(role) = std::env::var(ROLE) else { return };
    limits::lower();
    if role == limits::ROLE {
        limits::play();
    }
    play(&role)(World::init().unwrap());
    std::process::exit(0);
}

fn play(role: &str) -> fn(World) {
    use crate::{active, collectives, creation, faults, fields, forks, handlers, lease, leaves, litmus, lock_all};
    use crate::{messages, on_demand, requests, runtimes, served_lock, started, stress, tables, user_memory};
    let roles = [active::ROLES, collectives::ROLES, creation::ROLES, faults::ROLES, forks::ROLES];
    let roles = [
        &roles.concat(),
        tables::ROLES,
        lease::ROLES,
        leaves::ROLES,
        requests::ROLES,
        &user_memory::ROLES.concat(),
        litmus::ROLES,
        lock_all::ROLES,
        on_demand::ROLES,
        runtimes::ROLES,
        fields::ROLES,
        handlers::ROLES,
        messages::ROLES,
        served_lock::ROLES,
        started::ROLES,
        stress::ROLES,
    ]
    .concat();
    roles.into_iter().find(|(name, _)| *name == role).unwrap_or_else(|| panic!("no such role: {role}")).1
}

/// Printed by a rank when everything went well.
pub(crate) fn ok() {
    eprintln!("ok");
}

pub(crate) fn send(pid: u64, signal: Signal) {
    rustix::process::kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

/// The state of a process as the kernel names it (`T`: stopped); `None` if it is gone or a zombie.
pub(crate) fn state(pid: u64) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let state = stat.rsplit_once(") ")?.1.chars().next()?;
    Some(state).filter(|state| !matches!(state, 'Z' | 'X'))
}

/// Kills this process with SIGKILL.
pub(crate) fn die() -> ! {
    send(std::process::id().into(), Signal::KILL);
    std::thread::sleep(Duration::MAX);
    unreachable!("it was killed")
}
