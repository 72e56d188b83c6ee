//! Long messages among more short ones than a receiver has room for.

use std::time::Duration;

use onesided::fabric::bootstrap::STATISTICS;
use onesided::{Messages, Tag, World};

use super::elements;
use crate::jobs::{self, ok};
use crate::support::DEADLINE;

/// Two ranks wait for a long message from one another, which came before more short ones than a card
/// has receives and places in a send queue for.
pub(super) fn both_wait(world: World) {
    const MANY: u64 = 1_400;
    let messages = Messages::new(&world).wait().unwrap();
    let (me, other) = (world.rank(), 1 - world.rank());
    let (long, numbers) = (elements(me, 1 << 13), (0..MANY).collect::<Vec<_>>());
    let receive = messages.recv::<u64>(other, Tag(0));
    let first = messages.send(&long, other, Tag(0));
    let sends: Vec<_> = numbers.chunks(1).map(|number| messages.send(number, other, Tag(1))).collect();
    // Until they have arrived: nothing is taken in meanwhile.
    std::thread::sleep(Duration::from_millis(200));
    assert!(receive.deadline(DEADLINE).wait().unwrap().0 == elements(other, 1 << 13));
    for number in 0..MANY {
        assert_eq!(messages.recv::<u64>(other, Tag(1)).deadline(DEADLINE).wait().unwrap().0, [number]);
    }
    sends.into_iter().chain([first]).for_each(|send| send.deadline(DEADLINE).wait().unwrap());
    ok();
}

/// All messages arrive, and the launcher adds up what the ranks say of them.
#[test]
fn long_messages_come_before_floods_both_ways_and_are_summed() {
    let ended = jobs::start_under(2, "messages: both wait", (STATISTICS, "1")).wait();
    assert_eq!((ended.code, ended.ok()), (0, vec![0, 1]), "{ended:#?}");
    let sent: Vec<u64> = ended
        .lines
        .iter()
        .filter_map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            let [_, "eager", "<=", "64", count, _] = words[..] else { return None };
            count.parse().ok()
        })
        .collect();
    assert!(sent.iter().sum::<u64>() >= 2_800, "{ended:#?}");
    assert!(!ended.lines.iter().any(|line| line.contains("statistics: ")), "{ended:#?}");
}
