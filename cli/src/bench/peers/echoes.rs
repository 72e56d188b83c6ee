//! Loops between two ranks: rank 0, which is timed, and the last rank, which answers.

use std::time::Instant;

use onesided_fabric::{Any, World};
use onesided_two_sided::{Messages, Tag};
use onesided_windows::Window;

use crate::bench::worker::rank::TRANSFER_AREA;
use crate::failure::Failure;

/// The displacement of the signals, in elements: the last element, which no other loop writes.
const SIGNAL: usize = TRANSFER_AREA / 8 - 1;

/// The nanoseconds of `times` rounds at rank 0, after some uncounted ones; 0 at the other rank.
fn timed(world: &World<Any>, times: u64, mut round: impl FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    world.barrier().wait()?;
    (0..times / 8 + 1).try_for_each(|_| round())?;
    let start = Instant::now();
    (0..times).try_for_each(|_| round())?;
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
    timed(world, times, || {
        number += 1;
        if world.rank() == 0 {
            at.signal(SIGNAL, number)?;
            wait(number)?;
        } else {
            wait(number)?;
            at.signal(SIGNAL, number)?;
        }
        Ok(())
    })
}

/// Rounds of `many` messages of 8 B to the last rank, and one back.
pub(super) fn messages(world: &World<Any>, last: u32, many: u64, times: u64) -> Result<f64, Failure> {
    let messages = Messages::new(world)?;
    let other = if world.rank() == 0 { last } else { 0 };
    let send = || messages.send(&[7_u64], other, Tag(0)).wait();
    let mut into = [0_u64];
    let mut receive = || messages.recv_into(&mut into, other, Tag(0)).wait().map(drop);
    timed(world, times, || match world.rank() {
        0 => Ok((0..many).try_for_each(|_| send()).and_then(|()| receive())?),
        _ => Ok((0..many).try_for_each(|_| receive()).and_then(|()| send())?),
    })
}
