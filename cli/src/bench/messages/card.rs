//! Messages by bare calls of libibverbs: what messages over a card are compared with.

use onesided_fabric::bootstrap::environment::FABRIC;
use onesided_fabric::verbs::MESSAGES_CHANNEL;
use onesided_fabric::verbs::bare::BareCard;

use super::{End, Loop, ping_pong, stream, window};
use crate::bench::worker::rank::{BenchRank, LARGEST};
use crate::failure::Failure;

/// Longer messages are announced: over connections, and over datagrams.
const EAGER: [usize; 2] = [1 << 10, 2 << 10];

static SENDS: Loop = Loop {
    name: "ping-pong by sends",
    run: |end, size, n| on(end, |Card { bare, .. }| bare.sends(end.is_first, size, n)),
    ..ping_pong::BY_STORES
};

static DATAGRAMS: Loop = Loop {
    name: "ping-pong by datagrams",
    run: |end, size, n| on(end, |Card { bare, .. }| bare.datagrams(end.is_first, size, n)),
    ..SENDS
};

static READS: Loop = Loop {
    name: "ping-pong by reads",
    run: |end, size, n| on(end, |Card { bare, .. }| bare.reads(end.is_first, size, n)),
    ..SENDS
};

static WRITES: Loop = Loop {
    name: "ping-pong by writes",
    run: |end, size, n| on(end, |Card { bare, .. }| bare.writes(end.is_first, size, n)),
    ..SENDS
};

static STREAM: Loop = Loop {
    name: "stream by sends",
    run: |end, size, n| on(end, |Card { bare, .. }| bare.stream(end.is_first, size, window(size), n)),
    ..stream::LIMIT
};

/// An end of bare calls, beside that of messages.
pub(super) struct Card {
    bare: BareCard,
    by_datagrams: bool,
}

impl Card {
    /// Of two ranks over cards, which both call it. `exchange` gives the other one bytes, and returns its
    /// own.
    pub(super) fn new(
        rank: &BenchRank,
        mut exchange: impl FnMut(&[u8]) -> Result<Vec<u8>, Failure>,
    ) -> Result<Option<Self>, Failure> {
        let is = |variable, value| std::env::var(variable).is_ok_and(|is| is == value);
        if !is(FABRIC, "verbs") {
            return Ok(None);
        }
        let mut bare = BareCard::new(LARGEST, rank.cores < rank.world.size() as usize)?;
        bare.connect(&mut exchange)?;
        exchange(&[])?;
        Ok(Some(Self { bare, by_datagrams: is(MESSAGES_CHANNEL, "ud") }))
    }

    /// Short messages there and back over a connection, if that is what messages go over.
    pub(super) fn sends(&self) -> Option<impl Fn(bool, usize, u64) -> Result<(), Failure>> {
        let sends = |is_first, size, n| Ok(self.bare.sends(is_first, size, n)?);
        (!self.by_datagrams).then_some(sends)
    }

    /// The limit of half a round trip: by sends while messages are eager, then by reads.
    pub(super) fn half_a_round_trip(&self, size: usize) -> Option<&'static Loop> {
        Some(match size <= EAGER[usize::from(self.by_datagrams)] {
            true if self.by_datagrams => &DATAGRAMS,
            true => &SENDS,
            false => &READS,
        })
    }

    /// The limit of messages that their sender writes.
    pub(super) const fn written(&self, _: usize) -> Option<&'static Loop> {
        Some(&WRITES)
    }

    /// The limit of a stream of eager messages.
    pub(super) fn of_stream(&self, size: usize) -> Option<&'static Loop> {
        (size <= EAGER[0] && !self.by_datagrams).then_some(&STREAM)
    }
}

fn on<E: Into<Failure>>(end: &End<'_>, run: impl FnOnce(&Card) -> Result<(), E>) -> Result<(), Failure> {
    end.card.as_ref().map_or(Ok(()), |card| run(card).map_err(Into::into))
}
