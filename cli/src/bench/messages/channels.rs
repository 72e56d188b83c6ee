//! `bench messages --channels`: each channel between the same ranks, in turns, and the four configurations of
//! koop-2008 (sections 2, 4 and 6).

use onesided_two_sided::{Channel, ChannelMemory, Messages, Rules};

use super::{DATA, End, Loop, ping_pong, run, stream};
use crate::bench::output::json::Sections;
use crate::bench::prelude::*;

/// The longest is less than what a packet of any channel has room for.
const EAGER: [usize; 3] = [8, 64, 512];
const LONG: [usize; 2] = [64 << 10, 1 << 20];
const ALL: [usize; 2] = [EAGER[0], LONG[1]];

/// So many messages make the connection of two ranks, and their fast paths.
const BEFORE: u32 = 2_000;

pub(crate) static SUITE: Suite = Suite {
    steps: |effort| ((EAGER.len() + LONG.len()) * effort.runs()) as u64,
    // As many fast paths as pairs: none gives way to that of a rank which says that its pair is done.
    environment: &["ONESIDED_MESSAGES_CHANNEL=both", "ONESIDED_MESSAGES_FAST_PATHS=64"],
    ..Suite::new("channels", Program::Plain(measure))
};

pub(super) fn sections() -> Sections {
    vec![("channels".to_owned(), DESCRIPTIONS.iter().collect())]
}

const DESCRIPTIONS: &[Description] = &[
    Description::named(Name::StartsWith("half a round trip, "), &[])
        .saying("A message there and one back, over two, by this channel, or by those of this configuration."),
    Description::named(Name::StartsWith("stream, "), &[])
        .saying("64 messages one way by this channel or configuration (16 of 1 MiB), then an empty one back."),
    Description::named(Name::StartsWith("memory, "), &[]).saying(
        "The memory of rank 0 that its connections, queues of datagrams or fast paths take; in brackets their number.",
    ),
];

macro_rules! loops {
    ($($channel:literal: $first:literal of $rules:literal, $sizes:ident;)*) => {
        [$(
            loops!(@ "half a round trip, ", $channel, ($rules, $first), $sizes, ping_pong),
            loops!(@ "stream, ", $channel, ($rules, $first), $sizes, stream),
        )*]
    };
    (@ $name:literal, $channel:literal, $rules:expr, $sizes:ident, $of:ident) => {
        Loop {
            name: concat!($name, $channel),
            limit: |_| None,
            smallest: $sizes[0],
            largest: $sizes[$sizes.len() - 1],
            run: |end, size, n| by($rules, &$of::LOOP, (end, size, n)),
            ..$of::LOOP
        }
    };
}

/// Channels, and configurations, of which the last one is the default: by how many of the first rules their messages go.
pub(super) static LOOPS: [Loop; 20] = loops! {
    "rc-sr": 1 of "rc-sr, copy", EAGER;
    "rc-fp": 1 of "rc-fp, copy", EAGER;
    "ud-sr": 1 of "ud-sr, copy", EAGER;
    "rc-rdma": 1 of "rget", LONG;
    "ud-zcopy": 1 of "ud-zcopy", LONG;
    "copy": 1 of "copy", LONG;
    "RC": 3 of "rc-fp, rc-sr, rget", ALL;
    "UD": 2 of "ud-sr, ud-zcopy", ALL;
    "UD-copy": 2 of "ud-sr, copy", ALL;
    "Aptus": 3 of "", ALL;
};

fn measure(rank: &BenchRank, effort: Effort) -> Result<(), Failure> {
    let (messages, other) = (Messages::new(&rank.world).wait()?, rank.peer() - rank.world.rank());
    for _ in 0..BEFORE {
        messages.send(&[0_u64], other, DATA).wait()?;
        messages.recv::<u64>(other, DATA).wait()?;
    }
    drop(messages);
    let (pairs, loops): (_, Vec<&Loop>) = (rank.world.size() / 2, LOOPS.iter().collect());
    run((rank, pairs), effort, (EAGER.into_iter().chain(LONG), &[&loops]), memory)
}

/// What its channels take of a rank's memory (koop-2008, figure 3(a)).
fn memory(end: &End<'_>) -> Result<(), Failure> {
    let held = Channel::ALL.into_iter().zip(end.messages.statistics().channels.memory);
    held.filter(|(_, held)| held.count > 0).try_for_each(|(channel, ChannelMemory { count, bytes })| {
        let point = Point::of(format!("memory, {} ({count})", channel.name()), Quantity::Memory);
        end.rank.report(point, &[bytes as f64])
    })
}

/// A loop whose messages go by one of the `first` of these rules.
fn by((rules, first): (&str, usize), one: &Loop, (end, size, n): (&End<'_>, usize, u64)) -> Result<(), Failure> {
    let rules: Rules = rules.parse()?;
    end.messages.set_rules(rules.clone())?;
    let how = end.messages.explain(end.other, size as u64)?;
    if !rules.chain().iter().take(first).any(|rule| rule.by == how.protocol()) {
        return Err(format!("a channel is not there:\n{how}").into());
    }
    (one.run)(end, size, n)
}
