//! The bytes of an eager message.

use crate::engine::wire::{EAGER_HEAD, HEAD_MAX};

/// The bytes of an eager message, short ones without an allocation.
#[derive(Debug)]
pub(crate) enum Bytes {
    Short { bytes: [u8; SHORT], len: u8 },
    Long(Box<[u8]>),
}

/// What an EAGER's head brings along.
pub(super) const SHORT: usize = HEAD_MAX - EAGER_HEAD;

/// In place of those of a packet that is too short.
pub(super) const NONE: [u8; SHORT] = [0; SHORT];

impl Bytes {
    /// `first` are the first ones of `len`, as far as there are so many; `read` is asked for all, if
    /// there are more.
    #[inline]
    pub(super) fn new(len: usize, first: &[u8; SHORT], read: impl FnOnce(&mut [u8])) -> Self {
        if len <= SHORT {
            return Self::Short { bytes: *first, len: len as u8 };
        }
        let mut bytes = vec![0; len].into_boxed_slice();
        read(&mut bytes);
        Self::Long(bytes)
    }
}

impl Default for Bytes {
    fn default() -> Self {
        Self::Short { bytes: [0; SHORT], len: 0 }
    }
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Short { bytes, len } => &bytes[..usize::from(*len)],
            Self::Long(bytes) => bytes,
        }
    }
}
