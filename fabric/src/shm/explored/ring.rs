//! Both ends of a ring, and messages to a sleeper.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use onesided_remote_memory::{Message, Port, Rank};

use crate::shm::explored::doorbell::{Flaw, Sleeper};
use crate::shm::explored::{LOST, caught, explore, holds, together};
use crate::shm::ring::{Reader, RingMemory, SLOT_WORDS, Writer};
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::thread;

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

/// Message `number`: two words with that number, to the port of that number.
fn message(number: u64) -> (Port, Message) {
    let bytes = [number.to_le_bytes(), number.to_le_bytes()].concat();
    (Port(number as u8), Message::new(Rank(0), &bytes).unwrap())
}

fn push(writer: &mut Writer, ring: &Slots, number: u64) -> bool {
    let (port, message) = message(number);
    writer.push(ring, port, &message)
}

/// Takes message `number` out, if a message is there.
fn take(reader: &mut Reader, ring: &Slots, number: u64) -> bool {
    let Some(port) = reader.peek(ring) else { return false };
    let taken = reader.take(ring, Rank(0)).unwrap();
    assert_eq!((port, taken.bytes()), (message(number).0, message(number).1.bytes()), "torn");
    true
}

/// Both ends of a ring, repeatedly.
fn through_a_ring(slots: usize, messages: u64, refused: Arc<AtomicBool>) -> impl Fn() + Send + Sync + 'static {
    move || {
        let ring = Slots::new(slots);
        let (theirs, refused) = (Arc::clone(&ring), Arc::clone(&refused));
        let write = move || {
            let mut writer = Writer::default();
            for number in 1..=messages {
                while !push(&mut writer, &theirs, number) {
                    refused.store(true, Relaxed);
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
    for (slots, messages, preemptions, executions) in [(1, 3, None, 18_748), (2, 4, Some(4), 9_192)] {
        let refused = Arc::new(AtomicBool::new(false));
        holds(preemptions, executions, through_a_ring(slots, messages, Arc::clone(&refused)));
        assert!(refused.load(Relaxed), "the ring was never full");
    }
}

/// A flaw of a ring of one slot of one word.
#[derive(Clone, Copy, PartialEq)]
enum RingFlaw {
    None,
    HeaderRelaxed,
    HeaderReadRelaxed,
    TakenBeforeRead,
    FullIsNotSeen,
}

/// A short, flawed ring: two messages through one slot.
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

/// A message with `Notify::Yes` to a sleeping receiver.
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
    holds(Some(4), 7_721, mail(Flaw::None, 2));
    holds(Some(4), 11_312, mail(Flaw::None, 1));
    for flaw in [Flaw::RingWithoutFence, Flaw::ArmWithoutFence, Flaw::PollBeforeArm] {
        caught(LOST, mail(flaw, 2));
    }
}
