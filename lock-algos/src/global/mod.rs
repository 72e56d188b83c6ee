//! All targets' locks in one operation.

mod room;
mod way;

use std::future::Future;
use std::pin::Pin;

use onesided_remote_memory::{Fault, FaultKind, RemoteMemory};

use self::room::Room;
use self::way::{InRoom, Way, announce, heal, lose, step_out};
use crate::recovery::{self, COUNTS};
use crate::{Backoff, Held, Intent, IntentFn, LockAlgorithm, LockContext, Mode};

/// Locks of many targets, and of all of them at once by one operation, after foMPI (Gerstenberger, Besta, Hoefler, *Enabling
/// Highly-Scalable Remote Memory Access Programming with MPI-3 One Sided*, SC 2013, section 2.3). The protocol of its first
/// level is ours.
///
/// One word that all targets share, the [room](LockContext::lock_all_word), lets two groups in by turns: those who lock all targets,
/// shared, and those who lock one, exclusively. Members of a group go together. An exclusive lock of a target is a place in
/// the room, and then the target's own lock, of the design `A`; a shared lock of a target is that of `A` and does not touch
/// the room. A shared lock of [all of them](LockContext::is_of_all) is a place in the room, whatever the number of targets.
///
/// | | uncontended acquire + release |
/// |---|---|
/// | all targets, shared | fetch-add + fetch-add |
/// | one, exclusive | fetch-add and that of `A` + that of `A` and fetch-add |
/// | one, shared | those of `A` |
///
/// Who finds the other group inside steps back by a second fetch-add, and waits: it reads the word, and pauses in between,
/// by its [`Backoff`].
///
/// # Fairness
///
/// While one of a group waits, no other one comes in of the group that is inside, so that ends; then all of the other group
/// who wait are let in at once, by a compare-swap of any who waits, and the next turn is the first one's. So who waits is
/// passed by those who are inside, and by at most one turn of the other group.
///
/// Two do come in past those who wait, for they may hold what somebody inside waits for: who [is inside](LockContext::is_inside)
/// already, and who waits and has seen none of its own group leave for 100 ms. So nobody waits in a circle who would not
/// with the locks of all targets taken one after the other; and exclusive locks that are held for longer than that, one over
/// the other without a gap, keep out who locks all.
///
/// # Giving up
///
/// Who waits for the room is out of it by a compare-swap. Who waits for the target's lock gives up as that one does, and
/// leaves the room. Who only tries and finds the other group inside takes itself out again; who comes in that moment waits
/// for a look.
///
/// # Overflow
///
/// The four counts have 15 bits. Where there may be more [owners](LockContext::owners), who comes reads the word first, and takes
/// its place by compare-swap, once there is room; so does an owner that is [not counted](LockContext::is_counted), and leaves room
/// for those that are.
///
/// # Death
///
/// Two words may tell of a death. The target's lock does as `A` does. The room counts, and names nobody: who waits there
/// doubts those inside when a rank has died and none of them has left for a second since, and freezes the word. Who waits is
/// out of it then, who is inside goes on. When no living rank counts, what is left is of the dead: who does not inherit is
/// told that a member died, whichever group it belongs to, and the word stays frozen. The first one to inherit takes the
/// lock of its target exclusively, whatever it asked for, and only then others come in again; if it gives up before, nothing
/// is healed. So one death may be told twice, to the heir of the target's lock and to the room's.
///
/// Exclusive owners join a dead one in the room, and do not know: the target's lock tells who is concerned. A rank that died
/// while it waited counts as if it may have been inside, once its turn has come.
///
/// Where the place has no nodes nobody can take anything from the dead: who waits for them in the room gets `ParticipantDied`.
///
/// Who is in the room may wait for a target's lock, so it must be known for which of both it counts: an owner without a
/// node, of a place that has some, gets `Full`.
///
/// After an operation on the room of whose outcome nobody knows the room is frozen, as after a death: all who wait come anew when
/// those inside have left.
#[derive(Clone, Copy, Debug)]
pub struct Global<A, const BITS: u32 = 15> {
    lock: A,
    backoff: Backoff,
}

impl<A> Global<A> {
    /// Over targets' locks of this design; who waits for the room pauses by this table.
    #[must_use]
    pub const fn new(lock: A, backoff: Backoff) -> Self {
        Self::with_bits(lock, backoff)
    }
}

impl<A, const BITS: u32> Global<A, BITS> {
    /// The same with room for 2<sup>`BITS`</sup> - 1 of each group, 1 to 15 bits. Where there may be more
    /// [owners](LockContext::owners), who comes reads the word first, and takes its place by compare-swap.
    #[must_use]
    pub const fn with_bits(lock: A, backoff: Backoff) -> Self {
        Self { lock, backoff }
    }
}

type Boxed<'m, T> = Pin<Box<dyn Future<Output = T> + Send + 'm>>;

/// The compiler cannot tell of what another algorithm gives, once that is known, that it is `Send`.
fn boxed<'m, T>(future: impl Future<Output = T> + Send + 'm) -> Boxed<'m, T> {
    Box::pin(future)
}

/// What a lock is of.
enum Level {
    Room,
    Target,
    Both,
}

impl Level {
    fn of<'m, M: RemoteMemory>(place: impl LockContext<'m, M>, mode: Mode) -> Self {
        match mode {
            Mode::Exclusive => Self::Both,
            Mode::Shared if place.is_of_all() => Self::Room,
            Mode::Shared => Self::Target,
        }
    }
}

impl<A: LockAlgorithm, const BITS: u32> Global<A, BITS> {
    const fn in_room<P>(place: P) -> InRoom<P> {
        InRoom { place, counts: A::NODE_WORDS }
    }

    /// Posts the first operation on the room.
    fn start_room<'m, M: RemoteMemory>(memory: &M, place: impl LockContext<'m, M>, mode: Mode) -> Result<M::Op, Fault> {
        let (room, word) = (Self::in_room(place), place.lock_all_word()?);
        recovery::count(memory, room)?;
        Ok(announce::<M, BITS>(memory, room, word, mode))
    }

    /// Comes into the room, with a first operation that found this.
    async fn enter<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        place: P,
        mode: Mode,
        first: Result<u64, Fault>,
        wish: IntentFn<'_>,
    ) -> Result<Held, Fault> {
        let (word, pauses) = (place.lock_all_word()?, self.backoff.pauses(place.owner()));
        let (place, passes) = (Self::in_room(place), place.is_inside());
        Way::<_, _, BITS> { memory, place, word, mode, wish, pauses, passes }.enter(first).await
    }

    /// Leaves the room, by one operation that took effect and found this.
    fn left<'m, M: RemoteMemory>(
        memory: &M,
        place: impl LockContext<'m, M>,
        mode: Mode,
        found: u64,
    ) -> Result<bool, Fault> {
        let found = Room::<BITS>(found);
        if found.inside(mode) == 0 || found.is_frozen() {
            return Ok(false); // it is to be undone, or not all
        }
        recovery::discount(memory, Self::in_room(place))?;
        Ok(true)
    }

    /// The rest of leaving it.
    async fn finish_leaving<'m, M: RemoteMemory>(
        memory: &'m M,
        place: impl LockContext<'m, M>,
        mode: Mode,
        left: impl Future<Output = Result<u64, Fault>> + Send,
    ) -> Result<(), Fault> {
        let outcome = Self::settle_leaving(memory, place, mode, left).await;
        recovery::discount(memory, Self::in_room(place))?;
        outcome
    }

    /// What there is to do in the word.
    async fn settle_leaving<'m, M: RemoteMemory>(
        memory: &'m M,
        place: impl LockContext<'m, M>,
        mode: Mode,
        left: impl Future<Output = Result<u64, Fault>> + Send,
    ) -> Result<(), Fault> {
        let word = place.lock_all_word()?;
        let found = match left.await {
            Ok(found) => Room::<BITS>(found),
            Err(fault) if fault.is_unknown() && place.slots() > 0 => {
                return lose::<M, BITS>(memory, Self::in_room(place), word).await;
            }
            Err(fault) => return Err(fault),
        };
        if found.inside(mode) > 0 {
            return step_out(memory, place.owner(), word, found.plus(Room::<BITS>::leaving(mode))).await;
        }
        memory.fetch_add(word, Room::<BITS>::entering(mode)).await?;
        Err(Fault::new(FaultKind::NotHeld))
    }

    async fn leave<'m, M: RemoteMemory>(
        memory: &'m M,
        place: impl LockContext<'m, M>,
        mode: Mode,
    ) -> Result<(), Fault> {
        let left = memory.fetch_add(place.lock_all_word()?, Room::<BITS>::leaving(mode));
        Self::finish_leaving(memory, place, mode, left).await
    }

    /// The target's lock, exclusively, of who is in the room, and what it was told there.
    async fn lock_target<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        place: P,
        words: A::Words<'m, M>,
        room: Held,
        wish: IntentFn<'_>,
    ) -> Result<Held, Fault> {
        let mode = Mode::Exclusive;
        let first = match self.lock.start(memory, place, words, mode) {
            Ok(started) => started.await,
            Err(fault) => Err(fault),
        };
        let held = match first {
            Ok(first) if self.lock.holds(words, mode, first) => Ok(Held::cleanly(mode)),
            first => boxed(self.lock.contend(memory, place, words, mode, first, wish)).await,
        };
        match held {
            Ok(held) if room.recovered.is_some() => {
                let held = Held { recovered: held.recovered.or(room.recovered), ..held };
                match heal::<M, BITS>(memory, place.lock_all_word()?).await {
                    Ok(()) => Ok(held),
                    Err(fault) => self.release_poisoned(memory, place, words, held).await.and(Err(fault)),
                }
            }
            Ok(held) => Ok(held),
            // It may hold the target's lock: then it is in the room as well.
            Err(fault) if fault.is_unknown() => Err(fault),
            // What it inherited in the room is the next one's: it is left there as if it had died.
            Err(fault) if room.recovered.is_some() => recovery::discount(memory, Self::in_room(place)).and(Err(fault)),
            Err(fault) => Self::leave(memory, place, mode).await.and(Err(fault)),
        }
    }

    /// Both, from the first operation on.
    async fn lock_both<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        place: P,
        words: A::Words<'m, M>,
        wish: IntentFn<'_>,
    ) -> Result<Held, Fault> {
        let first = Self::start_room(memory, place, Mode::Exclusive)?.await;
        let room = self.enter(memory, place, Mode::Exclusive, first, wish).await?;
        self.lock_target(memory, place, words, room, wish).await
    }

    async fn lock<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        place: P,
        words: A::Words<'m, M>,
        mode: Mode,
        first: Result<u64, Fault>,
        wish: IntentFn<'_>,
    ) -> Result<Held, Fault> {
        if let Level::Target = Level::of(place, mode) {
            if first.is_ok_and(|first| self.lock.holds(words, mode, first)) {
                return Ok(Held::cleanly(mode));
            }
            if !wish().recovers {
                return boxed(self.lock.contend(memory, place, words, mode, first, wish)).await;
            }
            // An heir has the lock alone, and comes by the room.
            let asked: IntentFn<'_> = &|| Intent { recovers: false, ..wish() };
            return match boxed(self.lock.contend(memory, place, words, mode, first, asked)).await {
                Err(fault) if matches!(fault.kind(), FaultKind::OwnerDied | FaultKind::ParticipantDied) => {
                    self.lock_both(memory, place, words, wish).await
                }
                held => held,
            };
        }
        let room = self.enter(memory, place, mode, first, wish).await?;
        match room.mode {
            Mode::Shared => Ok(room),
            Mode::Exclusive => self.lock_target(memory, place, words, room, wish).await,
        }
    }
}

impl<A: LockAlgorithm, const BITS: u32> LockAlgorithm for Global<A, BITS> {
    const NAME: &'static str = "global";
    /// The last one is the room, at the rank where that is.
    const HOME_WORDS: usize = A::HOME_WORDS + 1;
    const NODE_WORDS: usize = A::NODE_WORDS + COUNTS + 1;
    const PER_RANK_WORD: bool = A::PER_RANK_WORD;
    const HOST_WORDS: usize = A::HOST_WORDS;
    const SERVED: bool = A::SERVED;

    type Words<'m, M: RemoteMemory> = A::Words<'m, M>;

    fn is_free(home: &[u64]) -> bool {
        home.split_last().is_none_or(|(room, home)| Room::<BITS>(*room).is_free() && A::is_free(home))
    }

    fn uses_node(&self, _mode: Mode) -> bool {
        true
    }

    fn words<'m, M: RemoteMemory>(&self, place: impl LockContext<'m, M>) -> Result<Self::Words<'m, M>, Fault> {
        self.lock.words(place)
    }

    fn words_to_try<'m, M: RemoteMemory>(&self, place: impl LockContext<'m, M>) -> Result<Self::Words<'m, M>, Fault> {
        self.lock.words_to_try(place)
    }

    fn start<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        place: impl LockContext<'m, M>,
        words: Self::Words<'m, M>,
        mode: Mode,
    ) -> Result<M::Op, Fault> {
        if place.slots() > 0 && !place.has_node() {
            return Err(Fault::of(FaultKind::Full, memory.rank()));
        }
        match Level::of(place, mode) {
            Level::Target => self.lock.start(memory, place, words, mode),
            Level::Room | Level::Both => Self::start_room(memory, place, mode),
        }
    }

    /// Never: which level the operation was of, the place tells.
    fn holds<M: RemoteMemory>(&self, _words: Self::Words<'_, M>, _mode: Mode, _first: u64) -> bool {
        false
    }

    async fn contend<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        place: P,
        words: Self::Words<'m, M>,
        mode: Mode,
        first: Result<u64, Fault>,
        wish: IntentFn<'_>,
    ) -> Result<Held, Fault> {
        let held = self.lock(memory, place, words, mode, first, wish).await?;
        place.mark_inside(true);
        Ok(held)
    }

    fn releases_in_one_step<'m, M: RemoteMemory>(&self, _place: impl LockContext<'m, M>, _mode: Mode) -> bool {
        false
    }

    fn start_release<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        place: impl LockContext<'m, M>,
        words: Self::Words<'m, M>,
        mode: Mode,
    ) -> Result<M::Op, Fault> {
        let level = Level::of(place, mode);
        if !matches!(level, Level::Target) && !recovery::counts(memory, Self::in_room(place))? {
            return Err(Fault::new(FaultKind::NotHeld));
        }
        match level {
            Level::Room => Ok(memory.fetch_add(place.lock_all_word()?, Room::<BITS>::leaving(mode))),
            Level::Target | Level::Both => self.lock.start_release(memory, place, words, mode),
        }
    }

    fn released<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        place: impl LockContext<'m, M>,
        words: Self::Words<'m, M>,
        mode: Mode,
        found: u64,
    ) -> Result<bool, Fault> {
        let released = match Level::of(place, mode) {
            Level::Room => Self::left(memory, place, mode, found)?,
            Level::Target => self.lock.released(memory, place, words, mode, found)?,
            Level::Both => false, // it is in the room yet
        };
        if released {
            place.mark_inside(false);
        }
        Ok(released)
    }

    async fn finish_release<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        place: P,
        words: Self::Words<'m, M>,
        mode: Mode,
        started: impl Future<Output = Result<u64, Fault>> + Send + 'm,
    ) -> Result<(), Fault> {
        place.mark_inside(false);
        match Level::of(place, mode) {
            Level::Room => Self::finish_leaving(memory, place, mode, started).await,
            Level::Target => boxed(self.lock.finish_release(memory, place, words, mode, started)).await,
            Level::Both => {
                let released = boxed(self.lock.finish_release(memory, place, words, mode, started)).await;
                released.and(Self::leave(memory, place, mode).await)
            }
        }
    }

    /// What recovers has both, and may have it from the dead in both.
    async fn release_poisoned<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        place: P,
        words: Self::Words<'m, M>,
        held: Held,
    ) -> Result<(), Fault> {
        place.mark_inside(false);
        let target = boxed(self.lock.release_poisoned(memory, place, words, held)).await;
        target.and(lose::<M, BITS>(memory, Self::in_room(place), place.lock_all_word()?).await)
    }

    async fn serve<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        place: P,
        is_open: impl Fn() -> bool + Send + Sync + 'm,
    ) -> Result<(), Fault> {
        boxed(self.lock.serve(memory, place, is_open)).await
    }

    fn wake_server<'m, M: RemoteMemory>(
        &self,
        memory: &'m M,
        place: impl LockContext<'m, M>,
    ) -> impl Future<Output = Result<(), Fault>> + Send {
        self.lock.wake_server(memory, place)
    }
}
