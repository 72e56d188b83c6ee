//! Helpers for simulated time, and bounds.

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

/// A bound of every run of the tests, or, with `ONESIDED_LONG` set, of `scripts/test --long`.
#[allow(dead_code)] // not every test has one
pub(crate) fn bound<T>(usual: T, long: T) -> T {
    if std::env::var_os("ONESIDED_LONG").is_some() { long } else { usual }
}
