//! Common parts of `Mutex` and `RwLock`: a value, its lock, and the guards.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::thread;

use onesided_fabric::remote_memory::{Collective, FaultKind};
use onesided_fabric::{Any, Fabric, World, debug};
use onesided_lock_algos::{Intent, Mode};

use crate::handles::{Begin, Recover};
use crate::operation::request::Locking;
use crate::sync::deferred_lock::DeferredLock;
use crate::{Builder, Element, Epoch, Error, PreviousOwner, Request, Window};

/// A window of one element at one rank.
#[derive(Clone)]
pub(crate) struct Value<T, F: Fabric> {
    pub(crate) window: Window<T, F>,
    pub(crate) home: u32,
}

impl<T: Element, F: Fabric> Value<T, F> {
    /// Collective.
    pub(crate) async fn make(builder: Builder<T>, world: &World<F>, home: u32, value: T) -> Result<Self, Error> {
        let here = world.rank() == home;
        let window = builder.plain().uneven().allocate(world, usize::from(here)).await?;
        if here {
            window.local().write(0, &[value])?;
        }
        // When all ranks have arrived here the value is in place.
        let all = world.gather(Collective::CreateWindow, &home.to_le_bytes()).await;
        let name = || window.inner().name.clone();
        let all = all.map_err(|fault| Error::Collective { operation: "create", window: name(), fault })?;
        // All ranks compare the same data, so all reach the same verdict.
        if let Some((rank, theirs)) = (0..).zip(&all).find(|(_, theirs)| **theirs != all[0]) {
            let home_of = |bytes: &[u8]| bytes.try_into().map_or(u32::MAX, u32::from_le_bytes);
            let what =
                format!("the home of the value: it passed {}, rank 0 passed {}", home_of(theirs), home_of(&all[0]));
            return Err(Error::Mismatch { window: name(), rank, what });
        }
        if home >= world.size() {
            return Err(Error::Rank { operation: "create", target: home, size: world.size(), window: name() });
        }
        Ok(Self { window, home })
    }

    /// Does nothing unless waited on or polled. `name` is the call's in errors.
    pub(crate) fn lock<'m, G: Guard<'m, T, F>>(
        &'m self,
        name: &'static str,
    ) -> Request<'m, G, F, Error, impl Begin<G> + Recover + use<'m, T, F, G>> {
        let (window, target) = (&self.window, self.home);
        let lock = move |intent| DeferredLock { window, target, mode: G::MODE, intent, name };
        let call = move |intent| async move {
            let mut value = [T::zeroed()];
            let epoch = lock(intent).held_with(0, &mut value).await;
            G::of(epoch.map(|epoch| (epoch.claim(), value[0])).map_err(|error| error.of_call(name)))
        };
        Request::unboxed(lock(G::INTENT).awaited(), name, Locking { intent: G::INTENT, call })
    }
}

debug!(
    [T: Element, F: Fabric] Value<T, F>,
    |this| "a {} at rank {} of \"{}\"", std::any::type_name::<T>(), this.home, this.window.name()
);

/// What a [`Mutex`](crate::Mutex) and an [`RwLock`](crate::RwLock) have in common.
macro_rules! value {
    ($name:ident, $what:literal) => {
        impl<T: Element, F: Fabric> $name<T, F> {
            #[doc = concat!("Makes ", $what, " whose value is at rank `home`. Its initial value is the one that `home`")]
            /// passes; those of the other ranks are ignored. Collective.
            ///
            /// # Errors
            /// Those of [`Builder::allocate`]; [`Error::Mismatch`](crate::Error::Mismatch) where the ranks
            /// do not name the same home; [`Error::Rank`](crate::Error::Rank) where there is no such rank.
            ///
            /// # Cancel safety
            /// Not cancel safe: collective, as a [barrier](World::barrier).
            pub fn new(world: &World<F>, home: u32, value: T) -> Request<'_, Self, F> {
                Self::with(Builder::default(), world, home, value)
            }

            /// The same, with a name, a lock and other settings of a window builder.
            ///
            /// # Errors
            /// As [`new`](Self::new).
            ///
            /// # Cancel safety
            /// As [`new`](Self::new).
            pub fn with(builder: Builder<T>, world: &World<F>, home: u32, value: T) -> Request<'_, Self, F> {
                let builder = builder.named(|| format!(concat!($what, " of {}"), std::any::type_name::<T>()));
                let awaited = builder.awaited(world);
                Request::new(awaited, "create", async move { Value::make(builder, world, home, value).await.map(Self) })
            }

            /// The rank of the value.
            pub const fn home(&self) -> u32 {
                self.0.home
            }

            #[doc = concat!("Closes ", $what, " on all ranks and reports the first deferred error. Collective. Clones")]
            /// become useless, as those of a [window](crate::Window::close).
            ///
            /// # Errors
            /// Those of [`Window::close`](crate::Window::close).
            pub fn close(self) -> Request<'static, (), F> {
                self.0.window.close()
            }
        }

        debug!([T: Element, F: Fabric] $name<T, F>, |this| "{} of {:?}", stringify!($name), this.0);
    };
}

pub(crate) use value;

/// A guard of a value, or `None` where another owner has the lock.
pub(crate) trait Guard<'m, T: Element, F: Fabric>: Send + Sized + 'm {
    const MODE: Mode;
    const INTENT: Intent;
    fn of(held: Result<(Epoch<'m, T, F>, T), Error>) -> Result<Self, Error>;
}

impl<'m, T: Element, F: Fabric, G: Guard<'m, T, F>> Guard<'m, T, F> for Option<G> {
    const INTENT: Intent = Intent::TRY;
    const MODE: Mode = G::MODE;

    fn of(held: Result<(Epoch<'m, T, F>, T), Error>) -> Result<Self, Error> {
        match held {
            Err(Error::Lock { fault, .. }) if fault.kind() == FaultKind::TimedOut => Ok(None),
            held => G::of(held).map(Some),
        }
    }
}

/// A value that is locked, as it was when it was locked: a [`ReadGuard`], or a [`WriteGuard`].
#[must_use = "if unused the lock is released immediately"]
pub struct ValueGuard<'m, T: Element, F: Fabric, const WRITES: bool> {
    epoch: Option<Epoch<'m, T, F>>,
    value: T,
    changed: bool,
    /// Whether the thread was panicking already: a guard that a destructor makes writes back as
    /// usual.
    panicked: bool,
}

/// A value that is locked shared, as it was when it was locked; it cannot change meanwhile. A drop
/// releases the lock.
pub type ReadGuard<'m, T, F = Any> = ValueGuard<'m, T, F, false>;

/// A value that is locked exclusively: a copy, which is written back at the release if it was
/// borrowed mutably.
///
/// [`unlock`](ValueGuard::unlock) reports errors and completes when the value is written back. A drop
/// writes it back too without waiting; the `close` of the value reports the errors of that. **If
/// the thread panics, the value is not written back**: other ranks never see a half-done change, so
/// a panic poisons nothing, unlike one under an [`Epoch`] (a death does: see
/// [`Request::recover`]).
pub type WriteGuard<'m, T, F = Any> = ValueGuard<'m, T, F, true>;

impl<'m, T: Element, F: Fabric, const WRITES: bool> Guard<'m, T, F> for ValueGuard<'m, T, F, WRITES> {
    const INTENT: Intent = Intent::LOCK;
    const MODE: Mode = if WRITES { Mode::Exclusive } else { Mode::Shared };

    fn of(held: Result<(Epoch<'m, T, F>, T), Error>) -> Result<Self, Error> {
        held.map(|(epoch, value)| Self { epoch: Some(epoch), value, changed: false, panicked: thread::panicking() })
    }
}

impl<'m, T: Element, F: Fabric, const WRITES: bool> ValueGuard<'m, T, F, WRITES> {
    /// The failed previous owner, if the lock was [recovered](Request::recover).
    pub fn previous_owner(&self) -> Option<PreviousOwner> {
        self.held().previous_owner()
    }

    /// Draws a fencing token: see [`Epoch::fencing_token`].
    pub fn fencing_token(&self) -> Request<'m, u64, F, Error, impl Begin<u64> + use<'m, T, F, WRITES>> {
        self.held().fencing_token()
    }

    fn held(&self) -> &Epoch<'m, T, F> {
        match &self.epoch {
            Some(epoch) => epoch,
            None => unreachable!("a guard holds its lock until it is consumed"),
        }
    }

    /// Posts the write-back and returns what is left to do.
    fn put_back(&mut self) -> (Option<Epoch<'m, T, F>>, Result<(), Error>) {
        let Some(epoch) = self.epoch.take() else { return (None, Ok(())) };
        let half_done = thread::panicking() && !self.panicked;
        let put = if self.changed && !half_done { epoch.put(0, &[self.value]) } else { Ok(()) };
        (Some(epoch), put)
    }
}

impl<T: Element, F: Fabric, const WRITES: bool> Deref for ValueGuard<'_, T, F, WRITES> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

debug!(
    [T: Element + fmt::Debug, F: Fabric, const WRITES: bool] ValueGuard<'_, T, F, WRITES>,
    |this| "{}({:?})", if WRITES { "WriteGuard" } else { "ReadGuard" }, this.value
);

impl<'m, T: Element, F: Fabric> WriteGuard<'m, T, F> {
    /// Writes the value back, if it was borrowed mutably, and releases the lock. Completes when the
    /// value is complete at its rank, visible to every rank that synchronizes with this one, and
    /// the release is posted. Does nothing unless waited on or polled; a drop then does the same.
    ///
    /// # Errors
    /// When waited on: [`Error::Operation`] if the value could not be written back. The lock is
    /// released all the same.
    ///
    /// # Cancel safety
    /// May be dropped at any point: it writes back and releases as a drop of the guard does.
    pub fn unlock(mut self) -> Request<'m, (), F, Error, impl Begin<()> + use<'m, T, F>> {
        Request::unboxed(self.held().awaited(), "unlock", || async move {
            let (epoch, put) = self.put_back();
            match epoch {
                Some(epoch) => put.and(epoch.unlock().await), // released even if the put failed
                None => put,
            }
        })
    }
}

impl<T: Element, F: Fabric> DerefMut for WriteGuard<'_, T, F> {
    fn deref_mut(&mut self) -> &mut T {
        self.changed = true;
        &mut self.value
    }
}

impl<T: Element, F: Fabric, const WRITES: bool> Drop for ValueGuard<'_, T, F, WRITES> {
    fn drop(&mut self) {
        if let (Some(epoch), put) = self.put_back() {
            if let Err(error) = put {
                epoch.defer_error(error);
            }
            match epoch.mode() {
                // What it recovered and did not repair stays poisoned.
                _ if epoch.is_half_done() => drop(epoch.unclaimed()),
                Mode::Shared => epoch.unlock_unchanged(),
                // A token request may be in flight, and an exclusive release may take another path.
                Mode::Exclusive => epoch.unlock_posted(),
            }
        }
    }
}
