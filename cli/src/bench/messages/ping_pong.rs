//! Half a round trip: a message there and one back, over two (osu_latency).

use super::{Card, DATA, End, Loop};
use crate::bench::results::quantity::Quantity;
use crate::bench::worker::rank::LARGEST;
use crate::failure::Failure;

pub(crate) static LOOP: Loop = Loop {
    name: "half a round trip",
    limit: |size| Some(if size <= 8 { &BY_STORES } else { &BY_MEMCPY }),
    limit_by_card: Card::half_a_round_trip,
    quantities: &[Quantity::Latency, Quantity::Bandwidth],
    messages: |_| 2,
    smallest: 0,
    largest: LARGEST,
    run,
};

/// A message of 8 bytes is the store that announces it.
pub(crate) static BY_STORES: Loop = Loop { name: "ping-pong by stores", limit: |_| None, run: bare, ..LOOP };

pub(crate) static BY_MEMCPY: Loop = Loop { name: "ping-pong by memcpy", limit: |_| None, run: bare, ..LOOP };

fn run(end: &End<'_>, size: usize, n: u64) -> Result<(), Failure> {
    let (out, into) = (&end.out[..size], &mut end.into.borrow_mut()[..size]);
    (0..n).try_for_each(|_| {
        if end.is_first {
            end.send(end.other, DATA, out).wait()?;
            return end.receive(end.other, DATA, into);
        }
        end.receive(end.other, DATA, into)?;
        Ok(end.send(end.other, DATA, out).wait()?)
    })
}

fn bare(end: &End<'_>, size: usize, n: u64) -> Result<(), Failure> {
    end.with_bytes(size, |(out, into)| end.bare.ping_pong((out, &mut into[..size]), n));
    Ok(())
}
