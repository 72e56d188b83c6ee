//! A value that one origin at a time holds.

use onesided_fabric::{Any, Fabric, World, debug};

use crate::handles::{Begin, Recover};
use crate::sync::value::{Value, WriteGuard, value};
use crate::{Builder, Element, Error, Request};

/// A value at one rank that every rank may lock, read and change: `std::sync::Mutex` between
/// processes. Built from a [window](crate::Window) of one element and its lock.
///
/// ```
/// # use onesided_windows::Mutex;
/// # onesided_fabric::threads(3, |world| {
/// let total = Mutex::new(&world, 1, [0_u64; 4]).wait()?; // collective: four integers at rank 1
/// for _ in 0..100 {
///     let mut total = total.lock().wait()?;
///     total[0] += 1;
///     total[3] += 2;
/// } // written back and released
/// world.barrier().wait().unwrap();
/// assert_eq!(*total.lock().wait()?, [300, 0, 0, 600]);
/// total.close().wait()
/// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
/// ```
///
/// The guard holds a copy, because no reference may point to memory that peers write. Locking a
/// free mutex takes one round trip for lock and value together; the value is written back with the
/// release, which is not waited for. The next owner sees what the previous guard wrote back.
///
/// Unlike `std::sync::Mutex`, a panic under the guard does not poison it: the value is not written
/// back and stays as it was. A second lock by a rank that holds one waits until its deadline.
///
/// Cheap to clone; all clones are the same mutex.
#[derive(Clone)]
pub struct Mutex<T, F: Fabric = Any>(Value<T, F>);

value!(Mutex, "a mutex");

impl<T: Element, F: Fabric> Mutex<T, F> {
    /// Locks the mutex. Does nothing unless waited on or polled.
    ///
    /// # Errors
    /// Those of [`LockRequest::wait`](crate::handles::LockRequest::wait) and
    /// [`Access::get`](crate::Access::get).
    ///
    /// # Cancel safety
    /// May be dropped at any point and leaves nothing locked: the endpoint finishes and releases
    /// what was started.
    pub fn lock(&self) -> Request<'_, WriteGuard<'_, T, F>, F, Error, impl Begin<WriteGuard<'_, T, F>> + Recover> {
        self.0.lock("lock")
    }

    /// Locks the mutex if it is free; otherwise the result is `None`. Does nothing unless waited on
    /// or polled. Otherwise as [`lock`](Self::lock).
    pub fn try_lock(
        &self,
    ) -> Request<'_, Option<WriteGuard<'_, T, F>>, F, Error, impl Begin<Option<WriteGuard<'_, T, F>>> + Recover> {
        self.0.lock("try_lock")
    }
}
