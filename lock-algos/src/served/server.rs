//! The server.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use onesided_remote_memory::{Fault, FaultKind, Liveness, Notify, Patience, Rank, RemoteMemory};

use super::messages::{Answer, NO_REQUEST_SLOT, Request, Verb, named_by};
use super::queue::LockQueue;
use super::{ANSWER, ENDED, POLL_INTERVAL, STATE, WAKE_EVENT};
use crate::{InMemory, LockContext, Op, Word, WordOf};

/// How many request slots are checked between two reads of the wake event: a rank that has just
/// written does not wait for a check of all slots of a large world.
const SLICE: usize = 64;

/// Serves a [served](crate::LockAlgorithm::SERVED) lock at its home until `is_open` returns `false`;
/// that is checked between two requests. `memory` is that of the home rank, and the context's owner
/// is ignored. The task waits by [`RemoteMemory::wait_until`] alone, so its executor decides whether
/// that spins or sleeps. At most one server runs for each lock. When it ends, all waiting and later
/// acquires fail with `Closed`.
///
/// # Errors
/// Those of the rank's own memory, and `PeerLeft` when this rank has left; waiting acquires fail then
/// as well.
///
/// # Cancel safety
/// Not cancel safe: if the future is dropped, no acquire succeeds any more, and waiters notice only
/// when this rank ends.
pub async fn serve<'m, P: LockContext<'m>>(
    memory: &'m P::Memory,
    context: P,
    is_open: impl Fn() -> bool + Send + Sync,
) -> Result<(), Fault> {
    let mut server = Server::new(memory, context)?;
    let outcome = server.run(is_open).await;
    server.close()?;
    outcome
}

/// Wakes the server of a lock ([`serve`]), so that it checks `is_open`. Called at the home.
///
/// # Errors
/// As [`RemoteMemory::word`], and those of a write to this rank's own memory.
pub async fn wake<'m, P: LockContext<'m>>(memory: &'m P::Memory, context: P) -> Result<(), Fault> {
    let wake_event = context.home(WAKE_EVENT)?;
    // A different value than the last one, which names no request slot.
    let ring = !memory.load(wake_event)? | (NO_REQUEST_SLOT as u64) << 20;
    memory.write(wake_event, ring, Notify::Yes).await.map(drop)
}

struct Server<'m, P: InMemory> {
    memory: &'m P::Memory,
    context: P,
    queue: LockQueue,
    /// By client.
    request_slots: Vec<Word<'m, P>>,
    /// By rank: its index among the ranks with request slots.
    members: Vec<Option<usize>>,
    /// How many ranks those are.
    ranks: usize,
    wake_event: Word<'m, P>,
    /// Replies in flight.
    told: Vec<Op<P>>,
    /// Whether a node could not be reached: its request is handled once it can be.
    unreached: bool,
}

impl<'m, P: LockContext<'m>> Server<'m, P> {
    fn new(memory: &'m P::Memory, context: P) -> Result<Self, Fault> {
        let mut queue = LockQueue::default();
        let mut request_slots = Vec::new();
        let ranks: Vec<_> =
            (0..memory.size()).map(Rank).filter(|rank| context.word(WordOf::Request(*rank, 0)).is_ok()).collect();
        let mut members = vec![None; memory.size() as usize];
        for (member, rank) in ranks.iter().enumerate() {
            members[rank.index()] = Some(member);
        }
        // The first slot of every rank, then the second ones, which are rarely used.
        for (request_slot, rank) in (0..).flat_map(|slot| ranks.iter().map(move |rank| (slot, *rank))) {
            let Ok(word) = context.word(WordOf::Request(rank, request_slot)) else { break };
            request_slots.push(word);
            queue.add(rank);
        }
        let wake_event = context.home(WAKE_EVENT)?;
        let (ranks, told) = (ranks.len(), Vec::new());
        Ok(Self { memory, context, queue, request_slots, members, ranks, wake_event, told, unreached: false })
    }

    async fn run(&mut self, is_open: impl Fn() -> bool + Send + Sync) -> Result<(), Fault> {
        let memory = self.memory;
        let all = self.request_slots.len();
        let (mut heard, mut cursor, mut left, mut rings) = (None, 0, 0, Vec::new());
        loop {
            let rung = memory.load(self.wake_event)?;
            if !is_open() {
                return Ok(()); // closing the server wakes it
            }
            if heard != Some(rung) {
                heard = Some(rung);
                // The last one first: the others are known only to a simulation. An earlier wake
                // event may have been overwritten, so all slots are checked once from here on.
                rings.push(rung);
                if !memory.take_values(self.wake_event, &mut |rung| rings.push(rung)) {
                    left = all;
                }
                for rung in rings.drain(..) {
                    if let Some(client) = self.named(rung) {
                        self.look(client)?;
                    }
                }
            }
            for _ in 0..left.min(SLICE) {
                self.look(cursor)?;
                cursor = (cursor + 1) % all;
                left -= 1;
            }
            if left > 0 || self.reap_all()? {
                continue;
            }
            // Requests before the wake event was read have been handled; later ones change it.
            let mut patience = Patience::with_failures(memory.rank());
            if std::mem::take(&mut self.unreached) {
                left = all;
            }
            if left > 0 || self.queue.has_queue() {
                patience = patience.and_until(memory.now().saturating_add(POLL_INTERVAL));
            }
            let mut rings = memory.wait_until(self.wake_event, move |now| heard != Some(now), patience);
            let waited = poll_fn(|cx| {
                self.poll_told(cx);
                if !is_open() || self.queue.has_dead(|rank| is_served(memory, rank)) {
                    return Poll::Ready(Ok(0));
                }
                Pin::new(&mut rings).poll(cx)
            });
            match waited.await {
                Err(fault) if fault.kind() != FaultKind::TimedOut => return Err(fault),
                _ => {}
            }
        }
    }

    /// The client that a wake event names.
    fn named(&self, ring: u64) -> Option<usize> {
        let (rank, request_slot) = named_by(ring);
        let member = self.members.get(rank.index()).copied().flatten()?;
        Some(usize::from(request_slot) * self.ranks + member).filter(|client| *client < self.request_slots.len())
    }

    /// Handles a client's new request.
    fn look(&mut self, client: usize) -> Result<(), Fault> {
        let Self { memory, context, .. } = *self;
        let word = memory.load(self.request_slots[client])?;
        if word == self.queue.seen(client) {
            return Ok(());
        }
        let request = Request::from_bits(word);
        let rank = self.queue.rank(client);
        if let Some(Request { slot, verb: Verb::Acquire(..) | Verb::Withdraw | Verb::Panic, .. }) = request
            && is_served(memory, rank)
            && context.node_of(rank, slot, ANSWER).is_err()
        {
            self.unreached = true; // retried later: a rank that cannot receive the reply is granted no lock
            return Ok(());
        }
        self.handle(client, word, request)
    }

    /// Retires holders whose request slots have changed: a rank that released before another one's
    /// request has written its wake event before it, but may not have been handled yet. Its new
    /// request is handled in order.
    fn retire_holders(&mut self, asks: usize) -> Result<(), Fault> {
        let memory = self.memory;
        for holder in self.queue.holders().into_iter().filter(|holder| *holder != asks) {
            let word = memory.load(self.request_slots[holder])?;
            if word != self.queue.seen(holder) {
                self.queue.retire(holder, Request::from_bits(word), |rank| is_served(memory, rank));
            }
        }
        self.reply()
    }

    fn handle(&mut self, client: usize, word: u64, request: Option<Request>) -> Result<(), Fault> {
        if let Some(Request { verb: Verb::Acquire(_, terms), .. }) = request
            && terms.at_once
        {
            self.retire_holders(client)?;
            self.reap_holders()?; // their lock is not busy but poisoned
        }
        let memory = self.memory;
        self.queue.handle(client, word, request, |rank| is_served(memory, rank));
        self.reply()
    }

    /// Writes the replies, without waiting: a rank that cannot be reached any more is found dead.
    fn reply(&mut self) -> Result<(), Fault> {
        let told: Vec<_> = self.queue.take_replies().collect();
        for (client, outcome) in told {
            let word = self.queue.seen(client);
            if let Some(Request { id, .. }) = Request::from_bits(word) {
                self.answer(client, word, Answer { id, outcome });
            }
        }
        Ok(())
    }

    /// Writes a reply to a client's node.
    fn answer(&mut self, client: usize, word: u64, answer: Answer) {
        let Self { memory, context, .. } = *self;
        let node = Request::from_bits(word)
            .and_then(|request| context.node_of(self.queue.rank(client), request.slot, ANSWER).ok());
        if let Some(node) = node {
            self.told.push(memory.write(node, answer.to_bits(), Notify::Yes));
        }
    }

    /// Polls the replies. One that fails costs its rank the connection, or its rank is dead.
    fn poll_told(&mut self, cx: &mut Context<'_>) {
        self.told.retain_mut(|op| Pin::new(op).poll(cx).is_pending());
    }

    /// Reaps dead holders. `true` if there were any.
    fn reap_holders(&mut self) -> Result<bool, Fault> {
        let (memory, mut any) = (self.memory, false);
        while let Some(holder) = self.queue.dead_holder(|rank| is_served(memory, rank)) {
            any = true;
            // It may have released before it died.
            let before = self.queue.seen(holder);
            let word = memory.load(self.request_slots[holder])?;
            if word != before {
                // A dead rank's new request is void.
                let says = Request::from_bits(word).filter(|says| matches!(says.verb, Verb::Withdraw | Verb::Panic));
                self.queue.handle(holder, word, says, |rank| is_served(memory, rank));
                continue;
            }
            self.queue.reap(holder, |rank| is_served(memory, rank));
        }
        self.reply()?;
        Ok(any)
    }

    /// Handles deaths. `true` if there was anything to do.
    fn reap_all(&mut self) -> Result<bool, Fault> {
        let memory = self.memory;
        if !self.queue.has_dead(|rank| is_served(memory, rank)) {
            return Ok(false);
        }
        self.reap_holders()?;
        self.queue.advance(&|rank| is_served(memory, rank));
        self.reply()?;
        Ok(true)
    }

    /// Fails all acquires at the end of the service: first the new ones, then the waiters.
    fn close(&mut self) -> Result<(), Fault> {
        self.queue.close();
        for client in 0..self.request_slots.len() {
            self.look(client)?;
        }
        self.reap_holders()?;
        let state = self.context.home(STATE)?;
        self.memory.store(state, ENDED | self.queue.occupied() as u64)?;
        for client in 0..self.request_slots.len() {
            self.look(client)?;
        }
        self.reply()
    }
}

/// Whether a rank is alive, and connected to this one.
fn is_served<M: RemoteMemory>(memory: &M, rank: Rank) -> bool {
    memory.liveness(rank) == Liveness::Alive && !memory.has_failed(memory.rank(), rank)
}
