//! What the ranks of this process wait for: told when somebody asks.
//!
//! Nothing is kept of a wait beforehand, so waits cost nothing more. Whoever asks raises a number
//! and wakes all that wait. A wait that is polled then, and is not over, tells.

#[cfg(not(onesided_loom))]
mod watch;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use std::{fmt, thread};

pub use onesided_job::Wait;
use onesided_job::{REPORT, lock};
use onesided_remote_memory::Rank;

#[cfg(not(onesided_loom))]
pub use self::watch::dump_on_signal;

/// The number of the question that is asked now; 0 if none is.
static ASKED: AtomicU32 = AtomicU32::new(0);
/// The answers, by wait.
static TOLD: Mutex<BTreeMap<u32, Wait>> = Mutex::new(BTreeMap::new());
/// The number of waits that have told anything so far.
static WAITS: AtomicU32 = AtomicU32::new(0);
/// The ranks of this process.
static RANKS: Mutex<Vec<(Rank, Weak<dyn Waiter>)>> = Mutex::new(Vec::new());

/// How often those that wait are woken for a question, and how long they may take each time to be
/// polled.
const ROUNDS: u32 = 3;
const ROUND: Duration = Duration::from_millis(20);

/// A rank that is asked.
pub(crate) trait Waiter: Send + Sync {
    /// Wakes everything that waits.
    fn wake(&self);
    /// What is under way in the background: see [`Background`](crate::Background::describe).
    fn describe(&self) -> Vec<String>;
}

pub(crate) fn register(rank: Rank, waiter: Weak<dyn Waiter>) {
    let mut ranks = lock(&RANKS);
    ranks.retain(|(_, waiter)| waiter.strong_count() > 0);
    ranks.push((rank, waiter));
    drop(ranks);
    #[cfg(not(onesided_loom))]
    watch::begin();
}

/// What a wait has told so far.
#[derive(Debug)]
pub struct Told {
    /// The question that it answered last.
    answered: u32,
    /// Its number among all waits that told anything; 0 before that.
    wait: u32,
}

impl Told {
    /// Nothing.
    pub const NOTHING: Self = Self { answered: 0, wait: 0 };

    /// Tells what is waited for, if somebody asks. Called after a poll that is pending.
    #[inline]
    pub fn tell(&mut self, what: impl FnOnce() -> Option<Wait>) {
        let asked = ASKED.load(Ordering::Relaxed);
        if asked != 0 && asked != self.answered {
            self.answer(asked, what());
        }
    }

    #[cold]
    fn answer(&mut self, asked: u32, wait: Option<Wait>) {
        self.answered = asked;
        let Some(wait) = wait else { return };
        if self.wait == 0 {
            self.wait = WAITS.fetch_add(1, Ordering::Relaxed) + 1;
        }
        let mut told = lock(&TOLD);
        if ASKED.load(Ordering::Relaxed) == asked {
            told.insert(self.wait, wait);
        }
    }
}

/// A wait that [tells](Told::tell).
#[derive(Debug)]
pub struct Telling<A, W> {
    wait: A,
    what: W,
    told: Told,
}

/// Makes a wait tell what it waits for.
pub const fn telling<A, W>(wait: A, what: W) -> Telling<A, W>
where
    A: Future + Unpin,
    W: Fn() -> Option<Wait> + Unpin,
{
    Telling { wait, what, told: Told::NOTHING }
}

impl<A: Future + Unpin, W: Fn() -> Option<Wait> + Unpin> Future for Telling<A, W> {
    type Output = A::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<A::Output> {
        let Self { wait, what, told } = &mut *self;
        let polled = Pin::new(wait).poll(cx);
        if polled.is_pending() {
            told.tell(what);
        }
        polled
    }
}

/// A wait as it was seen.
struct Seen {
    first: Instant,
    misses: u32,
}

/// The waits that earlier questions have seen.
static SEEN: Mutex<BTreeMap<u32, Seen>> = Mutex::new(BTreeMap::new());
/// How many questions a wait may miss, because its thread gets no core, before it counts as over.
const MISSES: u32 = 3;

/// Asks all waits of this process. Those that an earlier question has seen tell since when.
fn ask() -> BTreeMap<u32, Wait> {
    static QUESTIONS: Mutex<u32> = Mutex::new(0);
    let mut number = lock(&QUESTIONS); // one at a time
    *number = number.checked_add(1).unwrap_or(1);
    lock(&TOLD).clear();
    ASKED.store(*number, Ordering::Relaxed);
    for _ in 0..ROUNDS {
        waiters().iter().for_each(|(_, waiter)| waiter.wake());
        thread::sleep(ROUND);
    }
    let mut told = lock(&TOLD);
    ASKED.store(0, Ordering::Relaxed);
    let mut waits = std::mem::take(&mut *told);
    drop(told);
    let (now, mut seen) = (Instant::now(), lock(&SEEN));
    seen.retain(|wait, seen| {
        seen.misses = if waits.contains_key(wait) { 0 } else { seen.misses + 1 };
        seen.misses <= MISSES
    });
    for (number, wait) in &mut waits {
        wait.since = seen.get(number).map(|seen| now.duration_since(seen.first));
        seen.entry(*number).or_insert(Seen { first: now, misses: 0 });
    }
    waits
}

fn waiters() -> Vec<(Rank, std::sync::Arc<dyn Waiter>)> {
    lock(&RANKS).iter().filter_map(|(rank, waiter)| Some((*rank, waiter.upgrade()?))).collect()
}

/// What the ranks of this process wait for, and what messages are under way: see [`dump`].
///
/// Shown a line each. Ranks are those of the whole job, but for what a text says of a window or a
/// communicator: there they are its own.
#[derive(Clone, Debug)]
pub struct Dump {
    waits: Vec<Wait>,
    messages: Vec<(Rank, Vec<String>)>,
}

impl Dump {
    fn of(told: BTreeMap<u32, Wait>) -> Self {
        let mut waits: Vec<_> = told.into_values().collect();
        waits.sort_by_key(|wait| wait.rank);
        let mut messages: Vec<_> = waiters().into_iter().map(|(rank, waiter)| (rank, waiter.describe())).collect();
        messages.sort_by_key(|(rank, _)| *rank);
        Self { waits, messages }
    }

    /// The waits, by rank.
    pub fn waits(&self) -> &[Wait] {
        &self.waits
    }
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranks: Vec<_> = self.messages.iter().map(|(rank, _)| *rank).collect();
        ranks.dedup();
        for rank in ranks {
            let mut waits = self.waits.iter().filter(|wait| wait.rank == rank).peekable();
            if waits.peek().is_none() {
                writeln!(f, "{REPORT}{rank} has no wait that told of itself")?;
            }
            waits.try_for_each(|wait| writeln!(f, "{REPORT}{wait}"))?;
            let of_rank = self.messages.iter().filter(|(of, _)| *of == rank).flat_map(|(_, lines)| lines);
            for line in of_rank {
                writeln!(f, "{REPORT}{rank} has {line}")?;
            }
        }
        Ok(())
    }
}

/// What the ranks of this process wait for now: each wait for a lock, a message, a signal or a
/// collective call, with the ranks that it waits for as far as they are known; and what each rank
/// has of messages. What an earlier dump has seen says since when, at least. Takes about 60 ms, in
/// which everything that waits is woken. A task whose runtime does not poll it meanwhile is not
/// told of, nor is a rank that computes.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// onesided_fabric::threads(2, |world| {
///     if world.rank() == 0 {
///         let late = world.barrier().deadline(Duration::from_millis(300)).wait(); // rank 1 comes too late
///         assert!(late.is_err());
///     } else {
///         std::thread::sleep(Duration::from_millis(100));
///         let dump = onesided_fabric::dump();
///         assert!(dump.to_string().contains("rank 0 waits for rank 1: a barrier"), "{dump}");
///     }
/// })
/// .unwrap();
/// ```
#[must_use]
pub fn dump() -> Dump {
    Dump::of(ask())
}
