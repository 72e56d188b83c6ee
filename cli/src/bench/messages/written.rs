//! Messages that their sender writes, whole (RPUT: sur-2006, section 3) or in pieces (the pipeline of
//! woodall-2006), or sends in packets (its copy), beside those that are read.

use onesided_two_sided::Protocol;

use super::{Card, End, Loop, buffers, stream};
use crate::failure::Failure;

/// Shorter ones may be eager, and go as they always go.
const SMALLEST: usize = 16 << 10;

pub(crate) static BUFFERS: Loop = Loop {
    name: "half a round trip of written buffers",
    limit_by_card: Card::written,
    smallest: SMALLEST,
    run: |end, size, n| by(Protocol::Rput, end, || (buffers::LOOP.run)(end, size, n)),
    ..buffers::LOOP
};

pub(crate) static STREAM: Loop = Loop {
    name: "stream, written",
    smallest: SMALLEST,
    run: |end, size, n| by(Protocol::Rput, end, || (stream::LOOP.run)(end, size, n)),
    ..stream::LOOP
};

/// Shorter ones have one piece.
pub(super) static IN_PIECES: Loop = Loop {
    name: "stream, pipeline",
    smallest: 256 << 10,
    run: |end, size, n| by(Protocol::Pipeline, end, || (stream::LOOP.run)(end, size, n)),
    ..stream::LOOP
};

pub(super) static IN_PACKETS: Loop = Loop {
    name: "stream, copy",
    smallest: SMALLEST,
    run: |end, size, n| by(Protocol::Copy, end, || (stream::LOOP.run)(end, size, n)),
    ..stream::LOOP
};

fn by(rendezvous: Protocol, end: &End<'_>, run: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    end.messages.set_rendezvous(rendezvous);
    let outcome = run();
    end.messages.set_rendezvous(Protocol::Rget);
    outcome
}
