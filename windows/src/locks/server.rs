//! Locks with a server thread at the target: their layout, and that thread.
//!
//! The request slots of owners lie in the target's hidden region (see [`HiddenLayout`]). The thread
//! holds only that region and the keys of the peers' ones: it does not keep the window alive.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;

use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};
use onesided_fabric::{Fabric, SegmentKey, ServerThread, World, lock};
use onesided_lock_algos::{InMemory, LockContext, Owner, Owners, WordOf, served};

use crate::locks::layout::HiddenLayout;
use crate::locks::slots::take_lowest;
use crate::window::retry::{poll_once, poll_until};

/// This rank's request slots at a target that are in use: a bit each.
#[derive(Debug, Default)]
pub(crate) struct RequestSlots(AtomicU64);

impl RequestSlots {
    pub(crate) fn take(&self, count: u16) -> Option<u16> {
        take_lowest(&self.0, count)
    }

    pub(crate) fn give_back(&self, line: u16) {
        self.0.fetch_and(!(1 << line), Ordering::Release);
    }
}

/// The state of the thread that serves this rank's lock.
pub(crate) struct LockServer<F: Fabric> {
    world: World<F>,
    layout: HiddenLayout,
    own: F::Segment,
    keys: Vec<SegmentKey>,
    /// The peers' hidden regions, resolved when first needed.
    peers: Box<[OnceLock<F::Segment>]>,
    closed: AtomicBool,
    done: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl<F: Fabric> LockServer<F> {
    /// Starts to serve the lock of this rank's window memory.
    ///
    /// # Errors
    /// `Refused` if no thread can be started.
    pub(crate) fn start(
        (world, own): (&World<F>, &F::Segment),
        layout: HiddenLayout,
        keys: Vec<SegmentKey>,
        (server_thread, per_window): (ServerThread, bool),
    ) -> Result<Arc<Self>, Fault> {
        let server = Arc::new(Self {
            world: world.background(),
            layout,
            own: own.clone(),
            peers: keys.iter().map(|_| OnceLock::new()).collect(),
            keys,
            closed: AtomicBool::new(false),
            done: AtomicBool::new(false),
            thread: Mutex::new(None),
        });
        let theirs = Done(Arc::clone(&server));
        let task = Box::pin(async move {
            let Done(server) = &theirs;
            let open = || !server.closed.load(Ordering::Acquire);
            // It fails only on its own memory, or because this rank has left: nothing to report.
            let _ = served::serve(server.world.fabric(), &**server, open).await;
        });
        let started = match per_window {
            false => server.world.assist(task, server_thread).map(|()| None),
            true => server.world.fabric().endpoint().serve(task, Some(server_thread)),
        };
        match started {
            Ok(thread) => *lock(&server.thread) = thread,
            Err(fault) => {
                server.give_up();
                return Err(fault);
            }
        }
        server.wake(); // the thread may be running already
        Ok(server)
    }

    /// Tells peers that have the window already that this rank's lock has no server.
    fn give_up(&self) {
        let _ = poll_once(served::serve(self.world.fabric(), self, || false)); // it never waits
    }

    fn wake(&self) {
        // The write is posted at the first poll, and is not waited for.
        let _ = poll_once(served::wake(self.world.fabric(), self));
    }

    /// Stops granting the lock. Does not wait.
    pub(crate) fn close(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    /// Waits until the thread has ended, with a time limit: it may be stopped.
    pub(crate) async fn ended(&self) -> Result<(), Fault> {
        let fabric = self.world.fabric();
        let timed_out = Fault::of(FaultKind::TimedOut, fabric.rank());
        poll_until(fabric, fabric.word_in(&self.own, 0)?, timed_out, || self.done.load(Ordering::Acquire)).await?;
        let thread = lock(&self.thread).take();
        // The thread has nothing left to do but to end.
        thread.map_or(Ok(()), |thread| thread.join().map_err(|_| Fault::new(FaultKind::Closed)))
    }
}

/// Reports the end of the task, however it ended.
struct Done<F: Fabric>(Arc<LockServer<F>>);

impl<F: Fabric> Drop for Done<F> {
    fn drop(&mut self) {
        self.0.done.store(true, Ordering::Release);
    }
}

impl<F: Fabric> LockServer<F> {
    fn hidden(&self, rank: Rank) -> Result<&F::Segment, Fault> {
        let Self { world, own, keys, peers, .. } = self;
        if rank == world.fabric().rank() {
            return Ok(own);
        }
        let unknown = Fault::of(FaultKind::NoSuchRegion, rank);
        let at = world.rank_of(rank).ok_or(unknown)? as usize;
        let (peer, key) = peers.get(at).zip(keys.get(at)).ok_or(unknown)?;
        if let Some(reached) = peer.get() {
            return Ok(reached);
        }
        let segment = world.fabric().open(key).map_err(|error| error.fault())?;
        Ok(peer.get_or_init(|| segment))
    }
}

/// For the server of this rank's lock.
impl<F: Fabric> InMemory for &LockServer<F> {
    type Memory = F;
}

impl<'a, F: Fabric> LockContext<'a> for &'a LockServer<F> {
    fn home(&self, index: usize) -> Result<F::Word<'a>, Fault> {
        self.world.fabric().word_in(&self.own, self.layout.word(index))
    }

    fn node_of(&self, rank: Rank, slot: u16, index: usize) -> Result<F::Word<'a>, Fault> {
        self.world.fabric().word_in(LockServer::hidden(self, rank)?, self.layout.node(slot, index))
    }

    fn owners(&self) -> Owners {
        Owners::all_counted(self.layout.slots, u64::MAX)
    }

    fn home_rank(&self) -> Rank {
        self.world.fabric().rank()
    }

    /// It needs no other words.
    fn word(&self, of: WordOf) -> Result<F::Word<'a>, Fault> {
        let LockServer { world, layout, own, .. } = *self;
        match of {
            WordOf::Request(rank, line) => world.fabric().word_in(own, layout.request_slot(world, rank, line)?),
            _ => Err(Fault::new(FaultKind::Unsupported)),
        }
    }

    fn lock(&self) -> u64 {
        self.world.rank().into()
    }

    fn owner(&self) -> Owner {
        Owner { rank: self.world.fabric().rank(), slot: Owner::NO_SLOT, generation: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_taken_once_the_lowest_first() {
        let request_slots = RequestSlots::default();
        assert_eq!(std::iter::from_fn(|| request_slots.take(64)).collect::<Vec<_>>(), (0..64).collect::<Vec<_>>());
        request_slots.give_back(63);
        request_slots.give_back(7);
        assert_eq!([request_slots.take(64), request_slots.take(64), request_slots.take(64)], [Some(7), Some(63), None]);
        let few = RequestSlots::default();
        assert_eq!(std::iter::from_fn(|| few.take(8)).count(), 8);
    }
}
