//! Element types of windows.

use bytemuck::Pod;

use crate::datatype::op::Sealed;

/// Plain data: every bit pattern is valid, no padding, no pointers.
///
/// Implemented for everything that is [`bytemuck::Pod`]: integers, floats, arrays of them, and
/// structures that derive it.
pub trait Element: Pod + Send + Sync {}

impl<T: Pod + Send + Sync> Element for T {}

/// An element type of atomic operations: integers and floats of 1, 2, 4 and 8 bytes, and
/// [`Located`](crate::Located).
///
/// Elements of 8 bytes use the fabric's own atomics; smaller ones are changed by compare-and-swaps
/// on the 8-byte word around them.
pub trait AtomicElement: Element + Sealed + PartialEq {}

impl<T: Element + Sealed + PartialEq> AtomicElement for T {}

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
