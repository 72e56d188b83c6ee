//! The errors of messages.

use std::fmt;

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{explain, questions};

use crate::{Source, Status, Tag, Tags};

/// An error of a message: which operation, with which rank, and why.
#[derive(Clone, Copy, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The communicator has no such rank.
    #[error("{operation} with rank {rank}: the world has {size} ranks")]
    Rank {
        /// `send`, `recv`, `probe`.
        operation: &'static str,
        /// The rank asked for.
        rank: u32,
        /// How many there are.
        size: u32,
    },
    /// A shape exceeds its slice. No message was sent or received.
    #[error("{operation}: the shape ends at element {end}, the slice has {len}")]
    Range {
        /// `send_shaped`, `recv_shaped`.
        operation: &'static str,
        /// The end of the shape's last element.
        end: usize,
        /// The slice's length in elements.
        len: usize,
    },
    /// The communicator could not be made.
    #[error("make a communicator: {fault}")]
    Create {
        /// Why.
        fault: Fault,
    },
    /// A send failed. The message may have been received all the same, if the fault is `TimedOut`
    /// or the receiver died.
    #[error("send {bytes} bytes with {tag} to rank {to}: {fault}")]
    Send {
        /// The receiver.
        to: u32,
        /// The message's tag.
        tag: Tag,
        /// The message's length.
        bytes: u64,
        /// Why.
        fault: Fault,
    },
    /// A receive or a probe failed; it took no message.
    #[error("{operation} with {tags} from {from}: {fault}")]
    Receive {
        /// `recv`, `probe`.
        operation: &'static str,
        /// Whose messages were asked for.
        from: Source,
        /// With which tags.
        tags: Tags,
        /// Why.
        fault: Fault,
    },
    /// A message came that could not be read. It is lost, and its sender gets an error too.
    #[error("recv {status}: {fault}")]
    Read {
        /// The message.
        status: Status,
        /// Why.
        fault: Fault,
    },
    /// A message is longer than the buffer, which holds its beginning (`MPI_ERR_TRUNCATE`), or its
    /// length is no multiple of the element's.
    #[error("recv {status}: {}", length(.status, *.room, *.element))]
    Length {
        /// The message.
        status: Status,
        /// The length of the slice, or of the shape, in elements; `None` for a receive of any length.
        room: Option<usize>,
        /// The size of an element in bytes.
        element: usize,
    },
}

fn length(status: &Status, room: Option<usize>, element: usize) -> String {
    match room {
        Some(room) if status.bytes > (room * element) as u64 => {
            format!("there is room for {room} elements of {element} bytes")
        }
        _ => format!("not a whole number of elements of {element} bytes"),
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        explain(self, f)
    }
}

questions!(Error);

impl Error {
    /// The kind of the fault that caused the error.
    #[must_use]
    pub const fn kind(&self) -> FaultKind {
        self.fault().kind()
    }

    /// The fault that caused the error.
    #[must_use]
    pub const fn fault(&self) -> Fault {
        match self {
            Self::Rank { .. } => Fault::new(FaultKind::NoSuchRank),
            Self::Range { .. } => Fault::new(FaultKind::OutOfRange),
            Self::Length { .. } => Fault::new(FaultKind::TooLong),
            Self::Create { fault }
            | Self::Send { fault, .. }
            | Self::Receive { fault, .. }
            | Self::Read { fault, .. } => *fault,
        }
    }
}
