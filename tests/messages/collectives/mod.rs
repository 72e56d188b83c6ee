//! Collectives, against a serial oracle, between threads and in the simulator.

mod direct;
mod failures;
mod oracle;
mod order;
mod outstanding;
mod published;
mod started;
mod steps;
