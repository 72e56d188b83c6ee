//! Fencing: the end of a late rank's access.

use onesided_remote_memory::{Fault, Rank};

/// How a rank is fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// Its process is killed (SIGKILL by a pidfd). It is dead when its
    /// [`liveness`](crate::remote_memory::RemoteMemory::liveness) says so.
    Kill,
    /// Its access to all of this rank's memory is revoked for good. No operation that it has posted,
    /// or will post, takes effect here any more, as all ranks can
    /// [ask](crate::remote_memory::RemoteMemory::has_cut).
    ///
    /// It is mutual: what either of the two posts to the other, has in flight, or waits for, ends
    /// as [`Revoked`](crate::remote_memory::FaultKind::Revoked). Both continue with all other ranks,
    /// and neither counts as dead.
    ///
    /// | fabric | how |
    /// |---|---|
    /// | verbs | closes the queue pair to the peer (Aguilera et al., *Mu*, OSDI 2020), after a notice by a write |
    /// | sim | the card refuses the peer's operations |
    /// | shm, and mixed within a host | unsupported: the peer has the memory mapped |
    Revoke,
}

/// What keeps a living but late peer from finishing what it has begun.
pub trait Fencing: Sync {
    /// How a rank can be fenced, if it can be; never this rank itself.
    fn fence_of(&self, rank: Rank) -> Option<Fence>;

    /// Fences a rank. `false`: still in progress, and to be called again later.
    ///
    /// # Errors
    /// `Unsupported` if it [cannot be fenced](Self::fence_of); `Refused` if this process lacks the
    /// permission to kill it, or the card fails the request; `TimedOut` if the card does not end what is
    /// in flight.
    fn fence(&self, rank: Rank) -> Result<bool, Fault>;
}
