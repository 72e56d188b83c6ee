//! `bench transport`: a fabric's packets between rank 0, which is timed, and the last rank.

use crate::bench::messages::layers::{End, Loop, Packets, WINDOW};
use crate::bench::prelude::*;

/// In bytes. Messages begin with 16 bytes of their own, and the longest that fits a packet of shared
/// memory has 8 KiB, of cards 2 KiB.
const SIZES: [usize; 5] = [8, 64, 512, 16 + (2 << 10), 16 + (8 << 10)];

pub(crate) static SUITE: Suite =
    Suite { steps: |effort| (SIZES.len() * effort.runs()) as u64, ..Suite::new("transport", Program::Plain(run)) };

fn run(rank: &BenchRank, effort: Effort) -> Result<(), Failure> {
    if rank.world.rank() != 0 && !rank.is_target() {
        return Ok(()); // it waits for the end of the suite
    }
    let packets = Packets::new(rank.world.fabric(), rank.peer() - rank.world.rank())?;
    let longest = packets.longest();
    let end = End::new(rank, packets, SIZES[SIZES.len() - 1]);
    if !end.is_first {
        return end.answer();
    }
    let mut sizes = SIZES.into_iter().filter(|size| *size <= longest);
    sizes.try_for_each(|size| probes::run(rank, effort, probes(&end, rank, size)))?;
    end.ask(Loop::End, 0, 0)
}

fn probes<'e>(end: &'e End<'_, Packets<'_>>, rank: &BenchRank, size: usize) -> Vec<Probe<'e>> {
    let latency: &[Quantity] = &[Quantity::Latency, Quantity::Bandwidth];
    let rate: &[Quantity] = &[Quantity::MessageRate, Quantity::Bandwidth];
    let ping_pong = if size <= 8 { "ping-pong by stores" } else { "ping-pong by memcpy" };
    let stream = "stream by memcpy";
    let asked = |what| end.asked(what, size);
    let of_packets = |name, limit, what| Probe::ours(name, limit, asked(what));
    let mut probes = vec![
        of_packets("packets, half a round trip", ping_pong, Loop::PingPong).measures(latency).each_time(2),
        of_packets("packets, stream", stream, Loop::Stream).measures(rate).each_time(WINDOW),
    ];
    if rank.has_limits() {
        let limit = |name, what| Probe::limit_of_two(name, asked(what));
        probes.push(limit(ping_pong, Loop::BarePingPong).measures(latency).each_time(2));
        probes.push(limit(stream, Loop::BareStream).measures(rate).each_time(WINDOW));
    }
    probes.into_iter().map(|probe| probe.of_size(size)).collect()
}
