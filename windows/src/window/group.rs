//! A window as a group: its fences and its close have an order of their own, and their barriers slots: in
//! a lane of the world's segments, which is faster to close, or, if no lane was free everywhere when it was
//! made, in the hidden regions.

use std::sync::Arc;

use onesided_fabric::remote_memory::{Collective, Fault, FaultKind};
use onesided_fabric::{Fabric, Group, Sequence, World, neighbours};

use crate::Error;
use crate::window::inner::Inner;

impl<F: Fabric> Group<F> for Inner<F> {
    fn sequence(&self) -> &Sequence {
        &self.sequence
    }

    fn slots(&self, rank: u32) -> Result<(F::Segment, u64), Fault> {
        if let Some(lane) = self.lane {
            return self.world.lane(rank, lane);
        }
        let hidden = if rank == self.world.rank() { &self.memory.hidden } else { &self.target(rank)?.locks };
        Ok((hidden.clone(), self.locks.layout.barrier()))
    }

    fn window(&self) -> Option<&str> {
        Some(&self.name)
    }
}

impl<F: Fabric> Inner<F> {
    /// A barrier of the window's ranks.
    pub(crate) async fn barrier(&self, collective: Collective, operation: &'static str) -> Result<(), Error> {
        let met = self.world.meet_as(self, collective).await;
        met.map_err(|fault| Error::Collective { operation, window: self.name.clone(), fault })
    }
}

/// A window that is being closed. A rank frees its hidden region, and its lane, once it has passed the
/// barrier.
#[derive(Clone)]
pub(crate) struct Closing<F: Fabric> {
    pub(crate) world: World<F>,
    sequence: Arc<Sequence>,
    lane: Option<u8>,
    name: Arc<str>,
    at: u64,
    own: F::Segment,
    /// Of the ranks that this one signals.
    neighbours: Vec<(u32, Result<F::Segment, Fault>)>,
}

impl<F: Fabric> Closing<F> {
    /// To see which ranks have not come, as far as they signal this one.
    pub(crate) fn awaited(inner: &Inner<F>) -> Self {
        Self {
            world: inner.world.clone(),
            sequence: Arc::clone(&inner.sequence),
            lane: inner.lane,
            name: Arc::clone(&inner.name),
            at: inner.locks.layout.barrier(),
            own: inner.memory.hidden.clone(),
            neighbours: Vec::new(),
        }
    }

    /// To meet the others.
    pub(crate) fn new(inner: &Inner<F>) -> Self {
        let reach = |rank| match inner.memory.cached(rank) {
            Some(target) => Ok(target.locks.clone()),
            None => inner.open(&inner.memory.keys[rank as usize].locks),
        };
        // The world keeps the segments of lanes.
        let (me, size) = (inner.world.rank(), if inner.lane.is_some() { 0 } else { inner.world.size() });
        Self { neighbours: neighbours(me, size).map(|rank| (rank, reach(rank))).collect(), ..Self::awaited(inner) }
    }
}

impl<F: Fabric> Closing<F> {
    /// Waits for the others.
    pub(super) async fn meet(&self) -> Result<(), Error> {
        let met = self.world.meet_as(self, Collective::CloseWindow).await;
        met.map_err(|fault| self.failed("close", fault))?;
        self.lane.into_iter().for_each(|lane| self.world.free_lane(lane));
        Ok(())
    }

    /// The error of the deadline.
    pub(crate) fn timed_out(&self, operation: &'static str) -> Error {
        self.failed(operation, self.world.give_up_collectives_of(self))
    }

    fn failed(&self, operation: &'static str, fault: Fault) -> Error {
        Error::Collective { operation, window: self.name.clone(), fault }
    }
}

impl<F: Fabric> Group<F> for Closing<F> {
    fn sequence(&self) -> &Sequence {
        &self.sequence
    }

    fn slots(&self, rank: u32) -> Result<(F::Segment, u64), Fault> {
        if let Some(lane) = self.lane {
            return self.world.lane(rank, lane);
        }
        if rank == self.world.rank() {
            return Ok((self.own.clone(), self.at));
        }
        let known = self.neighbours.iter().find(|(neighbour, _)| *neighbour == rank);
        let segment = known.map_or(Err(Fault::new(FaultKind::NoSuchRegion)), |(_, slots)| slots.clone())?;
        Ok((segment, self.at))
    }

    fn is_closing(&self) -> bool {
        self.lane.is_none()
    }

    fn window(&self) -> Option<&str> {
        Some(&self.name)
    }
}
