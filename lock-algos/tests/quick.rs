//! The tests of `verify` that build and run in seconds, as a program of their own: what mutants of
//! this crate meet first (`scripts/mutants`). `cargo test` runs them in `verify`.

#[path = "verify/lock_all_word.rs"]
mod lock_all_word;
#[path = "verify/marks.rs"]
mod marks;
#[path = "verify/quick/mod.rs"]
mod quick;
#[path = "verify/refused.rs"]
mod refused;
#[path = "verify/stopped.rs"]
mod stopped;
