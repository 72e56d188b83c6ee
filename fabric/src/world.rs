//! A fabric with its collectives.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[cfg(not(onesided_loom))]
use onesided_job::Maker;
use onesided_remote_memory::{Fault, FaultKind, Rank};

use crate::assist::Attendants;
use crate::collective::Collective;
use crate::members::Members;
use crate::{Call, Drive, Error, Fabric, Limit, ServerThread, Split, Task};
/// The ranks that run together, or [some of them](Self::split), seen from one of them: what MPI calls a communicator.
///
/// Cheap to clone; all clones are the same rank. Threads may share it. **Collective** calls ([`barrier`](Self::barrier),
/// [`all_gather`](Self::all_gather), window creation) are made by every rank, in the same order, by one thread at a time.
///
/// The rank leaves the world when the last handle is dropped, its windows' included. What it walked away from
/// (a dropped lock request, say) is given two seconds to be finished; [`close`](Self::close) waits longer and reports.
#[derive(Debug, Clone)]
pub struct World<F: Fabric> {
    fabric: F,
    collective: Arc<Collective<F>>,
    /// Shared by the application's handles alone, so that its drop tells that there are none left.
    _presence: Option<Arc<Presence<F>>>,
    /// Memory that peers may still reach into, for as long as this rank is in the world.
    kept: Arc<Mutex<Vec<F::Segment>>>,
    /// Threads that all who serve peers share.
    attendants: Arc<Attendants>,
}

#[derive(Debug)]
struct Presence<F: Fabric> {
    fabric: F,
    kept: Arc<Mutex<Vec<F::Segment>>>,
    #[cfg(not(onesided_loom))]
    maker: Maker,
}

impl<F: Fabric> Drop for Presence<F> {
    fn drop(&mut self) {
        #[cfg(not(onesided_loom))]
        if !self.maker.is_here() {
            // What a forked child drops is a copy, of things that its parent goes on with: files, threads, memory.
            std::mem::forget((self.fabric.clone(), std::mem::take(&mut *lock(&self.kept))));
            return;
        }
        self.fabric.leave();
        lock(&self.kept).clear();
    }
}

fn lock<T>(kept: &Mutex<Vec<T>>) -> MutexGuard<'_, Vec<T>> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<F: Fabric> World<F> {
    /// A world over an endpoint. One per endpoint: the collectives count.
    pub fn new(fabric: F) -> Self {
        let kept = Arc::default();
        let presence = Presence {
            fabric: fabric.clone(),
            kept: Arc::clone(&kept),
            #[cfg(not(onesided_loom))]
            maker: Maker::this(),
        };
        let collective = Arc::new(Collective::new(Members::all()));
        Self { fabric, collective, _presence: Some(Arc::new(presence)), kept, attendants: Arc::default() }
    }

    /// A world of some of this one's ranks.
    pub(crate) fn of(&self, members: Members<F>) -> Self {
        Self { collective: Arc::new(Collective::new(members)), ..self.clone() }
    }

    /// For who walks away from a collective: the others may wait in it for this rank, so that it has no later one.
    #[doc(hidden)]
    pub fn give_up_collectives(&self) {
        self.collective.give_up();
    }

    /// See [`Collective::reach_neighbours`].
    pub(crate) fn reach_neighbours(&self) -> Result<(), Fault> {
        self.collective.reach_neighbours(&self.fabric)
    }

    /// A handle for work in the background: it does not keep this rank in the world.
    pub fn background(&self) -> Self {
        Self { _presence: None, ..self.clone() }
    }

    /// Has a task that serves peers run by a thread that waits in this way: the same one for all such tasks of this rank,
    /// there for as long as it has any. It may sleep: whoever asks writes to a word of his own with
    /// [`Notify::Yes`](onesided_remote_memory::Notify::Yes) then.
    ///
    /// # Errors
    /// As [`Fabric::serve_apart`].
    pub fn assist(&self, task: Task, attendant: ServerThread) -> Result<(), Fault> {
        self.attendants.run(&self.fabric, task, attendant)
    }

    /// Keeps one's own memory until this rank leaves the world: for what peers may reach into at any time, although nobody
    /// here holds it any more. A card that is asked for memory that is gone ends the connection.
    pub fn keep(&self, segment: F::Segment) {
        lock(&self.kept).push(segment);
    }

    /// This rank, from 0 to [`size`](Self::size) - 1.
    pub fn rank(&self) -> u32 {
        self.collective.members.me(&self.fabric)
    }

    /// How many ranks there are.
    pub fn size(&self) -> u32 {
        self.collective.members.size(&self.fabric)
    }

    /// The fabric beneath, for what windows and locks do not offer. It counts the ranks of the whole job: see
    /// [`fabric_rank`](Self::fabric_rank).
    pub const fn fabric(&self) -> &F {
        &self.fabric
    }

    /// Waits until every rank has come here. What a rank flushed before it, every rank sees after it.
    ///
    /// # Errors
    /// `PeerDied`, `PeerLeft`, `TimedOut`. A barrier that failed cannot be taken up again: every later collective of
    /// this rank fails with `Closed`.
    ///
    /// # Cancel safety
    /// Not cancel safe: a rank that dropped its barrier has perhaps let the others pass and perhaps not.
    pub fn barrier(&self) -> Barrier<'_, F> {
        Barrier { world: self, limit: Limit::NONE, call: Call::Asked(()) }
    }

    /// Everybody's bytes, by rank. At most 1024 bytes each. Collective; returns when everybody has come here.
    ///
    /// # Errors
    /// `TooLong`, and those of [`barrier`](Self::barrier).
    ///
    /// # Cancel safety
    /// As [`barrier`](Self::barrier).
    pub async fn all_gather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>, Fault> {
        self.collective.all_gather(&self.fabric, mine).await.map_err(|fault| self.translate(fault))
    }

    /// Whether a rank is known to be alive: `false` once it died or left.
    pub fn is_alive(&self, rank: u32) -> bool {
        let alive = |rank| self.fabric.liveness(rank) == onesided_remote_memory::Liveness::Alive;
        self.fabric_rank(rank).is_some_and(alive)
    }

    /// Divides this world: the ranks that give the same `color` make one, in the order of their `key`s, and of their ranks
    /// here where those are equal (`MPI_Comm_split`). Collective, when it is waited for.
    ///
    /// A part is a world like any other, with barriers and windows of its own, in which ranks count from 0 again; errors
    /// name them so. Only the deaths of its own ranks end its collectives. Its ranks never change: one that dies stays a
    /// dead member.
    ///
    /// ```
    /// # use onesided_fabric::Fabric;
    /// onesided_fabric::threads(6, |world| {
    ///     let row = world.split(world.rank() / 3, 0).wait()?;
    ///     assert_eq!((row.rank(), row.size()), (world.rank() % 3, 3));
    ///     row.barrier().wait() // of three
    /// })
    /// .unwrap()
    /// .into_iter()
    /// .collect::<Result<(), onesided_fabric::Error>>()
    /// .unwrap();
    /// ```
    pub const fn split(&self, color: u32, key: u32) -> Split<'_, F> {
        Split::new(self, color, key)
    }

    /// Divides this world by hosts: the ranks of each, in their order here (`MPI_Comm_split_type` by shared memory).
    /// Collective, when it is waited for.
    pub fn split_by_host(&self) -> Split<'_, F> {
        self.split(self.fabric.host_of(self.fabric.rank()), 0)
    }

    /// A rank of this world, as the [fabric](Self::fabric) counts.
    pub fn fabric_rank(&self, rank: u32) -> Option<Rank> {
        self.collective.members.named_by_fabric(&self.fabric, rank)
    }

    /// A rank of the [fabric](Self::fabric), as this world counts; `None` if it is not of this world.
    pub fn rank_of(&self, rank: Rank) -> Option<u32> {
        self.collective.members.named_by_world(rank)
    }

    /// What the fabric reported, in this world's counting; a rank that is not of this world is left out.
    pub fn translate(&self, fault: Fault) -> Fault {
        self.collective.members.translate(fault)
    }

    /// As [`RemoteMemory::wait_until`](onesided_remote_memory::RemoteMemory::wait_until) over one's own word, until any rank of this
    /// world dies.
    ///
    /// # Errors
    /// `PeerDied`, `NotOwn`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wait_until<'f, P>(&'f self, own: F::Word<'f>, predicate: P) -> Result<u64, Fault>
    where
        P: Fn(u64) -> bool + Unpin + Send + 'f,
    {
        let me = self.fabric.rank();
        self.collective.members.wait_until(&self.fabric, own, predicate, (me, u64::MAX)).await
    }
}

impl<F: Drive> World<F> {
    /// Waits until the work that callers walked away from is finished, at most `patience`, then drops this handle.
    ///
    /// # Errors
    /// `TimedOut` if some is still unfinished, with their number.
    pub fn close(self, patience: Duration) -> Result<(), Error> {
        // None: a patience that the clock cannot express has no end.
        let until = std::time::Instant::now().checked_add(patience);
        while self.fabric.unfinished() > 0 {
            if until.is_some_and(|until| std::time::Instant::now() >= until) {
                let fault = Fault::new(FaultKind::TimedOut).with_detail(self.fabric.unfinished() as u32);
                return Err(Error::Operation { operation: "close the world", fault });
            }
            std::thread::sleep(Duration::from_micros(100)); // the helper thread is at it
        }
        Ok(())
    }
}

/// A barrier to be waited for: `.wait()` blocks, `.await` does not, `.test()` looks. Nothing happens before.
///
/// It is entered at the first look, and then to be waited for: a rank that goes no further keeps the others.
#[derive(Debug)]
#[must_use = "a barrier that nobody waits for is not entered"]
pub struct Barrier<'w, F: Fabric> {
    world: &'w World<F>,
    limit: Limit<'w, F>,
    call: Call<'w, (), Result<(), Error>>,
}

impl<F: Fabric> Barrier<'_, F> {
    /// Gives up after this time, counted from the next look at it; see [`World::barrier`] for what that means.
    pub const fn deadline(mut self, after: Duration) -> Self {
        self.limit.said = Some(after);
        self
    }

    async fn run(world: &World<F>) -> Result<(), Error> {
        let passed = world.collective.barrier(&world.fabric).await;
        passed.map_err(|fault| world.translate(fault)).map_err(Error::operation("barrier"))
    }

    fn late(world: &World<F>) -> Error {
        world.give_up_collectives();
        Error::operation("barrier")(Fault::new(FaultKind::TimedOut))
    }
}

impl<F: Drive> Barrier<'_, F> {
    /// Blocks until every rank has come.
    ///
    /// # Errors
    /// See [`World::barrier`].
    pub fn wait(self) -> Result<(), Error> {
        self.block()
    }
}

limited! {
    ['w, F], Barrier<'w, F>, (), Error, |barrier| barrier.world.fabric(), |()| Self::run(barrier.world),
    late Self::late(barrier.world)
}
