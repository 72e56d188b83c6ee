//! Random programs against a matcher that is two plain lists.

use proptest::prelude::*;

use super::oracle::Oracle;
use super::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Arrive(Envelope),
    Receive(Pattern),
    Probe(Pattern),
    /// Takes the message that a probe finds.
    MatchedProbe(Pattern),
    /// Gives back one of the messages that were matched.
    GiveBack(prop::sample::Index),
    /// Removes one of the receives that were posted, whether it has matched or not.
    Cancel(prop::sample::Index),
}

fn envelopes() -> impl Strategy<Value = Envelope> {
    (0..2_u32, 0..3_u32, 0..3_u32).prop_map(|(context, source, tag)| Envelope { context, source, tag })
}

fn patterns() -> impl Strategy<Value = Pattern> {
    (0..2_u32, prop::option::of(0..3_u32), prop::option::of(0..3_u32)).prop_map(|(context, source, tag)| Pattern {
        context,
        source,
        tag,
    })
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => envelopes().prop_map(Step::Arrive),
        4 => patterns().prop_map(Step::Receive),
        1 => patterns().prop_map(Step::Probe),
        1 => patterns().prop_map(Step::MatchedProbe),
        1 => any::<prop::sample::Index>().prop_map(Step::Cancel),
        1 => any::<prop::sample::Index>().prop_map(Step::GiveBack),
    ]
}

proptest! {
    #[test]
    fn matches_what_two_lists_match(program in prop::collection::vec(steps(), 0..200)) {
        let (mut matcher, mut oracle) = (Matcher::new(), Oracle::default());
        let (mut receives, mut matched) = (Vec::new(), Vec::new());
        for (number, step) in (0..).zip(program) {
            match step {
                Step::Arrive(envelope) => {
                    let (arrival, receive) = (matcher.number(), matcher.take_posted(envelope));
                    prop_assert_eq!(receive.map(|receive| matcher.receives[receive]), oracle.take_posted(envelope));
                    let message = matcher.add(envelope, arrival, receive.is_none());
                    *matcher.message_mut(message) = number;
                    if receive.is_none() {
                        oracle.keep(envelope, number);
                    } else {
                        matched.push((envelope, message, number));
                    }
                }
                Step::Receive(pattern) => match (matcher.find(pattern), oracle.find(pattern)) {
                    (Some(found), Some(at)) => {
                        matcher.claim(found);
                        let (envelope, number) = (matcher.envelope(found), *matcher.message(found));
                        prop_assert_eq!((envelope, number), oracle.unexpected.remove(at));
                        matched.push((envelope, found, number));
                    }
                    (None, None) => {
                        let posted = matcher.receives.post(pattern);
                        matcher.receives[posted] = number;
                        receives.push((posted, number));
                        oracle.posted.push((pattern, number));
                    }
                    (found, at) => prop_assert!(false, "{found:?} where the lists have {at:?}"),
                },
                Step::Probe(pattern) => {
                    let found = matcher.find(pattern).map(|at| (matcher.envelope(at), *matcher.message(at)));
                    prop_assert_eq!(found, oracle.find(pattern).map(|at| oracle.unexpected[at]));
                }
                Step::MatchedProbe(pattern) => {
                    let found = matcher.find(pattern).map(|at| (matcher.envelope(at), matcher.remove(at)));
                    prop_assert_eq!(found, oracle.find(pattern).map(|at| oracle.unexpected.remove(at)));
                }
                Step::GiveBack(index) => {
                    if !matched.is_empty() {
                        let (envelope, message, number) = matched.swap_remove(index.index(matched.len()));
                        let receive = matcher.take_posted(envelope);
                        prop_assert_eq!(receive.map(|receive| matcher.receives[receive]), oracle.take_posted(envelope));
                        if receive.is_none() {
                            matcher.release(message);
                            oracle.keep(envelope, number);
                        } else {
                            matched.push((envelope, message, number));
                        }
                    }
                }
                Step::Cancel(index) => {
                    if !receives.is_empty() {
                        let (receive, number) = receives.swap_remove(index.index(receives.len()));
                        oracle.posted.retain(|(_, posted)| *posted != number);
                        prop_assert_eq!(matcher.receives.remove(receive), number);
                    }
                }
            }
            let all = oracle.unexpected.len() + matched.len();
            prop_assert_eq!(matcher.lens(), (oracle.posted.len(), oracle.unexpected.len(), all));
        }
    }
}

/// Envelopes of many tags from one source, and of one tag from many sources, use all bins alike.
#[test]
fn hashes_fill_the_bins_alike() {
    let bins = |hashes: &mut dyn Iterator<Item = u32>| {
        let mut counts = vec![0; 1024];
        hashes.for_each(|hash| counts[hash as usize % 1024] += 1);
        counts.into_iter().max()
    };
    let envelope = |source, tag| Envelope { context: 1, source, tag }.hash();
    assert!(bins(&mut (0..1024).map(|tag| envelope(0, tag))) <= Some(8));
    assert!(bins(&mut (0..1024).map(|source| envelope(source, 7))) <= Some(8));
    assert!(bins(&mut (0..1024).map(|rank| envelope(rank % 32, rank / 32))) <= Some(8));
}
