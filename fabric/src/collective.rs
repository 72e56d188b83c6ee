//! Barrier and all-gather, built from words, gets and own memory alone, so that they run on every
//! fabric.

mod gathering;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use onesided_job::fork;
use onesided_remote_memory::{Collective, Fault, FaultKind, Notify, Rank};

use self::gathering::Gathering;
use crate::arrival::Arrival;
use crate::members::Members;
use crate::offer::PROCESSES_AT;
use crate::waits::telling;
use crate::{Fabric, NOBODY, Wait};

/// Rounds of the dissemination barrier: enough for [`Rank::LIMIT`].
const ROUNDS: u64 = 24;
/// The offset of what a rank publishes in its segment for collectives.
const PUBLISHED_AT: u64 = ROUNDS * 8;
/// The maximum contribution of a rank to [`Collectives::all_gather`], in bytes.
pub(crate) const GATHER_BYTES: u64 = 1024;

/// The failure-detection timeout after a failed write, in nanoseconds.
const DETECTION_TIMEOUT: u64 = 1_000_000_000;

const _: () = assert!(gathering::END <= PROCESSES_AT);

/// The state of a rank's collectives. Every rank calls the same collectives in the same order.
#[derive(Debug)]
pub(crate) struct Collectives<F: Fabric> {
    pub(crate) members: Members<F>,
    barriers: AtomicU64,
    /// What this rank published in a gather that others have not left.
    published: Mutex<Vec<F::Segment>>,
    /// A collective failed or was dropped.
    broken: AtomicBool,
    /// [`Fabric::departed`] when none of these ranks had left.
    departed: AtomicU32,
}

/// Marks the collectives as broken, unless it is forgotten.
struct Unfinished<'c>(&'c AtomicBool);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<F: Fabric> Collectives<F> {
    pub(crate) const fn new(members: Members<F>) -> Self {
        Self {
            members,
            barriers: AtomicU64::new(0),
            published: Mutex::new(Vec::new()),
            broken: AtomicBool::new(false),
            departed: AtomicU32::new(0),
        }
    }

    /// The dissemination barrier (Hensgen, Finkel, Manber 1988): in round r each rank signals the
    /// rank 2^r after it and waits for the rank 2^r before it. A slot holds the [`Arrival`] of its
    /// single writer in the last barrier that this entered, so a peer that is already in the next
    /// barrier is harmless.
    ///
    /// Every rank hears of every other in the rounds. So does it of two that are in different
    /// collectives, and of a rank that does not come: a rank that hears of them tells the ranks after
    /// it, and fails. None passes such a barrier. (A death all learn by themselves, in any round.)
    pub(crate) async fn barrier(&self, fabric: &F, call: Call<'_>) -> Result<(), Fault> {
        self.enter(fabric, call, None).await
    }

    /// The same; each round also moves what is gathered.
    async fn enter(&self, fabric: &F, call: Call<'_>, gathering: Option<&mut Gathering>) -> Result<(), Fault> {
        fork::check()?;
        if self.broken.load(Ordering::Relaxed) {
            return Err(Fault::new(FaultKind::OutOfStep));
        }
        let number = self.barriers.fetch_add(1, Ordering::Relaxed) + 1;
        // A rank that left a barrier early, also by a drop, has not signalled the others, and its
        // numbers are inconsistent.
        let unfinished = Unfinished(&self.broken);
        self.rounds(fabric, number, call, gathering).await?;
        std::mem::forget(unfinished);
        Ok(())
    }

    /// Makes every later collective of this rank fail, after it cancelled one. Returns the fault of
    /// its deadline, with a rank of the world that has not arrived and the number of the others, as
    /// far as they are [known](Self::missing).
    pub(crate) fn give_up(&self, fabric: &F) -> Fault {
        drop(Unfinished(&self.broken));
        let (missing, late) = (self.missing(fabric), FaultKind::TimedOut);
        let others = missing.len().saturating_sub(1);
        missing.first().map_or(Fault::new(late), |rank| Fault::of(late, Rank(*rank)).with_detail(others as u32))
    }

    /// The ranks of the world that have not arrived in the barrier. Where that would take messages,
    /// only the rank that this one waits for.
    fn missing(&self, fabric: &F) -> Vec<u32> {
        let (me, size) = (self.members.me(fabric), self.members.size(fabric));
        let number = self.barriers.load(Ordering::Relaxed);
        // If that can be told at once.
        let is_missing = |rank, distance| {
            let come = pin!(self.has_come(fabric, number, (rank, distance)));
            come.poll(&mut Context::from_waker(NOBODY)) == Poll::Ready(Ok(false))
        };
        if fabric.capabilities().completes_at_post {
            (0..size).filter(|rank| *rank != me && is_missing(*rank, 1)).collect()
        } else {
            let from = |distance| (me + size - distance) % size;
            let waits = distances(size).find(|distance| is_missing(from(*distance), *distance));
            waits.map(from).into_iter().collect()
        }
    }

    /// Whether a rank has come to a barrier, as the rank at this distance after it knows.
    async fn has_come(&self, fabric: &F, number: u64, (rank, distance): (u32, u32)) -> Result<bool, Fault> {
        let to = (rank + distance) % self.members.size(fabric);
        let segment = self.members.segment(fabric, to)?;
        let slot = fabric.word_in(&segment, slot(distance))?;
        let seen = if to == self.members.me(fabric) { fabric.load(slot)? } else { fabric.read(slot).await? };
        Ok(Arrival::has_come(seen, number))
    }

    /// Ends once a member has left without coming to this barrier. (One that comes may leave as soon as
    /// it has passed, and so before others pass.)
    async fn departure(&self, fabric: &F, number: u64) -> Fault {
        let (mut known, mut any) = (self.departed.load(Ordering::Relaxed), false);
        loop {
            let departed = poll_fn(|_| match fabric.departed(known) {
                (now, _) if now == known => Poll::Pending, // until the wait for the own word is polled again
                departed => Poll::Ready(departed),
            });
            let (now, ranks) = departed.await;
            for rank in ranks {
                let Some(member) = self.members.named_by_world(rank) else { continue };
                any = true;
                for distance in distances(self.members.size(fabric)) {
                    match (self.has_come(fabric, number, (member, distance)).await, fabric.liveness(rank).needed(rank))
                    {
                        (Ok(false), Err(fault)) => return fault,
                        (Ok(_), _) => break,
                        (Err(_), _) => {} // the rank that would know has left too
                    }
                }
            }
            known = now;
            if !any {
                self.departed.store(known, Ordering::Relaxed);
            }
        }
    }

    /// The wait for a barrier.
    #[cold]
    fn wait(&self, fabric: &F, call: Call<'_>) -> Wait {
        let in_job = |rank: u32| self.members.named_by_fabric(fabric, rank);
        let awaited = self.missing(fabric).into_iter().filter_map(in_job).collect();
        Wait { rank: fabric.rank(), awaited, since: None, what: text(call) }
    }

    /// Gathers all ranks' contributions, by rank. ||
    ///
    /// A barrier comes after the rounds: others read what this rank has published, and it may free
    /// its memory and leave once this has returned. A rank that could not read goes on with the
    /// rounds, and publishes why.
    pub(crate) async fn all_gather(
        &self,
        fabric: &F,
        collective: Collective,
        mine: &[u8],
    ) -> Result<Vec<Vec<u8>>, Fault> {
        if mine.len() as u64 > GATHER_BYTES {
            return Err(Fault::new(FaultKind::TooLong).with_detail(mine.len() as u32));
        }
        let mut gathering = Gathering::new(mine);
        self.enter(fabric, (collective, None), Some(&mut gathering)).await?;
        self.barrier(fabric, (collective, None)).await?;
        self.published().clear();
        gathering.all(self.members.me(fabric), self.members.size(fabric))
    }

    fn published(&self) -> MutexGuard<'_, Vec<F::Segment>> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects to the ranks that this rank signals in a barrier, so that no barrier fails for lack
    /// of a connection.
    pub(crate) fn connect_neighbours(&self, fabric: &F) -> Result<(), Fault> {
        let (me, size) = (self.members.me(fabric), self.members.size(fabric));
        distances(size).try_for_each(|distance| self.members.segment(fabric, (me + distance) % size).map(drop))
    }

    async fn rounds(
        &self,
        fabric: &F,
        number: u64,
        call: Call<'_>,
        mut gathering: Option<&mut Gathering>,
    ) -> Result<(), Fault> {
        let own = self.members.segment(fabric, self.members.me(fabric))?;
        let mut arrival = Arrival::new(number, call.0);
        for distance in distances(self.members.size(fabric)) {
            let gathering = gathering.as_deref_mut();
            let round = self.round(fabric, &own, distance, call, (&mut arrival, gathering)).await;
            if let Err(fault) = round {
                self.tell(fabric, arrival, fault);
                return Err(fault);
            }
        }
        Ok(())
    }

    async fn round(
        &self,
        fabric: &F,
        own: &F::Segment,
        distance: u32,
        call: Call<'_>,
        (arrival, mut gathering): (&mut Arrival, Option<&mut Gathering>),
    ) -> Result<(), Fault> {
        let members = &self.members;
        let (me, size) = (members.me(fabric), members.size(fabric));
        let count = distance.min(size - distance);
        if let Some(gathering) = &mut gathering {
            self.published().extend(gathering.publish(fabric, own, distance, count)?);
        }
        let to = members.segment(fabric, (me + distance) % size)?;
        let mut told = Some(fabric.write(fabric.word_in(&to, slot(distance))?, arrival.to_word(), Notify::Yes));
        let before = (me + size - distance) % size;
        let from = members.named_by_fabric(fabric, before).ok_or(Fault::new(FaultKind::NoSuchRank))?;
        let word = fabric.word_in(own, slot(distance))?;
        let number = arrival.number();
        let has_come = move |seen| Arrival::has_come(seen, number);
        let wait = pin!(members.wait_until(fabric, word, has_come, (from, u64::MAX)));
        let mut wait = telling(wait, || Some(self.wait(fabric, call)));
        let mut departure = pin!(self.departure(fabric, number));
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
            return Err(self.cause(fabric, word, (from, fault)).await);
        }
        arrival.hear(waited?, [from, fabric.rank()]);
        arrival.outcome()?;
        if let Some(gathering) = gathering {
            Box::pin(gathering.read(fabric, members.segment(fabric, before), distance, count)).await;
        }
        Ok(())
    }

    /// Tells all ranks that wait for this one, in this barrier or the next, that it does not come, and
    /// why. A death they learn by themselves, once they have cut the dead rank.
    fn tell(&self, fabric: &F, mut arrival: Arrival, fault: Fault) {
        if fault.kind() == FaultKind::PeerDied {
            return;
        }
        arrival.fail(fabric.rank(), fault);
        let (me, size) = (self.members.me(fabric), self.members.size(fabric));
        for distance in distances(size) {
            let Ok(to) = self.members.segment(fabric, (me + distance) % size) else { continue };
            if let Ok(word) = fabric.word_in(&to, slot(distance)) {
                drop(fabric.write(word, arrival.to_word(), Notify::Yes));
            }
        }
    }

    /// The cause of a failed write, if it was a death: a dying rank's card refuses before the death
    /// is known.
    async fn cause<'f>(&'f self, fabric: &'f F, own: F::Word<'f>, (from, fault): (Rank, Fault)) -> Fault {
        let until = fabric.now().saturating_add(DETECTION_TIMEOUT);
        match self.members.wait_until(fabric, own, |_| false, (from, until)).await {
            Err(death) if death.kind() == FaultKind::PeerDied => death,
            _ => fault,
        }
    }
}

/// A collective call, and the name of its window if it is of one.
type Call<'c> = (Collective, Option<&'c str>);

/// What a rank waits for in a call.
fn text((collective, window): Call<'_>) -> String {
    let text = collective.to_string();
    let Some(window) = window else { return text };
    format!("{} of window \"{window}\"", text.strip_suffix(" of a window").unwrap_or(&text))
}

/// The distances of the rounds of a barrier.
fn distances(size: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(1), |distance: &u32| distance.checked_mul(2))
        .take_while(move |distance| *distance < size)
}

/// The offset of the slot of a round.
const fn slot(distance: u32) -> u64 {
    distance.ilog2() as u64 * 8
}
