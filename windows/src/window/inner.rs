//! What a window is made of, whatever its elements are.

use std::sync::Arc;

use onesided_fabric::bootstrap::fork::{self, is_child};
use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};
use onesided_fabric::{AtomicAgent, Fabric, Segment, SegmentKey, Sequence, UserMemory, World};

use crate::Error;
use crate::active::signals::Counts;
use crate::helper::{HelperRequests, RequestLayout, is_wordless};
use crate::locks::state::Locks;
use crate::memory::regions::Regions;
use crate::memory::window_memory;
use crate::window::exchange::Flavor;
use crate::window::lifecycle::Lifecycle;
use crate::window::target::Target;

/// The state of a window, independent of its element type.
pub(crate) struct Inner<F: Fabric> {
    pub(crate) world: World<F>,
    pub(crate) name: Arc<str>,
    /// Whether an operation is complete when it is posted.
    pub(crate) completes_at_post: bool,
    pub(crate) memory: Regions<F>,
    pub(crate) locks: Locks<F>,
    pub(crate) lifecycle: Lifecycle,
    /// The order of its fences and its close.
    pub(crate) sequence: Arc<Sequence>,
    /// The world's lane that it has; without one, the slots of its barriers are in the hidden regions.
    pub(crate) lane: Option<u8>,
    /// The exposures and accesses of this rank.
    pub(crate) counts: Counts,
    /// Requests to the agents of window memory that has no words here.
    pub(crate) helper_requests: HelperRequests,
}

impl<F: Fabric> Drop for Inner<F> {
    fn drop(&mut self) {
        if is_child() {
            return; // a forked child drops a copy: the window is its parent's
        }
        self.close_agent();
        if let Some(server) = self.locks.server.get() {
            server.close();
        }
        // Shared memory stays while a peer has it mapped. A card would end the connection of a peer
        // that accesses a freed region.
        if !self.lifecycle.has_ended() && self.fabric().capabilities().agent == AtomicAgent::Card {
            if self.memory.flavor == Flavor::Allocated {
                self.world.keep(self.memory.own.clone());
            }
            self.world.keep(self.memory.hidden.clone());
        }
    }
}

impl<F: Fabric> Inner<F> {
    pub(crate) const fn fabric(&self) -> &F {
        self.world.fabric()
    }

    /// A target, resolved when it is first needed.
    #[inline]
    pub(crate) fn target(&self, rank: u32) -> Result<&Target<F>, Fault> {
        match self.memory.cached(rank) {
            Some(target) => Ok(target),
            None => self.resolve(rank),
        }
    }

    /// A target for an operation that starts now: fails if this rank has closed the window.
    #[inline(always)] // so that nothing is asked of one that is ready
    pub(crate) fn begin(&self, rank: u32) -> Result<&Target<F>, Fault> {
        self.ready(rank).map_or_else(|| self.resolve(rank), Ok)
    }

    /// The same if it was resolved, and this rank has not closed the window; otherwise
    /// [`resolve`](Self::resolve) reports the close.
    #[inline(always)] // as `begin`
    pub(crate) fn ready(&self, rank: u32) -> Option<&Target<F>> {
        self.memory.cached(rank).filter(|_| !(self.lifecycle.is_closed_relaxed() | is_child()))
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn resolve(&self, rank: u32) -> Result<&Target<F>, Fault> {
        let keys = self.memory.keys.get(rank as usize).ok_or(Fault::of(FaultKind::NoSuchRank, Rank(rank)))?;
        self.check_open()?;
        let target = self.new_target(rank, (self.open(&keys.data)?, self.open(&keys.locks)?), keys.len, 0);
        Ok(self.memory.targets[rank as usize].get_or_init(|| target))
    }

    /// A segment of a rank's.
    pub(super) fn open(&self, key: &SegmentKey) -> Result<F::Segment, Fault> {
        self.fabric().open(key).map_err(|error| self.why_unreachable(key.rank, error.fault()))
    }

    /// A rank that closed the window took its regions with it: then that is the error to report.
    fn why_unreachable(&self, rank: Rank, fault: Fault) -> Fault {
        match fault.kind() {
            FaultKind::NoSuchRegion => {
                self.fabric().liveness(rank).needed(rank).err().unwrap_or(Fault::of(FaultKind::NoSuchRegion, rank))
            }
            _ => fault,
        }
    }

    /// The target for a rank's resolved memory.
    pub(crate) fn new_target(
        &self,
        rank: u32,
        (data, locks): (F::Segment, F::Segment),
        len: u64,
        ptr: u64,
    ) -> Target<F> {
        let wordless = self.fabric().word_in(&data, 0).is_err_and(is_wordless);
        // Where an operation is an instruction, nothing is counted unless requested.
        let paths: Option<Box<_>> = (self.memory.counted || !self.completes_at_post || wordless).then(Box::default);
        Target::new(rank, (data, locks), (len, ptr), wordless, paths)
    }

    /// Begins all flushes and waits for each, even after one failed; returns the first error.
    pub(crate) async fn flush_each<'t>(
        &self,
        operation: &'static str,
        targets: impl Iterator<Item = &'t Target<F>> + Clone + Send,
        flush: for<'a> fn(&'a F, Rank) -> F::Flush<'a>,
    ) -> Result<(), Error> {
        if !self.completes_at_post {
            targets.clone().for_each(|target| drop(flush(self.fabric(), target.fabric_rank())));
        }
        let mut outcome = Ok(());
        for target in targets {
            let flushed = flush(self.fabric(), target.fabric_rank()).await;
            outcome = outcome.and(flushed.map_err(|fault| self.failed(operation, target.rank, fault)));
        }
        outcome
    }

    /// Starts the flushes of several targets together; the caller then awaits them one after
    /// another.
    pub(crate) fn begin_flushes<'t>(&self, targets: impl Iterator<Item = &'t Target<F>>) {
        if !self.completes_at_post {
            targets.for_each(|target| drop(self.fabric().flush(target.fabric_rank())));
        }
    }

    /// Where the request slots of the agents lie in a rank's hidden region.
    pub(crate) fn request_layout(&self) -> RequestLayout {
        RequestLayout::new(self.world.size(), self.locks.layout.end())
    }

    /// Stops serving peers' requests, and starts no operation any more.
    pub(crate) fn close_agent(&self) {
        self.lifecycle.set_closed();
        self.memory.all_cached().for_each(Target::close);
        let request_layout = self.request_layout();
        if self.memory.hidden.len() >= request_layout.end() {
            let closed = request_layout.closed();
            // Our own region exists.
            let _ = self.fabric().write_direct(&self.memory.hidden, closed, &1_u64.to_le_bytes());
        }
    }

    /// `Closed` once the window was closed here, `Forked` in a child.
    pub(crate) fn check_open(&self) -> Result<(), Fault> {
        fork::check()?;
        if self.lifecycle.is_closed() { Err(Fault::of(FaultKind::Closed, self.fabric().rank())) } else { Ok(()) }
    }

    /// Takes user memory back, or gives it up if a peer stays in the middle of an operation on it.
    pub(crate) async fn take_back(&self, own: &F::Segment) -> Result<UserMemory, Fault> {
        window_memory::take_back(self.fabric(), own, self.fabric().word_in(&self.memory.hidden, 0)?).await
    }

    /// Turns a fault into the error of a named operation. Cold: the only place where the path of an
    /// operation builds an `Error`.
    #[cold]
    #[inline(never)]
    pub(crate) fn failed(&self, operation: &'static str, target: u32, fault: Fault) -> Error {
        let (window, fault) = (self.name.clone(), self.world.translate(fault));
        match fault.kind() {
            FaultKind::NoSuchRank => Error::Rank { operation, target, size: self.world.size(), window },
            _ => Error::Operation { operation, target, window, fault },
        }
    }
}
