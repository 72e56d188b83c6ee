//! A piece of registered memory to be copied, and where it comes from or goes to.

/// The maximum length of one copy, which bounds the wait of an owner that reclaims its memory.
pub(super) const CUT: usize = 4 << 20;

/// Private bytes, or bytes of a mapping: the source or destination of a copy.
#[derive(Clone, Copy)]
pub(super) enum Bytes {
    From(*const u8),
    Into(*mut u8),
}

impl Bytes {
    /// Its start; a source is not written through it.
    pub(super) const fn address(self) -> *mut u8 {
        match self {
            Self::From(from) => from.cast_mut(),
            Self::Into(into) => into,
        }
    }

    /// The rest of a range, whose length the caller knows.
    pub(super) const fn after(self, done: usize) -> Self {
        match self {
            Self::From(from) => Self::From(from.wrapping_add(done)),
            Self::Into(into) => Self::Into(into.wrapping_add(done)),
        }
    }
}

/// A piece of user memory, and its source or destination.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub(super) offset: u64,
    pub(super) bytes: Bytes,
    pub(super) len: usize,
}

impl Piece {
    /// The rest of a piece.
    pub(super) const fn after(self, done: usize) -> Self {
        Self { offset: self.offset + done as u64, bytes: self.bytes.after(done), len: self.len - done }
    }
}
