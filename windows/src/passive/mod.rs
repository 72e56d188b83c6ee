//! Passive target synchronisation: locks, and the epochs that they open.

pub(crate) mod acquire;
pub(crate) mod biased;
pub(crate) mod calls;
pub(crate) mod cancelled;
pub(crate) mod claim;
pub(crate) mod epoch;
pub(crate) mod fencing;
pub(crate) mod lock;
pub(crate) mod lock_all;
pub(crate) mod many;
pub(crate) mod no_check;
pub(crate) mod previous_owner;
pub(crate) mod release;
pub(crate) mod try_lock;
pub(crate) mod unlock;
