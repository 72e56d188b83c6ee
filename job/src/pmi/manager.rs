//! The client side of PMI-1, a protocol of text lines.
//!
//! A line is `cmd=NAME` and `key=value` pairs, separated by spaces and ended by a newline. Each
//! request has one answer.
//!
//! | request | answer |
//! |---|---|
//! | `initack pmiid=ID` (by `PMI_PORT` only) | `initack`, then three times `set`: `size`, `rank`, `debug` |
//! | `init pmi_version=1 pmi_subversion=1` | `response_to_init pmi_version rc` |
//! | `get_maxes` | `maxes kvsname_max keylen_max vallen_max` |
//! | `get_my_kvsname` | `my_kvsname kvsname` |
//! | `put kvsname key value` | `put_result rc` |
//! | `barrier_in` | `barrier_out`, when all ranks have sent it |
//! | `get kvsname key` | `get_result rc value` |
//! | `finalize` | `finalize_ack` |

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use onesided_remote_memory::{Fault, FaultKind, Rank};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use crate::Error;
use crate::pmi::descriptor::inherited;
use crate::pmi::process_env::{Contact, ProcessEnv};
use crate::timespec;

/// The longest line that a manager may send, in bytes.
const LONGEST: usize = 8 << 10;
/// How long a manager may take for an immediate answer. It may share its core with many ranks.
const ANSWER: Duration = Duration::from_secs(30);
/// How long to try one of a name's addresses.
const CONNECT: Duration = Duration::from_secs(10);

/// The connection to a process manager.
#[derive(Debug)]
pub(super) struct Manager {
    socket: OwnedFd,
    /// Received, unread bytes.
    heard: Vec<u8>,
    /// The name of the job's key-value space.
    space: String,
    /// The longest value, in bytes.
    longest_value: usize,
    /// The deadline of the whole join.
    until: Instant,
}

impl Manager {
    /// Connects, and learns this process's rank and the job's size.
    pub(super) fn connect(place: &ProcessEnv, until: Instant) -> Result<(Self, Rank, u32), Error> {
        match &place.contact {
            Contact::Descriptor(number) => {
                let socket = inherited(*number).map_err(because("take over the descriptor PMI_FD"))?;
                let (rank, size) =
                    place.rank_and_size.ok_or_else(|| nonsense("no rank and size in the environment"))?;
                Ok((Self::over(socket, until), rank, size))
            }
            Contact::Port { address, id } => {
                let mut manager = Self::over(connect(address, until)?, until);
                let (rank, size) = manager.introduce(*id)?;
                Ok((manager, rank, size))
            }
        }
    }

    pub(super) const fn over(socket: OwnedFd, until: Instant) -> Self {
        Self { socket, heard: Vec::new(), space: String::new(), longest_value: 0, until }
    }

    /// Introduces this process over `PMI_PORT`: neither side knows yet which rank it is.
    fn introduce(&mut self, id: u32) -> Result<(Rank, u32), Error> {
        self.ask(&format!("cmd=initack pmiid={id}"), "initack", ANSWER)?;
        let (mut size, mut rank) = (None, None);
        for _ in 0..3 {
            let said = self.hear("set", self.by(ANSWER))?;
            size = size.or(said.number("size"));
            rank = rank.or(said.number("rank"));
        }
        match (rank, size) {
            (Some(rank), Some(size)) if rank < size => Ok((Rank(rank), size)),
            _ => Err(nonsense("it does not say which rank this is, and of how many")),
        }
    }

    /// Negotiates the version, and learns the key-value space.
    pub(super) fn init(&mut self) -> Result<(), Error> {
        let said = self.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", ANSWER)?;
        if said.number("pmi_version") != Some(1) {
            return Err(nonsense("it does not speak version 1 of PMI"));
        }
        let maxes = self.ask("cmd=get_maxes", "maxes", ANSWER)?;
        self.longest_value = maxes.number("vallen_max").ok_or_else(|| nonsense("no vallen_max"))? as usize;
        let said = self.ask("cmd=get_my_kvsname", "my_kvsname", ANSWER)?;
        said.field("kvsname").ok_or_else(|| nonsense("no kvsname"))?.clone_into(&mut self.space);
        Ok(())
    }

    pub(super) fn put(&mut self, key: &str, value: &str) -> Result<(), Error> {
        if value.len() >= self.longest_value {
            return Err(nonsense(&format!("it takes values of less than {} bytes only", self.longest_value)));
        }
        let question = format!("cmd=put kvsname={} key={key} value={value}", self.space);
        self.ask(&question, "put_result", ANSWER).map(drop)
    }

    pub(super) fn get(&mut self, key: &str) -> Result<String, Error> {
        let said = self.ask(&format!("cmd=get kvsname={} key={key}", self.space), "get_result", ANSWER)?;
        said.field("value").map(str::to_owned).ok_or_else(|| nonsense("no value"))
    }

    /// Waits until all ranks have entered the barrier.
    pub(super) fn barrier(&mut self) -> Result<(), Error> {
        self.ask("cmd=barrier_in", "barrier_out", Duration::MAX).map(drop)
    }

    /// Ends the session. From then on the manager treats this process's end like any program's.
    pub(super) fn finalize(mut self) -> Result<(), Error> {
        self.ask("cmd=finalize", "finalize_ack", ANSWER).map(drop)
    }

    fn ask(&mut self, question: &str, answer: &str, patience: Duration) -> Result<Answer, Error> {
        let until = self.by(patience);
        self.say(&format!("{question}\n"), until)?;
        self.hear(answer, until)
    }

    fn by(&self, patience: Duration) -> Instant {
        Instant::now().checked_add(patience).map_or(self.until, |until| until.min(self.until))
    }

    fn say(&self, line: &str, until: Instant) -> Result<(), Error> {
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            self.wait(PollFlags::OUT, until)?;
            match rustix::net::send(&self.socket, rest, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(sent) => rest = rest.get(sent..).unwrap_or_default(),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(because("speak to the process manager")(error.into())),
            }
        }
        Ok(())
    }

    /// The next line, which must be this answer and report success.
    fn hear(&mut self, answer: &str, until: Instant) -> Result<Answer, Error> {
        let mut searched = 0;
        let end = loop {
            if let Some(end) = self.heard[searched..].iter().position(|byte| *byte == b'\n') {
                break searched + end;
            }
            searched = self.heard.len();
            if searched >= LONGEST {
                return Err(nonsense("a line without end"));
            }
            self.wait(PollFlags::IN, until)?;
            let mut more = [0; 1024];
            match rustix::net::recv(&self.socket, &mut more, RecvFlags::DONTWAIT) {
                Ok((0, _)) => {
                    let closed = io::ErrorKind::ConnectionAborted.into();
                    return Err(because("hear from the process manager (did this process join before?)")(closed));
                }
                Ok((received, _)) => self.heard.extend_from_slice(&more[..received.min(more.len())]),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(because("hear from the process manager")(error.into())),
            }
        };
        let line: Vec<u8> = self.heard.drain(..=end).collect();
        let said = Answer(String::from_utf8(line).map_err(|_| nonsense("a line that is no text"))?);
        if said.field("cmd") != Some(answer) {
            return Err(nonsense(&format!("{:?} where {answer} should come", said.0.trim_end())));
        }
        match said.field("rc") {
            None | Some("0") => Ok(said),
            Some(_) => Err(nonsense(&format!("it refuses: {:?}", said.0.trim_end()))),
        }
    }

    fn wait(&self, what: PollFlags, until: Instant) -> Result<(), Error> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match poll(&mut [PollFd::new(&self.socket, what)], Some(&timespec(left))) {
                Ok(0) if left.is_zero() => {
                    let fault = Fault::new(FaultKind::TimedOut);
                    return Err(Error::Operation { operation: "wait for the process manager (PMI)", fault });
                }
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(because("wait for the process manager")(error.into())),
            }
        }
    }
}

fn connect(address: &str, until: Instant) -> Result<OwnedFd, Error> {
    let failed = because("connect to the process manager at PMI_PORT");
    let mut last = io::ErrorKind::NotFound.into();
    for address in address.to_socket_addrs().map_err(because("look up the host in PMI_PORT"))? {
        let left = until.saturating_duration_since(Instant::now()).clamp(Duration::from_millis(1), CONNECT);
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => return Ok(stream.into()),
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}

/// One line of the manager.
#[derive(Debug)]
struct Answer(String);

impl Answer {
    fn field(&self, name: &str) -> Option<&str> {
        let pairs = self.0.split_ascii_whitespace().filter_map(|pair| pair.split_once('='));
        pairs.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    fn number(&self, name: &str) -> Option<u32> {
        self.field(name)?.parse().ok()
    }
}

fn because(what: &str) -> impl FnOnce(io::Error) -> Error {
    let what = what.to_owned();
    move |source| Error::Join { what, source: Some(source) }
}

fn nonsense(what: &str) -> Error {
    Error::Join { what: format!("the process manager (PMI) makes no sense: {what}"), source: None }
}
