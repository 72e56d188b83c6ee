//! The creation of a communicator.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onesided_fabric::remote_memory::{Collective, Fault};
use onesided_fabric::{Call, Drive, Fabric, Limit, PeerProcesses, World, limited};

use crate::progress::Progress;
use crate::{Error, Messages};

/// A pending [`Messages::new`]: `.wait()` blocks, `.await` suspends, `.test()` polls once. Does
/// nothing unless waited on or polled.
#[must_use = "a communicator that nobody waits for is not made"]
pub struct CreateMessages<'w, F: Fabric> {
    world: &'w World<F>,
    limit: Limit<'w, F>,
    call: Call<'w, (), Result<Messages<F>, Error>>,
}

/// What the communicators of a rank share.
#[derive(Debug)]
struct Shared<F: Fabric> {
    progress: Result<Arc<Progress<F>>, Fault>,
    /// The number of its communicators of all ranks.
    wholes: AtomicU32,
    /// The lowest number that none of its communicators of some ranks has.
    next: AtomicU32,
}

impl<'w, F: Fabric> CreateMessages<'w, F> {
    pub(crate) const fn new(world: &'w World<F>) -> Self {
        Self { world, limit: Limit::NONE, call: Call::NotStarted(()) }
    }

    /// Gives up after this time, counted from the next poll; see [`World::barrier`] for the
    /// consequences.
    pub const fn deadline(mut self, after: Duration) -> Self {
        self.limit.said = Some(after);
        self
    }
}

impl<F: Fabric + 'static> CreateMessages<'_, F> {
    /// Makes a communicator whose contexts have these bits set.
    pub(crate) async fn run(world: &World<F>, bits: u32) -> Result<Messages<F>, Error> {
        let shared = world.layer(|| Shared {
            progress: Progress::new(world.fabric().clone()),
            wholes: AtomicU32::new(0),
            next: AtomicU32::new(0),
        });
        let progress = shared.progress.as_ref().map_err(|fault| failed(*fault))?;
        let fabric = world.fabric();
        if let Some(processes) = fabric.processes() {
            processes.introduce();
        }
        let number = if world.size() == fabric.size() {
            // All ranks make such communicators in one order.
            let number = 2 * shared.wholes.fetch_add(1, Ordering::Relaxed);
            world.meet(Collective::CreateMessages).await.map_err(failed)?;
            number
        } else {
            // The lowest odd one that is free at all members.
            let mine = shared.next.load(Ordering::Relaxed);
            let all = world.gather(Collective::CreateMessages, &mine.to_le_bytes()).await.map_err(failed)?;
            let numbers = all.iter().filter_map(|bytes| bytes.as_slice().try_into().ok().map(u32::from_le_bytes));
            let number = numbers.max().unwrap_or(mine);
            shared.next.fetch_max(number + 1, Ordering::Relaxed);
            2 * number + 1
        };
        let may_offer = fabric.capabilities().completes_at_post && {
            // Each tests one other: a member that is apart, in a container, is between two of them.
            let next = world.fabric_rank((world.rank() + 1) % world.size());
            if let Some((processes, next)) = fabric.processes().zip(next) {
                processes.test(next);
            }
            world.meet(Collective::CreateMessages).await.map_err(failed)?;
            fabric.processes().is_some_and(PeerProcesses::are_open)
        };
        Ok(Messages::of(world, Arc::clone(progress), number | bits, may_offer))
    }

    /// Blocks until every rank has arrived.
    ///
    /// # Errors
    /// See [`Messages::new`].
    pub fn wait(self) -> Result<Messages<F>, Error>
    where
        F: Drive,
    {
        self.block()
    }
}

limited! {
    ['w, F: 'static], CreateMessages<'w, F>, Messages<F>, Error, |create| create.world.fabric(),
    |()| Self::run(create.world, 0), late failed(create.world.give_up_collectives())
}

const fn failed(fault: Fault) -> Error {
    Error::Create { fault }
}

impl<F: Fabric> fmt::Debug for CreateMessages<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "creation of a communicator of {} ranks", self.world.size())
    }
}
