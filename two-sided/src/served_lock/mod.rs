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
//! in an eager message. Here nothing but messages is needed at the origin: no window, no memory of the
//! home's, no request slots that a rank may run out of.
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
//! endpoint of its own, as a fabric's packets have one owner; the served locks of windows have no
//! engine, with a thread for each window nothing is shared there.

mod acquire;
mod server;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onesided_fabric::remote_memory::{Collective, Fault, FaultKind, Rank};
use onesided_fabric::{Call, Drive, Fabric, Limit, ServerThread, World, limited};
use onesided_lock_algos::Mode;
use onesided_lock_algos::served::{Request, Verb};

pub use self::acquire::{AcquireServed, ServedGuard};
use crate::progress::lock;
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
/// for. What was written by one-sided operations under the lock is
/// flushed before the guard is dropped.
///
/// An exclusive owner that dies, or panics under the guard, poisons the lock: acquires fail with
/// [`is_poisoned`](Error::is_poisoned) and its rank, until one [recovers](AcquireServed::recover) it.
/// When the home dies or leaves, acquires fail; when it has dropped its handles, with `Closed`. On
/// cards a release can be lost with the connection: it is repeated by this rank's next acquire, which
/// fails with `ConnectionLost`.
///
/// Cheap to clone; all clones are the same lock, and threads may share it.
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
}

impl<F: Fabric> Clone for ServedLock<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<F: Fabric> fmt::Debug for ServedLock<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lock at rank {}, served over {:?}", self.0.home, self.0.messages)
    }
}

impl<F: Fabric> Inner<F> {
    /// Sends a request, without waiting: if the home cannot be reached, it need not hear of it.
    fn send(&self, request: u64) {
        drop(self.messages.send(&[request], self.home, REQUEST));
    }

    /// Slots that are free may hold the lock, because their releases were lost with the connection.
    #[cold]
    fn release_again(&self) {
        for (slot, _) in &lock(&self.slots).free {
            self.send(Request { id: 0, slot: *slot, verb: Verb::Withdraw }.to_bits());
        }
    }
}

impl<F: Fabric> Drop for Inner<F> {
    fn drop(&mut self) {
        self.send(GOODBYE);
    }
}

impl<F: Fabric + 'static> ServedLock<F> {
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
}

impl<F: Fabric> ServedLock<F> {
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

    /// Gives up after this time, counted from the next poll; see [`World::barrier`] for the
    /// consequences.
    pub const fn deadline(mut self, after: Duration) -> Self {
        self.limit.said = Some(after);
        self
    }
}

impl<F: Fabric + 'static> CreateServedLock<'_, F> {
    async fn run(world: &World<F>, served: Served) -> Result<ServedLock<F>, Error> {
        let Served { home, .. } = served;
        if home >= world.size() {
            return Err(Error::Rank { operation: "lock", rank: home, size: world.size() });
        }
        let messages = Messages::new(world).await?;
        let started = if world.rank() == home { server::start(&messages, served) } else { Ok(()) };
        let made = ServedLock(Arc::new(Inner { messages, home, slots: Mutex::default() }));
        // All have the communicator. They hear whether it is served.
        let mine = [home, started.is_ok().into()].map(u32::to_le_bytes);
        let all = world.gather(Collective::CreateMessages, mine.as_flattened()).await;
        let all = all.map_err(|fault| Error::Create { fault })?;
        for (rank, theirs) in (0..).zip(&all) {
            let kind = match theirs.split_first_chunk() {
                Some((named, [0, ..])) if *named == home.to_le_bytes() => FaultKind::Refused,
                Some((named, _)) if *named == home.to_le_bytes() => continue,
                _ => FaultKind::OutOfStep,
            };
            let fault = Fault::of(kind, Rank(rank));
            return Err(Error::Lock { operation: "make a lock", home, fault });
        }
        Ok(made)
    }

    /// Blocks until every rank has arrived.
    ///
    /// # Errors
    /// See [`ServedLock::new`].
    pub fn wait(self) -> Result<ServedLock<F>, Error>
    where
        F: Drive,
    {
        self.block()
    }
}

limited! {
    ['w, F: 'static], CreateServedLock<'w, F>, ServedLock<F>, Error, |create| create.world.fabric(),
    |()| Self::run(create.world, create.served), late Error::Create { fault: create.world.give_up_collectives() }
}

impl<F: Fabric> fmt::Debug for CreateServedLock<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "creation of a lock at rank {} for {} ranks", self.served.home, self.world.size())
    }
}
