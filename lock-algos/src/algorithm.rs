//! What a lock algorithm is.

use std::fmt::Debug;
use std::future::Future;

use onesided_remote_memory::{Fault, Link, RemoteMemory};

use crate::{Held, Intent, IntentFn, LockContext, Mode};

/// A lock, written once for every fabric, the simulator and the model checkers.
///
/// An acquire is a synchronous [`start`](Self::start), which posts the first operation, and an `async` rest,
/// [`contend`](Self::contend), for when that did not suffice: so the nonblocking lock of jiang-2004 (section 5.1) needs no
/// other code than the blocking one, and nothing that is already polled has to move. The same for the release.
///
/// An algorithm keeps no state but its words: `&self` is its configuration.
///
/// # Death
///
/// An owner that dies never keeps the others: whoever [recovers](Intent::recovers) takes the lock from it, or sets the lock
/// right together with those who wait as well, and learns that somebody ended inside ([`Held::recovered`]). Whoever does
/// not is told, `OwnerDied` or `ParticipantDied`, and so is everybody after him until somebody has inherited. What this rests
/// on: when [`liveness`](RemoteMemory::liveness) calls a rank dead, all its operations have taken effect or never will.
pub trait LockAlgorithm: Debug + Send + Sync + 'static {
    /// Its name in configuration, benchmarks and reports.
    const NAME: &'static str;
    /// Words of a lock at its home; all 0 is free, and so is what [`is_free`](Self::is_free) says.
    const HOME_WORDS: usize;
    /// Words of the node of each slot; all 0 is idle.
    const NODE_WORDS: usize;
    /// Whether it has a [word at every rank](LockContext::per_rank_word) beside those at its home; all 0 is free.
    const PER_RANK_WORD: bool = false;
    /// Words of the lock [at a rank](LockContext::host_word) for the ranks of its host; all 0 is free.
    const HOST_WORDS: usize = 0;

    /// Whether it works only where somebody at the home runs [`serve`](Self::serve).
    const SERVED: bool = false;

    /// The lock's words, resolved. Small: whoever holds the lock keeps them, in registers if he can.
    type Words<'m, M: RemoteMemory>: Copy + Send + Sync;

    /// Whether a lock's words at its home, while nothing is under way, say that nobody holds it or waits for it.
    #[must_use]
    fn is_free(home: &[u64]) -> bool {
        home.iter().all(|word| *word == 0)
    }

    /// Whether an owner in this mode uses its node, if it has one, from [`start`](Self::start) until the release is done:
    /// then its slot is for nobody else meanwhile. One whose [`slot`](crate::Owner::slot) is none of the place's goes on
    /// without, at a price that the algorithm names.
    fn uses_node(&self, mode: Mode) -> bool;

    /// Resolves the words of a lock. Done once for each acquire.
    ///
    /// # Errors
    /// As [`RemoteMemory::word`].
    fn words<'m, M: RemoteMemory>(&self, place: impl LockContext<'m, M>) -> Result<Self::Words<'m, M>, Fault>;

    /// The same for an acquire that is wanted [only if free](Intent::TRY) from the beginning. With the usual words that may take
    /// longer, where a first operation that did not suffice cannot be taken back at once.
    ///
    /// # Errors
    /// As [`RemoteMemory::word`].
    fn words_to_try<'m, M: RemoteMemory>(&self, place: impl LockContext<'m, M>) -> Result<Self::Words<'m, M>, Fault> {
        self.words(place)
    }

    /// Posts the first operation of an acquire. From now on the owner may count, in its node or
    /// [without](LockContext::announce_without_slot), until it has released or [`contend`](Self::contend) has failed: whoever starts
    /// sees to one of them, unless this fails.
    ///
    /// # Errors
    /// `NotOwn` if the node is not in this rank's memory.
    fn start<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        place: impl LockContext<'m, M>,
        words: Self::Words<'m, M>,
        mode: Mode,
    ) -> Result<M::Op, Fault>;

    /// Whether the first operation alone acquired the lock. `first` is its value.
    fn holds<M: RemoteMemory>(&self, words: Self::Words<'_, M>, mode: Mode, first: u64) -> bool;

    /// The acquire after a first operation that did not suffice, or failed. `first` is its outcome. `wish` is asked between
    /// two operations.
    ///
    /// # Errors
    /// The owner does not count any more then, with a slot or without. `Closed` where it was not wanted any more, `TimedOut`
    /// where it was wanted only if free, `OwnerDied` and `ParticipantDied` where it would have had to be inherited, and what the
    /// operations report. After an error the lock is not held, but for `Unknown`: an algorithm says when that is told, and what
    /// becomes of the lock.
    ///
    /// # Cancel safety
    /// Not cancel safe: a dropped acquire may come to hold the lock. Whoever gives up hands the future, not wanted any
    /// more, to `onesided_fabric::Fabric::spawn`, to be finished, and released if it took the lock all the same, or
    /// [forsaken](Self::release_poisoned) if it inherited.
    fn contend<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        place: P,
        words: Self::Words<'m, M>,
        mode: Mode,
        first: Result<u64, Fault>,
        wish: IntentFn<'_>,
    ) -> impl Future<Output = Result<Held, Fault>> + Send;

    /// The rest of an acquire: `started` is what [`start`](Self::start) gave.
    ///
    /// # Errors
    /// As [`contend`](Self::contend).
    ///
    /// # Cancel safety
    /// As [`contend`](Self::contend).
    fn finish<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        place: P,
        words: Self::Words<'m, M>,
        mode: Mode,
        started: M::Op,
        wish: impl Fn() -> Intent + Send + Sync + 'm,
    ) -> impl Future<Output = Result<Held, Fault>> + Send + 'm {
        async move {
            let first = started.await;
            if first.is_ok_and(|first| self.holds(words, mode, first)) {
                return Ok(Held::cleanly(mode));
            }
            self.contend(memory, place, words, mode, first, &wish).await
        }
    }

    /// Whether [`finish_release`](Self::finish_release) does nothing: then nobody need ever run it.
    fn releases_in_one_step<'m, M: RemoteMemory>(&self, place: impl LockContext<'m, M>, mode: Mode) -> bool;

    /// Posts the first operation of a release. The caller has flushed what it did under the lock. `mode` is
    /// [`Held::mode`], here and in what follows; `words` are those of the acquire.
    ///
    /// # Errors
    /// `NotHeld` where the node tells so: nothing is posted then. `NotOwn` as [`start`](Self::start).
    fn start_release<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        place: impl LockContext<'m, M>,
        words: Self::Words<'m, M>,
        mode: Mode,
    ) -> Result<M::Op, Fault>;

    /// The release as a link of a chain, of a lock that [releases in one step](Self::releases_in_one_step): to be posted
    /// behind what is done under the lock, when nobody waits for that. `None`: it takes
    /// [`start_release`](Self::start_release).
    fn release_link<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        words: Self::Words<'m, M>,
        mode: Mode,
    ) -> Option<Link<M::Word<'m>>> {
        let _ = (memory, words, mode);
        None
    }

    /// Whether the first operation alone released the lock, and nothing is left to do. `found` is its value.
    ///
    /// # Errors
    /// As [`finish_release`](Self::finish_release): the release is over.
    fn released<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        place: impl LockContext<'m, M>,
        words: Self::Words<'m, M>,
        mode: Mode,
        found: u64,
    ) -> Result<bool, Fault> {
        let _ = (memory, place, words, mode, found);
        Ok(false)
    }

    /// The rest of the release. `started` is what [`start_release`](Self::start_release) gave, or its value if that was
    /// not [enough](Self::released).
    ///
    /// # Errors
    /// The owner does not count any more then. `NotHeld` where the algorithm can tell, and what the operations report.
    fn finish_release<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        place: P,
        words: Self::Words<'m, M>,
        mode: Mode,
        started: impl Future<Output = Result<u64, Fault>> + Send + 'm,
    ) -> impl Future<Output = Result<(), Fault>> + Send + 'm;

    /// Whether that rest would wait for another owner if it began now. If not, it ends with its operations: at its first poll where
    /// each of them is done when it is posted. `None`: that cannot be told beforehand.
    fn release_waits<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        place: impl LockContext<'m, M>,
        mode: Mode,
    ) -> Option<bool> {
        let _ = (memory, place, mode);
        None
    }

    /// Leaves a lock that was [inherited](Held::recovered) as the dead left it: whoever asks next is told of it as before, and may
    /// inherit. For who finds out that it has inherited when it does not want to any more. `held` is what the acquire gave; for the
    /// rest this is as a release. By default it is one: nobody is told any more.
    ///
    /// # Errors
    /// As [`finish_release`](Self::finish_release).
    fn release_poisoned<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        place: P,
        words: Self::Words<'m, M>,
        held: Held,
    ) -> impl Future<Output = Result<(), Fault>> + Send + 'm {
        async move {
            let started = self.start_release(memory, place, words, held.mode)?;
            self.finish_release(memory, place, words, held.mode, started).await
        }
    }

    /// What a thread at the home does for the lock, if it is [served](Self::SERVED): for as long as `is_open`, which is
    /// asked between two requests. `memory` is that of the home's rank, and the place's owner means nothing. A task like any
    /// other: it waits by [`RemoteMemory::wait_until`] alone, so that who runs it decides whether that spins or sleeps. One
    /// at a time for each lock. When it ends, all who wait or come are told, `Closed`.
    ///
    /// # Errors
    /// Of the rank's own memory, and `PeerLeft` when this rank has left; those who wait are told then as well.
    ///
    /// # Cancel safety
    /// Not cancel safe: if it is dropped, nobody gets the lock any more, and who waits finds out only when this rank ends.
    fn serve<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        place: P,
        is_open: impl Fn() -> bool + Send + Sync + 'm,
    ) -> impl Future<Output = Result<(), Fault>> + Send + 'm {
        let _ = (memory, place, is_open);
        std::future::ready(Ok(()))
    }

    /// Wakes who [serves](Self::serve) the lock, so that it looks whether it is still open. At the home.
    ///
    /// # Errors
    /// As [`RemoteMemory::word`], and those of a write to one's own memory.
    fn wake_server<'m, M: RemoteMemory>(
        &self,
        memory: &'m M,
        place: impl LockContext<'m, M>,
    ) -> impl Future<Output = Result<(), Fault>> + Send {
        let _ = (memory, place);
        std::future::ready(Ok(()))
    }
}
