//! `bench messages`: messages between two ranks, and between several pairs of ranks.
//!
//! A file has one [`Loop`]. Rank 0 is timed. `bench peers` runs the same loops.

pub(super) mod both_ways;
pub(super) mod buffers;
#[cfg(feature = "verbs")]
mod card;
#[cfg(not(feature = "verbs"))]
#[path = "no_card.rs"]
mod card;
pub(super) mod channels;
mod columns;
pub(super) mod layers;
pub(super) mod ping_pong;
mod reuse;
pub(super) mod stream;
pub(super) mod unexpected;
pub(super) mod written;

use std::cell::RefCell;
use std::hint::black_box;
use std::process::ExitCode;
use std::ptr;

use onesided_fabric::{Any, WaitAll, World};
use onesided_two_sided::{Error, Messages, RecvInto, SendRequest, Tag};
use onesided_windows::LockDesign;

use self::card::Card;
use crate::bench::baselines::ends::{BareEnd, MOST_PAIRS};
use crate::bench::output::json::Sections;
use crate::bench::prelude::*;
use crate::bench::runner::{self, Job, Options};
use crate::bench::worker::rank::LARGEST;

/// Measures messages between two processes of this host, and between several pairs.
///
/// Rank 0 sends to the last rank, from a slice into slices. Sizes are powers of two from 8 B to 4
/// MiB (--quick and pairs: eight of them). Half a round trip: a message there and one back, over
/// two. Of columns: elements of 8 bytes, each in a cache line of its own, at both ends. A stream:
/// 64 messages (16 from 1 MiB on), each into a place of its own, whose receives are posted before,
/// and an empty one back. Both ways: two streams at the same time, counted together. All
/// unexpected: the receives are posted after all 64 messages, of at most 2 KiB, have arrived.
/// Pairs: a stream in each pair of ranks at the same time, counted together. 2 pairs share the
/// cores if there are fewer than 4. The limits send as many messages by stores (a ping-pong of 8
/// B), or by memcpy into shared memory and out of it, in pieces of at most 32 KiB and a store for
/// each, columns by a move for each element before and after; they are measured interleaved with
/// the results by the same processes. Each rank is kept on one core. Buffers: 16 messages of 1 MiB,
/// of which 0 to 100 % have memory that was registered before. Over cards (--fabric verbs) the
/// limits are loops of the same calls of libibverbs: sends; datagrams, if ONESIDED_MESSAGES_CHANNEL
/// says so; reads and writes of messages that are announced, with the sends before and after; a
/// stream of sends that are posted in lists of 16. Every figure is the median of 7 runs (--quick:
/// 3). The benchmark assumes an otherwise idle machine.
#[derive(Debug, clap::Args)]
#[command(after_help = runner::help())]
pub(crate) struct Args {
    /// How many ranks, two of which send, and then each to its partner; 2 and 3 have one pair
    /// [default: 2, and of pairs 4]
    #[arg(short = 'n', long = "ranks", visible_alias = "np", value_name = "N", value_parser = clap::value_parser!(u32).range(2..=2 * MOST_PAIRS as i64))]
    ranks: Option<u32>,

    /// Measures, in place of all that, half a round trip of 8 and 512 B at each layer: bare, packets,
    /// messages; and what each adds (yu-2004)
    #[arg(long, conflicts_with = "ranks")]
    layers: bool,

    /// Measures, in place of all that, messages of pairs of ranks by each channel of cards: rc-sr, rc-fp and ud-sr of
    /// 8, 64 and 512 B, rc-rdma, ud-zcopy and copy of 64 KiB and 1 MiB; and by the configurations RC, UD, UD-copy and
    /// Aptus, which is the default (koop-2008). By default of one pair; of several (-n) rank 0's latency is shown, and what
    /// all stream together. At the end what each channel takes of rank 0's memory
    #[arg(long, conflicts_with = "layers")]
    channels: bool,

    #[command(flatten)]
    options: Options,
}

pub(crate) fn start(args: &Args) -> Result<ExitCode, Failure> {
    args.options.without_picture()?;
    if args.layers {
        let jobs = [(&layers::SUITE, 2, LockDesign::default())];
        return runner::run("onesided bench messages --layers", &args.options, &jobs, layers::sections());
    }
    if args.channels {
        if args.options.is_shm() && args.options.measures() {
            return Err("--channels: they are those of cards (--fabric verbs)".into());
        }
        let jobs = [(&channels::SUITE, args.ranks.unwrap_or(2), LockDesign::default())];
        return runner::run("onesided bench messages --channels", &args.options, &jobs, channels::sections());
    }
    let mut jobs: Vec<Job> = vec![(&SUITE, args.ranks.unwrap_or(2), LockDesign::default())];
    let in_pairs = args.ranks.unwrap_or(4);
    if in_pairs >= 4 {
        jobs.push((&PAIRS, in_pairs, LockDesign::default()));
    }
    runner::run("onesided bench messages", &args.options, &jobs, sections())
}

const CONTROL: Tag = Tag(0);
const DATA: Tag = Tag(1);

/// A loop that the two ranks of a pair run: the first sends, the second answers.
pub(crate) struct Loop {
    name: &'static str,
    /// The bare loop that it is compared with, by size. Bare loops have none.
    limit: fn(usize) -> Option<&'static Self>,
    /// The same over a card.
    limit_by_card: fn(&Card, usize) -> Option<&'static Self>,
    quantities: &'static [Quantity],
    /// The messages of an iteration, by their size.
    messages: fn(usize) -> usize,
    /// The smallest and the largest size in bytes.
    smallest: usize,
    largest: usize,
    /// Does so many iterations with messages of so many bytes.
    pub(crate) run: fn(&End<'_>, usize, u64) -> Result<(), Failure>,
}

/// What is interleaved. A stream pushes the memory of a ping-pong out of the caches, so that few
/// rounds of large messages would measure that. Whole messages and pieces push one another's memory
/// out of what is kept registered.
static GROUPS: [&[&Loop]; 3] = [
    &[&ping_pong::LOOP, &buffers::LOOP, &written::BUFFERS, &columns::LOOP],
    &[&stream::LOOP, &written::STREAM, &unexpected::LOOP],
    &[&both_ways::LOOP, &written::IN_PIECES, &written::IN_PACKETS],
];

/// The messages of a stream before its receiver answers.
pub(crate) const fn window(size: usize) -> usize {
    if size < 1 << 20 { 64 } else { 16 }
}

/// What the plots show.
fn sections() -> Sections {
    vec![("messages".to_owned(), DESCRIPTIONS.iter().collect())]
}

const DESCRIPTIONS: &[Description] = &[
    Description::of("half a round trip", &[Shown::new(Quantity::Latency, "").heading("Half a round trip")])
        .saying("A message there and one back, over two, from and to slices."),
    Description::of("half a round trip of buffers", &[])
        .saying("A message there and one back, over two, of buffers that the receiver reads (RGET)."),
    Description::of("half a round trip of written buffers", &[])
        .saying("A message there and one back, over two, of buffers that the sender writes (RPUT)."),
    Description::of("half a round trip of columns", &[])
        .saying("A message there and one back, over two, of elements of 8 bytes, each in a cache line of its own."),
    Description::of(
        "stream",
        &[
            Shown::new(Quantity::Bandwidth, "").heading("A stream: bandwidth"),
            Shown::new(Quantity::MessageRate, "").heading("A stream: messages a second"),
        ],
    )
    .saying("64 messages one way (16 from 1 MiB on), then an empty one back."),
    Description::of("stream, written", &[]).saying("A stream whose long messages the sender writes (RPUT)."),
    Description::of("stream, pipeline", &[])
        .saying("A stream whose long messages the sender writes in pieces (pipeline)."),
    Description::of("stream, copy", &[]).saying("A stream whose long messages go in packets (copy)."),
    Description::of("stream, all unexpected", &[])
        .saying("A stream whose receives are posted after its messages have arrived."),
    Description::of("streams both ways", &[]).saying("Two streams at the same time, counted together."),
    Description::named(Name::StartsWith("buffers, "), &[]).saying(
        "16 messages of 1 MiB one way, one after the other, of buffers. Some of them were registered before; \
            the others are registered for the message, at both ends.",
    ),
    Description::named(Name::StartsWith("stream, "), &[])
        .saying("A stream in each pair of ranks at the same time, counted together."),
];

pub(crate) static SUITE: Suite = Suite {
    steps: |effort| ((sizes(effort).count() * GROUPS.len() + reuse::PERCENT.len()) * effort.runs()) as u64,
    ..Suite::new("two-sided", Program::Plain(between_two))
};

pub(crate) static PAIRS: Suite = Suite {
    steps: |effort| (sizes(Effort::Quick).count() * effort.runs()) as u64,
    ..Suite::new("two-sided-pairs", Program::Plain(between_pairs))
};

/// Powers of two from 8 B to 4 MiB; for `--quick` some of them.
fn sizes(effort: Effort) -> impl Iterator<Item = usize> {
    let is_quick = effort != Effort::Full;
    (3..=LARGEST.ilog2())
        .filter(move |power| !is_quick || [3, 6, 9, 12, 15, 18, 20, 22].contains(power))
        .map(|power| 1 << power)
}

fn between_two(rank: &BenchRank, effort: Effort) -> Result<(), Failure> {
    run((rank, 1), effort, (sizes(effort), &GROUPS), |end| reuse::measure(end, effort))
}

/// All pairs stream at the same time.
fn between_pairs(rank: &BenchRank, effort: Effort) -> Result<(), Failure> {
    run((rank, rank.world.size() / 2), effort, (sizes(Effort::Quick), &[&[&stream::LOOP]]), |_| Ok(()))
}

fn run(
    (rank, pairs): (&BenchRank, u32),
    effort: Effort,
    (sizes, groups): (impl Iterator<Item = usize>, &[&[&'static Loop]]),
    then: impl FnOnce(&End<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let Some(end) = End::new(rank, pairs)? else { return Ok(()) }; // this rank waits for the end of the suite
    for size in sizes {
        for loops in groups {
            probes::run_together((rank, &end.ends), effort, end.probes(loops, size))?;
        }
    }
    then(&end)
}

/// An end of a pair.
pub(crate) struct End<'r> {
    rank: &'r BenchRank,
    /// Of all pairs.
    ends: World,
    pairs: u32,
    messages: Messages,
    is_first: bool,
    /// The other end.
    other: u32,
    bare: BareEnd<'r>,
    card: Option<Card>,
    out: Vec<u8>,
    /// A stream's messages have a place each.
    into: RefCell<Vec<u8>>,
}

impl<'r> End<'r> {
    /// The first ranks are paired with the last ones: 0 with the last, 1 with the last but one, so
    /// that the ends of a pair are on two cores. `None` for ranks between them. Collective.
    pub(crate) fn new(rank: &'r BenchRank, pairs: u32) -> Result<Option<Self>, Failure> {
        let messages = Messages::new(&rank.world).wait()?;
        let (me, other) = (rank.world.rank(), rank.peer() - rank.world.rank());
        let (pair, is_first) = (me.min(other), me < other);
        let Some(ends) = rank.ends(pairs)? else { return Ok(None) };
        let card = Card::new(rank, |own| {
            let sent = messages.send(own, other, CONTROL);
            let (others, _) = messages.recv::<u8>(other, CONTROL).wait()?;
            sent.wait()?;
            Ok(others)
        })?;
        Ok(Some(Self {
            rank,
            ends,
            pairs,
            messages,
            is_first,
            other,
            bare: BareEnd::new(rank, (pair as usize, pairs as usize), is_first),
            card,
            out: vec![1; LARGEST],
            into: RefCell::new(vec![0; window(LARGEST) * LARGEST]),
        }))
    }

    pub(crate) const fn world(&self) -> &World {
        &self.rank.world
    }

    /// The loops, and what they are compared with.
    fn probes(&self, loops: &[&'static Loop], size: usize) -> Vec<Probe<'_>> {
        let mut probes = Vec::new();
        let mut limits: Vec<&Loop> = Vec::new();
        for one in loops.iter().filter(|one| (one.smallest..=one.largest).contains(&size)) {
            let limit = match &self.card {
                Some(card) => (one.limit_by_card)(card, size),
                None if self.rank.has_limits() => (one.limit)(size),
                None => None,
            };
            let beside = limit.map_or_else(String::new, |limit| self.name(limit));
            probes.push(self.probe(one, size, |batch| Probe::ours(&self.name(one), &beside, batch)));
            let is_new = |limit: &&Loop| limits.iter().all(|other| !ptr::eq(*other, *limit));
            if let Some(limit) = limit.filter(is_new) {
                probes.push(self.probe(limit, size, |batch| Probe::limit_of_two(&self.name(limit), batch)));
                limits.push(limit);
            }
        }
        probes
    }

    fn name(&self, one: &Loop) -> String {
        match self.pairs {
            1 => one.name.to_owned(),
            pairs => format!("{}, {pairs} pairs", one.name),
        }
    }

    fn probe<'e, P>(&'e self, one: &'static Loop, size: usize, probe: P) -> Probe<'e>
    where
        P: FnOnce(Box<dyn FnMut(u64) -> Result<(), Failure> + 'e>) -> Probe<'e>,
    {
        let batch = move |n| {
            (one.run)(self, size, n)?;
            // Until all pairs are done.
            match self.rank.world.rank() {
                0 => (1..self.pairs).try_for_each(|first| self.receive(first, CONTROL, &mut [])),
                _ if self.is_first => Ok(self.send(0, CONTROL, &[]).wait()?),
                _ => Ok(()),
            }
        };
        let messages = (one.messages)(size) * self.pairs as usize;
        probe(Box::new(batch)).of_size(size).measures(one.quantities).each_time(messages)
    }

    fn send<'e>(&'e self, to: u32, tag: Tag, bytes: &'e [u8]) -> SendRequest<'e, Any> {
        self.messages.send(black_box(bytes), to, tag)
    }

    fn receive(&self, from: u32, tag: Tag, into: &mut [u8]) -> Result<(), Failure> {
        self.messages.recv_into(black_box(into), from, tag).wait()?;
        Ok(())
    }

    /// Starts to send a window.
    fn send_all(&self, size: usize) -> Vec<SendRequest<'_, Any>> {
        self.messages.send_all((0..window(size)).map(|_| (black_box(&self.out[..size]), self.other, DATA)))
    }

    /// Posts the receives of a window.
    fn receive_all<'e>(&'e self, size: usize, into: &'e mut [u8]) -> Vec<RecvInto<'e, Any>> {
        let places = into.chunks_exact_mut(size).take(window(size));
        self.messages.recv_all_into(places.map(|place| (black_box(place), self.other, DATA)))
    }

    /// Waits for sends or receives together (`MPI_Waitall`).
    fn all<T, H: WaitAll<Output = Result<T, Error>>>(&self, requests: Vec<H>) -> Result<(), Failure> {
        Ok(self.rank.world.wait_all(requests).into_iter().try_for_each(|outcome| outcome.map(drop))?)
    }

    /// Says that a window has arrived, or waits until it has.
    fn answer_window(&self) -> Result<(), Failure> {
        match self.is_first {
            true => self.receive(self.other, DATA, &mut []),
            false => Ok(self.send(self.other, DATA, &[]).wait()?),
        }
    }

    /// The memory of the bare loops.
    fn with_bytes(&self, size: usize, run: impl FnOnce((&[u8], &mut [u8]))) {
        run((&self.out[..size], &mut self.into.borrow_mut()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_room() {
        for size in sizes(Effort::Full) {
            assert!(window(size) * size <= window(LARGEST) * LARGEST, "{size}");
        }
    }
}
