//! The collective calls, as the fault of ranks in different ones names them.

use crate::entries;

entries! {
    /// A collective call. Ranks that meet in different ones get [`OutOfStep`](crate::FaultKind).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    #[repr(u8)]
    pub enum Collective {
        /// A barrier.
        Barrier = 1 => "a barrier",
        /// An all-gather of bytes.
        AllGather => "an all_gather",
        /// The split of a world.
        Split => "a split",
        /// The creation of a window, or of what consists of one.
        CreateWindow => "the creation of a window",
        /// A fence of a window.
        Fence => "a fence",
        /// The close of a window.
        CloseWindow => "the close of a window",
        /// The creation of a communicator for messages.
        CreateMessages => "the creation of a communicator",
    }
    const ALL;
    fn name;
}

impl Collective {
    /// The text of a number, which another version may have sent.
    pub(crate) fn text(number: u8) -> &'static str {
        Self::ALL.into_iter().find(|of| *of as u8 == number).map_or("another collective", Self::name)
    }
}
