//! What a window may hold.

use bytemuck::Pod;

/// Plain data: any bit pattern is a value, no padding, no pointers that mean something elsewhere.
///
/// Implemented for everything that is [`bytemuck::Pod`]: integers, floats, arrays of them, and structures that derive it.
pub trait Element: Pod + Send + Sync {}

impl<T: Pod + Send + Sync> Element for T {}

/// What [`Access::fetch_and_op`](crate::Access::fetch_and_op) does with the element and the operand (MPI-4.1, 12.3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Op {
    /// Their sum; integers wrap.
    Sum,
    /// Their product; integers wrap.
    Product,
    /// The smaller.
    Min,
    /// The larger.
    Max,
    /// Bitwise and; integers only.
    And,
    /// Bitwise or; integers only.
    Or,
    /// Bitwise exclusive or; integers only.
    Xor,
    /// The operand.
    Replace,
    /// The element: an atomic read.
    NoOp,
}

mod sealed {
    /// The integers and floats below alone: their bits are what lies in the window.
    pub trait Sealed: Copy {
        /// Bytes of the element.
        const SIZE: u32;
        /// Whether the sum is the fabric's own fetch-add on the element's bits.
        const ADDS: bool;
        fn to_bits(self) -> u64;
        fn from_bits(bits: u64) -> Self;
        /// `None`: the operation is not for this type.
        fn apply(op: super::Op, element: Self, operand: Self) -> Option<Self>;
    }
}

pub(crate) use sealed::Sealed;

/// An element that atomic operations work on: integers and floats of 1, 2, 4 and 8 bytes.
///
/// Those of 8 bytes use the fabric's own atomics; smaller ones are changed by a loop of compare-swaps on the 8-byte word
/// around them.
pub trait AtomicElement: Element + Sealed + PartialEq {}

macro_rules! integers {
    ($($int:ty as $bits:ty),*) => {$(
        impl Sealed for $int {
            const SIZE: u32 = size_of::<Self>() as u32;
            const ADDS: bool = Self::SIZE == 8;

            #[inline]
            fn to_bits(self) -> u64 {
                self as $bits as u64
            }

            #[inline]
            fn from_bits(bits: u64) -> Self {
                bits as Self
            }

            fn apply(op: Op, element: Self, operand: Self) -> Option<Self> {
                Some(match op {
                    Op::Sum => element.wrapping_add(operand),
                    Op::Product => element.wrapping_mul(operand),
                    Op::Min => element.min(operand),
                    Op::Max => element.max(operand),
                    Op::And => element & operand,
                    Op::Or => element | operand,
                    Op::Xor => element ^ operand,
                    Op::Replace => operand,
                    Op::NoOp => element,
                })
            }
        }

        impl AtomicElement for $int {}
    )*};
}

integers!(u8 as u8, i8 as u8, u16 as u16, i16 as u16, u32 as u32, i32 as u32, u64 as u64, i64 as u64);

macro_rules! floats {
    ($($float:ty as $bits:ty),*) => {$(
        impl Sealed for $float {
            const SIZE: u32 = size_of::<Self>() as u32;
            const ADDS: bool = false;

            #[inline]
            fn to_bits(self) -> u64 {
                u64::from(<$float>::to_bits(self))
            }

            #[inline]
            fn from_bits(bits: u64) -> Self {
                <$float>::from_bits(bits as $bits)
            }

            fn apply(op: Op, element: Self, operand: Self) -> Option<Self> {
                Some(match op {
                    Op::Sum => element + operand,
                    Op::Product => element * operand,
                    Op::Min => element.min(operand),
                    Op::Max => element.max(operand),
                    Op::Replace => operand,
                    Op::NoOp => element,
                    Op::And | Op::Or | Op::Xor => return None,
                })
            }
        }

        impl AtomicElement for $float {}
    )*};
}

floats!(f32 as u32, f64 as u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_survive() {
        assert_eq!(Sealed::to_bits(-1_i8), 0xff);
        assert_eq!(<i8 as Sealed>::from_bits(0xff), -1);
        assert_eq!(<i64 as Sealed>::from_bits(Sealed::to_bits(i64::MIN)), i64::MIN);
        assert_eq!(<f32 as Sealed>::from_bits(Sealed::to_bits(-0.5_f32)), -0.5);
        assert_eq!(f64::apply(Op::And, 1.0, 2.0), None);
        assert_eq!(u8::apply(Op::Sum, 255, 2), Some(1));
    }
}
