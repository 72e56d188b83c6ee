//! Messages of buffers, some of which were registered before. The others are registered for
//! the message, at both ends.

use std::time::Instant;

use super::{DATA, End};
use crate::bench::prelude::*;

/// The parts of the buffers that were registered before.
pub(super) const PERCENT: [usize; 5] = [0, 25, 50, 75, 100];

const SIZE: usize = 1 << 20;
const MESSAGES: usize = 16;
/// As much as a rank keeps registered.
const KEPT: usize = 64 << 20;

/// Both ends do so; rank 0 reports.
pub(super) fn measure(end: &End<'_>, effort: Effort) -> Result<(), Failure> {
    let mut samples = Samples::default();
    for _ in 0..effort.runs() {
        for percent in PERCENT {
            let bandwidth = exchange(end, percent)?;
            let name = format!("buffers, {percent} % reused");
            let point = |quantity| Point::of(&*name, quantity).of_size(SIZE);
            samples.add(&point(Quantity::MessageRate), bandwidth * 1e9 / SIZE as f64);
            samples.add(&point(Quantity::Bandwidth), bandwidth);
            end.rank.step()?;
        }
    }
    end.rank.report_all(samples)
}

/// [`MESSAGES`] to the other end, and an answer. Returns the bytes of a nanosecond.
fn exchange(end: &End<'_>, percent: usize) -> Result<f64, Failure> {
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
    for i in 0..MESSAGES {
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
    Ok((MESSAGES * SIZE) as f64 / start.elapsed().as_nanos() as f64)
}
