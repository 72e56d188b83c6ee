//! Words and waiting by the card. Changes are recorded for CPU accesses that may follow.

use std::sync::atomic::{AtomicU64, Ordering};

use onesided_remote_memory::{At, Chain, Fault, Link, Liveness, Notify, Patience, Rank, RemoteMemory};

use crate::links::all;
use crate::mixed::changes::Change;
use crate::mixed::segment::AgentWord::{Card, Cpu};
use crate::mixed::{Mixed, MixedWord};
use crate::shm::ShmWord;
use crate::verbs::{Verbs, VerbsOp, VerbsWord};
use crate::{Drive, Ticket};

impl Mixed {
    /// Where changes of a word are recorded, if puts and gets of the same region may use the CPU.
    pub(super) fn change_of(&self, word: VerbsWord<'_>) -> Option<&Change> {
        self.host_peer(word.rank()).map(|host_peer| host_peer.changes.of(&self.verbs, word.region()))
    }

    /// Records that a change of this word was posted.
    fn note<T>(&self, word: VerbsWord<'_>, is_write: bool, posted: T) -> T {
        if let Some(change) = self.change_of(word) {
            change.note(&self.verbs, word.rank(), is_write);
        }
        posted
    }

    /// An operation of the CPU on a word: not after the connection to its rank is lost. After the end of
    /// the rank the memory is still mapped here.
    #[inline]
    fn by_cpu<'f>(&self, word: ShmWord<'f>, operate: impl FnOnce(ShmWord<'f>) -> u64) -> VerbsOp {
        VerbsOp::ended(self.verbs.check_connected(word.rank()).map(|()| operate(word)))
    }

    /// An own word in memory.
    fn own<'f>(&self, word: MixedWord<'f>) -> Result<&'f AtomicU64, Fault> {
        match word.0 {
            Card(word) => word.own(),
            Cpu(word) => word.own(self.rank()),
        }
    }
}

impl RemoteMemory for Mixed {
    type Word<'f> = MixedWord<'f>;
    type Op = <Verbs as RemoteMemory>::Op;
    type Wait<'f, P: Fn(u64) -> bool + Unpin + Send + 'f> = <Verbs as RemoteMemory>::Wait<'f, P>;
    type Pause<'f> = <Verbs as RemoteMemory>::Pause<'f>;

    #[inline]
    fn rank(&self) -> Rank {
        self.verbs.rank()
    }

    #[inline]
    fn size(&self) -> u32 {
        self.verbs.size()
    }

    fn word(&self, at: At) -> Result<MixedWord<'_>, Fault> {
        self.verbs.word(at).map(|word| MixedWord(Card(word)))
    }

    fn read(&self, word: MixedWord<'_>) -> Self::Op {
        match word.0 {
            Card(word) => self.verbs.read(word),
            Cpu(word) => self.by_cpu(word, |word| word.load()),
        }
    }

    fn write(&self, word: MixedWord<'_>, value: u64, notify: Notify) -> Self::Op {
        match word.0 {
            Card(word) => self.note(word, true, self.verbs.write(word, value, notify)),
            Cpu(word) => self.by_cpu(word, |word| {
                word.store(value);
                0
            }),
        }
    }

    fn write_is_atomic(&self) -> bool {
        self.verbs.write_is_atomic()
    }

    fn compare_swap(&self, word: MixedWord<'_>, expected: u64, new: u64) -> Self::Op {
        match word.0 {
            Card(word) => self.note(word, false, self.verbs.compare_swap(word, expected, new)),
            Cpu(word) => self.by_cpu(word, |word| word.compare_swap(expected, new)),
        }
    }

    fn fetch_add(&self, word: MixedWord<'_>, add: u64) -> Self::Op {
        match word.0 {
            Card(word) => self.note(word, false, self.verbs.fetch_add(word, add)),
            Cpu(word) => self.by_cpu(word, |word| word.fetch_add(add)),
        }
    }

    fn post<const N: usize>(&self, links: [Link<MixedWord<'_>>; N]) -> Chain<Self::Op, N> {
        let Some(links) = all(links.map(|link| link.filter_map(MixedWord::card))) else {
            return Chain::of(links.map(|link| link.waited().then_some(self.post_link(link))));
        };
        let chain = self.verbs.post(links);
        for link in links {
            match link {
                Link::Read { .. } => {}
                Link::Write { word, .. } => self.note(word, true, ()),
                Link::CompareSwap { word, .. } | Link::FetchAdd { word, .. } => self.note(word, false, ()),
            }
        }
        chain
    }

    fn load(&self, own: MixedWord<'_>) -> Result<u64, Fault> {
        Ok(self.own(own)?.load(Ordering::Acquire))
    }

    fn store(&self, own: MixedWord<'_>, value: u64) -> Result<(), Fault> {
        self.own(own)?.store(value, Ordering::Release);
        Ok(())
    }

    fn wait_until<'f, P>(&'f self, own: MixedWord<'f>, predicate: P, patience: Patience) -> Self::Wait<'f, P>
    where
        P: Fn(u64) -> bool + Unpin + Send + 'f,
    {
        self.verbs.wait_on_own(self.own(own), predicate, patience)
    }

    fn pause<'f>(&'f self, _word: MixedWord<'f>, nanos: u64) -> Self::Pause<'f> {
        self.verbs.pause_for(nanos)
    }

    fn now(&self) -> u64 {
        self.verbs.now()
    }

    fn liveness(&self, rank: Rank) -> Liveness {
        self.verbs.liveness(rank)
    }

    fn has_failed(&self, home: Rank, rank: Rank) -> bool {
        self.verbs.has_failed(home, rank)
    }

    /// A rank of the home's host is dead when its process has ended. If it lives and its connection
    /// is lost, its card is cut, and its CPU refuses to access the home's memory since the loss was
    /// recorded, which is before the cut.
    async fn has_cut(&self, home: Rank, rank: Rank) -> Result<bool, Fault> {
        self.verbs.has_cut(home, rank).await
    }

    fn failures(&self) -> u32 {
        self.verbs.failures()
    }

    fn failure(&self, index: u32) -> Option<Rank> {
        self.verbs.failure(index)
    }

    fn ends(&self) -> u32 {
        self.verbs.ends()
    }

    fn lost_connection(&self, home: Rank, from: Rank) -> Option<Rank> {
        self.verbs.lost_connection(home, from)
    }
}

impl Drive for Mixed {
    fn progress(&self) -> usize {
        self.verbs.progress()
    }

    #[inline]
    fn relax(&self) {
        self.verbs.relax();
    }

    fn spins(&self) -> u32 {
        self.verbs.spins()
    }

    fn arm(&self) -> Ticket {
        self.verbs.arm()
    }

    fn sleep(&self, ticket: Ticket, until: u64) {
        self.verbs.sleep(ticket, until);
    }

    fn disarm(&self, ticket: Ticket) {
        self.verbs.disarm(ticket);
    }

    fn oversubscribed(&self) -> bool {
        self.verbs.oversubscribed()
    }

    fn shares_its_core(&self) -> bool {
        self.verbs.shares_its_core()
    }

    fn unfinished(&self) -> usize {
        self.verbs.unfinished()
    }
}
