//! The fabric of RDMA cards, over libibverbs: InfiniBand, RoCE, and the kernel's Soft-RoCE. Between ranks
//! of one host the CPU moves bytes if it is asked to: see [`mixed`].
//!
//! # Structure
//!
//! A reliable connection joins two ranks of which one has spoken to the other's memory, another one
//! two that have sent each other messages, and one every rank to itself (`connector`). With
//! [`RAILS`] those that send messages have further ones, for parts of long transfers (`rails`), which
//! may be on further devices (`cards`). A region's lock words are changed through one card, by their
//! owner as well, because a card's atomics are atomic with one another and not with the CPU's. All
//! queue pairs of a rank on a card complete their requests in one completion queue. Those for memory
//! share a receive queue for doorbells (0 bytes). Those for messages share one for packets (slots of
//! 2 KiB), whose completions are in a queue of their own, where only the owner of the packets looks, or
//! by [`MESSAGES_QUEUES`] in that of all else (`arrivals`). Packets are read in place. A thread that
//! sleeps in a wait has events of all of them, a handler of the solicited ones (`solicited`).
//!
//! An operation takes a slot with a registered 64-byte cell, or a bounce buffer for more bytes.
//! Results arrive there; the card never writes futures or callers' buffers. Requests on one
//! connection complete in order, so a completion ends the oldest entries of the send queue, up to
//! its own. Of packets one in 32 is signalled; the post copies one of at most 64 bytes, without a slot.
//!
//! With [`MESSAGES_CHANNEL`] the packets of messages are datagrams of a queue pair of their own
//! (`datagrams`), whose completions are in the queue of all else. Their protocol machine
//! ([`DatagramChannel`](crate::DatagramChannel)) is driven in every wait, by one thread at a time. Packets to
//! a peer may go over its connection as well, in one sequence with the datagrams: once it is there, which
//! messages that are counted ask for, within a limit of connections for each rank; short ones by a ring in the
//! receiver's memory, which that polls (`fast_path`). Long messages need no connection: their datagrams are received
//! into their memory, by queue pairs of a small pool (`landing`). The packets of the two are
//! lost with that connection, which is not made anew, unless packets are kept ([`MESSAGES_RELIABLE`]).
//!
//! # Guarantees and assumptions
//!
//! - The transport keeps order on a connection. Links of a chain after a read or an atomic are
//!   fenced, except on Soft-RoCE (see `device`). Registration does not use relaxed ordering.
//! - Aligned words are written and read atomically, as cards do over PCI Express. Soft-RoCE copies
//!   by the kernel's memcpy, which does so too unless the CPU has ERMS and the kernel uses it
//!   (`scripts/soft-roce` hides it).
//! - The first request to a peer waits until they are connected: some hundred microseconds, or
//!   until a peer that is stopped goes on. A peer that does not answer for 30 seconds counts as
//!   unreachable.
//! - A flush posts a read after the writes, because a write's completion does not prove that the
//!   data is placed.
//! - An atomic that completes successfully has returned the old value. Soft-RoCE can violate this
//!   after lost and reordered packets: atomics wait for the writes before them there, and if it
//!   happens all the same, the connection is given up (`device`).
//! - What breaks the connection of messages, or waits there for a receive, leaves windows and locks
//!   alone. The two ranks' messages under way end, as `ConnectionLost`, nothing is cut, and the
//!   connection is made anew (`renewal`). With [`MESSAGES_CONNECTIONS`] idle ones are given back
//!   (`giving`), which their packets do not notice.
//! - A broken connection to memory stays broken in its world (see [`reconnect`](crate::World::reconnect)).
//!   Operations in flight end as `Unknown`, `NoSuchRegion` (the target's card refused the key) or
//!   `PeerDied`, and later ones as `ConnectionLost` (or `PeerDied`), naming the peer. A stale key is
//!   refused when it is opened or looked up, before it can break a connection.
//! - A broken connection to the memory of a rank that lives is lost to all, and ends the messages of
//!   the two as well: before either rank learns it from an operation, it is recorded in the job
//!   segment (`keepalive`), and both close their sides, so that neither changes the memory of the
//!   other any more (`cut`). Both go on with all other ranks.
//! - A rank whose access was revoked learns it from a write to its home, and from its connection. (`revoke`)
//! - A death recorded in the job segment ends an operation within a tenth of a second, after this
//!   rank has cut the dead rank: a rank that is reported dead changes nothing here any more, even
//!   if it lives. (`cut`) A peer's silence breaks the connection after about two seconds, whether
//!   the peer is dead or unreachable; the operation ends once a death would be known. While a
//!   thread waits for a peer's write, a keepalive reads from the peer every two seconds; the wait
//!   fails like later operations if the connection is broken. (`keepalive`)
//! - A rank that makes no progress has space for [`RECEIVES`] doorbells, and for as many packets.
//!   After that the senders of either, and their later requests of the same kind to it, wait until
//!   it makes progress or dies. Once the queue of requests to it is full as well, a post blocks. After
//!   [`FULL_AFTER`] without any completion the request fails as `Full` and was
//!   not posted. After twice that time the connection is given up, so that posted requests end too.
//!
//! Start with [`Verbs`], then `connection` (its phases), `queue` and `send_queue` (posting and completing),
//! `drive` (progress and sleep), `segment` (memory), `words`, `transport` and `bulk` (the traits). `raw` has the
//! library's objects.

mod arrivals;
pub mod bare;
mod bounce_buffers;
mod bulk;
mod cards;
mod changes;
mod completion;
mod connection;
mod connector;
mod cut;
mod datagrams;
mod device;
mod drive;
mod endpoint_address;
mod fast_path;
mod giving;
mod hello;
mod keepalive;
mod landing;
mod memory;
pub mod mixed;
mod peer;
mod queue;
mod rails;
mod raw;
mod renewal;
mod revoke;
mod segment;
mod send_queue;
mod solicited;
mod traffic;
mod transport;
mod wake_up;
mod words;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use onesided_job::{Exchange, Job, lock, setting};
use onesided_remote_memory::{Liveness, Notify, Rank, RemoteMemory, debug};

use crate::shm::JobSegment;
use crate::verbs::arrivals::Arrivals;
use crate::verbs::bounce_buffers::BounceBuffers;
use crate::verbs::cards::{Card, Cards};
use crate::verbs::connector::Connector;
use crate::verbs::cut::Failures;
use crate::verbs::datagrams::CardDatagrams;
use crate::verbs::device::Device;
use crate::verbs::drive::{EventWait, UnpostedReceives};
use crate::verbs::endpoint_address::{EndpointAddress, PortAddress};
use crate::verbs::giving::Limits;
use crate::verbs::keepalive::Keepalive;
use crate::verbs::landing::Landings;
use crate::verbs::mixed::HostPaths;
use crate::verbs::peer::Peer;
use crate::verbs::queue::InFlight;
use crate::verbs::raw::{CompletionQueue, DatagramQueue, ProtectionDomain, QueuePair, SharedReceiveQueue};
use crate::verbs::segment::{Opened, RegionTable};
use crate::verbs::solicited::HandlerWait;
use crate::verbs::traffic::{ConnectionId, Traffic};
use crate::waiting::oversubscription::Oversubscription;
use crate::waiting::tasks::Tasks;
use crate::{AtomicAgent, Capabilities, Error, Fabric, block_on};

pub use crate::verbs::arrivals::MESSAGES_QUEUES;
pub use crate::verbs::bulk::{CardGet, VerbsFlush, VerbsGet, VerbsTransfer};
pub use crate::verbs::datagrams::{CONNECT_AFTER, MESSAGES_CHANNEL, MESSAGES_RELIABLE, VerbsDatagrams, VerbsWaits};
pub use crate::verbs::device::{DeviceInfo, devices};
pub use crate::verbs::fast_path::FAST_PATHS;
pub use crate::verbs::giving::MESSAGES_CONNECTIONS;
pub use crate::verbs::keepalive::FULL_AFTER;
pub use crate::verbs::rails::RAILS;
pub use crate::verbs::segment::{VerbsSegment, VerbsWord};
pub use crate::verbs::transport::{ConnectionTransport, VerbsTransport};
pub use crate::verbs::words::{VerbsOp, VerbsPause, VerbsWait};

/// The space for packets of a rank that takes in none, and for doorbells of one that makes no
/// progress; less if the device allows less.
pub const RECEIVES: u32 = 1024;
/// The maximum number of requests in flight on one connection, if the completion queue is long
/// enough for all.
const DEPTH: u32 = 128;
/// The minimum: a chain must fit.
const SHALLOW: u32 = 16;
/// The maximum length of one request: less than the specification's 2 GiB, so that errors show
/// early.
const LONGEST_REQUEST: u64 = 1 << 30;
/// How long the drop of the last clone waits for requests in flight.
const DRAIN: Duration = Duration::from_secs(2);

/// A rank's endpoint on RDMA cards. Cheap to clone; all clones are one endpoint. A handle has its
/// operations on one kind of connections.
#[derive(Clone)]
pub struct Verbs(Arc<Inner>, Traffic);

/// Fields are dropped in this order: the connections before the memory that their requests may use.
struct Inner {
    /// By the number of their connection.
    peers: Box<[OnceLock<Box<Peer>>]>,
    connector: Arc<Connector>,
    /// How many requests may be in flight on a connection.
    depth: u32,
    completions: Arc<CompletionQueue>,
    cards: Cards,
    reaping: Mutex<UnpostedReceives>,
    /// Of doorbells.
    receives: Arc<SharedReceiveQueue>,
    receive_count: u32,
    /// How many packets to a rank at most have no solicited one among them.
    solicits: u64,
    /// Whether packets complete in the queue of all else.
    has_one_queue: bool,
    arrivals: OnceLock<Arrivals>,
    making_arrivals: Mutex<()>,
    /// Of connections of messages.
    limits: Limits,
    /// How many [rails](rails) long messages to a rank are divided among.
    rails: AtomicU32,
    /// Whether a connection of messages is to be [made anew](renewal).
    has_to_renew: AtomicBool,
    /// Whether no transport has been handed out.
    has_transport: AtomicBool,
    /// Its packets, if they travel as datagrams.
    datagrams: Option<CardDatagrams>,
    event_wait: EventWait,
    handler_wait: HandlerWait,
    endpoint: Tasks,
    keepalive: Keepalive,
    failures: Failures,
    buffers: BounceBuffers,
    /// The in-flight references to the segments of transfers, by slot.
    in_flight: Mutex<HashMap<u32, InFlight>>,
    region_table: Arc<RegionTable>,
    /// The ranks that the CPU reaches.
    paths: HostPaths,
    /// Peers' regions whose words were resolved by number.
    opened: Opened,
    domain: Arc<ProtectionDomain>,
    capabilities: Capabilities,
    /// Whether the card honours fences; a card without fences keeps requests in order.
    fences: bool,
    /// The initial value of an atomic's cell where its old value may not arrive (see `device`).
    unanswered: Option<u64>,
    rank: Rank,
    job_segment: Arc<JobSegment>,
    oversubscription: Oversubscription,
    /// To the launcher, a rank whose connection ends is dead.
    exchange: Arc<dyn Exchange>,
}

debug!(
    [] Verbs,
    |this| "Verbs({} of {}, requests under way to {}, {:?})", this.0.rank, this.0.connector.addresses.len(),
    this.0.known_peers().filter(|peer| peer.queue.is_busy()).count(), this.0.endpoint
);

impl Verbs {
    /// Joins a job. Every rank of the job has to call it.
    ///
    /// # Errors
    /// - [`Error::NoFabric`]: no device with the required features.
    /// - [`Error::Verbs`], [`Error::Allocate`]: the device or the limit of locked memory is
    ///   insufficient.
    /// - [`Error::Operation`]: other ranks do not arrive. [`Error::Join`]: the host daemon is gone.
    pub fn new(job: Job) -> Result<Self, Error> {
        Self::join(job, HostPaths::default())
    }

    /// The number of connections of this rank: one to its own memory, and those that the first
    /// operation of either of two ranks on the other's memory has made, or the first of their
    /// messages.
    pub fn connections(&self) -> usize {
        self.0.known_peers().filter(|peer| peer.connection.is_connected()).count()
    }

    /// How many requests were posted to a rank on this handle's connection, how many of them were
    /// signalled, and with how many doorbells; for tests and benchmarks.
    #[doc(hidden)]
    pub fn post_counts(&self, rank: Rank) -> [u64; 3] {
        self.peer(rank).map_or([0; 3], |peer| {
            let [signalled, doorbells] =
                [&peer.queue.signalled, &peer.queue.doorbells].map(|count| count.load(Ordering::Relaxed));
            [peer.queue.posted(), signalled, doorbells]
        })
    }

    /// What an atomic finds if its answer was lost, where that can happen; for tests.
    #[doc(hidden)]
    pub fn no_answer(&self) -> Option<u64> {
        self.0.unanswered
    }

    /// Overrides [`FULL_AFTER`], for tests.
    #[doc(hidden)]
    pub fn set_full_after(&self, after: Duration) {
        self.0.keepalive.set_full_after(after);
    }

    /// Overrides [`MESSAGES_CONNECTIONS`], for tests.
    #[doc(hidden)]
    pub fn set_most_connections(&self, most: u32) {
        self.0.limits.most.store(most, Ordering::Relaxed);
        self.0.connector.wake();
    }

    /// Overrides [`FAST_PATHS`], for tests.
    #[doc(hidden)]
    pub fn set_most_fast_paths(&self, most: u32) {
        self.0.limits.fast_paths.store(most, Ordering::Relaxed);
    }

    /// How many slots this rank's further [fast paths](FAST_PATHS) have, for tests.
    #[doc(hidden)]
    pub fn set_slots(&self, slots: u8) {
        self.0.limits.slots.store(slots.max(1).into(), Ordering::Relaxed);
    }

    fn join(job: Job, paths: HostPaths) -> Result<Self, Error> {
        let keepalive = Keepalive::new()?;
        let channel = setting::chosen(MESSAGES_CHANNEL, ["rc", "ud", "both"])?;
        let over_datagrams = channel > 0;
        let has_one_queue = setting::chosen(MESSAGES_QUEUES, ["two", "one"])? == 1 || over_datagrams;
        let limits = Limits::read(channel == 2)?;
        let mut devices = Device::choose(!job.job_segment.is_again())?;
        let rails = setting::number(RAILS, 1..=Traffic::RAILS.len() as u32, "from 1 to 3")?;
        let rails = rails.unwrap_or(devices.len().min(Traffic::RAILS.len()) as u32);
        let rails = if over_datagrams { 1 } else { rails };
        devices.truncate(rails as usize);
        let (device, size) = (&devices[0], job.job_segment.size());
        let name = device.context.name();
        let unfit = |what: String| Error::NoFabric { name: "verbs".into(), what: format!("{name} {what}") };
        let receive_count = RECEIVES.min(device.attributes.max_srq_wr as u32);
        let connections = 1 + rails; // with each rank
        let of_datagrams = if over_datagrams { datagrams::room(device).completions() } else { 0 };
        let of_packets = of_datagrams + if channel != 1 { receive_count } else { 0 };
        let apart = receive_count + if has_one_queue { of_packets } else { 0 };
        let room = |most: i32| (most as u32).saturating_sub(apart) / (connections * size);
        let depth = |most: u32, device: &Device| {
            most.min(room(device.attributes.max_cqe)).min(device.attributes.max_qp_wr as u32)
        };
        let depth = devices.iter().fold(DEPTH, depth);
        if depth < SHALLOW {
            return Err(unfit(format!("has too short a completion queue for {size} ranks")));
        }

        let domain = ProtectionDomain::new(&device.context)?;
        let completions = completion_queue(device, apart, depth, connections * size)?;
        let cards = devices[1..].iter().map(|device| Card::new(device, depth, connections * size));
        let cards: Vec<_> = cards.collect::<Result<_, _>>()?;
        let receives = SharedReceiveQueue::new(&domain, receive_count, 0, drive::RECEIVE)?;
        let region_table = RegionTable::new(&domain, (job.rank, size), !cards.is_empty())?;
        let hello_completions = CompletionQueue::new(&device.context, connector::ROOM.completions())?;
        let hellos = DatagramQueue::new(&domain, &hello_completions, device.port, connector::ROOM, 0)?;
        let packets = over_datagrams.then(|| datagrams::queue(device, &domain, &completions)).transpose()?;
        let queues = (hellos.number(), packets.as_ref().map(DatagramQueue::number));
        let homes = std::iter::once(region_table.home().remote(0)).chain(cards.iter().map(Card::home));
        let ports = devices.iter().zip(homes).map(|(device, home)| device.address(home)).collect();
        let connector = Arc::new(exchange_addresses(&job, &devices, ports, queues)?);
        let cards = Cards::new(cards, &completions)?;
        let own = ConnectionId { rank: job.rank, traffic: Traffic::Memory };
        let pair = QueuePair::new(&domain, &completions, (&receives, &completions), depth)?;
        let inline = pair.inline();
        pair.connect(&connector.route(job.rank, own, (pair.number(), 0)))?;
        let peers: Box<[_]> = (0..Traffic::ALL.len() * size as usize).map(|_| OnceLock::new()).collect();
        let peer = peers[own.number()].get_or_init(|| Box::new(Peer::new(own, region_table.home().remote(0), depth)));
        peer.set_pair(&mut lock(&peer.connection.pairs), pair);
        peer.connection.become_ready();

        let name = if paths.are_none() { "verbs" } else { "mixed" };
        let mut capabilities = Capabilities::new(name, AtomicAgent::Card);
        capabilities.ordered = paths.are_none(); // operations of the card on memory have one connection per target
        capabilities.inline = inline;
        capabilities.outstanding_reads = u32::from(device.reads());
        let longest = devices.iter().map(|device| u64::from(device.state.max_msg_sz));
        capabilities.longest_transfer = longest.fold(LONGEST_REQUEST, u64::min);
        let (event_wait, handler_wait) = (EventWait::new()?, HandlerWait::new()?);
        let inner = Arc::new_cyclic(|inner| Inner {
            peers,
            datagrams: packets.map(|queue| {
                let keeps = (Weak::clone(inner), limits.is_reliable);
                CardDatagrams::new((queue, Landings::new(device)), &connector, &domain, job.rank, keeps)
            }),
            connector,
            depth,
            completions,
            cards,
            reaping: Mutex::default(),
            receives,
            receive_count,
            solicits: u64::from(receive_count / size).clamp(1, raw::SIGNALLED),
            has_one_queue,
            arrivals: OnceLock::new(),
            making_arrivals: Mutex::default(),
            limits,
            rails: AtomicU32::new(rails),
            has_to_renew: AtomicBool::new(false),
            has_transport: AtomicBool::new(true),
            event_wait,
            handler_wait,
            endpoint: Tasks::new(drive::EventSource(Weak::clone(inner))),
            keepalive,
            failures: Failures::new(size),
            buffers: BounceBuffers::new(&domain),
            in_flight: Mutex::default(),
            region_table,
            paths,
            opened: Opened::default(),
            domain,
            capabilities,
            fences: device.fences(),
            unanswered: device.loses_answers().then(|| RandomState::new().hash_one(job.rank.0)),
            rank: job.rank,
            job_segment: Arc::clone(&job.job_segment),
            oversubscription: Oversubscription::new(),
            exchange: Arc::clone(&job.exchange),
        });
        let fabric = Self(inner, Traffic::Memory);
        fabric.0.endpoint.is_of(fabric.0.rank);
        let joined = || {
            fabric.0.start_cutting()?;
            fabric.0.start_connecting(hellos)?;
            fabric.0.share(fabric.0.region_table.home())?;
            endpoint_address::meet(&job)?;
            if !fabric.try_words()? {
                return Err(unfit("does not write and change 64-bit words as it should".into()));
            }
            Ok(())
        };
        match joined() {
            Ok(()) => Ok(fabric),
            Err(error) => {
                if !fabric.0.job_segment.is_again() {
                    fabric.0.die(); // a plain drop would leave in order, and the others would wait
                }
                Err(error)
            }
        }
    }

    /// Joins the job once more.
    fn join_again(&self) -> Result<Self, Error> {
        let job = self.0.job().again()?;
        Self::join(job.clone(), self.0.paths.again()).inspect_err(|_| {
            EndpointAddress::put_none(&job);
            job.job_segment.leave(job.rank);
        })
    }

    /// Whether words can be written and changed, tested on this rank: the device's attributes are
    /// not trusted.
    fn try_words(&self) -> Result<bool, Error> {
        let scratch = self.allocate(8)?;
        let run = async {
            let word = self.word_in(&scratch, 0)?;
            self.write(word, 3, Notify::Yes).await?; // inline, if the device claims support
            let written = self.read(word).await?;
            let added = self.fetch_add(word, 5).await?;
            let swapped = self.compare_swap(word, 8, 13).await?;
            Ok((written, added, swapped, self.load(word)?) == (3, 3, 8, 13))
        };
        block_on(self, run).map_err(Error::operation("try words of one's own"))
    }
}

/// A completion queue with room for the connection to this rank itself. It grows with each further
/// one of this depth, or, if the card lets none grow, has room for all.
fn completion_queue(device: &Device, apart: u32, depth: u32, connections: u32) -> Result<Arc<CompletionQueue>, Error> {
    let grows = CompletionQueue::new(&device.context, apart)?;
    if grows.make_room(apart + depth).is_ok() {
        return Ok(grows);
    }
    let whole = CompletionQueue::new(&device.context, apart + connections * depth)?;
    whole.make_room(apart + depth)?;
    Ok(whole)
}

/// Exchanges endpoint addresses with all ranks, this one included.
fn exchange_addresses(
    job: &Job,
    devices: &[Device],
    ports: Vec<PortAddress>,
    (datagrams, packets): (u32, Option<u32>),
) -> Result<Connector, Error> {
    let mine = EndpointAddress { ports, datagrams, packets, incarnation: RandomState::new().hash_one(job.rank.0) };
    mine.put(job)?;
    let addresses = (0..job.job_segment.size()).map(|rank| {
        let address = EndpointAddress::get(job, Rank(rank))?;
        if address.packets.is_some() != packets.is_some() {
            let what = format!("rank {rank} has another {MESSAGES_CHANNEL} than {}", job.rank);
            return Err(Error::Join { what, source: None });
        }
        Ok(address)
    });
    Connector::new(addresses.collect::<Result<_, _>>()?, devices)
}

/// Starts a thread of this endpoint, which ends with it.
fn start_thread(name: &str, what: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    let failed = |source| Error::Join { what: what.to_owned(), source: Some(source) };
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(failed)?;
    Ok(())
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.connector.end();
        self.leave();
        self.job_segment.note_change(); // ends the thread that cuts failed ranks
    }
}

impl Inner {
    /// This rank's membership in its job.
    fn job(&self) -> Job {
        Job { rank: self.rank, job_segment: Arc::clone(&self.job_segment), exchange: Arc::clone(&self.exchange) }
    }

    /// Completes what was posted, and leaves.
    fn leave(&self) {
        if std::thread::panicking() {
            return self.die(); // an unwinding rank has not done what the others wait for
        }
        let deadline = Instant::now() + DRAIN;
        let is_here = self.job_segment.liveness(self.rank) == Liveness::Alive; // it leaves once
        while is_here && self.owes_anybody() && Instant::now() < deadline {
            self.known_peers().for_each(|peer| self.report_packets(peer));
            if self.progress() == 0 {
                std::thread::yield_now();
            }
        }
        self.known_peers().filter(|peer| peer.queue.is_busy()).for_each(Peer::fail);
        self.job_segment.leave(self.rank);
    }

    /// Declares this rank dead, after the end of its access to the memory of others.
    fn die(&self) {
        self.known_peers().for_each(Peer::fail);
        self.job_segment.declare_dead(self.rank);
    }

    /// Whether requests are in flight to a rank that can still complete them.
    fn owes_anybody(&self) -> bool {
        let alive = |rank| self.job_segment.liveness(rank) == Liveness::Alive;
        self.datagrams.as_ref().is_some_and(CardDatagrams::is_busy)
            || self.known_peers().any(|peer| peer.queue.is_busy() && alive(peer.id.rank))
    }
}
