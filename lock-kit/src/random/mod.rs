//! Programs, schedules and deaths made up by proptest, against the sequential model.

mod memory;
mod scenario;
mod search;

pub use memory::{ModelMemory, Net, PauseEnd, Posted, Reply, Wait};
pub use scenario::{History, Plan, Scenario, Server, Setting, drive, run};
pub use search::{Found, Search, expect_caught, scenarios, search};
pub(crate) use search::{any_seed, search_among};
