//! Rank 0's side: it listens until all ranks have come.
//!
//! Nobody can hold it up: sockets are nonblocking, who has not proven the secret within a few seconds, or is one stranger
//! too many, is dropped.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use onesided_remote_memory::Rank;
use rustix::event::{PollFd, PollFlags, poll};

use crate::Error;
use crate::daemon::bridge::{End, Link, Stream};
use crate::daemon::session::PATIENCE;
use crate::host::came_not;
use crate::host_name::HostId;
use crate::protocol::{Nonce, Refusal};
use crate::rendezvous::frames::{Coming, FromRankZero, Incoming, same};
use crate::rendezvous::place::Place;
use crate::secret::random_bytes;
use crate::{Secret, timespec};

/// How many connections that have proven nothing there may be, beside one a rank.
const STRANGERS: usize = 64;
/// How many are let in before those that are in are heard again: far fewer than there may be, so that whoever proves itself
/// at once is heard before it is driven out.
const A_TURN: usize = 16;
/// How long to leave the listener alone when no descriptor is left.
const NO_ROOM: Duration = Duration::from_millis(50);

/// The ranks of other hosts, which wait for an answer.
#[derive(Debug)]
pub(super) struct Gathered {
    /// By rank.
    pub(super) hosts: Vec<u16>,
    /// In the order of their ranks.
    pub(super) waiting: Vec<Waiting>,
}

/// A rank of another host that has proven itself, and waits to be told where its host is kept.
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

    /// Tells it where its host is kept.
    pub(super) fn here(&self, secret: &Secret, socket: &str) {
        let proof = self.coming.answer(secret, &self.greeting, socket);
        let here = FromRankZero::Here { proof, socket: socket.to_owned() };
        let _ = (&self.stream).write_all(&here.encode()); // a few bytes; whoever is gone will be missed
    }

    /// Tells it to keep its host; what follows goes over a link.
    pub(super) fn keep(self, secret: &Secret) -> std::io::Result<Link> {
        let proof = self.coming.keep(secret, &self.greeting);
        (&self.stream).write_all(&FromRankZero::Keep { proof }.encode())?;
        Link::new(Stream::Socket(self.stream.into()), End::Hub, secret, &self.greeting, &self.coming.nonce)
    }
}

/// Waits until all other ranks have come, and tells those of this host the name of the socket.
///
/// # Errors
/// [`Error::Join`]: nobody can listen there; a process that knows the secret was refused and the job is not complete in
/// time. [`Error::Operation`]: the lowest rank that did not come.
pub(super) fn gather(place: &Place, socket: &str, until: Instant) -> Result<Gathered, Error> {
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

/// The same at a port that is open already. `come`: by rank, who needs no word from here, and their hosts.
///
/// # Errors
/// As [`gather`].
pub(super) fn gather_at(
    place: &Place,
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
        let _ = poll(&mut polled, Some(&timespec(next.saturating_duration_since(now)))); // whatever it says, look
        meeting.forget_the_gone();
        meeting.hear();
        closed = meeting.accept(&listener);
    }
    Ok(meeting.gathered())
}

/// A connection that has proven nothing yet.
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
    place: &'p Place,
    socket: &'p str,
    /// By rank, who has come, and from where.
    come: Vec<Option<HostId>>,
    /// The last that knew the secret and was refused all the same, and why.
    refused: Option<(Rank, Refusal)>,
    /// Those that came first come first.
    strangers: Vec<Stranger>,
    /// Those of other hosts are told only when all have come who keeps their host.
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
            at as u16 // there are fewer hosts than ranks, of which a board has at most 65535
        };
        let hosts = self.come.iter().copied().map(number).collect();
        self.waiting.sort_by_key(|waiting| waiting.coming.rank);
        Gathered { hosts, waiting: self.waiting }
    }

    /// Who waits has nothing to say: one that closes is gone, and may come again.
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

    /// Greets some of those who wait at the door. Whether there was no room for somebody.
    fn accept(&mut self, listener: &TcpListener) -> bool {
        for _ in 0..A_TURN {
            match listener.accept() {
                Ok((stream, from)) => {
                    if self.strangers.len() >= STRANGERS + self.come.len() {
                        self.drive_one_out();
                    }
                    let nonce = random_bytes();
                    let greeting = FromRankZero::Greeting { nonce }.encode();
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

    /// The oldest of those from the address that most are from: who knows the secret proves it at once, and who comes in great
    /// numbers is no rank.
    fn drive_one_out(&mut self) {
        let mut crowds: HashMap<_, usize> = HashMap::new();
        self.strangers.iter().for_each(|stranger| *crowds.entry(stranger.from).or_default() += 1);
        let most = crowds.values().copied().max();
        if let Some(at) = self.strangers.iter().position(|stranger| crowds.get(&stranger.from).copied() == most) {
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
        let _ = (&stranger.stream).write_all(&answer.encode()); // a few bytes; who does not take them is late
    }

    /// What to say at once; `None` to a rank of another host.
    fn admit(&mut self, coming: &Coming, greeting: &Nonce) -> Result<Option<FromRankZero>, Refusal> {
        let secret = &self.place.secret;
        // First of all: who does not know the secret learns nothing else.
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
        let proof = coming.answer(secret, greeting, self.socket);
        Ok(Some(FromRankZero::Here { proof, socket: self.socket.to_owned() }))
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

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddrV4};

    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

    use super::*;
    use crate::host_name;

    fn place(secret: &Secret) -> Place {
        let (address, secret) = ("127.0.0.1:0".to_owned(), secret.clone());
        let suspect_after = Duration::from_secs(5);
        Place { address, rank: Rank(0), size: 2, secret, host: host_name::own(), suspect_after, told_by: "a test" }
    }

    fn meeting(place: &Place) -> Meeting<'_> {
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

    /// As many as the door holds stand before it: who has spoken meanwhile is heard before it is driven out.
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
        (&rank).write_all(&coming.encode()).unwrap();
        let crowd: Vec<_> = (0..100).map(|_| call(&listener, Ipv4Addr::LOCALHOST)).collect();
        assert!(!meeting.accept(&listener));
        meeting.hear();
        assert!(meeting.come[1].is_some(), "driven out unheard");
        drop(crowd);
    }

    /// Many from one address cost that address its connections, and not somebody from another that has not spoken yet.
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
