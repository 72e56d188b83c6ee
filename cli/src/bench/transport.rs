//! `bench transport`: a fabric's packets between rank 0, which is timed, and the last rank.

use std::cell::RefCell;
use std::hint::black_box;

use onesided_fabric::Transport;

use crate::bench::baselines::ends::BareEnd;
use crate::bench::messages::layers::{Layer, Packets};
use crate::bench::prelude::*;

/// In bytes. Messages begin with 16 bytes of their own, and the longest that fits a packet of shared
/// memory has 8 KiB, of cards 2 KiB.
const SIZES: [usize; 5] = [8, 64, 512, 16 + (2 << 10), 16 + (8 << 10)];
/// The packets of a stream before its receiver answers.
const WINDOW: usize = 64;

pub(crate) static SUITE: Suite =
    Suite { steps: |effort| (SIZES.len() * effort.runs()) as u64, ..Suite::new("transport", Program::Plain(run)) };

/// What the last rank is asked to do.
#[derive(Clone, Copy)]
enum Loop {
    PingPong,
    Stream,
    BarePingPong,
    BareStream,
    End,
}

impl Loop {
    const ALL: [Self; 5] = [Self::PingPong, Self::Stream, Self::BarePingPong, Self::BareStream, Self::End];
}

/// One of the two ranks, which run the same loops.
struct End<'r> {
    rank: &'r BenchRank,
    packets: RefCell<Packets<'r>>,
    is_first: bool,
    bare: BareEnd<'r>,
    out: Vec<u8>,
    into: RefCell<Vec<u8>>,
}

fn run(rank: &BenchRank, effort: Effort) -> Result<(), Failure> {
    let is_first = rank.world.rank() == 0;
    if !is_first && !rank.is_target() {
        return Ok(()); // it waits for the end of the suite
    }
    let longest = SIZES[SIZES.len() - 1];
    let end = End {
        rank,
        packets: RefCell::new(Packets::new(rank.world.fabric(), if is_first { rank.peer() } else { 0 })?),
        is_first,
        bare: BareEnd::new(rank, (0, 1), is_first),
        out: vec![1; longest],
        into: RefCell::new(vec![0; WINDOW * longest]),
    };
    if !is_first {
        return end.answer();
    }
    let fits = |size: &usize| {
        let packets = end.packets.borrow();
        *size <= packets.1.channels(packets.2)[0].packet_max
    };
    SIZES.into_iter().filter(fits).try_for_each(|size| probes::run(rank, effort, end.probes(size)))?;
    end.ask(Loop::End, 0, 0)
}

impl End<'_> {
    fn probes(&self, size: usize) -> Vec<Probe<'_>> {
        let latency: &[Quantity] = &[Quantity::Latency, Quantity::Bandwidth];
        let rate: &[Quantity] = &[Quantity::MessageRate, Quantity::Bandwidth];
        let ping_pong = if size <= 8 { "ping-pong by stores" } else { "ping-pong by memcpy" };
        let stream = "stream by memcpy";
        let asked = move |what| {
            move |n| {
                self.ask(what, size, n)?;
                self.run(what, size, n)
            }
        };
        let mut probes = vec![
            Probe::ours("packets, half a round trip", ping_pong, asked(Loop::PingPong)).measures(latency).each_time(2),
            Probe::ours("packets, stream", stream, asked(Loop::Stream)).measures(rate).each_time(WINDOW),
        ];
        if self.rank.has_limits() {
            let limit = |name, what| Probe::limit_of_two(name, asked(what));
            probes.push(limit(ping_pong, Loop::BarePingPong).measures(latency).each_time(2));
            probes.push(limit(stream, Loop::BareStream).measures(rate).each_time(WINDOW));
        }
        probes.into_iter().map(|probe| probe.of_size(size)).collect()
    }

    fn ask(&self, what: Loop, size: usize, n: u64) -> Result<(), Failure> {
        let asked = [what as u64, size as u64, n].map(u64::to_le_bytes);
        self.send(asked.as_flattened())
    }

    /// Does what rank 0 asks for.
    fn answer(&self) -> Result<(), Failure> {
        loop {
            let mut asked = [[0; 8]; 3];
            self.receive(asked.as_flattened_mut())?;
            let [what, size, n] = asked.map(u64::from_le_bytes);
            match Loop::ALL[what as usize] {
                Loop::End => return Ok(()),
                what => self.run(what, size as usize, n)?,
            }
        }
    }

    fn run(&self, what: Loop, size: usize, n: u64) -> Result<(), Failure> {
        let (out, into) = (&self.out[..size], &mut *self.into.borrow_mut());
        match what {
            Loop::PingPong => self.ping_pong(out, &mut into[..size], n)?,
            Loop::Stream => self.stream(out, &mut into[..size], n)?,
            Loop::BarePingPong => self.bare.ping_pong((out, &mut into[..size]), n),
            Loop::BareStream => self.bare.stream((out, into), WINDOW, n),
            Loop::End => {}
        }
        Ok(())
    }

    #[inline]
    fn send(&self, bytes: &[u8]) -> Result<(), Failure> {
        self.packets.borrow_mut().send(black_box(bytes))
    }

    #[inline]
    fn receive(&self, into: &mut [u8]) -> Result<(), Failure> {
        self.packets.borrow_mut().receive(black_box(into)).map(drop)
    }

    fn ping_pong(&self, out: &[u8], into: &mut [u8], n: u64) -> Result<(), Failure> {
        (0..n).try_for_each(|_| {
            if self.is_first {
                self.send(out)?;
                return self.receive(into);
            }
            self.receive(into)?;
            self.send(out)
        })
    }

    fn stream(&self, out: &[u8], into: &mut [u8], n: u64) -> Result<(), Failure> {
        (0..n).try_for_each(|_| {
            if self.is_first {
                (0..WINDOW).try_for_each(|_| self.send(out))?;
                return self.receive(&mut [0; 8]);
            }
            (0..WINDOW).try_for_each(|_| self.receive(into))?;
            self.send(&[0; 8])
        })
    }
}
