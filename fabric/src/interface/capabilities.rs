//! What a fabric states about itself.

use onesided_remote_memory::{Rank, entries};

use crate::Fabric;

entries! {
    /// The path of an operation.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum Path {
        /// Loads and stores of this thread.
        Cpu => "CPU",
        /// Requests to a network card.
        Card => "card",
        /// Copies by the kernel between processes.
        ProcessVm => "process_vm",
        /// A request to the progress thread of the memory's owner.
        Helper => "helper thread",
        /// Events of the simulator.
        Simulated => "simulator",
    }
    /// All paths.
    pub const ALL;
    fn name;
}

/// The agent that makes atomics on a region atomic: all of them must go through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AtomicAgent {
    /// The CPUs of the one host that all ranks share.
    Cpu,
    /// The network card at the target, whoever issues the operation, the target included.
    Card,
    /// The simulator.
    Simulated,
}

/// The properties of a fabric, for the layers above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// `shm`, `verbs`, `mixed` or `sim`.
    pub name: &'static str,
    /// The agent of atomics.
    pub agent: AtomicAgent,
    /// Whether an operation completes at post: when the call that posts it returns.
    pub completes_at_post: bool,
    /// Whether the memory of a dead rank stays accessible. Otherwise operations on it fail as
    /// `PeerDied`.
    pub memory_survives: bool,
    /// Whether a rank's bytes and words to one target take effect in posting order across regions,
    /// without waits in between. Otherwise it is so for [targets of other hosts](keeps_order) alone.
    pub ordered: bool,
    /// The maximum length of a put inside the work request (0: none).
    pub inline: u32,
    /// The maximum number of reads and atomics in flight on one connection; further ones queue.
    pub outstanding_reads: u32,
    /// The maximum length of one RDMA read or write.
    pub longest_transfer: u64,
}

impl Capabilities {
    /// Default capabilities with this name and agent.
    #[must_use]
    pub const fn new(name: &'static str, agent: AtomicAgent) -> Self {
        Self {
            name,
            agent,
            completes_at_post: false,
            memory_survives: false,
            ordered: false,
            inline: 0,
            outstanding_reads: u32::MAX,
            longest_transfer: u64::MAX,
        }
    }
}

/// Whether this rank's operations on a target take effect in posting order, across regions: a
/// get after a compare-swap in another region is answered after it, and a put after a word's
/// write takes effect after it. Otherwise order holds among operations on one region, and for
/// words (of any region) after bytes; a stronger order needs a wait or a flush.
pub fn keeps_order(fabric: &impl Fabric, target: Rank) -> bool {
    fabric.capabilities().ordered || fabric.host_of(target) != fabric.host_of(fabric.rank())
}
