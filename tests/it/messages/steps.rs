//! A rank that dies in the middle of an exchange by every protocol.

#[path = "../../messages/support/exchange.rs"]
mod exchange;

use std::pin::pin;
use std::time::Duration;

use onesided::{Messages, World};
use onesided_fabric::{block_on, poll_now};

use self::exchange::exchange;
use super::tells_of_a_death;
use crate::jobs::{self, die, ok};

/// Who dies, and after how many polls.
const DEATH: &str = "ONESIDED_TEST_DEATH";

pub(super) fn one_dies(world: World) {
    let death = std::env::var(DEATH).unwrap();
    let (dead, polls) = death.split_once(' ').unwrap();
    let (dead, polls): (u32, u32) = (dead.parse().unwrap(), polls.parse().unwrap());
    let messages = Messages::new(&world).wait().unwrap();
    let mut exchange = pin!(exchange(&messages));
    if world.rank() == dead {
        for _ in 0..polls {
            if poll_now(world.fabric(), &mut exchange).is_ready() {
                break;
            }
            std::thread::sleep(Duration::from_micros(200)); // the other goes on
        }
        die();
    }
    if let Err(error) = block_on(world.fabric(), exchange) {
        let fault = error.fault();
        assert!(tells_of_a_death(fault) && fault.rank().is_some_and(|rank| rank.0 == dead), "{error}");
    }
    ok();
}

#[test]
fn a_rank_may_die_at_any_step_of_an_exchange() {
    // On shared memory it is over after about twelve.
    let most = if jobs::is_short_on_cards() { 2 } else { 13 };
    for (dead, polls) in (0..most).flat_map(|polls| [(0, polls), (1, polls)]) {
        let ended = jobs::start_under(2, "messages: dies in an exchange", (DEATH, &format!("{dead} {polls}"))).wait();
        assert_eq!(ended.ok(), [1 - dead], "rank {dead} after {polls} polls: {ended:#?}");
    }
}
