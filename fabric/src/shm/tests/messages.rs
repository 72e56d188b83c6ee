//! Messages between ranks of a host.

use super::*;

/// A receiver that is alive but never polls: a sender gets `Full` or cancels before that. Refused
/// and cancelled messages do not arrive; all others do.
#[test]
fn sending_to_a_rank_that_takes_nothing_ends() {
    threads(2, |shm| {
        let world = World::new(shm.clone());
        world.barrier().wait().unwrap();
        if shm.rank() == Rank(0) {
            shm.set_full_after(Duration::from_millis(50));
            let send = |number: u64| shm.send(Rank(1), Port::USER, &number.to_le_bytes(), Notify::Yes);
            let mut sent = 0;
            let fault = loop {
                match block_on(&shm, send(sent)) {
                    Ok(()) => sent += 1,
                    Err(fault) => break fault,
                }
                assert!(sent < 100_000, "it has no end");
            };
            assert_eq!(fault, Fault::of(FaultKind::Full, Rank(1)));
            // A deadline of its own, and a task of a runtime.
            shm.set_full_after(Duration::from_secs(3600));
            let late = crate::wait_timeout(&shm, &mut send(sent), Duration::from_millis(5));
            assert!(late.is_none());
            shm.set_full_after(Duration::from_millis(50));
            assert_eq!(block_on_by_parking(send(sent)).unwrap_err().kind(), FaultKind::Full);
            world.barrier().wait().unwrap();
            shm.set_full_after(Duration::from_secs(20));
            block_on(&shm, send(sent)).unwrap();
            block_on(&shm, shm.send(Rank(1), Port::USER, &[], Notify::Yes)).unwrap();
        } else {
            world.barrier().wait().unwrap(); // drains no messages
            for number in 0_u64.. {
                let message =
                    block_on(&shm, shm.recv(Port::USER, Patience::until(shm.now() + 20_000_000_000))).unwrap();
                if message.bytes().is_empty() {
                    assert!(number > 1);
                    break;
                }
                assert_eq!(message.bytes(), number.to_le_bytes());
            }
        }
    })
    .unwrap();
}

#[test]
fn mail_keeps_order_and_fills_up_without_loss() {
    threads(3, |shm| {
        let world = World::new(shm.clone());
        for to in [(shm.rank().0 + 1) % 3, (shm.rank().0 + 2) % 3] {
            if shm.rank() == Rank(0) {
                continue;
            }
            for number in 0..5000_u64 {
                if to == 0 {
                    block_on(&shm, shm.send(Rank(0), Port::USER, &number.to_le_bytes(), Notify::Yes)).unwrap();
                }
            }
        }
        if shm.rank() == Rank(0) {
            let mut next = [0; 3];
            for _ in 0..10_000 {
                let message = block_on(&shm, shm.recv(Port::USER, Patience::until(u64::MAX))).unwrap();
                let number = u64::from_le_bytes(message.bytes().try_into().unwrap());
                assert_eq!(number, next[message.from.index()]);
                next[message.from.index()] += 1;
            }
        }
        world.barrier().wait().unwrap();
    })
    .unwrap();
}

#[test]
fn room_at_a_port_is_news_to_who_waits_at_another() {
    const OTHER: Port = Port(Port::USER.0 + 1);
    threads(2, |shm| {
        let send = |port| block_on(&shm, shm.send(Rank(0), port, &[], Notify::Yes)).unwrap();
        let recv = |port| block_on(&shm, shm.recv(port, Patience::until(shm.now() + 5_000_000_000)));
        if shm.rank() == Rank(1) {
            (0..=crate::receive_queues::PORT_LIMIT).for_each(|_| send(Port::USER));
            send(OTHER);
            block_on(&shm, shm.recv(OTHER, Patience::until(shm.now() + 10_000_000_000))).unwrap();
        } else {
            std::thread::scope(|scope| {
                let other = scope.spawn(|| recv(OTHER).map(|message| message.from));
                // Drains what fits, and sleeps before the last message of the full port.
                std::thread::sleep(Duration::from_millis(500));
                assert!(!other.is_finished());
                recv(Port::USER).unwrap();
                let patience = Instant::now() + Duration::from_secs(2);
                while !other.is_finished() && Instant::now() < patience {
                    std::thread::sleep(Duration::from_millis(1));
                }
                assert!(other.is_finished(), "nobody rang");
                assert_eq!(other.join().unwrap(), Ok(Rank(1)));
            });
            block_on(&shm, shm.send(Rank(1), OTHER, &[], Notify::Yes)).unwrap();
        }
    })
    .unwrap();
}

#[test]
fn ranks_that_send_to_each_other_before_they_receive_come_through() {
    threads(2, |shm| {
        let peer = Rank(1 - shm.rank().0);
        let until = shm.now() + 5_000_000_000;
        for _ in 0..1000 {
            let mut send = shm.send(peer, Port::USER, &[], Notify::Yes);
            let mut cx = Context::from_waker(Waker::noop());
            while Pin::new(&mut send).poll(&mut cx).is_pending() {
                assert!(shm.now() < until, "both wait for room");
            }
        }
        for _ in 0..1000 {
            block_on(&shm, shm.recv(Port::USER, Patience::until(until))).unwrap();
        }
    })
    .unwrap();
}
