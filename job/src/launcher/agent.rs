//! The agent: the host daemon that a launcher starts on another host.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use onesided_remote_memory::Rank;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::Signal;

use crate::Error;
use crate::daemon::relay::{
    ControlRelay, End as StreamEnd, Layout, Lost, RelayEvent, RelayEvents, RelayStream, Said, Stream as RawStream,
};
use crate::frame::{Bytes, Frame, VERSION};
use crate::launcher::control::{Command, MARK, PART, Report, Start, WINDOW};
use crate::launcher::output::{Stream, Target};
use crate::launcher::ranks::Ranks;
use crate::launcher::supervisor::record_end;
use crate::launcher::{Launch, OnFailure, Surroundings, failed};
use crate::protocol::Nonce;
use crate::secret::random_bytes;
use crate::segment::JobSegment;
use crate::{Secret, Server, timespec};

/// How long the launcher may take to send the start command: agents of other hosts may be slow.
const START_TIMEOUT: Duration = Duration::from_secs(600);
/// The longest first line, in bytes: two numbers of 64 digits, a space and the newline.
const LINE: usize = 130;

/// Serves this host for the launcher at the other end of standard input and output. Returns when
/// the launcher is done with it or is lost; the host's ranks have been killed then.
///
/// # Errors
/// [`Error::Launch`]: the input is not from a launcher of this version, or memory or descriptors
/// are exhausted.
pub fn agent() -> Result<(), Error> {
    let Some((start, layout, secret, link)) = introduce()? else { return Ok(()) };
    serve(start, &layout, &secret, link)
}

/// Reads up to the launcher's first command. `None`: the launcher went away before that, and knows
/// why.
fn introduce() -> Result<Option<(Start, Layout, Secret, RelayStream)>, Error> {
    let stream = || -> io::Result<RawStream> {
        Ok(RawStream::Pipes(
            rustix::io::fcntl_dupfd_cloexec(io::stdin().as_fd(), 3)?,
            rustix::io::fcntl_dupfd_cloexec(io::stdout().as_fd(), 3)?,
        ))
    };
    let (secret, theirs) = first_line()?;
    let ours: Nonce = random_bytes();
    let hex = blake3::Hash::from_bytes(ours).to_hex();
    // Starts a new line, after whatever was printed before.
    let answer = format!("\n{MARK}{VERSION} {} {hex}\n", env!("CARGO_PKG_VERSION"));
    write_all(io::stdout().as_fd(), answer.as_bytes()).map_err(failed("answer the launcher"))?;
    let stream = stream().map_err(failed("use the stream to the launcher"))?;
    let link = RelayStream::new(stream, StreamEnd::Host, &secret, &theirs, &ours);
    let mut link = link.map_err(failed("use the stream to the launcher"))?;
    let until = Instant::now() + START_TIMEOUT;
    let layout = match link.hear_until(until) {
        Ok(Said::Layout(layout)) => layout,
        Ok(_) => return Err(lost(Lost::OutOfTurn)),
        Err(Lost::Ended) => return Ok(None),
        Err(why) => return Err(lost(why)),
    };
    let mut begun = Vec::new();
    loop {
        let Said::Control(command) = link.hear_until(until).map_err(lost)? else {
            return Err(lost(Lost::OutOfTurn));
        };
        let nonsense = |error| lost(Lost::Nonsense(error));
        let Command::Start { part, last } = Command::decode(&command.0).map_err(nonsense)? else {
            return Err(lost(Lost::OutOfTurn));
        };
        if let Some(start) = Start::collect(&part, last, &mut begun).map_err(nonsense)? {
            return Ok(Some((start, layout, secret, link)));
        }
    }
}

fn lost(why: Lost) -> Error {
    Error::Launch { what: format!("hear from the launcher: {why}"), source: None }
}

/// Starts and serves this host's ranks.
fn serve(start: Start, layout: &Layout, secret: &Secret, link: RelayStream) -> Result<(), Error> {
    let size = u32::try_from(layout.hosts.len()).map_err(|_| lost(Lost::OutOfTurn))?;
    let launch = Launch {
        size,
        program: start.program,
        args: start.args,
        fabric: start.fabric.to_string_lossy().into_owned(),
        on_failure: OnFailure::Continue,
        stuck_after: None, // a variable, as is the next one
        statistics: None,
        labels: true, // makes pipes; the launcher adds the labels
    };
    let spare = launch.check()?;
    let job_segment = Arc::new(JobSegment::create(size).map_err(failed("make the job segment"))?);
    job_segment.lay_out(&layout.hosts, layout.suspect_after());
    let mut server = Server::start(Arc::clone(&job_segment), secret.clone(), spare)?;
    let events = Arc::new(RelayEvents::new().map_err(failed("make an eventfd"))?);
    server.relay(ControlRelay::host(start.host, link, layout, Some(Arc::clone(&events))))?;

    let surroundings = Surroundings { reads: false, folder: Some(start.folder), variables: start.variables };
    let own = (0..).map(Rank).zip(&layout.hosts).filter(|(_, host)| **host == start.host);
    let report = |report: &Report| server.post(None, report);
    let folder = surroundings.folder.clone().unwrap_or_default();
    if !std::path::Path::new(&folder).is_dir() {
        report(&Report::Failed { errno: 0, what: format!("there is no folder {}", folder.to_string_lossy()) });
        return wait_for_the_end(&events);
    }
    match launch.start_all(own.map(|(rank, _)| rank), &server, secret, &surroundings) {
        Ok((ranks, streams)) => {
            report(&Report::Started);
            let pipes = streams.into_iter().filter_map(Pipe::new).collect();
            Agent { ranks, job_segment, server, events, pipes }.run().map_err(failed("wait for the ranks"))
        }
        Err(error) => {
            let errno = match &error {
                Error::Program { source, .. } => source.raw_os_error().unwrap_or(0),
                _ => 0,
            };
            report(&Report::Failed { errno, what: error.to_string() });
            wait_for_the_end(&events)
        }
    }
}

/// Waits until the launcher has read everything.
fn wait_for_the_end(events: &RelayEvents) -> Result<(), Error> {
    loop {
        let _ = poll(&mut [PollFd::new(&events.readable(), PollFlags::IN)], None);
        if events.take().iter().any(|news| matches!(news, RelayEvent::Lost { .. })) {
            return Ok(());
        }
    }
}

/// The secret, and the launcher's nonce. Reads single bytes: what follows belongs to the relay
/// stream.
fn first_line() -> Result<(Secret, Nonce), Error> {
    let wrong = |source| Error::Launch { what: "an agent is started by `onesided run --hosts`".to_owned(), source };
    let until = Instant::now() + START_TIMEOUT;
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        let left = until.saturating_duration_since(Instant::now());
        if line.len() >= LINE || left.is_zero() {
            return Err(wrong(None));
        }
        let _ = poll(&mut [PollFd::new(&io::stdin(), PollFlags::IN)], Some(&timespec(left)));
        let mut byte = [0];
        match rustix::io::read(io::stdin(), &mut byte) {
            Ok(0) => return Err(wrong(None)),
            Ok(_) => line.push(byte[0]),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(wrong(Some(error.into()))),
        }
    }
    let line = String::from_utf8_lossy(&line);
    let (secret, nonce) = line.trim_end().split_once(' ').ok_or_else(|| wrong(None))?;
    let nonce = blake3::Hash::from_hex(nonce).map_err(|_| wrong(None))?;
    Ok((Secret::from_hex(secret).ok_or_else(|| wrong(None))?, nonce.into()))
}

fn write_all(to: impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(&to, bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// A host's running ranks.
struct Agent {
    /// Dropped first, which kills the ranks.
    ranks: Ranks,
    job_segment: Arc<JobSegment>,
    server: Server,
    events: Arc<RelayEvents>,
    pipes: Vec<Pipe>,
}

/// An output stream of a rank to the launcher.
struct Pipe {
    rank: Rank,
    target: Target,
    fd: OwnedFd,
    /// The free part of the window, in bytes.
    room: usize,
    /// How many bytes are still to be read once the job is over. A process that a rank left running
    /// may write without end.
    rest: Option<usize>,
}

impl Pipe {
    fn new(stream: Stream) -> Option<Self> {
        stream.into_parts().map(|(rank, target, fd)| Self { rank, target, fd, room: WINDOW, rest: None })
    }
}

impl Agent {
    fn run(mut self) -> io::Result<()> {
        loop {
            self.wait()?;
            for news in self.events.take() {
                match news {
                    RelayEvent::Lost { .. } => return Ok(()), // dropping the ranks kills them
                    RelayEvent::Said { message, .. } => {
                        if let Ok(command) = Command::decode(&message.0) {
                            self.obey(&command);
                        }
                    }
                }
            }
            self.forward();
            for (rank, pid, end) in self.ranks.ended() {
                let failed = record_end(&self.job_segment, &self.server, rank, end);
                let (pid, end) = (pid.as_raw_nonzero().get(), failed.unwrap_or(end));
                self.server.post(None, &Report::Ended { rank, pid, failed: failed.is_some(), end });
            }
        }
    }

    fn wait(&self) -> io::Result<()> {
        let pipes = self.pipes.iter().filter(|pipe| pipe.room > 0).map(|pipe| pipe.fd.as_fd());
        let all = [self.events.readable()].into_iter().chain(self.ranks.ends()).chain(pipes);
        let mut polled: Vec<_> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        match poll(&mut polled, None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn obey(&mut self, command: &Command) {
        match command {
            Command::Signal(signal) => {
                if let Some(signal) = Signal::from_named_raw(*signal) {
                    self.ranks.signal(signal);
                }
            }
            Command::Taken { rank, target, count } => {
                let pipe = self.pipes.iter_mut().find(|pipe| (pipe.rank, pipe.target) == (*rank, *target));
                if let Some(pipe) = pipe {
                    pipe.room = (pipe.room + *count as usize).min(WINDOW);
                }
            }
            Command::Closed { rank, target } => self.pipes.retain(|pipe| (pipe.rank, pipe.target) != (*rank, *target)),
            Command::Finish => {
                let held = |pipe: &Pipe| rustix::io::ioctl_fionread(&pipe.fd).map_or(0, |held| held as usize);
                self.pipes.iter_mut().for_each(|pipe| pipe.rest = Some(held(pipe)));
            }
            Command::Start { .. } => {} // the ranks run already
        }
    }

    /// Forwards the ranks' output.
    fn forward(&mut self) {
        let Self { pipes, server, .. } = self;
        let mut buffer = vec![0; PART];
        pipes.retain_mut(|pipe| {
            let Pipe { rank, target, .. } = *pipe;
            let post = |bytes| server.post(None, &Report::Output { rank, target, bytes: Bytes(bytes) });
            if pipe.rest != Some(0) {
                let ready = poll(&mut [PollFd::new(&pipe.fd, PollFlags::IN)], Some(&timespec(Duration::ZERO)));
                if pipe.room == 0 || ready != Ok(1) {
                    return true;
                }
                let most = pipe.room.min(PART).min(pipe.rest.unwrap_or(PART));
                let read = match rustix::io::read(&pipe.fd, &mut buffer[..most]) {
                    Ok(read) => read,
                    Err(Errno::INTR | Errno::AGAIN) => return true,
                    Err(_) => 0,
                };
                pipe.room -= read;
                pipe.rest = if read == 0 { Some(0) } else { pipe.rest.map(|rest| rest - read) };
                if read > 0 {
                    post(buffer[..read].to_vec());
                }
            }
            let ended = pipe.rest == Some(0);
            if ended {
                post(Vec::new());
            }
            !ended
        });
    }
}
