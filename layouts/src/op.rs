//! Operations on an element and an operand.

use bytemuck::Pod;

/// The operation of a window's `accumulate`, `get_accumulate` and `fetch_and_op`, and of a
/// communicator's reductions (MPI-4.1, 6.9.2 and 12.3.4).
///
/// | | integers | floats | [`Located`](crate::Located) |
/// |---|---|---|---|
/// | [`Sum`](Self::Sum), [`Product`](Self::Product), [`Min`](Self::Min), [`Max`](Self::Max) | yes | yes | |
/// | [`And`](Self::And), [`Or`](Self::Or), [`Xor`](Self::Xor), the logical ones | yes | | |
/// | [`MinLoc`](Self::MinLoc), [`MaxLoc`](Self::MaxLoc) | | | yes |
/// | [`Replace`](Self::Replace), [`NoOp`](Self::NoOp) | yes | yes | yes |
///
/// Other combinations fail with an error before anything is changed. In a reduction
/// [`Replace`](Self::Replace) yields the operand of the last rank and [`NoOp`](Self::NoOp) that of the
/// first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Op {
    /// Sum; integers wrap (`MPI_SUM`).
    Sum,
    /// Product; integers wrap (`MPI_PROD`).
    Product,
    /// Minimum (`MPI_MIN`). Of a number and a NaN, the number.
    Min,
    /// Maximum (`MPI_MAX`). Of a number and a NaN, the number.
    Max,
    /// Bitwise and (`MPI_BAND`).
    And,
    /// Bitwise or (`MPI_BOR`).
    Or,
    /// Bitwise exclusive or (`MPI_BXOR`).
    Xor,
    /// 1 if neither is 0, otherwise 0 (`MPI_LAND`).
    LogicalAnd,
    /// 1 if at least one is not 0, otherwise 0 (`MPI_LOR`).
    LogicalOr,
    /// 1 if exactly one is not 0, otherwise 0 (`MPI_LXOR`).
    LogicalXor,
    /// The one with the smaller value; of equal values the smaller index (`MPI_MINLOC`).
    MinLoc,
    /// The one with the larger value; of equal values the smaller index (`MPI_MAXLOC`).
    MaxLoc,
    /// The operand (`MPI_REPLACE`): an atomic put.
    Replace,
    /// The element (`MPI_NO_OP`): with a result an atomic get, without one nothing.
    NoOp,
}

impl Op {
    /// All operations.
    pub const ALL: [Self; 14] = [
        Self::Sum,
        Self::Product,
        Self::Min,
        Self::Max,
        Self::And,
        Self::Or,
        Self::Xor,
        Self::LogicalAnd,
        Self::LogicalOr,
        Self::LogicalXor,
        Self::MinLoc,
        Self::MaxLoc,
        Self::Replace,
        Self::NoOp,
    ];

    /// Whether the order of two operands makes no difference.
    #[must_use]
    pub const fn is_commutative(self) -> bool {
        !matches!(self, Self::Replace | Self::NoOp)
    }
}

pub(crate) mod sealed {
    /// Implemented only for the types of [`Operand`](super::Operand).
    pub trait Sealed {}
}

/// A type that operations apply to: integers and floats of 1, 2, 4 and 8 bytes, and
/// [`Located`](crate::Located). No other types can be added.
#[diagnostic::on_unimplemented(
    message = "`Op` does not apply to `{Self}`",
    label = "not an integer or a float of 1, 2, 4 or 8 bytes, or `Located`"
)]
pub trait Operand: Pod + PartialEq + Send + Sync + sealed::Sealed {
    /// Whether [`Op::Sum`] is a fabric's own fetch-add on the element's word.
    #[doc(hidden)]
    const ADDS: bool;
    /// The type's number in messages.
    #[doc(hidden)]
    const CODE: u8;
    /// The new element; `None` if the operation does not apply to this type.
    #[doc(hidden)]
    fn combined(op: Op, element: Self, operand: Self) -> Option<Self>;
    /// Whether the operation applies to this type.
    #[inline]
    #[must_use]
    fn allows(op: Op) -> bool {
        Self::combined(op, Self::zeroed(), Self::zeroed()).is_some()
    }
    /// The new element; the old one if the operation is not allowed.
    #[inline]
    #[must_use]
    fn apply(op: Op, element: Self, operand: Self) -> Self {
        Self::combined(op, element, operand).unwrap_or(element)
    }
}

/// The types of [`Operand`] by their [number](Operand::CODE) in messages.
#[doc(hidden)]
pub const OPERANDS: [&str; 13] = [
    "u8",
    "i8",
    "u16",
    "i16",
    "u32",
    "i32",
    "u64",
    "i64",
    "f32",
    "f64",
    "Located<u32>",
    "Located<i32>",
    "Located<f32>",
];

/// Applies an operation to contiguous elements: dispatches once. The elements of the shorter slice
/// count.
#[inline]
pub fn apply_row<T: Operand>(op: Op, elements: &mut [T], operands: &[T]) {
    macro_rules! each {
        ($($op:ident)*) => {
            match op {
                $(Op::$op => for (element, operand) in elements.iter_mut().zip(operands) {
                    *element = T::apply(Op::$op, *element, *operand);
                },)*
            }
        };
    }
    each!(Sum Product Min Max And Or Xor LogicalAnd LogicalOr LogicalXor MinLoc MaxLoc Replace NoOp);
}

macro_rules! integers {
    ($($code:expr, $int:ty;)*) => {$(
        impl sealed::Sealed for $int {}

        impl Operand for $int {
            const ADDS: bool = size_of::<Self>() == 8;
            const CODE: u8 = $code;

            #[inline]
            fn combined(op: Op, element: Self, operand: Self) -> Option<Self> {
                Some(match op {
                    Op::Sum => element.wrapping_add(operand),
                    Op::Product => element.wrapping_mul(operand),
                    Op::Min => element.min(operand),
                    Op::Max => element.max(operand),
                    Op::And => element & operand,
                    Op::Or => element | operand,
                    Op::Xor => element ^ operand,
                    Op::LogicalAnd => (element != 0 && operand != 0).into(),
                    Op::LogicalOr => (element != 0 || operand != 0).into(),
                    Op::LogicalXor => ((element != 0) != (operand != 0)).into(),
                    Op::Replace => operand,
                    Op::NoOp => element,
                    Op::MinLoc | Op::MaxLoc => return None,
                })
            }
        }
    )*};
}

integers! {
    0, u8; 1, i8; 2, u16; 3, i16; 4, u32; 5, i32; 6, u64; 7, i64;
    // For a peer's agent they are the integers of their width.
    if size_of::<usize>() == 8 { u64::CODE } else { u32::CODE }, usize;
    if size_of::<isize>() == 8 { i64::CODE } else { i32::CODE }, isize;
}

macro_rules! floats {
    ($($code:literal $float:ty),*) => {$(
        impl sealed::Sealed for $float {}

        impl Operand for $float {
            const ADDS: bool = false;
            const CODE: u8 = $code;

            #[inline]
            fn combined(op: Op, element: Self, operand: Self) -> Option<Self> {
                Some(match op {
                    Op::Sum => element + operand,
                    Op::Product => element * operand,
                    Op::Min => element.min(operand),
                    Op::Max => element.max(operand),
                    Op::Replace => operand,
                    Op::NoOp => element,
                    Op::And | Op::Or | Op::Xor | Op::LogicalAnd | Op::LogicalOr | Op::LogicalXor => return None,
                    Op::MinLoc | Op::MaxLoc => return None,
                })
            }
        }
    )*};
}

floats!(8 f32, 9 f64);

#[cfg(test)]
mod tests {
    use super::*;

    /// A new operation fails to compile here until it is listed.
    #[test]
    fn all_of_them_are_listed_once() {
        for (number, op) in Op::ALL.into_iter().enumerate() {
            let expected = match op {
                Op::Sum => 0,
                Op::Product => 1,
                Op::Min => 2,
                Op::Max => 3,
                Op::And => 4,
                Op::Or => 5,
                Op::Xor => 6,
                Op::LogicalAnd => 7,
                Op::LogicalOr => 8,
                Op::LogicalXor => 9,
                Op::MinLoc => 10,
                Op::MaxLoc => 11,
                Op::Replace => 12,
                Op::NoOp => 13,
            };
            assert_eq!(number, expected);
        }
    }

    #[test]
    fn what_is_allowed_and_what_it_does() {
        assert!(!f64::allows(Op::And) && !u8::allows(Op::MinLoc) && i16::allows(Op::LogicalXor));
        assert_eq!(u8::apply(Op::Sum, 255, 2), 1);
        assert_eq!(i8::apply(Op::LogicalAnd, -7, 2), 1);
        assert_eq!(i8::apply(Op::LogicalAnd, 2, 0), 0);
        assert_eq!(u64::apply(Op::LogicalXor, 1 << 60, 3), 0);
        assert_eq!(f32::apply(Op::Min, f32::NAN, 3.0), 3.0);
        assert!(Op::ALL.into_iter().enumerate().all(|(number, op)| number == op as usize));
    }
}
