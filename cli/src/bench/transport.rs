//! `bench transport`: a fabric's packets between rank 0, which is timed, and the last rank.

use crate::bench::messages::layers::{End, Packets, WINDOW};
use crate::bench::prelude::*;

/// In bytes. Messages begin with 16 bytes of their own, and the longest that fits a packet of shared
/// memory has 8 KiB, of cards 2 KiB.
const SIZES: [usize; 5] = [8, 64, 512, 16 + (2 << 10), 16 + (8 << 10)];

pub(crate) static SUITE: Suite =
    Suite { steps: |effort| (SIZES.len() * effort.runs()) as u64, ..Suite::new("transport", Program::Plain(run)) };

fn run(rank: &BenchRank, effort: Effort) -> Result<(), Failure> {
    let Some(ends) = rank.ends(1)? else { return Ok(()) }; // this rank waits for the end of the suite
    let packets = Packets::new(rank.world.fabric(), rank.peer() - rank.world.rank())?;
    let longest = packets.longest();
    let end = End::new(rank, packets, SIZES[SIZES.len() - 1]);
    let mut sizes = SIZES.into_iter().filter(|size| *size <= longest);
    sizes.try_for_each(|size| probes::run_together((rank, &ends), effort, probes(&end, rank, size)).map(drop))
}

fn probes<'e>(end: &'e End<'_, Packets<'_>>, rank: &BenchRank, size: usize) -> Vec<Probe<'e>> {
    let latency: &[Quantity] = &[Quantity::Latency, Quantity::Bandwidth];
    let rate: &[Quantity] = &[Quantity::MessageRate, Quantity::Bandwidth];
    let ping_pong = if size <= 8 { "ping-pong by stores" } else { "ping-pong by memcpy" };
    let stream = "stream by memcpy";
    let mut round_trips = vec![Probe::ours("packets, half a round trip", ping_pong, move |n| end.ping_pong(size, n))];
    let mut streams = vec![Probe::ours("packets, stream", stream, move |n| end.stream(size, n))];
    if rank.has_limits() {
        round_trips.push(Probe::limit_of_two(ping_pong, move |n| end.bare_ping_pong(size, n)));
        streams.push(Probe::limit_of_two(stream, move |n| end.bare_stream(size, n)));
    }
    let round_trips = round_trips.into_iter().map(|probe| probe.measures(latency).each_time(2));
    let streams = streams.into_iter().map(|probe| probe.measures(rate).each_time(WINDOW));
    round_trips.chain(streams).map(|probe| probe.of_size(size)).collect()
}
