//! The tests that run in seconds, in a program that builds faster than `verify`: for the quick part
//! of `scripts/test`, and what mutants of this crate meet first (`scripts/mutants`).

#[path = "verify/lock_all_word.rs"]
mod lock_all_word;
#[path = "verify/marks.rs"]
mod marks;
#[path = "verify/quick/mod.rs"]
mod quick;
#[path = "verify/refused.rs"]
mod refused;
#[path = "verify/right.rs"]
mod right;
#[path = "verify/stopped.rs"]
mod stopped;
#[path = "verify/users.rs"]
mod users;
