//! What a message is found by, and what is known of one.

use std::fmt;

use bytemuck::Pod;
use onesided_fabric::display;

use crate::engine::matching::Pattern;

/// A message's tag. Any `u32`; what the numbers mean is up to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tag(pub u32);

display!([] Tag, |this| "tag {}", this.0);

/// Plain data that a message may consist of. Implemented for everything that is [`bytemuck::Pod`].
///
/// ```compile_fail,E0277
/// # fn test(messages: &onesided_two_sided::Messages) {
/// let send = messages.send(&[String::new()], 1, onesided_two_sided::Tag(1));
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be sent in a message",
    label = "not plain data",
    note = "messages are plain data: integers, floats, arrays of them, and `#[repr(C)]` structures without padding \
            that derive `Pod` and `Zeroable` of `onesided::bytemuck`, with `#[bytemuck(crate = \"onesided::bytemuck\")]`"
)]
pub trait Payload: Pod + Send + Sync {}

#[diagnostic::do_not_recommend]
impl<T: Pod + Send + Sync> Payload for T {}

/// Elements without a size are none of a message.
pub(crate) const fn has_size<T>() {
    assert!(size_of::<T>() > 0, "elements without a size");
}

/// Whose messages a receive or a probe takes. (`Any` of `onesided_fabric` is another thing: the
/// fabric that is chosen at run time.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Those of this rank.
    Rank(u32),
    /// Those of any rank (`MPI_ANY_SOURCE`), in the order of their arrival.
    Any,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rank(rank) => write!(f, "rank {rank}"),
            Self::Any => f.write_str("any rank"),
        }
    }
}

impl From<u32> for Source {
    fn from(rank: u32) -> Self {
        Self::Rank(rank)
    }
}

/// The tags that a receive or a probe takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tags {
    /// This one.
    Is(Tag),
    /// Any tag (`MPI_ANY_TAG`).
    Any,
}

impl fmt::Display for Tags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is(tag) => tag.fmt(f),
            Self::Any => f.write_str("any tag"),
        }
    }
}

impl From<Tag> for Tags {
    fn from(tag: Tag) -> Self {
        Self::Is(tag)
    }
}

/// A message: who sent it, with which tag, and how long it is (`MPI_Status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The sender's rank.
    pub source: u32,
    /// Its tag.
    pub tag: Tag,
    /// Its length in bytes.
    pub bytes: u64,
}

display!([] Status, |this| "{} bytes with {} from rank {}", this.bytes, this.tag, this.source);

impl Tags {
    pub(crate) const fn pattern(self, context: u32, source: Option<u32>) -> Pattern {
        let tag = match self {
            Self::Is(tag) => Some(tag.0),
            Self::Any => None,
        };
        Pattern { context, source, tag }
    }
}
