//! The server of a lock: a task at its home.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::{Fault, FaultKind, Liveness, Rank};
use onesided_lock_algos::served::{Answer, LockQueue, Outcome, Request};

use super::{REQUEST, Served};
use crate::engine::Engine;
use crate::{Error, Messages, Source, Tag};

/// How often a server with waiters looks for holders that are lost without a death: they have left, or
/// their connection is gone.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Starts the server on a thread of this rank.
pub(super) fn start<F: Fabric + 'static>(messages: &Messages<F>, served: Served) -> Result<(), Fault> {
    let world = messages.world();
    let mut server = Server::new(messages.of_background());
    let task = Box::pin(async move { server.serve().await });
    match served.is_apart {
        true => world.fabric().serve_apart(task, served.thread).map(drop),
        false => {
            world.assist(task, served.thread)?;
            messages.progress().with(Engine::wake_own); // the thread may serve another lock, and be asleep
            Ok(())
        }
    }
}

struct Server<F: Fabric> {
    messages: Messages<F>,
    /// Whose requests it receives: any rank's, or this rank's alone when all others have left.
    from: Source,
    queue: LockQueue,
    /// The queue's clients, by rank and slot.
    clients: BTreeMap<(u32, u16), usize>,
    /// Ranks that have said goodbye.
    gone: BTreeSet<u32>,
}

impl<F: Fabric> Server<F> {
    fn new(messages: Messages<F>) -> Self {
        let (queue, clients, gone) = (LockQueue::default(), BTreeMap::new(), BTreeSet::new());
        Self { messages, from: Source::Any, queue, clients, gone }
    }

    async fn serve(&mut self) {
        while !self.is_over() {
            match self.next().await {
                Ok((from, word)) => self.handle(from, word),
                Err(error) => {
                    if !self.goes_on(error.fault()) {
                        return;
                    }
                    self.reap().await;
                }
            }
        }
    }

    /// Whether nobody needs an answer any more.
    fn is_over(&self) -> bool {
        let world = self.messages.world();
        self.gone.contains(&world.rank())
            && (0..world.size()).all(|rank| self.gone.contains(&rank) || !world.is_alive(rank))
    }

    /// The next request, and its sender.
    async fn next(&self) -> Result<(u32, u64), Error> {
        let mut word = [0_u64];
        let mut receive = self.messages.recv_into(&mut word, self.from, REQUEST);
        if self.queue.has_queue() {
            receive = receive.deadline(POLL_INTERVAL);
        }
        let status = receive.await?;
        Ok((status.source, word[0]))
    }

    fn handle(&mut self, from: u32, word: u64) {
        let world = self.messages.world();
        let (Some(rank), fabric) = (world.fabric_rank(from), world.fabric()) else { return };
        let Some(request) = Request::from_bits(word) else {
            self.gone.insert(from);
            if from == world.rank() {
                self.queue.close();
                self.reply();
            }
            return;
        };
        let client = *self.clients.entry((from, request.slot)).or_insert_with(|| self.queue.add(rank));
        self.queue.handle(client, word, Some(request), |rank| fabric.liveness(rank) == Liveness::Alive);
        self.reply();
    }

    /// Sends the replies, without waiting: a rank that cannot be reached any more is found lost.
    fn reply(&mut self) {
        let told: Vec<_> = self.queue.take_replies().filter(|(_, outcome)| *outcome != Outcome::Withdrawn).collect();
        for (client, outcome) in told {
            let request = Request::from_bits(self.queue.seen(client));
            let to = self.messages.world().rank_of(self.queue.rank(client));
            if let Some((Request { id, slot, .. }, to)) = request.zip(to) {
                drop(self.messages.send(&[Answer { id, outcome }.to_bits()], to, Tag(slot.into())));
            }
        }
    }

    /// After a receive that failed: whether there will be more.
    fn goes_on(&mut self, fault: Fault) -> bool {
        match (fault.kind(), self.from) {
            (FaultKind::PeerDied, Source::Any) => {
                self.messages.acknowledge_failures();
                true
            }
            // All others have left.
            (FaultKind::PeerLeft, Source::Any) if fault.rank().is_none() => {
                self.from = Source::Rank(self.messages.world().rank());
                true
            }
            (FaultKind::TimedOut | FaultKind::TooLong, _) => true,
            _ => false, // this rank has left, or the others count it as dead
        }
    }

    /// Takes the lock from ranks that are lost. They may have released it before: what they have sent
    /// has come when they are seen lost.
    async fn reap(&mut self) {
        let lost: Vec<_> = {
            let world = self.messages.world();
            let is_lost = |rank: &Rank| {
                world.fabric().liveness(*rank) != Liveness::Alive
                    || self.messages.progress().with(|engine| engine.lost(*rank)).is_some()
            };
            (0..world.size()).filter_map(|rank| world.fabric_rank(rank)).filter(is_lost).collect()
        };
        let is_alive = |rank| !lost.contains(&rank);
        while let Some((from, word)) = self.next_at_once().await {
            self.handle(from, word);
        }
        while let Some(holder) = self.queue.dead_holder(is_alive) {
            self.queue.reap(holder, is_alive);
        }
        self.queue.advance(&is_alive);
        self.reply();
    }

    /// A request that has come.
    async fn next_at_once(&self) -> Option<(u32, u64)> {
        let mut next = pin!(self.next());
        match poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx))).await {
            Poll::Ready(next) => next.ok(),
            Poll::Pending => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use onesided_fabric::{block_on, threads};
    use onesided_lock_algos::Mode;
    use onesided_lock_algos::served::{Terms, Verb};

    use super::*;

    /// The release comes between the server's last receive and its look at who is lost.
    #[test]
    fn a_rank_that_released_and_left_leaves_the_lock_free() {
        const ACQUIRE: Verb = Verb::Acquire(Mode::Exclusive, Terms { at_once: true, recovers: false });
        threads(2, |world| {
            let messages = Messages::new(&world).wait().unwrap();
            let request = |verb| Request { id: 1, slot: 0, verb }.to_bits();
            if world.rank() == 1 {
                messages.send(&[request(ACQUIRE)], 0, REQUEST).wait().unwrap();
                messages.recv::<u64>(0, Tag(0)).wait().unwrap();
                return messages.send(&[request(Verb::Release)], 0, REQUEST).wait().unwrap();
            }
            let mut server = Server::new(messages.of_background());
            let (from, word) = block_on(world.fabric(), server.next()).unwrap();
            server.handle(from, word);
            while world.is_alive(1) {
                std::thread::yield_now();
            }
            block_on(world.fabric(), server.reap());
            server.handle(0, request(ACQUIRE));
            let (answer, _) = messages.recv::<u64>(0, Tag(0)).wait().unwrap();
            assert_eq!(Answer::from_bits(answer[0]).unwrap().outcome, Outcome::Granted(None));
        })
        .unwrap();
    }
}
