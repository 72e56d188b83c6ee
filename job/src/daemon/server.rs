//! The host daemon's service: one thread serves all ranks from one poll loop.
//!
//! No peer can block it. Every socket is nonblocking. A connection that has not proven the secret
//! is dropped after a few seconds, or when too many others arrive. A rank that does not read its
//! answers loses its connection.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::lock;
use onesided_remote_memory::Liveness;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::Error;
use crate::daemon::relay::ControlRelay;
use crate::daemon::session::{Next, Session};
use crate::daemon::tables::Tables;
use crate::frame::{Bytes, Frame};
use crate::secret::random_bytes;
use crate::segment::{Aborted, JobSegment};
use crate::{Secret, timespec, wire};

/// The maximum number of unproven connections, besides one a rank.
const STRANGERS: usize = 64;
/// How many connections are accepted before existing ones are read again.
const A_TURN: usize = 16;
/// How long to pause accepting when descriptors are exhausted.
const NO_ROOM: Duration = Duration::from_millis(50);
/// How long it may take to tell the other hosts that the job was aborted.
const TELLING: Duration = Duration::from_secs(1);

/// Serves the ranks of a job segment until it is dropped.
#[derive(Debug)]
pub struct Server {
    address: String,
    job_segment: Arc<JobSegment>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Reports changes of the job segment to the server's thread, if there are other hosts.
    watch: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    wake: OwnedFd,
    orders: Mutex<Vec<Order>>,
    /// Whether a rank's process runs the server: no launcher ends an aborted job's processes then.
    is_in_a_rank: AtomicBool,
}

/// A command for the server's thread.
#[derive(Debug)]
enum Order {
    ControlRelay(ControlRelay),
    Post { host: Option<u16>, message: Bytes },
}

impl Server {
    /// Listens on an abstract Unix socket with a random name. Stores at most `regions` regions of
    /// all ranks together, each of which takes a descriptor.
    ///
    /// # Errors
    /// [`Error::Launch`]: no descriptors, no thread.
    pub fn start(job_segment: Arc<JobSegment>, secret: Secret, regions: usize) -> Result<Self, Error> {
        let failed = |source| Error::Launch { what: "listen for the ranks".to_owned(), source: Some(source) };
        let address = format!("onesided-{:032x}", u128::from_le_bytes(random_bytes()));
        let (listener, shared) = Self::prepare(&address).map_err(failed)?;
        let mut service = Service {
            listener,
            shared: Arc::clone(&shared),
            tables: Tables::new(Arc::clone(&job_segment), secret, regions),
            sessions: Vec::new(),
            closed_until: None,
            relay: None,
        };
        let thread = std::thread::Builder::new().name("bootstrap".to_owned()).spawn(move || service.run());
        Ok(Self { address, job_segment, shared, thread: Some(thread.map_err(failed)?), watch: None })
    }

    fn prepare(address: &str) -> io::Result<(OwnedFd, Arc<Shared>)> {
        let listener = wire::socket(SocketFlags::NONBLOCK)?;
        rustix::net::bind(&listener, &wire::address(address)?)?;
        rustix::net::listen(&listener, i32::MAX)?; // the system caps it
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (stop, is_in_a_rank) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok((listener, Arc::new(Shared { stop, wake, orders: Mutex::default(), is_in_a_rank })))
    }

    /// The name of the socket.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    pub(crate) const fn job_segment(&self) -> &Arc<JobSegment> {
        &self.job_segment
    }

    /// Call after declaring a death on the job segment: it ends waits for values.
    pub fn wake(&self) {
        self.shared.wake();
    }

    /// From now on the server ends the processes of its host, its own as the last, when the job is
    /// aborted.
    pub(crate) fn is_in_a_rank(&self) {
        self.shared.is_in_a_rank.store(true, Ordering::Release);
    }

    /// Connects the server to the daemons of other hosts.
    ///
    /// # Errors
    /// [`Error::Launch`]: no thread.
    pub(crate) fn relay(&mut self, relay: ControlRelay) -> Result<(), Error> {
        let (job_segment, shared) = (Arc::clone(&self.job_segment), Arc::clone(&self.shared));
        let watch = move || {
            loop {
                let changes = job_segment.changes();
                if shared.stop.load(Ordering::Acquire) {
                    return; // stopping the server notes a change after the flag
                }
                shared.wake();
                job_segment.wait_for_change(changes);
            }
        };
        let failed = |source| Error::Launch { what: "watch the job segment".to_owned(), source: Some(source) };
        self.watch = Some(std::thread::Builder::new().name("board".to_owned()).spawn(watch).map_err(failed)?);
        self.shared.order(Order::ControlRelay(relay));
        Ok(())
    }

    /// Sends a control message to a host, or to all.
    pub(crate) fn post(&self, host: Option<u16>, message: &impl Frame) {
        self.shared.order(Order::Post { host, message: Bytes(message.encode()) });
    }
}

impl Shared {
    fn wake(&self) {
        // A full eventfd is already readable.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    fn order(&self, order: Order) {
        lock(&self.orders).push(order);
        self.wake();
    }
}

impl Server {
    /// Ends the server before it is dropped.
    pub(crate) fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic there was printed
        }
        if let Some(watch) = self.watch.take() {
            self.job_segment.note_change();
            let _ = watch.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Service {
    listener: OwnedFd,
    shared: Arc<Shared>,
    tables: Tables,
    /// Oldest first.
    sessions: Vec<Session>,
    /// Set while descriptors are exhausted.
    closed_until: Option<Instant>,
    /// The relay to other hosts, if there are any.
    relay: Option<ControlRelay>,
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
                Some(Readable { process: true, .. }) if session.look_after(tables) == Next::Close => Next::Close,
                Some(Readable { socket: true, .. }) => session.hear(tables),
                _ => Next::Stay,
            });
            self.turn();
            if self.shared.is_in_a_rank.load(Ordering::Acquire)
                && let Some(aborted) = self.tables.job_segment().aborted()
            {
                self.end_processes(aborted);
            }
            // After all input was read: a put may complete another session's get.
            self.keep(|session, tables| session.perform_due(tables, now));
            if ready.visitors {
                self.accept(now);
            }
        }
        // Last answers to waiting gets: a death may have ended them.
        self.keep(|session, tables| session.perform_due(tables, Instant::now()));
        self.turn();
        if let Some(relay) = self.relay.take() {
            relay.end(&mut self.tables);
        }
    }

    /// Runs the relay.
    fn turn(&mut self) {
        let orders = std::mem::take(&mut *lock(&self.shared.orders));
        for order in orders {
            match (order, &mut self.relay) {
                (Order::ControlRelay(relay), _) => {
                    self.tables.relay(relay.is_head());
                    self.relay = Some(relay);
                }
                (Order::Post { host, message }, Some(relay)) => {
                    relay.tell(&self.tables); // keeps the order of events
                    relay.post(host, message);
                }
                (Order::Post { .. }, None) => {}
            }
        }
        if let Some(relay) = &mut self.relay {
            relay.turn(&mut self.tables);
        }
    }

    /// Ends the ranks of this host that have not left, after the other hosts were told. The rank
    /// that aborted the job ends itself, with its status.
    fn end_processes(&mut self, Aborted { rank: aborting, status }: Aborted) -> ! {
        if let Some(relay) = &mut self.relay {
            relay.flush(TELLING, &mut self.tables);
        }
        let job_segment = self.tables.job_segment();
        let others = job_segment.ranks().filter(|rank| *rank != aborting);
        let alive = others.filter(|rank| job_segment.liveness(*rank) == Liveness::Alive);
        for process in alive.filter_map(|rank| job_segment.process(rank)).filter(|process| !process.is_own()) {
            let _ = process.kill(); // if it may not, that rank sees the end of this one
        }
        std::process::exit(status.into())
    }

    fn keep(&mut self, mut next: impl FnMut(&mut Session, &mut Tables) -> Next) {
        let tables = &mut self.tables;
        self.sessions.retain_mut(|session| {
            let stays = next(session, tables) == Next::Stay || session.fall_silent(tables) == Next::Stay;
            if !stays {
                session.end(tables);
            }
            stays
        });
    }

    fn wait(&mut self) -> Ready {
        let now = Instant::now();
        self.closed_until = self.closed_until.filter(|until| *until > now);
        let relay = self.relay.as_ref();
        let until = self.sessions.iter().filter_map(Session::deadline);
        let until = until.chain(self.closed_until).chain(relay.and_then(ControlRelay::deadline)).min();
        let timeout = until.map(|until| timespec(until.saturating_duration_since(now)));
        let visitors = if self.closed_until.is_some() { PollFlags::empty() } else { PollFlags::IN };
        let mut polled = Vec::with_capacity(2 * self.sessions.len() + 2);
        polled.push(PollFd::new(&self.shared.wake, PollFlags::IN));
        polled.push(PollFd::new(&self.listener, visitors));
        let none = || PollFd::new(&self.shared.wake, PollFlags::empty());
        for fd in self.sessions.iter().flat_map(Session::polled) {
            polled.push(fd.map_or_else(none, |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        }
        let to_hosts = relay.into_iter().flat_map(ControlRelay::polled);
        polled.extend(to_hosts.map(|(fd, what)| PollFd::from_borrowed_fd(fd, what)));
        if poll(&mut polled, timeout.as_ref()).is_err() {
            return Ready::default(); // EINTR, or a transient lack of memory
        }
        if polled[0].revents().contains(PollFlags::NVAL) {
            std::thread::sleep(NO_ROOM); // the rank that runs this has closed what it does not know: deaths are still told
        }
        let ready = |polled: &PollFd<'_>| !polled.revents().is_empty();
        Ready {
            woken: ready(&polled[0]),
            visitors: ready(&polled[1]),
            sessions: polled[2..2 + 2 * self.sessions.len()]
                .chunks_exact(2)
                .map(|pair| Readable { socket: ready(&pair[0]), process: ready(&pair[1]) })
                .collect(),
        }
    }

    /// Accepts some of the waiting connections, whose number has no bound.
    fn accept(&mut self, now: Instant) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        for _ in 0..A_TURN {
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

    /// A flood of strangers evicts the oldest strangers: a peer that knows the secret proves it at
    /// once.
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

/// The result of the poll.
#[derive(Default)]
struct Ready {
    woken: bool,
    visitors: bool,
    /// In session order.
    sessions: Vec<Readable>,
}

struct Readable {
    socket: bool,
    process: bool,
}

#[cfg(test)]
mod tests;
