//! Fields of records: operations on some bytes of each element.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use onesided_fabric::{copied, debug};

use crate::Element;

/// A field of records of type `T`: its offset in the record, and its type. Made by
/// [`field!`](crate::field).
///
/// ```
/// # use onesided_windows::{Field, field};
/// #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
/// #[repr(C)]
/// struct Particle {
///     position: [f64; 3],
///     mass: f32,
///     kind: u32,
/// }
/// const MASS: Field<Particle, f32> = field!(Particle, mass);
/// const HEIGHT: Field<Particle, f64> = field!(Particle, position).element(2);
/// assert_eq!((MASS.offset(), HEIGHT.offset()), (24, 16));
/// ```
pub struct Field<T, V> {
    offset: usize,
    of: PhantomData<fn(&T) -> V>,
}

/// Names a field of a structure, or a nested one: `field!(Particle, mass)`, `field!(Cell,
/// corner.x)`. A constant expression.
///
/// The type must be named without inferred parameters; packed structures work too.
#[macro_export]
macro_rules! field {
    ($record:ty, $($field:ident).+) => {
        $crate::Field::<$record, _>::at(::core::mem::offset_of!($record, $($field).+), |record| record.$($field).+)
    };
}

impl<T: Element, V: Element> Field<T, V> {
    /// What [`field!`](crate::field) calls. The function argument only carries the type.
    ///
    /// # Panics
    /// If a value at the offset exceeds the record.
    #[doc(hidden)]
    #[must_use]
    pub const fn at(offset: usize, _: fn(&T) -> V) -> Self {
        Self::new(offset)
    }

    const fn new(offset: usize) -> Self {
        const { assert!(size_of::<V>() > 0, "zero-sized fields cannot be in a window") };
        assert!(offset <= size_of::<T>() && size_of::<V>() <= size_of::<T>() - offset, "the record has no such field");
        Self { offset, of: PhantomData }
    }

    /// A field of this field.
    #[must_use]
    pub const fn then<W: Element>(self, inner: Field<V, W>) -> Field<T, W> {
        Field::new(self.offset + inner.offset)
    }
}

impl<T: Element, V: Element, const N: usize> Field<T, [V; N]>
where
    [V; N]: Element,
{
    /// One element of an array field.
    ///
    /// # Panics
    /// If the index is out of range; at compile time if the field is a constant.
    #[must_use]
    #[track_caller]
    pub const fn element(self, at: usize) -> Field<T, V> {
        assert!(at < N, "the array has no such element");
        Field::new(self.offset + at * size_of::<V>())
    }
}

impl<T, V> Field<T, V> {
    /// The field's offset in the record, in bytes.
    #[must_use]
    pub const fn offset(self) -> usize {
        self.offset
    }
}

copied!([T, V] Field<T, V>);

debug!(
    [T, V] Field<T, V>,
    |this| "{} at byte {} of {}", std::any::type_name::<V>(), this.offset, std::any::type_name::<T>()
);

/// The bytes of each record that an operation accesses: a [`Field`], or a tuple of up to eight, in
/// any order.
pub trait Fields<T>: Copy + Send + Sync + fmt::Debug + Sealed + 'static {
    /// The values of one record: of a `Field<T, V>` a `V`, of a tuple of fields a tuple.
    type Values: Copy + Send + Sync;

    /// Byte offsets in the window memory, and the bytes for each.
    #[doc(hidden)]
    type Parts<'b>: Iterator<Item = (u64, &'b [u8])> + Send;

    /// The same, to be filled.
    #[doc(hidden)]
    type PartsMut<'b>: Iterator<Item = (u64, &'b mut [u8])> + Send;

    /// The number of pieces of each record; `None`: a whole run is one piece.
    #[doc(hidden)]
    const PIECES: Option<usize>;

    /// Takes values and their records from the start of a run, which is not empty.
    #[doc(hidden)]
    fn cut<'b>(self, run: &mut Range<usize>, values: &mut &'b [Self::Values]) -> Self::Parts<'b>;

    /// The same for values to be filled.
    #[doc(hidden)]
    fn cut_mut<'b>(self, run: &mut Range<usize>, values: &mut &'b mut [Self::Values]) -> Self::PartsMut<'b>;
}

mod sealed {
    /// Implemented only in this module.
    pub trait Sealed {}
}

use self::sealed::Sealed;

/// Takes up to `count` values from the start.
pub(crate) fn take<'b, V>(values: &mut &'b [V], count: usize) -> &'b [V] {
    let (taken, rest) = values.split_at(count.min(values.len()));
    *values = rest;
    taken
}

pub(crate) fn take_mut<'b, V>(values: &mut &'b mut [V], count: usize) -> &'b mut [V] {
    let count = count.min(values.len());
    let (taken, rest) = std::mem::take(values).split_at_mut(count);
    *values = rest;
    taken
}

/// The byte offset in the window memory of the next record of a run.
fn record<T>(run: &mut Range<usize>) -> u64 {
    let at = run.start * size_of::<T>();
    run.start += 1;
    at as u64
}

/// Records as a whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WholeElement;

impl Sealed for WholeElement {}

impl<T: Element> Fields<T> for WholeElement {
    type Values = T;
    const PIECES: Option<usize> = None;
    type Parts<'b> = std::option::IntoIter<(u64, &'b [u8])>;
    type PartsMut<'b> = std::option::IntoIter<(u64, &'b mut [u8])>;

    #[inline]
    fn cut<'b>(self, run: &mut Range<usize>, values: &mut &'b [T]) -> Self::Parts<'b> {
        let at = (run.start * size_of::<T>()) as u64;
        let all = std::mem::take(run);
        Some((at, bytemuck::cast_slice(take(values, all.len())))).into_iter()
    }

    #[inline]
    fn cut_mut<'b>(self, run: &mut Range<usize>, values: &mut &'b mut [T]) -> Self::PartsMut<'b> {
        let at = (run.start * size_of::<T>()) as u64;
        let all = std::mem::take(run);
        Some((at, bytemuck::cast_slice_mut(take_mut(values, all.len())))).into_iter()
    }
}

impl<T, V> Sealed for Field<T, V> {}

impl<T: Element, V: Element> Fields<T> for Field<T, V> {
    type Values = V;
    const PIECES: Option<usize> = Some(1);
    type Parts<'b> = std::option::IntoIter<(u64, &'b [u8])>;
    type PartsMut<'b> = std::option::IntoIter<(u64, &'b mut [u8])>;

    #[inline]
    fn cut<'b>(self, run: &mut Range<usize>, values: &mut &'b [V]) -> Self::Parts<'b> {
        let at = record::<T>(run) + self.offset as u64;
        Some((at, bytemuck::cast_slice(take(values, 1)))).into_iter()
    }

    #[inline]
    fn cut_mut<'b>(self, run: &mut Range<usize>, values: &mut &'b mut [V]) -> Self::PartsMut<'b> {
        let at = record::<T>(run) + self.offset as u64;
        Some((at, bytemuck::cast_slice_mut(take_mut(values, 1)))).into_iter()
    }
}

macro_rules! tuples {
    ($(($count:literal, $($index:tt $value:ident $type:ident),*))*) => {$(
        impl<T, $($type),*> Sealed for ($(Field<T, $type>,)*) {}

        impl<T: Element, $($type: Element),*> Fields<T> for ($(Field<T, $type>,)*) {
            type Values = ($($type,)*);
            const PIECES: Option<usize> = Some($count);
            type Parts<'b> = std::iter::Flatten<std::option::IntoIter<[(u64, &'b [u8]); $count]>>;
            type PartsMut<'b> = std::iter::Flatten<std::option::IntoIter<[(u64, &'b mut [u8]); $count]>>;

            #[inline]
            fn cut<'b>(self, run: &mut Range<usize>, values: &mut &'b [Self::Values]) -> Self::Parts<'b> {
                let at = record::<T>(run);
                let parts = take(values, 1).first().map(|($($value,)*)| {
                    [$((at + self.$index.offset as u64, bytemuck::bytes_of($value))),*]
                });
                parts.into_iter().flatten()
            }

            #[inline]
            fn cut_mut<'b>(self, run: &mut Range<usize>, values: &mut &'b mut [Self::Values]) -> Self::PartsMut<'b> {
                let at = record::<T>(run);
                let parts = take_mut(values, 1).first_mut().map(|($($value,)*)| {
                    [$((at + self.$index.offset as u64, bytemuck::bytes_of_mut($value))),*]
                });
                parts.into_iter().flatten()
            }
        }
    )*};
}

tuples! {
    (1, 0 a A)
    (2, 0 a A, 1 b B)
    (3, 0 a A, 1 b B, 2 c C)
    (4, 0 a A, 1 b B, 2 c C, 3 d D)
    (5, 0 a A, 1 b B, 2 c C, 3 d D, 4 e E)
    (6, 0 a A, 1 b B, 2 c C, 3 d D, 4 e E, 5 f F)
    (7, 0 a A, 1 b B, 2 c C, 3 d D, 4 e E, 5 f F, 6 g G)
    (8, 0 a A, 1 b B, 2 c C, 3 d D, 4 e E, 5 f F, 6 g G, 7 h H)
}
