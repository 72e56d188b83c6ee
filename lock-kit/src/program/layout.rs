//! Where the words lie that programs use.
//!
//! Each rank has one region: the data, the lock, the counter of fencing tokens, the per-rank
//! word and the host words of the lock, a node for each slot, for a served lock
//! a request slot for each slot of every rank, and a word that stays 0. The lock, the tokens, the
//! data and the request slots are used at [`HOME`].

use std::fmt;

use onesided_lock_algos::{Global, InMemory, LockAlgorithm, LockContext, Owner, Owners, TestAndSet, WordOf};
use onesided_remote_memory::{At, Fault, FaultKind, Liveness, Rank, RegionId, RemoteMemory, copied};

use super::{Crashable, Section};

/// The rank of the lock and the data.
pub const HOME: Rank = Rank(0);
/// The word of the data.
pub const DATA: usize = 0;
/// The first word of the lock.
pub const LOCK: usize = 1;

/// The slots of each rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// Their number.
    pub each: u16,
    /// Whether an owner reads idle words instead of others' nodes: its participant scans find none.
    pub blind: bool,
    /// How many consecutive ranks share a host, from rank 0 on; not 0.
    pub per_host: u32,
}

impl Slots {
    /// This many slots, one for each owner.
    #[must_use]
    pub const fn new(each: u16) -> Self {
        Self { each, blind: false, per_host: 2 }
    }

    /// The slots that these programs need: one for consecutive sections, and one for each that is
    /// cancelled.
    #[must_use]
    pub fn of<P: AsRef<[Section]>>(programs: &[P]) -> Self {
        let cancelled = |rounds: &P| rounds.as_ref().iter().filter(|round| round.is_cancelled()).count();
        Self::new(1 + programs.iter().map(cancelled).max().unwrap_or(0) as u16)
    }
}

/// A word, as the author of a lock names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The data of a rank.
    Data(Rank),
    /// This word of the lock at its home.
    Lock(usize),
    /// The counter of the lock's fencing tokens.
    Token,
    /// A word of the node of a rank's slot.
    Node {
        /// The rank.
        rank: Rank,
        /// Its slot.
        slot: u16,
        /// The index of the word in the node.
        word: usize,
    },
    /// Another word of a rank's region, by its index there.
    Other(Rank, usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Data(HOME) => write!(f, "the data"),
            Self::Data(rank) => write!(f, "the data at rank {}", rank.0),
            Self::Lock(index) => write!(f, "lock.word({index})"),
            Self::Token => write!(f, "the fencing token"),
            Self::Node { rank, slot: 0, word } => write!(f, "node({word}) of rank {}", rank.0),
            Self::Node { rank, slot, word } => write!(f, "node({word}) of rank {} slot {slot}", rank.0),
            Self::Other(rank, index) => write!(f, "word {index} at rank {}", rank.0),
        }
    }
}

/// The names of the words of all ranks' regions, which a memory numbers one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Names {
    /// `None` if a memory was made without a lock.
    lock: Option<(&'static AlgorithmWords, Slots)>,
    region_words: usize,
}

impl Names {
    pub(crate) const fn of<A: LockAlgorithm>(slots: Slots) -> Self {
        Self { lock: Some((const { &AlgorithmWords::of::<A>() }, slots)), region_words: region_words::<A>(slots) }
    }

    /// Without a lock.
    pub(crate) const fn of_words(region_words: usize) -> Self {
        Self { lock: None, region_words }
    }

    pub(crate) fn place(&self, number: usize) -> Place {
        let (rank, index) = (Rank((number / self.region_words) as u32), number % self.region_words);
        let Some((words, slots)) = self.lock else { return Place::Other(rank, index) };
        let node = index.checked_sub(words.node_at(0)).filter(|_| words.node > 0);
        let (slot, word) = node.map_or((slots.each, 0), |at| ((at / words.node) as u16, at % words.node));
        match index {
            DATA => Place::Data(rank),
            _ if rank == HOME && index < words.token_at() => Place::Lock(index - LOCK),
            _ if rank == HOME && index == words.token_at() => Place::Token,
            _ if slot < slots.each => Place::Node { rank, slot, word },
            _ => Place::Other(rank, index),
        }
    }

    /// Whether a write there is noticed without a notification: the lock's server polls its words.
    pub(crate) fn is_polled(&self, number: usize) -> bool {
        self.lock.is_some_and(|(words, _)| words.server_polls) && matches!(self.place(number), Place::Lock(_))
    }

    /// Whether it is a [host word](LockAlgorithm::HOST_WORDS): its host's ranks have it mapped.
    pub(crate) fn is_mapped(&self, number: usize) -> bool {
        let host = |words: &AlgorithmWords| words.host_words_at()..words.node_at(0);
        self.lock.is_some_and(|(words, _)| host(words).contains(&(number % self.region_words)))
    }

    pub(crate) fn number(&self, place: Place) -> usize {
        let (rank, index) = match (place, self.lock) {
            (Place::Data(rank), _) => (rank, DATA),
            (Place::Other(rank, index), _) => (rank, index),
            (Place::Lock(index), _) => (HOME, LOCK + index),
            (Place::Token, Some((words, _))) => (HOME, words.token_at()),
            (Place::Node { rank, slot, word }, Some((words, _))) => (rank, words.node_at(slot) + word),
            (Place::Token | Place::Node { .. }, None) => unreachable!("a memory without a lock names no such word"),
        };
        rank.index() * self.region_words + index
    }
}

/// The words that an algorithm needs, and where they lie in a region.
#[derive(Debug)]
struct AlgorithmWords {
    home: usize,
    node: usize,
    host: usize,
    per_rank: bool,
    served: bool,
    server_polls: bool,
}

impl AlgorithmWords {
    const fn of<A: LockAlgorithm>() -> Self {
        Self {
            home: A::HOME_WORDS,
            node: A::NODE_WORDS,
            host: A::HOST_WORDS,
            per_rank: A::PER_RANK_WORD,
            served: A::SERVED,
            server_polls: A::SERVER_POLLS,
        }
    }

    const fn region_words(&self, slots: Slots) -> usize {
        1 + self.request_slot_at(slots, Rank(if self.served { RANKS } else { 0 }), 0)
    }

    /// Where a request slot of a rank lies.
    const fn request_slot_at(&self, slots: Slots, rank: Rank, line: u16) -> usize {
        self.node_at(slots.each) + rank.index() * slots.each as usize + line as usize
    }

    const fn token_at(&self) -> usize {
        LOCK + self.home
    }

    const fn per_rank_word_at(&self) -> usize {
        self.token_at() + 1
    }

    const fn host_words_at(&self) -> usize {
        self.per_rank_word_at() + 1
    }

    /// Where the node of a slot begins.
    const fn node_at(&self, slot: u16) -> usize {
        self.host_words_at() + self.host + slot as usize * self.node
    }
}

/// The most ranks of a world with a served lock.
const RANKS: u32 = 6;

/// Words of each rank's region.
#[must_use]
pub const fn region_words<A: LockAlgorithm>(slots: Slots) -> usize {
    AlgorithmWords::of::<A>().region_words(slots)
}

/// The lock's words and the data, from the words of [`HOME`]'s region.
#[must_use]
pub fn lock_and_data<A: LockAlgorithm>(home: &[u64]) -> (&[u64], u64) {
    (&home[LOCK..LOCK + A::HOME_WORDS], home[DATA])
}

/// The [per-rank word](LockAlgorithm::PER_RANK_WORD) of the lock in a region.
#[must_use]
pub fn per_rank_word<A: LockAlgorithm>(region: &[u64]) -> u64 {
    region[AlgorithmWords::of::<A>().per_rank_word_at()]
}

/// Whether no owner is announced in a region's nodes.
#[must_use]
pub fn idle<A: LockAlgorithm>(slots: Slots, region: &[u64]) -> bool {
    let words = AlgorithmWords::of::<A>();
    let nodes = &region[words.node_at(0)..words.request_slot_at(slots, Rank(0), 0)];
    nodes.chunks(words.node.max(1)).all(A::is_idle)
}

/// The [`LockContext`] of one owner. Its type does not name the algorithm, so all algorithms share
/// the code of their recoveries: a test of many compiles in half the time.
#[derive(Debug)]
pub struct Layout<'m, M> {
    memory: &'m M,
    owner: Owner,
    slots: Slots,
    words: &'static AlgorithmWords,
}

copied!([M] Layout<'_, M>);

impl<'m, M: RemoteMemory> Layout<'m, M> {
    /// The context of the server of a lock by algorithm `A`.
    pub const fn of_server<A: LockAlgorithm>(memory: &'m M, slots: Slots) -> Self {
        Self::new::<A>(memory, Owner { rank: HOME, slot: Owner::NO_SLOT, generation: 0 }, slots)
    }

    /// The context of this owner of a lock by algorithm `A`.
    pub const fn new<A: LockAlgorithm>(memory: &'m M, owner: Owner, slots: Slots) -> Self {
        Self { memory, owner, slots, words: const { &AlgorithmWords::of::<A>() } }
    }

    /// The counter of the lock's fencing tokens.
    ///
    /// # Errors
    /// As [`RemoteMemory::word`].
    pub fn token(&self) -> Result<M::Word<'m>, Fault> {
        word(self.memory, HOME, self.words.token_at())
    }

    /// The word that a participant scan reads.
    fn asked(&self, rank: Rank, index: usize) -> Result<M::Word<'m>, Fault> {
        let blind = self.slots.blind && rank != self.owner.rank;
        word(self.memory, rank, if blind { self.words.region_words(self.slots) - 1 } else { index })
    }
}

impl<M: Crashable> InMemory for Layout<'_, M> {
    type Memory = M;
}

impl<'m, M: Crashable> LockContext<'m> for Layout<'m, M> {
    fn home(&self, index: usize) -> Result<M::Word<'m>, Fault> {
        if index >= self.words.home {
            return Err(Fault::new(FaultKind::OutOfRange));
        }
        word(self.memory, HOME, LOCK + index)
    }

    fn node_of(&self, rank: Rank, slot: u16, index: usize) -> Result<M::Word<'m>, Fault> {
        if index >= self.words.node || slot >= self.slots.each {
            return Err(Fault::new(FaultKind::OutOfRange));
        }
        self.asked(rank, self.words.node_at(slot) + index)
    }

    fn word(&self, of: WordOf) -> Result<M::Word<'m>, Fault> {
        let here = self.host_of(self.owner.rank);
        let (rank, index) = match of {
            WordOf::Rank(rank) if self.words.per_rank => (rank, self.words.per_rank_word_at()),
            WordOf::Host(rank, index) if index < self.words.host && self.host_of(rank) == here => {
                (rank, self.words.host_words_at() + index)
            }
            // The last words of a lock with a lock-all operation.
            WordOf::LockAll(index) => (HOME, LOCK + self.words.home - Global::<TestAndSet>::LOCK_ALL_WORDS + index),
            WordOf::Request(rank, line)
                if self.words.served && rank.0 < RANKS.min(self.memory.size()) && line < self.slots.each =>
            {
                (HOME, self.words.request_slot_at(self.slots, rank, line))
            }
            _ => return Err(Fault::new(FaultKind::Unsupported)),
        };
        word(self.memory, rank, index)
    }

    fn cohort_home(&self) -> Option<Rank> {
        let near = |rank: &Rank| self.host_of(*rank) == self.host_of(self.owner.rank);
        let lives = |rank: &Rank| self.memory.liveness(*rank) == Liveness::Alive;
        if self.words.host == 0 { None } else { (0..self.memory.size()).map(Rank).filter(near).find(lives) }
    }

    fn host_of(&self, rank: Rank) -> u32 {
        rank.0 / self.slots.per_host
    }

    fn owners(&self) -> Owners {
        let slots = self.slots.each;
        Owners::all_counted(slots, u64::from(self.memory.size()) * u64::from(slots))
    }

    /// There is one target.
    fn is_lock_all(&self) -> bool {
        true
    }

    fn home_rank(&self) -> Rank {
        HOME
    }

    fn lock(&self) -> u64 {
        7
    }

    fn arrives(&self) {
        self.memory.marks();
    }

    fn owner(&self) -> Owner {
        self.owner
    }
}

pub(crate) fn word<M: RemoteMemory>(memory: &M, rank: Rank, index: usize) -> Result<M::Word<'_>, Fault> {
    memory.word(At { rank, region: RegionId(0), offset: 8 * index as u64 })
}
