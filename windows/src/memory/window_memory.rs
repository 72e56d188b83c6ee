//! Memory that several windows may overlap.

use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Mutex, MutexGuard};

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Fabric, Segment, UserMemory, World, debug, lock};

use crate::helper::is_wordless;
use crate::operation::request::Awaited;
use crate::window::retry::retry;
use crate::{BufferError, Error, Request};

/// Memory of this rank for any number of windows, each over a range of it, one after another or at
/// the same time: ranges may overlap (MPI's overlapping windows). It is provided once and returned
/// after the last window over it is closed.
///
/// ```
/// # use onesided_windows::{WindowMemory, Window};
/// # onesided_fabric::threads(2, |world| {
/// let memory = WindowMemory::new(&world, vec![0_u64; 100])?;
/// let all = Window::<u64>::create_over(&world, &memory, 0..100).wait()?;
/// let half = Window::<u64>::create_over(&world, &memory, 50..100).wait()?;
/// let next = (world.rank() + 1) % world.size();
/// let (one, other) = (all.lock_shared(next).wait()?, half.lock_shared(next).wait()?);
/// one.put(53, &[7])?;
/// one.flush().wait()?;
/// assert_eq!(other.fetch_add(3, 1).wait()?, 7);
/// assert_eq!(one.fetch_one(53).wait()?, 8);
/// one.unlock().wait()?;
/// other.unlock().wait()?;
/// all.close().wait()?;
/// half.close().wait()?;
/// let vector = memory.take_back().wait()?.into_vec::<u64>().unwrap();
/// assert_eq!(vector[53], 8);
/// # Ok(())
/// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
/// ```
///
/// Cheap to clone; all handles refer to the same memory. Windows keep it too: if no handle is left,
/// it is freed when the last window over it ends, with the caveats of [`Window`](crate::Window).
///
/// # Semantics of overlapping windows
///
/// Each window has its own locks, fences and signals: a lock of one window excludes no access
/// through another. The memory has one atomic agent, so atomic operations on an element are atomic
/// with respect to each other through any window. A flush, fence or unlock of one window makes its
/// operations visible to later reads through another (MPI-4.1, 12.4: MPI makes concurrent access
/// through overlapping windows an error; here it is as defined as within one window).
#[derive(Clone)]
pub struct WindowMemory<F: Fabric = onesided_fabric::Any>(Arc<Shared<F>>);

struct Shared<F: Fabric> {
    world: World<F>,
    segment: F::Segment,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of its windows that have not ended.
    windows: usize,
    /// Whether it was taken back, or is about to be.
    ended: bool,
}

impl<F: Fabric> Shared<F> {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl<F: Fabric> WindowMemory<F> {
    /// Provides a vector, a boxed slice, or [memory that something else
    /// owns](UserMemory::from_raw_parts), such as a mapping. Not collective.
    ///
    /// # Errors
    /// [`Error::Lend`]: it is empty, or not aligned to 8 bytes; there is no memory or descriptor
    /// for its registration. The memory is freed then.
    pub fn new(world: &World<F>, memory: impl Into<UserMemory>) -> Result<Self, Error> {
        let segment = user_segment(world.fabric(), memory.into()).map_err(|source| Error::Lend { source })?;
        Ok(Self(Arc::new(Shared { world: world.background(), segment, state: Mutex::default() })))
    }

    /// Its length in bytes; a multiple of 8.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.segment.len()
    }

    /// Always false.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of windows of this rank over it that are neither closed nor dropped.
    #[must_use]
    pub fn windows(&self) -> usize {
        self.0.state().windows
    }

    /// Takes the memory back with its present content; [`into_vec`](UserMemory::into_vec) and
    /// [`into_owner`](UserMemory::into_owner) restore its original type. Not collective. Other
    /// handles become useless. Does nothing unless waited on or polled.
    ///
    /// # Errors
    /// With this handle, [`Error::StillLent`] as long as a window of this rank uses it;
    /// [`Error::TakeBack`] with `TimedOut` if a peer stays in the middle of an operation on it for
    /// 5 s (it is stopped): no peer starts another operation, and the call may be repeated; with
    /// `Closed` if it was taken back before.
    ///
    /// # Cancel safety
    /// If dropped before it completes, the memory is no longer available to windows and is leaked.
    pub fn take_back(self) -> Request<'static, UserMemory, F, BufferError<Self>> {
        Request::new(Awaited::Users(self.0.world.clone()), "take_back", self.run_take_back())
    }

    async fn run_take_back(self) -> Result<UserMemory, BufferError<Self>> {
        let refused = {
            let mut state = self.0.state();
            let refused = (state.windows > 0).then_some(Error::StillLent { windows: state.windows });
            state.ended |= refused.is_none();
            refused
        };
        let taken = match refused {
            Some(error) => Err(error),
            None => self.reclaim().await.map_err(|fault| Error::TakeBack { fault: self.0.world.translate(fault) }),
        };
        taken.map_err(|error| BufferError::new(error, Some(self)))
    }

    async fn reclaim(&self) -> Result<UserMemory, Fault> {
        let Shared { world, segment, .. } = &*self.0;
        let fabric = world.fabric();
        let own = fabric.world_segment(fabric.rank()).map_err(|error| error.fault())?;
        take_back(fabric, segment, fabric.word_in(&own, 0)?).await
    }

    /// The segment of a range of bytes, for a window; `None` for an empty range.
    pub(crate) fn part(
        &self,
        Range { start, end }: Range<u64>,
    ) -> Result<(Option<F::Segment>, WindowRef<F>), onesided_fabric::Error> {
        let Shared { world, segment, .. } = &*self.0;
        let failed = |what: &str, kind| {
            let (len, fault) = (segment.len(), Fault::of(kind, world.fabric().rank()));
            onesided_fabric::Error::Allocate { len, what: what.into(), fault, source: None }
        };
        if start > end || end > segment.len() {
            return Err(failed("the range exceeds the memory", FaultKind::OutOfRange));
        }
        if start % 8 != 0 {
            return Err(failed("the range does not start at a multiple of 8 bytes", FaultKind::Misaligned));
        }
        let mut state = self.0.state();
        if state.ended {
            return Err(failed("the memory was taken back", FaultKind::Closed));
        }
        // Includes the whole last word: small elements are changed by words.
        let len = end.next_multiple_of(8) - start;
        let part = (len > 0).then(|| world.fabric().part(segment, start, len)).transpose();
        let part = part.map_err(|fault| failed("the fabric cannot split it", fault.kind()))?;
        state.windows += 1;
        Ok((part, WindowRef(Arc::clone(&self.0))))
    }
}

debug!([F: Fabric] WindowMemory<F>, |this| "{} bytes of user memory for {} windows", this.len(), this.windows());

/// A window's hold on the memory, until the window ends.
pub(crate) struct WindowRef<F: Fabric>(Arc<Shared<F>>);

impl<F: Fabric> Drop for WindowRef<F> {
    fn drop(&mut self) {
        self.0.state().windows -= 1;
    }
}

debug!([F: Fabric] WindowRef<F>, |_this| "Hold");

/// The memory of a created window that is not exclusively its own.
#[derive(Debug)]
pub(crate) enum Backing<F: Fabric> {
    /// Memory without elements: there is nothing to register.
    Empty(UserMemory),
    /// A range of memory that other windows may overlap.
    Part(#[expect(dead_code, reason = "its drop ends the hold")] WindowRef<F>),
}

/// Registers user memory with the fabric, and starts the helper thread that is its agent where it
/// has no words.
pub(crate) fn user_segment<F: Fabric>(fabric: &F, memory: UserMemory) -> Result<F::Segment, onesided_fabric::Error> {
    let segment = fabric.register(memory)?;
    if fabric.word_in(&segment, 0).is_err_and(is_wordless) {
        fabric
            .endpoint()
            .serve(Box::pin(std::future::ready(())), None)
            .map_err(onesided_fabric::Error::operation("start its agent"))?;
    }
    Ok(segment)
}

/// Takes user memory back, or gives up if a peer stays in the middle of an operation on it.
pub(crate) async fn take_back<'f, F: Fabric>(
    fabric: &'f F,
    own: &F::Segment,
    word: F::Word<'f>,
) -> Result<UserMemory, Fault> {
    let attempt = || match fabric.reclaim(own).transpose() {
        Some(reclaimed) => ControlFlow::Break(reclaimed),
        None => ControlFlow::Continue(Fault::new(FaultKind::TimedOut)),
    };
    retry(fabric, word, || std::future::ready(attempt())).await
}
