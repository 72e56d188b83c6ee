//! The frames of the control relay.

use onesided_remote_memory::Rank;
use proptest::prelude::*;

use super::*;
use crate::frame::tests::{bytes, name, travels};

fn any_said() -> impl Strategy<Value = Said> {
    let layout = (any::<u32>(), proptest::option::of(any::<u16>()), proptest::collection::vec(any::<u16>(), 0..40));
    let outcomes = vec![Ok(()), Err(Failure::NameTaken), Err(Failure::PeerDied(Rank(9)))];
    prop_oneof![
        layout.prop_map(|(suspect_after_ms, head, hosts)| Said::Layout(Layout { suspect_after_ms, head, hosts })),
        name().prop_map(|socket| Said::Ready { socket }),
        (any::<u64>(), name(), bytes()).prop_map(|(ticket, name, value)| Said::Put { ticket, name, value }),
        (any::<u64>(), proptest::sample::select(outcomes))
            .prop_map(|(ticket, outcome)| Said::Stored { ticket, outcome }),
        (name(), bytes()).prop_map(|(name, value)| Said::Value { name, value }),
        (any::<u32>(), proptest::sample::select(vec![Gone::Left, Gone::Dead, Gone::NeverJoined]))
            .prop_map(|(rank, gone)| Said::Status { rank: Rank(rank), gone }),
        any::<[u32; 3]>().prop_map(|[one, other, round]| Said::LostConnection {
            one: Rank(one),
            other: Rank(other),
            round
        }),
        Just(Said::Beat),
        Just(Said::Bye),
        bytes().prop_map(Said::Control),
    ]
}

proptest! {
    #[test]
    fn frames_travel(said in any_said()) {
        travels(&said);
    }
}

#[test]
fn the_layout_of_the_largest_job_fits() {
    let layout = Layout { suspect_after_ms: u32::MAX, head: Some(u16::MAX), hosts: (0..u16::MAX).collect() };
    assert!(Said::Layout(layout).encode().len() <= LONGEST);
}
