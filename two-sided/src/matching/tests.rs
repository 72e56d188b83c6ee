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
                    if receive.is_none() {
                        *matcher.keep(envelope, arrival).1 = number;
                        oracle.keep(envelope, number);
                    } else {
                        matched.push((envelope, arrival, number));
                    }
                }
                Step::Receive(pattern) => match (matcher.find(pattern), oracle.find(pattern)) {
                    (Some(found), Some(at)) => {
                        let (envelope, arrival, message) = matcher.take(found).unwrap();
                        prop_assert_eq!((envelope, message), oracle.unexpected.remove(at));
                        matched.push((envelope, arrival, message));
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
                    let found = matcher.find(pattern).and_then(|found| matcher.unexpected(found));
                    let expected = oracle.find(pattern).map(|at| oracle.unexpected[at]);
                    prop_assert_eq!(found.map(|(envelope, message)| (envelope, *message)), expected);
                }
                Step::MatchedProbe(pattern) => {
                    let found = matcher.find(pattern);
                    let expected = oracle.find(pattern).map(|at| oracle.unexpected.remove(at));
                    let taken = found.and_then(|found| matcher.take(found));
                    prop_assert_eq!(taken.map(|(envelope, _, message)| (envelope, message)), expected);
                    if let Some(found) = found {
                        prop_assert!(matcher.take(found).is_none() && matcher.unexpected(found).is_none());
                    }
                    matched.extend(taken);
                }
                Step::GiveBack(index) => {
                    if !matched.is_empty() {
                        let (envelope, arrival, message) = matched.swap_remove(index.index(matched.len()));
                        let receive = matcher.take_posted(envelope);
                        prop_assert_eq!(receive.map(|receive| matcher.receives[receive]), oracle.take_posted(envelope));
                        if receive.is_none() {
                            *matcher.keep(envelope, arrival).1 = message;
                            oracle.keep(envelope, message);
                        } else {
                            matched.push((envelope, arrival, message));
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
            prop_assert_eq!(matcher.lens(), (oracle.posted.len(), oracle.unexpected.len()));
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
