//! The host daemon's side of one connection.

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use onesided_remote_memory::Rank;
use rustix::net::Shutdown;

use crate::daemon::tables::{Answer, Put, Tables};
use crate::frame::{Frame, Name};
use crate::process::Watch;
use crate::protocol::{FromDaemon, FromRank, Nonce, Proof, Refusal};
use crate::secret::{Side, random_bytes};
use crate::wire::{self, Descriptor};

/// How long a connection may take to prove the secret.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// One connection.
#[derive(Debug)]
pub(crate) struct Session {
    socket: OwnedFd,
    /// The process at the other end, once it has proven the secret. It alone tells the rank's end: a forked
    /// child keeps the connection open after it, and a program may close a connection that it does not know.
    process: Option<Watch>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Challenged, not proven yet.
    Stranger { nonce: Nonce, until: Instant },
    /// A rank that may send a request.
    Rank(Rank),
    /// A rank whose `get` waits for a value; it may not send another request meanwhile.
    Waiting { rank: Rank, name: Name, until: Option<Instant> },
    /// A rank whose `put` waits for the head daemon's answer.
    Putting { rank: Rank, ticket: u64 },
    /// A rank whose connection has ended, and whose process is watched on.
    Silent(Rank),
}

/// Whether a connection stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Stay,
    Close,
}

impl Session {
    /// Challenges a new connection. `None`: it belongs to another user, or is already gone.
    pub(crate) fn begin(socket: OwnedFd, now: Instant) -> Option<Self> {
        // An abstract socket has no permissions of its own.
        let peer = rustix::net::sockopt::socket_peercred(&socket).ok()?;
        if peer.uid != rustix::process::geteuid() && !peer.uid.is_root() {
            return None;
        }
        let nonce = random_bytes();
        let session = Self { socket, process: None, state: State::Stranger { nonce, until: now + PATIENCE } };
        (session.say(&FromDaemon::Challenge { nonce }, None) == Next::Stay).then_some(session)
    }

    /// The connection, while it lasts, and what becomes readable when the rank's process ends.
    pub(crate) fn polled(&self) -> [Option<BorrowedFd<'_>>; 2] {
        let socket = (!matches!(self.state, State::Silent(_))).then(|| self.socket.as_fd());
        [socket, self.process.as_ref().and_then(Watch::readable)]
    }

    pub(crate) const fn is_stranger(&self) -> bool {
        matches!(self.state, State::Stranger { .. })
    }

    const fn rank(&self) -> Option<Rank> {
        match self.state {
            State::Stranger { .. } => None,
            State::Rank(rank) | State::Waiting { rank, .. } | State::Putting { rank, .. } | State::Silent(rank) => {
                Some(rank)
            }
        }
    }

    /// The latest time for the next [`perform_due`](Self::perform_due).
    pub(crate) const fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Stranger { until, .. } => Some(*until),
            State::Rank(_) | State::Putting { .. } | State::Silent(_) => None,
            State::Waiting { until, .. } => *until,
        }
    }

    /// Handles news of the rank's process. A process does not end between a request and the answer that it
    /// waits for, so no effective request is left unread. A rank that had not left has died, even if the
    /// process that was started for it, such as a script around it, continues.
    pub(crate) fn look_after(&mut self, tables: &Tables) -> Next {
        let Some(rank) = self.rank().filter(|_| self.process.as_mut().is_some_and(Watch::has_ended)) else {
            return Next::Stay;
        };
        tables.job_segment().declare_dead(rank);
        Next::Close
    }

    /// The connection is of no more use. A rank's end is that of its process.
    pub(crate) fn fall_silent(&mut self, tables: &Tables) -> Next {
        match self.rank() {
            Some(rank) if tables.job_segment().is_alive(rank) => {
                let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
                self.state = State::Silent(rank);
                self.look_after(tables)
            }
            _ => Next::Close,
        }
    }

    /// Reads one frame and answers it.
    pub(crate) fn hear(&mut self, tables: &mut Tables) -> Next {
        let packet = match wire::receive(&self.socket) {
            Ok(Some(packet)) => packet,
            Ok(None) => return Next::Close,
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock => return Next::Stay,
                ErrorKind::ConnectionReset => return Next::Close, // the peer left an answer unread
                _ => return self.refuse(Refusal::Malformed),
            },
        };
        let Ok(said) = FromRank::decode(&packet.frame) else {
            return self.refuse(Refusal::Malformed);
        };
        let fits = match packet.descriptor {
            Descriptor::None => !said.brings_descriptor(),
            Descriptor::One(_) | Descriptor::Lost => said.brings_descriptor(),
            Descriptor::TooMany => false,
        };
        let memory = match packet.descriptor {
            Descriptor::One(memory) => Some(memory),
            _ => None,
        };
        match (&self.state, said) {
            _ if !fits => self.refuse(Refusal::Malformed),
            (State::Stranger { nonce, .. }, FromRank::Hello { rank, nonce: theirs, proof }) => {
                let nonces = (*nonce, theirs);
                self.admit(tables, rank, nonces, &proof)
            }
            (State::Stranger { .. } | State::Waiting { .. } | State::Putting { .. } | State::Silent(_), _)
            | (State::Rank(_), FromRank::Hello { .. }) => self.refuse(Refusal::Malformed),
            (State::Rank(rank), FromRank::Put { name, value }) => match tables.put_by_rank(name, value) {
                Put::Done(outcome) => {
                    self.answer(outcome.map_or_else(Answer::from, |()| Answer::Say(FromDaemon::Done)))
                }
                Put::Requested(ticket) => {
                    self.state = State::Putting { rank: *rank, ticket };
                    Next::Stay // `perform_due` answers later
                }
            },
            (State::Rank(rank), FromRank::Get { name, patience_ms }) => {
                let until = Instant::now().checked_add(Duration::from_millis(patience_ms));
                self.state = State::Waiting { rank: *rank, name, until };
                Next::Stay // `perform_due` follows
            }
            (State::Rank(rank), request) => {
                let answer = tables.serve(*rank, request, memory);
                self.answer(answer)
            }
        }
    }

    /// Performs due work: drops a silent stranger, answers a waiting `get`.
    pub(crate) fn perform_due(&mut self, tables: &mut Tables, now: Instant) -> Next {
        match &self.state {
            State::Stranger { until, .. } if *until <= now => Next::Close,
            State::Waiting { rank, name, until } => {
                let late = until.is_some_and(|until| until <= now);
                match tables.value(name, late) {
                    Some(answer) => {
                        self.state = State::Rank(*rank);
                        self.answer(answer)
                    }
                    None => Next::Stay,
                }
            }
            State::Putting { rank, ticket } => match tables.stored(*ticket) {
                Some(answer) => {
                    self.state = State::Rank(*rank);
                    self.answer(answer)
                }
                None => Next::Stay,
            },
            _ => Next::Stay,
        }
    }

    /// Removes the session from the tables.
    pub(crate) fn end(&self, tables: &mut Tables) {
        if let Some(rank) = self.rank() {
            tables.disconnected(rank);
        }
    }

    fn admit(&mut self, tables: &mut Tables, rank: Rank, (ours, theirs): (Nonce, Nonce), proof: &Proof) -> Next {
        let secret = tables.secret();
        // Checked first: a peer without the secret learns nothing else.
        if !secret.accepts(proof, Side::Rank, rank, &ours, &theirs) {
            return self.refuse(Refusal::Secret);
        }
        let proof = *secret.proof(Side::Daemon, rank, &ours, &theirs).as_bytes();
        // It has ended, or there are no descriptors: whose end would go unseen does not join.
        let Ok(peer) = rustix::net::sockopt::socket_peercred(&self.socket) else { return Next::Close };
        let Ok(process) = Watch::of(peer.pid) else { return Next::Close };
        if let Err(refusal) = tables.claim_rank(rank) {
            return self.refuse(refusal);
        }
        (self.state, self.process) = (State::Rank(rank), Some(process));
        let job_segment = tables.job_segment();
        self.say(&FromDaemon::Welcome { size: job_segment.size(), proof }, Some(job_segment.file()))
    }

    fn answer(&self, answer: Answer<'_>) -> Next {
        match answer {
            Answer::Say(frame) => self.say(&frame, None),
            Answer::Hand(memory) => self.say(&FromDaemon::Memory, Some(memory)),
        }
    }

    fn refuse(&self, refusal: Refusal) -> Next {
        self.say(&FromDaemon::Refused(refusal), None);
        Next::Close
    }

    /// A rank has at most one answer in flight, so a full socket means a peer that does not read.
    fn say(&self, frame: &FromDaemon, descriptor: Option<BorrowedFd<'_>>) -> Next {
        match wire::send(&self.socket, &frame.encode(), descriptor) {
            Ok(()) => Next::Stay,
            Err(_) => Next::Close,
        }
    }
}
