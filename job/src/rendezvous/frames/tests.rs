//! The frames of the rendezvous.

use onesided_remote_memory::Rank;
use proptest::prelude::*;

use super::*;

fn from_rank_zero() -> impl Strategy<Value = FromRankZero> {
    prop_oneof![
        any::<[u8; 32]>().prop_map(|nonce| FromRankZero::Greeting { nonce }),
        (any::<[u8; 32]>(), "[!-~]{1,64}").prop_map(|(proof, socket)| FromRankZero::Here { proof, socket }),
        any::<[u8; 32]>().prop_map(|proof| FromRankZero::Keep { proof }),
        (1_u16..=5).prop_map(|code| FromRankZero::Refused(Refusal::from_code(code).unwrap())),
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
        prop_assert!(said.encode().len() <= LONGEST + 4 && coming.encode().len() <= LONGEST + 4);
        prop_assert_eq!(FromRankZero::decode(&collect(&said.encode(), piece)), Ok(said));
        prop_assert_eq!(Coming::decode(&collect(&coming.encode(), piece)), Ok(coming));
    }

    #[test]
    fn no_bytes_are_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), said in from_rank_zero(), cut in 0_usize..200) {
        let _ = (FromRankZero::decode(&bytes), Coming::decode(&bytes));
        let whole = &said.encode()[4..];
        if cut < whole.len() {
            prop_assert!(FromRankZero::decode(&whole[..cut]).is_err());
        }
        prop_assert!(FromRankZero::decode(&[whole, &[0]].concat()).is_err());
    }
}
