//! Locks that a thread at the target serves.
//!
//! ```text
//! acquire    write(my request slot, acquire), write(the wake event, which slot it was)
//!            until the thread writes the reply to my node: wait
//! release    write(my request slot, release), write(the wake event, which slot it was)
//! thread     until the wake event changes: poll it (dedicated), or sleep (event-driven)
//!            handle the requests in order: queue the origin, or grant the lock to the next ones
//! ```
//!
//! Acquire and release are in this file and in `origin`, the thread is in `server`.
//!
//! # How it works
//!
//! A task at the lock's home, the *server* ([`serve`]), has the queue and the
//! holders of the lock. An owner writes a request to a word at the home, and the server writes a
//! reply to the owner's node. No other rank decides anything, so shared and exclusive mode, order,
//! death and withdrawal are sequential code over a queue ([`LockQueue`], which the locks over
//! messages of `onesided-two-sided` use too). Only the transfer of words to and from the server is
//! concurrent:
//!
//! - **Request slots.** Each rank has some request slots at the home, a word each. One owner uses a
//!   slot, from its acquire to its release, so a word has one writer at a time, which need not read
//!   it first. A new request replaces the previous one: so a release need not be waited for, even
//!   by the next user of the slot. The [context](crate::WordOf::Request) determines how many
//!   slots there are, where they lie, and which are in use.
//! - **The wake event.** The server can wait for one word only ([`RemoteMemory::wait_until`]), so a
//!   rank that has written to a request slot then writes to the wake event which slot it was. The
//!   server handles that slot at once, whatever the number of ranks. Two concurrent wake events
//!   overwrite one another: so after each of them the server checks all slots, a few at a time and
//!   the one that was named last first, before it waits again. It reads the wake event *before* it
//!   checks the slots: a request behind that check changes the wake event, and the wait ends at
//!   once. To wait on a value that was read *after* the check is the race of a shared event that is
//!   reset without a check of what it counts (Yu et al., *Open MPI over Elan4*, 2004, figure 5).
//!
//! The two writes of a request are posted together, and a release need not be waited for. That is
//! independent of the number of waiters.
//!
//! # How the server waits
//!
//! The server is a task, so its executor decides. The *dedicated* thread polls: owners only write
//! ([`Notify::No`](onesided_remote_memory::Notify::No)). The *event-driven* thread sleeps: owners
//! write the wake event with [`Notify::Yes`](onesided_remote_memory::Notify::Yes), which over
//! shared memory wakes the futex of the home's doorbell if a thread sleeps there, and on verbs is a
//! write with immediate data. That consumes a receive that the home has posted before and raises
//! the solicited event for which its completion queue is armed. The rank that takes the completion
//! posts the receive again, and the driver polls the queue once more after it has armed it and
//! before it sleeps: the paper's "before the thread is blocked again, another receive operation is
//! posted".
//!
//! # Death
//!
//! The server knows the holders: a dead exclusive owner is named (`OwnerDied`). Its last word
//! counts, because a rank is reported dead when all its operations have taken effect. From then on
//! the lock is poisoned until an owner recovers it; dead readers and waiters are skipped. A rank
//! whose connection to the home is lost counts as dead there. When the home dies, all waiters fail
//! with `PeerDied`, and when its server ends, with `Closed`.

mod messages;
mod origin;
mod queue;
mod server;

use onesided_remote_memory::{Fault, FaultKind, RemoteMemory};

pub use self::messages::{Answer, Outcome, Poison, Request, Terms, Verb};
use self::origin::Client;
pub use self::queue::LockQueue;
pub use self::server::{serve, wake};
use crate::backoff::Pauses;
use crate::recovery::{self, ANNOUNCED};
use crate::{Backoff, Held, Intent, IntentFn, LockAlgorithm, LockContext, LockUse, Mode, Op, Rest, Words};

// Words at the home, all 0 initially.
/// Written by the server when it ends: [`ENDED`], and the number of holders and waiters.
const STATE: usize = 0;
/// The wake event, written by all ranks: see [`messages::ring`].
const WAKE_EVENT: usize = 1;

// Words of a node, beside `ANNOUNCED`, which names the lock that its owner asked for.
/// The server's [`Answer`].
const ANSWER: usize = ANNOUNCED + 1;
/// This owner's own note: request id 32 bits | unused | [`HELD`] | request slot, counted from 1, or
/// 0, 16 bits.
const NOTE: usize = ANNOUNCED + 2;

/// In an owner's note: it has seen that it holds the lock. Later replies to the node do not matter.
const HELD: u64 = 1 << 16;

const ENDED: u64 = 1 << 63;

/// Marks the words of a try.
const TRIES: u64 = 1 << 62;

/// How often a waiter checks whether the server has ended, in nanoseconds.
const POLL_INTERVAL: u64 = 100_000_000;

/// A lock that a thread at the target serves: jiang-2004, section 4. [`DedicatedThread`] and
/// [`EventThread`] differ in how that thread waits, and in whether owners have to wake it.
///
/// The rank that has the lock's home runs [`serve`] there; the lock does not
/// work without it.
///
/// Owners acquire the lock in the order in which the server handles their requests (of the requests
/// between two of its reads of the wake event the last one is handled first). Consecutive readers
/// share the lock, and none bypasses a waiting writer. A cancelled acquire is withdrawn at once,
/// wherever it is in the queue.
///
/// # Without a request slot
///
/// If all [request slots](LockContext::take_request_slot) of a rank are in use, its owners wait for
/// one. So a thread that holds as many shared locks of one target as its rank has request slots,
/// and acquires another one, deadlocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Served<const SLEEPS: bool> {
    backoff: Backoff,
}

/// The lock of jiang-2004, section 4.1: the thread at the target polls. It has the lower latency of
/// the two, and takes a core of the target's host.
pub type DedicatedThread = Served<false>;

/// The lock of jiang-2004, section 4.2: the thread at the target sleeps until a request arrives.
pub type EventThread = Served<true>;

impl<const SLEEPS: bool> Served<SLEEPS> {
    /// A lock whose owners pause by this table when they wait for a request slot.
    #[must_use]
    pub const fn new(backoff: Backoff) -> Self {
        Self { backoff }
    }
}

/// The terms of an acquire by an owner with these bits.
const fn terms(owner: u64) -> Terms {
    Terms { at_once: owner & TRIES != 0, recovers: false }
}

impl<const SLEEPS: bool> LockAlgorithm for Served<SLEEPS> {
    const NAME: &'static str = if SLEEPS { "event-thread" } else { "dedicated-thread" };
    const HOME_WORDS: usize = WAKE_EVENT + 1;
    const NODE_WORDS: usize = NOTE + 1;
    const SERVED: bool = true;
    const SERVER_POLLS: bool = !SLEEPS;

    /// While the server runs, it alone knows the holders.
    fn is_free(home: &[u64]) -> bool {
        home.first().is_none_or(|state| state & !ENDED == 0)
    }

    #[inline]
    fn words<'m, P: LockContext<'m>>(&self, context: P, intent: Intent) -> Result<Words<'m, P::Memory>, Fault> {
        let tries = if intent.is_patient() { 0 } else { TRIES };
        Ok((context.home(STATE)?, context.owner().to_bits() | tries))
    }

    fn start<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>) -> Result<Op<P>, Fault> {
        crate::starts::count(Self::NAME);
        recovery::announce(lock.memory, lock.context)?;
        let client = Client::<_, SLEEPS>(lock);
        match lock.context.take_request_slot() {
            Some(request_slot) => client.request(request_slot, Verb::Acquire(lock.mode, terms(lock.owner))),
            None => {
                client.note(None)?;
                Ok(lock.memory.read(lock.home))
            }
        }
    }

    #[inline]
    fn holds(&self, _owner: u64, _mode: Mode, _first: u64) -> bool {
        false
    }

    fn contend<'m, P: LockContext<'m>>(
        &'m self,
        lock: LockUse<'m, P>,
        first: Result<u64, Fault>,
        intent: IntentFn<'_>,
    ) -> impl Future<Output = Result<Held, Fault>> + Send {
        let pauses: Pauses<'_> = self.backoff.pauses(lock.context.owner());
        Client::<_, SLEEPS>(lock).acquire(terms(lock.owner), first, pauses, intent)
    }

    fn start_release<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>) -> Result<Op<P>, Fault> {
        let client = Client::<_, SLEEPS>(lock);
        let (id, request_slot) = client.noted()?;
        let holds =
            recovery::is_announced(lock.memory, lock.context)? && lock.memory.load(lock.node(NOTE)?)? & HELD != 0;
        match request_slot.filter(|_| holds) {
            Some(request_slot) => {
                let released = client.write_request(request_slot, id, Verb::Release);
                client.leave(Some(request_slot))?; // nothing is written to the node any more
                released
            }
            None => Err(Fault::new(FaultKind::NotHeld)),
        }
    }

    #[inline]
    fn released<'m, P: LockContext<'m>>(&self, _lock: LockUse<'m, P>, _found: Option<u64>) -> Result<Rest, Fault> {
        Ok(Rest::Nothing)
    }

    async fn finish_release<'m, P: LockContext<'m>>(
        &'m self,
        _lock: LockUse<'m, P>,
        found: Result<u64, Fault>,
    ) -> Result<(), Fault> {
        found.map(drop)
    }

    /// As a cancelled acquire: the server knows what it has granted.
    async fn release_poisoned<'m, P: LockContext<'m>>(&'m self, lock: LockUse<'m, P>, why: Fault) -> Result<(), Fault> {
        let client = Client::<_, SLEEPS>(lock);
        let (id, request_slot) = client.noted()?;
        let Some(request_slot) = request_slot else { return Err(Fault::new(FaultKind::NotHeld)) };
        let panicked = why == Fault::of(FaultKind::OwnerPanicked, lock.me().rank);
        let verb = if panicked { Verb::Panic } else { Verb::Withdraw };
        let withdrawn = client.withdraw((id, request_slot), verb).await;
        client.leave(Some(request_slot))?;
        withdrawn
    }
}
