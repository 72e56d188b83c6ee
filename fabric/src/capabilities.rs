//! What a fabric states about itself.

/// Which way an operation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Path {
    /// Loads and stores of this thread.
    Cpu,
    /// Requests to a network card.
    Card,
    /// Copies by the kernel, from process to process.
    ProcessVm,
    /// A request to the helper thread of the memory's owner.
    Helper,
    /// Events of the simulator.
    Simulated,
}

impl Path {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Cpu, Self::Card, Self::ProcessVm, Self::Helper, Self::Simulated];
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Cpu => "CPU",
            Self::Card => "card",
            Self::ProcessVm => "process_vm",
            Self::Helper => "helper thread",
            Self::Simulated => "simulator",
        })
    }
}

/// Who makes atomics on a region atomic: all of them must go through that one agent.
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

/// What a fabric states about itself; the layers above ask instead of assuming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// `shm`, `verbs`, `mixed` or `sim`.
    pub name: &'static str,
    /// Who makes atomics atomic.
    pub agent: AtomicAgent,
    /// Whether an operation is done when the call that posts it returns.
    pub completes_at_post: bool,
    /// Whether the memory of a rank that died can still be reached. Without it, operations on it
    /// fail as `PeerDied`.
    pub memory_survives: bool,
    /// Whether bytes and words that a rank posts to one target take effect in the order of posting,
    /// whatever regions they are of, where an operation is not waited for before the next. Without
    /// it [`Fabric::keeps_order`] tells of a target.
    pub ordered: bool,
    /// Up to how many bytes a put travels inside the work request (0: never).
    pub inline: u32,
    /// How many reads and atomics may be under way on one connection; more wait their turn.
    pub outstanding_reads: u32,
    /// Up to how many bytes one RDMA read or write moves.
    pub longest_transfer: u64,
}

impl Capabilities {
    /// The capabilities of a fabric that is all default but its name and agent.
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
