//! Messages of buffers, some of which were registered before. The others are registered for
//! the message, at both ends.

use std::time::Instant;

use super::{DATA, End, Loop, ping_pong};
use crate::bench::prelude::*;

/// The parts of the buffers that were registered before.
pub(super) const PERCENT: [usize; 5] = [0, 25, 50, 75, 100];

const SIZE: usize = 1 << 20;
const MESSAGES: u64 = 16;
/// As much as a rank keeps registered.
const KEPT: usize = 64 << 20;

/// Its size is the part in percent.
pub(super) static LOOP: Loop =
    Loop { name: "buffers", run: |end, percent, n| exchange(end, percent, n).map(drop), ..ping_pong::BY_STORES };

/// Measures it at rank 0.
pub(super) fn measure(end: &End<'_>, effort: Effort) -> Result<(), Failure> {
    let mut samples = Samples::default();
    for _ in 0..effort.runs() {
        for percent in PERCENT {
            end.ask(super::number_of(&LOOP), percent, MESSAGES)?;
            let bandwidth = exchange(end, percent, MESSAGES)?;
            let name = format!("{}, {percent} % reused", LOOP.name);
            let point = |quantity| Point::of(&*name, quantity).of_size(SIZE);
            samples.add(&point(Quantity::MessageRate), bandwidth * 1e9 / SIZE as f64);
            samples.add(&point(Quantity::Bandwidth), bandwidth);
            end.rank.step()?;
        }
    }
    end.rank.report_all(samples)
}

/// So many messages to the other end, and an answer. Returns the bytes of a nanosecond.
fn exchange(end: &End<'_>, percent: usize, n: u64) -> Result<f64, Failure> {
    // Nothing shorter is kept any more.
    drop(end.messages.buffer::<u8>(KEPT)?);
    let mut registered = Some(end.messages.buffer::<u8>(SIZE)?);
    let mut used = Vec::new();
    let move_one = |buffer| -> Result<_, Failure> {
        Ok(match end.is_first {
            true => end.messages.send_buffer(buffer, end.other, DATA).wait()?,
            false => end.messages.recv_buffer(buffer, end.other, DATA).wait()?.0,
        })
    };
    registered = registered.map(move_one).transpose()?;
    end.answer_window()?;
    let start = Instant::now();
    for i in 0..n as usize {
        // Evenly spread.
        let is_registered = (i + 1) * percent / 100 > i * percent / 100;
        let buffer = if is_registered { registered.take() } else { None };
        let buffer = move_one(buffer.map_or_else(|| end.messages.buffer(SIZE), Ok)?)?;
        match is_registered {
            true => registered = Some(buffer),
            false => used.push(buffer),
        }
    }
    end.answer_window()?;
    Ok((n as usize * SIZE) as f64 / start.elapsed().as_nanos() as f64)
}
