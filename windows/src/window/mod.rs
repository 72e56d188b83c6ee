//! The window.

pub(crate) mod background;
pub(crate) mod close;
pub(crate) mod create;
pub(crate) mod exchange;
pub(crate) mod group;
pub(crate) mod info;
pub(crate) mod inner;
pub(crate) mod lifecycle;
pub(crate) mod own_lock;
pub(crate) mod paths;
pub(crate) mod retry;
pub(crate) mod target;

use std::marker::PhantomData;
use std::sync::Arc;

use onesided_fabric::{Fabric, World, debug};

use crate::Element;
use crate::datatype::element::elements_in;
use crate::window::inner::Inner;

/// Memory of type `[T]` on every rank of a world, which every rank may read, write and lock without
/// the help of its owner.
///
/// ```
/// # use onesided_windows::Window;
/// onesided_fabric::threads(2, |world| {
///     let scores = Window::<u64>::allocate(&world, 1024).wait()?;
///     let next = (world.rank() + 1) % world.size();
///     let epoch = scores.lock_exclusive(next).wait()?;
///     let old = epoch.fetch_add(0, 1).wait()?;
///     epoch.put(8, &[old, 42])?;
///     epoch.unlock().wait()?;
///     scores.close().wait()
/// })
/// .unwrap()
/// .into_iter()
/// .collect::<Result<(), onesided_windows::Error>>()
/// .unwrap();
/// ```
///
/// Cheap to clone; all clones are the same window. Threads may share it. Offsets and lengths are in
/// elements. `Window::<u64>` names the default fabric: code that is generic over the fabric writes
/// `Window::<u64, _>`, or uses the [builder](Self::builder).
///
/// Dropping a window without [`close`](Self::close) ends it for this rank alone. On shared memory
/// this rank's mapping is freed, and peers that have mapped the memory keep it. Memory that is
/// registered with a network card stays until this rank leaves the world, because a peer that
/// accessed a freed region would lose its connection; a program that creates many windows should
/// close them. Memory that a window was [created](Self::create) over is freed and peers get errors,
/// unless a peer is in the middle of an operation on it: then it is leaked.
#[derive(Clone)]
pub struct Window<T, F: Fabric = onesided_fabric::Any> {
    pub(crate) inner: Arc<Inner<F>>,
    /// Keeps this rank in the world. `inner` does not: background tasks hold it.
    world: World<F>,
    element: PhantomData<fn() -> T>,
}

impl<T: Element, F: Fabric> Window<T, F> {
    pub(crate) const fn inner(&self) -> &Arc<Inner<F>> {
        &self.inner
    }

    /// The number of elements of a rank's window memory; 0 for a rank out of range.
    pub fn len(&self, rank: u32) -> usize {
        elements_in::<T>(self.inner.memory.len(rank))
    }

    /// The window's name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The world that the window belongs to.
    pub const fn world(&self) -> &World<F> {
        &self.world
    }
}

debug!(
    [T, F: Fabric] Window<T, F>,
    |this| "Window {{ name: {:?}, element: {:?}, lengths: {:?}, .. }}", this.inner.name, std::any::type_name::<T>(),
    this.inner.memory.keys.iter().map(|keys| elements_in::<T>(keys.len)).collect::<Vec<_>>()
);
