//! Frames that travel, and hostile ones.

use std::fmt::{self, Debug};

use onesided_remote_memory::RegionId;
use proptest::prelude::*;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::*;
use crate::daemon::relay::Said;
use crate::protocol::{FromDaemon, FromRank};
use crate::rendezvous::frames::{Coming, FromRankZero};

/// A frame travels whole or not at all, and is no frame of another protocol.
pub(crate) fn travels<M: Frame + Debug + PartialEq>(message: &M) {
    let frame = message.encode();
    assert_eq!(M::decode(&frame).as_ref(), Ok(message));
    for cut in 0..frame.len() {
        assert!(M::decode(&frame[..cut]).is_err(), "{message:?} cut after {cut}");
    }
    assert_eq!(M::decode(&[&frame[..], &[0]].concat()), Err(Malformed::Long(1)));
    let mut other = frame;
    other[6] += 1;
    assert_eq!(M::decode(&other), Err(Malformed::Protocol(M::PROTOCOL + 1)));
}

pub(crate) fn name() -> impl Strategy<Value = Name> {
    "[!-~]{1,64}".prop_map(Name)
}

pub(crate) fn bytes() -> impl Strategy<Value = Bytes> {
    proptest::collection::vec(any::<u8>(), 0..300).prop_map(Bytes)
}

/// Arbitrary bytes behind a good header are an error or a message.
pub(crate) fn hostile<M: Frame + Debug + PartialEq>(message: &[u8]) {
    if let Ok(message) = M::decode(&[&header(M::PROTOCOL)[..], message].concat()) {
        assert_eq!(M::decode(&message.encode()), Ok(message));
    }
}

proptest! {
    #[test]
    fn no_bytes_are_a_panic(kind in 0_u8..12, rest in proptest::collection::vec(any::<u8>(), 0..200)) {
        let message = [&[kind], &rest[..]].concat();
        hostile::<FromDaemon>(&message);
        hostile::<FromRank>(&message);
        hostile::<FromRankZero>(&message);
        hostile::<Coming>(&message);
        hostile::<Said>(&message);
        prop_assert_eq!(Said::decode(&rest), Err(Malformed::Magic));
    }
}

#[test]
fn each_part_of_the_header_is_checked() {
    let good = FromRank::Retract { region: RegionId(7) }.encode();
    let with = |at: usize, byte: u8| {
        let mut bad = good.clone();
        bad[at] = byte;
        FromRank::decode(&bad)
    };
    assert!((0..4).all(|at| with(at, b'x') == Err(Malformed::Magic)));
    assert_eq!(with(4, 9), Err(Malformed::Version(9)));
    assert_eq!(with(5, 1), Err(Malformed::Version(VERSION + 256)));
    assert!(matches!(with(7, 200), Err(Malformed::Message(_))));
    let numbers = [FromDaemon::PROTOCOL, FromRank::PROTOCOL, FromRankZero::PROTOCOL, Coming::PROTOCOL, Said::PROTOCOL];
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
}

/// The frame of the version before this one.
#[test]
fn another_version_is_named() {
    let error = FromRank::decode(b"1SID\x03\x00\x81\x00 and so on").unwrap_err();
    assert_eq!(error.to_string(), "version 3 of the protocol, this program speaks version 7");
}

#[test]
fn names_and_bytes_have_bounds() {
    let put = |name: &str, len| FromRank::Put { name: Name(name.to_owned()), value: Bytes(vec![0; len]) }.encode();
    let longest = put(&"n".repeat(MAX_NAME), MAX_VALUE);
    assert!(longest.len() <= MAX_FRAME && FromRank::decode(&longest).is_ok());
    for bad in ["", " ", "a b", "\n", "\u{e9}", &"n".repeat(MAX_NAME + 1)] {
        assert!(matches!(FromRank::decode(&put(bad, 0)), Err(Malformed::Message(_))), "{bad:?}");
    }
    assert!(matches!(FromRank::decode(&put("n", MAX_VALUE + 1)), Err(Malformed::Message(_))));
}

/// The length that a sequence claims to those who allocate for it.
#[derive(Debug, PartialEq)]
struct Claimed(Option<usize>);

impl<'de> Deserialize<'de> for Claimed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Claim;
        impl<'de> Visitor<'de> for Claim {
            type Value = Claimed;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sequence")
            }

            fn visit_seq<S: SeqAccess<'de>>(self, sequence: S) -> Result<Claimed, S::Error> {
                Ok(Claimed(sequence.size_hint()))
            }
        }
        deserializer.deserialize_seq(Claim)
    }
}

const HUGE: [u8; 10] = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];

/// The message begins like this, and a length is next.
pub(crate) fn refuses_a_false_length<M: Frame + Debug + PartialEq>(begin: &[u8]) {
    let frame = [&header(M::PROTOCOL)[..], begin, &HUGE, &[0; 4]].concat();
    assert_eq!(M::decode(&frame), Err(Malformed::Message(postcard::Error::DeserializeUnexpectedEnd)));
}

/// A length that the frame does not have reserves no memory and is an error. Each element takes at
/// least a byte of the frame.
#[test]
fn a_false_length_allocates_nothing() {
    let claimed = |bytes: &[u8]| postcard::take_from_bytes::<Claimed>(bytes).unwrap().0;
    assert_eq!(claimed(&HUGE), Claimed(None));
    assert_eq!((claimed(&[3, 0, 0]), claimed(&[2, 0, 0])), (Claimed(None), Claimed(Some(2))));
    refuses_a_false_length::<FromDaemon>(&[4]); // of a value
    refuses_a_false_length::<FromRank>(&[1]); // of a name
    refuses_a_false_length::<FromRank>(&[1, 1, b'n']); // of the value after it
    refuses_a_false_length::<Said>(&[0, 1, 0]); // of hosts
    refuses_a_false_length::<Said>(&[10]); // of a control message
}
