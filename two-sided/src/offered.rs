//! Long messages between processes of one host: the receiver copies out of the sender's slice, and
//! the sender helps while it waits ([`Offer`]). So a message is copied once, by two cores.

use std::sync::Arc;

use onesided_fabric::remote_memory::{Fault, FaultKind, Liveness, Rank};
use onesided_fabric::{Fabric, Offer, PeerProcesses, Segment, SegmentKey, Taken};

use crate::progress::{Progress, Registered};

/// The shortest message that is offered. To copy a shorter one twice is faster than a system
/// call.
pub(crate) const SHORTEST: usize = 4 << 10;

/// The slice of a send, until its receiver has it.
pub(crate) struct OfferedSlice<'b, F: Fabric> {
    memory: Registered<F>,
    bytes: &'b [u8],
    to: Rank,
}

fn offer<'s, F: Fabric>(fabric: &F, memory: &'s F::Segment) -> Result<Offer<'s>, Fault> {
    fabric.mapped(memory).and_then(Offer::of).ok_or(Fault::of(FaultKind::Protocol, memory.rank()))
}

fn processes<F: Fabric>(fabric: &F) -> Result<&dyn PeerProcesses, Fault> {
    fabric.processes().ok_or(Fault::of(FaultKind::Unsupported, fabric.rank()))
}

impl<'b, F: Fabric> OfferedSlice<'b, F> {
    pub(crate) fn publish(progress: &Progress<F>, bytes: &'b [u8], to: Rank) -> Result<Self, Fault> {
        let memory = progress.memory(Offer::BYTES)?;
        offer(&progress.fabric, memory.segment())?.publish(bytes);
        Ok(Self { memory, bytes, to })
    }

    /// The memory that says where the slice is.
    pub(crate) fn memory(&self) -> Registered<F> {
        Arc::clone(&self.memory)
    }

    /// Copies for the receiver, if it is there.
    ///
    /// # Errors
    /// The slice is to be [withdrawn](Self::withdraw).
    pub(crate) fn help(&self, fabric: &F) -> Result<(), Fault> {
        offer(fabric, self.memory.segment())?.help(self.bytes, processes(fabric)?, self.to)
    }

    /// Gives the slice up. `None`: the receiver has it all. Else its copy, if there is memory.
    pub(crate) fn withdraw(self, progress: &Progress<F>) -> Option<Option<Registered<F>>> {
        let offer = offer(&progress.fabric, self.memory.segment()).ok().filter(|offer| offer.withdraw())?;
        let len = self.bytes.len() as u64;
        let copied = progress.memory(len).and_then(|copy| {
            copy.write(progress, 0, self.bytes)?;
            Ok(copy)
        });
        let copied = copied.ok();
        let key = |copy: &Registered<F>| SegmentKey { len, ..copy.segment().key() };
        offer.moved(copied.as_ref().map(key).as_ref());
        Some(copied)
    }
}

/// What a receiver opens of a message.
fn place(key: &SegmentKey) -> SegmentKey {
    SegmentKey { len: Offer::BYTES, ..*key }
}

/// Whether an offered message can be had now, or will not be.
pub(crate) fn is_still<F: Fabric>(progress: &Progress<F>, key: &SegmentKey) -> bool {
    let Ok(memory) = progress.open_offer(&place(key)) else { return true };
    offer(&progress.fabric, &memory).map_or(true, Offer::is_still)
        || progress.fabric.liveness(key.rank) != Liveness::Alive
}

/// Copies an offered message, or its beginning, if it does not lie elsewhere.
pub(crate) fn take<F: Fabric>(progress: &Progress<F>, key: &SegmentKey, into: &mut [u8]) -> Result<Taken, Fault> {
    let memory = progress.open_offer(&place(key))?;
    let ended = progress.fabric.liveness(key.rank).needed(key.rank);
    let taken = offer(&progress.fabric, &memory)?.take(processes(&progress.fabric)?, key.rank, into)?;
    match taken {
        // The liveness was read before the offer.
        Taken::Moving => ended.map(|()| Taken::Moving),
        Taken::Moved(to) if to.len != key.len => Err(Fault::of(FaultKind::Protocol, key.rank)),
        taken => Ok(taken),
    }
}

/// Copies an offered message, or its beginning.
pub(crate) async fn read<F: Fabric>(progress: &Progress<F>, key: &SegmentKey, into: &mut [u8]) -> Result<(), Fault> {
    loop {
        match take(progress, key, into)? {
            Taken::Whole => return Ok(()),
            Taken::Moved(to) => return progress.fabric.get(&*progress.open(&to)?, 0, into).await,
            Taken::Moving => {
                let memory = progress.open_offer(&place(key))?;
                progress.fabric.pause(progress.fabric.word_in(&memory, 0)?, 1_000).await;
            }
        }
    }
}
