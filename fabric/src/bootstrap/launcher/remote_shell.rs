//! The remote shell that starts an agent, until the agent has answered.

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use crate::Error;
use crate::bootstrap::Secret;
use crate::bootstrap::bridge::Stream as LinkStream;
use crate::bootstrap::environment::OF_A_JOB;
use crate::bootstrap::launcher::control::MARK;
use crate::bootstrap::launcher::hosts::{Hosts, Slots};
use crate::bootstrap::launcher::limits::{Limits, NotStarted};
use crate::bootstrap::launcher::{End, die_with_the_launcher};
use crate::bootstrap::protocol::{Nonce, VERSION};

/// The most that is read of what a login shell prints before the agent speaks.
const MOST_NOISE: usize = 256 << 10;
/// How long a remote shell may take to end whose stream has ended.
const ENDING: Duration = Duration::from_millis(500);

/// A host's agent, at the other end of a remote shell. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) host: u16,
    pub(super) name: String,
    shell: String,
    child: Child,
    pub(super) started: bool,
}

impl Agent {
    pub(super) fn spawn(
        host: u16,
        slots: &Slots,
        hosts: &Hosts,
        secret: &Secret,
        nonce: &Nonce,
    ) -> Result<Self, Error> {
        let Some((shell, options)) = hosts.rsh.split_first() else {
            return Err(Error::Launch { what: "no remote shell was named".to_owned(), source: None });
        };
        let agent = format!("'{}' agent", hosts.agent.to_string_lossy().replace('\'', "'\\''"));
        let mut command = Command::new(shell);
        command.args(options).args([&slots.name, &agent]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).process_group(0);
        OF_A_JOB.iter().for_each(|name| drop(command.env_remove(name))); // a remote shell may be set up to send them
        die_with_the_launcher(&mut command);
        let shell = shell.to_string_lossy().into_owned();
        let failed = |what: &str, source| {
            let what = format!("host {}: {what} {shell}", slots.name);
            Error::Launch { what, source: Some(source) }
        };
        let mut child = command.spawn().map_err(|source| failed("start", source))?;
        // By its input: arguments and environments can be read by others.
        let line = format!("{} {}\n", secret.to_hex(), blake3::Hash::from_bytes(*nonce).to_hex());
        // A remote shell that has ended has said why, or its exit status does.
        let _ = child.stdin.as_mut().map(|stdin| stdin.write_all(line.as_bytes()));
        Ok(Self { host, name: slots.name.clone(), shell, child, started: false })
    }

    /// Waits for the agent's line.
    pub(super) fn greet(&mut self, limits: &Limits<'_>) -> Result<(Nonce, LinkStream), NotStarted> {
        let (Some(stdin), Some(stdout)) = (self.child.stdin.take(), self.child.stdout.take()) else {
            return Err(self.failed("it has no streams", None).into());
        };
        let (stdin, stdout) = (OwnedFd::from(stdin), OwnedFd::from(stdout));
        let (mut heard, mut begin) = (Vec::new(), 0);
        loop {
            while let Some(end) = heard[begin..].iter().position(|byte| *byte == b'\n') {
                let line = String::from_utf8_lossy(&heard[begin..begin + end]).into_owned();
                begin += end + 1;
                if let Some(at) = line.find(MARK) {
                    let nonce = self.understand(&line[at + MARK.len()..])?;
                    return Ok((nonce, LinkStream::Pipes(stdout, stdin)));
                }
            }
            if heard.len() > MOST_NOISE {
                return Err(self.failed("something else than an agent answers, and does not stop", None).into());
            }
            if !limits.wait_for(stdout.as_fd())? {
                return Err(self.failed("no agent answered in time (ONESIDED_JOIN_TIMEOUT)", None).into());
            }
            let mut buffer = [0; 4096];
            match rustix::io::read(&stdout, &mut buffer) {
                Ok(0) => return Err(self.never_came().into()),
                Ok(read) => heard.extend_from_slice(&buffer[..read]),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(self.failed("hear from its agent", Some(error.into())).into()),
            }
        }
    }

    /// The line behind its mark: version of the protocol, version of the package, nonce.
    fn understand(&self, line: &str) -> Result<Nonce, Error> {
        let mut words = line.split_ascii_whitespace();
        let (version, package, nonce) = (words.next(), words.next(), words.next());
        if version.and_then(|version| version.parse().ok()) != Some(VERSION) {
            let package = package.unwrap_or("?");
            let what = format!(
                "onesided {package} is installed there, and this is {}: they do not understand each other",
                env!("CARGO_PKG_VERSION")
            );
            return Err(self.failed(&what, None));
        }
        let nonce = nonce.and_then(|nonce| blake3::Hash::from_hex(nonce).ok());
        nonce.map(blake3::Hash::into).ok_or_else(|| self.failed("its agent speaks nonsense", None))
    }

    pub(super) fn failed(&self, what: &str, source: Option<io::Error>) -> Error {
        Error::Launch { what: format!("host {}: {what}", self.name), source }
    }

    /// The remote shell's output ended before the agent said anything.
    fn never_came(&self) -> Error {
        let shell = &self.shell;
        let what = match self.ending() {
            Some(End::Exited(127)) => {
                "no `onesided` is there where this one is here; install it there, or say where it is (--agent)".into()
            }
            Some(End::Exited(126)) => "the `onesided` there cannot be executed".into(),
            Some(End::Exited(255)) => format!("{shell} did not reach it (exit status 255)"),
            Some(end) => {
                format!("{shell} {end} before an agent answered; is another version of onesided there?")
            }
            None => format!("{shell} closed its output before an agent answered"),
        };
        self.failed(&what, None)
    }

    pub(super) fn lost(&self, why: &str) -> Error {
        let why = self.why_lost(why);
        self.failed(&why, None)
    }

    pub(super) fn why_lost(&self, why: &str) -> String {
        match self.ending() {
            Some(end) if end != End::Exited(0) => format!("{why}, {} {end}", self.shell),
            _ => why.to_owned(),
        }
    }

    /// How the remote shell ended, if it does so soon.
    fn ending(&self) -> Option<End> {
        let until = Instant::now() + ENDING;
        loop {
            match self.ended() {
                None if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
                ended => return ended,
            }
        }
    }

    /// How the remote shell ended. It is not reaped, so that its process group keeps its number.
    pub(super) fn ended(&self) -> Option<End> {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = rustix::process::waitid(WaitId::Pid(Pid::from_child(&self.child)), look).ok()??;
        Some(match status.terminating_signal() {
            Some(signal) => End::Killed(signal),
            None => End::Exited(status.exit_status().map_or(u8::MAX, |status| status as u8)),
        })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}
