//! Messages that their sender writes, whole (RPUT: sur-2006, section 3) or in pieces (the pipeline of
//! woodall-2006), or sends in packets (its copy), beside those that are read.

use onesided_two_sided::Rendezvous;

use super::{Card, End, Loop, buffers, stream};
use crate::failure::Failure;

/// Shorter ones may be eager, and go as they always go.
const SMALLEST: usize = 16 << 10;

pub(crate) static BUFFERS: Loop = Loop {
    name: "half a round trip of written buffers",
    limit_by_card: Card::written,
    smallest: SMALLEST,
    run: |end, size, n| by(Rendezvous::Rput, end, || (buffers::LOOP.run)(end, size, n)),
    ..buffers::LOOP
};

pub(crate) static STREAM: Loop = Loop {
    name: "stream, written",
    smallest: SMALLEST,
    run: |end, size, n| by(Rendezvous::Rput, end, || (stream::LOOP.run)(end, size, n)),
    ..stream::LOOP
};

/// Shorter ones have one piece.
pub(super) static IN_PIECES: Loop = Loop {
    name: "stream, pipeline",
    smallest: 256 << 10,
    run: |end, size, n| by(Rendezvous::Pipeline, end, || (stream::LOOP.run)(end, size, n)),
    ..stream::LOOP
};

pub(super) static IN_PACKETS: Loop = Loop {
    name: "stream, copy",
    smallest: SMALLEST,
    run: |end, size, n| by(Rendezvous::Copy, end, || (stream::LOOP.run)(end, size, n)),
    ..stream::LOOP
};

fn by(rendezvous: Rendezvous, end: &End<'_>, run: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    end.messages.set_rendezvous(rendezvous);
    let outcome = run();
    end.messages.set_rendezvous(Rendezvous::Rget);
    outcome
}
