//! The operations of reductions.

use std::fmt;

use bytemuck::{bytes_of, pod_read_unaligned};
use onesided_layouts::{Op, Operand, apply_row};

use super::kind::{Combines, FUNCTION};
use crate::Payload;

/// What a reduction combines elements by: an [`Op`], a function of two elements, or a
/// [`Commutative`] function. It is associative: reductions place the brackets as they like.
///
/// A function is applied in the order of the ranks, `combine(lower, higher)`: the elements of lower
/// ranks are on its left. The types of its arguments have to be written. It borrows nothing,
/// because a call that was [started](crate::CollectiveRequest::start) may outlive its request.
///
/// ```
/// use onesided_two_sided::Messages;
///
/// onesided_fabric::threads(4, |world| {
///     let messages = Messages::new(&world).wait()?;
///     // Affine maps a * x + b, one after the other: their order matters.
///     let mut map = [[2, i64::from(world.rank())]];
///     messages.all_reduce(&mut map, |f: [i64; 2], g: [i64; 2]| [f[0] * g[0], g[0] * f[1] + g[1]]).wait()?;
///     assert_eq!(map, [[16, ((0 * 2 + 1) * 2 + 2) * 2 + 3]]);
///     Ok(())
/// })
/// .unwrap()
/// .into_iter()
/// .collect::<Result<(), onesided_two_sided::Error>>()
/// .unwrap();
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not combine elements of type `{T}`",
    note = "an operation is an `Op` for integers, floats and `Located`, a function `Fn({T}, {T}) -> {T}` that is \
            `Send + Sync` and borrows nothing, or `Commutative` of such a function"
)]
pub trait Reduction<T>: 'static {
    #[doc(hidden)]
    fn erase(self) -> Operation;
}

/// A function whose arguments may be exchanged, for reductions: they need not keep the order of the
/// ranks then (`commute` of `MPI_Op_create`).
#[derive(Clone, Copy, Debug)]
pub struct Commutative<C>(pub C);

/// An operation on the bytes of elements.
#[doc(hidden)]
pub struct Operation {
    apply: Apply,
    /// The size of an element.
    pub(super) element: usize,
    pub(super) combines: Combines,
    /// Whether its arguments may be exchanged.
    pub(super) is_commutative: bool,
    /// An operation that does not apply to the type.
    pub(super) refused: Option<Op>,
}

enum Apply {
    Op(Op, fn(Op, Side, &mut [u8], &[u8])),
    /// A function without captures takes no memory.
    Function(Box<Function>),
}

type Function = dyn Fn(Side, &mut [u8], &[u8]) + Send + Sync;

/// On which side of the elements that are kept the others are: those of lower ranks on the left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.apply {
            Apply::Op(op, _) => op.fmt(f),
            Apply::Function(_) => f.write_str("a function"),
        }
    }
}

impl Operation {
    /// Combines elements with others, which are on a side of them.
    #[inline]
    pub(super) fn apply(&self, elements: &mut [u8], (side, others): (Side, &[u8])) {
        match &self.apply {
            Apply::Op(op, apply) => apply(*op, side, elements, others),
            Apply::Function(apply) => apply(side, elements, others),
        }
    }
}

/// [`Operation::apply`] of an [`Op`].
fn apply_op<T: Operand>(op: Op, side: Side, elements: &mut [u8], others: &[u8]) {
    // The one on the left stays, or goes.
    let others_stay = match (op, side) {
        (Op::Replace, Side::Left) => return,
        (Op::NoOp, Side::Left) => true,
        _ => false,
    };
    if others_stay {
        return elements.copy_from_slice(others);
    }
    // Both begin at a multiple of 16 bytes, or at an element of the user's.
    apply_row(op, bytemuck::cast_slice_mut::<u8, T>(elements), bytemuck::cast_slice(others));
}

impl<T: Operand> Reduction<T> for Op {
    fn erase(self) -> Operation {
        Operation {
            apply: Apply::Op(self, apply_op::<T>),
            element: size_of::<T>(),
            combines: Combines { operation: self as u32 + 1, element: u32::from(T::CODE) + 1 },
            is_commutative: self.is_commutative(),
            refused: (!T::allows(self)).then_some(self),
        }
    }
}

fn function<T: Payload>(combine: impl Fn(T, T) -> T + Send + Sync + 'static, is_commutative: bool) -> Operation {
    let apply = move |side, elements: &mut [u8], others: &[u8]| {
        let pairs = elements.chunks_exact_mut(size_of::<T>()).zip(others.chunks_exact(size_of::<T>()));
        for (element, other) in pairs {
            let (this, other) = (pod_read_unaligned(element), pod_read_unaligned(other));
            let combined = if side == Side::Left { combine(other, this) } else { combine(this, other) };
            element.copy_from_slice(bytes_of(&combined));
        }
    };
    let combines = Combines { operation: FUNCTION, element: 0 };
    let apply = Apply::Function(Box::new(apply));
    Operation { apply, element: size_of::<T>(), combines, is_commutative, refused: None }
}

impl<T: Payload, C: Fn(T, T) -> T + Send + Sync + 'static> Reduction<T> for C {
    fn erase(self) -> Operation {
        function(self, false)
    }
}

impl<T: Payload, C: Fn(T, T) -> T + Send + Sync + 'static> Reduction<T> for Commutative<C> {
    fn erase(self) -> Operation {
        function(self.0, true)
    }
}
