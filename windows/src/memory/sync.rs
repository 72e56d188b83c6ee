//! Order between this rank's own loads and stores and what others do (`MPI_Win_sync`).

use std::sync::atomic::{Ordering, fence};

use onesided_fabric::Fabric;

use crate::{Element, Window};

impl<T: Element, F: Fabric> Window<T, F> {
    /// Orders this thread's own accesses of mapped memory, by [`local`](Self::local) and [`direct`](Self::direct), and the
    /// operations that it posts: those before the call and those behind it (`MPI_Win_sync`; MPI-4.1, 12.5.4). A full fence:
    ///
    /// - what was written here before it is seen by whoever sees something that is done behind it, and by whoever misses
    ///   something that this rank read behind it as it was before;
    /// - what a peer had [flushed](crate::Access::flush) before it put a flag is read behind it, if the flag was read before
    ///   it.
    ///
    /// It is for programs that poll memory. Under a lock, and behind a barrier, a fence or a signal, it is not needed: they
    /// order more. It waits for nobody, and completes nothing that is posted: that is a flush.
    ///
    /// ```
    /// # use onesided_windows::Window;
    /// # onesided_fabric::threads(2, |world| {
    /// let window = Window::<u64>::allocate(&world, 2).wait()?;
    /// if world.rank() == 0 {
    ///     let all = window.no_check();
    ///     let part = all.at(1)?;
    ///     part.put(0, &[42])?;
    ///     part.flush().wait()?;
    ///     part.put(1, &[1])?;
    /// #     part.flush().wait()?;
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
    /// On shared memory it is the CPU's fence (on x86-64 `mfence` or what does the same). Over a card too, because a card
    /// works on memory that is coherent with the CPU's caches. On x86-64 that is so always; no other machine was tried.
    #[inline]
    pub fn sync(&self) {
        fence(Ordering::SeqCst);
    }
}
