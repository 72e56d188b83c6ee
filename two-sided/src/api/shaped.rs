//! Noncontiguous elements of messages: the sender packs them, the receiver unpacks them.

use onesided_layouts::{Cursor, Shape};

use crate::Error;

/// How many bytes are packed or unpacked at a time: they stay in the fastest cache.
pub(crate) const CHUNK: usize = 8 << 10;

/// The number of bytes of a shape; no memory has as many as the most that it returns.
pub(crate) fn bytes(shape: Shape<'_>, element: usize) -> usize {
    shape.count().saturating_mul(element).min(isize::MAX as usize)
}

/// A cursor over a shape in memory of `len` bytes.
pub(crate) fn cursor<'s>(
    operation: &'static str,
    shape: Shape<'s>,
    (element, len): (usize, usize),
) -> Result<Cursor<'s>, Box<Error>> {
    let exceeds = || Box::new(Error::Range { operation, end: shape.end(), len: len / element });
    Cursor::new(shape, element, len).ok_or_else(exceeds)
}
