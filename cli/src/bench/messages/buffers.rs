//! Half a round trip between registered buffers, which a card reads without a copy.

use std::hint::black_box;

use super::{DATA, End, Loop, ping_pong};
use crate::failure::Failure;

pub(crate) static LOOP: Loop =
    Loop { name: "half a round trip of buffers", limit: |_| Some(&ping_pong::BY_MEMCPY), run, ..ping_pong::LOOP };

fn run(end: &End<'_>, size: usize, n: u64) -> Result<(), Failure> {
    let new = || end.messages.buffer::<u8>(size);
    let (mut out, mut into) = (new()?, new()?);
    for _ in 0..n {
        if end.is_first {
            out = end.messages.send_buffer(black_box(out), end.other, DATA).wait()?;
        }
        (into, _) = end.messages.recv_buffer(black_box(into), end.other, DATA).wait()?;
        if !end.is_first {
            out = end.messages.send_buffer(black_box(out), end.other, DATA).wait()?;
        }
    }
    Ok(())
}
