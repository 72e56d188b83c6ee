//! The frames of the rendezvous.

use onesided_remote_memory::Rank;
use proptest::prelude::*;

use super::*;
use crate::frame::tests::{name, travels};

fn from_rank_zero() -> impl Strategy<Value = FromRankZero> {
    prop_oneof![
        any::<[u8; 32]>().prop_map(|nonce| FromRankZero::Greeting { nonce }),
        (any::<[u8; 32]>(), name()).prop_map(|(proof, socket)| FromRankZero::Here { proof, socket }),
        any::<[u8; 32]>().prop_map(|proof| FromRankZero::Keep { proof }),
        Just(FromRankZero::Refused(Refusal::Size)),
        any::<u32>().prop_map(|rank| FromRankZero::Missing { rank: Rank(rank) }),
    ]
}

fn any_coming() -> impl Strategy<Value = Coming> {
    (any::<(u32, u32, [u8; 16])>(), any::<([u8; 32], [u8; 32])>())
        .prop_map(|((rank, size, host), (nonce, proof))| Coming { rank: Rank(rank), size, host, nonce, proof })
}

/// Feeds bytes in pieces, as a stream may deliver them.
fn collect(bytes: &[u8], piece: usize) -> Vec<u8> {
    let mut incoming = Incoming::default();
    let mut rest = bytes;
    while let Ok(missing @ 1..) = incoming.missing() {
        let (now, later) = rest.split_at(missing.min(piece).min(rest.len()));
        incoming.add(now);
        rest = later;
    }
    assert!(rest.is_empty(), "never reads into the next frame, nor stops before the end");
    incoming.take()
}

proptest! {
    #[test]
    fn frames_travel_in_pieces(said in from_rank_zero(), coming in any_coming(), piece in 1_usize..40) {
        travels(&said);
        travels(&coming);
        let (said, coming) = (with_length(&said), with_length(&coming));
        prop_assert!(said.len() <= LONGEST + 4 && coming.len() <= LONGEST + 4);
        prop_assert_eq!(&collect(&said, piece)[..], &said[4..]);
        prop_assert_eq!(&collect(&coming, piece)[..], &coming[4..]);
    }
}
