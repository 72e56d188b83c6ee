//! Memory ordering between this rank's own loads and stores and its operations (`MPI_Win_sync`).

use std::sync::atomic::{Ordering, fence};

use onesided_fabric::Fabric;

use crate::{Element, Window};

impl<T: Element, F: Fabric> Window<T, F> {
    /// Orders this thread's own accesses to mapped memory, by [`local`](Self::local) and
    /// [`direct`](Self::direct), and the operations that it posts: those before the call and those
    /// after it (`MPI_Win_sync`; MPI-4.1, 12.5.4). A full fence:
    ///
    /// - stores before it are visible to a rank that sees an operation posted after it, and to a
    ///   rank whose store a load after it does not see yet;
    /// - a load after it sees what a peer had [flushed](crate::Access::flush) before it put a flag,
    ///   if the flag was read before it.
    ///
    /// For programs that poll memory. Under a lock, and after a barrier, a fence or a signal, it is
    /// not needed: those order more. It does not wait, and completes no posted operation: that is a
    /// flush.
    ///
    /// ```
    /// # use onesided_windows::Window;
    /// # onesided_fabric::threads(2, |world| {
    /// let window = Window::<u64>::allocate(&world, 2).wait()?;
    /// if world.rank() == 0 {
    ///     let all = window.no_check();
    ///     let target = all.at(1)?;
    ///     target.put(0, &[42])?;
    ///     target.flush().wait()?;
    ///     target.put(1, &[1])?;
    /// #     target.flush().wait()?;
    /// } else {
    ///     while window.local().read(1..2) != [1] {
    ///         std::thread::yield_now();
    ///     }
    ///     window.sync();
    ///     assert_eq!(window.local().read(0..1), [42]);
    /// }
    /// # window.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
    /// ```
    ///
    /// On shared memory it is the CPU's fence (on x86-64 `mfence` or an equivalent). It suffices
    /// over a card too, because the card accesses memory coherently with the CPU's caches: always
    /// so on x86-64; no other machine was tested.
    #[inline]
    pub fn sync(&self) {
        fence(Ordering::SeqCst);
    }
}
