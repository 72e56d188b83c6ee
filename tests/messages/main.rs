//! Messages between threads and in the simulator, in one program, which is linked once.

mod buffers;
mod collectives;
mod deadlines;
mod dropped;
#[path = "support/exchange.rs"]
mod exchange;
mod goodput;
mod groups;
#[path = "../simulated/left/mod.rs"]
mod left;
mod many;
mod messages;
mod offered;
mod persistent;
#[path = "../simulated/planted/mod.rs"]
mod planted;
mod progress;
mod refused;
mod registration;
mod requests;
mod rput;
mod rules;
mod served_lock;
mod shaped;
mod steps;
mod support;
mod user_buffers;
