//! The launcher's side of other hosts: agents, their reports, and their ranks' output.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use onesided_remote_memory::Rank;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;

use crate::Error;
use crate::daemon::relay::{End as StreamEnd, Layout, RelayEvent, RelayEvents, RelayStream, Said};
use crate::environment::OF_A_JOB;
use crate::frame::{Bytes, Frame};
use crate::launcher::control::{Command, Report, Start};
use crate::launcher::events::Ended;
use crate::launcher::hosts::{Hosts, Slots};
use crate::launcher::limits::{Limits, NotStarted};
use crate::launcher::output::{Stream, Target};
use crate::launcher::remote_agent::RemoteAgent;
use crate::launcher::{End, Event, GRACE, Launch};
use crate::protocol::Nonce;
use crate::secret::random_bytes;
use crate::{Secret, Server};

/// The agents on other hosts, and the state of their ranks.
#[derive(Debug)]
pub(super) struct Remote {
    events: Arc<RelayEvents>,
    agents: Vec<RemoteAgent>,
    /// Running ranks of other hosts, with their host numbers.
    running: Vec<(Rank, u16)>,
    ended: Vec<Ended>,
    lost: Vec<Event>,
    sinks: Vec<Sink>,
}

/// The other hosts, the streams to them, and their ranks' output streams.
pub(super) type Started = (Remote, Vec<(u16, RelayStream)>, Vec<Stream>);

/// Feeds one stream of a rank into [`Output`](super::output::Output), which reads the other end of
/// the pipe.
#[derive(Debug)]
struct Sink {
    host: u16,
    rank: Rank,
    target: Target,
    /// `None`: no longer read.
    pipe: Option<OwnedFd>,
    /// What did not fit into the pipe: at most one window.
    queue: VecDeque<u8>,
    /// No more data comes.
    ended: bool,
}

impl Remote {
    /// No other hosts.
    pub(super) fn none() -> io::Result<Self> {
        let events = Arc::new(RelayEvents::new()?);
        Ok(Self { events, agents: vec![], running: vec![], ended: vec![], lost: vec![], sinks: vec![] })
    }

    /// Starts an agent on each host but this one, all concurrently, and sends the start command.
    pub(super) fn start(
        launch: &Launch,
        hosts: &Hosts,
        (used, by_rank): (&[Slots], &[u16]),
        (secret, suspect_after): (&Secret, Duration),
        events: &Arc<RelayEvents>,
        limits: &Limits<'_>,
    ) -> Result<Started, NotStarted> {
        let folder = std::env::current_dir().map_err(super::failed("find the working directory"))?;
        let mut agents = Vec::new();
        for (host, slots) in (0..).zip(used).filter(|(_, slots)| !slots.is_here()) {
            let nonce: Nonce = random_bytes();
            agents.push((RemoteAgent::spawn(host, &slots.name, &*hosts.start, secret, &nonce)?, nonce));
        }
        // After all have answered: from then on, silence is a failure.
        let (mut agents, nonces): (Vec<_>, Vec<_>) = agents.into_iter().unzip();
        let mut links = Vec::new();
        let greeted = RemoteAgent::greet_all(&mut agents, &*hosts.start, limits)?;
        for ((agent, nonce), (theirs, stream)) in agents.iter().zip(&nonces).zip(greeted) {
            let link = RelayStream::new(stream, StreamEnd::Head, secret, nonce, &theirs);
            links.push((agent.host, link.map_err(|source| agent.failed("use its stream", Some(source)))?));
        }
        let here = used.iter().position(|host| host.is_here()).map(|host| host as u16);
        let layout = Layout {
            suspect_after_ms: u32::try_from(suspect_after.as_millis()).unwrap_or(u32::MAX),
            head: here,
            hosts: by_rank.to_vec(),
        };
        let mut start = Start {
            host: 0,
            program: launch.program.clone(),
            folder: folder.into(),
            fabric: launch.fabric.clone().into(),
            args: launch.args.clone(),
            variables: variables(&hosts.export, launch.reporting()),
        };
        for (host, link) in &mut links {
            start.host = *host;
            link.say(&Said::Layout(layout.clone()));
            start.commands().iter().for_each(|command| link.say(&Said::Control(Bytes(command.encode()))));
        }
        let elsewhere = (0..).map(Rank).zip(by_rank.iter().copied()).filter(|(_, host)| Some(*host) != here);
        let running: Vec<_> = elsewhere.collect();
        let (mut sinks, mut streams) = (Vec::new(), Vec::new());
        for (rank, host) in &running {
            for target in [Target::Stdout, Target::Stderr] {
                let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
                let (read, write) = pipe_with(flags).map_err(|error| super::failed("make a pipe")(error.into()))?;
                streams.push(Stream::new(read, target, launch.labels.then_some(*rank)));
                let (host, rank, queue) = (*host, *rank, VecDeque::new());
                sinks.push(Sink { host, rank, target, pipe: Some(write), queue, ended: false });
            }
        }
        let remote = Self { events: Arc::clone(events), agents, running, ended: vec![], lost: vec![], sinks };
        Ok((remote, links, streams))
    }

    /// Waits until every agent has started its ranks.
    pub(super) fn wait_for_all(&mut self, program: &OsString, limits: &Limits<'_>) -> Result<(), NotStarted> {
        while self.agents.iter().any(|agent| !agent.started) {
            if !limits.wait_for(self.events.readable())? {
                let late = self.agents.iter().find(|agent| !agent.started);
                let late = late.map_or_else(
                    || Error::Launch { what: "the agents are late".to_owned(), source: None },
                    |agent| agent.failed("it did not start its ranks in time", None),
                );
                return Err(late.into());
            }
            for news in self.events.take() {
                let (host, report) = match news {
                    RelayEvent::Said { host: Some(host), message } => (host, Report::decode(&message.0)),
                    RelayEvent::Said { .. } => continue,
                    RelayEvent::Lost { host, why } => {
                        let agent = self.agents.iter_mut().find(|agent| Some(agent.host) == host);
                        let lost = agent.map_or_else(
                            || Error::Launch { what: why.clone(), source: None },
                            |agent| agent.lost(&why),
                        );
                        return Err(lost.into());
                    }
                };
                match report {
                    Ok(Report::Started) => {
                        self.agents
                            .iter_mut()
                            .filter(|agent| agent.host == host)
                            .for_each(|agent| agent.started = true);
                    }
                    Ok(Report::Failed { errno, what }) => {
                        let agent = self.agents.iter().find(|agent| agent.host == host);
                        let name = agent.map_or("?", |agent| &agent.name);
                        if errno != 0 {
                            let (program, host) = (program.clone(), Some(name.to_owned()));
                            let source = io::Error::from_raw_os_error(errno);
                            return Err(Error::Program { program, host, source }.into());
                        }
                        return Err(Error::Launch { what: format!("host {name}: {what}"), source: None }.into());
                    }
                    // An early report is kept for later.
                    Ok(report) => self.take(host, report),
                    Err(error) => return Err(Error::Launch { what: error.to_string(), source: None }.into()),
                }
            }
        }
        Ok(())
    }

    /// The number of ranks that run on other hosts.
    pub(super) fn left(&self) -> usize {
        self.running.len()
    }

    pub(super) fn runs(&self, rank: Rank) -> bool {
        self.running.iter().any(|(running, _)| *running == rank)
    }

    /// Becomes readable when [`take_in`](Self::take_in) has events to process.
    pub(super) fn readable(&self) -> BorrowedFd<'_> {
        self.events.readable()
    }

    /// Pipes that were full.
    pub(super) fn full(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sinks.iter().filter(|sink| !sink.queue.is_empty()).filter_map(|sink| Some(sink.pipe.as_ref()?.as_fd()))
    }

    /// Whether [`ended`](Self::ended) or [`lost`](Self::lost) has something.
    pub(super) fn has_events(&self) -> bool {
        !self.ended.is_empty() || !self.lost.is_empty()
    }

    /// The ranks that failed since the last call.
    pub(super) fn ended(&mut self) -> Vec<Ended> {
        std::mem::take(&mut self.ended)
    }

    /// The hosts that were lost since the last call.
    pub(super) fn lost(&mut self) -> std::vec::IntoIter<Event> {
        std::mem::take(&mut self.lost).into_iter()
    }

    pub(super) fn signal(&self, server: &Server, signal: Signal) {
        if !self.running.is_empty() {
            server.post(None, &Command::Signal(signal.as_raw()));
        }
    }

    /// Makes the agents end their ranks' streams with what was written so far.
    pub(super) fn finish(&self, server: &Server) {
        server.post(None, &Command::Finish);
    }

    /// Whether output of a rank may still come or waits to be printed.
    pub(super) fn has_output(&self) -> bool {
        self.sinks.iter().any(|sink| sink.pipe.is_some())
    }

    /// Processes the agents' reports, and forwards output.
    pub(super) fn take_in(&mut self, server: &Server) {
        for news in self.events.take() {
            match news {
                RelayEvent::Said { host: Some(host), message } => {
                    if let Ok(report) = Report::decode(&message.0) {
                        self.take(host, report);
                    }
                }
                RelayEvent::Said { host: None, .. } => {}
                RelayEvent::Lost { host, why } => self.host_lost(host, &why),
            }
        }
        for sink in &mut self.sinks {
            if let Some(command) = sink.move_on() {
                server.post(Some(sink.host), &command);
            }
        }
        self.sinks.retain(|sink| sink.pipe.is_some() || !sink.ended);
    }

    fn take(&mut self, host: u16, report: Report) {
        match report {
            Report::Output { rank, target, bytes: Bytes(bytes) } => {
                let theirs = |sink: &&mut Sink| (sink.host, sink.rank, sink.target) == (host, rank, target);
                if let Some(sink) = self.sinks.iter_mut().find(theirs) {
                    sink.ended |= bytes.is_empty();
                    sink.queue.extend(bytes);
                }
            }
            Report::Ended { rank, pid, failed, end } => {
                let Some(at) = self.running.iter().position(|running| *running == (rank, host)) else { return };
                self.running.remove(at);
                if failed {
                    self.ended.push(Ended { rank, pid, end, remote: true });
                }
            }
            Report::Started | Report::Failed { .. } => {}
        }
    }

    fn host_lost(&mut self, host: Option<u16>, why: &str) {
        let Some(agent) = self.agents.iter_mut().find(|agent| Some(agent.host) == host) else { return };
        let (lost, left): (Vec<_>, Vec<_>) = self.running.drain(..).partition(|(_, on)| *on == agent.host);
        self.running = left;
        self.sinks.iter_mut().filter(|sink| sink.host == agent.host).for_each(|sink| sink.ended = true);
        if lost.is_empty() {
            return;
        }
        let why = agent.why_lost(why);
        self.lost.push(Event::HostLost { host: agent.name.clone(), ranks: lost.len(), why });
        self.ended.extend(lost.iter().map(|(rank, _)| Ended { rank: *rank, pid: 0, end: End::Lost, remote: true }));
    }
}

/// The environment sent to the agents: our own and the requested variables, without those of a job
/// that we are part of.
fn variables(export: &[OsString], more: impl Iterator<Item = (&'static str, String)>) -> Vec<(OsString, OsString)> {
    let own = std::env::vars_os().filter(|(name, _)| travels(name, export));
    own.chain(more.map(|(name, value)| (name.into(), value.into()))).collect()
}

fn travels(name: &OsString, export: &[OsString]) -> bool {
    let asked_for = name.to_string_lossy().starts_with("ONESIDED_") || export.contains(name);
    asked_for && !OF_A_JOB.iter().any(|of_a_job| name == of_a_job)
}

impl Drop for Remote {
    fn drop(&mut self) {
        // The agents have been told to end; the commands that started them may take a moment
        // longer.
        let until = Instant::now() + GRACE;
        for agent in &self.agents {
            while Instant::now() < until && agent.ended().is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

impl Sink {
    /// Writes what the pipe accepts. Returns the command for the agent, if any.
    fn move_on(&mut self) -> Option<Command> {
        let Self { rank, target, .. } = *self;
        let mut moved = 0;
        while let Some(pipe) = self.pipe.as_ref().filter(|_| !self.queue.is_empty()) {
            match rustix::io::write(pipe, self.queue.as_slices().0) {
                Ok(written) => {
                    self.queue.drain(..written);
                    moved += written;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => {
                    // As without a launcher: a process that writes to a closed stream gets SIGPIPE.
                    self.pipe = None;
                    self.queue.clear();
                    return Some(Command::Closed { rank, target });
                }
            }
        }
        if self.ended && self.queue.is_empty() {
            self.pipe = None;
        }
        (moved > 0).then_some(Command::Taken { rank, target, count: moved as u32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_never_travels() {
        let export = ["WANTED", "ONESIDED_SECRET"].map(OsString::from);
        let travels = |name: &str| travels(&name.into(), &export);
        assert!(travels("WANTED") && travels("ONESIDED_SUSPECT_AFTER") && !travels("HOME"));
        assert!(!OF_A_JOB.iter().any(|name| travels(name)));
    }
}
