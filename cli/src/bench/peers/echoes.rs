//! Loops that take two ranks: rank 0, which is timed, and the last one, which answers.

use std::time::Instant;

use onesided_fabric::remote_memory::{Fault, Mailbox, Notify, Patience, Port, Rank};
use onesided_fabric::{Any, World, block_on};
use onesided_windows::Window;

use crate::bench::rank::ROOM;
use crate::failure::Failure;

/// Where the signals lie in each part, in elements: where no other loop writes.
const SIGNAL: usize = ROOM / 8 - 1;
const PORT: Port = Port(Port::USER.0 + 1);

/// How many of rank 0's nanoseconds so many rounds took, after some that are not counted.
fn timed(world: &World<Any>, times: u64, mut round: impl FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    world.barrier().wait()?;
    (0..times / 8 + 1).try_for_each(|_| round())?;
    let start = Instant::now();
    (0..times).try_for_each(|_| round())?;
    let taken = start.elapsed().as_nanos() as f64;
    world.barrier().wait()?;
    Ok(if world.rank() == 0 { taken } else { 0.0 })
}

/// A signal there, and one back.
pub(super) fn signals(window: &Window<u64>, last: u32, times: u64) -> Result<f64, Failure> {
    let world = window.world();
    let other = if world.rank() == 0 { last } else { 0 };
    let all = window.no_check();
    let at = all.at(other)?;
    // As many as came in earlier calls: both have the same number.
    let mut number = window.local().read(SIGNAL..SIGNAL + 1)[0];
    let wait = |number| window.local().wait_until(SIGNAL, move |came| came >= number).from_rank(other).wait();
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

/// So many messages of 8 B there, and one back.
pub(super) fn messages(world: &World<Any>, last: u32, many: u64, times: u64) -> Result<f64, Failure> {
    let fabric = world.fabric();
    let other = Rank(if world.rank() == 0 { last } else { 0 });
    let failed = |fault: Fault| Failure::from(fault.to_string());
    let send = || block_on(fabric, fabric.send(other, PORT, &[7; 8], Notify::Yes)).map_err(failed);
    let receive = || block_on(fabric, fabric.recv(PORT, Patience::on(other))).map(drop).map_err(failed);
    timed(world, times, || match world.rank() {
        0 => (0..many).try_for_each(|_| send()).and_then(|()| receive()),
        _ => (0..many).try_for_each(|_| receive()).and_then(|()| send()),
    })
}
