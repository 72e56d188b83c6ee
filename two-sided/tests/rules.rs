//! Which way messages go by rules of all kinds.

use std::time::Duration;

use onesided_fabric::threads;
use onesided_instances as _;
use onesided_sim::{End, Network, Simulation};
use onesided_two_sided::{Condition, Messages, ProgressMode, Protocol, Rule, Rules, Tag};
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
    use Protocol::{Copy, Eager, Offered, Pipeline, Rget, Rput};
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
                messages.set_rules(rules);
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
        messages.set_rules("remote: rput, size<=9: eager, host: pipeline, copy".parse().unwrap());
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

#[test]
fn a_rule_may_ask_for_a_buffer() {
    threads(2, |world| {
        let messages = Messages::new(&world).wait().unwrap();
        messages.set_rules("registered: rput, copy".parse().unwrap());
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
