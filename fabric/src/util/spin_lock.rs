//! A lock that is mostly held for a few hundred instructions.
#![allow(unsafe_code)] // a lock hands out what it protects

use std::cell::UnsafeCell;
use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use onesided_job::fork;
use onesided_job::lock;
use onesided_remote_memory::debug;

use crate::util::sync::atomic::{AtomicBool, Ordering};
use crate::util::sync::thread;

/// Looks of a waiting thread before it yields its core, and yields before it naps.
const SPINS: u32 = 100;
const YIELDS: u32 = 100;
/// The holder waits for a core that this thread, or one of a higher priority, would keep from it.
const NAP: Duration = Duration::from_micros(50);

/// A lock whose release is a plain store, which takes less time than that of a
/// [`Mutex`](std::sync::Mutex): nobody is woken, so a thread that waits for longer looks again after
/// naps, up to 50 us late. A panic of its holder does not poison it.
pub struct SpinLock<T> {
    is_held: AtomicBool,
    value: UnsafeCell<T>,
}

/// The value of a lock, which is released when this is dropped.
pub struct SpinGuard<'l, T> {
    lock: &'l SpinLock<T>,
}

// SAFETY: the value is reached by a guard alone, and there is one guard at a time, which may be another
// thread's each time: that takes `T: Send`.
unsafe impl<T: Send> Sync for SpinLock<T> {}

// SAFETY: a shared guard gives shared access to the value, and nothing else.
unsafe impl<T: Sync> Sync for SpinGuard<'_, T> {}

impl<T> SpinLock<T> {
    /// A lock that is not held.
    pub fn new(value: T) -> Self {
        Self { is_held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Waits until no other thread holds the lock. A thread that holds it already waits for ever.
    #[inline]
    pub fn lock(&self) -> SpinGuard<'_, T> {
        self.try_lock().unwrap_or_else(|| self.wait())
    }

    /// Holds the lock, if nobody does.
    #[inline]
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        // Acquire: what the holder before did comes before what this one does.
        let taken = self.is_held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        taken.ok().map(|_| SpinGuard { lock: self })
    }

    /// A thread that forks holds this lock of `owner` meanwhile, while `owner` lives: the child would find it held by a
    /// thread that it does not have.
    pub fn hold_over_forks<O: Send + Sync + 'static>(owner: Weak<O>, lock: fn(&O) -> &Self)
    where
        T: Send + 'static,
    {
        fork::hold_over_forks(Box::new(OverForks { owner, lock, held: Mutex::default() }));
    }

    #[cold]
    fn wait(&self) -> SpinGuard<'_, T> {
        let mut looks = 0;
        loop {
            if !self.is_held.load(Ordering::Relaxed)
                && let Some(guard) = self.try_lock()
            {
                return guard;
            }
            pause(looks);
            looks = looks.saturating_add(1);
        }
    }
}

/// A lock, for threads that fork.
struct OverForks<O, T> {
    owner: Weak<O>,
    lock: fn(&O) -> &SpinLock<T>,
    held: Mutex<Option<Arc<O>>>,
}

impl<O: Send + Sync, T: Send> fork::Lock for OverForks<O, T> {
    fn is_there(&self) -> bool {
        self.owner.strong_count() > 0
    }

    fn hold(&self) {
        let owner = self.owner.upgrade();
        if let Some(owner) = &owner {
            mem::forget((self.lock)(owner).lock());
        }
        *lock(&self.held) = owner;
    }

    fn release(&self) {
        let mut held = lock(&self.held);
        if let Some(owner) = &*held {
            // The guard was forgotten by `hold`.
            (self.lock)(owner).is_held.store(false, Ordering::Release);
        }
        let owner = if fork::is_child() { None } else { held.take() };
        drop((held, owner)); // the last one, perhaps
    }
}

#[cfg(not(onesided_loom))]
fn pause(looks: u32) {
    match looks.checked_sub(SPINS) {
        None => std::hint::spin_loop(),
        Some(..YIELDS) => thread::yield_now(),
        Some(_) => thread::sleep(NAP),
    }
}

#[cfg(onesided_loom)]
fn pause(_: u32) {
    thread::yield_now();
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: there is one guard at a time, and it is borrowed as long as the reference lives.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: there is one guard at a time, and it is borrowed mutably as long as the reference
        // lives.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Release: what this holder did comes before what the next one does.
        self.lock.is_held.store(false, Ordering::Release);
    }
}

debug!([T] SpinLock<T>, |_this| "SpinLock {{ .. }}");

impl<T: fmt::Debug> fmt::Debug for SpinGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[cfg(not(onesided_loom))]
    #[test]
    fn holders_see_what_others_did() {
        let lock = SpinLock::new([0; 2]);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let mut sums = lock.lock();
                        assert_eq!(sums[0], sums[1], "a holder sees half of what another one did");
                        sums[0] += 1;
                        sums[1] += 1;
                    }
                });
            }
        });
        let held = lock.lock();
        assert_eq!(*held, [40_000; 2]);
        assert!(lock.try_lock().is_none());
        drop(held);
        assert!(lock.try_lock().is_some());
    }

    #[cfg(not(onesided_loom))]
    #[test]
    fn a_panic_gives_it_back() {
        let lock = Arc::new(SpinLock::new(0));
        let of_thread = Arc::clone(&lock);
        let panicked = thread::spawn(move || {
            *of_thread.lock() += 1;
            let _held = of_thread.lock();
            panic!("on purpose");
        });
        assert!(panicked.join().is_err());
        assert_eq!(*lock.lock(), 1);
    }

    /// Under loom the value is two of its atomics, whose relaxed accesses only the lock orders.
    #[cfg(onesided_loom)]
    #[test]
    fn holders_see_what_others_did() {
        use crate::util::sync::atomic::AtomicU32;

        loom::model(|| {
            let lock = Arc::new(SpinLock::new([AtomicU32::new(0), AtomicU32::new(0)]));
            let add = |lock: &SpinLock<[AtomicU32; 2]>| {
                let sums = lock.lock();
                let [first, second] = sums.each_ref().map(|sum| sum.load(Ordering::Relaxed));
                assert_eq!(first, second, "a holder sees half of what another one did");
                sums.iter().for_each(|sum| sum.store(first + 1, Ordering::Relaxed));
            };
            let of_thread = Arc::clone(&lock);
            let other = thread::spawn(move || add(&of_thread));
            add(&lock);
            other.join().unwrap();
            assert_eq!(lock.lock()[1].load(Ordering::Relaxed), 2);
        });
    }
}
