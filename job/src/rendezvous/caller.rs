//! The other ranks' side: they connect to rank 0 as soon as it listens.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use onesided_remote_memory::{Fault, FaultKind, Rank};

use crate::Error;
use crate::daemon::relay::{End, RelayStream, Stream};
use crate::frame::Frame;
use crate::head_daemon::came_not;
use crate::protocol::{Nonce, Refusal};
use crate::rendezvous::coordinates::JobCoordinates;
use crate::rendezvous::frames::{Coming, FromRankZero, Incoming, same, with_length};
use crate::secret::random_bytes;

/// How long to try one address before the next.
const CONNECT: Duration = Duration::from_secs(3);
/// The delay before the next of several addresses is tried, and how long to wait for a greeting.
const STAGGER: Duration = Duration::from_millis(250);
const GREETING: Duration = Duration::from_secs(3);
/// The delay before the next attempt.
const PAUSE: Duration = Duration::from_millis(50);

const SOMETHING_ELSE: &str = "what listens at rank 0's address (ONESIDED_ADDRESS) does not speak like rank 0";

/// Rank 0's answer at the rendezvous.
#[derive(Debug)]
pub(super) enum Found {
    /// The name of its host daemon's socket.
    Here(String),
    /// This rank becomes its host's daemon, with this stream to rank 0.
    Keep(RelayStream),
}

/// Finds this rank's host daemon.
///
/// # Errors
/// See [`join`](super::join).
pub(super) fn find(place: &JobCoordinates, until: Instant) -> Result<Found, Error> {
    let mut greeted = false;
    loop {
        let stream = connect(place, until, greeted)?;
        match ask(place, stream, until) {
            Ok(found) => return Ok(found),
            // Rank 0 dropped it among too many strangers, or something else listened and has gone:
            // try again.
            Err(Unanswered::Closed { after_greeting }) if Instant::now() < until => {
                greeted |= after_greeting;
                std::thread::sleep(PAUSE);
            }
            Err(Unanswered::Closed { .. }) => return Err(late()),
            Err(Unanswered::Error(error)) => return Err(error),
        }
    }
}

/// Like [`find`], where rank 0 listens already at one of these addresses. Other listeners are
/// skipped. As in RFC 8305, each address is tried a little later than the one before, answered or
/// not, so an unreachable or silent address delays nothing.
pub(super) fn find_at_any(place: &JobCoordinates, addresses: &[SocketAddr], until: Instant) -> Result<Found, Error> {
    loop {
        let (mut answer, mut last) = (None, None);
        let (sender, receiver) = channel();
        let (mut left, mut under_way, mut next) = (addresses.iter(), 0, Instant::now());
        loop {
            let now = Instant::now();
            if (under_way == 0 || now >= next)
                && let Some(address) = left.next()
            {
                let (address, sender) = (*address, sender.clone());
                let call = move || drop(sender.send(call(address, until)));
                match std::thread::Builder::new().name("rendezvous".to_owned()).spawn(call) {
                    Ok(_) => under_way += 1,
                    Err(error) => last = Some(error),
                }
                next = now + STAGGER;
                continue;
            }
            if under_way == 0 {
                break;
            }
            let patience = if left.len() > 0 { next.saturating_duration_since(now) } else { CONNECT + GREETING };
            let Ok(called) = receiver.recv_timeout(patience) else { continue };
            under_way -= 1;
            match called {
                Ok(Ok((stream, greeting))) => match speak(place, stream, &greeting, until) {
                    Ok(found) => return Ok(found),
                    Err(Unanswered::Error(error)) => answer = Some(error),
                    Err(Unanswered::Closed { .. }) => last = Some(ErrorKind::ConnectionAborted.into()),
                },
                Ok(Err(Unanswered::Error(error))) => answer = Some(error),
                Ok(Err(Unanswered::Closed { .. })) => last = Some(ErrorKind::ConnectionAborted.into()),
                // It listened before it published its address.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => last = last.or(Some(error)),
                Err(error) => last = Some(error),
            }
            next = Instant::now(); // try the next address at once
        }
        let gone = last.as_ref().is_none_or(|last: &io::Error| last.kind() == ErrorKind::ConnectionRefused);
        if let Some(error) = answer {
            return Err(error);
        }
        if gone || Instant::now() + PAUSE >= until {
            let what = format!("connect to rank 0 at {} ({})", place.address, place.told_by);
            return Err(failed(&what, last));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Connects to an address and waits briefly for the greeting.
///
/// # Errors
/// Outer: the address is unreachable or silent. Inner: the listener is not rank 0.
fn call(address: SocketAddr, until: Instant) -> io::Result<Result<(TcpStream, Nonce), Unanswered>> {
    let stream = connect_to_any([address].into_iter(), until)?;
    let until = until.min(Instant::now() + GREETING);
    Ok(match hear(&stream, until) {
        Ok(FromRankZero::Greeting { nonce }) => Ok((stream, nonce)),
        Ok(_) => Err(unexpected().into()),
        Err(Unanswered::Error(_)) if Instant::now() >= until => return Err(ErrorKind::TimedOut.into()),
        Err(unanswered) => Err(unanswered),
    })
}

/// `greeted`: rank 0 has listened before, so a refused connection is final.
fn connect(place: &JobCoordinates, until: Instant, greeted: bool) -> Result<TcpStream, Error> {
    let failed = |source: io::Error| {
        let what = format!("connect to rank 0 at {} ({}): it did not listen in time", place.address, place.told_by);
        Error::Join { what, source: Some(source) }
    };
    loop {
        let last = match place.address.to_socket_addrs() {
            Ok(addresses) => match connect_to_any(addresses, until) {
                Ok(stream) => return Ok(stream),
                Err(error) => error,
            },
            Err(error) => error, // a name server may answer later
        };
        if greeted && last.kind() == ErrorKind::ConnectionRefused {
            return Err(self::failed("rank 0 closed the connection without an answer, and listens no more", None));
        }
        if Instant::now() + PAUSE >= until {
            return Err(failed(last));
        }
        std::thread::sleep(PAUSE);
    }
}

fn connect_to_any(addresses: impl Iterator<Item = SocketAddr>, until: Instant) -> io::Result<TcpStream> {
    let mut last = ErrorKind::NotFound.into();
    for address in addresses {
        let left = until.saturating_duration_since(Instant::now()).clamp(Duration::from_millis(1), CONNECT);
        match TcpStream::connect_timeout(&address, left) {
            // A connection to an unused port of the same host can connect to itself.
            Ok(stream) if stream.local_addr()? == stream.peer_addr()? => last = ErrorKind::ConnectionRefused.into(),
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

enum Unanswered {
    /// Closed before the first byte of a greeting or of the answer.
    Closed {
        after_greeting: bool,
    },
    Error(Error),
}

impl From<Error> for Unanswered {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

fn ask(place: &JobCoordinates, stream: TcpStream, until: Instant) -> Result<Found, Unanswered> {
    let FromRankZero::Greeting { nonce } = hear(&stream, until)? else { return Err(unexpected().into()) };
    speak(place, stream, &nonce, until)
}

/// Answers a greeting.
fn speak(place: &JobCoordinates, stream: TcpStream, greeting: &Nonce, until: Instant) -> Result<Found, Unanswered> {
    let JobCoordinates { rank, size, secret, host, .. } = place;
    let mut coming = Coming { rank: *rank, size: *size, host: *host, nonce: random_bytes(), proof: [0; 32] };
    coming.proof = coming.proof(secret, greeting);
    let mut writer = &stream;
    let driven_out = Unanswered::Closed { after_greeting: true };
    match writer.write_all(&with_length(&coming)) {
        Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
            return Err(driven_out);
        }
        written => written.map_err(|error| failed("speak to rank 0", Some(error)))?, // a few bytes
    }
    let answer = match hear(&stream, until) {
        Err(Unanswered::Closed { .. }) => return Err(driven_out),
        heard => heard?,
    };
    match answer {
        FromRankZero::Here { proof, socket } if same(&proof, &coming.answer(secret, greeting, &socket)) => {
            Ok(Found::Here(socket.0))
        }
        FromRankZero::Keep { proof } if same(&proof, &coming.keep(secret, greeting)) => {
            let link = RelayStream::new(Stream::Socket(stream.into()), End::Host, secret, greeting, &coming.nonce);
            link.map(Found::Keep).map_err(|error| failed("use the stream to rank 0", Some(error)).into())
        }
        FromRankZero::Here { .. } | FromRankZero::Keep { .. } | FromRankZero::Refused(Refusal::Secret) => {
            Err(Error::Secret.into())
        }
        FromRankZero::Refused(Refusal::Size) => {
            Err(failed(&format!("the job does not have {size} ranks, as ONESIDED_SIZE says here"), None).into())
        }
        FromRankZero::Missing { rank } => Err(came_not(rank).into()),
        FromRankZero::Refused(refusal) => Err(failed(&refusal.to_string(), None).into()),
        FromRankZero::Greeting { .. } => Err(unexpected().into()),
    }
}

/// The next frame.
fn hear(mut stream: &TcpStream, until: Instant) -> Result<FromRankZero, Unanswered> {
    let mut incoming = Incoming::default();
    loop {
        let missing = match incoming.missing() {
            Ok(0) => break,
            Ok(missing) => missing,
            Err(_) => return Err(unexpected().into()),
        };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late().into());
        }
        let mut bytes = [0; 4096];
        let missing = missing.min(bytes.len());
        match stream.set_read_timeout(Some(left)).and_then(|()| stream.read(&mut bytes[..missing])) {
            Ok(read @ 1..) => incoming.add(&bytes[..read]),
            Ok(0) if incoming.is_empty() => return Err(Unanswered::Closed { after_greeting: false }),
            Err(error) if error.kind() == ErrorKind::ConnectionReset && incoming.is_empty() => {
                return Err(Unanswered::Closed { after_greeting: false });
            }
            Ok(0) => return Err(failed("hear from rank 0", Some(ErrorKind::UnexpectedEof.into())).into()),
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(error) => return Err(failed("hear from rank 0", Some(error)).into()),
        }
    }
    FromRankZero::decode(&incoming.take()).map_err(|error| failed(&format!("{SOMETHING_ELSE}: {error}"), None).into())
}

fn failed(what: &str, source: Option<io::Error>) -> Error {
    Error::Join { what: what.to_owned(), source }
}

fn unexpected() -> Error {
    failed(SOMETHING_ELSE, None)
}

fn late() -> Error {
    let fault = Fault::of(FaultKind::TimedOut, Rank(0));
    Error::Operation { operation: "wait for an answer of rank 0 at its address", fault }
}
