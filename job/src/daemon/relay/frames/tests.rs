//! The frames of the control relay.

use onesided_remote_memory::Rank;
use proptest::prelude::*;

use super::*;
use crate::protocol::FromDaemon;

fn any_said() -> impl Strategy<Value = Said> {
    let name = || "[!-~]{1,64}";
    let bytes = || proptest::collection::vec(any::<u8>(), 0..300);
    let layout = (any::<u32>(), proptest::option::of(0..u16::MAX), proptest::collection::vec(any::<u16>(), 0..40));
    prop_oneof![
        layout.prop_map(|(suspect_after_ms, head, hosts)| Said::Layout(Layout { suspect_after_ms, head, hosts })),
        name().prop_map(|socket| Said::Ready { socket }),
        (any::<u64>(), name(), bytes()).prop_map(|(ticket, name, value)| Said::Put { ticket, name, value }),
        (any::<u64>(), 0..=7_u16).prop_map(|(ticket, code)| {
            let outcome = if code == 0 { Ok(()) } else { Err(Failure::from_code(code, Rank(0)).unwrap()) };
            Said::Stored { ticket, outcome }
        }),
        (name(), bytes()).prop_map(|(name, value)| Said::Value { name, value }),
        (any::<u32>(), any::<bool>()).prop_map(|(rank, left)| {
            Said::Status { rank: Rank(rank), gone: if left { Gone::Left } else { Gone::Dead } }
        }),
        (any::<u32>(), any::<u32>())
            .prop_map(|(one, other)| Said::LostConnection { one: Rank(one), other: Rank(other) }),
        Just(Said::Beat),
        Just(Said::Bye),
        (512..=767_u16, bytes()).prop_map(|(kind, fields)| Said::Control { kind, fields }),
    ]
}

proptest! {
    #[test]
    fn frames_travel(said in any_said(), cut in 0_usize..100) {
        let frame = said.encode();
        prop_assert_eq!(Said::decode(&frame), Ok(said.clone()));
        prop_assert!(FromDaemon::decode(&frame).is_err());
        let shorter = &frame[..frame.len().saturating_sub(cut + 1)];
        prop_assert!(Said::decode(shorter) != Ok(said));
    }

    /// Whatever decodes encodes to the same bytes.
    #[test]
    fn no_bytes_are_a_panic(kind in 250..520_u16, rest in proptest::collection::vec(any::<u8>(), 0..120)) {
        let frame = frame(kind, &[&rest]);
        if let Ok(said) = Said::decode(&frame) {
            prop_assert_eq!(said.encode(), frame);
        }
    }
}
