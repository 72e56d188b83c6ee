//! Helpers for simulated time.

use onesided_fabric::remote_memory::RemoteMemory;
use onesided_fabric::{Fabric, World};
use onesided_sim::SimFabric;

/// Waits until a point in time.
pub(crate) async fn pause_until(world: &World<SimFabric>, time: u64) {
    let fabric = world.fabric();
    let own = fabric.world_segment(fabric.rank()).unwrap();
    while fabric.now() < time {
        fabric.pause(fabric.word_in(&own, 0).unwrap(), time - fabric.now()).await;
    }
}
