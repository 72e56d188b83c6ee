//! The collectives by name, and the tags of their messages.

use std::fmt;

use onesided_fabric::entries;
use onesided_layouts::{OPERANDS, Op};

use crate::engine::matching::collective_number;

entries! {
    /// A collective of [`Messages`](crate::Messages).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    #[repr(u8)]
    #[expect(missing_docs)] // each is the method of the same name
    pub enum Collective {
        Barrier = 1 => "barrier",
        Broadcast => "broadcast",
        Reduce => "reduce",
        AllReduce => "all_reduce",
        Gather => "gather",
        GatherV => "gather_v",
        Scatter => "scatter",
        ScatterV => "scatter_v",
        AllGather => "all_gather",
        AllGatherV => "all_gather_v",
        AllToAll => "all_to_all",
        AllToAllV => "all_to_all_v",
        ReduceScatter => "reduce_scatter",
        ReduceScatterV => "reduce_scatter_v",
        Scan => "scan",
        ExclusiveScan => "exclusive_scan",
    }
    pub(super) const ALL;
    fn name;
}

/// The roots that a tag can say; all others are said by the last one.
const ROOTS: u32 = 63;

impl Collective {
    const fn has_root(self) -> bool {
        matches!(self, Self::Broadcast | Self::Reduce | Self::Gather | Self::GatherV | Self::Scatter | Self::ScatterV)
    }

    /// The bits of the tag above the [number](tag_of).
    pub(super) const fn what(self, root: u32, combines: Combines) -> u16 {
        let root = if root < ROOTS { root } else { ROOTS };
        let place = if self.has_root() { root } else { combines.element };
        ((self as u32) << 10 | place << 4 | combines.operation) as u16
    }
}

/// The tag of the messages of a call that is [this](Collective::what): `0 | collective 5 bits | root, or else the type
/// 6 bits | operation 4 bits | number 16 bits`. The number alone is matched, so that a rank in another
/// collective gets the message, and sees by the other bits that it does.
pub(super) const fn tag_of(what: u16, number: u64) -> u32 {
    (what as u32) << 16 | collective_number(number as u32)
}

/// What a reduction combines by what, as tags say it; zeros of another collective.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Combines {
    /// An [`Op`] plus 1, or [`FUNCTION`].
    pub(super) operation: u32,
    /// The number of the [type](OPERANDS) plus 1; 0 with a function.
    pub(super) element: u32,
}

pub(super) const FUNCTION: u32 = 15;

const _: () = assert!(Op::ALL.len() < FUNCTION as usize, "an operation is not taken for a function");

/// A call of a collective at a rank, as errors tell of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectiveCall {
    rank: u32,
    tag: u32,
    number: u32,
}

impl CollectiveCall {
    /// The call at `rank` whose messages have this tag. The number is the nearest one to that of
    /// another call.
    pub(super) const fn new(rank: u32, tag: u32, near: u64) -> Self {
        let behind = collective_number((near as u32).wrapping_sub(tag)) as u16 as i16;
        let number = (near as u32).wrapping_sub(behind as u32);
        Self { rank, tag, number }
    }

    /// The rank that is in it.
    #[must_use]
    pub const fn rank(&self) -> u32 {
        self.rank
    }

    /// Which collective it is; `None` if this version of the library has no such one.
    #[must_use]
    pub fn collective(&self) -> Option<Collective> {
        let at = (self.tag >> 26 & 0x1f).checked_sub(1)?;
        Collective::ALL.get(at as usize).copied()
    }

    /// The number of the call: the rank's first collective on the communicator is 1.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number as u64
    }

    /// The root, if it has one, and its number is below 63.
    #[must_use]
    pub fn root(&self) -> Option<u32> {
        let root = self.tag >> 20 & ROOTS;
        (root < ROOTS && self.collective().is_some_and(Collective::has_root)).then_some(root)
    }

    /// The operation of a reduction, and the type of its elements if the tag says it.
    fn write_operation(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tag >> 16 & FUNCTION {
            0 => return Ok(()),
            FUNCTION => return f.write_str(" by a function"),
            operation => write!(f, " by {:?}", Op::ALL[operation as usize - 1])?,
        }
        let element = (self.tag >> 20 & ROOTS).checked_sub(1).and_then(|code| OPERANDS.get(code as usize));
        match element.filter(|_| !self.collective().is_some_and(Collective::has_root)) {
            Some(element) => write!(f, " of {element}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for CollectiveCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.collective() {
            Some(collective) => write!(f, "rank {} is in {collective}", self.rank)?,
            None => write!(f, "rank {} is in another collective", self.rank)?,
        }
        self.write_operation(f)?;
        match self.root() {
            Some(root) => write!(f, " (call {}, root {root})", self.number),
            None => write!(f, " (call {})", self.number),
        }
    }
}

#[cfg(test)]
mod tests {
    use onesided_layouts::Operand;

    use super::*;

    #[test]
    fn a_tag_says_which_call_it_is() {
        for (at, collective) in Collective::ALL.into_iter().enumerate() {
            assert_eq!(collective as usize, at + 1);
            for (root, number, near) in [(0, 1, 1), (7, 0xffff, 0x1_0000), (62, 1 << 16, (1 << 16) - 5)] {
                let call = CollectiveCall::new(3, tag_of(collective.what(root, Combines::default()), number), near);
                assert_eq!((call.rank(), call.collective(), call.number()), (3, Some(collective), number));
                assert_eq!(call.root(), collective.has_root().then_some(root));
            }
        }
        let none = Combines::default();
        assert_eq!(CollectiveCall::new(0, tag_of(Collective::Broadcast.what(64, none), 1), 1).root(), None);
        let of = |collective: Collective, combines| {
            CollectiveCall::new(3, tag_of(collective.what(2, combines), 9), 9).to_string()
        };
        let text = |collective| of(collective, none);
        let sum = Combines { operation: Op::Sum as u32 + 1, element: u64::CODE as u32 + 1 };
        assert_eq!(of(Collective::AllReduce, sum), "rank 3 is in all_reduce by Sum of u64 (call 9)");
        assert_eq!(of(Collective::Reduce, sum), "rank 3 is in reduce by Sum (call 9, root 2)");
        let function = Combines { operation: FUNCTION, element: 0 };
        assert_eq!(of(Collective::Scan, function), "rank 3 is in scan by a function (call 9)");
        assert_eq!(text(Collective::Barrier), "rank 3 is in barrier (call 9)");
        assert_eq!(text(Collective::GatherV), "rank 3 is in gather_v (call 9, root 2)");
    }
}
