//! Operations under a lock or another epoch: put, get, atomics, and the handles that wait for them.

pub(crate) mod access;
pub(crate) mod accumulate;
pub(crate) mod combine;
pub(crate) mod fetch;
pub(crate) mod field_access;
pub(crate) mod handles;
pub(crate) mod put_signal;
pub(crate) mod request;
pub(crate) mod scope;
pub(crate) mod shaped;
pub(crate) mod wait_any;
