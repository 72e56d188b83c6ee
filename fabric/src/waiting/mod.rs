//! How threads and tasks wait, and what moves meanwhile.

pub(crate) mod drive;
#[cfg(any(feature = "verbs", onesided_loom))]
pub(crate) mod event_requests;
pub(crate) mod limit;
#[cfg(any(feature = "verbs", onesided_loom))]
pub(crate) mod listener;
#[cfg(not(onesided_loom))]
pub(crate) mod oversubscription;
#[cfg(not(onesided_loom))]
pub(crate) mod peer_status;
pub(crate) mod request_sets;
pub(crate) mod server_threads;
pub(crate) mod tasks;
pub(crate) mod waits;
