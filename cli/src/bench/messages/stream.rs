//! Windows of messages one way: the receives are posted, the messages sent, and an empty one comes
//! back (osu_bw; between pairs osu_mbw_mr).

use super::{Card, End, Loop, window};
use crate::bench::results::quantity::Quantity;
use crate::bench::worker::rank::LARGEST;
use crate::failure::Failure;

pub(crate) static LOOP: Loop = Loop {
    name: "stream",
    limit: |_| Some(&LIMIT),
    limit_by_card: Card::of_stream,
    quantities: &[Quantity::MessageRate, Quantity::Bandwidth],
    messages: window,
    smallest: 0,
    largest: LARGEST,
    run,
};

pub(crate) static LIMIT: Loop = Loop { name: "stream by memcpy", limit: |_| None, run: bare, ..LOOP };

fn run(end: &End<'_>, size: usize, n: u64) -> Result<(), Failure> {
    let mut into = end.into.borrow_mut();
    (0..n).try_for_each(|_| {
        match end.is_first {
            true => end.all(end.send_all(size))?,
            false => end.all(end.receive_all(size, &mut into))?,
        }
        end.answer_window()
    })
}

fn bare(end: &End<'_>, size: usize, n: u64) -> Result<(), Failure> {
    end.with_bytes(size, |bytes| end.bare.stream(bytes, window(size), n));
    Ok(())
}
