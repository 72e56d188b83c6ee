//! Long messages between processes of one host: the receiver copies out of the sender's slice, and
//! the sender helps while it waits ([`Offer`]). So a message is copied once, by two cores.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use onesided_fabric::remote_memory::{Fault, FaultKind, Liveness, Rank};
use onesided_fabric::{Fabric, NOBODY, Offer, PeerProcesses, Segment, SegmentKey, Taken};

use crate::Protocol;
use crate::driver::progress::{Progress, Registered};

/// The slice of a send, until its receiver has it.
pub(crate) struct OfferedSlice<'b, F: Fabric> {
    memory: Registered<F>,
    bytes: &'b [u8],
    to: Rank,
    /// Of a [try](crate::driver::measured): how it goes, and how long this rank has copied, in nanoseconds.
    tried: Option<(Protocol, u64)>,
}

fn offer(memory: &impl Segment) -> Result<Offer<'_>, Fault> {
    memory.mapped().and_then(Offer::of).ok_or(Fault::of(FaultKind::Protocol, memory.rank()))
}

pub(crate) fn processes<F: Fabric>(fabric: &F) -> Result<&dyn PeerProcesses, Fault> {
    fabric.processes().ok_or(Fault::of(FaultKind::Unsupported, fabric.rank()))
}

impl<'b, F: Fabric> OfferedSlice<'b, F> {
    pub(crate) fn publish(progress: &Progress<F>, bytes: &'b [u8], to: Rank) -> Result<Self, Fault> {
        let memory = progress.memory(Offer::BYTES)?;
        offer(memory.segment()?)?.publish(bytes);
        Ok(Self { memory, bytes, to, tried: None })
    }

    /// The same to find out how long it takes, this way or by a copy, which is returned too.
    #[cold]
    pub(crate) fn publish_try(
        progress: &Progress<F>,
        bytes: &'b [u8],
        to: Rank,
    ) -> Result<(Self, Option<Registered<F>>), Fault> {
        let slice = Self::publish(progress, bytes, to)?;
        let Some(by) = progress.rules.measured.begin_try(bytes.len()) else { return Ok((slice, None)) };
        let slice = Self { tried: Some((by, 0)), ..slice };
        let (offer, begun) = (slice.offer()?, Instant::now());
        offer.ask_time();
        let (copy, nanos) = match by {
            Protocol::Offered => (None, 0),
            _ => (slice.copy(progress, offer), begun.elapsed().as_nanos() as u64),
        };
        Ok((Self { tried: Some((by, nanos)), ..slice }, copy))
    }

    /// The receiver has it: of a try, what it took.
    pub(crate) fn learn(&self, progress: &Progress<F>) {
        let Some((by, nanos)) = self.tried else { return };
        let time = self.offer().ok().and_then(Offer::time);
        if let Some(time) = time {
            progress.rules.measured.learn(by, self.bytes.len(), nanos + time);
        }
    }

    fn offer(&self) -> Result<Offer<'_>, Fault> {
        offer(self.memory.segment()?)
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
        self.offer()?.help(self.bytes, processes(fabric)?, self.to)
    }

    /// Gives the slice up. `None`: the receiver has it all. Else its copy, if there is memory.
    pub(crate) fn withdraw(self, progress: &Progress<F>) -> Option<Option<Registered<F>>> {
        if self.tried.is_some() {
            progress.rules.measured.end_try();
        }
        let offer = self.offer().ok().filter(|offer| offer.withdraw())?;
        let copied = self.copy(progress, offer);
        if copied.is_none() {
            offer.moved(None);
        }
        Some(copied)
    }

    /// Copies the slice to where the receiver reads it, if there is memory.
    fn copy(&self, progress: &Progress<F>, offer: Offer<'_>) -> Option<Registered<F>> {
        let len = self.bytes.len() as u64;
        let copy = progress.memory(len).ok()?;
        copy.write(progress, 0, self.bytes).ok()?;
        offer.moved(Some(&SegmentKey { len, ..copy.segment().ok()?.key() }));
        Some(copy)
    }
}

/// What a receiver opens of a message.
fn place(key: &SegmentKey) -> SegmentKey {
    SegmentKey { len: Offer::BYTES, ..*key }
}

/// Whether an offered message can be had now, or will not be.
pub(crate) fn is_still<F: Fabric>(progress: &Progress<F>, key: &SegmentKey) -> bool {
    let Ok(memory) = progress.open_offer(&place(key)) else { return true };
    offer(&*memory).map_or(true, Offer::is_still) || progress.fabric.liveness(key.rank) != Liveness::Alive
}

/// Copies an offered message, or its beginning.
pub(crate) async fn read<F: Fabric>(progress: &Progress<F>, key: &SegmentKey, into: &mut [u8]) -> Result<(), Fault> {
    let (fabric, memory) = (&progress.fabric, progress.open_offer(&place(key))?);
    let begun = begin(&*memory);
    loop {
        let ended = fabric.liveness(key.rank).needed(key.rank);
        match offer(&*memory)?.take(processes(fabric)?, key.rank, into)? {
            Taken::Whole => break,
            Taken::Moved(to) if to.len != key.len => return Err(Fault::of(FaultKind::Protocol, key.rank)),
            Taken::Moved(to) => {
                fabric.get(&*progress.open(&to)?, 0, into).await?;
                break;
            }
            Taken::Moving => {
                ended?; // the liveness was read before the offer
                fabric.pause(fabric.word_in(&memory, 0)?, 1_000).await;
            }
        }
    }
    end(&*memory, begun);
    Ok(())
}

/// The same without waiting. `None`: it is being moved now. Where slices are offered copies complete at post.
pub(crate) fn read_now<F: Fabric>(
    progress: &Progress<F>,
    key: &SegmentKey,
    into: &mut [u8],
) -> Option<Result<(), Fault>> {
    match pin!(read(progress, key, into)).poll(&mut Context::from_waker(NOBODY)) {
        Poll::Ready(read) => Some(read),
        Poll::Pending => None,
    }
}

/// When a copy began, if its sender asks how long it takes.
fn begin(memory: &impl Segment) -> Option<Instant> {
    offer(memory).is_ok_and(Offer::is_timed).then(Instant::now)
}

/// Says how long a copy took.
fn end(memory: &impl Segment, begun: Option<Instant>) {
    if let Some((begun, offer)) = begun.zip(offer(memory).ok()) {
        offer.tell_time(begun.elapsed().as_nanos() as u64);
    }
}
