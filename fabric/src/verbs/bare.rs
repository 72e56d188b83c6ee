//! Bare loops over a card: the calls of libibverbs that a message takes, and nothing else. Public for
//! a benchmark that compares them with messages.
#![allow(unsafe_code)] // a post gives the card access to memory

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ibverbs_sys::ibv_wc;
use onesided_remote_memory::Rank;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::Error;
use crate::verbs::connector::Connector;
use crate::verbs::device::Device;
use crate::verbs::endpoint_address::{EndpointAddress, PortAddress};
use crate::verbs::raw::{
    BATCH, CompletionQueue, DatagramQueue, DatagramRoom, Local, MemoryRegion, ProtectionDomain, QueuePair,
    RawWorkRequest, RawWorkRequests, SIGNALLED, SharedReceiveQueue, Verb, Written, failed,
};
use crate::verbs::traffic::{ConnectionId, Traffic};

/// How many sends may be under way, and as many receives are posted.
const DEPTH: u32 = 128;
/// So many sends of a stream are posted as one list.
const LIST: usize = 16;
/// The longest message by sends, and the length of those that announce others.
const LONGEST: u64 = 2 << 10;
const CONTROL: u64 = 48;
const ROOM: DatagramRoom = DatagramRoom { receives: DEPTH, sends: DEPTH, longest: LONGEST as u32 };
/// The ends, as the connector numbers them.
const OWN: Rank = Rank(0);
const OTHER: Rank = Rank(1);
const SEND: Verb = Verb::Send { solicited: false };
/// Marks the completion of a read or a write.
const TRANSFER: u64 = 1;
/// Polls of a wait before it yields its core, which another end needs or does not, and yields before
/// it sleeps: as many as of the fabric's.
const SHARED: u64 = 2;
const ALONE: u64 = 20_000;
const YIELDS: u64 = 50;
/// A wait ends after this time.
const LONG: Duration = Duration::from_secs(30);

/// One of two ends that send each other messages. Both run the same loops in the same order. What is
/// sent is whatever the memory holds. Fields are dropped in this order: the queue pairs first.
#[derive(Debug)]
pub struct BareCard {
    pair: QueuePair,
    datagrams: DatagramQueue,
    connector: Option<Connector>,
    receives: Arc<SharedReceiveQueue>,
    completions: Arc<CompletionQueue>,
    arrivals: Arc<CompletionQueue>,
    /// What is sent and written; then as much to read into and to be written.
    memory: MemoryRegion,
    longest: u64,
    domain: Arc<ProtectionDomain>,
    device: Device,
    /// Sends that were posted, and those that are known to be over.
    posted: Cell<u64>,
    over: Cell<u64>,
    /// Whether a transfer is over since the last wait for one.
    is_transferred: Cell<bool>,
    /// The next datagram's slot.
    slot: Cell<u32>,
    /// Polls of a wait before it yields its core.
    polls: u64,
}

/// A list of requests, posted again and again.
struct Requests<const N: usize> {
    unsignalled: RawWorkRequests<N>,
    /// The last one is signalled.
    signalled: RawWorkRequests<N>,
}

impl BareCard {
    /// An end for messages of at most so many bytes, on the device that the fabric uses. Waits yield
    /// and sleep as those of the fabric do: soon if the other end may need this core.
    ///
    /// # Errors
    /// As [`Verbs::new`](super::Verbs::new).
    pub fn new(longest: usize, shares_core: bool) -> Result<Self, Error> {
        let device = Device::choose(true)?.swap_remove(0);
        let domain = ProtectionDomain::new(&device.context)?;
        let longest = (longest as u64).max(LONGEST);
        let memory = MemoryRegion::new(&domain, 2 * longest)?;
        let completions = CompletionQueue::new(&device.context, DEPTH)?;
        let arrivals = CompletionQueue::new(&device.context, DEPTH)?;
        let receives = SharedReceiveQueue::new(&domain, DEPTH, LONGEST, 0)?;
        let pair = QueuePair::new(&domain, &completions, (&receives, &arrivals), DEPTH)?;
        let all = CompletionQueue::new(&device.context, ROOM.completions())?;
        let datagrams = DatagramQueue::new(&domain, &all, device.port, ROOM, 0)?;
        let [posted, over] = [(); 2].map(|()| Cell::new(0));
        let (connector, slot) = (None, Cell::new(0));
        Ok(Self {
            pair,
            datagrams,
            connector,
            receives,
            completions,
            arrivals,
            memory,
            longest,
            domain,
            device,
            posted,
            over,
            is_transferred: Cell::new(false),
            slot,
            polls: if shares_core { SHARED } else { ALONE },
        })
    }

    fn own_address(&self) -> EndpointAddress {
        EndpointAddress {
            ports: vec![self.device.address(self.memory.remote())],
            datagrams: self.datagrams.number(),
            packets: Some(self.pair.number()),
            incarnation: RandomState::new().hash_one(self.pair.number()),
        }
    }

    /// Connects the two ends: `exchange` gives the other one an address, and returns its own. Both
    /// ends may send when both calls have returned.
    ///
    /// # Errors
    /// [`Error::Verbs`], and what `exchange` reports.
    pub fn connect<E: From<Error>>(&mut self, exchange: impl FnOnce(&[u8]) -> Result<Vec<u8>, E>) -> Result<(), E> {
        let own = self.own_address();
        let other = exchange(&own.to_bytes())?;
        let other = EndpointAddress::from_bytes(&other).ok_or_else(|| ended("the other end has no address"))?;
        let number = other.packets.unwrap_or_default();
        let connector = Connector::new([own, other].into(), std::slice::from_ref(&self.device))?;
        let other = ConnectionId { rank: OTHER, traffic: Traffic::Memory };
        self.pair.connect(&connector.route(OWN, other, (number, 0)))?;
        self.connector = Some(connector);
        Ok(())
    }

    fn other_port(&self) -> Result<&PortAddress, Error> {
        self.other().map(|other| other.port(Traffic::Memory))
    }

    fn other(&self) -> Result<&EndpointAddress, Error> {
        let connector = self.connector.as_ref().ok_or_else(|| ended("the ends are not connected"))?;
        Ok(&connector.addresses[OTHER.index()])
    }

    /// Messages of this length there and back by sends, `n` times.
    ///
    /// # Errors
    /// [`Error::Verbs`], also if the other end does not answer; so of all loops.
    pub fn sends(&self, is_first: bool, len: usize, n: u64) -> Result<(), Error> {
        let mut send = self.requests::<1>(SEND, len as u64);
        alternate(is_first, n, || self.post(&mut send), || self.receive())
    }

    /// The same by datagrams.
    ///
    /// # Errors
    /// As [`sends`](Self::sends).
    pub fn datagrams(&self, is_first: bool, len: usize, n: u64) -> Result<(), Error> {
        let number = self.other()?.datagrams;
        let connector = self.connector.as_ref().ok_or_else(|| ended("the ends are not connected"))?;
        let handle = connector.handle(&self.domain, OWN, OTHER).ok_or_else(|| ended("there is no address handle"))?;
        let send = || {
            let slot = self.slot.replace((self.slot.get() + 1) % ROOM.sends);
            let is_signalled = u64::from(slot + 1).is_multiple_of(SIGNALLED);
            let written = Written { slot, len: len as u64, is_signalled, is_solicited: false };
            match self.datagrams.post([(written, handle, number)].into_iter()) {
                1 => Ok(()),
                _ => Err(ended("a datagram was not sent")),
            }
        };
        alternate(is_first, n, send, || self.until(self.datagrams.completions(), || self.look_for_datagrams()))
    }

    /// The same by a send that announces the message, a read, and a send that says that it was read
    /// (RGET).
    ///
    /// # Errors
    /// As [`sends`](Self::sends).
    pub fn reads(&self, is_first: bool, len: usize, n: u64) -> Result<(), Error> {
        let mut control = [(); 2].map(|()| self.requests::<1>(SEND, CONTROL));
        let mut read = self.requests::<1>(Verb::Read { from: self.other_port()?.home }, len as u64);
        let [announce, end] = &mut control;
        let send = || {
            self.post(announce)?;
            self.receive()
        };
        let receive = || {
            self.receive()?;
            self.transfer(&mut read)?;
            self.wait_for_transfer()?;
            self.post(end)
        };
        alternate(is_first, n, send, receive)
    }

    /// The same by a send that announces the message, one that says where it goes, a write, and a send
    /// that says that it was written (RPUT).
    ///
    /// # Errors
    /// As [`sends`](Self::sends).
    pub fn writes(&self, is_first: bool, len: usize, n: u64) -> Result<(), Error> {
        let mut control = [(); 2].map(|()| self.requests::<1>(SEND, CONTROL));
        let to = self.other_port()?.home.after(self.longest);
        let mut write = self.requests::<1>(Verb::Write { to }, len as u64);
        let [of_sender, of_receiver] = &mut control;
        let send = || {
            self.post(of_sender)?;
            self.receive()?;
            self.transfer(&mut write)?;
            self.post(of_sender)?;
            self.wait_for_transfer()
        };
        let receive = || {
            self.receive()?;
            self.post(of_receiver)?;
            self.receive()
        };
        alternate(is_first, n, send, receive)
    }

    /// `n` times: `many` messages one way by sends, a whole number of lists of 16, and an answer.
    ///
    /// # Errors
    /// As [`sends`](Self::sends).
    pub fn stream(&self, is_first: bool, len: usize, many: usize, n: u64) -> Result<(), Error> {
        let mut list = self.requests::<LIST>(SEND, len as u64);
        let mut answer = self.requests::<1>(SEND, 0);
        for _ in 0..n {
            if is_first {
                (0..many / LIST).try_for_each(|_| self.post(&mut list))?;
                self.receive()?;
            } else {
                (0..many).try_for_each(|_| self.receive())?;
                self.post(&mut answer)?;
            }
        }
        Ok(())
    }

    /// Requests from the start of the memory, or, if they read, to its second half.
    fn requests<const N: usize>(&self, verb: Verb, len: u64) -> Requests<N> {
        let begin = if verb.returns() { self.longest } else { 0 };
        let local = Local { address: self.memory.address() + begin, len: len as u32, key: self.memory.local_key() };
        let id = if let Verb::Send { .. } = verb { 0 } else { TRANSFER };
        let inline = !verb.returns() && len <= self.pair.inline().into();
        let list = |signals| {
            let mut list = RawWorkRequests::new();
            for at in 0..N {
                let signalled = signals && at + 1 == N;
                list.set(at, RawWorkRequest { id, verb, local, signalled, fenced: false, inline });
            }
            list
        };
        Requests { unsignalled: list(false), signalled: list(true) }
    }

    fn post_list<const N: usize>(&self, list: &mut RawWorkRequests<N>) -> Result<(), Error> {
        // SAFETY: the memory is registered for longer than the queue pair lives, and nothing refers
        // to its bytes.
        unsafe { self.pair.post(list, N) }.map_err(|(_, error)| failed("ibv_post_send", error))
    }

    /// Posts sends. One of 32 is signalled.
    fn post<const N: usize>(&self, requests: &mut Requests<N>) -> Result<(), Error> {
        let before = self.posted.get();
        let posted = before + N as u64;
        self.posted.set(posted);
        if before / SIGNALLED == posted / SIGNALLED {
            return self.post_list(&mut requests.unsignalled);
        }
        self.post_list(&mut requests.signalled)?;
        // Those before the last 32 are over.
        self.until(&self.completions, || {
            self.drain()?;
            Ok(self.over.get() + 2 * SIGNALLED > posted)
        })
    }

    fn transfer(&self, requests: &mut Requests<1>) -> Result<(), Error> {
        self.post_list(&mut requests.signalled)
    }

    fn wait_for_transfer(&self) -> Result<(), Error> {
        self.until(&self.completions, || {
            self.drain()?;
            Ok(self.is_transferred.take())
        })
    }

    /// Takes in what has completed.
    fn drain(&self) -> Result<(), Error> {
        let mut batch = [const { MaybeUninit::uninit() }; BATCH];
        for completion in self.completions.poll(&mut batch) {
            check(completion)?;
            match completion.wr_id() {
                TRANSFER => self.is_transferred.set(true),
                _ => self.over.set(self.over.get() + SIGNALLED),
            }
        }
        Ok(())
    }

    /// Waits until something is there, which completes in a queue: polls, yields, and sleeps.
    fn until(&self, queue: &CompletionQueue, mut is_there: impl FnMut() -> Result<bool, Error>) -> Result<(), Error> {
        let (mut polls, mut deadline) = (0_u64, None);
        while !is_there()? {
            polls += 1;
            if polls <= self.polls {
                continue;
            }
            if polls <= self.polls + YIELDS {
                std::thread::yield_now();
                continue;
            }
            queue.request_event(false);
            if is_there()? {
                return Ok(());
            }
            let timeout = Timespec { tv_sec: 1, tv_nsec: 0 };
            // On every outcome it looks.
            let _ = rustix::event::poll(&mut [PollFd::new(queue, PollFlags::IN)], Some(&timeout));
            queue.take_events();
            if Instant::now() > *deadline.get_or_insert_with(|| Instant::now() + LONG) {
                return Err(ended("the other end does not answer"));
            }
        }
        Ok(())
    }

    /// Waits for a message by a send.
    fn receive(&self) -> Result<(), Error> {
        let mut one = [MaybeUninit::uninit()];
        self.until(&self.arrivals, || match self.arrivals.poll(&mut one) {
            [completion] => {
                check(completion)?;
                self.receives.post(completion.wr_id() as u32).map(|()| true)
            }
            _ => Ok(false),
        })
    }

    /// Whether a datagram has come.
    fn look_for_datagrams(&self) -> Result<bool, Error> {
        let mut batch = [const { MaybeUninit::uninit() }; BATCH];
        let mut has_come = false;
        for completion in self.datagrams.completions().poll(&mut batch) {
            check(completion)?;
            let slot = completion.wr_id() as u32;
            if slot < ROOM.receives {
                self.datagrams.post_receive(slot)?;
                has_come = true;
            }
        }
        Ok(has_come)
    }
}

/// Sends and receives in turn, `n` times; one end begins.
fn alternate(
    is_first: bool,
    n: u64,
    mut send: impl FnMut() -> Result<(), Error>,
    mut receive: impl FnMut() -> Result<(), Error>,
) -> Result<(), Error> {
    for _ in 0..n {
        if is_first {
            send()?;
        }
        receive()?;
        if !is_first {
            send()?;
        }
    }
    Ok(())
}

fn check(completion: &ibv_wc) -> Result<(), Error> {
    match completion.error() {
        None => Ok(()),
        Some((status, _)) => Err(ended(&format!("a request ended with status {status}"))),
    }
}

fn ended(why: &str) -> Error {
    failed("a bare loop", io::Error::other(why))
}
