//! Which way messages go by rules of all kinds.

use std::time::Duration;

use onesided_fabric::threads;
use onesided_instances as _;
use onesided_sim::{End, Network, Profile, Simulation};
use onesided_two_sided::{
    Channel, ChannelMemory, Condition, Messages, ProgressMode, Protocol, Rule, Rules, SentMessages, Statistics, Tag,
};
use proptest::prelude::*;

const SOON: Duration = Duration::from_secs(60);

fn conditions() -> impl Strategy<Value = Condition> {
    let bytes = prop_oneof![0..200_u64, 100..9_000_u64, 4_000..200_000_u64];
    prop_oneof![
        4 => bytes.clone().prop_map(Condition::AtMost),
        4 => bytes.prop_map(Condition::AtLeast),
        1 => (1..4_u32).prop_map(Condition::RanksAtMost),
        1 => (1..4_u32).prop_map(Condition::RanksAtLeast),
        1 => Just(Condition::SameHost),
        1 => Just(Condition::OtherHost),
        1 => Just(Condition::Registered),
        1 => Just(Condition::Progress(ProgressMode::Polling)),
        1 => Just(Condition::Progress(ProgressMode::Hybrid)),
    ]
}

fn protocols() -> impl Strategy<Value = Protocol> {
    use Protocol::{Copy, Eager, Offered, Pipeline, Rget, Rput}; // threads have no channels to choose
    prop::sample::select(vec![Eager, Eager, Offered, Rget, Rput, Pipeline, Copy])
}

fn chains() -> impl Strategy<Value = Vec<Rule>> {
    let rule = (prop::collection::vec(conditions(), 0..3), protocols()).prop_map(|(when, by)| Rule { when, by });
    let last = protocols().prop_filter("of all messages", |by| !matches!(by, Protocol::Eager | Protocol::Offered));
    (prop::collection::vec(rule, 0..5), last).prop_map(|(mut chain, by)| {
        chain.push(Rule { when: vec![], by });
        chain
    })
}

/// Of a slice to the other one of two ranks of a host, which poll.
fn expected(chain: &[Rule], bytes: u64, room: u64, may_offer: bool) -> Protocol {
    if bytes <= 128 {
        return Protocol::Eager;
    }
    let holds = |condition: &Condition| match condition {
        Condition::AtMost(most) => bytes <= *most,
        Condition::AtLeast(least) => bytes >= *least,
        Condition::RanksAtMost(ranks) => *ranks >= 2,
        Condition::RanksAtLeast(ranks) => *ranks <= 2,
        Condition::SameHost | Condition::Progress(ProgressMode::Polling) => true,
        _ => false,
    };
    let is_there = |by| match by {
        Protocol::Eager => bytes <= room,
        Protocol::Offered => may_offer,
        _ => true,
    };
    chain.iter().find(|rule| rule.when.iter().all(holds) && is_there(rule.by)).unwrap().by
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// What is explained is what the rules say, and a message arrives by all of them.
    #[test]
    fn a_message_goes_by_the_first_rule_that_holds(
        cases in prop::collection::vec((chains(), prop_oneof![0..300_usize, 0..9_000_usize, 0..250_000_usize]), 1..40),
    ) {
        threads(2, |world| {
            let messages = Messages::new(&world).wait().unwrap();
            let (me, other) = (world.rank(), 1 - world.rank());
            let room = messages.explain(other, 0).unwrap().eager_max() as u64;
            let may_offer = messages.explain(other, 1 << 30).unwrap().protocol() == Protocol::Offered;
            for (chain, len) in &cases {
                let rules = Rules::new(chain.clone()).unwrap();
                assert_eq!(rules.to_string().parse(), Ok(rules.clone()));
                messages.set_rules(rules).unwrap();
                let explained = messages.explain(other, *len as u64).unwrap();
                assert_eq!(explained.protocol(), expected(chain, *len as u64, room, may_offer), "{explained}");
                let surely = messages.explain(other, explained.eager_max() as u64).unwrap();
                assert_eq!(surely.protocol(), Protocol::Eager, "{surely}");
                let own = messages.explain(me, *len as u64).unwrap().protocol();
                assert!(matches!(own, Protocol::Eager | Protocol::Rget), "{own}");
                let sent = vec![len.to_le_bytes()[0]; *len];
                let (send, synchronous) = (messages.send(&sent, other, Tag(0)), messages.send_synchronous(&sent, other, Tag(1)));
                for tag in [0, 1] {
                    assert!(messages.recv::<u8>(other, Tag(tag)).deadline(SOON).wait().unwrap().0 == sent);
                }
                send.deadline(SOON).wait().unwrap();
                synchronous.deadline(SOON).wait().unwrap();
            }
        })
        .unwrap();
    }
}

#[test]
fn a_rule_may_ask_for_the_host() {
    let report = Simulation::new(Network::default()).ranks(4).per_host(2).run(|world| async move {
        let messages = Messages::new(&world).await.unwrap();
        messages.set_rules("remote: rput, size<=9: eager, host: pipeline, copy".parse().unwrap()).unwrap();
        let (me, left, right) = (world.rank(), (world.rank() + 3) % 4, (world.rank() + 1) % 4);
        let sent = vec![me; 1000];
        let send = messages.send(&sent, right, Tag(0));
        assert!(messages.recv::<u32>(left, Tag(0)).await.unwrap().0 == [left; 1000]);
        send.await.unwrap();
        messages.explain(right, 4000).unwrap().protocol()
    });
    let by = [Protocol::Pipeline, Protocol::Rput];
    assert_eq!((report.end, report.results), (End::Finished, [0, 1, 0, 1].map(|at| Some(by[at])).into()));
}

/// Datagrams, which are lost, doubled and overtaken, and connections after so many messages.
fn both(connects_after: u32) -> Network {
    let jitter = Duration::from_micros(20);
    let datagrams =
        Network { datagrams: true, loss: 0.05, duplication: 0.05, jitter, retries: 50, ..Network::default() };
    Network { connects_after: Some(connects_after), ..datagrams }
}

#[test]
fn a_rule_may_name_a_channel() {
    let network = Network { fast_paths: 1, ..both(5) };
    let report = Simulation::new(network).ranks(2).run(|world| async move {
        let messages = Messages::new(&world).await.unwrap();
        let other = 1 - world.rank();
        let text = |bytes| messages.explain(other, bytes).unwrap().to_string();
        messages.set_rules("rput".parse().unwrap()).unwrap(); // by which messages count for nothing
        let none = format!("no connection to rank {other} yet: 0 of 5 messages counted");
        assert!(text(8).ends_with(&format!("eager by all rules; in datagrams: {none}")), "{}", text(8));
        messages.set_rules("size<=100: ud-sr, rc-sr, size<=900: ud-sr, rget".parse().unwrap()).unwrap();
        for (bytes, by, count) in [(8, Protocol::UdSr, 0), (800, Protocol::UdSr, 3), (2_000, Protocol::Copy, 5)] {
            let before = messages.explain(other, 2_000).unwrap().to_string();
            assert!(before.contains("rc-sr             passed over: no connection"), "{before}");
            let explained = messages.explain(other, bytes).unwrap();
            assert_eq!(explained.protocol(), by, "{explained}");
            for number in 0..if count == 5 { 2 } else { 3 } {
                let sent = vec![number; bytes as usize];
                let send = messages.send(&sent, other, Tag(0));
                assert_eq!(messages.recv::<u8>(other, Tag(0)).await.unwrap().0, sent);
                send.await.unwrap();
            }
            let counted = format!("rank {other} yet: {count} of 5 messages");
            assert!(text(2_000).contains(&counted) || count == 5, "{}", text(2_000));
        }
        let explained = messages.explain(other, 2_000).unwrap();
        assert_eq!(explained.protocol(), Protocol::RcSr, "{explained}");
        messages.set_rules(Rules::default()).unwrap();
        assert!(text(8).ends_with("eager by all rules; over the connection"), "{}", text(8));
        messages.set_rules("rc-fp, rget".parse().unwrap()).unwrap();
        assert!(text(500).contains("none yet: that rank makes one when it has got enough"), "{}", text(500));
    });
    assert_eq!(report.end, End::Finished);
}

/// All ranks send to all, and each has at most as many connections as it may: the others' messages go on.
#[test]
fn connections_are_limited() {
    let (few, all) = (&[8, 9_000, 500, 20_000][..], &[8, 500, 8][..]);
    let mut jobs = vec![(5, 0, few), (5, 1, few), (5, 2, few), (40, 16, few)];
    jobs.extend(std::env::var_os("ONESIDED_LONG").map(|_| (512, 16, all)));
    for (ranks, limit, lens) in jobs {
        let network = Network { connections: limit, ..both(1) };
        let report = Simulation::new(network).ranks(ranks).run(move |world| async move {
            let messages = Messages::new(&world).await.unwrap();
            let me = world.rank();
            for (round, &len) in lens.iter().enumerate() {
                let sent = vec![me; len / 4];
                let sends: Vec<_> = (0..ranks).map(|to| messages.send(&sent, to, Tag(round as u32))).collect();
                for from in 0..ranks {
                    let (bytes, _) = messages.recv::<u32>(from, Tag(round as u32)).await.unwrap();
                    assert_eq!(bytes, vec![from; len / 4]);
                }
                for send in sends {
                    send.await.unwrap();
                }
            }
            let text = |to| messages.explain(to, 8).unwrap().to_string();
            let (connected, refused): (Vec<_>, Vec<_>) =
                (0..ranks).filter(|to| *to != me).partition(|to| text(*to).ends_with("; over the connection"));
            for to in refused {
                let none = format!("no connection to rank {to}");
                let why = [": one of the two had as many as it may have", " yet: 0 of 1 messages counted"]; // or given back
                assert!(why.iter().any(|why| text(to).contains(&format!("{none}{why}"))), "{}", text(to));
                assert_eq!(messages.explain(to, 9_000).unwrap().protocol(), Protocol::Copy);
            }
            world.barrier().await.unwrap();
            connected.len() as u32
        });
        assert_eq!(report.end, End::Finished, "{ranks} ranks, {limit} connections");
        let connected: Vec<_> = report.results.into_iter().flatten().collect();
        assert!(connected.iter().all(|count| *count <= limit), "{connected:?}");
        assert!(connected.iter().filter(|count| **count == limit).count() + 1 >= connected.len() / 2, "{connected:?}");
    }
}

/// At the limit the connection that carried least gives way to one for which messages count, and comes again when
/// they count for it. One that is used stays, and the messages of the other pair go on without.
#[test]
fn the_least_used_connection_gives_way() {
    let network = Network { connections: 1, loss: 0.0, ..both(5) };
    let report = Simulation::new(network).ranks(3).run(|world| async move {
        let messages = Messages::new(&world).await.unwrap();
        let me = world.rank();
        let text = |to| messages.explain(to, 8).unwrap().to_string();
        // Rank 0 and the others in turn.
        for others in [&[1][..], &[2], &[1], &[1, 1, 1, 1, 1, 1, 1, 1, 2]] {
            for number in 0..200_u64 {
                for &other in others.iter().filter(|other| me == 0 || **other == me) {
                    let (other, sent) = (if me == 0 { other } else { 0 }, [number]);
                    let send = messages.send(&sent, other, Tag(0));
                    assert_eq!(messages.recv::<u64>(other, Tag(0)).await.unwrap().0, sent);
                    send.await.unwrap();
                }
            }
            world.barrier().await.unwrap();
            if me == 0 {
                let connected = [1, 2].map(|to| text(to).ends_with("over the connection"));
                assert_eq!(connected, [others[0] == 1, others[0] == 2], "{}; {}", text(1), text(2));
            }
        }
        if me == 0 {
            let refused = "no connection to rank 2: one of the two had as many as it may have";
            assert!(text(2).contains(refused), "{}", text(2));
        }
        let counts = messages.statistics().channels;
        (counts.made, counts.given_back, counts.refused > 0, counts.memory[Channel::Connection as usize].count)
    });
    assert_eq!(report.end, End::Finished);
    assert_eq!(report.results, [(3, 2, true, 1), (2, 1, true, 1), (1, 1, true, 0)].map(Some));
}

/// What each channel takes of a rank's memory after all ranks have sent to all (koop-2008, figure 3(a)): that of datagrams is
/// the same for many ranks, a fast path takes most.
#[test]
fn channels_take_memory() {
    let held = |ranks: u32, datagrams: bool, fast_paths: u32| {
        let card = Profile::shipped("connectx7").unwrap().network().card.clone();
        let connects_after = (fast_paths > 0).then_some(1);
        let network = Network { datagrams, connects_after, fast_paths, card, ..Network::default() };
        let report = Simulation::new(network).ranks(ranks).run(move |world| async move {
            let messages = Messages::new(&world).await.unwrap();
            let others = || (0..ranks).filter(|rank| *rank != world.rank());
            for number in 0..40_u64 {
                for to in others() {
                    messages.send(&[number], to, Tag(0)).await.unwrap();
                }
                for from in others() {
                    assert_eq!(messages.recv::<u64>(from, Tag(0)).await.unwrap().0, [number]);
                }
            }
            let statistics = messages.statistics();
            let memory = [Channel::Connection, Channel::Datagrams, Channel::FastPath]
                .map(|channel| statistics.channels.memory[channel as usize]);
            assert!(statistics.to_string().contains("memory"), "{statistics}");
            memory.map(|ChannelMemory { count, bytes }| (count, bytes))
        });
        assert_eq!(report.end, End::Finished);
        report.results[0].unwrap()
    };
    let datagrams = (1, 5_376_000);
    for others in [3, 15] {
        let bytes = u64::from(others);
        assert_eq!(held(others + 1, false, 0), [(others, bytes * 8_192), (0, 0), (0, 0)]);
        assert_eq!(held(others + 1, true, 0), [(0, 0), datagrams, (0, 0)]);
        let (paths, connections) = (others.min(8), (others, bytes * 8_192));
        assert_eq!(held(others + 1, true, 8), [connections, datagrams, (paths, u64::from(paths) * 65_536)]);
    }
}

/// Statistics count each message once, by its channel, its protocol and its length, and to its receiver.
#[test]
fn what_was_sent_is_counted() {
    let lens = [0_usize, 64, 65, 512, 513, 4_000, 9_000, 70_000, 600_000];
    let report = Simulation::new(both(6)).ranks(3).run(move |world| async move {
        let messages = Messages::new(&world).await.unwrap();
        world.barrier().await.unwrap();
        let (other, before) = ((world.rank() + 1) % 3, messages.statistics());
        let (all, mut sends) = (vec![1_u8; 600_000], Vec::new());
        for rules in ["size<=4096: ud-sr, rget", "eager, rput"] {
            messages.set_rules(rules.parse().unwrap()).unwrap();
            for _ in 0..if rules.starts_with("eager") { 6 } else { 0 } {
                messages.send(&all[..100], other, Tag(1)).await.unwrap();
                messages.recv::<u8>((world.rank() + 2) % 3, Tag(1)).await.unwrap();
            }
            sends.extend(lens.iter().map(|len| messages.send(&all[..*len], other, Tag(0))));
        }
        for len in lens.iter().chain(&lens) {
            let (bytes, _) = messages.recv::<u8>((world.rank() + 2) % 3, Tag(0)).await.unwrap();
            assert_eq!(bytes.len(), *len);
        }
        for send in sends {
            send.await.unwrap();
        }
        let after = messages.statistics();
        let count = |channel: Option<Channel>, by, at_most| {
            let of = |statistics: &Statistics| {
                let is_it = |sent: &&SentMessages| {
                    channel.is_none_or(|channel| sent.channel == channel)
                        && (sent.protocol, sent.at_most) == (by, at_most)
                };
                let (messages, bytes) = statistics
                    .messages
                    .iter()
                    .filter(is_it)
                    .fold((0, 0), |(messages, bytes), sent| (messages + sent.messages, bytes + sent.bytes));
                [messages, bytes]
            };
            let [before, after] = [of(&before), of(&after)];
            [after[0] - before[0], after[1] - before[1]]
        };
        let (datagrams, connection) = (Some(Channel::Datagrams), Some(Channel::Connection));
        assert!(count(datagrams, Protocol::Eager, Some(64))[0] >= 2, "{after}");
        assert_eq!(count(None, Protocol::Eager, Some(64)), [4, 128], "{after}");
        assert_eq!(count(datagrams, Protocol::Eager, Some(4096)), [2, 4_513], "{after}");
        assert_eq!(count(connection, Protocol::Eager, Some(4096)), [2, 4_513], "{after}");
        assert_eq!(count(None, Protocol::Copy, Some(65536)), [1, 9_000], "{after}");
        assert_eq!(count(connection, Protocol::Rput, Some(65536)), [1, 9_000], "{after}");
        assert_eq!(count(connection, Protocol::Rput, None), [1, 600_000], "{after}");
        for channel in [Channel::Datagrams, Channel::Connection] {
            let all = after.messages.iter().filter(|sent| sent.channel == channel);
            let to_peers = after.peers.iter().filter(|sent| sent.channel == channel);
            let (all, to_peers) = (all.map(|sent| sent.messages), to_peers.map(|sent| sent.messages));
            assert_eq!(to_peers.sum::<u64>(), all.sum(), "{after}");
        }
        let to_other = after.peers.iter().filter(|sent| sent.rank == other);
        let bytes: u64 = lens.iter().map(|len| 2 * *len as u64).sum();
        assert!(to_other.map(|sent| sent.bytes).sum::<u64>() >= bytes, "{after}");
        assert!(after.control.iter().any(|(_, packets)| *packets > 0), "{after}");
        let text = after.to_string();
        assert!(text.contains("rput") && text.contains("control") && text.contains("longer"), "{text}");
        world.barrier().await.unwrap();
        after.channels
    });
    assert_eq!(report.end, End::Finished);
    let channels: Vec<_> = report.results.into_iter().flatten().collect();
    assert!(channels.iter().all(|counts| counts.made == 2 && counts.refused == 0), "{channels:?}");
    assert!(channels.iter().any(|counts| counts.resent > 0 && counts.overtook > 0), "{channels:?}");
}

/// A rule that names a channel that the fabric does not have is none.
#[test]
fn a_channel_that_there_is_not_is_an_error() {
    for (network, wrong) in [
        (Network::default(), vec!["ud-sr"]),
        (Network { datagrams: true, ..Network::default() }, vec!["rc-sr"]),
        (both(9), vec![]),
    ] {
        let report = Simulation::new(network).ranks(1).run(|world| {
            let wrong = wrong.clone();
            async move {
                let messages = Messages::new(&world).await.unwrap();
                for by in ["rc-sr", "ud-sr"] {
                    let set = messages.set_rules(format!("eager, {by}, copy").parse().unwrap());
                    assert_eq!(set.is_err(), wrong.contains(&by), "{by}");
                    assert_eq!(set.err().map(|wrong| wrong.rule), wrong.contains(&by).then_some(2));
                }
            }
        });
        assert_eq!(report.end, End::Finished);
    }
    threads(1, |world| {
        let messages = Messages::new(&world).wait().unwrap();
        let wrong = messages.set_rules("rc-sr, copy".parse().unwrap()).unwrap_err().to_string();
        assert!(wrong.starts_with("rule 1: this fabric sends no packets over connections"), "{wrong}");
    })
    .unwrap();
}

/// Messages arrive once, whole and in order by whichever channels.
#[test]
fn messages_over_mixed_channels_arrive_in_order() {
    const CHAINS: [&str; 7] = [
        "size<=64: ud-sr, rc-sr, ud-sr, rget",
        "rc-sr, copy",
        "ud-sr, rput",
        "size>=700: rc-sr, size>=300: ud-sr, eager, pipeline",
        "size<=900: eager, rget",
        "size<=64: rc-sr, copy",
        "rc-fp, eager, rget",
    ];
    let mut by_ring = 0;
    for seed in 0..30 {
        let network = Network { fast_paths: 2, ..both(seed as u32 % 8) };
        let report = Simulation::new(network).ranks(3).seed(seed).run(move |world| async move {
            let messages = Messages::new(&world).await.unwrap();
            let (me, size) = (world.rank(), world.size());
            let random = |number: u64| (seed + 31 * u64::from(me) + number).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
            for _ in 0..2 {
                let sent: Vec<_> = (0..60_u8)
                    .map(|number| {
                        vec![number; random(number.into()) as usize % if number % 8 == 0 { 9_000 } else { 1_000 }]
                    })
                    .collect();
                let mut sends = Vec::new();
                for (number, bytes) in (0..).zip(&sent) {
                    messages
                        .set_rules(CHAINS[random(1_000 + number) as usize % CHAINS.len()].parse().unwrap())
                        .unwrap();
                    sends.extend((0..size).map(|to| messages.send(bytes, to, Tag(0))));
                }
                for number in 0..60 {
                    for from in 0..size {
                        let (bytes, _) = messages.recv::<u8>(from, Tag(0)).await.unwrap();
                        assert!(bytes.iter().all(|byte| *byte == number), "{} bytes", bytes.len());
                    }
                }
                for send in sends {
                    send.await.unwrap();
                }
            }
            world.barrier().await.unwrap(); // a rank that leaves does not say that it was written to
            let by_ring = messages.statistics().messages.into_iter().filter(|sent| sent.channel == Channel::FastPath);
            by_ring.map(|sent| sent.messages).sum::<u64>()
        });
        assert_eq!(report.end, End::Finished, "seed {seed}");
        by_ring += report.results.into_iter().flatten().sum::<u64>();
    }
    assert!(by_ring > 100, "{by_ring} messages by fast paths");
}

#[test]
fn a_rule_may_ask_for_a_buffer() {
    threads(2, |world| {
        let messages = Messages::new(&world).wait().unwrap();
        messages.set_rules("registered: rput, copy".parse().unwrap()).unwrap();
        let mut buffer = messages.buffer::<u8>(10_000).unwrap();
        buffer.write(0, &[7; 10_000]);
        let other = 1 - world.rank();
        let (slice, buffer) =
            (messages.send(&[7_u8; 10_000], other, Tag(0)), messages.send_buffer(buffer, other, Tag(1)));
        let text = onesided_fabric::dump().to_string();
        let both = ["announced, to be sent in packets", "announced, to be written"];
        assert!(both.iter().all(|state| text.contains(state)), "{text}");
        world.barrier().wait().unwrap();
        for tag in [0, 1] {
            assert!(messages.recv::<u8>(other, Tag(tag)).deadline(SOON).wait().unwrap().0 == [7; 10_000]);
        }
        slice.deadline(SOON).wait().unwrap();
        buffer.deadline(SOON).wait().unwrap();
    })
    .unwrap();
}
