//! Planted bugs, which the exploration has to find.

use super::net::Plant;
use super::*;

/// The exploration finds a planted bug, and says this.
#[track_caller]
fn caught(plant: Plant, expected: &str) {
    let receives = vec![receive(Some(0), None), receive(None, None)];
    let programs = match plant {
        Plant::FinBeforeWrite | Plant::FinBeforePost | Plant::EarlyReuse | Plant::LostPacket(9) => {
            let pieces = vec![vec![pipeline(1, 0)], receives.clone()];
            found(plant, pieces, expected);
            vec![vec![written(1, 0), written(1, 0)], receives]
        }
        Plant::WrongOffset | Plant::NoRoom | Plant::LastLost | Plant::LostPacket(12 | 13) => {
            vec![vec![copied(1, 0)], receives]
        }
        Plant::HoleForgotten | Plant::LostPacket(16 | 17) => vec![vec![zcopied(1, 0)], receives],
        Plant::CreditTwice | Plant::LostPacket(_) | Plant::OldCredit | Plant::Untold => {
            vec![vec![eager(1, 0), eager(1, 0), eager(1, 0)], receives]
        }
        Plant::LostRest => vec![vec![sends(2, 2)], vec![sends(2, 2)], receives],
        _ => vec![vec![rendezvous(1, 0), rendezvous(1, 0)], receives],
    };
    found(plant, programs, expected);
}

#[track_caller]
fn found(plant: Plant, programs: Vec<Vec<Op>>, expected: &str) {
    let breaks = u32::from(matches!(plant, Plant::OldMessage | Plant::OldCredit | Plant::Untold));
    let budget = Budget { drops: u32::from(plant == Plant::EarlyReuse), breaks, ..NOTHING };
    let follows = plant == Plant::FinBeforePost;
    let found = explore(&Setup { tokens: tokens(&programs), programs, window: 4, budget, plant, follows });
    assert!(found.as_ref().is_err_and(|found| found.contains(expected)), "{plant:?}: {found:?}");
}

#[test]
fn planted_bugs_are_caught() {
    for (plant, expected) in [
        (Plant::FinBeforeRead, "FIN before the read"),
        (Plant::FinBeforeWrite, "FIN before the end of the write"),
        (Plant::FinBeforePost, "FIN before the write"),
        (Plant::EarlyReuse, "came back before the FIN"),
        (Plant::LostPacket(9), "does not end"), // the FIN of a write
        (Plant::OldMessage, "has lost"),
        (Plant::OldCredit, "credit of unexpected messages"),
        (Plant::Untold, "nobody is told"),
        (Plant::TwoFins, "a second FIN"),
        (Plant::CreditTwice, "credit of unexpected messages"),
        (Plant::EarlyReturn, "was given back before its read"),
        (Plant::WrongOffset, "has lost"),
        (Plant::NoRoom, "no room for"),
        (Plant::LostPacket(13), "does not end"), // DATA
        (Plant::LastLost, "has lost"),
        (Plant::LostPacket(12), "credit given back"), // room for it
        (Plant::HoleForgotten, "FIN without a read"),
        (Plant::LostPacket(16), "does not end"), // SENT
        (Plant::LostPacket(17), "does not end"), // what is missing
        (Plant::LostRest, "the rest comes first"),
        (Plant::LostWake, "does not end"),
        (Plant::LostPacket(4), "credit given back"), // CREDIT
    ] {
        caught(plant, expected);
    }
}

/// Grants are cumulative.
#[test]
fn a_repeated_credit_does_no_harm() {
    let programs = vec![vec![eager(1, 0), eager(1, 0), eager(1, 0)], vec![receive(None, Some(0)), receive(None, None)]];
    let setup = Setup { programs, window: 4, tokens: 1, budget: NOTHING, plant: Plant::RepeatedCredit, follows: false };
    assert!(explore(&setup).unwrap() > 1_000);
}
