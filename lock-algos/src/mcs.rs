//! The queue lock.

use remote_memory::{Fault, FaultKind, Liveness, Notify, Patience, Rank, RemoteMemory};

use crate::recovery::{self, COUNTS, Doubt, nobody_counts, stamp};
use crate::{Backoff, Held, LockAlgorithm, Mode, Owner, Place, Wanted, Wish};

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
/// An owner without a node, and one that wants the lock only if it is free, cannot queue: it asks at the home, with backoff,
/// until nobody queues, so it may wait while others overtake it.
///
/// # Death
///
/// Who waits behind a rank that died, or hands over to one, freezes the word, and so does who waits for readers though a rank
/// has died and they have not released for a second since. All who wait leave then; when no living rank counts, and if
/// anybody had died there, those who inherit nothing are told, the word stays frozen, and the first one to inherit has the
/// lock, alone. Its order starts anew.
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

/// The home's word: flags 3 bits | alone 1 bit | readers 24 bits | slot 12 bits | rank 24 bits of who came last.
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
    /// Somebody without a node has it alone. Stands among the readers: who comes waits for it as for them.
    const ALONE: u64 = 1 << 60;
    const READERS: u64 = 0x1ff_ffff << 36;

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

    /// What an owner makes of a word that nobody has.
    const fn taken(owner: Owner, mode: Mode, has_node: bool) -> Self {
        match (mode, has_node) {
            (Mode::Shared, _) => Self::FREE.joined(),
            (Mode::Exclusive, true) => Self::FREE.behind(owner),
            (Mode::Exclusive, false) => Self(Self::ALONE),
        }
    }

    /// What it adds to the word to release it, if it is not in the queue.
    const fn departs(mode: Mode) -> u64 {
        match mode {
            Mode::Shared => Self::READER.wrapping_neg(),
            Mode::Exclusive => Self::ALONE.wrapping_neg(),
        }
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

/// Makes the node, if there is one, as one that never was in a queue. Nobody writes to it any more.
fn clean<'m, M: RemoteMemory>(memory: &M, place: impl Place<'m, M>) -> Result<(), Fault> {
    if place.has_node() {
        memory.store(place.node(NEXT)?, 0)?;
        memory.store(place.node(GRANT)?, 0)?;
    }
    Ok(())
}

/// The same, and it counts for nothing.
#[inline(never)] // as `hand_over_at_once`
fn leave<'m, M: RemoteMemory>(memory: &M, place: impl Place<'m, M>) -> Result<(), Fault> {
    clean(memory, place)?;
    recovery::discount(memory, place)
}

/// Posts the write that hands the lock over to who is behind an exclusive owner, if that one's node can be reached.
#[inline(never)] // so that a release to nobody stays small
fn hand_over_at_once<'m, M: RemoteMemory>(
    memory: &M,
    place: impl Place<'m, M>,
    next: Owner,
) -> Result<Option<M::Op>, Fault> {
    let Ok(grant) = place.node_of(next.rank, next.slot, GRANT) else { return Ok(None) };
    let handed = memory.write(grant, grant_to(next, Mode::Exclusive), Notify::Yes);
    memory.store(place.node(GRANT)?, HANDED)?; // behind what the next owner waits for
    Ok(Some(handed))
}

/// An acquire or a release that did not end with its first operation.
struct Way<'m, M: RemoteMemory, P> {
    memory: &'m M,
    place: P,
    home: M::Word<'m>,
    owner: Owner,
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
        self.memory.read(self.home).await.map(Home)
    }

    async fn swap(&self, found: Home, new: Home) -> Result<Home, Fault> {
        self.memory.compare_swap(self.home, found.0, new.0).await.map(Home)
    }

    /// Turns everybody away who comes. Gives the frozen word.
    async fn freeze(&self, mut found: Home, lost: Option<Rank>) -> Result<Home, Fault> {
        while !found.is(Home::FROZEN) {
            let frozen = found.frozen(lost, stamp(self.memory, self.owner));
            let now = self.swap(found, frozen).await?;
            found = if now == found { frozen } else { now };
        }
        Ok(found)
    }

    /// Waits behind who came before.
    async fn turn(&self, before: Home) -> Result<Turn, Fault> {
        let Self { memory, place, owner, .. } = *self;
        let grant = place.node(GRANT)?;
        let linked = match place.node_of(before.rank(), before.slot(), NEXT) {
            Ok(next) => memory.write(next, LINKED | owner.to_bits(), Notify::Yes).await,
            Err(fault) => Err(fault),
        };
        match linked {
            Err(fault) if self.is_alive(before.rank()) => {
                // Nobody will hand over to this owner: as if it had died, but that the others go on.
                self.freeze(self.home().await?, Some(owner.rank)).await?;
                recovery::discount(memory, place)?;
                return Err(fault);
            }
            _ => {}
        }
        let mine = move |grant| match grant {
            _ if grant == grant_to(owner, Mode::Exclusive) => Some(Mode::Exclusive),
            _ if grant == grant_to(owner, Mode::Shared) => Some(Mode::Shared),
            _ => None,
        };
        loop {
            let known = memory.casualty().is_some();
            let patience = Patience::hearing(before.rank()).and_until(memory.now().saturating_add(LOOK));
            let granted = move |grant| mine(grant).is_some() || !known && memory.casualty().is_some();
            match memory.wait_until(grant, granted, patience).await.map(mine) {
                Ok(Some(from)) => return Ok(Turn::Mine(from)),
                Err(fault) if fault.kind() == FaultKind::NotOwn => return Err(fault),
                Ok(None) | Err(_) => {}
            }
            let mut home = self.home().await?;
            if !self.is_alive(before.rank()) {
                // What it wrote before it ended is there.
                if let Some(from) = mine(memory.load(grant)?) {
                    return Ok(Turn::Mine(from));
                }
                home = self.freeze(home, Some(before.rank())).await?;
            }
            if home.is(Home::FROZEN) {
                // Who had its turn before that, has it.
                return Ok(mine(memory.load(grant)?).map_or(Turn::Lost(home), Turn::Mine));
            }
        }
    }

    /// Waits until nobody reads who must not, `mode` being this owner's. First in the queue.
    async fn readers_gone(
        &self,
        mut pause: impl FnMut() -> u64 + Send,
        mode: Mode,
        mut home: Home,
        wish: &(impl Fn() -> Wish + Sync),
    ) -> Result<Turn, Fault> {
        let memory = self.memory;
        let mut doubt = Doubt::default();
        loop {
            let waits = match mode {
                Mode::Exclusive => home.has_readers(),
                Mode::Shared => home.is(Home::ALONE),
            };
            if !waits {
                return Ok(Turn::Mine(mode));
            }
            doubt.seen(home.0 & Home::READERS);
            if doubt.of_members(memory).is_some() {
                home = self.freeze(home, None).await?;
            }
            if home.is(Home::FROZEN) {
                return Ok(Turn::Lost(home));
            }
            if wish().is_over() && !home.is(Home::ALONE) {
                // Who is behind waits for the readers as well.
                self.hand_over(home, Mode::Shared).await?;
                leave(memory, self.place)?;
                return Err(Fault::new(FaultKind::Closed));
            }
            memory.pause(self.home, pause()).await;
            home = self.home().await?;
        }
    }

    /// Hands the queue over to who is behind. `home` is the word as it was last seen.
    async fn hand_over(&self, home: Home, from: Mode) -> Result<(), Fault> {
        let Self { memory, place, owner, .. } = *self;
        let mut home = home;
        let link = place.node(NEXT)?;
        let next = loop {
            let next = memory.load(link)?;
            if next != 0 {
                break Owner::from_bits(next);
            }
            if home.is(Home::FROZEN) && nobody_counts(memory, place).await {
                return Ok(()); // all who waited have left, and none of them has yet to link itself
            }
            if home == home.behind(owner) {
                let now = self.swap(home, home.unqueued()).await?;
                if now == home {
                    return Ok(());
                }
                home = now;
                continue;
            }
            let patience = Patience::until(memory.now().saturating_add(LOOK));
            match memory.wait_until(link, |next| next != 0, patience).await {
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
        self.unless_lost(next.rank, granted).await
    }

    /// Whoever is behind a rank that died will see to that. One whose memory is gone, and of whose death there is no news yet, is
    /// as lost.
    async fn unless_lost(&self, next: Rank, granted: Result<(), Fault>) -> Result<(), Fault> {
        use FaultKind::{NoSuchRegion, PeerDied, PeerLeft};
        let Err(fault) = granted else { return Ok(()) };
        if self.is_alive(next) {
            if !matches!(fault.kind(), NoSuchRegion | PeerDied | PeerLeft) {
                return Err(fault); // it may have been granted
            }
            self.freeze(self.home().await?, Some(next)).await?;
        }
        Ok(())
    }

    /// The lock from a frozen word, if no living rank counts: else the word as it is then.
    async fn take_frozen(&self, found: Home, mode: Mode, wish: Wish) -> Result<Result<Held, Home>, Fault> {
        let Self { memory, place, owner, .. } = *self;
        if !nobody_counts(memory, place).await {
            return Ok(Err(found));
        }
        // Nobody writes to the node any more.
        clean(memory, place)?;
        if wish.is_over() {
            return Err(Fault::new(FaultKind::Closed));
        }
        let lost = if found.is(Home::LOST) { Some(found.rank()) } else { None };
        let dead = lost.or_else(|| memory.casualty().filter(|_| found.has_readers()));
        let held = match dead.map(|dead| Fault::of(FaultKind::MemberDied, dead)) {
            Some(died) if !wish.inherits => {
                // It may have been inherited meanwhile.
                let now = self.home().await?;
                return if now == found { Err(died) } else { Ok(Err(now)) };
            }
            Some(died) => Held::after(died, Mode::Exclusive),
            None => Held::cleanly(mode),
        };
        recovery::count(memory, place)?;
        let now = self.swap(found, Home::taken(owner, held.mode, place.has_node())).await?;
        if now == found {
            return Ok(Ok(held));
        }
        recovery::discount(memory, place)?;
        Ok(Err(now))
    }

    /// Whether who came last died: then it falls to whoever does not queue to say so.
    fn ends_dead(&self, found: Home) -> bool {
        found.is(Home::QUEUED) && !self.is_alive(found.rank())
    }
}

impl LockAlgorithm for Mcs {
    const NAME: &'static str = "mcs";
    const HOME_WORDS: usize = 1;
    const NODE_WORDS: usize = GRANT + 1;

    /// The home's word, and the owner's bits.
    type Words<'m, M: RemoteMemory> = (M::Word<'m>, u64);

    #[inline]
    fn uses_node(&self, _mode: Mode) -> bool {
        true
    }

    #[inline]
    fn words<'m, M: RemoteMemory>(&self, place: impl Place<'m, M>) -> Result<Self::Words<'m, M>, Fault> {
        Ok((place.home(0)?, place.owner().to_bits()))
    }

    #[inline]
    fn start<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        place: impl Place<'m, M>,
        (home, owner): Self::Words<'m, M>,
        mode: Mode,
    ) -> Result<M::Op, Fault> {
        recovery::count(memory, place)?;
        let new = Home::taken(Owner::from_bits(owner), mode, place.has_node());
        Ok(memory.compare_swap(home, Home::FREE.0, new.0))
    }

    #[inline]
    fn holds<M: RemoteMemory>(&self, _words: Self::Words<'_, M>, _mode: Mode, first: u64) -> bool {
        first == Home::FREE.0
    }

    async fn contend<'m, M: RemoteMemory, P: Place<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        place: P,
        (home, owner): Self::Words<'m, M>,
        mode: Mode,
        first: u64,
        wish: impl Fn() -> Wish + Send + Sync + 'm,
    ) -> Result<Held, Fault> {
        let way = Way { memory, place, home, owner: Owner::from_bits(owner) };
        let mut pauses = self.backoff.pauses(way.owner);
        let (mut found, mut doubt) = (Home(first), Doubt::default());
        let mut entered = true;
        loop {
            let wished = wish();
            let queues = place.has_node() && wished.wanted != Wanted::IfFree;
            // Here this owner is not in the queue. While the word is frozen somebody may yet write to the node: it stays here.
            if wished.is_over() && !found.is(Home::FROZEN) {
                clean(memory, place)?; // if it was frozen, all who queued then have left
                if entered {
                    recovery::discount(memory, place)?;
                }
                return Err(Fault::new(FaultKind::Closed));
            }
            if found.is(Home::FROZEN) {
                if std::mem::take(&mut entered) {
                    recovery::discount(memory, place)?;
                }
                found = match way.take_frozen(found, mode, wished).await? {
                    Ok(held) => return Ok(held),
                    Err(now) if now != found => now,
                    // It has never queued.
                    Err(_) if wished.wanted == Wanted::IfFree => return Err(Fault::new(FaultKind::TimedOut)),
                    Err(_) => {
                        memory.pause(home, pauses.next_nanos()).await;
                        way.home().await?
                    }
                };
                continue;
            }
            if !std::mem::replace(&mut entered, true) {
                clean(memory, place)?;
                recovery::count(memory, place)?;
            }
            let joins = mode == Mode::Shared && !found.is(Home::QUEUED | Home::ALONE);
            if !queues && !joins && found != Home::FREE {
                doubt.seen(found.0 & Home::READERS);
                let doubted = !found.is(Home::QUEUED) && doubt.of_members(memory).is_some();
                if way.ends_dead(found) || doubted {
                    // Only if it is so still: the last one may have released before it died.
                    let frozen = found.frozen((!doubted).then_some(found.rank()), stamp(memory, way.owner));
                    let now = way.swap(found, frozen).await?;
                    found = if now == found { frozen } else { now };
                    continue;
                }
                if !wished.is_patient() {
                    recovery::discount(memory, place)?;
                    return Err(Fault::new(FaultKind::TimedOut));
                }
                memory.pause(home, pauses.next_nanos()).await;
                found = way.home().await?;
                continue;
            }
            let new = match joins {
                true => found.joined(),
                false if place.has_node() => found.behind(way.owner),
                false => Home::taken(way.owner, mode, false),
            };
            let now = way.swap(found, new).await?;
            if now != found {
                found = now;
                continue;
            }
            if joins || !place.has_node() {
                return Ok(Held::cleanly(mode));
            }
            let turn = match found.is(Home::QUEUED) {
                true => way.turn(found).await?,
                false => Turn::Mine(Mode::Shared),
            };
            let turn = match turn {
                // Behind a reader nobody has it alone.
                Turn::Mine(Mode::Shared) if mode == Mode::Exclusive || !found.is(Home::QUEUED) => {
                    let home = if found.is(Home::QUEUED) { way.home().await? } else { new };
                    way.readers_gone(|| pauses.next_nanos(), mode, home, &wish).await?
                }
                turn => turn,
            };
            match (turn, mode) {
                (Turn::Mine(_), Mode::Exclusive) => return Ok(Held::cleanly(mode)),
                (Turn::Mine(_), Mode::Shared) => {
                    let before = Home(memory.fetch_add(home, Home::READER).await?);
                    way.hand_over(before.joined(), mode).await?;
                    clean(memory, place)?;
                    return Ok(Held::cleanly(mode));
                }
                (Turn::Lost(home), _) => found = home,
            }
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
        (home, owner): Self::Words<'m, M>,
        mode: Mode,
    ) -> Result<M::Op, Fault> {
        if !recovery::counts(memory, place)? {
            return Err(Fault::new(FaultKind::NotHeld));
        }
        if mode == Mode::Shared || !place.has_node() {
            return Ok(memory.fetch_add(home, Home::departs(mode)));
        }
        let next = memory.load(place.node(NEXT)?)?;
        if next != 0 {
            if let Some(handed) = hand_over_at_once(memory, place, Owner::from_bits(next))? {
                return Ok(handed);
            }
        }
        Ok(memory.compare_swap(home, Home::FREE.behind(Owner::from_bits(owner)).0, Home::FREE.0))
    }

    #[inline]
    fn released<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        place: impl Place<'m, M>,
        (_, owner): Self::Words<'m, M>,
        mode: Mode,
        found: u64,
    ) -> Result<bool, Fault> {
        let queued = mode == Mode::Exclusive && place.has_node();
        if queued {
            let granted = memory.load(place.node(GRANT)?)?;
            if granted != HANDED && Home(found) != Home::FREE.behind(Owner::from_bits(owner)) {
                return Ok(false);
            }
            if granted != 0 {
                return leave(memory, place).map(|()| true);
            }
        }
        recovery::discount(memory, place)?;
        let held = match mode {
            _ if queued => true,
            Mode::Exclusive => Home(found).is(Home::ALONE),
            Mode::Shared => Home(found).has_readers(),
        };
        if held { Ok(true) } else { Err(Fault::new(FaultKind::NotHeld)) }
    }

    async fn finish_release<'m, M: RemoteMemory, P: Place<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        place: P,
        words: Self::Words<'m, M>,
        mode: Mode,
        started: impl Future<Output = Result<u64, Fault>> + Send + 'm,
    ) -> Result<(), Fault> {
        let (home, owner) = words;
        let way = Way { memory, place, home, owner: Owner::from_bits(owner) };
        let found = match started.await {
            Ok(found) => found,
            Err(fault) if mode == Mode::Exclusive && place.has_node() && memory.load(place.node(GRANT)?)? == HANDED => {
                let next = Owner::from_bits(memory.load(place.node(NEXT)?)?);
                way.unless_lost(next.rank, Err(fault)).await?;
                return leave(memory, place);
            }
            Err(fault) => return Err(fault),
        };
        if !self.released(memory, place, words, mode, found)? {
            way.hand_over(Home(found), mode).await?;
            leave(memory, place)?;
        }
        Ok(())
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
