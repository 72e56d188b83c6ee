//! The fetch-add queue lock.
//!
//! ```text
//! acquire    before = fetch-add(home.given[mode], 1)                 as the ticket lock
//!            write(home.ring[mode][before.given[mode]], me), read home
//!            until it is my turn: wait until my GRANT is written, read home
//! release    found = fetch-add(home.returned[mode], 1)
//!            if that lets waiters in: read their entries in the ring, write the GRANT of each
//! ```

mod ring;

pub(crate) use self::ring::{GRANT, InRing, RingSlot, Waited};
use crate::Ticket;

/// A queue reader-writer lock by fetch-add, after DecLock (*DecLock: A Case of Decoupled Locking
/// for Disaggregated Memory*, arXiv 2505.17641): the tickets of [`Ticket`] define the order, and a
/// waiter is notified instead of polling.
///
/// An arriving owner takes a ticket by one fetch-add; uncontended that is all. A waiter writes its
/// identity into the entry of its ticket in a ring beside the counters, by one write, reads the
/// counters once more in the same chain, and sleeps on a word of its own node. A release is one
/// fetch-add. If that lets waiters in, the releasing owner reads their entries and notifies each of
/// them, one exclusive owner or all the readers, by one write. No rank polls over the network.
///
/// Words at the home: those of [`Ticket`], and two rings of `RING` entries, for exclusive owners
/// and for readers: 34, with the default of 16. A node has two words.
///
/// # The ring
///
/// The counters define whose turn it is; the ring only tells how to notify that owner. So no rank
/// waits for an entry. An owner that writes its entry too late, between the fetch-add of a release
/// and the read of the ring, sees in the counters that it is served. An owner without an entry,
/// because more than `RING` owners of its mode are ahead or because it has no node, reads the
/// counters with pauses, as in [`Ticket`], until it has an entry or is served: the order is the
/// same. A waiter whose notification was lost with its sender reads the counters after 10 ms, then
/// after twice that, and at least three times a second.
///
/// Exclusive tickets return in order, so the previous user of an exclusive entry has left when the
/// entry is written. Readers return in any order: a reader's entry is read first and taken by
/// compare-swap, and an owner that takes it from a reader whose turn has come, but that may not
/// know yet, notifies that reader.
///
/// A notification names the lock, the number of the ticket and the use of the slot. One that does
/// not match, because it is late, is taken as a hint to read the counters.
///
/// # Fairness
///
/// First come, first served, in both modes, as in [`Ticket`]: no owner enters before one whose
/// fetch-add took effect earlier, except that readers share the lock. A death and [bounded
/// admission](Ticket#bounded-admission) end that order.
///
/// # Overflow, cancellation, death
///
/// As in [`Ticket`]. The counters are the same, the numbers in the ring wrap with them, and entries
/// of dead owners are overwritten in time.
///
/// The type is that of [`Ticket`], with rings. `RING` is a power of two and at most the number of
/// tickets; small values are for tests that fill the rings.
pub type FetchAddQueue<const BITS: u32 = 15, const RING: usize = 16> = Ticket<BITS, RingSlot<RING>>;
