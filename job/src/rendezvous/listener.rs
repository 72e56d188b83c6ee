//! Rank 0's side: it listens until all ranks have arrived.
//!
//! No peer can block it: sockets are nonblocking, and a connection is dropped if it has not proven
//! the secret within a few seconds or exceeds the limit of strangers.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use onesided_remote_memory::Rank;
use rustix::event::{PollFd, PollFlags, poll};

use crate::Error;
use crate::daemon::relay::{End, RelayStream, Stream};
use crate::daemon::session::PATIENCE;
use crate::frame::{Frame, Name};
use crate::head_daemon::came_not;
use crate::host_name::HostId;
use crate::protocol::{Nonce, Refusal};
use crate::rendezvous::coordinates::JobCoordinates;
use crate::rendezvous::frames::{Coming, FromRankZero, Incoming, same, with_length};
use crate::secret::random_bytes;
use crate::{Secret, timespec};

/// The maximum number of unproven connections, besides one a rank.
const STRANGERS: usize = 64;
/// How many connections are accepted before existing ones are read again: far fewer than the limit,
/// so that a peer that proves itself at once is read before it is evicted.
const A_TURN: usize = 16;
/// How long to pause accepting when descriptors are exhausted.
const NO_ROOM: Duration = Duration::from_millis(50);

/// The ranks of other hosts, which wait for an answer.
#[derive(Debug)]
pub(super) struct Gathered {
    /// By rank.
    pub(super) hosts: Vec<u16>,
    /// In rank order.
    pub(super) waiting: Vec<Waiting>,
}

/// A proven rank of another host that waits to learn its host daemon.
#[derive(Debug)]
pub(super) struct Waiting {
    stream: TcpStream,
    coming: Coming,
    greeting: Nonce,
}

impl Waiting {
    pub(super) const fn rank(&self) -> Rank {
        self.coming.rank
    }

    /// Names its host daemon's socket.
    pub(super) fn here(&self, secret: &Secret, socket: &Name) {
        let proof = self.coming.answer(secret, &self.greeting, socket);
        let here = FromRankZero::Here { proof, socket: socket.clone() };
        let _ = (&self.stream).write_all(&with_length(&here)); // a few bytes; a closed peer is missed later
    }

    /// Tells it to become its host's daemon; the relay uses the stream from then on.
    pub(super) fn keep(self, secret: &Secret) -> std::io::Result<RelayStream> {
        let proof = self.coming.keep(secret, &self.greeting);
        (&self.stream).write_all(&with_length(&FromRankZero::Keep { proof }))?;
        RelayStream::new(Stream::Socket(self.stream.into()), End::Head, secret, &self.greeting, &self.coming.nonce)
    }
}

/// Waits until all other ranks have arrived, and tells those of this host the name of the socket.
///
/// # Errors
/// - [`Error::Join`]: the address is unusable, or a process that knows the secret was refused and
///   the job is incomplete in time.
/// - [`Error::Operation`]: the lowest rank that did not arrive.
pub(super) fn gather(place: &JobCoordinates, socket: &str, until: Instant) -> Result<Gathered, Error> {
    let failed = |source| {
        let what = format!("listen at {}, as rank 0 has to ({})", place.address, place.told_by);
        Error::Join { what, source: Some(source) }
    };
    let mut come = vec![None; place.size as usize];
    come[0] = Some(place.host);
    if place.size == 1 {
        return Ok(Gathered { hosts: vec![0], waiting: Vec::new() });
    }
    gather_at(place, TcpListener::bind(&*place.address).map_err(failed)?, socket, come, until)
}

/// Like [`gather`] on an open listener. `come`: by rank, the hosts of ranks that need no answer
/// here.
///
/// # Errors
/// As [`gather`].
pub(super) fn gather_at(
    place: &JobCoordinates,
    listener: TcpListener,
    socket: &str,
    come: Vec<Option<HostId>>,
    until: Instant,
) -> Result<Gathered, Error> {
    listener.set_nonblocking(true).map_err(|source| {
        let what = format!("listen at {}, as rank 0 has to ({})", place.address, place.told_by);
        Error::Join { what, source: Some(source) }
    })?;
    let (strangers, waiting) = (Vec::new(), Vec::new());
    let mut meeting = Meeting { place, socket, come, refused: None, strangers, waiting };
    let mut closed = false;
    while let Some(missing) = meeting.come.iter().position(Option::is_none) {
        let now = Instant::now();
        if now >= until {
            return Err(meeting.incomplete(Rank(missing as u32)));
        }
        let next = meeting.strangers.iter().map(|stranger| stranger.until).min().map_or(until, |next| next.min(until));
        let next = if closed { next.min(now + NO_ROOM) } else { next };
        let visitors = if closed { PollFlags::empty() } else { PollFlags::IN };
        let mut polled = vec![PollFd::new(&listener, visitors)];
        polled.extend(meeting.strangers.iter().map(|stranger| PollFd::new(&stranger.stream, PollFlags::IN)));
        polled.extend(meeting.waiting.iter().map(|waiting| PollFd::new(&waiting.stream, PollFlags::IN)));
        let _ = poll(&mut polled, Some(&timespec(next.saturating_duration_since(now)))); // the loop checks the state in any case
        meeting.forget_the_gone();
        meeting.hear();
        closed = meeting.accept(&listener);
    }
    Ok(meeting.gathered())
}

/// An unproven connection.
#[derive(Debug)]
struct Stranger {
    stream: TcpStream,
    from: IpAddr,
    nonce: Nonce,
    incoming: Incoming,
    until: Instant,
}

#[derive(Debug)]
struct Meeting<'p> {
    place: &'p JobCoordinates,
    socket: &'p str,
    /// By rank, the hosts of the ranks that have arrived.
    come: Vec<Option<HostId>>,
    /// The last process that knew the secret and was still refused, and why.
    refused: Option<(Rank, Refusal)>,
    /// Oldest first.
    strangers: Vec<Stranger>,
    /// Ranks of other hosts are answered only after all have arrived.
    waiting: Vec<Waiting>,
}

impl Meeting<'_> {
    /// Numbers the hosts in the order of their lowest ranks.
    fn gathered(mut self) -> Gathered {
        let mut known: Vec<Option<HostId>> = Vec::new();
        let number = |host| {
            let at = known.iter().position(|known| *known == host).unwrap_or_else(|| {
                known.push(host);
                known.len() - 1
            });
            at as u16 // fewer hosts than ranks, which are at most 65535
        };
        let hosts = self.come.iter().copied().map(number).collect();
        self.waiting.sort_by_key(|waiting| waiting.coming.rank);
        Gathered { hosts, waiting: self.waiting }
    }

    /// Drops waiting ranks whose connection closed; they may come again. A waiting rank sends
    /// nothing.
    fn forget_the_gone(&mut self) {
        let come = &mut self.come;
        self.waiting.retain(|waiting| {
            let silent = matches!(waiting.stream.peek(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock);
            if !silent {
                come[waiting.coming.rank.index()] = None;
            }
            silent
        });
    }

    /// Accepts and greets some connections. Returns whether descriptors ran out.
    fn accept(&mut self, listener: &TcpListener) -> bool {
        for _ in 0..A_TURN {
            match listener.accept() {
                Ok((stream, from)) => {
                    if self.strangers.len() >= STRANGERS + self.come.len() {
                        self.drive_one_out();
                    }
                    let nonce = random_bytes();
                    let greeting = with_length(&FromRankZero::Greeting { nonce });
                    if stream.set_nonblocking(true).is_ok() && (&stream).write_all(&greeting).is_ok() {
                        let until = Instant::now() + PATIENCE;
                        let from = from.ip();
                        self.strangers.push(Stranger { stream, from, nonce, incoming: Incoming::default(), until });
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(_) => {
                    self.drive_one_out();
                    return true;
                }
            }
        }
        false
    }

    /// Evicts the oldest connection of the address with the most. A peer that knows the secret
    /// proves it at once, and a peer with many connections is not a rank.
    fn drive_one_out(&mut self) {
        let mut counts: HashMap<_, usize> = HashMap::new();
        self.strangers.iter().for_each(|stranger| *counts.entry(stranger.from).or_default() += 1);
        let most = counts.values().copied().max();
        if let Some(at) = self.strangers.iter().position(|stranger| counts.get(&stranger.from).copied() == most) {
            self.strangers.remove(at);
        }
    }

    fn hear(&mut self) {
        let now = Instant::now();
        for mut stranger in std::mem::take(&mut self.strangers) {
            match stranger.hear() {
                Some(frame) => self.answer(stranger, &frame),
                None if stranger.until > now => self.strangers.push(stranger),
                None => {}
            }
        }
    }

    fn answer(&mut self, stranger: Stranger, frame: &[u8]) {
        let answer = match Coming::decode(frame) {
            Ok(coming) => match self.admit(&coming, &stranger.nonce) {
                Ok(Some(here)) => here,
                Ok(None) => {
                    let Stranger { stream, nonce: greeting, .. } = stranger;
                    return self.waiting.push(Waiting { stream, coming, greeting });
                }
                Err(refusal) => FromRankZero::Refused(refusal),
            },
            Err(_) => FromRankZero::Refused(Refusal::Malformed),
        };
        let _ = (&stranger.stream).write_all(&with_length(&answer)); // a few bytes; a full socket is a late peer
    }

    /// The immediate answer; `None` for a rank of another host.
    fn admit(&mut self, coming: &Coming, greeting: &Nonce) -> Result<Option<FromRankZero>, Refusal> {
        let secret = &self.place.secret;
        // Checked first: a peer without the secret learns nothing else.
        if !same(&coming.proof, &coming.proof(secret, greeting)) {
            return Err(Refusal::Secret);
        }
        let rank = coming.rank;
        let checked = match self.come.get_mut(rank.index()) {
            _ if coming.size != self.place.size => Err(Refusal::Size),
            None => Err(Refusal::NoSuchRank),
            Some(Some(_)) => Err(Refusal::Taken),
            Some(come) => {
                *come = Some(coming.host);
                Ok(())
            }
        };
        checked.inspect_err(|refusal| self.refused = Some((rank, *refusal)))?;
        if coming.host != self.place.host {
            return Ok(None);
        }
        let socket = Name(self.socket.to_owned());
        Ok(Some(FromRankZero::Here { proof: coming.answer(secret, greeting, &socket), socket }))
    }

    /// Gives up, and tells those who wait which rank is missing.
    fn incomplete(&self, missing: Rank) -> Error {
        let said = with_length(&FromRankZero::Missing { rank: missing });
        for waiting in &self.waiting {
            let _ = (&waiting.stream).write_all(&said); // a few bytes; a full socket is a late peer
        }
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
    /// The frame, once it is complete. A malformed frame is returned at once, to be refused.
    fn hear(&mut self) -> Option<Vec<u8>> {
        loop {
            let missing = match self.incoming.missing() {
                Ok(0) => return Some(self.incoming.take()),
                Ok(missing) => missing,
                Err(_) => return Some(Vec::new()),
            };
            let mut bytes = [0; 4096];
            let missing = missing.min(bytes.len());
            match self.stream.read(&mut bytes[..missing]) {
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

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddrV4};

    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

    use super::*;
    use crate::host_name;

    fn place(secret: &Secret) -> JobCoordinates {
        let (address, secret) = ("127.0.0.1:0".to_owned(), secret.clone());
        let suspect_after = Duration::from_secs(5);
        JobCoordinates {
            address,
            rank: Rank(0),
            size: 2,
            secret,
            host: host_name::own(),
            suspect_after,
            told_by: "a test",
        }
    }

    fn meeting(place: &JobCoordinates) -> Meeting<'_> {
        let (come, strangers, waiting) = (vec![Some(place.host), None], Vec::new(), Vec::new());
        Meeting { place, socket: "there", come, refused: None, strangers, waiting }
    }

    fn call(listener: &TcpListener, from: Ipv4Addr) -> TcpStream {
        let caller = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&caller, &SocketAddrV4::new(from, 0)).unwrap();
        connect(&caller, &listener.local_addr().unwrap()).unwrap();
        caller.into()
    }

    fn listen() -> TcpListener {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        listener
    }

    /// A peer that has sent its hello is read before a flood up to the limit evicts it.
    #[test]
    fn those_who_are_in_are_heard_between_those_who_come() {
        let (listener, secret) = (listen(), Secret::random());
        let place = place(&secret);
        let mut meeting = meeting(&place);
        let rank = call(&listener, Ipv4Addr::LOCALHOST);
        assert!(!meeting.accept(&listener));
        let mut coming =
            Coming { rank: Rank(1), size: 2, host: host_name::own(), nonce: random_bytes(), proof: [0; 32] };
        coming.proof = coming.proof(&secret, &meeting.strangers[0].nonce);
        (&rank).write_all(&with_length(&coming)).unwrap();
        let crowd: Vec<_> = (0..100).map(|_| call(&listener, Ipv4Addr::LOCALHOST)).collect();
        assert!(!meeting.accept(&listener));
        meeting.hear();
        assert!(meeting.come[1].is_some(), "driven out unheard");
        drop(crowd);
    }

    /// A flood from one address evicts connections of that address, and not one of another that has
    /// not sent yet.
    #[test]
    fn a_crowd_drives_out_its_own() {
        let (listener, secret) = (listen(), Secret::random());
        let place = place(&secret);
        let mut meeting = meeting(&place);
        let rank = call(&listener, Ipv4Addr::LOCALHOST);
        let mut crowd = Vec::new();
        for _ in 0..300 {
            crowd.push(call(&listener, Ipv4Addr::new(127, 0, 0, 2)));
            assert!(!meeting.accept(&listener));
        }
        assert_eq!(meeting.strangers.len(), STRANGERS + 2);
        let known = rank.local_addr().unwrap();
        assert!(meeting.strangers.iter().any(|stranger| stranger.stream.peer_addr().unwrap() == known));
    }
}
