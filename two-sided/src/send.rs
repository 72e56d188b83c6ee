//! The handle of a send.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};
use onesided_fabric::{Call, Drive, Fabric, Limit, Segment, SegmentKey, limited};

use crate::engine::Direct;
use crate::pipeline;
use crate::progress::{Progress, TooLong};
use crate::{Error, Messages, Tag};

/// A send that is under way. See [`Messages::send`].
#[must_use = "the failure of a send is reported by its handle alone"]
pub struct SendRequest<'m, F: Fabric> {
    messages: &'m Messages<F>,
    limit: Limit<'m, F>,
    what: What,
    call: Call<'m, Started<'m, F>, Result<(), Error>>,
}

/// The send as errors tell of it.
#[derive(Clone, Copy)]
struct What {
    to: u32,
    tag: Tag,
    bytes: u64,
}

impl What {
    const fn failed(self, fault: Fault) -> Error {
        let Self { to, tag, bytes } = self;
        Error::Send { to, tag, bytes, fault }
    }
}

/// A send that the engine has, until this is dropped.
struct Pending<'m, F: Fabric> {
    progress: &'m Progress<F>,
    to: Rank,
    send: usize,
}

/// `None`: the message is on its way. The error is boxed, to keep the handle small.
type Started<'m, F> = Result<Option<Pending<'m, F>>, Box<Error>>;

impl<F: Fabric> Drop for Pending<'_, F> {
    fn drop(&mut self) {
        self.progress.with(|engine| engine.detach(self.send));
    }
}

impl<'m, F: Fabric> SendRequest<'m, F> {
    pub(crate) fn start(messages: &'m Messages<F>, bytes: &[u8], (to, tag): (u32, Tag), synchronous: bool) -> Self {
        let what = What { to, tag, bytes: bytes.len() as u64 };
        let call = Call::NotStarted(Self::post(messages, bytes, what, synchronous));
        Self { messages, limit: Limit::NONE, what, call }
    }

    fn post(messages: &'m Messages<F>, bytes: &[u8], what: What, synchronous: bool) -> Started<'m, F> {
        let (progress, context, tag) = (messages.progress(), messages.context(), what.tag.0);
        let to = messages.rank("send", what.to)?;
        let eager = if synchronous { Err(TooLong) } else { progress.send_eager(to, (context, tag), bytes) };
        let send = match eager {
            Ok(send) => send,
            Err(TooLong) => Some(Self::announce(messages, bytes, what, to, synchronous)?),
        };
        Ok(send.map(|send| Pending { progress, to, send }))
    }

    /// Copies the message into registered memory, which the receiver reads.
    fn announce(
        messages: &'m Messages<F>,
        bytes: &[u8],
        what: What,
        to: Rank,
        synchronous: bool,
    ) -> Result<usize, Box<Error>> {
        let (progress, envelope) = (messages.progress(), (messages.context(), what.tag.0));
        let fabric = &progress.fabric;
        let announce = || {
            let memory = progress.memory(pipeline::room(what.bytes))?;
            let key = SegmentKey { len: what.bytes, ..memory.key() };
            // This rank may read its own message at once.
            let by_chunks = to != fabric.rank() && pipeline::fits(fabric, bytes.len());
            match by_chunks {
                true => pipeline::reset(fabric, &memory, &key)?,
                false => fabric.write_own(&memory, 0, bytes)?,
            }
            let announced = Arc::clone(&memory);
            let send = progress.with(|engine| {
                let send = engine.send_rendezvous(to, envelope, (key, by_chunks), announced);
                if synchronous {
                    engine.make_synchronous(send);
                }
                send
            });
            if by_chunks {
                pipeline::write(fabric, &memory, &key, bytes)?;
                progress.with(|engine| engine.notify(to));
            }
            Ok(send)
        };
        announce().map_err(|fault| Box::new(what.failed(messages.world().translate(fault))))
    }

    /// Sets a deadline, counted from the next wait or poll. The message may be received after it.
    pub const fn deadline(mut self, after: Duration) -> Self {
        self.limit.said = Some(after);
        self
    }

    async fn run(messages: &'m Messages<F>, what: What, started: Started<'m, F>) -> Result<(), Error> {
        let Some(pending) = started.map_err(|error| *error)? else { return Ok(()) };
        let sent = pending.progress.until(
            pending.to,
            Direct::none(),
            |engine, _, waker| engine.sent(pending.send, waker),
            |_| None,
        );
        sent.await.map_err(|fault| what.failed(messages.world().translate(fault)))
    }
}

impl<F: Fabric> SendRequest<'_, F> {
    /// Blocks until the message is on its way, or was read if it is longer than a packet.
    ///
    /// # Errors
    /// As of [`Messages::send`].
    #[inline]
    pub fn wait(self) -> Result<(), Error>
    where
        F: Drive,
    {
        match self.call {
            Call::NotStarted(Ok(None)) => Ok(()),
            _ => self.block(),
        }
    }
}

limited! {
    ['m, F], SendRequest<'m, F>, (), Error, |send| send.messages.world().fabric(),
    |started| Self::run(send.messages, send.what, started), late send.what.failed(Fault::new(FaultKind::TimedOut))
}

impl<F: Fabric> fmt::Debug for SendRequest<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let What { to, tag, bytes } = self.what;
        write!(f, "send of {bytes} bytes with {tag} to rank {to}, {:?}", self.call)
    }
}
