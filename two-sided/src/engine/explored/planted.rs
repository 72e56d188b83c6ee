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
fn a_fin_before_the_read_is_caught() {
    caught(Plant::FinBeforeRead, "FIN before the read");
}

#[test]
fn a_fin_before_the_end_of_the_write_is_caught() {
    caught(Plant::FinBeforeWrite, "FIN before the end of the write");
}

#[test]
fn a_fin_before_the_post_of_the_write_is_caught() {
    caught(Plant::FinBeforePost, "FIN before the write");
}

#[test]
fn exposed_memory_that_is_used_early_is_caught() {
    caught(Plant::EarlyReuse, "came back before the FIN");
}

#[test]
fn a_lost_fin_of_a_write_is_caught() {
    caught(Plant::LostPacket(9), "does not end");
}

#[test]
fn a_message_of_a_broken_connection_that_is_taken_for_a_new_one_is_caught() {
    caught(Plant::OldMessage, "has lost");
}

#[test]
fn credit_of_a_broken_connection_is_caught() {
    caught(Plant::OldCredit, "credit of unexpected messages");
}

#[test]
fn a_missing_message_that_nobody_is_told_of_is_caught() {
    caught(Plant::Untold, "nobody is told");
}

#[test]
fn a_second_fin_is_caught() {
    caught(Plant::TwoFins, "a second FIN");
}

#[test]
fn credit_that_is_given_twice_is_caught() {
    caught(Plant::CreditTwice, "credit of unexpected messages");
}

#[test]
fn memory_that_is_given_back_early_is_caught() {
    caught(Plant::EarlyReturn, "was given back before its read");
}

#[test]
fn data_at_another_offset_is_caught() {
    caught(Plant::WrongOffset, "has lost");
}

#[test]
fn data_without_room_is_caught() {
    caught(Plant::NoRoom, "no room for");
}

#[test]
fn lost_data_and_lost_room_are_caught() {
    caught(Plant::LostPacket(13), "does not end");
    caught(Plant::LastLost, "has lost");
    caught(Plant::LostPacket(12), "credit given back");
}

#[test]
fn a_forgotten_rest_of_a_packet_is_caught() {
    caught(Plant::LostRest, "the rest comes first");
}

#[test]
fn a_lost_wake_is_caught() {
    caught(Plant::LostWake, "does not end");
}

#[test]
fn a_lost_packet_is_caught() {
    caught(Plant::LostPacket(4), "credit given back");
}

/// Grants are cumulative.
#[test]
fn a_repeated_credit_does_no_harm() {
    let programs = vec![vec![eager(1, 0), eager(1, 0), eager(1, 0)], vec![receive(None, Some(0)), receive(None, None)]];
    let setup = Setup { programs, window: 4, tokens: 1, budget: NOTHING, plant: Plant::RepeatedCredit, follows: false };
    assert!(explore(&setup).unwrap() > 1_000);
}
