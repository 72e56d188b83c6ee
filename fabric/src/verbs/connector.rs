//! Connections on demand: the first operation to a peer asks for its connection, by datagrams.
//!
//! Each rank has an endpoint for datagrams from the start, whose address the job's exchange gives to
//! all. A rank has one queue pair for a peer's memory and one for its messages, each made when either
//! of them asks. Both ends send the same datagram, [`Hello`], with the number of that queue pair, so
//! requests that cross settle on one connection by themselves:
//!
//! | a hello that | makes its receiver |
//! |---|---|
//! | asks | connect its queue pair, and answer |
//! | knows | send: the peer has connected its queue pair to this one |
//! | refuses | close its side of all connections: the peer has cut this rank |
//! | is of a later generation | give up its own connection, which the peer has given up ([`renewal`](super::renewal)) |
//! | is of a [rail](super::rails) of another connection of messages | drop it: one of the two learns that the connection broke |
//! | is full | ask no more for now, and make no such connection: beside datagrams there is a limit |
//! | gives | agree to give the connection back, or keep it ([`giving`](super::giving)) |
//! | waits | ask on: the peer has not yet taken in what came over the last connection |
//! | has a ring | send short packets into that ([`fast_path`](super::fast_path)) |
//!
//! Datagrams may be lost, so a rank asks again until the peer knows. A peer that computes answers by
//! a thread, which sleeps until a datagram comes; a peer that is stopped answers when it goes on, or
//! the connection counts as broken after [`GIVE_UP_AFTER`].

use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use onesided_job::lock;
use onesided_remote_memory::{Liveness, Rank};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::Error;
use crate::verbs::arrivals::Arrivals;
use crate::verbs::connection::{self, Connection, End, Pairs};
use crate::verbs::device::Device;
use crate::verbs::endpoint_address::EndpointAddress;
use crate::verbs::fast_path::{self, Ring, RingAddress};
use crate::verbs::giving::{SCAN, UNSAID};
use crate::verbs::hello::{Hello, MAGIC};
use crate::verbs::peer::Peer;
use crate::verbs::raw::{AddressHandle, BATCH, DatagramQueue, DatagramRoom, ProtectionDomain, QueuePair, Route};
use crate::verbs::traffic::{ConnectionId, Traffic};
use crate::verbs::wake_up::WakeUp;
use crate::verbs::{Inner, start_thread};
use crate::waiting::drive::now;

/// The room of the queue for hellos.
pub(super) const ROOM: DatagramRoom = DatagramRoom { receives: 256, sends: 64, longest: 96 };
/// A datagram to a peer is repeated after this time.
const REPEAT: u64 = 20_000_000;
/// How long a further card that could not connect a queue pair is left alone: it may have looked for the
/// peer's port for a second, in which no other connection is made.
const AFTER_FAILURE: u64 = 3_000_000_000;
/// How long a peer may be silent that is asked for its first connection: longer than a card, because
/// a thread answers.
const GIVE_UP_AFTER: u64 = 30_000_000_000;

/// What the connections of a rank are made of.
#[derive(Debug)]
pub(super) struct Connector {
    /// The addresses of all ranks.
    pub(super) addresses: Box<[EndpointAddress]>,
    /// Where datagrams to each of them go, if some did.
    handles: Box<[OnceLock<AddressHandle>]>,
    /// This rank's.
    devices: Box<[Device]>,
    asked: Mutex<Vec<ConnectionId>>,
    /// Those from which enough short packets have come for a [ring](super::fast_path).
    frequent: Mutex<Vec<ConnectionId>>,
    wake_up: WakeUp,
    ended: AtomicBool,
}

impl Connector {
    pub(super) fn new(addresses: Box<[EndpointAddress]>, devices: &[Device]) -> Result<Self, Error> {
        Ok(Self {
            handles: addresses.iter().map(|_| OnceLock::new()).collect(),
            addresses,
            devices: devices.into(),
            asked: Mutex::default(),
            frequent: Mutex::default(),
            wake_up: WakeUp::new()?,
            ended: AtomicBool::new(false),
        })
    }

    /// Ends the thread.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.wake_up.ring();
    }

    /// The route from this rank's queue pair for a peer to the peer's.
    pub(super) fn route(&self, me: Rank, to: ConnectionId, (queue_pair, generation): (u32, u64)) -> Route {
        let [my_rank, their_rank] = [me, to.rank].map(|rank| &self.addresses[rank.index()]);
        let [mine, theirs] = [my_rank, their_rank].map(|address| address.port(to.traffic));
        let device = &self.devices[to.traffic.rail() % self.devices.len()];
        Route {
            port: device.port,
            gid_index: device.gid.map_or(0, |(index, ..)| index),
            global: device.is_global(),
            mtu: mine.mtu.min(theirs.mtu),
            gid: theirs.gid,
            lid: theirs.lid,
            queue_pair,
            their_first: their_rank.first(generation),
            our_first: my_rank.first(generation),
            reads_of_ours: mine.reads.min(theirs.reads),
            reads_of_theirs: mine.reads,
        }
    }

    /// Wakes the thread.
    pub(super) fn wake(&self) {
        self.wake_up.ring();
    }

    /// Where datagrams to a peer go. `None`: the card has no memory for it now.
    pub(super) fn handle(&self, domain: &Arc<ProtectionDomain>, me: Rank, peer: Rank) -> Option<&AddressHandle> {
        let handle = &self.handles[peer.index()];
        if handle.get().is_none() {
            let made = AddressHandle::new(
                domain,
                &self.route(me, ConnectionId { rank: peer, traffic: Traffic::Memory }, (0, 0)),
            );
            let made = made.ok()?;
            let _ = handle.set(made); // another thread may have been first
        }
        handle.get()
    }
}

/// The thread's side: datagrams, and the peers that are asked.
struct Thread {
    connector: Arc<Connector>,
    datagrams: DatagramQueue,
    asking: Vec<Asking>,
    /// The peers whose connection is being given back, and when others are looked for.
    giving: Vec<Asking>,
    scans_at: u64,
    has_too_many: bool,
}

/// A peer that is asked.
#[derive(Clone, Copy)]
struct Asking {
    id: ConnectionId,
    /// When it is given up, and when it is asked again.
    until: u64,
    again: u64,
}

impl Inner {
    /// Asks for the connection to a peer, once. The end of the answer wakes this rank's threads.
    #[cold]
    pub(super) fn ask_to_connect(&self, peer: &Peer) {
        if peer.connection.ask() {
            lock(&self.connector.asked).push(peer.id);
            self.connector.wake_up.ring();
        }
    }

    /// Starts the thread that connects. It ends with the endpoint.
    pub(super) fn start_connecting(self: &Arc<Self>, datagrams: DatagramQueue) -> Result<(), Error> {
        let (inner, connector) = (Arc::downgrade(self), Arc::clone(&self.connector));
        let thread =
            Thread { connector, datagrams, asking: Vec::new(), giving: Vec::new(), scans_at: 0, has_too_many: false };
        start_thread("onesided-connect", "start the thread that connects ranks", move || thread.run(&inner))
    }

    /// Whether a rank has a limit of such connections: packets can do without.
    pub(super) fn is_limited(&self, id: ConnectionId) -> bool {
        self.limits.beside_datagrams && id.traffic == Traffic::Messages && id.rank != self.rank
    }

    /// Whether there are as many connections beside datagrams as there may be. Those that are broken, and those
    /// to ranks that have ended, stay to the end and take no place.
    pub(super) fn is_full(&self) -> bool {
        let takes_place = |peer: &&Peer| {
            let is_of_use = !peer.connection.is_broken() && self.job_segment.liveness(peer.id.rank) == Liveness::Alive;
            self.is_limited(peer.id) && is_of_use && peer.queue.pair().is_some()
        };
        self.known_peers().filter(takes_place).count() >= self.limits.most.load(Ordering::Relaxed) as usize
    }

    /// This rank's queue pair for a peer, made at the first call for a connection.
    fn queue_pair_of(&self, peer: &Peer, pairs: &mut Pairs) -> Option<u32> {
        if pairs.own.is_some() {
            return pairs.own;
        }
        // One thread makes them.
        let is_limited = self.is_limited(peer.id);
        if is_limited && self.is_full() {
            return None;
        }
        let arrivals = if self.brings_packets(peer) { Some(self.arrivals().ok()?) } else { None };
        let receives =
            arrivals.map_or((&self.receives, &self.completions), |packets| (&packets.receives, &packets.completions));
        let (domain, completions, receives) = match self.cards.of(peer.id.traffic) {
            Some(card) => (&card.domain, &card.completions, (&card.receives, &card.completions)),
            None => (&self.domain, &self.completions, receives),
        };
        let pair = QueuePair::new(domain, completions, receives, self.depth).ok()?;
        completions.make_room(self.depth).ok()?; // last: what was promised is not taken back
        if let Some(arrivals) = arrivals {
            arrivals.are_of(peer.id.rank, pair.number());
        }
        peer.set_pair(pairs, pair);
        pairs.own
    }

    fn brings_packets(&self, peer: &Peer) -> bool {
        peer.id.traffic == Traffic::Messages && (self.datagrams.is_none() || self.limits.beside_datagrams)
    }

    /// Ends a connection of packets that were [saved](Arrivals::save). `false`: requests are in flight.
    pub(super) fn end_connection(&self, peer: &Peer) -> bool {
        let generation = peer.connection.generation();
        if let Some(pair) = peer.end() {
            if let Some(arrivals) = self.arrivals.get() {
                arrivals.forget(pair.number());
            }
            self.cards.of(peer.id.traffic).map_or(&self.completions, |card| &card.completions).give_room(self.depth);
        }
        peer.connection.generation() != generation
    }

    /// A short packet of a peer has come over the queue: enough of them make a [ring](super::fast_path) for it.
    #[inline]
    pub(super) fn count_short(&self, peer: &Peer) {
        let enough = self.limits.connect_after.saturating_mul(fast_path::TIMES);
        if peer.short.fetch_add(1, Ordering::Relaxed) + 1 >= enough
            && self.limits.fast_paths.load(Ordering::Relaxed) > 0
        {
            peer.short.store(0, Ordering::Relaxed);
            lock(&self.connector.frequent).push(peer.id);
            self.connector.wake_up.ring();
        }
    }

    /// This rank's ring for a peer, over the connection of a generation. It is made if there may be one more; without
    /// a setting only where no ranks share a core, because those sleep, and are woken by the queue.
    fn ring_for(&self, peer: &Peer) -> Option<(u64, RingAddress)> {
        let pairs = lock(&peer.connection.pairs); // it does not end meanwhile
        let pair = pairs.own.filter(|_| peer.connection.is_ready() && !peer.connection.is_broken())?;
        let (arrivals, generation) = (self.arrivals.get()?, peer.connection.generation());
        if let Some(address) = arrivals.ring_of(pair) {
            return Some((generation, address));
        }
        let is_of_use = |rank: &Rank| {
            let works = self.messages(*rank).is_ok_and(|peer| !peer.connection.is_broken());
            works && self.job_segment.liveness(*rank) == Liveness::Alive
        };
        let is_crowded = || self.oversubscription.is(&self.job_segment, self.rank);
        let most = match self.limits.fast_paths.load(Ordering::Relaxed) {
            UNSAID if is_crowded() => return None,
            UNSAID => fast_path::MOST,
            most => most,
        };
        if arrivals.ranks_with_rings().iter().filter(|rank| is_of_use(rank)).count() >= most as usize {
            self.limits.wants_ring_back.store(true, Ordering::Relaxed);
            return None;
        }
        let slots = self.limits.slots.load(Ordering::Relaxed) as u8;
        let ring = Ring::new(&self.domain, slots, (peer.id.rank, pair)).ok()?;
        let address = ring.address();
        arrivals.add_ring(ring);
        self.limits.rings.fetch_add(1, Ordering::Relaxed);
        Some((generation, address))
    }

    /// Where packets arrive, made at the first call.
    pub(super) fn arrivals(&self) -> Result<&Arrivals, Error> {
        let making = lock(&self.making_arrivals);
        if let Some(arrivals) = self.arrivals.get() {
            return Ok(arrivals);
        }
        let shared = self.has_one_queue.then_some(&self.completions);
        let arrivals = Arrivals::new(&self.domain, self.receive_count, shared)?;
        let arrivals = self.arrivals.get_or_init(|| arrivals);
        drop(making);
        self.ring(); // the sleeping threads listen to it, too
        Ok(arrivals)
    }
}

impl Thread {
    fn run(mut self, inner: &Weak<Inner>) {
        loop {
            self.datagrams.completions().take_events();
            self.datagrams.completions().request_event(false);
            let Some(inner) = inner.upgrade() else { return };
            self.turn(&inner);
            drop(inner);
            if self.connector.ended.load(Ordering::Acquire) {
                return;
            }
            let mut fds = [
                PollFd::from_borrowed_fd(self.datagrams.completions().as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.connector.wake_up.as_fd(), PollFlags::IN),
            ];
            let soon = if self.asking.is_empty() && self.giving.is_empty() { SCAN } else { REPEAT };
            let soon = Timespec { tv_sec: 0, tv_nsec: soon as i64 };
            let waits = self.asking.is_empty() && self.giving.is_empty() && !self.has_too_many;
            // On every outcome it looks.
            let _ = rustix::event::poll(&mut fds, (!waits).then_some(&soon));
            self.connector.wake_up.clear();
        }
    }

    /// Takes in what has arrived, answers, and asks.
    fn turn(&mut self, inner: &Inner) {
        let mut batch = [const { MaybeUninit::uninit() }; BATCH];
        loop {
            let completions = self.datagrams.completions().poll(&mut batch);
            let datagrams = completions.iter().filter_map(|completion| self.datagrams.complete(completion));
            let mut bytes = vec![0; self.datagrams.longest() as usize];
            let hellos: Vec<_> =
                datagrams.filter_map(|datagram| Hello::read(self.datagrams.take(datagram, &mut bytes))).collect();
            hellos.into_iter().for_each(|hello| self.take(inner, hello));
            if completions.len() < BATCH {
                break;
            }
        }
        for id in std::mem::take(&mut *lock(&self.connector.frequent)) {
            if let Some((generation, ring)) = inner.peer(id).ok().and_then(|peer| inner.ring_for(peer)) {
                let hello = Hello { traffic: id.traffic, generation, ring: Some(ring), ..Hello::default() };
                self.say(inner, id.rank, hello);
            }
        }
        let asked = std::mem::take(&mut *lock(&self.connector.asked));
        let now = now();
        self.asking.extend(asked.into_iter().map(|id| Asking { id, until: now + GIVE_UP_AFTER, again: now }));
        let mut asking = std::mem::take(&mut self.asking);
        asking.retain_mut(|asked| self.ask(inner, asked, now));
        self.asking = asking;
        self.find_idle(inner, now);
        let mut giving = std::mem::take(&mut self.giving);
        giving.retain_mut(|given| self.give(inner, given, now));
        self.giving = giving;
    }

    /// Chooses idle connections to be given back, if there are too many.
    fn find_idle(&mut self, inner: &Inner, now: u64) {
        if now < self.scans_at {
            self.has_too_many = inner.has_limit(); // looked at then
            return;
        }
        self.scans_at = now + SCAN;
        let idle = inner.too_many();
        self.has_too_many = idle.is_some();
        self.giving.extend(idle.into_iter().flatten().map(|id| Asking { id, until: now + GIVE_UP_AFTER, again: now }));
    }

    /// Tells a peer of a connection that is given back, when it is time. Returns whether that goes on.
    fn give(&self, inner: &Inner, given: &mut Asking, now: u64) -> bool {
        let Ok(peer) = inner.peer(given.id) else { return false };
        let is_over = peer.connection.is_broken() || inner.job_segment.liveness(given.id.rank) != Liveness::Alive;
        let Some(gives) = peer.connection.gives().filter(|_| !is_over) else { return false };
        if now >= given.until {
            peer.fail();
            inner.ring();
            return false;
        }
        if now >= given.again {
            given.again = now + REPEAT;
            let (traffic, generation) = (given.id.traffic, peer.connection.generation());
            self.say(inner, given.id.rank, Hello { traffic, generation, gives, ..Hello::default() });
        }
        true
    }

    /// Asks a peer when it is time. Returns whether the peer stays among those that are asked.
    fn ask(&self, inner: &Inner, asked: &mut Asking, now: u64) -> bool {
        let ConnectionId { rank, traffic } = asked.id;
        let Ok(peer) = inner.peer(asked.id) else { return false };
        let Some(asks) = connection::ask(&Here { thread: self, inner, peer }) else { return false };
        if now >= asked.until {
            peer.fail();
            inner.ring();
            return false;
        }
        if now >= asked.again {
            asked.again = now + REPEAT;
            self.say(inner, rank, Hello { traffic, ..asks });
        }
        true
    }

    fn hello(&self, inner: &Inner, to: Rank) -> Hello {
        let incarnations = [inner.rank, to].map(|rank| self.connector.addresses[rank.index()].incarnation);
        let breaks = inner.messages(to).map_or(0, |peer| peer.connection.breaks());
        Hello { magic: MAGIC, from: inner.rank.0, incarnations, breaks, ..Hello::default() }
    }

    /// Takes in a datagram. One that is not of this job, or of another incarnation, is dropped.
    fn take(&mut self, inner: &Inner, hello: Hello) {
        let from = Rank(hello.from);
        if from.index() >= self.connector.addresses.len() {
            return;
        }
        let [mine, theirs] = self.hello(inner, from).incarnations;
        if hello.incarnations != [theirs, mine] {
            return;
        }
        if hello.refuses {
            inner.peers_of(from).into_iter().flatten().for_each(|peer| peer.close(true));
            return inner.ring();
        }
        let Ok(peer) = inner.peer(ConnectionId { rank: from, traffic: hello.traffic }) else { return };
        if let Some(ring) = hello.ring {
            return if inner.is_limited(peer.id) {
                peer.set_ring(ring, hello.generation)
            };
        }
        if hello.waits {
            let until = now() + GIVE_UP_AFTER;
            return self.asking.iter_mut().filter(|asked| asked.id == peer.id).for_each(|asked| asked.until = until);
        }
        if let Some(answer) = connection::take(&Here { thread: self, inner, peer }, &hello) {
            self.say(inner, from, Hello { traffic: hello.traffic, ..answer });
        }
    }

    /// Whether both ranks mean a rail of the same connection of messages. If one of them has not noticed
    /// that an earlier one broke, it learns it.
    fn are_of_one(&self, inner: &Inner, from: Rank, hello: &Hello) -> bool {
        let Ok(messages) = inner.messages(from) else { return false };
        let breaks = messages.connection.breaks();
        if messages.connection.is_closed() || !messages.connection.is_broken() && breaks == hello.breaks {
            return true;
        }
        let is_ahead = inner.begins_anew(messages, u64::from(hello.breaks) << 32);
        if !is_ahead && hello.asks && hello.breaks < breaks {
            let generation = messages.connection.generation();
            self.say(inner, from, Hello { traffic: Traffic::Messages, generation, ..Hello::default() });
        }
        false
    }

    /// What every hello has is filled in.
    fn say(&self, inner: &Inner, to: Rank, hello: Hello) {
        let address = &self.connector.addresses[to.index()];
        let Hello { magic, from, incarnations, breaks, .. } = self.hello(inner, to);
        let hello = Hello { magic, from, incarnations, breaks, ..hello };
        if let Some(handle) = self.connector.handle(&inner.domain, inner.rank, to) {
            // One that finds no room is lost like others.
            self.datagrams.send(handle, address.datagrams, hello.write(&mut [0; ROOM.longest as usize]));
        }
    }
}

/// This rank's end of a connection.
struct Here<'a> {
    thread: &'a Thread,
    inner: &'a Inner,
    peer: &'a Peer,
}

impl End for Here<'_> {
    fn connection(&self) -> &Connection {
        &self.peer.connection
    }

    fn is_alive(&self) -> bool {
        self.inner.job_segment.liveness(self.peer.id.rank) == Liveness::Alive
    }

    fn is_revoked(&self) -> bool {
        self.inner.is_revoked(self.peer.id.rank)
    }

    fn is_limited(&self) -> bool {
        self.inner.is_limited(self.peer.id)
    }

    fn is_of_one(&self, hello: &Hello) -> bool {
        if !hello.traffic.is_further_rail() {
            return true;
        }
        self.peer.connection.hear(hello.generation);
        self.thread.are_of_one(self.inner, self.peer.id.rank, hello)
    }

    fn may_lack_a_pair(&self) -> bool {
        self.peer.id.traffic.is_further_rail()
    }

    fn pair(&self, pairs: &mut Pairs) -> Option<u32> {
        self.inner.queue_pair_of(self.peer, pairs)
    }

    fn connect(&self, hello: &Hello) -> bool {
        let card = self.inner.cards.of(self.peer.id.traffic);
        if card.is_some_and(|card| now() < card.again.load(Ordering::Relaxed)) {
            return false;
        }
        let theirs = (hello.queue_pair, hello.generation);
        let route = self.thread.connector.route(self.inner.rank, self.peer.id, theirs);
        let is_connected = self.peer.queue.pair().is_some_and(|pair| pair.connect(&route).is_ok());
        if !is_connected {
            card.inspect(|card| card.again.store(now() + AFTER_FAILURE, Ordering::Relaxed));
        }
        is_connected
    }

    fn end(&self) {
        self.inner.end_connection(self.peer);
    }

    fn count_refusal(&self) {
        self.inner.limits.refused.fetch_add(1, Ordering::Relaxed);
        if self.inner.is_full() {
            self.inner.limits.wants_one_back.store(true, Ordering::Relaxed);
        }
    }

    fn count_made(&self) {
        let counts = self.peer.id.traffic == Traffic::Messages && self.peer.id.rank != self.inner.rank;
        self.inner.limits.made.fetch_add(counts.into(), Ordering::Relaxed);
    }

    fn fail(&self) {
        self.peer.fail();
    }

    fn begins_anew(&self, generation: u64) -> bool {
        self.inner.begins_anew(self.peer, generation)
    }

    fn may_spare(&self) -> bool {
        self.inner.may_spare(self.peer)
    }

    fn agree(&self) -> bool {
        self.peer.begin_to_give(true)
    }

    fn give_back(&self) {
        self.inner.give_back(self.peer);
    }

    fn want(&self) {
        self.inner.ask_to_connect(self.peer);
    }

    fn ring(&self) {
        self.inner.ring();
    }
}
