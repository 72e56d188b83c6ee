//! Distributed reader counters: a reader-writer lock with a counter of readers at every rank.
//!
//! ```text
//! shared     if fetch-add(counter at my rank, 1) finds no writer flag: the lock is held
//!            else fetch-add(counter at my rank, -1), take a shared ticket at the home
//!            release: fetch-add(counter at my rank, -1), or return the ticket
//! exclusive  take an exclusive ticket at the home
//!            at every rank: fetch-add(counter, writer flag); wait until its readers are gone
//!            release: clear the flags, unless a writer waits; return the ticket
//! ```

mod writer_flags;

use std::future::Future;

use onesided_remote_memory::{Fault, FaultKind, RemoteMemory};

use self::writer_flags::{State, WriterFlags};
use crate::recovery::{self, ANNOUNCED, Boxed};
use crate::ticket::counters::Counters;
use crate::{
    Backoff, Held, Intent, IntentFn, LockAlgorithm, LockContext, LockUse, Mode, Op, Rest, Ticket, Word, WordOf, Words,
};

/// A reader-writer lock whose readers count at their own rank, after RMA-RW (Schmid, Besta,
/// Hoefler, *High-Performance Distributed RMA Locks*, HPDC 2016, arXiv 2010.09854), for read-mostly
/// data.
///
/// A reader adds one to the counter at its own rank, and subtracts it on release: readers of
/// different ranks share no word. An exclusive owner takes an exclusive [ticket](Ticket) at the
/// home, sets the writer flag in every rank's counter, and waits until the readers have left: as
/// many fetch-adds as there are ranks, posted at once. A reader that finds the writer flag retracts
/// itself, takes a shared ticket at the home, and holds the lock by that ticket. A release clears
/// the flags, unless another exclusive ticket is out: then they stay set, and the next owner has
/// only to check them.
///
/// Words: the tickets and the state of the writer flags at the home, one at [every
/// rank](WordOf::Rank), one a node.
///
/// | | uncontended acquire + release |
/// |---|---|
/// | shared | fetch-add + fetch-add, both at the reader's own rank |
/// | exclusive, with `P` ranks | fetch-add, read, write, `P` fetch-adds, write + read, write, `P` fetch-adds, write, fetch-add |
/// | exclusive, between others | fetch-add, read + read, fetch-add |
///
/// # Fairness
///
/// Neither side starves, without thresholds: an owner that finds the lock taken, reader or not, has
/// a ticket, and tickets are served in order. A reader at a rank without the writer flag bypasses
/// an owner that has a ticket and has not set the flag at that rank yet. An exclusive owner waits
/// for the readers that entered before the flag was set, and for no others.
///
/// # Cancellation
///
/// As [`Ticket`]. An owner that is cancelled while it waits for readers clears its writer flags. If
/// an owner left its flags set for one that is then cancelled, they stay set until the next owner
/// releases, and readers use tickets until then.
///
/// # Death
///
/// Of owners with tickets: as [`Ticket`]. A counter belongs to one rank: an exclusive owner resets
/// that of a dead rank. An owner that sets or clears flags notes that at the home, so that after
/// its death the recovering owner checks each of them.
///
/// If the context has no per-rank words, readers take tickets.
#[derive(Clone, Copy, Debug)]
pub struct DistributedCounters<const BITS: u32 = 15> {
    tickets: Ticket<BITS>,
}

impl DistributedCounters {
    /// A lock whose waiters pause by this table.
    #[must_use]
    pub const fn new(backoff: Backoff) -> Self {
        Self::with_bits(backoff)
    }
}

impl Default for DistributedCounters {
    fn default() -> Self {
        Self::new(Backoff::default())
    }
}

impl<const BITS: u32> DistributedCounters<BITS> {
    /// The same with tickets of `BITS` bits, 1 to 15.
    #[must_use]
    pub const fn with_bits(backoff: Backoff) -> Self {
        Self { tickets: Ticket::with_bits(backoff) }
    }
}

/// Set in the owner's bits if it may read by its rank's counter. It has a node.
const NEAR: u64 = 1 << 63;

/// Set in the node of such a reader, beside the lock: it is not announced as a ticket holder.
const READS: u64 = 1 << 63;

/// The announcement of such a reader.
fn reading<'m>(context: impl LockContext<'m>) -> u64 {
    READS | recovery::announcement_of(context.lock())
}

const fn is_near(owner: u64, mode: Mode) -> bool {
    matches!(mode, Mode::Shared) && owner & NEAR != 0
}

/// Whether this owner reads by its rank's counter.
#[inline(always)] // as `start`
fn reads<'m>(lock: &LockUse<'m, impl LockContext<'m>>) -> Result<bool, Fault> {
    Ok(is_near(lock.owner, lock.mode) && lock.memory.load(lock.node(ANNOUNCED)?)? == reading(lock.context))
}

/// The counter of the reader's own rank.
#[inline(always)] // as `start`
fn counter<'m, P: LockContext<'m>>(lock: &LockUse<'m, P>) -> Result<Word<'m, P>, Fault> {
    lock.context.word(WordOf::Rank(lock.me().rank))
}

/// The use of the ticket lock.
#[inline(always)] // as `start`
fn of_tickets<'m, P: LockContext<'m>>(lock: LockUse<'m, P>) -> LockUse<'m, P> {
    lock.with_owner(lock.owner & !NEAR)
}

impl<const BITS: u32> DistributedCounters<BITS> {
    fn give_back<'m, P: LockContext<'m>>(
        &'m self,
        lock: LockUse<'m, P>,
    ) -> impl Future<Output = Result<(), Fault>> + Send + 'm {
        async move {
            let found = self.tickets.start_release(lock)?.await;
            self.tickets.finish_release(lock, found).await
        }
    }

    /// Acquires the lock exclusively, with a ticket that is served exclusively. Boxed, with its
    /// operations on all ranks.
    fn alone<'a, 'm: 'a, P: LockContext<'m>>(
        &'m self,
        lock: LockUse<'m, P>,
        held: Held,
        intent: IntentFn<'a>,
    ) -> Boxed<'a, Result<Held, Fault>> {
        Box::pin(async move {
            let flagged = if intent().is_over() {
                Err(Fault::new(FaultKind::Closed))
            } else {
                WriterFlags(lock.participants()).set(self.tickets.pauses(lock.context.owner()), intent).await
            };
            let Err(fault) = flagged else { return Ok(held) };
            let lock = LockUse { mode: Mode::Exclusive, ..lock };
            match held.recovered {
                // What it recovered by its ticket is left to the next owner.
                Some(why) => self.tickets.release_poisoned(lock, why).await.and(Err(fault)),
                None => self.give_back(lock).await.and(Err(fault)),
            }
        })
    }
}

impl<const BITS: u32> LockAlgorithm for DistributedCounters<BITS> {
    const NAME: &'static str = "distributed-counters";
    const HOME_WORDS: usize = writer_flags::STATE + 1;
    const NODE_WORDS: usize = ANNOUNCED + 1;
    const PER_RANK_WORD: bool = true;
    const NODES_ARE_OWN: bool = true;

    fn is_free(home: &[u64]) -> bool {
        let is_changing = home.get(writer_flags::STATE).is_some_and(|state| State::of(*state) == State::Changing);
        !is_changing && Ticket::<BITS>::is_free(home)
    }

    #[inline]
    fn words<'m, P: LockContext<'m>>(&self, context: P, intent: Intent) -> Result<Words<'m, P::Memory>, Fault> {
        let (home, owner) = self.tickets.words(context, intent)?;
        let near = context.word(WordOf::Rank(context.owner().rank)).is_ok();
        Ok((home, if near { owner | NEAR } else { owner }))
    }

    #[inline(always)] // a lock's words that pass through memory cost a third of the lock
    fn start<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>) -> Result<Op<P>, Fault> {
        crate::starts::count(Self::NAME);
        if !is_near(lock.owner, lock.mode) {
            return self.tickets.start(of_tickets(lock));
        }
        let counter = counter(&lock)?;
        lock.memory.store(lock.node(ANNOUNCED)?, reading(lock.context))?;
        Ok(lock.memory.fetch_add(counter, writer_flags::COMES))
    }

    #[inline]
    fn holds(&self, owner: u64, mode: Mode, first: u64) -> bool {
        is_near(owner, mode) && !writer_flags::is_flagged(first)
    }

    fn contend<'m, P: LockContext<'m>>(
        &'m self,
        lock: LockUse<'m, P>,
        first: Result<u64, Fault>,
        intent: IntentFn<'_>,
    ) -> impl Future<Output = Result<Held, Fault>> + Send {
        let is_near = is_near(lock.owner, lock.mode);
        let mut waiter = self.tickets.waiter(of_tickets(lock), first, intent);
        async move {
            if is_near {
                let gone = match waiter.found {
                    Ok(_) => waiter.lock.memory.fetch_add(counter(&waiter.lock)?, writer_flags::GOES).await,
                    lost => lost,
                };
                recovery::retract(waiter.lock.memory, waiter.lock.context)?;
                gone?;
                if (waiter.intent)().is_over() {
                    return Err(Fault::new(FaultKind::Closed));
                }
                waiter.found = self.tickets.start(waiter.lock)?.await;
            }
            // Waits until the ticket is served.
            let held = match waiter.found {
                Ok(first) if self.tickets.holds(waiter.lock.owner, waiter.lock.mode, first) => {
                    Held::cleanly(waiter.lock.mode)
                }
                _ => {
                    let held = waiter.acquire().await;
                    waiter.announcement.end(&waiter.lock, held)?
                }
            };
            match held.mode {
                Mode::Exclusive => self.alone(waiter.lock, held, waiter.intent).await,
                Mode::Shared => Ok(held),
            }
        }
    }

    #[inline(always)] // as `start`
    fn start_release<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>) -> Result<Op<P>, Fault> {
        if reads(&lock)? {
            return Ok(lock.memory.fetch_add(counter(&lock)?, writer_flags::GOES));
        }
        if lock.mode == Mode::Shared {
            return self.tickets.start_release(of_tickets(lock));
        }
        if !recovery::is_announced(lock.memory, lock.context)? {
            return Err(Fault::new(FaultKind::NotHeld));
        }
        // Whether to leave the flags set for the next owner.
        Ok(lock.memory.read(lock.home))
    }

    #[inline(always)] // as `start`
    fn released<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>, found: Option<u64>) -> Result<Rest, Fault> {
        match lock.mode {
            _ if found.is_none() => Ok(Rest::Unknown),
            _ if reads(&lock)? => recovery::retract(lock.memory, lock.context).map(|()| Rest::Nothing),
            Mode::Shared => self.tickets.released(of_tickets(lock), found),
            Mode::Exclusive => Ok(Rest::Steps),
        }
    }

    fn finish_release<'m, P: LockContext<'m>>(
        &'m self,
        lock: LockUse<'m, P>,
        found: Result<u64, Fault>,
    ) -> impl Future<Output = Result<(), Fault>> + Send + 'm {
        async move {
            if reads(&lock)? {
                recovery::retract(lock.memory, lock.context)?;
                return found.map(drop);
            }
            if lock.mode == Mode::Shared {
                return self.tickets.finish_release(of_tickets(lock), found).await;
            }
            let cleared = match found.map(Counters::<BITS>) {
                Err(fault) => Err(fault),
                Ok(tickets) if tickets.out(Mode::Exclusive) == 0 => {
                    recovery::retract(lock.memory, lock.context)?;
                    return Err(Fault::new(FaultKind::NotHeld));
                }
                // A word under recovery does not tell.
                Ok(tickets) if tickets.out(Mode::Exclusive) > 1 && !tickets.is_recovering() => Ok(()),
                Ok(_) => Box::pin(WriterFlags(lock.participants()).clear()).await,
            };
            self.give_back(of_tickets(lock)).await?;
            cleared
        }
    }

    /// The flags stay set for the next recovering owner.
    async fn release_poisoned<'m, P: LockContext<'m>>(&'m self, lock: LockUse<'m, P>, why: Fault) -> Result<(), Fault> {
        self.tickets.release_poisoned(of_tickets(lock), why).await
    }
}
