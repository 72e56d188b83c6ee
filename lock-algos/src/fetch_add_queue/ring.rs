//! Where those who wait for a ticket's turn say so, and what they are told.
//!
//! The counters alone say whose turn it is: what is written here is how to tell him. So an entry that is missing, late or of
//! somebody who has gone delays nobody for long, and lets nobody in.

use onesided_remote_memory::{Fault, FaultKind, Link, Liveness, Notify, Patience, Rank, RemoteMemory};

use crate::backoff::mixed;
use crate::recovery::COUNTS;
use crate::ticket::counters::Counters;
use crate::{LockContext, Mode, Owner};

/// The word of a node to which messages are written. Its owner waits until it changes, and never writes to it.
pub(super) const GRANT: usize = COUNTS + 1;

/// When a waiter first looks at the counters though nobody has told it to, in nanoseconds. Then after twice that, and so on.
const LOOK: u64 = 10_000_000;
/// It looks at least every 2 to the power of this times that.
const LOOKS: u32 = 5;

/// Who waits: valid 1 bit | rank 24 bits | slot 12 bits | the other mode's tickets that were given out before this one 15
/// bits | tag 12 bits. All 0 is nobody.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry(u64);

impl Entry {
    const VALID: u64 = 1 << 63;
    const TAG: u64 = 0xfff;

    /// `attempt` tells the tickets of one acquire from each other. The tag has nothing to do with the numbers of tickets, which
    /// may rise in step with the uses of a slot: of two tickets of one slot that have all else in common, one in 4096 has the
    /// other's tag.
    const fn new(owner: Owner, others: u64, attempt: u32) -> Self {
        let tag = mixed(mixed(owner.to_bits()) ^ attempt as u64) & Self::TAG;
        let place = (owner.rank.0 as u64 & 0xff_ffff) << 39 | (owner.slot as u64 & 0xfff) << 27;
        Self(Self::VALID | place | (others & 0x7fff) << 12 | tag)
    }

    const fn is_valid(self) -> bool {
        self.0 & Self::VALID != 0
    }

    const fn rank(self) -> Rank {
        Rank((self.0 >> 39) as u32 & 0xff_ffff)
    }

    const fn slot(self) -> u16 {
        (self.0 >> 27) as u16 & 0xfff
    }

    const fn others(self) -> u64 {
        self.0 >> 12 & 0x7fff
    }

    /// What tells its owner that the turn of its ticket, which has this number, has come: valid 1 bit | lock 21 bits | number
    /// 15 bits | the entry's low 27 bits. Whoever waits for another lock, or with another ticket, takes it for a hint, but for
    /// chance: a late message for a ticket of the same slot that has the same number (the numbers wrap), with as many of the
    /// other mode before it, fits one time in 4096. Another lock's: one time in 2<sup>21</sup> of these.
    const fn grant(self, lock: u64, number: u64) -> u64 {
        Self::VALID | (mixed(lock) & 0x1f_ffff) << 42 | (number & 0x7fff) << 27 | self.0 & 0x7ff_ffff
    }

    /// What tells somebody else to look. No two of them are alike.
    const fn hint(self) -> u64 {
        mixed(self.0) & !Self::VALID
    }

    /// Writes to the one who made this entry. Whether that arrives makes no difference to who may come in.
    fn tell<'m, M: RemoteMemory>(self, memory: &M, place: impl LockContext<'m, M>, what: u64) -> Option<M::Op> {
        let grant = place.node_of(self.rank(), self.slot(), GRANT).ok()?;
        Some(memory.write(grant, what, Notify::Yes))
    }
}

/// Waits until a message has left, and sends it once more if it failed though its owner lives: twice is as good as once. Whoever
/// cannot be told looks.
async fn told<'m, M: RemoteMemory>(
    memory: &'m M,
    place: impl LockContext<'m, M>,
    (entry, what): (Entry, u64),
    first: M::Op,
) {
    if first.await.is_err()
        && memory.liveness(entry.rank()) == Liveness::Alive
        && let Some(again) = entry.tell(memory, place, what)
    {
        let _ = again.await;
    }
}

/// Where the entry lies of the ticket with this number, among the words at the home.
const fn index(mode: Mode, number: u64, ring: usize) -> usize {
    let first = match mode {
        Mode::Exclusive => 1,
        Mode::Shared => 1 + ring,
    };
    first + (number % ring as u64) as usize
}

const fn other(mode: Mode) -> Mode {
    match mode {
        Mode::Exclusive => Mode::Shared,
        Mode::Shared => Mode::Exclusive,
    }
}

/// How a wait ended.
pub(crate) enum Waited<const BITS: u32> {
    /// The turn has come.
    Granted,
    /// It may have. The counters as they are now.
    Seen(Counters<BITS>),
    /// There is no room for an entry: the counters are to be read now and then.
    Standing,
}

/// What a waiter keeps of its entry.
pub(crate) struct Seat<P> {
    place: P,
    mode: Mode,
    /// Entries of each mode.
    ring: usize,
    attempt: u32,
    entered: Option<Entered>,
}

#[derive(Clone, Copy)]
struct Entered {
    /// What says that the turn has come.
    grant: u64,
    /// What was written to the node last.
    last: u64,
    /// How often it looked though nobody had told it to.
    looked: u32,
}

impl<P> Seat<P> {
    pub(super) const fn new(place: P, mode: Mode, ring: usize) -> Self {
        Self { place, mode, ring, attempt: 0, entered: None }
    }

    /// Another ticket from now on.
    pub(crate) const fn begin(&mut self) {
        (self.attempt, self.entered) = (self.attempt.wrapping_add(1), None);
    }

    /// Waits for the turn of the ticket that was taken from the word `before`; `word` was seen since.
    pub(crate) async fn wait<'m, M: RemoteMemory, const BITS: u32>(
        &mut self,
        memory: &'m M,
        before: Counters<BITS>,
        word: Counters<BITS>,
    ) -> Result<Waited<BITS>, Fault>
    where
        P: LockContext<'m, M>,
    {
        let Self { place, mode, ring, .. } = *self;
        let Some(Entered { grant, last, looked }) = self.entered else {
            // A ticket that is so many behind has its entry's place to itself later.
            let has_room = before.given(mode).wrapping_sub(word.came_back(mode)) & Counters::<BITS>::ROOM < ring as u64;
            return if place.has_node() && has_room { self.enter(memory, before).await } else { Ok(Waited::Standing) };
        };
        let known = memory.failed_rank().is_some();
        let patience = Patience::with_failures(memory.rank()).and_until(memory.now().saturating_add(LOOK << looked));
        let told = move |told| told != last || !known && memory.failed_rank().is_some();
        match memory.wait_until(place.node(GRANT)?, told, patience).await {
            Ok(told) if told == grant => return Ok(Waited::Granted),
            Ok(told) => self.entered = Some(Entered { grant, last: told, looked }),
            Err(fault) if fault.kind() == FaultKind::NotOwn => return Err(fault),
            Err(_) => self.entered = Some(Entered { grant, last, looked: LOOKS.min(looked + 1) }),
        }
        memory.read(place.home(0)?).await.map(|word| Waited::Seen(Counters(word)))
    }

    /// Makes the entry, and looks whether it is too late for that: whoever gives this ticket its turn reads the entry after
    /// that.
    async fn enter<'m, M: RemoteMemory, const BITS: u32>(
        &mut self,
        memory: &'m M,
        before: Counters<BITS>,
    ) -> Result<Waited<BITS>, Fault>
    where
        P: LockContext<'m, M>,
    {
        let Self { place, mode, ring, attempt, .. } = *self;
        let number = before.given(mode);
        let entry = Entry::new(place.owner(), before.given(other(mode)), attempt);
        let entered =
            Entered { grant: entry.grant(place.lock(), number), last: memory.load(place.node(GRANT)?)?, looked: 0 };
        let (home, word) = (place.home(0)?, place.home(index(mode, number, ring))?);
        let look = Link::Read { word: home, waited: true };
        if mode == Mode::Exclusive {
            // Exclusive tickets come back in their order: whoever had this place has gone.
            let write = Link::Write { word, value: entry.0, notify: Notify::No, waited: true };
            let [_, now] = memory.post([write, look]).await?;
            self.entered = Some(entered);
            return Ok(Waited::Seen(Counters(now)));
        }
        // Readers do not: whoever has this place may have its turn, and not know it yet.
        let [found, now] = memory.post([Link::Read { word, waited: true }, look]).await?;
        let (found, now) = (Entry(found), Counters::<BITS>(now));
        if now.is_frozen() || now.ahead(before, mode) == 0 {
            return Ok(Waited::Seen(now));
        }
        let behind = found.others().wrapping_sub(now.came_back(Mode::Exclusive)) & Counters::<BITS>::ROOM;
        if found.is_valid() && behind != 0 && behind <= now.out(Mode::Exclusive) {
            return Ok(Waited::Standing);
        }
        let swap = Link::CompareSwap { word, expected: found.0, new: entry.0, waited: true };
        let [swapped, now] = memory.post([swap, look]).await?;
        if Entry(swapped) == found {
            self.entered = Some(entered);
            if found.is_valid()
                && behind == 0
                && let Some(hint) = found.tell(memory, place, entry.hint())
            {
                told(memory, place, (found, entry.hint()), hint).await;
            }
        }
        Ok(Waited::Seen(Counters(now)))
    }
}

/// Tells those whose turn has come. `left` is what an owner in this mode left of the counters when it gave its ticket back.
pub(super) async fn hand_over<'m, M: RemoteMemory, const BITS: u32, const RING: usize>(
    memory: &'m M,
    place: impl LockContext<'m, M>,
    from: Mode,
    left: Counters<BITS>,
) -> Result<(), Fault> {
    let [owners, readers] = [Mode::Exclusive, Mode::Shared].map(|mode| left.came_back(mode));
    let number = |at: usize| (readers + at as u64) & Counters::<BITS>::ROOM;
    let entry = |mode, number| Ok(memory.read(place.home(index(mode, number, RING))?));
    // In this order: who is read of first, and whose turn it is then, has his turn.
    let owner = if left.out(Mode::Exclusive) > 0 { Some(entry(Mode::Exclusive, owners)?) } else { None };
    let waiting = if from == Mode::Exclusive { left.out(Mode::Shared) } else { 0 };
    let mut entries = [const { None }; RING];
    for (at, read) in entries.iter_mut().enumerate().take_while(|(at, _)| (*at as u64) < waiting) {
        *read = Some(entry(Mode::Shared, number(at))?);
    }
    let now = Counters::<BITS>(memory.read(place.home(0)?).await?);
    // Else they have had their turn.
    if now.is_frozen() || now.came_back(Mode::Exclusive) != owners {
        return Ok(());
    }
    // An entry may be of a ticket that had its place before: then somebody looks for nothing.
    let mut grants = [const { None }; RING];
    for (at, read) in entries.into_iter().enumerate() {
        let Some(read) = read else { break };
        let reader = Entry(read.await?);
        if reader.is_valid() && reader.others() == owners {
            let grant = reader.grant(place.lock(), number(at));
            grants[at] = reader.tell(memory, place, grant).map(|op| ((reader, grant), op));
        }
    }
    if let Some(owner) = owner {
        let owner = Entry(owner.await?);
        let grant = owner.grant(place.lock(), owners);
        if owner.is_valid()
            && owner.others() == readers
            && now.came_back(Mode::Shared) == readers
            && let Some(op) = owner.tell(memory, place, grant)
        {
            told(memory, place, (owner, grant), op).await;
        }
    }
    for (grant, op) in grants.into_iter().flatten() {
        told(memory, place, grant, op).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_fields_do_not_touch() {
        for rank in [0, 1, Rank::LIMIT] {
            for slot in [0, 1, 0xfff] {
                for others in [0, 1, 0x7fff] {
                    for generation in [0, 1, 0x1ff] {
                        let entry = Entry::new(Owner { rank: Rank(rank), slot, generation }, others, 7);
                        assert!(entry.is_valid());
                        assert_eq!((entry.rank(), entry.slot(), entry.others()), (Rank(rank), slot, others));
                    }
                }
            }
        }
        assert!(!Entry(0).is_valid());
    }

    #[test]
    fn grants_differ_by_lock_number_and_entry() {
        let owner = Owner { rank: Rank(1), slot: 2, generation: 3 };
        let entry = Entry::new(owner, 4, 5);
        let all = [
            entry.grant(6, 7),
            entry.grant(7, 7),
            entry.grant(6, 8),
            Entry::new(owner, 5, 5).grant(6, 7),
            Entry::new(owner, 4, 6).grant(6, 7),
            Entry::new(Owner { generation: 4, ..owner }, 4, 5).grant(6, 7),
            entry.hint(),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[..at].contains(one), "{at}");
        }
    }

    /// Who was told to look once is told once more by the next one.
    #[test]
    fn hints_differ_and_are_no_grants() {
        let entries = [(4, 5), (4, 6), (5, 5)]
            .map(|(others, attempt)| Entry::new(Owner { rank: Rank(1), slot: 2, generation: 3 }, others, attempt));
        for (at, entry) in entries.iter().enumerate() {
            assert!(!Entry(entry.hint()).is_valid());
            assert!(entries[..at].iter().all(|other| other.hint() != entry.hint()), "{at}");
        }
    }

    /// However regularly a slot is used, whether two of its tickets have one tag is chance.
    #[test]
    fn tags_do_not_rise_with_the_generation() {
        let tag =
            |generation, attempt| Entry::new(Owner { rank: Rank(1), slot: 2, generation }, 4, attempt).0 & Entry::TAG;
        for stride in [1, 8, 512, 1 << 15, 1 << 20] {
            for (attempts, most) in [(0, 12), (8, 12)] {
                let alike = (0..4096).filter(|at| tag(*at, 0) == tag(at + stride, attempts)).count();
                assert!(alike <= most, "{alike} of 4096 have the tag of {stride} uses and {attempts} attempts later");
            }
        }
    }

    #[test]
    fn every_number_has_a_place_of_its_mode() {
        for ring in [1, 4, 16] {
            let places = |mode| (0..ring as u64).map(move |number| index(mode, number, ring));
            assert!(places(Mode::Exclusive).chain(places(Mode::Shared)).eq(1..1 + 2 * ring));
            assert_eq!(index(Mode::Shared, ring as u64, ring), index(Mode::Shared, 0, ring));
        }
    }
}
