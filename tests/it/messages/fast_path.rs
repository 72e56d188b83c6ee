//! Messages by the fast path of two ranks.

use onesided::{Channel, FaultKind, Messages, Protocol, Rules, Tag, World};

use super::{elements, tells_of_a_death};
use crate::jobs::{self, die, ok};
use crate::support::{DEADLINE, eventually};

/// Short messages take it, long ones and those that find no slot do not; and what rank 1 wrote before it died is
/// received.
pub(super) fn dies_behind_messages(world: World) {
    let messages = Messages::new(&world).wait().unwrap();
    let (me, other) = (world.rank(), 1 - world.rank());
    messages.set_rules("rc-fp, eager, rget".parse().unwrap()).unwrap();
    let send = |elements: &[u64]| messages.send(elements, other, Tag(0)).deadline(DEADLINE).wait();
    let receive = || messages.recv::<u64>(other, Tag(0)).deadline(DEADLINE).wait().map(|(got, _)| got);
    loop {
        let is_there = messages.explain(other, 8).unwrap().protocol() == Protocol::RcFp;
        send(&[is_there.into()]).unwrap();
        if receive().unwrap() == [1] && is_there {
            break;
        }
    }
    let text = messages.explain(other, 100).unwrap().to_string();
    assert!(text.contains("> rc-fp  one packet by the fast path"), "{text}");
    messages.set_rules(Rules::default()).unwrap();
    let text = messages.explain(other, 8).unwrap().to_string();
    assert!(text.ends_with("; by the fast path"), "{text}");
    let before = messages.statistics();
    for number in 0..100 {
        let sent: Vec<_> = (0..8).map(|at| elements(me, (number * 8 + at) * 7 % 400)).collect();
        let sends: Vec<_> = sent.iter().map(|sent| messages.send(sent, other, Tag(0))).collect();
        for at in 0..8 {
            assert_eq!(receive().unwrap(), elements(other, (number * 8 + at) * 7 % 400));
        }
        sends.into_iter().for_each(|send| send.deadline(DEADLINE).wait().unwrap());
    }
    let after = messages.statistics();
    let sent = |statistics: &onesided::MessageStatistics, channel| {
        let by = statistics.messages.iter().filter(|sent| sent.channel == channel);
        by.map(|sent| sent.messages).sum::<u64>()
    };
    let by = |channel| sent(&after, channel) - sent(&before, channel);
    // How many find a slot is the hosts' affair: one in a millisecond takes the connection in any case.
    assert!(by(Channel::FastPath) > 0 && by(Channel::Connection) > 0, "{after}");
    assert_eq!((by(Channel::Datagrams), after.channels.rings), (0, 1), "{after}");
    assert!(after.to_string().contains("fast-path"), "{after}");
    if me == 1 {
        (0..5).for_each(|number| send(&[number]).unwrap());
        receive().unwrap();
        die();
    }
    assert_eq!(receive().unwrap(), [0]);
    send(&[]).unwrap();
    eventually(DEADLINE, "rank 1 counts as dead", || !world.is_alive(1));
    let error = (1..6).find_map(|number| receive().inspect(|got| assert_eq!(*got, [number])).err()).unwrap();
    assert!(tells_of_a_death(error.fault()), "{error}");
    let error = send(&[9]).unwrap_err();
    assert_ne!(error.fault().kind(), FaultKind::TimedOut, "{error}");
    ok();
}

#[test]
fn messages_take_the_fast_path_until_a_rank_dies() {
    if jobs::on_cards() && std::env::var_os("ONESIDED_MESSAGES_CHANNEL").is_none() {
        // The fabric's own tests of fast paths do without the other one, in short.
        let reliable = if jobs::is_short_on_cards() { &["on"][..] } else { &["off", "on"] };
        for &reliable in reliable {
            let settings = [
                (jobs::ROLE, "messages: fast path"),
                ("ONESIDED_MESSAGES_CHANNEL", "both"),
                ("ONESIDED_MESSAGES_CONNECT_AFTER", "1"),
                ("ONESIDED_MESSAGES_FAST_PATHS", "8"),
                ("ONESIDED_MESSAGES_RELIABLE", reliable),
            ];
            let ended = jobs::start_with(2, &settings.map(|(name, value)| (name, value.as_ref()))).wait();
            assert_eq!(ended.ok(), [0], "{ended:#?}");
        }
    }
}
