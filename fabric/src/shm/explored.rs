//! The doorbell, the ring and the helper's hand-over, explored by loom: `RUSTFLAGS="--cfg onesided_loom" cargo test
//! -p onesided-fabric --lib --release --target-dir target/loom`.
//!
//! The shipped code runs under its own orderings; a wait that nobody ends is loom's deadlock. Beside it run copies with a
//! flaw each, and every one of them must be caught.
//!
//! What loom does not see, and why it is right nevertheless:
//! - **Load buffering**: that the reader's count is stored with release order and not relaxed. A release store comes after
//!   all loads before it.
//! - **The kernel**: a futex is a lock and a condition here ([`Futex`]), which order more than a futex promises to.
//!   Nothing relies on it: a sleeper that is woken arms and looks again, and between that and the ring stand the fences.
//! - **Time**: nothing here ever is due.
//! - More than the bound: the preemptions in an execution, where a number is given (see [`explore`]).

use std::future::poll_fn;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool as Seen, AtomicUsize as Count, Ordering::Relaxed as Plainly};
use std::task::{Context, Poll, Wake};

use remote_memory::{Message, Port, Rank};

use crate::Ticket;
use crate::endpoint::{Driver, Endpoint};
use crate::shm::doorbell::Doorbell;
use crate::shm::ring::{Reader, RingMemory, SLOT_WORDS, Writer};
use crate::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use crate::sync::atomic::{AtomicU32, AtomicU64, fence};
use crate::sync::{Condvar, Mutex, thread};

/// Runs `program` in every interleaving, and with every value that each load may give; with at most `preemptions`
/// preemptions if a number is given. Gives the number of executions.
///
/// # Panics
/// If somebody waits for ever, or the program panics.
fn explore(preemptions: Option<usize>, program: impl Fn() + Send + Sync + 'static) -> usize {
    let executions = Arc::new(Count::new(0));
    let count = Arc::clone(&executions);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = preemptions;
    model.check(move || {
        count.fetch_add(1, Plainly);
        program();
    });
    executions.load(Plainly)
}

/// Explores what ships, and that there was something to explore: how much depends on the bound and on loom's version, not
/// on chance.
#[track_caller]
fn holds(preemptions: Option<usize>, at_least: usize, program: impl Fn() + Send + Sync + 'static) {
    let executions = explore(preemptions, program);
    println!("{executions} executions");
    assert!(executions >= at_least, "only {executions} executions");
}

/// Explores a flawed copy: loom must find what is expected.
#[track_caller]
fn caught(expected: &str, program: impl Fn() + Send + Sync + 'static) {
    let found = catch_unwind(AssertUnwindSafe(|| explore(None, program))).expect_err("the flaw was not caught");
    let said = found.downcast_ref::<String>().map(String::as_str).or(found.downcast_ref::<&str>().copied());
    assert!(said.is_some_and(|said| said.contains(expected)), "{said:?}");
}

/// Loom's report of a wait that nobody ends.
const LOST: &str = "deadlock";

/// Runs all of them at once, the last one on this thread.
fn together<const N: usize>(threads: [Box<dyn FnOnce() + Send>; N]) {
    let mut threads = Vec::from(threads);
    let last = threads.pop();
    let others: Vec<_> = threads.into_iter().map(thread::spawn).collect();
    last.into_iter().for_each(|last| last());
    others.into_iter().for_each(|other| other.join().unwrap());
}

/// A futex: who waits sleeps only if the word is still as expected, in one step as seen by who wakes.
#[derive(Default)]
struct Futex {
    queue: Mutex<()>,
    woken: Condvar,
}

impl Futex {
    fn wait(&self, word: &AtomicU32, expected: u32) {
        let queue = self.queue.lock().unwrap();
        if word.load(Relaxed) == expected {
            drop(self.woken.wait(queue).unwrap());
        }
    }

    fn wake(&self) {
        let _queue = self.queue.lock().unwrap();
        self.woken.notify_all();
    }
}

/// What is wrong with the hand-shake.
#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    /// The ringer's look may come before its write.
    RingWithoutFence,
    /// The sleeper's look may come before its announcement.
    ArmWithoutFence,
    /// A ring between the look and the ticket is taken for an old one.
    LookBeforeArm,
    /// A ring changes nothing that the sleeper compares.
    RingWithoutCount,
    /// The announcement comes when it is too late to be heard.
    AnnounceAfterLook,
}

/// A rank that sleeps: its doorbell, and two words that others write.
struct Sleeper {
    flaw: Flaw,
    rings: AtomicU32,
    sleepers: AtomicU32,
    futex: Futex,
    words: [AtomicU64; 2],
}

impl Sleeper {
    fn new(flaw: Flaw) -> Arc<Self> {
        let (rings, sleepers) = (AtomicU32::new(0), AtomicU32::new(0));
        Arc::new(Self { flaw, rings, sleepers, futex: Futex::default(), words: [AtomicU64::new(0), AtomicU64::new(0)] })
    }

    fn doorbell(&self) -> Doorbell<'_> {
        Doorbell { rings: &self.rings, sleepers: &self.sleepers }
    }

    fn ring(&self) {
        match self.flaw {
            Flaw::RingWithoutFence if self.sleepers.load(Relaxed) == 0 => {}
            Flaw::RingWithoutFence => {
                self.rings.fetch_add(1, Relaxed);
                self.futex.wake();
            }
            Flaw::RingWithoutCount => {
                fence(SeqCst);
                if self.sleepers.load(Relaxed) != 0 {
                    self.futex.wake();
                }
            }
            _ => self.doorbell().ring(|_| self.futex.wake()),
        }
    }

    fn arm(&self) -> Ticket {
        match self.flaw {
            Flaw::ArmWithoutFence => {
                self.sleepers.fetch_add(1, Relaxed);
                Ticket(self.rings.load(Relaxed))
            }
            Flaw::AnnounceAfterLook => Ticket(self.rings.load(Relaxed)),
            _ => self.doorbell().arm(),
        }
    }

    fn sleep(&self, ticket: Ticket) {
        if self.flaw == Flaw::AnnounceAfterLook {
            self.doorbell().arm();
        }
        self.futex.wait(&self.rings, ticket.0);
        self.doorbell().disarm();
    }

    /// What a thread does that blocks, without its spinning.
    fn wait(&self, look: impl Fn() -> bool) {
        loop {
            let early = self.flaw == Flaw::LookBeforeArm && look();
            let ticket = self.arm();
            if early || self.flaw != Flaw::LookBeforeArm && look() {
                return self.doorbell().disarm();
            }
            self.sleep(ticket);
        }
    }

    /// A write with `Notify::Yes`.
    fn write(&self, word: usize, value: u64) {
        self.words[word].store(value, Release);
        self.ring();
    }

    fn wait_for(&self, word: usize, value: u64) {
        self.wait(|| self.words[word].load(Acquire) == value);
    }
}

/// One writes, one sleeps.
fn one_write(flaw: Flaw) -> impl Fn() + Send + Sync + 'static {
    move || {
        let sleeper = Sleeper::new(flaw);
        let theirs = Arc::clone(&sleeper);
        together([Box::new(move || theirs.write(0, 1)), Box::new(move || sleeper.wait_for(0, 1))]);
    }
}

#[test]
fn one_writer_wakes_one_sleeper() {
    holds(None, 1, one_write(Flaw::None));
}

#[test]
fn every_flaw_of_the_hand_shake_is_caught() {
    use Flaw::{AnnounceAfterLook, ArmWithoutFence, LookBeforeArm, RingWithoutCount, RingWithoutFence};
    for flaw in [RingWithoutFence, ArmWithoutFence, LookBeforeArm, RingWithoutCount, AnnounceAfterLook] {
        caught(LOST, one_write(flaw));
    }
}

#[test]
fn one_writer_wakes_the_same_sleeper_twice() {
    holds(Some(5), 1, || {
        let sleeper = Sleeper::new(Flaw::None);
        let theirs = Arc::clone(&sleeper);
        let writer = move || {
            theirs.write(0, 1);
            theirs.write(1, 1);
        };
        let sleeper = move || {
            sleeper.wait_for(0, 1);
            sleeper.wait_for(1, 1);
        };
        together([Box::new(writer), Box::new(sleeper)]);
    });
}

#[test]
fn two_writers_wake_one_sleeper() {
    holds(Some(4), 1, || {
        let sleeper = Sleeper::new(Flaw::None);
        let (one, two) = (Arc::clone(&sleeper), Arc::clone(&sleeper));
        let both = move || sleeper.wait(|| sleeper.words.iter().all(|word| word.load(Acquire) == 1));
        together([Box::new(move || one.write(0, 1)), Box::new(move || two.write(1, 1)), Box::new(both)]);
    });
}

#[test]
fn one_writer_wakes_two_sleepers_of_one_rank() {
    holds(Some(4), 1, || {
        let rank = Sleeper::new(Flaw::None);
        let (one, two) = (Arc::clone(&rank), Arc::clone(&rank));
        let writer = move || rank.write(0, 1);
        together([Box::new(writer), Box::new(move || one.wait_for(0, 1)), Box::new(move || two.wait_for(0, 1))]);
    });
}

#[test]
fn a_death_is_heard_and_what_came_before_it_is_seen() {
    holds(None, 1, || {
        let rank = Sleeper::new(Flaw::None);
        let launcher = Arc::clone(&rank);
        let declare = move || {
            launcher.words[1].store(7, Relaxed);
            launcher.words[0].compare_exchange(0, 1, AcqRel, Relaxed).unwrap();
            launcher.ring();
        };
        let waiter = move || {
            rank.wait_for(0, 1);
            assert_eq!(rank.words[1].load(Relaxed), 7);
        };
        together([Box::new(declare), Box::new(waiter)]);
    });
}

/// Two ranks that each put, flush, and get what the other put: one of them must see it.
fn both_flush(flush: fn()) -> impl Fn() + Send + Sync + 'static {
    move || {
        let words = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let peer = Arc::clone(&words);
        let put_and_get = move |words: &[AtomicU64; 2], mine: usize| {
            words[mine].store(1, Relaxed);
            flush();
            words[1 - mine].load(Relaxed)
        };
        let there = thread::spawn(move || put_and_get(&peer, 1));
        let here = put_and_get(&words, 0);
        assert!(here + there.join().unwrap() > 0, "neither saw the other's");
    }
}

#[test]
fn a_flush_is_a_full_fence_and_a_swap_of_a_private_word_is_none() {
    holds(None, 1, both_flush(|| fence(SeqCst)));
    caught("neither saw", both_flush(|| assert_eq!(AtomicU64::new(0).swap(1, SeqCst), 0)));
}

/// A ring of loom's words.
struct Slots {
    taken: AtomicU64,
    slots: Vec<[AtomicU64; SLOT_WORDS]>,
}

impl Slots {
    fn new(slots: usize) -> Arc<Self> {
        let slot = || std::array::from_fn(|_| AtomicU64::new(0));
        Arc::new(Self { taken: AtomicU64::new(0), slots: (0..slots).map(|_| slot()).collect() })
    }
}

impl RingMemory for Slots {
    fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    fn taken(&self) -> &AtomicU64 {
        &self.taken
    }

    fn word(&self, slot: u32, word: usize) -> &AtomicU64 {
        &self.slots[slot as usize][word]
    }
}

/// Message `number`: two words that say so, to the port of that number.
fn message(number: u64) -> (Port, Message) {
    let bytes = [number.to_le_bytes(), number.to_le_bytes()].concat();
    (Port(number as u8), Message::new(Rank(0), &bytes).unwrap())
}

fn push(writer: &mut Writer, ring: &Slots, number: u64) -> bool {
    let (port, message) = message(number);
    writer.push(ring, port, &message)
}

/// Takes message `number` out, if one is there.
fn take(reader: &mut Reader, ring: &Slots, number: u64) -> bool {
    let Some(port) = reader.peek(ring) else { return false };
    let taken = reader.take(ring, Rank(0)).unwrap();
    assert_eq!((port, taken.bytes()), (message(number).0, message(number).1.bytes()), "torn");
    true
}

/// Both ends of a ring, over and over.
fn through_a_ring(slots: usize, messages: u64, refused: Arc<Seen>) -> impl Fn() + Send + Sync + 'static {
    move || {
        let ring = Slots::new(slots);
        let (theirs, refused) = (Arc::clone(&ring), Arc::clone(&refused));
        let write = move || {
            let mut writer = Writer::default();
            for number in 1..=messages {
                while !push(&mut writer, &theirs, number) {
                    refused.store(true, Plainly);
                    thread::yield_now();
                }
            }
        };
        let read = move || {
            let mut reader = Reader::default();
            for number in 1..=messages {
                while !take(&mut reader, &ring, number) {
                    thread::yield_now();
                }
            }
            assert!(reader.peek(&*ring).is_none());
        };
        together([Box::new(write), Box::new(read)]);
    }
}

#[test]
fn messages_go_round_a_ring_whole_and_in_order() {
    for (slots, messages, preemptions) in [(1, 3, None), (2, 4, Some(4))] {
        let refused = Arc::new(Seen::new(false));
        holds(preemptions, 1, through_a_ring(slots, messages, Arc::clone(&refused)));
        assert!(refused.load(Plainly), "the ring was never full");
    }
}

/// What is wrong with a ring of one slot of one word.
#[derive(Clone, Copy, PartialEq)]
enum RingFlaw {
    None,
    HeaderRelaxed,
    HeaderReadRelaxed,
    TakenBeforeRead,
    FullIsNotSeen,
}

/// The ring once more, in short and with a flaw: two messages through one slot.
fn through_a_flawed_ring(flaw: RingFlaw) -> impl Fn() + Send + Sync + 'static {
    let unless = move |relaxed, order| if flaw == relaxed { Relaxed } else { order };
    move || {
        let words = Arc::new([AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)]);
        let theirs = Arc::clone(&words);
        let write = move || {
            let [taken, header, word] = &*theirs;
            for number in 1..=2 {
                while flaw != RingFlaw::FullIsNotSeen && taken.load(Acquire) != number - 1 {
                    thread::yield_now();
                }
                word.store(number, Relaxed);
                header.store(number, unless(RingFlaw::HeaderRelaxed, Release));
            }
        };
        let read = move || {
            let [taken, header, word] = &*words;
            for number in 1..=2 {
                while header.load(unless(RingFlaw::HeaderReadRelaxed, Acquire)) < number {
                    thread::yield_now();
                }
                if flaw == RingFlaw::TakenBeforeRead {
                    taken.store(number, Release);
                }
                assert_eq!(word.load(Relaxed), number, "torn");
                taken.store(number, Release);
            }
        };
        together([Box::new(write), Box::new(read)]);
    }
}

#[test]
fn every_flaw_of_the_ring_is_caught() {
    use RingFlaw::{FullIsNotSeen, HeaderReadRelaxed, HeaderRelaxed, TakenBeforeRead};
    explore(None, through_a_flawed_ring(RingFlaw::None));
    for flaw in [HeaderRelaxed, HeaderReadRelaxed, TakenBeforeRead, FullIsNotSeen] {
        caught("torn", through_a_flawed_ring(flaw));
    }
}

/// A message with `Notify::Yes` to a receiver that sleeps.
fn mail(flaw: Flaw, slots: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let (ring, rank) = (Slots::new(slots), Sleeper::new(flaw));
        let (to, bell) = (Arc::clone(&ring), Arc::clone(&rank));
        let send = move || {
            let mut writer = Writer::default();
            for number in 1..=2 {
                while !push(&mut writer, &to, number) {
                    thread::yield_now();
                }
                bell.ring();
            }
        };
        let receive = move || {
            let mut reader = Reader::default();
            for number in 1..=2 {
                rank.wait(|| reader.peek(&*ring).is_some());
                assert!(take(&mut reader, &ring, number));
            }
        };
        together([Box::new(send), Box::new(receive)]);
    }
}

#[test]
fn mail_wakes_its_receiver() {
    holds(Some(4), 1, mail(Flaw::None, 2));
    holds(Some(4), 1, mail(Flaw::None, 1));
    for flaw in [Flaw::RingWithoutFence, Flaw::ArmWithoutFence, Flaw::LookBeforeArm] {
        caught(LOST, mail(flaw, 2));
    }
}

impl Driver for Arc<Sleeper> {
    fn now(&self) -> u64 {
        0
    }

    fn progress(&self) {}

    fn arm(&self) -> Ticket {
        Sleeper::arm(self)
    }

    fn sleep(&self, ticket: Ticket, until: u64) {
        match until {
            0 => self.doorbell().disarm(),
            _ => Sleeper::sleep(self, ticket),
        }
    }

    fn wake(&self) {
        self.ring();
    }
}

/// An async runtime's thread: it sleeps until its task is woken.
#[derive(Default)]
struct Runtime {
    woken: Mutex<bool>,
    wakes: Condvar,
}

impl Wake for Runtime {
    fn wake(self: Arc<Self>) {
        *self.woken.lock().unwrap() = true;
        self.wakes.notify_one();
    }
}

impl Runtime {
    /// Runs the task that `poll` polls.
    fn run(self: &Arc<Self>, mut poll: impl FnMut(&mut Context<'_>) -> Poll<()>) {
        let waker = Arc::clone(self).into();
        while poll(&mut Context::from_waker(&waker)).is_pending() {
            let mut woken = self.woken.lock().unwrap();
            while !*woken {
                woken = self.wakes.wait(woken).unwrap();
            }
            *woken = false;
        }
    }
}

/// What `wait_until` with a deadline does when it is polled.
fn poll(rank: &Sleeper, endpoint: &Endpoint<Arc<Sleeper>>, word: usize, deadline: u64, cx: &Context<'_>) -> Poll<()> {
    if rank.words[word].load(Acquire) == 1 {
        return Poll::Ready(());
    }
    endpoint.pend(cx, deadline);
    Poll::Pending
}

/// A task waits for one word after the other, served by the helper, which ends with the endpoint.
fn a_task(flaw: Flaw, words: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rank = Sleeper::new(flaw);
        let theirs = Arc::clone(&rank);
        let write = move || (0..words).for_each(|word| theirs.write(word, 1));
        let task = move || {
            // Not dropped while loom unwinds from what it found.
            let endpoint = ManuallyDrop::new(Endpoint::new(Arc::clone(&rank)));
            let runtime = Arc::<Runtime>::default();
            (0..words).for_each(|word| runtime.run(|cx| poll(&rank, &endpoint, word, u64::MAX, cx)));
            drop(ManuallyDrop::into_inner(endpoint));
        };
        together([Box::new(write), Box::new(task)]);
    }
}

#[test]
fn the_helper_wakes_a_task() {
    holds(Some(3), 1, a_task(Flaw::None, 1));
    holds(Some(2), 1, a_task(Flaw::None, 2));
    for flaw in [Flaw::RingWithoutFence, Flaw::ArmWithoutFence, Flaw::AnnounceAfterLook] {
        caught(LOST, a_task(flaw, 1));
    }
}

#[test]
fn the_helper_wakes_two_tasks_of_which_one_has_a_deadline() {
    holds(Some(2), 1, || {
        let rank = Sleeper::new(Flaw::None);
        let endpoint = Arc::new(Endpoint::new(Arc::clone(&rank)));
        let task = |word: usize, deadline| {
            let (rank, endpoint) = (Arc::clone(&rank), Arc::clone(&endpoint));
            move || Arc::<Runtime>::default().run(|cx| poll(&rank, &endpoint, word, deadline, cx))
        };
        let (one, two) = (task(0, u64::MAX), task(0, 5));
        drop(endpoint);
        together([Box::new(move || rank.write(0, 1)), Box::new(one), Box::new(two)]);
    });
}

#[test]
fn the_helper_finishes_what_it_adopted_and_may_drop_the_last_handle() {
    holds(Some(3), 1, || {
        let rank = Sleeper::new(Flaw::None);
        let theirs = Arc::clone(&rank);
        let adopt = move || {
            let endpoint = Arc::new(Endpoint::new(Arc::clone(&rank)));
            let held = Arc::clone(&endpoint);
            endpoint.adopt(Box::pin(poll_fn(move |cx| poll(&rank, &held, 0, u64::MAX, cx))));
        };
        together([Box::new(move || theirs.write(0, 1)), Box::new(adopt)]);
    });
}

#[test]
fn the_helper_takes_up_more_while_it_sleeps() {
    holds(Some(3), 1, || {
        let rank = Sleeper::new(Flaw::None);
        let endpoint = Arc::new(Endpoint::new(Arc::clone(&rank)));
        let (first, held) = (Arc::clone(&rank), Arc::clone(&endpoint));
        endpoint.adopt(Box::pin(poll_fn(move |cx| poll(&first, &held, 0, u64::MAX, cx))));
        // What the first waits for, the second does.
        endpoint.adopt(Box::pin(async move { rank.write(0, 1) }));
    });
}
