//! Calls that were started move while their rank waits for something else.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use onesided_fabric::remote_memory::FaultKind;
use onesided_fabric::{Any, Wait, World, threads};
use onesided_sim::{End, Network, Simulation};
use onesided_two_sided::{CollectiveFault, Error, Messages, Op, ProgressMode, Tag};

const LATE: Duration = Duration::from_secs(60);
/// An eager one, and one that goes by rendezvous in several rounds.
const LENGTHS: [usize; 2] = [1, 20_000];

fn ranks(ranks: u32, run: impl Fn(&World<Any>, &Messages) + Sync) {
    threads(ranks, |world| {
        let messages = Messages::new(&world).wait().unwrap();
        run(&world, &messages);
    })
    .unwrap();
}

/// Rank 0 starts an all-reduce and is in `wait` until the others, who wait for it, are `done`. Then
/// all complete.
fn completes_elsewhere(
    size: u32,
    wait: impl Fn(&World<Any>, &Messages) + Sync,
    done: impl Fn(&World<Any>, &Messages) + Sync,
) {
    for len in LENGTHS {
        ranks(size, |world, messages| {
            let mut sum = vec![world.rank(); len];
            if world.rank() == 0 {
                let request = messages.all_reduce(&mut sum, Op::Sum).start();
                wait(world, messages);
                request.deadline(LATE).wait().unwrap();
            } else {
                messages.all_reduce(&mut sum, Op::Sum).deadline(LATE).wait().unwrap();
                done(world, messages);
            }
            assert_eq!(sum, vec![(0..size).sum::<u32>(); len]);
        });
    }
}

#[test]
fn while_a_rank_waits_for_a_message() {
    for size in 2..7 {
        let wait = |_: &World<Any>, messages: &Messages| {
            messages.recv::<u8>(1, Tag(1)).deadline(LATE).wait().unwrap();
        };
        completes_elsewhere(size, wait, |world, messages| {
            if world.rank() == 1 {
                messages.send(&[0_u8], 0, Tag(1)).wait().unwrap();
            }
        });
    }
}

/// A barrier of the world is no message.
#[test]
fn while_a_rank_waits_in_a_barrier() {
    for size in 2..7 {
        let meet = |world: &World<Any>, _: &Messages| world.barrier().deadline(LATE).wait().unwrap();
        completes_elsewhere(size, meet, meet);
    }
}

/// The thread that started it computes. Another one waits for a message.
#[test]
fn while_another_thread_waits() {
    let wait = |world: &World<Any>, messages: &Messages| {
        std::thread::scope(|scope| {
            scope.spawn(|| messages.recv::<u8>(1, Tag(1)).deadline(LATE).wait().unwrap());
        });
        assert_eq!(world.rank(), 0);
    };
    completes_elsewhere(4, wait, |world, messages| {
        if world.rank() == 1 {
            messages.send(&[0_u8], 0, Tag(1)).wait().unwrap();
        }
    });
}

/// No thread of rank 0 is in a call: its progress thread moves what was started.
#[test]
fn while_a_rank_computes_with_a_progress_thread() {
    let (tell, told) = channel();
    let (tell, told) = (Mutex::new(tell), Mutex::new(told));
    let computes = |_: &World<Any>, messages: &Messages| {
        messages.set_progress(ProgressMode::Thread).unwrap();
        for _ in 1..3 {
            told.lock().unwrap().recv_timeout(LATE).unwrap();
        }
    };
    completes_elsewhere(3, computes, |_, _| tell.lock().unwrap().send(()).unwrap());
}

/// Requests that are dropped and leaked: the calls complete at the others, and the next ones too.
#[test]
fn a_request_that_is_dropped_leaves_the_call_in_step() {
    for len in LENGTHS {
        ranks(4, |world, messages| {
            let me = world.rank();
            for round in 0..3 {
                let mut sum = vec![me + round; len];
                let request = messages.all_reduce(&mut sum, Op::Sum);
                match (me, round) {
                    (1, 0) => drop(request.start()),
                    (2, 1) => std::mem::forget(request.start()),
                    _ => {
                        request.deadline(LATE).wait().unwrap();
                        assert_eq!(sum, vec![6 + 4 * round; len]);
                    }
                }
            }
            messages.barrier().deadline(LATE).wait().unwrap();
        });
    }
}

/// The last handle of a communicator is dropped while a call is under way.
#[test]
fn a_call_ends_with_its_communicator() {
    let met = Barrier::new(2);
    threads(2, |world| {
        let messages = Messages::new(&world).wait().unwrap();
        let mut sum = [1];
        if world.rank() == 0 {
            drop(messages.all_reduce(&mut sum, Op::Sum).start());
            drop(messages.clone());
            drop(messages);
            met.wait();
            return;
        }
        met.wait();
        // The message of rank 0 has come, and what it lacks is not sent in vain.
        let _ = messages.all_reduce(&mut sum, Op::Sum).deadline(LATE).wait();
        let error = messages.barrier().deadline(LATE).wait().unwrap_err();
        assert!(matches!(error.kind(), FaultKind::Closed | FaultKind::PeerLeft), "{error}");
    })
    .unwrap();
}

/// A function that panics in a wait for something else fails its request, and not that wait.
#[test]
fn a_function_that_panics_fails_its_call() {
    let met = Barrier::new(2);
    ranks(2, |world, messages| {
        let mut sum = [world.rank()];
        if world.rank() == 0 {
            let add = |a: u32, b: u32| if b > 0 { panic!("in a reduction") } else { a + b };
            let request = messages.all_reduce(&mut sum, add).start();
            met.wait();
            messages.recv::<u8>(1, Tag(1)).deadline(LATE).wait().unwrap();
            let Err(Error::Collective { fault, .. }) = request.deadline(LATE).wait() else { panic!("no error") };
            assert_eq!(fault, CollectiveFault::Dropped { rank: 0 });
        } else {
            met.wait();
            let _ = messages.all_reduce(&mut sum, |a: u32, b: u32| a + b).deadline(LATE).wait();
            assert!(messages.barrier().deadline(LATE).wait().is_err());
            let _ = messages.send(&[1_u8], 0, Tag(1)).wait(); // rank 0 may have left
        }
    });
}

/// A function that blocks holds up the thread that it runs in, and no wait of another one.
#[test]
fn a_function_that_blocks_holds_up_no_other_thread() {
    let (held, is_inside) = (Arc::new(Mutex::new(())), Arc::new(AtomicBool::new(false)));
    ranks(2, |world, messages| {
        if world.rank() == 1 {
            messages.all_reduce(&mut [1], |a: u32, b: u32| a + b).deadline(LATE).wait().unwrap();
            messages.recv::<u8>(0, Tag(1)).deadline(LATE).wait().unwrap();
            return;
        }
        let guard = held.lock().unwrap();
        std::thread::scope(|scope| {
            let (held, inside) = (Arc::clone(&held), Arc::clone(&is_inside));
            let add = move |a: u32, b: u32| {
                inside.store(true, Ordering::Relaxed);
                drop(held.lock());
                a + b
            };
            let call = scope.spawn(move || messages.all_reduce(&mut [1], add).start().deadline(LATE).wait());
            while !is_inside.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            let late = messages.recv::<u8>(1, Tag(1)).deadline(Duration::from_millis(50)).wait();
            assert_eq!(late.unwrap_err().kind(), FaultKind::TimedOut);
            drop(guard);
            call.join().unwrap().unwrap();
        });
        messages.send(&[1_u8], 1, Tag(1)).wait().unwrap();
    });
}

/// A dump tells of a call that was started as of any wait.
#[test]
fn a_dump_tells_what_was_started() {
    ranks(2, |world, messages| {
        let (mine, mut all) = ([world.rank()], [7; 2]);
        if world.rank() == 0 {
            let request = messages.all_gather(&mine, &mut all).start();
            messages.recv::<u8>(1, Tag(1)).deadline(LATE).wait().unwrap();
            request.deadline(LATE).wait().unwrap();
        } else {
            let end = Instant::now() + LATE;
            // No other test of this process begins with an all_gather.
            let of_call = |wait: &Wait| (wait.rank.0, &*wait.what) == (0, "all_gather (call 1)");
            while !onesided_fabric::dump().waits().iter().any(of_call) {
                assert!(Instant::now() < end, "{}", onesided_fabric::dump());
            }
            messages.all_gather(&mine, &mut all).deadline(LATE).wait().unwrap();
            messages.send(&[0_u8], 0, Tag(1)).wait().unwrap();
        }
        assert_eq!(all, [0, 1]);
    });
}

#[test]
fn a_late_call_ends_for_all() {
    ranks(3, |world, messages| {
        let mut sum = [1];
        if world.rank() == 0 {
            // No other rank calls it until this one has told of its deadline.
            let late = messages.all_reduce(&mut sum, Op::Sum).start().deadline(Duration::from_millis(20)).wait();
            let Error::Collective { fault, .. } = late.unwrap_err() else { panic!("another error") };
            assert_eq!(fault, CollectiveFault::Late { rank: 0 });
            world.barrier().wait().unwrap();
        } else {
            world.barrier().wait().unwrap();
            // Rank 0 has sent what a rank may need of it.
            let reduced = messages.all_reduce(&mut sum, Op::Sum).start().deadline(LATE).wait();
            let error = reduced.and_then(|()| messages.barrier().deadline(LATE).wait()).unwrap_err();
            assert!(error.to_string().ends_with("the deadline of rank 0 passed"), "{error}");
        }
    });
}

/// In the simulator a call that was started moves in waits for messages.
#[test]
fn a_simulated_rank_moves_what_it_started() {
    for size in 2..9 {
        let report = Simulation::new(Network::default()).ranks(size).run(|world| async move {
            let messages = Messages::new(&world).await.unwrap();
            let mut sum = vec![world.rank(); 3_000];
            let request = messages.all_reduce(&mut sum, Op::Sum);
            if world.rank() == 0 {
                let request = request.start();
                messages.recv::<u8>(1, Tag(1)).await.unwrap();
                request.await.unwrap();
            } else {
                request.await.unwrap();
                if world.rank() == 1 {
                    messages.send(&[0_u8], 0, Tag(1)).await.unwrap();
                }
            }
            assert_eq!(sum, vec![(0..size).sum::<u32>(); 3_000]);
        });
        assert_eq!(report.end, End::Finished, "{size}");
    }
}
