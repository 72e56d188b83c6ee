//! Half a round trip of a column: elements of 8 bytes, each in a cache line of its own.

use std::hint::black_box;

use onesided_two_sided::Shape;

use super::{DATA, End, Loop, ping_pong};
use crate::bench::worker::rank;
use crate::failure::Failure;

const ELEMENT: usize = 8;
const STRIDE: usize = 64;

pub(super) static LOOP: Loop = Loop {
    name: "half a round trip of columns",
    limit: |_| Some(&LIMIT),
    limit_by_card: |_, _| None,
    largest: rank::LARGEST / (STRIDE / ELEMENT),
    run,
    ..ping_pong::LOOP
};

pub(super) static LIMIT: Loop = Loop { name: "columns by moves and memcpy", limit: |_| None, run: bare, ..LOOP };

fn run(end: &End<'_>, size: usize, n: u64) -> Result<(), Failure> {
    let column = Shape::Vector { count: size / ELEMENT, block: ELEMENT, stride: STRIDE };
    let mut into = end.into.borrow_mut();
    let send = || Ok(end.messages.send_shaped(black_box(&end.out[..]), column, end.other, DATA).wait()?);
    (0..n).try_for_each(|_| {
        if end.is_first {
            send()?;
        }
        end.messages.recv_shaped(black_box(&mut into[..]), column, end.other, DATA).wait()?;
        if end.is_first { Ok(()) } else { send() }
    })
}

fn bare(end: &End<'_>, size: usize, n: u64) -> Result<(), Failure> {
    let [mut own, mut got] = [(); 2].map(|()| vec![1; size]);
    let mut into = end.into.borrow_mut();
    end.bare.ping_pong_packed(
        (&mut own, &mut got),
        n,
        |own| moves(black_box(&end.out), STRIDE, own, ELEMENT),
        |got| moves(got, ELEMENT, black_box(&mut into), STRIDE),
    );
    Ok(())
}

fn moves(from: &[u8], from_stride: usize, into: &mut [u8], into_stride: usize) {
    for (from, into) in from.chunks(from_stride).zip(into.chunks_mut(into_stride)) {
        into[..ELEMENT].copy_from_slice(&from[..ELEMENT]);
    }
}
