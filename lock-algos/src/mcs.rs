//! The queue lock.

use remote_memory::{Fault, FaultKind, Liveness, Notify, Patience, Rank, RemoteMemory};

use crate::recovery::{COUNTS, Doubt, counts_for, nobody_counts, stamp};
use crate::{Backoff, Held, LockAlgorithm, Mode, Owner, Place};

/// The queue lock of Mellor-Crummey and Scott (ACM TOCS 9(1), 1991) over remote memory: jiang-2004, section 5.2. The shared
/// mode is ours, in the manner of Mellor-Crummey and Scott's fair reader-writer lock (PPoPP 1991).
///
/// Who comes swaps itself for the queue's tail, by compare-swaps as the paper does, links itself behind its predecessor and
/// waits on a word of its own until that one writes to it: nobody polls over the network, and owners follow one another in
/// the order of their coming. Readers who find no queue count themselves in; else they queue, and the first one counts
/// itself in and hands on at once, so that readers who follow one another read together.
///
/// One word at the home: who came last (rank and slot), and how many read. Three in each node. Uncontended, an acquire is one
/// compare-swap and a release one that nobody need wait for; a hand-over is one write.
///
/// # Death
///
/// Who waits behind a rank that died, or hands over to one, freezes the word, and so does who waits for readers though a rank
/// has died and they have not released for a second since. All who wait leave then; when no living rank counts, the first of
/// them to say so has the lock, alone, if anybody had died there. Its order starts anew.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mcs {
    backoff: Backoff,
}

impl Mcs {
    /// A lock whose owners pause by this table where they have to ask at its home: between lost compare-swaps, for readers
    /// who stay, and after a death.
    #[must_use]
    pub const fn new(backoff: Backoff) -> Self {
        Self { backoff }
    }
}

// Words of a node, beside `COUNTS`.
/// Who is behind, by whom it is written: its owner's bits with [`LINKED`].
const NEXT: usize = COUNTS + 1;
/// What a predecessor writes: [`GRANTED`] with this owner's generation, and [`READING`] if it reads itself. Later this
/// owner's own note, [`HANDED`].
const GRANT: usize = COUNTS + 2;

const LINKED: u64 = 1 << 63;
const GRANTED: u64 = 1 << 63;
const READING: u64 = 1 << 62;
const HANDED: u64 = 1;

/// The grant to an owner.
const fn grant_to(next: Owner, from: Mode) -> u64 {
    let reading = match from {
        Mode::Exclusive => 0,
        Mode::Shared => READING,
    };
    GRANTED | reading | next.generation as u64
}

/// The home's word: flags 4 bits | readers 24 bits | slot 12 bits | rank 24 bits of who came last.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Home(u64);

impl Home {
    const FREE: Self = Self(0);
    /// Nobody comes in; see [`crate::recovery`].
    const FROZEN: u64 = 1 << 63;
    /// Somebody is in the queue, and the low bits tell who came last.
    const QUEUED: u64 = 1 << 62;
    /// Frozen because this rank died in the queue.
    const LOST: u64 = 1 << 61;
    const READER: u64 = 1 << 36;
    const READERS: u64 = 0xff_ffff << 36;

    const fn is(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    const fn has_readers(self) -> bool {
        self.0 & Self::READERS != 0
    }

    /// The same readers, and this owner behind all who queue.
    const fn behind(self, owner: Owner) -> Self {
        let last = (owner.slot as u64 & 0xfff) << 24 | owner.rank.0 as u64 & 0xff_ffff;
        Self(Self::QUEUED | self.0 & Self::READERS | last)
    }

    /// One reader more.
    const fn joined(self) -> Self {
        Self(self.0 + Self::READER)
    }

    /// The same readers, and nobody in the queue.
    const fn unqueued(self) -> Self {
        Self(self.0 & Self::READERS)
    }

    /// The same readers, and in place of who came last which freeze it is, and who was lost.
    const fn frozen(self, lost: Option<Rank>, stamp: u64) -> Self {
        let which = match lost {
            Some(rank) => Self::LOST | stamp & 0xfff << 24 | rank.0 as u64 & 0xff_ffff,
            None => stamp & 0xf_ffff_ffff,
        };
        Self(Self::FROZEN | self.0 & Self::READERS | which)
    }

    const fn rank(self) -> Rank {
        Rank(self.0 as u32 & 0xff_ffff)
    }

    const fn slot(self) -> u16 {
        (self.0 >> 24) as u16 & 0xfff
    }
}

/// How often a waiter looks whether the word was frozen, in nanoseconds.
const LOOK: u64 = 10_000_000;

/// See [`LockAlgorithm::Words`].
#[derive(Debug)]
pub struct Words<W> {
    home: W,
    counts: W,
    next: W,
    grant: W,
    lock: u64,
    owner: Owner,
}

impl<W: Copy> Clone for Words<W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W: Copy> Copy for Words<W> {}

/// Makes the node one that may be in the queue.
#[inline]
fn enter<M: RemoteMemory>(memory: &M, words: Words<M::Word<'_>>) -> Result<(), Fault> {
    memory.store(words.next, 0)?;
    memory.store(words.grant, 0)?;
    memory.store(words.counts, counts_for(words.lock))
}

/// Nobody writes to the node any more, and it counts for nothing.
#[inline]
fn leave<M: RemoteMemory>(memory: &M, words: Words<M::Word<'_>>) -> Result<(), Fault> {
    memory.store(words.counts, 0)
}

/// An acquire or a release that did not end with its first operation.
struct Way<'m, M: RemoteMemory, P> {
    memory: &'m M,
    place: P,
    words: Words<M::Word<'m>>,
}

/// How the wait for a turn ended.
enum Turn {
    /// It came. From an owner that had the lock alone, nobody reads.
    Mine(Mode),
    /// The word was frozen first.
    Lost(Home),
}

impl<'m, M: RemoteMemory, P: Place<'m, M>> Way<'m, M, P> {
    fn is_alive(&self, rank: Rank) -> bool {
        self.memory.liveness(rank) == Liveness::Alive
    }

    async fn home(&self) -> Result<Home, Fault> {
        self.memory.read(self.words.home).await.map(Home)
    }

    async fn swap(&self, found: Home, new: Home) -> Result<Home, Fault> {
        self.memory.compare_swap(self.words.home, found.0, new.0).await.map(Home)
    }

    /// Turns everybody away who comes. Gives the frozen word.
    async fn freeze(&self, mut found: Home, lost: Option<Rank>) -> Result<Home, Fault> {
        while !found.is(Home::FROZEN) {
            let frozen = found.frozen(lost, stamp(self.memory, self.words.owner));
            let now = self.swap(found, frozen).await?;
            found = if now == found { frozen } else { now };
        }
        Ok(found)
    }

    /// Waits behind who came before.
    async fn turn(&self, before: Home) -> Result<Turn, Fault> {
        let (memory, words, place) = (self.memory, self.words, self.place);
        let linked = match place.node_of(before.rank(), before.slot(), NEXT) {
            Ok(next) => memory.write(next, LINKED | words.owner.to_bits(), Notify::Yes).await,
            Err(fault) => Err(fault),
        };
        if let Err(fault) = linked
            && self.is_alive(before.rank())
        {
            // Nobody will hand over to this owner: as if it had died, but that the others go on.
            self.freeze(self.home().await?, Some(words.owner.rank)).await?;
            leave(memory, words)?;
            return Err(fault);
        }
        let mine = move |grant| match grant {
            _ if grant == grant_to(words.owner, Mode::Exclusive) => Some(Mode::Exclusive),
            _ if grant == grant_to(words.owner, Mode::Shared) => Some(Mode::Shared),
            _ => None,
        };
        loop {
            let known = memory.casualty().is_some();
            let patience = Patience::hearing(before.rank()).and_until(memory.now().saturating_add(LOOK));
            let granted = move |grant| mine(grant).is_some() || !known && memory.casualty().is_some();
            match memory.wait_until(words.grant, granted, patience).await.map(mine) {
                Ok(Some(from)) => return Ok(Turn::Mine(from)),
                Err(fault) if fault.kind() == FaultKind::NotOwn => return Err(fault),
                Ok(None) | Err(_) => {}
            }
            let mut home = self.home().await?;
            if !self.is_alive(before.rank()) {
                // What it wrote before it ended is there.
                if let Some(from) = mine(memory.load(words.grant)?) {
                    return Ok(Turn::Mine(from));
                }
                home = self.freeze(home, Some(before.rank())).await?;
            }
            if home.is(Home::FROZEN) {
                // Who had its turn before that, has it.
                return Ok(mine(memory.load(words.grant)?).map_or(Turn::Lost(home), Turn::Mine));
            }
        }
    }

    /// Waits until nobody reads. First in the queue.
    async fn readers_gone(&self, mut pause: impl FnMut() -> u64, mut home: Home) -> Result<Turn, Fault> {
        let memory = self.memory;
        let mut doubt = Doubt::default();
        loop {
            if !home.has_readers() {
                return Ok(Turn::Mine(Mode::Exclusive));
            }
            if doubt.of_members(memory).is_some() {
                home = self.freeze(home, None).await?;
            }
            if home.is(Home::FROZEN) {
                return Ok(Turn::Lost(home));
            }
            memory.pause(self.words.home, pause()).await;
            home = self.home().await?;
        }
    }

    /// Hands the queue over to who is behind. `home` is the word as it was last seen.
    async fn hand_over(&self, home: Home, from: Mode) -> Result<(), Fault> {
        let Self { memory, words, place } = self;
        let mut home = home;
        let next = loop {
            let next = memory.load(words.next)?;
            if next != 0 {
                break Owner::from_bits(next);
            }
            if home.is(Home::FROZEN) && nobody_counts(*memory, *place).await {
                return Ok(()); // all who waited have left, and none of them has yet to link itself
            }
            if home == home.behind(words.owner) {
                let now = self.swap(home, home.unqueued()).await?;
                if now == home {
                    return Ok(());
                }
                home = now;
                continue;
            }
            let patience = Patience::until(memory.now().saturating_add(LOOK));
            match memory.wait_until(words.next, |next| next != 0, patience).await {
                Ok(_) => continue,
                Err(fault) if fault.kind() == FaultKind::NotOwn => return Err(fault),
                Err(_) => home = self.home().await?,
            }
            if home.is(Home::QUEUED) && !self.is_alive(home.rank()) {
                home = self.freeze(home, Some(home.rank())).await?;
            }
        };
        let granted = match place.node_of(next.rank, next.slot, GRANT) {
            Ok(grant) => memory.write(grant, grant_to(next, from), Notify::Yes).await.map(|_| ()),
            Err(fault) => Err(fault),
        };
        self.unless_dead(next.rank, granted)
    }

    /// Whoever is behind a rank that died will see to that.
    fn unless_dead(&self, next: Rank, granted: Result<(), Fault>) -> Result<(), Fault> {
        if self.is_alive(next) { granted } else { Ok(()) }
    }

    /// The lock from a frozen word, if no living rank counts: else the word as it is then.
    async fn take_frozen(&self, found: Home, mode: Mode) -> Result<Result<Held, Home>, Fault> {
        let Self { memory, words, place } = self;
        if !nobody_counts(*memory, *place).await {
            return Ok(Err(found));
        }
        let lost = if found.is(Home::LOST) { Some(found.rank()) } else { None };
        let dead = lost.or_else(|| memory.casualty().filter(|_| found.has_readers()));
        let (new, held) = match (dead, mode) {
            (Some(dead), _) => {
                (Home::FREE.behind(words.owner), Held::after(Fault::of(FaultKind::MemberDied, dead), Mode::Exclusive))
            }
            (None, Mode::Exclusive) => (Home::FREE.behind(words.owner), Held::cleanly(mode)),
            (None, Mode::Shared) => (Home::FREE.joined(), Held::cleanly(mode)),
        };
        enter(*memory, *words)?;
        let now = self.swap(found, new).await?;
        if now == found {
            return Ok(Ok(held));
        }
        leave(*memory, *words)?;
        Ok(Err(now))
    }
}

impl LockAlgorithm for Mcs {
    const NAME: &'static str = "mcs";
    const HOME_WORDS: usize = 1;
    const NODE_WORDS: usize = GRANT + 1;

    type Words<'m, M: RemoteMemory> = Words<M::Word<'m>>;

    #[inline]
    fn uses_node(&self, _mode: Mode) -> bool {
        true
    }

    #[inline]
    fn words<'m, M: RemoteMemory>(&self, place: impl Place<'m, M>) -> Result<Self::Words<'m, M>, Fault> {
        Ok(Words {
            home: place.home(0)?,
            counts: place.node(COUNTS)?,
            next: place.node(NEXT)?,
            grant: place.node(GRANT)?,
            lock: place.lock(),
            owner: place.owner(),
        })
    }

    #[inline]
    fn start<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        _place: impl Place<'m, M>,
        words: Self::Words<'m, M>,
        mode: Mode,
    ) -> Result<M::Op, Fault> {
        enter(memory, words)?;
        let new = match mode {
            Mode::Exclusive => Home::FREE.behind(words.owner),
            Mode::Shared => Home::FREE.joined(),
        };
        Ok(memory.compare_swap(words.home, Home::FREE.0, new.0))
    }

    #[inline]
    fn holds<M: RemoteMemory>(&self, _words: Self::Words<'_, M>, _mode: Mode, first: u64) -> bool {
        first == Home::FREE.0
    }

    async fn contend<'m, M: RemoteMemory, P: Place<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        place: P,
        words: Self::Words<'m, M>,
        mode: Mode,
        first: u64,
        wanted: impl Fn() -> bool + Send + 'm,
    ) -> Result<Held, Fault> {
        let way = Way { memory, place, words };
        let mut pauses = self.backoff.pauses(words.owner);
        let mut found = Home(first);
        let mut entered = true;
        loop {
            // Here this owner is not in the queue. While the word is frozen somebody may yet write to the node: it stays here.
            if !wanted() && !found.is(Home::FROZEN) {
                leave(memory, words)?;
                return Err(Fault::new(FaultKind::Closed));
            }
            if found.is(Home::FROZEN) {
                leave(memory, words)?;
                entered = false;
                found = match way.take_frozen(found, mode).await? {
                    Ok(held) => return Ok(held),
                    Err(now) if now != found => now,
                    Err(_) => {
                        memory.pause(words.home, pauses.next_nanos()).await;
                        way.home().await?
                    }
                };
                continue;
            }
            if !entered {
                enter(memory, words)?;
                entered = true;
            }
            let joins = mode == Mode::Shared && !found.is(Home::QUEUED);
            let new = if joins { found.joined() } else { found.behind(words.owner) };
            let now = way.swap(found, new).await?;
            if now != found {
                found = now;
                continue;
            }
            if joins {
                return Ok(Held::cleanly(mode));
            }
            let turn = match found.is(Home::QUEUED) {
                true => way.turn(found).await?,
                false => Turn::Mine(Mode::Shared),
            };
            let turn = match (turn, mode) {
                (Turn::Mine(Mode::Shared), Mode::Exclusive) => {
                    let home = if found.is(Home::QUEUED) { way.home().await? } else { new };
                    way.readers_gone(|| pauses.next_nanos(), home).await?
                }
                (Turn::Mine(_), Mode::Shared) => {
                    let before = Home(memory.fetch_add(words.home, Home::READER).await?);
                    way.hand_over(before.joined(), mode).await?;
                    return Ok(Held::cleanly(mode));
                }
                (turn, _) => turn,
            };
            match turn {
                Turn::Mine(_) => return Ok(Held::cleanly(mode)),
                Turn::Lost(home) => found = home,
            }
        }
    }

    async fn try_acquire<'m, M: RemoteMemory, P: Place<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        _place: P,
        words: Self::Words<'m, M>,
        mode: Mode,
    ) -> Result<Option<Held>, Fault> {
        let mut expected = Home::FREE;
        enter(memory, words)?;
        loop {
            let new = match mode {
                Mode::Exclusive => Home::FREE.behind(words.owner),
                Mode::Shared => expected.joined(),
            };
            let found = Home(memory.compare_swap(words.home, expected.0, new.0).await?);
            if found == expected {
                return Ok(Some(Held::cleanly(mode)));
            }
            if mode == Mode::Exclusive || found.is(Home::QUEUED | Home::FROZEN) {
                leave(memory, words)?;
                return Ok(None);
            }
            expected = found;
        }
    }

    #[inline]
    fn releases_in_one_step<'m, M: RemoteMemory>(&self, _place: impl Place<'m, M>, _mode: Mode) -> bool {
        false
    }

    #[inline]
    fn start_release<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        place: impl Place<'m, M>,
        words: Self::Words<'m, M>,
        mode: Mode,
    ) -> Result<M::Op, Fault> {
        if memory.load(words.counts)? != counts_for(words.lock) {
            return Err(Fault::new(FaultKind::NotHeld));
        }
        if mode == Mode::Shared {
            return Ok(memory.fetch_add(words.home, Home::READER.wrapping_neg()));
        }
        let next = memory.load(words.next)?;
        if next != 0 {
            let next = Owner::from_bits(next);
            if let Ok(grant) = place.node_of(next.rank, next.slot, GRANT) {
                memory.store(words.grant, HANDED)?;
                return Ok(memory.write(grant, grant_to(next, mode), Notify::Yes));
            }
        }
        Ok(memory.compare_swap(words.home, Home::FREE.behind(words.owner).0, Home::FREE.0))
    }

    async fn finish_release<'m, M: RemoteMemory, P: Place<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        place: P,
        words: Self::Words<'m, M>,
        mode: Mode,
        started: M::Op,
    ) -> Result<(), Fault> {
        let way = Way { memory, place, words };
        let outcome = started.await;
        if mode == Mode::Shared {
            outcome?;
        } else if memory.load(words.grant)? == HANDED {
            let next = Owner::from_bits(memory.load(words.next)?);
            way.unless_dead(next.rank, outcome.map(|_| ()))?;
        } else if Home(outcome?) != Home::FREE.behind(words.owner) {
            way.hand_over(Home(outcome?), mode).await?;
        }
        leave(memory, words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_homes_fields_do_not_touch() {
        let owner = Owner { rank: Rank(Rank::LIMIT), slot: 0xfff, generation: 0x3ff_ffff };
        let all = Home(Home::READERS);
        let last = all.behind(owner);
        assert_eq!((last.rank(), last.slot()), (owner.rank, owner.slot));
        assert!(last.has_readers() && last.is(Home::QUEUED) && !last.is(Home::FROZEN | Home::LOST));
        assert!(last.unqueued() == all && Home::FREE.behind(owner).unqueued() == Home::FREE);
        let none = Owner { rank: Rank(0), slot: 0, generation: 0 };
        assert!(Home::FREE.behind(none) != Home::FREE && !Home::FREE.behind(none).has_readers());
        let frozen = last.frozen(Some(owner.rank), u64::MAX);
        assert!(frozen.is(Home::FROZEN) && frozen.is(Home::LOST) && frozen.rank() == owner.rank);
        assert!(
            frozen.has_readers()
                && !frozen.is(Home::QUEUED)
                && !all.frozen(None, u64::MAX).is(Home::LOST | Home::QUEUED)
        );
        assert!(Home::FREE.joined().has_readers() && !Home::FREE.joined().is(Home::QUEUED));
    }
}
