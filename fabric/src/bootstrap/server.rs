//! The launcher's side of the bootstrap: one thread that serves all ranks from one poll loop.
//!
//! Nobody can hold it up: every socket is nonblocking, a connection that has not proven the secret is dropped after a
//! few seconds or when too many others come, and a rank that does not read its answers loses its connection.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::Error;
use crate::bootstrap::secret::random_bytes;
use crate::bootstrap::session::{Next, Session};
use crate::bootstrap::tables::Tables;
use crate::bootstrap::{Secret, timespec, wire};
use crate::shm::Board;

/// How many connections that have not proven the secret there may be, beside one a rank.
const STRANGERS: usize = 64;
/// How long to leave the listener alone when no descriptor is left for a new connection.
const NO_ROOM: Duration = Duration::from_millis(50);

/// Serves a job's ranks until it is dropped.
#[derive(Debug)]
pub struct Server {
    address: String,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    wake: OwnedFd,
}

impl Server {
    /// Listens on an abstract Unix socket of a random name. At most `regions` regions of all ranks together are kept,
    /// each of which takes a descriptor.
    ///
    /// # Errors
    /// [`Error::Launch`]: no descriptors, no thread.
    pub fn start(board: Arc<Board>, secret: Secret, regions: usize) -> Result<Self, Error> {
        let failed = |source| Error::Launch { what: "listen for the ranks".to_owned(), source: Some(source) };
        let address = format!("onesided-{:032x}", u128::from_le_bytes(random_bytes()));
        let (listener, shared) = Self::prepare(&address).map_err(failed)?;
        let mut service = Service {
            listener,
            shared: Arc::clone(&shared),
            tables: Tables::new(board, secret, regions),
            sessions: Vec::new(),
            closed_until: None,
        };
        let thread = std::thread::Builder::new().name("bootstrap".to_owned()).spawn(move || service.run());
        Ok(Self { address, shared, thread: Some(thread.map_err(failed)?) })
    }

    fn prepare(address: &str) -> io::Result<(OwnedFd, Arc<Shared>)> {
        let listener = wire::socket(SocketFlags::NONBLOCK)?;
        rustix::net::bind(&listener, &wire::address(address)?)?;
        rustix::net::listen(&listener, i32::MAX)?; // the system caps it
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok((listener, Arc::new(Shared { stop: AtomicBool::new(false), wake })))
    }

    /// The name of the socket.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// To be called when a death was declared on the board: whoever waits for a value hears of it.
    pub fn look(&self) {
        // Full means that it is readable already.
        let _ = rustix::io::write(&self.shared.wake, &1_u64.to_ne_bytes());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.look();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic there has been printed
        }
    }
}

struct Service {
    listener: OwnedFd,
    shared: Arc<Shared>,
    tables: Tables,
    /// Those that came first come first.
    sessions: Vec<Session>,
    /// Set while there was no descriptor for a new connection.
    closed_until: Option<Instant>,
}

impl Service {
    fn run(&mut self) {
        while !self.shared.stop.load(Ordering::Acquire) {
            let ready = self.wait();
            if ready.woken {
                let _ = rustix::io::read(&self.shared.wake, &mut [0; 8]);
            }
            let now = Instant::now();
            let mut readable = ready.sessions.into_iter();
            self.keep(|session, tables| match readable.next() {
                Some(Readable { process: true, .. }) => session.ended(tables),
                Some(Readable { socket: true, .. }) => session.hear(tables),
                _ => Next::Stay,
            });
            // Only now: what one puts another may wait for.
            self.keep(|session, tables| session.look(tables, now));
            if ready.visitors {
                self.accept(now);
            }
        }
        // Last words for who waits for a value, if it never comes because somebody died.
        self.keep(|session, tables| session.look(tables, Instant::now()));
    }

    fn keep(&mut self, mut next: impl FnMut(&mut Session, &mut Tables) -> Next) {
        let tables = &mut self.tables;
        self.sessions.retain_mut(|session| {
            let stays = next(session, tables) == Next::Stay;
            if !stays {
                session.end(tables);
            }
            stays
        });
    }

    fn wait(&mut self) -> Ready {
        let now = Instant::now();
        self.closed_until = self.closed_until.filter(|until| *until > now);
        let until = self.sessions.iter().filter_map(Session::deadline).chain(self.closed_until).min();
        let timeout = until.map(|until| timespec(until.saturating_duration_since(now)));
        let visitors = if self.closed_until.is_some() { PollFlags::empty() } else { PollFlags::IN };
        let mut polled = Vec::with_capacity(2 * self.sessions.len() + 2);
        polled.push(PollFd::new(&self.shared.wake, PollFlags::IN));
        polled.push(PollFd::new(&self.listener, visitors));
        for session in &self.sessions {
            // Where there is no process to be watched, the socket once more, for nothing but its end.
            let (process, what) =
                session.process().map_or((session.socket(), PollFlags::empty()), |p| (p, PollFlags::IN));
            polled.push(PollFd::from_borrowed_fd(session.socket(), PollFlags::IN));
            polled.push(PollFd::from_borrowed_fd(process, what));
        }
        if poll(&mut polled, timeout.as_ref()).is_err() {
            return Ready::default(); // a signal; or no memory, which may pass
        }
        let ready = |polled: &PollFd<'_>| !polled.revents().is_empty();
        Ready {
            woken: ready(&polled[0]),
            visitors: ready(&polled[1]),
            sessions: polled[2..]
                .chunks_exact(2)
                .map(|pair| Readable { socket: ready(&pair[0]), process: pair[1].revents().contains(PollFlags::IN) })
                .collect(),
        }
    }

    fn accept(&mut self, now: Instant) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            match rustix::net::accept_with(&self.listener, flags) {
                Ok(socket) => {
                    self.make_room();
                    self.sessions.extend(Session::begin(socket, now));
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(_) => {
                    self.closed_until = Some(now + NO_ROOM);
                    return self.drop_oldest_stranger();
                }
            }
        }
    }

    /// A flood of strangers drives out strangers, the oldest first: whoever knows the secret proves it at once.
    fn make_room(&mut self) {
        let strangers = self.sessions.iter().filter(|session| session.is_stranger()).count();
        if strangers >= STRANGERS + self.tables.size() as usize {
            self.drop_oldest_stranger();
        }
    }

    fn drop_oldest_stranger(&mut self) {
        if let Some(oldest) = self.sessions.iter().position(Session::is_stranger) {
            self.sessions.remove(oldest);
        }
    }
}

/// What the poll found.
#[derive(Default)]
struct Ready {
    woken: bool,
    visitors: bool,
    /// In the order of the sessions.
    sessions: Vec<Readable>,
}

struct Readable {
    socket: bool,
    process: bool,
}

#[cfg(test)]
mod tests;
