//! Element types of windows.

use bytemuck::Pod;
use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_layouts::Operand;

use crate::Op;

/// Plain data: every bit pattern is valid, no padding, no pointers.
///
/// Implemented for everything that is [`bytemuck::Pod`]: integers, floats, arrays of them, and
/// structures that derive it. The crate is re-exported, so that a program needs no dependency of
/// its own; the derived code has to be told so:
///
/// ```
/// use onesided_windows::Window;
/// use onesided_windows::bytemuck::{Pod, Zeroable};
///
/// #[derive(Clone, Copy, Pod, Zeroable)]
/// #[bytemuck(crate = "onesided_windows::bytemuck")]
/// #[repr(C)]
/// struct Particle {
///     position: [f32; 3],
///     charge: f32,
/// }
///
/// # onesided_fabric::threads(1, |world| {
/// let particles = Window::<Particle>::allocate(&world, 100).wait()?;
/// # particles.close().wait()
/// # }).unwrap().into_iter().collect::<Result<(), onesided_windows::Error>>().unwrap();
/// ```
///
/// The compiler says so of other types:
///
/// ```compile_fail,E0277
/// let builder = onesided_windows::Window::<String>::builder();
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an element of a window",
    label = "not plain data",
    note = "elements are plain data: integers, floats, arrays of them, and `#[repr(C)]` structures without padding \
            that derive `Pod` and `Zeroable` of `onesided::bytemuck`, with `#[bytemuck(crate = \"onesided::bytemuck\")]`"
)]
pub trait Element: Pod + Send + Sync {}

#[diagnostic::do_not_recommend]
impl<T: Pod + Send + Sync> Element for T {}

/// An element type of atomic operations: integers and floats of 1, 2, 4 and 8 bytes, and
/// [`Located`](crate::Located).
///
/// Elements of 8 bytes use the fabric's own atomics; smaller ones are changed by compare-and-swaps
/// on the 8-byte word around them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no atomic operations",
    label = "not an integer or a float of 1, 2, 4 or 8 bytes, or `Located`",
    note = "structures have atomic operations on their fields: `Access::fields`"
)]
pub trait AtomicElement: Element + Operand {}

#[diagnostic::do_not_recommend]
impl<T: Element + Operand> AtomicElement for T {}

/// The fault of an operation that does not apply to the type of element.
#[cold]
pub(crate) const fn refused(op: Op) -> Fault {
    Fault::new(FaultKind::Unsupported).with_detail(op as u32 + 1)
}

/// The inverse of [`refused`].
pub(crate) fn refused_by(fault: Fault) -> Option<Op> {
    Op::ALL.into_iter().find(|op| refused(*op) == fault)
}

/// The number of elements that fit in so many bytes.
pub(crate) const fn elements_in<T>(bytes: u64) -> usize {
    let count = bytes / size_of::<T>() as u64;
    if count as usize as u64 == count { count as usize } else { usize::MAX }
}

/// The offset in bytes of a range of elements; `None` unless it lies in memory of so many bytes.
#[inline(always)] // the range check of every operation
pub(crate) const fn byte_offset<T>(offset: usize, count: usize, bytes: u64) -> Option<u64> {
    match offset.checked_add(count) {
        // A quotient cannot overflow as a product can; by a power of two it is a shift.
        Some(end) if end as u64 <= bytes / size_of::<T>() as u64 => Some(offset as u64 * size_of::<T>() as u64),
        _ => None,
    }
}

/// The number of elements in a word. Window memory starts at a word, so no element spans two.
pub(crate) const fn per_word<T>() -> usize {
    8 / size_of::<T>()
}

/// The elements of a word, in memory order, on every machine.
#[inline]
pub(crate) fn lanes<T: AtomicElement>(word: &mut u64) -> &mut [T] {
    bytemuck::cast_slice_mut(std::slice::from_mut(word))
}

/// An element of 8 bytes as a word.
#[inline]
pub(crate) fn to_word<T: AtomicElement>(element: T) -> u64 {
    bytemuck::cast(element)
}

/// The inverse of [`to_word`].
#[inline]
pub(crate) fn from_word<T: AtomicElement>(word: u64) -> T {
    bytemuck::cast(word)
}

/// Whether two elements have the same bits.
#[inline]
pub(crate) fn same_bits<T: AtomicElement>(left: T, right: T) -> bool {
    bytemuck::bytes_of(&left) == bytemuck::bytes_of(&right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_lies_in_the_memory_or_has_no_offset() {
        assert_eq!(elements_in::<u32>(83), 20);
        assert_eq!(byte_offset::<u32>(19, 1, 83), Some(76));
        assert_eq!(byte_offset::<u32>(20, 0, 83), Some(80));
        assert_eq!(byte_offset::<u32>(20, 1, 83), None);
        assert_eq!(byte_offset::<[u64; 3]>(usize::MAX, 1, u64::MAX), None);
        // These products would wrap to offsets in the memory.
        assert_eq!(byte_offset::<u64>(1 << 61, 1, 80), None);
        assert_eq!(byte_offset::<[u64; 3]>(usize::MAX / 24 + 1, 1, u64::MAX), None);
    }

    #[test]
    fn a_word_is_its_elements_in_the_order_of_memory() {
        let mut word = u64::from_ne_bytes([1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(lanes::<u8>(&mut word), [1, 2, 3, 4, 5, 6, 7, 8]);
        lanes::<i16>(&mut word)[3] = -1;
        assert_eq!(word.to_ne_bytes(), [1, 2, 3, 4, 5, 6, 255, 255]);
        assert_eq!(per_word::<u16>(), 4);
        assert_eq!(from_word::<i64>(to_word(i64::MIN)), i64::MIN);
        assert!(same_bits(f32::NAN, f32::NAN) && !same_bits(0.0, -0.0));
    }
}
