//! The assisting thread.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use onesided_remote_memory::{Fault, FaultKind, Liveness, Notify, Patience, Rank, RemoteMemory};

use super::desk::Desk;
use super::messages::{Answer, Door, NO_LINE, Request, Verb, rings_again, rung_by};
use super::{ANSWER, BELL, CROWD, DOOR, DOOR_ANSWER, ENDED, LOOK, STATE, in_crowd};
use crate::LockContext;
use crate::recovery::Doubt;
use crate::settle;

/// How many lines are looked at between two looks at the bell: a rank that has just rung does not wait for a look at all of
/// a large world.
const SLICE: usize = 64;

/// See [`LockAlgorithm::serve`](crate::LockAlgorithm::serve).
pub(super) async fn serve<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
    memory: &'m M,
    place: P,
    is_open: impl Fn() -> bool + Send + Sync,
) -> Result<(), Fault> {
    let mut server = Server::new(memory, place)?;
    let outcome = server.run(is_open).await;
    server.close()?;
    outcome
}

/// See [`LockAlgorithm::wake_server`](crate::LockAlgorithm::wake_server).
pub(super) async fn wake<'m, M: RemoteMemory>(memory: &'m M, place: impl LockContext<'m, M>) -> Result<(), Fault> {
    let bell = place.home(BELL)?;
    // Another word than the last one, that names no line.
    let ring = !memory.load(bell)? | (NO_LINE as u64) << 20;
    memory.write(bell, ring, Notify::Yes).await.map(drop)
}

struct Server<'m, M: RemoteMemory, P> {
    memory: &'m M,
    place: P,
    desk: Desk,
    /// Of each client of the desk but the last, which is the side door.
    lines: Vec<M::Word<'m>>,
    /// Of each rank: which of those whose lines there are.
    members: Vec<Option<usize>>,
    bell: M::Word<'m>,
    door: M::Word<'m>,
    crowd: M::Word<'m>,
    /// Whether somebody is counted in the crowd who is not there.
    doubt: Doubt,
    /// Answers of which nobody knows yet whether they came: to whom, to which word, and what.
    told: Vec<Told<M>>,
    /// Whether somebody's node could not be reached: he is heard once it can be.
    unreached: bool,
}

/// An answer on its way.
struct Told<M: RemoteMemory> {
    op: M::Op,
    client: usize,
    word: u64,
    answer: Answer,
}

impl<'m, M: RemoteMemory, P: LockContext<'m, M>> Server<'m, M, P> {
    fn new(memory: &'m M, place: P) -> Result<Self, Fault> {
        let mut desk = Desk::default();
        let mut lines = Vec::new();
        let ranks: Vec<_> =
            (0..memory.size()).map(Rank).filter(|rank| place.request_slot_of(*rank, 0).is_ok()).collect();
        let mut members = vec![None; memory.size() as usize];
        for (member, rank) in ranks.iter().enumerate() {
            members[rank.index()] = Some(member);
        }
        // The first line of everybody, then the second ones: few use those.
        for line in 0..place.request_slots() {
            for rank in &ranks {
                lines.push(place.request_slot_of(*rank, line)?);
                desk.add(*rank);
            }
        }
        desk.add(memory.rank());
        let (bell, door, crowd) = (place.home(BELL)?, place.home(DOOR)?, place.home(CROWD)?);
        let doubt = Doubt::default();
        let told = Vec::new();
        Ok(Self { memory, place, desk, lines, members, bell, door, crowd, doubt, told, unreached: false })
    }

    async fn run(&mut self, is_open: impl Fn() -> bool + Send + Sync) -> Result<(), Fault> {
        let memory = self.memory;
        let all = self.lines.len() + 1;
        let (mut heard, mut cursor, mut left) = (None, 0, 0);
        loop {
            let rung = memory.load(self.bell)?;
            if !is_open() {
                return Ok(()); // whoever closes it rings then
            }
            if heard != Some(rung) {
                heard = Some(rung);
                // Who has rung before him is not named any more, so all are looked at once from here on.
                left = all;
                if let Some(client) = self.named(rung) {
                    self.look_for(client, rung)?;
                }
            }
            for _ in 0..left.min(SLICE) {
                self.look(cursor)?;
                cursor = (cursor + 1) % all;
                left -= 1;
            }
            if left > 0 || self.bury_all().await? {
                continue;
            }
            // What was written before the bell was read has been looked at; what is written later changes the bell.
            let mut patience = Patience::with_failures(memory.rank());
            // Rings of readers who leave may be the same word, by chance.
            let oversubscribed = self.desk.crowd() > 0 && self.desk.has_queue();
            if std::mem::take(&mut self.unreached) || oversubscribed {
                left = all;
            }
            if left > 0 || self.desk.has_queue() {
                patience = patience.and_until(memory.now().saturating_add(LOOK));
            }
            let mut rings = memory.wait_until(self.bell, move |now| heard != Some(now), patience);
            let waited = poll_fn(|cx| {
                self.poll_told(cx);
                if !is_open() || self.desk.mourns(|rank| is_alive(memory, rank)) || self.dead_visitor().is_some() {
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

    /// The client that a ring names.
    fn named(&self, ring: u64) -> Option<usize> {
        let (rank, line) = rung_by(ring);
        let member = self.members.get(rank.index()).copied().flatten()?;
        let members = self.lines.len().checked_div(usize::from(self.place.request_slots()))?;
        Some(usize::from(line) * members + member).filter(|client| *client < self.lines.len())
    }

    /// Looks at the line that a ring names. Who rings again for the same word has not had the answer, or not any more.
    fn look_for(&mut self, client: usize, ring: u64) -> Result<(), Fault> {
        let known = self.desk.seen(client);
        self.look(client)?;
        if self.desk.seen(client) == known && rings_again(ring, known) {
            self.desk.tell_again(client);
            self.tell()?;
        }
        Ok(())
    }

    /// Hears what a client has to say that is new.
    fn look(&mut self, client: usize) -> Result<(), Fault> {
        let Self { memory, place, .. } = *self;
        let Some(line) = self.lines.get(client) else { return self.look_at_the_door() };
        let word = memory.load(*line)?;
        if word == self.desk.seen(client) {
            return Ok(());
        }
        let request = Request::from_bits(word);
        let rank = self.desk.rank(client);
        if let Some(Request { slot, verb: Verb::Acquire(..) | Verb::Withdraw, .. }) = request
            && is_alive(memory, rank)
            && place.node_of(rank, slot, ANSWER).is_err()
        {
            self.unreached = true; // later, perhaps: nobody is granted a lock who would not hear of it
            return Ok(());
        }
        self.hear(client, (rank, word), request)
    }

    /// The word at the door, and how many have gone in there by then.
    fn load_door(&mut self) -> Result<u64, Fault> {
        let word = self.memory.load(self.door)?;
        // After it: a reader has counted itself before it leaves the door.
        let (crowd, memory) = (in_crowd(self.memory.load(self.crowd)?), self.memory);
        if crowd != self.desk.crowd() {
            self.doubt = Doubt::default();
            self.desk.set_crowd(crowd, None, |rank| is_alive(memory, rank));
            self.tell()?;
        }
        Ok(word)
    }

    /// Whoever released before somebody asks has rung before him, and may not be heard yet: who says something else now than
    /// when he got the lock has it no more. What he says is heard in his turn.
    fn retire_holders(&mut self, asks: usize) -> Result<(), Fault> {
        let memory = self.memory;
        for holder in self.desk.holders().into_iter().filter(|holder| *holder != asks) {
            let (word, says) = match self.lines.get(holder) {
                Some(line) => memory.load(*line).map(|word| (word, Request::from_bits(word)))?,
                None => self.load_door().map(|word| (word, Door(word).request(0)))?,
            };
            if word != self.desk.seen(holder) {
                self.desk.retire(holder, says, |rank| is_alive(memory, rank));
            }
        }
        if self.desk.crowd() > 0 {
            self.load_door()?;
        }
        self.tell()
    }

    fn look_at_the_door(&mut self) -> Result<(), Fault> {
        let (word, client) = (self.load_door()?, self.lines.len());
        if word == self.desk.seen(client) {
            return Ok(());
        }
        let door = Door(word);
        self.hear(client, (door.rank(), word), door.request(0))
    }

    fn hear(&mut self, client: usize, said: (Rank, u64), request: Option<Request>) -> Result<(), Fault> {
        if let Some(Request { verb: Verb::Acquire(_, terms), .. }) = request
            && terms.at_once
        {
            self.retire_holders(client)?;
            self.bury_holders()?; // whose lock is not busy but poisoned
        }
        let memory = self.memory;
        self.desk.hear(client, said, request, |rank| is_alive(memory, rank));
        self.tell()
    }

    /// Writes the answers. Nobody waits for that: a rank that cannot be reached any more is found dead.
    fn tell(&mut self) -> Result<(), Fault> {
        let Self { memory, place, .. } = *self;
        let told: Vec<_> = self.desk.take_told().collect();
        for (client, outcome) in told {
            let word = self.desk.seen(client);
            if client == self.lines.len() {
                let answer = Answer { turn: Door(word).turn(), outcome };
                memory.store(place.home(DOOR_ANSWER)?, answer.to_bits())?;
            } else if let Some(Request { turn, .. }) = Request::from_bits(word) {
                self.answer(client, word, Answer { turn, outcome });
            }
        }
        Ok(())
    }

    /// Writes an answer to a client's node.
    fn answer(&mut self, client: usize, word: u64, answer: Answer) {
        let Self { memory, place, .. } = *self;
        let node = Request::from_bits(word)
            .and_then(|request| place.node_of(self.desk.rank(client), request.slot, ANSWER).ok());
        if let Some(node) = node {
            let op = memory.write(node, answer.to_bits(), Notify::Yes);
            self.told.push(Told { op, client, word, answer });
        }
    }

    /// Sees how the answers went. One of which nobody knows is written again, while its client says the same and lives.
    fn poll_told(&mut self, cx: &mut Context<'_>) {
        let mut lost = Vec::new();
        self.told.retain_mut(|told| match Pin::new(&mut told.op).poll(cx) {
            Poll::Pending => true,
            Poll::Ready(outcome) => {
                if outcome.is_err_and(|fault| fault.is_unknown()) {
                    lost.push((told.client, told.word, told.answer));
                }
                false
            }
        });
        for (client, word, answer) in lost {
            if self.desk.seen(client) == word && is_alive(self.memory, self.desk.rank(client)) {
                self.answer(client, word, answer);
            }
        }
    }

    /// Takes the lock from those who died with it. `true` if there was one.
    fn bury_holders(&mut self) -> Result<bool, Fault> {
        let (memory, mut any) = (self.memory, false);
        while let Some(holder) = self.desk.dead_holder(|rank| is_alive(memory, rank)) {
            any = true;
            // It may have released before it died.
            let before = self.desk.seen(holder);
            match self.lines.get(holder) {
                Some(line) => {
                    let word = memory.load(*line)?;
                    if word != before {
                        // It asks for nothing any more.
                        let says = Request::from_bits(word).filter(|says| says.verb == Verb::Withdraw);
                        self.desk.hear(holder, (self.desk.rank(holder), word), says, |rank| is_alive(memory, rank));
                        continue;
                    }
                }
                None => {
                    let word = memory.load(self.door)?;
                    if word != before {
                        self.look_at_the_door()?;
                        continue;
                    }
                }
            }
            self.desk.bury(holder, |rank| is_alive(memory, rank));
        }
        self.tell()?;
        Ok(any)
    }

    /// The door's word, if who stands there lives no more.
    fn dead_visitor(&self) -> Option<Door> {
        let door = Door(self.desk.seen(self.lines.len()));
        (!door.is_free() && !is_alive(self.memory, door.rank())).then_some(door)
    }

    /// Does what there is to do because somebody died. `true` if there was anything.
    async fn bury_all(&mut self) -> Result<bool, Fault> {
        let memory = self.memory;
        let mut any = false;
        if self.desk.mourns(|rank| is_alive(memory, rank)) {
            any = true;
            self.bury_holders()?;
            self.desk.advance(&|rank| is_alive(memory, rank));
        }
        if self.dead_visitor().is_some() {
            self.look_at_the_door()?;
            self.bury_holders()?;
        }
        if let Some(door) = self.dead_visitor() {
            any = true;
            // What it did has taken effect, so nobody else changes the word while it is this one.
            drop(memory.compare_swap(self.door, door.0, door.left().0));
            self.desk.hear(self.lines.len(), (door.rank(), door.left().0), None, |rank| is_alive(memory, rank));
        }
        self.tell()?;
        if self.desk.has_queue() && self.desk.crowd() > 0 {
            any |= self.bury_the_crowd().await?;
        } else {
            self.doubt = Doubt::default();
        }
        Ok(any)
    }

    /// Takes the lock from readers of whom the count is all that is left: they died, or were not told that they were counted, or
    /// not any more. `true` if there were any.
    async fn bury_the_crowd(&mut self) -> Result<bool, Fault> {
        let (memory, place) = (self.memory, self.place);
        if !self.doubt.lasts(memory) {
            return Ok(false);
        }
        let word = memory.load(self.crowd)?;
        let crowd = in_crowd(word);
        if crowd != self.desk.crowd() {
            return self.load_door().map(|_| true);
        }
        for rank in (0..memory.size()).map(Rank).filter(|rank| is_alive(memory, *rank)) {
            let counts = match place.participant_count(rank) {
                Ok(Some(tally)) => settle::read(memory, tally).await.map(|tally| tally >> 32 != 0),
                Ok(None) => Ok(false),
                Err(fault) if fault.kind() == FaultKind::NoSuchRegion => Ok(false),
                Err(fault) => Err(fault),
            };
            if counts.unwrap_or_else(|_| is_alive(memory, rank)) {
                return Ok(false);
            }
        }
        // Whoever counts since has changed the word.
        match memory.compare_swap(self.crowd, word, word - crowd).await {
            Ok(found) if found == word => {}
            Err(fault) if !fault.is_unknown() => return Err(fault),
            _ => return self.load_door().map(|_| true), // it is another one
        }
        self.desk.set_crowd(0, memory.failed_rank(), |rank| is_alive(memory, rank));
        self.tell()?;
        Ok(true)
    }

    /// Tells all that nobody serves any more: first those who come and look, then those who wait.
    fn close(&mut self) -> Result<(), Fault> {
        self.desk.close();
        for client in 0..=self.lines.len() {
            self.look(client)?;
        }
        self.bury_holders()?;
        let state = self.place.home(STATE)?;
        self.memory.store(state, ENDED | self.desk.occupied() as u64)?;
        for client in 0..=self.lines.len() {
            self.look(client)?;
        }
        self.tell()
    }
}

fn is_alive<M: RemoteMemory>(memory: &M, rank: Rank) -> bool {
    memory.liveness(rank) == Liveness::Alive
}
