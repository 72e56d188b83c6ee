//! The errors of messages.

use std::fmt;
use std::num::NonZeroU32;

use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};
use onesided_fabric::{debug, explain, questions};

use crate::driver::rules::VARIABLE;
use crate::{Collective, CollectiveFault, ProgressMode, Source, Status, Tag, Tags, WrongRule};

/// An error of a message: which operation, with which rank, and why.
#[derive(Clone, Copy, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The communicator has no such rank.
    #[error("{operation} {} rank {rank}: the world has {}", preposition(.operation), counted(*.size, "rank"))]
    Rank {
        /// `send`, `recv`, `probe`, `explain`, `lock`, `create_group`.
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
    /// [`create_group`](crate::Messages::create_group) failed: a list is wrong, or a rank gave up.
    #[error("make a communicator of some ranks: rank {rank} {wrong}")]
    Members {
        /// The rank that `wrong` is about, in the communicator that was called.
        rank: u32,
        /// What is wrong.
        wrong: WrongMembers,
    },
    /// The communicator could not be made.
    #[error("make a communicator: {}", creation(.fault))]
    Create {
        /// Why.
        fault: Fault,
    },
    /// The variable `ONESIDED_MESSAGES_RULES` has no [rules](crate::Rules).
    #[error("{VARIABLE}: {0}")]
    Rules(WrongRule),
    /// There is no memory for a buffer, or its memory cannot be given back.
    #[error("buffer of {bytes} bytes: {fault}")]
    Buffer {
        /// Its length in bytes.
        bytes: u64,
        /// Why.
        fault: Fault,
    },
    /// The progress mode could not be changed.
    #[error("set the progress mode to {mode}: {fault}")]
    Progress {
        /// The mode.
        mode: ProgressMode,
        /// Why: no thread could be started.
        fault: Fault,
    },
    /// A send failed. The message may have been received all the same, if the fault is `TimedOut`
    /// or the receiver died.
    #[error("send {bytes} bytes with {tag} to rank {to}: {fault}{}", reached(*.to, *.has_left))]
    Send {
        /// The receiver.
        to: u32,
        /// The message's tag.
        tag: Tag,
        /// The message's length.
        bytes: u64,
        /// Why.
        fault: Fault,
        /// At the deadline: whether the receiver has heard of the message. If not, it waits behind
        /// earlier ones.
        has_left: Option<bool>,
    },
    /// A receive or a probe failed; it took no message.
    #[error("{operation} with {tags} from {from}: {fault}{}", also(*.others))]
    Receive {
        /// `recv`, `probe`.
        operation: &'static str,
        /// Whose messages were asked for.
        from: Source,
        /// With which tags.
        tags: Tags,
        /// Why.
        fault: Fault,
        /// At the deadline, and of a rank that has left: the messages of the communicator that
        /// waited for another receive.
        others: Option<Unmatched>,
    },
    /// A collective failed: at every rank that waits for it, with the same reason. So do all later
    /// ones of the communicator, at once; its messages go on.
    #[error("{collective} (call {call}): {}{fault}", earlier(*.call, *.failed))]
    Collective {
        /// Which one.
        collective: Collective,
        /// The number of the call: the rank's first collective on the communicator is 1.
        call: u64,
        /// The number of the call that failed: this one or an earlier one.
        failed: u64,
        /// Why.
        fault: CollectiveFault,
    },
    /// A [served lock](crate::ServedLock) could not be made or acquired. It is not held.
    #[error("{operation} at rank {home}: {fault}")]
    Lock {
        /// `make a lock`, `lock`, `lock_shared`, `try_lock`, `try_lock_shared`.
        operation: &'static str,
        /// The rank that serves it.
        home: u32,
        /// Why.
        fault: Fault,
    },
    /// A message came that could not be read. It is lost, and its sender gets an error too, unless it has written
    /// the message already (RPUT, a pipeline).
    #[error("recv {status}: {}", reading(.fault))]
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

/// Why a creation of a communicator by some ranks failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WrongMembers {
    /// The rank that calls is not in its list.
    Absent,
    /// A rank is in the list twice.
    Twice,
    /// A rank's list differs from that of the lowest rank in it.
    Others,
    /// A rank gave up: it dropped its handle, its deadline passed, or an earlier creation with this
    /// tag has failed there.
    GaveUp,
}

impl fmt::Display for WrongMembers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absent => "calls it and is not in its list",
            Self::Twice => "is in the list twice",
            Self::Others => "gave another list than the lowest rank",
            Self::GaveUp => "gave up, or has seen a creation with this tag fail",
        })
    }
}

/// Messages that have come and that no receive has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unmatched {
    /// How many.
    pub count: NonZeroU32,
    /// Whose one of them is: of the rank that was asked for, if that has sent one.
    pub source: u32,
    /// The tag of that one.
    pub tag: Tag,
}

impl fmt::Display for Unmatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, source, tag } = self;
        match count.get() {
            1 => write!(f, "1 message waits here, from rank {source} with {tag}"),
            count => write!(f, "{count} messages wait here, one from rank {source} with {tag}"),
        }
    }
}

fn also(others: Option<Unmatched>) -> String {
    others.map_or_else(String::new, |others| format!("; {others}"))
}

fn reached(to: u32, has_left: Option<bool>) -> String {
    match has_left {
        None => String::new(),
        Some(true) => format!("; rank {to} has not received it"),
        Some(false) => format!("; it waits behind earlier messages that rank {to} has not received"),
    }
}

/// The detail of an `Unsupported` of a rank whose variable has no rules.
const NO_RULES: u32 = 1 << 30;

fn creation(fault: &Fault) -> String {
    match (fault.rank(), fault.detail()) {
        (Some(rank), NO_RULES) => format!("{rank} has no rules that can be read ({VARIABLE}): its own error says why"),
        _ => fault.to_string(),
    }
}

fn reading(fault: &Fault) -> String {
    match (fault.kind(), fault.rank()) {
        (FaultKind::NoSuchRegion, Some(rank)) => {
            format!("{rank} has the memory of the message no longer (that of a leaked send may be freed)")
        }
        _ => fault.to_string(),
    }
}

fn earlier(call: u64, failed: u64) -> String {
    if call == failed { String::new() } else { format!("call {failed} failed before: ") }
}

pub(crate) fn counted(count: impl Into<u64>, what: &str) -> String {
    let count = count.into();
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn preposition(operation: &str) -> &'static str {
    match operation {
        "recv" | "probe" => "from",
        "lock" => "at",
        "create_group" => "with",
        _ => "to",
    }
}

fn length(&Status { bytes, .. }: &Status, room: Option<usize>, element: usize) -> String {
    let of = format!("elements of {}", counted(element as u32, "byte"));
    match (room, bytes / element as u64, bytes % element as u64) {
        (Some(room), elements, 0) => format!("{elements} {of}, and there is room for {room}"),
        _ => format!("not a whole number of {of}"),
    }
}

debug!([] Error, |this| "{}", explain(this));

questions!(Error);

impl Error {
    /// The kind of the fault that caused the error.
    #[must_use]
    pub const fn kind(&self) -> FaultKind {
        self.fault().kind()
    }

    /// What the others are told beside the kind, where this rank has no communicator.
    pub(crate) const fn detail(&self) -> u32 {
        if matches!(self, Self::Rules(_)) { NO_RULES } else { self.fault().detail() }
    }

    /// The fault that caused the error.
    #[must_use]
    pub const fn fault(&self) -> Fault {
        match self {
            Self::Rank { .. } => Fault::new(FaultKind::NoSuchRank),
            Self::Range { .. } => Fault::new(FaultKind::OutOfRange),
            Self::Rules(_) => Fault::new(FaultKind::Unsupported),
            Self::Members { rank, .. } => Fault::of(FaultKind::OutOfStep, Rank(*rank)),
            Self::Length { .. } => Fault::new(FaultKind::TooLong),
            Self::Collective { fault, .. } => fault.fault(),
            Self::Create { fault }
            | Self::Buffer { fault, .. }
            | Self::Progress { fault, .. }
            | Self::Send { fault, .. }
            | Self::Receive { fault, .. }
            | Self::Lock { fault, .. }
            | Self::Read { fault, .. } => *fault,
        }
    }
}
