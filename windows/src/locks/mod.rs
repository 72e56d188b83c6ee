//! The lock algorithms as windows use them: the design, its words in the hidden region, leases and the lock server.

pub(crate) mod context;
pub(crate) mod design;
pub(crate) mod layout;
pub(crate) mod lease;
pub(crate) mod revoke;
pub(crate) mod server;
pub(crate) mod slots;
pub(crate) mod state;
