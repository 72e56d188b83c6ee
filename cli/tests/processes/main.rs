//! `onesided` with real processes. Every wait has a deadline, so that a failure does not hang.
#![allow(clippy::print_stderr)] // the ranks that the tests start print their results

mod bench;
mod bootstrap;
mod collectives;
mod deaths;
mod endings;
mod hosts;
mod info;
mod limits;
mod managers;
mod output;
mod peers;
mod ranks;
mod rendezvous;
mod reports;
mod support;
