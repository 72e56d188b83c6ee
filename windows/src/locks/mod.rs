//! The lock algorithms as windows use them: the design, its words in the hidden region, leases and
//! the lock server.

pub(crate) mod commit;
pub(crate) mod context;
pub(crate) mod design;
pub(crate) mod layout;
pub(crate) mod lease;
pub(crate) mod lease_policy;
pub(crate) mod notes;
pub(crate) mod owner;
pub(crate) mod parse;
pub(crate) mod revoke;
pub(crate) mod server;
pub(crate) mod slots;
pub(crate) mod state;
pub(crate) mod takeover;
pub(crate) mod window_lock;

/// Size of the lock words in the hidden region beside each rank's window memory: one cache line.
pub(crate) const LOCK_BYTES: u64 = 64;

/// Where the node of slot 0 lies there: in every window, so that its bounds are checked at once, and not in
/// the line beside that of the lock, which a processor may fetch with it.
pub(crate) const FIRST_NODE: u64 = 2 * LOCK_BYTES;

/// The end of what lies in every window.
pub(crate) const FIXED_BYTES: u64 = FIRST_NODE + slots::NODE_BYTES;
