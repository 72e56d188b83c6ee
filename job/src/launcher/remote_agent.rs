//! An agent on another host, at the other end of the command that started it.

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use crate::Error;
use crate::daemon::relay::Stream as RawStream;
use crate::environment::OF_A_JOB;
use crate::frame::VERSION;
use crate::launcher::control::MARK;
use crate::launcher::hosts::StartAgent;
use crate::launcher::limits::{Limits, NotStarted};
use crate::launcher::{End, Session, die_with_the_launcher};
use crate::protocol::Nonce;
use crate::{Secret, timespec};

/// How many bytes of a login shell's output are skipped before the agent's line.
const MOST_NOISE: usize = 256 << 10;
/// How long the command may take to end after its output has ended.
const ENDING: Duration = Duration::from_millis(500);

/// A host's agent, and the command that started it. Dropping it ends the command.
#[derive(Debug)]
pub(super) struct RemoteAgent {
    pub(super) host: u16,
    pub(super) name: String,
    /// The command's program, for errors.
    program: String,
    child: Child,
    greeting: Option<Greeting>,
    pub(super) started: bool,
}

/// Output before the agent's line.
#[derive(Debug)]
struct Greeting {
    stdin: OwnedFd,
    stdout: OwnedFd,
    heard: Vec<u8>,
    begin: usize,
}

impl RemoteAgent {
    pub(super) fn spawn(
        host: u16,
        name: &str,
        start: &dyn StartAgent,
        secret: &Secret,
        nonce: &Nonce,
    ) -> Result<Self, Error> {
        let mut command = start.command(name);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        for name in OF_A_JOB {
            command.env_remove(name); // the command may forward it
        }
        // Without a terminal: a question of the command becomes an error, instead of one prompt a
        // host.
        die_with_the_launcher(&mut command, Session::Own);
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command
            .spawn()
            .map_err(|source| Error::Launch { what: format!("host {name}: start {program}"), source: Some(source) })?;
        // Sent by its input: other users can read arguments and environments.
        let line = format!("{} {}\n", secret.to_hex(), blake3::Hash::from_bytes(*nonce).to_hex());
        // A command that has ended explains itself, by its output or its exit status.
        let _ = child.stdin.as_mut().map(|stdin| stdin.write_all(line.as_bytes()));
        let greeting = child.stdin.take().zip(child.stdout.take()).map(|(stdin, stdout)| Greeting {
            stdin: stdin.into(),
            stdout: stdout.into(),
            heard: Vec::new(),
            begin: 0,
        });
        Ok(Self { host, name: name.to_owned(), program, child, greeting, started: false })
    }

    /// Waits for all agents' lines. Reports the first failure, whatever the other agents do.
    pub(super) fn greet_all(
        agents: &mut [Self],
        start: &dyn StartAgent,
        limits: &Limits<'_>,
    ) -> Result<Vec<(Nonce, RawStream)>, NotStarted> {
        let mut come: Vec<_> = agents.iter().map(|_| None).collect();
        while let Some(missing) = come.iter().position(Option::is_none) {
            let waiting = agents.iter().filter_map(|agent| agent.greeting.as_ref());
            let streams: Vec<_> = waiting.map(|greeting| greeting.stdout.as_fd()).collect();
            if !limits.wait_for_any(&streams)? {
                return Err(agents[missing].late(start, limits.patience).into());
            }
            for (agent, come) in agents.iter_mut().zip(&mut come).filter(|(_, come)| come.is_none()) {
                *come = agent.hear(start)?;
            }
        }
        Ok(come.into_iter().flatten().collect())
    }

    /// Reads what is available, up to the agent's line.
    fn hear(&mut self, start: &dyn StartAgent) -> Result<Option<(Nonce, RawStream)>, Error> {
        let Some(mut greeting) = self.greeting.take() else { return Err(self.failed("it has no streams", None)) };
        let mut buffer = [0; 4096];
        let polled = &mut [PollFd::new(&greeting.stdout, PollFlags::IN)];
        if poll(polled, Some(&timespec(Duration::ZERO))).is_ok_and(|ready| ready > 0) {
            match rustix::io::read(&greeting.stdout, &mut buffer) {
                Ok(0) => return Err(self.never_came(start)),
                Ok(read) => greeting.heard.extend_from_slice(&buffer[..read]),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(self.failed("hear from its agent", Some(error.into()))),
            }
        }
        while let Some(end) = greeting.heard[greeting.begin..].iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(&greeting.heard[greeting.begin..greeting.begin + end]).into_owned();
            greeting.begin += end + 1;
            if let Some(at) = line.find(MARK) {
                let nonce = self.understand(&line[at + MARK.len()..])?;
                return Ok(Some((nonce, RawStream::Pipes(greeting.stdout, greeting.stdin))));
            }
        }
        if greeting.heard.len() > MOST_NOISE {
            return Err(self.failed("something else than an agent answers, and does not stop", None));
        }
        self.greeting = Some(greeting);
        Ok(None)
    }

    /// Parses the line after its mark: protocol version, package version, nonce.
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

    fn late(&self, start: &dyn StartAgent, patience: Duration) -> Error {
        let seconds = patience.as_secs();
        let advice = start.explain(&self.name, None).map_or_else(String::new, |advice| format!("; {advice}"));
        self.failed(&format!("no agent answered within {seconds} s (ONESIDED_JOIN_TIMEOUT){advice}"), None)
    }

    /// The command's output ended before the agent's line.
    fn never_came(&self, start: &dyn StartAgent) -> Error {
        let program = &self.program;
        let what = match self.ending() {
            Some(end) => start.explain(&self.name, Some(end)).unwrap_or_else(|| {
                format!("{program} {end} before an agent answered; is another version of onesided there?")
            }),
            None => format!("{program} closed its output before an agent answered"),
        };
        self.failed(&what, None)
    }

    pub(super) fn lost(&self, why: &str) -> Error {
        let why = self.why_lost(why);
        self.failed(&why, None)
    }

    pub(super) fn why_lost(&self, why: &str) -> String {
        match self.ending() {
            Some(end) if end != End::Exited(0) => format!("{why}, {} {end}", self.program),
            _ => why.to_owned(),
        }
    }

    /// How the command ended, if it does so soon.
    fn ending(&self) -> Option<End> {
        let until = Instant::now() + ENDING;
        loop {
            match self.ended() {
                None if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
                ended => return ended,
            }
        }
    }

    /// How the command ended. It is not reaped, which reserves its process group's number.
    pub(super) fn ended(&self) -> Option<End> {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = rustix::process::waitid(WaitId::Pid(Pid::from_child(&self.child)), look).ok()??;
        Some(match status.terminating_signal() {
            Some(signal) => End::Killed(signal),
            None => End::Exited(status.exit_status().map_or(u8::MAX, |status| status as u8)),
        })
    }
}

impl Drop for RemoteAgent {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}
