//! Messages between processes, and what a death or a stop of one does to the others.

mod fast_path;
mod floods;
mod own_memory;
mod packets;
mod rails;
mod steps;
mod stopped;
mod zcopy;

use std::time::Duration;

use onesided::{Fault, FaultKind, Messages, Protocol, Source, Tag, Window, World};
use onesided_fabric::remote_memory::Rank;
use onesided_fabric::{Fabric, Segment, SegmentKey, block_on};

use crate::collectives::steps::repeated;
use crate::jobs::{self, Role, die, ok};
use crate::support::{DEADLINE, eventually};

pub(crate) const ROLES: &[Role] = &[
    ("messages: ring", ring),
    ("messages: sender dies between pieces", |world| one_dies(&world, sender_dies_between_pieces)),
    ("messages: receiver dies between pieces", |world| one_dies(&world, receiver_dies_between_pieces)),
    ("messages: no more memory at one", |world| packets::no_more_memory(&world, &[1])),
    ("messages: no more memory at both", |world| packets::no_more_memory(&world, &[0, 1])),
    ("messages: sender dies", |world| one_dies(&world, sender_dies)),
    ("messages: receiver dies", |world| one_dies(&world, receiver_dies)),
    ("messages: connection breaks", connection_breaks),
    ("messages: kept", kept_messages),
    ("messages: fast path", fast_path::dies_behind_messages),
    ("messages: zcopy", zcopy::lands),
    ("messages: zcopy until a death", zcopy::dies_between_datagrams),
    ("messages: receiver stops", stopped::receiver_stops),
    ("messages: both wait", floods::both_wait),
    ("messages: device fails", rails::device_fails),
    ("messages: mapped again", own_memory::mapped_again),
    ("messages: rules", packets::rules),
    ("messages: dies in an exchange", steps::one_dies),
    ("messages: wrong rules of one", packets::wrong_rules_of_one),
    ("messages: receiver waits for a lock", receiver_waits_for_a_lock),
];

/// Eager and rendezvous messages: while the memory of a long one is opened, another one is announced.
const LENGTHS: [usize; 7] = [0, 3, 4, 1_000, 100_000, 100_000, 1];

pub(crate) fn elements(rank: u32, len: usize) -> Vec<u64> {
    repeated(len, |at| at as u64 * 1_000 + u64::from(rank))
}

/// By each protocol.
fn ring(world: World) {
    for rendezvous in [Protocol::Rget, Protocol::Rput, Protocol::Pipeline, Protocol::UdZcopy, Protocol::Copy] {
        ring_by(&world, Some(rendezvous));
    }
    ok();
}

/// By the rules of the environment, if no protocol is given.
pub(crate) fn ring_by(world: &World, rendezvous: Option<Protocol>) {
    let messages = Messages::new(world).wait().unwrap();
    if let Some(rendezvous) = rendezvous {
        messages.set_rendezvous(rendezvous);
    }
    let (me, all) = (world.rank(), world.size());
    let rounds = if jobs::is_short_on_cards() { 2 } else { 20 };
    for _ in 0..rounds {
        let sent: Vec<_> = LENGTHS.iter().map(|len| elements(me, *len)).collect();
        let sends: Vec<_> = sent.iter().map(|elements| messages.send(elements, (me + 1) % all, Tag(1))).collect();
        for len in LENGTHS {
            let (got, _) = messages.recv::<u64>((me + all - 1) % all, Tag(1)).deadline(DEADLINE).wait().unwrap();
            assert!(got == elements((me + all - 1) % all, len), "{len} elements");
        }
        sends.into_iter().for_each(|send| send.wait().unwrap());
    }
    // Registered memory on both sides: the library's, and the program's.
    let (before, behind) = ((me + all - 1) % all, (me + 1) % all);
    for (len, is_own) in LENGTHS.into_iter().flat_map(|len| [(len, false), (len, true)]) {
        let mut buffers = [(); 2].map(|()| match is_own {
            false => messages.buffer::<u64>(len).unwrap(),
            true => messages.buffer_of(vec![0; len]),
        });
        for round in 0..rounds.min(4) {
            let [mut out, into] = buffers;
            out.write(0, &elements(me + round, len));
            let send = messages.send_buffer(out, behind, Tag(3));
            let (into, _) = messages.recv_buffer(into, before, Tag(3)).deadline(DEADLINE).wait().unwrap();
            assert!(into.read(0..len) == elements(before + round, len), "{len} elements");
            buffers = [send.deadline(DEADLINE).wait().unwrap(), into];
        }
        let rounds = rounds.min(4) - 1;
        let [out, into] = buffers.map(|buffer| buffer.into_vec().unwrap());
        assert!(out == elements(me + rounds, len) && into == elements(before + rounds, len), "{len} elements");
    }
    // Everybody to rank 0, which does not know who comes first.
    messages.send(&elements(me, 1_000), 0, Tag(2)).wait_timeout(Duration::ZERO).unwrap();
    if me == 0 {
        let mut from: Vec<_> = (0..all)
            .map(|_| {
                let (got, status) = messages.recv::<u64>(Source::Any, Tag(2)).deadline(DEADLINE).wait().unwrap();
                assert_eq!(got, elements(status.source, 1_000));
                status.source
            })
            .collect();
        from.sort_unstable();
        assert!(from.into_iter().eq(0..all));
    }
    world.barrier().wait().unwrap();
}

/// A barrier that all ranks have left when it is over at rank 0: a rank that is still in one fails
/// when another dies.
fn barrier(world: &World, messages: &Messages) {
    world.barrier().wait().unwrap();
    if world.rank() == 0 {
        for _ in 1..world.size() {
            messages.recv::<u8>(Source::Any, Tag(12)).deadline(DEADLINE).wait().unwrap();
        }
    } else {
        messages.send(&[0_u8], 0, Tag(12)).wait().unwrap();
    }
}

/// Whether this tells of a death: over cards the connection may be lost before the death is known.
fn tells_of_a_death(fault: Fault) -> bool {
    fault.kind() == FaultKind::PeerDied || jobs::on_cards() && fault.kind() == FaultKind::ConnectionLost
}

/// Rank 0 dies by `end`; ranks 1 and 2 see it there, and go on with each other.
fn one_dies(world: &World, end: fn(&World, &Messages)) {
    let messages = Messages::new(world).wait().unwrap();
    end(world, &messages);
    let other = 3 - world.rank();
    let sent = elements(world.rank(), 5_000);
    let send = messages.send(&sent, other, Tag(9));
    let (got, _) = messages.recv::<u64>(other, Tag(9)).deadline(DEADLINE).wait().unwrap();
    assert_eq!(got, elements(other, 5_000));
    send.wait().unwrap();
    let error = messages.recv::<u64>(Source::Any, Tag(11)).deadline(DEADLINE).wait().unwrap_err();
    assert_eq!((error.fault().kind(), error.fault().rank().map(|rank| rank.0)), (FaultKind::PeerDied, Some(0)));
    assert_eq!(messages.acknowledge_failures(), [0]);
    let late = messages.recv::<u64>(Source::Any, Tag(11)).deadline(Duration::from_millis(50)).wait();
    assert!(late.unwrap_err().is_timed_out());
    // Until then nobody leaves.
    messages.send(&[1_u8], other, Tag(10)).wait().unwrap();
    messages.recv::<u8>(other, Tag(10)).deadline(DEADLINE).wait().unwrap();
    ok();
}

/// Its eager messages are received; of a rendezvous message either all or an error.
fn sender_dies(world: &World, messages: &Messages) {
    if world.rank() == 0 {
        for to in [1, 2] {
            messages.send(&[7_u64], to, Tag(0)).wait().unwrap();
            drop(messages.send(&elements(0, 10_000), to, Tag(0)));
        }
        let offered = elements(0, 100_000);
        let _lost = [1, 2].map(|to| messages.send(&offered, to, Tag(1)));
        barrier(world, messages);
        die();
    }
    barrier(world, messages);
    eventually(DEADLINE, "rank 0 counts as dead", || !world.is_alive(0));
    assert_eq!(messages.recv::<u64>(0, Tag(0)).deadline(DEADLINE).wait().unwrap().0, [7]);
    match messages.recv::<u64>(0, Tag(0)).deadline(DEADLINE).wait() {
        Ok((got, _)) => assert_eq!(got, elements(0, 10_000)),
        Err(error) => assert_ne!(error.fault().kind(), FaultKind::TimedOut, "{error}"),
    }
    for tag in [Tag(0), Tag(1)] {
        let error = messages.recv::<u64>(0, tag).deadline(DEADLINE).wait().unwrap_err();
        assert!(tells_of_a_death(error.fault()), "{error}");
    }
}

/// What it has not read fails at its sender.
fn receiver_dies(world: &World, messages: &Messages) {
    if world.rank() == 0 {
        barrier(world, messages);
        std::thread::sleep(Duration::from_millis(100)); // the others wait by now
        die();
    }
    barrier(world, messages);
    let error = messages.send(&elements(1, 10_000), 0, Tag(0)).deadline(DEADLINE).wait().unwrap_err();
    assert!(tells_of_a_death(error.fault()), "{error}");
    eventually(DEADLINE, "rank 0 counts as dead", || !world.is_alive(0));
    assert!(messages.send(&[1_u64], 0, Tag(0)).deadline(DEADLINE).wait().is_err());
}

/// Elements of many pieces, of 64 to 512 KiB each: 4 MiB take an emulated card a second.
fn many_pieces() -> usize {
    if jobs::on_cards() { 512 << 10 } else { 4 << 20 }
}

/// Rank 0 dies while pieces move to ranks 1 and 2.
fn sender_dies_between_pieces(world: &World, messages: &Messages) {
    messages.set_rendezvous(Protocol::Pipeline);
    if world.rank() == 0 {
        let sent = elements(0, many_pieces());
        let lost = [1, 2].map(|to| messages.send(&sent, to, Tag(0)));
        barrier(world, messages);
        let _moves = lost.map(|send| send.deadline(Duration::from_millis(5)).wait());
        die();
    }
    let receive = messages.recv::<u64>(0, Tag(0));
    barrier(world, messages);
    match receive.deadline(DEADLINE).wait() {
        Ok((got, _)) => assert!(got == elements(0, many_pieces())),
        Err(error) => assert_ne!(error.fault().kind(), FaultKind::TimedOut, "{error}"),
    }
    eventually(DEADLINE, "rank 0 counts as dead", || !world.is_alive(0));
}

/// Rank 0 dies while pieces of ranks 1 and 2 move to it.
fn receiver_dies_between_pieces(world: &World, messages: &Messages) {
    messages.set_rendezvous(Protocol::Pipeline);
    if world.rank() == 0 {
        let _received = [1, 2].map(|from| messages.recv::<u64>(from, Tag(0)));
        barrier(world, messages);
        let never = messages.recv::<u64>(1, Tag(1)).deadline(Duration::from_millis(5)).wait();
        assert!(never.is_err());
        die();
    }
    let sent = elements(world.rank(), many_pieces());
    let send = messages.send(&sent, 0, Tag(0));
    barrier(world, messages);
    if let Err(error) = send.deadline(DEADLINE).wait() {
        assert_ne!(error.fault().kind(), FaultKind::TimedOut, "{error}");
    }
    eventually(DEADLINE, "rank 0 counts as dead", || !world.is_alive(0));
    assert!(messages.send(&sent, 0, Tag(0)).deadline(DEADLINE).wait().is_err());
}

/// A read of memory that is gone breaks the connection of messages. What was under way fails at both
/// ranks, what had come stays, and all that follows goes over another connection.
fn connection_breaks(world: World) {
    let messages = Messages::new(&world).wait().unwrap();
    let (me, other) = (world.rank(), 1 - world.rank());
    let fabric = world.fabric().for_messages();
    let own = fabric.allocate(64).unwrap();
    messages.send(&own.key().to_bytes(), other, Tag(0)).wait().unwrap();
    let key = messages.recv::<u8>(other, Tag(0)).deadline(DEADLINE).wait().unwrap().0;
    let theirs = fabric.open(&SegmentKey::from_bytes(&key).unwrap()).unwrap();
    world.barrier().wait().unwrap();
    let is_lost =
        |fault: Fault| assert_eq!((fault.kind(), fault.rank()), (FaultKind::ConnectionLost, Some(Rank(other))));
    let sent = elements(me, 10_000);
    if me == 1 {
        messages.send(&[7_u64], 0, Tag(1)).wait().unwrap();
        let announced = messages.send(&sent, 0, Tag(2));
        drop(own);
        world.barrier().wait().unwrap();
        is_lost(announced.deadline(DEADLINE).wait().unwrap_err().fault());
    } else {
        messages.probe(1, Tag(2)).deadline(DEADLINE).wait().unwrap();
        world.barrier().wait().unwrap();
        // It is posted before: the wait for the read may make the connection anew, and only what is under
        // way then fails.
        let posted = messages.recv::<u64>(1, Tag(3));
        let read = block_on(world.fabric(), fabric.rdma_read((&theirs, 0), (&own, 0), 64));
        assert_eq!(read.unwrap_err().kind(), FaultKind::NoSuchRegion);
        is_lost(posted.deadline(DEADLINE).wait().unwrap_err().fault());
        assert_eq!(messages.recv::<u64>(1, Tag(1)).deadline(DEADLINE).wait().unwrap().0, [7]);
        is_lost(messages.recv::<u64>(1, Tag(2)).deadline(DEADLINE).wait().unwrap_err().fault());
    }
    for rendezvous in [Protocol::Rget, Protocol::Rput, Protocol::Pipeline, Protocol::UdZcopy, Protocol::Copy] {
        messages.set_rendezvous(rendezvous);
        for len in LENGTHS {
            let sent = elements(me, len);
            let send = messages.send(&sent, other, Tag(4));
            let (got, _) = messages.recv::<u64>(other, Tag(4)).deadline(DEADLINE).wait().unwrap();
            assert_eq!(got, elements(other, len));
            send.deadline(DEADLINE).wait().unwrap();
        }
    }
    world.barrier().wait().unwrap();
    ok();
}

#[test]
fn a_connection_that_breaks_between_processes_is_made_anew() {
    // Datagrams have no connection.
    if jobs::on_cards() && std::env::var_os("ONESIDED_MESSAGES_CHANNEL").is_none() {
        let ended = jobs::start(2, "messages: connection breaks").wait();
        assert_eq!((ended.code, ended.ok()), (0, vec![0, 1]), "{ended:#?}");
    }
}

/// The connection breaks the same way under messages of all kinds, whose packets are kept: all of them come, and the
/// next connection is made.
fn kept_messages(world: World) {
    let messages = Messages::new(&world).wait().unwrap();
    let (me, other) = (world.rank(), 1 - world.rank());
    let fabric = world.fabric().for_messages();
    let exchange = |bytes: &[u8]| {
        let send = messages.send(bytes, other, Tag(0));
        let (theirs, _) = messages.recv::<u8>(other, Tag(0)).deadline(DEADLINE).wait().unwrap();
        send.deadline(DEADLINE).wait().unwrap();
        theirs
    };
    for rendezvous in [Protocol::Rget, Protocol::Rput, Protocol::Pipeline, Protocol::UdZcopy, Protocol::Copy] {
        messages.set_rendezvous(rendezvous);
        loop {
            let is_there = !messages.explain(other, 8).unwrap().to_string().contains("; in datagrams");
            if exchange(&[is_there.into()]) == [1] && is_there {
                break;
            }
        }
        let own = fabric.allocate(64).unwrap();
        let key = exchange(&own.key().to_bytes());
        let theirs = fabric.open(&SegmentKey::from_bytes(&key).unwrap()).unwrap();
        let sent = LENGTHS.map(|len| elements(me, len));
        let sends: Vec<_> = sent.iter().map(|sent| messages.send(sent, other, Tag(1))).collect();
        let [out, into] = [elements(me, 100_000), vec![0; 100_000]].map(|elements| messages.buffer_of(elements));
        let (out, into) = (messages.send_buffer(out, other, Tag(2)), messages.recv_buffer(into, other, Tag(2)));
        world.barrier().wait().unwrap();
        if me == 1 {
            drop(own);
            world.barrier().wait().unwrap();
        } else {
            world.barrier().wait().unwrap();
            block_on(world.fabric(), fabric.rdma_read((&theirs, 0), (&own, 0), 64)).unwrap_err();
        }
        for len in LENGTHS {
            let (got, _) = messages.recv::<u64>(other, Tag(1)).deadline(DEADLINE).wait().unwrap();
            assert_eq!(got, elements(other, len));
        }
        let (into, _) = into.deadline(DEADLINE).wait().unwrap();
        assert!(into.read(0..100_000) == elements(other, 100_000));
        out.deadline(DEADLINE).wait().unwrap();
        for send in sends {
            send.deadline(DEADLINE).wait().unwrap();
        }
        world.barrier().wait().unwrap();
    }
    ok();
}

#[test]
fn kept_messages_survive_their_connections() {
    if jobs::on_cards() && std::env::var_os("ONESIDED_MESSAGES_CHANNEL").is_none() {
        let settings = [
            (jobs::ROLE, "messages: kept"),
            ("ONESIDED_MESSAGES_CHANNEL", "both"),
            ("ONESIDED_MESSAGES_CONNECT_AFTER", "2"),
            ("ONESIDED_MESSAGES_RELIABLE", "on"),
        ];
        let ended = jobs::start_with(2, &settings.map(|(name, value)| (name, value.as_ref()))).wait();
        assert_eq!((ended.code, ended.ok()), (0, vec![0, 1]), "{ended:#?}");
    }
}

/// A rank that waits for a lock takes messages in, though it asks for none: cards have receives for
/// fewer than the sender has credit for.
fn receiver_waits_for_a_lock(world: World) {
    const MANY: u64 = 1_500;
    let messages = Messages::new(&world).wait().unwrap();
    let window = Window::<u64>::allocate(&world, 1).wait().unwrap();
    if world.rank() == 0 {
        let epoch = window.lock_exclusive(0).wait().unwrap();
        world.barrier().wait().unwrap();
        for number in 0..MANY {
            messages.send(&[number], 1, Tag(0)).deadline(DEADLINE).wait().unwrap();
        }
        epoch.unlock().wait().unwrap();
    } else {
        world.barrier().wait().unwrap();
        window.lock_exclusive(0).wait().unwrap().unlock().wait().unwrap();
        for number in 0..MANY {
            assert_eq!(messages.recv::<u64>(0, Tag(0)).deadline(DEADLINE).wait().unwrap().0, [number]);
        }
    }
    world.barrier().wait().unwrap();
    window.close().wait().unwrap();
    ok();
}

#[test]
fn a_receiver_that_waits_for_a_lock_takes_messages_in() {
    if jobs::on_cards() {
        let ended = jobs::start(2, "messages: receiver waits for a lock").wait();
        assert_eq!((ended.code, ended.ok()), (0, vec![0, 1]), "{ended:#?}");
    }
}

#[test]
fn processes_send_around_a_ring() {
    let ended = jobs::start(4, "messages: ring").wait();
    assert_eq!((ended.code, ended.ok()), (0, vec![0, 1, 2, 3]), "{ended:#?}");
}

#[test]
fn processes_whose_memory_the_kernel_does_not_copy_send_around_a_ring() {
    let ended = jobs::start_under(4, "messages: ring", ("ONESIDED_PROCESS_VM", "off")).wait();
    assert_eq!((ended.code, ended.ok()), (0, vec![0, 1, 2, 3]), "{ended:#?}");
}

#[test]
fn a_sender_that_dies_between_pieces_ends_its_message() {
    let ended = jobs::start(3, "messages: sender dies between pieces").wait();
    assert_eq!(ended.ok(), [1, 2], "{ended:#?}");
}

#[test]
fn a_receiver_that_dies_between_pieces_ends_what_is_written_to_it() {
    let ended = jobs::start(3, "messages: receiver dies between pieces").wait();
    assert_eq!(ended.ok(), [1, 2], "{ended:#?}");
}

#[test]
fn a_dead_sender_ends_what_waits_for_it() {
    let ended = jobs::start(3, "messages: sender dies").wait();
    assert_eq!(ended.ok(), [1, 2], "{ended:#?}");
}

#[test]
fn a_dead_receiver_ends_what_waits_for_it() {
    let ended = jobs::start(3, "messages: receiver dies").wait();
    assert_eq!(ended.ok(), [1, 2], "{ended:#?}");
}
