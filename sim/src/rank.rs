//! The simulator's state of a rank: small, because there may be very many.

use std::collections::{HashMap, VecDeque};

use onesided_fabric::Channel;
use onesided_remote_memory::{Rank, Watch};

use crate::memory::Memory;
use crate::report::WaitsFor;

/// A rank in two cache lines, which hold everything that the events of a rank with a single target
/// touch.
#[derive(Debug)]
#[repr(align(32))]
pub(crate) struct RankState {
    /// The connection to the first target.
    connection: Connection,
    /// The time from which its card can send.
    pub(crate) sends_at: u64,
    pub(crate) memory: Memory,
    more: Option<Box<More>>,
}

const _: () = assert!(size_of::<RankState>() == 96);

/// State of a rank that waits for others, or has several targets.
#[derive(Debug, Default)]
pub(crate) struct More {
    /// Connections to further targets.
    connections: Connections,
    /// What its futures wait for, other than its own operations.
    pub(crate) waiting: Vec<Waiter>,
    /// The time until which it polls before it sleeps.
    pub(crate) polls_until: u64,
    rare: Option<Box<Rare>>,
}

/// State that few ranks of a large world need.
#[derive(Debug, Default)]
pub(crate) struct Rare {
    /// Whether a polling task serves: such a rank never sleeps.
    pub(crate) polls: bool,
    /// Whether a task serves its peers: it is polled whenever the doorbell rings.
    pub(crate) serves: bool,
    /// Packets that arrived and were not received: their senders and bytes.
    pub(crate) packets: VecDeque<(Rank, Channel, Box<[u8]>)>,
    /// Datagrams that arrived and were not taken.
    pub(crate) datagrams: VecDeque<Box<[u8]>>,
    /// Its handler of messages.
    pub(crate) handler: Handler,
    /// Whether a transport has them.
    pub(crate) has_transport: bool,
    /// Operations that its card has yet to receive, in the order of arrival.
    pub(crate) inbound: VecDeque<u32>,
    /// The ranks that it has known to have failed, and whether they have: their operations its card
    /// refuses. A rank that has returned has not.
    pub(crate) failures: Vec<(Rank, bool)>,
    /// The pairs of ranks that it knows to have lost their connection.
    pub(crate) lost: Vec<(Rank, Rank)>,
    /// Its operations that failed because their target died, which it does not know yet.
    pub(crate) unexplained: Vec<u32>,
}

/// What a thread waits for, other than its own operations. There may be very many: small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Word { region: u32, offset: u64 },
    Packet,
    Room(Rank),
    Flush(Rank),
}

impl From<What> for WaitsFor {
    fn from(what: What) -> Self {
        match what {
            What::Word { region, offset } => Self::Word { region, offset },
            What::Packet => Self::Packet,
            What::Room(receiver) => Self::Room(receiver),
            What::Flush(target) => Self::Flush(target),
        }
    }
}

/// A thread that sleeps until a solicited packet.
#[derive(Debug, Default)]
pub(crate) struct Handler {
    pub(crate) is_armed: bool,
    /// How many events it has had.
    pub(crate) events: u32,
    /// Once it has slept.
    pub(crate) thread: Option<u32>,
}

/// A wait of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub(crate) what: What,
    /// The rank whose end ends the wait.
    pub(crate) watch: Watch,
    pub(crate) thread: u32,
    /// Whether it only watches, from wherever on the host: it sees every change at once.
    pub(crate) watches: bool,
}

impl More {
    pub(crate) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }
}

/// The connection from a rank to a target.
#[derive(Debug)]
pub(crate) struct Connection {
    target: u32,
    /// Packets in flight or not received.
    pub(crate) unread: u32,
    /// Operations posted and completed so far, wrapping.
    pub(crate) posted: u32,
    pub(crate) completed: u32,
    /// Answers that carry bulk data, or are behind such.
    pub(crate) bulky: u32,
    /// Whether the last operation is lost with all its resends, or is behind such.
    pub(crate) lost: bool,
    /// The earliest time for the next arrival and completion, which keeps the order of posting.
    pub(crate) arrives_at: u64,
    pub(crate) completes_at: u64,
}

/// Connections by target.
#[derive(Debug, Default)]
struct Connections {
    all: Vec<Connection>,
    /// Where the one to a target is, once there are [`MANY`](Self::MANY).
    #[expect(clippy::box_collection, reason = "a sixth of the size, of very many")]
    places: Option<Box<HashMap<u32, u32>>>,
}

impl Connections {
    const MANY: usize = 32;

    fn to(&mut self, target: u32) -> &mut Connection {
        let found = match &self.places {
            Some(places) => places.get(&target).map(|place| *place as usize),
            None => self.all.iter().position(|connection| connection.target == target),
        };
        let place = found.unwrap_or_else(|| self.add(target));
        &mut self.all[place]
    }

    #[cold]
    fn add(&mut self, target: u32) -> usize {
        let place = self.all.len();
        if place < 4 {
            self.all.reserve_exact(1); // most ranks have few
        }
        self.all.push(Connection::new(target));
        match &mut self.places {
            Some(places) => drop(places.insert(target, place as u32)),
            None if place + 1 == Self::MANY => {
                let places = self.all.iter().zip(0..).map(|(connection, place)| (connection.target, place));
                self.places = Some(Box::new(places.collect()));
            }
            None => {}
        }
        place
    }
}

/// Stands for no rank.
const NO_RANK: u32 = u32::MAX;

impl Connection {
    const fn new(target: u32) -> Self {
        Self { target, unread: 0, posted: 0, completed: 0, bulky: 0, lost: false, arrives_at: 0, completes_at: 0 }
    }

    const fn is_idle(&self) -> bool {
        self.posted == self.completed
    }
}

impl Default for RankState {
    fn default() -> Self {
        Self { connection: Connection::new(NO_RANK), sends_at: 0, memory: Memory::new(), more: None }
    }
}

impl RankState {
    /// The connection to a target.
    pub(crate) fn connection(&mut self, target: u32) -> &mut Connection {
        if self.connection.target == NO_RANK {
            self.connection.target = target;
        }
        if self.connection.target == target {
            return &mut self.connection;
        }
        self.more.get_or_insert_default().connections.to(target)
    }

    /// How many operations it has posted on a target's memory, wrapping.
    pub(crate) fn posted(&self, target: u32) -> u32 {
        let others = self.more.as_ref().map_or(&[][..], |more| &more.connections.all);
        let mut all = [&self.connection].into_iter().chain(others);
        all.find(|connection| connection.target == target).map_or(0, |connection| connection.posted)
    }

    /// Whether every operation it posted is complete.
    pub(crate) fn is_idle(&self) -> bool {
        let others = self.more.as_ref().map_or(&[][..], |more| &more.connections.all);
        self.connection.is_idle() && others.iter().all(Connection::is_idle)
    }

    pub(crate) fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    /// What it waits for, and who watches a word of its memory.
    pub(crate) fn waiting(&self) -> &[Waiter] {
        self.more.as_ref().map_or(&[], |more| &more.waiting)
    }

    /// Whether it waits for something that `concerns` accepts.
    pub(crate) fn waits_for(&self, concerns: impl Fn(What) -> bool) -> bool {
        self.waiting().iter().any(|waiter| !waiter.watches && concerns(waiter.what))
    }

    /// Whether its card has operations to receive.
    pub(crate) fn is_receiving(&self) -> bool {
        self.rare().is_some_and(|rare| !rare.inbound.is_empty())
    }

    /// The ranks that it has known to have failed, and whether they have.
    pub(crate) fn failures(&self) -> &[(Rank, bool)] {
        self.rare().map_or(&[], |rare| &rare.failures)
    }

    /// A new process takes the rank. What is left is the card, which ranks of its host may share, and
    /// the numbers of regions. Returns the operations that wait for the news of a death.
    pub(crate) fn renew(&mut self) -> Vec<u32> {
        let rare = self.more.take().and_then(|more| more.rare);
        let mut rare = rare.map_or_else(Rare::default, |rare| *rare);
        let memory = std::mem::take(&mut self.memory).renewed();
        *self = Self { sends_at: self.sends_at, memory, ..Self::default() };
        self.more().rare().inbound = std::mem::take(&mut rare.inbound);
        rare.unexplained
    }

    /// A rank has returned that had failed: what it left here is gone, and so is what is known of it.
    pub(crate) fn forget(&mut self, returned: Rank) {
        let others = self.more.as_mut().map_or(&mut [][..], |more| &mut more.connections.all);
        let connections = [&mut self.connection].into_iter().chain(others);
        for connection in connections.filter(|connection| connection.target == returned.0) {
            (connection.lost, connection.unread) = (false, 0);
        }
        let Some(rare) = self.more.as_mut().and_then(|more| more.rare.as_mut()) else { return };
        rare.packets.retain(|(from, ..)| *from != returned);
        rare.lost.retain(|(one, other)| *one != returned && *other != returned);
        rare.failures.iter_mut().filter(|(rank, _)| *rank == returned).for_each(|(_, has_failed)| *has_failed = false);
    }

    /// The pairs of ranks that it knows to have lost their connection.
    pub(crate) fn lost(&self) -> &[(Rank, Rank)] {
        self.rare().map_or(&[], |rare| &rare.lost)
    }

    fn rare(&self) -> Option<&Rare> {
        self.more.as_ref()?.rare.as_deref()
    }

    /// The thread of its handler.
    pub(crate) fn handler(&self) -> Option<u32> {
        self.rare()?.handler.thread
    }

    /// Whether one of its tasks serves peers.
    pub(crate) fn serves(&self) -> bool {
        self.rare().is_some_and(|rare| rare.serves)
    }

    /// Whether it polls at this time.
    pub(crate) fn polls(&self, now: u64) -> bool {
        self.more.as_ref().is_some_and(|more| now <= more.polls_until) || self.rare().is_some_and(|rare| rare.polls)
    }
}

/// The life cycle of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Life {
    #[default]
    Alive,
    /// Its last handle was dropped; it leaves when its operations are complete.
    Closing,
    /// It left, and the other ranks know.
    Left,
    /// It died.
    Killed,
}

impl Life {
    /// Whether its memory is gone.
    pub(crate) const fn is_over(self) -> bool {
        matches!(self, Self::Killed)
    }
}
