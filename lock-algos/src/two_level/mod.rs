//! The two-level lock: among the ranks of a host, and among hosts.

mod host;
mod mark;

use onesided_remote_memory::{Fault, FaultKind, Liveness, Notify, Rank, RemoteMemory};

pub(crate) use self::host::ByHost;
use self::host::{AtHost, lost_on, member_died};
use self::mark::{Mark, Standing, State};
use crate::recovery::{self, COUNTS, is_lost};
use crate::test_and_set::{EXCLUSIVE, hand_back, owned_by};
use crate::ticket::counters::Counters;
use crate::{Backoff, Held, IntentFn, LockAlgorithm, LockContext, Mode, Owner, TestAndSet, Ticket};

/// A lock that the ranks of a host hand over among themselves, after HOCL (Wang, Lu, Shu, *Sherman:
/// A Write-Optimized Distributed B+Tree Index on Disaggregated Memory*, SIGMOD 2022) and ALock
/// (Baran, Nelson-Slivon, Tseng, Palmieri, SPAA 2024, arXiv 2404.17980): lock cohorting (Dice,
/// Marathe, Shavit, PPoPP 2012) over remote memory.
///
/// An exclusive owner takes a [`Ticket`] in the queue of its host, its cohort. The owner whose
/// ticket is served sets the cohort's owner word at the home by compare-swap, as in [`TestAndSet`].
/// A release hands the lock over to the next owner in the queue without an operation at the home,
/// at most [`HANDOVERS`](Self::HANDOVERS) times in a row; otherwise it clears the home's word.
///
/// Before it queues, an owner tries once to swap its own word into the home's, as in Fissile locks
/// (Dice, Kogan, NETYS 2020): uncontended, the lock costs what test-and-set does. After a failed
/// try it queues until it finds the queue empty, and it bypasses the queue at most
/// [`BYPASSES`](Self::BYPASSES) times in a row.
///
/// The two levels have separate words. The queue lies in the memory of a rank of the host, and only
/// the host's ranks access it ([`LockContext::host_word`]): its atomics are the CPU's. All ranks
/// access the home's word: its atomics are the card's. So the two kinds of atomics, which are not
/// atomic with one another, never meet on a word, and no rank uses the card to reach its own host.
///
/// Readers count in the home's word, as in [`TestAndSet`]. [Tries](LockAlgorithm::words_to_try),
/// and all owners if the context has no host words, swap their own word into the home's, without a
/// queue.
///
/// Words: one at the home, two at a rank of each host, three a node.
///
/// | | at the home | on the host |
/// |---|---|---|
/// | acquire, release | compare-swap + compare-swap | none |
/// | by the queue | the same | fetch-add, read, write + read, read, fetch-add |
/// | handed over on the host | none | the same, and a read until the ticket is served |
/// | shared | compare-swap + fetch-add | none |
///
/// # Fairness
///
/// First come, first served, in the queue of a host, which a slot of a rank bypasses at most
/// [`BYPASSES`](Self::BYPASSES) times in a row. Between hosts, and between hosts and readers, the
/// first to try wins: after the most hand-overs in a row the host's next owner pauses before it
/// tries again.
///
/// # Cancellation
///
/// In the queue as in [`Ticket`]; at the home a cancelled owner ends between two attempts, and the
/// next one of the host may try.
///
/// # Death
///
/// The queue tells its next owner that a rank died in it, and that owner checks the home: if the
/// cohort's owner word is there, an owner of this host died inside its section, or left the queue
/// before it had completed its release. The next owner replaces the word by one of a new
/// generation, and recovers the lock; if it does not recover, it notes that beside the queue for
/// the next one. Owners of other hosts that see an owner word unchanged for a while although a rank
/// of that host has died scan the host's nodes: if no owner is announced there, they may recover
/// the lock. They scan one node after the other, and meanwhile an owner may join the queue and be
/// handed the lock: so if a rank of the host has died, the owner whose turn it is changes the owner
/// word as well, and one of the two compare-swaps fails. This is why a rank's death has to be known
/// on its own host first.
///
/// If the queue's memory is gone with its rank, its waiters go on without a queue, and later owners
/// queue at another rank of the host. That queue has another owner word, so the two are two hosts
/// to the home. Which rank an owner takes for the lowest live one affects speed, not safety.
///
/// A death is reported as `ParticipantDied`, because the owner word names a host; the death of an
/// owner that bypassed the queue is reported as `OwnerDied`, with its rank. Otherwise as
/// [`TestAndSet`].
#[derive(Clone, Copy, Debug)]
pub struct TwoLevel {
    queue: Ticket,
    home: TestAndSet,
    handovers: u16,
    passes: u8,
}

/// Set in an owner's words if it tries once at the home before it queues.
const PASSES: u64 = 1 << Owner::BITS;

// Words of a node, beside `COUNTS`, in which readers are announced.
/// Announces an owner in the queue of its host.
const AT_HOST: usize = COUNTS + 1;
/// How an owner holds the lock, or how far it is: 0 for its own word, the cohort's owner word, or
/// the queue in which it waits.
const NOTE: usize = COUNTS + 2;

// Host words.
const QUEUE: usize = 0;
const STATE: usize = 1;

/// The note of an owner that waits in the queue at a rank.
const fn waits_at(leader: Rank) -> u64 {
    leader.0 as u64 + 1
}

/// An owner's note.
enum Note {
    /// It uses its own word.
    Alone,
    /// It waits in the queue there.
    Waits(Rank),
    /// It holds the lock by this owner word of its cohort.
    Has(Mark),
}

impl Note {
    const fn of(word: u64) -> Self {
        match Mark::of(word) {
            Some(mark) => Self::Has(mark),
            None if word == 0 => Self::Alone,
            None => Self::Waits(Rank(word as u32 - 1)),
        }
    }
}

impl TwoLevel {
    /// The default of [`handovers`](Self::handovers).
    pub const HANDOVERS: u16 = 8;
    /// The default of [`bypasses`](Self::bypasses).
    pub const BYPASSES: u8 = 32;

    /// A lock whose waiters pause by the first table in the queue of their host, and by the second
    /// one at the home.
    #[must_use]
    pub const fn new(queue: Backoff, home: Backoff) -> Self {
        Self {
            queue: Ticket::new(queue),
            home: TestAndSet::new(home).checked(),
            handovers: Self::HANDOVERS,
            passes: Self::BYPASSES,
        }
    }

    /// Sets how often in a row a host hands the lock over among its ranks.
    #[must_use]
    pub const fn handovers(self, handovers: u16) -> Self {
        Self { handovers, ..self }
    }

    /// Sets how often in a row an owner bypasses the queue of its host.
    #[must_use]
    pub const fn bypasses(self, bypasses: u8) -> Self {
        Self { passes: bypasses, ..self }
    }

    /// The words of an owner that does not queue.
    const fn alone<W: Copy>((home, owner): (W, u64)) -> (W, u64) {
        (home, EXCLUSIVE | owner & !PASSES)
    }

    /// Posts the first operation in the queue of the host, if there is one.
    fn queue_up<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        context: impl LockContext<'m, M>,
    ) -> Result<Option<M::Op>, Fault> {
        let Some(leader) = context.cohort_home() else { return Ok(None) };
        let host = AtHost { context, leader };
        let Ok(queue) = self.queue.words(host) else { return Ok(None) };
        let queued = self.queue.start(memory, host, queue, Mode::Exclusive)?;
        memory.store(context.node(NOTE)?, waits_at(leader))?;
        Ok(Some(queued))
    }

    /// Waits for the turn in the host's queue, and for the lock.
    async fn by_host<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        host: AtHost<P>,
        home: M::Word<'m>,
        first: Result<u64, Fault>,
        intent: IntentFn<'_>,
    ) -> Result<Held, Fault> {
        let words = self.queue.words(host)?;
        let died = if first.is_ok_and(|first| self.queue.holds::<M>(words, Mode::Exclusive, first)) {
            host.context.keep_bypasses(0);
            None
        } else {
            // A rank that died in the queue may not have held the lock: the home's word tells.
            let intent: IntentFn<'_> = &|| intent().recovering();
            match self.queue.contend_in(memory, host, words, Mode::Exclusive, first, intent, None).await {
                Ok(held) => held.recovered.and_then(Fault::rank),
                Err(fault) => {
                    memory.store(host.context.node(NOTE)?, 0)?;
                    return Err(fault);
                }
            }
        };
        match self.with_turn(memory, host, home, died, intent).await {
            Ok(Some((mark, held))) => {
                memory.store(host.context.node(NOTE)?, mark.0)?;
                Ok(held)
            }
            Ok(None) => Err(Fault::new(FaultKind::Closed)),
            Err(fault) => {
                self.leave_queue(memory, host).await?;
                Err(fault)
            }
        }
    }

    /// Acquires the lock, with the turn in the queue. `died` is the death in the queue. `None`: the
    /// acquire is cancelled, and the turn was handed over. After an error the turn is still this
    /// owner's.
    async fn with_turn<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        host: AtHost<P>,
        home: M::Word<'m>,
        died: Option<Rank>,
        intent: IntentFn<'_>,
    ) -> Result<Option<(Mark, Held)>, Fault> {
        let mut state = host.standing(memory).await?;
        if let (Standing::Kept(_), None) = (state.standing, died)
            && lost_on(memory, host.context, host.leader).is_some()
        {
            state = self.renew(memory, host, home, state).await?;
        }
        match state.standing {
            _ if died.is_some() => {}
            Standing::Kept(_) if intent().is_over() => {
                return self.pass_on(memory, host, home, state).await.map(|()| None);
            }
            Standing::Kept(_) => {
                return Ok(Some((Mark::new(host.leader, state.generation), Held::cleanly(Mode::Exclusive))));
            }
            Standing::Away { yields } => {
                if yields {
                    memory.pause(home, self.home.pauses(host.context.owner()).next_nanos()).await;
                }
                return self.fetch(memory, host, home, state, intent).await.map(Some);
            }
            Standing::Doubted => {}
        }
        // Until the home's word tells.
        state.standing = Standing::Doubted;
        memory.write(host.state()?, state.word(), Notify::No).await?;
        let left = memory.read(home).await?;
        if Mark::of(left).is_none_or(|mark| mark.leader() != host.leader) {
            return self.fetch(memory, host, home, state, intent).await.map(Some); // another owner has recovered it, or there was nothing to recover
        }
        let failed = || memory.failed_at(host.context.home_rank());
        let died = died.or_else(failed).map(|rank| member_died(memory, host.context, host.leader, rank));
        if intent().is_over() {
            return Err(Fault::new(FaultKind::Closed));
        }
        let held = match died {
            Some(died) if !intent().recovers => return Err(died),
            Some(died) => Held::after(died, Mode::Exclusive),
            None => Held::cleanly(Mode::Exclusive),
        };
        let (state, is_swapped) = self.change_mark(memory, host, home, (left, state.generation)).await?;
        match is_swapped {
            true => Ok(Some((Mark::new(host.leader, state.generation), held))),
            false => self.fetch(memory, host, home, state, intent).await.map(Some),
        }
    }

    /// Changes the cohort's owner word after a hand-over on the host. Returns the state after that:
    /// another owner may hold the lock.
    async fn renew<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        host: AtHost<P>,
        home: M::Word<'m>,
        kept: State,
    ) -> Result<State, Fault> {
        let old = (Mark::new(host.leader, kept.generation).0, kept.generation);
        let (mut state, is_swapped) = self.change_mark(memory, host, home, old).await?;
        state.standing = if is_swapped { kept.standing } else { Standing::Away { yields: false } };
        memory.write(host.state()?, state.word(), Notify::No).await?;
        Ok(state)
    }

    /// Swaps the owner word at the home, if it is this word, for one of the next generation.
    /// Returns the state, which is suspect, and whether the word was swapped.
    async fn change_mark<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        host: AtHost<P>,
        home: M::Word<'m>,
        (found, generation): (u64, u64),
    ) -> Result<(State, bool), Fault> {
        let state = State { generation: generation + 1, standing: Standing::Doubted };
        memory.write(host.state()?, state.word(), Notify::No).await?;
        let mark = Mark::new(host.leader, state.generation);
        let is_swapped = memory.compare_swap(home, found, mark.0).await? == found;
        Ok((state, is_swapped))
    }

    /// Acquires the lock at the home, with the turn in the queue.
    async fn fetch<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        host: AtHost<P>,
        home: M::Word<'m>,
        state: State,
        intent: IntentFn<'_>,
    ) -> Result<(Mark, Held), Fault> {
        // From here on the generation is unique to this hold.
        let state = State { standing: Standing::Away { yields: false }, generation: state.generation + 1 };
        let mark = Mark::new(host.leader, state.generation);
        memory.write(host.state()?, state.word(), Notify::No).await?;
        if intent().is_over() {
            return Err(Fault::new(FaultKind::Closed));
        }
        let held = match memory.compare_swap(home, 0, mark.0).await {
            Ok(0) => Ok(Held::cleanly(Mode::Exclusive)),
            found => {
                let found = (Mode::Exclusive, found);
                self.home
                    .contend_judged(memory, host.context, (home, mark.0), found, intent, Some(ByHost::default()))
                    .await
            }
        };
        if held.is_err_and(is_lost) {
            // The owner word may be there: the next owner looks.
            let doubted = State { standing: Standing::Doubted, ..state };
            memory.write(host.state()?, doubted.word(), Notify::No).await?;
        }
        held.map(|held| (mark, held))
    }

    /// Gives the turn in the queue to the next owner, if there is one.
    async fn leave_queue<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        host: AtHost<P>,
    ) -> Result<(), Fault> {
        memory.store(host.context.node(NOTE)?, 0)?;
        let words = self.queue.words(host)?;
        let returned = self.queue.start_release(memory, host, words, Mode::Exclusive)?;
        self.queue.finish_release(memory, host, words, Mode::Exclusive, returned).await
    }

    /// Hands the lock, which the host holds, over to the next owner in the queue, or releases it at
    /// the home.
    async fn pass_on<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        host: AtHost<P>,
        home: M::Word<'m>,
        state: State,
    ) -> Result<(), Fault> {
        let mark = Mark::new(host.leader, state.generation);
        let (at, me) = (host.context.home_rank(), host.context.owner().rank);
        if memory.has_failed(at, me) {
            // What it did under the lock may be missing: the next owner recovers it.
            self.leave_as(memory, host, Standing::Doubted).await?;
            return Err(Fault::of(FaultKind::ConnectionLost, at));
        }
        let queue = self.queue.words(host)?.0;
        let handed = if let Standing::Kept(handed) = state.standing { handed } else { 0 };
        let mut found = Counters::<15>(memory.read(queue).await?);
        let mut written = state;
        let has_next = |queue: Counters<15>| !queue.is_frozen() && queue.out(Mode::Exclusive) > 1;
        if has_next(found) && handed < self.handovers {
            written.standing = Standing::Kept(handed + 1);
            memory.write(host.state()?, written.word(), Notify::No).await?;
            // By compare-swap: the next owner may be cancelled, and then no owner would hold the
            // lock.
            while has_next(found) {
                let returned = found.0.wrapping_add(Counters::<15>::returning(Mode::Exclusive));
                let now = memory.compare_swap(queue, found.0, returned).await?;
                if now == found.0 {
                    memory.store(host.context.node(NOTE)?, 0)?;
                    return recovery::discount(memory, host);
                }
                found = Counters(now);
            }
        }
        let away = State { standing: Standing::Away { yields: has_next(found) }, ..state };
        if away != written {
            memory.write(host.state()?, away.word(), Notify::No).await?;
        }
        let released = self.give_back(memory, home, mark).await;
        match released.is_err_and(is_lost) {
            true => self.leave_as(memory, host, Standing::Doubted).await?,
            false => self.leave_queue(memory, host).await?,
        }
        released
    }

    /// Leaves the host's queue with this state of the lock.
    async fn leave_as<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        host: AtHost<P>,
        standing: Standing,
    ) -> Result<(), Fault> {
        let state = State { standing, ..host.standing(memory).await? };
        memory.write(host.state()?, state.word(), Notify::No).await?;
        self.leave_queue(memory, host).await
    }

    /// Clears the cohort's owner word at the home.
    async fn give_back<'m, M: RemoteMemory>(&self, memory: &M, home: M::Word<'m>, mark: Mark) -> Result<(), Fault> {
        match memory.compare_swap(home, mark.0, 0).await {
            Ok(found) if found == mark.0 => Ok(()),
            Ok(_) => Err(Fault::new(FaultKind::NotHeld)),
            Err(fault) => Err(fault),
        }
    }
}

/// Resets the node: this owner is in no queue, because it is gone.
fn forget<'m, M: RemoteMemory>(memory: &M, context: impl LockContext<'m, M>) -> Result<(), Fault> {
    memory.store(context.node(AT_HOST)?, 0)?;
    memory.store(context.node(NOTE)?, 0)
}

/// Whether a fault is of the queue's memory, which is gone with its rank.
fn is_gone<M: RemoteMemory>(memory: &M, leader: Rank, fault: Fault) -> bool {
    use FaultKind::{Closed, NoSuchRegion, OwnerDied, ParticipantDied, PeerDied, PeerLeft, TimedOut};
    match fault.kind() {
        Closed | TimedOut | ParticipantDied | OwnerDied => false,
        NoSuchRegion | PeerDied | PeerLeft if fault.rank() == Some(leader) => true,
        _ => memory.liveness(leader) != Liveness::Alive,
    }
}

impl Default for TwoLevel {
    fn default() -> Self {
        Self::new(Backoff::default(), Backoff::default())
    }
}

impl LockAlgorithm for TwoLevel {
    const NAME: &'static str = "two-level";
    const HOME_WORDS: usize = 1;
    const NODE_WORDS: usize = NOTE + 1;
    const HOST_WORDS: usize = STATE + 1;

    /// The home's word, and the owner's bits: with `EXCLUSIVE` if it does not queue, with `PASSES`
    /// if it tries at the home first.
    type Words<'m, M: RemoteMemory> = (M::Word<'m>, u64);

    #[inline]
    fn uses_node(&self, _mode: Mode) -> bool {
        true
    }

    #[inline(always)] // as `start`
    fn words<'m, M: RemoteMemory>(&self, context: impl LockContext<'m, M>) -> Result<Self::Words<'m, M>, Fault> {
        let alone = if context.bypasses() < self.passes { PASSES } else { 0 };
        Ok((context.home(0)?, alone | context.owner().to_bits()))
    }

    fn words_to_try<'m, M: RemoteMemory>(&self, context: impl LockContext<'m, M>) -> Result<Self::Words<'m, M>, Fault> {
        self.words(context).map(Self::alone)
    }

    #[inline(always)] // a lock's words that pass through memory cost a third of the lock
    fn start<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        context: impl LockContext<'m, M>,
        words: Self::Words<'m, M>,
        mode: Mode,
    ) -> Result<M::Op, Fault> {
        if mode == Mode::Exclusive {
            if words.1 & PASSES != 0 {
                context.keep_bypasses(context.bypasses().saturating_add(1));
            } else if words.1 & EXCLUSIVE == 0
                && let Some(queued) = self.queue_up(memory, context)?
            {
                return Ok(queued);
            }
        }
        self.home.start(memory, context, Self::alone(words), mode)
    }

    #[inline]
    fn holds<M: RemoteMemory>(&self, words: Self::Words<'_, M>, mode: Mode, first: u64) -> bool {
        first == 0 && (mode == Mode::Shared || words.1 & (EXCLUSIVE | PASSES) != 0)
    }

    async fn contend<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        context: P,
        words: Self::Words<'m, M>,
        mode: Mode,
        first: Result<u64, Fault>,
        intent: IntentFn<'_>,
    ) -> Result<Held, Fault> {
        let alone = Self::alone(words);
        let mut first = first;
        if mode == Mode::Exclusive && words.1 & EXCLUSIVE == 0 {
            if words.1 & PASSES != 0 && first.is_ok() && !intent().is_over() {
                context.keep_bypasses(self.passes); // by the queue from now on, until it is empty
                if let Some(queued) = self.queue_up(memory, context)? {
                    first = queued.await;
                }
            }
            if let Note::Waits(leader) = Note::of(memory.load(context.node(NOTE)?)?) {
                let held = self.by_host(memory, AtHost { context, leader }, words.0, first, intent).await;
                match held {
                    Err(fault) if is_gone(memory, leader, fault) => {}
                    held => return held,
                }
                forget(memory, context)?;
                first = memory.compare_swap(words.0, 0, alone.1).await;
            }
            if first == Ok(0) {
                return Ok(Held::cleanly(mode));
            }
        }
        self.home.contend_judged(memory, context, alone, (mode, first), intent, Some(ByHost::default())).await
    }

    #[inline]
    fn releases_in_one_step<'m, M: RemoteMemory>(&self, _place: impl LockContext<'m, M>, _mode: Mode) -> bool {
        false
    }

    #[inline(always)] // as `start`
    fn start_release<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        context: impl LockContext<'m, M>,
        words: Self::Words<'m, M>,
        mode: Mode,
    ) -> Result<M::Op, Fault> {
        if mode == Mode::Exclusive && words.1 & EXCLUSIVE == 0 {
            match Note::of(memory.load(context.node(NOTE)?)?) {
                Note::Has(mark) => {
                    if let Ok(state) = context.host_word(mark.leader(), STATE) {
                        return Ok(memory.read(state));
                    }
                    // The queue is gone: the retracted announcement tells what was posted.
                    memory.store(context.node(AT_HOST)?, 0)?;
                    return Ok(memory.compare_swap(words.0, mark.0, 0));
                }
                Note::Waits(_) => return Err(Fault::new(FaultKind::NotHeld)),
                Note::Alone => {}
            }
        }
        self.home.start_release(memory, context, Self::alone(words), mode)
    }

    #[inline(always)] // as `start`
    fn released<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        context: impl LockContext<'m, M>,
        words: Self::Words<'m, M>,
        mode: Mode,
        found: u64,
    ) -> Result<bool, Fault> {
        if mode == Mode::Exclusive
            && words.1 & EXCLUSIVE == 0
            && matches!(Note::of(memory.load(context.node(NOTE)?)?), Note::Has(_))
        {
            return Ok(false);
        }
        self.home.released(memory, context, Self::alone(words), mode, found)
    }

    /// The next owner waits for what has been written.
    #[inline]
    fn release_waits<'m, M: RemoteMemory>(
        &self,
        _memory: &M,
        _place: impl LockContext<'m, M>,
        mode: Mode,
    ) -> Option<bool> {
        (mode == Mode::Exclusive).then_some(false)
    }

    async fn finish_release<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        context: P,
        words: Self::Words<'m, M>,
        mode: Mode,
        started: impl Future<Output = Result<u64, Fault>> + Send + 'm,
    ) -> Result<(), Fault> {
        let queued = mode == Mode::Exclusive && words.1 & EXCLUSIVE == 0;
        let Note::Has(mark) = (if queued { Note::of(memory.load(context.node(NOTE)?)?) } else { Note::Alone }) else {
            return self.home.finish_release(memory, context, Self::alone(words), mode, started).await;
        };
        let host = AtHost { context, leader: mark.leader() };
        if !recovery::counts(memory, host)? {
            let released = started.await;
            forget(memory, context)?;
            return released.map(|_| ());
        }
        let passed = match started.await.map(State::of) {
            Ok(state) => self.pass_on(memory, host, words.0, state).await,
            Err(fault) => Err(fault),
        };
        match passed {
            Err(fault) if is_gone(memory, host.leader, fault) => {
                let released = memory.compare_swap(words.0, mark.0, 0).await;
                forget(memory, context)?;
                released.map(|_| ())
            }
            passed => passed,
        }
    }

    /// The word of a dead owner replaces this owner's, or its cohort's: that keeps readers out as
    /// well.
    async fn release_poisoned<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        context: P,
        words: Self::Words<'m, M>,
        held: Held,
    ) -> Result<(), Fault> {
        let dead = owned_by(held.recovered.and_then(Fault::rank).unwrap_or(context.owner().rank));
        let queued = words.1 & EXCLUSIVE == 0;
        let note = if queued { Note::of(memory.load(context.node(NOTE)?)?) } else { Note::Alone };
        let mine = if let Note::Has(mark) = note { mark.0 } else { Self::alone(words).1 };
        let handed = hand_back(memory, words.0, mine, dead).await;
        if let Note::Has(mark) = note {
            let host = AtHost { context, leader: mark.leader() };
            let left = match recovery::counts(memory, host)? {
                true => self.leave_as(memory, host, Standing::Away { yields: false }).await,
                false => forget(memory, context),
            };
            match left {
                Err(fault) if is_gone(memory, host.leader, fault) => forget(memory, context)?,
                left => left?,
            }
        }
        handed
    }
}
