//! Statistics of numbers that are spread over the ranks: where each rank's begin, their mean and
//! variance, the largest one and whose it is, a histogram, and the largest of each rank at rank 0.
//!
//! ```text
//! cargo run --release --example reductions                     alone
//! cargo run --release --example reductions -- --threads 4      as threads
//! onesided run -n 4 -- target/release/examples/reductions      as processes
//! ```
#![allow(clippy::print_stdout)] // a program's purpose

use onesided::{Commutative, Located, Messages, Op, World};

const NUMBERS: usize = 100_000;
const BINS: usize = 10;

/// The number, the mean, and the sum of the squared distances from it.
type Moments = [f64; 3];

fn main() -> onesided::Result<()> {
    let mut args = std::env::args().skip(1);
    match (args.next().as_deref(), args.next().and_then(|ranks| ranks.parse().ok())) {
        (Some("--threads"), Some(ranks)) => onesided::threads(ranks, run).map(drop),
        _ => run(World::init()?),
    }
}

fn run(world: World) -> onesided::Result<()> {
    let messages = Messages::new(&world).wait()?;
    let (me, size) = (world.rank(), world.size() as usize);

    // The ranks have different numbers of numbers. Those before this rank say where its own begin.
    let count = NUMBERS / size + usize::from((me as usize) < NUMBERS % size);
    let mut first = [count];
    messages.scan(&mut first, Op::Sum).wait()?;
    let first = first[0] - count;
    let mine: Vec<f64> = (first..first + count).map(number).collect();

    // Several values are reduced at once: a vector costs what one value costs.
    let mut histogram = [0_u64; BINS];
    mine.iter().for_each(|number| histogram[(number * BINS as f64) as usize] += 1);
    let histogram_sum = messages.all_reduce(&mut histogram, Op::Sum);

    // Another one may be under way meanwhile.
    let mut moments = [mine.iter().map(|number| [1.0, *number, 0.0]).fold([0.0; 3], combined)];
    let moments_of_all = messages.all_reduce(&mut moments, Commutative(combined));

    let largest = mine.iter().fold(0.0, |largest: f64, number| largest.max(*number));
    let mut located = [Located::new(largest as f32, me)];
    let largest_of_all = messages.all_reduce(&mut located, Op::MaxLoc);
    for request in [histogram_sum, moments_of_all, largest_of_all] {
        request.wait()?;
    }

    // Rank 0 gets the largest number of each rank; the others give it no room.
    let mut of_ranks = vec![0.0; if me == 0 { size } else { 0 }];
    messages.gather(&[largest], &mut of_ranks, 0).wait()?;

    let [[count, mean, squares]] = moments;
    assert_eq!((count, histogram.iter().sum()), (NUMBERS as f64, NUMBERS as u64));
    if me == 0 {
        let owner = located[0].index() as usize;
        assert!(of_ranks.iter().all(|largest| *largest <= of_ranks[owner]));
        let deviation = (squares / count).sqrt();
        println!("{size} ranks have {NUMBERS} numbers: mean {mean:.3}, deviation {deviation:.3}, {histogram:?}");
    }
    Ok(())
}

/// The moments of two sets of numbers together (Chan, Golub and LeVeque 1979).
fn combined(one: Moments, other: Moments) -> Moments {
    let ([a, mean_a, squares_a], [b, mean_b, squares_b]) = (one, other);
    let (count, apart) = ((a + b).max(1.0), mean_b - mean_a);
    [a + b, mean_a + apart * b / count, squares_a + squares_b + apart * apart * a * b / count]
}

/// A number in 0..1, by its place.
fn number(at: usize) -> f64 {
    let mixed = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 11) as f64 / (1_u64 << 53) as f64
}
