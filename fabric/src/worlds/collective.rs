//! Barrier and all-gather, built from words, gets and own memory alone, so that they run on every
//! fabric.

mod gathering;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};

use onesided_job::fork;
use onesided_job::lock;
use onesided_remote_memory::{Collective, Fault, FaultKind, Notify, Rank};

use self::gathering::Gathering;
use crate::interface::offer::PROCESSES_AT;
use crate::waiting::waits::telling;
use crate::worlds::arrival::Arrival;
use crate::worlds::members::Members;
use crate::{Fabric, NOBODY, Wait, World};

/// Rounds of the dissemination barrier: enough for [`Rank::LIMIT`].
const ROUNDS: u64 = 24;
/// The offset of what a rank publishes in its segment for collectives.
const PUBLISHED_AT: u64 = ROUNDS * 8;
/// The maximum contribution of a rank to [`World::all_gather`], in bytes.
pub(crate) const GATHER_BYTES: u64 = 1024;

/// The failure-detection timeout after a failed write, in nanoseconds.
const DETECTION_TIMEOUT: u64 = 1_000_000_000;

/// The offset of lanes, each of which has the slots of a window.
const LANES_AT: u64 = gathering::END.next_multiple_of(8);

const _: () = assert!(LANES_AT <= PROCESSES_AT);

/// The ranks of a world that call collectives in an order of their own: all of them as the world, or as
/// a window. Of different groups they may call some at the same time.
#[doc(hidden)]
pub trait Group<F: Fabric>: Send + Sync {
    /// This rank's place in that order.
    fn sequence(&self) -> &Sequence;
    /// A rank's segment that holds its [slots](slot_bytes) of the barrier, and their offset.
    ///
    /// # Errors
    /// As [`Fabric::open`]; `NoSuchRegion` also where the slots of a rank are not needed.
    fn slots(&self, rank: u32) -> Result<(F::Segment, u64), Fault>;
    /// Whether a rank that has passed may free its slots, so that others access them no more.
    fn is_closing(&self) -> bool {
        false
    }
    /// The name of the window.
    fn window(&self) -> Option<&str> {
        None
    }
}

/// The order of a group's collectives, at a rank. Every rank calls the same ones in the same order.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Sequence {
    barriers: AtomicU64,
    /// A collective failed or was dropped.
    broken: AtomicBool,
    /// [`Endpoint::departed`](crate::Endpoint::departed) when none of these ranks had left.
    departed: AtomicU32,
}

/// The collectives of a world at a rank.
#[derive(Debug)]
pub(crate) struct Collectives<F: Fabric> {
    pub(crate) members: Members<F>,
    sequence: Sequence,
    /// A bit for each lane that a window has here.
    lanes: AtomicU64,
    /// What this rank published in a gather that others have not left.
    published: Mutex<Vec<F::Segment>>,
}

/// All its ranks.
impl<F: Fabric> Group<F> for World<F> {
    fn sequence(&self) -> &Sequence {
        &self.collective.sequence
    }

    fn slots(&self, rank: u32) -> Result<(F::Segment, u64), Fault> {
        Ok((self.collective.members.segment(self.fabric(), rank)?, 0))
    }
}

/// Marks the collectives as broken, unless it is forgotten.
struct Unfinished<'c>(&'c AtomicBool);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A collective of a group at a rank.
struct Meeting<'m, F: Fabric, G: ?Sized> {
    world: &'m World<F>,
    group: &'m G,
    collective: Collective,
}

impl<F: Fabric, G: Group<F> + ?Sized> Meeting<'_, F, G> {
    fn fabric(&self) -> &F {
        self.world.fabric()
    }

    fn members(&self) -> &Members<F> {
        &self.world.collective.members
    }

    /// This rank, and the number of ranks.
    fn me_of(&self) -> (u32, u32) {
        (self.world.rank(), self.world.size())
    }

    /// The dissemination barrier (Hensgen, Finkel, Manber 1988): in round r each rank signals the
    /// rank 2^r after it and waits for the rank 2^r before it. A slot holds the [`Arrival`] of its
    /// single writer in the last barrier that this entered, so a peer that is already in the next
    /// barrier is harmless.
    ///
    /// Every rank hears of every other in the rounds. So does it of two that are in different
    /// collectives, and of a rank that does not come: a rank that hears of them tells the ranks after
    /// it, and fails. None passes such a barrier. (A death all learn by themselves, in any round.)
    ///
    /// Each round also moves what is gathered.
    async fn enter(&self, gathering: Option<&mut Gathering>) -> Result<(), Fault> {
        fork::check()?;
        let Sequence { barriers, broken, .. } = self.group.sequence();
        if broken.load(Ordering::Relaxed) {
            return Err(Fault::new(FaultKind::OutOfStep));
        }
        let number = barriers.fetch_add(1, Ordering::Relaxed) + 1;
        // A rank that left a barrier early, also by a drop, has not signalled the others, and its
        // numbers are inconsistent.
        let unfinished = Unfinished(broken);
        self.rounds(number, gathering).await?;
        std::mem::forget(unfinished);
        Ok(())
    }

    /// The ranks of the world that have not arrived in the barrier. Where that would take messages,
    /// only the rank that this one waits for.
    fn missing(&self) -> Vec<u32> {
        let (me, size) = self.me_of();
        let number = self.group.sequence().barriers.load(Ordering::Relaxed);
        // If that can be told at once.
        let is_missing = |rank, distance| {
            let come = pin!(self.has_come(number, (rank, distance)));
            come.poll(&mut Context::from_waker(NOBODY)) == Poll::Ready(Ok(false))
        };
        if self.fabric().capabilities().completes_at_post && !self.group.is_closing() {
            (0..size).filter(|rank| *rank != me && is_missing(*rank, 1)).collect()
        } else {
            let from = |distance| (me + size - distance) % size;
            let waits = distances(size).find(|distance| is_missing(from(*distance), *distance));
            waits.map(from).into_iter().collect()
        }
    }

    /// Whether a rank has come to a barrier, as the rank at this distance after it knows.
    async fn has_come(&self, number: u64, (rank, distance): (u32, u32)) -> Result<bool, Fault> {
        let (me, size) = self.me_of();
        let to = (rank + distance) % size;
        if to != me && self.group.is_closing() {
            return Err(Fault::new(FaultKind::NoSuchRegion));
        }
        let slots = self.group.slots(to)?;
        let slot = self.slot(&slots, distance)?;
        let seen = if to == me { self.fabric().load(slot)? } else { self.fabric().read(slot).await? };
        Ok(Arrival::has_come(seen, number))
    }

    /// The slot of a round.
    fn slot<'s>(&'s self, (segment, at): &'s (F::Segment, u64), distance: u32) -> Result<F::Word<'s>, Fault> {
        self.fabric().word_in(segment, at + slot(distance))
    }

    /// Ends once a member has left without coming to this barrier. (One that comes may leave as soon as
    /// it has passed, and so before others pass.)
    async fn departure(&self, number: u64) -> Fault {
        let (fabric, seen) = (self.fabric(), &self.group.sequence().departed);
        let (mut known, mut any) = (seen.load(Ordering::Relaxed), false);
        loop {
            let departed = poll_fn(|_| match fabric.endpoint().departed(known) {
                (now, _) if now == known => Poll::Pending, // until the wait for the own word is polled again
                departed => Poll::Ready(departed),
            });
            let (now, ranks) = departed.await;
            for rank in ranks {
                let Some(member) = self.members().named_by_world(rank) else { continue };
                any = true;
                for distance in distances(self.me_of().1) {
                    match (self.has_come(number, (member, distance)).await, fabric.liveness(rank).needed(rank)) {
                        (Ok(false), Err(fault)) => return fault,
                        (Ok(_), _) => break,
                        (Err(_), _) => {} // the rank that would know has left too
                    }
                }
            }
            known = now;
            if !any {
                seen.store(known, Ordering::Relaxed);
            }
        }
    }

    /// The wait for a barrier.
    #[cold]
    fn wait(&self) -> Wait {
        let in_job = |rank: u32| self.members().named_by_fabric(self.fabric(), rank);
        let awaited = self.missing().into_iter().filter_map(in_job).collect();
        let what = text(self.collective, self.group.window());
        Wait { rank: self.fabric().rank(), awaited, since: None, what }
    }

    async fn rounds(&self, number: u64, mut gathering: Option<&mut Gathering>) -> Result<(), Fault> {
        let (me, size) = self.me_of();
        let own = self.group.slots(me)?;
        let mut arrival = Arrival::new(number, self.collective);
        for distance in distances(size) {
            let round = self.round(&own, distance, &mut arrival, gathering.as_deref_mut()).await;
            if let Err(mut fault) = round {
                if fault.kind() == FaultKind::NoSuchRegion {
                    fault = self.cause_of_close(&own, (&mut arrival, fault)).await;
                }
                self.tell(distance, arrival, fault);
                return Err(fault);
            }
        }
        Ok(())
    }

    async fn round(
        &self,
        own: &(F::Segment, u64),
        distance: u32,
        arrival: &mut Arrival,
        mut gathering: Option<&mut Gathering>,
    ) -> Result<(), Fault> {
        let (fabric, members, (me, size)) = (self.fabric(), self.members(), self.me_of());
        let count = distance.min(size - distance);
        if let Some(gathering) = &mut gathering {
            lock(&self.world.collective.published).extend(gathering.publish(fabric, &own.0, distance, count)?);
        }
        let to = self.group.slots((me + distance) % size)?;
        let mut told = Some(fabric.write(self.slot(&to, distance)?, arrival.to_word(), Notify::Yes));
        let before = (me + size - distance) % size;
        let from = members.named_by_fabric(fabric, before).ok_or(Fault::new(FaultKind::NoSuchRank))?;
        let word = self.slot(own, distance)?;
        let number = arrival.number();
        let has_come = move |seen| Arrival::has_come(seen, number);
        let wait = pin!(members.wait_until(fabric, word, has_come, (from, u64::MAX)));
        let mut wait = telling(wait, || Some(self.wait()));
        let mut departure = pin!(self.departure(number));
        let mut untold = None;
        let waited = poll_fn(|cx| {
            // A rank that cannot be signalled never completes its barrier, nor do the ranks
            // that wait for it.
            match told.as_mut().map(|told| Pin::new(told).poll(cx)) {
                Some(Poll::Ready(Err(fault))) => {
                    untold = Some(fault);
                    return Poll::Ready(Err(fault));
                }
                Some(Poll::Ready(Ok(_))) => told = None,
                Some(Poll::Pending) | None => {}
            }
            let waited = Pin::new(&mut wait).poll(cx);
            if waited.is_pending() { departure.as_mut().poll(cx).map(Err) } else { waited }
        })
        .await;
        if let Some(fault) = untold {
            return Err(self.cause(word, (from, fault)).await);
        }
        arrival.hear(waited?, [from, fabric.rank()]);
        arrival.outcome()?;
        if let Some(gathering) = gathering {
            Box::pin(gathering.read(fabric, members.segment(fabric, before), distance, count)).await;
        }
        Ok(())
    }

    /// Tells all ranks that wait for this one, in this barrier or the next, that it does not come, and
    /// why. A death they learn by themselves, once they have cut the dead rank. After a close there is
    /// no next one, and those that this rank has signalled may have passed.
    fn tell(&self, failed: u32, mut arrival: Arrival, fault: Fault) {
        if fault.kind() == FaultKind::PeerDied {
            return;
        }
        arrival.fail(self.fabric().rank(), fault);
        let (me, size) = self.me_of();
        for distance in distances(size).filter(|distance| !self.group.is_closing() || *distance > failed) {
            let Ok(to) = self.group.slots((me + distance) % size) else { continue };
            if let Ok(word) = self.slot(&to, distance) {
                drop(self.fabric().write(word, arrival.to_word(), Notify::Yes));
            }
        }
    }

    /// The cause of a failed write, if it was a death: a dying rank's card refuses before the death
    /// is known.
    async fn cause<'f>(&'f self, own: F::Word<'f>, (from, fault): (Rank, Fault)) -> Fault {
        let until = self.fabric().now().saturating_add(DETECTION_TIMEOUT);
        match self.members().wait_until(self.fabric(), own, |_| false, (from, until)).await {
            Err(death) if death.kind() == FaultKind::PeerDied => death,
            _ => fault,
        }
    }

    /// Why a rank has dropped its window, whose collective has not ended: it failed there, and has told
    /// this rank so, or has learned of a death.
    async fn cause_of_close(&self, own: &(F::Segment, u64), (arrival, fault): (&mut Arrival, Fault)) -> Fault {
        for distance in distances(self.me_of().1) {
            if let Ok(word) = self.slot(own, distance).and_then(|slot| self.fabric().load(slot)) {
                arrival.hear_failure(word);
            }
        }
        let rank = fault.rank().unwrap_or(self.fabric().rank());
        match (arrival.outcome(), self.slot(own, 1)) {
            (Err(told), _) => told,
            (Ok(()), Ok(word)) => self.cause(word, (self.fabric().rank(), Fault::of(FaultKind::Closed, rank))).await,
            (Ok(()), Err(fault)) => fault,
        }
    }
}

impl<F: Fabric> Collectives<F> {
    pub(crate) fn new(members: Members<F>) -> Self {
        Self { members, sequence: Sequence::default(), lanes: AtomicU64::new(0), published: Mutex::new(Vec::new()) }
    }
}

/// What collective calls are made of.
#[doc(hidden)]
impl<F: Fabric> World<F> {
    /// A barrier that is a part of a collective call.
    pub async fn meet(&self, collective: Collective) -> Result<(), Fault> {
        self.meet_as(self, collective).await
    }

    /// The same of a group of all its ranks.
    pub async fn meet_as(&self, group: &impl Group<F>, collective: Collective) -> Result<(), Fault> {
        let met = Meeting { world: self, group, collective }.enter(None).await;
        met.map_err(|fault| self.translate(fault))
    }

    /// An [`all_gather`](Self::all_gather) that is a part of a collective call.
    ///
    /// A barrier comes after the rounds: others read what this rank has published, and it may free
    /// its memory and leave once this has returned. A rank that could not read goes on with the
    /// rounds, and publishes why.
    pub async fn gather(&self, collective: Collective, mine: &[u8]) -> Result<Vec<Vec<u8>>, Fault> {
        if mine.len() as u64 > GATHER_BYTES {
            return Err(Fault::new(FaultKind::TooLong).with_detail(mine.len() as u32));
        }
        let mut gathering = Gathering::new(mine);
        let meeting = Meeting { world: self, group: self, collective };
        let gather = async {
            meeting.enter(Some(&mut gathering)).await?;
            meeting.enter(None).await
        };
        let gathered = match gather.await {
            Ok(()) => {
                lock(&self.collective.published).clear();
                gathering.all(self.rank(), self.size())
            }
            Err(fault) => Err(fault),
        };
        gathered.map_err(|fault| self.translate(fault))
    }

    /// Called at the deadline of a collective: the others may wait in it for this rank, so later
    /// ones fail. The fault names a rank that has not come, and the number of the others, as far as they
    /// are [known](Meeting::missing).
    pub fn give_up_collectives(&self) -> Fault {
        self.give_up_collectives_of(self)
    }

    /// The same for a group of its ranks.
    pub fn give_up_collectives_of(&self, group: &dyn Group<F>) -> Fault {
        drop(Unfinished(&group.sequence().broken));
        let missing = Meeting { world: self, group, collective: Collective::Barrier }.missing();
        let (others, late) = (missing.len().saturating_sub(1), FaultKind::TimedOut);
        missing.first().map_or(Fault::new(late), |rank| Fault::of(late, Rank(*rank)).with_detail(others as u32))
    }

    /// Takes a lane: slots for the barriers of a group, which are 0 then, in the segment that this world
    /// has for collectives. `None`: all are taken.
    pub fn take_lane(&self) -> Option<u8> {
        let bytes = slot_bytes(self.size()).max(8);
        let lanes = ((PROCESSES_AT - LANES_AT) / bytes).min(64);
        let take = |taken: u64| (u64::from(taken.trailing_ones()) < lanes).then(|| taken | (taken + 1));
        let taken = self.collective.lanes.fetch_update(Ordering::Acquire, Ordering::Relaxed, take).ok()?;
        let lane = taken.trailing_ones() as u8;
        let (fabric, (own, at)) = (self.fabric(), self.lane(self.rank(), lane).ok()?);
        (0..bytes / 8).try_for_each(|slot| fabric.store(fabric.word_in(&own, at + 8 * slot)?, 0)).ok()?;
        Some(lane)
    }

    /// Gives a lane back that no rank writes to any more.
    pub fn free_lane(&self, lane: u8) {
        self.collective.lanes.fetch_and(!(1 << lane), Ordering::Release);
    }

    /// The slots of a lane at a rank: see [`Group::slots`].
    pub fn lane(&self, rank: u32, lane: u8) -> Result<(F::Segment, u64), Fault> {
        let bytes = slot_bytes(self.size()).max(8);
        Ok((self.collective.members.segment(self.fabric(), rank)?, LANES_AT + u64::from(lane) * bytes))
    }
}

/// What a rank waits for in a call, of a window if it has a name.
fn text(collective: Collective, window: Option<&str>) -> String {
    let text = collective.to_string();
    let Some(window) = window else { return text };
    format!("{} of window \"{window}\"", text.strip_suffix(" of a window").unwrap_or(&text))
}

/// The distances of the rounds of a barrier.
fn distances(size: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(1), |distance: &u32| distance.checked_mul(2))
        .take_while(move |distance| *distance < size)
}

/// The ranks that a rank signals in a barrier.
#[doc(hidden)]
pub fn neighbours(me: u32, size: u32) -> impl Iterator<Item = u32> {
    distances(size).map(move |distance| (me + distance) % size)
}

/// The length of a rank's slots of the barrier among so many ranks, in bytes.
#[doc(hidden)]
pub const fn slot_bytes(size: u32) -> u64 {
    8 * (u32::BITS - size.saturating_sub(1).leading_zeros()) as u64
}

/// The offset of the slot of a round.
const fn slot(distance: u32) -> u64 {
    distance.ilog2() as u64 * 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slots_are_those_of_all_rounds() {
        for size in (1..200).chain([1 << 20, (1 << 20) + 1]) {
            assert_eq!(slot_bytes(size), 8 * distances(size).count() as u64);
            assert!(distances(size).last().is_none_or(|last| slot(last) + 8 == slot_bytes(size)));
        }
    }
}
