//! The entries of waiters, and their notifications.
//!
//! The counters alone define whose turn it is: an entry only tells how to notify its owner. So an
//! entry that is missing, late or of an owner that left delays no rank for long, and admits none.

use std::fmt::Debug;
use std::future::Future;

use onesided_remote_memory::{Chain, Fault, FaultKind, Link, Notify, Patience, Rank, RemoteMemory};

use crate::backoff::mixed;
use crate::recovery::{ANNOUNCED, Boxed, POISON};
use crate::ticket::counters::Counters;
use crate::{LockContext, LockUse, Mode, Op, Owner, Word};

/// The word of a node to which notifications are written. Its owner waits until it changes, and
/// never writes to it.
pub(crate) const GRANT: usize = ANNOUNCED + 1;

/// The first entry, among the words at the home.
const FIRST: usize = POISON + 1;

/// When a waiter first reads the counters without a notification, in nanoseconds. The interval then
/// doubles.
const POLL_INTERVAL: u64 = 10_000_000;
/// The number of doublings.
const DOUBLINGS: u8 = 5;

/// A waiter: valid 1 bit | rank 24 bits | slot 12 bits | tickets of the other mode that were given
/// out before its own 15 bits | tag 12 bits. All 0 is none.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry(u64);

impl Entry {
    const VALID: u64 = 1 << 63;
    const TAG: u64 = 0xfff;

    /// `attempt` distinguishes the tickets of one acquire. The tag is independent of ticket
    /// numbers, which may rise in step with the uses of a slot: of two tickets of one slot that
    /// agree in everything else, one in 4096 has the same tag.
    const fn new(owner: Owner, others: u64, attempt: u32) -> Self {
        let tag = mixed(mixed(owner.to_bits()) ^ attempt as u64) & Self::TAG;
        let identity = (owner.rank.0 as u64 & 0xff_ffff) << 39 | (owner.slot as u64 & 0xfff) << 27;
        Self(Self::VALID | identity | (others & 0x7fff) << 12 | tag)
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

    /// The notification that the entry's ticket, which has this number, is served: valid 1 bit |
    /// lock 21 bits | number 15 bits | the entry's low 27 bits. A waiter of another lock, or with
    /// another ticket, takes it as a hint, with high probability: a late notification for a ticket
    /// of the same slot with the same number (numbers wrap), and with as many tickets of the other
    /// mode before it, matches one time in 4096. One of another lock matches one time in
    /// 2<sup>21</sup> of these.
    const fn grant(self, lock: u64, number: u64) -> u64 {
        Self::VALID | (mixed(lock) & 0x1f_ffff) << 42 | (number & 0x7fff) << 27 | self.0 & 0x7ff_ffff
    }

    /// A notification that asks a waiter to read the counters. Any two differ.
    const fn hint(self) -> u64 {
        mixed(self.0) & !Self::VALID
    }

    /// Notifies the owner of this entry. Whether the notification arrives does not affect
    /// admission.
    fn tell<'m, P: LockContext<'m>>(self, memory: &P::Memory, context: P, what: u64) -> Option<Op<P>> {
        let grant = context.node_of(self.rank(), self.slot(), GRANT).ok()?;
        Some(memory.write(grant, what, Notify::Yes))
    }
}

/// The index of the entry of this ticket number, among the words at the home.
const fn index(mode: Mode, number: u64, ring: usize) -> usize {
    let first = match mode {
        Mode::Exclusive => FIRST,
        Mode::Shared => FIRST + ring,
    };
    first + (number % ring as u64) as usize
}

/// The result of a wait.
#[derive(Debug)]
pub enum Waited<const BITS: u32> {
    /// The ticket is served.
    Granted,
    /// It may be. The current counters.
    Seen(Counters<BITS>),
    /// There is no free entry: the caller has to poll the counters.
    Standing,
}

/// How the waiters of a ticket lock learn that they are served: by their places in a ring, or not at
/// all, if it is `()`. The value is a waiter's state of its place.
pub trait InRing: Copy + Debug + Default + Send + Sync + 'static {
    /// The name of the lock.
    const NAME: &'static str;
    /// Entries of each mode.
    const ENTRIES: usize;

    /// Starts with another ticket.
    fn begin(&mut self) {}

    /// Waits until the ticket that was taken from the word `before` is served; `word` was read
    /// since.
    fn wait<'m, const BITS: u32>(
        &mut self,
        lock: &LockUse<'m, impl LockContext<'m>>,
        before: Counters<BITS>,
        word: Counters<BITS>,
    ) -> impl Future<Output = Result<Waited<BITS>, Fault>> + Send {
        let _ = (lock, before, word);
        std::future::ready(Ok(Waited::Standing))
    }

    /// Notifies the owners that are served now. `left` are the counters after the release of this use
    /// of the lock.
    fn hand_over<'m, const BITS: u32>(
        lock: LockUse<'m, impl LockContext<'m>>,
        left: Counters<BITS>,
    ) -> impl Future<Output = Result<(), Fault>> + Send + 'm {
        let _ = (lock, left);
        std::future::ready(Ok(()))
    }
}

impl InRing for () {
    const NAME: &'static str = "ticket";
    const ENTRIES: usize = 0;
}

/// A waiter's state of its ring slot. There may be very many: small.
#[derive(Clone, Copy, Debug, Default)]
pub struct RingSlot<const RING: usize> {
    /// The last value of the node's word.
    last: u64,
    attempt: u32,
    /// How often it polled without a notification.
    looked: u8,
    /// Whether the ticket has an entry.
    is_entered: bool,
}

impl<const RING: usize> InRing for RingSlot<RING> {
    const NAME: &'static str = "fetch-add-queue";
    const ENTRIES: usize = {
        assert!(RING.is_power_of_two());
        RING
    };

    fn begin(&mut self) {
        (self.attempt, self.is_entered) = (self.attempt.wrapping_add(1), false);
    }

    fn wait<'m, const BITS: u32>(
        &mut self,
        lock: &LockUse<'m, impl LockContext<'m>>,
        before: Counters<BITS>,
        word: Counters<BITS>,
    ) -> impl Future<Output = Result<Waited<BITS>, Fault>> + Send {
        // A ticket that is further behind gets its entry later.
        let ahead = before.given(lock.mode).wrapping_sub(word.came_back(lock.mode)) & Counters::<BITS>::ROOM;
        let is_near = ahead < RING as u64;
        async move {
            if !self.is_entered {
                return match (is_near, lock.mode) {
                    (false, _) => Ok(Waited::Standing),
                    (true, Mode::Exclusive) => {
                        let written = self.write_entry(lock, before)?;
                        let [_, now] = written.await?;
                        self.is_entered = true;
                        Ok(Waited::Seen(Counters(now)))
                    }
                    (true, Mode::Shared) => self.enter_readers(lock, before).await,
                };
            }
            let wait = self.wait_for_grant(lock)?; // `?` and `await` in one expression keep it twice
            match wait.await {
                Ok(told) if told == self.grant(lock, before) => return Ok(Waited::Granted),
                // A hint or a death: the interval starts over.
                Ok(told) => (self.last, self.looked) = (told, 0),
                Err(fault) if fault.kind() == FaultKind::NotOwn => return Err(fault),
                Err(_) => self.looked = DOUBLINGS.min(self.looked + 1),
            }
            lock.look().await.map(Waited::Seen)
        }
    }

    fn hand_over<'m, const BITS: u32>(
        lock: LockUse<'m, impl LockContext<'m>>,
        left: Counters<BITS>,
    ) -> impl Future<Output = Result<(), Fault>> + Send + 'm {
        async move {
            if lock.mode == Mode::Exclusive && left.out(Mode::Shared) > 0 {
                // Boxed: in the future of every owner it would be the largest.
                return Box::pin(hand_over_to_readers::<BITS, RING>(lock, left)).await;
            }
            let owner = read_entry::<_, BITS, RING>(lock, Mode::Exclusive, left.came_back(Mode::Exclusive))?;
            let now = lock.look().await?;
            if is_served(left, now)
                && let Some(told) = tell_owner(lock, Entry(owner.await?), left, now)
            {
                let _ = told.await; // an owner that cannot be notified polls
            }
            Ok(())
        }
    }
}

impl<const RING: usize> RingSlot<RING> {
    /// Waits for a notification, a failure, or a while. Returns the node's word.
    fn wait_for_grant<'m>(
        &self,
        lock: &LockUse<'m, impl LockContext<'m>>,
    ) -> Result<impl Future<Output = Result<u64, Fault>> + Send + 'm, Fault> {
        let (memory, last) = (lock.memory, self.last);
        let known = memory.ends();
        let nanos = POLL_INTERVAL << self.looked;
        let patience = Patience::with_failures(memory.rank()).and_until(memory.now().saturating_add(nanos));
        let told = move |told| told != last || memory.ends() != known;
        Ok(memory.wait_until(lock.node(GRANT)?, told, patience))
    }

    /// The entry of the ticket that was taken from the word `before`.
    fn entry<'m, const BITS: u32>(&self, lock: &LockUse<'m, impl LockContext<'m>>, before: Counters<BITS>) -> Entry {
        Entry::new(lock.context.owner(), before.given(lock.mode.other()), self.attempt)
    }

    /// Posts an operation on that entry, and a read of the counters behind it.
    fn post<'m, P: LockContext<'m>, const BITS: u32>(
        &self,
        lock: &LockUse<'m, P>,
        before: Counters<BITS>,
        link: impl FnOnce(Word<'m, P>) -> Link<Word<'m, P>>,
    ) -> Result<Chain<Op<P>, 2>, Fault> {
        let word = lock.context.home(index(lock.mode, before.given(lock.mode), RING))?;
        Ok(lock.memory.post([link(word), Link::Read { word: lock.home, waited: true }]))
    }

    /// Writes the entry of an exclusive ticket, and reads the counters behind it, in case it is
    /// late: a rank that serves this ticket reads the entry after its fetch-add. Exclusive tickets
    /// return in order: the previous user of this entry has left.
    fn write_entry<'m, P: LockContext<'m>, const BITS: u32>(
        &mut self,
        lock: &LockUse<'m, P>,
        before: Counters<BITS>,
    ) -> Result<Chain<Op<P>, 2>, Fault> {
        (self.last, self.looked) = (lock.memory.load(lock.node(GRANT)?)?, 0);
        let value = self.entry(lock, before).0;
        self.post(lock, before, |word| Link::Write { word, value, notify: Notify::No, waited: true })
    }

    /// The same with a reader's ticket. Readers return in any order: the user of this entry may be
    /// served and not know it yet. Boxed: in the future of every waiter it would be the largest.
    fn enter_readers<'a, 'm: 'a, const BITS: u32>(
        &'a mut self,
        lock: &'a LockUse<'m, impl LockContext<'m>>,
        before: Counters<BITS>,
    ) -> Boxed<'a, Result<Waited<BITS>, Fault>> {
        Box::pin(async move {
            (self.last, self.looked) = (lock.memory.load(lock.node(GRANT)?)?, 0);
            let read = self.post(lock, before, |word| Link::Read { word, waited: true })?;
            let [found, now] = read.await?;
            let (found, now) = (Entry(found), Counters::<BITS>(now));
            if now.is_recovering() || now.ahead(before, lock.mode) == 0 {
                return Ok(Waited::Seen(now));
            }
            let behind = found.others().wrapping_sub(now.came_back(Mode::Exclusive)) & Counters::<BITS>::ROOM;
            if found.is_valid() && behind != 0 && behind <= now.out(Mode::Exclusive) {
                return Ok(Waited::Standing);
            }
            let new = self.entry(lock, before).0;
            let swap = |word| Link::CompareSwap { word, expected: found.0, new, waited: true };
            let swapped = self.post(lock, before, swap)?;
            let [swapped, now] = swapped.await?;
            if swapped == found.0 {
                self.is_entered = true;
                if found.is_valid()
                    && behind == 0
                    && let Some(hint) = found.tell(lock.memory, lock.context, self.entry(lock, before).hint())
                {
                    let _ = hint.await;
                }
            }
            Ok(Waited::Seen(Counters(now)))
        })
    }

    /// The notification that the ticket is served. Computed when it comes, not kept.
    fn grant<'m, const BITS: u32>(&self, lock: &LockUse<'m, impl LockContext<'m>>, before: Counters<BITS>) -> u64 {
        self.entry(lock, before).grant(lock.context.lock(), before.given(lock.mode))
    }
}

/// The same with readers that wait.
async fn hand_over_to_readers<'m, const BITS: u32, const RING: usize>(
    lock: LockUse<'m, impl LockContext<'m>>,
    left: Counters<BITS>,
) -> Result<(), Fault> {
    let [owners, readers] = [Mode::Exclusive, Mode::Shared].map(|mode| left.came_back(mode));
    let number = |at: usize| (readers + at as u64) & Counters::<BITS>::ROOM;
    // In this order: an owner whose entry is read is served if the counters behind it say so.
    let has_owner = left.out(Mode::Exclusive) > 0;
    let owner = if has_owner { Some(read_entry::<_, BITS, RING>(lock, Mode::Exclusive, owners)?) } else { None };
    let entries = (0..RING.min(left.out(Mode::Shared) as usize))
        .map(|at| read_entry::<_, BITS, RING>(lock, Mode::Shared, number(at)))
        .collect::<Result<Vec<_>, _>>()?;
    let now = lock.look().await?;
    if !is_served(left, now) {
        return Ok(());
    }
    // An entry may be of an earlier ticket: then its owner polls without result.
    let mut grants = Vec::with_capacity(entries.len());
    for (at, read) in entries.into_iter().enumerate() {
        let reader = Entry(read.await?);
        if reader.is_valid() && reader.others() == owners {
            let grant = reader.grant(lock.context.lock(), number(at));
            grants.extend(reader.tell(lock.memory, lock.context, grant));
        }
    }
    if let Some(owner) = owner
        && let Some(told) = tell_owner(lock, Entry(owner.await?), left, now)
    {
        let _ = told.await;
    }
    for told in grants {
        let _ = told.await;
    }
    Ok(())
}

/// Reads the entry of a ticket.
fn read_entry<'m, P: LockContext<'m>, const BITS: u32, const RING: usize>(
    lock: LockUse<'m, P>,
    mode: Mode,
    number: u64,
) -> Result<Op<P>, Fault> {
    Ok(lock.memory.read(lock.context.home(index(mode, number, RING))?))
}

/// Whether those are served `now` that wait since the release that `left` these counters: otherwise
/// they were served before.
fn is_served<const BITS: u32>(left: Counters<BITS>, now: Counters<BITS>) -> bool {
    !now.is_recovering() && now.came_back(Mode::Exclusive) == left.came_back(Mode::Exclusive)
}

/// Notifies an exclusive owner, if it is served.
fn tell_owner<'m, P: LockContext<'m>, const BITS: u32>(
    lock: LockUse<'m, P>,
    owner: Entry,
    left: Counters<BITS>,
    now: Counters<BITS>,
) -> Option<Op<P>> {
    let readers = left.came_back(Mode::Shared);
    let served = owner.is_valid() && owner.others() == readers && now.came_back(Mode::Shared) == readers;
    let grant = owner.grant(lock.context.lock(), left.came_back(Mode::Exclusive));
    if served { owner.tell(lock.memory, lock.context, grant) } else { None }
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

    /// Two hints in a row to one waiter differ.
    #[test]
    fn hints_differ_and_are_no_grants() {
        let entries = [(4, 5), (4, 6), (5, 5)]
            .map(|(others, attempt)| Entry::new(Owner { rank: Rank(1), slot: 2, generation: 3 }, others, attempt));
        for (at, entry) in entries.iter().enumerate() {
            assert!(!Entry(entry.hint()).is_valid());
            assert!(entries[..at].iter().all(|other| other.hint() != entry.hint()), "{at}");
        }
    }

    /// However regularly a slot is used, equal tags of two tickets are chance.
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
            assert!(places(Mode::Exclusive).chain(places(Mode::Shared)).eq(FIRST..FIRST + 2 * ring));
            assert_eq!(index(Mode::Shared, ring as u64, ring), index(Mode::Shared, 0, ring));
        }
    }
}
