//! Acquiring a lock: started now, finished when it is waited for.

use std::fmt;
use std::future::{Future, poll_fn};
use std::mem::ManuallyDrop;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use fabric::remote_memory::{Fault, FaultKind, Liveness, Rank};
use fabric::{Drive, Fabric, Limit, block_on, handle, wait_for};
use lock_algos::{Asked, Chosen, LockAlgorithm, Mode, Owner, Place, Reach, Wanted, Wish, WithoutSlot};

use crate::homes::Which;
use crate::inheritance::Holding;
use crate::nodes::LEAD;
use crate::window::{Inner, Target};
use crate::{Element, Epoch, Error, Window};

/// The words of a target's lock: the home's first, and the owner's bits.
pub(crate) type Words<'w, F> = <Chosen as LockAlgorithm>::Words<'w, F>;

/// The rank that has the room of a [global](crate::LockAllDesign::Global) lock.
pub(crate) const ROOM: u32 = 0;

/// Where a window keeps the lock of one target, for one owner, whose node is looked up when it is needed or known already.
pub(crate) struct Home<'w, F: Fabric, N = Sought> {
    pub(crate) inner: &'w Inner<F>,
    pub(crate) target: &'w Target<F>,
    pub(crate) which: Which,
    pub(crate) owner: u64,
    pub(crate) node: N,
}

/// How a home comes to its owner's node.
pub(crate) trait Node<'w, F: Fabric>: Copy + Send + Sync {
    /// Whether the owner is known to have slot 0.
    const LEADS: bool;

    /// A word of it, if it is known.
    fn word(&self, index: usize) -> Option<F::Word<'w>>;
}

/// Word by word.
#[derive(Clone, Copy)]
pub(crate) struct Sought;

/// All of slot 0's at once: a lock looks at them so often that to look them up one by one takes a fifth of it.
#[derive(Clone, Copy)]
pub(crate) struct Found<W>([W; Chosen::NODE_WORDS]);

impl<'w, F: Fabric> Node<'w, F> for Sought {
    const LEADS: bool = false;

    #[inline]
    fn word(&self, _index: usize) -> Option<F::Word<'w>> {
        None
    }
}

impl<'w, F: Fabric> Node<'w, F> for Found<F::Word<'w>> {
    const LEADS: bool = true;

    #[inline]
    fn word(&self, index: usize) -> Option<F::Word<'w>> {
        self.0.get(index).copied()
    }
}

impl<F: Fabric, N: Copy> Clone for Home<'_, F, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Fabric, N: Copy> Copy for Home<'_, F, N> {}

impl<'w, F: Fabric> Home<'w, F> {
    /// For an owner who has slot 0.
    #[inline(always)]
    pub(crate) fn of_lead(self) -> Result<Home<'w, F, Found<F::Word<'w>>>, Fault> {
        let Self { inner, target, which, owner, node: Sought } = self;
        let node = Found(inner.fabric().words_in(&inner.own_locks, inner.nodes.node(LEAD, 0))?);
        Ok(Home { inner, target, which, owner, node })
    }
}

impl<'w, F: Fabric, N: Node<'w, F>> Home<'w, F, N> {
    /// The hidden region of a rank of the fabric.
    #[inline]
    fn hidden(&self, rank: Rank) -> Result<&'w F::Segment, Fault> {
        if rank == self.inner.fabric().rank() {
            return Ok(&self.inner.own_locks);
        }
        let target = self.inner.world.rank_of(rank).ok_or(Fault::of(FaultKind::NoSuchRegion, rank))?;
        Ok(&self.inner.target(target)?.locks)
    }

    /// The owner's slot.
    #[inline(always)] // as what asks
    fn slot(&self) -> u16 {
        if N::LEADS { LEAD } else { Place::owner(self).slot }
    }

    /// The words of an acquire that was begun.
    fn words(&self) -> Result<Words<'w, F>, Fault> {
        Ok((self.home(0)?, self.owner))
    }
}

impl<'w, F: Fabric, N: Node<'w, F>> Place<'w, F> for Home<'w, F, N> {
    #[inline(always)] // a call is a tenth of an uncontended lock
    fn home(&self, index: usize) -> Result<F::Word<'w>, Fault> {
        let Self { inner, target, which, .. } = *self;
        match which.is_part() {
            true => inner.fabric().word_in(&target.locks, inner.homes.word(index)),
            false if which.is_all() => self.room(),
            false => inner.fabric().word_in(&target.data, inner.table.word(which, index as u64)),
        }
    }

    fn spread(&self, rank: Rank) -> Result<F::Word<'w>, Fault> {
        if !self.which.is_part() {
            return Err(Fault::of(FaultKind::Unsupported, rank)); // tables have none
        }
        self.inner.fabric().word_in(self.hidden(rank)?, self.inner.homes.spread(self.target.rank))
    }

    fn near(&self, rank: Rank, index: usize) -> Result<F::Word<'w>, Fault> {
        if !self.which.is_part() {
            return Err(Fault::of(FaultKind::Unsupported, rank)); // tables have none
        }
        self.inner.fabric().near_word(self.hidden(rank)?, self.inner.homes.near(self.target.rank, index))
    }

    fn leader(&self) -> Option<Rank> {
        let fabric = self.inner.fabric();
        self.inner.neighbours.iter().copied().find(|rank| fabric.liveness(*rank) == Liveness::Alive)
    }

    fn host_of(&self, rank: Rank) -> u32 {
        self.inner.fabric().host_of(rank)
    }

    #[inline]
    fn node_of(&self, rank: Rank, slot: u16, index: usize) -> Result<F::Word<'w>, Fault> {
        if slot >= self.slots() {
            return Err(Fault::of(FaultKind::OutOfRange, rank));
        }
        self.inner.fabric().word_in(self.hidden(rank)?, self.inner.nodes.node(slot, index))
    }

    #[inline]
    fn node(&self, index: usize) -> Result<F::Word<'w>, Fault> {
        if let Some(word) = self.node.word(index) {
            return Ok(word);
        }
        // Which was taken from those that there are.
        self.inner.fabric().word_in(&self.inner.own_locks, self.inner.nodes.node(self.slot(), index))
    }

    #[inline]
    fn has_node(&self) -> bool {
        N::LEADS || self.owner().slot < self.slots()
    }

    #[inline]
    fn slots(&self) -> u16 {
        self.inner.nodes.slots
    }

    #[inline]
    fn owners(&self) -> u64 {
        match self.inner.nodes.counted {
            0 => u64::MAX, // nobody is
            counted => u64::from(self.inner.world.size()) * u64::from(counted),
        }
    }

    #[inline]
    fn is_counted(&self) -> bool {
        self.owner().slot < self.inner.nodes.counted
    }

    fn home_rank(&self) -> Option<Rank> {
        Some(self.target.fabric_rank())
    }

    #[inline]
    fn lines(&self) -> u16 {
        crate::served::lines(self.inner.world.size())
    }

    #[inline]
    fn line_of(&self, rank: Rank, line: u16) -> Result<F::Word<'w>, Fault> {
        let of = self.inner.world.rank_of(rank).ok_or(Fault::of(FaultKind::NoSuchRegion, rank))?;
        self.inner.fabric().word_in(&self.target.locks, self.inner.homes.line(of, line))
    }

    #[inline]
    fn take_line(&self) -> Option<u16> {
        self.target.lines_in_use.take(self.lines())
    }

    #[inline]
    fn give_line_back(&self, line: u16) {
        self.target.lines_in_use.give_back(line);
    }

    fn tally(&self, rank: Rank) -> Result<Option<F::Word<'w>>, Fault> {
        self.inner.fabric().word_in(self.hidden(rank)?, self.inner.nodes.tally).map(Some)
    }

    fn room(&self) -> Result<F::Word<'w>, Fault> {
        self.inner.fabric().word_in(&self.inner.target(ROOM)?.locks, self.inner.homes.room())
    }

    fn is_of_all(&self) -> bool {
        self.which.is_all()
    }

    fn is_inside(&self) -> bool {
        self.inner.nodes.is_inside()
    }

    fn mark_inside(&self, inside: bool) {
        self.inner.nodes.mark_inside(self.owner().slot, inside);
    }

    fn reach(&self) -> Reach {
        // Where an attempt is an instruction, whoever has the core goes on while others pause: that is best.
        if self.inner.immediate { Reach::ALL } else { Reach(self.inner.nodes.reach.load(Ordering::Relaxed)) }
    }

    fn keep_reach(&self, Reach(reach): Reach) {
        self.inner.nodes.reach.store(reach, Ordering::Relaxed);
    }

    #[inline]
    fn passes(&self) -> u8 {
        self.inner.nodes.passes(self.slot())
    }

    #[inline]
    fn keep_passes(&self, passes: u8) {
        self.inner.nodes.keep_passes(self.slot(), passes);
    }

    fn count_without_slot(&self, counts: bool) -> Result<(), Fault> {
        self.inner.count_without_slot(self.lock(), counts)
    }

    fn without_slot(&self) -> Option<WithoutSlot> {
        Some(self.inner.without_slot(self.lock()))
    }

    #[inline]
    fn lock(&self) -> u64 {
        self.which.number() << 24 | u64::from(self.target.rank)
    }

    #[inline]
    fn owner(&self) -> Owner {
        Owner::from_bits(self.owner)
    }
}

/// The name of an acquire in errors.
pub(crate) const fn operation(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "lock_exclusive",
        Mode::Shared => "lock_shared",
    }
}

/// A lock that was asked for: the first operation has left (the nonblocking lock of jiang-2004, sections 3 and 5.1).
/// `.wait()` blocks until it is held, `.await` does not block, `.test()` looks.
///
/// # Cancel safety
/// A request that is dropped, at whatever point, is not tried any more. What is under way of it is finished by the endpoint,
/// even while the application computes, and released if it took the lock.
///
/// # Death
/// A lock that its owner left by dying is poisoned, as a [`std::sync::Mutex`] is by a panic: whoever asks for it, now and
/// later, gets an error that names the dead rank ([`Error::is_abandoned`]), until somebody has asked with
/// [`inherit`](Self::inherit), got it, and given it back. For what the dead owner left half done stays so: an error that
/// only the next one got would leave all others with data that nobody has looked at.
#[must_use = "a lock that nobody waits for is released at once"]
pub struct LockRequest<'w, T: Element, F: Fabric> {
    window: &'w Window<T, F>,
    rank: u32,
    which: Which,
    mode: Mode,
    /// The first operation, while it is under way; then how it ended, or `None` while more is.
    started: Option<Result<Started<'w, F>, Fault>>,
    deadline: Option<Duration>,
    pub(crate) wish: Wish,
    /// What is there once more than the first operation is waited for. Boxed, so that a request stays in registers.
    later: Option<Box<Later<'w, F>>>,
}

/// A rank, and which of its locks.
pub(crate) type Spot = (u32, Which);

/// A lock, and whether the first operation sufficed.
type Held<'w, T, F> = Result<(Epoch<'w, T, F>, bool), Fault>;

/// The parts of an epoch.
type Parts<'w, F> = (&'w Target<F>, Words<'w, F>, Had);

/// How a lock was had.
struct Had {
    holding: Holding,
    /// By the first operation, which was at the target.
    at_once: bool,
}

/// The rest of an acquire whose first operation did not suffice, and when it has to end.
struct Later<'w, F: Fabric> {
    rest: Option<(&'w Target<F>, Words<'w, F>, Abandonable<F>)>,
    limit: Limit<'w, F>,
}

impl<F: Fabric> Default for Later<'_, F> {
    fn default() -> Self {
        Self { rest: None, limit: Limit::NONE }
    }
}

struct Started<'w, F: Fabric> {
    target: &'w Target<F>,
    words: Words<'w, F>,
    op: First<F>,
}

/// The first operation of an acquire.
enum First<F: Fabric> {
    Done(u64),
    Posted(F::Op),
}

impl<F: Fabric> Future for First<F> {
    type Output = Result<u64, Fault>;

    #[inline(always)] // see `LockRequest::wait`
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Done(value) => Poll::Ready(Ok(*value)),
            Self::Posted(op) => Pin::new(op).poll(cx),
        }
    }
}

impl<'w, F: Fabric> Started<'w, F> {
    #[inline(always)] // see `LockRequest::wait`
    fn new(inner: &'w Inner<F>, (rank, which): Spot, mode: Mode, wish: Wish) -> Result<Self, Fault> {
        let target = inner.begin(rank)?;
        if let Some(lock) = inner.algorithm.only_word(mode) {
            let home = inner.home(target, which, inner.slotless());
            let words = lock.words(home)?;
            let op = First::Posted(lock.start(inner.fabric(), home, words, mode)?);
            return Ok(Self { target, words, op });
        }
        let leads = which.is_part() && wish.is_patient();
        if let Some(owner) = leads.then(|| inner.lead_owner(mode)).flatten() {
            let (words, first) = start_as_lead(inner, target, owner, mode)?;
            return Ok(Self { target, words, op: First::Done(first) });
        }
        // Taken apart: what a call returns lies in memory, and so would what stands in the same place otherwise.
        let (word, owner, op) = Self::with_node(inner, (target, which), mode, wish)?;
        Ok(Self { target, words: (word, owner), op: First::Posted(op) })
    }

    /// The same with whatever node can be had.
    #[cold]
    #[inline(never)]
    fn with_node(
        inner: &'w Inner<F>,
        (target, which): (&'w Target<F>, Which),
        mode: Mode,
        wish: Wish,
    ) -> Result<(F::Word<'w>, u64, F::Op), Fault> {
        let home = inner.home(target, which, inner.owner(mode)?);
        let words = match wish.is_patient() {
            true => inner.algorithm.words(home),
            false => inner.algorithm.words_to_try(home),
        };
        let words = words.inspect_err(|_| inner.give_back(home.owner))?;
        let op = inner.algorithm.start(inner.fabric(), home, words, mode);
        Ok((words.0, words.1, op.inspect_err(|_| inner.give_back(words.1))?))
    }
}

/// The first operation of an owner who has slot 0, where an operation is done when it is posted.
#[inline(always)]
fn start_as_lead<'w, F: Fabric>(
    inner: &'w Inner<F>,
    target: &'w Target<F>,
    owner: u64,
    mode: Mode,
) -> Result<(Words<'w, F>, u64), Fault> {
    macro_rules! start {
        ($lock:expr) => {{
            let words = $lock.words(inner.home(target, Which::PART, owner))?;
            Ok((words, start_at_once($lock, inner, target, words.0, words.1, mode)?))
        }};
    }
    match &inner.algorithm {
        Chosen::TestAndSet(lock) => start!(lock),
        Chosen::Mcs(lock) => start!(lock),
        Chosen::Ticket(lock) => start!(lock),
        Chosen::FetchAddQueue(lock) => start!(lock),
        Chosen::TwoLevel(lock) => start!(lock),
        other => start_another(other, inner, target, owner, mode),
    }
}

/// Of a lock that need not be so fast, so that callers stay small.
#[inline(never)]
fn start_another<'w, F: Fabric>(
    lock: &'w Chosen,
    inner: &'w Inner<F>,
    target: &'w Target<F>,
    owner: u64,
    mode: Mode,
) -> Result<(Words<'w, F>, u64), Fault> {
    let words = lock.words(inner.home(target, Which::PART, owner))?;
    Ok((words, start_at_once(lock, inner, target, words.0, words.1, mode)?))
}

/// Apart, so that it is small, and its result lies in registers.
#[inline(never)]
fn start_at_once<'w, F: Fabric, A: LockAlgorithm<Words<'w, F> = Words<'w, F>>>(
    lock: &'w A,
    inner: &'w Inner<F>,
    target: &'w Target<F>,
    word: F::Word<'w>,
    owner: u64,
    mode: Mode,
) -> Result<u64, Fault> {
    let words = (word, owner);
    let started = inner.home(target, Which::PART, owner).of_lead();
    match started.and_then(|home| lock.start(inner.fabric(), home, words, mode)) {
        Ok(op) => at_once(op).map_err(|fault| failed_at_once(inner, target, words, mode, fault)),
        Err(fault) => Err(never_started(inner, owner, fault)),
    }
}

#[cold]
#[inline(never)]
fn never_started<F: Fabric>(inner: &Inner<F>, owner: u64, fault: Fault) -> Fault {
    inner.give_back(owner);
    fault
}

/// Ends an acquire whose first operation failed, where an operation is done when it is posted.
#[cold]
#[inline(never)]
fn failed_at_once<'w, F: Fabric>(
    inner: &'w Inner<F>,
    target: &'w Target<F>,
    words: Words<'w, F>,
    mode: Mode,
    fault: Fault,
) -> Fault {
    let home = inner.home(target, Which::PART, words.1);
    // Nothing of it is under way: so that ends at once.
    let contends = pin!(inner.algorithm.contend(inner.fabric(), home, words, mode, Err(fault), &|| Wish::NONE));
    let _ = contends.poll(&mut Context::from_waker(Waker::noop()));
    inner.give_up(home.owner, Err(fault), fault);
    fault
}

/// The value of an operation, where it is done when it is posted.
#[inline(always)]
pub(crate) fn at_once<O: Future<Output = Result<u64, Fault>> + Unpin>(mut op: O) -> Result<u64, Fault> {
    match Pin::new(&mut op).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => Err(Fault::new(FaultKind::Protocol)), // a fabric that calls itself immediate and is not
    }
}

// Nothing in it is pinned in place: what must not move is boxed.
impl<T: Element, F: Fabric> Unpin for LockRequest<'_, T, F> {}

impl<'w, T: Element, F: Fabric> LockRequest<'w, T, F> {
    #[inline(always)] // see `wait`
    pub(crate) fn start(window: &'w Window<T, F>, rank: u32, mode: Mode, wish: Wish) -> Self {
        Self::start_of(window, (rank, Which::PART), mode, wish)
    }

    /// The same for any lock of the rank.
    #[inline(always)] // see `wait`
    pub(crate) fn start_of(window: &'w Window<T, F>, (rank, which): Spot, mode: Mode, wish: Wish) -> Self {
        Self {
            window,
            rank,
            which,
            mode,
            started: Some(Started::new(window.inner(), (rank, which), mode, wish)),
            deadline: None,
            wish,
            later: None,
        }
    }

    /// Gives up after this time: the error is then [`TimedOut`](Error::is_timed_out), and the endpoint finishes what is
    /// under way, and releases what that takes.
    pub const fn deadline(mut self, after: Duration) -> Self {
        self.deadline = Some(after);
        self
    }

    /// Takes the lock from a rank that died while it held it: [`Epoch::inherited`] tells then from whom, and the lock is held
    /// exclusively whatever was asked for, because what the dead rank left half done is for nobody else to see. The unlock
    /// heals it: who comes later is not told any more.
    ///
    /// ```
    /// # use windows::{Error, Window};
    /// # fn repair(_: &windows::Epoch<'_, u64, fabric::Any>) -> Result<(), Error> { Ok(()) }
    /// # fabric::threads(2, |world| {
    /// # let window = Window::<u64>::allocate(&world, 1).wait()?;
    /// let epoch = window.lock_exclusive(1).inherit().wait()?;
    /// if let Some(inheritance) = epoch.inherited() {
    ///     eprintln!("{inheritance}");
    ///     repair(&epoch)?;
    /// }
    /// epoch.unlock().wait()?;
    /// # window.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), Error>>().unwrap();
    /// ```
    #[inline]
    pub const fn inherit(mut self) -> Self {
        self.wish = self.wish.inheriting();
        self
    }

    /// Waits until the lock is held, and tells whether the first operation sufficed, at the target: then words that were read there
    /// behind it were read under the lock, and where the fabric [keeps order](Fabric::keeps_order) everything was done under it.
    ///
    /// # Cancel safety
    /// As the request.
    pub(crate) async fn held(mut self) -> Result<(Epoch<'w, T, F>, bool), Error> {
        poll_fn(|cx| self.poll_held(cx)).await.map_err(|fault| self.failed(fault))
    }

    pub(crate) const fn inner(&self) -> &'w Arc<Inner<F>> {
        self.window.inner()
    }

    pub(crate) const fn spot(&self) -> Spot {
        (self.rank, self.which)
    }

    pub(crate) fn failed(&self, fault: Fault) -> Error {
        failed(self.inner(), self.rank, self.mode, fault)
    }

    /// The same, of a request that is consumed.
    #[inline]
    pub(crate) fn failing(&self) -> impl Fn(Fault) -> Error + use<'w, T, F> {
        let (inner, rank, mode) = (self.inner(), self.rank, self.mode);
        move |fault| failed(inner, rank, mode, fault)
    }

    pub(crate) fn poll_held(&mut self, cx: &mut Context<'_>) -> Poll<Held<'w, T, F>> {
        let (inner, which) = (self.window.inner(), self.which);
        if let Some(after) = self.deadline.take() {
            self.later.get_or_insert_default().limit.said = Some(after); // it may be said at any time
        }
        let outcome = match self.poll_stage(cx) {
            Poll::Pending => {
                let Some(later) = &mut self.later else { return Poll::Pending };
                ready!(later.limit.poll(cx, inner.fabric()));
                Err(Fault::new(FaultKind::TimedOut))
            }
            Poll::Ready(outcome) => outcome,
        };
        // What was begun goes to the endpoint.
        self.give_up(outcome.as_ref().err().copied().unwrap_or(Fault::new(FaultKind::Closed)));
        Poll::Ready(outcome.map(|(target, words, Had { holding, at_once })| {
            (Epoch::new(inner, (target, which), words, holding), at_once)
        }))
    }

    /// Whether the first operation sufficed, and the lock if it did: otherwise nothing is held, and nobody waits yet.
    pub(crate) fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Epoch<'w, T, F>>, Error>> {
        let first = ready!(self.poll_started(cx)).map_err(|fault| self.failed(fault))?;
        Poll::Ready(Ok(first.map(|(target, words, Had { holding, .. })| {
            self.give_up(Fault::new(FaultKind::Closed)); // the lock is the epoch's
            Epoch::new(self.inner(), (target, self.which), words, holding)
        })))
    }

    fn poll_stage(&mut self, cx: &mut Context<'_>) -> Poll<Result<Parts<'w, F>, Fault>> {
        if let Some(held) = ready!(self.poll_started(cx))? {
            return Poll::Ready(Ok(held));
        }
        match self.later.as_mut().and_then(|later| later.rest.as_mut()) {
            Some((target, words, rest)) => {
                rest.poll(cx).map_ok(|holding| (*target, *words, Had { holding, at_once: false }))
            }
            None => Poll::Ready(Err(Fault::new(FaultKind::Closed))),
        }
    }

    /// The first operation. `None` once more than it is needed.
    fn poll_started(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Parts<'w, F>>, Fault>> {
        let (inner, spot, mode) = (self.window.inner(), (self.rank, self.which), self.mode);
        match &mut self.started {
            // In place, so that a drop meanwhile is the drop of the request.
            Some(Ok(Started { target, words, op })) => {
                let (target, words) = (*target, *words);
                let first = ready!(Pin::new(op).poll(cx));
                self.started = None; // there is nothing to walk away from
                match first {
                    Ok(first) if inner.algorithm.holds::<F>(words, mode, first) => {
                        let at_once = inner.starts_at_target();
                        let had = Had { holding: Holding::cleanly(mode), at_once };
                        return Poll::Ready(Ok(Some((target, words, had))));
                    }
                    first => {
                        let first = std::future::ready(first);
                        let rest = Abandonable::new(Arc::clone(inner), (spot, mode, self.wish), words.1, first);
                        let later = self.later.get_or_insert_default();
                        later.rest = Some((target, words, rest));
                    }
                }
            }
            Some(Err(fault)) => return Poll::Ready(Err(*fault)),
            None => {}
        }
        Poll::Ready(Ok(None))
    }

    /// Ends it; a request is consumed by whoever takes the lock.
    fn give_up(&mut self, why: Fault) {
        self.later = None;
        if let Some(Ok(started)) = self.started.replace(Err(why)) {
            abandon(self.window.inner(), (self.rank, self.which), self.mode, started);
        }
    }

    /// What was started.
    #[inline]
    fn take(&mut self) -> Result<Started<'w, F>, Fault> {
        self.started.take().unwrap_or_else(|| Err(Fault::new(FaultKind::Closed)))
    }
}

impl<'w, T: Element, F: Drive> LockRequest<'w, T, F> {
    /// Blocks until the lock is held.
    ///
    /// # Errors
    /// [`Error::Lock`]: its owner died ([`Error::is_abandoned`]; see [`inherit`](Self::inherit)), the deadline passed
    /// ([`Error::is_timed_out`]), the target died; `Full`: this rank has more locks there than it has slots (one for each rank and
    /// 31 more, at most 1024), and waits for a lock of the dead, and the named rank does so as well, so that neither knows whether
    /// the other one is what it waits for; in a window with a [policy for late owners](crate::LatePolicy), or with
    /// [`LockAllDesign::Global`](crate::LockAllDesign::Global), `Full`: this rank has as many locks there as it has slots
    /// (readers count as well, because one that finds a late owner has the lock alone); [`Error::Rank`].
    #[inline(always)] // see `hold`
    pub fn wait(self) -> Result<Epoch<'w, T, F>, Error> {
        let failed = self.failing();
        self.hold().map_err(failed)
    }

    // A request that is taken apart in registers costs nothing; one that passes through memory costs more than the lock.
    #[inline(always)]
    pub(crate) fn hold(self) -> Result<Epoch<'w, T, F>, Fault> {
        let (inner, which, mode, wish) = (self.window.inner(), self.which, self.mode, self.wish);
        if self.deadline.is_some() || self.later.is_some() {
            return self.hold_slowly();
        }
        let Started { target, words, op } = ManuallyDrop::new(self).take()?;
        let holding = match wait_for(inner.fabric(), op) {
            Ok(first) if inner.algorithm.holds::<F>(words, mode, first) => Holding::cleanly(mode),
            first => contend(inner, (target, which), words, (mode, wish), first)?,
        };
        Ok(Epoch::new(inner, (target, which), words, holding))
    }

    #[cold]
    #[inline(never)]
    fn hold_slowly(mut self) -> Result<Epoch<'w, T, F>, Fault> {
        block_on(self.inner().fabric(), poll_fn(|cx| self.poll_held(cx))).map(|(epoch, _)| epoch)
    }
}

handle!(['w, T: Element, F], LockRequest<'w, T, F>, Epoch<'w, T, F>, Error, |lock| lock.window.inner().fabric());

impl<'w, T: Element, F: Fabric> Future for LockRequest<'w, T, F> {
    type Output = Result<Epoch<'w, T, F>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_held(cx).map_ok(|(epoch, _)| epoch).map_err(|fault| self.failed(fault))
    }
}

/// The contended rest of an acquire, apart so that the uncontended path stays small.
#[cold]
#[inline(never)]
fn contend<'w, F: Drive>(
    inner: &'w Inner<F>,
    (target, which): (&'w Target<F>, Which),
    words: Words<'w, F>,
    (mode, wish): (Mode, Wish),
    first: Result<u64, Fault>,
) -> Result<Holding, Fault> {
    let home = inner.home(target, which, words.1);
    let held = match inner.late {
        None => block_on(inner.fabric(), inner.algorithm.contend(inner.fabric(), home, words, mode, first, &|| wish)),
        Some(_) => block_on(inner.fabric(), inner.contend(home, words, mode, first, &|| wish)),
    };
    held.map(Holding::of).inspect_err(|fault| inner.give_up(words.1, first, *fault))
}

impl<F: Fabric> Inner<F> {
    /// Ends an owner who contended in vain, after a first operation that ended so. It does not count any more.
    fn give_up(&self, owner: u64, first: Result<u64, Fault>, fault: Fault) {
        use FaultKind::{Closed, MemberDied, OwnerDied, OwnerLate, TimedOut};
        let never_began = first.is_err_and(|fault| !fault.is_unknown());
        // What failed in the queue may be written to yet: the node is for nobody any more.
        if never_began || matches!(fault.kind(), Closed | TimedOut | OwnerDied | OwnerLate | MemberDied) {
            self.give_back(owner);
        }
    }
}

#[cold]
#[inline(never)]
fn failed<F: Fabric>(inner: &Inner<F>, target: u32, mode: Mode, fault: Fault) -> Error {
    match fault.kind() {
        FaultKind::NoSuchRank => inner.failed(operation(mode), target, fault),
        _ => {
            let fault = inner.world.translate(fault);
            Error::Lock { operation: operation(mode), target, window: inner.name.clone(), fault }
        }
    }
}

impl<T: Element, F: Fabric> Drop for LockRequest<'_, T, F> {
    #[inline]
    fn drop(&mut self) {
        if let Some(Ok(started)) = self.started.take() {
            abandon(self.window.inner(), (self.rank, self.which), self.mode, started);
        }
    }
}

/// Walks away from an acquire.
#[cold]
fn abandon<F: Fabric>(inner: &Arc<Inner<F>>, spot: Spot, mode: Mode, started: Started<'_, F>) {
    drop(Abandonable::new(Arc::clone(inner), (spot, mode, Wish::NONE), started.words.1, started.op));
}

/// The rest of an acquire that owns what it needs. Dropped before it is done, it is handed to the endpoint, which
/// finishes what is under way and releases the lock if that took it; the window's end waits for this.
struct Abandonable<F: Fabric> {
    inner: Arc<Inner<F>>,
    spot: Spot,
    owner: u64,
    wanted: Arc<AtomicBool>,
    rest: Option<Rest>,
}

type Rest = Pin<Box<dyn Future<Output = Result<Holding, Fault>> + Send>>;

impl<F: Fabric> Abandonable<F> {
    /// `first` gives the value of the first operation.
    fn new(
        inner: Arc<Inner<F>>,
        (spot, mode, wish): (Spot, Mode, Wish),
        owner: u64,
        first: impl Future<Output = Result<u64, Fault>> + Send + 'static,
    ) -> Self {
        let wanted = Arc::new(AtomicBool::new(true));
        let (theirs, still) = (Arc::clone(&inner), Arc::clone(&wanted));
        let rest = Box::pin(async move {
            let home = theirs.home(theirs.target(spot.0)?, spot.1, owner);
            let words = home.words()?;
            let first = first.await;
            if first.is_ok_and(|first| theirs.algorithm.holds::<F>(words, mode, first)) {
                return Ok(Holding::cleanly(mode));
            }
            let wish: Asked<'_> = &|| match still.load(Ordering::Relaxed) {
                true => wish,
                false => Wish { wanted: Wanted::No, ..wish },
            };
            let held = theirs.contend(home, words, mode, first, wish).await;
            held.map(Holding::of).inspect_err(|fault| theirs.give_up(owner, first, *fault))
        });
        Self { inner, spot, owner, wanted, rest: Some(rest) }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Holding, Fault>> {
        let Some(rest) = &mut self.rest else { return Poll::Ready(Err(Fault::new(FaultKind::Closed))) };
        let outcome = ready!(rest.as_mut().poll(cx));
        self.rest = None;
        Poll::Ready(outcome)
    }
}

impl<F: Fabric> Drop for Abandonable<F> {
    fn drop(&mut self) {
        let Some(rest) = self.rest.take() else { return };
        self.wanted.store(false, Ordering::Relaxed);
        let (inner, spot, owner) = (Arc::clone(&self.inner), self.spot, self.owner);
        let mut task = Box::pin(async move {
            // An acquire that fails holds nothing.
            if let Ok(holding) = rest.await {
                release(&inner, spot, owner, holding.mode()).await;
            }
        });
        // Where an operation is done when it is posted, most of them end here.
        if pin!(&mut task).poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            self.inner.adopt(task);
        }
    }
}

/// Flushes and releases for somebody who is gone; the window keeps what goes wrong.
pub(crate) async fn release<F: Fabric>(inner: &Inner<F>, spot: Spot, owner: u64, mode: Mode) {
    let outcome = async {
        let target = inner.target(spot.0)?;
        let flushed = inner.fabric().flush_before_release(target.fabric_rank()).await;
        let home = inner.home(target, spot.1, owner);
        let words = home.words()?;
        let started = inner.algorithm.start_release(inner.fabric(), home, words, mode)?;
        let released = inner.finish_release(spot, owner, mode, started).await;
        flushed.and(released) // it is released whatever became of what was done under it
    };
    if let Err(fault) = outcome.await {
        inner.keep(inner.failed_late("unlock", spot.0, fault));
    }
}

impl<F: Fabric> Inner<F> {
    /// The rest of a release, and the end of its owner.
    pub(crate) async fn finish_release(
        &self,
        (rank, which): Spot,
        owner: u64,
        mode: Mode,
        started: impl Future<Output = Result<u64, Fault>> + Send,
    ) -> Result<(), Fault> {
        let home = self.home(self.target(rank)?, which, owner);
        let words = home.words()?;
        let released = self.algorithm.finish_release(self.fabric(), home, words, mode, started).await;
        match released {
            Ok(()) => self.give_back(owner),
            Err(fault) => self.end_late(owner, fault), // otherwise what hangs on the node may be written to yet
        }
        released
    }

    /// Ends an owner whose release found another in the lock: where leases are nobody comes to the node of an owner that the
    /// word named.
    #[cold]
    pub(crate) fn end_late(&self, owner: u64, fault: Fault) {
        if self.late.is_some() && fault.kind() == FaultKind::NotHeld {
            self.give_back(owner);
        }
    }
}

impl<T: Element, F: Fabric> fmt::Debug for LockRequest<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on rank {} of {:?}", operation(self.mode), self.rank, self.window)
    }
}
