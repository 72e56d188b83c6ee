//! Why a collective failed, as its callers see it.

use std::fmt;

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};
use onesided_layouts::Op;

use super::kind::{Collective, CollectiveCall};
use crate::api::error::counted;
use crate::engine::{CallFailure, Reason};
use crate::{Error, Messages};

/// Why a [collective](Error::Collective) failed. All ranks whose calls it ended get the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CollectiveFault {
    /// A rank died or left, or a message failed.
    Fault(Fault),
    /// Two ranks are in different collectives, or in one with different roots, operations or types.
    OutOfStep([CollectiveCall; 2]),
    /// Two ranks have different numbers of elements.
    Lengths {
        /// The sender of a message.
        rank: u32,
        /// Its length in bytes.
        bytes: u64,
        /// The receiver.
        other: u32,
        /// The length that it expected.
        expected: u64,
        /// The size of its elements in bytes; 0 if that is more than 65,535.
        element: u32,
    },
    /// A rank dropped its request before it was complete.
    Dropped {
        /// Which rank.
        rank: u32,
    },
    /// The deadline of a rank passed.
    Late {
        /// Which rank.
        rank: u32,
    },
    /// A slice of a rank does not have the length that its other arguments ask for.
    Slice {
        /// Which rank.
        rank: u32,
        /// The slice's length in bytes.
        bytes: u64,
        /// The length that it needs.
        needed: u64,
        /// The size of its elements in bytes; 0 if that is more than 65,535.
        element: u32,
    },
    /// A rank did not give a count for each rank, or counts beyond all memory.
    Counts {
        /// Which rank.
        rank: u32,
        /// How many counts it gave.
        counts: u32,
        /// The number of ranks.
        size: u32,
    },
    /// A rank named a root that the communicator does not have.
    Root {
        /// Which rank.
        rank: u32,
        /// The root.
        root: u32,
    },
    /// The operation does not apply to the elements.
    Op {
        /// At which rank.
        rank: u32,
        /// Which operation.
        op: Op,
    },
}

impl fmt::Display for CollectiveFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fault(fault) => fault.fmt(f),
            Self::OutOfStep([one, other]) => write!(f, "{one}, and {other}"),
            Self::Lengths { rank, bytes, other, expected, element } => {
                let (sent, expected) = elements([*bytes, *expected], *element);
                write!(f, "rank {rank} sent {sent}, and rank {other} expected {expected}")
            }
            Self::Dropped { rank } => write!(f, "rank {rank} dropped its request"),
            Self::Late { rank } => write!(f, "the deadline of rank {rank} passed"),
            Self::Slice { rank, bytes, needed, element } => {
                let (has, needed) = elements([*bytes, *needed], *element);
                write!(f, "a slice of rank {rank} has {has}, and the call needs {needed}")
            }
            Self::Counts { rank, counts, size } => write!(f, "rank {rank} gave {counts} counts for {size} ranks"),
            Self::Root { rank, root } => write!(f, "rank {rank} named rank {root}, and there is no such rank"),
            Self::Op { rank, op } => write!(f, "{op:?} does not apply to the elements of rank {rank}"),
        }
    }
}

/// Two lengths in bytes, in the elements of the call if both are whole numbers of them.
fn elements(lengths: [u64; 2], element: u32) -> (String, u64) {
    let [first, second] = lengths.map(|bytes| bytes / u64::from(element.max(1)));
    match element {
        2.. if lengths.iter().all(|bytes| bytes % u64::from(element) == 0) => {
            (format!("{} of {element} bytes", counted(first, "element")), second)
        }
        _ => (format!("{} bytes", lengths[0]), lengths[1]),
    }
}

impl CollectiveFault {
    /// The fault for callers who ask for no more.
    pub(crate) const fn fault(&self) -> Fault {
        const fn of(kind: FaultKind, rank: u32) -> Fault {
            Fault::of(kind, Rank(rank))
        }
        match *self {
            Self::Fault(fault) => fault,
            Self::OutOfStep([one, _]) => of(FaultKind::OutOfStep, one.rank()),
            Self::Lengths { rank, .. } => of(FaultKind::TooLong, rank),
            Self::Dropped { rank } => of(FaultKind::Closed, rank),
            Self::Late { rank } => of(FaultKind::TimedOut, rank),
            Self::Slice { rank, .. } | Self::Counts { rank, .. } => of(FaultKind::OutOfRange, rank),
            Self::Root { rank, .. } => of(FaultKind::NoSuchRank, rank),
            Self::Op { rank, .. } => of(FaultKind::Unsupported, rank),
        }
    }
}

impl From<Fault> for Box<CallFailure> {
    /// The failure of a call whose number and rank are filled in later, by `Core::own`.
    fn from(fault: Fault) -> Self {
        Self::new(CallFailure { reason: Reason::Fault, fault, number: 0, origin: Rank(0), words: [0; 2] })
    }
}

/// The error of a call that a failure ended.
#[cold]
pub(super) fn error<F: Fabric>(
    messages: &Messages<F>,
    (collective, call): (Collective, u64),
    failure: &CallFailure,
) -> Error {
    let world = messages.world();
    let rank = |rank: Rank| world.rank_of(rank).unwrap_or(rank.0);
    let (origin, [first, second]) = (rank(failure.origin), failure.words);
    let number = call.wrapping_sub(u64::from((call as u32).wrapping_sub(failure.number)));
    let fault = match failure.reason {
        Reason::Fault => CollectiveFault::Fault(world.translate(failure.fault)),
        Reason::OutOfStep => CollectiveFault::OutOfStep([
            CollectiveCall::new(rank(Rank(second as u32)), first as u32, number),
            CollectiveCall::new(origin, (first >> 32) as u32, number),
        ]),
        Reason::Lengths => CollectiveFault::Lengths {
            rank: failure.fault.rank().map_or(origin, rank),
            bytes: first,
            other: origin,
            expected: second,
            element: failure.fault.detail(),
        },
        Reason::Dropped => CollectiveFault::Dropped { rank: origin },
        Reason::Late => CollectiveFault::Late { rank: origin },
        Reason::Slice => {
            CollectiveFault::Slice { rank: origin, bytes: first, needed: second, element: failure.fault.detail() }
        }
        Reason::Counts => CollectiveFault::Counts { rank: origin, counts: first as u32, size: second as u32 },
        Reason::Root => CollectiveFault::Root { rank: origin, root: first as u32 },
        Reason::Op => {
            let op = *Op::ALL.get(first as usize).unwrap_or(&Op::NoOp);
            CollectiveFault::Op { rank: origin, op }
        }
    };
    Error::Collective { collective, call, failed: number, fault }
}
