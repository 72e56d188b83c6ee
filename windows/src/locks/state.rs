//! The locks of a window on this rank: the design, its words, slots, leases and server.

use std::sync::{Arc, OnceLock};

use onesided_fabric::remote_memory::{Fault, Rank};
use onesided_fabric::{Fabric, SegmentKey, World};
use onesided_lock_algos::Owner;

use crate::locks::layout::{HiddenLayout, Table};
use crate::locks::lease::{LeaseChoice, Leases};
use crate::locks::server::LockServer;
use crate::locks::slots::{BIASED_SLOT, Slots};
use crate::locks::window_lock::{LockWords, WindowLock, by_design};
use crate::passive::biased::{self, BiasedSteps};
use crate::{LeasePolicy, LockAllDesign, LockDesign};

/// The locks of a window.
pub(crate) struct Locks<F: Fabric> {
    pub(crate) design: LockDesign,
    pub(crate) lock_all: LockAllDesign,
    pub(crate) algorithm: WindowLock<F>,
    starts_at_target: bool,
    pub(crate) slots: Slots,
    pub(crate) layout: HiddenLayout,
    /// Of this rank's owners, in a window with a lease policy.
    pub(crate) leases: Option<Leases>,
    /// Where the locks of a lock table lie in window memory.
    pub(crate) table: Table,
    /// The bits of the owner in slot 0, but for its generation, and its steps, in shared memory, where one
    /// thread may have that slot for itself.
    pub(crate) biased: Option<(u64, BiasedSteps<F>)>,
    /// The bits of an owner without a slot, where operations complete at post.
    pub(crate) slotless_owner: Option<u64>,
    /// The fabric's ranks on this host, in their order, for a lock with per-host words.
    pub(crate) neighbours: Box<[Rank]>,
    /// The thread that serves this rank's lock, if the design has one.
    pub(crate) server: OnceLock<Arc<LockServer<F>>>,
}

impl<F: Fabric> Locks<F> {
    pub(crate) fn new(
        (world, hidden): (&World<F>, &F::Segment),
        (design, lock_all, algorithm): (LockDesign, LockAllDesign, WindowLock<F>),
        (lease, slots): (LeaseChoice, u16),
        table: Table,
    ) -> Self {
        let size = world.size();
        let layout =
            HiddenLayout::new((size, slots), algorithm.lock_words(), lease.policy() == Some(LeasePolicy::Revoke));
        let fabric = world.fabric();
        let owner_in = |slot| Owner { rank: fabric.rank(), slot, generation: 0 }.to_bits();
        let node = layout.node(BIASED_SLOT, 0);
        let (may_bias, steps) = by_design!(
            &algorithm, lock => (true, biased::steps(*lock, fabric, hidden, node)), _other => (false, None)
        );
        let slots = Slots::new((size, slots), may_bias, lock_all == LockAllDesign::Global);
        Self {
            leases: lease.leases(slots.slots),
            slots,
            layout,
            neighbours: neighbours(world, algorithm.lock_words()),
            starts_at_target: !algorithm.lock_words().at_each_rank,
            design,
            lock_all,
            algorithm,
            table,
            biased: steps.map(|steps| (owner_in(BIASED_SLOT), steps)),
            slotless_owner: fabric.capabilities().completes_at_post.then(|| owner_in(Owner::NO_SLOT)),
            server: OnceLock::new(),
        }
    }

    /// Starts the thread that serves this rank's lock, if the design has one.
    pub(crate) fn start_server(
        &self,
        world: &World<F>,
        hidden: &F::Segment,
        keys: impl Iterator<Item = SegmentKey>,
    ) -> Result<(), Fault> {
        if let Some(how) = self.design.server_thread() {
            let server = LockServer::start((world, hidden), self.layout, keys.collect(), how)?;
            self.server.get_or_init(|| server);
        }
        Ok(())
    }

    /// Stops it, and waits until it has ended.
    pub(crate) async fn stop_server(&self) -> Result<(), Fault> {
        let Some(server) = self.server.get() else { return Ok(()) };
        server.close();
        server.ended().await
    }

    /// Whether the first operation of an acquire executes at the target, so that operations posted
    /// there behind it execute under the lock. A reader of a distributed lock counts at its own
    /// rank, and operations at two ranks are unordered.
    #[inline]
    pub(crate) fn starts_at_target(&self) -> bool {
        self.starts_at_target
    }

    /// Whether the window has a commit word: then a living owner's lock may be taken over.
    pub(crate) fn commits(&self) -> bool {
        self.leases.as_ref().is_some_and(|lease| lease.policy == LeasePolicy::VersionedCommit)
    }
}

/// The ranks that share this one's host, if the lock uses same-host words.
fn neighbours<F: Fabric>(world: &World<F>, lock: LockWords) -> Box<[Rank]> {
    if lock.at_each_host == 0 {
        return Box::default();
    }
    let fabric = world.fabric();
    let here = |rank: &Rank| fabric.host_of(*rank) == fabric.host_of(fabric.rank());
    let mut ranks: Vec<_> = (0..world.size()).filter_map(|rank| world.fabric_rank(rank)).filter(here).collect();
    ranks.sort_unstable();
    ranks.into()
}
