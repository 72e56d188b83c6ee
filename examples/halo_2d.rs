//! Heat flows on a torus of cells that are distributed over a grid of ranks. In every step each rank
//! puts the edges of its block, rows and columns, into the halos of its four neighbours, and signals.
//!
//! ```sh
//! cargo run --example halo_2d                            # one rank
//! onesided run -n 4 -- target/debug/examples/halo_2d     # four processes
//! ```
#![allow(clippy::print_stdout)] // a program's purpose

use onesided::{Local, Result, Shape, Window, World};

/// The cells of each rank's block, and the number of steps.
const ROWS: usize = 12;
const COLUMNS: usize = 20;
const STEPS: u64 = 200;

/// A block with a halo of one cell around it.
const WIDTH: usize = COLUMNS + 2;
const BLOCK: usize = (ROWS + 2) * WIDTH;
const ROW: Shape<'static> = Shape::Row(COLUMNS);
const COLUMN: Shape<'static> = Shape::Vector { count: ROWS, block: 1, stride: WIDTH };

/// The place of a cell in a block; row and column 0 are halo.
const fn at(row: usize, column: usize) -> usize {
    row * WIDTH + column
}

/// What goes up, down, left and right: its shape, the first cell of the edge, and that of the
/// neighbour's halo.
const EDGES: [(Shape<'static>, usize, usize); 4] = [
    (ROW, at(1, 1), at(ROWS + 1, 1)),
    (ROW, at(ROWS, 1), at(0, 1)),
    (COLUMN, at(1, 1), at(1, COLUMNS + 1)),
    (COLUMN, at(1, COLUMNS), at(1, 0)),
];

fn main() -> Result<()> {
    let world = World::init()?;
    let (rank, size) = (world.rank() as usize, world.size() as usize);
    // As square as it can be.
    let down = (1..=size).filter(|rows| size % rows == 0 && rows * rows <= size).max().unwrap_or(1);
    let across = size / down;
    let (row, column) = (rank / across, rank % across);
    let neighbour = |row: usize, column: usize| ((row % down) * across + column % across) as u32;
    let neighbours = [
        neighbour(row + down - 1, column),
        neighbour(row + 1, column),
        neighbour(row, column + across - 1),
        neighbour(row, column + 1),
    ];

    // Two blocks, used in turn: a neighbour may be a step ahead, but no more.
    let blocks = Window::<f64>::allocate(&world, 2 * BLOCK).wait()?;
    let signals = Window::<u64>::allocate(&world, EDGES.len()).wait()?;
    // Each element has one origin, so no lock is needed.
    let (access, flags) = (blocks.no_check(), signals.no_check());
    let own = blocks.local();

    let torus = initial(down * ROWS, across * COLUMNS);
    let first = (row * ROWS, column * COLUMNS);
    for inner in 0..ROWS {
        own.write(BLOCK + at(inner + 1, 1), &torus[first.0 + inner][first.1..first.1 + COLUMNS])?;
    }
    for step in 1..=STEPS {
        let [now, next] = if step % 2 == 1 { [BLOCK, 0] } else { [0, BLOCK] };
        for (direction, ((shape, edge, halo), to)) in EDGES.into_iter().zip(neighbours).enumerate() {
            let mut cells = vec![0.0; shape.count()];
            own.read_shaped(now + edge, shape, &mut cells)?;
            let (to, flag) = (access.at(to)?, flags.at(to)?);
            to.put_signal_shaped(now + halo, shape, &cells, flag, direction, step).wait()?;
        }
        for direction in 0..EDGES.len() {
            signals.local().wait_until(direction, |signal| signal >= step).wait()?;
        }
        flow(&own, now, next)?;
    }

    // The same by one rank alone.
    let alone = (0..STEPS).fold(torus, |torus, _| flow_alone(&torus));
    let last = if STEPS % 2 == 1 { 0 } else { BLOCK };
    for inner in 0..ROWS {
        let cells = own.read(last + at(inner + 1, 1)..last + at(inner + 1, 1) + COLUMNS);
        assert_eq!(cells, alone[first.0 + inner][first.1..first.1 + COLUMNS]);
    }

    access.end().wait()?;
    flags.end().wait()?;
    world.barrier().wait()?;
    if rank == 0 {
        println!("{size} ranks computed {STEPS} steps of {} rows and {} columns", down * ROWS, across * COLUMNS);
    }
    signals.close().wait()?;
    blocks.close().wait()?;
    Ok(())
}

/// One hot cell in each block.
fn initial(rows: usize, columns: usize) -> Vec<Vec<f64>> {
    let cell = |row, column| if row % ROWS == 3 && column % COLUMNS == 0 { 100.0 } else { 0.0 };
    (0..rows).map(|row| (0..columns).map(|column| cell(row, column)).collect()).collect()
}

fn mean(cell: f64, [up, down, left, right]: [f64; 4]) -> f64 {
    (cell + up + down + left + right) / 5.0
}

/// One step of a block: each cell becomes the mean of itself and the four around it.
fn flow(own: &Local<'_, f64>, now: usize, next: usize) -> Result<()> {
    let cells = own.read(now..now + BLOCK);
    for row in 1..=ROWS {
        let around = |cell: usize| [cells[cell - WIDTH], cells[cell + WIDTH], cells[cell - 1], cells[cell + 1]];
        let means: Vec<_> = (at(row, 1)..=at(row, COLUMNS)).map(|cell| mean(cells[cell], around(cell))).collect();
        own.write(next + at(row, 1), &means)?;
    }
    Ok(())
}

/// One step of the torus.
fn flow_alone(torus: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let (rows, columns) = (torus.len(), torus[0].len());
    let cell = |row: usize, column: usize| {
        let (up, down) = (&torus[(row + rows - 1) % rows], &torus[(row + 1) % rows]);
        let (left, right) = (torus[row][(column + columns - 1) % columns], torus[row][(column + 1) % columns]);
        mean(torus[row][column], [up[column], down[column], left, right])
    };
    (0..rows).map(|row| (0..columns).map(|column| cell(row, column)).collect()).collect()
}
