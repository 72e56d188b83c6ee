//! What a lock algorithm is.

use std::fmt::Debug;
use std::future::Future;

use remote_memory::{At, Fault, Link, Rank, RemoteMemory};

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// By one owner.
    Exclusive,
    /// By any number of owners, none of them exclusive.
    Shared,
}

/// Who holds or waits: a rank has many slots, so that its threads and its several locks do not collide, and a slot's
/// generation rises with each use, so that a late operation of an earlier use is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The rank; 24 bits.
    pub rank: Rank,
    /// Which of the rank's slots; 12 bits.
    pub slot: u16,
    /// Which use of the slot; 26 bits, wrapping.
    pub generation: u32,
}

impl Owner {
    /// Bits of [`to_bits`](Self::to_bits): the two highest of a word are left to the algorithm.
    pub const BITS: u32 = 62;

    /// The owner in the low 62 bits of a word.
    #[must_use]
    #[inline]
    pub const fn to_bits(self) -> u64 {
        (self.rank.0 as u64 & 0xff_ffff) << 38
            | (self.slot as u64 & 0xfff) << 26
            | (self.generation as u64 & 0x3ff_ffff)
    }

    /// The inverse of [`to_bits`](Self::to_bits); the two highest bits are ignored.
    #[must_use]
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self {
            rank: Rank((bits >> 38) as u32 & 0xff_ffff),
            slot: (bits >> 26) as u16 & 0xfff,
            generation: bits as u32 & 0x3ff_ffff,
        }
    }
}

/// Where a lock's words lie and on whose behalf it is taken: what windows, lock tables and tests tell an algorithm.
pub trait Place<'m, M: RemoteMemory> {
    /// Word `index` of the lock at its home, the target.
    ///
    /// # Errors
    /// As [`RemoteMemory::word`].
    fn home(&self, index: usize) -> Result<M::Word<'m>, Fault>;

    /// Word `index` of this owner's queue node, in this rank's own memory. All 0 whenever the owner is new.
    ///
    /// # Errors
    /// As [`RemoteMemory::word`]; `Unsupported` where the place has no queue nodes.
    fn node(&self, index: usize) -> Result<M::Word<'m>, Fault>;

    /// Where some owner's queue node lies.
    fn node_of(&self, owner: Owner) -> At;

    /// On whose behalf.
    fn owner(&self) -> Owner;
}

/// A lock, written once for every fabric, the simulator and the model checkers.
///
/// An acquire is a synchronous [`start`](Self::start), which posts the first operation, and an `async` rest,
/// [`contend`](Self::contend), for when that did not suffice: so the nonblocking lock of jiang-2004 (section 5.1) needs no
/// other code than the blocking one, and nothing that is already polled has to move. The same for the release.
///
/// An algorithm keeps no state but its words: `&self` is its configuration.
pub trait LockAlgorithm: Debug + Send + Sync + 'static {
    /// Its name in configuration, benchmarks and reports.
    const NAME: &'static str;
    /// Words of a lock at its home; all 0 is free.
    const HOME_WORDS: usize;
    /// Words of a queue node at each origin.
    const NODE_WORDS: usize;
    /// Whether [`finish_release`](Self::finish_release) posts nothing more: then nobody need ever run it.
    const ONE_STEP_RELEASE: bool;

    /// The lock's words, resolved.
    type Words<'m, M: RemoteMemory>: Copy + Send + Sync;

    /// Resolves the words of a lock. Done once for each acquire.
    ///
    /// # Errors
    /// As [`RemoteMemory::word`].
    fn words<'m, M: RemoteMemory>(&self, place: &impl Place<'m, M>) -> Result<Self::Words<'m, M>, Fault>;

    /// Posts the first operation of an acquire.
    fn start<M: RemoteMemory>(&self, memory: &M, words: Self::Words<'_, M>, mode: Mode) -> M::Op;

    /// Whether the first operation alone acquired the lock. `first` is its value.
    fn holds<M: RemoteMemory>(&self, words: Self::Words<'_, M>, mode: Mode, first: u64) -> bool;

    /// The acquire after a first operation that did not suffice. `first` is its value. `wanted` is asked between two
    /// operations: once it says no, the acquire ends as soon as it holds nothing that others wait for.
    ///
    /// # Errors
    /// `OwnerDied` with the dead owner's rank, `MemberDied`, `Closed` where it was not wanted any more, and what the
    /// operations report. After an error the lock is not held, but for `Unknown`.
    ///
    /// # Cancel safety
    /// Not cancel safe: a dropped acquire may come to hold the lock. Whoever gives up hands the future, not wanted any
    /// more, to `fabric::Fabric::adopt`, to be finished, and released if it took the lock all the same.
    fn contend<'m, M: RemoteMemory>(
        &'m self,
        memory: &'m M,
        words: Self::Words<'m, M>,
        mode: Mode,
        first: u64,
        wanted: impl Fn() -> bool + Send + 'm,
    ) -> impl Future<Output = Result<(), Fault>> + Send + 'm;

    /// The rest of an acquire: `started` is what [`start`](Self::start) gave.
    ///
    /// # Errors
    /// As [`contend`](Self::contend).
    ///
    /// # Cancel safety
    /// As [`contend`](Self::contend).
    fn finish<'m, M: RemoteMemory>(
        &'m self,
        memory: &'m M,
        words: Self::Words<'m, M>,
        mode: Mode,
        started: M::Op,
        wanted: impl Fn() -> bool + Send + 'm,
    ) -> impl Future<Output = Result<(), Fault>> + Send + 'm {
        async move {
            let first = started.await?;
            if self.holds(words, mode, first) { Ok(()) } else { self.contend(memory, words, mode, first, wanted).await }
        }
    }

    /// Posts the first operation of a release. The caller has flushed what it did under the lock.
    fn start_release<M: RemoteMemory>(&self, memory: &M, words: Self::Words<'_, M>, mode: Mode) -> M::Op;

    /// The release as a link of a chain, if it is one operation: to be posted behind what is done under the lock, when
    /// nobody waits for that. `None`: it takes [`start_release`](Self::start_release).
    fn release_link<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        words: Self::Words<'m, M>,
        mode: Mode,
    ) -> Option<Link<M::Word<'m>>> {
        let _ = (memory, words, mode);
        None
    }

    /// The rest of the release. `started` is what [`start_release`](Self::start_release) gave.
    ///
    /// # Errors
    /// `NotHeld` where the algorithm can tell, and what the operations report.
    fn finish_release<'m, M: RemoteMemory>(
        &'m self,
        memory: &'m M,
        words: Self::Words<'m, M>,
        mode: Mode,
        started: M::Op,
    ) -> impl Future<Output = Result<(), Fault>> + Send + 'm;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_pack_at_every_fields_edge() {
        for rank in [0, 1, Rank::LIMIT] {
            for slot in [0, 0xfff] {
                for generation in [0, 0x3ff_ffff] {
                    let owner = Owner { rank: Rank(rank), slot, generation };
                    assert_eq!(Owner::from_bits(owner.to_bits()), owner);
                    assert_eq!(owner.to_bits() >> Owner::BITS, 0);
                }
            }
        }
    }
}
