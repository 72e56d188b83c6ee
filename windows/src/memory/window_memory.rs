//! Memory that several windows lie over.

use std::fmt;
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Fabric, Segment, UserMemory, World};

use crate::helper::is_wordless;
use crate::window::retry::retry;
use crate::{BufferError, Error, Request};

/// Memory of this rank's that windows are made over parts of, as many as wanted, one after another or at the same time:
/// parts may overlap (MPI's overlapping windows). It is lent once and comes back when the last window over it is closed.
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
/// Cheap to clone; all handles are of the same memory. Windows keep it as well: where no handle is left it is freed when
/// the last window over it ends, with the care that [`Window`](crate::Window) tells of.
///
/// # What holds between windows over one memory
///
/// Each window has locks, fences and signals of its own: a lock of one excludes nobody from the others. The memory has one
/// atomic agent, so atomic operations on an element are atomic against one another through whatever window. A flush, a fence
/// or an unlock of one window makes what was done through it seen by whoever then reads through another one (MPI-4.1, 12.4:
/// MPI makes concurrent access through overlapping windows an error; here it is as defined as within one window).
pub struct WindowMemory<F: Fabric = onesided_fabric::Any>(Arc<Shared<F>>);

struct Shared<F: Fabric> {
    world: World<F>,
    segment: F::Segment,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Windows over it that have not ended.
    windows: usize,
    /// Whether it was given back, or is about to be.
    ended: bool,
}

impl<F: Fabric> Shared<F> {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Fabric> WindowMemory<F> {
    /// Lends a vector, a boxed slice, or [memory that something else owns](UserMemory::from_raw_parts): a mapping, say. Not
    /// collective.
    ///
    /// # Errors
    /// [`Error::Lend`]: it has no bytes, or does not begin at a multiple of 8; no memory or descriptors for what peers need
    /// to find it. The memory is freed then.
    pub fn new(world: &World<F>, memory: impl Into<UserMemory>) -> Result<Self, Error> {
        let segment = user_segment(world.fabric(), memory.into()).map_err(|source| Error::Lend { source })?;
        Ok(Self(Arc::new(Shared { world: world.background(), segment, state: Mutex::default() })))
    }

    /// How many bytes it has; a multiple of 8.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.segment.len()
    }

    /// Whether it has no bytes: it always has some.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many windows of this rank lie over it now: created, and neither closed nor dropped.
    #[must_use]
    pub fn windows(&self) -> usize {
        self.0.state().windows
    }

    /// Gives the memory back, as it is now, when it is waited for: [`into_vec`](UserMemory::into_vec) and
    /// [`into_owner`](UserMemory::into_owner) make of it what it was. Not collective. Other handles are for nothing then.
    ///
    /// # Errors
    /// With this handle, [`Error::StillLent`] as long as a window of this rank lies over it; [`Error::TakeBack`] with
    /// `TimedOut` if a peer stays in the middle of an operation on it for 5 s (it is stopped): no peer begins another one, and
    /// the call may be repeated; with `Closed` if it was given back before.
    ///
    /// # Cancel safety
    /// Dropped in the middle, the memory is lent no longer, and lost.
    pub fn take_back(self) -> Request<'static, UserMemory, F, BufferError<Self>> {
        let fabric = self.0.world.fabric().clone();
        Request::new(fabric, "take_back", self.run_take_back())
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

    /// Elements of it, counted from its beginning, to make a window over; no segment where there are none.
    pub(crate) fn part<T>(
        &self,
        range: &Range<usize>,
    ) -> Result<(Option<F::Segment>, WindowRef<F>), onesided_fabric::Error> {
        let Shared { world, segment, .. } = &*self.0;
        let failed = |what: &str, kind| {
            let (len, fault) = (segment.len(), Fault::of(kind, world.fabric().rank()));
            onesided_fabric::Error::Allocate { len, what: what.into(), fault, source: None }
        };
        let bytes = |elements: usize| (elements as u64).checked_mul(size_of::<T>() as u64);
        let ends = bytes(range.start).zip(bytes(range.end));
        let ends = ends.filter(|(start, end)| start <= end && *end <= segment.len());
        let (start, end) = ends.ok_or_else(|| failed("the part does not lie in the memory", FaultKind::OutOfRange))?;
        if start % 8 != 0 {
            return Err(failed("the part does not begin at a multiple of 8 bytes", FaultKind::Misaligned));
        }
        let mut state = self.0.state();
        if state.ended {
            return Err(failed("the memory was given back", FaultKind::Closed));
        }
        // The last word belongs to it as a whole: small elements are changed by words.
        let len = end.next_multiple_of(8) - start;
        let part = (len > 0).then(|| world.fabric().part(segment, start, len)).transpose();
        let part = part.map_err(|fault| failed("the fabric has no parts of it", fault.kind()))?;
        state.windows += 1;
        Ok((part, WindowRef(Arc::clone(&self.0))))
    }
}

impl<F: Fabric> Clone for WindowMemory<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<F: Fabric> fmt::Debug for WindowMemory<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes that are lent to {} windows", self.len(), self.windows())
    }
}

/// A window's hold on memory that it lies over, until it ends.
pub(crate) struct WindowRef<F: Fabric>(Arc<Shared<F>>);

impl<F: Fabric> Drop for WindowRef<F> {
    fn drop(&mut self) {
        self.0.state().windows -= 1;
    }
}

impl<F: Fabric> fmt::Debug for WindowRef<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hold")
    }
}

/// What a created window has instead of memory that it was lent alone.
#[derive(Debug)]
pub(crate) enum Backing<F: Fabric> {
    /// It has no elements: there was nothing to lend.
    Empty(UserMemory),
    /// A part of memory that others lie over as well.
    Part(#[expect(dead_code, reason = "its drop ends the hold")] WindowRef<F>),
}

/// Lends memory, with the helper thread that is its agent where it has no words.
pub(crate) fn user_segment<F: Fabric>(fabric: &F, memory: UserMemory) -> Result<F::Segment, onesided_fabric::Error> {
    let segment = fabric.register(memory)?;
    if fabric.word_in(&segment, 0).is_err_and(is_wordless) {
        fabric.serve(Box::pin(std::future::ready(()))).map_err(onesided_fabric::Error::operation("start its agent"))?;
    }
    Ok(segment)
}

/// Takes memory back that was lent, or gives up if a peer stays in the middle of an operation on it.
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
