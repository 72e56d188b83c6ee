//! A job that no launcher of ours started: rank 0 keeps what the launcher would keep. On every other host its lowest rank
//! does, with a [bridge](crate::daemon::bridge) to rank 0.
//!
//! The keeper makes the board and serves values and memory from a thread. The others, which learnt its socket and the secret in
//! some way, join there as they would at the launcher, with the same proofs. What that promises: see
//! [`bootstrap`](super#who-keeps-a-job).

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onesided_remote_memory::{Fault, FaultKind, Liveness, Rank, RegionId};
use rustix::net::Shutdown;
use rustix::process::Resource;

use crate::Error;
use crate::client::Client;
use crate::daemon::bridge::{Bridge, Layout};
use crate::daemon::succession::{self, KEEPER};
use crate::environment::Environment;
use crate::process::Process;
use crate::segment::{Board, Mapping};
use crate::{Exchange, Job, Secret, Server};

/// Under these names in the exchange each rank says that it is there, and rank 0 that all are.
const HERE: &str = "join/";
const ALL_HERE: &str = "join/all";
/// How much longer the others wait for rank 0 than it for them: it knows who is missing.
const LONGER: Duration = Duration::from_secs(2);
/// How long a keeper that ends without having left waits for ranks that do not know yet that all have come.
pub(super) const SLOW: Duration = Duration::from_secs(5);
/// How often a keeper that ends looks whether the others have, at first and at most.
const LOOK: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(10));

/// What a keeper keeps.
#[derive(Debug)]
pub(crate) struct Host {
    server: Server,
    board: Arc<Board>,
    size: u32,
    secret: Secret,
}

impl Host {
    /// Makes the board and begins to serve. Regions may take half of the descriptors that this process may have.
    ///
    /// # Errors
    /// [`Error::Join`], [`Error::Launch`]: no memory, no descriptors, no thread, a bad size.
    pub(crate) fn start(size: u32, secret: Secret) -> Result<Self, Error> {
        let failed = |source| Error::Join { what: format!("make a board for {size} ranks"), source: Some(source) };
        let board = Arc::new(Board::create(size).map_err(failed)?);
        let descriptors = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let regions = usize::try_from(descriptors / 2).unwrap_or(usize::MAX);
        Ok(Self { server: Server::start(Arc::clone(&board), secret.clone(), regions)?, board, size, secret })
    }

    /// The name of its socket.
    pub(crate) fn address(&self) -> &str {
        self.server.address()
    }

    pub(crate) const fn secret(&self) -> &Secret {
        &self.secret
    }

    /// There are other hosts, and this is how they are reached.
    ///
    /// # Errors
    /// [`Error::Launch`]: no thread.
    pub(crate) fn bridge(&mut self, layout: &Layout, bridge: Bridge) -> Result<(), Error> {
        let ranks = (0..self.size).map(Rank);
        ranks.zip(&layout.hosts).for_each(|(rank, host)| self.board.place(rank, u32::from(*host)));
        self.server.bridge(bridge)
    }

    /// Joins it as the rank that keeps it.
    ///
    /// # Errors
    /// As [`join`].
    pub(crate) fn join(self, rank: Rank, until: Instant) -> Result<Job, Error> {
        let address = self.address().to_owned();
        let environment = Environment { rank, size: self.size, address, secret: self.secret.clone() };
        join(&environment, Some(self), until)
    }
}

/// Joins the job that rank 0 keeps, and waits for all others. `host`: what this rank itself keeps.
///
/// # Errors
/// [`Error::Join`], [`Error::Secret`]: rank 0 is not there, or refuses. [`Error::Operation`]: a rank did not come in time
/// (`TimedOut`), or died on its way (`PeerDied`).
pub(crate) fn join(environment: &Environment, host: Option<Host>, until: Instant) -> Result<Job, Error> {
    let rank = environment.rank;
    let keeper = if host.is_some() { "this rank's own service" } else { "rank 0, or this host's lowest rank" };
    let mut client = Client::connect(environment, keeper)?;
    let board = Arc::clone(client.board());
    if host.is_none() {
        client.name_keeper(if board.host_of(rank) == 0 { "rank 0" } else { "this host's lowest rank" });
    }
    board.introduce(rank, Process::own());
    client.sit(rank)?;
    let hosted = Hosted { rank, board: Arc::clone(&board), client, host };
    hosted.meet(until).inspect_err(|_| board.declare_dead(rank))?; // its process may go on
    board.arrive(rank);
    Ok(Job { rank, board, exchange: Arc::new(hosted) })
}

/// The [`Exchange`] of a rank in such a job.
#[derive(Debug)]
struct Hosted {
    rank: Rank,
    board: Arc<Board>,
    /// Dropped before the host: rank 0 is a client of itself.
    client: Client,
    host: Option<Host>,
}

impl Hosted {
    /// Waits until all ranks have come.
    fn meet(&self, until: Instant) -> Result<(), Error> {
        // Who has come as far as this is on its way: at the last moment is early enough.
        let left = || until.saturating_duration_since(Instant::now()).max(LONGER);
        self.put(&format!("{HERE}{}", self.rank.0), &[])?;
        if self.host.is_none() {
            succession::watch(&self.client.connection().0, &self.board, self.rank)
                .map_err(|source| Error::Join { what: "watch the host's keeper".to_owned(), source: Some(source) })?;
        }
        if self.rank != KEEPER {
            return self.get(ALL_HERE, left() + LONGER).map(drop).map_err(missing(KEEPER));
        }
        for rank in (0..self.board.size()).map(Rank) {
            // The others are told whom the job lacks.
            self.get(&format!("{HERE}{}", rank.0), left())
                .inspect_err(|_| self.board.declare_dead(rank))
                .map_err(missing(rank))?;
        }
        self.put(ALL_HERE, &[])
    }

    /// The keeper has left: waits until nobody needs it any more. That is everybody for rank 0, its host for another.
    fn go_last(&self) {
        let served = |rank| self.rank == KEEPER || self.is_here(rank);
        self.wait_while(|rank| served(rank) && self.board.liveness(rank) == Liveness::Alive, None);
    }

    /// The keeper ends without having left: waits, not for long, until whoever came on this host has heard how the meeting
    /// ended. What is refused to one rank right after the meeting is often refused to all, and each is to say why.
    fn see_all_arrive(&self, host: &Host) {
        host.server.look(); // who waits for a value hears of a death
        let arrives = |rank| {
            let came = rank != self.rank && self.is_here(rank) && self.board.process(rank).is_some();
            came && self.board.liveness(rank) == Liveness::Alive && !self.board.has_arrived(rank)
        };
        self.wait_while(arrives, Some(SLOW));
    }

    fn is_here(&self, rank: Rank) -> bool {
        self.board.host_of(rank) == self.board.host_of(self.rank)
    }

    /// Waits while this can be said of any rank.
    fn wait_while(&self, condition: impl Fn(Rank) -> bool, limit: Option<Duration>) {
        let begin = Instant::now();
        let mut pause = LOOK.0;
        while (0..self.board.size()).map(Rank).any(&condition) && limit.is_none_or(|limit| begin.elapsed() < limit) {
            std::thread::sleep(pause);
            pause = (pause * 2).min(LOOK.1);
        }
    }
}

/// Names the rank that did not come; who died is named already.
fn missing(rank: Rank) -> impl FnOnce(Error) -> Error {
    move |error| match error.fault().kind() {
        FaultKind::TimedOut => came_not(rank),
        _ => error,
    }
}

/// What everybody is told when a rank did not come in time.
pub(crate) const fn came_not(rank: Rank) -> Error {
    Error::Operation { operation: "wait for all ranks to join the job", fault: Fault::of(FaultKind::TimedOut, rank) }
}

impl Drop for Hosted {
    fn drop(&mut self) {
        // One that did not leave is dead, and the others will notice.
        match &self.host {
            Some(_) if self.board.liveness(self.rank) == Liveness::Left => self.go_last(),
            Some(host) => self.see_all_arrive(host),
            None => {}
        }
        // The watch over rank 0 has a duplicate. To rank 0, the connection's end is this rank's.
        let _ = rustix::net::shutdown(&self.client.connection().0, Shutdown::Both);
    }
}

impl Exchange for Hosted {
    fn put(&self, name: &str, value: &[u8]) -> Result<(), Error> {
        self.client.put(name, value)
    }

    fn get(&self, name: &str, patience: Duration) -> Result<Vec<u8>, Error> {
        self.client.get(name, patience)
    }

    fn publish(&self, region: RegionId, memory: &Arc<Mapping>) -> Result<(), Error> {
        self.client.publish(region, memory)
    }

    fn publish_two(&self, regions: [(RegionId, &Arc<Mapping>); 2]) -> Result<(), Error> {
        self.client.publish_two(regions)
    }

    fn retract(&self, region: RegionId) {
        self.client.retract(region);
    }

    fn fetch(&self, rank: Rank, region: RegionId) -> Result<Arc<Mapping>, Error> {
        self.client.fetch(rank, region)
    }

    fn fetch_file(&self, rank: Rank, region: RegionId) -> Result<OwnedFd, Error> {
        self.client.fetch_file(rank, region)
    }
}
