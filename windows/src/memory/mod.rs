//! Memory of a window: allocated, attached, shared with the host, or owned by the program (user
//! memory).

pub(crate) mod attached;
pub(crate) mod buffer;
pub(crate) mod buffer_error;
pub(crate) mod direct;
pub(crate) mod dynamic;
pub(crate) mod local;
pub(crate) mod regions;
pub(crate) mod remote_ptr;
pub(crate) mod sync;
pub(crate) mod window_memory;
