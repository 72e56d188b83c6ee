//! The library as a user sees it: on shared memory, by threads and by processes.
//!
//! The processes are this binary, started again; see `jobs`.
#![allow(clippy::print_stderr)] // how a rank's process speaks to its test

mod active;
mod architecture;
mod collectives;
mod creation;
mod deadlines;
mod designs;
mod error_texts;
mod examples;
mod faults;
mod fields;
mod forks;
mod handlers;
mod handles;
mod hangs;
mod jobs;
mod large;
mod lease;
mod leaves;
mod limits;
mod litmus;
mod lock_all;
mod messages;
mod model;
mod on_demand;
mod operations;
mod own_lock;
mod panics;
mod poison;
mod requests;
mod reuse;
mod runtimes;
mod scopes;
mod served_lock;
mod shapes;
mod started;
mod stress;
mod support;
mod tables;
mod user_memory;

use onesided_instances as _;
