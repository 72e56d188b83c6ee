//! The requests of this rank that are under way.

use std::sync::{Arc, Mutex, MutexGuard};

use onesided_fabric::lock;
use onesided_fabric::remote_memory::{Fault, FaultKind};

/// The destination of a reply: the first task that sees the reply stores it for the requester.
pub(super) type ReplyCell = Arc<Mutex<Option<Result<Vec<u8>, Fault>>>>;

/// This rank's requests to each other rank, one at a time; and its signals to memory without words
/// there.
#[derive(Debug)]
pub(crate) struct HelperRequests(Box<[(Mutex<InFlight>, Mutex<u64>)]>);

#[derive(Debug, Default)]
pub(super) struct InFlight {
    /// The number of posted requests.
    pub(super) posted: u64,
    /// The requester of the last one and the length of its results in bytes, until the reply.
    pub(super) current: Option<(ReplyCell, usize)>,
}

impl HelperRequests {
    pub(crate) fn new(size: u32) -> Self {
        Self((0..size).map(|_| Default::default()).collect())
    }

    pub(super) fn in_flight(&self, rank: u32) -> Result<MutexGuard<'_, InFlight>, Fault> {
        let in_flight = self.0.get(rank as usize).ok_or(Fault::new(FaultKind::NoSuchRank))?;
        Ok(lock(&in_flight.0))
    }

    /// The number of signals to a rank; locked while signalling.
    pub(super) fn signals(&self, rank: u32) -> Result<MutexGuard<'_, u64>, Fault> {
        let in_flight = self.0.get(rank as usize).ok_or(Fault::new(FaultKind::NoSuchRank))?;
        Ok(lock(&in_flight.1))
    }
}
