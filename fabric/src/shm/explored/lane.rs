//! Both ends of a lane, and packets to a sleeper.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::shm::explored::doorbell::{Flaw, Sleeper};
use crate::shm::explored::{LOST, caught, explore, holds, together};
use crate::shm::lane::{Cell, Lane, Reader, Writer};
use crate::util::sync::atomic::AtomicU64;
use crate::util::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::util::sync::thread;

/// The memory of a lane of loom's words.
struct Memory {
    taken: AtomicU64,
    cells: Vec<Cell>,
}

impl Memory {
    fn new(cells: usize) -> Arc<Self> {
        let cell = || std::array::from_fn(|_| AtomicU64::new(0));
        Arc::new(Self { taken: AtomicU64::new(0), cells: (0..cells).map(|_| cell()).collect() })
    }

    fn lane(&self) -> Lane<'_> {
        Lane { taken: &self.taken, cells: &self.cells }
    }
}

/// Packet `number`: two words with that number, or eight, which take a second cell and leave a third
/// one for the next header.
fn packet(number: u64, cells: usize) -> Vec<u8> {
    number.to_le_bytes().repeat(if cells > 1 && number % 2 == 0 { 8 } else { 2 })
}

fn push(writer: &mut Writer, lane: Lane<'_>, number: u64) -> bool {
    let packet = packet(number, lane.cells.len());
    let (head, body) = packet.split_at(8);
    writer.push(lane, head, body)
}

/// Takes packet `number` out, if a packet is there.
fn take(reader: &mut Reader, lane: Lane<'_>, number: u64) -> bool {
    let Some(len) = reader.peek(lane) else { return false };
    let mut bytes = vec![0; len];
    reader.read(lane, 0, &mut bytes);
    reader.take(lane.cells.len(), len, || lane);
    assert_eq!(bytes, packet(number, lane.cells.len()), "torn");
    true
}

/// Both ends of a lane, repeatedly.
fn through_a_lane(cells: usize, packets: u64, refused: Arc<AtomicBool>) -> impl Fn() + Send + Sync + 'static {
    move || {
        let memory = Memory::new(cells);
        let (theirs, refused) = (Arc::clone(&memory), Arc::clone(&refused));
        let write = move || {
            let mut writer = Writer::default();
            for number in 1..=packets {
                while !push(&mut writer, theirs.lane(), number) {
                    refused.store(true, Relaxed);
                    thread::yield_now();
                }
            }
        };
        let read = move || {
            let mut reader = Reader::default();
            for number in 1..=packets {
                while !take(&mut reader, memory.lane(), number) {
                    thread::yield_now();
                }
            }
            assert!(reader.peek(memory.lane()).is_none());
        };
        together([Box::new(write), Box::new(read)]);
    }
}

#[test]
fn packets_go_through_a_lane_whole_and_in_order() {
    for (cells, packets, preemptions, executions) in [(1, 3, None, 18_748), (3, 3, Some(4), 1_569)] {
        let refused = Arc::new(AtomicBool::new(false));
        holds(preemptions, executions, through_a_lane(cells, packets, Arc::clone(&refused)));
        assert!(refused.load(Relaxed), "the lane was never full");
    }
}

/// A flaw of a lane of one cell of one word.
#[derive(Clone, Copy, PartialEq)]
enum LaneFlaw {
    None,
    HeaderRelaxed,
    HeaderReadRelaxed,
    TakenBeforeRead,
    FullIsNotSeen,
}

/// A short, flawed lane: two packets through one cell.
fn through_a_flawed_lane(flaw: LaneFlaw) -> impl Fn() + Send + Sync + 'static {
    let unless = move |relaxed, order| if flaw == relaxed { Relaxed } else { order };
    move || {
        let words = Arc::new([AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)]);
        let theirs = Arc::clone(&words);
        let write = move || {
            let [taken, header, word] = &*theirs;
            for number in 1..=2 {
                while flaw != LaneFlaw::FullIsNotSeen && taken.load(Acquire) != number - 1 {
                    thread::yield_now();
                }
                word.store(number, Relaxed);
                header.store(number, unless(LaneFlaw::HeaderRelaxed, Release));
            }
        };
        let read = move || {
            let [taken, header, word] = &*words;
            for number in 1..=2 {
                while header.load(unless(LaneFlaw::HeaderReadRelaxed, Acquire)) < number {
                    thread::yield_now();
                }
                if flaw == LaneFlaw::TakenBeforeRead {
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
fn every_flaw_of_the_lane_is_caught() {
    use LaneFlaw::{FullIsNotSeen, HeaderReadRelaxed, HeaderRelaxed, TakenBeforeRead};
    explore(None, through_a_flawed_lane(LaneFlaw::None));
    for flaw in [HeaderRelaxed, HeaderReadRelaxed, TakenBeforeRead, FullIsNotSeen] {
        caught("torn", through_a_flawed_lane(flaw));
    }
}

/// Packets to a sleeping receiver.
fn packets_to_a_sleeper(flaw: Flaw, cells: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let (memory, rank) = (Memory::new(cells), Sleeper::new(flaw));
        let (to, bell) = (Arc::clone(&memory), Arc::clone(&rank));
        let send = move || {
            let mut writer = Writer::default();
            for number in [1, 3] {
                while !push(&mut writer, to.lane(), number) {
                    thread::yield_now();
                }
                bell.ring();
            }
        };
        let receive = move || {
            let reader = RefCell::new(Reader::default());
            for number in [1, 3] {
                rank.wait(|| reader.borrow_mut().peek(memory.lane()).is_some());
                assert!(take(&mut reader.borrow_mut(), memory.lane(), number));
            }
        };
        together([Box::new(send), Box::new(receive)]);
    }
}

#[test]
fn packets_wake_their_receiver() {
    holds(Some(4), 7_721, packets_to_a_sleeper(Flaw::None, 2));
    holds(Some(4), 11_312, packets_to_a_sleeper(Flaw::None, 1));
    for flaw in [Flaw::RingWithoutFence, Flaw::ArmWithoutFence, Flaw::PollBeforeArm] {
        caught(LOST, packets_to_a_sleeper(flaw, 2));
    }
}
