//! What measuring a lock needs, whatever the lock and whatever the fabric: distributions of waits, measures of fairness, a
//! fabric that counts.

pub(crate) mod counted;
pub(crate) mod histogram;
