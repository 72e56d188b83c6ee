//! Messages whose datagrams are received into their memory (UD-ZCopy).

use std::time::Duration;

use onesided::{ChannelCounts, FaultKind, MessageStatistics, Messages, Protocol, Tag, World};

use super::{elements, tells_of_a_death};
use crate::jobs::{self, die, ok};
use crate::support::{DEADLINE, eventually};

/// From one datagram to several thousand, and one that is too long.
const LENGTHS: [usize; 7] = [200, 1_000, 100_000, 131_072, 1_000, 131_071, 1 << 20];

fn messages_by_zcopy(world: &World) -> Messages {
    let messages = Messages::new(world).wait().unwrap();
    messages.set_rules("size<=1000: eager, ud-zcopy".parse().unwrap()).unwrap();
    let text = messages.explain(1 - world.rank(), 1 << 20).unwrap().to_string();
    assert!(text.starts_with("1048576 bytes to rank") && text.contains("> ud-zcopy"), "{text}");
    messages
}

fn begun(statistics: &MessageStatistics) -> u64 {
    let by = statistics.messages.iter().filter(|sent| sent.protocol == Protocol::UdZcopy);
    by.map(|sent| sent.messages).sum()
}

/// Many at once, into memory of the library and of the program; and some whose receive is dropped while they move.
fn exchange(world: &World) -> Messages {
    let messages = messages_by_zcopy(world);
    let (me, other) = (world.rank(), 1 - world.rank());
    let receive = |tag| messages.recv::<u64>(other, tag).deadline(DEADLINE).wait().map(|(got, _)| got);
    assert_eq!(messages.explain(other, u64::MAX >> 2).unwrap().protocol(), Protocol::Copy);
    for len in LENGTHS {
        let sent = [0, 1].map(|more| elements(me + more, len));
        let sends = sent.each_ref().map(|sent| messages.send(sent, other, Tag(0)));
        for more in [0, 1] {
            assert!(receive(Tag(0)).unwrap() == elements(other + more, len), "{len} elements");
        }
        sends.into_iter().for_each(|send| send.deadline(DEADLINE).wait().unwrap());
        let [out, into] = [elements(me, len), vec![7; len]].map(|elements| messages.buffer_of(elements));
        let into = messages.recv_buffer(into, other, Tag(1));
        let send = messages.send_buffer(out, other, Tag(1));
        let (into, _) = into.deadline(DEADLINE).wait().unwrap();
        assert!(into.read(0..len) == elements(other, len), "{len} elements");
        assert!(send.deadline(DEADLINE).wait().unwrap().into_vec().unwrap() == elements(me, len));
    }
    // More than there are queue pairs for.
    let sent: Vec<_> = (0..12).map(|at| elements(me + at, 20_000)).collect();
    let sends: Vec<_> = sent.iter().map(|sent| messages.send(sent, other, Tag(2))).collect();
    let receives: Vec<_> = (0..12).map(|_| messages.recv::<u64>(other, Tag(2))).collect();
    for (at, receive) in (0..).zip(receives) {
        assert!(receive.deadline(DEADLINE).wait().unwrap().0 == elements(other + at, 20_000), "{at}");
    }
    sends.into_iter().for_each(|send| send.deadline(DEADLINE).wait().unwrap());
    // Its message goes to the next receive, and the queue pair to the next message.
    for _ in 0..5 {
        let send = messages.send(&sent[0], other, Tag(3));
        let dropped = messages.recv_buffer(messages.buffer::<u64>(20_000).unwrap(), other, Tag(3));
        world.barrier().wait().unwrap();
        drop(dropped);
        assert!(receive(Tag(3)).unwrap() == elements(other, 20_000));
        send.deadline(DEADLINE).wait().unwrap();
    }
    let statistics = messages.statistics();
    let ChannelCounts { landed, moved, .. } = statistics.channels;
    assert!(begun(&statistics) > 0 && landed + moved > 0, "{statistics}");
    eprintln!("{statistics}");
    messages
}

pub(super) fn lands(world: World) {
    let _messages = exchange(&world);
    world.barrier().wait().unwrap();
    ok();
}

/// After that rank 1 dies under a message in each direction.
pub(super) fn dies_between_datagrams(world: World) {
    let messages = exchange(&world);
    let (me, other) = (world.rank(), 1 - world.rank());
    let sent = elements(me, 400_000);
    let send = messages.send(&sent, other, Tag(4));
    let into = messages.recv_buffer(messages.buffer_of(vec![0_u64; 400_000]), other, Tag(4));
    world.barrier().wait().unwrap();
    if me == 1 {
        let _ = send.deadline(Duration::from_millis(3)).wait();
        die();
    }
    match into.deadline(DEADLINE).wait() {
        Ok((into, _)) => assert!(into.read(0..400_000) == elements(1, 400_000)),
        Err(error) => assert!(tells_of_a_death(error.fault()), "{error}"),
    }
    if let Err(error) = send.deadline(DEADLINE).wait() {
        assert_ne!(error.fault().kind(), FaultKind::TimedOut, "{error}");
    }
    eventually(DEADLINE, "rank 1 counts as dead", || !world.is_alive(1));
    assert!(messages.send(&sent, 1, Tag(0)).deadline(DEADLINE).wait().is_err());
    ok();
}

#[test]
fn messages_come_as_datagrams_into_their_memory_until_a_rank_dies() {
    if jobs::on_cards() && std::env::var_os("ONESIDED_MESSAGES_CHANNEL").is_none() {
        // Without a death, datagrams alone carry them between two machines.
        let channels = if jobs::is_short_on_cards() { &["both"][..] } else { &["ud", "both"] };
        for &channel in channels {
            let settings = [(jobs::ROLE, "messages: zcopy until a death"), ("ONESIDED_MESSAGES_CHANNEL", channel)];
            let ended = jobs::start_with(2, &settings.map(|(name, value)| (name, value.as_ref()))).wait();
            assert_eq!(ended.ok(), [0], "{ended:#?}");
        }
    }
}
