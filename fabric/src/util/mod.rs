//! What needs no fabric.

#[cfg(any(feature = "verbs", onesided_loom))]
pub(crate) mod free_list;
pub(crate) mod links;
pub(crate) mod once_table;
pub(crate) mod spin_lock;
pub(crate) mod sync;
