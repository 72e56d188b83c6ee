//! `bench transport`: a fabric's packets between rank 0, which is timed, and the last rank.

use std::cell::RefCell;
use std::future::poll_fn;
use std::hint::black_box;

use onesided_fabric::remote_memory::{Patience, Rank};
use onesided_fabric::{Any, Error, Fabric, Packet, Transport, block_on};

use crate::bench::baselines::ends::BareEnd;
use crate::bench::effort::Effort;
use crate::bench::results::quantity::Quantity;
use crate::bench::runner::suite::{Program, Suite};
use crate::bench::worker::probes::{self, Probe};
use crate::bench::worker::rank::BenchRank;
use crate::failure::Failure;

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
    packets: RefCell<<Any as Fabric>::Transport>,
    is_first: bool,
    other: Rank,
    bare: BareEnd<'r>,
    out: Vec<u8>,
    into: RefCell<Vec<u8>>,
}

fn run(rank: &BenchRank, effort: Effort) -> Result<(), Failure> {
    let is_first = rank.world.rank() == 0;
    if !is_first && !rank.is_target() {
        return Ok(()); // it waits for the end of the suite
    }
    let packets = rank.world.fabric().transport().map_err(Error::operation("get the packets"))?;
    let longest = SIZES[SIZES.len() - 1];
    let end = End {
        rank,
        packets: RefCell::new(packets),
        is_first,
        other: Rank(if is_first { rank.peer() } else { 0 }),
        bare: BareEnd::new(rank, (0, 1), is_first),
        out: vec![1; longest],
        into: RefCell::new(vec![0; WINDOW * longest]),
    };
    if !is_first {
        return end.answer();
    }
    let packet_max = end.packets.borrow().packet_max(end.packets.borrow().channels(end.other)[0]);
    let fits = |size: &usize| *size <= packet_max;
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
        let mut packets = self.packets.borrow_mut();
        let channel = packets.channels(self.other)[0];
        let sent = poll_fn(|cx| packets.poll_send(cx, self.other, Packet::new(channel, black_box(bytes))));
        Ok(block_on(self.rank.world.fabric(), sent).map_err(Error::operation("send a packet"))?)
    }

    #[inline]
    fn receive(&self, into: &mut [u8]) -> Result<(), Failure> {
        let mut packets = self.packets.borrow_mut();
        let arrived = poll_fn(|cx| packets.poll_recv(cx, Patience::on(self.other)));
        block_on(self.rank.world.fabric(), arrived).map_err(Error::operation("receive a packet"))?;
        packets.read(0, black_box(into));
        Ok(())
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
