//! `bench messages`: ping-pongs and streams of messages between rank 0, which is timed, and the
//! last rank, which answers.
#![allow(unsafe_code)] // the bare memory, for memcpy

use std::cell::RefCell;
use std::hint::black_box;
use std::sync::atomic::Ordering;

use onesided_two_sided::{Messages, Tag};

use crate::bench::baselines::bare;
use crate::bench::effort::Effort;
use crate::bench::results::quantity::Quantity;
use crate::bench::runner::suite::{Program, Suite};
use crate::bench::worker::probes::{self, Probe};
use crate::bench::worker::rank::{BenchRank, LARGEST};
use crate::failure::Failure;

/// Messages of a stream before its receiver answers.
const STREAM: usize = 64;
/// The most bytes of a stream.
const STREAM_BYTES: usize = 16 << 20;

const CONTROL: Tag = Tag(0);
const DATA: Tag = Tag(1);

// Bare words of the ping-pong.
const PING: u64 = 14;
const PONG: u64 = 15;

pub(crate) static SUITE: Suite = Suite {
    steps: |effort| (sizes(effort).count() * effort.runs()) as u64,
    ..Suite::new("two-sided", Program::Plain(run))
};

/// Powers of two (`--quick`: of eight) from 8 B to 4 MiB.
fn sizes(effort: Effort) -> impl Iterator<Item = usize> {
    let factor = match effort {
        Effort::Full => 2,
        Effort::Quick => 8,
    };
    std::iter::successors(Some(8), move |size| Some(size * factor)).take_while(|size| *size <= LARGEST)
}

/// What the last rank is asked to do.
#[derive(Clone, Copy)]
enum Loop {
    PingPong,
    Stream,
    /// The limit of a ping-pong.
    Bare,
    End,
}

impl Loop {
    const ALL: [Self; 4] = [Self::PingPong, Self::Stream, Self::Bare, Self::End];
}

/// The two ends of the loops, which run the same code.
struct Pair<'r> {
    rank: &'r BenchRank,
    messages: Messages,
    other: u32,
    out: Vec<u8>,
    into: RefCell<Vec<u8>>,
}

fn run(rank: &BenchRank, effort: Effort) -> Result<(), Failure> {
    let messages = Messages::new(&rank.world)?;
    let other = if rank.world.rank() == 0 { rank.peer() } else { 0 };
    let pair = Pair { rank, messages, other, out: vec![1; LARGEST], into: RefCell::new(vec![0; LARGEST]) };
    if rank.world.rank() == 0 {
        for size in sizes(effort) {
            probes::run(rank, effort, pair.probes(size))?;
        }
        pair.ask(Loop::End, 0, 0)?;
    } else if rank.is_target() {
        pair.answer()?;
    }
    Ok(()) // other ranks wait for the end of the suite
}

impl Pair<'_> {
    fn probes(&self, size: usize) -> Vec<Probe<'_>> {
        let many = STREAM.min(STREAM_BYTES / size);
        let limit = if size <= 8 { "ping-pong by stores" } else { "ping-pong by memcpy, twice each way" };
        let asked = move |what, run: fn(&Self, usize, u64) -> Result<(), Failure>| {
            move |n| {
                self.ask(what, size, n)?;
                run(self, size, n)
            }
        };
        let mut probes = vec![
            Probe::ours("half a round trip", limit, asked(Loop::PingPong, Self::ping_pong))
                .measures(&[Quantity::Latency, Quantity::Bandwidth])
                .each_time(2),
            Probe::ours("stream of 64", "", asked(Loop::Stream, Self::send_stream))
                .measures(&[Quantity::MessageRate, Quantity::Bandwidth])
                .each_time(many),
        ];
        if self.rank.has_limits() {
            let bare = asked(Loop::Bare, Self::bare);
            probes.push(
                Probe::limit_of_two(limit, bare).measures(&[Quantity::Latency, Quantity::Bandwidth]).each_time(2),
            );
        }
        probes.into_iter().map(|probe| probe.of_size(size)).collect()
    }

    fn ask(&self, what: Loop, size: usize, n: u64) -> Result<(), Failure> {
        for word in [PING, PONG] {
            self.rank.word(word).store(0, Ordering::Relaxed);
        }
        Ok(self.messages.send(&[what as u64, size as u64, n], self.other, CONTROL).wait()?)
    }

    /// Does what rank 0 asks for.
    fn answer(&self) -> Result<(), Failure> {
        loop {
            let mut asked = [0; 3];
            self.messages.recv_into(&mut asked, self.other, CONTROL).wait()?;
            let [what, size, n] = asked;
            match Loop::ALL[what as usize] {
                Loop::PingPong => self.ping_pong(size as usize, n)?,
                Loop::Stream => self.receive_stream(size as usize, n)?,
                Loop::Bare => self.bare(size as usize, n)?,
                Loop::End => return Ok(()),
            }
        }
    }

    fn send(&self, size: usize) -> Result<(), Failure> {
        Ok(self.messages.send(black_box(&self.out[..size]), self.other, DATA).wait()?)
    }

    fn receive(&self, size: usize) -> Result<(), Failure> {
        self.messages.recv_into(black_box(&mut self.into.borrow_mut()[..size]), self.other, DATA).wait()?;
        Ok(())
    }

    fn ping_pong(&self, size: usize, n: u64) -> Result<(), Failure> {
        (0..n).try_for_each(|_| match self.rank.world.rank() {
            0 => self.send(size).and_then(|()| self.receive(size)),
            _ => self.receive(size).and_then(|()| self.send(size)),
        })
    }

    fn send_stream(&self, size: usize, n: u64) -> Result<(), Failure> {
        let many = STREAM.min(STREAM_BYTES / size);
        let out = &self.out[..size];
        for _ in 0..n {
            let sends: Vec<_> = (0..many).map(|_| self.messages.send(black_box(out), self.other, DATA)).collect();
            sends.into_iter().try_for_each(|send| send.wait())?;
            self.receive(0)?;
        }
        Ok(())
    }

    fn receive_stream(&self, size: usize, n: u64) -> Result<(), Failure> {
        let many = STREAM.min(STREAM_BYTES / size);
        for _ in 0..n {
            (0..many).try_for_each(|_| self.receive(size))?;
            self.send(0)?;
        }
        Ok(())
    }

    /// Through shared memory: a copy in, a store, a copy out; 8 bytes are the store.
    fn bare(&self, size: usize, n: u64) -> Result<(), Failure> {
        let first = self.rank.world.rank() == 0;
        let (to, from) = if first { (PING, PONG) } else { (PONG, PING) };
        let (to, from) = (self.rank.word(to), self.rank.word(from));
        let area = self.rank.transfer_area();
        let size = if size <= 8 { 0 } else { size };
        let (ping, pong) = (area, area.wrapping_add(LARGEST));
        let (out, into) = if first { (ping, pong) } else { (pong, ping) };
        let (own, got) = (&self.out[..size], &mut self.into.borrow_mut()[..size]);
        // SAFETY: the transfer area has 4 times LARGEST bytes, and `size` is at most LARGEST, so
        // both are in it and do not overlap. The other rank runs the same with the two exchanged,
        // and nobody else uses the area now.
        unsafe { bare::copied_ping_pong((to, from), (out, into), (own, got), n, first) };
        Ok(())
    }
}
