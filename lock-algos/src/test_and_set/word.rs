//! The word of a test-and-set lock.

use onesided_remote_memory::{Fault, FaultKind, RemoteMemory};

use crate::owner::EXCLUSIVE;
use crate::recovery::{RecoverableWord, owner_ended};
use crate::{LockContext, LockUse, Mode, Owner};

pub(crate) const FREE: u64 = 0;
/// Of a word that counts readers.
const RECOVERING: u64 = 1 << 62;
/// The number of readers.
pub(super) const READERS: u64 = (1 << 36) - 1;
/// The nonce of a word under recovery.
const NONCE: u64 = RECOVERING - 1 - READERS;
/// The slot in the word of an owner that left the lock poisoned. No owner has it.
const PANICKED: u16 = Owner::NO_SLOT - 1;

// A reader is an owner, of 24 bits of rank and 12 of slot, so the count cannot reach the bits
// above.
const _: () = assert!(Owner::BITS < 63 && READERS.count_ones() == 24 + 12);

/// The word after an acquire by an owner whose exclusive word is `owner`.
#[inline]
pub(super) const fn taken(word: u64, mode: Mode, owner: u64) -> u64 {
    match mode {
        Mode::Exclusive => owner,
        Mode::Shared => word + 1,
    }
}

/// The holder of a lock.
pub(super) enum Holder {
    Nobody,
    Owner,
    Readers,
    /// Suspected readers; arrivals are rejected.
    Recovering,
}

pub(super) const fn holder(word: u64) -> Holder {
    match word {
        FREE => Holder::Nobody,
        word if word & EXCLUSIVE != 0 => Holder::Owner,
        word if word & RECOVERING != 0 => Holder::Recovering,
        _ => Holder::Readers,
    }
}

/// A word without an exclusive owner.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Readers(pub(super) u64);

impl RecoverableWord for Readers {
    fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    fn to_bits(self) -> u64 {
        self.0
    }

    fn is_recovering(self) -> bool {
        matches!(holder(self.0), Holder::Recovering)
    }

    fn recovering(self, nonce: u64) -> Self {
        Self(self.0 | RECOVERING | nonce & NONCE)
    }

    fn may_be_poisoned(self) -> bool {
        false
    }
}

/// The word of a lock that an exclusive owner, whose own word this is, leaves poisoned.
pub(crate) fn poisoned_word(mine: u64, why: Fault) -> u64 {
    let Owner { rank, generation, .. } = Owner::from_bits(mine);
    let rank = why.rank().unwrap_or(rank);
    let left = match why.kind() {
        FaultKind::OwnerPanicked => Owner { rank, slot: PANICKED, generation },
        _ => Owner { rank, slot: Owner::NO_SLOT, generation: 0 },
    };
    EXCLUSIVE | left.to_bits()
}

/// Whether the owner that a word names may have [ended](ended_owner).
pub(super) fn may_have_ended<'m>(lock: &LockUse<'m, impl LockContext<'m>>, found: u64) -> bool {
    let Owner { rank, slot, .. } = Owner::from_bits(found);
    slot == PANICKED || lock.participants().has_ended(rank)
}

/// The fault of the owner that a word names, if it panicked, or if it died and its operations take
/// effect no more.
pub(super) async fn ended_owner<'m>(
    lock: &LockUse<'m, impl LockContext<'m>>,
    found: u64,
) -> Result<Option<Fault>, Fault> {
    let Owner { rank, slot, .. } = Owner::from_bits(found);
    if slot == PANICKED {
        return Ok(Some(Fault::of(FaultKind::OwnerPanicked, rank)));
    }
    let ended = may_have_ended(lock, found) && lock.participants().is_cut(rank).await?;
    Ok(ended.then(|| owner_ended(lock.memory, rank)))
}

/// Swaps an owner's own word, which no other rank removes, for another one.
///
/// # Errors
/// `NotHeld` if the word was not there any more.
pub(crate) async fn hand_back<'m>(lock: &LockUse<'m, impl LockContext<'m>>, mine: u64, new: u64) -> Result<(), Fault> {
    match lock.memory.compare_swap(lock.home, mine, new).await? {
        found if found == mine => Ok(()),
        _ => Err(Fault::new(FaultKind::NotHeld)),
    }
}
