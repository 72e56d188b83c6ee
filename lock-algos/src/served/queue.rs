//! The queue and the holders of a served lock: the server's state, and its handling of requests.

use std::collections::VecDeque;

use onesided_remote_memory::Rank;

use super::messages::{Outcome, Poison, Request, Terms, Verb};
use crate::Mode;

/// The state of one lock, without any access to memory: [`handle`](Self::handle) handles requests,
/// and queues the replies in order.
#[derive(Debug, Default)]
pub struct LockQueue {
    slots: Vec<RequestSlot>,
    /// The waiters, in the order of their requests.
    queue: VecDeque<usize>,
    /// The holders: one exclusive owner, or any number of readers.
    holders: Vec<usize>,
    /// Why the lock is poisoned, until an owner recovers it.
    poison: Option<Poison>,
    /// Replies to be sent, by client, about the requests handled since.
    told: Vec<(usize, Outcome)>,
    closed: bool,
}

/// A request slot of a rank.
#[derive(Clone, Copy, Debug)]
struct RequestSlot {
    rank: Rank,
    /// The last request.
    seen: u64,
    stage: Stage,
    /// The reply to it.
    told: Option<Outcome>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    Waits(Mode, Terms),
    Holds(Mode),
}

impl LockQueue {
    /// Adds a request slot and returns its index.
    pub fn add(&mut self, rank: Rank) -> usize {
        self.slots.push(RequestSlot { rank, seen: 0, stage: Stage::Idle, told: None });
        self.slots.len() - 1
    }

    /// The rank of a request slot.
    pub fn rank(&self, client: usize) -> Rank {
        self.slots[client].rank
    }

    /// The last request of a client.
    pub fn seen(&self, client: usize) -> u64 {
        self.slots[client].seen
    }

    /// Whether there are waiters.
    pub(super) fn has_queue(&self) -> bool {
        !self.queue.is_empty()
    }

    /// The number of holders and waiters, plus one if the lock is poisoned.
    pub fn occupied(&self) -> usize {
        self.queue.len() + self.holders.len() + usize::from(self.poison.is_some())
    }

    /// The last reply to a client's last request.
    pub fn told(&self, client: usize) -> Option<Outcome> {
        self.slots[client].told
    }

    /// Takes the queued replies, in order.
    pub fn take_replies(&mut self) -> impl Iterator<Item = (usize, Outcome)> + '_ {
        self.told.drain(..)
    }

    /// Replies to a client's last request.
    fn reply(&mut self, client: usize, outcome: Outcome) {
        self.slots[client].told = Some(outcome);
        self.told.push((client, outcome));
    }

    /// Handles a new word in a client's request slot. A slot has one owner at a time, so the word
    /// replaces any earlier request.
    pub fn handle(&mut self, client: usize, word: u64, request: Option<Request>, is_alive: impl Fn(Rank) -> bool) {
        self.drop_request(client, request);
        let known = &mut self.slots[client];
        (known.seen, known.told) = (word, None);
        match request.map(|request| request.verb) {
            Some(Verb::Acquire(mode, terms)) => self.request(client, mode, terms, &is_alive),
            Some(Verb::Withdraw | Verb::Panic) => self.reply(client, Outcome::Withdrawn),
            Some(Verb::Release) | None => {}
        }
        self.advance(&is_alive);
    }

    fn request(&mut self, client: usize, mode: Mode, terms: Terms, is_alive: &impl Fn(Rank) -> bool) {
        if self.closed {
            return self.reply(client, Outcome::Closed);
        }
        self.slots[client].stage = Stage::Waits(mode, terms);
        self.queue.push_back(client);
        if terms.at_once {
            self.advance(is_alive);
            if let Stage::Waits(..) = self.slots[client].stage {
                self.drop_out(client);
                self.reply(client, Outcome::Busy);
            }
        }
    }

    /// The client holds nothing any more; its new request is handled later.
    pub(super) fn retire(&mut self, client: usize, says: Option<Request>, is_alive: impl Fn(Rank) -> bool) {
        self.drop_request(client, says);
        self.advance(&is_alive);
    }

    /// The client holds nothing and waits for nothing, according to its new request. The lock is
    /// poisoned if it panicked, or withdraws a recovered lock.
    fn drop_request(&mut self, client: usize, says: Option<Request>) {
        let RequestSlot { rank, stage, told, .. } = self.slots[client];
        if let Stage::Holds(Mode::Exclusive) = stage {
            let left = match (says.map(|request| request.verb), told) {
                (Some(Verb::Panic), _) => Some(Poison { rank, panicked: true }),
                (Some(Verb::Withdraw), Some(Outcome::Granted(recovered))) => recovered,
                _ => None,
            };
            self.poison = self.poison.or(left);
        }
        self.drop_out(client);
    }

    /// The client holds nothing and waits for nothing.
    fn drop_out(&mut self, client: usize) {
        match std::mem::replace(&mut self.slots[client].stage, Stage::Idle) {
            Stage::Idle => {}
            Stage::Waits(..) => self.queue.retain(|other| *other != client),
            Stage::Holds(_) => self.holders.retain(|other| *other != client),
        }
    }

    /// Grants the lock to the head of the queue as far as possible, and skips dead waiters.
    pub fn advance(&mut self, is_alive: &impl Fn(Rank) -> bool) {
        while let Some(client) = self.queue.front().copied() {
            let RequestSlot { rank, stage: Stage::Waits(mode, terms), .. } = self.slots[client] else {
                unreachable!("a queued client waits")
            };
            if !is_alive(rank) {
                self.drop_out(client);
                continue;
            }
            let poison = match self.poison {
                Some(poison) if !terms.recovers => {
                    self.drop_out(client);
                    self.reply(client, Outcome::Poisoned(poison));
                    continue;
                }
                poison => poison,
            };
            // A recovering owner holds it exclusively.
            let held = if poison.is_some() { Mode::Exclusive } else { mode };
            let free = match held {
                Mode::Exclusive => self.holders.is_empty(),
                Mode::Shared => self.holders.iter().all(|holder| self.slots[*holder].stage == Stage::Holds(held)),
            };
            if !free {
                return;
            }
            self.queue.pop_front();
            self.holders.push(client);
            self.slots[client].stage = Stage::Holds(held);
            self.poison = None;
            self.reply(client, Outcome::Granted(poison));
        }
    }

    /// The holders.
    pub(super) fn holders(&self) -> Vec<usize> {
        self.holders.clone()
    }

    /// A holder that is dead.
    pub fn dead_holder(&self, is_alive: impl Fn(Rank) -> bool) -> Option<usize> {
        self.holders.iter().copied().find(|holder| !is_alive(self.slots[*holder].rank))
    }

    /// Reaps a holder that died without releasing. If it held the lock exclusively, the lock is
    /// poisoned, and waiters that do not recover fail.
    pub fn reap(&mut self, client: usize, is_alive: impl Fn(Rank) -> bool) {
        let RequestSlot { rank, stage, .. } = self.slots[client];
        self.drop_out(client);
        if let Stage::Holds(Mode::Exclusive) = stage {
            self.poison.get_or_insert(Poison { rank, panicked: false });
            self.fail_waiters();
        }
        self.advance(&is_alive);
    }

    /// Fails all waiters that do not recover, if the lock is poisoned.
    fn fail_waiters(&mut self) {
        let poison = self.poison;
        for client in std::mem::take(&mut self.queue) {
            match (self.slots[client].stage, poison) {
                (Stage::Waits(_, Terms { recovers: false, .. }), Some(poison)) => {
                    self.slots[client].stage = Stage::Idle;
                    self.reply(client, Outcome::Poisoned(poison));
                }
                _ => self.queue.push_back(client),
            }
        }
    }

    /// Whether a holder, or the head of the queue, is dead.
    pub(super) fn has_dead(&self, is_alive: impl Fn(Rank) -> bool) -> bool {
        let first = self.queue.front().is_some_and(|client| !is_alive(self.slots[*client].rank));
        first || self.has_queue() && self.dead_holder(is_alive).is_some()
    }

    /// Ends the service: no client is granted the lock any more, and all waiters fail.
    pub fn close(&mut self) {
        self.closed = true;
        for client in std::mem::take(&mut self.queue) {
            self.slots[client].stage = Stage::Idle;
            self.reply(client, Outcome::Closed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: Mode = Mode::Exclusive;
    const S: Mode = Mode::Shared;
    const PLAIN: Terms = Terms { at_once: false, recovers: false };
    const TRY: Terms = Terms { at_once: true, recovers: false };
    const HEIR: Terms = Terms { at_once: false, recovers: true };

    /// A lock queue with one request slot for each rank.
    struct Fixture {
        queue: LockQueue,
        dead: Vec<Rank>,
        id: u32,
    }

    impl Fixture {
        fn new(ranks: u32) -> Self {
            let mut queue = LockQueue::default();
            (0..ranks).for_each(|rank| assert_eq!(queue.add(Rank(rank)), rank as usize));
            Self { queue, dead: Vec::new(), id: 0 }
        }

        fn handle(&mut self, client: usize, verb: Verb) -> Vec<(usize, Outcome)> {
            self.id += 1;
            let request = Request { id: self.id, slot: 0, verb };
            let Self { queue, dead, .. } = self;
            queue.handle(client, request.to_bits(), Some(request), |rank| !dead.contains(&rank));
            assert_eq!(queue.seen(client), request.to_bits());
            queue.take_replies().collect()
        }

        fn request(&mut self, client: usize, mode: Mode, terms: Terms) -> Vec<(usize, Outcome)> {
            self.handle(client, Verb::Acquire(mode, terms))
        }

        fn release(&mut self, client: usize) -> Vec<(usize, Outcome)> {
            self.handle(client, Verb::Release)
        }

        fn kill(&mut self, client: usize) -> Vec<(usize, Outcome)> {
            self.dead.push(Rank(client as u32));
            let Self { queue, dead, .. } = self;
            if let Some(holder) = queue.dead_holder(|rank| !dead.contains(&rank)) {
                queue.reap(holder, |rank| !dead.contains(&rank));
            }
            queue.take_replies().collect()
        }
    }

    const GRANTED: Outcome = Outcome::Granted(None);

    #[test]
    fn first_come_first_served() {
        let mut fixture = Fixture::new(4);
        assert_eq!(fixture.request(2, X, PLAIN), [(2, GRANTED)]);
        assert_eq!(fixture.request(0, X, PLAIN), []);
        assert_eq!(fixture.request(3, X, PLAIN), []);
        assert_eq!(fixture.request(1, X, TRY), [(1, Outcome::Busy)]);
        assert_eq!(fixture.release(2), [(0, GRANTED)]);
        assert_eq!(fixture.request(2, X, PLAIN), []);
        assert_eq!(fixture.release(0), [(3, GRANTED)]);
        assert_eq!(fixture.release(3), [(2, GRANTED)]);
        assert_eq!((fixture.release(2), fixture.queue.occupied()), (vec![], 0));
    }

    /// Consecutive readers share the lock, and none bypasses a waiting writer.
    #[test]
    fn readers_share_and_do_not_starve_writers() {
        let mut fixture = Fixture::new(5);
        assert_eq!(fixture.request(0, S, PLAIN), [(0, GRANTED)]);
        assert_eq!(fixture.request(1, S, PLAIN), [(1, GRANTED)]);
        assert_eq!(fixture.request(2, X, PLAIN), []);
        assert_eq!(fixture.request(3, S, PLAIN), []);
        assert_eq!(fixture.request(4, S, TRY), [(4, Outcome::Busy)]);
        assert_eq!(fixture.request(4, S, PLAIN), []);
        assert_eq!(fixture.release(0), []);
        assert_eq!(fixture.release(1), [(2, GRANTED)]);
        assert_eq!(fixture.release(2), [(3, GRANTED), (4, GRANTED)]);
        assert_eq!(fixture.request(0, S, TRY), [(0, GRANTED)]);
        assert_eq!(fixture.request(1, X, TRY), [(1, Outcome::Busy)]);
    }

    #[test]
    fn a_withdrawn_request_blocks_no_other() {
        let mut fixture = Fixture::new(3);
        assert_eq!(fixture.request(0, S, PLAIN), [(0, GRANTED)]);
        assert_eq!(fixture.request(1, X, PLAIN), []);
        assert_eq!(fixture.request(2, S, PLAIN), []);
        assert_eq!(fixture.handle(1, Verb::Withdraw), [(1, Outcome::Withdrawn), (2, GRANTED)]);
        // Whether it was granted before or not.
        assert_eq!(fixture.handle(2, Verb::Withdraw), [(2, Outcome::Withdrawn)]);
        assert_eq!(fixture.request(2, X, PLAIN), []);
        assert_eq!(fixture.release(0), [(2, GRANTED)]);
    }

    #[test]
    fn a_new_request_ends_what_the_line_had_before() {
        let mut fixture = Fixture::new(2);
        assert_eq!(fixture.request(0, X, PLAIN), [(0, GRANTED)]);
        assert_eq!(fixture.request(1, X, PLAIN), []);
        assert_eq!(fixture.request(0, X, PLAIN), [(1, GRANTED)], "its release was not seen");
        assert_eq!(fixture.release(1), [(0, GRANTED)]);
        assert_eq!((fixture.release(0), fixture.queue.occupied()), (vec![], 0));
        assert_eq!((fixture.release(0), fixture.queue.occupied()), (vec![], 0), "twice");
    }

    const DIED: Poison = Poison { rank: Rank(0), panicked: false };
    const PANICKED: Poison = Poison { rank: Rank(0), panicked: true };

    #[test]
    fn a_lock_is_poisoned_until_one_recovers() {
        for why in [DIED, PANICKED] {
            let mut fixture = Fixture::new(5);
            assert_eq!(fixture.request(0, X, PLAIN), [(0, GRANTED)]);
            assert_eq!(fixture.request(1, X, PLAIN), []);
            assert_eq!(fixture.request(2, S, HEIR), []);
            assert_eq!(fixture.request(3, X, HEIR), []);
            let told = [(1, Outcome::Poisoned(why)), (2, Outcome::Granted(Some(why)))];
            match why.panicked {
                true => assert_eq!(fixture.handle(0, Verb::Panic)[1..], told),
                false => assert_eq!(fixture.kill(0), told),
            }
            assert_eq!(fixture.request(4, S, PLAIN), [], "it waits for the recovering owner");
            assert_eq!(fixture.release(2), [(3, GRANTED)]);
            assert_eq!(fixture.release(3), [(4, GRANTED)]);
        }
    }

    #[test]
    fn a_withdrawn_recovery_leaves_the_lock_poisoned() {
        let mut fixture = Fixture::new(4);
        assert_eq!(fixture.request(0, X, PLAIN), [(0, GRANTED)]);
        assert_eq!(fixture.kill(0), []);
        assert_eq!(fixture.request(1, X, HEIR), [(1, Outcome::Granted(Some(DIED)))]);
        assert_eq!(fixture.request(2, X, PLAIN), []);
        let told = [(1, Outcome::Withdrawn), (2, Outcome::Poisoned(DIED))];
        assert_eq!(fixture.handle(1, Verb::Withdraw), told);
        // The same if other requests are handled first.
        assert_eq!(fixture.request(3, X, HEIR), [(3, Outcome::Granted(Some(DIED)))]);
        let says = Request { id: 100, slot: 0, verb: Verb::Withdraw };
        fixture.queue.retire(3, Some(says), |_| true);
        assert_eq!(fixture.request(2, X, TRY), [(2, Outcome::Poisoned(DIED))]);
        assert_eq!(fixture.request(2, X, HEIR), [(2, Outcome::Granted(Some(DIED)))]);
        fixture.queue.retire(2, Some(Request { verb: Verb::Release, ..says }), |_| true);
        assert_eq!(fixture.request(1, X, PLAIN), [(1, GRANTED)]);
    }

    #[test]
    fn a_dead_reader_poisons_nothing() {
        let mut fixture = Fixture::new(4);
        assert_eq!(fixture.request(0, S, PLAIN), [(0, GRANTED)]);
        assert_eq!(fixture.request(1, S, PLAIN), [(1, GRANTED)]);
        assert_eq!(fixture.request(2, X, PLAIN), []);
        assert_eq!(fixture.kill(0), []);
        assert_eq!(fixture.request(3, S, TRY), [(3, Outcome::Busy)]);
        assert_eq!(fixture.release(1), [(2, GRANTED)]);
    }

    #[test]
    fn occupied_counts_holders_waiters_and_poison() {
        let mut fixture = Fixture::new(4);
        assert_eq!((fixture.queue.occupied(), fixture.queue.holders()), (0, vec![]));
        assert_eq!(fixture.request(2, S, PLAIN), [(2, GRANTED)]);
        assert_eq!((fixture.queue.occupied(), fixture.queue.holders()), (1, vec![2]));
        assert_eq!(fixture.request(3, S, PLAIN), [(3, GRANTED)]);
        assert_eq!(fixture.request(1, X, HEIR), []);
        assert_eq!((fixture.queue.occupied(), fixture.queue.holders()), (3, vec![2, 3]));
        assert_eq!(fixture.kill(3), []);
        assert_eq!(fixture.queue.occupied(), 2, "a reader that died leaves nothing");
        assert_eq!((fixture.release(2), fixture.queue.occupied()), (vec![(1, GRANTED)], 1));
        assert_eq!((fixture.kill(1), fixture.queue.holders()), (vec![], vec![]));
        assert_eq!(fixture.queue.occupied(), 1, "it is poisoned");
    }

    #[test]
    fn the_dead_are_passed_over() {
        let mut fixture = Fixture::new(3);
        assert_eq!(fixture.request(0, X, PLAIN), [(0, GRANTED)]);
        assert_eq!(fixture.request(1, X, PLAIN), []);
        assert_eq!(fixture.request(2, X, PLAIN), []);
        assert_eq!(fixture.kill(1), []);
        assert_eq!(fixture.release(0), [(2, GRANTED)], "who dies waiting was never inside");
    }

    #[test]
    fn a_closed_queue_fails_all_requests() {
        let mut fixture = Fixture::new(3);
        assert_eq!(fixture.request(0, S, PLAIN), [(0, GRANTED)]);
        assert_eq!(fixture.request(1, X, PLAIN), []);
        fixture.queue.close();
        assert_eq!(fixture.queue.take_replies().collect::<Vec<_>>(), [(1, Outcome::Closed)]);
        assert_eq!(fixture.request(2, S, PLAIN), [(2, Outcome::Closed)]);
        assert_eq!((fixture.release(0), fixture.queue.occupied()), (vec![], 0));
    }
}
