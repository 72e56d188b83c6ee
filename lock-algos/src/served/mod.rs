//! The locks that a thread at the target serves.
//!
//! # How it works
//!
//! A task at the lock's home, the *server* ([`LockAlgorithm::serve`]), knows who holds the lock and who waits: owners ask it by writing a
//! word to the home, and it answers by writing one to the owner's node. Nobody else decides anything, so shared and
//! exclusive mode, order, death and withdrawal are plain code over a queue (`desk`), without a race in it. What is
//! concurrent is only how words come to the server and go from it:
//!
//! - **Lines.** Each rank has some lines at the home, a word each. One owner uses a line, from its acquire to its release, so
//!   no word is written by two at a time, and none has to be read before it is written. Whatever a line said before is over
//!   when it says something else: so a release need not be waited for, even by the next user of the line. How many lines
//!   there are, where, and which are in use, is the [place's](LockContext::request_slot_of) matter.
//! - **The bell.** The server can only wait for one word ([`RemoteMemory::wait_until`]), so whoever has written to a line
//!   writes to the bell behind it, which line it was. The server looks at that line at once, whatever the number of ranks.
//!   Two who ring at the same time overwrite one another: so after each ring the server looks at all lines, a few at a time
//!   and the one that rang last first, before it waits again. It reads the bell *before* it looks at the lines: a word that
//!   comes behind that look changes the bell, and the wait ends at once. Waiting on a bell that was read *after* the look is
//!   the race of a shared event that is set again without a look at what it counts (Yu et al., *Open MPI over Elan4*,
//!   2004, figure 5).
//! - **The side door.** Who has no node cannot be answered there. It asks by a compare-swap of one more word at the home,
//!   one at a time, and polls for the answer beside it. A reader who has the lock adds itself to a count there and goes on,
//!   so that the next one can stand at the door.
//!
//! An acquire is a write to the line and one to the bell, posted together, and one write that answers; a release is a write
//! to the line and one to the bell, that nobody waits for. That is the same however many ask.
//!
//! # How the server waits
//!
//! The server is a task, so whoever runs it decides. The *dedicated* thread polls: owners need only write
//! ([`Notify::No`](onesided_remote_memory::Notify::No)). The *event-driven* thread sleeps: owners ring with
//! [`Notify::Yes`](onesided_remote_memory::Notify::Yes), which over shared memory wakes the futex of the home's doorbell if somebody
//! sleeps there, and on verbs is a write with immediate data. That consumes a receive which the home has posted before and
//! raises the solicited event for which its completion queue is armed; whoever takes the completion in posts the receive
//! again, and the driver looks at the queue once more after it has armed, before it sleeps: the paper's "before the thread
//! is blocked again, another receive operation is posted".
//!
//! # Death
//!
//! The server knows who holds: a dead owner is named (`OwnerDied`), and a dead reader, too (`ParticipantDied`, because others
//! read with it). Its last word counts, since a rank is called dead when all it did has taken effect. From then on the lock
//! is poisoned until somebody recovers it; the dead who wait are passed over. When the home dies, everybody who waits gets
//! `PeerDied`, and when its server ends, `Closed`.

mod desk;
mod door;
mod messages;
mod origin;
mod server;

use onesided_remote_memory::{Fault, FaultKind, RemoteMemory};

use self::messages::{Door, Terms, Verb};
use self::origin::Errand;
use crate::backoff::Pauses;
use crate::recovery::{self, COUNTS};
use crate::settle;
use crate::{Backoff, Held, IntentFn, LockAlgorithm, LockContext, Mode};

// Words at the home, all 0 at first.
/// Written by the server when it ends: [`ENDED`], and how many hold the lock or wait then.
const STATE: usize = 0;
/// Written by everybody: see [`messages::ring`].
const BELL: usize = 1;
/// See [`messages::Door`].
const DOOR: usize = 2;
/// The server's [`Answer`] to who stands at the door.
const DOOR_ANSWER: usize = 3;
/// How many read who stood at the door, in the low 32 bits: changed by fetch-adds of [`COMES`] and [`GOES`].
const CROWD: usize = 4;

// Words of a node, beside `COUNTS`, which names the lock that its owner asked for.
/// The server's [`Answer`].
const ANSWER: usize = COUNTS + 1;
/// This owner's own note: turn 32 bits | nothing | [`HELD`] | which line, counted from 1, or 0, 16 bits.
const TURN: usize = COUNTS + 2;

/// In an owner's note: it has seen that it holds the lock. What comes to the node after that is of no account.
const HELD: u64 = 1 << 16;

const ENDED: u64 = 1 << 63;

/// What a reader adds to the crowd that comes: no two who come leave the same word.
const COMES: u64 = 1 << 32 | 1;
/// What one adds that goes.
const GOES: u64 = 1_u64.wrapping_neg();

/// How many there are in a crowd.
const fn in_crowd(word: u64) -> u64 {
    word & u32::MAX as u64
}

/// Marks the words of an acquire that is only tried.
const TRIES: u64 = 1 << 62;

/// How often who waits looks whether there is still a server, in nanoseconds.
const LOOK: u64 = 100_000_000;

/// A lock that a thread at the target serves: jiang-2004, section 4. [`DedicatedThread`] and [`EventThread`] differ in how that
/// thread waits, and in whether owners have to wake it.
///
/// Whoever has the lock's home runs [`serve`](LockAlgorithm::serve) there; the lock's words mean nothing without it.
///
/// Owners follow one another in the order in which the server hears them (of those who ring between two of its looks the last
/// one is heard first, whenever the others have asked); readers who follow one another read together, and
/// none overtakes a writer who waits. An acquire that is given up is taken back at once, wherever it is in the queue.
///
/// # Operations of which nobody knows
///
/// Every word is written by one owner or the server alone, so what is not answered is written again: a request every 100 ms for
/// as long as it waits, an answer until it is known to have come, and when it is asked for again: a node serves locks of several
/// homes, of which one may be late. A request that has come already is not heard twice. The door's word
/// names who stands there. The crowd is a count: one that nobody is in for a second is taken away. A release is said again if the line
/// says still what it said before; one that nobody waits for is not settled, and is over when the line is used again.
///
/// # Without a node or a line
///
/// An owner without a node stands at the side door: one at a time, and whoever comes meanwhile asks again with backoff. A
/// reader goes in and is counted there, and is suspected as in the other locks when some rank has died and nobody has come out
/// for a second since; where the place has no nodes at all, it stays at the door. A rank's owners that find no [line](LockContext::take_request_slot) of it free wait for one. So a thread that holds as many
/// shared locks of one target as its rank has lines, and asks for another one, waits for ever.
#[derive(Clone, Copy, Debug, Default)]
pub struct Served<const SLEEPS: bool> {
    backoff: Backoff,
}

/// The lock of jiang-2004, section 4.1: the thread at the target polls. The cheapest of the two for who asks, and a core of the
/// target's host is spent.
pub type DedicatedThread = Served<false>;

/// The lock of jiang-2004, section 4.2: the thread at the target sleeps until somebody asks.
pub type EventThread = Served<true>;

impl<const SLEEPS: bool> Served<SLEEPS> {
    /// A lock whose owners pause by this table where they have to ask again: at the side door, and for a line.
    #[must_use]
    pub const fn new(backoff: Backoff) -> Self {
        Self { backoff }
    }
}

impl<const SLEEPS: bool> LockAlgorithm for Served<SLEEPS> {
    const NAME: &'static str = if SLEEPS { "event-thread" } else { "dedicated-thread" };
    const HOME_WORDS: usize = CROWD + 1;
    const NODE_WORDS: usize = TURN + 1;
    const SERVED: bool = true;

    /// The home's first word, and the owner's bits, with a bit above them for one that only tries.
    type Words<'m, M: RemoteMemory> = (M::Word<'m>, u64);

    /// While the server runs, who holds the lock is known to it alone.
    fn is_free(home: &[u64]) -> bool {
        let word = |index| home.get(index).copied().unwrap_or(0);
        word(STATE) & !ENDED == 0 && Door(word(DOOR)).is_free() && in_crowd(word(CROWD)) == 0
    }

    #[inline]
    fn uses_node(&self, _mode: Mode) -> bool {
        true
    }

    #[inline]
    fn words<'m, M: RemoteMemory>(&self, place: impl LockContext<'m, M>) -> Result<Self::Words<'m, M>, Fault> {
        Ok((place.home(STATE)?, place.owner().to_bits()))
    }

    fn words_to_try<'m, M: RemoteMemory>(&self, place: impl LockContext<'m, M>) -> Result<Self::Words<'m, M>, Fault> {
        Ok((place.home(STATE)?, place.owner().to_bits() | TRIES))
    }

    fn start<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        place: impl LockContext<'m, M>,
        (state, owner): Self::Words<'m, M>,
        mode: Mode,
    ) -> Result<M::Op, Fault> {
        let terms = Terms { at_once: owner & TRIES != 0, recovers: false };
        recovery::count(memory, place)?;
        if !place.has_node() {
            let taken = Door(0).taken(place.owner(), mode, terms);
            return Ok(memory.compare_swap(place.home(DOOR)?, 0, taken.0));
        }
        let errand = Errand { memory, place, sleeps: SLEEPS };
        match place.take_request_slot() {
            Some(line) => errand.ask(line, Verb::Acquire(mode, terms)),
            None => {
                errand.note(None)?;
                Ok(memory.read(state))
            }
        }
    }

    #[inline]
    fn holds<M: RemoteMemory>(&self, _words: Self::Words<'_, M>, _mode: Mode, _first: u64) -> bool {
        false
    }

    async fn contend<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        place: P,
        (state, owner): Self::Words<'m, M>,
        mode: Mode,
        first: Result<u64, Fault>,
        wish: IntentFn<'_>,
    ) -> Result<Held, Fault> {
        let errand = Errand { memory, place, sleeps: SLEEPS };
        let terms = Terms { at_once: owner & TRIES != 0, recovers: false };
        let pauses: Pauses<'_> = self.backoff.pauses(place.owner());
        if place.has_node() {
            errand.wait_in_line(state, (mode, terms), (first, pauses), wish).await
        } else {
            errand.wait_at_the_door(state, (mode, terms), (first, pauses), wish).await
        }
    }

    #[inline]
    fn releases_in_one_step<'m, M: RemoteMemory>(&self, place: impl LockContext<'m, M>, _mode: Mode) -> bool {
        place.has_node()
    }

    fn start_release<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        place: impl LockContext<'m, M>,
        _words: Self::Words<'m, M>,
        mode: Mode,
    ) -> Result<M::Op, Fault> {
        match mode {
            _ if place.has_node() => {}
            Mode::Shared if place.slots() > 0 => return Ok(memory.fetch_add(place.home(CROWD)?, GOES)),
            _ => return Ok(memory.read(place.home(DOOR)?)),
        }
        let errand = Errand { memory, place, sleeps: SLEEPS };
        let (turn, line) = errand.noted()?;
        let holds = recovery::counts(memory, place)? && memory.load(place.node(TURN)?)? & HELD != 0;
        match line.filter(|_| holds) {
            Some(line) => {
                let released = errand.say(line, turn, Verb::Release);
                errand.leave(Some(line))?; // nothing is written to the node any more
                released
            }
            None => Err(Fault::new(FaultKind::NotHeld)),
        }
    }

    async fn finish_release<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        place: P,
        _words: Self::Words<'m, M>,
        mode: Mode,
        started: impl Future<Output = Result<u64, Fault>> + Send + 'm,
    ) -> Result<(), Fault> {
        let found = started.await;
        let errand = Errand { memory, place, sleeps: SLEEPS };
        if place.has_node() {
            return match found {
                Err(fault) if fault.is_unknown() => errand.release_again().await,
                found => found.map(drop),
            };
        }
        let released = match mode {
            Mode::Shared if place.slots() > 0 => {
                let left = errand.left_the_crowd(found).await;
                recovery::discount(memory, place)?;
                left?
            }
            _ => {
                let door = match found {
                    Err(fault) if fault.is_unknown() => settle::read(memory, place.home(DOOR)?).await.map(Door)?,
                    found => Door(found?),
                };
                !door.is_free() && door.rank() == place.owner().rank && errand.step_aside(door).await?
            }
        };
        if released { Ok(()) } else { Err(Fault::new(FaultKind::NotHeld)) }
    }

    /// As an acquire that is not wanted any more: the server knows what it has granted.
    async fn release_poisoned<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        place: P,
        (state, _): Self::Words<'m, M>,
        _held: Held,
    ) -> Result<(), Fault> {
        let errand = Errand { memory, place, sleeps: SLEEPS };
        if !place.has_node() {
            return match errand.withdraw_at_the_door(state).await? {
                true => Ok(()),
                false => Err(Fault::new(FaultKind::NotHeld)),
            };
        }
        let (turn, line) = errand.noted()?;
        let Some(line) = line else { return Err(Fault::new(FaultKind::NotHeld)) };
        let withdrawn = errand.withdraw(state, (turn, line)).await;
        errand.leave(Some(line))?;
        withdrawn
    }

    fn serve<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        place: P,
        is_open: impl Fn() -> bool + Send + Sync + 'm,
    ) -> impl Future<Output = Result<(), Fault>> + Send + 'm {
        server::serve(memory, place, is_open)
    }

    fn wake_server<'m, M: RemoteMemory>(
        &self,
        memory: &'m M,
        place: impl LockContext<'m, M>,
    ) -> impl Future<Output = Result<(), Fault>> + Send {
        server::wake(memory, place)
    }
}
