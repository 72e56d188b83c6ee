use proptest::prelude::*;

use super::*;

fn from_rank() -> impl Strategy<Value = FromRank> {
    let name = "[!-~]{1,64}";
    let value = proptest::collection::vec(any::<u8>(), 0..200);
    prop_oneof![
        (any::<u32>(), any::<Nonce>(), any::<Proof>()).prop_map(|(rank, nonce, proof)| FromRank::Hello {
            rank: Rank(rank),
            nonce,
            proof
        }),
        (name, value).prop_map(|(name, value)| FromRank::Put { name, value }),
        (name, any::<u64>()).prop_map(|(name, patience_ms)| FromRank::Get { name, patience_ms }),
        any::<u32>().prop_map(|region| FromRank::Publish { region: RegionId(region) }),
        any::<u32>().prop_map(|region| FromRank::Retract { region: RegionId(region) }),
        any::<[u32; 2]>().prop_map(|[rank, region]| FromRank::Fetch { rank: Rank(rank), region: RegionId(region) }),
    ]
}

fn from_launcher() -> impl Strategy<Value = FromDaemon> {
    let refusals = Refusal::ALL.map(|(_, refusal)| refusal);
    let failure = (1..=7_u16, any::<u32>()).prop_map(|(code, rank)| {
        let rank = if code == 3 { rank } else { 0 };
        Failure::from_code(code, Rank(rank)).unwrap()
    });
    prop_oneof![
        any::<Nonce>().prop_map(|nonce| FromDaemon::Challenge { nonce }),
        (any::<u32>(), any::<Proof>()).prop_map(|(size, proof)| FromDaemon::Welcome { size, proof }),
        proptest::sample::select(refusals.to_vec()).prop_map(FromDaemon::Refused),
        Just(FromDaemon::Done),
        proptest::collection::vec(any::<u8>(), 0..200).prop_map(FromDaemon::Value),
        Just(FromDaemon::Memory),
        failure.prop_map(FromDaemon::Failed),
    ]
}

proptest! {
    #[test]
    fn ranks_frames_travel(said in from_rank()) {
        prop_assert_eq!(FromRank::decode(&said.encode()), Ok(said));
    }

    #[test]
    fn launchers_frames_travel(said in from_launcher()) {
        prop_assert_eq!(FromDaemon::decode(&said.encode()), Ok(said));
    }

    #[test]
    fn one_side_does_not_pass_for_the_other(rank in from_rank(), launcher in from_launcher()) {
        prop_assert!(matches!(FromDaemon::decode(&rank.encode()), Err(Malformed::Kind(_))));
        prop_assert!(matches!(FromRank::decode(&launcher.encode()), Err(Malformed::Kind(_))));
    }

    /// Whatever decodes encodes to the same bytes: a frame has one form, and no byte is ignored.
    #[test]
    fn garbage_is_refused_or_canonical(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), kind in any::<u8>(), signed in any::<bool>()) {
        if signed && bytes.len() >= 8 {
            bytes[..8].copy_from_slice(&frame(kind.into(), &[]));
        }
        if let Ok(said) = FromRank::decode(&bytes) {
            prop_assert_eq!(said.encode(), bytes.clone());
        }
        if let Ok(said) = FromDaemon::decode(&bytes) {
            // A failure that concerns no rank ignores the rank field.
            prop_assert!(said.encode() == bytes || matches!(said, FromDaemon::Failed(_)));
        }
    }

    #[test]
    fn a_truncated_frame_is_never_taken_for_the_whole(said in from_rank(), cut in any::<prop::sample::Index>()) {
        let whole = said.encode();
        let part = &whole[..cut.index(whole.len())];
        prop_assert_ne!(FromRank::decode(part), Ok(said));
    }
}

#[test]
fn each_field_is_checked() {
    let good = FromRank::Fetch { rank: Rank(1), region: RegionId(2) }.encode();
    let with = |at: usize, byte: u8| {
        let mut bad = good.clone();
        bad[at] = byte;
        FromRank::decode(&bad)
    };
    assert_eq!(with(0, b'2'), Err(Malformed::Magic));
    assert_eq!(with(4, 9), Err(Malformed::Version(9)));
    assert_eq!(with(6, 200), Err(Malformed::Kind(200)));
    assert_eq!(FromRank::decode(&good[..14]), Err(Malformed::Short(2)));
    assert_eq!(FromRank::decode(&[&good[..], &[0]].concat()), Err(Malformed::Long(1)));
    assert_eq!(FromRank::decode(&[]), Err(Malformed::Short(4)));
    assert_eq!(FromRank::decode(&frame(130, &[&[0]])), Err(Malformed::Name));
    assert_eq!(FromRank::decode(&frame(130, &[&[1], b" "])), Err(Malformed::Name));
    assert_eq!(FromRank::decode(&frame(130, &[&[65], &[b'a'; 65]])), Err(Malformed::Name));
    assert_eq!(FromRank::decode(&frame(130, &[&[5], b"abc"])), Err(Malformed::Short(2)));
    assert_eq!(FromRank::decode(&frame(130, &[&[1], b"a", &[0; MAX_VALUE + 3]])), Err(Malformed::Long(3)));
    assert_eq!(FromDaemon::decode(&frame(3, &[&[99, 0]])), Err(Malformed::Reason(99)));
    let longest = FromRank::Put { name: "n".repeat(MAX_NAME), value: vec![0; MAX_VALUE] }.encode();
    assert!(longest.len() <= MAX_FRAME && FromRank::decode(&longest).is_ok());
}
