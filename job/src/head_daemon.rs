//! A job without our launcher: rank 0 takes the launcher's part, as the head daemon. On every other
//! host its lowest rank is the host daemon, with a [control relay](crate::daemon) to rank 0.
//!
//! The daemon creates the job segment, and a thread of it serves values and memory. The other ranks
//! of the host learn its socket and the secret, and join there as at a launcher, with the same
//! proofs. For the guarantees see [`bootstrap`](crate#who-keeps-a-job).

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onesided_remote_memory::{Fault, FaultKind, Liveness, Rank, RegionId, delegate};
use rustix::net::Shutdown;
use rustix::process::Resource;

use crate::Error;
use crate::client::Client;
use crate::daemon::failover::{self, HEAD};
use crate::daemon::relay::{ControlRelay, Layout};
use crate::environment::Environment;
use crate::fork::is_child;
use crate::lock;
use crate::process::Process;
use crate::segment::{JobSegment, Mapping};
use crate::{Exchange, Job, Secret, Server};

/// The names of exchange values: each rank's arrival, and rank 0's that all have arrived.
const HERE: &str = "join/";
const ALL_HERE: &str = "join/all";
/// The additional time that other ranks wait for rank 0, which knows the missing rank.
const LONGER: Duration = Duration::from_secs(2);
/// How long a daemon that ends without leaving waits for ranks that do not know yet that all have
/// arrived.
pub(super) const SLOW: Duration = Duration::from_secs(5);
/// The poll interval of a daemon that waits for the other ranks, at first and at most.
const POLL_INTERVAL: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(10));

/// The state of a host daemon.
#[derive(Debug)]
pub(crate) struct Host {
    server: Server,
    job_segment: Arc<JobSegment>,
    secret: Secret,
}

impl Host {
    /// Creates the job segment and starts the server. Regions may take half of this process's
    /// descriptors.
    ///
    /// # Errors
    /// [`Error::Join`], [`Error::Launch`]: no memory, no descriptors, no thread, a bad size.
    pub(crate) fn start(size: u32, secret: Secret) -> Result<Self, Error> {
        let failed =
            |source| Error::Join { what: format!("make a job segment for {size} ranks"), source: Some(source) };
        let job_segment = Arc::new(JobSegment::create(size).map_err(failed)?);
        let descriptors = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let regions = usize::try_from(descriptors / 2).unwrap_or(usize::MAX);
        let server = Server::start(Arc::clone(&job_segment), secret.clone(), regions)?;
        server.is_in_a_rank();
        Ok(Self { server, job_segment, secret })
    }

    /// The name of the server's socket.
    pub(crate) fn address(&self) -> &str {
        self.server.address()
    }

    pub(crate) const fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Not all ranks come: those of this host that have come are told which one is missing.
    pub(crate) fn give_up(&self, error: &Error) {
        let Some(missing) = error.fault().rank() else { return };
        self.job_segment.declare_dead(missing);
        self.server.wake(); // ends waits for values after a death
        let waits =
            |rank| self.job_segment.process(rank).is_some() && self.job_segment.liveness(rank) == Liveness::Alive;
        wait_while(&self.job_segment, waits, Some(SLOW));
    }

    /// Connects this daemon to those of other hosts.
    ///
    /// # Errors
    /// [`Error::Launch`]: no thread.
    pub(crate) fn relay(&mut self, layout: &Layout, relay: ControlRelay) -> Result<(), Error> {
        self.job_segment.lay_out(&layout.hosts, layout.suspect_after());
        self.server.relay(relay)
    }

    /// Joins as the rank that runs this daemon.
    ///
    /// # Errors
    /// As [`join`].
    pub(crate) fn join(self, rank: Rank, until: Instant) -> Result<Job, Error> {
        let address = self.address().to_owned();
        let environment = Environment { rank, size: self.job_segment.size(), address, secret: self.secret.clone() };
        join(&environment, Some(self), until)
    }
}

/// Joins the job that rank 0 serves, and waits for all other ranks. `host`: this rank's own daemon.
///
/// # Errors
/// - [`Error::Join`], [`Error::Secret`]: rank 0 is absent or refuses.
/// - [`Error::Operation`]: a rank did not arrive in time (`TimedOut`), or died first (`PeerDied`).
pub(crate) fn join(environment: &Environment, host: Option<Host>, until: Instant) -> Result<Job, Error> {
    let rank = environment.rank;
    let daemon = if host.is_some() { "this rank's own service" } else { "rank 0, or this host's lowest rank" };
    let mut client = Client::connect(environment, daemon)?;
    let job_segment = Arc::clone(client.job_segment());
    if host.is_none() {
        client.name_daemon(if job_segment.host_of(rank) == 0 { "rank 0" } else { "this host's lowest rank" });
    }
    job_segment.introduce(rank, Process::own());
    client.sit(rank)?;
    let hosted = Hosted { rank, job_segment: Arc::clone(&job_segment), client, host };
    hosted.meet(until).inspect_err(|_| job_segment.declare_dead(rank))?; // its process may continue
    job_segment.arrive(rank);
    Ok(Job { rank, job_segment, exchange: Arc::new(hosted) })
}

/// The [`Exchange`] of a rank in such a job.
#[derive(Debug)]
struct Hosted {
    rank: Rank,
    job_segment: Arc<JobSegment>,
    /// Dropped before the host: rank 0 is a client of itself.
    client: Client,
    host: Option<Host>,
}

impl Hosted {
    /// Waits until all ranks have arrived.
    fn meet(&self, until: Instant) -> Result<(), Error> {
        // A rank that is this far is about to arrive, even at the last moment.
        let left = || until.saturating_duration_since(Instant::now()).max(LONGER);
        self.put(&format!("{HERE}{}", self.rank.0), &[])?;
        if self.host.is_none() {
            failover::watch(&lock(&self.client.connection).0, &self.job_segment, self.rank)
                .map_err(|source| Error::Join { what: "watch the host daemon".to_owned(), source: Some(source) })?;
        }
        if self.rank != HEAD {
            return self.get(ALL_HERE, left() + LONGER).map(drop).map_err(|error| match error.fault().rank() {
                Some(rank) if self.is_here(rank) && self.job_segment.process(rank).is_none() => came_not(rank),
                _ => missing(HEAD)(error),
            });
        }
        for rank in self.job_segment.ranks() {
            // Makes the other ranks report which rank is missing.
            self.get(&format!("{HERE}{}", rank.0), left())
                .inspect_err(|_| self.job_segment.declare_dead(rank))
                .map_err(missing(rank))?;
        }
        self.put(ALL_HERE, &[])
    }

    /// After leaving, waits until no rank needs this daemon: all ranks for rank 0, its host's for
    /// another.
    fn go_last(&self) {
        let served = |rank| self.rank == HEAD || self.is_here(rank);
        let stays = |rank| served(rank) && self.job_segment.liveness(rank) == Liveness::Alive;
        wait_while(&self.job_segment, stays, None);
    }

    /// A daemon that ends without leaving waits briefly until the ranks of its host know the
    /// outcome of the join. A resource refused to one rank right after the join is often refused to
    /// all, and each rank reports its own error.
    fn see_all_arrive(&self, host: &Host) {
        host.server.wake(); // ends waits for values after a death
        let arrives = |rank| {
            let came = rank != self.rank && self.is_here(rank) && self.job_segment.process(rank).is_some();
            came && self.job_segment.liveness(rank) == Liveness::Alive && !self.job_segment.has_arrived(rank)
        };
        wait_while(&self.job_segment, arrives, Some(SLOW));
    }

    fn is_here(&self, rank: Rank) -> bool {
        self.job_segment.host_of(rank) == self.job_segment.host_of(self.rank)
    }
}

/// Waits while the condition holds for any rank.
fn wait_while(job_segment: &JobSegment, condition: impl Fn(Rank) -> bool, limit: Option<Duration>) {
    let begin = Instant::now();
    let mut pause = POLL_INTERVAL.0;
    while job_segment.ranks().any(&condition) && limit.is_none_or(|limit| begin.elapsed() < limit) {
        std::thread::sleep(pause);
        pause = (pause * 2).min(POLL_INTERVAL.1);
    }
}

/// Names the missing rank; an error about a death names its rank already.
fn missing(rank: Rank) -> impl FnOnce(Error) -> Error {
    move |error| match error.fault().kind() {
        FaultKind::TimedOut => came_not(rank),
        _ => error,
    }
}

/// The error of all ranks when one did not arrive in time.
pub(crate) const fn came_not(rank: Rank) -> Error {
    Error::Operation { operation: "wait for all ranks to join the job", fault: Fault::of(FaultKind::TimedOut, rank) }
}

impl Drop for Hosted {
    fn drop(&mut self) {
        if is_child() {
            return; // the connection is its parent's
        }
        // A rank that did not leave is dead.
        self.job_segment.declare_dead(self.rank);
        match &self.host {
            Some(_) if self.job_segment.liveness(self.rank) == Liveness::Left => self.go_last(),
            Some(host) => self.see_all_arrive(host),
            None => {}
        }
        // The watch over rank 0 holds a duplicate of the socket. Shutting down the connection ends
        // this rank for rank 0.
        let _ = rustix::net::shutdown(&lock(&self.client.connection).0, Shutdown::Both);
    }
}

impl Exchange for Hosted {
    delegate! {
        client:
        fn put(&self, name: &str, value: &[u8]) -> Result<(), Error>;
        fn get(&self, name: &str, patience: Duration) -> Result<Vec<u8>, Error>;
        fn publish(&self, region: RegionId, memory: &Arc<Mapping>) -> Result<(), Error>;
        fn publish_two(&self, regions: [(RegionId, &Arc<Mapping>); 2]) -> Result<(), Error>;
        fn retract(&self, region: RegionId);
        fn fetch(&self, rank: Rank, region: RegionId) -> Result<Arc<Mapping>, Error>;
        fn fetch_file(&self, rank: Rank, region: RegionId) -> Result<OwnedFd, Error>;
    }

    fn abort(&self) {
        if let Some(host) = &self.host {
            host.server.wake();
            std::thread::sleep(SLOW); // its thread ends this process
        }
    }
}
