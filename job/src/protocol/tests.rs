use proptest::prelude::*;

use super::*;
use crate::frame::tests::{bytes, name, travels};

fn from_rank() -> impl Strategy<Value = FromRank> {
    prop_oneof![
        (any::<u32>(), any::<Nonce>(), any::<Proof>()).prop_map(|(rank, nonce, proof)| FromRank::Hello {
            rank: Rank(rank),
            nonce,
            proof
        }),
        (name(), bytes()).prop_map(|(name, value)| FromRank::Put { name, value }),
        (name(), any::<u64>()).prop_map(|(name, patience_ms)| FromRank::Get { name, patience_ms }),
        any::<u32>().prop_map(|region| FromRank::Publish { region: RegionId(region) }),
        any::<u32>().prop_map(|region| FromRank::Retract { region: RegionId(region) }),
        any::<[u32; 2]>().prop_map(|[rank, region]| FromRank::Fetch { rank: Rank(rank), region: RegionId(region) }),
    ]
}

fn from_daemon() -> impl Strategy<Value = FromDaemon> {
    let refusals = [Refusal::Secret, Refusal::NoSuchRank, Refusal::Taken, Refusal::Malformed, Refusal::Size];
    prop_oneof![
        any::<Nonce>().prop_map(|nonce| FromDaemon::Challenge { nonce }),
        (any::<u32>(), any::<Proof>()).prop_map(|(size, proof)| FromDaemon::Welcome { size, proof }),
        proptest::sample::select(refusals.to_vec()).prop_map(FromDaemon::Refused),
        Just(FromDaemon::Done),
        bytes().prop_map(FromDaemon::Value),
        Just(FromDaemon::Memory),
        Just(FromDaemon::Failed(Failure::Full)),
        any::<u32>().prop_map(|rank| FromDaemon::Failed(Failure::PeerDied(Rank(rank)))),
    ]
}

proptest! {
    #[test]
    fn frames_travel(rank in from_rank(), daemon in from_daemon()) {
        travels(&rank);
        travels(&daemon);
    }
}
