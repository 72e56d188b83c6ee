//! The creation of a communicator.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use onesided_fabric::remote_memory::{Collective, Fault, FaultKind};
use onesided_fabric::shm::{CollectiveBuffers, are_processes_open, introduce_process, test_process};
use onesided_fabric::{Call, Fabric, Limit, Segment, SegmentKey, World, debug, limited};

use crate::api::messages::Context;
use crate::driver::progress::Progress;
use crate::engine::matching::NUMBERS;
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
pub(crate) struct Shared<F: Fabric> {
    progress: Result<Arc<Progress<F>>, Error>,
    /// The number of its communicators of all ranks.
    wholes: AtomicU32,
    /// The number of its communicators of some ranks that it has [numbered](Self::number_part).
    parts: AtomicU32,
}

impl<F: Fabric> Shared<F> {
    pub(crate) fn of(world: &World<F>) -> Arc<Self> {
        world.layer(|| Self {
            progress: Progress::new(world.fabric().clone()),
            wholes: AtomicU32::new(0),
            parts: AtomicU32::new(0),
        })
    }

    /// The number of a communicator of some ranks, which one of them gives: its own count and its rank.
    /// So no other has it, whoever makes communicators meanwhile, and nobody else is asked.
    ///
    /// # Errors
    /// `Full`: this rank has given all of its numbers.
    pub(crate) fn number_part(&self, fabric: &F) -> Result<u32, Fault> {
        let (size, rank) = (fabric.size(), fabric.rank());
        let number = |count: u32| count.checked_mul(size)?.checked_add(rank.0)?.checked_mul(2)?.checked_add(1);
        let count = self.parts.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
            number(count).filter(|number| *number < NUMBERS)?;
            Some(count + 1)
        });
        count.ok().and_then(number).ok_or(Fault::of(FaultKind::Full, rank))
    }
}

impl<'w, F: Fabric> CreateMessages<'w, F> {
    pub(crate) const fn new(world: &'w World<F>) -> Self {
        Self { world, limit: Limit::NONE, call: Call::NotStarted(()) }
    }
}

/// Among more ranks one that cannot begin does not tell the others, which wait for it: to gather that
/// takes memory with the square of the ranks where they share a process, as in the simulator.
const TOLD: u32 = 1024;

impl<F: Fabric> CreateMessages<'_, F> {
    /// Makes a communicator whose contexts have these bits set.
    pub(crate) async fn run(world: &World<F>, bits: u32) -> Result<Messages<F>, Error> {
        let mut making = Making { world: world.clone(), context: None, buffers: None, fault: None };
        let made = making.run(bits).await;
        making.fault = made.as_ref().err().map(Error::fault);
        made.map(|()| making.made())
    }
}

limited! {
    ['w, F], CreateMessages<'w, F>, Messages<F>, Error, |create| create.world.fabric(),
    |()| Self::run(create.world, 0), late failed(create.world.give_up_collectives());
    /// Gives up after this time, counted from the next poll; see [`World::barrier`] for the
    /// consequences.
    deadline;
    /// Blocks until every rank has arrived.
    ///
    /// # Errors
    /// See [`Messages::new`].
    wait
}

/// The creation at a rank. Members may have the communicator when it fails here, or is dropped: their calls
/// end then.
pub(crate) struct Making<F: Fabric> {
    pub(crate) world: World<F>,
    pub(crate) context: Option<Context<F>>,
    pub(crate) buffers: Option<CollectiveBuffers>,
    pub(crate) fault: Option<Fault>,
}

impl<F: Fabric> Making<F> {
    async fn run(&mut self, bits: u32) -> Result<(), Error> {
        let world = &self.world;
        let (shared, fabric) = (Shared::of(world), world.fabric());
        introduce_process(fabric);
        let mine = match &shared.progress {
            // The gather below reports it to the others.
            Err(error) => Err(Fault::of(error.fault().kind(), fabric.rank()).with_detail(error.detail())),
            // All ranks make such communicators in one order.
            Ok(progress) if world.size() == fabric.size() => {
                let number = 2 * shared.wholes.fetch_add(1, Ordering::Relaxed);
                self.context = Some(Context::open(Arc::clone(progress), number | bits));
                Ok(number)
            }
            Ok(_) if world.rank() == 0 => shared.number_part(fabric),
            Ok(_) => Ok(0),
        };
        let own = if bits == 0 { CollectiveBuffers::allocate(fabric, world.size()) } else { None }; // locks call none
        let mut mine = mine.map_or_else(Fault::to_bits, u64::from).to_le_bytes().to_vec();
        mine.extend(own.iter().flat_map(|own| own.key().to_bytes()));
        let all = if world.size() == fabric.size() && world.size() > TOLD {
            shared.progress.as_ref().map_err(|error| *error)?;
            world.meet(Collective::CreateMessages).await.map_err(failed)?;
            vec![mine] // that of all others
        } else {
            world.gather(Collective::CreateMessages, &mine).await.map_err(failed)?
        };
        let progress = shared.progress.as_ref().map_err(|error| *error)?;
        let mut words = all.iter().map(|bytes| bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word)));
        if let Some(fault) = words.clone().find_map(Fault::from_bits) {
            return Err(failed(world.translate(fault)));
        }
        let number = words.next().map_or(0, |first| first as u32); // the first member gives it
        let keys: Option<Vec<_>> =
            all.iter().map(|bytes| SegmentKey::from_bytes(bytes.get(size_of::<u64>()..)?)).collect();
        drop(all); // before others are waited for
        test_next(world);
        // It is open at all members before one of them sends.
        let is_open = self.context.is_some();
        self.context.get_or_insert_with(|| Context::open(Arc::clone(progress), number | bits));
        if let (Some(own), Some(keys)) = (own, keys) {
            // All have reached all, or nobody uses any.
            let buffers = CollectiveBuffers::open(fabric, &own, &keys).ok();
            let all = world.gather(Collective::CreateMessages, &[u8::from(buffers.is_some())]).await.map_err(failed)?;
            self.buffers = buffers.filter(|_| all.iter().all(|has| has[..] == [1]));
        } else if !is_open || fabric.capabilities().completes_at_post {
            world.meet(Collective::CreateMessages).await.map_err(failed)?;
        }
        Ok(())
    }

    /// The communicator. All members have tested whether they may read one another's slices.
    pub(crate) fn made(mut self) -> Messages<F> {
        let Some(context) = self.context.take() else { unreachable!("it is open by now") };
        let fabric = self.world.fabric();
        let may_offer = fabric.capabilities().completes_at_post && are_processes_open(fabric);
        Messages::of(&self.world, context, (may_offer, self.buffers.take()))
    }
}

impl<F: Fabric> Drop for Making<F> {
    fn drop(&mut self) {
        if let Some(context) = &self.context {
            context.fail(&self.world, self.fault);
        }
    }
}

/// Each member tests one other: a member that is apart, in a container, is between two of them.
pub(crate) fn test_next<F: Fabric>(members: &World<F>) {
    if let Some(next) = members.fabric_rank((members.rank() + 1) % members.size()) {
        test_process(members.fabric(), next);
    }
}

pub(crate) const fn failed(fault: Fault) -> Error {
    Error::Create { fault }
}

debug!([F: Fabric] CreateMessages<'_, F>, |this| "creation of a communicator of {} ranks", this.world.size());
