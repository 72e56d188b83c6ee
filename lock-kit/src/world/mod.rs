//! The memory of all ranks, the operations in flight, the clock, and the possible events: one world
//! for every schedule of the [`Checker`](crate::Checker) and the random ones of a
//! [`Search`](crate::Search).

mod describe;
mod memory;
mod possible;
mod run;

use std::collections::BTreeMap;
use std::hash::Hash;
use std::panic::panic_any;

use onesided_remote_memory::{Fault, FaultKind, Liveness, Notify, Rank};

pub use memory::{ModelMemory, PauseEnd, Reply, Wait};
pub(crate) use run::Run;
pub use run::{Server, Setting};

use crate::caught::Violation;
use crate::digest::digest;
use crate::program::{HOME, Names};
use crate::trace::{Action, Effect, Note, Op, Trace};

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// An operation takes effect.
    Effect(u32),
    /// Its origin receives the reply, or a waiter reads a word or checks a rank.
    Wake(u32),
    /// An operation takes effect, and its origin sees `Unknown`.
    LoseReply(u32),
    /// An operation never takes effect, and its origin sees `Unknown`.
    LoseOperation(u32),
    /// A rank ends. Its operations in flight never take effect. (Those that do took effect before.)
    Crash(Rank),
    /// The others learn that a rank has ended.
    News(Rank),
    /// A rank receives nothing until the others are done, or stuck for long.
    Stop(Rank),
    /// The stopped rank goes on.
    Continue,
    /// Time passes to the end of a pause or a deadline.
    Time(u32),
}

/// The failures allowed in a schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    pub(crate) crashes: u8,
    pub(crate) lost: u8,
    pub(crate) stops: u8,
}

/// An operation or a wait that a task awaits, or has detached.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct Pending {
    origin: Rank,
    view: u16,
    kind: Kind,
    /// Whether it is detached.
    detached: bool,
    /// Whether it is the first of an acquire.
    marked: bool,
}

impl Pending {
    pub(crate) const fn is_pause(&self) -> bool {
        matches!(self.kind, Kind::Waits { deaths: None, .. })
    }
}

#[derive(Clone, Copy, Debug, Hash)]
enum Kind {
    /// In flight to the word.
    Travels { word: u32, action: Action, notifies: bool, chained: bool },
    /// In effect, or lost; the reply, with the word's version, is in flight.
    Returns { word: u32, outcome: Result<u64, Fault>, version: u32 },
    /// A pause looks by itself: it ends when the word's version is another one. A wait goes on when
    /// the word's waiters have been notified since, or a rank has died: `deaths` before.
    Waits { word: u32, since: u32, deaths: Option<u32>, until: u64 },
    /// Ready to be taken by its future.
    Ready { outcome: Result<u64, Fault>, timed_out: bool },
}

/// When time passes to the end of a pause or a deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Time {
    /// At any step.
    #[default]
    Free,
    /// At any step, to the end of a pause; no wait ends by its deadline, as if time stood still: a
    /// lost wake-up is then a wait without end.
    WithoutDeadlines,
    /// Only if nothing else can happen, and only after a death, a stop or a loss: before that, a
    /// waiter must be woken by a change of the word that it waits for.
    LastResort,
}

/// The number of posted operations of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Posted {
    /// Reads.
    pub reads: u32,
    /// Writes.
    pub writes: u32,
    /// Compare-swaps.
    pub compare_swaps: u32,
    /// Fetch-adds.
    pub fetch_adds: u32,
    /// Pauses and reads of the clock.
    pub waits: u32,
}

/// Powers of two in nanoseconds: pauses grow while nothing changes.
const LONGEST_PAUSE: u32 = 28;
/// Consecutive pauses and deadlines without a change, after which a waiter counts as stuck.
const ENDLESS: u32 = 48;
/// The same while a rank is stopped, with changes in between: others may put the word under
/// recovery again and again.
const OUTWAITED: u32 = 96;
/// The same for each rank while all are alive: a lock that looks at two words pauses twice.
pub(crate) const UNWOKEN: u32 = 4;
/// The same while a rank's end is not known: no lock waits for that without a bound.
const UNHEARD: u32 = 3;

/// More loads than a task has between two events.
const ENDLESS_LOADS: u32 = 100_000;

/// The memory of all ranks and everything that is in flight.
#[derive(Debug, Default)]
pub struct World {
    region_words: usize,
    /// The regions of all ranks, one after the other.
    pub words: Vec<u64>,
    pub(crate) versions: Vec<u32>,
    /// How often a write has notified the waiters for each word.
    notified: Vec<u32>,
    /// By handle: the version of each word that its last operation there saw.
    seen: Vec<BTreeMap<u32, u32>>,
    dead: Vec<bool>,
    /// The ended ranks that the others know of.
    announced_dead: Vec<bool>,
    deaths: u32,
    /// When time passes.
    pub time: Time,
    now: u64,
    /// Pauses and deadlines that have ended since a word changed or a rank died. Pauses grow with
    /// it, so that a lock that waits a second before it suspects readers can be built with short
    /// pauses.
    pub(crate) idle: u32,
    /// The stopped rank: it receives nothing, and its operations do not take effect.
    pub stopped: Option<Rank>,
    /// Pauses and deadlines that have ended since then.
    outwaited: u32,
    /// The origin and target of each lost operation or reply: their connection is lost.
    pub(crate) lost: Vec<(Rank, Rank)>,
    /// By number, in the order of posting.
    pub(crate) pending: BTreeMap<u32, Pending>,
    next: u32,
    /// Whether the next operation has a predecessor in its chain.
    chained: bool,
    /// The handle whose next operation is the first of an acquire.
    marks: Option<u16>,
    /// By rank: a digest of all results that its tasks received. Equal digests stand for equal
    /// states.
    histories: Vec<u64>,
    pub(crate) budget: Budget,
    /// Whether it only matters how the rank ends whose operation was lost.
    pub(crate) errors: bool,
    /// How many ranks share a host, if no operation within a host is lost.
    pub(crate) safe_within: Option<u32>,
    /// Whether a rank's memory is lost with it, before the others learn of its end.
    pub memory_goes: bool,
    /// Whether a rank that ends leaves in order.
    pub leaves: bool,
    /// See [`Setting::woken`].
    pub(crate) woken: bool,
    /// Whether the home's rank never crashes, because it serves the lock.
    home_lives: bool,
    /// Mutates operations on purpose.
    pub mutate: Option<fn(Op) -> Op>,
    pub(crate) names: Names,
    /// The number of posted operations of each kind.
    pub posted: Posted,
    /// The operations that took effect.
    pub trace: Trace,
    /// The rank whose acquire has arrived by the last event.
    last_arrival: Option<Rank>,
    /// A rank that has ended by itself and is to be reaped.
    dying: Vec<Rank>,
    /// Loads since the last event.
    loads: u32,
}

impl World {
    fn new(ranks: usize, region_words: usize) -> Self {
        let words = vec![0; ranks * region_words];
        Self {
            region_words,
            names: Names::of_words(region_words),
            versions: vec![0; words.len()],
            notified: vec![0; words.len()],
            words,
            seen: vec![BTreeMap::new(); ranks],
            dead: vec![false; ranks],
            announced_dead: vec![false; ranks],
            histories: vec![0; ranks],
            ..Self::default()
        }
    }

    /// Runs the first of the possible events: operations take effect and complete in the order of
    /// posting, and time passes only if nothing else can happen. `false` if there is none.
    pub fn step(&mut self) -> bool {
        let Some(event) = self.possible(&vec![true; self.dead.len()]).first().copied() else { return false };
        self.happen(event);
        true
    }

    pub(crate) fn ranks(&self) -> u32 {
        self.dead.len() as u32
    }

    /// The words of a rank's region.
    pub(crate) fn region(&self, rank: Rank) -> &[u64] {
        &self.words[rank.index() * self.region_words..][..self.region_words]
    }

    fn is_dead(&self, rank: Rank) -> bool {
        self.dead[rank.index()]
    }

    /// Whether the others know that it has ended.
    pub(crate) fn is_announced_dead(&self, rank: Rank) -> bool {
        self.announced_dead[rank.index()]
    }

    /// What the others know of a rank.
    pub(crate) fn liveness(&self, rank: Rank) -> Liveness {
        match self.announced_dead.get(rank.index()) {
            Some(false) => Liveness::Alive,
            Some(true) if !self.leaves => Liveness::Dead,
            _ => Liveness::Left,
        }
    }

    pub(crate) fn failed_rank(&self) -> Option<Rank> {
        (0..self.ranks()).map(Rank).find(|rank| self.liveness(*rank) == Liveness::Dead)
    }

    /// `NoSuchRegion` if a word is lost with its rank. The home's are kept: without them there is no
    /// lock.
    pub(crate) fn reach(&self, word: usize) -> Result<(), Fault> {
        let rank = Rank((word / self.region_words) as u32);
        let stays = rank == HOME || self.names.is_mapped(word);
        match self.memory_goes && !stays && self.is_dead(rank) {
            true => Err(Fault::of(FaultKind::NoSuchRegion, rank)),
            false => Ok(()),
        }
    }

    /// The rank whose operation was lost, if only that one matters.
    pub(crate) fn failed(&self) -> Option<Rank> {
        self.lost.first().filter(|_| self.errors).map(|(origin, _)| *origin)
    }

    /// Whether an operation of this rank is not yet in effect.
    pub(crate) fn travels_from(&self, rank: Rank) -> bool {
        self.pending.values().any(|pending| pending.origin == rank && matches!(pending.kind, Kind::Travels { .. }))
    }

    /// A rank's tasks received a result.
    pub(crate) fn told(&mut self, rank: Rank, what: impl Hash) {
        self.histories[rank.index()] = digest((self.histories[rank.index()], what));
    }

    /// A new handle, which has seen what this one has.
    pub(crate) fn view_of(&mut self, view: u16) -> u16 {
        let seen = self.seen[usize::from(view)].clone();
        self.seen.push(seen);
        (self.seen.len() - 1) as u16
    }

    fn add(&mut self, origin: Rank, view: u16, kind: Kind) -> u32 {
        self.next += 1;
        self.pending.insert(self.next, Pending { origin, view, kind, detached: false, marked: false });
        self.next
    }

    /// What is posted instead of this.
    pub(crate) fn planted(&self, origin: Rank, word: usize, action: Action, notify: Notify) -> (usize, Action, Notify) {
        let notify = if self.names.is_polled(word) { Notify::Yes } else { notify };
        let Some(mutate) = self.mutate else { return (word, action, notify) };
        let Op { place, action, notify, .. } = mutate(Op { origin, place: self.names.place(word), action, notify });
        (self.names.number(place), action, notify)
    }

    /// `view`: the handle that posts.
    pub(crate) fn post(&mut self, (origin, view): (Rank, u16), word: usize, (action, notify): (Action, Notify)) -> u32 {
        let chained = std::mem::take(&mut self.chained);
        let (word, action, notify) = self.planted(origin, word, action, notify);
        let posted = &mut self.posted;
        *match action {
            Action::Read => &mut posted.reads,
            Action::Write(_) => &mut posted.writes,
            Action::CompareSwap(..) => &mut posted.compare_swaps,
            Action::FetchAdd(_) => &mut posted.fetch_adds,
        } += 1;
        let marked = self.marks.take() == Some(view);
        let target = Rank(self.target(word as u32) as u32);
        let kind = match self.lost.contains(&(origin, target)) {
            true => {
                let outcome = Err(Fault::of(FaultKind::ConnectionLost, target));
                Kind::Returns { word: word as u32, outcome, version: 0 }
            }
            false => Kind::Travels { word: word as u32, action, notifies: notify == Notify::Yes, chained },
        };
        let number = self.add(origin, view, kind);
        self.pending.entry(number).and_modify(|pending| pending.marked = marked);
        number
    }

    /// A rank waits for a word, or goes on to do so by its wait of this number.
    pub(crate) fn wait(&mut self, (origin, view): (Rank, u16), word: usize, until: u64, before: Option<u32>) -> u32 {
        let (since, deaths) = (self.notified[word], Some(self.deaths));
        let kind = Kind::Waits { word: word as u32, since, deaths, until };
        let Some(number) = before else {
            self.trace.note(origin, Note::Waits(self.names.place(word), false));
            return self.add(origin, view, kind);
        };
        self.pending.insert(number, Pending { origin, view, kind, detached: false, marked: false });
        number
    }

    pub(crate) fn pause(&mut self, (origin, view): (Rank, u16), word: usize, nanos: u64) -> u32 {
        self.posted.waits += 1;
        self.trace.note(origin, Note::Waits(self.names.place(word), true));
        let (since, until) = (self.seen(view, word), self.now.saturating_add(nanos));
        self.add(origin, view, Kind::Waits { word: word as u32, since, deaths: None, until })
    }

    pub(crate) fn load(&mut self, (rank, view): (Rank, u16), word: usize) -> u64 {
        self.loads += 1;
        if self.loads > ENDLESS_LOADS {
            let place = self.names.place(word);
            panic_any(Violation(format!("waits without end: it loads {place} in a loop that never waits")));
        }
        self.sees(view, word);
        let value = self.words[word];
        self.told(rank, (word, value));
        value
    }

    /// A handle sees the version that a word has now.
    pub(crate) fn sees(&mut self, view: u16, word: usize) {
        self.seen[usize::from(view)].insert(word as u32, self.versions[word]);
    }

    /// The version of a word that a handle saw last.
    pub(crate) fn seen(&self, view: u16, word: usize) -> u32 {
        self.seen[usize::from(view)].get(&(word as u32)).copied().unwrap_or(0)
    }

    pub(crate) fn store(&mut self, (rank, view): (Rank, u16), word: usize, value: u64) {
        let (word, action, _) = self.planted(rank, word, Action::Write(value), Notify::No);
        self.set(word, action.applied_to(self.words[word]));
        if let Action::Write(value) = action {
            self.trace.note(rank, Note::Stores(self.names.place(word), value));
        }
        self.sees(view, word);
    }

    fn set(&mut self, word: usize, value: u64) {
        if self.words[word] != value {
            self.words[word] = value;
            self.versions[word] += 1;
            self.idle = 0;
        }
    }

    /// How many waits and pauses go on.
    pub(crate) fn waiting(&self) -> usize {
        self.pending.values().filter(|pending| self.is_blocked(pending)).count()
    }

    fn is_blocked(&self, pending: &Pending) -> bool {
        matches!(pending.kind, Kind::Waits { .. }) && !self.goes_on(pending.kind)
    }

    /// Whether a wait or a pause has ended. It is forgotten then.
    pub(crate) fn ends(&mut self, number: u32) -> bool {
        let ended = self.pending.get(&number).is_none_or(|pending| !self.is_blocked(pending));
        if ended {
            self.pending.remove(&number);
        }
        ended
    }

    pub(crate) fn end_pauses(&mut self) {
        for pending in self.pending.values_mut().filter(|pending| pending.is_pause()) {
            pending.kind = Kind::Ready { outcome: Ok(0), timed_out: true };
        }
    }

    /// The outcome that a future awaits, once. `true`: its time was over.
    pub(crate) fn take(&mut self, number: u32) -> Option<(Result<u64, Fault>, bool)> {
        let Some(Pending { kind: Kind::Ready { outcome, timed_out }, .. }) = self.pending.get(&number) else {
            return None;
        };
        let taken = (*outcome, *timed_out);
        self.pending.remove(&number);
        Some(taken)
    }

    /// It is detached.
    pub(crate) fn detach(&mut self, number: u32) {
        let Some(pending) = self.pending.get_mut(&number) else { return };
        match pending.kind {
            Kind::Travels { .. } => pending.detached = true,
            _ => drop(self.pending.remove(&number)),
        }
    }

    fn target(&self, word: u32) -> usize {
        word as usize / self.region_words
    }

    /// Operations of one origin at one target take effect in the order of posting, except that
    /// outside of chains a write may overtake reads and atomics, and a read may overtake writes to
    /// other words.
    fn may_take_effect(&self, number: u32, pending: &Pending) -> bool {
        let Kind::Travels { word, action, chained, .. } = pending.kind else { return false };
        if self.stopped == Some(pending.origin) {
            return false;
        }
        self.pending.range(..number).all(|(_, earlier)| match earlier.kind {
            Kind::Travels { word: to, action: before, .. } => {
                let same_way = earlier.origin == pending.origin && self.target(to) == self.target(word);
                let overtakes = match (action, before) {
                    (Action::Write(_), Action::Write(_)) => false,
                    (Action::Write(_), _) => to != word,
                    (Action::Read, Action::Write(_)) => to != word,
                    _ => false,
                };
                !same_way || overtakes && !chained
            }
            _ => true,
        })
    }

    /// Completions of one origin's operations at one target come in the order of posting.
    fn may_return(&self, number: u32, pending: &Pending) -> bool {
        let Kind::Returns { word, .. } = pending.kind else { return false };
        self.pending.range(..number).all(|(_, earlier)| match earlier.kind {
            Kind::Travels { word: to, .. } | Kind::Returns { word: to, .. } => {
                earlier.origin != pending.origin || earlier.detached || self.target(to) != self.target(word)
            }
            _ => true,
        })
    }

    /// Runs an event. Returns the rank whose tasks are to be polled.
    pub(crate) fn happen(&mut self, event: Event) -> Option<Rank> {
        (self.last_arrival, self.loads) = (None, 0);
        match event {
            Event::Effect(number) => self.take_effect(number, None),
            Event::LoseReply(number) => {
                self.lose(number, Note::LosesReply);
                self.take_effect(number, Some(Fault::new(FaultKind::Unknown)));
            }
            Event::LoseOperation(number) => {
                self.lose(number, Note::LosesOperation);
                let pending = self.pending.get_mut(&number)?;
                let Kind::Travels { word, .. } = pending.kind else { return None };
                let outcome = Err(Fault::new(FaultKind::Unknown));
                pending.kind = Kind::Returns { word, outcome, version: 0 };
            }
            Event::Wake(number) => return self.wake(number, false),
            Event::Time(number) => {
                if let Kind::Waits { until, .. } = self.pending.get(&number)?.kind {
                    self.now = self.now.max(until) + (1 << self.idle.min(LONGEST_PAUSE)) - 1;
                }
                self.idle += 1;
                self.outwaited += 1;
                return self.wake(number, true);
            }
            Event::Crash(rank) => {
                self.budget.crashes = self.budget.crashes.saturating_sub(1);
                self.kill(rank);
            }
            Event::News(rank) => self.announce_death(rank),
            Event::Stop(rank) => {
                self.budget.stops -= 1;
                self.trace.note(rank, Note::Stops);
                self.stopped = Some(rank);
                self.outwaited = 0;
            }
            Event::Continue => {
                if let Some(rank) = self.stopped.take() {
                    self.trace.note(rank, Note::GoesOn);
                }
                self.idle = 0;
            }
        }
        None
    }

    fn lose(&mut self, number: u32, note: Note) {
        self.budget.lost -= 1;
        if let Some(Pending { origin, kind: Kind::Travels { word, .. }, .. }) = self.pending.get(&number) {
            self.trace.note(*origin, note);
            self.lost.push((*origin, Rank(self.target(*word) as u32)));
        }
    }

    fn take_effect(&mut self, number: u32, lost: Option<Fault>) {
        let Some(pending) = self.pending.get(&number).copied() else { return };
        let Kind::Travels { word, action, notifies, .. } = pending.kind else { return };
        let (index, origin) = (word as usize, pending.origin);
        let (outcome, version) = match self.reach(index) {
            Err(gone) => (Err(gone), 0),
            Ok(()) => {
                if pending.marked {
                    self.last_arrival = Some(origin);
                }
                (Ok(self.changes(origin, index, action, notifies, None)), self.versions[index])
            }
        };
        if pending.detached {
            self.pending.remove(&number);
        } else {
            let outcome = lost.map_or(outcome, Err);
            self.pending.insert(number, Pending { kind: Kind::Returns { word, outcome, version }, ..pending });
        }
    }

    /// An action changes its word. Returns the output of the operation. `read`: the value that a
    /// card's atomic read before, if it did.
    pub(crate) fn changes(
        &mut self,
        origin: Rank,
        index: usize,
        action: Action,
        notifies: bool,
        read: Option<u64>,
    ) -> u64 {
        let (found, target) = (self.words[index], Rank(self.target(index as u32) as u32));
        let (word, place, returned) = (index % self.region_words, self.names.place(index), read.unwrap_or(found));
        self.trace.push(Effect { origin, target, word, place, action, found, returned });
        self.set(index, action.applied_to(returned));
        self.notified[index] += u32::from(notifies);
        action.answer(returned)
    }

    fn wake(&mut self, number: u32, timed_out: bool) -> Option<Rank> {
        let pending = self.pending.get_mut(&number)?;
        let (origin, view) = (pending.origin, pending.view);
        let (outcome, seen) = match pending.kind {
            Kind::Returns { word, outcome, version } => (outcome, outcome.ok().map(|_| (word, version))),
            _ => (Ok(0), None),
        };
        pending.kind = Kind::Ready { outcome, timed_out };
        if let Some((word, version)) = seen {
            self.seen[usize::from(view)].insert(word, version);
        }
        self.told(origin, (view, outcome, timed_out));
        Some(origin)
    }

    /// Ends a rank: its operations in flight never take effect.
    pub fn kill(&mut self, rank: Rank) {
        self.dead[rank.index()] = true;
        self.trace.note(rank, Note::Ends);
        self.idle = 0;
        if !self.memory_goes {
            self.announce_death(rank);
        }
        if self.stopped == Some(rank) {
            self.stopped = None;
        }
        self.pending.retain(|_, pending| pending.origin != rank);
    }

    /// The others learn that it has ended.
    fn announce_death(&mut self, rank: Rank) {
        self.announced_dead[rank.index()] = true;
        if self.memory_goes {
            self.trace.note(rank, Note::IsKnown);
        }
        self.deaths += 1;
        self.idle = 0;
    }
}
