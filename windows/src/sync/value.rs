//! Common parts of `Mutex` and `RwLock`: a value, its lock, and the guards.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use onesided_fabric::{Call, Drive, Fabric, World, block_on, call, handle};
use onesided_lock_algos::Mode;

use crate::sync::combined::{DeferredLock, Locked};
use crate::{Builder, Element, Epoch, Error, FencingToken, LockRequest, PreviousOwner, Request, Window};

/// A window of one element at one rank.
pub(crate) struct Value<T: Element, F: Fabric> {
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
        let all = world.all_gather(&home.to_le_bytes()).await;
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

    pub(crate) fn lock<'m, G>(&'m self) -> ValueLock<'m, T, F, G>
    where
        G: Guard<'m, T, F>,
    {
        let lock = Locked::new(&self.window, self.home).deferred(G::MODE);
        ValueLock { lock, under_way: None, guard: PhantomData }
    }

    pub(crate) fn close(self) -> Request<'static, (), F> {
        self.window.close()
    }

    pub(crate) fn describe(&self, what: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{what} of a {} at rank {} of \"{}\"", std::any::type_name::<T>(), self.home, self.window.name())
    }
}

/// A guard of a value.
pub trait Guard<'m, T: Element, F: Fabric>: Sealed<'m, T, F> + Send + 'm {}

/// Constructs a guard.
pub trait Sealed<'m, T: Element, F: Fabric> {
    #[doc(hidden)]
    const MODE: Mode;
    #[doc(hidden)]
    fn new(epoch: Epoch<'m, T, F>, value: T) -> Self;
}

/// A request for a value's lock: `.wait()` blocks until the lock is held and the value is here,
/// `.await` does not block, `.test()` polls. Does nothing before that.
///
/// # Cancel safety
/// May be dropped at any point and leaves nothing locked: the endpoint finishes and releases what
/// was started.
#[must_use = "does nothing unless waited on or polled"]
pub struct ValueLock<'m, T: Element, F: Fabric, G> {
    lock: DeferredLock<'m, T, F>,
    /// Set once the request has started. Boxed, so that a request that is only waited on stays
    /// small.
    under_way: Option<Box<UnderWay<'m, T, F, G>>>,
    guard: PhantomData<G>,
}

struct UnderWay<'m, T: Element, F: Fabric, G> {
    /// The current settings: they may change between polls.
    options: Arc<Mutex<DeferredLock<'m, T, F>>>,
    call: Call<'m, (), Result<G, Error>>,
}

impl<'m, T: Element, F: Fabric, G: Guard<'m, T, F>> ValueLock<'m, T, F, G> {
    /// Sets a deadline for the lock: the error is then [`TimedOut`](Error::is_timed_out).
    pub const fn deadline(mut self, after: Duration) -> Self {
        self.lock = self.lock.deadline(after);
        self
    }

    /// Takes the lock over from a rank that died while it held it exclusively: the guard's
    /// `previous_owner` then names that rank, and the lock is held exclusively. The value may have
    /// been written back in part. See [`LockRequest::recover`](crate::LockRequest::recover).
    pub const fn recover(mut self) -> Self {
        self.lock = self.lock.recover();
        self
    }
}

impl<'m, T: Element, F: Drive, G: Guard<'m, T, F>> ValueLock<'m, T, F, G> {
    /// Blocks until the lock is held and the value is here.
    ///
    /// # Errors
    /// Those of [`LockRequest::wait`](crate::LockRequest::wait) and
    /// [`Access::get`](crate::Access::get).
    #[inline]
    pub fn wait(self) -> Result<G, Error> {
        match self.under_way {
            None if self.lock.completes_at_post() => {
                let epoch = self.lock.request().wait()?;
                let mut value = [T::zeroed()];
                epoch.get(0, &mut value).wait()?;
                Ok(G::new(epoch, value[0]))
            }
            under_way => Self { under_way, ..self }.wait_slowly(),
        }
    }

    fn wait_slowly(self) -> Result<G, Error> {
        let fabric = self.lock.window().inner().fabric();
        match self.under_way {
            None => block_on(fabric, held(self.lock, |_| ())),
            Some(_) => block_on(fabric, self),
        }
    }
}

handle! {
    ['m, T: Element, F, G: Guard<'m, T, F>], ValueLock<'m, T, F, G>, G, Error,
    |lock| lock.lock.window().inner().fabric()
}

// Nothing in it is pinned in place: what must not move is boxed.
impl<T: Element, F: Fabric, G> Unpin for ValueLock<'_, T, F, G> {}

impl<'m, T: Element, F: Fabric, G: Guard<'m, T, F>> Future for ValueLock<'m, T, F, G> {
    type Output = Result<G, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { lock, under_way, .. } = &mut *self;
        let UnderWay { options, call } = &mut **under_way.get_or_insert_with(|| {
            Box::new(UnderWay { options: Arc::new(Mutex::new(*lock)), call: Call::NotStarted(()) })
        });
        *options.lock().unwrap_or_else(PoisonError::into_inner) = lock.take_options();
        call.poll(cx, |()| {
            let options = Arc::clone(options);
            held(*lock, move |request| options.lock().unwrap_or_else(PoisonError::into_inner).update_request(request))
        })
    }
}

async fn held<'m, T: Element, F: Fabric, G: Guard<'m, T, F>>(
    lock: DeferredLock<'m, T, F>,
    update_request: impl Fn(&mut LockRequest<'m, T, F>),
) -> Result<G, Error> {
    let mut value = [T::zeroed()];
    let epoch = lock.held_with(0, &mut value, update_request).await?;
    Ok(G::new(epoch, value[0]))
}

impl<T: Element, F: Fabric, G> fmt::Debug for ValueLock<'_, T, F, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a lock of {:?}, ", self.lock.window())?;
        match &self.under_way {
            None => f.write_str("not started"),
            Some(under_way) => write!(f, "{:?}", under_way.call),
        }
    }
}

fn token<'m, T: Element, F: Fabric>(epoch: Option<&Epoch<'m, T, F>>) -> FencingToken<'m, F> {
    match epoch {
        Some(epoch) => epoch.fencing_token(),
        None => unreachable!("a guard holds its lock until it is consumed"),
    }
}

/// A value that is locked shared, as it was when it was locked; it cannot change meanwhile. A drop
/// releases the lock.
#[must_use = "if unused the lock is released immediately"]
pub struct ReadGuard<'m, T: Element, F: Fabric> {
    epoch: Option<Epoch<'m, T, F>>,
    value: T,
}

impl<'m, T: Element, F: Fabric> Guard<'m, T, F> for ReadGuard<'m, T, F> {}

impl<'m, T: Element, F: Fabric> Sealed<'m, T, F> for ReadGuard<'m, T, F> {
    const MODE: Mode = Mode::Shared;

    fn new(epoch: Epoch<'m, T, F>, value: T) -> Self {
        Self { epoch: Some(epoch), value }
    }
}

impl<'m, T: Element, F: Fabric> ReadGuard<'m, T, F> {
    /// The failed previous owner, if the lock was [recovered](ValueLock::recover).
    pub fn previous_owner(&self) -> Option<PreviousOwner> {
        self.epoch.as_ref().and_then(Epoch::previous_owner)
    }

    /// Draws a fencing token: see [`Epoch::fencing_token`].
    pub fn fencing_token(&self) -> FencingToken<'m, F> {
        token(self.epoch.as_ref())
    }
}

impl<T: Element, F: Fabric> Deref for ReadGuard<'_, T, F> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Element, F: Fabric> Drop for ReadGuard<'_, T, F> {
    fn drop(&mut self) {
        match self.epoch.take() {
            // A token request may be in flight, and an exclusive release may take another path.
            Some(epoch) if epoch.is_half_done() => epoch.release_unclaimed(),
            Some(epoch) if epoch.mode() == Mode::Exclusive => epoch.unlock_posted(),
            Some(epoch) => epoch.unlock_unchanged(),
            None => {}
        }
    }
}

/// A value that is locked exclusively: a copy, which is written back at the release if it was
/// borrowed mutably.
///
/// [`unlock`](Self::unlock) reports errors and completes when the value is written back. A drop
/// writes it back too without waiting; the `close` of the value reports the errors of that. **If
/// the thread panics, the value is not written back**: other ranks never see a half-done change, so
/// a panic poisons nothing, unlike one under an [`Epoch`] (a death does: see
/// [`ValueLock::recover`]).
#[must_use = "if unused the lock is released immediately"]
pub struct WriteGuard<'m, T: Element, F: Fabric> {
    fabric: &'m F,
    epoch: Option<Epoch<'m, T, F>>,
    value: T,
    changed: bool,
    /// Whether the thread was panicking already: a guard that a destructor makes writes back as
    /// usual.
    panicked: bool,
}

impl<'m, T: Element, F: Fabric> Guard<'m, T, F> for WriteGuard<'m, T, F> {}

impl<'m, T: Element, F: Fabric> Sealed<'m, T, F> for WriteGuard<'m, T, F> {
    const MODE: Mode = Mode::Exclusive;

    fn new(epoch: Epoch<'m, T, F>, value: T) -> Self {
        Self { fabric: epoch.fabric(), epoch: Some(epoch), value, changed: false, panicked: thread::panicking() }
    }
}

impl<'m, T: Element, F: Fabric> WriteGuard<'m, T, F> {
    /// The failed previous owner, if the lock was [recovered](ValueLock::recover).
    pub fn previous_owner(&self) -> Option<PreviousOwner> {
        self.epoch.as_ref().and_then(Epoch::previous_owner)
    }

    /// Draws a fencing token: see [`Epoch::fencing_token`].
    pub fn fencing_token(&self) -> FencingToken<'m, F> {
        token(self.epoch.as_ref())
    }

    /// Writes the value back, if it was borrowed mutably, and releases the lock. Completes when the
    /// value is complete at its rank, visible to every rank that synchronizes with this one, and
    /// the release is posted. Does nothing unless waited on or polled; a drop then does the same.
    ///
    /// # Errors
    /// When waited on: [`Error::Operation`] if the value could not be written back. The lock is
    /// released all the same.
    pub fn unlock(self) -> ValueUnlock<'m, T, F> {
        ValueUnlock { fabric: self.fabric, call: Call::NotStarted(self) }
    }

    /// Posts the write-back and returns what is left to do.
    fn put_back(&mut self) -> (Option<Epoch<'m, T, F>>, Result<(), Error>) {
        let Some(epoch) = self.epoch.take() else { return (None, Ok(())) };
        let half_done = thread::panicking() && !self.panicked;
        let put = if self.changed && !half_done { epoch.put(0, &[self.value]) } else { Ok(()) };
        (Some(epoch), put)
    }

    async fn release(mut self) -> Result<(), Error> {
        let (epoch, put) = self.put_back();
        match epoch {
            Some(epoch) => put.and(epoch.unlock().await), // released even if the put failed
            None => put,
        }
    }
}

impl<T: Element, F: Fabric> Deref for WriteGuard<'_, T, F> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Element, F: Fabric> DerefMut for WriteGuard<'_, T, F> {
    fn deref_mut(&mut self) -> &mut T {
        self.changed = true;
        &mut self.value
    }
}

impl<T: Element, F: Fabric> Drop for WriteGuard<'_, T, F> {
    fn drop(&mut self) {
        if let (Some(epoch), put) = self.put_back() {
            if let Err(error) = put {
                epoch.defer_error(error);
            }
            // What it recovered and did not repair stays poisoned.
            if epoch.is_half_done() { epoch.release_unclaimed() } else { epoch.unlock_posted() }
        }
    }
}

/// An unlock of a value: `.wait()` blocks, `.await` does not. Does nothing before that. See
/// [`WriteGuard::unlock`].
///
/// # Cancel safety
/// May be dropped at any point: it writes back and releases as a drop of the guard does.
#[must_use = "dropping the unlock discards its errors"]
pub struct ValueUnlock<'m, T: Element, F: Fabric> {
    fabric: &'m F,
    call: Call<'m, WriteGuard<'m, T, F>, Result<(), Error>>,
}

impl<T: Element, F: Drive> ValueUnlock<'_, T, F> {
    /// Blocks until the value is complete at its rank and the release is posted.
    ///
    /// # Errors
    /// See [`WriteGuard::unlock`].
    pub fn wait(self) -> Result<(), Error> {
        self.block()
    }
}

call! {
    ['m, T: Element, F], ValueUnlock<'m, T, F>, (), Error, |unlock| unlock.fabric, |guard| guard.release()
}

macro_rules! debug {
    ($name:ident, $what:literal) => {
        impl<T: Element + fmt::Debug, F: Fabric> fmt::Debug for $name<'_, T, F> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple($what).field(&self.value).finish()
            }
        }
    };
}

debug!(ReadGuard, "ReadGuard");
debug!(WriteGuard, "WriteGuard");

impl<T: Element, F: Fabric> fmt::Debug for ValueUnlock<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an unlock of a value, {:?}", self.call)
    }
}
