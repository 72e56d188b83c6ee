//! The scan of the participants: who is announced for a lock, who has ended, and who is cut.

use onesided_remote_memory::{Fault, FaultKind, Liveness, Rank, RemoteMemory};

use super::Boxed;
use super::announcement::{ANNOUNCED, WAITS, announcement_of};
use crate::{InMemory, LockContext, Owner, Word, WordOf};

/// The ranks that may participate in a lock, as this rank knows and reaches them.
pub(crate) struct Participants<'m, P: InMemory> {
    pub(crate) memory: &'m P::Memory,
    pub(crate) context: P,
}

impl<'m, P: LockContext<'m>> Participants<'m, P> {
    pub(crate) fn all(&self) -> impl Iterator<Item = Rank> + Send + use<'_, 'm, P> {
        (0..self.memory.size()).map(Rank).filter(|rank| self.context.may_participate(*rank))
    }

    /// Whether a rank has ended as a user of the lock's home: it is dead, has left, or its connection
    /// to the home is lost. All scans ask this, or [all of them](Self::ended_at_home); before that they
    /// ask whether [any](RemoteMemory::ends) has.
    pub(crate) fn has_ended(&self, rank: Rank) -> bool {
        self.memory.liveness(rank) != Liveness::Alive || self.has_failed(rank)
    }

    /// Whether its connection to the home is lost.
    fn has_failed(&self, rank: Rank) -> bool {
        self.memory.has_failed(self.context.home_rank(), rank)
    }

    /// Whether the lock's home has cut a failed rank: none of its operations there takes effect any
    /// more.
    pub(crate) async fn is_cut(&self, rank: Rank) -> Result<bool, Fault> {
        has_cut(self.memory, self.context.home_rank(), rank).await
    }

    /// The same of all ranks that have ended, of those that it `concerns`.
    pub(crate) async fn are_cut(&self, concerns: impl Fn(Rank) -> bool + Send) -> Result<bool, Fault> {
        for rank in self.ended_at_home().filter(|rank| concerns(*rank)) {
            if !self.is_cut(rank).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether every live rank that may participate has cut every one that died, and the ranks of lost
    /// connections have cut each other. Ranks that have failed at the home do not matter.
    pub(crate) async fn all_are_cut(&self) -> Result<bool, Fault> {
        let memory = self.memory;
        for rank in self.all().filter(|rank| !self.has_ended(*rank)) {
            let dead = dead_ranks(memory).filter(|dead| self.context.may_participate(*dead));
            // A rank that has lost this one cannot be asked by it.
            for failed in dead.chain(lost_by(memory, rank).filter(|lost| *lost != memory.rank())) {
                if !has_cut(memory, rank, failed).await? {
                    return Ok(false);
                }
            }
        }
        self.are_cut(|_| true).await
    }

    /// The ranks that have [ended](Self::has_ended): those that left, those that lost the connection to
    /// the lock's home, and those that died, in the order in which this rank learned of it.
    fn ended_at_home(&self) -> impl Iterator<Item = Rank> + Send + use<'m, P> {
        let memory = self.memory;
        let left = (0..memory.size()).map(Rank).filter(|rank| memory.liveness(*rank) == Liveness::Left);
        left.chain(lost_by(memory, self.context.home_rank())).chain(dead_ranks(memory))
    }

    /// Whether no live rank is announced for the lock, this owner aside, and no failed one can change
    /// its words any more. The answer holds for a lock under recovery whose word has not changed since
    /// before the scan: an owner that is announced later has changed it.
    ///
    /// # Errors
    /// The connection to a participant is lost: this rank cannot tell.
    pub(crate) fn none_announced(&self) -> Boxed<'_, Result<bool, Fault>> {
        Box::pin(async move {
            let announcement = announcement_of(self.context.lock());
            Ok(self.fewer(1, |found| found & !WAITS == announcement).await? && self.all_are_cut().await?)
        })
    }

    /// Whether fewer live owners are announced than the lock's word has `counted`, this owner aside.
    ///
    /// # Errors
    /// The connection to a participant is lost, and the others are too few: this rank cannot tell.
    pub(super) async fn fewer_announced(&self, counted: u64) -> Result<bool, Fault> {
        let announcement = announcement_of(self.context.lock());
        self.fewer(counted, |found| found == announcement).await
    }

    /// The same of nodes with such a value.
    async fn fewer(&self, counted: u64, is_announced: impl Fn(u64) -> bool + Send + Sync) -> Result<bool, Fault> {
        let (mut all, mut unasked) = (0, None);
        for rank in self.all() {
            match self.announced_at(rank, &is_announced).await {
                Ok(there) => all += there,
                Err(End::HasNone) => {}
                Err(End::Lost(_)) if self.has_failed(rank) => {}
                Err(End::Lost(fault)) => unasked = Some(fault),
                Err(End::MayBe) => return Ok(false),
            }
            if all >= counted {
                return Ok(false);
            }
        }
        unasked.map_or(Ok(true), Err)
    }

    /// How many nodes of a rank have such a value, this owner's aside.
    async fn announced_at(&self, rank: Rank, is_announced: impl Fn(u64) -> bool + Send) -> Result<u64, End> {
        let Owner { rank: me, slot: mine, .. } = self.context.owner();
        let mut all = 0;
        for slot in (0..self.in_use(rank).await?).filter(|slot| (rank, *slot) != (me, mine)) {
            all += u64::from(is_announced(self.look(rank, self.context.node_of(rank, slot, ANNOUNCED)).await?));
        }
        Ok(all)
    }

    /// Of those that have ended and may have been the owner the likeliest: one that was announced, or
    /// else the last one whose nodes are gone. A rank that died is likelier than one that left.
    pub(crate) async fn ended(&self) -> Option<Ended> {
        let mut likeliest: Option<Ended> = None;
        for rank in self.ended_at_home().filter(|rank| self.context.may_participate(*rank)) {
            let trace = match self.traces_of(rank, 1).await {
                Some(0) => Trace::None,
                Some(_) => Trace::Announced,
                None => Trace::Unknown,
            };
            likeliest = match likeliest {
                Some(other) if other.trace > trace => Some(other),
                Some(other) if other.trace == trace => Some(Ended { rank, trace, others: other.others + 1 }),
                _ => Some(Ended { rank, trace, others: 0 }),
            };
            if trace == Trace::Announced {
                break;
            }
        }
        likeliest
    }

    /// How many nodes of a rank that has ended are announced, at most `enough`; `None` if that is
    /// [unknown](Trace::Unknown).
    async fn traces_of(&self, rank: Rank, enough: u64) -> Option<u64> {
        let Self { memory, context } = *self;
        let mut all = 0;
        for slot in 0..context.owners().slots {
            let found = memory.read(context.node_of(rank, slot, ANNOUNCED).ok()?).await.ok()?;
            all += u64::from(found == announcement_of(context.lock()));
            if all >= enough {
                return Some(all);
            }
        }
        let has_lost_home = memory.lost_connection(context.home_rank(), rank) == Some(rank);
        (!has_lost_home).then_some(all)
    }

    /// How many owners there may have been on ranks that have ended. A rank that left, and whose nodes
    /// are gone, had none: it retracted them, as all but a leaked guard do. An owner that was recovered
    /// from long ago counts still.
    pub(super) async fn ended_owners(&self) -> u64 {
        let mut all = 0;
        for rank in self.ended_at_home().filter(|rank| self.context.may_participate(*rank)) {
            let unknown = u64::from(self.memory.liveness(rank) != Liveness::Left);
            all += self.traces_of(rank, u64::MAX).await.unwrap_or(unknown);
        }
        all
    }

    /// Whether a rank is not alive, or its nodes are gone.
    pub(super) async fn has_gone(&self, rank: Rank) -> bool {
        matches!(self.look(rank, self.context.node_of(rank, 0, ANNOUNCED)).await, Err(End::HasNone))
    }

    /// A bound on the slots of a rank in use.
    async fn in_use(&self, rank: Rank) -> Result<u16, End> {
        if self.memory.liveness(rank) != Liveness::Alive {
            return Err(End::HasNone);
        }
        let all = self.context.owners().slots;
        match self.context.word(WordOf::SlotsInUse(rank)) {
            Err(fault) if fault.kind() == FaultKind::Unsupported => Ok(all),
            in_use => Ok(all.min(self.look(rank, in_use).await? as u16)),
        }
    }

    async fn look(&self, rank: Rank, word: Result<Word<'m, P>, Fault>) -> Result<u64, End> {
        let is_alive = || self.memory.liveness(rank) == Liveness::Alive;
        if !is_alive() {
            return Err(End::HasNone);
        }
        let found = match word {
            Ok(word) => self.memory.read(word).await,
            Err(fault) => Err(fault),
        };
        found.map_err(|fault| match fault.kind() {
            FaultKind::NoSuchRegion => End::HasNone,
            _ if is_lost(fault) => End::Lost(Fault::of(FaultKind::ConnectionLost, rank)),
            _ if !is_alive() => End::HasNone,
            _ => End::MayBe, // its end is not known here yet
        })
    }
}

/// Whether this fault says that the connection to the target is lost.
pub(crate) const fn is_lost(fault: Fault) -> bool {
    matches!(fault.kind(), FaultKind::Unknown | FaultKind::ConnectionLost)
}

/// Whether `home` has cut a failed rank. Fails only if this rank has lost `home`.
async fn has_cut<M: RemoteMemory>(memory: &M, home: Rank, failed: Rank) -> Result<bool, Fault> {
    match memory.has_cut(home, failed).await {
        Err(fault) if !is_lost(fault) => Ok(false),
        known => known,
    }
}

fn dead_ranks<M: RemoteMemory>(memory: &M) -> impl Iterator<Item = Rank> + '_ {
    (0..).map_while(|index| memory.failure(index))
}

/// The ranks whose connection to this one is lost.
fn lost_by<M: RemoteMemory>(memory: &M, rank: Rank) -> impl Iterator<Item = Rank> + '_ {
    let next = move |lost: &Rank| memory.lost_connection(rank, Rank(lost.0 + 1));
    std::iter::successors(memory.lost_connection(rank, Rank(0)), next)
}

/// What the nodes of a rank that has ended tell of its use of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trace {
    /// It was not announced.
    None,
    /// They are gone, or the rank lives, and has lost the home: it may have retracted itself since.
    Unknown,
    /// It was announced.
    Announced,
}

/// A rank that has ended and that may have been the lock's owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) rank: Rank,
    pub(crate) trace: Trace,
    /// How many others are as likely.
    others: u32,
}

/// The fault of a lock whose exclusive owner was this rank, which has ended.
pub(crate) fn owner_ended<M: RemoteMemory>(memory: &M, rank: Rank) -> Fault {
    let kind = if memory.liveness(rank) == Liveness::Left { FaultKind::OwnerLeft } else { FaultKind::OwnerDied };
    Fault::of(kind, rank)
}

/// The same of a rank that may have been the owner.
pub(crate) fn participant_ended<M: RemoteMemory>(memory: &M, rank: Rank) -> Fault {
    let left = memory.liveness(rank) == Liveness::Left;
    Fault::of(if left { FaultKind::ParticipantLeft } else { FaultKind::ParticipantDied }, rank)
}

impl Ended {
    /// The fault of the lock.
    pub(crate) fn fault<M: RemoteMemory>(self, memory: &M) -> Fault {
        participant_ended(memory, self.rank).with_detail(self.others)
    }
}

/// Why the scan of a rank's nodes ends.
enum End {
    /// The rank is not alive, or has freed the nodes.
    HasNone,
    /// It may be announced.
    MayBe,
    /// The connection to it is lost.
    Lost(Fault),
}
