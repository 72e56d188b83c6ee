//! How a thread waits: poll, spin, yield, sleep.

use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::interface::background::{Polling, advance};
use crate::util::sync::thread_local;
use crate::{BackgroundSlot, Error, Fabric, Tasks};

/// What core a waiting thread has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Core {
    /// One of its own, as every rank of this host. Ranks pinned to separate cores have.
    Own,
    /// A server thread's only core: a waiting thread yields it at once, but keeps polling for as long as
    /// a wake-up would take.
    Shared,
    /// This host has fewer cores than ranks: waiting threads yield theirs at once.
    Oversubscribed,
}

/// How a waiting thread polls before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polls {
    /// What core it has.
    pub core: Core,
    /// The number of fruitless polls before it yields its core, if every rank has one. They take
    /// longer than a wake-up; otherwise two ranks that answer one another would sleep every time
    /// once they have slept.
    pub spins: u32,
    /// Whether it pauses between two of them.
    pub pauses: bool,
    /// How many looks at a word of mapped memory come before the first fruitless poll: for as long as a
    /// lock takes that is handed over at once. Polls look a third as often.
    pub looks: u32,
}

impl Polls {
    /// Of polls that take no time of their own.
    #[must_use]
    pub const fn of(core: Core) -> Self {
        let looks = if matches!(core, Core::Own) { 32 } else { 0 };
        Self { core, spins: 2_000, pauses: true, looks }
    }

    #[inline]
    pub(crate) fn pause(self) {
        if self.pauses {
            std::hint::spin_loop();
        }
    }
}

/// A fabric that a thread can wait on, with real time and real sleep; the simulator is not one.
#[diagnostic::on_unimplemented(
    message = "a thread cannot wait on the fabric `{Self}`",
    label = "not a fabric with real time",
    note = "in a simulation use `.await` instead of `.wait()`, and a deadline instead of `.wait_timeout()`; a function \
            for every fabric is `async` and generic over `F: Fabric`"
)]
pub trait Drive: Fabric {
    /// Drains what has arrived: completions, messages, spawned work. Returns the number of items.
    fn progress(&self) -> usize;

    /// How a waiting thread polls.
    fn polls(&self) -> Polls;

    /// Where a thread sleeps, and what runs meanwhile.
    fn tasks(&self) -> &Tasks;

    /// An endpoint beside this one, whose connections are not lost: see
    /// [`World::reconnect`](crate::World::reconnect). `None`: this fabric loses none.
    fn again(&self) -> Option<Result<Self, Error>> {
        None
    }
}

/// On an oversubscribed host, a wait with a due time yields the core at once, unless it is due
/// within this many nanoseconds: the longest of the short pauses of a lock's next owner, and less than
/// those of the owners behind it. Spinning for those too cost 4 and 8 ranks on two cores up to a fifth of the
/// hand-overs of a ticket lock.
const DUE: u64 = 96;
/// Polls of a wait without a due time before the core is yielded on an oversubscribed host, where
/// the awaited thread may wait for this core. With 20, 4 and 8 ranks on two cores handed a queue
/// lock over at two thirds of the rate.
const SPINS_OVERSUBSCRIBED: u32 = 2;
/// Yields after that, before the thread sleeps.
const YIELDS: u32 = 50;
/// Polls of a wait between two looks at what else moves meanwhile. A wait for one message is over
/// before.
const BETWEEN: u32 = 16;
/// A nap of fewer nanoseconds is not worth a sleep.
const SHORT: u64 = 60_000;
/// More than the time to wake a thread on an idle core, in nanoseconds: the awaited thread may be
/// waking up. On a virtual machine it took 50 to 90 us; a thread that sleeps meanwhile needs a
/// wake-up in turn, and waits twice as long.
const WAKING: u64 = 150_000;

/// The waker of a caller that polls again by itself: nothing is registered for it. A static, because
/// `will_wake` is known to hold only for copies of one waker.
pub static NOBODY: &Waker = Waker::noop();

thread_local! {
    /// Set while this thread blocks: the earliest time at which a polled future is due.
    #[allow(clippy::missing_const_for_thread_local)] // loom's macro does not take it
    static BLOCKING: Cell<Option<u64>> = Cell::new(None);
}

/// The clock of the real fabrics, in nanoseconds.
pub(crate) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Makes the blocking thread poll again at `until` at the latest. `false` if no thread blocks here:
/// the caller then has to register a waker.
pub(crate) fn look_again(until: u64) -> bool {
    BLOCKING.with(|blocking| match blocking.get() {
        Some(earliest) => {
            blocking.set(Some(earliest.min(until)));
            true
        }
        None => false,
    })
}

/// Whether this thread blocks: it drives the fabric between two polls then.
#[cfg(feature = "verbs")]
pub(crate) fn is_blocking() -> bool {
    BLOCKING.with(Cell::get).is_some()
}

/// Blocks the thread until the future is ready, and drives the fabric meanwhile.
///
/// The future should wait for this fabric only: other wake-ups take effect at the fabric's next
/// event.
#[inline]
pub fn block_on<D: Drive, T>(drive: &D, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    // An operation that completes at post costs nothing more than this poll.
    match future.as_mut().poll(&mut Context::from_waker(NOBODY)) {
        Poll::Ready(value) => value,
        Poll::Pending => block_slowly(drive, future),
    }
}

/// [`block_on`] for a caller that has just looked, and found nothing.
pub fn block_longer<D: Drive, T>(drive: &D, future: impl Future<Output = T>) -> T {
    block_slowly(drive, pin!(future))
}

/// [`block_on`] for an operation: one that completes at post costs nothing extra.
#[inline(always)] // passing the operation through memory costs more than the operation
pub fn wait_for<D: Drive, O: Future + Unpin>(drive: &D, mut operation: O) -> O::Output {
    match Pin::new(&mut operation).poll(&mut Context::from_waker(NOBODY)) {
        Poll::Ready(value) => value,
        Poll::Pending => wait_slowly(drive, operation),
    }
}

/// Like [`wait_for`], with a time limit: `None` when it has passed, and the operation continues.
pub fn wait_timeout<D: Drive, O: Future + Unpin>(drive: &D, operation: &mut O, timeout: Duration) -> Option<O::Output> {
    let nanos = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
    let until = drive.now().saturating_add(nanos);
    let looks = std::future::poll_fn(|cx| match Pin::new(&mut *operation).poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending if drive.now() >= until => Poll::Ready(None),
        Poll::Pending => {
            look_again(until); // has no effect before the first poll, which another follows
            Poll::Pending
        }
    });
    block_on(drive, looks)
}

/// Drains what has arrived and polls an operation once, for a caller that polls again by itself.
pub fn poll_now<D: Drive, O: Future + Unpin>(fabric: &D, operation: &mut O) -> Poll<O::Output> {
    fabric.progress();
    Pin::new(operation).poll(&mut Context::from_waker(NOBODY))
}

#[cold]
#[inline(never)]
fn wait_slowly<D: Drive, O: Future + Unpin>(drive: &D, mut operation: O) -> O::Output {
    block_slowly(drive, Pin::new(&mut operation))
}

/// Restores the thread-local when the wait ends, by panic too. Waits may be nested (a drop inside a
/// wait).
pub(crate) struct Blocking(Option<u64>);

impl Blocking {
    pub(crate) fn begin() -> Self {
        Self(BLOCKING.with(|blocking| blocking.replace(Some(u64::MAX))))
    }

    /// The earliest time at which a future polled since is due.
    pub(crate) fn earliest(&self) -> u64 {
        BLOCKING.with(Cell::get).unwrap_or(u64::MAX)
    }

    fn forget(&self) {
        BLOCKING.with(|blocking| blocking.set(Some(u64::MAX)));
    }
}

impl Drop for Blocking {
    fn drop(&mut self) {
        BLOCKING.with(|blocking| blocking.set(self.0));
    }
}

#[cold]
#[inline(never)]
fn block_slowly<D: Drive, T>(drive: &D, mut future: Pin<&mut impl Future<Output = T>>) -> T {
    let mut value = None;
    drive_until(drive, &mut |cx| match future.as_mut().poll(cx) {
        Poll::Ready(ready) => {
            value = Some(ready);
            true
        }
        Poll::Pending => false,
    });
    value.unwrap_or_else(|| unreachable!("it was polled until it was ready"))
}

/// Drives the fabric, and sleeps, until `poll` says that it is ready. Compiled once for a fabric, where
/// [`block_on`] is for each future.
fn drive_until<D: Drive>(drive: &D, poll: &mut dyn FnMut(&mut Context<'_>) -> bool) {
    let blocking = Blocking::begin();
    let mut cx = Context::from_waker(NOBODY);
    let (polls, tasks) = (drive.polls(), drive.tasks());
    let oversubscribed = polls.core == Core::Oversubscribed;
    let sleeps_at_once = drive.endpoint().background().is_some_and(BackgroundSlot::sleeps_at_once);
    let mut polling = None;
    let (spins, watched) = match polls.core {
        Core::Oversubscribed => (SPINS_OVERSUBSCRIBED, 0),
        Core::Shared => (SPINS_OVERSUBSCRIBED, drive.now().saturating_add(WAKING)),
        Core::Own => (polls.spins, 0),
    };
    let mut turn = 1_u32; // the caller has polled once
    loop {
        // Just polled, or just woken: another poll finds something only after an event.
        let any = drive.progress() > 0;
        if turn % BETWEEN == BETWEEN - 1 {
            advance(drive);
        }
        blocking.forget();
        if poll(&mut cx) {
            return;
        }
        turn = if any { 0 } else { turn.saturating_add(1) };
        if turn == BETWEEN && polling.is_none() {
            polling = Polling::begin(drive);
        }
        let until = blocking.earliest();
        let due_within = |nanos| until != u64::MAX && until.saturating_sub(drive.now()) < nanos;
        let spin = if oversubscribed && until != u64::MAX { due_within(DUE) } else { turn <= spins };
        if spin && !sleeps_at_once {
            polls.pause();
            continue;
        }
        if turn <= spins + YIELDS && !sleeps_at_once || due_within(SHORT) || watched != 0 && watched > drive.now() {
            std::thread::yield_now();
            continue;
        }
        let ticket = tasks.arm();
        blocking.forget();
        advance(drive);
        if poll(&mut cx) {
            return tasks.sleep(ticket, 0);
        }
        if drive.progress() > 0 {
            tasks.sleep(ticket, 0);
            turn = 0;
            continue;
        }
        tasks.sleep(ticket, blocking.earliest());
    }
}
