//! Heat flows along a ring of cells that are distributed over the ranks. In every step each rank
//! needs the cells beside its own, the halo. Neighbours put them there and signal; ranks that are
//! not neighbours do not wait for one another.
//!
//! ```sh
//! cargo run --example halo_exchange                            # one rank
//! onesided run -n 4 -- target/debug/examples/halo_exchange     # four processes
//! ```
#![allow(clippy::print_stdout)] // a program's purpose

use onesided::{Result, Window, World};

/// The number of cells of each rank, and of steps.
const CELLS: usize = 100;
const STEPS: u64 = 1000;
/// What came from the left neighbour, and from the right one.
const LEFT: usize = 0;
const RIGHT: usize = 1;

fn main() -> Result<()> {
    let world = World::init()?;
    let (rank, size) = (world.rank(), world.size());
    // Two halos, used in turn: a neighbour may be a step ahead, but no more.
    let halos = Window::<f64>::allocate(&world, 4).wait()?;
    let signals = Window::<u64>::allocate(&world, 2).wait()?;

    // Each element has one origin, so no lock is needed.
    let (access, flags) = (halos.no_check(), signals.no_check());
    let neighbours = [(rank + size - 1) % size, (rank + 1) % size];
    let [(to_left, flag_left), (to_right, flag_right)] =
        [(access.at(neighbours[0])?, flags.at(neighbours[0])?), (access.at(neighbours[1])?, flags.at(neighbours[1])?)];

    let start = initial(size);
    let here = rank as usize * CELLS..(rank as usize + 1) * CELLS;
    let mut cells = start[here.clone()].to_vec();
    for step in 1..=STEPS {
        let halo = 2 * (step % 2) as usize;
        // This rank is the right neighbour of its left one. The signal arrives behind the cell.
        to_left.put_signal(halo + RIGHT, &cells[..1], flag_left, RIGHT, step)?;
        to_right.put_signal(halo + LEFT, &cells[CELLS - 1..], flag_right, LEFT, step)?;
        signals.local().wait_until(LEFT, |signal| signal >= step).wait()?;
        signals.local().wait_until(RIGHT, |signal| signal >= step).wait()?;
        let beside = halos.local().read(halo..halo + 2);
        cells = flow(beside[LEFT], &cells, beside[RIGHT]);
    }

    // The same by one rank alone.
    let mut ring = start;
    for _ in 0..STEPS {
        ring = flow(ring[ring.len() - 1], &ring, ring[0]);
    }
    assert_eq!(cells, ring[here]);

    access.end().wait()?;
    flags.end().wait()?;
    world.barrier().wait()?;
    if rank == 0 {
        println!("{size} ranks computed {STEPS} steps of {} cells", ring.len());
    }
    signals.close().wait()?;
    halos.close().wait()?;
    Ok(())
}

/// One hot cell of each rank's.
fn initial(size: u32) -> Vec<f64> {
    (0..size as usize * CELLS).map(|cell| if cell % CELLS == 7 { 100.0 } else { 0.0 }).collect()
}

/// One step: each cell becomes the mean of itself and the two beside it.
fn flow(left: f64, cells: &[f64], right: f64) -> Vec<f64> {
    let all = [&[left], cells, &[right]].concat();
    all.windows(3).map(|three| (three[0] + three[1] + three[2]) / 3.0).collect()
}
