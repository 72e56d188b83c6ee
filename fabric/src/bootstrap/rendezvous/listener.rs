//! Rank 0's side: it listens until all ranks have come.
//!
//! Nobody can hold it up: sockets are nonblocking, who has not proven the secret within a few seconds, or is one stranger
//! too many, is dropped.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use remote_memory::Rank;
use rustix::event::{PollFd, PollFlags, poll};

use crate::Error;
use crate::bootstrap::host::came_not;
use crate::bootstrap::host_name;
use crate::bootstrap::protocol::{Nonce, Refusal};
use crate::bootstrap::rendezvous::frames::{Coming, FromRankZero, Incoming, same};
use crate::bootstrap::rendezvous::place::Place;
use crate::bootstrap::secret::random_bytes;
use crate::bootstrap::session::PATIENCE;
use crate::bootstrap::timespec;

/// How many connections that have proven nothing there may be, beside one a rank.
const STRANGERS: usize = 64;
/// How long to leave the listener alone when no descriptor is left.
const NO_ROOM: Duration = Duration::from_millis(50);

/// Tells every other rank the name of the socket.
///
/// # Errors
/// [`Error::Join`]: nobody can listen there; a process that knows the secret was refused and the job is not complete in
/// time. [`Error::Operation`]: the lowest rank that did not come.
pub(super) fn gather(place: &Place, socket: &str, until: Instant) -> Result<(), Error> {
    let failed = |source| {
        let what = format!("listen at {}, as rank 0 has to (ONESIDED_ADDRESS)", place.address);
        Error::Join { what, source: Some(source) }
    };
    let mut come = vec![false; place.size as usize];
    come[0] = true;
    if place.size == 1 {
        return Ok(());
    }
    let listener = TcpListener::bind(&*place.address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let mut meeting = Meeting { place, socket, host: host_name::own(), come, refused: None, strangers: Vec::new() };
    let mut closed = false;
    while let Some(missing) = meeting.come.iter().position(|come| !come) {
        let now = Instant::now();
        if now >= until {
            return Err(meeting.incomplete(Rank(missing as u32)));
        }
        let next = meeting.strangers.iter().map(|stranger| stranger.until).min().map_or(until, |next| next.min(until));
        let next = if closed { next.min(now + NO_ROOM) } else { next };
        let visitors = if closed { PollFlags::empty() } else { PollFlags::IN };
        let mut polled = vec![PollFd::new(&listener, visitors)];
        polled.extend(meeting.strangers.iter().map(|stranger| PollFd::new(&stranger.stream, PollFlags::IN)));
        let _ = poll(&mut polled, Some(&timespec(next.saturating_duration_since(now)))); // whatever it says, look
        meeting.hear();
        closed = meeting.accept(&listener);
    }
    Ok(())
}

/// A connection that has proven nothing yet.
#[derive(Debug)]
struct Stranger {
    stream: TcpStream,
    nonce: Nonce,
    incoming: Incoming,
    until: Instant,
}

#[derive(Debug)]
struct Meeting<'p> {
    place: &'p Place,
    socket: &'p str,
    host: host_name::HostId,
    come: Vec<bool>,
    /// The last that knew the secret and was refused all the same, and why.
    refused: Option<(Rank, Refusal)>,
    /// Those that came first come first.
    strangers: Vec<Stranger>,
}

impl Meeting<'_> {
    /// Greets who waits at the door. Whether there was no room for somebody.
    fn accept(&mut self, listener: &TcpListener) -> bool {
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    if self.strangers.len() >= STRANGERS + self.come.len() {
                        self.strangers.remove(0); // who knows the secret proves it at once
                    }
                    let nonce = random_bytes();
                    let greeting = FromRankZero::Greeting { nonce }.encode();
                    if stream.set_nonblocking(true).is_ok() && (&stream).write_all(&greeting).is_ok() {
                        let until = Instant::now() + PATIENCE;
                        self.strangers.push(Stranger { stream, nonce, incoming: Incoming::default(), until });
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(_) => {
                    if !self.strangers.is_empty() {
                        self.strangers.remove(0);
                    }
                    return true;
                }
            }
        }
    }

    fn hear(&mut self) {
        let now = Instant::now();
        for mut stranger in std::mem::take(&mut self.strangers) {
            match stranger.hear() {
                Some(frame) => self.answer(&stranger, &frame),
                None if stranger.until > now => self.strangers.push(stranger),
                None => {}
            }
        }
    }

    fn answer(&mut self, stranger: &Stranger, frame: &[u8]) {
        let answer = match Coming::decode(frame) {
            Ok(coming) => self.admit(&coming, &stranger.nonce),
            Err(_) => Err(Refusal::Malformed),
        };
        let answer = answer.unwrap_or_else(FromRankZero::Refused);
        let _ = (&stranger.stream).write_all(&answer.encode()); // a few bytes; who does not take them is late
    }

    fn admit(&mut self, coming: &Coming, greeting: &Nonce) -> Result<FromRankZero, Refusal> {
        let secret = &self.place.secret;
        // First of all: who does not know the secret learns nothing else.
        if !same(&coming.proof, &coming.proof(secret, greeting)) {
            return Err(Refusal::Secret);
        }
        let rank = coming.rank;
        let checked = match self.come.get_mut(rank.index()) {
            _ if coming.size != self.place.size => Err(Refusal::Size),
            _ if coming.host != self.host => Err(Refusal::OtherHost),
            None => Err(Refusal::NoSuchRank),
            Some(true) => Err(Refusal::Taken),
            Some(come) => {
                *come = true;
                Ok(())
            }
        };
        checked.inspect_err(|refusal| self.refused = Some((rank, *refusal)))?;
        let proof = coming.answer(secret, greeting, self.socket);
        Ok(FromRankZero::Here { proof, socket: self.socket.to_owned() })
    }

    fn incomplete(&self, missing: Rank) -> Error {
        match self.refused {
            None => came_not(missing),
            Some((rank, why)) => {
                let what =
                    format!("{missing} did not come in time, and a process that came as {rank} was refused: {why}");
                Error::Join { what, source: None }
            }
        }
    }
}

impl Stranger {
    /// The frame, once it is complete. What is no frame at all comes at once, to be refused.
    fn hear(&mut self) -> Option<Vec<u8>> {
        loop {
            let missing = match self.incoming.missing() {
                Ok(0) => return Some(self.incoming.take()),
                Ok(missing) => missing,
                Err(_) => return Some(Vec::new()),
            };
            let mut bytes = vec![0; missing];
            match self.stream.read(&mut bytes) {
                Ok(read @ 1..) => self.incoming.add(&bytes[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Ok(0) | Err(_) => {
                    self.until = Instant::now(); // gone
                    return None;
                }
            }
        }
    }
}
