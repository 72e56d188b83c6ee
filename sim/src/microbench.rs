//! Microbenchmarks of a profile: what its testbed is known to measure, on the simulated one.

use onesided_fabric::Fabric;
use onesided_remote_memory::{Fault, Notify, Patience, Rank, RemoteMemory};

use crate::endpoint::SimFabric;
use crate::network::Network;
use crate::simulation::Simulation;

/// Repetitions of each.
const TIMES: u64 = 20;
const BULK: u64 = 1 << 16;
/// Enough that the first one's time to fill the pipe does not matter.
const TRANSFERS: u64 = 400;

/// Runs a microbenchmark with two ranks on two hosts. `None`: there is none of this name.
///
/// | name | what | unit |
/// |---|---|---|
/// | `write` | half the round trip of two ranks that write to each other and poll | us |
/// | `write to a sleeper` | the same, but the receiver sleeps until the card's event | us |
/// | `read`, `compare-swap` | the operation, waited for | us |
/// | `lock loop` | a compare-swap that is waited for and one that is not, on one word | us |
/// | `bandwidth` | RDMA writes of 64 KiB | MB/s |
pub(crate) fn measure(network: &Network, name: &str) -> Option<f64> {
    let micros = |nanos: u64, operations: u64| nanos as f64 / operations as f64 / 1000.0;
    Some(match name {
        "write" => micros(run(network.clone(), ping_pong), 2 * TIMES),
        "write to a sleeper" => {
            let asleep = Network { polling: std::time::Duration::ZERO, ..network.clone() };
            micros(run(asleep, ping_pong), 2 * TIMES)
        }
        "read" => micros(run(network.clone(), async |fabric| repeat(fabric, Operation::Read).await), TIMES),
        "compare-swap" => {
            micros(run(network.clone(), async |fabric| repeat(fabric, Operation::CompareSwap).await), TIMES)
        }
        "lock loop" => micros(run(network.clone(), async |fabric| repeat(fabric, Operation::LockLoop).await), TIMES),
        "bandwidth" => (TRANSFERS * BULK) as f64 * 1e3 / run(network.clone(), stream) as f64,
        _ => return None,
    })
}

/// Runs a program on two ranks; returns the time that the first one measured.
fn run<R: Future<Output = Result<u64, Fault>>>(network: Network, program: impl Fn(SimFabric) -> R) -> u64 {
    let report = Simulation::new(network).per_host(1).run_direct(program);
    match report.results[0] {
        Some(Ok(nanos)) => nanos,
        ref failed => unreachable!("two ranks without faults: {failed:?}, {}", report.end),
    }
}

/// Rank 0 writes, rank 1 answers.
async fn ping_pong(fabric: SimFabric) -> Result<u64, Fault> {
    let (mine, peer) = (fabric.rank(), Rank(1 - fabric.rank().0));
    let segment = |rank| fabric.world_segment(rank).map_err(|error| error.fault());
    let (own, theirs) = (segment(mine)?, segment(peer)?);
    let (own, theirs) = (fabric.word_in(&own, 0)?, fabric.word_in(&theirs, 0)?);
    let mut begun = 0;
    for turn in 0..=TIMES {
        if turn == 1 {
            begun = fabric.now(); // the first turn aligns the two
        }
        if mine == Rank(0) {
            drop(fabric.write(theirs, turn + 1, Notify::Yes));
        }
        fabric.wait_until(own, move |value| value == turn + 1, Patience::on(peer)).await?;
        if mine == Rank(1) {
            drop(fabric.write(theirs, turn + 1, Notify::Yes));
        }
    }
    let took = fabric.now() - begun;
    fabric.flush(peer).await?;
    Ok(took)
}

#[derive(Clone, Copy)]
enum Operation {
    Read,
    CompareSwap,
    LockLoop,
}

async fn repeat(fabric: SimFabric, operation: Operation) -> Result<u64, Fault> {
    let segment = fabric.world_segment(Rank(1)).map_err(|error| error.fault())?;
    let word = fabric.word_in(&segment, 0)?;
    let mut begun = 0;
    for turn in 0..=if fabric.rank() == Rank(0) { TIMES } else { 0 } {
        if turn == 1 {
            begun = fabric.now();
        }
        match operation {
            Operation::Read => fabric.read(word).await?,
            Operation::CompareSwap => fabric.compare_swap(word, 1, 1).await?,
            Operation::LockLoop => {
                let found = fabric.compare_swap(word, 1, 1).await?;
                drop(fabric.compare_swap(word, 1, 1));
                found
            }
        };
    }
    Ok(fabric.now() - begun)
}

async fn stream(fabric: SimFabric) -> Result<u64, Fault> {
    let failed = |error: onesided_fabric::Error| error.fault();
    let own = fabric.allocate(BULK).map_err(failed)?;
    if fabric.rank() == Rank(1) {
        fabric.sleep(1_000_000_000).await; // its region lasts as long as its handle
        return Ok(0);
    }
    fabric.sleep(1_000_000).await;
    let theirs = fabric.open(&onesided_fabric::SegmentKey { rank: Rank(1), ..onesided_fabric::Segment::key(&own) });
    let theirs = theirs.map_err(failed)?;
    let begun = fabric.now();
    for _ in 0..TRANSFERS {
        drop(fabric.rdma_write((&own, 0), (&theirs, 0), BULK));
    }
    fabric.flush(Rank(1)).await?;
    Ok(fabric.now() - begun)
}
