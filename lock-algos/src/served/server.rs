//! The server.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use onesided_remote_memory::{Fault, FaultKind, Liveness, Notify, Patience, Rank, RemoteMemory};

use super::desk::Desk;
use super::messages::{Answer, NO_LINE, Request, Verb, rung_by};
use super::{ANSWER, BELL, ENDED, LOOK, STATE};
use crate::LockContext;

/// How many request slots are checked between two reads of the wake event: a rank that has just
/// written does not wait for a check of all slots of a large world.
const SLICE: usize = 64;

/// See [`LockAlgorithm::serve`](crate::LockAlgorithm::serve).
pub(super) async fn serve<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
    memory: &'m M,
    context: P,
    is_open: impl Fn() -> bool + Send + Sync,
) -> Result<(), Fault> {
    let mut server = Server::new(memory, context)?;
    let outcome = server.run(is_open).await;
    server.close()?;
    outcome
}

/// See [`LockAlgorithm::wake_server`](crate::LockAlgorithm::wake_server).
pub(super) async fn wake<'m, M: RemoteMemory>(memory: &'m M, context: impl LockContext<'m, M>) -> Result<(), Fault> {
    let bell = context.home(BELL)?;
    // A different value than the last one, which names no request slot.
    let ring = !memory.load(bell)? | (NO_LINE as u64) << 20;
    memory.write(bell, ring, Notify::Yes).await.map(drop)
}

struct Server<'m, M: RemoteMemory, P> {
    memory: &'m M,
    context: P,
    desk: Desk,
    /// By client.
    lines: Vec<M::Word<'m>>,
    /// By rank: its index among the ranks with request slots.
    members: Vec<Option<usize>>,
    bell: M::Word<'m>,
    /// Replies in flight.
    told: Vec<M::Op>,
    /// Whether a node could not be reached: its request is handled once it can be.
    unreached: bool,
}

impl<'m, M: RemoteMemory, P: LockContext<'m, M>> Server<'m, M, P> {
    fn new(memory: &'m M, context: P) -> Result<Self, Fault> {
        let mut desk = Desk::default();
        let mut lines = Vec::new();
        let ranks: Vec<_> =
            (0..memory.size()).map(Rank).filter(|rank| context.request_slot_of(*rank, 0).is_ok()).collect();
        let mut members = vec![None; memory.size() as usize];
        for (member, rank) in ranks.iter().enumerate() {
            members[rank.index()] = Some(member);
        }
        // The first slot of every rank, then the second ones, which are rarely used.
        for line in 0..context.request_slots() {
            for rank in &ranks {
                lines.push(context.request_slot_of(*rank, line)?);
                desk.add(*rank);
            }
        }
        let bell = context.home(BELL)?;
        Ok(Self { memory, context, desk, lines, members, bell, told: Vec::new(), unreached: false })
    }

    async fn run(&mut self, is_open: impl Fn() -> bool + Send + Sync) -> Result<(), Fault> {
        let memory = self.memory;
        let all = self.lines.len();
        let (mut heard, mut cursor, mut left) = (None, 0, 0);
        loop {
            let rung = memory.load(self.bell)?;
            if !is_open() {
                return Ok(()); // closing the server wakes it
            }
            if heard != Some(rung) {
                heard = Some(rung);
                // An earlier wake event may have been overwritten, so all slots are checked once
                // from here on.
                left = all;
                if let Some(client) = self.named(rung) {
                    self.look(client)?;
                }
            }
            for _ in 0..left.min(SLICE) {
                self.look(cursor)?;
                cursor = (cursor + 1) % all;
                left -= 1;
            }
            if left > 0 || self.bury_all()? {
                continue;
            }
            // Requests before the wake event was read have been handled; later ones change it.
            let mut patience = Patience::with_failures(memory.rank());
            if std::mem::take(&mut self.unreached) {
                left = all;
            }
            if left > 0 || self.desk.has_queue() {
                patience = patience.and_until(memory.now().saturating_add(LOOK));
            }
            let mut rings = memory.wait_until(self.bell, move |now| heard != Some(now), patience);
            let waited = poll_fn(|cx| {
                self.poll_told(cx);
                if !is_open() || self.desk.mourns(|rank| is_served(memory, rank)) {
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
        let (rank, line) = rung_by(ring);
        let member = self.members.get(rank.index()).copied().flatten()?;
        let members = self.lines.len().checked_div(usize::from(self.context.request_slots()))?;
        Some(usize::from(line) * members + member).filter(|client| *client < self.lines.len())
    }

    /// Handles a client's new request.
    fn look(&mut self, client: usize) -> Result<(), Fault> {
        let Self { memory, context, .. } = *self;
        let word = memory.load(self.lines[client])?;
        if word == self.desk.seen(client) {
            return Ok(());
        }
        let request = Request::from_bits(word);
        let rank = self.desk.rank(client);
        if let Some(Request { slot, verb: Verb::Acquire(..) | Verb::Withdraw, .. }) = request
            && is_served(memory, rank)
            && context.node_of(rank, slot, ANSWER).is_err()
        {
            self.unreached = true; // retried later: a rank that cannot receive the reply is granted no lock
            return Ok(());
        }
        self.hear(client, word, request)
    }

    /// Retires holders whose request slots have changed: a rank that released before another one's
    /// request has written its wake event before it, but may not have been handled yet. Its new
    /// request is handled in order.
    fn retire_holders(&mut self, asks: usize) -> Result<(), Fault> {
        let memory = self.memory;
        for holder in self.desk.holders().into_iter().filter(|holder| *holder != asks) {
            let word = memory.load(self.lines[holder])?;
            if word != self.desk.seen(holder) {
                self.desk.retire(holder, Request::from_bits(word), |rank| is_served(memory, rank));
            }
        }
        self.tell()
    }

    fn hear(&mut self, client: usize, word: u64, request: Option<Request>) -> Result<(), Fault> {
        if let Some(Request { verb: Verb::Acquire(_, terms), .. }) = request
            && terms.at_once
        {
            self.retire_holders(client)?;
            self.bury_holders()?; // their lock is not busy but poisoned
        }
        let memory = self.memory;
        self.desk.hear(client, word, request, |rank| is_served(memory, rank));
        self.tell()
    }

    /// Writes the replies, without waiting: a rank that cannot be reached any more is found dead.
    fn tell(&mut self) -> Result<(), Fault> {
        let told: Vec<_> = self.desk.take_told().collect();
        for (client, outcome) in told {
            let word = self.desk.seen(client);
            if let Some(Request { turn, .. }) = Request::from_bits(word) {
                self.answer(client, word, Answer { turn, outcome });
            }
        }
        Ok(())
    }

    /// Writes a reply to a client's node.
    fn answer(&mut self, client: usize, word: u64, answer: Answer) {
        let Self { memory, context, .. } = *self;
        let node = Request::from_bits(word)
            .and_then(|request| context.node_of(self.desk.rank(client), request.slot, ANSWER).ok());
        if let Some(node) = node {
            self.told.push(memory.write(node, answer.to_bits(), Notify::Yes));
        }
    }

    /// Polls the replies. One that fails costs its rank the connection, or its rank is dead.
    fn poll_told(&mut self, cx: &mut Context<'_>) {
        self.told.retain_mut(|op| Pin::new(op).poll(cx).is_pending());
    }

    /// Reaps dead holders. `true` if there were any.
    fn bury_holders(&mut self) -> Result<bool, Fault> {
        let (memory, mut any) = (self.memory, false);
        while let Some(holder) = self.desk.dead_holder(|rank| is_served(memory, rank)) {
            any = true;
            // It may have released before it died.
            let before = self.desk.seen(holder);
            let word = memory.load(self.lines[holder])?;
            if word != before {
                // A dead rank's new request is void.
                let says = Request::from_bits(word).filter(|says| says.verb == Verb::Withdraw);
                self.desk.hear(holder, word, says, |rank| is_served(memory, rank));
                continue;
            }
            self.desk.bury(holder, |rank| is_served(memory, rank));
        }
        self.tell()?;
        Ok(any)
    }

    /// Handles deaths. `true` if there was anything to do.
    fn bury_all(&mut self) -> Result<bool, Fault> {
        let memory = self.memory;
        if !self.desk.mourns(|rank| is_served(memory, rank)) {
            return Ok(false);
        }
        self.bury_holders()?;
        self.desk.advance(&|rank| is_served(memory, rank));
        self.tell()?;
        Ok(true)
    }

    /// Fails all acquires at the end of the service: first the new ones, then the waiters.
    fn close(&mut self) -> Result<(), Fault> {
        self.desk.close();
        for client in 0..self.lines.len() {
            self.look(client)?;
        }
        self.bury_holders()?;
        let state = self.context.home(STATE)?;
        self.memory.store(state, ENDED | self.desk.occupied() as u64)?;
        for client in 0..self.lines.len() {
            self.look(client)?;
        }
        self.tell()
    }
}

/// Whether a rank is alive, and connected to this one.
fn is_served<M: RemoteMemory>(memory: &M, rank: Rank) -> bool {
    memory.liveness(rank) == Liveness::Alive && !memory.has_failed(memory.rank(), rank)
}
