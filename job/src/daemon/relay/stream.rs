//! One stream between two host daemons: authenticated frames, nonblocking.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::daemon::relay::frames::{LONGEST, Said};
use crate::frame::{Frame, Malformed};
use crate::protocol::Nonce;
use crate::{Secret, timespec};

const LENGTH: usize = 4;
const TAG: usize = 32;
/// The maximum number of unsent bytes. A peer that lets more accumulate is lost.
const MOST_WAITING: usize = 64 << 20;

/// The two ends of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Head,
    Host,
}

/// What carries the bytes.
#[derive(Debug)]
pub(crate) enum Stream {
    Socket(OwnedFd),
    /// The output and the input of a program that carries the bytes to the other host.
    Pipes(OwnedFd, OwnedFd),
}

/// Why a stream is unusable.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Lost {
    #[error("the connection ended")]
    Ended,
    #[error("it was silent for {0:.1?}")]
    Silent(Duration),
    #[error("it did not take in what was sent")]
    Deaf,
    #[error("the connection broke: {0}")]
    Broke(io::Error),
    #[error("what came does not bear the job's proof")]
    Forged,
    #[error("it said what makes no sense: {0}")]
    Nonsense(Malformed),
    #[error("it said what it may not say")]
    OutOfTurn,
}

/// A stream to another host daemon. Only [`hear_until`](Self::hear_until) blocks.
#[derive(Debug)]
pub(crate) struct RelayStream {
    stream: Stream,
    keys: (blake3::Hash, blake3::Hash),
    /// The number of frames sent, and received.
    numbers: (u64, u64),
    incoming: Vec<u8>,
    outgoing: VecDeque<u8>,
    /// When the last frame arrived, and when the last one was queued.
    pub(crate) last_heard: Instant,
    pub(crate) last_said: Instant,
}

impl RelayStream {
    /// Frames over a stream whose two ends have exchanged nonces that no other stream has.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn new(stream: Stream, end: End, secret: &Secret, head: &Nonce, host: &Nonce) -> io::Result<Self> {
        match &stream {
            Stream::Socket(socket) => {
                rustix::io::ioctl_fionbio(socket, true)?;
                let _ = rustix::net::sockopt::set_tcp_nodelay(socket, true); // fails on sockets other than TCP
            }
            Stream::Pipes(reads, writes) => {
                for pipe in [reads, writes] {
                    let flags = rustix::fs::fcntl_getfl(pipe)?;
                    rustix::fs::fcntl_setfl(pipe, flags | rustix::fs::OFlags::NONBLOCK)?;
                }
            }
        }
        let key = |purpose| secret.proof_of(purpose, &[head, host]);
        let (head, host) = (key("onesided bridge: the hub speaks"), key("onesided bridge: a host speaks"));
        let keys = if end == End::Head { (head, host) } else { (host, head) };
        let now = Instant::now();
        let (incoming, outgoing) = (Vec::new(), VecDeque::new());
        Ok(Self { stream, keys, numbers: (0, 0), incoming, outgoing, last_heard: now, last_said: now })
    }

    /// What to poll for input, and for output.
    pub(crate) fn polled(&self) -> [(BorrowedFd<'_>, PollFlags); 2] {
        let out = if self.outgoing.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        match &self.stream {
            Stream::Socket(socket) => [(socket.as_fd(), PollFlags::IN), (socket.as_fd(), out)],
            Stream::Pipes(reads, writes) => [(reads.as_fd(), PollFlags::IN), (writes.as_fd(), out)],
        }
    }

    /// Queues a frame for [`flush`](Self::flush).
    pub(crate) fn say(&mut self, said: &Said) {
        let frame = said.encode();
        let tag = tag(&self.keys.0, self.numbers.0, &frame);
        self.numbers.0 += 1;
        self.outgoing.extend((frame.len() as u32).to_le_bytes());
        self.outgoing.extend(&frame);
        self.outgoing.extend(tag.as_bytes());
        self.last_said = Instant::now();
    }

    /// Sends as much as the system accepts.
    pub(crate) fn flush(&mut self) -> Result<(), Lost> {
        while !self.outgoing.is_empty() {
            let (bytes, _) = self.outgoing.as_slices();
            let sent = match &self.stream {
                Stream::Socket(socket) => rustix::net::send(socket, bytes, SendFlags::NOSIGNAL),
                Stream::Pipes(_, writes) => rustix::io::write(writes, bytes),
            };
            match sent {
                Ok(sent) => drop(self.outgoing.drain(..sent)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if self.outgoing.len() <= MOST_WAITING => return Ok(()),
                Err(Errno::AGAIN) => return Err(Lost::Deaf),
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(Lost::Ended),
                Err(error) => return Err(Lost::Broke(error.into())),
            }
        }
        Ok(())
    }

    /// Whether everything was sent.
    pub(crate) fn is_flushed(&self) -> bool {
        self.outgoing.is_empty()
    }

    /// The next complete frame; `None` if there is none yet.
    pub(crate) fn hear(&mut self) -> Result<Option<Said>, Lost> {
        loop {
            if let Some(frame) = self.take()? {
                return Said::decode(&frame).map(Some).map_err(Lost::Nonsense);
            }
            let mut buffer = [0; 16 << 10];
            let read = match &self.stream {
                Stream::Socket(stream) | Stream::Pipes(stream, _) => rustix::io::read(stream, &mut buffer),
            };
            match read {
                Ok(0) => return Err(Lost::Ended),
                Ok(read) => {
                    self.incoming.extend_from_slice(&buffer[..read]);
                    self.last_heard = Instant::now();
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::CONNRESET) => return Err(Lost::Ended),
                Err(error) => return Err(Lost::Broke(error.into())),
            }
        }
    }

    /// Whether a complete, unread frame is buffered, which no poll reports.
    pub(crate) fn has_frame(&self) -> bool {
        let length = self.incoming.first_chunk().map(|length| u32::from_le_bytes(*length) as usize);
        length.is_some_and(|length| length > LONGEST || self.incoming.len() >= LENGTH + length + TAG)
    }

    /// Waits for the next frame; sends meanwhile.
    pub(crate) fn hear_until(&mut self, until: Instant) -> Result<Said, Lost> {
        loop {
            self.flush()?;
            if let Some(said) = self.hear()? {
                return Ok(said);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Lost::Broke(ErrorKind::TimedOut.into()));
            }
            let mut polled = self.polled().map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags));
            let _ = poll(&mut polled, Some(&timespec(left))); // the caller checks the state in any case
        }
    }

    /// The next buffered frame, if it is complete and its tag matches.
    fn take(&mut self) -> Result<Option<Vec<u8>>, Lost> {
        let Some((length, rest)) = self.incoming.split_first_chunk::<LENGTH>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if !(1..=LONGEST).contains(&length) {
            return Err(Lost::Forged); // no host daemon sends frames this long
        }
        let Some((frame, rest)) = rest.split_at_checked(length) else { return Ok(None) };
        let Some(theirs) = rest.first_chunk::<TAG>() else { return Ok(None) };
        if tag(&self.keys.1, self.numbers.1, frame) != blake3::Hash::from_bytes(*theirs) {
            return Err(Lost::Forged);
        }
        self.numbers.1 += 1;
        let frame = frame.to_vec();
        self.incoming.drain(..LENGTH + length + TAG);
        Ok(Some(frame))
    }
}

/// [`blake3::Hash`] compares in constant time.
fn tag(key: &blake3::Hash, number: u64, frame: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(key.as_bytes());
    hasher.update(&number.to_le_bytes());
    hasher.update(frame);
    hasher.finalize()
}
