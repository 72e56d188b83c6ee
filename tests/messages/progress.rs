//! Progress modes.

use std::sync::mpsc::channel;
use std::sync::{Barrier, Mutex};
use std::time::Duration;

use onesided_fabric::remote_memory::RemoteMemory as _;
use onesided_fabric::{Any, Events, Fabric as _, World, threads};
use onesided_instances as _;
use onesided_sim::{End, Network, Profile, Simulation};
use onesided_two_sided::{Messages, ProgressMode, Source, Tag};

const MODES: [ProgressMode; 5] = [
    ProgressMode::Polling,
    ProgressMode::Interrupt,
    ProgressMode::Thread,
    ProgressMode::TwoThreads,
    ProgressMode::Hybrid,
];
const LATE: Duration = Duration::from_secs(30);

fn ranks(ranks: u32, mode: ProgressMode, run: impl Fn(World<Any>, &Messages) + Sync) {
    threads(ranks, |world| {
        let messages = Messages::new(&world).wait().unwrap();
        messages.set_progress(mode).unwrap();
        assert_eq!(messages.progress_mode(), mode);
        run(world, &messages);
    })
    .unwrap();
}

/// The receiver is in no call of the library until its sender has been told that the message is
/// received.
#[test]
fn a_sender_is_free_while_its_receiver_computes() {
    for mode in [ProgressMode::Thread, ProgressMode::TwoThreads, ProgressMode::Hybrid] {
        for len in [4_097, 1 << 20] {
            for late in [false, true] {
                for into_slice in [false, true] {
                    let (tell, told) = channel();
                    let (tell, told, met) = (Mutex::new(tell), Mutex::new(told), Barrier::new(2));
                    ranks(2, mode, |world, messages| {
                        if world.rank() == 0 {
                            let send = |tag| {
                                let bytes = vec![7_u8; len];
                                let send = messages.send(&bytes, 1, Tag(tag)).deadline(LATE);
                                if late {
                                    met.wait();
                                }
                                send.wait().unwrap();
                                tell.lock().unwrap().send(()).unwrap();
                            };
                            if !late {
                                met.wait();
                            }
                            (0..3).for_each(send);
                            return;
                        }
                        let told = told.lock().unwrap();
                        for tag in 0..3 {
                            if late {
                                met.wait(); // the message is announced
                                messages.probe(0, Tag(tag)).wait().unwrap();
                            }
                            let told = || {
                                if tag == 0 && !late {
                                    met.wait();
                                }
                                told.recv_timeout(LATE).unwrap_or_else(|_| panic!("{mode}, {len}, late: {late}"));
                            };
                            if into_slice {
                                let mut slice = vec![0_u8; len];
                                let receive = messages.recv_into(&mut slice, 0, Tag(tag));
                                told();
                                receive.wait().unwrap();
                                assert_eq!(slice, vec![7; len]);
                            } else {
                                let receive = messages.recv::<u8>(0, Tag(tag));
                                told();
                                assert_eq!(receive.wait().unwrap().0, vec![7; len]);
                            }
                        }
                    });
                }
            }
        }
    }
}

/// The receiver's thread sleeps while the handler copies, and for any type of elements.
#[test]
fn a_receiver_that_sleeps_gets_what_the_handler_reads() {
    ranks(2, ProgressMode::Hybrid, |world, messages| {
        let elements = vec![1.5_f64; 1 << 20];
        for _ in 0..20 {
            if world.rank() == 0 {
                messages.send(&elements, 1, Tag(1)).deadline(LATE).wait().unwrap();
                continue;
            }
            let receive = messages.recv::<f64>(0, Tag(1)).deadline(LATE);
            std::thread::yield_now();
            assert_eq!(receive.wait().unwrap().0, elements);
        }
        // A message that was read for a receive which is cancelled is another one's.
        if world.rank() == 0 {
            messages.send(&elements, 1, Tag(2)).deadline(LATE).wait().unwrap();
            messages.send(&elements[..1000], 1, Tag(2)).deadline(LATE).wait().unwrap();
        } else {
            let receive = messages.recv::<u8>(0, Tag(2));
            messages.probe(0, Tag(9)).deadline(Duration::from_millis(20)).wait().unwrap_err();
            drop(receive);
            assert_eq!(messages.recv::<f64>(0, Tag(2)).deadline(LATE).wait().unwrap().0, elements);
            let receive = messages.recv::<f64>(0, Tag(2));
            messages.probe(0, Tag(9)).deadline(Duration::from_millis(20)).wait().unwrap_err();
            assert_eq!(receive.wait().unwrap().0, elements[..1000]);
        }
    });
}

/// Short and long messages in both directions, while the mode changes.
#[test]
fn messages_arrive_in_every_mode_and_between_them() {
    for first in MODES {
        ranks(3, first, |world, messages| {
            let (me, size) = (world.rank(), world.size());
            for round in 0..60_u64 {
                if round % 10 == 9 {
                    messages.set_progress(MODES[(round as usize / 10 + me as usize) % MODES.len()]).unwrap();
                }
                let len = [1, 100, 3_000, 20_000][(round % 4) as usize];
                let others = (0..size).filter(|rank| *rank != me);
                let elements = vec![round; len];
                let sends: Vec<_> =
                    others.clone().map(|to| messages.send(&elements, to, Tag(3)).deadline(LATE)).collect();
                let receives: Vec<_> = others.map(|from| messages.recv::<u64>(from, Tag(3)).deadline(LATE)).collect();
                for received in world.wait_all(receives) {
                    assert_eq!(received.unwrap().0, elements);
                }
                world.wait_all(sends).into_iter().for_each(|sent| sent.unwrap());
            }
        });
    }
}

/// A receive that waits for nobody ends at its deadline, and a handler ends with its rank.
#[test]
fn a_mode_delays_no_deadline_and_outlives_no_rank() {
    for mode in MODES {
        ranks(2, mode, |world, messages| {
            let receive = messages.recv::<u8>(Source::Any, Tag(1)).deadline(Duration::from_millis(30));
            assert!(receive.wait().is_err());
            world.barrier().wait().unwrap();
        });
    }
    let handlers = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|name| name.starts_with("onesided-handle")).count()
    };
    let end = std::time::Instant::now() + LATE;
    while handlers() > 0 {
        assert!(std::time::Instant::now() < end, "a handler is left");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn two_cores() -> Network {
    let mut network = Network::default();
    network.host.cores = 2;
    network
}

/// A simulated thread moves messages also after another one of its rank has waited for some.
#[test]
fn a_simulated_thread_sees_the_packets_after_a_wait() {
    const COMPUTES: u64 = 1_000_000;
    for mode in [ProgressMode::Thread, ProgressMode::Hybrid] {
        let report = Simulation::new(two_cores()).ranks(2).run(|world| async move {
            let messages = Messages::new(&world).await.unwrap();
            messages.set_progress(mode).unwrap();
            let elements = vec![7_u64; 1_000];
            let fabric = world.fabric();
            for round in 0..6 {
                let computes = round % 2 == 1;
                if world.rank() == 0 {
                    fabric.sleep(if computes { COMPUTES / 10 } else { COMPUTES }).await; // the receive is posted
                    let begin = fabric.now();
                    messages.send(&elements, 1, Tag(0)).await.unwrap();
                    let held = fabric.now() - begin;
                    assert!(held < COMPUTES / 2, "{mode}, round {round}: held for {held} ns");
                } else {
                    let receive = messages.recv::<u64>(0, Tag(0));
                    if computes {
                        fabric.sleep(COMPUTES).await;
                    }
                    assert_eq!(receive.await.unwrap().0, elements);
                }
                world.barrier().await.unwrap();
            }
            messages.set_progress(ProgressMode::Polling).unwrap();
        });
        assert_eq!(report.end, End::Finished);
    }
}

/// What wakes a simulated handler while its rank computes: the start of a long message, if a
/// receive is pending, and no short one.
#[test]
fn only_solicited_packets_wake_a_simulated_handler() {
    const COMPUTES: u64 = 1_000_000;
    let report = Simulation::new(two_cores()).ranks(2).run(|world| async move {
        let messages = Messages::new(&world).await.unwrap();
        messages.set_progress(ProgressMode::Hybrid).unwrap();
        let fabric = world.fabric();
        let long = vec![7_u64; 1_000];
        for (len, is_posted, expected) in [(1, true, 0), (1_000, true, 1), (1_000, false, 0), (1, false, 0)] {
            world.barrier().await.unwrap();
            if world.rank() == 0 {
                fabric.sleep(COMPUTES / 10).await;
                messages.send(&long[..len], 1, Tag(0)).await.unwrap();
            } else {
                let receive = is_posted.then(|| messages.recv::<u64>(0, Tag(0)));
                fabric.sleep(COMPUTES / 20).await;
                let before = fabric.events(Events::Packets).unwrap().ticket();
                fabric.sleep(COMPUTES).await;
                let events = fabric.events(Events::Packets).unwrap().ticket().0 - before.0;
                assert_eq!(events, expected, "{len} words, posted: {is_posted}");
                let receive = receive.unwrap_or_else(|| messages.recv::<u64>(0, Tag(0)));
                assert_eq!(receive.await.unwrap().0, long[..len]);
            }
        }
    });
    assert_eq!(report.end, End::Finished);
}

/// A collective that was started is no thread that polls: the handler is armed while its rank computes.
#[test]
fn a_simulated_handler_moves_messages_beside_a_started_collective() {
    const COMPUTES: u64 = 1_000_000;
    let report = Simulation::new(two_cores()).ranks(2).run(|world| async move {
        let messages = Messages::new(&world).await.unwrap();
        messages.set_progress(ProgressMode::Hybrid).unwrap();
        let (fabric, long) = (world.fabric(), vec![7_u64; 1_000]);
        if world.rank() == 0 {
            messages.send(&[1_u64], 1, Tag(1)).await.unwrap();
            fabric.sleep(COMPUTES / 10).await; // the receive is posted
            let begin = fabric.now();
            messages.send(&long, 1, Tag(0)).await.unwrap();
            let held = fabric.now() - begin;
            assert!(held < COMPUTES / 2, "held for {held} ns");
            messages.barrier().await.unwrap();
        } else {
            let barrier = messages.barrier().start();
            messages.recv::<u64>(0, Tag(1)).await.unwrap();
            let receive = messages.recv::<u64>(0, Tag(0));
            fabric.sleep(COMPUTES).await;
            assert_eq!(receive.await.unwrap().0, long);
            barrier.await.unwrap();
        }
    });
    assert_eq!(report.end, End::Finished);
}

/// What lands while a rank waits for something else is taken by its thread of messages, though datagrams are lost.
#[test]
fn threads_take_what_lands_in_turns() {
    let network = Profile::shipped("connectx7").unwrap().network().clone();
    let network = Network { datagrams: true, retries: 50, loss: 0.05, ..network };
    for seed in 0..20 {
        let mode = [ProgressMode::Thread, ProgressMode::TwoThreads][seed as usize % 2];
        let simulation = Simulation::new(network.clone()).ranks(2).seed(seed).until(Duration::from_secs(20));
        let report = simulation.run(move |world| async move {
            let messages = Messages::new(&world).await.unwrap();
            messages.set_rules("ud-zcopy".parse().unwrap()).unwrap();
            messages.set_progress(mode).unwrap();
            for round in 0..20_u8 {
                let lens = [20_000, 40_000, 60_000].map(|len| len + 997 * usize::from(round));
                if world.rank() == 0 {
                    let all = lens.map(|len| vec![round; len]);
                    for send in all.each_ref().map(|bytes| messages.send(bytes, 1, Tag(0))) {
                        send.await.unwrap();
                    }
                    world.barrier().await.unwrap();
                    continue;
                }
                let receives = lens.map(|len| messages.recv_buffer(messages.buffer::<u8>(len).unwrap(), 0, Tag(0)));
                let mut receives = receives.into_iter();
                let awaited = usize::from(round) % 3;
                for receive in receives.by_ref().take(awaited) {
                    assert!(receive.await.unwrap().0.read(0..20_000).iter().all(|byte| *byte == round));
                }
                world.barrier().await.unwrap(); // the others land meanwhile
                for receive in receives {
                    assert!(receive.await.unwrap().0.read(0..20_000).iter().all(|byte| *byte == round));
                }
            }
            messages.barrier().await.unwrap();
        });
        assert_eq!(report.end, End::Finished, "{mode:?}, seed {seed}");
    }
}
