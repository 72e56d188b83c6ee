//! The slow paths of the queue lock.

use onesided_remote_memory::{Fault, FaultKind, Notify, Patience, Rank, RemoteMemory};

use super::home::Home;
use super::{GRANT, LINKED, NEXT, clean, grant_to};
use crate::backoff::Pauses;
use crate::recovery::{
    self, Announcement, POLL_INTERVAL, RecoverableWord, Reopened, Suspicion, has_ended, is_lost, nonce, none_announced,
};
use crate::{Held, IntentFn, LockContext, LockUse, Mode, Owner, WaitPolicy};

/// An acquire or a release that did not end with its first operation.
pub(super) struct SlowPath<'m, M: RemoteMemory, P>(pub(super) LockUse<'m, M, P>);

/// The result of the wait for a turn.
pub(super) enum Turn {
    /// The turn came. After an exclusive owner there are no readers.
    Mine(Mode),
    /// The word was put under recovery first.
    Lost(Home),
}

/// The grant in the word of a node, if it is this owner's.
fn granted_to(owner: Owner) -> impl Fn(u64) -> Option<Mode> + Copy + Send + Sync + Unpin {
    move |grant| match grant {
        _ if grant == grant_to(owner, Mode::Exclusive) => Some(Mode::Exclusive),
        _ if grant == grant_to(owner, Mode::Shared) => Some(Mode::Shared),
        _ => None,
    }
}

impl RecoverableWord for Home {
    const NODE_IS_SHARED: bool = true;

    fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    fn to_bits(self) -> u64 {
        self.0
    }

    fn is_recovering(self) -> bool {
        self.is(Self::RECOVERING)
    }

    fn may_be_poisoned(self) -> bool {
        self.is(Self::LOST)
    }

    fn suspected(self) -> Option<Rank> {
        self.lost()
    }

    fn reset_node<'m, M: RemoteMemory>(memory: &M, context: impl LockContext<'m, M>) -> Result<(), Fault> {
        clean(memory, context)
    }
}

impl<'m, M: RemoteMemory, P: LockContext<'m, M>> SlowPath<'m, M, P> {
    fn has_ended(&self, rank: Rank) -> bool {
        has_ended(self.0.memory, self.0.context, rank)
    }

    pub(super) async fn home(&self) -> Result<Home, Fault> {
        self.0.memory.read(self.0.home).await.map(Home)
    }

    /// Swaps the home's word if it is `found`. Returns the previous word.
    async fn swap(&self, found: Home, new: Home) -> Result<Home, Fault> {
        self.0.memory.compare_swap(self.0.home, found.0, new.0).await.map(Home)
    }

    /// Puts the word under recovery, which rejects arrivals. Returns the new word. `lost`: the rank
    /// for which the queue is given up.
    pub(super) async fn start_recovery(&self, mut found: Home, lost: Option<Rank>) -> Result<Home, Fault> {
        while !found.is(Home::RECOVERING) {
            found = self.start_recovery_if(found, lost).await?;
        }
        Ok(found)
    }

    /// The same only if the word is still `found`. Returns the current word.
    async fn start_recovery_if(&self, found: Home, lost: Option<Rank>) -> Result<Home, Fault> {
        let recovering = found.recovering(lost, nonce(self.0.memory, self.0.me()));
        let now = self.swap(found, recovering).await?;
        Ok(if now == found { recovering } else { now })
    }

    /// Links this owner behind its predecessor, which is there: no owner leaves before its
    /// successor is linked.
    async fn link(&self, before: Home) -> Result<(), Fault> {
        let next = self.0.context.node_of(before.rank(), before.slot(), NEXT)?;
        self.0.memory.write(next, LINKED | self.0.me().to_bits(), Notify::Yes).await.map(drop)
    }

    /// Waits behind the predecessor.
    pub(super) async fn turn(&self, before: Home) -> Result<Turn, Fault> {
        let (LockUse { memory, context, .. }, owner) = (self.0, self.0.me());
        let grant = context.node(GRANT)?;
        let mine = granted_to(owner);
        if let Err(fault) = self.link(before).await
            && mine(memory.load(grant)?).is_none()
        {
            // All start over. If the predecessor's memory is gone, its end will become known.
            let home = self.start_recovery(self.home().await?, Some(before.rank())).await?;
            return if is_lost(fault) { Err(fault) } else { Ok(Turn::Lost(home)) };
        }
        loop {
            let known = memory.failed_rank().is_some();
            let patience = Patience::with_failures(before.rank()).and_until(memory.now().saturating_add(POLL_INTERVAL));
            let granted = move |grant| mine(grant).is_some() || !known && memory.failed_rank().is_some();
            match memory.wait_until(grant, granted, patience).await.map(mine) {
                Ok(Some(from)) => return Ok(Turn::Mine(from)),
                Err(fault) if fault.kind() == FaultKind::NotOwn => return Err(fault),
                // The predecessor puts the word under recovery when it cannot hand over.
                Err(fault) if is_lost(fault) => memory.pause(self.0.home, POLL_INTERVAL).await,
                Ok(None) | Err(_) => {}
            }
            let mut home = self.home().await?;
            if self.has_ended(before.rank()) {
                // What the predecessor wrote before it ended is there.
                if let Some(from) = mine(memory.load(grant)?) {
                    return Ok(Turn::Mine(from));
                }
                home = self.start_recovery(home, Some(before.rank())).await?;
            }
            if home.is(Home::RECOVERING) {
                // An owner that had its turn before keeps it.
                return Ok(mine(memory.load(grant)?).map_or(Turn::Lost(home), Turn::Mine));
            }
        }
    }

    /// Waits, as the exclusive owner that is first in the queue, until no reader is left.
    pub(super) async fn readers_gone(
        &self,
        mut pause: impl FnMut() -> u64 + Send,
        mut home: Home,
        intent: IntentFn<'_>,
    ) -> Result<Turn, Fault> {
        let LockUse { memory, context, .. } = self.0;
        let mut suspicion = Suspicion::default();
        loop {
            if !home.has_readers() {
                return Ok(Turn::Mine(Mode::Exclusive));
            }
            suspicion.seen(home.readers());
            if suspicion.suspects(memory, context, home.readers()).await {
                home = self.start_recovery_if(home, None).await?;
            }
            if home.is(Home::RECOVERING) {
                return Ok(Turn::Lost(home));
            }
            if intent().is_over() {
                // The successor waits for the readers as well.
                self.hand_over(home, Mode::Shared, true).await?;
                clean(memory, context)?;
                return Err(Fault::new(FaultKind::Closed));
            }
            memory.pause(self.0.home, pause()).await;
            home = self.home().await?;
        }
    }

    /// Adds a reader that is first in the queue to the count, and hands over.
    pub(super) async fn read(&self) -> Result<Turn, Fault> {
        recovery::announce(self.0.memory, self.0.context)?;
        let before = self.0.memory.fetch_add(self.0.home, Home::READER).await?;
        self.hand_over(Home(before).joined(), Mode::Shared, false).await?;
        clean(self.0.memory, self.0.context)?;
        Ok(Turn::Mine(Mode::Shared))
    }

    /// Hands the queue over to the successor. `home` is the word as it was last seen. `ends`:
    /// whether this owner is retracted with that.
    pub(super) async fn hand_over(&self, mut home: Home, from: Mode, ends: bool) -> Result<(), Fault> {
        let (LockUse { memory, context, .. }, owner) = (self.0, self.0.me());
        let link = context.node(NEXT)?;
        let next = loop {
            let next = memory.load(link)?;
            if next != 0 {
                break Owner::from_bits(next);
            }
            if home.is(Home::RECOVERING) {
                return self.all_left(home, ends).await;
            }
            if home.ends_with(owner) {
                let now = self.swap(home, home.unqueued()).await?;
                if now == home {
                    return Ok(());
                }
                home = now;
                continue;
            }
            let patience = Patience::until(memory.now().saturating_add(POLL_INTERVAL));
            match memory.wait_until(link, |next| next != 0, patience).await {
                Ok(_) => continue,
                Err(fault) if fault.kind() == FaultKind::NotOwn => return Err(fault),
                Err(_) => home = self.home().await?,
            }
            if self.ends_dead(home) {
                home = self.start_recovery(home, Some(home.rank())).await?;
            }
        };
        let granted = match context.node_of(next.rank, next.slot, GRANT) {
            Ok(grant) => memory.write(grant, grant_to(next, from), Notify::Yes).await.map(|_| ()),
            Err(fault) => Err(fault),
        };
        self.handed(next, granted).await
    }

    /// Gives the queue up, as if this owner, which is its head, had died there.
    pub(super) async fn give_up_queue(&self) -> Result<(), Fault> {
        let mut found = self.home().await?;
        // Another recovery may have begun for readers alone.
        while !found.is(Home::LOST) {
            found = self.start_recovery_if(found, Some(self.0.me().rank)).await?;
        }
        self.all_left(found, true).await
    }

    /// Waits until all owners have left that waited when the word was put under recovery, and none
    /// has yet to link itself. An owner that ends is retracted meanwhile: others may wait for it in
    /// the same way.
    pub(super) async fn all_left(&self, recovering: Home, ends: bool) -> Result<(), Fault> {
        let LockUse { memory, context, .. } = self.0;
        if ends {
            recovery::retract(memory, context)?;
        }
        while !none_announced(memory, context).await? {
            memory.pause(self.0.home, POLL_INTERVAL).await;
            if ends && !self.home().await?.is_same_recovery(recovering) {
                break; // the owner that took it has scanned the participants
            }
        }
        Ok(())
    }

    /// Completes a hand-over. The successor of a rank that died handles that; otherwise, if the
    /// grant cannot be delivered, all waiters leave and start over.
    pub(super) async fn handed(&self, next: Owner, granted: Result<(), Fault>) -> Result<(), Fault> {
        if granted.is_err() && !self.has_ended(next.rank) {
            let mut home = self.home().await?;
            while home.is(Home::QUEUED) {
                home = self.start_recovery_if(home, Some(next.rank)).await?;
            }
        }
        Ok(())
    }

    /// Acquires the lock after its first operation. `announcement`: whether this owner is
    /// announced, at the end as well.
    pub(super) async fn acquire(
        &self,
        first: Result<u64, Fault>,
        mut pauses: Pauses<'m>,
        intent: IntentFn<'_>,
        announcement: &mut Announcement<'m, M, P>,
    ) -> Result<Held, Fault> {
        let (LockUse { memory, context, home, mode, .. }, owner) = (self.0, self.0.me());
        let mut found = Home(first?);
        loop {
            let intended = intent();
            let queues = intended.wanted != WaitPolicy::Try;
            // This owner is not in the queue here. While the word is under recovery, others may
            // still write to its node, so it stays.
            if intended.is_over() && !found.is(Home::RECOVERING) {
                clean(memory, context)?; // after a recovery, all owners that were queued then have left
                return Err(Fault::new(FaultKind::Closed));
            }
            if found.is(Home::RECOVERING) {
                let taken = |_, mode| Home::taken(owner, mode);
                found = match announcement.await_reopening(home, mode, intent, &mut pauses, taken).await? {
                    Reopened::Taken(held) => return Ok(held),
                    Reopened::Open(found) => found,
                };
                continue;
            }
            if !announcement.is_announced() {
                clean(memory, context)?;
                announcement.announce()?;
            }
            let joins = mode == Mode::Shared && !found.is(Home::QUEUED);
            if !queues && !joins && found != Home::FREE {
                if !self.ends_dead(found) {
                    return Err(Fault::new(FaultKind::TimedOut));
                }
                // Only if the word has not changed: the tail may have released before it died.
                found = self.start_recovery_if(found, Some(found.rank())).await?;
                continue;
            }
            let new = if joins { found.joined() } else { found.behind(owner) };
            let now = self.swap(found, new).await?;
            if now != found {
                found = now;
                continue;
            }
            if joins {
                return Ok(Held::cleanly(mode));
            }
            recovery::announce_waiting(memory, context)?;
            let turn = match found.is(Home::QUEUED) {
                true => self.turn(found).await?,
                false => Turn::Mine(Mode::Shared),
            };
            let turn = match turn {
                // Behind a reader no owner holds the lock exclusively.
                Turn::Mine(Mode::Shared) if mode == Mode::Exclusive => {
                    let home = if found.is(Home::QUEUED) { self.home().await? } else { new };
                    self.readers_gone(|| pauses.next_nanos(), home, intent).await?
                }
                turn => turn,
            };
            let turn = match (turn, mode) {
                (Turn::Mine(_), Mode::Shared) => self.read().await?,
                (turn, _) => turn,
            };
            recovery::announce(memory, context)?;
            match turn {
                Turn::Mine(_) => return Ok(Held::cleanly(mode)),
                Turn::Lost(home) => found = home,
            }
        }
    }

    /// Whether the tail is dead: then a try has to put the word under recovery.
    pub(super) fn ends_dead(&self, found: Home) -> bool {
        found.is(Home::QUEUED) && self.has_ended(found.rank())
    }
}
