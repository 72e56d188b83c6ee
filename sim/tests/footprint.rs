//! The memory of a simulated rank, counted.

mod counting;

use onesided_fabric::remote_memory::{At, Patience, Rank, RegionId, RemoteMemory};
use onesided_sim::{End, Network, SimFabric, Simulation};

/// Adds at rank 0, notes that at its own node, and waits there for the next rank's word.
async fn queue_up(fabric: SimFabric) {
    let word = |rank, offset| fabric.word(At { rank, region: RegionId(0), offset }).unwrap();
    let (me, own) = (fabric.rank(), word(fabric.rank(), 8));
    let place = fabric.fetch_add(word(Rank(0), 0), 1).await.unwrap();
    fabric.store(word(me, 16), place).unwrap();
    let next = word(Rank((me.0 + 1) % fabric.size()), 8);
    if me != Rank(0) {
        fabric.wait_until(own, |value| value != 0, Patience::until(u64::MAX)).await.unwrap();
    }
    fabric.write(next, 1, onesided_fabric::remote_memory::Notify::Yes).await.unwrap();
}

/// The simulator's own state of a rank and the program above, without the state of a lock.
#[test]
fn a_rank_is_small() {
    const RANKS: u32 = 20_000;
    let bytes = counting::peak_of(|| {
        let report = Simulation::new(Network::default()).ranks(RANKS).run_direct(queue_up);
        assert_eq!(report.end, End::Finished);
    }) / RANKS as usize;
    assert!(bytes < 480, "{bytes} bytes a rank");
}
