//! The server of a lock: a task at its home.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::{Fault, FaultKind, Liveness, Rank};
use onesided_lock_algos::served::{Answer, LockQueue, Outcome, Request, Verb};

use super::{Boundary, REQUEST, Served, post};
use crate::engine::Engine;
use crate::{Error, Messages, Source, Tag};

/// How often a server whose lock is held looks for ranks that are lost without a death, because they have
/// left or their connection is gone, and for those whose connection was made anew.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Starts the server on a thread of this rank.
pub(super) fn start<F: Fabric>(messages: &Messages<F>, served: Served) -> Result<(), Fault> {
    let world = messages.world();
    let mut server = Server::new(messages.of_background());
    let task = Box::pin(async move { server.serve().await });
    match served.is_apart {
        true => world.fabric().endpoint().serve(task, Some(served.thread)).map(drop),
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
    /// Where the connections to ranks were made anew when this looked last.
    boundaries: BTreeMap<u32, Boundary>,
}

impl<F: Fabric> Server<F> {
    fn new(messages: Messages<F>) -> Self {
        let (queue, clients, boundaries) = (LockQueue::default(), BTreeMap::new(), BTreeMap::new());
        Self { messages, from: Source::Any, queue, clients, gone: BTreeSet::new(), boundaries }
    }

    async fn serve(&mut self) {
        while !self.is_over() {
            match self.next(self.from).await {
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
        let (world, fabric) = (self.messages.world(), self.messages.world().fabric());
        let has_ended = |rank| {
            !world.is_alive(rank) || {
                let rank = world.fabric_rank(rank);
                rank.is_some_and(|rank| fabric.has_failed(fabric.rank(), rank)) // its farewell cannot arrive
            }
        };
        self.gone.contains(&world.rank()) && (0..world.size()).all(|rank| self.gone.contains(&rank) || has_ended(rank))
    }

    /// The next request, and its sender.
    async fn next(&self, from: Source) -> Result<(u32, u64), Error> {
        let mut word = [0_u64];
        let mut receive = self.messages.recv_into(&mut word, from, REQUEST);
        if self.queue.occupied() > 0 {
            receive = receive.deadline(POLL_INTERVAL);
        }
        let status = receive.await?;
        Ok((status.source, word[0]))
    }

    fn handle(&mut self, from: u32, word: u64) {
        let Some(request) = Request::from_bits(word) else { return self.part(from) };
        let Some(rank) = self.messages.world().fabric_rank(from) else { return };
        let client = *self.clients.entry((from, request.slot)).or_insert_with(|| self.queue.add(rank));
        self.request(client, request);
        self.reply();
    }

    fn request(&mut self, client: usize, request: Request) {
        let fabric = self.messages.world().fabric();
        let is_alive = |rank| fabric.liveness(rank) == Liveness::Alive;
        self.queue.handle(client, request.to_bits(), Some(request), is_alive);
    }

    /// A rank has said goodbye. It may have lost a release with its connection.
    fn part(&mut self, from: u32) {
        self.gone.insert(from);
        for (slot, client) in self.clients_of(from) {
            self.request(client, Request { id: 0, slot, verb: Verb::Withdraw });
        }
        if from == self.messages.world().rank() {
            self.queue.close();
        }
        self.reply();
    }

    /// A rank's slots and clients.
    fn clients_of(&self, rank: u32) -> Vec<(u16, usize)> {
        let clients = self.clients.range((rank, 0)..=(rank, u16::MAX));
        clients.map(|((_, slot), client)| (*slot, *client)).collect()
    }

    /// Sends the replies, without waiting: a rank that cannot be reached any more is found lost.
    fn reply(&mut self) {
        let told: Vec<_> = self.queue.take_replies().collect();
        told.into_iter().for_each(|(client, outcome)| self.answer(client, outcome));
    }

    fn answer(&self, client: usize, outcome: Outcome) {
        let request = Request::from_bits(self.queue.seen(client)).filter(|_| outcome != Outcome::Withdrawn);
        let to = self.messages.world().rank_of(self.queue.rank(client));
        if let Some((Request { id, slot, .. }, to)) = request.zip(to) {
            post(&self.messages, Answer { id, outcome }.to_bits(), to, Tag(slot.into()));
        }
    }

    /// Repeats the replies to ranks whose connection was made anew: the last ones may be lost. A rank
    /// passes over those that it has had.
    fn answer_again(&mut self) {
        let world = self.messages.world();
        for rank in (0..world.size()).filter(|rank| *rank != world.rank()) {
            let Some(on_fabric) = world.fabric_rank(rank) else { continue };
            let boundary = self.messages.progress().with(|engine| engine.boundary(on_fabric));
            if self.boundaries.insert(rank, boundary).unwrap_or_default() != boundary {
                let told = self.clients_of(rank).into_iter().filter_map(|(_, at)| Some((at, self.queue.told(at)?)));
                told.for_each(|(client, outcome)| self.answer(client, outcome));
            }
        }
    }

    /// After a receive that failed: whether there will be more.
    fn goes_on(&mut self, fault: Fault) -> bool {
        let me = Rank(self.messages.world().rank());
        match (fault.kind(), self.from) {
            (FaultKind::PeerDied | FaultKind::ConnectionLost, Source::Any) if fault.rank() != Some(me) => {
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
        self.answer_again();
        let is_alive = |rank| !lost.contains(&rank);
        for rank in &lost {
            let Some(from) = self.messages.world().rank_of(*rank) else { continue };
            while let Some((from, word)) = self.next_at_once(Source::Rank(from)).await {
                self.handle(from, word);
            }
        }
        while let Some(holder) = self.queue.dead_holder(is_alive) {
            self.queue.reap(holder, is_alive);
        }
        self.queue.advance(&is_alive);
        self.reply();
    }

    /// A request that has come.
    async fn next_at_once(&self, from: Source) -> Option<(u32, u64)> {
        let mut next = pin!(self.next(from));
        match poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx))).await {
            Poll::Ready(next) => next.ok(),
            Poll::Pending => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;
    use std::time::Instant;

    use onesided_fabric::{ServerThread, World, block_on, threads};
    use onesided_lock_algos::Mode;
    use onesided_lock_algos::served::Terms;

    use super::*;
    use crate::ServedLock;

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
            let (from, word) = block_on(world.fabric(), server.next(Source::Any)).unwrap();
            server.handle(from, word);
            while world.is_alive(1) {
                thread::yield_now();
            }
            block_on(world.fabric(), server.reap());
            server.handle(0, request(ACQUIRE));
            let (answer, _) = messages.recv::<u64>(0, Tag(0)).wait().unwrap();
            assert_eq!(Answer::from_bits(answer[0]).unwrap().outcome, Outcome::Granted(None));
        })
        .unwrap();
    }

    const LONG: Duration = Duration::from_secs(30);

    /// What a card's connection does that breaks and is made anew. Of one rank something may be missing.
    fn renew(lock: &ServedLock, missing: u32) {
        let world = lock.0.messages.world();
        let (me, other) = (world.rank(), Rank(1 - world.rank()));
        world.barrier().wait().unwrap();
        let fault = Fault::of(FaultKind::ConnectionLost, other);
        lock.0.messages.progress().with(|engine| engine.renew(other, fault, me == missing));
        world.barrier().wait().unwrap();
    }

    fn lock_at_0(world: &World) -> ServedLock {
        ServedLock::new(world, 0, ServerThread::Sleeps).wait().unwrap()
    }

    #[test]
    fn a_release_after_a_break_arrives() {
        threads(2, |world| {
            let lock = lock_at_0(&world);
            let held = [lock.lock_shared().wait().unwrap(), lock.lock_shared().wait().unwrap()];
            renew(&lock, 1);
            drop(held);
            drop(lock.lock().deadline(LONG).wait().unwrap());
            world.barrier().wait().unwrap();
            // The program's messages hear of the break.
            let told = lock.0.messages.send(&[0_u8], 1 - world.rank(), Tag(7)).wait();
            assert_eq!(told.is_err(), world.rank() == 1, "{told:?}");
            world.barrier().wait().unwrap();
        })
        .unwrap();
    }

    #[test]
    fn a_grant_after_a_break_arrives() {
        threads(2, |world| {
            let lock = lock_at_0(&world);
            renew(&lock, 0);
            drop(lock.lock().deadline(LONG).wait().unwrap());
            world.barrier().wait().unwrap();
        })
        .unwrap();
    }

    /// A reply that was lost with the connection is repeated.
    #[test]
    fn a_lost_grant_is_repeated() {
        const ACQUIRE: Verb = Verb::Acquire(Mode::Exclusive, Terms { at_once: false, recovers: false });
        threads(2, |world| {
            let lock = lock_at_0(&world);
            let messages = &lock.0.messages;
            if world.rank() == 1 {
                messages.send(&[Request { id: 9, slot: 0, verb: ACQUIRE }.to_bits()], 0, REQUEST).wait().unwrap();
                let granted = || messages.recv::<u64>(0, Tag(0)).deadline(LONG).wait().unwrap().0;
                let (first, ()) = (granted(), renew(&lock, 2));
                assert_eq!(first, granted());
            } else {
                renew(&lock, 2);
            }
            world.barrier().wait().unwrap();
        })
        .unwrap();
    }

    /// Whether it has left without a release, or only dropped its lock.
    #[test]
    fn what_a_rank_that_goes_holds_is_free() {
        for leaves in [true, false] {
            threads(3, |world| {
                let lock = lock_at_0(&world);
                if world.rank() == 1 {
                    std::mem::forget(lock.lock().wait().unwrap());
                    if !leaves {
                        drop(Arc::into_inner(lock.0));
                        // A forgotten guard keeps no handle.
                    }
                    return world.barrier().wait().unwrap();
                }
                world.barrier().wait().unwrap();
                let begun = Instant::now();
                while let Ok(None) = lock.try_lock().wait() {
                    assert!(begun.elapsed() < LONG, "nobody sees that it has gone");
                    thread::yield_now();
                }
                drop(lock.lock().recover().deadline(LONG).wait().unwrap());
                let (messages, other) = (&lock.0.messages, 2 - world.rank());
                messages.send(&[0_u8], other, Tag(7)).wait().unwrap();
                messages.recv::<u8>(other, Tag(7)).wait().unwrap(); // the home goes last
            })
            .unwrap();
        }
    }
}
