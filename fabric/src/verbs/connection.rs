//! A connection of two ranks, as one of them sees it: how far it is, and what the two say to each other.
//!
//! ```text
//!               asks                     the peer has connected its queue pair
//!   Absent ───────────────► Asked ─────────────────────────────► Ready ◄──────┐
//!    ▲  ▲                     │                                    │          │
//!    │  │ enough messages     │ too many,                          │ wishes   │ the peer keeps it
//!    │  │ count               ▼ here or there                      ▼          │
//!    │  └───────────────── Refused                               Giving ──────┘
//!    │                                                             │
//!    └─────────────────────────────────────────────────────────────┘
//!        it has ended: given back, refused, or broken and nothing of it in flight; one generation more
//! ```
//!
//! A connection that breaks keeps its phase until it [ends](Connection::end), but nothing is posted any more. What
//! connects two ranks is a hello from each, which names its queue pair: [`take`] has the table of the
//! [connector](super::connector), over an [`End`], so that what runs on cards is explored over a model of two ranks
//! whose hellos are lost and overtake each other.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ibverbs_sys::ibv_wc_status;
use onesided_job::lock;
use onesided_remote_memory::entries;

use crate::verbs::hello::Hello;

/// The status of a request on a connection that one side has revoked; the library's own are small.
const REVOKED: u32 = 258;

entries! {
    /// How far it is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub(super) enum Phase {
        /// This rank has not asked for it.
        Absent,
        Asked,
        /// There is to be none for now: one of the two has [too many](super::Inner::is_limited).
        Refused,
        /// The peer has connected its queue pair as well: requests may be posted.
        Ready,
        /// This rank [gives it back](super::giving).
        Giving,
    }
    const ALL;
}

/// The numbers of this rank's queue pair, and of the peer's that it is connected to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Pairs {
    pub(super) own: Option<u32>,
    pub(super) theirs: Option<u32>,
}

/// See [above](self).
#[derive(Debug, Default)]
pub(super) struct Connection {
    /// A [`Phase`].
    phase: AtomicU32,
    /// The status that broke it; 0 while it works. And when a wait first found it broken; 0 before.
    broken: AtomicU32,
    noticed: AtomicU64,
    /// Tells the connections that the two had one after the other: the high half counts those that
    /// broke, the low half those that were given back or refused since. And what the peer says: of
    /// a rail always, of another connection if it is ahead.
    generation: AtomicU64,
    heard: AtomicU64,
    /// The number of this rank's last wish to give it back, and the peer's that it has not agreed to.
    wish: AtomicU32,
    kept: AtomicU32,
    /// Held while the connection is made, fails or ends.
    pub(super) pairs: Mutex<Pairs>,
}

/// The first generation after a break.
const fn after_break(generation: u64) -> u64 {
    ((generation >> 32) + 1) << 32
}

/// Whether a later generation comes after a break.
pub(super) const fn is_after_break(generation: u64, earlier: u64) -> bool {
    generation >> 32 > earlier >> 32
}

impl Connection {
    #[inline]
    pub(super) fn phase(&self) -> Phase {
        Phase::ALL[self.phase.load(Ordering::Acquire) as usize % Phase::ALL.len()]
    }

    fn change(&self, phase: Phase) {
        self.phase.store(phase as u32, Ordering::Release);
    }

    fn change_from(&self, from: Phase, to: Phase) -> bool {
        self.phase.compare_exchange(from as u32, to as u32, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whether requests may be posted.
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        self.phase.load(Ordering::Acquire) == Phase::Ready as u32
    }

    fn is_giving(&self) -> bool {
        self.phase() == Phase::Giving
    }

    /// Whether both queue pairs are connected, and work.
    pub(super) fn is_connected(&self) -> bool {
        (self.is_ready() || lock(&self.pairs).theirs.is_some()) && !self.is_broken()
    }

    /// Tells it from earlier ones.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// How many broke before this one.
    pub(super) fn breaks(&self) -> u32 {
        (self.generation() >> 32) as u32
    }

    /// The peer has ended all before this one.
    pub(super) fn hear(&self, generation: u64) {
        self.heard.fetch_max(generation, Ordering::AcqRel);
    }

    /// Before which one the peer is known to have ended all.
    pub(super) fn heard(&self) -> u64 {
        self.heard.load(Ordering::Acquire)
    }

    /// Whether the connector is to ask for it now.
    pub(super) fn ask(&self) -> bool {
        self.change_from(Phase::Absent, Phase::Asked)
    }

    /// It may be asked for again.
    pub(super) fn forget_refusal(&self) {
        self.change_from(Phase::Refused, Phase::Absent);
    }

    /// Requests may be posted, if they may not yet: whether this rank had asked for it.
    pub(super) fn become_ready(&self) -> Option<bool> {
        match self.phase() {
            Phase::Ready | Phase::Giving => None,
            _ => Some(self.phase.swap(Phase::Ready as u32, Ordering::AcqRel) == Phase::Asked as u32),
        }
    }

    /// Nothing is posted any more, if nothing is in flight: `hold` keeps it so. A rank that `is_asked` and may not post
    /// yet agrees.
    pub(super) fn begin_to_give<G>(&self, is_asked: bool, hold: impl FnOnce() -> Option<G>) -> bool {
        let pairs = lock(&self.pairs); // nothing makes it ready meanwhile
        let held = hold();
        let is_made = self.is_ready() || is_asked && pairs.theirs.is_some() && !self.is_giving();
        let may = held.is_some() && is_made && !self.is_broken();
        if may {
            let last = self.wish.load(Ordering::Relaxed).wrapping_add(1).max(1);
            self.wish.store(last, Ordering::Relaxed);
            self.change(Phase::Giving);
        }
        may
    }

    /// The number of this rank's wish to give it back, if it does.
    pub(super) fn gives(&self) -> Option<u32> {
        self.is_giving().then(|| self.wish.load(Ordering::Relaxed))
    }

    /// The peer keeps it.
    fn keep(&self) {
        let _pairs = lock(&self.pairs);
        self.change_from(Phase::Giving, Phase::Ready);
    }

    /// It ends: the next one is of another generation. Held: [`pairs`](Self::pairs).
    pub(super) fn end(&self, pairs: &mut Pairs) {
        *pairs = Pairs::default();
        self.change(Phase::Absent);
        self.noticed.store(0, Ordering::Relaxed);
        let generation = self.generation();
        let next = if self.is_broken() { after_break(generation) } else { generation + 1 };
        self.generation.store(next.max(self.heard()), Ordering::Release);
        self.broken.store(0, Ordering::Release);
    }

    /// The status that broke it, or 0.
    #[inline]
    pub(super) fn broken(&self) -> u32 {
        self.broken.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn is_broken(&self) -> bool {
        self.broken() != 0
    }

    /// Whether it is broken because one side has revoked the other's access.
    pub(super) fn is_closed(&self) -> bool {
        self.broken() == REVOKED
    }

    /// It breaks, unless it is broken: whether it did.
    pub(super) fn break_by(&self, status: u32) -> bool {
        self.broken.compare_exchange(0, status, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// This rank gives it up.
    pub(super) fn give_up(&self, revoked: bool) -> bool {
        self.break_by(if revoked { REVOKED } else { ibv_wc_status::IBV_WC_WR_FLUSH_ERR })
    }

    /// Gives it up if it is of an earlier generation than the peer's. Another thread may have ended it, and this one is
    /// a later one.
    pub(super) fn give_up_before(&self, generation: u64) {
        let pairs = lock(&self.pairs); // it does not end meanwhile
        if is_after_break(generation, self.generation()) {
            self.give_up(false);
        }
        drop(pairs);
    }

    /// When a wait first found it broken.
    pub(super) fn noticed_broken(&self, now: u64) -> u64 {
        self.noticed.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed).map_or_else(|since| since, |_| now)
    }

    /// As if a wait had found it broken now for the first time.
    pub(super) fn notice_again(&self, now: u64) {
        self.noticed.store(now, Ordering::Relaxed);
    }
}

/// A rank's end of a connection: what it depends on, and what it does.
pub(super) trait End {
    fn connection(&self) -> &Connection;
    /// Whether the job counts the peer as alive.
    fn is_alive(&self) -> bool;
    /// Whether one of the two has revoked the other's access.
    fn is_revoked(&self) -> bool;
    /// Whether a rank has a limit of such connections.
    fn is_limited(&self) -> bool;
    /// Whether it belongs to the same connection of messages for both, if it is a rail.
    fn is_of_one(&self, hello: &Hello) -> bool;
    /// Whether the peer may ask for one whose queue pair its card could not connect.
    fn may_lack_a_pair(&self) -> bool;
    /// The number of this rank's queue pair, made if there may be one.
    fn pair(&self, pairs: &mut Pairs) -> Option<u32>;
    /// Connects it to the peer's.
    fn connect(&self, hello: &Hello) -> bool;
    /// [Ends](Connection::end) the connection and its queue pair, if nothing is in flight.
    fn end(&self);
    /// Counts one that was refused, or made.
    fn count_refusal(&self);
    fn count_made(&self);
    /// It is gone: the peer's requests find nothing.
    fn fail(&self);
    /// Whether there will be another one of that generation, because this one broke.
    fn begins_anew(&self, generation: u64) -> bool;
    /// Whether it is little used, so that it may be given back.
    fn may_spare(&self) -> bool;
    /// [`Connection::begin_to_give`], as the peer wishes.
    fn agree(&self) -> bool;
    /// Ends a connection on which neither side posts anything.
    fn give_back(&self);
    /// Asks for it, if this rank does not yet.
    fn want(&self);
    /// Wakes who waits for it.
    fn ring(&self);
}

/// What a rank says that asks for a connection. `None`: it asks no more.
pub(super) fn ask(end: &impl End) -> Option<Hello> {
    let connection = end.connection();
    let is_over = connection.is_ready() || connection.phase() == Phase::Refused || connection.is_broken();
    if is_over || !end.is_alive() {
        end.ring(); // the waiting threads look again
        return None;
    }
    let (pair, knows, generation) = {
        let mut pairs = lock(&connection.pairs);
        (end.pair(&mut pairs), pairs.theirs.is_some(), connection.generation())
    };
    match pair {
        Some(queue_pair) => Some(Hello { generation, queue_pair, asks: true, knows, ..Hello::default() }),
        None if end.is_limited() => {
            refuse(end);
            None
        }
        None => {
            end.fail();
            end.ring();
            None
        }
    }
}

/// There is to be no such connection for now. The next one is of another generation: of each, either
/// both ranks have a queue pair, or one of them never has.
fn refuse(end: &impl End) {
    end.count_refusal();
    end.end();
    end.connection().change(Phase::Refused);
    end.ring(); // who waits for it
}

/// Takes in what the peer says of a connection, and answers.
pub(super) fn take(end: &impl End, hello: &Hello) -> Option<Hello> {
    let connection = end.connection();
    let mine = Hello { generation: hello.generation, ..Hello::default() };
    let may_be_refused = end.is_limited() && !connection.is_ready() && !connection.is_broken();
    if hello.full {
        if may_be_refused && hello.generation == connection.generation() {
            refuse(end);
        }
        return None;
    }
    if hello.gives > 0 {
        return take_wish(end, hello, mine);
    }
    // It has refused the one that this rank may have asked for, and asks for a later one itself.
    let generation = connection.generation();
    let is_ahead = hello.generation > generation && !is_after_break(hello.generation, generation);
    if may_be_refused && hello.asks && is_ahead && !connection.is_giving() {
        connection.hear(hello.generation);
        end.end();
    }
    // It has agreed, and asks for the next one.
    if connection.is_giving() && hello.generation == connection.generation() + 1 {
        end.give_back();
    }
    if !end.is_of_one(hello) {
        return None;
    }
    if let Some((queue_pair, became_ready)) = settle(end, hello) {
        if became_ready.is_some() {
            end.count_made();
            end.ring();
        }
        if end.is_limited() {
            end.want(); // packets take it at both ends once it is there
        }
        // A peer that has answered would ask before it sends.
        let is_to_know = hello.asks || became_ready == Some(true);
        return is_to_know.then_some(Hello { queue_pair, knows: true, ..mine });
    }
    let generation = connection.generation();
    Some(match hello.asks {
        _ if connection.is_closed() || end.is_revoked() => Hello { refuses: true, ..mine },
        asks if end.begins_anew(hello.generation) && asks => Hello { waits: true, ..mine },
        false => return None,
        // It has not noticed that the connection broke.
        true if is_after_break(generation, hello.generation) => Hello { generation, ..mine },
        // It has not heard that this rank refused.
        true if end.is_limited() && hello.generation < generation => Hello { full: true, ..mine },
        true if end.is_limited() && !connection.is_broken() && lock(&connection.pairs).own.is_none() => {
            refuse(end);
            Hello { full: true, ..mine }
        }
        // Its card cannot connect it. That it has ended the one before counts.
        true if end.may_lack_a_pair() && hello.generation == generation => mine,
        true => return None,
    })
}

/// Connects this rank's queue pair to the peer's. Its number; and if requests may be posted from now on, whether this
/// rank had asked for that.
fn settle(end: &impl End, hello: &Hello) -> Option<(u32, Option<bool>)> {
    let connection = end.connection();
    let mut pairs = lock(&connection.pairs);
    // One that only says that a connection broke names no queue pair, and may come late.
    let is_of_it = connection.generation() == hello.generation && hello.queue_pair != 0;
    if !is_of_it || connection.is_broken() || !end.is_alive() {
        return None;
    }
    let own = end.pair(&mut pairs)?;
    match pairs.theirs {
        Some(earlier) if earlier != hello.queue_pair => return None,
        Some(_) => {}
        None if end.connect(hello) => pairs.theirs = Some(hello.queue_pair),
        None => return None,
    }
    Some((own, if hello.knows { connection.become_ready() } else { None }))
}

/// Takes in a wish to give a connection back, or its answer.
fn take_wish(end: &impl End, hello: &Hello, mine: Hello) -> Option<Hello> {
    let connection = end.connection();
    let generation = connection.generation();
    let is_of_it = hello.generation == generation;
    if hello.keeps || hello.given {
        if is_of_it && connection.gives() == Some(hello.gives) {
            if hello.given {
                end.give_back()
            } else {
                connection.keep()
            }
            end.ring();
        }
        return None;
    }
    let mine = Hello { gives: hello.gives, ..mine };
    Some(match hello.generation < generation {
        true if is_after_break(generation, hello.generation) => Hello { generation, gives: 0, ..mine },
        true => Hello { given: true, ..mine },
        false if is_of_it && agrees(end, hello.gives) => Hello { given: true, ..mine },
        false if is_of_it => Hello { keeps: true, ..mine },
        false => return None,
    })
}

/// Whether this rank gives back a connection as its peer wishes, which it decides once; if so, it has.
fn agrees(end: &impl End, wish: u32) -> bool {
    let connection = end.connection();
    // Nor to an earlier wish that comes late: the peer may have gone on.
    if wish.wrapping_sub(connection.kept.load(Ordering::Relaxed)) as i32 <= 0 {
        return false;
    }
    if !end.may_spare() || !(connection.is_giving() || end.agree()) {
        connection.kept.store(wish, Ordering::Relaxed);
        return false;
    }
    end.give_back();
    end.ring();
    true
}

#[cfg(test)]
mod tests;
