//! Operations on rows have the same effect on every fabric: over shared memory word by word,
//! simulated many words at a time.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use onesided_fabric::{Fabric, World, block_on};
use onesided_sim::{End, Network, Simulation};
use onesided_windows::{AtomicElement, Error, Located, Op, Shape, Window};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Elements of a rank's memory.
const LEN: usize = 61;

/// A shape, a seed for its operands, and the call.
#[derive(Clone, Debug)]
struct Step {
    ranges: Vec<Range<usize>>,
    seed: u8,
    call: Call,
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Put,
    Get,
    Accumulate(Op),
    GetAccumulate(Op),
    Fetch(Op),
}

fn step() -> impl Strategy<Value = Step> {
    let op = || prop::sample::select(&Op::ALL[..]);
    let call = prop_oneof![
        Just(Call::Put),
        Just(Call::Get),
        op().prop_map(Call::Accumulate),
        op().prop_map(Call::Accumulate),
        op().prop_map(Call::GetAccumulate),
        op().prop_map(Call::Fetch),
    ];
    // Disjoint, because overlapping pieces have no order; in any order, and some of them empty.
    let cuts = prop_oneof![prop::collection::vec(0..=LEN, 2), prop::collection::vec(0..=LEN, 0..20)];
    let ranges = cuts.prop_map(|mut cuts| {
        cuts.sort_unstable();
        cuts.chunks_exact(2).map(|ends| ends[0]..ends[1]).collect::<Vec<_>>()
    });
    (ranges.prop_shuffle(), any::<u8>(), call).prop_map(|(ranges, seed, call)| Step { ranges, seed, call })
}

/// The calls of rank 0 at rank 1, and everything that rank 0 sees.
async fn runs<T: AtomicElement, F: Fabric>(
    world: World<F>,
    steps: Arc<Vec<Step>>,
    make: fn(u8) -> T,
) -> Result<Vec<T>, Error> {
    let window = Window::<T>::builder().allocate(&world, LEN).await?;
    let mut seen = Vec::new();
    if world.rank() == 0 {
        let epoch = window.lock_exclusive(1).await?;
        for Step { ranges, seed, call } in &*steps {
            let shape = Shape::Indexed(ranges);
            let operands: Vec<T> =
                (0..shape.count() as u8).map(|at| make(seed.wrapping_mul(at).wrapping_add(at >> 1))).collect();
            let mut results = vec![T::zeroed(); operands.len()];
            let outcome = match *call {
                Call::Put => {
                    epoch.put_shaped(0, shape, &operands).await?;
                    epoch.flush().await
                }
                Call::Get => epoch.get_shaped(0, shape, &mut results).await,
                Call::Accumulate(op) => epoch.accumulate_shaped(0, shape, &operands, op).await,
                Call::GetAccumulate(op) => epoch.get_accumulate_shaped(0, shape, &operands, &mut results, op).await,
                Call::Fetch(op) => epoch.fetch_and_op(usize::from(*seed) % LEN, make(*seed), op).await.map(|found| {
                    results.push(found);
                }),
            };
            match outcome {
                Ok(()) | Err(Error::Type { .. }) => seen.extend(results),
                Err(error) => return Err(error),
            }
        }
        let mut all = vec![T::zeroed(); LEN];
        epoch.get(0, &mut all).await?;
        seen.extend(all);
        epoch.unlock().await?;
    }
    window.close().await?;
    Ok(seen)
}

fn alike<T: AtomicElement + Debug>(make: fn(u8) -> T) {
    let cases = if crate::on_cards() { 5 } else { 30 }; // each case connects anew
    let config = Config { failure_persistence: None, ..Config::with_cases(cases) };
    let run = TestRunner::new(config).run(&prop::collection::vec(step(), 1..20), |steps| {
        let steps = Arc::new(steps);
        let threads = onesided_fabric::threads(2, |world| {
            let fabric = world.fabric().clone();
            block_on(&fabric, runs(world, Arc::clone(&steps), make))
        });
        let threads = threads.unwrap().swap_remove(0).unwrap();
        let network = Network { loss: 0.01, jitter: Duration::from_micros(3), ..Network::default() };
        let mut report = Simulation::new(network).run(|world| runs(world, Arc::clone(&steps), make));
        assert_eq!(report.end, End::Finished);
        let simulated = report.results.swap_remove(0).unwrap().unwrap();
        assert_eq!(bytemuck::cast_slice::<T, u8>(&threads), bytemuck::cast_slice::<T, u8>(&simulated));
        Ok(())
    });
    run.unwrap_or_else(|error| panic!("{}: {error}", std::any::type_name::<T>()));
}

#[test]
fn integers() {
    alike(|value| value);
    alike(|value| u64::from(value) << 40);
    if crate::is_short_on_cards() {
        return; // to a card, elements are bytes and words
    }
    alike(|value| value as i8);
    alike(|value| u16::from(value) * 0x101);
    alike(|value| i16::from(value) - 100);
    alike(|value| u32::from(value) * 0x0101_0101);
    alike(|value| i32::from(value) - 100);
    alike(|value| i64::from(value) - 100);
}

#[test]
fn floats_and_located_values() {
    alike(|value| Located::new(f32::from(value % 4), value.into()));
    if crate::is_short_on_cards() {
        return;
    }
    alike(|value| f32::from(value) / 8.0);
    alike(|value| f64::from(value) - 100.0);
    alike(|value| Located::new(u32::from(value % 4), value.into()));
    alike(|value| Located::new(i32::from(value % 4) - 2, value.into()));
}
