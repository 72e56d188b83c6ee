//! Operations on elements with gaps between them (jiang-2004, section 4: noncontiguous data, without the target's help).

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use fabric::remote_memory::Fault;
use fabric::{Drive, Fabric, wait_for};

use crate::shape::Runs;
use crate::{Access, Accumulate, AtomicElement, Element, Error, Op, Shape};

/// How many runs of a get are under way at once.
const AHEAD: usize = 8;

impl<T: Element, F: Fabric> Access<'_, T, F> {
    /// Puts elements to the places of a shape that begins at `offset` (`MPI_Put` with a derived datatype at the target).
    /// Each run is a put of its own: all are posted when the call returns. Otherwise as [`put`](Self::put). Where runs
    /// overlap the target has either element.
    ///
    /// ```
    /// # use windows::{Shape, Window};
    /// # fabric::threads(1, |world| {
    /// let matrix = Window::<f32>::allocate(&world, 4 * 10).wait()?; // 4 rows of 10
    /// let column = Shape::Vector { count: 4, block: 1, stride: 10 };
    /// let epoch = matrix.lock_exclusive(0).wait()?;
    /// epoch.put_shaped(7, column, &[1.0, 2.0, 3.0, 4.0])?;
    /// let mut row = [0.0; 10];
    /// epoch.get(20, &mut row).wait()?;
    /// assert_eq!(row[7], 3.0);
    /// # epoch.unlock().wait()?;
    /// # matrix.close().wait()
    /// # }).unwrap().into_iter().collect::<Result<(), windows::Error>>().unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Error::Range`] if the shape does not lie in the part, [`Error::Lengths`] if it has not as many elements as the
    /// slice, with nothing moved. What fails later is reported by the flush or the unlock.
    pub fn put_shaped(&self, offset: usize, shape: Shape<'_>, elements: &[T]) -> Result<(), Error> {
        let lengths = (shape.count(), elements.len());
        Self::lengths(lengths.0, lengths.1).map_err(|fault| self.copy().failed("put_shaped", lengths, fault))?;
        let put = self.range(offset, shape.end()).and_then(|_| {
            let mut rest = elements;
            shape.runs().try_for_each(|run| {
                let (now, later) = rest.split_at(run.len());
                rest = later;
                let at = ((offset + run.start) * size_of::<T>()) as u64;
                self.inner.fabric().put(&self.target.data, at, bytemuck::cast_slice(now))
            })
        });
        put.map_err(|fault| self.copy().failed("put_shaped", (offset, shape.end()), fault))
    }

    /// Gets the elements at the places of a shape that begins at `offset` (`MPI_Get` with a derived datatype at the
    /// target), in the shape's order. Several runs are under way at once. Otherwise as [`get`](Self::get).
    ///
    /// # Errors
    /// When waited for: [`Error::Range`], [`Error::Lengths`], with nothing moved; [`Error::Operation`].
    ///
    /// # Cancel safety
    /// A get that is dropped, or leaked, has filled in some of its runs.
    pub fn get_shaped<'b>(&self, offset: usize, shape: Shape<'b>, into: &'b mut [T]) -> GetShaped<'_, 'b, T, F> {
        let lengths = (shape.count(), into.len());
        let (place, begun) = match Self::lengths(lengths.0, lengths.1) {
            Ok(()) => ((offset, shape.end()), self.range(offset, shape.end()).map(drop)),
            Err(fault) => (lengths, Err(fault)),
        };
        let mut get = GetShaped {
            access: self.copy(),
            place,
            runs: shape.runs(),
            rest: bytemuck::cast_slice_mut(into),
            under_way: [const { None }; AHEAD],
            outcome: begun.err().map(Err),
        };
        get.begin();
        get
    }
}

impl<T: AtomicElement, F: Fabric> Access<'_, T, F> {
    /// [`accumulate`](Self::accumulate) to the places of a shape that begins at `offset` (`MPI_Accumulate` with a derived
    /// datatype at the target). Where runs overlap, each of the operands takes effect, in no particular order.
    ///
    /// # Errors
    /// As [`accumulate`](Self::accumulate), and [`Error::Lengths`].
    ///
    /// # Cancel safety
    /// As [`accumulate`](Self::accumulate).
    pub fn accumulate_shaped<'b>(
        &self,
        offset: usize,
        shape: Shape<'b>,
        operands: &'b [T],
        op: Op,
    ) -> Accumulate<'_, 'b, T, F> {
        let lengths = (shape.count(), operands.len());
        match Self::lengths(lengths.0, lengths.1) {
            Ok(()) => Accumulate::start(self.copy(), "accumulate_shaped", (offset, shape), op, operands, None),
            Err(fault) => Accumulate::done(self.copy(), "accumulate_shaped", lengths, Err(fault)),
        }
    }

    /// [`get_accumulate`](Self::get_accumulate) at the places of a shape that begins at `offset` (`MPI_Get_accumulate`
    /// with a derived datatype at the target).
    ///
    /// # Errors
    /// As [`get_accumulate`](Self::get_accumulate).
    ///
    /// # Cancel safety
    /// As [`get_accumulate`](Self::get_accumulate).
    pub fn get_accumulate_shaped<'b>(
        &self,
        offset: usize,
        shape: Shape<'b>,
        operands: &'b [T],
        results: &'b mut [T],
        op: Op,
    ) -> Accumulate<'_, 'b, T, F> {
        let lengths = (shape.count(), results.len());
        match Self::lengths(lengths.0, lengths.1) {
            Ok(()) => self.get_accumulate_at("get_accumulate_shaped", (offset, shape), operands, results, op),
            Err(fault) => Accumulate::done(self.copy(), "get_accumulate_shaped", lengths, Err(fault)),
        }
    }
}

/// A get of elements with gaps between them, to be waited for: `.wait()` blocks, `.await` does not,
/// [`test`](Self::test) looks. See [`Access::get_shaped`](crate::Access::get_shaped).
#[must_use = "the slice has the elements only after the get was waited for"]
pub struct GetShaped<'w, 'b, T, F: Fabric> {
    access: Access<'w, T, F>,
    place: (usize, usize),
    runs: Runs<'b>,
    /// The bytes of the runs that are not begun.
    rest: &'b mut [u8],
    under_way: [Option<F::Get<'b>>; AHEAD],
    outcome: Option<Result<(), Fault>>,
}

impl<'b, T: Element, F: Fabric> GetShaped<'_, 'b, T, F> {
    /// The next run, begun; `None` if there is none.
    fn next(&mut self) -> Option<F::Get<'b>> {
        let run = self.runs.next()?;
        let (now, later) = std::mem::take(&mut self.rest).split_at_mut(run.len() * size_of::<T>());
        self.rest = later;
        let at = ((self.place.0 + run.start) * size_of::<T>()) as u64;
        Some(self.access.inner.fabric().get(&self.access.target.data, at, now))
    }

    fn begin(&mut self) {
        if self.outcome.is_none() {
            for at in 0..AHEAD {
                self.under_way[at] = self.next();
            }
        }
    }

    fn poll_runs(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        let mut pending = false;
        for at in 0..AHEAD {
            while let Some(get) = &mut self.under_way[at] {
                let Poll::Ready(outcome) = Pin::new(get).poll(cx) else {
                    pending = true;
                    break;
                };
                outcome?;
                self.under_way[at] = self.next();
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(Ok(())) }
    }
}

impl<T: Element, F: Drive> GetShaped<'_, '_, T, F> {
    /// Blocks until the slice has the elements.
    ///
    /// # Errors
    /// See [`Access::get_shaped`](crate::Access::get_shaped).
    pub fn wait(self) -> Result<(), Error> {
        let inner = self.access.inner;
        wait_for(inner.fabric(), self)
    }
}

handle!([T: Element, F: Drive], GetShaped<'_, '_, T, F>, (), Error, |get| get.access.inner.fabric());

// The operations that the fabric gives are Unpin, and nothing else in it could care.
impl<T, F: Fabric> Unpin for GetShaped<'_, '_, T, F> {}

impl<T: Element, F: Fabric> Future for GetShaped<'_, '_, T, F> {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let get = &mut *self;
        let outcome = match get.outcome {
            Some(outcome) => outcome,
            None => ready!(get.poll_runs(cx)),
        };
        get.outcome = Some(outcome);
        Poll::Ready(outcome.map_err(|fault| get.access.copy().failed("get_shaped", get.place, fault)))
    }
}

impl<T, F: Fabric> fmt::Debug for GetShaped<'_, '_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "get_shaped at {} from {:?}", self.place.0, self.access)
    }
}
