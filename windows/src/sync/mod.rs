//! Locks of values and of many objects, over windows.

pub(crate) mod combined;
pub(crate) mod deferred_lock;
pub(crate) mod lock_table;
pub(crate) mod mutex;
pub(crate) mod rw_lock;
pub(crate) mod sequence_lock;
pub(crate) mod value;
