//! Collective buffers of one slot: each rank publishes as soon as the other has passed.

use std::sync::Arc;

use crate::shm::collective_buffer::{CollectiveBuffer, HEAD_WORDS, SLOT_WORDS};
use crate::shm::explored::{caught, explore, holds, together};
use crate::util::sync::atomic::AtomicU64;
use crate::util::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::util::sync::thread;

const CALLS: u64 = 2;

fn bytes(rank: usize, number: u64) -> [u8; 8] {
    (10 * number + rank as u64).to_le_bytes()
}

/// A rank in all its collectives.
fn take_part(memory: &[Vec<AtomicU64>; 2], me: usize) {
    let [own, other] = [me, 1 - me].map(|rank| CollectiveBuffer::of(&memory[rank]).unwrap());
    for number in 1..=CALLS {
        while number > other.frees() {
            thread::yield_now();
        }
        own.publish(number, number, &bytes(me, number));
        let found = loop {
            match other.find(number) {
                Some(found) => break found,
                None => thread::yield_now(),
            }
        };
        let mut into = [0; 8];
        found.read(0, &mut into);
        assert_eq!((found.tag, found.len, into), (number, 8, bytes(1 - me, number)), "torn");
        own.pass(number);
    }
}

#[test]
fn contributions_are_read_whole() {
    holds(Some(4), 2_810, || {
        let words = || (0..HEAD_WORDS + SLOT_WORDS).map(|_| AtomicU64::new(0)).collect();
        let memory: Arc<[Vec<AtomicU64>; 2]> = Arc::new([words(), words()]);
        let theirs = Arc::clone(&memory);
        together([Box::new(move || take_part(&theirs, 1)), Box::new(move || take_part(&memory, 0))]);
    });
}

/// A flaw of a buffer of one word.
#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    HeaderRelaxed,
    HeaderReadRelaxed,
    PassedBeforeRead,
    PublishedEarly,
}

/// A short, flawed buffer: its owner publishes, another rank reads.
fn flawed(flaw: Flaw) -> impl Fn() + Send + Sync + 'static {
    let unless = move |relaxed, order| if flaw == relaxed { Relaxed } else { order };
    move || {
        let words = Arc::new([AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)]);
        let theirs = Arc::clone(&words);
        let publish = move || {
            let [passed, header, word] = &*theirs;
            for number in 1..=CALLS {
                while flaw != Flaw::PublishedEarly && passed.load(Acquire) < number - 1 {
                    thread::yield_now();
                }
                word.store(number, Relaxed);
                header.store(number, unless(Flaw::HeaderRelaxed, Release));
            }
        };
        let read = move || {
            let [passed, header, word] = &*words;
            for number in 1..=CALLS {
                let mut turns = 0;
                while header.load(unless(Flaw::HeaderReadRelaxed, Acquire)) != number {
                    turns += 1;
                    assert!(flaw != Flaw::PublishedEarly || turns < 20, "torn");
                    thread::yield_now();
                }
                if flaw == Flaw::PassedBeforeRead {
                    passed.store(number, Release);
                }
                assert_eq!(word.load(Relaxed), number, "torn");
                passed.store(number, Release);
            }
        };
        together([Box::new(publish), Box::new(read)]);
    }
}

#[test]
fn every_flaw_of_a_collective_buffer_is_caught() {
    explore(None, flawed(Flaw::None));
    for flaw in [Flaw::HeaderRelaxed, Flaw::HeaderReadRelaxed, Flaw::PassedBeforeRead, Flaw::PublishedEarly] {
        caught("torn", flawed(flaw));
    }
}

/// The owner of a slice of one word gives it up and uses it again, while another rank reads it.
fn given_up(give_up: fn(&CollectiveBuffer<'_>)) -> impl Fn() + Send + Sync + 'static {
    move || {
        let words: Vec<_> = (0..HEAD_WORDS + SLOT_WORDS).map(|_| AtomicU64::new(0)).collect();
        let shared = Arc::new((words, AtomicU64::new(1)));
        let theirs = Arc::clone(&shared);
        let own = move || {
            let buffer = CollectiveBuffer::of(&theirs.0).unwrap();
            buffer.reach(1, 1);
            give_up(&buffer);
            theirs.1.store(2, Relaxed);
        };
        let read = move || {
            let buffer = CollectiveBuffer::of(&shared.0).unwrap();
            let read = shared.1.load(Relaxed);
            assert!(read == 1 || !buffer.has_reached(1, 0), "torn");
        };
        together([Box::new(own), Box::new(read)]);
    }
}

#[test]
fn what_is_read_of_a_slice_that_was_given_up_does_not_count() {
    explore(None, given_up(|buffer| buffer.withdraw(1)));
    caught("torn", given_up(|_| ()));
    caught("torn", given_up(|buffer| buffer.reach(1, 3))); // without the fence
}
