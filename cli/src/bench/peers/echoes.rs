//! Loops in which all ranks take part, or rank 0 and the last one, which answers. Rank 0 is timed.

use std::time::Instant;

use onesided_fabric::{Any, World};
use onesided_windows::Window;

use crate::bench::collectives::{self, Group};
use crate::bench::messages::{End, Loop, buffers, ping_pong, stream, unexpected, written};
use crate::bench::worker::rank::TRANSFER_AREA;
use crate::failure::Failure;

/// The displacement of the signals, in elements: the last element, which no other loop writes.
const SIGNAL: usize = TRANSFER_AREA / 8 - 1;

/// The nanoseconds of `times` rounds at rank 0, after some uncounted ones; 0 at the other rank.
fn timed(world: &World<Any>, times: u64, mut rounds: impl FnMut(u64) -> Result<(), Failure>) -> Result<f64, Failure> {
    world.barrier().wait()?;
    rounds(times / 8 + 1)?;
    let start = Instant::now();
    rounds(times)?;
    let taken = start.elapsed().as_nanos() as f64;
    world.barrier().wait()?;
    Ok(if world.rank() == 0 { taken } else { 0.0 })
}

/// Round trips of signals.
pub(super) fn signals(window: &Window<u64>, last: u32, times: u64) -> Result<f64, Failure> {
    let world = window.world();
    let other = if world.rank() == 0 { last } else { 0 };
    let all = window.no_check();
    let at = all.at(other)?;
    // Continues the numbers of earlier calls, which are equal at both ranks.
    let mut number = window.local().read(SIGNAL..SIGNAL + 1)[0];
    let wait = |number| window.local().wait_until_from(other, SIGNAL, move |signalled| signalled >= number).wait();
    timed(world, times, |n| {
        for _ in 0..n {
            number += 1;
            if world.rank() == 0 {
                at.signal(SIGNAL, number)?;
                wait(number)?;
            } else {
                wait(number)?;
                at.signal(SIGNAL, number)?;
            }
        }
        Ok(())
    })
}

/// Iterations of a loop of messages.
pub(super) fn messages(end: &End<'_>, one: &Loop, size: u64, times: u64) -> Result<f64, Failure> {
    timed(end.world(), times, |n| (one.run)(end, size as usize, n))
}

/// Calls of a collective.
pub(super) fn collectives(group: &Group<'_>, one: &collectives::Loop, size: u64, times: u64) -> Result<f64, Failure> {
    timed(group.world(), times, |n| (one.run)(group, size as usize, n))
}

/// The loop of a probe.
pub(super) fn loop_of(probe: &str) -> Option<&'static Loop> {
    Some(match probe {
        "ping_pong" => &ping_pong::LOOP,
        "ping_pong_read" => &buffers::LOOP,
        "ping_pong_written" => &written::BUFFERS,
        "stream" => &stream::LOOP,
        "stream_written" => &written::STREAM,
        "unexpected" => &unexpected::LOOP,
        "bare_store_ping_pong" => &ping_pong::BY_STORES,
        "bare_ping_pong" => &ping_pong::BY_MEMCPY,
        "bare_stream" => &stream::LIMIT,
        _ => return None,
    })
}
