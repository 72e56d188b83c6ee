//! A sequential model of every operation on an element.

use std::fmt::Debug;

use onesided::{AtomicElement, Element, Located, Op};
use proptest::prelude::*;

pub(crate) trait Model: AtomicElement + Debug {
    /// The result of an operation on an element and an operand; `None` where the operation does not
    /// exist for the type.
    fn model(op: Op, element: Self, operand: Self) -> Option<Self>;

    fn values() -> BoxedStrategy<Self>;
}

macro_rules! integers {
    ($($int:ty),*) => {$(
        impl Model for $int {
            fn model(op: Op, element: Self, operand: Self) -> Option<Self> {
                let (a, b) = (element as i128, operand as i128);
                Some(match op {
                    Op::Sum => a + b,
                    Op::Product => a.wrapping_mul(b),
                    Op::Min => if a < b { a } else { b },
                    Op::Max => if a > b { a } else { b },
                    Op::And => a & b,
                    Op::Or => a | b,
                    Op::Xor => a ^ b,
                    Op::LogicalAnd => i128::from(a != 0 && b != 0),
                    Op::LogicalOr => i128::from(a | b != 0),
                    Op::LogicalXor => i128::from(a != 0) ^ i128::from(b != 0),
                    Op::Replace => b,
                    Op::NoOp => a,
                    _ => return None,
                } as Self)
            }

            fn values() -> BoxedStrategy<Self> {
                prop_oneof![any::<Self>(), Just(0)].boxed()
            }
        }
    )*};
}

integers!(u8, i8, u16, i16, u32, i32, u64, i64);

macro_rules! floats {
    ($($float:ty),*) => {$(
        impl Model for $float {
            fn model(op: Op, a: Self, b: Self) -> Option<Self> {
                Some(match op {
                    Op::Sum => a + b,
                    Op::Product => a * b,
                    Op::Min => a.min(b),
                    Op::Max => a.max(b),
                    Op::Replace => b,
                    Op::NoOp => a,
                    _ => return None,
                })
            }

            fn values() -> BoxedStrategy<Self> {
                any::<Self>().boxed()
            }
        }
    )*};
}

floats!(f32, f64);

macro_rules! located {
    ($($value:ty),*) => {$(
        impl Model for Located<$value> {
            fn model(op: Op, a: Self, b: Self) -> Option<Self> {
                let (first, second) = if a.index() < b.index() { (a, b) } else { (b, a) };
                let value = match op {
                    Op::MinLoc => a.value().min(b.value()),
                    Op::MaxLoc => a.value().max(b.value()),
                    Op::Replace => return Some(b),
                    Op::NoOp => return Some(a),
                    _ => return None,
                };
                Some(Located::new(value, if first.value() == value { first.index() } else { second.index() }))
            }

            fn values() -> BoxedStrategy<Self> {
                // Often equal.
                ((0_i8..4), 0_u32..9).prop_map(|(value, index)| Located::new(value as $value, index)).boxed()
            }
        }
    )*};
}

located!(u32, i32, f32);

/// Bit for bit, except that any NaN equals any other.
#[allow(clippy::eq_op, reason = "what is not equal to itself is not a number")]
pub(crate) fn same<T: Element + PartialEq>(left: T, right: T) -> bool {
    bytemuck::bytes_of(&left) == bytemuck::bytes_of(&right) || (left != left && right != right)
}
