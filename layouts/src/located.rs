//! Values with an index: operands of `MinLoc` and `MaxLoc`.

use std::cmp::Ordering;
use std::fmt;
use std::marker::PhantomData;

use bytemuck::{Pod, Zeroable};

use crate::{Op, Operand};

/// A value and an index, in one word: for [`Op::MinLoc`] and [`Op::MaxLoc`] (`MPI_2INT`,
/// `MPI_FLOAT_INT`).
///
/// ```
/// # use onesided_layouts::{Located, Op, Operand};
/// let mine = [2.5, 9.0, 9.0].iter().zip(0..).map(|(value, rank)| Located::<f32>::new(*value, rank));
/// let best = mine.reduce(|best, next| Operand::apply(Op::MaxLoc, best, next));
/// assert_eq!(best, Some(Located::new(9.0, 1))); // of equal values the smaller index
/// ```
///
/// The value is a `u32`, `i32` or `f32`, the index a `u32`: fabrics change 8 bytes atomically, so
/// there are no wider ones. A NaN loses against a number; of two NaNs, the smaller index stays. Two
/// are equal if their values and indices are equal.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(transparent)]
pub struct Located<V> {
    /// The value's bits and the index.
    words: [u32; 2],
    value: PhantomData<V>,
}

mod sealed {
    /// The three types of a value.
    pub trait Sealed {
        /// See [`Operand`](crate::Operand).
        const CODE: u8;
    }
}

/// The type of a [`Located`] value: `u32`, `i32`, `f32`.
pub trait LocatedValue: Pod + PartialOrd + Send + Sync + sealed::Sealed {}

macro_rules! values {
    ($($code:literal $value:ty),*) => {$(
        impl sealed::Sealed for $value {
            const CODE: u8 = $code;
        }
        impl LocatedValue for $value {}
    )*};
}

values!(10 u32, 11 i32, 12 f32);

impl<V: LocatedValue> Located<V> {
    /// A value with an index.
    pub fn new(value: V, index: u32) -> Self {
        Self { words: [bytemuck::cast(value), index], value: PhantomData }
    }

    /// The value.
    pub fn value(self) -> V {
        bytemuck::cast(self.words[0])
    }

    /// The index.
    pub const fn index(self) -> u32 {
        self.words[1]
    }

    /// The better of two: the one whose value compares as `wanted` with the other's.
    fn better(self, other: Self, wanted: Ordering) -> Self {
        #[allow(clippy::eq_op, reason = "only NaN differs from itself")]
        let number = |value: V| value == value;
        let (a, b) = (self.value(), other.value());
        match a.partial_cmp(&b) {
            Some(Ordering::Equal) => Self::new(a, self.index().min(other.index())),
            Some(order) => {
                if order == wanted {
                    self
                } else {
                    other
                }
            }
            None if number(b) => other,
            None if number(a) => self,
            None => Self::new(a, self.index().min(other.index())),
        }
    }
}

impl<V: LocatedValue> crate::op::sealed::Sealed for Located<V> {}

impl<V: LocatedValue> Operand for Located<V> {
    const ADDS: bool = false;
    const CODE: u8 = <V as sealed::Sealed>::CODE;

    #[inline]
    fn combined(op: Op, element: Self, operand: Self) -> Option<Self> {
        Some(match op {
            Op::MinLoc => element.better(operand, Ordering::Less),
            Op::MaxLoc => element.better(operand, Ordering::Greater),
            Op::Replace => operand,
            Op::NoOp => element,
            Op::Sum | Op::Product | Op::Min | Op::Max => return None,
            Op::And | Op::Or | Op::Xor | Op::LogicalAnd | Op::LogicalOr | Op::LogicalXor => return None,
        })
    }
}

impl<V: LocatedValue> PartialEq for Located<V> {
    fn eq(&self, other: &Self) -> bool {
        self.value() == other.value() && self.index() == other.index()
    }
}

impl<V: LocatedValue + fmt::Debug> fmt::Debug for Located<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {}", self.value(), self.index())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_index_of_equal_values() {
        let [a, b, c] = [Located::new(3, 7), Located::new(3, 2), Located::new(-4, 9)];
        assert_eq!(Located::apply(Op::MinLoc, a, b), b);
        assert_eq!(Located::apply(Op::MaxLoc, a, b), b);
        assert_eq!(Located::apply(Op::MaxLoc, b, a), b);
        assert_eq!(Located::apply(Op::MinLoc, a, c), c);
        assert_eq!(Located::apply(Op::MaxLoc, a, c), a);
        assert_eq!(Located::apply(Op::Replace, a, c), c);
        assert_eq!(Located::apply(Op::NoOp, a, c), a);
    }

    #[test]
    fn a_number_beats_what_is_none() {
        let [nan, one] = [Located::new(f32::NAN, 0), Located::new(1.0, 5)];
        for op in [Op::MinLoc, Op::MaxLoc] {
            assert_eq!(Located::apply(op, nan, one), one);
            assert_eq!(Located::apply(op, one, nan), one);
            assert_eq!(Located::apply(op, Located::new(f32::NAN, 3), nan).index(), 0);
        }
    }
}
