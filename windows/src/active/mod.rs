//! Active target synchronisation: fence, and post, start, complete and wait.

pub(crate) mod fence;
pub(crate) mod notify;
pub(crate) mod post;
pub(crate) mod signals;
pub(crate) mod start;
