//! The MCS queue lock.
//!
//! ```text
//! acquire    before = swap(home.tail, me)          by compare-swaps: cards have no swap
//!            if before is somebody: write(before.NEXT, me), wait until my GRANT is written
//!            exclusive: wait until home.readers is 0
//!            shared:    fetch-add(home.readers, 1), release the queue at once
//! release    if my NEXT is set: write(NEXT.GRANT)
//!            else if compare-swap(home.tail, me, nobody) fails: wait until my NEXT is set, then write
//!            shared:    fetch-add(home.readers, -1)
//! ```
//!
//! `home` is the word at the home, and `NEXT` and `GRANT` are words of an owner's node.

mod home;
mod node;
mod readers;
mod recovery;

use std::future::Future;

use onesided_remote_memory::{Fault, FaultKind, Notify, Patience, Rank, RemoteMemory};

use self::home::{Home, Why};
use self::node::{GRANT, HANDED, LINKED, NEXT, clean, grant_to, granted_to, leave};
use crate::backoff::Pauses;
use crate::recovery::{
    Announcement, POISON, POLL_INTERVAL, Reopened, announce, announce_waiting, is_announced, is_lost, note_poison,
    retract,
};
use crate::{
    Backoff, Held, InMemory, IntentFn, LockAlgorithm, LockContext, LockUse, Mode, Op, Owner, Rest, WaitPolicy,
};

/// The queue lock of Mellor-Crummey and Scott (ACM TOCS 9(1), 1991) over remote memory: jiang-2004,
/// section 5.2. The shared mode is ours, in the manner of Mellor-Crummey and Scott's fair
/// reader-writer lock (PPoPP 1991).
///
/// An arriving owner swaps itself into the tail of the queue, by compare-swaps as in the paper,
/// links itself behind its predecessor, and waits on a word of its own node until the predecessor
/// writes to it: no rank polls over the network, and owners acquire the lock in the order of
/// arrival. A reader that finds the queue empty adds itself to the reader count. Otherwise it
/// queues; once it is first, it adds itself to the count and hands over immediately, so that
/// consecutive readers share the lock.
///
/// A word at the home: the tail of the queue (rank and slot) and the reader count. Three words in
/// each node. Uncontended, an acquire is one compare-swap and a release is one that need not be
/// waited for; a hand-over is one write.
///
/// A try does not queue: it succeeds only if the queue is empty.
///
/// # Death
///
/// A waiter behind a dead rank, and an owner that hands over to one, put the word under recovery.
/// So does a waiter for readers, if a rank has died or left, no reader has left for the [suspicion
/// timeout](crate#suspicion-timeout) since, and fewer live readers are announced than the word
/// counts. All waiters leave then. When no live rank is announced, the next owner takes the lock if
/// only readers had died. If a rank had died in the queue, acquires that do not recover fail, the
/// word stays under recovery, and the first recovering owner holds the lock exclusively. The order
/// starts over. The same happens, without a fault, if two neighbours in the queue lose the
/// connection to each other, or if a waiter leaves the job.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mcs {
    backoff: Backoff,
}

impl Mcs {
    /// A lock whose owners pause by this table when they poll the home: between lost compare-swaps,
    /// for readers, and after a death.
    #[must_use]
    pub const fn new(backoff: Backoff) -> Self {
        Self { backoff }
    }

    /// The rank at the tail of the queue.
    #[must_use]
    pub const fn last_in(home: u64) -> Option<Rank> {
        let home = Home(home);
        if home.is(Home::QUEUED) { Some(home.rank()) } else { None }
    }
}

impl LockAlgorithm for Mcs {
    const NAME: &'static str = "mcs";
    const HOME_WORDS: usize = POISON + 1;
    const NODE_WORDS: usize = GRANT + 1;

    #[inline(always)] // a lock's words that pass through memory cost a third of the lock
    fn start<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>) -> Result<Op<P>, Fault> {
        crate::starts::count(Self::NAME);
        announce(lock.memory, lock.context)?;
        Ok(lock.memory.compare_swap(lock.home, Home::FREE.0, Home::taken(lock.me(), lock.mode).0))
    }

    #[inline]
    fn holds(&self, _owner: u64, _mode: Mode, first: u64) -> bool {
        first == Home::FREE.0
    }

    fn contend<'m, P: LockContext<'m>>(
        &'m self,
        lock: LockUse<'m, P>,
        first: Result<u64, Fault>,
        intent: IntentFn<'_>,
    ) -> impl Future<Output = Result<Held, Fault>> + Send {
        let (announcement, pauses) = (Announcement::of(true), self.backoff.pauses(lock.me()));
        let mut waiter = Waiter { queue: Queue(lock), found: first, intent, pauses, announcement };
        async move {
            let held = waiter.acquire().await;
            waiter.announcement.end(&waiter.queue.0, held)
        }
    }

    #[inline(always)] // a call, for which the context goes through memory, is a tenth of an uncontended lock
    fn start_release<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>) -> Result<Op<P>, Fault> {
        match self.start_release_alone(lock)? {
            Some(posted) => Ok(posted),
            None => hand_over_at_once(lock),
        }
    }

    #[inline(always)] // as `start_release`
    fn start_release_alone<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>) -> Result<Option<Op<P>>, Fault> {
        let LockUse { memory, context, home, .. } = lock;
        if !is_announced(memory, context)? {
            return Err(Fault::new(FaultKind::NotHeld));
        }
        Ok(match lock.mode {
            Mode::Shared => Some(memory.fetch_add(home, Home::READER.wrapping_neg())),
            Mode::Exclusive if memory.load(lock.node(NEXT)?)? == 0 => Some(leave_home(lock)),
            Mode::Exclusive => None,
        })
    }

    #[inline(always)] // as `start_release`
    fn released<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>, found: Option<u64>) -> Result<Rest, Fault> {
        let LockUse { memory, context, mode, .. } = lock;
        let Some(found) = found else { return Ok(Rest::Unknown) };
        if mode == Mode::Exclusive {
            let (granted, is_tail) = (memory.load(lock.node(GRANT)?)?, Home(found) == Home::FREE.behind(lock.me()));
            return match granted {
                0 if is_tail => retract(memory, context).map(|()| Rest::Nothing),
                HANDED => leave(memory, context).map(|()| Rest::Nothing),
                _ if is_tail => leave(memory, context).map(|()| Rest::Nothing),
                _ if memory.load(lock.node(NEXT)?)? == 0 => Ok(Rest::Waits),
                _ => Ok(Rest::Steps),
            };
        }
        retract(memory, context)?;
        if Home(found).has_readers() { Ok(Rest::Nothing) } else { Err(Fault::new(FaultKind::NotHeld)) }
    }

    fn finish_release<'m, P: LockContext<'m>>(
        &'m self,
        lock: LockUse<'m, P>,
        found: Result<u64, Fault>,
    ) -> impl Future<Output = Result<(), Fault>> + Send + 'm {
        async move {
            let left = match found {
                Ok(found) if self.released(lock, Some(found))? == Rest::Nothing => return Ok(()),
                Ok(found) => Queue(lock).hand_over(Home(found), lock.mode, true).await,
                Err(_) if lock.mode == Mode::Exclusive && lock.memory.load(lock.node(GRANT)?)? == HANDED => {
                    let next = Owner::from_bits(lock.memory.load(lock.node(NEXT)?)?);
                    Queue(lock).not_handed(next).await
                }
                Err(fault) => return retract(lock.memory, lock.context).and(Err(fault)),
            };
            leave(lock.memory, lock.context).and(left)
        }
    }

    /// All owners in the queue leave, as if this owner had died there.
    async fn release_poisoned<'m, P: LockContext<'m>>(&'m self, lock: LockUse<'m, P>, why: Fault) -> Result<(), Fault> {
        let left = match note_poison(&lock, why).await {
            Ok(()) => Queue(lock).give_up_queue().await,
            lost => lost,
        };
        leave(lock.memory, lock.context).and(left)
    }
}

/// An acquire or a release that did not end with its first operation.
struct Queue<'m, P: InMemory>(LockUse<'m, P>);

/// The result of the wait for a turn.
enum Turn {
    /// The turn came. After an exclusive owner there are no readers.
    Mine(Mode),
    /// The word was put under recovery first.
    Lost(Home),
}

/// An acquire that did not end with its first operation. One for each waiting rank: small.
struct Waiter<'m, 'w, P: InMemory> {
    queue: Queue<'m, P>,
    /// What the last operation found.
    found: Result<u64, Fault>,
    intent: IntentFn<'w>,
    pauses: Pauses<'m>,
    /// Whether this owner is announced, at the end as well.
    announcement: Announcement,
}

impl<'m, P: LockContext<'m>> Waiter<'m, '_, P> {
    /// Acquires the lock after its first operation.
    fn acquire(&mut self) -> impl Future<Output = Result<Held, Fault>> + Send {
        async move {
            loop {
                let found = Home(self.found?);
                let intended = (self.intent)();
                // This owner is not in the queue here. While the word is under recovery, others may
                // still write to its node, so it stays.
                if found.is(Home::RECOVERING) {
                    let Self { queue: Queue(lock), intent, pauses, announcement, .. } = self;
                    let owner = lock.me();
                    let taken = move |_, mode| Home::taken(owner, mode);
                    match announcement.await_reopening(lock, *intent, pauses, taken).await? {
                        Reopened::Taken(held) => return Ok(held),
                        Reopened::Open(Home(open)) => self.found = Ok(open),
                    }
                    continue;
                }
                let lock = &self.queue.0;
                if intended.is_over() {
                    clean(lock.memory, lock.context)?; // after a recovery, all owners that were queued then have left
                    return Err(Fault::new(FaultKind::Closed));
                }
                if !self.announcement.is_announced() {
                    clean(lock.memory, lock.context)?;
                    self.announcement.announce(lock)?;
                }
                let joins = lock.mode == Mode::Shared && !found.is(Home::QUEUED);
                if matches!(intended.wanted, WaitPolicy::Try) && !joins && found.0 != Home::FREE.0 {
                    if !self.queue.ends_dead(found) {
                        return Err(Fault::new(FaultKind::TimedOut));
                    }
                    // Only if the word has not changed: the tail may have released before it died.
                    self.found =
                        self.queue.start_recovery_if(found, Why::Lost(found.rank())).await.map(|Home(now)| now);
                    continue;
                }
                let new = if joins { found.joined() } else { found.behind(lock.me()) };
                let Home(now) = self.queue.0.swap(found, new).await?;
                if now != found.0 {
                    self.found = Ok(now);
                    continue;
                }
                if joins {
                    return Ok(Held::cleanly(self.queue.0.mode));
                }
                match self.wait(found).await? {
                    Turn::Mine(_) => return Ok(Held::cleanly(self.queue.0.mode)),
                    Turn::Lost(Home(home)) => self.found = Ok(home),
                }
            }
        }
    }

    /// Waits in the queue until this owner is first, and then for the readers. `before` is the word
    /// that the swap that queued it found.
    fn wait(&mut self, before: Home) -> impl Future<Output = Result<Turn, Fault>> + Send {
        async move {
            announce_waiting(self.queue.0.memory, self.queue.0.context)?;
            let queued = before.is(Home::QUEUED);
            let turn = if queued { self.turn(before).await? } else { Turn::Mine(Mode::Shared) };
            let turn = match (turn, self.queue.0.mode) {
                (Turn::Mine(_), Mode::Shared) => self.queue.read().await?,
                // Behind a reader no owner holds the lock exclusively.
                (Turn::Mine(Mode::Shared), Mode::Exclusive) => {
                    let home = if queued { self.queue.0.look().await? } else { before.behind(self.queue.0.me()) };
                    self.readers_gone(home).await?
                }
                (turn, _) => turn,
            };
            announce(self.queue.0.memory, self.queue.0.context)?;
            Ok(turn)
        }
    }

    /// Waits behind the predecessor.
    fn turn(&self, before: Home) -> impl Future<Output = Result<Turn, Fault>> + Send {
        async move {
            if let Err(fault) = self.queue.link(before).await
                && self.queue.granted()?.is_none()
            {
                // All start over. If the predecessor's memory is gone, its end will become known.
                let home = self.queue.start_recovery(self.queue.0.look().await?, Why::Lost(before.rank())).await?;
                return if is_lost(fault) { Err(fault) } else { Ok(Turn::Lost(home)) };
            }
            loop {
                let wait = self.queue.wait_for_grant(before)?; // `?` and `await` in one expression keep it twice
                match wait.await.map(granted_to(self.queue.0.me())) {
                    Ok(Some(from)) => return Ok(Turn::Mine(from)),
                    Err(fault) if fault.kind() == FaultKind::NotOwn => return Err(fault),
                    // The predecessor puts the word under recovery when it cannot hand over.
                    Err(fault) if is_lost(fault) => self.queue.0.memory.pause(self.queue.0.home, POLL_INTERVAL).await,
                    Ok(None) | Err(_) => {}
                }
                let mut home = self.queue.0.look().await?;
                if self.queue.has_ended(before.rank()) {
                    // What the predecessor wrote before it ended is there.
                    if let Some(from) = self.queue.granted()? {
                        return Ok(Turn::Mine(from));
                    }
                    home = self.queue.start_recovery(home, Why::Lost(before.rank())).await?;
                }
                if (self.intent)().is_leaving() {
                    home = self.queue.start_recovery(home, Why::GivenUp).await?;
                }
                if home.is(Home::RECOVERING) {
                    // An owner that had its turn before keeps it.
                    return Ok(self.queue.granted()?.map_or(Turn::Lost(home), Turn::Mine));
                }
            }
        }
    }
}

impl<'m, P: LockContext<'m>> Queue<'m, P> {
    /// Links this owner behind its predecessor, which is there: no owner leaves before its
    /// successor is linked.
    async fn link(&self, before: Home) -> Result<(), Fault> {
        let next = self.0.context.node_of(before.rank(), before.slot(), NEXT)?;
        self.0.memory.write(next, LINKED | self.0.me().to_bits(), Notify::Yes).await.map(drop)
    }

    /// The predecessor's grant, if it has come.
    fn granted(&self) -> Result<Option<Mode>, Fault> {
        self.0.memory.load(self.0.node(GRANT)?).map(granted_to(self.0.me()))
    }

    /// Waits for the predecessor's grant, a failure, or a while. Returns the word.
    fn wait_for_grant(&self, before: Home) -> Result<impl Future<Output = Result<u64, Fault>> + Send, Fault> {
        let LockUse { memory, .. } = self.0;
        let (mine, known) = (granted_to(self.0.me()), memory.ends());
        let patience = Patience::with_failures(before.rank()).and_until(memory.now().saturating_add(POLL_INTERVAL));
        let granted = move |grant| mine(grant).is_some() || memory.ends() != known;
        Ok(memory.wait_until(self.0.node(GRANT)?, granted, patience))
    }

    /// Hands the queue over to the successor. `home` is the word as it was last seen. `ends`:
    /// whether this owner is retracted with that.
    fn hand_over(&self, mut home: Home, from: Mode, ends: bool) -> impl Future<Output = Result<(), Fault>> + Send {
        let Self(lock) = self;
        async move {
            let link = lock.node(NEXT)?;
            let next = loop {
                let next = lock.memory.load(link)?;
                if next != 0 {
                    break Owner::from_bits(next);
                }
                if home.is(Home::RECOVERING) {
                    return self.all_left(home, ends).await;
                }
                if home.ends_with(lock.me()) {
                    let now = lock.swap(home, home.unqueued()).await?;
                    if now == home {
                        return Ok(());
                    }
                    home = now;
                    continue;
                }
                let patience = Patience::until(lock.memory.now().saturating_add(POLL_INTERVAL));
                match lock.memory.wait_until(link, |next| next != 0, patience).await {
                    Ok(_) => continue,
                    Err(fault) if fault.kind() == FaultKind::NotOwn => return Err(fault),
                    Err(_) => home = lock.look().await?,
                }
                if self.ends_dead(home) {
                    home = self.start_recovery(home, Why::Lost(home.rank())).await?;
                }
            };
            let granted = match lock.context.node_of(next.rank, next.slot, GRANT) {
                Ok(grant) => lock.memory.write(grant, grant_to(next, from), Notify::Yes).await.map(drop),
                Err(fault) => Err(fault),
            };
            match granted {
                Ok(()) => Ok(()),
                Err(_) => self.not_handed(next).await,
            }
        }
    }
}

/// Posts the compare-swap by which an exclusive owner without a successor leaves an empty queue.
#[inline(always)] // as `start_release`
fn leave_home<'m, P: LockContext<'m>>(lock: LockUse<'m, P>) -> Op<P> {
    lock.memory.compare_swap(lock.home, Home::FREE.behind(lock.me()).0, Home::FREE.0)
}

/// Posts the write that hands the lock over to the successor of an exclusive owner, if its node can
/// be reached.
#[cold]
#[inline(never)]
fn hand_over_at_once<'m, P: LockContext<'m>>(lock: LockUse<'m, P>) -> Result<Op<P>, Fault> {
    let LockUse { memory, context, .. } = lock;
    let next = Owner::from_bits(memory.load(lock.node(NEXT)?)?);
    // An owner that has lost the home hands nothing over: what it did there may be missing.
    if memory.has_failed(context.home_rank(), lock.me().rank) {
        return Ok(leave_home(lock));
    }
    let Ok(grant) = context.node_of(next.rank, next.slot, GRANT) else { return Ok(leave_home(lock)) };
    let handed = memory.write(grant, grant_to(next, Mode::Exclusive), Notify::Yes);
    memory.store(lock.node(GRANT)?, HANDED)?; // behind the word that the next owner waits for
    Ok(handed)
}
