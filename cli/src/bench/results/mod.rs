//! What a measurement yields: [`summary`] of the runs' values of a [`quantity`], as a worker
//! reports it ([`report`]), and the [`description`] of a benchmark.

pub(crate) mod description;
pub(crate) mod quantity;
pub(crate) mod report;
pub(crate) mod summary;
