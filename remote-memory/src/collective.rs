//! The collective calls, as the fault of ranks in different ones names them.

use core::fmt;

/// A collective call. Ranks that meet in different ones get [`OutOfStep`](crate::FaultKind).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Collective {
    /// A barrier.
    Barrier = 1,
    /// An all-gather of bytes.
    AllGather,
    /// The split of a world.
    Split,
    /// The creation of a window, or of what consists of one.
    CreateWindow,
    /// A fence of a window.
    Fence,
    /// The close of a window.
    CloseWindow,
    /// The creation of a communicator for messages.
    CreateMessages,
}

impl Collective {
    const ALL: [Self; 7] = [
        Self::Barrier,
        Self::AllGather,
        Self::Split,
        Self::CreateWindow,
        Self::Fence,
        Self::CloseWindow,
        Self::CreateMessages,
    ];

    /// The text of a number, which another version may have sent.
    pub(crate) fn text(number: u8) -> &'static str {
        match Self::ALL.into_iter().find(|collective| *collective as u8 == number) {
            Some(Self::Barrier) => "a barrier",
            Some(Self::AllGather) => "an all_gather",
            Some(Self::Split) => "a split",
            Some(Self::CreateWindow) => "the creation of a window",
            Some(Self::Fence) => "a fence",
            Some(Self::CloseWindow) => "the close of a window",
            Some(Self::CreateMessages) => "the creation of a communicator",
            None => "another collective",
        }
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::text(*self as u8))
    }
}
