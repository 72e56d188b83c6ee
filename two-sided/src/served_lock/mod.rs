//! Locks that a thread serves over messages: jiang-2004, section 4, as the paper has it.
//!
//! ```text
//! acquire    receive(my slot); send(home, acquire); until the grant comes: wait
//! release    send(home, release)
//! thread     receive(any rank); queue the origin, or send a grant to the next ones
//! ```
//!
//! A lock is a communicator of its own. At the *home* a task, the server, receives requests of all
//! ranks in the order of their arrival; its thread polls (section 4.1) or sleeps until a packet
//! (section 4.2). What it decides is that of the served locks of windows,
//! [`LockQueue`](onesided_lock_algos::served::LockQueue); a request and a reply are one word of theirs
//! in an eager message. Here nothing but messages is needed: no window, and no memory of the home's.
//!
//! - **Slots.** An acquire has a slot, a number of its rank, whose tag its reply has. The next user of
//!   the slot passes over replies with another request id.
//! - **Withdrawal.** A future that is dropped sends a message, and leaves; a grant that crosses it is
//!   passed over.
//! - **Death.** A receive from any rank that fails tells the server of a death. It takes in what has
//!   come before it reaps, so that a rank which released and died leaves the lock free.
//! - **The end.** The last handle of a rank says goodbye. Once the home's has, every acquire ends with
//!   `Closed`; the task ends when all others have, or are gone.
//!
//! # The engine
//!
//! All communicators of a rank share one engine and one lock of it (`Progress`): the paper's progress
//! engine with mutexes. So threads of several served locks take turns in it, and with the threads of
//! the program (Fig. 3: more threads give no more concurrency). An engine for each lock would need an
//! endpoint of its own, as a fabric's packets have one owner. The served locks of windows have no
//! engine: with a thread for each window nothing is shared there.

mod acquire;
mod server;

use std::sync::{Arc, Mutex};

use onesided_fabric::remote_memory::{Collective, Fault, FaultKind, Rank};
use onesided_fabric::{Call, Fabric, Limit, ServerThread, World, debug, limited, lock};
use onesided_lock_algos::Mode;
use onesided_lock_algos::served::{Request, Verb};

pub use self::acquire::{AcquireServed, ServedGuard};
use crate::api::create::CreateMessages;
use crate::engine::matching::{Arrival, LOCK};
use crate::{Error, Messages, Tag};

/// The tag of requests; those of replies are slots.
const REQUEST: Tag = Tag(u32::MAX);

/// The last request of a rank.
const GOODBYE: u64 = 0;

/// What fits a [`Request`].
const SLOTS: u16 = 1 << 12;

/// A lock at one rank, which a thread there serves over messages (jiang-2004, section 4): shared and
/// exclusive, first come, first served.
///
/// ```
/// use onesided_fabric::ServerThread;
/// use onesided_two_sided::ServedLock;
///
/// onesided_fabric::threads(3, |world| {
///     let lock = ServedLock::new(&world, 0, ServerThread::Sleeps).wait()?; // collective
///     for _ in 0..100 {
///         let _guard = lock.lock().wait()?;
///         // one rank at a time
///     } // released
///     world.barrier().wait().unwrap();
///     let _readers = lock.lock_shared().wait()?;
///     world.barrier().wait().unwrap(); // all ranks hold it
///     Ok(())
/// })
/// .unwrap()
/// .into_iter()
/// .collect::<Result<(), onesided_two_sided::Error>>()
/// .unwrap();
/// ```
///
/// An acquire and its release take three messages, however many ranks wait. The release is not waited
/// for. Flush what one-sided operations have written under the lock before the guard is dropped.
///
/// These messages pass the program's own that wait at their sender.
///
/// An exclusive owner that dies, or panics under the guard, poisons the lock: acquires fail with
/// [`is_poisoned`](Error::is_poisoned) and its rank, until one [recovers](AcquireServed::recover) it.
/// When the home dies or leaves, acquires fail; when it has dropped its handles, with `Closed`. On
/// cards a connection may break and be made anew: an acquire that waits meanwhile fails with
/// `ConnectionLost`, and a release that was lost is repeated by this rank's next acquire, its next
/// release, or the drop of its last handle. The others wait until then.
///
/// Cheap to clone; all clones are the same lock, and threads may share it.
#[derive(Clone)]
pub struct ServedLock<F: Fabric = onesided_fabric::Any>(Arc<Inner<F>>);

struct Inner<F: Fabric> {
    messages: Messages<F>,
    home: u32,
    slots: Mutex<Slots>,
}

/// The slots of this rank.
#[derive(Debug, Default)]
struct Slots {
    /// Free ones, and whether the last acquire was withdrawn: a reply may come, to be passed over.
    free: Vec<(u16, bool)>,
    made: u16,
    /// The last request id.
    id: u32,
    /// Where the connection to the home was made anew when this rank last looked.
    boundary: Boundary,
}

type Boundary = (Arrival, u64);

debug!([F: Fabric] ServedLock<F>, |this| "lock at rank {}, served over {:?}", this.0.home, this.0.messages);

impl<F: Fabric> Inner<F> {
    /// Sends a request, without waiting: if the home cannot be reached, it need not hear of it.
    fn send(&self, request: u64) {
        self.release_again();
        post(&self.messages, request, self.home, REQUEST);
    }

    /// If the connection to the home was made anew, the last requests may be lost. Slots that are free
    /// hold the lock then, so they release it again.
    fn release_again(&self) {
        let Some(home) = self.messages.world().fabric_rank(self.home) else { return };
        let boundary = self.messages.progress().with(|engine| engine.boundary(home));
        let slots = &mut *lock(&self.slots); // until all are sent: no slot is used again before
        if std::mem::replace(&mut slots.boundary, boundary) != boundary {
            for (slot, _) in &slots.free {
                let request = Request { id: 0, slot: *slot, verb: Verb::Withdraw };
                post(&self.messages, request.to_bits(), self.home, REQUEST);
            }
        }
    }
}

/// Does what tells of no break of a connection: that is for the program's messages.
fn quietly<F: Fabric, R>(messages: &Messages<F>, rank: u32, act: impl FnOnce() -> R) -> R {
    let Some(rank) = messages.world().fabric_rank(rank) else { return act() };
    let untold = messages.progress().with(|engine| engine.untold(rank).take());
    let done = act();
    if untold.is_some() {
        messages.progress().with(|engine| *engine.untold(rank) = untold);
    }
    done
}

/// Sends a word, without waiting.
fn post<F: Fabric>(messages: &Messages<F>, word: u64, to: u32, tag: Tag) {
    quietly(messages, to, || drop(messages.send(&[word], to, tag)));
}

impl<F: Fabric> Drop for Inner<F> {
    fn drop(&mut self) {
        self.send(GOODBYE);
    }
}

impl<F: Fabric> ServedLock<F> {
    /// Makes a lock that a thread of rank `home` serves: one that polls, and takes a core, or one that
    /// sleeps until a request. All locks of a rank share one thread of each kind, unless they are made
    /// [with their own](CreateServedLock::with_own_thread). Collective; all ranks name the same home.
    ///
    /// # Errors
    /// [`Error::Rank`]; [`Error::Create`], as [`Messages::new`]; [`Error::Lock`]: `Refused`, the home
    /// can start no thread, or `OutOfStep`, a rank names another home.
    ///
    /// # Cancel safety
    /// Not cancel safe: collective.
    #[expect(clippy::new_ret_no_self)] // a handle of one, as every collective call returns
    pub const fn new(world: &World<F>, home: u32, thread: ServerThread) -> CreateServedLock<'_, F> {
        let served = Served { home, thread, is_apart: false };
        CreateServedLock { world, served, limit: Limit::NONE, call: Call::NotStarted(()) }
    }

    /// Acquires the lock exclusively. Does nothing unless waited on or polled.
    ///
    /// # Errors
    /// [`Error::Lock`]: it is [poisoned](Error::is_poisoned); the home died, left or has closed it; a
    /// deadline passed; `NoSlot`, this rank has 4,096 owners and waiters.
    ///
    /// # Cancel safety
    /// May be dropped at any point: the acquire is withdrawn, granted or not.
    pub fn lock(&self) -> AcquireServed<'_, ServedGuard<'_, F>, F> {
        AcquireServed::new(self, Mode::Exclusive)
    }

    /// Acquires the lock together with other readers. Otherwise as [`lock`](Self::lock).
    pub fn lock_shared(&self) -> AcquireServed<'_, ServedGuard<'_, F>, F> {
        AcquireServed::new(self, Mode::Shared)
    }

    /// Acquires the lock exclusively if nobody has it when the request arrives; otherwise the result is
    /// `None`. Otherwise as [`lock`](Self::lock).
    pub fn try_lock(&self) -> AcquireServed<'_, Option<ServedGuard<'_, F>>, F> {
        AcquireServed::new_try(self, Mode::Exclusive)
    }

    /// Acquires the lock for reading if that needs no waiting. Otherwise as
    /// [`try_lock`](Self::try_lock).
    pub fn try_lock_shared(&self) -> AcquireServed<'_, Option<ServedGuard<'_, F>>, F> {
        AcquireServed::new_try(self, Mode::Shared)
    }

    /// The rank that serves it.
    pub fn home(&self) -> u32 {
        self.0.home
    }
}

/// How a lock is served.
#[derive(Clone, Copy, Debug)]
struct Served {
    home: u32,
    thread: ServerThread,
    is_apart: bool,
}

/// A pending [`ServedLock::new`]: `.wait()` blocks, `.await` suspends, `.test()` polls once. Does
/// nothing unless waited on or polled.
#[must_use = "a lock that nobody waits for is not made"]
pub struct CreateServedLock<'w, F: Fabric> {
    world: &'w World<F>,
    served: Served,
    limit: Limit<'w, F>,
    call: Call<'w, (), Result<ServedLock<F>, Error>>,
}

impl<F: Fabric> CreateServedLock<'_, F> {
    /// A thread of the lock's own, in place of one for all locks of the home (jiang-2004, section 4.1:
    /// one thread for each window). They share the engine of their rank, so that it helps little.
    pub const fn with_own_thread(mut self) -> Self {
        self.served.is_apart = true;
        self
    }

    async fn run(world: &World<F>, served: Served) -> Result<ServedLock<F>, Error> {
        let Served { home, .. } = served;
        if home >= world.size() {
            return Err(Error::Rank { operation: "lock", rank: home, size: world.size() });
        }
        let messages = CreateMessages::run(world, LOCK).await?;
        Self::agree(world, home, (home, home), FaultKind::OutOfStep).await?;
        let started = if world.rank() == home { server::start(&messages, served) } else { Ok(()) };
        let made = ServedLock(Arc::new(Inner { messages, home, slots: Mutex::default() }));
        Self::agree(world, home, (started.is_ok().into(), true.into()), FaultKind::Refused).await?;
        Ok(made)
    }

    /// Fails if a rank says something else than it should, with the first one.
    async fn agree(world: &World<F>, home: u32, (mine, should): (u32, u32), kind: FaultKind) -> Result<(), Error> {
        let all = world.gather(Collective::CreateMessages, &mine.to_le_bytes()).await;
        let all = all.map_err(|fault| Error::Create { fault })?;
        match (0..).zip(&all).find(|(_, theirs)| theirs[..] != should.to_le_bytes()) {
            None => Ok(()),
            Some((rank, _)) => Err(Error::Lock { operation: "make a lock", home, fault: Fault::of(kind, Rank(rank)) }),
        }
    }
}

limited! {
    ['w, F], CreateServedLock<'w, F>, ServedLock<F>, Error, |create| create.world.fabric(),
    |()| Self::run(create.world, create.served), late Error::Create { fault: create.world.give_up_collectives() };
    /// Gives up after this time, counted from the next poll; see [`World::barrier`] for the
    /// consequences.
    deadline;
    /// Blocks until every rank has arrived.
    ///
    /// # Errors
    /// See [`ServedLock::new`].
    wait
}

debug!(
    [F: Fabric] CreateServedLock<'_, F>,
    |this| "creation of a lock at rank {} for {} ranks", this.served.home, this.world.size()
);
