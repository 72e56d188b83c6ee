//! Windows of messages both ways at the same time (osu_bibw). The receives are waited for first: a
//! message that comes before its receive is waited for is copied once more.

use super::{End, Loop, window};
use crate::bench::messages::stream;
use crate::failure::Failure;

pub(super) static LOOP: Loop = Loop {
    name: "streams both ways",
    limit: |_| Some(&LIMIT),
    limit_by_card: |_, _| None,
    messages: |size| 2 * window(size),
    run,
    ..stream::LOOP
};

pub(super) static LIMIT: Loop = Loop { name: "streams both ways by memcpy", limit: |_| None, run: bare, ..LOOP };

fn run(end: &End<'_>, size: usize, n: u64) -> Result<(), Failure> {
    let mut into = end.into.borrow_mut();
    (0..n).try_for_each(|_| {
        let receives = end.receive_all(size, &mut into);
        let sends = end.send_all(size);
        end.all(receives)?;
        end.all(sends)
    })
}

fn bare(end: &End<'_>, size: usize, n: u64) -> Result<(), Failure> {
    end.with_bytes(size, |bytes| end.bare.both_ways(bytes, window(size), n));
    Ok(())
}
