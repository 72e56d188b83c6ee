//! Helpers for simulated time, bounds, and lists of variants.

use onesided_fabric::remote_memory::RemoteMemory;
use onesided_fabric::{Fabric, World};
use onesided_sim::SimFabric;

pub(crate) async fn pause(fabric: &SimFabric, nanos: u64) {
    let own = fabric.world_segment(fabric.rank()).unwrap();
    fabric.pause(fabric.word_in(&own, 0).unwrap(), nanos).await;
}

/// Waits until a point in time.
pub(crate) async fn until(fabric: &SimFabric, time: u64) {
    while fabric.now() < time {
        pause(fabric, time - fabric.now()).await;
    }
}

pub(crate) async fn pause_until(world: &World<SimFabric>, time: u64) {
    until(world.fabric(), time).await;
}

/// A bound of every run of the tests, or, with `ONESIDED_LONG` set, of `scripts/test --long`.
pub(crate) fn bound<T>(usual: T, long: T) -> T {
    if std::env::var_os("ONESIDED_LONG").is_some() { long } else { usual }
}

/// An enum whose variants are in scope by their names, and all of them.
macro_rules! variants {
    ($(#[$doc:meta])* $name:ident, $all:ident: $($(#[$of_one:meta])* $variant:ident,)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        enum $name {
            $($(#[$of_one])* $variant,)*
        }

        use $name::{$($variant),*};

        const $all: &[$name] = &[$($variant),*];
    };
}

pub(crate) use variants;
