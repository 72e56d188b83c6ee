//! Each collective against what a serial program computes.

use std::time::Duration;

use onesided_fabric::{Fabric, World, block_on, threads};
use onesided_sim::{End, Network, Simulation};
use onesided_two_sided::{Collective, Error, Located, Messages, Op};

use super::steps::{ALL, Random, Step};

async fn all<F: Fabric>(world: &World<F>, longest: usize, seed: u64) -> Result<(), Error> {
    let messages = Messages::new(world).await?;
    let mut random = Random(seed);
    for _ in 0..4 {
        for collective in ALL {
            Step::random(collective, world.size(), longest, &mut random).run(&messages).await?;
        }
    }
    Ok(())
}

#[test]
fn collectives_of_threads_give_what_a_serial_program_does() {
    for size in 1..10 {
        for seed in 0..3 {
            let longest = 60_000 / size as usize;
            threads(size, |world| block_on(world.fabric(), all(&world, longest, seed)).unwrap()).unwrap();
        }
    }
}

#[test]
fn and_of_many_under_loss() {
    let network = Network { loss: 0.01, jitter: Duration::from_micros(5), retries: 50, ..Network::default() };
    for (datagrams, ranks) in [(false, 64), (true, 20)] {
        let network = Network { datagrams, ..network.clone() };
        let report = Simulation::new(network).ranks(ranks).seed(1).run(|world| async move {
            all(&world, 200, 5).await.unwrap();
        });
        assert_eq!(report.end, End::Finished);
    }
}

/// Longer than what each algorithm calls long.
#[test]
fn long_vectors() {
    for size in [2, 3, 4, 8] {
        threads(size, |world| {
            let messages = Messages::new(&world).wait().unwrap();
            let mut random = Random(size.into());
            for collective in ALL {
                let longest = if collective == Collective::Broadcast { 1 << 19 } else { 1 << 16 };
                let mut step = Step::random(collective, size, longest, &mut random);
                step.len = step.len.max(longest / 2);
                block_on(world.fabric(), step.run(&messages)).unwrap();
            }
        })
        .unwrap();
    }
}

#[test]
fn every_operation_applies_to_its_types() {
    threads(5, |world| {
        let messages = Messages::new(&world).wait().unwrap();
        let me = world.rank();
        macro_rules! gives {
            ($operation:expr, $element:ty, $mine:expr, $expected:expr) => {{
                let mut data: [$element; 2] = $mine(me);
                messages.all_reduce(&mut data, $operation).wait().unwrap();
                assert_eq!(data, $expected, "{:?}", $operation);
            }};
        }
        gives!(Op::Sum, u8, |me| [me as u8, 100], [10, 244]);
        gives!(Op::Product, i16, |me| [me as i16 + 1, -1], [120, -1]);
        gives!(Op::Min, f32, |me| [me as f32, -(me as f32)], [0.0, -4.0]);
        gives!(Op::Max, i64, |me| [i64::from(me), -i64::from(me)], [4, 0]);
        gives!(Op::And, u16, |me: u32| [0xff, !(1_u16 << me)], [0xff, 0xffe0]);
        gives!(Op::Or, u32, |me: u32| [1 << me, 0], [31, 0]);
        gives!(Op::Xor, usize, |me: u32| [1 << (me / 2), 3], [4, 3]);
        gives!(Op::LogicalAnd, i8, |me| [me as i8, -1], [0, 1]);
        gives!(Op::LogicalOr, u64, |me| [u64::from(me), 0], [1, 0]);
        gives!(Op::LogicalXor, isize, |_| [5, 0], [1, 0]);
        gives!(Op::Replace, u32, |me| [me, 10 + me], [4, 14]);
        gives!(Op::NoOp, f64, |me| [f64::from(me), 1.5], [0.0, 1.5]);
        let located = |me| [Located::new(-(me as i32 / 2), me), Located::new(7, me)];
        gives!(Op::MinLoc, Located<i32>, located, [Located::new(-2, 4), Located::new(7, 0)]);
        gives!(Op::MaxLoc, Located<i32>, located, [Located::new(0, 0), Located::new(7, 0)]);
    })
    .unwrap();
}
