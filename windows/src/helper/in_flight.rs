//! The requests of this rank that are under way.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onesided_fabric::remote_memory::{Fault, FaultKind};

/// Where the answer to a request goes: whoever sees it first takes it in, for whoever asked.
pub(super) type ReplyCell = Arc<Mutex<Option<Result<Vec<u8>, Fault>>>>;

/// This rank's requests to each other, one at a time; and its signals to memory without words there.
#[derive(Debug)]
pub(crate) struct HelperRequests(Box<[(Mutex<InFlight>, Mutex<u64>)]>);

#[derive(Debug, Default)]
pub(super) struct InFlight {
    /// How many requests were posted.
    pub(super) posted: u64,
    /// Who asked the last one, and how many bytes of results it wants, until it is answered.
    pub(super) current: Option<(ReplyCell, usize)>,
}

impl HelperRequests {
    pub(crate) fn new(size: u32) -> Self {
        Self((0..size).map(|_| Default::default()).collect())
    }

    pub(super) fn in_flight(&self, rank: u32) -> Result<MutexGuard<'_, InFlight>, Fault> {
        let in_flight = self.0.get(rank as usize).ok_or(Fault::new(FaultKind::NoSuchRank))?;
        Ok(in_flight.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How many signals there were to a rank; taken by who signals.
    pub(super) fn signals(&self, rank: u32) -> Result<MutexGuard<'_, u64>, Fault> {
        let in_flight = self.0.get(rank as usize).ok_or(Fault::new(FaultKind::NoSuchRank))?;
        Ok(in_flight.1.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
