//! The memory of messages, counted.

#[path = "../../sim/tests/counting/mod.rs"]
mod counting;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use onesided_fabric::threads;
use onesided_instances as _;
use onesided_sim::{End, Network, Simulation};
use onesided_two_sided::{Messages, Tag};

/// The others that each rank speaks to.
const PEERS: u32 = 4;

/// At the start a rank takes the bins of its matching and some bytes for each rank; then it takes
/// an index of all ranks and some bytes for each peer that it speaks to.
#[test]
fn messages_take_little_memory() {
    let ranks = if std::env::var_os("ONESIDED_LONG").is_some() { 1_000 } else { 250 };
    let counts = Rc::new(RefCell::new(Vec::new()));
    let report = Simulation::new(Network::default()).ranks(ranks).run(|world| {
        let counts = Rc::clone(&counts);
        async move {
            let (me, all) = (world.rank(), world.size());
            let count = async || {
                world.barrier().await.unwrap();
                if me == 0 {
                    counts.borrow_mut().push(counting::allocated());
                }
                world.barrier().await.unwrap();
            };
            count().await;
            let messages = Messages::new(&world).await.unwrap();
            count().await;
            for distance in 1..=PEERS {
                messages.send(&[me], (me + distance) % all, Tag(0)).await.unwrap();
                let (from, _) = messages.recv::<u32>((me + all - distance) % all, Tag(0)).await.unwrap();
                assert_eq!(from, [(me + all - distance) % all]);
            }
            count().await;
        }
    });
    assert_eq!(report.end, End::Finished);
    let [before, start, spoken] = counts.borrow()[..] else { panic!("{counts:?}") };
    let [start, spoken] = [start - before, spoken - start].map(|bytes| bytes / ranks as usize);
    let peers = 2 * PEERS as usize;
    assert!(start < 17_000 + 60 * ranks as usize, "{start} bytes of a rank at the start");
    // Messages that have arrived, and receives, have room for four at first.
    assert!(spoken < 4 * ranks as usize + 275 * peers + 4 * 100, "{spoken} bytes of a rank for {peers} peers");
}

/// Messages that nobody has asked for wait at their sender, which waits.
#[test]
fn a_flood_of_a_million_is_bounded() {
    const MANY: u64 = 1_000_000;
    threads(2, |world| {
        let messages = Messages::new(&world).wait().unwrap();
        world.barrier().wait().unwrap();
        let more = counting::peak_of(|| match world.rank() {
            0 => (0..MANY).for_each(|number| messages.send(&[number], 1, Tag(0)).wait().unwrap()),
            _ => {
                std::thread::sleep(Duration::from_millis(50));
                for number in 0..MANY {
                    let mut into = [0];
                    messages.recv_into(&mut into, 0, Tag(0)).wait().unwrap();
                    assert_eq!(into, [number]);
                }
            }
        });
        assert!(more < 1 << 20, "{more} bytes of rank {}", world.rank());
    })
    .unwrap();
}

/// What a communicator takes it gives back, however many there were: those of all ranks, of a split
/// world, and of some ranks.
#[test]
fn communicators_that_are_gone_take_nothing() {
    threads(2, |world| {
        let messages = Messages::new(&world).wait().unwrap();
        let part = world.split(0, 0).wait().unwrap();
        let make = |count: u32| {
            for at in 0..count {
                let made = [
                    Messages::new(&world).wait().unwrap(),
                    Messages::new(&part).wait().unwrap(),
                    messages.create_group(&[0, 1], Tag(0)).wait().unwrap(),
                ];
                for made in &made {
                    let (me, other) = (world.rank(), 1 - world.rank());
                    made.send(&[at, me], other, Tag(0)).wait().unwrap();
                    made.send(&[at], other, Tag(1)).wait().unwrap(); // nobody receives it
                    assert_eq!(made.recv::<u32>(other, Tag(0)).wait().unwrap().0, [at, other]);
                }
            }
            counting::allocated()
        };
        let before = make(100);
        let more = make(1_000) as isize - before as isize;
        assert!(more < 5_000, "{more} bytes are left of 3,000 communicators");
    })
    .unwrap();
}

/// A creation that fails leaves its tag, with which none may be made again.
#[test]
fn groups_that_fail_leave_their_tags_alone() {
    const MORE: u32 = 500;
    threads(2, |world| {
        let messages = Messages::new(&world).wait().unwrap();
        let lists = [[0, 1], [1, 0]]; // no two ranks give the same
        let fail = |tags: std::ops::Range<u32>| {
            for tag in tags {
                let made = messages.create_group(&lists[world.rank() as usize], Tag(tag)).wait();
                assert!(made.is_err());
                world.barrier().wait().unwrap();
            }
            counting::allocated()
        };
        let before = fail(0..100);
        let more = fail(100..100 + MORE) as isize - before as isize;
        assert!(more < 32 * MORE as isize, "{more} bytes are left of {MORE} creations");
    })
    .unwrap();
}
